"""Tensor core: one object that is a MindSpore tensor and references its memory as a NumPy array.

On CPU a MindSpore tensor's memory is host memory, so every Tensor has `_array`, a strided NumPy view of
it. Host kernels, views and in-place writes work on `_array`; MindSpore kernels receive the object
itself. A tensor created by a MindSpore kernel gets its `_array` on first use.
"""
from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard

import numpy as np

from mindtorch.backend.hooks import hooks as backend_hooks
from mindtorch.backend.cpu.host import constant
from mindtorch.backend.device import GeometryArray
from mindtorch.backend.interface import Array, Handle, NpDtype
from mindtorch.backend.meta.arrays import is_meta_array
from mindtorch.backend.mindspore.patches import PRIVATE, put
from mindtorch.backend.mindspore.private import (STRIDED, MSParameter, MSTensor, attributes, from_array, from_contiguous, native_parameter, share, swap_impl)
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import conj_neg_bits, tensor_wrappers
from mindtorch.core.device import device as _device_module
from mindtorch.core.dispatch import dispatcher
from mindtorch.core.tensor.creation_meta import check_inplace_on_view, creation_meta_message  # noqa: F401
from mindtorch.core.tensor.conj_neg_bits import ConjNegBits
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.tensor.dtypes import default_np, dtype as DType, of_np
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.autograd.grad_mode import INFERENCE, mode

#: how torch.compile treats the functions of this module (torch/_dynamo/_capture.py)
CAPTURE: dict[Any, str] = {**dict.fromkeys(["shape", "dtype", "device", "ndim", "__hash__", "numel", "__getitem__", "__add__", "__radd__", "__mul__", "__new__",
                                            "__instancecheck__", "is_tensor", "__get__", "__repr__"], "safe"), ("requires_grad", 1): "safe"}

ndarray = np.ndarray


class Size(tuple):
    """Shape of a tensor (https://pytorch.org/docs/stable/size.html)."""

    __slots__ = ()

    def __new__(cls, it: Iterable[Any] = ()) -> Size:
        if it.__class__ is not tuple:
            it = tuple(x if x.__class__ is int else _index(x) for x in it)
        return tuple.__new__(cls, it)

    def __repr__(self):
        return f"torch.Size([{', '.join(map(repr, self))}])"

    def numel(self) -> int:
        n = 1
        for s in self:
            n *= s
        return n

    def __getitem__(self, i):
        r = tuple.__getitem__(self, i)
        return Size(r) if i.__class__ is slice else r

    def __add__(self, other):
        if not isinstance(other, tuple):
            if hasattr(type(other), "__radd__"):
                return NotImplemented
            raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size")
        return Size(tuple.__add__(self, other))

    def __radd__(self, other):
        if not isinstance(other, tuple):
            return NotImplemented
        return Size(tuple.__add__(tuple(other), self))

    def __mul__(self, n):
        return Size(tuple.__mul__(self, n))

    __rmul__ = __mul__

    def __reduce__(self):
        return Size, (tuple(self),)


def _index(x):
    try:
        return x.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item is '{type(x).__name__}')") from None


class VersionCounter:
    """Version counter shared by all tensors on one storage; used to detect stale saved tensors."""

    __slots__ = ("v", "__weakref__")

    def __init__(self):
        self.v = 0


class _Transforms:
    """Number of active function transforms in all threads (core/transforms/functorch_levels.py)."""

    __slots__ = ("count",)

    count: int


TRANSFORMS = _Transforms()
TRANSFORMS.count = 0


_NativeMeta: Any = type(MSTensor)


#: `t.__dict__`
_USERS = property(lambda self: user_attributes(self), lambda self, value: set_user_attributes(self, value))


class _TensorMeta(_NativeMeta):
    """isinstance() via the MRO: 0.1 us vs 0.3 us for the ABC machinery of MindSpore's metaclass.

    A tensor created by MindSpore counts as a Tensor, since facade functions accept it as one.
    isinstance() does not change it; it is converted (`adopt`) when it is passed on: see `is_tensor`.
    """

    def __new__(mcls, name, bases, namespace, **kwargs):
        # a mixin's own `__dict__` would expose internal attributes
        if any([getattr(b, "_shows_users_attributes", False) for b in bases]):
            namespace.setdefault("__dict__", _USERS)
        return super().__new__(mcls, name, bases, namespace, **kwargs)

    def __instancecheck__(cls, x):
        t = type(x)
        mro = t.__mro__
        if cls in mro:
            return True
        if MSTensor not in mro or Tensor in mro:
            return False
        return MSParameter in mro and (cls is Tensor or cls is Parameter) or cls is Tensor and t is MSTensor


class UserAttributes(dict):
    """User-defined attributes of a tensor; writes go to the tensor itself."""

    __slots__ = ("_of",)
    _of: dict[str, Any]

    def __setitem__(self, k, v):
        dict.__setitem__(self, k, v)
        self._of[k] = v

    def __delitem__(self, k):
        dict.__delitem__(self, k)
        del self._of[k]

    def pop(self, k, *default):
        if k in self:
            del self._of[k]
        return dict.pop(self, k, *default)

    def update(self, *args, **kwargs):
        for k, v in dict(*args, **kwargs).items():
            self[k] = v

    def setdefault(self, k, default=None):
        if k not in self:
            self[k] = default
        return self[k]

    def __reduce__(self):
        return dict, (dict(self),)


def user_attributes(t: Tensor) -> UserAttributes:
    """Returns the user-defined attributes of a tensor, without the internal ones."""
    real, names = attributes(t), own_names()
    attrs = UserAttributes((k, v) for k, v in real.items() if k not in names)
    attrs._of = real
    return attrs


def set_user_attributes(t: Tensor, value: Mapping[str, Any]) -> None:
    """Implements `t.__dict__ = value`."""
    attrs = user_attributes(t)
    for k in list(attrs):
        del attrs[k]
    attrs.update(value)


_internal_names: frozenset[str] | None = None


def own_names() -> frozenset[str]:
    """Names in a tensor's real __dict__ that are not user-defined."""
    global _internal_names
    if _internal_names is None:
        with_all = Parameter(wrap_array(np.zeros(1, np.float32)))
        version_counter(with_all)
        _internal_names = frozenset(k for c in Parameter.__mro__ for k in vars(c)) | frozenset(attributes(with_all))
    return _internal_names


class _Memory:
    """Descriptor for `_array` of a tensor created by a MindSpore kernel, before it is set.

    It lives on `mindspore.Tensor` itself.
    """

    def __get__(self, t, cls=None):
        if t is None:
            return self
        if not is_tensor(t):
            raise AttributeError(f"'{type(t).__name__}' object has no attribute '_array'")
        attrs = attributes(t)
        if "_array" not in attrs:
            attrs["_array"] = MSTensor.asnumpy(t)
        return attrs["_array"]


put("mindspore.common.tensor:Tensor._array", _Memory())


class _Geometry:
    """Geometry and dtype of a tensor, independent of where its memory is.

    Used by all layers above core. C getters add 15 ns to reading the array's attribute; a Python
    function would add 45 ns.
    """

    __slots__ = ()
    _sizes = property(operator.attrgetter("_array.shape"))              # `shape` as a plain tuple
    _np_dtype = property(operator.attrgetter("_array.dtype"))  # `dtype` as a NumPy dtype (core/tensor/dtypes.py)
    _numel = property(operator.attrgetter("_array.size"))
    _nbytes = property(operator.attrgetter("_array.nbytes"))
    _contiguous = property(operator.attrgetter("_array.flags.c_contiguous"))
    ndim = property(operator.attrgetter("_array.ndim"))


class _OfOurs:
    """Descriptor for a private attribute read from a MindSpore tensor, which is adopted on access.

    Only the facade's own code uses these names, and only on a tensor that was passed to it.
    """

    def __init__(self, name):
        self.name = name

    def __get__(self, t, cls=None):
        if t is None:
            return self
        if not is_tensor(t):
            raise AttributeError(f"'{type(t).__name__}' object has no attribute '{self.name}'")
        return getattr(t, self.name)


class Tensor(_Geometry, MSTensor, metaclass=_TensorMeta):
    """Multi-dimensional array with PyTorch's interface.

    See https://pytorch.org/docs/stable/tensors.html.
    """

    # Defaults are class attributes, so that creating a tensor sets only its memory.
    _array: Array  # its memory, or (on another device) a geometry-only array
    _is_mindtorch_tensor = True  # see private.is_ours
    _requires_grad_ = False        # requires grad
    _grad_fn_: Any = None  # node that produced it; None for leaves
    _output_nr = 0  # index among that node's outputs
    # synchronization window in which a device kernel for it was queued
    # (core/device/device_dispatch.py), or 0
    _enqueue_epoch = 0
    _grad_: Tensor | None = None          # .grad
    _fw_grad: dict[int, Tensor | None] | None = None  # tangents by level (core/autograd/forward_ad.py)
    _version_counter: VersionCounter | None = None  # created at the first view, write or save
    _base: Tensor | None = None  # tensor of which this one is a differentiable view
    _views: list[weakref.ref[Tensor]] | None = None      # weak references to the views of this base
    # "multi", "no_grad", "inference", "custom": a view through which autograd does not track writes
    # (see core/tensor/view_meta.py)
    _creation_meta: str | None = None
    _made = 0  # version count when a fragile view was created
    _functorch_level = 0  # serial number of the function transform in which it was created (core/transforms/functorch_levels.py)
    _view_without_history = False  # a view without history that requires grad only because its base does
    _tensor_hooks: dict[int, Callable[..., Any]] | None = None     # hooks on a leaf's gradient
    _post_accumulate_grad_hooks: dict[int, Callable[..., Any]] | None = None   # hooks after a leaf's gradient was accumulated
    _grad_accumulator: Any = None  # weak reference to its AccumulateGrad (core/autograd/graph.py), once created
    _retain = False
    _device = _device_module.cpu
    _handle: Handle | None = None  # handle of memory on a device (core/device/device_dispatch.py)
    _real = False  # of a device tensor: MindSpore's code sees the same memory (see `real`)
    _inference = False
    _detached_at = 0  # node sequence number at which detach_ detached this tensor; 0: never
    _grad_may_alias = False  # as a gradient: other code may reference the same memory
    _escaped_to_mindspore = False  # passed to MindSpore's code, which may share its memory
    _from_mindspore = False  # created by MindSpore and adopted
    _ms_proxy: Any = None  # proxy that MindSpore's ops receive in its place (see interop.py)

    # In the class body, because `__dict__` cannot be added to a class later.
    __dict__ = _USERS
    _shows_users_attributes = True

    def __new__(cls, *args, **kwargs):
        return _legacy(cls, args, kwargs)

    def __init__(self, *args, **kwargs):
        pass

    # ---- properties
    @property
    def shape(self) -> Size:
        return tuple.__new__(Size, self._array.shape)

    @property
    def dtype(self) -> DType:
        return of_np(self._array.dtype)

    @property
    def device(self) -> _device_module.device:
        return self._device

    ndim = _Geometry.ndim

    def asnumpy(self) -> Array:
        """Implements MindSpore's asnumpy: the values as an ndarray, which shares host memory."""
        if self._handle is not None:
            if self._handle.__class__ is ConjNegBits:
                raise conj_neg_bits.lazy_bits_error(self)
            bind_native_memory(self)
        elif not self._array.flags.writeable:
            hooks.unlock_memory(self)
        self._escaped_to_mindspore = True
        return MSTensor.asnumpy(self)

    @property
    def requires_grad(self) -> bool:
        return self._requires_grad_

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value.__class__ is not bool:
            raise RuntimeError("requires_grad must be a bool")
        set_requires_grad(self, value)

    @property
    def grad(self) -> Tensor | None:
        if self._grad_ is None and self._grad_fn_ is not None and not self._retain:
            _warn_nonleaf()
        return self._grad_

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        try:
            set_grad(self, value)
        except Exception as e:
            hide_internal_frames(e)
            raise

    @grad.deleter
    def grad(self) -> None:
        self._grad_ = None

    @property
    def grad_fn(self) -> Any:
        if self._creation_meta is not None and self._requires_grad_:
            check_inplace_on_view(self)
        return self._grad_fn_

    @property
    def is_leaf(self) -> bool:
        if self._creation_meta is not None and self._requires_grad_:
            check_inplace_on_view(self)
        return self._grad_fn_ is None

    @property
    def output_nr(self) -> int:
        return self._output_nr

    @property
    def _version(self) -> int:
        return 0 if self._version_counter is None else self._version_counter.v

    def __hash__(self) -> int:
        return id(self)


for _name in ("_sizes", "_np_dtype", "_numel", "_contiguous", *PRIVATE):
    put("mindspore.common.tensor:Tensor." + _name, _OfOurs(_name))


def _warn_nonleaf():
    import warnings
    warnings.warn("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
                  "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf "
                  "Tensor, use .retain_grad() on the non-leaf Tensor.", stacklevel=3)


def _legacy(cls, args, kwargs):
    t = hooks.legacy_constructor(*args, **kwargs)
    if TRANSFORMS.count:
        hooks.made_in_transform(t)
    if cls is not Tensor:
        t.__class__ = cls
        if hooks.subclass_made is not None:
            hooks.subclass_made(cls, t)
    return t


def wrap_array(a: Any) -> Tensor:
    """Creates a Tensor on an ndarray's memory (no copy); a NumPy scalar becomes a 0-dim tensor."""
    if a.__class__ is not ndarray:
        a = np.asarray(a) if not isinstance(a, GeometryArray) else a.copy()
    t = (from_contiguous(a) if a.flags.carray else from_array(a)) if not dispatch_state.meta else native_of(a)
    t.__class__ = Tensor
    t._array = a
    if INFERENCE.ever and mode.inference:
        t._inference = True
    return t


_NOTHING = np.empty(0, np.float32)
_pool: list[Any] = []


def on_device(dev: _device_module.device, handle: Handle, geometry: Array) -> Tensor:
    """Creates a Tensor on a device's memory.

    geometry: array without memory that has its shape, dtype and strides.
    """
    t = empty_tensor()
    t._array = geometry if geometry.__class__ is GeometryArray else geometry.view(GeometryArray)
    t._handle, t._device = handle, dev
    if INFERENCE.ever and mode.inference:
        t._inference = True
    return t


def bind_native_memory(t: Tensor) -> None:
    """Makes the native MindSpore tensor of a device tensor use the device's memory.

    Needed for MindSpore's own code only: it costs 5 us, and most tensors never need it. A Parameter
    keeps its own native tensor, because MindSpore's autograd and graphs identify it by that.
    """
    if not isinstance(t._handle, MSTensor):
        if t._handle.__class__ is ConjNegBits and not isinstance(t, MSParameter):
            raise NotImplementedError(f"a {t.dtype} tensor with the conjugate or negative bit on device {t._device} cannot be passed to "
                                      "MindSpore code: call resolve_conj() or resolve_neg() first")
        return
    backend_hooks.step_flush("MindSpore's code uses a tensor")
    if t._real:
        return
    if isinstance(t, MSParameter):
        if MSTensor.shape.__get__(t) != t._array.shape or t._native_stype != t._array.dtype:
            native = native_parameter(np.empty(t._array.shape, t._array.dtype))
            native.param_info = t.param_info
            swap_impl(t, native)
            t._native, t._native_stype = object(), t._array.dtype
        MSTensor.assign_value_cpp(t, _device_module.registered[t._device.type].writable(t._handle))
        MSParameter.requires_grad.fset(t, t._requires_grad_)
    else:
        share(t, t._handle)
    t._real = True


def empty_tensor() -> Any:
    """Returns a Tensor without memory, which then receives a device's memory.

    Created in batches: one takes 0.8 us, but 2.5 us right after a MindSpore kernel has evicted the
    processor's caches.
    """
    try:
        return _pool.pop()
    except IndexError:
        for _ in range(32):
            t = from_contiguous(_NOTHING)
            t.__class__ = Tensor
            _pool.append(t)
        t = from_contiguous(_NOTHING)
        t.__class__ = Tensor
        return t


def shallow_copy(t: Any) -> Tensor:
    """Returns another Tensor on the same memory, without history."""
    if t._handle is None:
        return wrap_array(t._array)
    if t._handle.__class__ is tensor_wrappers.SubclassHandle:
        return hooks.wrapper_shallow_copy(t)
    if t._handle.__class__ is ConjNegBits:
        return hooks.bits_shallow_copy(t)
    r = on_device(t._device, t._handle, t._array)
    r._enqueue_epoch = getattr(t, "_enqueue_epoch", 0)
    return r


def native_of(a: Array) -> Any:
    """Returns a MindSpore tensor on an array; an empty one for a meta array.

    A meta array has no values that MindSpore's kernels could read.
    """
    if dispatch_state.meta and a.size and is_meta_array(a):
        if not a.flags.c_contiguous:
            STRIDED.on = True
        return from_contiguous(np.empty(0, np.float32))
    return from_contiguous(a) if a.flags.carray else from_array(a)


def adopt(t: Any, dev: _device_module.device | None = None) -> Tensor:
    """Converts a MindSpore tensor to a Tensor: the object changes its class and keeps its memory.

    dev: its device, if that is not known otherwise. (MindSpore tensors have no device attribute.)
    """
    if Tensor in type(t).__mro__:
        return t
    if hooks.classify_native is not None and type(t) is MSTensor:
        found = hooks.classify_native(t, dev)
        if found is not None:
            t.__class__ = Tensor
            t._device, t._handle, t._array = found
            t._from_mindspore = t._real = True
            hooks.attach_native_history(t)
            return t
    if isinstance(t, MSParameter):
        t.__class__ = Parameter
        t._requires_grad_ = bool(MSParameter.requires_grad.fget(t))
        hooks.attach_native_history(t)
        return t
    if type(t) is hooks.lazy_tensor_class:
        t.__class__ = Tensor
        return t
    if type(t) is not MSTensor:
        return wrap_array(MSTensor.asnumpy(t))
    t.__class__ = Tensor
    t._from_mindspore = True
    hooks.attach_native_history(t)
    return t


def is_tensor(x: object, kind: type | None = None) -> TypeGuard[Tensor]:
    """True if an argument is a Tensor (or `kind`, e.g. a Parameter); a MindSpore tensor is adopted.

    Functions outside the op table, which the dispatcher does not call, convert tensors this way.
    """
    t = type(x)
    if t is not Tensor:
        mro = t.__mro__
        if MSTensor not in mro:
            return False
        if Tensor not in mro and adopt(x) is not x:
            return False
    return kind is None or kind in type(x).__mro__


def _is_native(x):
    mro = type(x).__mro__
    return MSTensor in mro and Tensor not in mro


@dispatcher.register_layer("ops", "native")
def _adopt_arguments(entry, args, kwargs, below):
    """Dispatcher layer: adopts MindSpore tensors among the arguments, also in lists and tuples."""
    if any([a.__class__ not in dispatcher.NON_TENSOR_TYPES and _is_native(a) for a in (*args, *kwargs.values())]) or any(
            [a.__class__ in (list, tuple) and any([_is_native(x) for x in a]) for a in args]):
        args, kwargs = tuple([_as_tensor(a) for a in args]), {k: _as_tensor(v) for k, v in kwargs.items()}
    return below(entry, args, kwargs)


def _as_tensor(a):
    if a.__class__ is list or a.__class__ is tuple:
        return a.__class__([_as_tensor(x) for x in a])
    return adopt(a) if _is_native(a) else a


class ScalarOperand(_Geometry):
    """Scalar operand of known dtype in place of a kernel's tensor operand.

    It has no MindSpore object and no history.
    """

    __slots__ = ("_array",)
    _requires_grad_ = False
    _grad_fn_ = _handle = _fw_grad = _base = None

    def __init__(self, value: Any, dtype: NpDtype) -> None:
        kind = dtype.kind
        if kind == "f" and -3e38 < value < 3e38 or kind == "b":
            self._array = np.array(value, dtype)
        else:
            self._array = constant(value, dtype)

    def conj(self) -> ScalarOperand:
        r = ScalarOperand(0, self._array.dtype)
        r._array = self._array.conj()
        return r


class SavedArray(_Geometry):
    """Kernel output that only gradient rules and other kernels read.

    It has no MindSpore object (which would cost 1 us) and no history, and must not be modified.
    """

    __slots__ = ("_array", "_handle", "_device")
    _requires_grad_ = False
    _grad_fn_ = _fw_grad = _base = None

    def __init__(self, a: Array, handle: Handle | None = None, dev: _device_module.device | None = None) -> None:
        self._array, self._handle, self._device = a, handle, dev


def saved_to_tensor(saved: SavedArray) -> Tensor:
    """Wraps a held kernel output as a Tensor, for an op that returns it after all."""
    return shallow_copy(saved)


def version_counter(t: Tensor) -> VersionCounter:
    """Returns the version counter of `t`'s storage."""
    v = t._version_counter
    if v is None:
        v = t._version_counter = VersionCounter()
    return v


def bump_version(t: Tensor) -> None:
    """Records a write to `t`'s memory, so that stale saved tensors are detected."""
    v = t._version_counter
    if v is None:
        v = t._version_counter = VersionCounter()
    v.v += 1


def detached(t: Tensor) -> Tensor:
    """Returns a tensor on the same memory and version counter, without history."""
    d = shallow_copy(t)
    v = t._version_counter
    if v is None:
        v = t._version_counter = VersionCounter()
    d._version_counter = v
    if INFERENCE.ever and d._inference is not t._inference:
        d._inference = t._inference
    if t._device is not d._device:
        set_device(d, t._device)
    return d


def set_device(t: Tensor, device: _device_module.device) -> None:
    """Sets the device of a tensor."""
    if device.type == "meta":
        hooks.register_meta_tensor(t)
    else:
        t._device = device


def set_storage(t: Tensor, x: Tensor) -> None:
    """Rebases `t` on the memory of the tensor `x`, with the same geometry."""
    if x._handle is None:
        replace_memory(t, x._array)
        if t._handle is not None:
            t._handle = None
    else:
        t._array, t._handle = x._array, x._handle
        t._real = False
    if t._device is not x._device:
        set_device(t, x._device)
    if t._handle is not None and Parameter in type(t).__mro__ and not backend_hooks.step_postpone(bind_native_memory, t):
        bind_native_memory(t)


def replace_memory(t: Tensor, a: Array) -> None:
    """Rebases `t` on another array, for `.data =`, `set_` and `resize_`.

    The native tensor of a Parameter stays and receives the memory, since a compiled MindSpore graph
    may hold it. It is replaced if dtype or shape change, since it keeps those of its first use;
    `_native` then identifies the new one.
    """
    if Parameter not in type(t).__mro__:
        swap_impl(t, native_of(a))
    elif a.dtype == t._array.dtype and a.shape == t._array.shape:
        MSTensor.assign_value_cpp(t, native_of(a))
    else:
        native = native_parameter(a)  # a graph would treat a plain tensor as a constant
        native.param_info = t.param_info
        swap_impl(t, native)
        t._native = object()
    t._array = a


def set_requires_grad(t: Tensor, value: bool) -> None:
    """Implements `requires_grad = value` with PyTorch's errors."""
    value = bool(value)
    if t._grad_fn_ is not None:
        if not value:
            raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want to use a computed "
                               "variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach().")
        return
    if value:
        if t._array.dtype.kind not in "fcV":
            raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
        if t._inference and not mode.inference:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
    t._requires_grad_ = value
    if t._view_without_history:
        t._view_without_history = False
    if t._views is not None and t._base is None:
        # Views without history require grad exactly when their base does.
        for ref in t._views:
            v = ref()
            if v is not None and v._grad_fn_ is None and v._requires_grad_ is not value and (v._view_without_history or value):
                v._requires_grad_ = v._view_without_history = value
    if isinstance(t, MSParameter):
        MSParameter.requires_grad.fset(t, value)


def set_grad(t: Tensor, value: Any) -> None:
    """Implements `.grad = value` with PyTorch's errors."""
    if value is None:
        t._grad_ = None
        return
    if not is_tensor(value):
        if isinstance(value, MSTensor):
            value = adopt(value)
        else:
            raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type_name(value)}")
    if value is t:
        raise RuntimeError("can't assign Variable as its own grad")
    if value.dtype is not t.dtype:
        raise RuntimeError(f"attempting to assign a gradient with dtype '{value.dtype}' to a tensor with dtype '{t.dtype}'. "
                           "Please ensure that the gradient and the tensor have the same dtype")
    if value.shape != t.shape:
        raise RuntimeError(f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size "
                           f"'{list(t.shape)}'. Please ensure that the gradient and the tensor are the same size")
    if value._device is not t._device and value.device != t._device:
        raise RuntimeError(f"attempting to assign a gradient with device type '{value.device.type}' to a tensor with device type '{t._device.type}'. "
                           "Please ensure that the gradient and the tensor are on the same device")
    t._grad_ = value


class Parameter(Tensor, MSParameter):
    """A leaf tensor registered as a parameter of a Module.

    It is also a `mindspore.Parameter` on the same memory.

    https://pytorch.org/docs/stable/generated/torch.nn.parameter.Parameter.html
    """

    _native = None     # see replace_memory
    _native_stype: NpDtype | None = None  # dtype of the native tensor created by `real`

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = wrap_array(np.empty(0, default_np()))
        elif not is_tensor(data):
            if not isinstance(data, MSTensor):
                raise TypeError(f"cannot create a Parameter from '{type_name(data)}': a Tensor is needed")
            data = adopt(data)
        elif hasattr(data, "_as_parameter"):  # a subclass with its own kind of Parameter
            return data._as_parameter(requires_grad)
        p = native_parameter(data._array if data._handle is None and data._device.type != "meta" else np.empty(0, np.float32))
        p.__class__ = cls
        p._array = data._array
        if data._device is not _device_module.cpu:
            set_device(p, data._device)
        if data._handle is not None:
            p._handle = data._handle
            bind_native_memory(p)
        p._version_counter = version_counter(data)
        if data._inference:
            p._inference = True
        if TRANSFORMS.count:
            p._functorch_level = data._functorch_level
        if requires_grad:
            set_requires_grad(p, True)
        else:
            MSParameter.requires_grad.fset(p, False)
        return p

    def __reduce_ex__(self, proto):
        return Tensor.__reduce_ex__(self, proto)


def _follow(p, t):
    """Rebases a Parameter on the memory and version counter of `t`."""
    set_storage(p, t)
    p._version_counter = version_counter(t)
