"""Pools, unfold and fold: the C kernels and NumPy against real PyTorch, with indices and gradients.
"""
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as mt
from mindtorch.backend.cpu import threads
from mindtorch.backend.c_kernels import pooling

quick = settings(max_examples=40, deadline=None)
SIDES = ["c", "numpy"] if pooling._lib() else ["numpy"]


@pytest.fixture(params=SIDES, autouse=True)
def side(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(pooling, "_lib", lambda: None)
    return request.param


def both(f, exact=False):
    """Checks that f has the same results, or errors of the same type, in both libraries."""
    try:
        real = f(torch)
    except (RuntimeError, IndexError) as e:
        with pytest.raises(type(e)):
            f(mt)
        return
    for x, y in zip(f(mt), real, strict=True):
        x, y = x.detach().numpy(), y.detach().numpy()
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        if exact or x.dtype.kind == "i":
            np.testing.assert_array_equal(x, y)
        else:
            np.testing.assert_allclose(x, y, rtol=1e-5 if x.dtype == np.float32 else 1e-12, atol=1e-5 if x.dtype == np.float32 else 1e-12)


@st.composite
def windows(draw):
    """Draws (spatial dims, shape, kernel, stride, padding, dilation)."""
    dims = draw(st.integers(1, 3))
    size = [draw(st.sampled_from([1, 2, 5, 8, 13, 30 if dims < 3 else 3])) for _ in range(dims)]
    if dims == 1 and draw(st.booleans()):
        size = [700]
    kernel = [draw(st.integers(1, 5)) for _ in range(dims)]
    stride, apart = [draw(st.integers(1, 4)) for _ in range(dims)], [draw(st.sampled_from([1, 1, 2, 3])) for _ in range(dims)]
    padding = [draw(st.integers(0, k // 2)) for k in kernel]
    for i, (n, p, d) in enumerate(zip(size, padding, apart)):
        if p and not any(0 <= q * d - p < n for q in range(kernel[i])):
            padding[i] = 0  # PyTorch's index for a window without elements is out of range
    lead = draw(st.sampled_from([(1, 1), (2, 3), (3,), (0, 2)] if dims > 1 else [(2, 3), (3,)]))
    return dims, (*lead, *size), kernel, stride, padding, apart


def values(draw, shape, dtype):
    rs = np.random.RandomState(draw(st.integers(0, 1 << 20)))
    a = np.round(rs.randn(*shape) * 2)  # with ties
    odd = draw(st.sampled_from([None, None, [np.nan], [-np.inf, np.inf, np.nan], [-np.inf]]))
    return (a if odd is None else np.where(rs.rand(*shape) < draw(st.sampled_from([.1, .9])), rs.choice(odd, shape), a)).astype(dtype)


def leaf(m, a, how):
    """Returns a leaf and its values in a layout: contiguous, every other element, or with reversed
    axes in memory."""
    x = m.tensor(a).requires_grad_()
    if how == 1:
        return x, m.stack([x, x], -1)[..., 0]
    return x, x.transpose(0, -1).contiguous().transpose(0, -1) if how == 2 else x


@quick
@given(data=st.data())
def test_max_pools(data):
    dims, shape, kernel, stride, padding, apart = data.draw(windows())
    a, how, ceil = values(data.draw, shape, data.draw(st.sampled_from(["float32", "float64"]))), data.draw(st.integers(0, 2)), data.draw(st.booleans())

    def run(m, indices):
        x, y = leaf(m, a, how)
        r = getattr(m.nn.functional, f"max_pool{dims}d")(y, kernel, stride, padding, apart, ceil, indices)
        v, at = r if indices else (r, None)
        g = m.tensor(np.random.RandomState(1).randint(-3, 4, tuple(v.shape)).astype(a.dtype))
        v.backward(g)
        return (v, x.grad, *([at] if indices else []))
    both(lambda m: run(m, False), True)
    both(lambda m: run(m, True), True)
    with mt.no_grad(), torch.no_grad():
        both(lambda m: [getattr(m.nn.functional, f"max_pool{dims}d")(leaf(m, a, how)[1], kernel, stride, padding, apart, ceil)], True)


@quick
@given(data=st.data())
def test_average_pools(data):
    dims, shape, kernel, stride, padding, _ = data.draw(windows())
    a = np.round(np.random.RandomState(data.draw(st.integers(0, 99))).randn(*shape) * 4).astype(data.draw(st.sampled_from(["float32", "float64"])))
    how, ceil, include = data.draw(st.integers(0, 2)), data.draw(st.booleans()), data.draw(st.booleans())
    divisor = data.draw(st.sampled_from([None, None, 3, -2])) if dims > 1 else None

    more = {} if divisor is None else {"divisor_override": divisor}

    def pooled(m):
        x, y = leaf(m, a, how)
        return x, getattr(m.nn.functional, f"avg_pool{dims}d")(y, kernel, stride, padding, ceil, include, **more)

    def gradient(m):
        x, r = pooled(m)
        r.backward(m.tensor(np.random.RandomState(1).randint(-3, 4, tuple(r.shape)).astype(a.dtype)))
        return [x.grad]
    both(lambda m: pooled(m)[1:])
    try:
        gradient(torch)
    # no windows; PyTorch's avg_pool3d backward also rejects some sizes that its forward accepts
    except RuntimeError:
        pass
    else:
        both(gradient)


@quick
@given(data=st.data())
def test_adaptive_pools(data):
    """Tests adaptive pools with equal and unequal windows: of one element, overlapping, or of
    everything; some with nan and infinity."""
    dims = data.draw(st.integers(1, 3))
    size = [data.draw(st.sampled_from([1, 2, 5, 8, 13])) for _ in range(dims)]
    out = [data.draw(st.sampled_from([1, 2, 3, 7, 10, n, None] if dims > 1 else [1, 2, 3, 7, 10, n])) for n in size]
    lead = data.draw(st.sampled_from([(1, 1), (2, 3), (3,)]))
    a = values(data.draw, (*lead, *size), data.draw(st.sampled_from(["float32", "float64"])))
    how, kind, twice = data.draw(st.integers(0, 2)), data.draw(st.sampled_from(["avg", "max"])), data.draw(st.booleans())

    def run(m):
        x, y = leaf(m, a, how)
        r = getattr(m.nn.functional, f"adaptive_{kind}_pool{dims}d")(y, out[0] if len(set(out)) == 1 and out[0] else out)
        g = m.tensor(np.random.RandomState(1).randint(-3, 4, tuple(r.shape)).astype(a.dtype)).requires_grad_(twice and kind == "avg")
        got = m.autograd.grad(r, x, g, create_graph=twice)
        return (r, *got, *(m.autograd.grad(got[0].sum(), g) if g.requires_grad else ()))
    both(run, kind == "max")


def test_non_int_sizes_match_torch():
    """Checks that a decision cached for int sizes is not reused for sizes that merely compare
    equal, such as 2.0."""
    x = np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4)
    for name in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d"):
        for size in (2, (2, 2), 2.0, (2.0, 2), (2, 2.0), np.int64(2), [2, 2], (np.int32(2), 2)):
            kind = {}
            for m in (torch, mt):
                try:
                    kind[m] = getattr(m.nn.functional, name)(m.tensor(x), size).numpy()
                except TypeError as e:
                    kind[m] = type(e)
            np.testing.assert_array_equal(kind[mt], kind[torch], err_msg=f"{name} {size}")
        getattr(mt.nn.functional, name)(mt.tensor(x), mt.tensor([2, 2]).tolist())


@quick
@given(data=st.data())
def test_unfold_and_fold(data):
    """Tests unfold and fold, each the other's gradient; the padding may be wider than a window."""
    draw = data.draw
    shape = (draw(st.integers(0, 2)), draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 5, 9])), draw(st.sampled_from([1, 3, 8, 40])))
    kernel, stride, apart, pad = ([draw(st.integers(low, high)) for _ in range(2)] for low, high in ((1, 4), (1, 3), (1, 2), (0, 5)))
    kernel[1] = draw(st.sampled_from([1, 3, 20]))
    dtype, how = draw(st.sampled_from(["float32", "float64"])), draw(st.integers(0, 2))
    a = np.random.RandomState(draw(st.integers(0, 99))).randint(-9, 9, shape).astype(dtype)

    def there(m):
        x, y = leaf(m, a, how)
        r = m.nn.functional.unfold(y, kernel, apart, pad, stride)
        r.backward(m.tensor(np.random.RandomState(1).randint(-9, 9, tuple(r.shape)).astype(dtype)))
        return r, x.grad

    def back(m):
        columns = tuple(torch.nn.functional.unfold(torch.zeros(shape), kernel, apart, pad, stride).shape)
        x, y = leaf(m, np.random.RandomState(2).randint(-9, 9, columns).astype(dtype), how)
        r = m.nn.functional.fold(y, shape[2:], kernel, apart, pad, stride)
        r.backward(m.tensor(a))
        return r, x.grad
    both(there, True)
    if shape[0]:
        both(back, True)


@pytest.mark.parametrize("count", [1, 3])
def test_threads(monkeypatch, count):
    monkeypatch.setattr(threads._pool, "count", count)
    a = np.random.RandomState(0).randn(4, 16, 40, 41).astype(np.float32)

    def run(m):
        x = m.tensor(a).requires_grad_()
        f = m.nn.functional
        y, z = f.max_pool2d(x, 3, 2, 1), f.avg_pool2d(x, 3, 1, 1)
        (y.sum() + (z * z).sum()).backward()
        return y, z, x.grad
    both(run)
