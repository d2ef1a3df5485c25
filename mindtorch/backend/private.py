"""Every private MindSpore symbol the project relies on, in one place.

MindSpore gives no promise about these names; when a release moves one, this is the only file to mend.
"""
import numpy as np

from mindtorch.backend.runtime import ms

from mindspore._c_expression import TensorPy as _TensorPy  # noqa: E402
from mindspore._c_expression import MixedPrecisionType  # noqa: E402,F401
from mindspore._c_expression import _swap_tensor_impl as swap_impl  # noqa: E402,F401
from mindspore._c_expression import typing as ms_typing  # noqa: E402,F401
from mindspore.graph.api import _pynative_executor as executor  # noqa: E402,F401
from mindspore.common.np_dtype import bfloat16 as _bfloat16  # noqa: E402
from mindspore.ops.auto_generate import AsStrided as _AsStrided  # noqa: E402

MSTensor = ms.Tensor
#: A tensor's real __dict__; the facade's attribute of that name shows only what users have hung on it.
attributes = next(vars(c)["__dict__"] for c in MSTensor.__mro__ if "__dict__" in vars(c)).__get__
MSParameter = ms.Parameter

#: NumPy's extension dtype for bfloat16, as MindSpore defines it (casts to and from float32 are exact/rounded).
bfloat16_np = np.dtype(_bfloat16)

#: Wraps a C-contiguous array without copying it (0.5 us; `mindspore.from_numpy` adds two Python calls to the same,
#: `Tensor(ndarray)` copies and takes 14 us).  It reads the bytes in C order whatever the strides: see `from_array`.
from_contiguous = _TensorPy.from_numpy

_as_strided = _AsStrided()

#: Type codes that MindSpore's DLPack importer takes; it has none for bool, complex and bfloat16.
_DLPACK = frozenset("efdbhilqBHILQ")


def from_array(a):
    """MindSpore tensor over `a`'s memory, whatever its strides.

    `ms.from_numpy` reads the bytes of a strided array in C order and so gives wrong values without a warning.  DLPack
    carries the strides (1.1 us); what its importer does not take becomes a native strided view of the one-dimensional
    memory that the array spans (9 us).
    """
    if a.flags.c_contiguous:
        return from_contiguous(a)
    if not a.size:
        return from_contiguous(np.empty(a.shape, a.dtype))    # the DLPack importer dies of zero-size arrays
    if min(a.strides) < 0:
        raise ValueError("At least one stride in the given numpy array is negative, and tensors with negative strides are "
                         "not currently supported. (You can probably work around this by making a copy of your array  with "
                         "array.copy().)")
    if a.dtype.char in _DLPACK and a.flags.writeable:
        return _TensorPy.from_dlpack(a.__dlpack__())
    size = a.itemsize
    strides = tuple(s // size for s in a.strides)
    span = 1
    for n, s in zip(a.shape, strides):
        span += (n - 1) * s
    flat = np.lib.stride_tricks.as_strided(a, (span,), (size,))
    return _as_strided(from_contiguous(flat), a.shape, strides, 0)


def native_parameter(a):
    """A `mindspore.Parameter` whose memory is `a`'s."""
    return MSParameter(from_array(a))


from mindspore.common._grad_function import _Function as NativeFunction  # noqa: E402,F401

#: True while MindSpore records a function for `mindspore.grad` / `value_and_grad` (0.12 us).
native_recording = executor._executor.grad_flag
