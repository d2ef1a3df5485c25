"""Ops that create tensors from Python data and arrays: tensor, as_tensor, from_numpy, ..."""
import warnings

from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import inplace, dtypes, from_data
from mindtorch.core.device import device as _device
from mindtorch.core.dispatch import meta
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.dispatch.deterministic import filler
from mindtorch.core.tensor.dtypes import I64, as_np, of_np
from mindtorch.core.dispatch.error_messages import is_pytorch_tensor
from mindtorch.core.tensor.from_data import array_of, copied, is_array, compact_storage, usable
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Int, Scalar
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, detached, set_requires_grad, is_tensor
from mindtorch.core.tensor.sync import tensor_from
from mindtorch.core.tensor.scalars import checked_convert, number_of
from mindtorch.ops.basic import cast, clone, move

CPU = _device.cpu

# ------------------------------------------------------------------ primitives without operands
#
# Attributes: stride, the dense strides of the result (None: C order); np_dtype, its element type;
# device, its device.
empty_ = primitive("empty", "*, size, stride, np_dtype, device", raw=True)
zeros_ = primitive("zeros", "*, size, stride, np_dtype, device", raw=True)
#: value: a Python scalar that fits the element type (`checked_convert` of `mindtorch/core/tensor/scalars.py`)
full_ = primitive("full", "*, size, stride, value, np_dtype, device", raw=True)


def fill_uninitialized(t):
    """Fills a new, uninitialized tensor as deterministic mode requires. Callers check
    `MODE.filling`."""
    if t._device.type != "meta" and t._numel:
        inplace.fill(t, filler(t._np_dtype))
    return t


# ------------------------------------------------------------------ common arguments of creation
def resolve_dtype(name, dtype, device, layout):
    """Checks device= and layout= of a creation function. Returns the requested element type, or
    None."""
    return resolve_dtype_device(name, dtype, device, layout)[0]


def resolve_dtype_device(name, dtype, device, layout):
    """Returns the (element type or None, device) requested from a creation function."""
    on = resolve_device(name, dtype, device, layout)
    return (None if dtype is None else as_np(dtype)), on


def resolve_device(name, dtype, device, layout):
    """Returns the device requested from a creation function. Raises NotImplementedError for an
    unavailable device or a layout other than strided."""
    on = _device._default if device is None else _device.check(device)
    if on is not CPU:
        if on.type == "meta":
            meta.wake()
        elif on.type != "cpu" and on.type not in _device.registered:
            raise NotImplementedError(f"'{name}' is not implemented for dtype {dtype or 'float32'} on device {on}")
    if layout is not None and repr(layout) != "torch.strided":
        raise NotImplementedError(f"'{name}' is not implemented for layout {layout!r} on device cpu")
    return on


def finalize_new(t, requires_grad, device):
    """Moves a new tensor to the requested device (already checked) and sets requires_grad."""
    if device.type == "meta":
        return meta.of(t, requires_grad)
    if device.type != "cpu" and t._device is not device:
        t = move(t, device)
    if requires_grad:
        if t._np_dtype.kind not in "fcV":
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        set_requires_grad(t, True)
    return t


def finish(a, requires_grad, device=None):
    """Returns a new tensor on an array, moved to the requested device."""
    return finalize_new(tensor_from(a), requires_grad, _device.check(device))


# ------------------------------------------------------------------ tensors from data
@register_op(method=False, tags="data_dependent_output", condition="of tensors")
def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory: Bool = False):
    """Returns a new tensor with a copy of `data`: a scalar, nested sequences, an ndarray or a
    tensor."""
    on = CPU if device is None and _device._default is CPU else resolve_device("tensor", dtype, device, None)
    d = None if dtype is None else as_np(dtype)
    c = data.__class__
    if c is list or c is float or c is int:
        t = tensor_from(array_of(data, d))
    elif (data.__class__ is Tensor or is_tensor(data)):
        warnings.warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
                      "sourceTensor.detach().clone().requires_grad_(True), rather than "
                      "torch.tensor(sourceTensor).", stacklevel=2)
        t = copy_of(data, d)
    elif c in from_data.STORAGES:
        t = _on_storage(data, d)
    else:
        t = tensor_from(copied(data, d))
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)


def _on_storage(storage, d):
    """Wraps a storage without copying (also in `tensor`). For a typed storage the requested dtype
    must match its dtype; an untyped one is read as int64."""
    return hooks.tensor_of_storage(storage, of_np(d) if d is not None else dtypes.get_default_dtype() if hasattr(storage, "dtype") else of_np(I64),
                                       0, None, None)


def copy_of(x, d):
    """Returns a detached copy of a tensor in element type `d` (None: unchanged)."""
    x = detached(x)
    return clone(x) if d is None or d == x._np_dtype else cast(x, d)


@register_op(method=False, tags="data_dependent_output")
def as_tensor(data, dtype=None, device=None):
    """Returns `data` as a tensor that shares the memory of tensors and ndarrays where the dtype
    allows it."""
    on = CPU if device is None and _device._default is CPU else resolve_device("as_tensor", dtype, device, None)
    d = None if dtype is None else as_np(dtype)
    if is_pytorch_tensor(data) and data.requires_grad:
        raise RuntimeError("as_tensor() preserves autograd history, which cannot be transferred from PyTorch to mindtorch; pass "
                           "tensor.detach(), or use tensor(), which copies")
    if data.__class__ is Tensor or is_tensor(data):
        r = data if d is None else cast(data, d)
        return r if device is None or on is r._device else r.to(device)
    if data.__class__ in from_data.STORAGES:
        return finalize_new(_on_storage(data, d), False, on)
    t = tensor_from(from_data.backing_array(data, d) if is_array(data) else copied(data, d))
    return t if on is CPU else finalize_new(t, False, on)


@register_op(method=False, tags="data_dependent_output")
def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    """Returns `obj` as a tensor that shares its memory where possible, unless copy=True. copy=False
    raises ValueError where sharing is impossible."""
    d, on = resolve_dtype_device("asarray", dtype, device, None)
    if obj.__class__ is Tensor or is_tensor(obj):
        t = obj if requires_grad or not obj._requires_grad_ else detached(obj)
        if device is None:
            on = t._device
        elif copy is False and on != t._device:
            raise ValueError(f"can't alias tensor from device '{t._device}' to '{on}'.")
        if copy is False and d is not None and d != t._np_dtype:
            raise ValueError(f"can't alias tensor with dtype '{scalar_type_name(t._np_dtype)}' into dtype '{scalar_type_name(d)}'.")
        r = t if d is None else cast(t, d)
        if r is t and copy and on == t._device:
            r = clone(t)
    elif is_array(obj) or hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        a = from_data.shared(obj)
        share = (d is None or d == a.dtype) and not copy
        r = tensor_from(compact_storage(a) if share else from_data.in_type(a, d))
        if copy is False and not share:
            raise ValueError(f"can't alias tensor with dtype '{scalar_type_name(a.dtype)}' into dtype '{scalar_type_name(a.dtype if d is None else d)}'.")
    elif obj.__class__ in from_data.STORAGES:
        r = _on_storage(obj, d)
        if copy:
            r = clone(r)
    elif isinstance(obj, (bytes, bytearray, memoryview)):
        r = frombuffer(obj, dtype=of_np(dtypes.default_np() if d is None else d))
        if copy:
            r = clone(r)
    else:
        if copy is False:
            if from_data.is_array_scalar(obj):
                raise RuntimeError("can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray. ")
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        r = tensor_from(copied(obj, d))
    if on is not CPU and r._device is not on:
        if copy is False and on != r._device:
            raise ValueError(f"can't alias tensor from device '{r._device}' to '{on}'.")
        r = r.to(on)
    if requires_grad and not r._requires_grad_:
        set_requires_grad(r, True)
    return r


@register_op(method=False, tags="data_dependent_output")
def from_numpy(ndarray):
    """Returns a tensor that shares an ndarray's memory."""
    if not is_array(ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    a = usable(ndarray)
    if not a.flags.writeable:
        warnings.warn("The given NumPy array is non-writable: in-place writes to this tensor will raise an error. Copy the array to get a "
                      "writable tensor.", stacklevel=2)
    return tensor_from(from_data.plain(a))


@register_op(method=False, tags="data_dependent_output")
def frombuffer(buffer, *, dtype, count=-1, offset: Int = 0, requires_grad=False):
    """Returns a 1-D tensor on the memory of an object with the buffer protocol."""
    d = as_np(dtype)
    n = memoryview(buffer).nbytes
    if not n or not count:
        raise ValueError(f"both buffer length ({n}) and count ({count}) must not be 0")
    if offset < 0 or offset >= n:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({n} bytes) "
                         "minus 1")
    if count < 0 and (n - offset) % d.itemsize:
        raise ValueError(f"buffer length ({n - offset} bytes) after offset ({offset} bytes) must be a multiple of "
                         f"element size ({d.itemsize})")
    if count > 0 and offset + count * d.itemsize > n:
        raise ValueError(f"requested buffer length ({count} * {d.itemsize} bytes) after offset ({offset} bytes) must "
                         "not be greater than "
                         f"actual buffer length ({n} bytes)")
    return finalize_new(tensor_from(from_data.on_buffer(buffer, count, offset, d)), requires_grad, CPU)


@register_op(method=False)
def scalar_tensor(s: Scalar, *, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False):
    """Returns a 0-dim tensor of the default dtype (or the requested one)."""
    on = CPU if device is None and layout is None and _device._default is CPU else resolve_device("scalar_tensor", dtype, device, layout)
    d = dtypes.default_np() if dtype is None else as_np(dtype)
    t = full_(size=(), stride=None, value=checked_convert(number_of("scalar_tensor", s, "s"), d), np_dtype=d, device=on)
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)
