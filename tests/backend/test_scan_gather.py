"""Scans, gather and scatter, sorting, resampling and row reductions: the C kernels and NumPy
against real PyTorch, in any layout; both sides reject out-of-range indices."""
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as mt
from mindtorch.backend.cpu import large, sum, threads
from mindtorch.backend.c_kernels import scan_gather

needs_compiler = pytest.mark.skipif(scan_gather._lib() is None, reason="no C compiler here")
NUMBERS = "float32 float64 int64 int32 uint8 bool int16".split()


@pytest.fixture(params=["c", "numpy"], autouse=True)
def side(request, monkeypatch):
    """Runs every test with the C kernels for arrays of any size (normally only large ones use
    them), or without them."""
    if request.param == "c" and scan_gather._lib() is None:
        pytest.skip("no C compiler here")
    few = 1 if request.param == "c" else 1 << 62
    monkeypatch.setattr(large, "FEW", few)
    if request.param == "numpy":
        monkeypatch.setattr(scan_gather, "_moves", {})
        monkeypatch.setattr(scan_gather, "_typed", lambda name: {})
        monkeypatch.setattr(scan_gather, "_FEW", -1)
    monkeypatch.setattr(sum, "_LARGE", few)
    for name in ("_DIGITS", "_WORDS"):
        monkeypatch.setattr(scan_gather, name, few)


def numbers(draw, shape, dtype):
    rs = np.random.RandomState(draw(st.integers(0, 1 << 20)))
    a = np.round(rs.randn(*shape) * 4) / draw(st.sampled_from([1, 3]))  # with ties
    if dtype.startswith("float") and draw(st.integers(0, 3)) == 0:
        a = np.where(rs.rand(*shape) < .1, rs.choice([np.nan, np.inf, -0.]), a)
    return a > 0 if dtype == "bool" else np.abs(a).astype(dtype) if dtype == "uint8" else a.astype(dtype)


def laid(m, a, how):
    """Returns a tensor of these values in one of four layouts: contiguous, transposed, strided, or
    with a storage offset."""
    t = m.tensor(a)
    if not a.ndim or not how:
        return t
    if how == 1:
        return t.transpose(0, -1).contiguous().transpose(0, -1)
    if how == 2:
        part = m.zeros(*a.shape[:-1], a.shape[-1] * 2 + 1, dtype=t.dtype)[..., 1::2]
        part.copy_(t)
        return part
    return m.stack([t, t])[1]


def same(ours, real):
    for x, y in zip(ours, real) if isinstance(real, tuple) else [(ours, real)]:
        x, y = x.detach().numpy(), y.detach().numpy()
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(x, y, rtol=1e-5 if x.dtype == np.float32 else 1e-12, atol=1e-5 if x.dtype == np.float32 else 1e-12)


def both(f):
    """Checks that f has the same values, or errors of the same type, in both libraries."""
    try:
        real = f(torch)
    except (RuntimeError, IndexError) as e:
        with pytest.raises(type(e)):
            f(mt)
    else:
        same(f(mt), real)


shapes = st.lists(st.sampled_from([0, 1, 2, 3, 9, 40, 300]), min_size=1, max_size=3).filter(lambda s: np.prod(s) < 20000).map(tuple)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_scans(data):
    dtype, shape, how = data.draw(st.sampled_from(NUMBERS)), data.draw(shapes), data.draw(st.integers(0, 3))
    a, dim = numbers(data.draw, shape, dtype), data.draw(st.integers(-len(shape), len(shape) - 1))
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        if shape[dim] or name.startswith("cums") or name.startswith("cump"):
            same(tuple_of(getattr(mt, name)(laid(mt, a, how), dim)), tuple_of(getattr(torch, name)(laid(torch, a, how), dim)))
    if dtype == "float64":
        def grad(m):
            x = laid(m, a, how).clone().requires_grad_()
            x.cumsum(dim).backward(laid(m, a, 1))
            return x.grad
        same(grad(mt), grad(torch))


def tuple_of(x):
    return tuple(x) if isinstance(x, tuple) else x


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_gathering_and_scattering(data):
    dtype, shape, how = data.draw(st.sampled_from([*NUMBERS, "complex64", "complex128"])), data.draw(shapes), data.draw(st.integers(0, 3))
    dim, rs = data.draw(st.integers(0, len(shape) - 1)), np.random.RandomState(data.draw(st.integers(0, 99)))
    n = shape[dim]
    size = tuple([data.draw(st.integers(0, 2 * n if n else 0)) if d == dim else data.draw(st.integers(0, s)) for d, s in enumerate(shape)])
    a, index = numbers(data.draw, shape, dtype), rs.randint(0, max(n, 1), size)
    if index.size and data.draw(st.integers(0, 9)) == 0:
        index.reshape(-1)[rs.randint(index.size)] = data.draw(st.sampled_from([-1, n, 1 << 40, -(1 << 63)]))
    src, lay = numbers(data.draw, tuple([s + 1 for s in size]), dtype), data.draw(st.integers(0, 3))
    both(lambda m: m.gather(laid(m, a, how), dim, laid(m, index, lay)))
    if dtype != "bool":
        both(lambda m: m.scatter_add(laid(m, a, how), dim, laid(m, index, lay), laid(m, src, lay)))
    both(lambda m: m.scatter(laid(m, a, how), dim, laid(m, index, lay), 1))
    # For repeated indices PyTorch may keep either value, so each occurs once.
    if n and index.size:
        once = np.argsort(rs.rand(*size[:dim], n, *size[dim + 1:]), axis=dim)
        src = numbers(data.draw, once.shape, dtype)
        both(lambda m: m.scatter(laid(m, a, how), dim, laid(m, once, lay), laid(m, src, lay)))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_rows(data):
    dtype, shape, how = data.draw(st.sampled_from(NUMBERS)), data.draw(shapes), data.draw(st.integers(0, 3))
    dim, count = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.integers(0, 20))
    n = shape[dim]
    index = np.random.RandomState(data.draw(st.integers(0, 99))).randint(0, max(n, 1), count if n else 0)
    a, src = numbers(data.draw, shape, dtype), numbers(data.draw, (*shape[:dim], index.size, *shape[dim + 1:]), dtype)
    both(lambda m: m.index_select(laid(m, a, how), dim, laid(m, index, 2)))
    both(lambda m: m.index_add(laid(m, a, how), dim, laid(m, index, 3), laid(m, src, how)))
    if dim == 0 and n and dtype != "bool":
        far = np.where(np.arange(index.size) % 3, index, index - n)
        if far.size and data.draw(st.integers(0, 5)) == 0:
            far[-1] = data.draw(st.sampled_from([n, -n - 1]))
        for places in (index, far):
            both(lambda m: laid(m, a, how).index_put((laid(m, places, 2),), laid(m, src, how), accumulate=True))
    if dtype.startswith("float"):
        def grads(m):
            x = laid(m, a, how).clone().requires_grad_()
            (m.index_select(x, dim, m.tensor(index)) * laid(m, src, 0)).sum().backward()
            y = m.tensor(a.reshape(n, -1) if a.size else np.ones((n, 2), dtype)).requires_grad_()
            m.nn.functional.embedding(m.tensor(index), y).square().sum().backward()
            return x.grad, y.grad
        if dim == 0:
            same(grads(mt), grads(torch))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_orders(data):
    dtype, shape, how = data.draw(st.sampled_from(NUMBERS)), data.draw(shapes), data.draw(st.integers(0, 3))
    a, dim, down = numbers(data.draw, shape, dtype), data.draw(st.integers(0, len(shape) - 1)), data.draw(st.booleans())
    k = data.draw(st.integers(0, shape[dim]))
    both(lambda m: tuple(m.sort(laid(m, a, how), dim=dim, descending=down, stable=True)))
    both(lambda m: m.argsort(laid(m, a, how), dim=dim, descending=down, stable=True))
    if dtype != "bool":
        both(lambda m: m.topk(laid(m, a, how), k, dim, down)[0])
    if not shape[dim] or dtype == "bool":
        return
    keep, place, once = data.draw(st.booleans()), max(1, k), a.argsort(dim)
    # The choice among equal elements is tested in tests/ops/test_ops_sort.py.
    for b, parts in ((a, 1), (once, 2)):
        both(lambda m: tuple(m.median(laid(m, b, how), dim, keep)[:parts]))
        both(lambda m: tuple(m.nanmedian(laid(m, b, how), dim, keep)[:parts]))
        both(lambda m: tuple(m.kthvalue(laid(m, b, how), place, dim, keep)[:parts]))
        both(lambda m: tuple(m.topk(laid(m, b, how), k, dim, down)[:parts]))


def close(f, a, how, grad=True, tol=None):
    """Checks that f(library, tensor) has the same value and gradient in both libraries."""
    def run(m):
        x = laid(m, a, how).clone().requires_grad_()
        y = f(m, x)
        if grad:
            y.backward(m.tensor(np.random.RandomState(1).randn(*y.shape).astype(a.dtype)))
        return y, x.grad
    ours, real = run(mt), run(torch)
    for x, y in zip(ours, real):
        if y is not None:
            x, y = x.detach().numpy(), y.detach().numpy()
            assert (x.shape, x.dtype) == (y.shape, y.dtype)
            np.testing.assert_allclose(x, y, rtol=1e-4 if a.dtype == np.float32 else 1e-9, atol=(tol or 2e-5) if a.dtype == np.float32 else 1e-10)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_resampling(data):
    size = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 9), st.integers(1, 40)))
    out = data.draw(st.tuples(st.integers(1, 17), st.integers(1, 70)))
    a = np.random.RandomState(data.draw(st.integers(0, 99))).randn(*size).astype(data.draw(st.sampled_from(["float32", "float64"])))
    mode, how, align = data.draw(st.sampled_from(["nearest", "nearest-exact", "bilinear", "bicubic"])), data.draw(st.integers(0, 3)), data.draw(st.booleans())
    kw = {} if mode.startswith("nearest") else {"align_corners": align, "antialias": data.draw(st.booleans()) and not align}
    # PyTorch's rounding decides which pixels get a float32 bicubic weight.
    close(lambda m, x: m.nn.functional.interpolate(x, size=out, mode=mode, **kw), a, how, tol=1e-4)
    close(lambda m, x: m.nn.functional.interpolate(x[:, :, 0], size=out[1], mode="linear" if kw else "nearest"), a, how, tol=1e-4)
    close(lambda m, x: m.nn.functional.adaptive_max_pool2d(x, (min(out[0], size[2]), min(out[1], size[3]))), a, how)
    close(lambda m, x: m.nn.functional.adaptive_max_pool1d(x[:, :, 0], min(out[1], size[3])), a, how)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_row_reductions(data):
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 17, 40, 1500]), min_size=1, max_size=4).filter(lambda s: 1 < np.prod(s) < 20000).map(tuple))
    rs = np.random.RandomState(data.draw(st.integers(0, 99)))
    a = (rs.randn(*shape) * 2 + data.draw(st.sampled_from([0, 30]))).astype(data.draw(st.sampled_from(["float32", "float64"])))
    if data.draw(st.integers(0, 5)) == 0:
        a.reshape(-1)[rs.randint(a.size)] = data.draw(st.sampled_from([np.nan, np.inf]))
    how, keep, first = data.draw(st.integers(0, 3)), data.draw(st.booleans()), data.draw(st.integers(0, len(shape) - 1))
    dims = data.draw(st.sampled_from([None, tuple(range(first, len(shape))), (first,)]))
    kw = {} if dims is None else {"dim": dims, "keepdim": keep}
    for name in ("sum", "mean"):
        close(lambda m, x: getattr(m, name)(x, **kw), a, how, False, 1e-2 if name == "sum" else 1e-4)
    for name, more in (("std", {}), ("var", {"correction": 0}), ("var", {"correction": 2})):
        close(lambda m, x: getattr(m, name)(x, **kw, **more), a, how, False, 2e-3)
    for p in (1, 2, 3):
        close(lambda m, x: m.linalg.vector_norm(x, p, **kw), a, how, False, 1e-2)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_group_norms(data):
    groups, each, n = (data.draw(st.integers(1, 4)) for _ in range(3))
    size = data.draw(st.sampled_from([(5,), (20,), (7, 9), (3, 4, 5)]))
    rs = np.random.RandomState(data.draw(st.integers(0, 99)))
    a = (rs.randn(n, groups * each, *size) * 2 + 1).astype(data.draw(st.sampled_from(["float32", "float64"])))
    plain = data.draw(st.booleans())
    w, b = (None if plain else rs.randn(groups * each).astype(a.dtype) for _ in range(2))
    how = data.draw(st.integers(0, 3))
    grads = []

    def norm(m, x):
        wt, bt = (None if v is None else m.tensor(v).requires_grad_() for v in (w, b))
        grads.append([v for v in (wt, bt) if v is not None])
        return m.nn.functional.group_norm(x, groups, wt, bt)
    close(norm, a, how, tol=1e-4)
    for ours, real in zip(*grads):
        np.testing.assert_allclose(ours.grad.numpy(), real.grad.numpy(), rtol=1e-4, atol=2e-3 if a.dtype == np.float32 else 1e-9)


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_large_arrays_for_any_thread_count(dtype, side, monkeypatch):
    rs = np.random.RandomState(0)
    a, wide = (rs.randn(3, 401, 97) * 100).astype(dtype), (rs.randn(70001) * 1e6).astype(dtype)
    index = rs.randint(0, 97, a.shape)
    results = []
    for count in (1, 3):
        monkeypatch.setattr(threads._pool, "count", count)
        x = mt.tensor(a)
        results.append([x.cumsum(1), x.cumsum(2), *x.cummax(2), x.gather(2, mt.tensor(index)), x.scatter_add(2, mt.tensor(index), x),
                        x.index_add(1, mt.tensor(index[0, :, 0]), x), *mt.tensor(wide).sort(stable=True), x.sort(1)[0], mt.topk(mt.tensor(wide), 100)[0]])
    x = torch.tensor(a)
    real = [x.cumsum(1), x.cumsum(2), *x.cummax(2), x.gather(2, torch.tensor(index)), x.scatter_add(2, torch.tensor(index), x),
            x.index_add(1, torch.tensor(index[0, :, 0]), x), *torch.tensor(wide).sort(stable=True), x.sort(1)[0], torch.topk(torch.tensor(wide), 100)[0]]
    for one, three, r in zip(*results, real):
        np.testing.assert_array_equal(one.numpy(), three.numpy())
        np.testing.assert_allclose(one.numpy(), r.numpy(), rtol=2e-5, atol=2e-3 if dtype == "float32" else 1e-9)


@given(st.data())
@settings(max_examples=60)
def test_bincount_nonzero_and_searchsorted(data):
    """Tests bincount, nonzero and searchsorted; the latter also with nan in the sorted row or among
    the values."""
    with pytest.MonkeyPatch.context() as m:
        numpy = data.draw(st.booleans()) or scan_gather._lib() is None
        if numpy:
            m.setattr(scan_gather, "_ready", lambda: None)
        n = data.draw(st.sampled_from([0, 1, 2, 5, 300, 1100]))
        a = np.random.RandomState(data.draw(st.integers(0, 99))).randint(0, data.draw(st.sampled_from([1, 7, 2000])), n)
        least, step = data.draw(st.sampled_from([0, 9])), data.draw(st.sampled_from([1, 2]))
        same(mt.tensor(a)[::step].bincount(minlength=least), torch.tensor(a)[::step].bincount(minlength=least))
        shape = data.draw(st.sampled_from([(0,), (7,), (3, 5), (2, 0, 3), (2, 3, 290), ()]))
        x = numbers(data.draw, shape, data.draw(st.sampled_from(["bool", "float32", "int64", "uint8"])))
        how = data.draw(st.integers(0, 3))
        for as_tuple in (False, True):
            same(laid(mt, x, how).nonzero(as_tuple=as_tuple), laid(torch, x, how).nonzero(as_tuple=as_tuple))
        dtype, right = data.draw(st.sampled_from(["float32", "float64", "int64", "int32", "uint8"])), data.draw(st.booleans())
        row = np.sort(numbers(data.draw, (data.draw(st.integers(1, 70)),), dtype))
        x = numbers(data.draw, (3, 11), dtype)
        if numpy:  # NumPy sorts nan as the largest value, PyTorch does not
            row = np.nan_to_num(row)
            row.sort()
        same(mt.searchsorted(mt.tensor(row), laid(mt, x, how), right=right), torch.searchsorted(torch.tensor(row), laid(torch, x, how), right=right))
        rows = np.stack([row] * 3)
        same(mt.searchsorted(mt.tensor(rows), mt.tensor(x), right=right, out_int32=True), torch.searchsorted(torch.tensor(rows), torch.tensor(x), right=right, out_int32=True))


def test_bincount_rejects_negative_values():
    with pytest.raises(RuntimeError, match="non-negative"):
        mt.tensor([1, -1]).bincount()


@needs_compiler
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_top_and_ranked_match_a_stable_sort(data):
    """Compares along.top and along.ranked with a stable sort, for rows longer and shorter than the
    skipped blocks, split between threads."""
    if not scan_gather._typed("mt_top"):
        return  # the variant without C
    draw = data.draw
    dtype = np.dtype(draw(st.sampled_from(["float32", "float64", "int64", "int32", "uint8"])))
    rows, n = draw(st.integers(1, 9)), draw(st.integers(1, 400))
    if draw(st.booleans()):
        rows = 66000 // n + 1
    rs = np.random.RandomState(draw(st.integers(0, 1 << 20)))
    a = rs.permutation(rows * n).reshape(rows, n) if draw(st.booleans()) else rs.randint(0, 4 * n, (rows, n))
    a = (a % 251).astype(dtype) if dtype == "uint8" else a.astype(dtype)
    if dtype.kind == "f":
        a -= a.mean().astype(dtype)
        if draw(st.integers(0, 3)) == 0:
            a[rs.rand(*a.shape) < 0.05] = np.nan
        if draw(st.booleans()):
            a[rs.rand(*a.shape) < 0.05] = rs.choice([0.0, -0.0, np.inf, -np.inf])
    before, threads._pool.count = threads._pool.count, 3
    try:
        k, down = draw(st.integers(1, min(n, 48))), draw(st.booleans())
        # Descending, nan first: the reverse of a stable sort of the reversed row.
        by = (n - 1 - np.argsort(a[:, ::-1], axis=1, kind="stable"))[:, ::-1] if down else np.argsort(a, axis=1, kind="stable")
        s = np.take_along_axis(a, by, 1)
        some = s[:, :min(k + 1, n)]
        tied = ((some[:, 1:] == some[:, :-1]) | (some[:, 1:] != some[:, 1:]) & (some[:, :-1] != some[:, :-1])).any()
        got = scan_gather.top(a, k, down, True)
        np.testing.assert_array_equal(got[1], by[:, :k])
        np.testing.assert_array_equal(got[0], s[:, :k])
        assert (scan_gather.top(a, k, down) is None) == tied
        k = draw(st.one_of(st.integers(0, n - 1), st.integers(0, min(n - 1, 48)), st.integers(max(0, n - 49), n - 1)))
        by = np.argsort(a, axis=1, kind="stable")
        s = np.take_along_axis(a, by, 1)
        got = scan_gather.ranked(a, scan_gather.PLACE, k, False)
        unsure = ((a == s[:, k:k + 1]).sum(1) != 1).any() or (a != a).any()
        assert (got is None) == unsure
        if got is not None:
            np.testing.assert_array_equal(got[0], s[:, k])
            np.testing.assert_array_equal(got[1], by[:, k])
    finally:
        threads._pool.count = before
