"""DLPack both ways, for NumPy arrays of every dtype that tensors have.

NumPy's own exporter and importer know no bfloat16.  It travels as what NumPy takes for 16-bit unsigned integers; only the type code in
the capsule is another.
"""
import ctypes

import numpy as np

from mindtorch.backend.mindspore.private import bfloat16_np

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_CODE = 20                      # of DLTensor's fields: data (8 bytes), device type, device id, ndim (4 each); then the type code, bits
_UINT, _BFLOAT = 1, 4


def _code(capsule):
    return ctypes.c_uint8.from_address(_pointer(capsule, b"dltensor") + _CODE)


def export(a):
    """DLPack capsule of an array's memory."""
    if a.dtype != bfloat16_np:
        return a.__dlpack__()
    capsule = a.view(np.uint16).__dlpack__()
    _code(capsule).value = _BFLOAT
    return capsule


class _Exported:
    """A capsule as an object that exports itself."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **kwargs):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


class _Writable:
    """The same memory for NumPy, which marks as read-only what DLPack brings."""

    def __init__(self, a):
        self.owner = a
        self.__array_interface__ = {**a.__array_interface__, "data": (a.__array_interface__["data"][0], False)}


def array_of(exporter):
    """Array on the memory of another library's tensor, or of a capsule; BufferError or RuntimeError where that cannot be."""
    if hasattr(exporter, "__dlpack_device__") and exporter.__dlpack_device__()[0] != 1:
        raise BufferError(f"only tensors in host memory can be shared by DLPack, not one on device {tuple(exporter.__dlpack_device__())}")
    capsule = exporter.__dlpack__() if hasattr(exporter, "__dlpack__") else exporter
    code = _code(capsule)
    low = code.value == _BFLOAT
    if low:
        code.value = _UINT
    a = np.from_dlpack(_Exported(capsule))
    if a.size:
        a = np.asarray(_Writable(a))
    return a.view(bfloat16_np) if low else a
