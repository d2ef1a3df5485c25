"""Rprop (https://pytorch.org/docs/stable/generated/torch.optim.Rprop.html)."""
import mindtorch.torch as torch
from mindtorch.backend.cpu import optimizer as optim_kernels
from mindtorch.torch.optim.optimizer import (
    Optimizer,
    _advance,
    _check_capturable,
    _check_foreach,
    _check_lr,
    _check_steps,
    _evaluate,
    _get_value,
    _host_layout,
    _run,
    _upgrade,
    _use_grad_for_differentiable,
    _view_as_real,
    _zero_step,
    _zeros,
)

__all__ = ["Rprop", "rprop"]


class Rprop(Optimizer):
    """Resilient backpropagation: steps of their own size for each element, by the signs of its last two gradients.

    etas        factors at a change of sign and at none.
    step_sizes  smallest and largest step.
    """

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

    def _init_group(self, group, params, grads, prevs, step_sizes, state_steps):
        has_complex = False
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.is_sparse:
                raise RuntimeError("Rprop does not support sparse gradients")
            is_complex = p._stype.kind == "c"
            has_complex = has_complex or is_complex
            state = self.state[p]
            if not state:
                lr = _get_value(group["lr"])
                state["step"] = _zero_step()
                state["prev"] = _zeros(p)
                state["step_size"] = torch.full_like(g, complex(lr, lr) if is_complex else lr)
            params.append(p)
            grads.append(g)
            prevs.append(state["prev"])
            step_sizes.append(state["step_size"])
            state_steps.append(state["step"])
        return has_complex

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """One update; returns the closure's loss."""
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
    """One step of Rprop on lists of tensors; `state_steps` holds one-element tensors, which count up."""
    _check_steps(state_steps)
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params)
    layout = _host_layout(params, differentiable)
    if layout is None:
        params, grads, prevs, step_sizes = list(params), list(grads), list(prevs), list(step_sizes)
        _view_as_real(params, grads, prevs, step_sizes)
        for i, p in enumerate(params):
            _tensor_step(p, grads[i], prevs[i], step_sizes[i], state_steps[i], maximize, differentiable, step_size_min,
                         step_size_max, etaminus, etaplus)
        return
    _advance(state_steps)
    const = (maximize,), (etaminus, etaplus, step_size_min, step_size_max)
    _run(layout, optim_kernels.rprop, [params, prevs, step_sizes], grads, [const] * len(params))


def _tensor_step(p, g, prev, size, step, maximize, differentiable, low, high, shrink, grow):
    step += 1
    if maximize:
        g = -g
    product = g * (prev.clone() if differentiable else prev)
    factor = torch.ones_like(product).masked_fill(product > 0, grow).masked_fill(product < 0, shrink)
    size.copy_((size * factor).clamp(low, high))
    g = g.masked_fill(product < 0, 0)
    p.addcmul_(g.sign(), size.clone() if differentiable else size, value=-1)
    prev.copy_(g)
