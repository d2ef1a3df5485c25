"""RMSprop (https://pytorch.org/docs/stable/generated/torch.optim.RMSprop.html)."""
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

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(Optimizer):
    """RMSprop: divides gradients by their running root mean square.

    Args:
        alpha: decay rate of the running averages.
        centered: divides by the running standard deviation instead.
    """

    _states = (_STEP, _State("square_avg"), _State("momentum_buffer", when=lambda group: group["momentum"] > 0),
               _State("grad_avg", when=lambda group: group["centered"]))
    _lists = "square_avg", "momentum_buffer", "grad_avg", "step"
    _no_sparse = "RMSprop does not support sparse gradients"

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False,
                 capturable=False, foreach=None, maximize=False, differentiable=False):
        _check_lr(lr)
        _check_at_least_zero(eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(params, dict(
            lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay,
            capturable=capturable, foreach=foreach, maximize=maximize, differentiable=differentiable))

    def __setstate__(self, state):
        super().__setstate__(state)
        _upgrade(self, momentum=0, centered=False, foreach=None, maximize=False, differentiable=False, capturable=False)

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """Performs one update; returns the closure's loss."""
        loss = _evaluate(closure)
        for group in self.param_groups:
            params, grads, squares, buffers, means, steps = [], [], [], [], [], []
            has_complex = self._init_group(group, params, grads, squares, buffers, means, steps)
            rmsprop(params, grads, squares, means, buffers, steps, foreach=group["foreach"], maximize=group["maximize"],
                    differentiable=group["differentiable"], capturable=group["capturable"], has_complex=has_complex,
                    lr=group["lr"], alpha=group["alpha"], eps=group["eps"], weight_decay=group["weight_decay"],
                    momentum=group["momentum"], centered=group["centered"])
        return loss


def rmsprop(params, grads, square_avgs, grad_avgs, momentum_buffer_list, state_steps, foreach=None, maximize=False,
            differentiable=False, capturable=False, has_complex=False, *, lr, alpha, eps, weight_decay, momentum,
            centered):
    """Performs one step of RMSprop on lists of tensors; `state_steps` are one-element tensors that
    are incremented."""
    _check_steps(state_steps)
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params)
    plan = _plan("rmsprop_step", params, differentiable)
    if not differentiable:
        lr = _get_value(lr)
    const = (maximize, bool(weight_decay != 0), bool(centered), momentum > 0), (lr, alpha, 1 - alpha, eps, _get_value(weight_decay), momentum)
    changed = [params, square_avgs, *([grad_avgs] if centered else []), *([momentum_buffer_list] if momentum > 0 else [])]
    _update(plan, "rmsprop_step", changed, grads, _counted(plan, state_steps), const, differentiable, foreach=foreach)
