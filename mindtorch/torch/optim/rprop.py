"""Rprop (https://pytorch.org/docs/stable/generated/torch.optim.Rprop.html)."""
import mindtorch.torch as torch
from mindtorch.torch.optim.optimizer import Optimizer, _STEP, _State, _begin, _check_lr, _counted, _get_value, _group_step, _update

__all__ = ["Rprop", "rprop"]


def rprop(params, grads, prevs, step_sizes, state_steps, foreach=None, capturable=False, maximize=False,
          differentiable=False, has_complex=False, *, step_size_min, step_size_max, etaminus, etaplus):
    """Performs one step of Rprop on lists of tensors; `state_steps` are one-element tensors that
    are incremented."""
    plan = _begin("rprop_step", params, state_steps, foreach, differentiable, capturable)
    const = (maximize,), (etaminus, etaplus, step_size_min, step_size_max)
    _update(plan, "rprop_step", [params, prevs, step_sizes], grads, _counted(plan, state_steps), const, differentiable, foreach=foreach)


def _first_size(lr, is_complex):
    return complex(lr, lr) if is_complex else lr


class Rprop(Optimizer):
    """Resilient backpropagation: adapts the step size of each element to the signs of its last two
    gradients.

    Args:
        etas: factors of the step size (if the sign changes, if it does not).
        step_sizes: (minimum, maximum) step size.
    """

    _added_options = dict(foreach=None, maximize=False, differentiable=False, capturable=False)
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

    step = _group_step(rprop)
