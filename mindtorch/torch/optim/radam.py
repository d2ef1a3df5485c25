"""RAdam (https://pytorch.org/docs/stable/generated/torch.optim.RAdam.html)."""
import math

from mindtorch.torch.optim.optimizer import (
    Optimizer, _STEP, _State, _begin, _check_at_least_zero, _check_betas, _check_lr, _counted,
    _get_value, _group_step, _update)

__all__ = ["RAdam", "radam"]


def radam(params, grads, exp_avgs, exp_avg_sqs, state_steps, decoupled_weight_decay=False, foreach=None,
          differentiable=False, capturable=False, has_complex=False, maximize=False, *, beta1, beta2, lr, weight_decay,
          eps):
    """Performs one step of RAdam on lists of tensors; `state_steps` are one-element tensors that
    are incremented."""
    plan = _begin("radam_step", params, state_steps, foreach, differentiable, capturable, supports_xla=not foreach)
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


class RAdam(Optimizer):
    """RAdam: Adam that omits the adaptive learning rate in the first steps, until its variance is
    tractable.

    Args:
        decoupled_weight_decay: shrinks the parameters instead of adding to the gradients.
    """

    _added_options = dict(foreach=None, maximize=False, differentiable=False, decoupled_weight_decay=False, capturable=False)
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

    step = _group_step(radam)
