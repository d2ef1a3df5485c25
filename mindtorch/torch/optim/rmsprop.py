"""RMSprop (https://pytorch.org/docs/stable/generated/torch.optim.RMSprop.html)."""
from mindtorch.torch.optim.optimizer import Optimizer, _STEP, _State, _begin, _check_at_least_zero, _check_lr, _counted, _get_value, _group_step, _update

__all__ = ["RMSprop", "rmsprop"]


def rmsprop(params, grads, square_avgs, grad_avgs, momentum_buffer_list, state_steps, foreach=None, maximize=False,
            differentiable=False, capturable=False, has_complex=False, *, lr, alpha, eps, weight_decay, momentum,
            centered):
    """Performs one step of RMSprop on lists of tensors; `state_steps` are one-element tensors that
    are incremented."""
    plan = _begin("rmsprop_step", params, state_steps, foreach, differentiable, capturable)
    if not differentiable:
        lr = _get_value(lr)
    const = (maximize, bool(weight_decay != 0), bool(centered), momentum > 0), (lr, alpha, 1 - alpha, eps, _get_value(weight_decay), momentum)
    changed = [params, square_avgs, *([grad_avgs] if centered else []), *([momentum_buffer_list] if momentum > 0 else [])]
    _update(plan, "rmsprop_step", changed, grads, _counted(plan, state_steps), const, differentiable, foreach=foreach)


class RMSprop(Optimizer):
    """RMSprop: divides gradients by their running root mean square.

    Args:
        alpha: decay rate of the running averages.
        centered: divides by the running standard deviation instead.
    """

    _added_options = dict(momentum=0, centered=False, foreach=None, maximize=False, differentiable=False, capturable=False)
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

    step = _group_step(rmsprop, lists=["params", "grads", "square_avgs", "momentum_buffer_list", "grad_avgs", "state_steps"])
