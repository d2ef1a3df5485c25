"""Stochastic gradient descent (https://pytorch.org/docs/stable/generated/torch.optim.SGD.html)."""
from mindtorch.core.device.fused_optim import empty_buffer_like, plan as _plan
from mindtorch.torch.optim.optimizer import Optimizer, _State, _amp_skips, _check_at_least_zero, _check_fused, _check_lr, _get_value, _group_step, _update

__all__ = ["SGD", "sgd"]


def sgd(params, d_p_list, momentum_buffer_list, has_sparse_grad=False, foreach=None, fused=None, grad_scale=None,
        found_inf=None, *, weight_decay, momentum, lr, dampening, nesterov, maximize):
    """Performs one step of SGD on lists of tensors; creates missing momentum buffers (None)."""
    if not params:
        return
    if foreach and fused:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if _amp_skips(d_p_list, grad_scale, found_inf):
        return
    plan = None if has_sparse_grad else _plan("sgd_step", params, fused=bool(fused))
    if plan is not None:
        lr, weight_decay = _get_value(lr), _get_value(weight_decay)
    decay, numbers = bool(weight_decay != 0), (lr, weight_decay, momentum, 1 - dampening)
    if momentum == 0:
        const = (maximize, decay, False, False, False), numbers
        _update(plan, "sgd_step", [params], d_p_list, params, const, real=False, foreach=foreach)
        return
    fresh = [b is None for b in momentum_buffer_list]
    if plan is not None and any(fresh):
        _fill_missing(params, momentum_buffer_list)
    made = _update(plan, "sgd_step", [params, momentum_buffer_list], d_p_list, fresh,
                   lambda first: ((maximize, decay, True, nesterov, first), numbers), real=False, foreach=foreach)
    if made is not None:
        momentum_buffer_list[:] = made


def _fill_missing(params, buffers):
    made = {}  # a parameter that occurs twice has one buffer
    for i, (p, b) in enumerate(zip(params, buffers)):
        if b is None:
            if id(p) not in made:
                buffer = empty_buffer_like(p)
                # The buffer of a sharded parameter is sharded as well, and checkpoints must record
                # this.
                made[id(p)] = p._with_local(buffer) if hasattr(p, "_with_local") else buffer
            buffers[i] = made[id(p)]


def _store_buffers(optimizer, group, params, grads, buffers):
    if group["momentum"] != 0:
        for p, buffer in zip(params, buffers):
            optimizer.state[p]["momentum_buffer"] = buffer


class SGD(Optimizer):
    """Stochastic gradient descent with optional momentum.

    Args:
        lr, momentum, dampening, weight_decay: at least 0; lr and weight_decay may be
            one-element tensors.
        nesterov: requires momentum and zero dampening.
    """

    _added_options = dict(nesterov=False, maximize=False, foreach=None, differentiable=False, fused=False)
    _states = _State("momentum_buffer", None, lambda group: group["momentum"] != 0, optional=True),
    _lists = "momentum_buffer",
    _fused_checks = "step"
    _tells = "sparse"

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

    step = _group_step(sgd, after=_store_buffers)
