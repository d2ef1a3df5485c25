"""Grid sampling, padding, embedding bags, permuted copies and fills: the C kernels and NumPy
against real PyTorch, with gradients."""
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as mt
from mindtorch.backend.cpu import threads
from mindtorch.backend.c_kernels import copy_pad_grid

quick = settings(max_examples=20, deadline=None)
needs_compiler = pytest.mark.skipif(copy_pad_grid._lib() is None, reason="no C compiler here")


@pytest.fixture(params=["c", "numpy"], autouse=True)
def side(request, monkeypatch):
    if request.param == "c" and copy_pad_grid._lib() is None:
        pytest.skip("no C compiler here")
    if request.param == "numpy":
        monkeypatch.setattr(copy_pad_grid, "_lib", lambda: None)
    return request.param


def close(ours, real):
    for x, y in zip(ours, real, strict=True):
        x, y = [(t.to_dense() if t.is_sparse else t).detach().numpy() for t in (x, y)]
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        tol = 1e-4 if x.dtype == np.float32 else 1e-10
        np.testing.assert_allclose(x, y, rtol=tol, atol=tol * 10)


def with_gradients(f, *arrays):
    """Compares f of the arrays, and their gradients, in both libraries."""
    results = []
    for m in (mt, torch):
        leaves = [m.tensor(a).requires_grad_() for a in arrays]
        y = f(m, *leaves)
        y.backward(m.linspace(.5, 1.5, max(1, y.numel()), dtype=y.dtype)[:y.numel()].view(y.shape))
        results.append([y, *[v.grad for v in leaves]])
    close(*results)


# ------------------------------------------------------------------ grid sampling and padding
@quick
@given(data=st.data())
def test_grid_sample(data):
    dims = data.draw(st.integers(2, 3))
    mode = data.draw(st.sampled_from(["bilinear", "nearest", "bicubic"][:4 - dims + 1]))
    padding, align = data.draw(st.sampled_from(["zeros", "border", "reflection"])), data.draw(st.booleans())
    rs = np.random.RandomState(data.draw(st.integers(0, 99)))
    size, out = rs.randint(1, 7, dims), rs.randint(1, 14 if dims == 2 else 6, dims)
    n, c = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 4))
    dtype, reach = data.draw(st.sampled_from(["float32", "float64"])), data.draw(st.sampled_from([0.9, 1.3, 7]))
    x, places = rs.randn(n, c, *size).astype(dtype), ((rs.rand(n, *out, dims) * 2 - 1) * reach).astype(dtype)
    turned = data.draw(st.booleans())

    def sample(m, x, g):
        x = x.transpose(1, 2).contiguous().transpose(1, 2) if turned else x
        return m.nn.functional.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=align)
    with_gradients(sample, x, places)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_reads_nothing_out_of_bounds(mode):
    x = np.full((1, 2, 3, 4), np.nan, "float32")
    x[..., 2, 3] = 2
    places = np.array([[[[-9, 0], [0, 9], [1, 1], [5, -5], [1.2, 1.2]]]], "float32")
    close(*[[m.nn.functional.grid_sample(m.tensor(x), m.tensor(places), mode=mode, align_corners=True)] for m in (mt, torch)])


@quick
@given(data=st.data())
def test_gradient_of_padding(data):
    """Tests small and large arrays with one to three axes; cropped elements get no gradient."""
    draw = data.draw
    dims, mode = draw(st.integers(1, 3)), draw(st.sampled_from(["reflect", "replicate", "circular"]))
    shape = [draw(st.integers(1, 3)), 2, *[draw(st.sampled_from([4, 5, 9, 40 if dims < 3 else 6])) for _ in range(dims)]]
    pads = [draw(st.integers(0 if mode == "circular" else -1, 3)) for _ in range(2 * dims)]
    a = np.random.RandomState(draw(st.integers(0, 99))).randint(-9, 9, shape).astype(draw(st.sampled_from(["float32", "float64"])))
    turned = draw(st.booleans())

    def f(m):
        x = m.tensor(a).requires_grad_()
        y = m.nn.functional.pad(x.transpose(1, -1).contiguous().transpose(1, -1) if turned else x, pads, mode=mode)
        y.backward(m.tensor(np.random.RandomState(1).randint(-9, 9, tuple(y.shape)).astype(a.dtype)))
        return [y.detach(), x.grad]
    close(f(mt), f(torch))


@needs_compiler
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_grid_sample_on_threads(mode, side, monkeypatch):
    rs = np.random.RandomState(0)
    x, places = rs.randn(3, 8, 21, 17).astype("float32"), (rs.rand(3, 77, 61, 2) * 2.4 - 1.2).astype("float32")
    results = []
    for count in (1, 3):
        monkeypatch.setattr(threads._pool, "count", count)
        a, g = mt.tensor(x).requires_grad_(), mt.tensor(places).requires_grad_()
        y = mt.nn.functional.grid_sample(a, g, mode=mode, align_corners=False)
        y.sum().backward()
        results.append([v.detach().numpy() for v in (y, a.grad, g.grad)])
    for one, three in zip(*results):
        np.testing.assert_array_equal(one, three)


# ------------------------------------------------------------------ embedding bags
@quick
@given(data=st.data())
def test_embedding_bag(data):
    rs = np.random.RandomState(data.draw(st.integers(0, 99)))
    n, d, mode = data.draw(st.integers(1, 9)), data.draw(st.sampled_from([0, 1, 5, 8, 70])), data.draw(st.sampled_from(["sum", "mean", "max"]))
    dtype, padding = data.draw(st.sampled_from(["float32", "float64"])), data.draw(st.sampled_from([None, 0]))
    count, sparse, weighed = data.draw(st.integers(1, 30)), mode != "max" and data.draw(st.booleans()), mode == "sum" and data.draw(st.booleans())
    if data.draw(st.booleans()):
        index, offsets = rs.randint(0, n, (data.draw(st.integers(1, 5)), count)), None
    else:
        index, offsets = rs.randint(0, n, count), np.sort(rs.randint(0, count + 1, data.draw(st.integers(1, 6))))
        offsets[0] = 0
    w, s = rs.randn(n, d).astype(dtype), [rs.randn(*index.shape).astype(dtype)] if weighed else []

    def bag(m, w, s=None):
        # PyTorch's sparse gradient kernel requires a contiguous tensor
        s = s.detach() + s * 0 if s is not None and sparse else s
        return m.nn.functional.embedding_bag(m.tensor(index), w, None if offsets is None else m.tensor(offsets), mode=mode, sparse=sparse,
                                             per_sample_weights=s, padding_idx=padding)
    with_gradients(bag, w, *s)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bag_double_backward(mode):
    rs = np.random.RandomState(1)
    index, offsets = mt.tensor(rs.randint(0, 5, 9)), mt.tensor([0, 2, 2, 7])
    w, s = mt.tensor(rs.randn(5, 3)).requires_grad_(), mt.tensor(rs.randn(9)).requires_grad_()

    def f(w, s):
        return mt.nn.functional.embedding_bag(index, w, offsets, mode=mode, per_sample_weights=s if mode == "sum" else None)
    assert mt.autograd.gradcheck(f, (w, s) if mode == "sum" else (w, None))
    if mode == "sum":
        assert mt.autograd.gradgradcheck(f, (w, s))
    else:
        assert mt.autograd.gradgradcheck(lambda w: f(w * w, None), (w,))


def test_embedding_bag_index_out_of_range_raises():
    for m in (mt, torch):
        with pytest.raises(RuntimeError):
            m.nn.functional.embedding_bag(m.tensor([[0, 5]]), m.zeros(5, 2))


# ------------------------------------------------------------------ lookup tables of indices
@quick
@given(data=st.data())
def test_flip_pad_tril_and_indexing(data):
    rs = np.random.RandomState(data.draw(st.integers(0, 99)))
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=4)))
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64", "uint8", "complex128", "int16"]))
    a = (rs.randn(*shape) * 50).astype(dtype)
    what = data.draw(st.sampled_from(["flip", "pad", "tril", "triu", "index"]))
    kw = {"turned": data.draw(st.booleans()), "by": data.draw(st.integers(-10, 10))}
    dims = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True, max_size=3))
    index = rs.randint(-shape[-1], shape[-1], (3, 5))
    mode = data.draw(st.sampled_from(["reflect", "replicate", "circular"]))
    room = shape[-1] - 1 if mode == "reflect" else shape[-1]
    pads = [data.draw(st.integers(0, room)) for _ in range(2)]

    def f(m):
        x = m.tensor(a)
        x = x.transpose(0, -1).contiguous().transpose(0, -1) if kw["turned"] else x
        if what == "pad":
            x = x.reshape(1, -1, shape[-1])
            return m.nn.functional.pad(x if dtype.startswith("float") else x.double(), pads, mode=mode)
        return {"flip": lambda: x.flip(dims), "tril": lambda: x.tril(kw["by"]), "triu": lambda: x.triu(kw["by"]), "index": lambda: x[..., m.tensor(index)]}[what]()
    close([f(mt)], [f(torch)])


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64", "bool"])
def test_large_copies_on_threads(dtype, side, monkeypatch):
    a = (np.random.RandomState(0).randn(6, 181, 97) * 9).astype(dtype)
    columns = np.arange(-90, 90)
    monkeypatch.setattr(threads._pool, "count", 3)

    def f(m):
        x, pad = m.tensor(a), m.nn.functional.pad
        more = [pad(x, (5, 60), mode=mode) for mode in ("reflect", "replicate", "circular")] if dtype != "bool" else []
        return [x.flip(0, 2), x.flip(1), x.tril(-3), x.triu(40), x[:, :, m.tensor(columns)], x[:, m.tensor(columns)], *more]
    close(f(mt), f(torch))


@pytest.mark.parametrize("at", [97, -98])
def test_column_index_out_of_range_raises(at):
    for m in (mt, torch):
        with pytest.raises(IndexError):
            m.zeros(60, 97)[:, m.tensor([0, at] * 60)]
        with pytest.raises(RuntimeError):
            m.zeros(70, 97).scatter(1, m.full((70, 97), at), 1.)
        with pytest.raises(RuntimeError):
            m.zeros(70, 97).scatter_add(1, m.full((70, 97), at), m.ones(70, 97))


# ------------------------------------------------------------------ permuted copies, fills
DTYPES = ["bool", "uint8", "float16", "int32", "float32", "float64", "complex64", "complex128"]


@needs_compiler
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), dims=st.integers(1, 5), dtype=st.sampled_from(DTYPES), step=st.integers(1, 3), back=st.booleans(), repeated=st.booleans(),
       gaps=st.booleans())
def test_permuted_copies(seed, dims, dtype, step, back, repeated, gaps):
    """Checks moves.copied for any permutation: correct values if it reports success, and no byte
    written outside them."""
    r = np.random.RandomState(seed)
    shape = [int(r.choice([1, 2, 3, 4, 5, 8, 17, 40, 70] if dims < 4 else [1, 2, 3, 4, 9])) for _ in range(dims)]
    a = (r.standard_normal([n * step for n in shape]) * 50).astype(dtype)[tuple([slice(None, None, step)] * dims)].transpose(r.permutation(dims))
    a = a[::-1] if back else a
    if repeated:
        a = np.broadcast_to(a, (3, *a.shape))
    order = r.permutation(a.ndim)
    whole = np.full([a.shape[i] + 2 * gaps for i in order], 1, dtype)
    to = whole[tuple([slice(1, -1) if gaps else slice(None)] * a.ndim)].transpose(np.argsort(order))
    want = whole.copy()
    if copy_pad_grid.copied(to, a):
        want[tuple([slice(1, -1) if gaps else slice(None)] * a.ndim)].transpose(np.argsort(order))[...] = a
    np.testing.assert_array_equal(whole, want)


@pytest.mark.parametrize("dtype", DTYPES + ["bfloat16"])
@pytest.mark.parametrize("perm", [(3, 1, 0, 2), (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 2, 3)])
def test_copies_to_other_memory_formats(dtype, perm):
    a = (np.random.RandomState(1).randn(5, 18, 7, 21) * 9).astype(np.float32)

    def f(m):
        kind = getattr(m, dtype)
        x = m.tensor(a).to(kind)
        y = x.permute(perm)
        into = m.zeros(y.shape, dtype=kind).contiguous(memory_format=m.channels_last)
        into.copy_(y)
        found = [y.contiguous(), y.clone(), y.contiguous(memory_format=m.channels_last), into, y.reshape(-1), y[::2].contiguous(), y[:, :, 1:].flatten(1)]
        return [(str(t.dtype), t.stride(), t.to(m.complex128 if kind.is_complex else m.float64).numpy().tolist()) for t in found]
    assert f(mt) == f(torch)


@pytest.mark.parametrize("factor", [2, 3, 5])
def test_pixel_shuffle_and_unshuffle(factor):
    a = np.random.RandomState(1).randn(2, factor * factor * 3, 14, 10).astype(np.float32)
    with_gradients(lambda m, x: m.nn.functional.pixel_unshuffle(m.nn.functional.pixel_shuffle(x, factor) * 2, factor), a)


@pytest.mark.parametrize("dtype", DTYPES + ["bfloat16", "int64", "int16"])
@pytest.mark.parametrize("size", [(0,), (), (70000,), (300, 301), (3, 100001)])
def test_fills(dtype, size):
    def f(m):
        kind = getattr(m, dtype)
        x = m.ones(size, dtype=kind)
        found = [m.full(size, 3, dtype=kind), m.full_like(x, 0), m.zeros_like(x), x.clone().fill_(5), x.clone().zero_(), m.empty_like(x).fill_(m.tensor(2, dtype=kind))]
        if kind.is_floating_point:
            found += [m.full(size, float("nan"), dtype=kind), x.clone().fill_(-0.0).reciprocal(), m.full(size, float("inf"), dtype=kind)]
        if len(size) == 2:
            part = x.clone()
            part[:, 1:].zero_()
            part.t()[5:].fill_(7)
            found.append(part)
        return [(str(t.dtype), t.stride(), t.to(m.complex128 if kind.is_complex else m.float64).numpy()) for t in found]
    for (*a, x), (*b, y) in zip(f(mt), f(torch), strict=True):
        assert a == b
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1), None])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_flip_allocates_only_its_result(dtype, dims):
    """Checks the peak memory: an index array for a long dimension would take more than these
    elements."""
    x = mt.ones(1 << 10, 1 << 11, dtype=mt.from_numpy(np.zeros(1, dtype)).dtype)
    x = x.flatten() if dims is None else x
    tracemalloc.start()
    y = x.flip(dims or 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.1 * y.numel() * y.element_size()
    assert (y.numpy() == np.flip(x.numpy(), dims)).all()
