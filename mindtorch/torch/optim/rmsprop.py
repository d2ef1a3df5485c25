"""RMSprop (https://pytorch.org/docs/stable/generated/torch.optim.RMSprop.html)."""
from mindtorch.backend.cpu import optimizer as optim_kernels
from mindtorch.torch.optim.optimizer import (
    Optimizer,
    _advance,
    _check_at_least_zero,
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

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(Optimizer):
    """RMSprop: gradients divided by a running root mean square.

    alpha     how long that mean remembers.
    centered  divides by the running standard deviation instead.
    """

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

    def _init_group(self, group, params_with_grad, grads, square_avgs, momentum_buffer_list, grad_avgs, state_steps):
        has_complex = False
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.is_sparse:
                raise RuntimeError("RMSprop does not support sparse gradients")
            has_complex = has_complex or p._stype.kind == "c"
            state = self.state[p]
            if not state:
                state["step"] = _zero_step()
                state["square_avg"] = _zeros(p)
                if group["momentum"] > 0:
                    state["momentum_buffer"] = _zeros(p)
                if group["centered"]:
                    state["grad_avg"] = _zeros(p)
            params_with_grad.append(p)
            grads.append(g)
            square_avgs.append(state["square_avg"])
            state_steps.append(state["step"])
            if group["momentum"] > 0:
                momentum_buffer_list.append(state["momentum_buffer"])
            if group["centered"]:
                grad_avgs.append(state["grad_avg"])
        return has_complex

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """One update; returns the closure's loss."""
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
    """One step of RMSprop on lists of tensors; `state_steps` holds one-element tensors, which count up."""
    _check_steps(state_steps)
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params)
    layout = _host_layout(params, differentiable)
    changed = [params, square_avgs]
    if centered:
        changed.append(grad_avgs)
    if momentum > 0:
        changed.append(momentum_buffer_list)
    if layout is None:
        changed = [list(c) for c in changed]
        grads = list(grads)
        _view_as_real(changed[0], grads, *changed[1:])
        for i, p in enumerate(changed[0]):
            _tensor_step(p, grads[i], changed[1][i], changed[2][i] if centered else None,
                         changed[-1][i] if momentum > 0 else None, state_steps[i], differentiable, maximize, lr, alpha,
                         eps, weight_decay, momentum)
        return
    _advance(state_steps)
    const = ((maximize, weight_decay != 0, bool(centered), momentum > 0),
             (_get_value(lr), alpha, 1 - alpha, eps, weight_decay, momentum))
    _run(layout, optim_kernels.rmsprop, changed, grads, [const] * len(params))


def _tensor_step(p, g, square, mean, buffer, step, differentiable, maximize, lr, alpha, eps, weight_decay, momentum):
    step += 1
    if maximize:
        g = -g
    if weight_decay != 0:
        g = g.add(p, alpha=weight_decay)
    if differentiable:
        square.copy_(square * alpha + g * g * (1 - alpha))
        average = square.clone()
        if mean is not None:
            mean.copy_(mean + (g - mean) * (1 - alpha))
            average = average - mean.clone() ** 2
        update = g / (average.sqrt() + eps)
        if buffer is not None:
            buffer.copy_(buffer * momentum + update)
            update = buffer.clone()
        p.sub_(update * lr)
        return
    lr = _get_value(lr)
    square.mul_(alpha).addcmul_(g, g, value=1 - alpha)
    if mean is not None:
        mean.lerp_(g, 1 - alpha)
        average = square.addcmul(mean, mean, value=-1).sqrt_()
    else:
        average = square.sqrt()
    average.add_(eps)
    if buffer is not None:
        buffer.mul_(momentum).addcdiv_(g, average)
        p.add_(buffer, alpha=-lr)
    else:
        p.addcdiv_(g, average, value=-lr)
