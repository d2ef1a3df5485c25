"""The C thread pool: every chunk runs once, values are bitwise equal to NumPy's, and nothing hangs
(forks, many callers, more threads than processors)."""
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import _tasks
import mindtorch.torch as mt
from mindtorch.backend.cpu import onednn, optimizer as optim_kernels, blas, threads
from mindtorch.backend.c_kernels import thread_pool

needs_pool = pytest.mark.skipif(thread_pool.lib() is None, reason="no C compiler here")


@pytest.fixture(params=[1, 2, 3, 7])
def count(request, monkeypatch):
    monkeypatch.setattr(threads._pool, "count", request.param)
    yield request.param
    monkeypatch.undo()


# ------------------------------------------------------------------ products
@needs_pool
@pytest.mark.parametrize("m,k,n", [(64, 784, 512), (512, 64, 784), (300, 300, 301), (17, 1000, 33), (1000, 9, 15)])
def test_products(count, m, k, n):
    if not onednn.has_private():
        pytest.skip("no oneDNN of our own here")
    rs = np.random.RandomState(0)
    for a, b in ((rs.randn(m, k), rs.randn(k, n)), (rs.randn(k, m).T, rs.randn(k, n)), (rs.randn(m, k), rs.randn(n, k).T)):
        a, b = (x.astype(np.float32, order="K") for x in (a, b))
        out, alone = np.full((m, n), np.nan, np.float32), np.empty((m, n), np.float32)
        assert onednn.gemm_shared(a, b, out)
        onednn.gemm(a, b, alone)
        np.testing.assert_allclose(out, a.astype(float) @ b, atol=1e-5 * k)
        np.testing.assert_allclose(out, alone, atol=1e-6 * k)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64, np.int64, np.float32])
@pytest.mark.parametrize("shape", [(300, 200, 250), (20, 900, 3000), (2, 3000, 4)])
def test_large_products_without_onednn(count, dtype, shape, monkeypatch):
    monkeypatch.setattr(onednn, "has_avx512", lambda: False)
    monkeypatch.setattr(blas, "_WORTH", 1 << 12)
    m, k, n = shape
    rs = np.random.RandomState(1)
    a, b = rs.randint(-3, 4, (m, k)).astype(dtype), rs.randint(-3, 4, (k, n)).astype(dtype)
    np.testing.assert_array_equal(blas.product(a, b), np.matmul(a, b))
    np.testing.assert_array_equal(blas.product(a.T.copy().T, b.T.copy().T), np.matmul(a, b))
    out = np.empty((m, n), dtype)
    assert blas.product(a, b, out) is out
    np.testing.assert_array_equal(out, np.matmul(a, b))


def test_blas_is_single_threaded_and_restored(monkeypatch):
    """Checks that BLAS runs with one thread and gets its thread count back: OpenBLAS's threads
    would spin for 25 ms after every call."""
    threads._hold_blas()
    blas = threads._blas
    if blas.get is None:
        pytest.skip("NumPy's BLAS does not report its number of threads")
    before = blas.get()
    blas.set(2)
    try:
        seen = []
        monkeypatch.setattr(threads, "single_threaded", lambda f, *a, run=threads.single_threaded, **k: run(lambda: seen.append(blas.get()) or f(*a, **k)))
        a = np.random.RandomState(0).rand(400, 300).astype(np.float32)
        for f in (lambda: threads.matmul(a, a.T), lambda: threads.matmul(a, a[0]), lambda: mt.mv(mt.from_numpy(a), mt.ones(300)),
                  lambda: mt.from_numpy(a).sum(0), lambda: mt.dot(mt.ones(20000), mt.ones(20000))):
            f()
            assert blas.get() == 2
        assert len(seen) >= 4 and set(seen) == {1}
        with pytest.raises(ValueError):
            threads.matmul(a, a)
        assert blas.get() == 2
    finally:
        blas.set(before)


# ------------------------------------------------------------------ optimizers
SHAPES = ((120, 101), (7,), (), (0, 3), (4096,), (4097,), (3, 5000), (1,))


def _special(rs, shape):
    a = np.asarray(rs.standard_normal(shape) * rs.choice([1e-30, 1, 1e20], shape), np.float32)
    flat = a.reshape(-1)
    flat[::31], flat[::37], flat[::41], flat[::43] = np.nan, np.inf, -np.inf, -0.0
    return a


def _both(kernel, options, numbers, columns, shapes, seed):
    """Compares the columns after the step in C with those in NumPy."""
    rs = np.random.RandomState(seed)
    first = [[np.abs(_special(rs, s)) if c in (2, 3) and columns > 3 else _special(rs, s) for s in shapes] for c in range(columns)]
    consts = [(options, numbers)] * len(shapes)
    out = []
    for in_c in (True, False):
        cols = [[np.array(a) for a in c] for c in first]
        if in_c:
            with pytest.MonkeyPatch.context() as m:
                m.setattr(optim_kernels, "_together", None)  # calling it would raise
                m.setattr(optim_kernels, "_all", None)
                m.setattr(optim_kernels, "LEAST", 0)
                optim_kernels.run(kernel, None, optim_kernels.layout(cols[0]), cols, consts)
        else:
            with pytest.MonkeyPatch.context() as m:
                m.setattr(optim_kernels, "LEAST", 1 << 62)
                optim_kernels.run(kernel, None, optim_kernels.layout(cols[0]), cols, consts)
        out.append(cols)
    for c, (a, b) in enumerate(zip(*out)):
        for x, y in zip(a, b):
            np.testing.assert_array_equal(x, y)
            # For 0 and -0 (second moments of AMSGrad) the maximum is either.
            any_sign = np.isnan(x) | (x == 0) if c == 3 and columns == 5 else np.isnan(x)
            np.testing.assert_array_equal(np.signbit(x) | any_sign, np.signbit(y) | any_sign)
    for a, old in zip(out[0][-1], first[-1]):
        np.testing.assert_array_equal(a, old)  # the gradient is unchanged


_flag = st.booleans()
_number = st.floats(-2, 2, width=32) | st.just(0.0) | st.just(0.1)


@needs_pool
@settings(deadline=None, max_examples=60)
@given(_flag, _flag, _flag, _flag, _flag, st.tuples(_number, _number, _number, _number), st.integers(0, 9))
def test_sgd_is_bitwise_equal(maximize, decay, momentum, nesterov, first, numbers, seed):
    _both(optim_kernels.sgd, (maximize, decay, momentum, momentum and nesterov, momentum and first), numbers,
          3 if momentum else 2, SHAPES, seed)


@needs_pool
@settings(deadline=None, max_examples=60)
@given(_flag, _flag, _flag, _flag, st.tuples(*[_number] * 7), st.integers(0, 9))
def test_adam_is_bitwise_equal(maximize, decay, decoupled, amsgrad, numbers, seed):
    _both(optim_kernels.adam, (maximize, decay, decoupled, amsgrad), numbers, 5 if amsgrad else 4, SHAPES, seed)


@needs_pool
def test_adam_for_any_thread_count(count):
    _both(optim_kernels.adam, (False, True, True, False), (-1e-3, 0.9, 1e-8, 0.999, 0.1, 0.999, 0.001), 4, ((700, 801), *SHAPES), 1)


@needs_pool
def test_unsupported_arrays_are_left_unchanged():
    p, g = np.ones((4, 6), np.float32), np.ones((4, 6), np.float32)
    options, numbers = (0, 0, 0, 0), (-0.5, 0, 0, 0)
    readonly = p.copy()
    readonly.flags.writeable = False
    for bad_p, bad_g in ((p, g.astype(np.float64)), (p, g.T.copy().T), (p, g[:3]), (readonly, g), (p.astype(np.float16), g), (p[:, ::2], g[:, ::2])):
        before = bad_p.copy()
        assert not thread_pool.update(thread_pool.SGD, [[np.ones(3, np.float32), bad_p], [np.ones(3, np.float32), bad_g]], options, numbers)
        np.testing.assert_array_equal(bad_p, before)
    g.flags.writeable = False           # a gradient is only read
    assert thread_pool.update(thread_pool.SGD, [[p], [g]], options, numbers)
    assert (p == 0.5).all()


def test_optimizers_with_odd_layouts_and_without_the_library(monkeypatch):
    """Checks that transposed parameters, gradients in another memory order and float64 use NumPy's
    step, with equal results."""
    def run():
        mt.manual_seed(0)
        a, b = mt.nn.Parameter(mt.randn(70, 90).t()), mt.nn.Parameter(mt.randn(60, 100, dtype=mt.float64))
        opt = mt.optim.AdamW([a, b], lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            ((a @ mt.randn(70, 3)).sum() + (b ** 2).sum()).backward()
            opt.step()
        return a.detach().numpy().copy(), b.detach().numpy().copy()
    with_it = run()
    monkeypatch.setattr(thread_pool, "update", lambda *a: False)
    for x, y in zip(with_it, run()):
        np.testing.assert_array_equal(x, y)


# ------------------------------------------------------------------ elementwise loops
@needs_pool
@pytest.mark.parametrize("n", [1, 4095, 4097, 150001])
def test_elementwise_loops_are_bitwise_equal(count, n):
    rs = np.random.RandomState(n)
    a, b = _special(rs, (n,)), _special(rs, (n,))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(thread_pool.relu(a), np.maximum(a, 0))
        y = np.maximum(a, 0)
        np.testing.assert_array_equal(thread_pool.where_positive(b, y), np.where(~(y <= 0), b, np.float32(0)))


def test_elementwise_ops_on_tensors_are_bitwise_equal(monkeypatch):
    def run():
        mt.manual_seed(1)
        x, y = mt.randn(50, 90, requires_grad=True), mt.randn(50, 90)
        z = mt.relu(x * y - 0.5) / (y + 3) + x * 2
        z.square().sum().backward()
        v = y.clone()
        v.add_(x.detach()).mul_(1.5).sub_(y[0]).div_(mt.tensor(3.0))
        return [t.detach().numpy().copy() for t in (z, x.grad, v, y.t() + y.t(), y[:, ::2] * y[:, ::2])]
    monkeypatch.setattr(thread_pool, "LARGE", 1)
    monkeypatch.setattr(thread_pool, "LARGE_WHERE", 1)
    small = run()
    monkeypatch.setattr(thread_pool, "LARGE", 1 << 60)
    monkeypatch.setattr(thread_pool, "LARGE_WHERE", 1 << 60)
    for a, b in zip(small, run()):
        np.testing.assert_array_equal(a, b)


# ------------------------------------------------------------------ threads
@needs_pool
def test_concurrent_callers_get_correct_products(monkeypatch):
    monkeypatch.setattr(threads._pool, "count", 3)
    if not onednn.has_private():
        pytest.skip("no oneDNN of our own here")
    a, b = (np.random.RandomState(s).randn(200, 200).astype(np.float32) for s in (0, 1))
    expected, wrong = np.empty_like(a), []
    onednn.gemm_shared(a, b, expected)

    def work():
        out = np.empty_like(a)
        for _ in range(200):
            out.fill(0)
            onednn.gemm_shared(a, b, out)
            if not np.allclose(out, expected, atol=1e-3):
                wrong.append(out)
    ts = [threading.Thread(target=work) for _ in range(4)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    assert not wrong


@needs_pool
@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="needs two processors and sched_setaffinity")
def test_threads_keep_their_cpu_affinity(monkeypatch):
    """Checks that a pool thread leaves a processor that it shares with its caller, but keeps its
    set of allowed processors."""
    def allowed():
        return _tasks.status("Cpus_allowed_list")

    def settled():
        """Returns the affinities once 10 readings in 200 ms agree: a thread that moves to a busy
        processor may have to wait there."""
        last, alike = allowed(), 0
        for _ in range(500):
            time.sleep(0.02)
            now = allowed()
            alike = alike + 1 if all(now[t] == v for t, v in last.items() if t in now) else 0
            last = now
            if alike == 10:
                return now
        raise AssertionError(f"the threads' processors change for 10 s: {last}")
    monkeypatch.setattr(threads._pool, "count", 2)
    add, a = thread_pool.Shared(np.add), np.arange(200000, dtype=np.float32)
    add(a, a)
    mine, before = os.sched_getaffinity(0), settled()
    try:
        for cpu in sorted(mine)[:2] * 3:
            os.sched_setaffinity(0, {cpu})  # affects only this thread
            time.sleep(0.002)  # the other threads go to sleep
            for _ in range(20):
                np.testing.assert_array_equal(add(a, a), a * 2)
    finally:
        os.sched_setaffinity(0, mine)
    after = settled()
    assert {t: v for t, v in after.items() if t in before} == {t: v for t, v in before.items() if t in after}


_PROGRAM = """
import os, sys, time
import mindtorch.torch as torch
from mindtorch.backend.c_kernels import thread_pool
from mindtorch.backend.cpu import threads
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Flatten(), torch.nn.Linear(16 * 900, 64))
opt = torch.optim.Adam(net.parameters())
x = torch.randn(16, 3, 32, 32)
def steps(n):
    for _ in range(n):
        opt.zero_grad()
        net(x).square().mean().backward()
        opt.step()
    return float(net(x).square().mean())
steps(2)
for wait in (0, 0.02):              # while threads wait for work, and when they sleep
    time.sleep(wait)
    pid = os.fork()
    if not pid:
        os._exit(0 if steps(2) > 0 else 3)
    steps(1)
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
torch.set_num_threads(1)
steps(1)
torch.set_num_threads(3)            # perhaps more than there are processors
print("result %.9g" % steps(2), "pool", thread_pool.lib() is not None)
"""


def _program(**env):
    r = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=110, env={**os.environ, **env})
    assert r.returncode == 0, r.stderr
    return r.stdout.split("\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.slow
def test_forks_thread_counts_and_missing_library():
    with_it = _program()
    assert with_it[:2] == ["child 0"] * 2
    without = _program(MINDTORCH_NATIVE="0")
    assert without[:2] == ["child 0"] * 2 and without[2].endswith("pool False")
    one = _program(OMP_NUM_THREADS="1")
    values = [float(lines[2].split()[1]) for lines in (with_it, without, one)]
    np.testing.assert_allclose(values, values[0], rtol=1e-4)


@needs_pool
def test_idle_threads_sleep():
    """Checks that an idle process costs nothing: waiting threads spin for less than a millisecond.
    """
    if not onednn.has_private():
        pytest.skip("no oneDNN of our own here")
    import time
    a = np.ones((300, 300), np.float32)
    onednn.gemm_shared(a, a, np.empty_like(a))
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.15
