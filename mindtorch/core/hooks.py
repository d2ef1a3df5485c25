"""Hooks: functions and classes that core calls and other modules provide.

A lower module cannot import the modules above it. It reads a field of `hooks` instead. There are
two kinds of fields:

- Functions that are always needed. The bootstrap modules assign them once, at import:
  `core/bootstrap.py` those of core, `ops/_bootstrap.py` those of the ops,
  `core/mindspore/bootstrap.py` those of `core/mindspore/`, `torch/_bootstrap.py` those of the
  facade. Before that a call raises RuntimeError.
- Functions of a feature that is switched on and off, or loaded on first use. The feature's module
  assigns them. The docstring names it.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NoReturn

from mindtorch.backend.hooks import nothing, unset

if TYPE_CHECKING:
    from mindtorch.backend.device import Handle
    from mindtorch.backend.interface import Array, NpDtype, Sizes
    from mindtorch.core.device.device import device
    from mindtorch.core.tensor.tensor import SavedArray, Tensor


def _no_sparse(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    raise NotImplementedError(f"'{name}' of sparse tensors before there are any")


def _no_weakrefs(t: Tensor) -> int:
    return 0


_CORE, _OPS, _FACADE = "mindtorch.core.bootstrap", "mindtorch.ops", "mindtorch.torch"
_MINDSPORE, _STEPS = "mindtorch.core.mindspore.bootstrap", "mindtorch.core.mindspore.ops"


@dataclasses.dataclass(slots=True, eq=False)
class Hooks:
    """The hooks of core. Each field is followed by its purpose and its provider."""

    # -------------------------------------------------------------- basic differentiable ops
    cast: Callable[[Tensor, NpDtype], Tensor] = unset("cast", _OPS)
    """Casts a tensor to a NumPy dtype. From ops/basic.py."""
    add: Callable[[Tensor, Tensor], Tensor] = unset("add", _OPS)
    """Adds two gradients. From ops/basic.py."""
    clone: Callable[[Tensor], Tensor] = unset("clone", _OPS)
    """Copies a tensor. From ops/basic.py."""
    new_full: Callable[..., Tensor] = unset("new_full", _OPS)
    """new_full(like, size=, value=, np_dtype=): a tensor of one value on the device of `like`. From
    ops/basic.py."""
    sum_to: Callable[..., Tensor] = unset("sum_to", _OPS)
    """sum_to(gradient, size=): sums a gradient over broadcast dimensions. From ops/basic.py."""
    cast_grad: Callable[[Tensor, NpDtype], Tensor] = unset("cast_grad", _OPS)
    """Casts a gradient to the dtype of its tensor. From ops/basic.py."""

    # -------------------------------------------------------------- tensors
    legacy_constructor: Callable[..., Tensor] = unset("legacy_constructor", _OPS)
    """Implements torch.Tensor(2, 3) and torch.Tensor([1., 2.]). From ops/creation/create.py."""
    unlock_memory: Callable[[Tensor], object] = unset("unlock_memory", _CORE)
    """Gives a copy-on-write tensor its own memory, before its array is exposed to writes. From
    core/tensor/storage_impl.py."""
    register_meta_tensor: Callable[[Tensor], None] = unset("register_meta_tensor", _CORE)
    """Sets a tensor's device to meta and registers it. From core/dispatch/meta.py."""
    meta_wanted: Callable[[], None] = nothing
    """Called before the first meta tensors are created. From core/dispatch/meta.py."""
    meta_like: Callable[[Tensor], Tensor] = unset("meta_like", _CORE)
    """Returns a meta tensor with the geometry of a tensor. From core/dispatch/meta.py."""
    attach_native_history: Callable[[Tensor], Any] = unset("attach_native_history", _FACADE)
    """Attaches the history of a tensor that MindSpore's autograd recorded. From
    core/mindspore/autograd.py."""
    lazy_tensor_class: Any = None
    """Class of MindSpore tensors with deferred values. From core/mindspore/functional_grad.py. None:
    there are none yet."""
    materialize_native: Callable[[Tensor], None] = unset("materialize_native", _MINDSPORE)
    """Computes the values of a MindSpore tensor with deferred values. From
    core/mindspore/functional_grad.py."""
    defer_native_op: Callable[..., Any] = unset("defer_native_op", _STEPS)
    """(op, its name, args, kwargs): the deferred result of a MindSpore op in a compiled step, or
    `NO` of backend/hooks.py. From core/mindspore/ops.py."""
    defer_native_layer: Callable[[Any, Any], Any] = unset("defer_native_layer", _STEPS)
    """(Cell, args): the deferred result of a MindSpore layer in a compiled step, or `NO`. From
    core/mindspore/ops.py."""
    classify_native: Callable[[Any, device | None], tuple[device, Handle, Array] | None] | None = None
    """(MindSpore tensor, device or None) -> (device, handle, geometry) for memory on a device, else
    None. Assigned by core/device/backend_autoload.py when a device is registered; None without a
    device."""
    subclass_made: Callable[..., None] | None = None
    """(class, optional instance): called for a user's Tensor subclass, so that `__torch_function__`
    is checked from then on. From torch/_function_protocol.py."""
    made_in_transform: Callable[[Tensor], object] = unset("made_in_transform", _CORE)
    """Called with a tensor that no public function created while function transforms are active.
    From core/transforms/functorch_levels.py."""
    storage_on: Callable[[Array], Any] = unset("storage_on", _FACADE)
    """Returns the storage object of a root array, or None. From torch/_untyped_storage.py."""
    storage_moved: Callable[[Array, Array], object] = unset("storage_moved", _FACADE)
    """(root array, new array): called when a storage has moved. From torch/_untyped_storage.py."""
    tensor_of_storage: Callable[..., Tensor] = unset("tensor_of_storage", _FACADE)
    """(storage, dtype, offset, size, stride) -> tensor on the storage's memory. From
    torch/storage.py."""
    resize_host: Callable[[Tensor, Sizes], Tensor] = unset("resize_host", _CORE)
    """Implements resize_ of a host tensor. From core/dispatch/op_registry.py."""

    # -------------------------------------------------------------- lazy conjugate and negative bits
    bits_shallow_copy: Callable[[Tensor], Tensor] = unset("bits_shallow_copy", _CORE)
    """Returns another tensor with bits on the same values, without history. This and the other hooks
    of tensors with bits are from core/dispatch/lazy_conj.py."""
    bits_write: Callable[[Tensor, Any], None] = unset("bits_write", _CORE)
    """(tensor with bits, scalar or tensor that broadcasts to it): stores a value without bumping the
    version counter."""
    bits_values: Callable[[Tensor | SavedArray], Array] = unset("bits_values", _CORE)
    """Returns the values of a tensor with bits as a host array."""
    bits_resolved: Callable[[Tensor], Tensor] = unset("bits_resolved", _CORE)
    """Returns the values of a tensor with bits on its device, without bits and history."""
    bits_set_memory: Callable[[Tensor, Tensor, bool, bool], None] = unset("bits_set_memory", _CORE)
    """(tensor that has bits or will have them, tensor without bits, conjugate bit, negative bit):
    moves the first tensor to the memory of the second."""
    bits_flipped: Callable[[Tensor, Any], Any] = unset("bits_flipped", _CORE)
    """(tensor with bits, value) -> what its memory must hold for the tensor to have this value."""
    bits_related: Callable[[Tensor, Tensor, Any], Any] = unset("bits_related", _CORE)
    """(view, its base, value of the view) -> the corresponding value of the base's region, with
    history."""
    bits_turning: Callable[[Any, Tensor, Tensor], Any] = unset("bits_turning", _CORE)
    """(node that reads the region, view, base) -> node that reads the view."""

    # -------------------------------------------------------------- wrapper tensors
    wrapper_shallow_copy: Callable[[Tensor], Tensor] = unset("wrapper_shallow_copy", _FACADE)
    """Returns another tensor on the values of a tensor with `__torch_dispatch__`, without history.
    This and the other hooks of such tensors are assigned by torch/_dispatch_protocol.py, which is
    loaded with the first of them."""
    wrapper_write: Callable[[Tensor, Any], None] = unset("wrapper_write", _FACADE)
    """(tensor, value): stores a value."""
    wrapper_values: Callable[[Tensor | SavedArray], Array] = unset("wrapper_values", _FACADE)
    """Returns the values as a host array, or raises an error."""
    wrapper_changed: Callable[[Tensor], None] = unset("wrapper_changed", _FACADE)
    """Called when a tensor becomes or stops being an instance of such a class."""
    count_weakrefs: Callable[[Tensor], int] = _no_weakrefs
    """Returns the number of weak references that only track the tensor's lifetime. 0 before there
    are such tensors."""
    batched_write: Callable[[Tensor, Any], None] = unset("batched_write", _CORE)
    """(slice of a vmap, value): stores a value. From core/transforms/vmap.py."""
    batched_values: Callable[[Tensor | SavedArray], Array] = unset("batched_values", _CORE)
    """Returns the values of a slice of a vmap, or raises an error. From core/transforms/vmap.py."""
    batched_write_by: Callable[..., None] = unset("batched_write_by", _CORE)
    """(slice of a vmap, kernel's name, kernel, operands, constants): runs a kernel that writes to
    its values. From core/transforms/vmap.py."""

    # -------------------------------------------------------------- dispatcher
    sparse_answer: Callable[[str, tuple[Any, ...], dict[str, Any]], Any] = _no_sparse
    """(op's name, args, kwargs): computes an op on sparse operands. From core/tensor/sparse.py."""
    read_number: Callable[[str, str, Any, Any], Any] = unset("read_number", _CORE)
    """(function's name, parameter, its kind, argument that is not a scalar) -> the scalar that it
    represents. From core/tensor/scalars.py."""

    # -------------------------------------------------------------- autograd
    accumulate: Callable[..., None] = unset("accumulate", _CORE)
    """(leaf, gradient, create_graph): adds a gradient to `leaf.grad`. From core/autograd/engine.py."""
    anomaly: Callable[..., None] | None = None
    """(node, error or None, gradients): reports an error or nan of a node. Assigned by
    torch/autograd/anomaly_mode.py while anomaly detection is on, else None."""
    stack_recorder: Callable[[Any, int], None] | None = None
    """(results, sequence number): stores the stack in the nodes of results that were created since.
    Assigned by torch/autograd/anomaly_mode.py while anomaly detection is on, else None."""
    tangent_backward: Callable[[Any, Any], Any] | None = None
    """(node, gradients): computes a node's gradients with tangents attached. Assigned by
    core/autograd/forward_ad.py while a forward-mode level is open, else None."""
    tangent_write: Callable[[Tensor, Any, int], None] | None = None
    """(modified tensor, tensor equal to its new value, sequence number from which that was
    computed): propagates tangents through a write. Assigned by core/autograd/forward_ad.py while a
    forward-mode level is open, else None."""
    node_observer: Callable[[Any, int], Generator[None, None, None]] | None = None
    """(node, number) -> generator that observes a node. It runs to its first yield before the
    gradient rule, to the second after it, and to its end when the gradients have been passed on.
    Assigned by torch/autograd/profiler.py while it records, else None."""
    grad_mode_changed: Callable[[bool], None] | None = None
    """Passes this thread's grad mode to MindSpore. Assigned by core/mindspore/autograd.py at the
    first MindSpore op on facade tensors; None before."""

    # -------------------------------------------------------------- devices
    device_generator: Callable[[device], Any] = unset("device_generator", _OPS)
    """Creates a device's default generator. From ops/creation/random.py, which defines
    torch.Generator."""


hooks = Hooks()
