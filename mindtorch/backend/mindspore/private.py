"""All private MindSpore symbols that the project relies on, in one place.

MindSpore guarantees nothing about these names. If a release moves one, only this file has to
change.
"""
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from mindtorch.backend.cpu.host import address
from mindtorch.backend.mindspore import patches
from mindtorch.backend.errors import host_memory_error
from mindtorch.backend.mindspore.runtime import ms

from mindspore._c_expression import TensorPy as _TensorPy  # noqa: E402
from mindspore._c_expression import MixedPrecisionType  # noqa: E402,F401
from mindspore._c_expression import pyboost_batch_norm_grad_ext as pyboost_batch_norm_grad  # noqa: E402,F401  (the class's own call hands its arguments over in a wrong order)
from mindspore._c_expression import _swap_tensor_impl as swap_impl  # noqa: E402,F401
from mindspore._c_expression import typing as ms_typing  # noqa: E402,F401
from mindspore.graph.api import _pynative_executor as executor  # noqa: E402,F401
from mindspore.common.np_dtype import bfloat16 as _bfloat16  # noqa: E402
from mindspore.common.parameter import _is_parameter_generated as is_generated  # noqa: E402,F401
from mindspore.ops.auto_generate import AsStrided as _AsStrided  # noqa: E402

from mindspore._c_expression import JitExecutor_ as _jit_executor  # noqa: E402
from mindspore.graph.api import ms_compile_cache as _compiled  # noqa: E402

MSTensor = ms.Tensor
#: A tensor's real __dict__. mindtorch's attribute of that name shows only what users have set.
attributes = next(vars(c)["__dict__"] for c in MSTensor.__mro__ if "__dict__" in vars(c)).__get__
MSParameter = ms.Parameter


def is_ours(t) -> bool:
    """True if a tensor already has PyTorch's interface. Its class tells, and the query has no side
    effects."""
    return hasattr(type(t), "_is_mindtorch_tensor")


#: NumPy's extension dtype for bfloat16, as MindSpore defines it. Casts to float32 are exact, casts
#: from float32 round.
bfloat16_np = np.dtype(_bfloat16)


patches.mend_copies(bfloat16_np)

#: Wraps a C-contiguous array without copying it, in 0.5 us. `mindspore.from_numpy` adds two Python
#: calls; `Tensor(ndarray)` copies and takes 14 us. It reads the bytes in C order whatever the
#: strides: see `from_array`.
from_contiguous = _TensorPy.from_numpy

_as_strided, _set, _from_dlpack = _AsStrided(), _TensorPy.set_, _TensorPy.from_dlpack

#: Type codes that MindSpore's DLPack importer accepts. Bool, complex and bfloat16 are missing.
_DLPACK = frozenset("efdbhilqBHILQ")
_LARGE = 1 << 12
_ndarray = np.ndarray


class _Strided:
    """Flags: `on` once a tensor was not in C order, `unusual_strides` once a tensor in C order had
    strides that indicate another memory format."""

    __slots__ = ("on", "unusual_strides")
    on: bool
    unusual_strides: bool


STRIDED = _Strided()
STRIDED.on = STRIDED.unusual_strides = False


def _from_unaligned(a):
    """Wraps an array whose address is not a multiple of its elements' alignment, like
    `from_contiguous`.

    NumPy marks such memory in the buffer format, which MindSpore's `from_numpy` rejects for complex
    numbers.
    """
    if a.ndim > 8:
        raise NotImplementedError(f"unaligned {a.dtype.name} tensor of {a.ndim} dimensions: MindSpore supports at most 8; "
                                  "clone or reshape the tensor first")
    t = from_contiguous(np.empty(0, a.dtype))
    _set(t, from_contiguous(a.reshape(-1).view(np.uint8)), 0, a.shape, tuple([s // a.itemsize for s in a.strides]))
    return t


def from_array(a):
    """Returns a MindSpore tensor over the memory of `a`, whatever its strides.

    `ms.from_numpy` reads the bytes of a strided array in C order, so it silently returns wrong
    values. DLPack carries the strides, but its importer allocates and clears a buffer as large as
    the view: 1.2 us for 64 elements, 250 us for a million, and the memory stays allocated. `set_`
    assigns strides to the memory of a contiguous tensor in 3.5 us for any size (2.3 us of it inside
    MindSpore). The op AsStrided takes 4 to 330 us, because it wakes a thread.
    """
    flags = a.flags
    if flags.c_contiguous:
        return from_contiguous(a) if flags.aligned or a.dtype.kind != "c" else _from_unaligned(a)
    STRIDED.on = True
    count, dtype, shape = a.size, a.dtype, a.shape
    plain = dtype.char in _DLPACK and flags.writeable
    if plain and 0 < count < _LARGE and min(a.strides) >= 0:
        return _from_dlpack(a.__dlpack__())
    if not count:
        # the DLPack importer crashes on zero-size arrays
        return from_contiguous(np.empty(shape, dtype))
    key = shape, a.strides, dtype
    known = _extents.get(key) or _extent(key)
    recording = grad_flag() and not tracking.on
    if a.ndim > 8 or recording:  # `set_` supports 8 dimensions
        if plain:
            return _from_dlpack(a.__dlpack__())
        if a.ndim > 8:
            raise NotImplementedError(f"strided {dtype.name} tensor of {a.ndim} dimensions: MindSpore supports strides for at most 8; call contiguous() or "
                                      f"reshape it first")
    strides, span = known
    owner, start = a.base, 0
    if owner.__class__ is not _ndarray or owner.dtype is not dtype or not owner.flags.c_contiguous or recording:
        owner = np.lib.stride_tricks.as_strided(a, (span,), (a.itemsize,))
    elif span != owner.size:
        start = (address(a) - address(owner)) // a.itemsize
    if recording:  # MindSpore's autograd must not see a write
        return _as_strided(from_contiguous(owner), shape, strides, start)
    t = from_contiguous(owner) if dtype.kind != "c" or owner.flags.aligned else _from_unaligned(owner)
    # set onto itself: the tensor keeps its memory and gets the geometry
    _set(t, t, start, shape, strides)
    return t


_extents: dict[Any, tuple[tuple[int, ...], int]] = {}  # cache of `_extent`


def _extent(key):
    """Returns (strides in elements, number of elements from the first to the last one) for an
    array's shape, strides and dtype. Cached: 0.1 us vs 0.7 us."""
    shape, strides, dtype = key
    if min(strides) < 0:
        raise ValueError("At least one stride in the given numpy array is negative, and tensors with negative strides are "
                         "not currently supported. (You can probably work around this by making a copy of your array  with "
                         "array.copy().)")
    size, span = dtype.itemsize, 1
    strides = tuple([s // size for s in strides])
    for n, s in zip(shape, strides):
        span += (n - 1) * s
    if len(_extents) > 4096:
        _extents.clear()
    _extents[key] = strides, span
    return strides, span


def native_parameter(a):
    """Returns a `mindspore.Parameter` on the memory of `a`."""
    try:
        return MSParameter(from_array(a))
    except MemoryError as e:  # C++'s std::bad_alloc
        raise host_memory_error(e, "Parameter") from None


from mindspore.common._grad_function import _Function as NativeFunction  # noqa: E402,F401

#: Returns True while MindSpore's autograd records anything in this thread (0.12 us).
grad_flag = executor._executor.grad_flag


def pause() -> bool:
    """Stops MindSpore's autograd from recording. Returns True if `resume` has to be called."""
    if grad_flag() and executor.enable_grad():
        executor.set_enable_grad(False)
        return True
    return False


def resume() -> None:
    """Reverts `pause`."""
    executor.set_enable_grad(True)


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """Context manager that hides the enclosed computation from MindSpore's autograd, if it is
    recording."""
    paused = grad_flag() and pause()
    try:
        yield
    finally:
        if paused:
            resume()


def forget_graphs(cell: Any) -> None:
    """Frees what MindSpore has compiled for a Cell whose construct is under ms.jit. Otherwise
    MindSpore keeps the graphs, and the weights in them, forever."""
    for phase in cell.phase_cache.values():
        _compiled.discard(phase)
        _jit_executor.get_instance().del_net_res(cell, {phase})
    cell.phase_cache.clear()


def share(t: object, h: object) -> None:
    """Makes `t` another object of the native tensor `h`. Both share memory, and each sees the
    other's writes."""
    swap_impl(t, _TensorPy(h))


class _Tracking(threading.local):
    on = False  # True while MindSpore records on behalf of torch-style autograd (see `interop.py`)


tracking = _Tracking()


def native_recording() -> bool:
    """True while MindSpore records a function for `mindspore.grad` or `value_and_grad`."""
    return grad_flag() and not tracking.on
