"""Functions of our C libraries without ctypes in between: about 0.45 us a call instead of 1.2, which is half of what an op of some hundred elements takes.

`directly` gives a builtin function that takes the same arguments: ints for addresses (None: NULL), numbers.  It is CPython's own kind of C function,
made of the stable ABI alone (PyCFunction_NewEx, METH_FASTCALL), so that Python's headers are not needed.
"""
import ctypes

from mindtorch.backend.cpu._numpy_private import reads_arrays

_CALLED = ("PyLong_AsVoidPtr", "PyLong_AsLong", "PyFloat_AsDouble", "PyLong_FromLong", "PyErr_Occurred", "PyErr_BadArgument", "PyEval_SaveThread",
           "PyEval_RestoreThread")
_KINDS = {ctypes.c_void_p: "P", ctypes.c_int: "I", ctypes.c_long: "L", ctypes.c_double: "D"}
_FASTCALL = 0x80


class Numbers(int):
    """The address of some C longs, which it keeps: given where a function takes an address."""

    memory: object

    def __new__(cls, values):
        memory = (ctypes.c_long * len(values))(*values)
        made = super().__new__(cls, ctypes.addressof(memory))
        made.memory = memory
        return made


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""
    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


class _Target(ctypes.Structure):
    """(as in _direct.c)"""
    _fields_ = [("fn", ctypes.c_void_p), ("which", ctypes.c_int), ("count", ctypes.c_int), ("kinds", ctypes.c_char_p)]


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def ready(found):
    """_direct.c's library (or None), told where the interpreter's functions are; None where it is not to be used."""
    if found is None or not reads_arrays():         # (what our C is given for an array is no int then)
        return None
    try:
        addresses = [_address(getattr(ctypes.pythonapi, name)) for name in _CALLED]
        found.made = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(("PyCFunction_NewEx", ctypes.pythonapi))
    except AttributeError:              # (another interpreter)
        return None
    found.mt_direct.argtypes, found.mt_direct.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p], ctypes.c_int
    found.mt_direct_use((ctypes.c_void_p * (len(addresses) + 1))(*addresses, id(None)))
    return found


_kept: list[object] = []       # what the functions made here point to, for as long as the process lives


def directly(lib, function, types, integer):
    """A ctypes function of such argument types, which returns an int or (integer=False) nothing, as a builtin one; itself where that is not to be had.
    lib: as `ready` gave it."""
    kinds, target = [_KINDS.get(t) for t in types], _Target()
    if lib is None or None in kinds or not lib.mt_direct(ctypes.byref(target), _address(function), ("v i"[2 * integer] + "".join(kinds)).encode()):
        return function
    method = _Method(function.__name__.encode(), _address(lib.mt_direct_call), _FASTCALL, None)
    _kept.extend((function, target, method))
    return lib.made(ctypes.addressof(method), ctypes.addressof(target), None)
