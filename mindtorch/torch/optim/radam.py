"""RAdam (https://pytorch.org/docs/stable/generated/torch.optim.RAdam.html)."""
import math

from mindtorch.core.device.fused_optim import plan as _plan
from mindtorch.torch.optim.optimizer import (
    Optimizer,
    _STEP,
    _State,
    _check_at_least_zero,
    _check_betas,
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

__all__ = ["RAdam", "radam"]


class RAdam(Optimizer):
    """RAdam: Adam that omits the adaptive learning rate in the first steps, until its variance is
    tractable.

    Args:
        decoupled_weight_decay: shrinks the parameters instead of adding to the gradients.
    """

    _states = _STEP, _State("exp_avg"), _State("exp_avg_sq")
    _lists = "exp_avg", "exp_avg_sq", "step"
    _no_sparse = "RAdam does not support sparse gradients"

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *,
                 foreach=None, maximize=False, capturable=False, differentiable=False):
        _check_lr(lr)
        _check_at_least_zero(eps=eps)
        _check_betas(betas)
        _check_at_least_zero(weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach,
            capturable=capturable, decoupled_weight_decay=decoupled_weight_decay, differentiable=differentiable))

    def __setstate__(self, state):
        super().__setstate__(state)
        _upgrade(self, foreach=None, maximize=False, differentiable=False, decoupled_weight_decay=False,
                 capturable=False)

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """Performs one update; returns the closure's loss."""
        loss = _evaluate(closure)
        for group in self.param_groups:
            columns = [], [], [], [], []
            has_complex = self._init_group(group, *columns)
            beta1, beta2 = group["betas"]
            radam(*columns, decoupled_weight_decay=group["decoupled_weight_decay"], foreach=group["foreach"],
                  differentiable=group["differentiable"], capturable=group["capturable"], has_complex=has_complex,
                  maximize=group["maximize"], beta1=beta1, beta2=beta2, lr=group["lr"],
                  weight_decay=group["weight_decay"], eps=group["eps"])
        return loss


def radam(params, grads, exp_avgs, exp_avg_sqs, state_steps, decoupled_weight_decay=False, foreach=None,
          differentiable=False, capturable=False, has_complex=False, maximize=False, *, beta1, beta2, lr, weight_decay,
          eps):
    """Performs one step of RAdam on lists of tensors; `state_steps` are one-element tensors that
    are incremented."""
    _check_steps(state_steps)
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params, supports_xla=not foreach)
    plan = _plan("radam_step", params, differentiable)
    if plan is not None:
        lr, beta1, beta2 = _get_value(lr), _get_value(beta1), _get_value(beta2)
    rate = lr if differentiable else _get_value(lr)
    decay = bool(weight_decay != 0)

    def numbers(t):
        rect = _rectification(beta2, t)
        options = maximize, decay, decoupled_weight_decay, rect is not None
        return options, (1 - beta1 ** t, rate, (1 - beta2 ** t) ** 0.5, rect or 1.0, eps,
                         1 - lr * weight_decay if decoupled_weight_decay else _get_value(weight_decay), 1 - beta1, beta2, 1 - beta2)

    _update(plan, "radam_step", [params, exp_avgs, exp_avg_sqs], grads, _counted(plan, state_steps), numbers, differentiable, foreach=foreach)


def _rectification(beta2, step):
    """Returns the variance rectification factor at `step`; None while the variance is not
    tractable."""
    longest = 2 / (1 - beta2) - 1
    power = beta2 ** step
    length = longest - 2 * step * power / (1 - power)
    if length <= 5.0:
        return None
    return math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
