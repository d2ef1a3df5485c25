"""Adadelta (https://pytorch.org/docs/stable/generated/torch.optim.Adadelta.html)."""
from mindtorch.core.device.fused_optim import plan as _plan
from mindtorch.torch.optim.optimizer import (
    Optimizer,
    _STEP,
    _State,
    _check_at_least_zero,
    _check_capturable,
    _check_foreach,
    _check_lr,
    _check_steps,
    _counted,
    _evaluate,
    _get_value,
    _update,
    _upgrade,
    _use_grad_for_differentiable,
)

__all__ = ["Adadelta", "adadelta"]


class Adadelta(Optimizer):
    """Adadelta: scales steps by the ratio of the running RMS of past updates to that of past
    gradients.

    Args:
        rho: decay rate of the running averages, in [0, 1].
    """

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

    def __setstate__(self, state):
        super().__setstate__(state)
        _upgrade(self, foreach=None, maximize=False, differentiable=False, capturable=False)

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """Performs one update; returns the closure's loss."""
        loss = _evaluate(closure)
        for group in self.param_groups:
            columns = [], [], [], [], []
            has_complex = self._init_group(group, *columns)
            adadelta(*columns, capturable=group["capturable"], foreach=group["foreach"],
                     differentiable=group["differentiable"], has_complex=has_complex, lr=group["lr"], rho=group["rho"],
                     eps=group["eps"], weight_decay=group["weight_decay"], maximize=group["maximize"])
        return loss


def adadelta(params, grads, square_avgs, acc_deltas, state_steps, capturable=False, foreach=None, differentiable=False,
             has_complex=False, *, lr, rho, eps, weight_decay, maximize):
    """Performs one step of Adadelta on lists of tensors; `state_steps` are one-element tensors that
    are incremented."""
    _check_steps(state_steps)
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params, supports_xla=False)
    plan = _plan("adadelta_step", params, differentiable)
    if not differentiable:
        lr = _get_value(lr)
    const = (maximize, bool(weight_decay != 0)), (lr, rho, 1 - rho, eps, _get_value(weight_decay))
    _update(plan, "adadelta_step", [params, square_avgs, acc_deltas], grads, _counted(plan, state_steps), const, differentiable, foreach=foreach)
