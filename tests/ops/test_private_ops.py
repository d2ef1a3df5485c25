"""Ops with a leading underscore that libraries call, compared with PyTorch."""
import pytest
import torch as real
from hypothesis import given, strategies as st

import mindtorch.torch as mine

DTYPES = ("float32", "bfloat16", "float16")


def ends(T, cuts, dtype="int32"):
    return T.tensor(cuts, dtype=getattr(T, dtype))


@st.composite
def groups(draw):
    """Draws kinds of operands, sizes that PyTorch's kernels support, and the ends of the groups."""
    kind, dtype = draw(st.sampled_from(("23", "32", "22", "33"))), draw(st.sampled_from(DTYPES))
    m, k, n = [8 * draw(st.integers(1, 2)) for _ in range(3)]
    count = draw(st.integers(1, 4))
    along = {"23": m, "32": n, "22": k, "33": 0}[kind]
    # The groups cover all rows, because PyTorch's result behind the last group is undefined. Only
    # in kind "23" may a group have a size that is not a multiple of 8, because rows stay aligned.
    step = 1 if kind == "23" else 8
    cuts = sorted(step * draw(st.integers(0, along // step)) for _ in range(count - 1)) + [along]
    a = {"23": (m, k), "32": (count, m, k), "22": (m, k), "33": (count, m, k)}[kind]
    b = {"23": (count, k, n), "32": (k, n), "22": (k, n), "33": (count, k, n)}[kind]
    return a, b, None if kind == "33" else cuts, dtype, draw(st.booleans()), draw(st.integers(0, 99))


@pytest.mark.nightly
@given(groups())
def test_grouped_products(case):
    a, b, cuts, dtype, flipped, seed = case
    g = real.Generator().manual_seed(seed)
    values = [real.randn(s, generator=g) for s in (a, b)]
    results = []
    for T in (real, mine):
        x, w = [T.tensor(v.tolist()).to(getattr(T, dtype)) for v in values]
        if flipped:  # column-major operands
            x, w = [t.mT.contiguous().mT for t in (x, w)]
        x, w = x.requires_grad_(), w.requires_grad_()
        y = T._grouped_mm(x, w, offs=None if cuts is None else ends(T, cuts))
        (y.float() * T.arange(1.0, y.numel() + 1).reshape(y.shape).cos()).sum().backward()
        results.append([y, x.grad, w.grad])
    tolerance = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 3e-3}[dtype]
    for r, m in zip(*results):
        assert str(r.dtype) == str(m.dtype) and tuple(r.shape) == tuple(m.shape)
        real.testing.assert_close(real.tensor(m.float().tolist()).reshape(r.shape), r.float().detach(), rtol=tolerance, atol=tolerance * 4)


def test_rows_after_the_last_group_are_zero():
    x, w = mine.ones(6, 16, requires_grad=True), mine.ones(2, 16, 8, requires_grad=True)
    y = mine.nn.functional.grouped_mm(x, w, offs=ends(mine, [1, 4]))
    assert y.sum(1).tolist() == [128.0] * 4 + [0.0] * 2
    y.sum().backward()
    assert x.grad.sum(1).tolist() == [128.0] * 4 + [0.0] * 2 and w.grad.sum((1, 2)).tolist() == [128.0, 384.0]
    y = mine._grouped_mm(mine.ones(2, 8, 16), mine.ones(16, 6), ends(mine, [2, 4]))
    assert tuple(y.shape) == (8, 6) and y.sum(0).tolist() == [128.0] * 4 + [0.0] * 2


REFUSED = {
    "dtype": lambda T: T._grouped_mm(T.ones(6, 16, dtype=T.float64), T.ones(3, 16, 8, dtype=T.float64), offs=ends(T, [2, 2, 6])),
    "integers": lambda T: T._grouped_mm(T.ones(6, 16).int(), T.ones(3, 16, 8).int(), offs=ends(T, [2, 2, 6])),
    "two dtypes": lambda T: T._grouped_mm(T.ones(6, 16), T.ones(3, 16, 8).bfloat16(), offs=ends(T, [2, 2, 6])),
    "no offsets": lambda T: T._grouped_mm(T.ones(6, 16), T.ones(3, 16, 8)),
    "offsets of batches": lambda T: T._grouped_mm(T.ones(3, 8, 16), T.ones(3, 16, 8), offs=ends(T, [1, 2, 3])),
    "int64 offsets": lambda T: T._grouped_mm(T.ones(6, 16), T.ones(3, 16, 8), offs=ends(T, [2, 2, 6], "int64")),
    "a matrix of offsets": lambda T: T._grouped_mm(T.ones(6, 16), T.ones(3, 16, 8), offs=ends(T, [[2, 2, 6]])),
    "too few offsets": lambda T: T._grouped_mm(T.ones(6, 16), T.ones(3, 16, 8), offs=ends(T, [2, 6])),
    "bias": lambda T: T._grouped_mm(T.ones(6, 16), T.ones(3, 16, 8), offs=ends(T, [2, 2, 6]), bias=T.ones(8)),
    "out_dtype": lambda T: T._grouped_mm(T.ones(6, 16), T.ones(3, 16, 8), offs=ends(T, [2, 2, 6]), out_dtype=T.bfloat16),
    "inner sizes": lambda T: T._grouped_mm(T.ones(6, 16), T.ones(3, 8, 16), offs=ends(T, [2, 2, 6])),
    "batches": lambda T: T._grouped_mm(T.ones(2, 8, 16), T.ones(3, 16, 8)),
    "a vector": lambda T: T._grouped_mm(T.ones(16), T.ones(3, 16, 8), offs=ends(T, [2, 2, 6])),
    "_int_mm, dtype": lambda T: T._int_mm(T.ones(32, 16), T.ones(16, 8)),
    "_int_mm, dims": lambda T: T._int_mm(T.ones(32, dtype=T.int8), T.ones(16, 8, dtype=T.int8)),
    "_int_mm, sizes": lambda T: T._int_mm(T.ones(32, 8, dtype=T.int8), T.ones(16, 8, dtype=T.int8)),
    "floats as rows": lambda T: T._convert_indices_from_coo_to_csr(T.ones(3), 2),
    "a matrix of rows": lambda T: T._convert_indices_from_coo_to_csr(T.ones(3, 2).long(), 2),
    "floats as places": lambda T: T._convert_indices_from_csr_to_coo(T.ones(3), T.ones(2).long()),
    "segments by nothing": lambda T: T._segment_reduce(T.ones(3), "sum"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_private_op_calls_raise(name):
    told = []
    for T in (real, mine):
        with pytest.raises(Exception) as e:
            REFUSED[name](T)
        told.append((type(e.value).__name__, str(e.value).split(" on device")[0]))
    assert told[0][0] == told[1][0]
    if name not in ("_int_mm, dtype", "_int_mm, dims", "_int_mm, sizes", "segments by nothing"):
        assert told[0][1].startswith(told[1][1][:40]), told


def test_offsets_outside_are_an_error():
    for cuts in ([2, 2, 9], [4, 2, 6], [-1, 2, 6]):
        with pytest.raises(RuntimeError, match="offsets must be non-decreasing"):
            mine._grouped_mm(mine.ones(6, 16), mine.ones(3, 16, 8), offs=ends(mine, cuts))


def test_grouped_products_keep_their_dtype_under_autocast():
    kinds = []
    for T in (real, mine):
        with T.autocast("cpu"):
            kinds.append(str(T.nn.functional.grouped_mm(T.ones(6, 16), T.ones(3, 16, 8), offs=ends(T, [2, 2, 6])).dtype))
    assert kinds[0] == kinds[1]


@pytest.mark.nightly
@given(st.integers(1, 20), st.integers(1, 24), st.integers(1, 9), st.integers(0, 99))
def test_products_of_int8(m, k, n, seed):
    g = real.Generator().manual_seed(seed)
    a, b = real.randint(-128, 128, (m, k), generator=g).to(real.int8), real.randint(-128, 128, (k, n), generator=g).to(real.int8)
    r, o = real._int_mm(a, b), mine._int_mm(*[mine.tensor(t.tolist(), dtype=mine.int8) for t in (a, b)])
    assert o.dtype is mine.int32 and o.tolist() == r.tolist()


@pytest.mark.nightly
@given(st.lists(st.integers(0, 6), max_size=12), st.sampled_from(("int32", "int64")), st.booleans())
def test_coo_to_csr_indices(rows, dtype, short):
    rows = sorted(rows)
    r, o = [T._convert_indices_from_coo_to_csr(T.tensor(rows, dtype=getattr(T, dtype)), 7, out_int32=short) for T in (real, mine)]
    assert str(r.dtype) == str(o.dtype) and r.tolist() == o.tolist()


@pytest.mark.nightly
@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=3), st.booleans(), st.booleans(), st.booleans())
def test_csr_to_coo_indices(lines, batched, short, transpose):
    total = max(map(sum, lines))
    # the same number of elements in each matrix
    lines = [[*line[:3], line[3] + total - sum(line)] for line in lines]
    ptr, ind = [[0, *(sum(line[:i + 1]) for i in range(4))] for line in lines], [[(3 * i) % 5 for i in range(total)] for _ in lines]
    if not batched:
        ptr, ind = ptr[0], ind[0]
    r, o = [T._convert_indices_from_csr_to_coo(T.tensor(ptr), T.tensor(ind, dtype=T.int64), out_int32=short, transpose=transpose) for T in (real, mine)]
    assert str(r.dtype) == str(o.dtype) and tuple(r.shape) == tuple(o.shape) and r.tolist() == o.tolist()


def test_segment_reduce_under_its_deprecated_name():
    for reduce in ("sum", "mean", "min", "max", "prod"):
        results = []
        for T in (real, mine):
            x = T.arange(1.0, 9).reshape(4, 2).requires_grad_()
            y = T._segment_reduce(x, reduce=reduce, offsets=T.tensor([0, 1, 1, 4]), initial=0 if reduce != "prod" else 1)
            results.append([y.tolist(), T.autograd.grad(y.sum(), x)[0].tolist()])
        assert results[0] == results[1], reduce


def test_float8_matmul_is_named_in_the_error():
    with pytest.raises(NotImplementedError, match="_scaled_mm"):
        mine._scaled_mm(mine.ones(16, 16), mine.ones(16, 16), mine.ones(()), mine.ones(()))
