"""Rprop (https://pytorch.org/docs/stable/generated/torch.optim.Rprop.html)."""
import mindtorch.torch as torch
from mindtorch.core.device.fused_optim import plan as _plan
from mindtorch.torch.optim.optimizer import (
    Optimizer,
    _STEP,
    _State,
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

__all__ = ["Rprop", "rprop"]


class Rprop(Optimizer):
    """Resilient backpropagation: adapts the step size of each element to the signs of its last two
    gradients.

    Args:
        etas: factors of the step size (if the sign changes, if it does not).
        step_sizes: (minimum, maximum) step size.
    """

    _states = (_STEP, _State("prev"),
               _State("step_size", lambda p, g, group: torch.full_like(g, _first_size(_get_value(group["lr"]), p._np_dtype.kind == "c"))))
    _lists = "prev", "step_size", "step"
    _no_sparse = "Rprop does not support sparse gradients"

    def __init__(self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, capturable=False, foreach=None,
                 maximize=False, differentiable=False):
        _check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, dict(
            lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize, differentiable=differentiable,
            capturable=capturable))

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
            low, high = group["step_sizes"]
            shrink, grow = group["etas"]
            rprop(*columns, foreach=group["foreach"], capturable=group["capturable"], maximize=group["maximize"],
                  differentiable=group["differentiable"], has_complex=has_complex, step_size_min=low,
                  step_size_max=high, etaminus=shrink, etaplus=grow)
        return loss


def rprop(params, grads, prevs, step_sizes, state_steps, foreach=None, capturable=False, maximize=False,
          differentiable=False, has_complex=False, *, step_size_min, step_size_max, etaminus, etaplus):
    """Performs one step of Rprop on lists of tensors; `state_steps` are one-element tensors that
    are incremented."""
    _check_steps(state_steps)
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params)
    plan = _plan("rprop_step", params, differentiable)
    const = (maximize,), (etaminus, etaplus, step_size_min, step_size_max)
    _update(plan, "rprop_step", [params, prevs, step_sizes], grads, _counted(plan, state_steps), const, differentiable, foreach=foreach)


def _first_size(lr, is_complex):
    return complex(lr, lr) if is_complex else lr
