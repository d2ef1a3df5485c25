"""Adadelta (https://pytorch.org/docs/stable/generated/torch.optim.Adadelta.html)."""
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

__all__ = ["Adadelta", "adadelta"]


class Adadelta(Optimizer):
    """Adadelta: steps scaled by the ratio of the running root mean squares of past updates and gradients.

    rho  how long those means remember, in [0, 1].
    """

    def __init__(self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False,
                 maximize=False, differentiable=False):
        _check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        _check_at_least_zero(eps=eps, weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, capturable=capturable,
            foreach=foreach, differentiable=differentiable))

    def __setstate__(self, state):
        super().__setstate__(state)
        _upgrade(self, foreach=None, maximize=False, differentiable=False, capturable=False)

    def _init_group(self, group, params_with_grad, grads, square_avgs, acc_deltas, state_steps):
        has_complex = False
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.is_sparse:
                raise RuntimeError("Adadelta does not support sparse gradients")
            has_complex = has_complex or p._stype.kind == "c"
            state = self.state[p]
            if not state:
                state["step"] = _zero_step()
                state["square_avg"] = _zeros(p)
                state["acc_delta"] = _zeros(p)
            params_with_grad.append(p)
            grads.append(g)
            square_avgs.append(state["square_avg"])
            acc_deltas.append(state["acc_delta"])
            state_steps.append(state["step"])
        return has_complex

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """One update; returns the closure's loss."""
        loss = _evaluate(closure)
        for group in self.param_groups:
            columns = [], [], [], [], []
            has_complex = self._init_group(group, *columns)
            adadelta(*columns, capturable=group["capturable"], foreach=group["foreach"],
                     differentiable=group["differentiable"], has_complex=has_complex, lr=group["lr"], rho=group["rho"],
                     eps=group["eps"], weight_decay=group["weight_decay"], maximize=group["maximize"])
        return loss


def adadelta(params, grads, square_avgs, acc_deltas, state_steps, capturable=False, foreach=None, differentiable=False,
             has_complex=False, *, lr, rho, eps, weight_decay, maximize):
    """One step of Adadelta on lists of tensors; `state_steps` holds one-element tensors, which count up."""
    _check_steps(state_steps)
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params, supports_xla=False)
    layout = _host_layout(params, differentiable)
    if layout is None:
        params, grads, square_avgs, acc_deltas = list(params), list(grads), list(square_avgs), list(acc_deltas)
        _view_as_real(params, grads, square_avgs, acc_deltas)
        for i, p in enumerate(params):
            _tensor_step(p, grads[i], square_avgs[i], acc_deltas[i], state_steps[i], differentiable, lr, rho, eps,
                         weight_decay, maximize)
        return
    _advance(state_steps)
    const = (maximize, weight_decay != 0), (_get_value(lr), rho, 1 - rho, eps, weight_decay)
    _run(layout, optim_kernels.adadelta, [params, square_avgs, acc_deltas], grads, [const] * len(params))


def _tensor_step(p, g, square, acc, step, differentiable, lr, rho, eps, weight_decay, maximize):
    step += 1
    if maximize:
        g = -g
    if weight_decay != 0:
        g = g.add(p, alpha=weight_decay)
    if differentiable:
        square.copy_(square * rho + g * g * (1 - rho))
        delta = (acc.clone() + eps).sqrt() / (square.clone() + eps).sqrt() * g
        acc.copy_(acc * rho + delta * delta * (1 - rho))
        p.sub_(delta * lr)
        return
    square.mul_(rho).addcmul_(g, g, value=1 - rho)
    delta = acc.add(eps).sqrt_().div_(square.add(eps).sqrt_()).mul_(g)
    acc.mul_(rho).addcmul_(delta, delta, value=1 - rho)
    p.add_(delta, alpha=-_get_value(lr))
