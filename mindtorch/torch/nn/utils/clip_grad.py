"""Clipping of gradients (https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html)."""
import math
import warnings

import mindtorch.torch as torch
from mindtorch.core import devices
from mindtorch.core.tensor import taken

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_"]


def _listed(tensors):
    return [tensors] if taken(tensors) else list(tensors)


#: elements that a tensor may have to be joined with others, and how many there may be together (64 MiB)
_SMALL, _TOGETHER = 1 << 20, 1 << 24


def _joined(tensors):
    """Small tensors as one vector where each kernel has to be launched: a norm for each of a model's biases costs more than their copy."""
    out, some, n = [], [], 0
    for t in tensors:
        on = t._h is not None and devices.DEVICES.get(t._dev.type)
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
    """The norm of all tensors taken as one vector; RuntimeError for inf or nan if asked."""
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
    """Scales the gradients by max_norm / total_norm where that is below 1."""
    grads = [p.grad for p in _listed(parameters) if p.grad is not None]
    with torch.no_grad():
        factor = torch.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
        for g in grads:
            g.mul_(factor.to(g.device))


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales the gradients so that their norm, taken as one vector, is at most max_norm; returns the norm before."""
    parameters = _listed(parameters)
    total = get_total_norm([p.grad for p in parameters if p.grad is not None], norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Deprecated name of clip_grad_norm_."""
    warnings.warn("`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
                  FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Cuts every gradient off to [-clip_value, clip_value]."""
    clip_value = float(clip_value)
    with torch.no_grad():
        for p in _listed(parameters):
            if p.grad is not None:
                p.grad.clamp_(min=-clip_value, max=clip_value)


_get_total_norm = get_total_norm
_clip_grads_with_norm_ = clip_grads_with_norm_
