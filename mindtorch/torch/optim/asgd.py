"""Averaged stochastic gradient descent (https://pytorch.org/docs/stable/generated/torch.optim.ASGD.html)."""
import mindtorch.torch as torch
from mindtorch.backend.cpu import optimizer as optim_kernels
from mindtorch.core.tensor import bump
from mindtorch.torch.optim.optimizer import (
    Optimizer,
    _advance,
    _by_step,
    _check_at_least_zero,
    _check_capturable,
    _check_foreach,
    _check_lr,
    _evaluate,
    _get_scalar_dtype,
    _get_value,
    _host_layout,
    _run,
    _upgrade,
    _use_grad_for_differentiable,
    _view_as_real,
    _zero_step,
    _zeros,
)

__all__ = ["ASGD", "asgd"]


class ASGD(Optimizer):
    """Averaged stochastic gradient descent; state[p]["ax"] is the average of the parameter since step t0.

    lambd, alpha  decay term, and power of the falling rate lr / (1 + lambd * lr * t) ** alpha.
    """

    def __init__(self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False,
                 differentiable=False, capturable=False):
        _check_lr(lr)
        _check_at_least_zero(weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable))

    def __setstate__(self, state):
        super().__setstate__(state)
        _upgrade(self, foreach=None, maximize=False, differentiable=False, capturable=False)
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state.get(p, ())
                for key in ("eta", "mu"):
                    if key in s and not torch.is_tensor(s[key]):
                        s[key] = torch.tensor(float(s[key]), dtype=_get_scalar_dtype())

    def _init_group(self, group, params_with_grad, grads, mus, axs, etas, state_steps):
        has_complex = False
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.is_sparse:
                raise RuntimeError("ASGD does not support sparse gradients")
            has_complex = has_complex or p._stype.kind == "c"
            state = self.state[p]
            if not state:
                dtype = _get_scalar_dtype()
                state["step"] = _zero_step()
                state["eta"] = torch.tensor(float(_get_value(group["lr"])), dtype=dtype)
                state["mu"] = torch.ones((), dtype=dtype)
                state["ax"] = _zeros(p)
            params_with_grad.append(p)
            grads.append(g)
            mus.append(state["mu"])
            axs.append(state["ax"])
            etas.append(state["eta"])
            state_steps.append(state["step"])
        return has_complex

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """One update; returns the closure's loss."""
        loss = _evaluate(closure)
        for group in self.param_groups:
            params, grads, mus, axs, etas, steps = [], [], [], [], [], []
            has_complex = self._init_group(group, params, grads, mus, axs, etas, steps)
            asgd(params, grads, axs, mus, etas, steps, foreach=group["foreach"], maximize=group["maximize"],
                 differentiable=group["differentiable"], capturable=group["capturable"], has_complex=has_complex,
                 lambd=group["lambd"], lr=group["lr"], t0=group["t0"], alpha=group["alpha"],
                 weight_decay=group["weight_decay"])
        return loss


def asgd(params, grads, axs, mus, etas, state_steps, foreach=None, maximize=False, differentiable=False,
         capturable=False, has_complex=False, *, lambd, lr, t0, alpha, weight_decay):
    """One step of ASGD on lists of tensors; steps, `mus` and `etas` hold one-element tensors, updated in place."""
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params, "params, mus, etas, and state_steps", supports_xla=not foreach)
    layout = _host_layout(params, differentiable)
    lr = _get_value(lr)
    if layout is None:
        params, grads, axs = list(params), list(grads), list(axs)
        _view_as_real(params, grads, axs)
        for i, p in enumerate(params):
            state_steps[i] += 1
            _tensor_step(p, grads[i], axs[i], mus[i].item(), etas[i].item(), maximize, lambd, weight_decay)
            _next_rates(etas[i], mus[i], state_steps[i].item(), lambd, lr, t0, alpha)
        return
    steps = _advance(state_steps)
    options = maximize, weight_decay != 0

    def numbers(key):
        eta, mu = key
        return (*options, mu != 1), (eta, 1 - lambd * eta, mu, weight_decay)

    keys = []
    for eta, mu, t in zip(etas, mus, steps):
        keys.append((eta.item(), mu.item()))
        _next_rates(eta, mu, t, lambd, lr, t0, alpha)
    _run(layout, optim_kernels.asgd, [params, axs], grads, _by_step(keys, numbers))


def _next_rates(eta, mu, t, lambd, lr, t0, alpha):
    eta._a.fill(lr / (1 + lambd * lr * t) ** alpha)
    mu._a.fill(1 / max(1, t - t0))
    bump(eta)
    bump(mu)


def _tensor_step(p, g, ax, mu, eta, maximize, lambd, weight_decay):
    if maximize:
        g = -g
    if weight_decay != 0:
        g = g.add(p, alpha=weight_decay)
    p.mul_(1 - lambd * eta)
    p.add_(g, alpha=-eta)
    if mu == 1:
        ax.copy_(p)
    else:
        ax.add_(p.sub(ax).mul_(mu))
