"""Tensor methods that are not ops: conversion to Python and NumPy, printing, metadata, autograd
calls, copies and subclasses."""
import collections
import weakref

import numpy as np

from mindtorch.backend.mindspore import checkpoint as _checkpoint  # noqa: F401  (mends MindSpore's save_checkpoint)
from mindtorch.backend.cpu import dlpack
from mindtorch.backend.cpu.host import address
from mindtorch.backend.mindspore import jit_fallback as _jit_fallback  # noqa: F401  (mindspore.jit over torch-style code)
from mindtorch.backend.mindspore import data_sink as _sink  # noqa: F401  (MindSpore's data sinking of torch-style networks)
from mindtorch.backend.mindspore.private import MSParameter, MSTensor, attributes, from_array
from mindtorch.core.tensor import inplace, conj_neg_bits, dtypes, printing
from mindtorch.core.device import device as _device, device_dispatch
from mindtorch.core.autograd import grad_mode
from mindtorch.core.transforms import functorch_levels
from mindtorch.core.tensor.dtypes import as_np, bfloat16_np, of_np
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.dispatch.op_schema import Int
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.primitives import Node, RemovableHandle, new_node, sequence
from mindtorch.core.tensor.tensor import (TRANSFORMS, Parameter, Size, Tensor, adopt, bump_version, detached, set_device, shallow_copy, replace_memory, set_grad, set_requires_grad,
                                   set_storage, is_tensor, wrap_array)
from mindtorch.core.tensor.stride_rules import is_format, strides_of as torch_strides
from mindtorch.core.tensor.sync import tensor_from, to_host
from mindtorch.core.tensor.tensor_wrappers import is_wrapped
from mindtorch.core.tensor.storage_impl import COW, host_memory, lazy_memory, storage_root, on_write
from mindtorch.ops.basic import cast
from mindtorch.ops.shapes.shape import format_name
from mindtorch.torch import _function_protocol, _types
from mindtorch.torch._inherited import is_closed

#: Capture policy of this module's functions under torch.compile (see `torch/_dynamo/_capture.py`).
CAPTURE = {"<lambda>": "safe", "_layout": "safe"}


def _def(fn):
    """Decorator that adds a function to Tensor as a method."""
    setattr(Tensor, fn.__name__, fn)
    return fn


# ------------------------------------------------------------------ conversion to Python and NumPy
@_def
def numpy(self, *, force=False):
    """Returns the tensor's memory as an ndarray without copying. With force=True, detaches and
    copies where sharing is impossible."""
    if force:
        a = to_host(self)
        return a.astype(np.float32) if a.dtype == bfloat16_np else a
    if self._handle is not None:
        if self._handle.__class__ is conj_neg_bits.ConjNegBits:
            raise conj_neg_bits.lazy_bits_error(self)
        raise TypeError(f"can't convert {self._device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")
    if self._requires_grad_ and grad_mode.mode.on:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    a = self._array
    if a.dtype.kind == "V":
        raise TypeError("Got unsupported ScalarType BFloat16")
    return a if not COW.on else host_memory(self)


@_def
def __array__(self, dtype=None, copy=None):
    a = self.numpy()
    return a if dtype is None else a.astype(dtype, copy=False)


Tensor.__array_priority__ = 1000


@_def
def __array_wrap__(self, array, context=None, return_scalar=False):
    if array.dtype == bool:
        array = array.astype(np.uint8)
    return wrap_array(np.asarray(array))


@_def
def item(self):
    """Returns the value of a one-element tensor as a Python scalar."""
    a = to_host(self)
    if a.size != 1:
        raise RuntimeError(f"a Tensor with {a.size} elements cannot be converted to Scalar")
    if a.dtype == bfloat16_np:
        return float(a.astype(np.float32).reshape(()))
    return a.item()


@_def
def tolist(self):
    """Returns nested lists of Python scalars (a single scalar for a 0-dim tensor)."""
    a = to_host(self)
    return (a.astype(np.float32) if a.dtype == bfloat16_np else a).tolist()


@_def
def __bool__(self):
    a = to_host(self)
    if a.size != 1:
        if a.size == 0:
            raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    return bool(a.item()) if a.dtype != bfloat16_np else bool(item(self))


def _only(t):
    """Returns the value of a one-element tensor, for float(), int() and complex()."""
    if t._numel != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    if t._requires_grad_ and mode.on:
        from mindtorch.core.dispatch import warn_once
        warn_once.warn_once("Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\nConsider using tensor.detach() first.", 3)
    return item(t)


def _real(value, kind):
    if value.__class__ is complex:
        if value.imag:
            raise RuntimeError(f"value cannot be converted to type {kind} without overflow")
        return value.real
    return value


@_def
def __float__(self):
    return float(_real(_only(self), "double"))


@_def
def __int__(self):
    return int(_real(_only(self), "int64_t"))


# PyTorch has no __round__; without this line MindSpore's would be inherited.
Tensor.__round__ = None


@_def
def __complex__(self):
    return complex(_only(self))


@_def
def __index__(self):
    a = to_host(self)
    if a.size != 1 or a.dtype.kind not in "iub":
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(a.item())


@_def
def __len__(self):
    sizes = self._sizes
    if not sizes:
        raise TypeError("len() of a 0-d tensor")
    return sizes[0]


@_def
def __iter__(self):
    if not self.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


@_def
def __contains__(self, element):
    if isinstance(element, (Tensor, int, float, complex, bool)):
        return bool((self == element).any().item())
    raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")


@_def
def is_nonzero(self):
    return bool(self)


def _format_args(t):
    a = to_host(t)
    name = of_np(a.dtype).name
    return a.astype(np.float32) if a.dtype == bfloat16_np else a, name


def _meta_repr(t):
    text = f"tensor(..., device='meta', size={tuple(t._sizes)}"
    if t.dtype is not dtypes.get_default_dtype():
        text += f", dtype={t.dtype}"
    if t._grad_fn_ is not None:
        text += f", grad_fn=<{type(t._grad_fn_).__name__}>"
    elif t._requires_grad_:
        text += ", requires_grad=True"
    return ("Parameter containing:\n" if is_tensor(t, Parameter) else "") + text + ")"


@_def
def __repr__(self, *, tensor_contents=None):
    """Formats the tensor like PyTorch."""
    if self._functorch_level and TRANSFORMS.count:
        from mindtorch.torch.func._printing import wrapped
        text = wrapped(self)
        if text is not None:
            return text
    if self._device.type == "meta":
        return _meta_repr(self)
    if tensor_contents is not None or self._handle is not None and is_wrapped(self):
        return _subclass_repr(self, tensor_contents)
    a, name = _format_args(self)
    fn = None if self._grad_fn_ is None else type(self._grad_fn_).__name__
    if self._creation_meta is not None and self._requires_grad_:
        try:
            _ = self.grad_fn
        except RuntimeError:
            fn = "Invalid"  # an in-place write has invalidated this view
    dev = None if self._device.type == "cpu" else str(self._device)
    text = printing.tensor_str(a, name, requires_grad=self._requires_grad_, grad_fn_name=fn, device=dev)
    if dispatch_state.dual is not None:
        text = _with_tangent(self, text)
    if is_tensor(self, Parameter):
        return "Parameter containing:\n" + text
    return text


def _with_tangent(t, text):
    from mindtorch.torch.autograd.forward_ad import tangent_of
    found = tangent_of(t)
    if found is None:
        return text
    return text[:-1] + f", tangent={repr(found)})"


Tensor.__str__ = Tensor.__repr__


def _subclass_repr(t, contents):
    """Formats a tensor subclass. `contents` is its text, or None if its values are unavailable."""
    more = [] if contents is not None else [f"size={tuple(t._sizes)}", f"dtype={t.dtype}"]
    if t._grad_fn_ is not None:
        more.append(f"grad_fn=<{type(t._grad_fn_).__name__}>")
    elif t._requires_grad_:
        more.append("requires_grad=True")
    return f"{'tensor' if type(t) is Tensor else type(t).__name__}({', '.join(['...' if contents is None else contents, *more])})"


@_def
def __format__(self, spec):
    if not self.ndim and type(self) is Tensor and self._device.type != "meta":
        return item(self).__format__(spec)
    return object.__format__(self, spec)


@_def
def __reversed__(self):
    return self.flip(0) if self.ndim else self


@_def
def __dir__(self):
    return sorted({n for n in object.__dir__(self) if not is_closed(n)} - {"__cuda_array_interface__"})


# ------------------------------------------------------------------ metadata
@_def
def size(self, dim: Int = None):
    """Returns the shape, or the size of one dimension."""
    if dim is None:
        return tuple.__new__(Size, self._sizes)
    s = self._sizes
    d = dim.__index__() if dim.__class__ is not int else dim
    n = len(s)
    if not -n <= d < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-max(n, 1)}, {max(n, 1) - 1}], but got {d})"
                         if n else f"Dimension specified as {d} but tensor has no dimensions")
    return s[d]


@_def
def dim(self):
    return self.ndim


Tensor.ndimension = dim


@_def
def numel(self):
    return self._numel


Tensor.nelement = numel


@_def
def element_size(self):
    return self._np_dtype.itemsize


Tensor.itemsize = property(lambda self: self._np_dtype.itemsize)
Tensor.nbytes = property(lambda self: self._nbytes)


@_def
def stride(self, dim: Int = None):
    """Returns the strides in elements."""
    a = self._array
    s = torch_strides(a)
    if not a.size and any(a.strides):  # an empty slice of another array: return its actual strides
        s = tuple([n // a.itemsize for n in a.strides])
    if dim is None:
        return s
    return s[dim]


@_def
def storage_offset(self):
    """Returns the offset of the first element in the storage, in elements."""
    a = self._array
    if self._handle is not None:
        return inplace.storage_extent(self)[0] // a.itemsize
    root = a
    while isinstance(root.base, np.ndarray):
        root = root.base
    return (a.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // a.itemsize


@_def
def data_ptr(self):
    """Returns the address of the first element."""
    if self._handle is not None:
        if self._handle.__class__ is conj_neg_bits.ConjNegBits:
            return data_ptr(self._handle.of)
        return device_dispatch.DEVICES[self._device.type].address(self._handle) if self._numel else 0
    if COW.on and not self._array.flags.writeable:
        on_write(self)
    return address(self._array) if self._numel and self._device.type != "meta" else 0


@_def
def is_contiguous(self, memory_format=None):
    """True if the memory is laid out in C order (or in the given memory format)."""
    if memory_format is None:
        return self._contiguous
    return is_format(self, format_name(memory_format))


@_def
def is_floating_point(self):
    return self._np_dtype.kind in "fV"


@_def
def is_complex(self):
    return self._np_dtype.kind == "c"


@_def
def is_signed(self):
    return self._np_dtype.kind not in "ub"


@_def
def is_inference(self):
    return self._inference


@_def
def is_same_size(self, other):
    return self._sizes == other._sizes


@_def
def is_set_to(self, tensor):
    """True if both tensors have the same memory, shape and strides."""
    if self._handle is not None or tensor._handle is not None:
        if self._handle.__class__ is conj_neg_bits.ConjNegBits or tensor._handle.__class__ is conj_neg_bits.ConjNegBits:
            return False  # like PyTorch, which ignores the lazy bits here
        return self._device == tensor._device and self._sizes == tensor._sizes and self.stride() == tensor.stride() and data_ptr(self) == data_ptr(tensor)
    a, b = self._array, tensor._array
    return a.shape == b.shape and a.strides == b.strides and storage_root(a) is storage_root(b) and (address(a) == address(b) or not a.size)


@_def
def get_device(self):
    return -1 if self._device.type == "cpu" else (self._device.index or 0)


@_def
def is_conj(self):
    """True if the lazy conjugate bit is set: the values are the conjugate of the stored memory."""
    return conj_neg_bits.is_conj(self)


@_def
def is_neg(self):
    """True if the lazy negative bit is set: the values are the negation of the stored memory."""
    return conj_neg_bits.is_neg(self)


@_def
def _is_view(self):
    return self._base is not None


for _name, _value in [("is_cpu", "cpu"), ("is_meta", "meta"), ("is_mps", "mps"), ("is_xpu", "xpu"), ("is_xla", "xla"),
                      ("is_ipu", "ipu"), ("is_hpu", "hpu"), ("is_mtia", "mtia"), ("is_vulkan", "vulkan"), ("is_maia", "maia")]:
    setattr(Tensor, _name, property(lambda self, v=_value: self.device.type == v))
# `torch.cuda.is_available()` is True on a machine with an NPU, so `device = "cuda" if x.is_cuda
# else "cpu"` must find x there under either name.
Tensor.is_cuda = property(lambda self: _device.answers_to(self.device, "cuda"))
Tensor.is_npu = property(lambda self: _device.answers_to(self.device, "npu"))
for _name in ("is_sparse", "is_quantized", "is_nested", "is_mkldnn", "is_sparse_csr"):
    setattr(Tensor, _name, property(lambda self: False))
for _name in ("_is_zerotensor", "is_pinned", "is_distributed", "_has_symbolic_sizes_strides"):
    setattr(Tensor, _name, lambda self, *a, **k: False)
Tensor._has_symbolic_sizes_strides = property(lambda self: False)
Tensor.names = property(lambda self: (None,) * self.ndim)
Tensor.name = property(lambda self: None)
Tensor.volatile = property(lambda self: False)


@_def
def has_names(self):
    return False


def _has_rank(fmt, ndim):
    return ndim == {"torch.channels_last": 4, "torch.channels_last_3d": 5}.get(str(fmt), ndim)


@_def
def dim_order(self, *, ambiguity_check=False):
    """Returns the dimensions from the outermost to the innermost in memory.

    ambiguity_check: True, or a list of memory formats. Raises RuntimeError if the strides allow
    several orders and the tensor does not match exactly one of those formats.
    """
    s = torch_strides(self._array)
    if ambiguity_check is not False:
        formats = () if ambiguity_check is True else ambiguity_check
        if not isinstance(formats, (list, tuple)) or not all([isinstance(f, _types.memory_format) for f in formats]):
            raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
        if (1 in self._sizes or 0 in s or len(set(s)) < len(s)) and sum([self.is_contiguous(memory_format=f) for f in formats if _has_rank(f, len(s))]) != 1:
            raise RuntimeError("The tensor does not have unique dim order, or cannot map to exact one of the given memory formats.")
    return tuple(sorted(range(len(s)), key=lambda i: -s[i]))


# ------------------------------------------------------------------ autograd
def _data_get(self):
    # a version counter of its own: autograd does not see writes through .data, as in PyTorch
    d = shallow_copy(self)
    if self._device is not d._device:
        set_device(d, self._device)
    return d


def _data_set(self, value):
    if not is_tensor(value):
        if not isinstance(value, MSTensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type_name(value)}")
        value = adopt(value)
    if self._requires_grad_ and value._np_dtype.kind not in "fcV":
        raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
    set_storage(self, value)


def _undeletable(text):
    """Returns a property deleter that raises RuntimeError with `text`."""
    def refuse(self):
        raise RuntimeError(text)
    return refuse


def _set_grad_fn(self, value):
    if value is not None:
        raise TypeError("_grad_fn can only be set to None")
    self.detach_()


def _delete_grad(self):
    self._grad_ = None


Tensor.data = property(_data_get, _data_set, _undeletable("Deleting tensor data is not allowed. Delete tensor instead!"))
Tensor.requires_grad = Tensor.requires_grad.deleter(_undeletable("requires_grad must be a bool"))
Tensor._grad_fn = property(lambda self: self.grad_fn, _set_grad_fn, _undeletable("Deletion of _grad_fn not allowed. Detach tensor instead!"))
Tensor._grad = property(lambda self: self._grad_, set_grad, _delete_grad)


@_def
def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """Computes the gradients of this tensor with respect to the graph's leaves and accumulates them
    in their .grad."""
    from mindtorch.torch.autograd import backward as run
    try:
        run(self, gradient, retain_graph, create_graph, inputs=inputs)
    except Exception as e:
        hide_internal_frames(e)
        raise


@_def
def requires_grad_(self, requires_grad=True):
    try:
        if TRANSFORMS.count:
            functorch_levels.refuse_requires_grad()
        set_requires_grad(self, requires_grad)
        return self
    except Exception as e:
        hide_internal_frames(e)
        raise


@_def
def detach(self):
    """Returns a tensor that shares this tensor's memory but has no autograd history. In-place
    writes to either are visible in both."""
    return detached(self)


@_def
def detach_(self):
    """Detaches the tensor from its autograd history, in place."""
    if self._base is not None:
        raise RuntimeError("Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for "
                           "training, and gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence "
                           "detach_() cannot be called on these gradients.")
    if self._grad_fn_ is not None:
        self._detached_at = next(sequence)
    self._grad_fn_, self._output_nr, self._requires_grad_ = None, 0, False
    if self._fw_grad is not None:
        self._fw_grad = None
    return self


@_def
def retain_grad(self):
    """Makes the next backward pass store .grad of this non-leaf tensor."""
    if not self._requires_grad_:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if TRANSFORMS.count:
        functorch_levels.refuse_retain_grad()
    n = self._grad_fn_
    if n is None or self._retain:
        return
    if n._retains_grad is None:
        n._retains_grad = {}
    n._retains_grad[self._output_nr] = weakref.ref(self)
    self._retain = True


Tensor.retains_grad = property(lambda self: self._retain)


@_def
def register_hook(self, hook):
    """Registers hook(grad) -> None or a new gradient, called each time the gradient of this tensor
    is computed."""
    if not self._requires_grad_:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    n = self._grad_fn_
    if n is None:
        if self._tensor_hooks is None:
            self._tensor_hooks = collections.OrderedDict()
        d = self._tensor_hooks
    else:
        if n._tensor_hooks is None:
            n._tensor_hooks = {}
        d = n._tensor_hooks.setdefault(self._output_nr, collections.OrderedDict())
    h = RemovableHandle(d)
    d[h.id] = hook
    return h


@_def
def register_post_accumulate_grad_hook(self, hook):
    """Registers hook(param), called after the gradient of this leaf is accumulated."""
    if not self._requires_grad_:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self._grad_fn_ is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    if self._post_accumulate_grad_hooks is None:
        self._post_accumulate_grad_hooks = collections.OrderedDict()
    h = RemovableHandle(self._post_accumulate_grad_hooks)
    self._post_accumulate_grad_hooks[h.id] = hook
    return h


def _hooks_get(self):
    n = self._grad_fn_
    return self._tensor_hooks if n is None else None if n._tensor_hooks is None else n._tensor_hooks.get(self._output_nr)


def _hooks_set(self, value):
    if value is not None and not isinstance(value, dict):
        raise TypeError(f"_backward_hooks has to be a dict or None, but got {type_name(value)}")
    n = self._grad_fn_
    if n is None:
        self._tensor_hooks = value
    elif value is not None or n._tensor_hooks:
        n._tensor_hooks = {**(n._tensor_hooks or {}), self._output_nr: value or {}}


Tensor._backward_hooks = property(_hooks_get, _hooks_set, _undeletable("Deletion of _backwards_hooks not allowed!"))


# ------------------------------------------------------------------ copies, pickling, subclasses
@_def
def __deepcopy__(self, memo):
    from mindtorch.torch.serialization import deepcopy_tensor
    return deepcopy_tensor(self, memo)


Parameter.__deepcopy__ = __deepcopy__


@_def
def __reduce_ex__(self, proto):
    from mindtorch.torch.serialization import reduce_tensor
    return reduce_tensor(self, proto)


@_def
def storage(self):
    """Returns this tensor's storage as a TypedStorage."""
    from mindtorch.torch.storage import TypedStorage
    return TypedStorage._of(self)


Tensor._typed_storage = storage


@_def
def untyped_storage(self):
    """Returns this tensor's storage."""
    from mindtorch.torch.storage import UntypedStorage
    return UntypedStorage._of(self)


class LazyCloneBackward0(Node):
    """Autograd node of `_lazy_clone`: passes the gradient through unchanged."""

    __slots__ = ()

    def _apply(self, gs):
        return gs


@_def
def _lazy_clone(self):
    """Returns a copy-on-write clone: it shares memory until either tensor is modified or its memory
    is exposed (data_ptr(), numpy(), DLPack).

    Copies immediately if the memory is already exposed to something other than a tensor, or if the
    tensor is on a device.
    """
    a = lazy_memory(self)
    if a is None:
        return self.clone()
    r = wrap_array(a)
    if mode.on and self._requires_grad_:
        n = new_node(LazyCloneBackward0)
        n._prim, n._next_edges, n._input_metadata = None, [inplace._edge(self)], ((a.shape, a.dtype),)
        r._grad_fn_, r._requires_grad_ = n, True
    return r


@_def
def as_subclass(self, cls):
    """Returns this tensor as an instance of a Tensor subclass that shares its memory and autograd
    history."""
    t = self.view_as(self) if self._requires_grad_ else detached(self)
    try:
        t.__class__ = cls
    except TypeError:  # the class defines its own __slots__
        attribute_dict = attributes(t)
        t, first = MSTensor.__new__(cls), t
        MSTensor.__init__(t, first)
        attributes(t).update(attribute_dict)
    _function_protocol.subclass_made(cls, t)
    return t


@staticmethod
def _make_subclass(cls, data, require_grad=False, dispatch_sizes_strides_policy=None):
    if issubclass(cls, Parameter):
        # This makes the result a mindspore.Parameter too, whatever the class's own __new__ does.
        t = Parameter.__new__(Parameter, detached(data), False)
    else:
        t = detached(data)
    t.__class__ = cls
    _function_protocol.subclass_made(cls, t)
    if require_grad:
        set_requires_grad(t, True)
    return t


Tensor._make_subclass = _make_subclass


@staticmethod
def _make_wrapper_subclass(cls, size, strides=None, storage_offset=None, memory_format=None, dtype=None, layout=None, device=None, pin_memory=False,
                           requires_grad=False, dispatch_sizes_strides_policy=None, dispatch_device=False, dispatch_layout=False, storage_size=None):
    from mindtorch.torch import _dispatch_protocol
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError("cls must be a type (got " + type(cls).__name__ + ")")
    if not _dispatch_protocol.takes_part_class(cls):
        raise RuntimeError(f"{cls.__name__} must define __torch_dispatch__: a wrapper tensor has no storage to compute on")
    return _dispatch_protocol.make_wrapper(cls, size, strides, storage_offset, dtype or dtypes.get_default_dtype(), device, requires_grad)


Tensor._make_wrapper_subclass = _make_wrapper_subclass


@_def
def apply_(self, callable):
    """Applies a Python function to every element, in place."""
    a = host_memory(self)
    if self._requires_grad_:
        raise RuntimeError("Can't call apply_() on Variable that requires grad. Use var.detach().apply_() instead.")
    flat = [callable(x) for x in a.reshape(-1).tolist()]
    _check_scalars(flat)
    a[...] = np.array(flat, a.dtype).reshape(a.shape)
    bump_version(self)
    return self


def _check_scalars(values):
    for v in values:
        if not isinstance(v, (int, float, complex, np.generic, Tensor)):
            raise TypeError(f"must be real number, not {type(v).__name__}")


def _check_mapped(name, self, **others):
    """Checks the operands of map_ and map2_: same dtype, none requires grad."""
    if self._requires_grad_ or any([o._requires_grad_ for o in others.values()]):
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    for k, o in others.items():
        if o._np_dtype != self._np_dtype:
            raise TypeError(f"{name}: expected a tensor of dtype {self.dtype} for '{k}' (got {o.dtype})")


@_def
def map_(self, tensor, callable):
    """Sets self[i] = callable(self[i], tensor[i]) in place."""
    _check_mapped("map_", self, other=tensor)
    a, b = np.broadcast_arrays(host_memory(self), to_host(tensor))
    self._array[...] = np.array([callable(x, y) for x, y in zip(a.reshape(-1).tolist(), b.reshape(-1).tolist())],
                                a.dtype).reshape(a.shape)
    bump_version(self)
    return self


@_def
def to_dense(self, dtype=None, *, masked_grad=None):
    """Returns the tensor itself (this class is always strided), cast to `dtype` if passed."""
    return self if dtype is None else cast(self, as_np(dtype))


def _refused(name, why):
    def method(self, *args, **kwargs):
        raise NotImplementedError(f"Tensor.{name}: {why} (dtype {self.dtype}, device {self._device})")
    method.__name__ = name
    setattr(Tensor, name, method)


@_def
def sum_to_size(self, *size):
    """Sums over the dimensions along which broadcasting `size` to this shape would expand."""
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = tuple(size[0])
    a = self._sizes
    if len(size) > len(a) or any(n not in (1, m) for n, m in zip(reversed(size), reversed(a))):
        raise RuntimeError(f"size {{{list(size)}}} is not expandable to size {{{list(a)}}}.")
    lead = len(a) - len(size)
    dims = [i for i in range(len(a)) if i < lead or size[i - lead] == 1 != a[i]]
    if not dims:
        # like PyTorch: a 0-dim tensor is summed, an integer one to int64
        return self if a else self.sum()
    r = self.sum(dims, keepdim=True)
    return r.view(r.shape[lead:]) if lead else r


@_def
def storage_type(self):
    """Returns the legacy storage class (torch.FloatStorage, ...) of this tensor's dtype."""
    from mindtorch.torch.storage import CLASS_OF, TypedStorage
    return CLASS_OF.get(self.dtype, TypedStorage)


@_def
def const_data_ptr(self):
    """Returns the address of the first element for reading: a copy-on-write clone is not
    materialized."""
    return data_ptr(self) if self._handle is not None or not self._numel or self._device.type == "meta" else address(self._array)


@_def
def record_stream(self, stream):
    """Does nothing: there are no streams without an accelerator."""


@_def
def map2_(self, x, y, callable):
    """Sets self[i] = callable(self[i], x[i], y[i]) in place."""
    _check_mapped("map2_", self, x=x, y=y)
    a, b, c = np.broadcast_arrays(host_memory(self), to_host(x), to_host(y))
    flat = [callable(*v) for v in zip(*(t.reshape(-1).tolist() for t in (a, b, c)))]
    self._array[...] = np.array(flat, a.dtype).reshape(a.shape)
    bump_version(self)
    return self


@_def
def module_load(self, other, assign=False):
    """Returns the value that Module.load_state_dict assigns to this parameter."""
    return other.detach() if assign else self.copy_(other).detach()


@_def
def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """Returns a DLPack capsule of the memory (of a copy if copy=True). Raises BufferError if the
    memory cannot be shared."""
    if self._requires_grad_:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if self._device.type == "meta":
        raise BufferError("Can't export a meta tensor: it has no memory")
    if conj_neg_bits.is_conj(self):
        raise BufferError("Can't export tensors with the conjugate bit set")
    if conj_neg_bits.is_neg(self):
        raise BufferError("Can't export tensors with the negative bit set: DLPack cannot represent it. Use resolve_neg() first")
    if self._handle is not None and dl_device is not None and tuple(dl_device) == (1, 0) and copy is not False:
        return dlpack.export(to_host(self))
    if self._handle is not None:
        raise BufferError(f"Can't export a tensor on device {self._device}: DLPack has no name for an NPU's memory. Use Tensor.cpu() to copy the tensor to host memory "
                          "first.")
    if dl_device is not None and tuple(dl_device) != (1, 0):
        raise BufferError(f"Can't export to device {tuple(dl_device)}: the memory is the host's, (1, 0)")
    return dlpack.export(self._array.copy() if copy else host_memory(self))


@_def
def __dlpack_device__(self):
    if self._handle is not None:
        return 12, self._device.index      # kDLExtDev
    return 1, 0


def _cuda_array_interface(self):
    raise AttributeError(f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} If CUDA data is required use tensor.cuda() to copy tensor "
                         "to device memory." if self._handle is None else
                         f"Can't get __cuda_array_interface__ of a tensor on device {self._device}: its memory is an NPU's, which CUDA code cannot read")


Tensor.__cuda_array_interface__ = property(_cuda_array_interface)


def _layout(self):
    from mindtorch.torch._types import NAMES
    return NAMES["strided"]


Tensor.layout = property(_layout)
Tensor.grad_dtype = property(lambda self: self.dtype)

_refused("to_mkldnn", "MKL-DNN's layouts are not supported")
for _name in ("dequantize", "int_repr", "q_scale", "q_zero_point", "qscheme", "q_per_channel_axis", "q_per_channel_scales",
              "q_per_channel_zero_points"):
    _refused(_name, "quantized tensors are not supported")
_refused("to_padded_tensor", "nested tensors are not supported")
for _name in ("refine_names", "rename", "rename_", "align_to", "align_as"):
    _refused(_name, "named tensors are not supported")

Tensor.__module__ = "mindtorch.torch"
Parameter.__module__ = "mindtorch.torch.nn.parameter"


def _set_data(self, data, slice_shape=False):
    """Sets the value of a parameter (MindSpore's API). Same shape and dtype are written in place,
    so views and optimizers see the value."""
    if not isinstance(data, MSTensor):
        raise TypeError(f"Parameter.set_data needs a tensor, got {data.__class__.__name__}")
    if getattr(data, "has_init", False):
        data = data.init_data()
    a = MSTensor.asnumpy(data) if not is_tensor(data) else to_host(data)
    if a.shape != self._sizes or a.dtype != self._np_dtype:
        a = a.astype(self._np_dtype)
        if self._handle is None:
            replace_memory(self, a)
        else:
            set_storage(self, tensor_from(a, self))
    else:
        inplace.store(self, wrap_array(a))
    return self


def _param_clone(self, init=None, *, memory_format=None):
    """Like Tensor.clone. With `init` (MindSpore's signature, `clone('zeros')`), a new
    mindspore.Parameter filled by that initializer."""
    if init is None:
        return Tensor.clone(self, memory_format=memory_format)
    return MSParameter(from_array(to_host(self).copy()), name=self.name, requires_grad=self._requires_grad_).clone(init)


Parameter.clone = _param_clone
Parameter.set_data = _set_data
Parameter.name = property(MSParameter.name.fget, MSParameter.name.fset)

# Methods that both mindspore.Tensor and mindspore.Parameter define: Parameter's version must win,
# because saving and Model.train call it.
for _name in ("init_data", "_offload", "value"):
    setattr(Parameter, _name, vars(MSParameter)[_name])

from mindtorch.core.mindspore import bootstrap  # noqa: E402,F401
