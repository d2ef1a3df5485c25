"""Elementwise ops, softmax and layer norm of float32 arrays with oneDNN, in pieces shared between
threads.

oneDNN's kernels make one pass over memory where NumPy makes five to twenty. One million elements on
one thread, us (NumPy in pieces / oneDNN / PyTorch): gelu 2400 / 320 / 230, softmax 880 / 330 / 440,
layer norm 1000 / 210 / 250, its gradient 2700 / 450 / 500. The forward log_softmax stays with
NumPy: oneDNN's error there reaches 4e-6.

These kernels are used only with AVX-512. With AVX2 the C loops of this package
(csrc/elementwise_table.h) take the same time or less, a third for tanh gelu. PyTorch's exact gelu
is oneDNN's as well, so that result is bit-equal; the tanh form is not.

A primitive is created for a fixed piece size (0.3 ms, once per thread). The last piece of an array
overlaps the one before.
"""
import collections
import ctypes
import threading
from typing import Any

import numpy as np

from mindtorch.backend.cpu import large, onednn, threads
from mindtorch.backend.cpu.host import address
from mindtorch.backend.cpu.onednn import _DIFF, _DST, _FORWARD, _P, _SCRATCHPAD, _SRC, _Arg, _Desc, _Kernel, _Memory, _mine, _shared, check
from mindtorch.backend.cpython import at_fork
from mindtorch.backend.c_kernels import thread_pool

ALGORITHMS = {"logistic": (0x29, 0.0, 0.0), "swish": (0x2c, 1.0, 0.0), "gelu_tanh": (0x2b, 0.0, 0.0), "gelu_erf": (0x31, 0.0, 0.0),
              "hardswish": (0x34, 1 / 6, 0.5), "hardsigmoid": (0x28, 1 / 6, 0.5), "exp": (0x2a, 0.0, 0.0)}
_F32 = np.dtype(np.float32)
_WIDE = 1 << 17  # maximum elements per piece
_NARROW = 1 << 13  # minimum elements for this module
# minimum elements for sharing a pass between the threads of `c_kernels/thread_pool.py`
_SHARED = 1 << 15
_MOST_KERNELS = 256  # maximum cached kernels per thread


def fits(*arrays):
    """True if such arrays are faster here: float32, C-contiguous, of one shape, large enough, with
    AVX-512."""
    x = arrays[-1]
    if x.size < _NARROW:
        return False
    for a in arrays:
        if a.shape != x.shape or a.dtype != _F32 or not a.flags.c_contiguous:
            return False
    return onednn.has_avx512()


class _Pass:
    """A oneDNN primitive; `run` accepts data addresses in the order of `layouts`."""

    def __init__(self, kernel, layouts):
        self.kernel, self.memories = kernel, [_Memory(layout) for _, layout in layouts]
        self.handles = [m.p for m in self.memories]
        args = [_Arg(arg, m.p) for (arg, _), m in zip(layouts, self.memories)]
        scratch = _Memory(kernel.layout(_SCRATCHPAD))
        if scratch.size:
            self.scratch, self.scratchpad = scratch, np.empty(scratch.size + 64, np.uint8)
            start = address(self.scratchpad)
            _shared.lib.dnnl_memory_set_data_handle(scratch.p, start + -start % 64)
            args.append(_Arg(_SCRATCHPAD, scratch.p))
        self.count, self.args = len(args), (_Arg * len(args))(*args)

    def run(self, *addresses):
        lib = _shared.lib
        put = lib.dnnl_memory_set_data_handle
        for handle, data_address in zip(self.handles, addresses):
            put(handle, data_address)
        check(lib.dnnl_primitive_execute(self.kernel.p, onednn._thread.stream, self.count, self.args))


_declared: list[Any] = []


def _declare(lib):
    pp, i, f = ctypes.POINTER(_P), ctypes.c_int, ctypes.c_float
    for name, *types in (("eltwise_forward_primitive_desc_create", pp, _P, i, i, _P, _P, f, f, _P),
                         ("eltwise_backward_primitive_desc_create", pp, _P, i, _P, _P, _P, f, f, _P, _P),
                         ("softmax_forward_primitive_desc_create", pp, _P, i, i, _P, _P, i, _P),
                         ("softmax_backward_primitive_desc_create", pp, _P, i, _P, _P, _P, i, _P, _P),
                         ("layer_normalization_forward_primitive_desc_create", pp, _P, i, _P, _P, _P, f, ctypes.c_uint, _P),
                         ("layer_normalization_backward_primitive_desc_create", pp, _P, i, _P, _P, _P, _P, f, ctypes.c_uint, _P, _P)):
        fn = getattr(lib, "dnnl_" + name)
        fn.argtypes, fn.restype = types, i
    _declared.append(lib)


def _cached(key, make):
    """Returns make(library, engine, attributes) from a per-thread LRU cache."""
    mine = _mine()
    plans = mine.__dict__.get("passes")
    if plans is None:
        plans = mine.passes = collections.OrderedDict()
    plan = plans.get(key)
    if plan is None:
        if not _declared:
            _declare(_shared.lib)
        plan = plans[key] = make(_shared.lib, _shared.engine, _shared.attr)
        while len(plans) > _MOST_KERNELS:
            plans.popitem(last=False)
    else:
        plans.move_to_end(key)
    return plan


def _eltwise(name, n, backward):
    """Returns the factory (see `_kept`) of the elementwise op `name`, or of its gradient, over n
    elements."""
    def make(lib, engine, attr):
        algorithm, alpha, beta = ALGORITHMS[name]
        d = _Desc((n,), (1,))
        k = _Kernel(lib.dnnl_eltwise_forward_primitive_desc_create, engine, _FORWARD, algorithm, d.p, d.p, alpha, beta, attr)
        if not backward:
            return _Pass(k, [(_SRC, d.p), (_DST, d.p)])
        k = _Kernel(lib.dnnl_eltwise_backward_primitive_desc_create, engine, algorithm, d.p, d.p, d.p, alpha, beta, k.desc, attr)
        return _Pass(k, [(_DST | _DIFF, d.p), (_SRC, d.p), (_SRC | _DIFF, d.p)])
    return make


class _PassOf(ctypes.Structure):
    _fields_ = [("primitive", _P), ("args", _P), ("stream", _P), ("memories", _P * 4), ("count", ctypes.c_long)]


class _Passes:
    """One primitive per thread of `mindtorch/backend/c_kernels/thread_pool.py`."""

    def __init__(self, make, count):
        self.lock = threading.Lock()
        self.passes = [make(_shared.lib, _shared.engine, _shared.attr) for _ in range(count)]
        self.streams = [onednn.Stream() for _ in range(count)]
        self.of = (_PassOf * count)(*(_PassOf(p.kernel.p, ctypes.addressof(p.args), s.p, (_P * 4)(*(h.value for h in p.handles)), p.count)
                                      for p, s in zip(self.passes, self.streams)))

    def run(self, native_pool, operands, n, size, left):
        """Runs the primitives over the operands. Returns False if another thread holds the lock."""
        if not self.lock.acquire(False):
            return False
        try:
            put, execute = onednn.functions()
            check(native_pool.mt_passes(put, execute, self.of, (_P * len(operands))(*operands), len(operands), n, size, left))
        finally:
            self.lock.release()
        return True


_together: collections.OrderedDict[Any, _Passes] = collections.OrderedDict()
# the thread that holds a lock may not exist in the child
at_fork("passes of oneDNN on all threads", after_in_child=_together.clear)


def _passes(name, n, backward, count):
    key = (name, n, backward, count)
    found = _together.get(key)
    if found is None:
        if not _declared:
            _declare(_shared.lib)
        found = _together[key] = _Passes(_eltwise(name, n, backward), count)
        while len(_together) > _MOST_KERNELS:
            _together.popitem(last=False)
    return found


def eltwise(name, *arrays, backup=None):
    """Applies the elementwise op `name` to x, or computes its gradient from (g, x).

    All arrays are C-contiguous and of one shape. backup(*arrays), if given, computes the pieces in
    which an element of x is inf or NaN.
    """
    x = arrays[-1]
    r = np.empty(x.shape, _F32)
    count = x.size
    if not count:
        return r
    ins = [address(a) for a in arrays]
    to = address(r)
    flat, y, backward = [a.reshape(-1) for a in arrays], r.reshape(-1), len(arrays) == 2
    threads_ = threads.count()

    def by_backup(start, n):
        y[start:start + n] = backup(*[a[start:start + n] for a in flat])

    if count >= _SHARED and threads_ > 1 and onednn.has_private() and (native_pool := thread_pool.ready()) is not None:
        n = 1 << min(count // threads_, _WIDE).bit_length() - 1
        left = None if backup is None else bytearray(-(-count // n))
        if _passes(name, n, backward, threads_).run(native_pool, (*ins, to), n, count, None if left is None else (ctypes.c_char * len(left)).from_buffer(left)):
            for k in range(len(left or ())):
                if left[k]:
                    by_backup(min(k * n, count - n), n)
            return r
    # powers of two, so that few kernels serve all sizes
    n = 1 << min(count, _WIDE).bit_length() - 1

    def part(k):
        start = min(k * n, count - n)
        if backup is not None:
            top = flat[-1][start:start + n].max()
            if not top < np.inf:
                by_backup(start, n)
                return
        _cached((name, n, backward), _eltwise(name, n, backward)).run(*[a + 4 * start for a in ins], to + 4 * start)
    large.each(-(-count // n), part, count)
    return r


# ------------------------------------------------------------------ rows
_ROW = 16  # minimum row length
_MEAN, _VARIANCE, _SCALE, _SHIFT, _DIFF_SCALE, _DIFF_SHIFT = 49, 50, 51, 52, 255, 256
_SOFTMAX = {"softmax": 0x30000, "log_softmax": 0x30001}
_BACKWARD = 128


def rows_fit(*matrices):
    """True if the rows of such matrices are faster here."""
    m = matrices[-1]
    return m.size >= _NARROW and _ROW <= m.shape[1] <= m.size >> 1 and fits(*matrices)


def _step(m):
    """Returns the rows per piece, a power of two, so that few kernels serve all row counts."""
    most = max(1, min(m.shape[0], _WIDE // m.shape[1]))
    return 1 << most.bit_length() - 1


def _softmax_pass(kind, n, width, backward):
    def make(lib, engine, attr):
        d = _Desc((n, width), (width, 1))
        algorithm = _SOFTMAX[kind]
        k = _Kernel(lib.dnnl_softmax_forward_primitive_desc_create, engine, _FORWARD, algorithm, d.p, d.p, 1, attr)
        if not backward:
            return _Pass(k, [(_SRC, d.p), (_DST, d.p)])
        k = _Kernel(lib.dnnl_softmax_backward_primitive_desc_create, engine, algorithm, d.p, d.p, d.p, 1, k.desc, attr)
        return _Pass(k, [(_DST | _DIFF, d.p), (_DST, d.p), (_SRC | _DIFF, d.p)])
    return _cached((kind, n, width, backward), make)


def softmax(kind, *arrays, backup):
    """Computes the softmax of the rows of a matrix, or the gradient of `kind` from (g, result).

    backup(*arrays) computes the pieces with elements that are inf or NaN: oneDNN's exponential does
    not propagate NaN.
    """
    m = arrays[-1]
    width, n = m.shape[1], _step(m)
    r = np.empty(m.shape, _F32)
    ins, to, backward = [address(a) for a in arrays], address(r), len(arrays) == 2

    def part(k):
        start = min(k * n, len(m) - n)
        if not m[start:start + n].max() < np.inf:
            r[start:start + n] = backup(*[a[start:start + n] for a in arrays])
            return
        at = 4 * width * start
        _softmax_pass(kind, n, width, backward).run(*[a + at for a in ins], to + at)
    large.each(-(-len(m) // n), part, m.size)
    return r


def _norm_pass(n, width, eps, flags, backward):
    def make(lib, engine, attr):
        d, row, column = _Desc((n, width), (width, 1)), _Desc((width,), (1,)), _Desc((n,), (1,))
        stats = [(_MEAN, column.p), (_VARIANCE, column.p)]
        k = _Kernel(lib.dnnl_layer_normalization_forward_primitive_desc_create, engine, _FORWARD, d.p, d.p, column.p, eps, flags, attr)
        if not backward:
            return _Pass(k, [(_SRC, d.p), (_DST, d.p), *stats, (_SCALE, row.p), (_SHIFT, row.p)])
        k = _Kernel(lib.dnnl_layer_normalization_backward_primitive_desc_create, engine, _BACKWARD, d.p, d.p, d.p, column.p, eps, flags,
                    k.desc, attr)
        return _Pass(k, [(_DST | _DIFF, d.p), (_SRC, d.p), *stats, (_SCALE, row.p), (_SRC | _DIFF, d.p), (_DIFF_SCALE, row.p),
                         (_DIFF_SHIFT, row.p)])
    return _cached(("norm", n, width, eps, flags, backward), make)


def layer_norm(m, w, b, eps):
    """Returns (normalized rows, means, variances) of a matrix. w and b are rows or None."""
    width, n = m.shape[1], _step(m)
    y, mean, var = np.empty(m.shape, _F32), np.empty(len(m), _F32), np.empty(len(m), _F32)
    flags = (2 if w is not None else 0) | (4 if b is not None else 0)
    x, to, means, variances = address(m), address(y), address(mean), address(var)
    scale, shift = (0 if v is None else address(v) for v in (w, b))

    def part(k):
        start = min(k * n, len(m) - n)
        at = 4 * width * start
        _norm_pass(n, width, eps, flags, False).run(x + at, to + at, means + 4 * start, variances + 4 * start, scale, shift)
    large.each(-(-len(m) // n), part, m.size)
    return y, mean, var


def layer_norm_grad(g, m, mean, var, w, eps):
    """Returns (gradient of the rows, gradient of w, gradient of b), given the mean and variance of
    `layer_norm`.

    The gradients of w and b are sums per piece of rows.
    """
    width, n = m.shape[1], _step(m)
    # Full pieces first; the remaining rows are split into powers of two.
    cuts = list(range(0, len(m) + 1, n))
    while cuts[-1] < len(m):
        cuts.append(cuts[-1] + (1 << (len(m) - cuts[-1]).bit_length() - 1))
    gx, (gw, gb) = np.empty(m.shape, _F32), np.empty((2, len(cuts) - 1, width), _F32)
    arrays = [address(a) for a in (g, m, mean, var, gx, gw, gb)]
    scale = w if w is not None else np.ones(width, _F32)
    by = address(scale)

    def part(k):
        start = cuts[k]
        at, one = 4 * width * start, 4 * start
        _norm_pass(cuts[k + 1] - start, width, eps, 6, True).run(
            arrays[0] + at, arrays[1] + at, arrays[2] + one, arrays[3] + one, by, arrays[4] + at, arrays[5] + 4 * width * k,
            arrays[6] + 4 * width * k)
    large.each(len(cuts) - 1, part, m.size)
    return gx, gw, gb
