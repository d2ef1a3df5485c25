"""Tensor methods that change dtype or device (`to`, `float`, `cpu`, `cuda`, `type`, ...) and shared
memory."""
from mindtorch.backend.mindspore.private import MSTensor
from mindtorch.core.device import device as _device
from mindtorch.core.tensor import dtypes
from mindtorch.core.dispatch import meta
from mindtorch.core.tensor.conj_neg_bits import ConjNegBits, plain
from mindtorch.core.tensor.dtypes import as_np, of_np
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.dispatch.op_schema import Bool
from mindtorch.core.tensor.tensor import Tensor, adopt, is_tensor
from mindtorch.ops.basic import cast, clone, move
from mindtorch.ops.shapes.shape import format_name, in_format
from mindtorch.torch._tensor import _def
from mindtorch.torch._types import memory_format as memory_format_type, type_name as type_name_of


def _parse_to(args, kwargs):
    kwargs = dict(kwargs)
    copy = kwargs.pop("copy", False)
    kwargs.pop("non_blocking", None)
    fmt = kwargs.pop("memory_format", None)
    dev, d, other = kwargs.pop("device", None), kwargs.pop("dtype", None), kwargs.pop("other", None)
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
    rest = list(args)
    if rest:
        x = rest.pop(0)
        if is_tensor(x):
            other = x
        elif isinstance(x, dtypes.dtype) or x in (float, int, bool, complex) or hasattr(x, "np"):
            d = x
        elif x is None or isinstance(x, (str, int, _device.device)):
            dev = x
            if rest and (rest[0] is None or isinstance(rest[0], dtypes.dtype)):
                d = rest.pop(0)
        elif isinstance(x, MSTensor):
            d = adopt(x).dtype
        else:
            try:
                d = of_np(as_np(x))
            except TypeError:
                raise TypeError(f"to() received an invalid combination of arguments - got ({type_name(x)}), but expected "
                                "one of: (torch.device device, torch.dtype dtype, bool non_blocking, bool copy), (torch.dtype "
                                "dtype, bool non_blocking, bool copy), (Tensor tensor, bool non_blocking, bool copy)") from None
        if len(rest) > 1:
            copy = rest[1]
    if other is not None:
        d, dev = other.dtype, other._device
    if fmt is not None:
        if not isinstance(fmt, memory_format_type):
            raise TypeError(f"to() received an invalid combination of arguments - got (memory_format={type(fmt).__name__}): it must be a "
                            "torch.memory_format")
        fmt = format_name(fmt)
    return dev, d, copy, fmt


@_def
def to(self, *args, **kwargs):
    """Converts the dtype, memory format and/or device. Returns self if nothing changes and copy is
    False."""
    dev, d, copy, fmt = _parse_to(args, kwargs)
    if dev is not None:
        dev = _device.check(dev)
        if dev is not self._device and dev != self._device and dev.type != self._device.type:
            return _elsewhere(self, dev, None if d is None else as_np(d), fmt)
    r = self
    if fmt is not None and fmt != "preserve":
        r = in_format(r, fmt, as_np(d) if d is not None else None)
    elif d is not None:
        r = cast(r, as_np(d))
    return clone(r) if copy and r is self else r


def _elsewhere(x, dev, d, fmt):
    """Copies a tensor to another device with one copy, in dtype `d` (None: unchanged) and memory
    format `fmt`."""
    if x._device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    # Cast on the host where possible: every device agrees with the result. One-byte dtypes are
    # moved to a device before they are widened.
    later = d is not None and (x._handle is not None or x._np_dtype.itemsize == 1 < d.itemsize and dev.type in _device.registered)
    if d is not None and not later:
        x = cast(x, d)
    if fmt is not None and fmt != "preserve" and x._handle is None:
        x = in_format(x, fmt, None)
    if dev.type == "meta":
        return meta.on(x._array if x._handle is None else meta.meta_array(x._sizes, x._np_dtype if d is None else d), x._requires_grad_ and x._grad_fn_ is None)
    if x._device.type not in _device.registered and dev.type not in _device.registered:
        raise NotImplementedError(f"Tensor.to: moving a {x.dtype} tensor from device {x._device} to {dev} is not supported")
    x = move(x, dev)
    if later:
        x = cast(x, d)
    return x if fmt is None or fmt == "preserve" else in_format(x, fmt, None)


def _casting(name, d):
    np_type = d.np

    def method(self, *, memory_format=None):
        if memory_format is not None:
            return to(self, d, memory_format=memory_format)
        return self if self._np_dtype == np_type else cast(self, np_type)
    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Converts the tensor to {d}."
    setattr(Tensor, name, method)


for _name, _d in [("float", "float32"), ("double", "float64"), ("half", "float16"), ("bfloat16", "bfloat16"), ("int", "int32"),
                  ("long", "int64"), ("short", "int16"), ("char", "int8"), ("byte", "uint8"), ("bool", "bool"),
                  ("cfloat", "complex64"), ("cdouble", "complex128")]:
    _casting(_name, dtypes.NAMES[_d])


@_def
def chalf(self, *, memory_format=None):
    as_np(dtypes.NAMES["complex32"])      # raises NotImplementedError


@_def
def cpu(self, *, memory_format=None):
    """Returns the tensor in host memory (self if it is on the CPU)."""
    return to(self, _device.cpu, memory_format=memory_format)


@_def
def cuda(self, device=None, non_blocking: Bool = False, memory_format=None):
    """Returns the tensor on the accelerator. Raises RuntimeError if there is none."""
    return to(self, _device.device("cuda") if device is None else
              _device.device("cuda", device) if isinstance(device, int) else device)


@_def
def npu(self, device=None, non_blocking: Bool = False):
    """Returns the tensor on the NPU. Raises RuntimeError if there is none."""
    return to(self, _device.device("npu") if device is None else
              _device.device("npu", device) if isinstance(device, int) else device)


@_def
def xpu(self, device=None, non_blocking: Bool = False, memory_format=None):
    return to(self, "xpu")


@_def
def mtia(self, device=None, non_blocking: Bool = False, memory_format=None):
    return to(self, "mtia")


@_def
def ipu(self, device=None, non_blocking: Bool = False, memory_format=None):
    return to(self, "ipu")


_TYPE_NAMES = {"float32": "FloatTensor", "float64": "DoubleTensor", "float16": "HalfTensor", "bfloat16": "BFloat16Tensor",
               "int64": "LongTensor", "int32": "IntTensor", "int16": "ShortTensor", "int8": "CharTensor", "uint8": "ByteTensor",
               "bool": "BoolTensor", "complex64": "ComplexFloatTensor", "complex128": "ComplexDoubleTensor"}
_NAME_TYPES = {v: k for k, v in _TYPE_NAMES.items()}


def _type(self, dtype=None, non_blocking: Bool = False, *, memory_format=None):
    """Returns the name of the tensor's type, or casts to a type (a dtype, 'torch.FloatTensor' or
    torch.FloatTensor)."""
    if dtype is None:
        return f"torch.{'' if plain(self)._handle is None else self._device.type + '.'}{_TYPE_NAMES.get(self.dtype.name, self.dtype.name)}"
    if isinstance(dtype, type) and dtype.__name__ in _NAME_TYPES:
        dtype = type_name_of(dtype)
    if isinstance(dtype, str):
        where, _, key = dtype.rpartition(".")
        where = "cpu" if where == "torch" else where.removeprefix("torch.")
        if not dtype.startswith("torch.") or key not in _NAME_TYPES or where not in ("cpu", *_device.accelerator()):
            raise ValueError(f"invalid type: '{dtype}'")
        return to(self, _device.device(where), dtypes.NAMES[_NAME_TYPES[key]], **({} if memory_format is None else {"memory_format": memory_format}))
    return cast(self, as_np(dtype)) if memory_format is None else to(self, dtype, memory_format=memory_format)


_type.__name__ = _type.__qualname__ = "type"
Tensor.type = _type


@_def
def type_as(self, other):
    """Converts to the dtype and device of `other`."""
    return cast(self, other._np_dtype) if self._device is other._device else to(self, other)


@_def
def pin_memory(self, device=None):
    """Returns self. MindSpore does not expose pinned host memory, so the tensor is not pinned and
    `is_pinned` returns False."""
    if self._handle is not None:
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    return self


@_def
def share_memory_(self):
    """Moves the storage, with every tensor on it, to memory shared with forked processes and with
    processes that receive it."""
    from mindtorch.torch.multiprocessing import reductions
    if self._handle.__class__ is ConjNegBits:
        share_memory_(self._handle.of)
        return self
    if self._handle is not None:
        raise NotImplementedError(f"share_memory_ of a tensor on device {self._device} is not supported: MindSpore cannot share device memory between processes; "
                                  "share a copy on cpu")
    return reductions.share(self)


@_def
def is_shared(self):
    """True if other processes can access the tensor's memory (see `share_memory_`)."""
    from mindtorch.torch.multiprocessing import reductions
    return plain(self)._handle is None and reductions.is_shared(plain(self))
