"""oneDNN through its C interface, from the library in MindSpore's wheel.

It is used where it is faster than MindSpore's own calls of oneDNN. MindSpore passes images in plain
layout, for which oneDNN has no good convolution. In its preferred layout (blocks of 16 channels)
and with AVX-512, oneDNN is two to six times as fast, and reordering images and weights takes a
twentieth of that time. CPU time of one core in us, forward / input gradient / weight gradient,
reorders included, vs the product of unfolded rows (`conv.py`) with OpenBLAS limited to AVX2:
                             oneDNN                by rows               MindSpore's Conv2D
    16x32x32x32 -> 32 3x3    1400 / 1670 / 1490    4569 / 4586 / 4546    3896 / 6969 / 5212
    16x16x32x32 -> 16 3x3     455 /  390 /  400    1513 / 1557 / 1572
    16x64x8x8   -> 64 3x3     335 /  300 /  320
    4x512x2x2   -> 512 3x3    960 / 1080 / 1310

There are two instances of the library. MindSpore's instance is limited to AVX2 (`runtime.py`),
because it otherwise selects a reference kernel for plain layout. The limit can be set only once per
instance. MindSpore also sets the number of threads that its instance plans for. mindtorch therefore
uses a private second copy, loaded from memory at the first use (30 ms, 12 MB). On machines without
AVX2, or if ONEDNN_MAX_CPU_ISA is set, MindSpore's instance serves both. With AVX2 only, the second
copy (for products, and for convolutions on the pool's threads) reduces the time of a step on two
threads to 0.78 (ResNet-18), 0.56 (GPT-2-like) and 0.65 (MLP) of the time without it.

Calls run on the calling thread only (a stream without a thread pool); `threads.share` runs several
of them. The objects that a call needs are cached per thread and shape.
"""
import collections
import ctypes
import functools
import math
import os
import platform
import threading

import numpy as np

from mindtorch.backend.c_kernels import thread_pool
from mindtorch.backend.cpython import module_lock
from mindtorch.backend.cpu.host import OutOfMemoryError, address
from mindtorch.backend.signals import SignalStack
from mindtorch.backend.mindspore.runtime import dnnl_path

_F32 = np.dtype(np.float32)
_MOST_PLANS = 256  # cached plans per thread
_ROOM = 1 << 24  # bytes up to which a buffer is kept for the next call
_FORWARD, _DIRECT = 64, 1    # dnnl_forward_training, dnnl_convolution_direct
_SRC, _DST, _WEIGHTS, _BIAS, _SCRATCHPAD, _DIFF = 1, 17, 33, 41, 80, 128
#: Query codes for dnnl_primitive_desc_query_md, by argument.
_QUERY = {_SRC: 129, _SRC | _DIFF: 130, _WEIGHTS: 131, _WEIGHTS | _DIFF: 132, _DST: 133, _DST | _DIFF: 134, _SCRATCHPAD: 136}
_P = ctypes.c_void_p
_SIZES = (ctypes.c_int64,) * 6
_AVX512 = 0x27  # dnnl_cpu_isa_avx512_core and the instruction sets that it includes


class _Arg(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_int), ("memory", _P)]


def _second_copy(path):
    """Loads the library a second time, from memory: the loader identifies loaded files by their
    inode."""
    out = os.memfd_create("mindtorch-onednn", os.MFD_CLOEXEC)
    try:
        source = os.open(path, os.O_RDONLY)
        try:
            left = os.fstat(source).st_size
            while left:
                sent = os.sendfile(out, source, None, left)
                if not sent:
                    raise OSError(f"{path} ended early")
                left -= sent
        finally:
            os.close(source)
        return ctypes.CDLL(f"/proc/self/fd/{out}")
    finally:
        os.close(out)


def _has_avx2():
    try:
        with open("/proc/cpuinfo") as f:
            return any(line.startswith("flags") and " avx2" in line and " fma" in line for line in f)
    except OSError:
        return False


def _load():
    """Returns (library, or None if unavailable; True if the instance is private to mindtorch)."""
    path = dnnl_path() if platform.machine().lower() in ("x86_64", "amd64") and os.environ.get("MINDTORCH_ONEDNN", "1") != "0" else None
    if path is None:
        return None, False
    lib = None
    if _has_avx2() and not {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"} & os.environ.keys() and hasattr(os, "memfd_create"):
        try:
            lib = _second_copy(path)
        except OSError:
            lib = None  # no /proc, or no memory: use MindSpore's instance
        if lib is not None and lib.dnnl_set_max_cpu_isa(0):
            lib = None
    private = lib is not None
    lib = lib or ctypes.CDLL(path)
    try:
        _declare(lib)
    except AttributeError:  # a different release of oneDNN
        return None, False
    return (lib, private) if 30000 <= _version(lib) < 40000 else (None, False)


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int)]


def _version(lib):
    v = lib.dnnl_version().contents
    return v.major * 10000 + v.minor * 100 + v.patch


def _declare(lib):
    """Declares the types of the functions in use: without them ctypes would truncate pointers to 32
    bits."""
    i, pp, n = ctypes.c_int, ctypes.POINTER(_P), ctypes.POINTER(ctypes.c_int64)
    lib.dnnl_version.restype = ctypes.POINTER(_Version)
    for name, *types in (
            ("engine_create", pp, i, ctypes.c_size_t), ("stream_create", pp, _P, ctypes.c_uint), ("stream_destroy", _P),
            ("memory_desc_create_with_tag", pp, i, n, i, i), ("memory_desc_create_with_strides", pp, i, n, i, n),
            ("memory_desc_destroy", _P), ("primitive_attr_create", pp), ("primitive_attr_set_scratchpad_mode", _P, i),
            ("memory_create", pp, _P, _P, _P), ("memory_set_data_handle", _P, _P), ("memory_destroy", _P),
            ("primitive_create", pp, _P), ("primitive_destroy", _P), ("primitive_desc_destroy", _P),
            ("primitive_execute", _P, _P, i, ctypes.POINTER(_Arg)), ("memory_desc_equal", _P, _P),
            ("reorder_primitive_desc_create", pp, _P, _P, _P, _P, _P),
            ("convolution_forward_primitive_desc_create", pp, _P, i, i, _P, _P, _P, _P, n, n, n, n, _P),
            ("convolution_backward_data_primitive_desc_create", pp, _P, i, _P, _P, _P, n, n, n, n, _P, _P),
            ("convolution_backward_weights_primitive_desc_create", pp, _P, i, _P, _P, _P, _P, n, n, n, n, _P, _P),
            ("threadpool_interop_set_max_concurrency", i),
            ("threadpool_interop_get_max_concurrency", ctypes.POINTER(ctypes.c_int)), ("get_effective_cpu_isa",),
            ("sgemm", ctypes.c_char, ctypes.c_char, *_SIZES[:3], ctypes.c_float, _P, _SIZES[3], _P, _SIZES[4], ctypes.c_float, _P,
             _SIZES[5])):
        f = getattr(lib, "dnnl_" + name)
        f.argtypes, f.restype = types, i
    lib.dnnl_primitive_desc_query_md.argtypes, lib.dnnl_primitive_desc_query_md.restype = [_P, i, i], _P
    lib.dnnl_memory_desc_get_size.argtypes, lib.dnnl_memory_desc_get_size.restype = [_P], ctypes.c_size_t


class Unsupported(Exception):
    """Exception for shapes for which oneDNN has no kernel."""


def check(status):
    """Raises the exception for a status other than success."""
    if status:
        kind = Unsupported if status in (2, 3) else OutOfMemoryError if status == 1 else RuntimeError
        raise kind(f"oneDNN: status {status}" + ", out of memory" * (status == 1))


def _made(create, *arguments):
    """Returns the object that a dnnl_*_create function creates."""
    out = _P()
    check(create(ctypes.byref(out), *arguments))
    return out


_lock = module_lock(globals(), "_lock", threading.Lock)


class _Shared:
    """Library, engine and attributes, created at the first use."""

    def __init__(self):
        self.loaded, self.lib, self.avx512, self.private = False, None, False, False

    def get(self):
        """Returns the library, or None if it is unavailable."""
        if not self.loaded:
            with _lock:
                if not self.loaded:
                    lib, self.private = _load()
                    if lib is not None:
                        self.engine = _made(lib.dnnl_engine_create, 1, 0)
                        self.attr = _made(lib.dnnl_primitive_attr_create)
                        # Allocate scratchpads here: those of oneDNN belong to the thread that
                        # created the primitive.
                        check(lib.dnnl_primitive_attr_set_scratchpad_mode(self.attr, 1))
                        self.avx512 = self.private and lib.dnnl_get_effective_cpu_isa() & _AVX512 == _AVX512
                        self.gemm = lib.dnnl_sgemm
                        self.address = {n: _P.from_buffer(getattr(lib, f"dnnl_{n}")).value for n in (
                            "sgemm", "memory_set_data_handle", "primitive_execute", "threadpool_interop_set_max_concurrency")}
                        if self.private:
                            thread_pool.prepare(self.address["threadpool_interop_set_max_concurrency"])
                    self.lib, self.loaded = lib, True
        return self.lib


_shared = _Shared()


def available():
    """True if oneDNN is available."""
    return _shared.get() is not None


def has_avx512():
    """True if there is a private oneDNN instance that uses AVX-512."""
    if not _shared.loaded:
        _shared.get()
    return _shared.avx512


class _Thread(threading.local):
    def __init__(self):
        lib = _shared.get()
        self.ready, self.signals = True, SignalStack()
        if _shared.private:
            lib.dnnl_threadpool_interop_set_max_concurrency(1)
        self.stream = _made(lib.dnnl_stream_create, _shared.engine, 1)
        self.plans, self.scratchpads, self.large = collections.OrderedDict(), {}, []

    def scratchpad(self, slot, size):
        """Returns the address of at least `size` bytes.

        It stays the same for a slot until more bytes are requested. `tidy` frees large buffers.
        """
        a = self.scratchpads.get(slot)
        if a is None or a[1] < size:
            raw = np.empty(size + 64, np.uint8)
            start = address(raw)
            a = self.scratchpads[slot] = (start + -start % 64, size, raw)
            if size > _ROOM:
                self.large.append(slot)
        return a[0]

    def tidy(self):
        for slot in self.large:
            del self.scratchpads[slot]
        self.large.clear()


_thread = None


def _mine():
    global _thread
    if _thread is None:
        _thread = _Thread()
    return _thread


# ------------------------------------------------------------------ descriptors
def _int64s(values):
    return (ctypes.c_int64 * len(values))(*values)


class _Desc:
    """A memory descriptor: plain strides, or the layout that the primitive prefers (None)."""

    def __init__(self, shape, strides):
        lib = _shared.lib
        dims = _int64s(shape)
        if strides is None:
            self.p = _made(lib.dnnl_memory_desc_create_with_tag, len(shape), dims, 3, 1)
        else:
            self.p = _made(lib.dnnl_memory_desc_create_with_strides, len(shape), dims, 3, _int64s(strides))
        self.destroy = lib.dnnl_memory_desc_destroy  # module globals may be gone when __del__ runs

    def __del__(self):
        if hasattr(self, "destroy"):
            self.destroy(self.p)


class _Kernel:
    """A primitive with its descriptor."""

    def __init__(self, create, *arguments):
        lib = _shared.lib
        self.p, self.destroy = None, (lib.dnnl_primitive_destroy, lib.dnnl_primitive_desc_destroy)
        self.desc = _made(create, *arguments)
        self.p = _made(lib.dnnl_primitive_create, self.desc)

    def layout(self, arg):
        return _P(_shared.lib.dnnl_primitive_desc_query_md(self.desc, _QUERY[arg], 0))

    def __del__(self):
        if self.p:
            self.destroy[0](self.p)
        if hasattr(self, "desc"):
            self.destroy[1](self.desc)


class _Memory:
    def __init__(self, layout):
        lib = _shared.lib
        self.p = _made(lib.dnnl_memory_create, layout, _shared.engine, _P(0))
        self.size = lib.dnnl_memory_desc_get_size(layout)
        self.destroy = lib.dnnl_memory_destroy

    def __del__(self):
        if hasattr(self, "destroy"):
            self.destroy(self.p)


class _Operand:
    """An array of a plan: its plain memory, and the reorder to or from the primitive's layout."""

    def __init__(self, kernel, arg, plain, is_output):
        lib = _shared.lib
        wanted = kernel.layout(arg)
        self.outer = _Memory(plain.p)
        self.inner = self.reorder = None
        if not lib.dnnl_memory_desc_equal(plain.p, wanted):
            self.inner = _Memory(wanted)
            a, b = (wanted, plain.p) if is_output else (plain.p, wanted)
            self.reorder = _Kernel(lib.dnnl_reorder_primitive_desc_create, a, _shared.engine, b, _shared.engine, _shared.attr)
            x, y = (self.inner, self.outer) if is_output else (self.outer, self.inner)
            self.moves = (_Arg * 2)(_Arg(_SRC, x.p), _Arg(_DST, y.p))
        self.used = (self.inner or self.outer).p


class _Plan:
    """A primitive for given shapes and strides, ready to run on the thread that created it."""

    def __init__(self, kernel, inputs, output, bias=None):
        """`inputs` has (argument, plain descriptor) pairs, and `output` is one."""
        self.kernel = kernel
        self.ins = [_Operand(kernel, arg, plain, False) for arg, plain in inputs]
        self.out = _Operand(kernel, output[0], output[1], True)
        self.scratch = _Memory(kernel.layout(_SCRATCHPAD))
        args = [_Arg(arg, o.used) for (arg, _), o in zip(inputs, self.ins)]
        args += [_Arg(output[0], self.out.used), _Arg(_SCRATCHPAD, self.scratch.p)]
        self.bias = None
        if bias is not None:
            self.bias = _Memory(bias.p)
            args.append(_Arg(_BIAS, self.bias.p))
        self.count, self.args = len(args), (_Arg * len(args))(*args)

    def run(self, inputs, output, bias=None):
        lib, mine = _shared.lib, _thread
        put, execute, stream = lib.dnnl_memory_set_data_handle, lib.dnnl_primitive_execute, mine.stream
        for slot, (o, a) in enumerate(zip(self.ins, inputs)):
            put(o.outer.p, address(a))
            if o.inner is not None:
                put(o.inner.p, mine.scratchpad(slot, o.inner.size))
                check(execute(o.reorder.p, stream, 2, o.moves))
        o = self.out
        put(o.outer.p, address(output))
        if o.inner is not None:
            put(o.inner.p, mine.scratchpad("out", o.inner.size))
        if self.scratch.size:
            put(self.scratch.p, mine.scratchpad("scratch", self.scratch.size))
        if bias is not None:
            put(self.bias.p, address(bias))
        check(execute(self.kernel.p, stream, self.count, self.args))
        if o.inner is not None:
            check(execute(o.reorder.p, stream, 2, o.moves))
        if mine.large:
            mine.tidy()


def _strides(a):
    """Returns the strides in elements. Dims of size 1 get the strides of a contiguous array."""
    out, size = [], 1
    for n, s in zip(a.shape[::-1], a.strides[::-1]):
        out.append(size if n == 1 else s // 4)
        size = max(size, n * out[-1])
    return tuple(out[::-1])


def ready(a):
    """Returns `a`, or a contiguous copy if oneDNN does not support its strides."""
    if a.flags.c_contiguous:
        return a
    if all(s > 0 and not s % 4 for s, n in zip(a.strides, a.shape) if n > 1):
        return a
    return np.ascontiguousarray(a)


# ------------------------------------------------------------------ convolution
class Stream:
    """A stream, which executes one primitive at a time."""

    def __init__(self):
        lib = _shared.lib
        self.p, self.destroy = _made(lib.dnnl_stream_create, _shared.engine, 1), lib.dnnl_stream_destroy

    def __del__(self):
        if hasattr(self, "destroy"):
            self.destroy(self.p)


def has_private():
    """True if there is a private oneDNN instance; this thread may then create plans."""
    if not _shared.loaded:
        _shared.get()
    return _shared.private and _mine().ready  # (the first access by a thread creates its state)


def functions():
    """Returns the addresses of dnnl_memory_set_data_handle and dnnl_primitive_execute."""
    return _shared.address["memory_set_data_handle"], _shared.address["primitive_execute"]


def _plan(kind, x, w, y, bias, stride, padding, dilation, groups):
    """Returns the plan of a convolution x * w = y. `kind` is the array that is computed: "y", "x"
    or "w"."""
    mine = _mine()
    key = (kind, x.shape, w.shape, y.shape, x.strides, w.strides, y.strides, bias is not None, stride, padding, dilation, groups)
    plan = mine.plans.get(key)
    if plan is not None:
        mine.plans.move_to_end(key)
        return plan
    if _shared.private:
        plan = new_plan(kind, x, w, y, bias, stride, padding, dilation, groups)
    else:
        # In MindSpore's instance, restore the number of threads that it plans for.
        lib, before = _shared.lib, ctypes.c_int()
        lib.dnnl_threadpool_interop_get_max_concurrency(ctypes.byref(before))
        lib.dnnl_threadpool_interop_set_max_concurrency(1)
        try:
            plan = new_plan(kind, x, w, y, bias, stride, padding, dilation, groups)
        finally:
            lib.dnnl_threadpool_interop_set_max_concurrency(before)
    mine.plans[key] = plan
    while len(mine.plans) > _MOST_PLANS:
        mine.plans.popitem(last=False)
    return plan


def new_plan(kind, x, w, y, bias, stride, padding, dilation, groups):
    """Creates a plan for arrays of these shapes and strides, outside the cache of the thread."""
    lib, engine, attr = _shared.lib, _shared.engine, _shared.attr
    strides = _strides(x), _strides(w), _strides(y)
    wshape, wstrides = w.shape, strides[1]
    if groups > 1:
        wshape = (groups, wshape[0] // groups) + wshape[1:]
        wstrides = (wstrides[0] * wshape[1],) + wstrides
    plain = _Desc(x.shape, strides[0]), _Desc(wshape, wstrides), _Desc(y.shape, strides[2])
    free = _Desc(x.shape, None), _Desc(wshape, None), _Desc(y.shape, None)
    b = None if bias is None else _Desc(bias.shape, (1,))
    # padding after: computed from the sizes, because a stride need not use all of it
    after = [(m - 1) * s + d * (k - 1) + 1 - n - lo
             for n, m, k, s, d, (lo, _) in zip(x.shape[2:], y.shape[2:], w.shape[2:], stride, dilation, padding)]
    geometry = (_int64s(stride), _int64s([d - 1 for d in dilation]), _int64s([lo for lo, _ in padding]), _int64s(after))
    fx, fw, fy = (d.p for d in free)
    forward = _Kernel(lib.dnnl_convolution_forward_primitive_desc_create, engine, _FORWARD, _DIRECT, fx, fw,
                      None if b is None else b.p, fy, *geometry, attr) if kind == "y" else None
    if kind == "y":
        plan = _Plan(forward, [(_SRC, plain[0]), (_WEIGHTS, plain[1])], (_DST, plain[2]), b)
    else:
        hint = _made(lib.dnnl_convolution_forward_primitive_desc_create, engine, _FORWARD, _DIRECT, fx, fw, None, fy, *geometry, attr)
        try:
            if kind == "x":
                k = _Kernel(lib.dnnl_convolution_backward_data_primitive_desc_create, engine, _DIRECT, fx, fw, fy, *geometry, hint, attr)
                plan = _Plan(k, [(_DST | _DIFF, plain[2]), (_WEIGHTS, plain[1])], (_SRC | _DIFF, plain[0]))
            else:
                k = _Kernel(lib.dnnl_convolution_backward_weights_primitive_desc_create, engine, _DIRECT, fx, fw, None, fy, *geometry,
                            hint, attr)
                plan = _Plan(k, [(_SRC, plain[0]), (_DST | _DIFF, plain[2])], (_WEIGHTS | _DIFF, plain[1]))
        finally:
            lib.dnnl_primitive_desc_destroy(hint)
    return plan


def conv(x, w, bias, y, *, stride, padding, dilation, groups):
    """Computes the convolution of x (N, C, *size) by w (O, C / groups, *kernel) into y (N, O,
    *out).

    All arrays are float32.
    """
    _plan("y", x, w, y, bias, stride, padding, dilation, groups).run((x, w), y, bias)


def conv_input(y, w, x, *, stride, padding, dilation, groups):
    """Computes the input gradient of the convolution into x, from y, the result's gradient."""
    _plan("x", x, w, y, None, stride, padding, dilation, groups).run((y, w), x)


def conv_weight(y, x, w, *, stride, padding, dilation, groups):
    """Computes the weight gradient of the convolution into w, from y, the result's gradient."""
    _plan("w", x, w, y, None, stride, padding, dilation, groups).run((x, y), w)


# ------------------------------------------------------------------ matrix product
def _matrix(a):
    """Returns (transpose flag of BLAS, leading dimension) of a matrix whose rows or columns are
    contiguous.

    Raises ValueError for other matrices.
    """
    m, n = a.shape
    s, t = a.strides
    if t == 4 and (s >= 4 * n or m == 1) or n == 1 and m == 1:
        return b"N", max(s // 4, n)
    if s == 4 and (t >= 4 * m or n == 1):
        return b"T", max(t // 4, m)
    if t == 4 or n == 1:
        return b"N", max(s // 4, n)
    raise ValueError(f"oneDNN needs a matrix with contiguous rows or columns, got shape {a.shape} and strides {a.strides}")


def gemm(a, b, c, beta=0.0):
    """Computes c = a @ b + beta * c for float32 matrices whose rows or columns are contiguous.

    The rows of c have to be contiguous.
    """
    ta, la = _matrix(a)
    tb, lb = _matrix(b)
    m, n = c.shape
    check(_shared.gemm(ta, tb, m, n, a.shape[1], 1.0, address(a), la, address(b), lb, beta,
          address(c), max(c.strides[0] // 4, n)))


def gemm_shared(a, b, c, bias=None):
    """Like `gemm` with beta 0, in pieces on the threads of `thread_pool.py`.

    `bias` (contiguous, float32) is added to each row. Returns False if there is no thread pool.
    """
    native_pool = thread_pool.ready() if has_private() else None
    if native_pool is None:
        return False
    ta, la = _matrix(a)
    tb, lb = _matrix(b)
    m, n = c.shape
    check(native_pool.mt_sgemm(_shared.address["sgemm"], ta, tb, m, n, a.shape[1], address(a), la,
          address(b), lb, 0.0, address(c), max(c.strides[0] // 4, n), None if bias is None else address(bias)))
    return True


@functools.lru_cache(512)
def _offsets(shape, strides):
    """Returns (byte offsets of the matrices in a stack, address of this array)."""
    at = np.zeros(shape, np.int64)
    for i, (n, s) in enumerate(zip(shape, strides)):
        at += (np.arange(n) * s).reshape((n,) + (1,) * (len(shape) - 1 - i))
    return at, at.ctypes.data


def gemms(a, b, c, single_threaded):
    """Computes c = a @ b for stacks of float32 matrices with equal leading dims, on the threads of
    `thread_pool.py`.

    With `single_threaded`, the calling thread computes all of it. Returns False if there is no thread pool.
    Raises ValueError if a matrix has neither contiguous rows nor contiguous columns.
    """
    native_pool = thread_pool.ready() if has_private() else None
    if native_pool is None:
        return False
    lead = len(c.shape) - 2
    first = (0,) * lead
    ta, la = _matrix(a[first])
    tb, lb = _matrix(b[first])
    m, n = c.shape[-2:]
    (_, at), (_, bt), (_, ct) = (_offsets(x.shape[:-2], x.strides[:-2]) for x in (a, b, c))
    check(native_pool.mt_sgemms(_shared.address["sgemm"], ta, tb, m, n, a.shape[-1], address(a), la,
          address(b), lb, address(c), max(c.strides[-2] // 4, n),
          at, bt, ct, math.prod(c.shape[:-2]), single_threaded))
    return True
