"""Gradient clipping
(https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html)."""
import math
import types
import warnings

import mindtorch.torch as torch
from mindtorch.core.device import device_dispatch
from mindtorch.core.tensor.tensor import is_tensor

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_"]


def _listed(tensors):
    return [tensors] if is_tensor(tensors) else list(tensors)


#: maximum number of elements of a tensor that is concatenated with others, and of a concatenated
#: vector (64 MiB)
_SMALL, _TOGETHER = 1 << 20, 1 << 24


def _joined(tensors):
    """Concatenates small tensors on devices that launch kernels: a norm for each bias costs more
    than the copies."""
    out, some, n = [], [], 0
    for t in tensors:
        on = t._handle is not None and device_dispatch.DEVICES.get(t._device.type)
        if not on or not on.strided or t.dtype is not torch.float32 or t.numel() > _SMALL or not t.is_contiguous() or some and t.device != some[0].device:
            out.append(t)
            continue
        if n + t.numel() > _TOGETHER:
            out.append(torch.cat(some))
            some, n = [], 0
        some.append(t.reshape(-1))
        n += t.numel()
    return out + ([torch.cat(some)] if some else [])


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Returns the norm of all tensors as one vector. RuntimeError for inf or nan if
    `error_if_nonfinite`."""
    tensors = _listed(tensors)
    norm_type = float(norm_type)
    with torch.no_grad():
        if not tensors:
            return torch.tensor(0.0)
        first = tensors[0].device
        norms = [torch.linalg.vector_norm(t, norm_type) for t in (_joined(tensors) if norm_type else tensors)]
        total = torch.linalg.vector_norm(torch.stack([n.to(first) for n in norms]), norm_type) if len(norms) > 1 or not norm_type else norms[0]
        if error_if_nonfinite and not math.isfinite(total.item()):
            raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so "
                               "it cannot be clipped. To disable this error and scale the gradients by the non-finite "
                               "norm anyway, set `error_if_nonfinite=False`")
        return total


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scales the gradients by max_norm / total_norm if that is less than 1."""
    _scale(_grads_of(_listed(parameters), None), max_norm, total_norm)


def clip_grad_norm_(parameters=None, max_norm=None, norm_type=2.0, error_if_nonfinite=False, foreach=None, *, grads=None):
    """Scales the gradients so that their norm as one vector is at most max_norm; returns the
    original norm.

    MindSpore style: scales `grads`, a sequence of gradients (None is skipped), in place instead of
    the parameters' .grad.
    """
    if max_norm is None or parameters is None and grads is None:
        raise TypeError("clip_grad_norm_() missing a required argument: 'max_norm'" if max_norm is None else "clip_grad_norm_() missing a required argument: 'parameters'")
    if grads is None:
        parameters, lazy = _listed(parameters), isinstance(parameters, types.GeneratorType)
        if lazy and not parameters:
            warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    found = _grads_of(parameters if grads is None else (), grads)
    total = get_total_norm(found, norm_type, error_if_nonfinite, foreach)
    _scale(found, max_norm, total)
    return total


def _grads_of(parameters, grads):
    """Returns the gradients of the parameters, or `grads` if passed. MindSpore tensors become
    facade tensors on the same memory."""
    if grads is None:
        return [p.grad for p in parameters if p.grad is not None]
    grads = [g for g in _listed(grads) if g is not None]
    if not all([is_tensor(g) for g in grads]):
        raise TypeError("grads must be a sequence of tensors")
    return grads


def _scale(grads, max_norm, total_norm):
    with torch.no_grad():
        factor = torch.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
        for g in grads:
            g.mul_(factor.to(g.device))


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Deprecated name of clip_grad_norm_."""
    warnings.warn("`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
                  FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters=None, clip_value=None, foreach=None, *, grads=None):
    """Clamps every gradient to [-clip_value, clip_value] in place. MindSpore style: clamps the
    tensors in `grads`."""
    if clip_value is None or parameters is None and grads is None:
        raise TypeError(f"clip_grad_value_() missing a required argument: '{'clip_value' if clip_value is None else 'parameters'}'")
    clip_value = float(clip_value)
    with torch.no_grad():
        for g in _grads_of(_listed(parameters) if grads is None else (), grads):
            g.clamp_(min=-clip_value, max=clip_value)


_get_total_norm = get_total_norm
_clip_grads_with_norm_ = clip_grads_with_norm_
