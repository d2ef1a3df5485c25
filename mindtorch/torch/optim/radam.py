"""RAdam (https://pytorch.org/docs/stable/generated/torch.optim.RAdam.html)."""
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

__all__ = ["RAdam", "radam"]


class RAdam(Optimizer):
    """RAdam: Adam whose first steps go without the adaptive rate, until its variance is tractable.

    decoupled_weight_decay  shrinks the parameters instead of adding to the gradients.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *,
                 foreach=None, maximize=False, capturable=False, differentiable=False):
        _check_lr(lr)
        _check_at_least_zero(eps=eps)
        _check_betas(betas)
        _check_at_least_zero(weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach,
            capturable=capturable, decoupled_weight_decay=decoupled_weight_decay, differentiable=differentiable))

    def __setstate__(self, state):
        super().__setstate__(state)
        _upgrade(self, foreach=None, maximize=False, differentiable=False, decoupled_weight_decay=False,
                 capturable=False)

    def _init_group(self, group, params_with_grad, grads, exp_avgs, exp_avg_sqs, state_steps):
        has_complex = False
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.is_sparse:
                raise RuntimeError("RAdam does not support sparse gradients")
            has_complex = has_complex or p._stype.kind == "c"
            state = self.state[p]
            if not state:
                state["step"] = _zero_step()
                state["exp_avg"] = _zeros(p)
                state["exp_avg_sq"] = _zeros(p)
            params_with_grad.append(p)
            grads.append(g)
            exp_avgs.append(state["exp_avg"])
            exp_avg_sqs.append(state["exp_avg_sq"])
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
            radam(*columns, decoupled_weight_decay=group["decoupled_weight_decay"], foreach=group["foreach"],
                  differentiable=group["differentiable"], capturable=group["capturable"], has_complex=has_complex,
                  maximize=group["maximize"], beta1=beta1, beta2=beta2, lr=group["lr"],
                  weight_decay=group["weight_decay"], eps=group["eps"])
        return loss


def radam(params, grads, exp_avgs, exp_avg_sqs, state_steps, decoupled_weight_decay=False, foreach=None,
          differentiable=False, capturable=False, has_complex=False, maximize=False, *, beta1, beta2, lr, weight_decay,
          eps):
    """One step of RAdam on lists of tensors; `state_steps` holds one-element tensors, which count up."""
    _check_steps(state_steps)
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params, supports_xla=not foreach)
    layout = _host_layout(params, differentiable)
    if layout is None:
        params, grads, exp_avgs, exp_avg_sqs = list(params), list(grads), list(exp_avgs), list(exp_avg_sqs)
        _view_as_real(params, grads, exp_avgs, exp_avg_sqs)
        for i, p in enumerate(params):
            _tensor_step(p, grads[i], exp_avgs[i], exp_avg_sqs[i], state_steps[i], decoupled_weight_decay,
                         differentiable, maximize, beta1, beta2, lr, weight_decay, eps)
        return
    lr, beta1, beta2 = _get_value(lr), _get_value(beta1), _get_value(beta2)
    rest = eps, 1 - lr * weight_decay if decoupled_weight_decay else weight_decay, 1 - beta1, beta2, 1 - beta2

    def numbers(t):
        rect = optim_kernels.rectification(beta2, t)
        options = maximize, weight_decay != 0, decoupled_weight_decay, rect is not None
        return options, (1 - beta1 ** t, lr, (1 - beta2 ** t) ** 0.5, rect or 1.0, *rest)

    _run(layout, optim_kernels.radam, [params, exp_avgs, exp_avg_sqs], grads, _by_step(_advance(state_steps), numbers))


def _tensor_step(p, g, m, v, step, decoupled, differentiable, maximize, beta1, beta2, lr, weight_decay, eps):
    if maximize:
        g = -g
    step += 1
    t = step.item()
    if weight_decay != 0:
        if decoupled:
            p.mul_(1 - lr * weight_decay)
        else:
            g = g.add(p, alpha=weight_decay)
    if differentiable:
        m.copy_(m + (g - m) * (1 - beta1))
        v.copy_(v * beta2 + g * g * (1 - beta2))
        m, v = m.clone(), v.clone()
    else:
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        lr = _get_value(lr)
    mean = m / (1 - beta1 ** t)
    rect = optim_kernels.rectification(beta2, t)
    if rect is None:
        p.add_(mean * lr, alpha=-1.0)
    else:
        adaptive = (1 - beta2 ** t) ** 0.5 / (v.sqrt() + eps)
        p.add_(mean * lr * adaptive * rect, alpha=-1.0)
