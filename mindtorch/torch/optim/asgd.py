"""Averaged stochastic gradient descent (https://pytorch.org/docs/stable/generated/torch.optim.ASGD.html)."""
import mindtorch.torch as torch
from mindtorch.core.device.fused_optim import plan as _plan, set_number
from mindtorch.torch.optim.optimizer import (
    Optimizer,
    _STEP,
    _State,
    _check_at_least_zero,
    _check_capturable,
    _check_foreach,
    _check_lr,
    _counted,
    _evaluate,
    _host_number,
    _get_value,
    _update,
    _upgrade,
    _use_grad_for_differentiable,
)

__all__ = ["ASGD", "asgd"]


class ASGD(Optimizer):
    """Averaged stochastic gradient descent; state[p]["ax"] is the average of the parameter since
    step t0.

    Args:
        lambd, alpha: decay term and exponent of the learning rate lr / (1 + lambd * lr * t) **
            alpha.
    """

    _states = (_STEP, _State("eta", lambda p, g, group: _scalar(float(_get_value(group["lr"])))), _State("mu", lambda p, g, group: _scalar(1.0)),
               _State("ax"))
    _lists = "mu", "ax", "eta", "step"
    _no_sparse = "ASGD does not support sparse gradients"

    def __init__(self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False,
                 differentiable=False, capturable=False):
        _check_lr(lr)
        _check_at_least_zero(weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable))

    def __setstate__(self, state):
        super().__setstate__(state)
        _upgrade(self, foreach=None, maximize=False, differentiable=False, capturable=False)
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state.get(p, ())
                for key in ("eta", "mu"):
                    if key in s and not torch.is_tensor(s[key]):
                        s[key] = _host_number(float(s[key]))

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """Performs one update; returns the closure's loss."""
        loss = _evaluate(closure)
        for group in self.param_groups:
            params, grads, mus, axs, etas, steps = [], [], [], [], [], []
            has_complex = self._init_group(group, params, grads, mus, axs, etas, steps)
            asgd(params, grads, axs, mus, etas, steps, foreach=group["foreach"], maximize=group["maximize"],
                 differentiable=group["differentiable"], capturable=group["capturable"], has_complex=has_complex,
                 lambd=group["lambd"], lr=group["lr"], t0=group["t0"], alpha=group["alpha"],
                 weight_decay=group["weight_decay"])
        return loss


def asgd(params, grads, axs, mus, etas, state_steps, foreach=None, maximize=False, differentiable=False,
         capturable=False, has_complex=False, *, lambd, lr, t0, alpha, weight_decay):
    """Performs one step of ASGD on lists of tensors.

    `state_steps`, `mus` and `etas` are one-element tensors that are updated in place.
    """
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params, "params, mus, etas, and state_steps", supports_xla=not foreach)
    plan = _plan("asgd_step", params, differentiable)
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


def _scalar(value):
    return _host_number(value)
