"""Averaged stochastic gradient descent (https://pytorch.org/docs/stable/generated/torch.optim.ASGD.html)."""
from mindtorch.core.device.fused_optim import set_number
from mindtorch.torch.optim.optimizer import (
    Optimizer, _STEP, _State, _begin, _check_at_least_zero, _check_lr, _counted, _get_value,
    _group_step, _host_number, _update)

__all__ = ["ASGD", "asgd"]


def asgd(params, grads, axs, mus, etas, state_steps, foreach=None, maximize=False, differentiable=False,
         capturable=False, has_complex=False, *, lambd, lr, t0, alpha, weight_decay):
    """Performs one step of ASGD on lists of tensors.

    `state_steps`, `mus` and `etas` are one-element tensors that are updated in place.
    """
    plan = _begin("asgd_step", params, state_steps, foreach, differentiable, capturable, supports_xla=not foreach,
                  checked="params, mus, etas, and state_steps")
    lr, weight_decay = _get_value(lr), _get_value(weight_decay)

    def rates():
        for eta, mu, step, t in zip(etas, mus, state_steps, _counted(plan, state_steps)):
            old = eta.item(), mu.item()
            # PyTorch's foreach version keeps the step count as a tensor and computes in its
            # precision.
            set_number(eta, (lr / (1 + lambd * lr * step) ** alpha).item() if foreach else lr / (1 + lambd * lr * t) ** alpha)
            set_number(mu, 1 / max(1, t - t0))
            yield old

    def numbers(rates):
        eta, mu = rates
        return (maximize, weight_decay != 0, mu != 1), (eta, 1 - lambd * eta, mu, weight_decay)

    _update(plan, "asgd_step", [params, axs], grads, rates(), numbers, foreach=foreach)


class ASGD(Optimizer):
    """Averaged stochastic gradient descent; state[p]["ax"] is the average of the parameter since
    step t0.

    Args:
        lambd, alpha: decay term and exponent of the learning rate lr / (1 + lambd * lr * t) **
            alpha.
    """

    _added_options = dict(foreach=None, maximize=False, differentiable=False, capturable=False)
    _states = (_STEP, _State("eta", lambda p, g, group: _host_number(float(_get_value(group["lr"]))), scalar=True),
               _State("mu", lambda p, g, group: _host_number(1.0), scalar=True), _State("ax"))
    _lists = "mu", "ax", "eta", "step"
    _no_sparse = "ASGD does not support sparse gradients"

    def __init__(self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False,
                 differentiable=False, capturable=False):
        _check_lr(lr)
        _check_at_least_zero(weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable))

    step = _group_step(asgd, lists=["params", "grads", "mus", "axs", "etas", "state_steps"])
