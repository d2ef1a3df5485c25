"""Stochastic gradient descent (https://pytorch.org/docs/stable/generated/torch.optim.SGD.html)."""
import numpy as np

from mindtorch.backend.cpu import optimizer as optim_kernels
from mindtorch.core.tensor import Tensor, wrap
from mindtorch.torch.optim.optimizer import (
    Optimizer,
    _amp_skips,
    _by_step,
    _check_at_least_zero,
    _check_fused,
    _check_lr,
    _device_dtype_check_for_fused,
    _evaluate,
    _get_value,
    _host_layout,
    _run,
    _upgrade,
    _use_grad_for_differentiable,
)

__all__ = ["SGD", "sgd"]


class SGD(Optimizer):
    """Stochastic gradient descent with optional momentum.

    lr, momentum, dampening, weight_decay  at least 0; lr and weight_decay may be one-element tensors.
    nesterov  needs momentum and no dampening.
    """

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False,
                 foreach=None, differentiable=False, fused=None):
        _check_lr(lr)
        _check_at_least_zero(momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, dict(
            lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov,
            maximize=maximize, foreach=foreach, differentiable=differentiable, fused=fused))
        _check_fused(self, fused, foreach, differentiable)

    def __setstate__(self, state):
        super().__setstate__(state)
        _upgrade(self, with_steps=False, nesterov=False, maximize=False, foreach=None, differentiable=False,
                 fused=False)

    def _init_group(self, group, params, grads, momentum_buffer_list):
        sparse = False
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if group["fused"]:
                _device_dtype_check_for_fused(p)
            params.append(p)
            grads.append(g)
            sparse = sparse or g.is_sparse
            if group["momentum"] != 0:
                momentum_buffer_list.append(self.state[p].get("momentum_buffer"))
        return sparse

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """One update; returns the closure's loss."""
        loss = _evaluate(closure)
        for group in self.param_groups:
            params, grads, buffers = [], [], []
            sparse = self._init_group(group, params, grads, buffers)
            sgd(params, grads, buffers, has_sparse_grad=sparse, foreach=group["foreach"], fused=group["fused"],
                grad_scale=getattr(self, "grad_scale", None), found_inf=getattr(self, "found_inf", None),
                weight_decay=group["weight_decay"], momentum=group["momentum"], lr=group["lr"],
                dampening=group["dampening"], nesterov=group["nesterov"], maximize=group["maximize"])
            if group["momentum"] != 0:
                for p, buffer in zip(params, buffers):
                    self.state[p]["momentum_buffer"] = buffer
        return loss


def sgd(params, d_p_list, momentum_buffer_list, has_sparse_grad=False, foreach=None, fused=None, grad_scale=None,
        found_inf=None, *, weight_decay, momentum, lr, dampening, nesterov, maximize):
    """One step of SGD on lists of tensors; missing momentum buffers (None) are made."""
    if not params:
        return
    if foreach and fused:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if _amp_skips(d_p_list, grad_scale, found_inf):
        return
    layout = None if has_sparse_grad else _host_layout(params)
    if layout is None:
        for i, (p, g) in enumerate(zip(params, d_p_list)):
            buffer = momentum_buffer_list[i] if momentum != 0 else None
            buffer = _tensor_step(p, g, buffer, weight_decay, momentum, lr, dampening, nesterov, maximize)
            if momentum != 0:
                momentum_buffer_list[i] = buffer
        return
    lr, decay = _get_value(lr), _get_value(weight_decay)
    numbers = (-lr, decay, momentum, 1 - dampening)
    if momentum == 0:
        const = ((maximize, decay != 0, False, False, False), numbers)
        _run(layout, optim_kernels.sgd, [params], d_p_list, [const] * len(params))
        return
    fresh = [b is None for b in momentum_buffer_list]
    if any(fresh):
        _fill_missing(params, momentum_buffer_list)
    consts = _by_step(fresh, lambda first: ((maximize, decay != 0, True, nesterov, first), numbers))
    _run(layout, optim_kernels.sgd, [params, momentum_buffer_list], d_p_list, consts)


def _fill_missing(params, buffers):
    made = {}                   # a parameter that occurs twice has one buffer
    for i, (p, b) in enumerate(zip(params, buffers)):
        if b is None:
            if id(p) not in made:
                buffer = wrap(np.empty_like(p._a))
                # Of a parameter that is a part of a whole the buffer is a part as well, and must say so in checkpoints.
                made[id(p)] = p._with_local(buffer) if hasattr(p, "_with_local") else buffer
            buffers[i] = made[id(p)]


def _tensor_step(p, g, buffer, weight_decay, momentum, lr, dampening, nesterov, maximize):
    if maximize:
        g = -g
    if isinstance(weight_decay, Tensor) and weight_decay.requires_grad:
        g = g + p * weight_decay
    elif weight_decay != 0:
        g = g.add(p, alpha=_get_value(weight_decay))
    if momentum != 0:
        if buffer is None:
            buffer = g.detach().clone()
        else:
            buffer.mul_(momentum).add_(g, alpha=1 - dampening)
        g = g.add(buffer, alpha=momentum) if nesterov else buffer
    if isinstance(lr, Tensor) and lr.requires_grad:
        p.addcmul_(g, lr, value=-1)
    else:
        p.add_(g, alpha=-_get_value(lr))
    return buffer
