"""DLPack import and export for NumPy arrays of every dtype that tensors have.

NumPy's exporter and importer do not support bfloat16. It is passed to NumPy as 16-bit unsigned
integers; only the type code in the capsule differs.
"""
import ctypes

import numpy as np

from mindtorch.backend.mindspore.private import bfloat16_np

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
# offset in DLTensor: after data (8 bytes), device type, device id, ndim (4 each); bits follow
_CODE = 20
_UINT, _BFLOAT = 1, 4


def _code(capsule):
    return ctypes.c_uint8.from_address(_pointer(capsule, b"dltensor") + _CODE)


def export(a):
    """Exports an array's memory as a DLPack capsule."""
    if a.dtype != bfloat16_np:
        return a.__dlpack__()
    capsule = a.view(np.uint16).__dlpack__()
    _code(capsule).value = _BFLOAT
    return capsule


class _Exported:
    """Capsule in the form of a DLPack exporter."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **kwargs):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


class _Writable:
    """Writable view of an array: NumPy marks imported DLPack memory as read-only."""

    def __init__(self, a):
        self.owner = a
        self.__array_interface__ = {**a.__array_interface__, "data": (a.__array_interface__["data"][0], False)}


def array_of(exporter):
    """Returns an array on the memory of another library's tensor, or of a capsule.

    Raises BufferError or RuntimeError if the memory cannot be shared.
    """
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
