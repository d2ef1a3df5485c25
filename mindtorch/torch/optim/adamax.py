"""Adamax (https://pytorch.org/docs/stable/generated/torch.optim.Adamax.html)."""
from mindtorch.backend.cpu import optimizer as optim_kernels
from mindtorch.torch.optim.optimizer import (
    Optimizer,
    _advance,
    _by_step,
    _check_at_least_zero,
    _check_betas,
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

__all__ = ["Adamax", "adamax"]


class Adamax(Optimizer):
    """Adamax: Adam with the largest gradient so far, exponentially forgotten, in place of the second moment."""

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False,
                 differentiable=False, capturable=False):
        _check_lr(lr)
        _check_at_least_zero(eps=eps)
        _check_betas(betas)
        _check_at_least_zero(weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable))

    def __setstate__(self, state):
        super().__setstate__(state)
        _upgrade(self, foreach=None, maximize=False, differentiable=False, capturable=False)

    def _init_group(self, group, params_with_grad, grads, exp_avgs, exp_infs, state_steps):
        has_complex = False
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.is_sparse:
                raise RuntimeError("Adamax does not support sparse gradients")
            has_complex = has_complex or p._stype.kind == "c"
            state = self.state[p]
            if not state:
                state["step"] = _zero_step()
                state["exp_avg"] = _zeros(p)
                state["exp_inf"] = _zeros(p)
            params_with_grad.append(p)
            grads.append(g)
            exp_avgs.append(state["exp_avg"])
            exp_infs.append(state["exp_inf"])
            state_steps.append(state["step"])
        return has_complex

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """One update; returns the closure's loss."""
        loss = _evaluate(closure)
        for group in self.param_groups:
            columns = [], [], [], [], []
            has_complex = self._init_group(group, *columns)
            beta1, beta2 = group["betas"]
            adamax(*columns, foreach=group["foreach"], maximize=group["maximize"],
                   differentiable=group["differentiable"], capturable=group["capturable"], has_complex=has_complex,
                   eps=group["eps"], beta1=beta1, beta2=beta2, lr=group["lr"], weight_decay=group["weight_decay"])
        return loss


def adamax(params, grads, exp_avgs, exp_infs, state_steps, foreach=None, maximize=False, differentiable=False,
           capturable=False, has_complex=False, *, eps, beta1, beta2, lr, weight_decay):
    """One step of Adamax on lists of tensors; `state_steps` holds one-element tensors, which count up."""
    _check_steps(state_steps)
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params, supports_xla=not foreach)
    layout = _host_layout(params, differentiable)
    if layout is None:
        params, grads, exp_avgs, exp_infs = list(params), list(grads), list(exp_avgs), list(exp_infs)
        _view_as_real(params, grads, exp_avgs, exp_infs)
        for i, p in enumerate(params):
            _tensor_step(p, grads[i], exp_avgs[i], exp_infs[i], state_steps[i], differentiable, maximize, eps, beta1,
                         beta2, lr, weight_decay)
        return
    lr, beta1, beta2 = _get_value(lr), _get_value(beta1), _get_value(beta2)
    options = maximize, weight_decay != 0

    def numbers(t):
        return options, (-lr / (1 - beta1 ** t), eps, weight_decay, 1 - beta1, beta2)

    _run(layout, optim_kernels.adamax, [params, exp_avgs, exp_infs], grads, _by_step(_advance(state_steps), numbers))


def _tensor_step(p, g, m, u, step, differentiable, maximize, eps, beta1, beta2, lr, weight_decay):
    if maximize:
        g = -g
    step += 1
    if weight_decay != 0:
        g = g.add(p, alpha=weight_decay)
    if differentiable:
        m.copy_(m + (g - m) * (1 - beta1))
        u.copy_((u * beta2).maximum(g.abs() + eps))
        p.sub_(m.clone() / u.clone() * (lr / (1 - beta1 ** step.item())))
        return
    m.lerp_(g, 1 - beta1)
    u.copy_(u.mul_(beta2).maximum(g.abs().add_(eps)))
    p.addcdiv_(m, u, value=-_get_value(lr) / (1 - beta1 ** step.item()))
