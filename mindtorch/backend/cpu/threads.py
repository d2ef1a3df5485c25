"""Threads for NumPy kernels: ufuncs, copies and BLAS release the interpreter lock while they run.

NumPy itself is single-threaded. OpenBLAS starts its own threads for each product, which for the
products of one image costs as much as it saves. `share(n, part)` cuts range(n) into as many pieces
as there are threads and runs `part(start, stop)` on all of them at once, each with BLAS on its own
thread. Passing the work to the threads costs 15 us.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
import threading

import numpy as np

from mindtorch.backend.cpu import _numpy_private
from mindtorch.backend.cpu._numpy_private import SILENT
from mindtorch.backend.signals import take_no_signals
from mindtorch.backend.cpython import at_fork


def processors() -> int:
    """Returns the number of processors that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _available():
    n = processors()
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(n, int(limit) if limit.isdigit() and int(limit) else n, 8))


class _Blas:
    """The thread count of NumPy's (or scipy's) own OpenBLAS, if the wheel's library exports
    functions for it."""

    def __init__(self, of="numpy"):
        self.get = self.set = None
        for lib in sorted(pathlib.Path(np.__file__).parent.parent.glob(f"{of}.libs/lib*openblas*")):
            try:
                handle = ctypes.CDLL(str(lib))
            except OSError:
                continue
            for suffix in ("64_", ""):
                for prefix in ("", "scipy_"):
                    get = getattr(handle, f"{prefix}openblas_get_num_threads{suffix}", None)
                    set_ = getattr(handle, f"{prefix}openblas_set_num_threads{suffix}", None)
                    if get is not None and set_ is not None:
                        set_.restype = None
                        self.get, self.set = get, set_
                        return


class _Worker(threading.Thread):
    """A thread that runs one piece of work at a time."""

    def __init__(self):
        super().__init__(daemon=True, name="mindtorch-kernel")
        # a semaphore's methods are Python code
        self.go, self.done = threading.Lock(), threading.Lock()
        self.go.acquire()
        self.done.acquire()
        self.job = self.error = None
        self.start()

    def run(self):
        _numpy_private.silence_thread()
        take_no_signals()
        while True:
            self.go.acquire()
            fn, start, stop = self.job
            try:
                fn(start, stop)
            except BaseException as e:  # passed to the caller, which raises it
                self.error = e
            self.job = fn = None
            self.done.release()

    def give(self, fn, start, stop):
        self.job, self.error = (fn, start, stop), None
        self.go.release()

    def wait(self):
        self.done.acquire()
        return self.error


class _ThreadPool:
    def __init__(self):
        self.count = _available()
        self.reset()

    def reset(self):
        self.workers = []
        self.free = threading.Lock()

    def members(self, n):
        while len(self.workers) < n:
            self.workers.append(_Worker())
        return self.workers[:n]


_pool = _ThreadPool()
at_fork("threads of NumPy passes", after_in_child=_pool.reset)      # threads do not survive a fork


def count() -> int:
    """Returns the maximum number of pieces of `share`."""
    return _pool.count


def set_count(n: int) -> None:
    """Sets that number, also for NumPy's BLAS and for MindSpore's kernels if none has run yet.

    Implements torch.set_num_threads.
    """
    import mindspore

    global _blas
    _pool.count = max(1, n)
    _blas = _Blas()
    if _blas.set is not None:
        _blas.set(n)
    if _scipys is not None and _scipys.set is not None:
        _scipys.set(n)
    # MindSpore raises an error for more threads than processors.
    mindspore.set_context(runtime_num_threads=min(n, os.cpu_count() or 1))


_before_share = None
_blas = None
_scipys = None


def follow_scipy() -> None:
    """Limits the threads of scipy's OpenBLAS to the count of this module.

    Called once scipy is loaded. Its OpenBLAS is a different library than NumPy's, and its threads
    spin as well.
    """
    global _scipys
    if _scipys is None:
        _scipys = _Blas("scipy")
        if _scipys.set is not None and _scipys.get() > _pool.count:
            _scipys.set(_pool.count)


def _hold_blas():
    """Restricts NumPy's BLAS to the calling thread. Returns its previous thread count."""
    global _blas
    if _blas is None:
        _blas = _Blas()
    before = _blas.get() if _blas.get is not None else 1
    if before != 1:
        _blas.set(1)
    return before


def single_threaded(f, *args, **kwargs):
    """Calls f(*args, **kwargs), a NumPy function that may use BLAS, on the calling thread.

    OpenBLAS's threads spin for 25 ms after each product or sum that they took part in, on the
    processors that our own threads need: an eager step of a small ResNet on two cores takes 27 ms
    with them, 22 ms without.
    """
    before = _hold_blas()
    try:
        return f(*args, **kwargs)
    finally:
        if before != 1:
            _blas.set(before)


#: Multiplications up to which OpenBLAS uses no other threads, for a matrix and a vector and for two
#: matrices (its limits are 9216 and 262144).
_FEW, _FEW_MATRICES = 1 << 13, 1 << 17


_matmul = _numpy_private.matmul


def matmul(a, b, out=None, extobj=SILENT):
    """Computes np.matmul on the calling thread (see `alone`)."""
    n = b.shape[-1]
    if out is None and 1 < a.size * n <= _FEW and a.ndim <= 2 >= b.ndim:
        # 0.3 us to the same BLAS call, by `matmul` 0.9 us; for one element -0 it would return -0
        return a.dot(b)
    if a.size * n <= _FEW or n > 1 and b.ndim > 1 and a.size * n // a.shape[-1] > n and a.shape[-2] * a.shape[-1] * n <= _FEW_MATRICES:
        return _matmul(a, b, out=out, extobj=extobj)
    return single_threaded(_matmul, a, b, out=out, extobj=extobj)


def call_before_share(fn):
    """Registers the function that is called before the threads of this module work, so that those of
    thread_pool.py do not spin meanwhile."""
    global _before_share
    _before_share = fn


def share(n, part):
    """Runs part(start, stop) over range(n), in pieces on several threads if they are available."""
    k = min(_pool.count, n)
    if k < 2 or not _pool.free.acquire(False):
        part(0, n)
        return
    try:
        if _before_share is not None:
            _before_share()
        before = _hold_blas()
        try:
            cuts = [n * i // k for i in range(k + 1)]
            workers = _pool.members(k - 1)
            for w, start, stop in zip(workers, cuts[1:-1], cuts[2:]):
                w.give(part, start, stop)
            error = None
            try:
                part(0, cuts[1])
            except BaseException as e:
                error = e
            for w in workers:
                error = w.wait() or error
        finally:
            if before != 1:
                _blas.set(before)
        if error is not None:
            raise error
    finally:
        _pool.free.release()


#: Minimum elements for sharing an expensive elementwise pass (1 million: exp 360 us on one thread,
#: 210 us on two). Cheap, memory-bound passes need four times as many.
LARGE = 1 << 18


def unary(ufunc, a, extobj):
    """Computes ufunc(a) of a large C-contiguous array on several threads."""
    d = ufunc(a[:0], extobj=extobj).dtype if a.ndim else a.dtype
    r = np.empty(a.shape, d)
    x, y = a.reshape(-1), r.reshape(-1)
    share(x.size >> 12, lambda s, t: ufunc(x[s << 12:_end(t, x)], out=y[s << 12:_end(t, x)], extobj=extobj))
    return r


def binary(ufunc, a, b, extobj):
    """Computes ufunc(a, b) of large C-contiguous arrays of one shape and dtype on several threads.
    b may be 0-d."""
    d = ufunc(a[:0], b if not b.ndim else b[:0], extobj=extobj).dtype
    r = np.empty(a.shape, d)
    x, y = a.reshape(-1), r.reshape(-1)
    if not b.ndim:
        share(x.size >> 12, lambda s, t: ufunc(x[s << 12:_end(t, x)], b, out=y[s << 12:_end(t, x)], extobj=extobj))
        return r
    z = b.reshape(-1)
    share(x.size >> 12, lambda s, t: ufunc(x[s << 12:_end(t, x)], z[s << 12:_end(t, x)], out=y[s << 12:_end(t, x)], extobj=extobj))
    return r


def _end(t, x):
    """Returns the end of a piece: the last one ends with the array, the others at multiples of 4096
    elements."""
    return x.size if t == x.size >> 12 else t << 12
