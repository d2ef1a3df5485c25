"""NumPy's own loops, casts, copies, fills, concatenation and selection on the pool's threads: same
values, dtypes and memory order as NumPy alone."""
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as mt
from mindtorch.backend.cpu import copies, half, joining, pointwise, threads
from mindtorch.backend.cpu._numpy_private import finds_loops, inner_loop
from mindtorch.backend.c_kernels import copy_pad_grid, thread_pool

needs_pool = pytest.mark.skipif(thread_pool.lib() is None, reason="no C compiler here")
needs_loops = pytest.mark.skipif(thread_pool.lib() is None or not finds_loops(), reason="no C compiler here, or another NumPy")

REAL = [np.dtype(t) for t in ("?", "u1", "i1", "i2", "i4", "i8", "f4", "f8")]
TYPES = [*REAL, np.dtype("c8"), np.dtype("c16")]
UFUNCS = sorted({u for u in vars(np).values() if isinstance(u, np.ufunc) and u.nin <= 2 and u.nout == 1 and u.signature is None}, key=lambda u: u.__name__)


@pytest.fixture(params=[2, 3, 7])
def count(request, monkeypatch):
    monkeypatch.setattr(threads._pool, "count", request.param)
    yield request.param
    monkeypatch.undo()


@pytest.fixture
def two(monkeypatch):
    monkeypatch.setattr(threads._pool, "count", 2)
    yield
    monkeypatch.undo()


def values(rs, shape, dtype):
    """Returns random values, including those for which loops take other paths."""
    a = rs.randint(0, 2, shape) if dtype.kind == "b" else rs.randint(-300 if dtype.kind == "i" else 0, 300, shape)
    a = a.astype(dtype)
    if dtype.kind in "fc":
        a = (rs.randn(*shape) * 3).astype(dtype)
        a.reshape(-1)[::7] = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e-40, 3e38], dtype)[rs.randint(0, 7, a.reshape(-1)[::7].size)]
    return a


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_array_equal(a, b)
    if a.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(a[a == 0]), np.signbit(b[b == 0]))


# ------------------------------------------------------------------ loops of ufuncs
@needs_loops
@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda u: u.__name__)
def test_every_ufunc_matches_numpy(two, ufunc):
    shared, rs, ran = thread_pool.Shared(ufunc), np.random.RandomState(0), 0
    for d in TYPES:
        operands = [values(rs, (3, 4111), d) for _ in range(ufunc.nin)]
        with np.errstate(all="ignore"):
            try:
                want = ufunc(*operands)
            except (TypeError, ValueError):
                want = None  # no loop, or an integer to a negative power
            got = shared(*operands)
            if want is None or inner_loop(ufunc, d) is None:
                assert got is None
                continue
            same(got, want)
            if ufunc.nin == 2:
                one = operands[1][1:2, 5:6]
                same(shared(operands[0], one), ufunc(operands[0], one))
                assert shared(operands[0], one[0, 0]) is None  # not an array
        ran += 1
    # ldexp has operands of two kinds, isnat needs dates
    assert ran or ufunc in (np.ldexp, np.isnat)


@needs_loops
@pytest.mark.parametrize("n", [1, 4095, 4096, 4097, 150001])
def test_sizes_and_output_arrays(count, n):
    rs = np.random.RandomState(n)
    a, b = (values(rs, (n,), np.dtype("f4")) for _ in range(2))
    one = np.array(-1.7, np.float32)
    with np.errstate(all="ignore"):
        for u in (np.add, np.subtract, np.multiply, np.divide, np.maximum, np.arctan2):
            shared = thread_pool.Shared(u)
            for y in (b, one, one.reshape(1), a):
                want = u(a, y)
                same(shared(a, y), want)
                x = a.copy()
                assert shared(x, x if y is a else y, x) is x
                same(x, want)
                if y.shape == a.shape:
                    x = y.copy()
                    assert shared(a, x, x) is x  # result in the second operand
                    same(x, u(a, y))
        truths = np.empty(n, bool)
        assert thread_pool.Shared(np.less)(a, b, truths) is truths
        same(truths, a < b)
        assert thread_pool.Shared(np.less)(a, b, np.empty(n, np.float32)) is None


@needs_loops
def test_memory_orders(count):
    rs = np.random.RandomState(0)
    x = rs.randn(6, 5, 7, 300).astype(np.float32)
    add, less = thread_pool.Shared(np.add), thread_pool.Shared(np.less)
    for a in (x, np.asfortranarray(x), x.transpose(0, 3, 1, 2), np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)):
        b = a.copy(order="K") * 2
        for s, want in ((add, np.add(a, b)), (less, np.less(a, b))):
            got = s(a, b)
            same(got, want)
            assert got.strides == want.strides
        same(thread_pool.Shared(np.negative)(a), -a)
    b = x.copy()
    # Gaps, other orders, shapes and dtypes, reversed and repeated elements are unsupported.
    for p, q in ((x[:, :, ::2], b[:, :, ::2]), (x, np.asfortranarray(b)), (x, b[:1]), (x[0], b), (x, b.astype(np.float64)), (x[..., ::-1], b[..., ::-1]),
                 (np.broadcast_to(x[:1], x.shape), b)):
        assert add(p, q) is None


@needs_loops
def test_overlapping_outputs_are_left_to_numpy(two):
    """Checks that an operand that partly overlaps the result is left to NumPy, which copies it
    first."""
    m = np.arange(300000, dtype=np.float32)
    shared = thread_pool.Shared(np.add)
    assert shared(m[1:], m[:-1], m[1:]) is None and shared(m[:-1], m[1:], m[:-1]) is None
    pointwise.write(np.add, m[1:], m[:-1])
    same(m[1:], np.arange(1, 300000, dtype=np.float32) + np.arange(299999, dtype=np.float32))
    bits = np.zeros(100000, np.int64)
    assert thread_pool.Shared(np.isnan)(bits.view(np.float64), None, bits.view(bool)[:100000]) is None
    fixed = np.zeros(100000, np.float32)
    fixed.flags.writeable = False
    assert shared(fixed, fixed, fixed) is None


def test_one_thread_is_left_to_numpy(monkeypatch):
    monkeypatch.setattr(threads._pool, "count", 1)
    a = np.zeros(1 << 17, np.float32)
    assert thread_pool.Shared(np.add)(a, a) is None


@pytest.mark.parametrize("missing", ["compiler", "loops"])
def test_python_threads_are_used_without_c(two, missing, monkeypatch):
    if missing == "compiler":
        monkeypatch.setattr(thread_pool, "ready", lambda: None)
    else:
        monkeypatch.setattr(thread_pool, "finds_loops", lambda: False)
        monkeypatch.setattr(thread_pool, "inner_loop", lambda ufunc, dtype: None)
    monkeypatch.setattr(threads, "LARGE", 1 << 10)
    rs, ran = np.random.RandomState(0), []
    share = threads.share
    monkeypatch.setattr(threads, "share", lambda n, part: (ran.append(n), share(n, part)))
    for d in ("f4", "i8", "?"):
        a, b = (values(rs, (3, 4111), np.dtype(d)) for _ in range(2))
        same(thread_pool.Shared(np.logical_and)(a, b), np.logical_and(a, b))
        same(thread_pool.Shared(np.less)(a, b[0, :1].reshape(())), a < b[0, 0])
        same(thread_pool.Shared(np.isnan)(a), np.isnan(a))
    assert len(ran) == 9
    assert thread_pool.Shared(np.add)(a[:, ::2], a[:, ::2]) is None and thread_pool.Shared(np.add)(a[:1, :9], a[:1, :9]) is None


@needs_loops
def test_inner_loop_is_none_if_unsupported():
    f = np.dtype(np.float32)
    for ufunc, d in ((np.power, np.dtype(np.int64)), (np.sqrt, np.dtype(np.int32)), (np.add, f.newbyteorder()), (np.add, np.dtype(object)), (np.add, np.dtype("M8[s]")),
                     (np.frexp, f), (np.matmul, f), (np.ldexp, f), (np.add, np.dtype(np.float16))):
        assert inner_loop(ufunc, d) is None or d == np.float16
    assert inner_loop(np.add, f).result == f and inner_loop(np.less, f).result == np.bool_


# ------------------------------------------------------------------ casts
@needs_pool
@pytest.mark.parametrize("d", REAL, ids=str)
def test_casts(count, d):
    a = values(np.random.RandomState(1), (2, 33333), d)
    if d.kind in "iu":
        a.reshape(-1)[:2] = np.iinfo(d).min, np.iinfo(d).max
    for to in REAL:
        x = np.nan_to_num(a, posinf=1e30, neginf=-1e30) if d.kind == "f" and to.kind == "u" else a
        with np.errstate(all="ignore"):
            for y in (x, np.asfortranarray(x)):
                got, want = half.cast(y, to), y.astype(to)
                same(got, want)
                assert got.strides == want.strides
            same(half.cast(x[:, ::2], to), x[:, ::2].astype(to))


# ------------------------------------------------------------------ copies, zeros, concatenation
@needs_pool
@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=4), st.randoms(use_true_random=False), st.sampled_from(["?", "i2", "f4", "f8", "c16"]))
def test_copies(shape, random, d):
    a = np.arange(np.prod(shape), dtype=np.int64).astype(d).reshape(shape)
    order = list(range(a.ndim))
    random.shuffle(order)
    a = a.transpose(order)[tuple(slice(None, None, random.choice([1, 1, 2, -1])) for _ in order)]
    before = threads._pool.count, copies._SHARED
    threads._pool.count, copies._SHARED = 3, 1
    try:
        for got, want in ((copies.duplicate(a), a.copy(order="K")), (copies.copy_c(a), a.copy())):
            same(got, want)
            assert not np.may_share_memory(got, a) and (got.strides == want.strides or 1 in a.shape)
        to = np.zeros(a.shape, a.dtype)
        copies.store(to, a)
        same(to, a)
    finally:
        threads._pool.count, copies._SHARED = before


@needs_pool
@pytest.mark.parametrize("n", [100, 65536, 65537, 600001, 1 << 23])
def test_long_copies_and_zeros(count, n):
    a = np.random.RandomState(0).randint(-100, 100, n).astype(np.int8).repeat(4).view(np.int32)
    same(copies.duplicate(a), a)
    to = np.ones(n, np.int32)
    copies.store(to, a)
    same(to, a)
    copies.store(a[1:], a[:-1])  # overlapping
    same(a[1:], to[:-1])
    for d in ("i4", "f8", "?"):
        z = copies.zeros((n,), np.dtype(d))
        same(z, np.zeros(n, d))
        z[0] = 1


@needs_pool
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_concatenation(count, dim, monkeypatch):
    monkeypatch.setattr(joining, "_SHARED", 1)
    rs = np.random.RandomState(0)
    for sizes in itertools.product([0, 3, 90], [1, 300]):
        shape = [40, 50, 30]
        arrays = []
        for n in sizes:
            shape[dim] = n
            arrays.append(rs.randn(*shape))
        arrays.append(arrays[-1].copy(order="F"))
        arrays.append(arrays[-1][::-1, :, ::-1])
        same(joining.joined(arrays, dim), np.concatenate(arrays, dim))
    same(joining.joined([arrays[0], arrays[1].astype("f4")], dim), np.concatenate([arrays[0], arrays[1].astype("f4")], dim))
    with pytest.raises(ValueError):
        joining.joined([rs.randn(4, 5, 6), rs.randn(5, 6, 7)], dim)


# ------------------------------------------------------------------ selection by mask
@needs_pool
@pytest.mark.parametrize("d", ["?", "i1", "i2", "f2", "i4", "f4", "i8", "f8", "c8", "c16"])
@pytest.mark.parametrize("n", [2049, 70001])
def test_selection_by_mask(count, d, n):
    rs, d = np.random.RandomState(n), np.dtype(d)
    mask = rs.rand(n) > 0.4
    a, b = (values(rs, (n,), d) for _ in range(2))
    zero = np.zeros((), d)
    for x, y in ((a, b), (a, b[3]), (a[3], b), (a[5], b[3]), (a, zero), (zero, b), (a, b[:1])):
        x, y = np.asarray(x), np.asarray(y)
        same(copy_pad_grid.chosen(mask, x, y), np.where(mask, x, y))
    for x, y in ((a, b), (zero, a)):
        to = y.copy()
        assert copy_pad_grid.chosen(mask, x, to, to) is to
        same(to, np.where(mask, x, y))
    same(pointwise.select(mask, a, b), np.where(mask, a, b))
    same(pointwise.masked(a, mask), np.where(mask, a, zero))
    to = a.copy()
    pointwise.fill_where(to, b[:1].reshape(()), mask)
    same(to, np.where(mask, b[0], a))
    # Unsupported: broadcast masks, gaps, other shapes, and reading elements that were already
    # written.
    for m, x, y in ((mask[:1], a, b), (mask[::2], a[::2], b[::2]), (mask, a[::-1], b), (mask, a.reshape(1, -1), b), (mask.view(np.int8), a, b),
                    (mask, a, b.astype("f4" if d != "f4" else "f8"))):
        assert copy_pad_grid.chosen(m, x, y) is None
    assert copy_pad_grid.chosen(mask[1:], a[1:], b[1:], b[:-1]) is None
    if d.kind == "b":
        assert copy_pad_grid.chosen(mask[1:], a[1:], b[1:], mask[:-1]) is None


# ------------------------------------------------------------------ mindtorch programs
def test_programs_are_independent_of_thread_count(monkeypatch):
    """Checks that large tensors in several memory orders give bitwise equal results with one thread
    and with three."""
    def run():
        mt.manual_seed(0)
        x, m = mt.randn(300, 400, requires_grad=True), mt.randn(300, 400) > 0
        y = mt.cat([x.exp(), x.t().contiguous().t() * 2], 1).masked_fill(mt.cat([m, ~m], 1), -1.5)
        z = mt.where(y > 0, y.sqrt(), y.abs().floor()) + mt.stack([y, -y]).sum(0).roll(5, 1)
        (z * mt.nn.functional.pad(x, (200, 200)).double()).float().square().sum().backward()
        w = z.detach().clone()
        w.add_(z.detach()).div_(3).clamp_(-1, 1)
        return [t.detach().numpy().copy() for t in (z, x.grad, w, w.to(mt.int64), w.isnan(), mt.zeros_like(w), w.t().clone())]
    monkeypatch.setattr(threads._pool, "count", 1)
    alone = run()
    monkeypatch.setattr(threads._pool, "count", 3)
    for a, b in zip(alone, run()):
        same(b, a)


# ------------------------------------------------------------------ rows, losses, cumulative values
@needs_pool
@pytest.mark.parametrize("d", ["?", "i2", "f4", "c16"])
def test_take_along_an_axis(count, d, monkeypatch):
    monkeypatch.setattr(copy_pad_grid, "_SHARED", 1)
    rs = np.random.RandomState(0)
    a = values(rs, (7, 33, 5, 61), np.dtype(d))
    for axis in range(4):
        n = a.shape[axis]
        for i in (rs.randint(0, n, 400), rs.randint(0, n, (3, 9)), np.array([], np.int64), np.array(n - 1)):
            same(copy_pad_grid.picked(a, i, axis, 1), a.take(i, axis))
        for bad in (-1, n, 1 << 62, -1 << 63):
            assert copy_pad_grid.picked(a, np.array([0, bad, 1]), axis, 1) is False
    assert copy_pad_grid.picked(a[:, ::2], np.array([1]), 0, 1) is None and copy_pad_grid.picked(a, np.array([1], np.int32), 0, 1) is None
    same(copy_pad_grid.picked(a[:0], np.array([], np.int64), 0, 1), a[:0])
    assert copy_pad_grid.picked(a[:0], np.array([0]), 0, 1) is False


@needs_pool
@pytest.mark.parametrize("d", ["f4", "f8"])
@pytest.mark.parametrize("n", [65536, 70001, 300000])
def test_sums_of_losses(count, d, n):
    """Checks that the chunks do not depend on the threads: the sum is the same for any number of
    them, and close to the exact one."""
    rs = np.random.RandomState(n)
    x, y = (rs.randn(n).astype(d) for _ in range(2))
    for name, wide in (("mse", lambda a, b: (a - b) ** 2), ("l1", lambda a, b: abs(a - b)), ("huber", lambda a, b: np.where(
            abs(a - b) < 0.5, 0.5 * (a - b) ** 2, 0.5 * (abs(a - b) - 0.25)))):
        loop = pointwise.Loop(name)
        got, numbers = loop.total(x, y, (0.5, 0.0, 0.0)), (0.5, 0.0, 0.0)
        assert got == pytest.approx(wide(x.astype("f8"), y.astype("f8")).sum(), rel=1e-6)
        with pytest.MonkeyPatch.context() as m:
            m.setattr(threads._pool, "count", 1)
            assert loop.total(x, y, numbers) == got
        assert loop.total(x, y[::-1], numbers) is None and loop.total(x, y[:-1], numbers) is None and loop.total(x.astype("f2"), y.astype("f2"), numbers) is None


@needs_loops
def test_logaddexp_accumulate(count):
    rs = np.random.RandomState(0)
    a = values(rs, (30, 40, 50), np.dtype("f8"))
    with np.errstate(all="ignore"):
        for axis in range(3):
            r = a.copy()
            assert thread_pool.Shared(np.logaddexp).accumulate(r, axis)
            same(r, np.logaddexp.accumulate(a, axis))
    assert not thread_pool.Shared(np.logaddexp).accumulate(np.asfortranarray(a), 0) and not thread_pool.Shared(np.less).accumulate(a.copy(), 0)
