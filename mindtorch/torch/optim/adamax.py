"""Adamax (https://pytorch.org/docs/stable/generated/torch.optim.Adamax.html)."""
from mindtorch.torch.optim.optimizer import (
    Optimizer, _STEP, _State, _begin, _check_at_least_zero, _check_betas, _check_lr, _counted,
    _get_value, _group_step, _update)

__all__ = ["Adamax", "adamax"]


def adamax(params, grads, exp_avgs, exp_infs, state_steps, foreach=None, maximize=False, differentiable=False,
           capturable=False, has_complex=False, *, eps, beta1, beta2, lr, weight_decay):
    """Performs one step of Adamax on lists of tensors; `state_steps` are one-element tensors that
    are incremented."""
    plan = _begin("adamax_step", params, state_steps, foreach, differentiable, capturable, supports_xla=not foreach)
    if not differentiable:
        lr = _get_value(lr)
    if plan is not None:
        beta1, beta2 = _get_value(beta1), _get_value(beta2)
    options = maximize, bool(weight_decay != 0)

    def numbers(t):
        return options, (lr / (1 - beta1 ** t), eps, _get_value(weight_decay), 1 - beta1, beta2)

    _update(plan, "adamax_step", [params, exp_avgs, exp_infs], grads, _counted(plan, state_steps), numbers, differentiable, foreach=foreach)


class Adamax(Optimizer):
    """Adamax: Adam with an exponentially decayed maximum of the gradients instead of the second
    moment."""

    _added_options = dict(foreach=None, maximize=False, differentiable=False, capturable=False)
    _states = _STEP, _State("exp_avg"), _State("exp_inf")
    _lists = "exp_avg", "exp_inf", "step"
    _no_sparse = "Adamax does not support sparse gradients"

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False,
                 differentiable=False, capturable=False):
        _check_lr(lr)
        _check_at_least_zero(eps=eps)
        _check_betas(betas)
        _check_at_least_zero(weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable))

    step = _group_step(adamax)
