"""Convolutions and matrix products by direct oneDNN calls: same values as the kernels they replace,
for any strides, threads and forks."""
import collections
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from mindtorch.backend.cpu import conv as cpu_conv, onednn, onednn_parallel, blas, threads
from mindtorch.backend.c_kernels import thread_pool

pytestmark = pytest.mark.skipif(not onednn.available(), reason="no oneDNN library here")


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch):
    """Keeps test-sized convolutions away from mindtorch's own C kernel
    (tests/ops/test_ops_conv.py)."""
    monkeypatch.setattr(cpu_conv, "_small", lambda *a, small=cpu_conv._small: (small(*a)[0], None))


@pytest.fixture(params=["Python's threads", "C"], autouse=True)
def team(request, monkeypatch):
    """Runs every test with both ways to split a call across threads."""
    if request.param == "C":
        if not onednn.has_private() or thread_pool.lib() is None:
            pytest.skip("no C compiler here, or no oneDNN of our own")
    else:
        monkeypatch.setattr(onednn_parallel, "run", lambda *a: False)
        monkeypatch.setattr(onednn, "gemm_shared", lambda *a: False)
    return request.param


CASES = [  # n, channels, size, out channels, kernel, stride, padding, dilation, groups
    (5, 3, (9, 8), 16, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    # negative padding at the end: the stride leaves a remainder
    (3, 16, (9, 7), 32, (3, 2), (2, 1), (1, 0), (1, 2), 1),
    (2, 6, (8, 8), 6, (3, 3), (1, 1), (1, 1), (1, 1), 6),
    (4, 8, (7, 7), 12, (1, 1), (1, 1), (0, 0), (1, 1), 4),
    (1, 16, (6, 6), 64, (3, 3), (1, 1), (1, 1), (1, 1), 1),  # one image: split by channels
    (3, 64, (3, 3), 64, (3, 3), (1, 1), (1, 1), (1, 1), 1),      # more weights than pixels
    (2, 4, (5, 6, 4), 8, (2, 3, 3), (1, 2, 1), (0, 1, 1), (1, 1, 1), 1),
]


def _arrays(case, seed=0):
    n, c, size, o, kernel, stride, padding, dilation, groups = case
    rs = np.random.RandomState(seed)
    pads = tuple((p, p) for p in padding)
    out = cpu_conv.out_size(size, kernel, stride, pads, dilation)
    x, w, b, g = (rs.randn(*s).astype(np.float32) for s in ((n, c) + size, (o, c // groups) + kernel, (o,), (n, o) + out))
    return x, w, b, g, {"stride": stride, "padding": pads, "dilation": dilation, "groups": groups}


def _all(x, w, b, g, how):
    return (cpu_conv.conv(x, w, b, **how), cpu_conv.conv_transposed(g, w, size=x.shape[2:], **how),
            cpu_conv.conv_weight(g, x, kernel=w.shape[2:], **how))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_convolutions_match_float64(case, count, monkeypatch):
    x, w, b, g, how = _arrays(case)
    double = _all(*(a.astype(np.float64) for a in (x, w, b, g)), how)  # float64 never uses oneDNN
    monkeypatch.setattr(threads._pool, "count", count)
    monkeypatch.setattr(cpu_conv, "_WORTH", 0)
    used = []
    monkeypatch.setattr(onednn, "_plan", lambda *a, make=onednn._plan: used.append(a[0]) or make(*a))
    monkeypatch.setattr(onednn_parallel, "run", lambda *a, run=onednn_parallel.run: run(*a) and not used.append(a[0]))
    for k in range(2):  # the second iteration uses the cached plans
        for a, e in zip(_all(x, w, b, g, how), double):
            assert a.dtype == np.float32 and a.shape == e.shape
            np.testing.assert_allclose(a, e, rtol=2e-5, atol=2e-5 * abs(e).max())
    assert {"y", "x", "w"} <= set(used)


def test_convolutions_of_strided_arrays():
    x, w, b, g, how = _arrays(CASES[0])
    expected = _all(x, w, b, g, how)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    views = [np.moveaxis(last, -1, 1), np.repeat(x, 2, axis=3)[..., ::2], x[::-1][::-1]]
    odd = np.zeros(x.nbytes + 2, np.uint8)[2:].view(np.float32).reshape(x.shape)      # not aligned to four bytes
    odd[...] = x
    for v in views + [odd]:
        for a, e in zip(_all(v, w, b, g, how), expected):
            np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)
    flat = np.broadcast_to(np.float32(0.5), g.shape)  # like the gradient of a mean
    np.testing.assert_allclose(_all(x, w, b, flat, how)[2], _all(x, w, b, flat.copy(), how)[2], rtol=1e-6)
    back = w[:, :, ::-1, ::-1]
    np.testing.assert_allclose(cpu_conv.conv(x, back, b, **how), cpu_conv.conv(x, back.copy(), b, **how), rtol=1e-6)


def test_convolution_in_blocks_of_images(monkeypatch):
    x, w, b, g, how = _arrays(CASES[0])
    whole = _all(x, w, b, g, how)
    monkeypatch.setattr(cpu_conv, "_CACHE", x[0].size + g[0].size)             # one image at a time
    monkeypatch.setattr(cpu_conv, "_WORTH", 0)
    for a, e in zip(_all(x, w, b, g, how), whole):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)


def test_unsupported_convolution_falls_back(monkeypatch):
    def refuse(*a):
        raise onednn.Unsupported
    x, w, b, g, how = _arrays(CASES[0])
    with_it = _all(x, w, b, g, how)
    monkeypatch.setattr(onednn, "new_plan", lambda *a, **k: refuse())
    onednn_parallel._calls.clear()
    onednn._mine().plans.clear()
    for a, e in zip(_all(x, w, b, g, how), with_it):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-4)


def test_plans_and_buffers_are_bounded(monkeypatch):
    monkeypatch.setattr(onednn, "_MOST_PLANS", 4)
    monkeypatch.setattr(onednn_parallel, "_MOST_CALLS", 4)
    monkeypatch.setattr(onednn, "_ROOM", 1 << 10)
    # Start with empty caches: a call that finds a plan of another test evicts nothing.
    monkeypatch.setattr(onednn._mine(), "plans", collections.OrderedDict())
    monkeypatch.setattr(onednn_parallel, "_calls", collections.OrderedDict())
    for size in range(6, 14):
        _all(*_arrays((2, 16, (size, size), 16, (3, 3), (1, 1), (1, 1), (1, 1), 1)))
    mine = onednn._mine()
    assert len(mine.plans) <= 4 and not mine.large and len(onednn_parallel._calls) <= 4 and (mine.plans or onednn_parallel._calls)
    monkeypatch.undo()
    mine.scratchpads.clear()


def test_concurrent_calls_from_many_threads():
    x, w, b, g, how = _arrays(CASES[1])
    expected, wrong = _all(x, w, b, g, how), []

    def work():
        for _ in range(10):
            wrong.extend(i for i, (a, e) in enumerate(zip(_all(x, w, b, g, how), expected)) if not np.allclose(a, e, atol=1e-5))
    ts = [threading.Thread(target=work) for _ in range(4)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    assert not wrong


_FORK = """
import os, numpy as np
from mindtorch.backend.cpu import conv as K
x, w = np.ones((4, 16, 32, 32), np.float32), np.ones((32, 16, 3, 3), np.float32)
how = dict(stride=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1)
first = K.conv(x, w, **how)
pid = os.fork()
if not pid:
    os._exit(0 if np.array_equal(K.conv(x, w, **how), first) else 3)
print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
import mindspore as ms
from mindtorch.backend.cpu import onednn
from mindtorch.backend.mindspore import runtime
print("capped", not runtime.onednn_uses_avx512())
import ctypes
n = ctypes.c_int()
onednn._shared.lib.dnnl_threadpool_interop_get_max_concurrency(ctypes.byref(n))
print("alone", onednn._shared.private, "threads", n.value)
print("own", hex(onednn._shared.lib.dnnl_get_effective_cpu_isa()))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("isa", [None, "AVX2"])
def test_fork_and_coexistence_with_the_capped_library(isa):
    env = {k: v for k, v in os.environ.items() if k not in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")}
    if isa:
        env["ONEDNN_MAX_CPU_ISA"] = isa
    r = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, text=True, env=env, timeout=100)
    assert r.returncode == 0, r.stderr
    assert "child 0" in r.stdout and "capped True" in r.stdout
    if isa:
        assert "own 0x7" in r.stdout  # the user's setting applies to both libraries
        assert "alone False" in r.stdout and ("threads 1" not in r.stdout or len(os.sched_getaffinity(0)) == 1)


# ------------------------------------------------------------------ matrix products
def _operand(rs, shape, kind):
    if kind == "transposed":
        return rs.randn(*shape[:-2], shape[-1], shape[-2]).astype(np.float32).swapaxes(-1, -2)
    if kind == "columns":                # rows of a wider matrix
        return rs.randn(*shape[:-1], shape[-1] + 5).astype(np.float32)[..., 3:-2]
    if kind == "reversed":
        return rs.randn(*shape).astype(np.float32)[..., ::-1, :]
    if kind == "scattered":
        return rs.randn(*shape[:-1], 2 * shape[-1]).astype(np.float32)[..., ::2]
    return rs.randn(*shape).astype(np.float32)


KINDS = ["plain", "transposed", "columns", "reversed", "scattered"]


@pytest.mark.parametrize("worth", [0, 1 << 60])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (1, 1, 4)], ids=str)
def test_products(worth, batch, monkeypatch):
    monkeypatch.setattr(blas, "_WORTH", worth)
    monkeypatch.setattr(blas, "_LEAST", 0)
    monkeypatch.setattr(blas, "_ONE", 0)
    rs = np.random.RandomState(1)
    for m, k, n in [(8, 8, 8), (33, 17, 70), (70, 17, 33), (1, 20, 20), (20, 1, 20), (20, 20, 1), (0, 9, 9), (9, 0, 9)]:
        for p in KINDS:
            for q in KINDS:
                a, b = _operand(rs, batch + (m, k), p), _operand(rs, batch + (k, n), q)
                expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
                r = blas.product(a, b)
                assert r.dtype == np.float32
                np.testing.assert_allclose(r, expected, atol=1e-4)
                out = np.empty(expected.shape, np.float32)
                assert blas.product(a, b, out=out) is out
                np.testing.assert_allclose(out, expected, atol=1e-4)


@pytest.mark.parametrize("count", [1, 2])
def test_products_with_few_rows_or_columns(count, monkeypatch):
    """Also tests matrix-vector products, with any strides, on one and two threads.

    Other dtypes and mismatched shapes behave as in NumPy.
    """
    monkeypatch.setattr(blas, "_READ", 0)
    monkeypatch.setattr(blas, "_READ_SHARED", 0)
    monkeypatch.setattr(threads._pool, "count", count)
    taken, rs = [], np.random.RandomState(2)
    monkeypatch.setattr(onednn, "gemm_shared", lambda *a, f=onednn.gemm_shared: (taken.append(a), f(*a))[1])
    for m, k, n in [(1, 300, 400), (7, 130, 520), (520, 130, 7), (600, 200, 1), (3, 8, 9000), (2, 40000, 3)]:
        for p in KINDS:
            for q in KINDS:
                a, b = _operand(rs, (m, k), p), _operand(rs, (k, n), q)
                expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
                for r in (blas.product(a, b), blas.product(a, b, out=np.empty((m, n), np.float32))):
                    np.testing.assert_allclose(r, expected, rtol=1e-4, atol=2e-3)
                if n == 1:
                    v = b[:, 0]
                    for r in (blas.by_vector(a, v), blas.by_vector(np.asfortranarray(a), v)):
                        assert r.shape == (m,) and r.dtype == np.float32
                        np.testing.assert_allclose(r, expected[:, 0], rtol=1e-4, atol=2e-3)
    assert len(taken) > 200 or not onednn.has_private()
    assert blas.by_vector(np.ones((9, 10)), np.ones(10)).dtype == np.float64
    for a, v in [((9, 10), 9), ((9, 10), 1)]:
        with pytest.raises(ValueError):
            blas.by_vector(np.ones(a, np.float32), np.ones(v, np.float32))


@pytest.mark.parametrize("count", [1, 2])
def test_product_plus_row_is_bitwise_equal(count, monkeypatch):
    """Checks that a product plus a row is bitwise equal to a product followed by an addition.

    Covers any strides, splits along rows and columns, and operands that do not use oneDNN.
    """
    for least in ("_WORTH_POOL", "_DOT", "_LEAST"):
        monkeypatch.setattr(blas, least, 0)
    monkeypatch.setattr(threads._pool, "count", count)
    rs = np.random.RandomState(3)
    for m, k, n in [(8, 8, 8), (100, 30, 40), (40, 30, 100), (300, 9, 17), (17, 9, 300), (5, 20, 30), (30, 5, 20), (0, 9, 9), (9, 9, 1)]:
        row = rs.randn(n).astype(np.float32)
        for p in KINDS:
            for q in KINDS:
                a, b = _operand(rs, (m, k), p), _operand(rs, (k, n), q)
                np.testing.assert_array_equal(blas.product_plus(a, b, row), blas.product(a, b) + row)
        a, b = rs.randn(m, k), rs.randn(k, n)
        np.testing.assert_array_equal(blas.product_plus(a, b, row.astype(float)), blas.product(a, b) + row.astype(float))
    with pytest.raises(ValueError):
        blas.product_plus(np.ones((64, 64), np.float32), np.ones((64, 64), np.float32), np.ones(63, np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int64", "bool"])
@pytest.mark.parametrize("shapes", [((90, 1), (1, 80)), ((3, 9, 1), (3, 1, 7)), ((2, 1, 9, 1), (5, 1, 7)), ((3, 1, 1), (1, 4)), ((0, 4, 1), (0, 1, 3))], ids=str)
def test_outer_products(dtype, shapes):
    rs = np.random.RandomState(4)
    a, b = ((rs.randn(*s) * 2).astype(dtype) for s in shapes)
    r, expected = blas.product(a, b), np.matmul(a, b)
    assert r.dtype == expected.dtype
    np.testing.assert_allclose(r, expected, rtol=1e-6)


def test_mismatched_products_raise():
    for a, b in [((9, 9), (8, 9)), ((2, 9, 9), (3, 9, 9)), ((2, 64, 64), (2, 65, 64))]:
        with pytest.raises(ValueError):
            blas.product(np.zeros(a, np.float32), np.zeros(b, np.float32))
    assert blas.product(np.ones((2, 1, 9, 9), np.float32), np.ones((3, 9, 9), np.float32)).shape == (2, 3, 9, 9)
