"""Conversions between float16 or bfloat16 and float32: all 65536 values, the values between them,
any layout, with and without C; and ops on them."""
import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine
from mindtorch.backend.cpu import half, threads
from mindtorch.backend.c_kernels import thread_pool
from mindtorch.backend.mindspore.private import bfloat16_np

LOW = {"float16": np.dtype(np.float16), "bfloat16": bfloat16_np}


@pytest.fixture(params=["C", "NumPy"])
def how(request, monkeypatch):
    if request.param == "NumPy":
        monkeypatch.setattr(thread_pool, "ready", lambda: None)
    elif thread_pool.lib() is None:
        pytest.skip("no C compiler here")
    return request.param


def _all(dtype):
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


@pytest.mark.parametrize("name", LOW)
@pytest.mark.parametrize("count", [1, 3])
def test_every_value_and_those_in_between(how, name, count, monkeypatch):
    monkeypatch.setattr(threads._pool, "count", count)
    d = LOW[name]
    w = half.upcast(_all(d))
    theirs = real.from_numpy(_all(np.dtype(np.int16)).copy()).view(getattr(real, name))
    np.testing.assert_array_equal(w, theirs.float().numpy())
    assert (np.signbit(w) == np.signbit(theirs.float().numpy()))[~np.isnan(w)].all()
    with np.errstate(all="ignore"):
        between = np.concatenate([w, np.nextafter(w, np.float32(np.inf)), np.nextafter(w, np.float32(-np.inf)), (w[:-1] + w[1:]) / 2,
                                  np.random.RandomState(0).randint(0, 1 << 32, 1 << 18, dtype=np.uint64).astype(np.uint32).view(np.float32)])
        n = half.downcast(between, d)
    t = real.from_numpy(between).to(getattr(real, name))
    np.testing.assert_array_equal(half.upcast(n), t.float().numpy())
    assert (np.signbit(half.upcast(n)) == np.signbit(t.float().numpy()))[~np.isnan(between)].all()


@pytest.mark.parametrize("name", LOW)
@pytest.mark.parametrize("size", [0, 1, 7, 511, 512, 513, 4097, 70001])
def test_sizes(how, name, size):
    a = np.random.RandomState(size).randn(size).astype(np.float32)
    n = half.downcast(a, LOW[name])
    assert n.dtype == LOW[name] and n.shape == a.shape
    np.testing.assert_array_equal(half.upcast(n), real.from_numpy(a).to(getattr(real, name)).float().numpy())
    assert not size or not np.shares_memory(half.upcast(n), n)


@pytest.mark.parametrize("name", LOW)
def test_layouts(how, name):
    a = np.random.RandomState(0).randn(40, 30, 8).astype(np.float32)
    for f in (lambda x: x, lambda x: x.T, lambda x: x[::2, :, 1:5], lambda x: x.transpose(1, 0, 2), lambda x: x[3, 4, 5], lambda x: x[:0]):
        x, n = f(a), f(half.downcast(a, LOW[name]))
        t = real.from_numpy(np.asarray(x)).to(getattr(real, name))
        for got, want in ((half.downcast(x, LOW[name]), x.astype(LOW[name])), (half.upcast(n), n.astype(np.float32))):
            assert got.dtype == want.dtype and got.shape == want.shape and got.strides == want.strides
        np.testing.assert_array_equal(half.upcast(n), t.float().numpy())


@pytest.mark.parametrize("name", LOW)
def test_ops_and_gradients(how, name):
    a, b = (np.random.RandomState(s).randn(64, 96).astype(np.float32) for s in (0, 1))
    out = []
    for T in (real, mine):
        d = getattr(T, name)
        x, w = (T.from_numpy(v).to(d).requires_grad_() for v in (a, b))
        y = T.nn.functional.gelu(x * 2 + w.t().contiguous().t()) @ w.t()
        y.float().square().mean().backward()
        assert y.dtype == d and x.grad.dtype == d
        out.append([v.detach().float().numpy() for v in (y, x.grad, w.grad, x.t().float(), (x < w))])
    tol = 2e-2 if name == "bfloat16" else 3e-3
    for p, q in zip(*out):
        np.testing.assert_allclose(q, p, rtol=tol, atol=tol * max(1e-6, abs(p).max()))
    assert mine.from_numpy(a).to(getattr(mine, name)).t().float().stride() == real.from_numpy(a).t().stride()
