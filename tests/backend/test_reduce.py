"""Reductions, softmax and norms of rows and columns: the C kernels and NumPy against real PyTorch,
in any layout, with nan and infinities."""
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as mt
from mindtorch.backend.cpu import large, threads
from mindtorch.backend.c_kernels import scan_gather, elementwise, copy_pad_grid, pooling, reduce

REDUCTIONS = {
    "sum": lambda m, x, **k: x.sum(**k), "mean": lambda m, x, **k: x.mean(**k), "amax": lambda m, x, **k: x.amax(**k), "amin": lambda m, x, **k: x.amin(**k),
    "norm": lambda m, x, **k: m.linalg.vector_norm(x, **k), "norm 1": lambda m, x, **k: m.linalg.vector_norm(x, 1, **k),
    "logsumexp": lambda m, x, **k: m.logsumexp(x, **(k if k.get("dim") is not None else {**k, "dim": tuple(range(x.dim()))}))}


@pytest.fixture(params=["c", "numpy"], autouse=True)
def side(request, monkeypatch):
    """Runs every test with the C kernels for arrays of any size (normally only large ones use
    them), or without them."""
    if request.param == "c" and reduce._lib() is None:
        pytest.skip("no C compiler here")
    for name in ("FEW", "SOME"):
        monkeypatch.setattr(large, name, 1 if request.param == "c" else 1 << 62)
    if request.param == "numpy":
        for name in ("groups", "groups_back", "attend", "scaled"):
            monkeypatch.setattr(reduce, name, lambda *a, **k: None)


@st.composite
def arrays(draw, least=1):
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 7, 16, 17, 33, 70, 131]), min_size=least, max_size=3)))
    if np.prod(shape) > 40000:
        shape = shape[:2]
    rs = np.random.RandomState(draw(st.integers(0, 1 << 20)))
    a = rs.randn(*shape)
    if draw(st.integers(0, 3)) == 0:
        a = np.where(rs.rand(*shape) < .05, rs.choice([np.nan, np.inf, -np.inf, 1e-42], shape), a)
    return a.astype(draw(st.sampled_from(["float32", "float64"])))


def laid(m, a, how):
    """Returns a tensor of these values in one of three layouts: contiguous, with reversed axes in
    memory, or every other element."""
    t = m.tensor(a)
    if how == 1:
        order = tuple(range(a.ndim))[::-1]
        return t.permute(order).contiguous().permute(order)
    if how == 2:
        part = m.zeros(*a.shape[:-1], a.shape[-1] * 2 + 1, dtype=t.dtype)[..., 1::2]
        part.copy_(t)
        return part
    return t


def same(ours, real, by=1.0):
    ours, real = ours.detach().numpy(), real.detach().numpy()
    assert (ours.shape, ours.dtype) == (real.shape, real.dtype)
    close = 2e-5 if ours.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(ours, real, rtol=close * by, atol=close * by)


@settings(max_examples=150)
@given(st.data())
def test_reductions(data):
    a, how = data.draw(arrays()), data.draw(st.integers(0, 2))
    f = REDUCTIONS[data.draw(st.sampled_from(sorted(REDUCTIONS)))]
    dims = data.draw(st.lists(st.integers(-a.ndim, a.ndim - 1), max_size=a.ndim, unique_by=lambda d: d % a.ndim))
    k = {"dim": tuple(dims), "keepdim": data.draw(st.booleans())} if dims else {}
    same(f(mt, laid(mt, a, how), **k), f(torch, laid(torch, a, how), **k), 4)


@settings(max_examples=150)
@given(st.data())
def test_variances(data):
    """Tests any dims and corrections, also where the divisor is not positive; with gradients."""
    a, how, name = data.draw(arrays()), data.draw(st.integers(0, 2)), data.draw(st.sampled_from(["var", "std"]))
    dims = data.draw(st.lists(st.integers(-a.ndim, a.ndim - 1), max_size=a.ndim, unique_by=lambda d: d % a.ndim))
    k = {"dim": tuple(dims) or None, "keepdim": data.draw(st.booleans()), "correction": data.draw(st.sampled_from([0, 1, 2, 0.5]))}
    n = int(np.prod([a.shape[d] for d in dims])) if dims else a.size
    found = []
    for m in (mt, torch):
        x = laid(m, a, how).requires_grad_(n > k["correction"] and bool(np.isfinite(a).all()))
        r = getattr(m, name)(x, **k)
        found.append((r, None))
        if x.requires_grad:
            w = m.arange(r.numel(), dtype=x.dtype).reshape(r.shape)
            found[-1] = r, m.autograd.grad((r * w).sum(), x)[0]
    with np.errstate(all="ignore"):
        same(found[0][0], found[1][0], 4)
        if found[0][1] is not None:
            same(found[0][1] / (1 + found[1][1].abs().max().item()), found[1][1] / (1 + found[1][1].abs().max().item()), 10)


@settings(max_examples=60)
@given(st.data())
def test_products(data):
    a, how = data.draw(arrays()), data.draw(st.integers(0, 2))
    a = np.where(np.isfinite(a), np.sign(a) * np.exp(np.clip(a, -1, 1) / 20), a).astype(a.dtype)
    k = data.draw(st.sampled_from([{}, {"dim": 0}, {"dim": -1, "keepdim": True}]))
    same(laid(mt, a, how).prod(**k), laid(torch, a, how).prod(**k), 20)


@pytest.mark.parametrize("shape", [(100, 300), (300, 100), (70000,), (5, 40, 50), (3000, 3), (3, 3000)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_amax_and_amin_propagate_nan(shape, dtype):
    """Checks that a nan propagates from any position, and only within its slice."""
    rs = np.random.RandomState(sum(shape))
    a = rs.randn(*shape).astype(dtype)
    for at in rs.randint(0, a.size, 12):
        b = a.copy()
        b.reshape(-1)[at] = np.nan
        for d in (None, *range(a.ndim)):
            for name in ("amax", "amin"):
                r = getattr(mt.tensor(b), name)(*(() if d is None else (d,))).numpy()
                np.testing.assert_array_equal(r, (np.max if name == "amax" else np.min)(b, axis=d))


@settings(max_examples=150)
@given(st.data())
def test_softmax(data):
    a, how = data.draw(arrays()), data.draw(st.integers(0, 2))
    name, dim = data.draw(st.sampled_from(["softmax", "log_softmax"])), data.draw(st.integers(-a.ndim, a.ndim - 1))
    a = (a * data.draw(st.sampled_from([1, 1, 40]))).astype(np.float32)
    g = np.random.RandomState(a.size).randn(*a.shape).astype(np.float32)
    got = []
    for m in (mt, torch):
        x = laid(m, a, how).detach().requires_grad_()
        y = getattr(m, name)(x, dim)
        y.backward(laid(m, g, how))
        got.append((y, x.grad))
    same(got[0][0], got[1][0], 2)
    same(got[0][1], got[1][1], 2)


@settings(max_examples=80)
@given(st.data())
def test_cross_entropy(data):
    n, c = data.draw(st.sampled_from([1, 3, 20, 100])), data.draw(st.sampled_from([1, 2, 10, 17, 130]))
    rs = np.random.RandomState(data.draw(st.integers(0, 1 << 20)))
    a, t = (rs.randn(n, c) * data.draw(st.sampled_from([1, 50]))).astype(np.float32), rs.randint(0, c, n)
    if data.draw(st.booleans()):
        a[rs.rand(n, c) < .05] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    if data.draw(st.booleans()):
        t[rs.rand(n) < .3] = -100
    k = {"reduction": data.draw(st.sampled_from(["none", "mean", "sum"])), "label_smoothing": data.draw(st.sampled_from([0.0, 0.0, 0.2]))}
    w = np.abs(rs.randn(c)).astype(np.float32) if data.draw(st.booleans()) else None
    got = []
    for m in (mt, torch):
        x = m.tensor(a, requires_grad=True)
        y = m.nn.functional.cross_entropy(x, m.tensor(t), None if w is None else m.tensor(w), **k)
        y.sum().backward()
        got.append((y, x.grad))
    if np.isfinite(a).all() or not k["label_smoothing"]:
        same(got[0][0], got[1][0], 5)
    if np.isfinite(a).all():
        same(got[0][1], got[1][1], 2)


@settings(max_examples=100)
@given(st.data())
def test_negative_log_likelihood(data):
    """Tests spatial dimensions, ignored targets (the ignored index may also be a class), weights
    and out-of-range targets."""
    n, c, *more = data.draw(st.sampled_from([(1, 1), (3, 2), (8, 8), (70, 5), (2, 3, 4), (2, 3, 2, 5), (0, 4), (4, 3, 0)]))
    rs = np.random.RandomState(data.draw(st.integers(0, 1 << 20)))
    x, t = rs.randn(n, c, *more).astype(data.draw(st.sampled_from(["float32", "float64"]))), rs.randint(0, c, (n, *more))
    k = {"reduction": data.draw(st.sampled_from(["none", "mean", "sum"])), "ignore_index": data.draw(st.sampled_from([-100, 0, -1, c + 3]))}
    if data.draw(st.integers(0, 2)) == 0 and t.size:
        t.reshape(-1)[rs.randint(t.size)] = data.draw(st.sampled_from([-1, c, k["ignore_index"]]))
    if data.draw(st.integers(0, 3)) == 0:
        x[rs.rand(*x.shape) < .1] = np.inf
    w, how, found = rs.rand(c).astype(x.dtype) if data.draw(st.booleans()) else None, data.draw(st.integers(0, 2)) if x.ndim < 4 else 0, []
    for m in (mt, torch):
        v = laid(m, x, how).requires_grad_()
        try:
            r = m.nn.functional.nll_loss(v, laid(m, t, how if t.ndim > 1 else 0), None if w is None else m.tensor(w), **k)
        except IndexError:
            found.append(None)
            continue
        found.append((r, m.autograd.grad(r.sum(), v)[0]))
    assert (found[0] is None) == (found[1] is None)
    if found[0] is not None:
        same(found[0][0], found[1][0], 4)
        same(found[0][1], found[1][1], 4)


def test_direct_c_calls_check_their_arguments(side):
    """Checks that a directly called C function accepts what ctypes accepts, and rejects the rest.
    """
    lib = reduce._lib()
    if lib is None or not isinstance(lib.mt_soft, type(len)):
        pytest.skip("C is called by ctypes here")
    x, r = np.arange(6, dtype=np.float32).reshape(2, 3), np.empty((2, 3), np.float32)
    assert lib.mt_soft(id(x), id(x), id(r), 1, 0) == 0 == lib.mt_soft(id(x), id(x), id(r), np.int64(1), False)
    np.testing.assert_allclose(r.sum(1), 1, rtol=1e-6)
    y = np.empty(2, np.float32)
    # -1 is a value, not an error
    assert lib.mt_reduce_f32(id(x), id(y), 1, 2, 0, -1) == 0 and y.tolist() == [-3, -12]
    mean, rstd = np.empty(2, np.float32), np.empty(2, np.float32)
    # None is a null pointer; 0 is passed as a double
    assert lib.mt_norm(id(x), None, None, id(r), id(mean), id(rstd), 0) == 0 and mean.tolist() == [1, 4]
    for wrong in [(), (id(x),), (id(x), id(x), id(r), 1), (id(x), id(x), id(r), 1, 0, 0), ("x", id(x), id(r), 1, 0), (id(x), id(x), id(r), 1.5, 0),
                  (id(x), id(x), id(r), None, 0), (x, id(x), id(r), 1, 0)]:
        with pytest.raises(TypeError):
            lib.mt_soft(*wrong)
    with pytest.raises(OverflowError):
        lib.mt_soft(id(x), id(x), id(r), 1 << 80, 0)
    with pytest.raises(TypeError):
        lib.mt_reduce_f32(id(x), id(y), 1, 2, 0, "1")


def test_c_functions_are_called_directly(side):
    """Checks that every C function is called directly, except the ones listed here.

    Their argument signatures all have an entry in fastcall.c.
    """
    if not isinstance(getattr(reduce._lib(), "mt_soft", None), type(len)):
        pytest.skip("C is called by ctypes here")
    for lib in (reduce._lib(), scan_gather._lib(), copy_pad_grid._lib(), elementwise.lib(), pooling._lib()):
        slow = {n for n, f in vars(lib).items() if n.startswith("mt_") and not isinstance(f, type(len))}
        assert slow <= {"mt_use", "mt_shuffled", "mt_multiply_add", "mt_largest", "mt_loop_named"}


def test_sums_are_accurate():
    """Checks that the sum of a million float32, over each axis, is as accurate as blocked
    summation."""
    a = np.random.RandomState(0).rand(1000, 1000).astype(np.float32)
    for d in (None, 0, 1):
        k = {} if d is None else {"dim": d}
        true = a.sum(axis=d, dtype=np.float64)
        np.testing.assert_allclose(mt.tensor(a).sum(**k).numpy(), true, rtol=5e-7)


def test_reductions_are_bitwise_equal_for_any_thread_count(on_threads):
    """Checks bitwise equality in C. NumPy's BLAS, which sums without a compiler, splits by its
    number of threads."""
    if large.FEW > 1:
        pytest.skip("needs the C kernels")
    xs = [mt.tensor(np.random.RandomState(1).randn(*s).astype(np.float32)) for s in [(300, 700), (400000,), (90000, 5), (3, 500, 200)]]
    got = on_threads(lambda: [r.numpy() for x in xs for r in (x.sum(), x.sum(0), x.sum(-1), x.amax(-1), x.prod(0), mt.linalg.vector_norm(x, dim=0))])
    for other in got[1:]:
        for x, y in zip(got[0], other):
            np.testing.assert_array_equal(x, y)


def test_group_norm_is_bitwise_equal_for_any_thread_count(monkeypatch):
    """Checks bitwise equality for few groups and many, forward and backward."""
    rs = np.random.RandomState(2)
    xs = [rs.randn(*s).astype(np.float32) for s in [(4, 16, 40, 41), (9, 24, 700), (1, 4, 200, 201)]]
    got = []
    for n in (1, 3):
        monkeypatch.setattr(threads._pool, "count", n)
        got.append([])
        for a in xs:
            x, w = mt.tensor(a).requires_grad_(), mt.linspace(1, 2, a.shape[1]).requires_grad_()
            y, z = mt.nn.functional.batch_norm(x, None, None, w, w, True), mt.nn.functional.group_norm(x, 4, w, w)
            (y * y * x.detach() + z * z * z).sum().backward()
            got[-1] += [t.detach().numpy().copy() for t in (y, z, x.grad, w.grad)]
    for x, y in zip(*got, strict=True):
        np.testing.assert_array_equal(x, y)


@settings(max_examples=100)
@given(st.data())
def test_norms(data):
    """Tests row and channel norms, forward and backward, also far from zero, where sums of products
    would cancel."""
    name = data.draw(st.sampled_from(["layer", "rms", "batch", "batch eval", "group"]))
    shape = tuple(data.draw(st.lists(st.sampled_from([2, 3, 7, 16, 17, 33, 70]), min_size=2, max_size=3)))
    rs = np.random.RandomState(data.draw(st.integers(0, 1 << 20)))
    # Neighbors differ and no group has one element: the gradient of equal elements is a rounding
    # error times 316.
    apart = np.indices(shape).sum(0) % 2 * 5
    a = (rs.rand(*shape) * 4 + apart + data.draw(st.sampled_from([0, 0, 30]))).astype(np.float32)
    g, affine, how = rs.randn(*shape).astype(np.float32), data.draw(st.booleans()), data.draw(st.integers(0, 2))
    n = shape[-1] if name in ("layer", "rms") else shape[1]
    w, b, mean, var = (v.astype(np.float32) for v in (rs.randn(n) + 1, rs.randn(n), rs.randn(n), np.abs(rs.randn(n)) + .5))
    got, groups = [], data.draw(st.sampled_from([k for k in (1, 2, 3, 7, 10, shape[1]) if not shape[1] % k and np.prod(shape[1:]) > k]))
    for m in (mt, torch):
        f = m.nn.functional
        x = laid(m, a, how).detach().requires_grad_()
        p = [m.tensor(v, requires_grad=True) for v in (w, b)] if affine else [None, None]
        if name == "layer":
            y = f.layer_norm(x, (n,), *p)
        elif name == "rms":
            y = f.rms_norm(x, (n,), p[0])
        elif name == "group":
            y = f.group_norm(x, groups, *p)
        else:
            y = f.batch_norm(x, m.tensor(mean), m.tensor(var), *p, training=name == "batch")
        y.backward(laid(m, g, how))
        got.append([y, x.grad, *[v.grad for v in p if v is not None and v.grad is not None]])
    for ours, real in zip(*got, strict=True):
        same(ours, real, 30 if a.mean() < 10 else 300)


@settings(max_examples=120)
@given(st.data())
def test_attention(data):
    """Tests heads in any layout, keys that no query attends to, nan and infinities, broadcast
    masks; with gradients."""
    pick = lambda *x: data.draw(st.sampled_from(x))            # noqa: E731
    dtype, lead = pick("float32", "float64", "float16"), pick((), (2,), (2, 3), (1, 2))
    n, m, d, e = pick(1, 2, 3, 4, 5, 9), pick(1, 2, 7, 8, 9, 16, 17, 40), pick(1, 3, 8, 17), pick(1, 5, 8, 16, 19)
    rs = np.random.RandomState(data.draw(st.integers(0, 1 << 20)))
    arrays = [rs.randn(*(pick(lead, lead, (1,) * len(lead), lead[1:]) if i else lead), r, c) for i, (r, c) in enumerate(((n, d), (m, d), (m, e)))]
    kind = pick(None, None, "bool", "float", "causal")
    if kind != "causal" and pick(0, 0, 1):  # PyTorch's two kernels disagree on a nan in a later key
        # PyTorch's four-dimensional kernel treats scores that are all nan as masked (zeros) if it
        # has fewer keys than lanes; elsewhere the result is nan.
        for a in arrays[2:] if len(lead) == 2 and m < 16 else arrays:
            a[rs.rand(*a.shape) < .03] = rs.choice([np.nan, np.inf, -np.inf])
    layouts = [pick(0, 1, 2) for _ in arrays]
    mask = rs.rand(*pick((n, m), (1, m), (n, 1), (*lead, n, m))) < .6
    grads = dtype != "float16" and all(np.isfinite(a).all() for a in arrays)

    def run(t):
        xs = [laid(t, a.astype(dtype), how).requires_grad_(grads) for a, how in zip(arrays, layouts)]
        bias = None if kind in (None, "causal") else t.tensor(mask if kind == "bool" else np.where(mask, 0.5, -np.inf).astype(dtype))
        y = t.nn.functional.scaled_dot_product_attention(*xs, bias, is_causal=kind == "causal")
        return [y, *(t.autograd.grad(y.pow(2).sum(), xs) if grads else ())]
    for ours, real in zip(run(mt), run(torch), strict=True):
        if dtype == "float16":
            np.testing.assert_allclose(ours.numpy(), real.numpy(), 5e-3, 5e-3)
        else:
            same(ours, real, 20)


@settings(max_examples=80)
@given(st.data())
def test_batch_norm_with_given_statistics(data):
    x = data.draw(arrays(2))
    affine, how, last = data.draw(st.booleans()), data.draw(st.integers(0, 2)), data.draw(st.booleans())
    rs = np.random.RandomState(3)
    mean, var, w, b = [(np.abs(rs.randn(x.shape[1])) + .1).astype(x.dtype) for _ in range(4)]

    def run(t):
        a = laid(t, x, how)
        a = a[..., None].contiguous(memory_format=t.channels_last) if last and a.dim() == 3 else a
        return t.nn.functional.batch_norm(a, t.tensor(mean), t.tensor(var), *((t.tensor(w), t.tensor(b)) if affine else ()))
    same(run(mt), run(torch))
