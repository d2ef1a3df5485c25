"""NumPy internals that mindtorch relies on, each with a fallback for NumPy versions without them.

See `mindtorch/backend/patching.py`. NumPy 1's ufuncs accept `extobj=`, which sets the handling of
floating-point errors. PyTorch returns inf and nan without warnings; `extobj=SILENT` does the same
in 0.03 us, while `np.errstate` takes 1 us. NumPy 2 has no `extobj=`, so every ufunc that is called
with `extobj=SILENT` has to be wrapped by `silent`. The implementation is selected at import.
"""
import ctypes
import functools
import importlib
from typing import Any

import numpy as np

from mindtorch.backend.cpython import PORTABLE
from mindtorch.backend.errors import OutOfMemoryError
from mindtorch.backend.patching import RELIES, REPLACES, declare, put

_CHECKED = ("numpy", "1.26")

#: Buffer size, "ignore" for every floating-point error, no callback: the `extobj=` argument of
#: ufuncs.
SILENT = [8192, 0, None]
EXTOBJ = hasattr(np, "geterrobj") and not PORTABLE


# ------------------------------------------------------------------ warnings
if EXTOBJ:
    from numpy.core.umath import clip, geterrobj, seterrobj     # type: ignore[attr-defined]

    def silent(ufunc):
        """Returns the ufunc, for calls with extobj=SILENT."""
        return ufunc

    def silence_thread():
        """Disables floating-point warnings in this thread (NumPy stores the setting per thread)."""
        seterrobj(SILENT)

    def quiet(kernel):
        """Wraps a kernel to run without NumPy's floating-point warnings (0.2 us; `np.errstate`
        takes 1 us)."""
        @functools.wraps(kernel)
        def silent(*args, **kwargs):
            old = geterrobj()
            seterrobj(SILENT)
            try:
                return kernel(*args, **kwargs)
            finally:
                seterrobj(old)
        return silent
else:
    def silent(ufunc):
        """Wraps the ufunc for calls with extobj=SILENT."""
        def call(*args, extobj, **kwargs):
            with np.errstate(all="ignore"):
                return ufunc(*args, **kwargs)
        return call

    def silence_thread():
        """Disables floating-point warnings in this thread (NumPy stores the setting per thread)."""
        np.seterr(all="ignore")

    def quiet(kernel):
        """Wraps a kernel to run without NumPy's floating-point warnings."""
        @functools.wraps(kernel)
        def silent(*args, **kwargs):
            with np.errstate(all="ignore"):
                return kernel(*args, **kwargs)
        return silent

    clip = silent(np.clip)

#: Ufuncs by name, for calls with extobj=SILENT.
add, exp, matmul, maximum, minimum, reciprocal, sqrt = map(silent, (np.add, np.exp, np.matmul, np.maximum, np.minimum, np.reciprocal, np.sqrt))

# `concatenate` and `where` without NumPy's check of their arguments' classes (0.3 of 1.2 us).
concatenate, where = [getattr(f, "_implementation", f) for f in (np.concatenate, np.where)]
declare("numpy:concatenate._implementation", RELIES, "np.concatenate and np.where without NumPy's __array_function__ protocol", ("numpy", "1.26", "2"),
        ("tests/ops/test_ops_shape.py", "tests/backend/test_patches.py"),
        check=lambda: None if concatenate is not np.concatenate else "not available: np.concatenate and np.where are called")
declare("numpy:geterrobj", RELIES, "extobj= of ufuncs, geterrobj and seterrobj: kernels without warnings for 0.03 us", _CHECKED,
      ("tests/backend/test_patches.py",),
        check=lambda: None if EXTOBJ else "not used: np.errstate takes 1 us a call")
declare("numpy.core.umath:clip", RELIES, "the ufunc behind np.clip, without its 5 us of Python", _CHECKED,
        ("tests/ops/test_ops_pointwise.py", "tests/backend/test_patches.py"),
        check=lambda: None if EXTOBJ else "not used: np.clip is called")


# ------------------------------------------------------------------ memory
def _memory_error():
    """Returns the exception class that NumPy raises when an array does not fit into memory."""
    if EXTOBJ:
        from numpy.core._exceptions import _ArrayMemoryError
        return _ArrayMemoryError
    try:
        np.empty(1 << 62, np.uint8)
    except MemoryError as e:
        return type(e)
    raise AssertionError("allocating an array of 4 EB did not fail")


def _memory_error_init(self, shape, dtype=None):
    self.shape, self.dtype = shape, dtype
    # A single string with the phrases that retrying code searches for.
    text = shape if dtype is None else (f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {self._total_size} bytes. Error code 12 "
                                        f"(Cannot allocate memory): out of memory for an array of shape {list(shape)} and dtype {np.dtype(dtype)}")
    self.args = (text,)


def _only_words(self):
    return self.args[0]


# NumPy makes nearly all allocations here and raises this class when memory runs out. Code that
# retries with less memory catches RuntimeError or torch.OutOfMemoryError, so the class becomes a
# subclass of those as well. It stays a MemoryError for other users of NumPy.
_error = _memory_error()
_module = "numpy.core._exceptions:_ArrayMemoryError."
for _name, _value, _takes in (("__bases__", (MemoryError, OutOfMemoryError), None), ("__init__", _memory_error_init, "self, shape, dtype"),
                              ("__str__", _only_words, "self")):
    declare(_module + _name, REPLACES, "an array that does not fit raises torch.OutOfMemoryError with PyTorch's error message", _CHECKED,
            ("tests/backend/test_out_of_memory.py",), _takes)
    put(_module + _name, _value, _error)


@functools.cache
def reads_arrays():
    """True if NumPy arrays have the memory layout that `thread_pool.c` assumes.

    This is the case for NumPy 1 and 2, except for debug builds.
    """
    if PORTABLE:
        return False
    a = np.zeros((2, 3), np.float32)
    at = id(a)
    dims = ctypes.c_void_p.from_address(at + 32).value
    return (ctypes.c_void_p.from_address(at + 16).value == a.ctypes.data and ctypes.c_int.from_address(at + 24).value == 2
            and [ctypes.c_long.from_address(dims + i).value for i in (0, 8)] == [2, 3]
            and ctypes.c_void_p.from_address(at + 56).value == id(a.dtype)
            and ctypes.c_int.from_address(at + 64).value & 0x501 == 0x501)


class _Described(ctypes.Structure):
    """The fields of an array that the C code reads, in NumPy's layout."""
    _fields_ = [("count", ctypes.c_ssize_t), ("type", ctypes.c_void_p), ("data", ctypes.c_void_p), ("nd", ctypes.c_int),
                ("dims", ctypes.POINTER(ctypes.c_ssize_t)), ("strides", ctypes.POINTER(ctypes.c_ssize_t)), ("base", ctypes.c_void_p),
                ("dtype", ctypes.c_void_p), ("flags", ctypes.c_int)]


def _described(a):
    """Describes an array to the C code where it cannot read the array object itself.

    Takes some microseconds; the results are bit-identical.
    """
    if a is None:
        return None
    sizes = ctypes.c_ssize_t * max(a.ndim, 1)
    d = _Described(data=a.ctypes.data, nd=a.ndim, dims=sizes(*a.shape), strides=sizes(*a.strides), dtype=id(a.dtype), flags=a.flags.num)
    d.owner = a
    return ctypes.byref(d)


#: Converts an array to the argument that the C code of `csrc/elementwise.c` and `csrc/reduce.c`
#: expects.
header = id if reads_arrays() else _described

declare("numpy:ndarray", RELIES, "the C code reads array objects directly, without a call into NumPy (thread_pool.c)", ("numpy", "1.26", "2"),
        ("tests/facade/test_optim.py", "tests/backend/test_patches.py"), check=lambda: None if reads_arrays() else "not available: NumPy's own loops are used")


# ------------------------------------------------------------------ loops of ufuncs
class _Ufunc(ctypes.Structure):
    """The fields of NumPy's PyUFuncObject up to its table of loops, which has one entry per line of
    `ufunc.types`."""
    _fields_ = [("count", ctypes.c_ssize_t), ("type", ctypes.c_void_p), *[(n, ctypes.c_int) for n in ("nin", "nout", "nargs", "identity")],
                ("functions", ctypes.POINTER(ctypes.c_void_p)), ("data", ctypes.POINTER(ctypes.c_void_p)), ("ntypes", ctypes.c_int),
                ("reserved", ctypes.c_int), ("name", ctypes.c_char_p), ("types", ctypes.POINTER(ctypes.c_ubyte))]


class _InnerLoop(ctypes.Structure):
    """An inner loop, in the layout of `thread_pool.c`."""
    _fields_ = [("function", ctypes.c_void_p), ("data", ctypes.c_void_p), ("operands", ctypes.c_long), ("sizes", ctypes.c_long * 3)]


class InnerLoop(int):
    """Address of the `_InnerLoop` that `thread_pool.c` needs to run a ufunc's loop; owns it."""

    memory: _InnerLoop
    result: Any


@functools.cache
def finds_loops():
    """True if ufuncs have the memory layout that `_Ufunc` describes."""
    if PORTABLE:
        return False
    for u in (np.add, np.isnan, np.logical_and):
        at = _Ufunc.from_address(id(u))
        if (at.nin, at.nout, at.nargs, at.ntypes) != (u.nin, u.nout, u.nargs, u.ntypes) or at.name != u.__name__.encode():
            return False
        for k, line in enumerate(u.types):
            if [np.dtype(c).num for c in line.replace("->", "")] != at.types[k * u.nargs:(k + 1) * u.nargs] or not at.functions[k]:
                return False
    return True


def inner_loop(ufunc, dtype):
    """Returns the inner loop of a single-output ufunc for operands of one dtype, usable from any
    thread.

    Returns None where NumPy would cast the operands or may call Python.
    """
    if not finds_loops() or dtype.kind not in "biufc" or not dtype.isnative or ufunc.nout != 1 or ufunc.nin > 2 or ufunc.signature is not None \
            or ufunc is np.power and dtype.kind in "iu":  # (may raise an error)
        return None
    at, n = _Ufunc.from_address(id(ufunc)), ufunc.nargs
    for k in range(at.ntypes):
        if at.types[k * n:(k + 1) * n - 1] == [dtype.num] * ufunc.nin:
            result = np.dtype(ufunc.types[k][-1])
            if result.kind not in "biufc":
                return None
            loop = _InnerLoop(at.functions[k], at.data[k] if at.data else None, ufunc.nin, (*[dtype.itemsize] * ufunc.nin, result.itemsize))
            made = InnerLoop(ctypes.addressof(loop))
            made.memory, made.result = loop, result
            return made
    return None


declare("numpy:ufunc", RELIES, "the thread pool runs the inner loops of ufuncs (thread_pool.c)", ("numpy", "1.26", "2"),
        ("tests/backend/test_shared_passes.py", "tests/backend/test_patches.py"),
        check=lambda: None if finds_loops() else "not available: NumPy's ufuncs run on one thread")


#: True if this processor gets the NumPy functions that are vectorized with AVX-512 only (SVML's).
#: Read through a public API; see `pointwise.function`.
_configuration: Any = np.show_config  # NumPy's type stubs do not declare `mode`
VECTORS = "AVX512_SKX" in _configuration(mode="dicts").get("SIMD Extensions", {}).get("found", ())

# ------------------------------------------------------------------ random numbers
def twister_state(bits):
    """Returns the address of an MT19937's state: 624 words, then an int with the number of used
    words.

    Returns 0 where the C code may not modify the state in place.
    """
    return bits.ctypes.state_address if _twister_is_known() else 0


@functools.cache
def _twister_is_known():
    if PORTABLE or not hasattr(np.random.MT19937, "ctypes"):
        return False
    bits = np.random.MT19937(0)
    state = bits.state["state"]
    found = np.ctypeslib.as_array(ctypes.cast(bits.ctypes.state_address, ctypes.POINTER(ctypes.c_uint32)), (625,))
    return bool((found[:624] == state["key"]).all() and found[624] == state["pos"])


declare("numpy.random:MT19937.ctypes", RELIES, "the C code generates random numbers from the MT19937 state in place (random.c)", ("numpy", "1.26", "2"),
        ("tests/ops/test_ops_random.py", "tests/backend/test_c_random.py", "tests/backend/test_patches.py"),
        check=lambda: None if _twister_is_known() else "not used: NumPy generates the random numbers")

#: Function that returns the first and last address of an array. NumPy 2 has moved it.
byte_bounds = np.byte_bounds if hasattr(np, "byte_bounds") else importlib.import_module("numpy.lib.array_utils").byte_bounds
