"""Functions that pickled tensors refer to by name: they reduce, rebuild and copy tensors.

The names and arguments of the `_rebuild_*` functions are part of the file format, which PyTorch
reads and writes too.
"""

import copy
import sys
import traceback
import warnings
from collections import OrderedDict

import numpy as np

from mindtorch.backend.mindspore.private import is_generated
from mindtorch.core.device import device as _device
from mindtorch.core.tensor import dtypes as _dtypes
from mindtorch.core.tensor.conj_neg_bits import ConjNegBits, bits_of
from mindtorch.core.dispatch.lazy_conj import resolved, with_bits
from mindtorch.core.tensor.tensor import Parameter, Tensor, set_device, wrap_array, is_tensor
from mindtorch.core.tensor.sync import tensor_from, to_host
from mindtorch.torch import _types, storage as _storage


# ------------------------------------------------------------------ reducing
def reduce_tensor(t, protocol):
    """``Tensor.__reduce_ex__``: returns (function, arguments) in PyTorch's format. Storages stay
    shared within one pickle."""
    return reduced(t, False)


def reduced(t, for_file):
    """Returns the reduce value of a tensor. With `for_file` the storage is written as the legacy
    class of its dtype."""
    if t._tensor_hooks and not for_file:
        warnings.warn("backward hooks of a tensor are not pickled: register them again after loading", stacklevel=4)
    kind = type(t)
    state = _attributes(t)
    if is_tensor(t, Parameter):
        # A Parameter's data is written as a separate Tensor, without the Parameter's flags.
        data = _Reduced(_plain(t, for_file, False))
        if state:
            return _rebuild_parameter_with_state, (data, t._requires_grad_, OrderedDict(), state)
        return _rebuild_parameter, (data, t._requires_grad_, OrderedDict())
    function, args = _plain(t, for_file, t._requires_grad_)
    if kind is Tensor and not state:
        return function, args
    return _rebuild_from_type_v2, (function, kind, args, state)


class _Reduced:
    """Pickles as the object that the stored reduce value creates."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return self.value


def _plain(t, for_file, requires_grad):
    d = t.dtype
    if t._device.type == "meta":
        return _rebuild_meta_tensor_no_storage, (d, tuple(t._sizes), t.stride(), requires_grad)
    untyped = _storage.untyped(t)
    args = _storage.offset_of(t, untyped), tuple(t._sizes), t.stride(), requires_grad, OrderedDict()
    flags = [{name: True for name, on in zip(("conj", "neg"), bits_of(t)) if on}] if t._handle.__class__ is ConjNegBits else []
    if for_file and d in _storage.CLASS_OF:
        return _rebuild_tensor_v2, (_storage.TypedStorage(wrap_storage=untyped, dtype=d), *args, *flags)
    return _rebuild_tensor_v3, (untyped, *args, d, *flags)


def _attributes(t):
    """Returns the attributes that a user set on a tensor, without the tensor's own fields."""
    return dict(t.__dict__)


# ------------------------------------------------------------------ rebuilding
def _rebuild_from_type_v2(func, new_type, args, state):
    """Rebuilds a tensor of a subclass or with user attributes
    (`torch._tensor._rebuild_from_type_v2` in files)."""
    t = func(*args)
    if type(t) is not new_type:
        t = t.as_subclass(new_type)
    if type(t).__setstate__ is not Tensor.__setstate__:
        t.__setstate__(state)
        return t
    return set_state(t, state)


def _untyped(storage):
    if not _storage.is_storage(storage):
        raise TypeError(f"a tensor's storage was expected, got {type(storage).__name__}")
    return storage.untyped()


def _rebuild_tensor(storage, storage_offset, size, stride):
    """Rebuilds a tensor on a typed storage."""
    return _storage.tensor_on(_untyped(storage), storage.dtype, storage_offset, size, stride)


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None):
    """Rebuilds a tensor on a typed storage. `metadata` contains the lazy conjugate and negative
    bits."""
    return _resolved(
        _storage.tensor_on(_untyped(storage), storage.dtype, storage_offset, size, stride), requires_grad, metadata
    )


def _rebuild_tensor_v3(storage, storage_offset, size, stride, requires_grad, backward_hooks, dtype, metadata=None):
    """Rebuilds a tensor of `dtype` on an untyped storage."""
    return _resolved(
        _storage.tensor_on(_untyped(storage), dtype, storage_offset, size, stride), requires_grad, metadata
    )


def _resolved(t, requires_grad, metadata):
    if metadata:
        unknown = set(metadata) - {"conj", "neg"}
        if unknown:
            raise NotImplementedError(
                f"a tensor with the flags {sorted(unknown)} (dtype {t.dtype}) is not supported on device cpu"
            )
        t = with_bits(t, bool(metadata.get("conj")), bool(metadata.get("neg")))
    return _with_grad(t, requires_grad)


def _flag(name, value):
    if type(value) is not bool:
        raise TypeError(f"{name} must be bool, not {type(value).__name__}")
    return value


def _with_grad(t, requires_grad):
    if _flag("requires_grad", requires_grad):
        t.requires_grad = True
    return t


def _rebuild_parameter(data, requires_grad, backward_hooks):
    """Rebuilds a Parameter on a tensor's memory."""
    return Parameter(_made(data), _flag("requires_grad", requires_grad))


def _rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    """Rebuilds a Parameter with the attributes that a user set on it."""
    return set_state(Parameter(_made(data), _flag("requires_grad", requires_grad)), state)


def _made(data):
    # copy.copy passes these functions the value returned by `reduced` directly, without pickling
    # it.
    if data.__class__ is _Reduced:
        function, args = data.value
        return function(*args)
    if not is_tensor(data):
        raise TypeError(f"a Parameter's tensor was expected, got {type(data).__name__}")
    return data


def _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad):
    """Rebuilds a meta tensor."""
    return _with_grad(_storage.tensor_on(_storage.UntypedStorage(0, device="meta"), dtype, 0, size, stride), requires_grad)


def _unsupported(name, what):
    def rebuild(*args, **kwargs):
        raise NotImplementedError(
            f"loading {what} ({name}) is not supported on device cpu: MindSpore has no such tensors there"
        )

    rebuild.__name__ = rebuild.__qualname__ = name
    rebuild.__doc__ = f"Raises NotImplementedError: {what} cannot be loaded."
    return rebuild


def _rebuild_sparse_tensor(layout, data):
    """Rebuilds a sparse tensor from (indices, values, size[, is_coalesced]) or (compressed indices,
    plain indices, values, size)."""
    if type(layout) is not _types.layout or not isinstance(data, tuple):
        raise TypeError(f"a sparse tensor's layout and parts were expected, got {type(layout).__name__} and {type(data).__name__}")
    if repr(layout) != "torch.sparse_coo":
        compressed, plain, values, size = data
        _parts(size, compressed, plain, values)
        return sys.modules["mindtorch.torch"].sparse_compressed_tensor(compressed, plain, values, size, layout=layout)
    indices, values, size, *coalesced = data
    _parts(size, indices, values)
    if coalesced and coalesced[0] is not None:
        _flag("is_coalesced", coalesced[0])
    from mindtorch.core.dispatch.op_registry import OPS
    return OPS["sparse_coo_tensor"].fn(indices, values, size, is_coalesced=coalesced[0] if coalesced else None)


def _parts(size, *tensors):
    for t in tensors:
        if not is_tensor(t):
            raise TypeError(f"a sparse tensor's indices and values were expected, got {type(t).__name__}")
    _storage.checked_size(size)


def _rebuild_sparse_csr_tensor(layout, data):
    """Rebuilds a compressed tensor from (compressed indices, plain indices, values, size)."""
    return _rebuild_sparse_tensor(layout, data)


_rebuild_qtensor = _unsupported("_rebuild_qtensor", "a quantized tensor")
_rebuild_nested_tensor = _unsupported("_rebuild_nested_tensor", "a nested tensor")
_rebuild_wrapper_subclass = _unsupported("_rebuild_wrapper_subclass", "a wrapper subclass without storage")


def _rebuild_device_tensor_from_numpy(data, dtype, device, requires_grad):
    """Rebuilds a tensor from an array, the form written by backends without storages."""
    if not isinstance(data, np.ndarray):
        raise TypeError(f"a tensor's array was expected, got {type(data).__name__}")
    if data.dtype.hasobject:
        raise TypeError(f"a tensor cannot be made of an array of {data.dtype}")
    _check_dtype(dtype)
    a = np.ascontiguousarray(data).astype(dtype.np).reshape(np.shape(data))
    return _placed(wrap_array(a), device, requires_grad)


def _rebuild_device_tensor_from_cpu_tensor(data, dtype, device, requires_grad):
    """Rebuilds a tensor from a CPU tensor, the form written by backends without storages."""
    from mindtorch.backend.cpu.basic import cast_array

    if not is_tensor(data):
        raise TypeError(f"a tensor was expected, got {type(data).__name__}")
    _check_dtype(dtype)
    return _placed(wrap_array(cast_array(to_host(data), dtype.np)), device, requires_grad)


def _check_dtype(dtype):
    if not isinstance(dtype, _dtypes.dtype):
        raise TypeError(f"dtype must be torch.dtype, not {type(dtype).__name__}")


def _placed(t, device, requires_grad):
    device = _device.check(device)
    if device is not _device.cpu:
        t = t.to(device)
    return _with_grad(t, requires_grad)


def set_state(obj, state):
    """Sets an object's attributes from a pickle's state: a dict, or (dict, dict of slots)."""
    slots = None
    if isinstance(state, tuple):
        if len(state) != 2:
            raise RuntimeError(f"Invalid serialized state: {type(state).__name__} of {len(state)}")
        state, slots = state
    for part in (state, slots):
        for k, v in (part or {}).items():
            setattr(obj, k, v)
    return obj


# ------------------------------------------------------------------ copying
def deepcopy_tensor(t, memo):
    """``Tensor.__deepcopy__``: copies memory (shared between the copies as between the originals),
    gradient and attributes."""
    if id(t) in memo:
        return memo[id(t)]
    if t._grad_fn_ is not None:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment. "
            "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
            "see https://github.com/pytorch/pytorch/pull/103001"
        )
    if is_tensor(t, Parameter):
        return _deepcopy_parameter(t, memo)
    old = _storage.untyped(t)
    new = _storage.tensor_on(copy.deepcopy(old, memo), t.dtype, _storage.offset_of(t, old), t._sizes, t.stride())
    if t._handle.__class__ is ConjNegBits:
        new = resolved(with_bits(new, *bits_of(t)))
    if type(t) is not Tensor:
        new.__class__ = type(t)
    if t._requires_grad_:
        new.requires_grad = True
    memo[id(t)] = new
    if t._grad_ is not None:
        new._grad_ = copy.deepcopy(t._grad_, memo)
    for k, v in _attributes(t).items():
        setattr(new, k, copy.deepcopy(v, memo))
    return new


def _deepcopy_parameter(t, memo):
    # As in PyTorch, a Parameter is copied by itself: compact, without .grad and attributes.
    a = t._array
    if t._device.type == "meta":
        r = memo[id(t)] = type(t)(t.detach(), t._requires_grad_)
        return r
    if t._handle is not None:
        r = memo[id(t)] = type(t)(t.detach().clone(), t._requires_grad_)
        return r
    new = np.empty_like(a, order="K", subok=False) if a.dtype.kind != "V" else _like(a)
    new[...] = a
    r = type(t)(wrap_array(new), t._requires_grad_)
    if t._device is not _device.cpu:
        set_device(r, t._device)
    name = t.name
    if not is_generated(name):
        r.name = name  # its name in the MindSpore network that is being copied
    memo[id(t)] = r
    return r


def _like(a):
    # Some NumPy releases lose the order of axes for extension dtypes: go through the bytes.
    return np.empty_like(a.view(np.uint16), order="K", subok=False).view(a.dtype)


# ------------------------------------------------------------------ helpers that libraries import
def _flatten_dense_tensors(tensors):
    """Concatenates tensors of one dtype into one contiguous 1-D tensor."""
    tensors = list(tensors)
    if len({t.dtype for t in tensors}) > 1:
        raise TypeError("all tensors must have the same dtype")
    return tensor_from(np.concatenate([to_host(t).reshape(-1) for t in tensors]), tensors[0])


def _unflatten_dense_tensors(flat, tensors):
    """Returns views of `flat` with the shapes of `tensors`."""
    views, pos = [], 0
    for t in tensors:
        n = t._numel
        views.append(flat[pos : pos + n].view(t.shape))
        pos += n
    return tuple(views)


class ExceptionWrapper:
    """Exception with its traceback as text, so that it can cross a process or thread boundary."""

    def __init__(self, exc_info=None, where="in background"):
        if exc_info is None:
            exc_info = sys.exc_info()
        self.exc_type = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where = where

    def reraise(self):
        """Raises an exception of the same type with the original traceback as its message."""
        # No local variable: frame and traceback would reference each other and keep the data loader
        # alive.
        raise self._exception()

    def _exception(self):
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if issubclass(self.exc_type, KeyError):
            # KeyError shows repr() of its message, which would put the traceback on one line.
            return self.exc_type(_Verbatim(message))
        try:
            if getattr(self.exc_type, "message", None):
                return self.exc_type(message=message)
            return self.exc_type(message)
        except Exception:
            # The exception's constructor does not accept a message.
            return RuntimeError(message)


class _Verbatim(str):
    def __repr__(self):
        return str(self)


def _get_available_device_type():
    """Returns "npu" or "cuda" if MindSpore has such a device, else None (never "cpu")."""
    import mindtorch.torch as torch
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return None if kind is None else kind.type


def _get_device_module(device_type):
    """Returns the module of a device type (torch.cuda for "cuda", ...). Raises RuntimeError if
    there is none."""
    import mindtorch.torch as torch
    try:
        return torch.get_device_module(device_type)
    except ModuleNotFoundError:
        raise RuntimeError(f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'.") from None


def _element_size(dtype):
    """Returns the size of one element of a dtype in bytes."""
    if not isinstance(dtype, _dtypes.dtype):
        raise RuntimeError(f"expected torch.dtype, but got {type(dtype)}")
    return dtype.itemsize
