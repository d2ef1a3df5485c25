"""Automatic differentiation (https://pytorch.org/docs/stable/autograd.html)."""
import contextlib
import math
import warnings

import numpy as np

from mindtorch.core.transforms import vmap, functorch_levels
from mindtorch.core.autograd import engine, forward_ad as forward, graph as autograd_graph
from mindtorch.core.dispatch import meta
from mindtorch.core.device.device import cpu as cpu_device
from mindtorch.core.dispatch.dispatcher import dispatch_state, is_enabled
from mindtorch.core.tensor.dtypes import of_np
from mindtorch.core.dispatch.error_messages import is_pytorch_tensor, type_name
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.autograd.grad_mode import (enable_grad, inference_mode, is_grad_enabled, mode, no_grad,  # noqa: F401
                                      set_grad_enabled)
from mindtorch.core.tensor.sparse import Sparse, SparseUse
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import TRANSFORMS, Size, Tensor, shallow_copy, is_tensor, wrap_array  # noqa: F401
from mindtorch.ops.basic import new_full
from mindtorch.torch.autograd import anomaly_mode, forward_ad, functional, graph, profiler, profiler_util  # noqa: F401
from mindtorch.torch.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly  # noqa: F401
from mindtorch.torch.autograd.function import Function, NestedIOFunction  # noqa: F401
from mindtorch.torch.autograd.gradcheck import gradcheck, gradgradcheck  # noqa: F401
from mindtorch.torch.autograd.profiler import _profiler_enabled, kineto_available  # noqa: F401
from mindtorch.torch.autograd.variable import Variable  # noqa: F401

__all__ = ["Variable", "Function", "backward", "grad_mode", "grad", "enable_grad", "no_grad", "inference_mode",
           "set_grad_enabled", "detect_anomaly", "set_detect_anomaly", "gradcheck", "gradgradcheck"]


_AS_IT_IS = contextlib.nullcontext()
GradientEdge, SavedTensor = engine.GradientEdge, autograd_graph.SavedTensor


def _sequence(x):
    return (x,) if is_tensor(x) or is_pytorch_tensor(x) else tuple(x)


def _tensors(x, what):
    """Returns a tensor or GradientEdge, or a sequence of them, as a tuple."""
    if is_tensor(x) or x.__class__ is GradientEdge:
        return (x,)
    x = _sequence(x)
    for t in x:
        if t is not None and not is_tensor(t) and t.__class__ is not GradientEdge:
            raise TypeError(f"{what} must be Tensors or GradientEdges, got {type_name(t)}")
    return x


class _End:
    """Adapter that gives a GradientEdge the attributes that are read from a root tensor."""

    _requires_grad_ = True

    def __init__(self, edge):
        node, i = edge
        self._sizes, self._np_dtype = node._input_metadata[i]
        self._numel, self._device = math.prod(self._sizes), _device_of(node)
        self.shape, self.dtype = Size(self._sizes), of_np(self._np_dtype)


def _device_of(node):
    """Returns the device of a node's gradients: that of the nearest leaf, because a node does not
    store its device."""
    seen, stack = {node}, [node]
    while stack:
        n = stack.pop()
        leaf = getattr(n, "variable", None)
        if leaf is not None:
            return leaf._device
        for e in n._next_edges:
            if e is None:
                continue
            if not isinstance(e, tuple):
                return e._device
            if e[0] not in seen:
                seen.add(e[0])
                stack.append(e[0])
    return cpu_device


def _of_values(roots, grads, inputs):
    """Replaces sparse roots, their gradients and sparse inputs by their values. Returns None if
    there are no sparse tensors."""
    if not any([isinstance(x, Sparse) for x in (*roots, *(inputs or ()))]):
        return None
    new = []
    for t, g in zip(roots, grads):
        if isinstance(t, Sparse):
            if g is None:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if tuple(g.shape) != tuple(t.shape):
                raise RuntimeError(f"Mismatch in shape: grad_output[{len(new)}] has a shape of {g.shape} and output[{len(new)}] has a shape of {t.shape}.")
            g = (g.to_dense() if isinstance(g, Sparse) else g).sparse_mask(t.detach())._sp_values
        new.append(g)
    values = [[x._sp_values if isinstance(x, Sparse) else x for x in xs] for xs in (roots, inputs or ())]
    return values[0], new, values[1] if inputs is not None else None


def _root_grads(roots, grads, create_graph):
    if len(grads) != len(roots):
        raise RuntimeError("Mismatch in length of outputs and their gradients: " f"got {len(roots)} tensors and {len(grads)} "
                           "gradients")
    out = []
    for t, g in zip(roots, grads):
        edge = t.__class__ is GradientEdge
        if edge:
            t = _End(t)
        if g is None:
            if t._requires_grad_:
                if t._numel != 1:
                    raise RuntimeError("grad can be implicitly created only for scalar outputs")
                if t._np_dtype.kind not in "fV":
                    raise RuntimeError("grad can be implicitly created only for real scalar outputs but got "
                                       f"{of_np(t._np_dtype)}")
                if not edge and dispatch_state.primitives and is_enabled("primitives", "dispatch"):
                    with no_grad():
                        # dispatch handlers see this op and may return a tensor of their class
                        out.append(OPS["ones_like"].fn(t))
                elif edge:
                    out.append(OPS["ones"].fn(t._sizes, dtype=of_np(t._np_dtype), device=t._device))
                else:
                    out.append(new_full(t, size=t._sizes, value=1, np_dtype=t._np_dtype) if t._handle is not None else _one(t))
            else:
                out.append(None)
            continue
        if not is_tensor(g):
            raise TypeError(f"gradients can be either Tensors or None, but got {type_name(g)}")
        sparse = isinstance(g, Sparse)
        if (g.shape if sparse else g._sizes) != t._sizes:
            raise RuntimeError(f"Mismatch in shape: grad_output[{len(out)}] has a shape of {g.shape} and output[{len(out)}] has "
                               f"a shape of {t.shape}.")
        dev = g.device if sparse else g._device
        if dev is not t._device and dev != t._device:
            raise RuntimeError(f"invalid gradient at index {len(out)} - expected device {t._device} but got {dev}")
        if (g.dtype.is_complex if sparse else g._np_dtype.kind == "c") != (t._np_dtype.kind == "c"):
            raise RuntimeError("For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch "
                               f"in dtype: grad_output[{len(out)}] has a dtype of {g.dtype} and output[{len(out)}] has a dtype "
                               f"of {t.dtype}.")
        if sparse:
            out.append(g.detach())
            continue
        # A separate tensor object: the engine marks gradients, and the user's tensor must stay
        # unchanged.
        out.append(g if create_graph and g._requires_grad_ else _alias(g))
    return out


def _one(t):
    a = np.empty(t._sizes, t._np_dtype)  # 1 us faster than np.ones
    a[...] = 1
    return wrap_array(a)


def _alias(g):
    return forward.copy_tangents(g, shallow_copy(g)) if dispatch_state.dual is not None else shallow_copy(g)


def _check_roots(roots):
    for i, t in enumerate(roots):
        if t.__class__ is not GradientEdge and not t._requires_grad_:
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")


def _without_values(roots):
    """True if any root is a meta tensor: its gradients have shapes only."""
    return any([t.__class__ is not GradientEdge and t._device.type == "meta" for t in roots])


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
    """Accumulates the gradients of `tensors` in the .grad of the graph's leaves.

    https://pytorch.org/docs/stable/generated/torch.autograd.backward.html
    """
    try:
        if TRANSFORMS.count:
            functorch_levels.refuse_backward()
        if grad_variables is not None:
            warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
            if grad_tensors is not None:
                raise RuntimeError("`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please "
                                   "only use `grad_tensors`.")
            grad_tensors = grad_variables
        roots = _tensors(tensors, "tensors")
        if inputs is not None:
            inputs = _tensors(inputs, "inputs")
            if not inputs:
                raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
            for i, t in enumerate(inputs):
                if t.__class__ is not GradientEdge and not t._requires_grad_:
                    raise RuntimeError(f"One of the differentiated Tensors given as 'inputs' to backward does not require grad (index {i})")
        if grad_tensors is None:
            grads = (None,) * len(roots)
        else:
            grads = _sequence(grad_tensors)
        if retain_graph is None:
            retain_graph = create_graph
        _check_roots(roots)
        try:
            with meta.running() if dispatch_state.meta and _without_values(roots) else _AS_IT_IS:
                engine.run_backward(roots, _root_grads(roots, grads, create_graph), retain_graph, create_graph, inputs, True, accumulate=True)
        except SparseUse:
            again_ = _of_values(roots, grads, inputs)
            if again_ is None:
                raise
            backward(again_[0], again_[1], retain_graph, create_graph, inputs=again_[2])
    except Exception as e:
        hide_internal_frames(e)
        raise


def _found(roots, ins, grads, retain_graph, create_graph, allow_unused):
    if dispatch_state.meta and _without_values(roots):
        with meta.running():
            found = engine.run_backward(roots, _root_grads(roots, grads, create_graph), retain_graph, create_graph, ins, allow_unused)
            found = [None if g is None else meta.turn(g) for g in found]
    else:
        found = engine.run_backward(roots, _root_grads(roots, grads, create_graph), retain_graph, create_graph, ins, allow_unused)
    return found


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
         is_grads_batched=False, materialize_grads=False):
    """Returns the gradients of `outputs` with respect to `inputs` as a tuple (as a dict if `inputs`
    is a dict).

    is_grads_batched: each of `grad_outputs`, and so each result, has a leading batch dimension. All
    are computed at once (vmap), so hooks receive batched tensors that have the shape of a single
    gradient.

    https://pytorch.org/docs/stable/generated/torch.autograd.grad.html
    """
    try:
        if materialize_grads and allow_unused is False:
            raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
        if allow_unused is None:
            allow_unused = materialize_grads
        if not only_inputs:
            warnings.warn("only_inputs argument is deprecated and is ignored now (defaults to True).", FutureWarning, stacklevel=2)
        roots, ins = _tensors(outputs, "outputs"), _tensors(inputs.values() if type(inputs) is dict else inputs, "inputs")
        if retain_graph is None:
            retain_graph = create_graph
        if is_grads_batched:
            found = _batched(roots, ins, grad_outputs, retain_graph, create_graph, allow_unused)
            return _by_name(_materialized(found, ins, create_graph) if materialize_grads else found, inputs)
        grads = (None,) * len(roots) if grad_outputs is None else (
            _sequence(grad_outputs))
        _check_roots(roots)
        if not ins:
            raise RuntimeError("grad(): the `inputs` argument cannot be empty.")
        for t in ins:
            if t.__class__ is not GradientEdge and not t._requires_grad_:
                raise RuntimeError("One of the differentiated Tensors does not require grad")
        try:
            found = _found(roots, ins, grads, retain_graph, create_graph, allow_unused)
        except SparseUse:
            again_ = _of_values(roots, grads, ins)
            if again_ is None:
                raise
            found = grad(again_[0], again_[2], again_[1], retain_graph, create_graph, allow_unused=allow_unused, materialize_grads=materialize_grads)
            return _by_name(tuple([g if g is None or not isinstance(t, Sparse) else t._gradient(g) for t, g in zip(ins, found)]), inputs)
        if TRANSFORMS.count:
            for g in found:
                if g is not None:
                    functorch_levels.made(g)
        if materialize_grads:
            found = _materialized(found, ins, create_graph)
        elif not allow_unused and any(g is None for g in found):
            raise RuntimeError("One of the differentiated Tensors appears to not have been used in the graph. Set "
                               "allow_unused=True if this is the desired behavior.")
        return _by_name(tuple(found), inputs)
    except Exception as e:
        hide_internal_frames(e)
        raise


def _zeros_like(t, requires_grad=False):
    return OPS["zeros_like"].fn(t, requires_grad=requires_grad)


def _materialized(found, ins, create_graph):
    if any(g is None and t.__class__ is GradientEdge for g, t in zip(found, ins)):
        raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
    return tuple(_zeros_like(t, requires_grad=create_graph) if g is None else g for g, t in zip(found, ins))


def _by_name(found, inputs):
    return dict(zip(inputs, found)) if type(inputs) is dict else found


def _batched(roots, ins, grad_outputs, retain_graph, create_graph, allow_unused):
    """Returns the gradients for a batch of cotangents, stacked along dimension 0, by one vmapped
    backward pass."""
    gs = (None,) if grad_outputs is None else _tensors(grad_outputs, "grad_outputs")
    if len(gs) != len(roots):
        raise RuntimeError(f"Mismatch in length of outputs and their gradients: got {len(roots)} tensors and {len(gs)} gradients")
    for i, (t, g) in enumerate(zip(roots, gs)):
        if g is None:
            if t._numel != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            raise ValueError(f"is_grads_batched=True needs a batch of gradients for each output, but grad_outputs[{i}] is None")
        if not g.ndim:
            raise IndexError("invalid index of a 0-dim tensor: with is_grads_batched=True the first dimension of each grad_output is the "
                             "batch dimension")
        if g._sizes[1:] != t._sizes:
            raise RuntimeError("If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The "
                               "sizes of the remaining dimensions are expected to match the shape of corresponding output, but a mismatch "
                               f"was detected: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of {t.shape}.")
    n = len(gs[0])
    if any(len(g) != n for g in gs):
        raise ValueError(f"is_grads_batched=True: the batches of grad_outputs have different sizes, {[len(g) for g in gs]}")
    if not n:
        raise IndexError("index 0 is out of bounds for dimension 0 with size 0: an empty batch of gradients")
    if n == 1:
        found = grad(roots, ins, [g[0] for g in gs], retain_graph, create_graph, allow_unused=allow_unused)
        return tuple(None if g is None else g.unsqueeze(0) for g in found)
    with vmap.VmapLevel(n, "different", marks=False) as level:
        found = grad(roots, ins, [vmap.add_batch_dim(g, True, level) for g in gs], retain_graph, create_graph, allow_unused=allow_unused)
        return tuple(None if g is None else vmap.materialize_batch(g, level) for g in found)


from mindtorch.torch.autograd import grad_mode  # noqa: E402,F401
from mindtorch.torch.autograd.grad_mode import _unsafe_preserve_version_counter, is_multithreading_enabled, set_multithreading_enabled  # noqa: E402,F401
