"""Kernels that split their work across threads are bitwise equal to a single-threaded run."""
import numpy as np
import pytest
import torch

import mindtorch.torch as mt
from mindtorch.backend.cpu import activation, optimizer as optim_kernels, threads
from mindtorch.backend.cpu.host import SILENT


@pytest.fixture(params=[1, 2, 3])
def team(request, monkeypatch):
    monkeypatch.setattr(threads._pool, "count", request.param)
    monkeypatch.setattr(threads, "LARGE", 1 << 10)
    return request.param


def _values(n, seed=0):
    x = np.random.RandomState(seed).randn(n).astype(np.float32)
    x[::97], x[::101], x[::103] = np.nan, np.inf, -0.0
    return x


@pytest.mark.parametrize("n", [4096, 4097, 3 * 4096 - 1, 70001])
def test_elementwise(team, n):
    x, y = _values(n), _values(n, 1)
    two = np.array(2, np.float32)
    for f in (np.exp, np.isnan, np.sign):
        np.testing.assert_array_equal(threads.unary(f, x, SILENT), f(x))
    with np.errstate(all="ignore"):
        for f in (np.add, np.less, np.maximum, np.divide):
            np.testing.assert_array_equal(threads.binary(f, x, y, SILENT), f(x, y))
            np.testing.assert_array_equal(threads.binary(f, x, two, SILENT), f(x, two))
        assert threads.binary(np.less, x, y, SILENT).dtype == bool
        np.testing.assert_array_equal(activation.relu(x), np.maximum(x, 0))
        np.testing.assert_array_equal(activation.negative_part(x), np.minimum(x, 0))
        clean = np.abs(np.nan_to_num(x))
        np.testing.assert_array_equal(activation.where_positive(y, clean), np.where(clean > 0, y, np.float32(0)))


def test_tensor_ops_match_numpy(team):
    a, b = _values(1 << 13).reshape(64, 128), _values(1 << 13, 1).reshape(64, 128)
    x, y = mt.from_numpy(a), mt.from_numpy(b)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal((x + y).numpy(), a + b)
        np.testing.assert_array_equal((x.t() * y.t()).numpy(), (a * b).T)
        np.testing.assert_array_equal((x < 0.5).numpy(), a < np.float32(0.5))
        np.testing.assert_array_equal((x + y[0]).numpy(), a + b[0])
        np.testing.assert_array_equal(mt.floor(x).numpy(), np.floor(a))


@pytest.mark.parametrize("name,options", [("SGD", {"momentum": 0.9, "weight_decay": 0.1}), ("AdamW", {}), ("RMSprop", {"centered": True})])
def test_optimizers(team, name, options, monkeypatch):
    monkeypatch.setattr(optim_kernels, "SHARED", 0)
    monkeypatch.setattr(optim_kernels, "BLOCK", 5000)
    rs = np.random.RandomState(0)
    start = [rs.randn(*s).astype(np.float32) for s in ((120, 101), (70, 80), (7,), (9001,))]
    grads = [rs.randn(*a.shape).astype(np.float32) for a in start]

    def run(lib):
        ps = [lib.nn.Parameter(lib.from_numpy(a.copy())) for a in start]
        ps[1] = lib.nn.Parameter(lib.from_numpy(start[1].T.copy()).t())       # not contiguous
        opt = getattr(lib.optim, name)(ps, lr=0.01, **options)
        for k in range(3):
            for p, g in zip(ps, grads):
                p.grad = lib.from_numpy(g * (k + 1))
            opt.step()
        return [p.detach().numpy() for p in ps]
    for a, b in zip(run(mt), run(torch)):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


def test_error_in_any_chunk_is_raised(team):
    def part(start, stop):
        if stop == 10:
            raise ValueError("the last piece")
    with pytest.raises(ValueError, match="the last piece"):
        threads.share(10, part)
    done = []
    threads.share(10, lambda start, stop: done.extend(range(start, stop)))
    assert sorted(done) == list(range(10))


def test_get_num_threads_returns_the_kernels_count(team, monkeypatch):
    monkeypatch.setattr("mindtorch.torch._functions._threads", None)
    assert mt.get_num_threads() == team
