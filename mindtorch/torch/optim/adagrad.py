"""Adagrad (https://pytorch.org/docs/stable/generated/torch.optim.Adagrad.html)."""
import mindtorch.torch as torch
from mindtorch.torch.optim.optimizer import (
    Optimizer, _State, _amp_skips, _begin, _check_at_least_zero, _check_fused, _check_lr, _count,
    _counted, _get_value, _group_step, _update, _zero_step)

__all__ = ["Adagrad", "adagrad"]


def adagrad(params, grads, state_sums, state_steps, fused=None, grad_scale=None, found_inf=None, has_sparse_grad=False,
            foreach=None, differentiable=False, has_complex=False, *, lr, weight_decay, lr_decay, eps, maximize):
    """Performs one step of Adagrad on lists of tensors; `state_steps` are one-element tensors that
    are incremented."""
    plan = _begin(None if has_sparse_grad else "adagrad_step", params, state_steps, foreach, differentiable, fused=fused)
    if _amp_skips(grads, grad_scale, found_inf):
        return
    if plan is not None:
        lr = _get_value(lr)
    options = maximize, bool(weight_decay != 0)

    def numbers(t):
        return options, (lr / (1 + (t - 1) * lr_decay), eps, _get_value(weight_decay))

    if not has_sparse_grad:
        _update(plan, "adagrad_step", [params, state_sums], grads, _counted(plan, state_steps), numbers, differentiable, foreach=foreach)
        return
    for p, g, total, step in zip(params, grads, state_sums, state_steps):
        if g.is_sparse:
            _sparse_step(p, g, total, *numbers(_count(step)))
        else:
            _update(None, "adagrad_step", [[p], [total]], [g], _counted(None, [step]), numbers, differentiable)


def _sparse_step(p, g, total, options, numbers):
    """Applies a sparse gradient, which updates only the rows it contains."""
    maximize, decay = options
    size, eps, _ = numbers
    if decay:
        raise RuntimeError("weight_decay option is not compatible with sparse gradients")
    g = (-g if maximize else g).coalesce()
    rows = tuple(g._indices())
    values = g._values()
    if values.numel():
        total.index_put_(rows, values * values, accumulate=True)
        p.index_put_(rows, values / total[rows].sqrt().add_(eps) * -_get_value(size), accumulate=True)


class Adagrad(Optimizer):
    """Adagrad: divides gradients by the square root of the sum of all past squared gradients.

    Sparse gradients are supported without weight decay; only the rows present in the gradient are
    updated.

    Args:
        initial_accumulator_value: initial value of that sum.
    """

    _added_options = dict(foreach=None, maximize=False, differentiable=False, fused=None)
    _states = _State("sum", None), _State("step", None, scalar=True)
    _lists = "sum", "step"
    _fused_checks = "step"
    _tells = "both"

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10,
                 foreach=None, *, maximize=False, differentiable=False, fused=None):
        _check_lr(lr)
        _check_at_least_zero(lr_decay=lr_decay, weight_decay=weight_decay,
                             initial_accumulator_value=initial_accumulator_value, eps=eps)
        super().__init__(params, dict(
            lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value, foreach=foreach, maximize=maximize,
            differentiable=differentiable, fused=fused))
        _check_fused(self, fused, foreach, differentiable)
        for group in self.param_groups:
            for p in group["params"]:
                self._make_state(p, group)

    def _make_state(self, p, group):
        start = self.defaults["initial_accumulator_value"]
        if p.is_complex():
            start = complex(start, start)
        self.state[p]["step"] = _zero_step(group["fused"])
        self.state[p]["sum"] = torch.full_like(p, start, memory_format=torch.preserve_format).detach()

    def _init_group(self, group, params, grads, *columns):
        for p in group["params"]:
            # parameter of a group that was added later
            if p.grad is not None and not self.state[p]:
                self._make_state(p, group)
        return super()._init_group(group, params, grads, *columns)

    def share_memory(self):
        """Moves the state to shared memory, for multi-process training."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    step = _group_step(adagrad)
