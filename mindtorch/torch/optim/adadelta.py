"""Adadelta (https://pytorch.org/docs/stable/generated/torch.optim.Adadelta.html)."""
from mindtorch.torch.optim.optimizer import Optimizer, _STEP, _State, _begin, _check_at_least_zero, _check_lr, _counted, _get_value, _group_step, _update

__all__ = ["Adadelta", "adadelta"]


def adadelta(params, grads, square_avgs, acc_deltas, state_steps, capturable=False, foreach=None, differentiable=False,
             has_complex=False, *, lr, rho, eps, weight_decay, maximize):
    """Performs one step of Adadelta on lists of tensors; `state_steps` are one-element tensors that
    are incremented."""
    plan = _begin("adadelta_step", params, state_steps, foreach, differentiable, capturable, supports_xla=False)
    if not differentiable:
        lr = _get_value(lr)
    const = (maximize, bool(weight_decay != 0)), (lr, rho, 1 - rho, eps, _get_value(weight_decay))
    _update(plan, "adadelta_step", [params, square_avgs, acc_deltas], grads, _counted(plan, state_steps), const, differentiable, foreach=foreach)


class Adadelta(Optimizer):
    """Adadelta: scales steps by the ratio of the running RMS of past updates to that of past
    gradients.

    Args:
        rho: decay rate of the running averages, in [0, 1].
    """

    _added_options = dict(foreach=None, maximize=False, differentiable=False, capturable=False)
    _states = _STEP, _State("square_avg"), _State("acc_delta")
    _lists = "square_avg", "acc_delta", "step"
    _no_sparse = "Adadelta does not support sparse gradients"

    def __init__(self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False,
                 maximize=False, differentiable=False):
        _check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        _check_at_least_zero(eps=eps, weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, capturable=capturable,
            foreach=foreach, differentiable=differentiable))

    step = _group_step(adadelta)
