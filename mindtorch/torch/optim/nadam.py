"""NAdam (https://pytorch.org/docs/stable/generated/torch.optim.NAdam.html)."""
import mindtorch.torch as torch
from mindtorch.backend.cpu import optimizer as optim_kernels
from mindtorch.core.tensor import bump
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

__all__ = ["NAdam", "nadam"]


class NAdam(Optimizer):
    """NAdam: Adam with Nesterov momentum on a schedule set by momentum_decay.

    decoupled_weight_decay  shrinks the parameters instead of adding to the gradients.
    """

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3,
                 decoupled_weight_decay=False, *, foreach=None, maximize=False, capturable=False, differentiable=False):
        _check_lr(lr)
        _check_at_least_zero(eps=eps)
        _check_betas(betas)
        _check_at_least_zero(weight_decay=weight_decay, momentum_decay=momentum_decay)
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
            differentiable=differentiable))

    def __setstate__(self, state):
        super().__setstate__(state)
        _upgrade(self, maximize=False, foreach=None, capturable=False, differentiable=False,
                 decoupled_weight_decay=False)
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state.get(p, ())
                if "mu_product" in s and not torch.is_tensor(s["mu_product"]):
                    s["mu_product"] = torch.tensor(float(s["mu_product"]), dtype=_get_scalar_dtype())

    def _init_group(self, group, params_with_grad, grads, exp_avgs, exp_avg_sqs, mu_products, state_steps):
        has_complex = False
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.is_sparse:
                raise RuntimeError("NAdam does not support sparse gradients")
            has_complex = has_complex or p._stype.kind == "c"
            state = self.state[p]
            if not state:
                state["step"] = _zero_step()
                state["mu_product"] = torch.tensor(1.0, dtype=_get_scalar_dtype())
                state["exp_avg"] = _zeros(p)
                state["exp_avg_sq"] = _zeros(p)
            params_with_grad.append(p)
            grads.append(g)
            exp_avgs.append(state["exp_avg"])
            exp_avg_sqs.append(state["exp_avg_sq"])
            mu_products.append(state["mu_product"])
            state_steps.append(state["step"])
        return has_complex

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """One update; returns the closure's loss."""
        loss = _evaluate(closure)
        for group in self.param_groups:
            columns = [], [], [], [], [], []
            has_complex = self._init_group(group, *columns)
            beta1, beta2 = group["betas"]
            nadam(*columns, decoupled_weight_decay=group["decoupled_weight_decay"], foreach=group["foreach"],
                  capturable=group["capturable"], differentiable=group["differentiable"], has_complex=has_complex,
                  maximize=group["maximize"], beta1=beta1, beta2=beta2, lr=group["lr"],
                  weight_decay=group["weight_decay"], momentum_decay=group["momentum_decay"], eps=group["eps"])
        return loss


def nadam(params, grads, exp_avgs, exp_avg_sqs, mu_products, state_steps, decoupled_weight_decay=False, foreach=None,
          capturable=False, differentiable=False, has_complex=False, maximize=False, *, beta1, beta2, lr, weight_decay,
          momentum_decay, eps):
    """One step of NAdam on lists of tensors; `state_steps` and `mu_products` are updated in place."""
    _check_steps(state_steps)
    if not all(torch.is_tensor(t) for t in mu_products):
        raise RuntimeError("API has changed, `mu_products` argument must contain a list of singleton tensors")
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params,
                      "params, mu_products, and state_steps" if foreach else "params, mu_products and state_steps",
                      supports_xla=not foreach)
    layout = _host_layout(params, differentiable)
    if layout is None:
        params, grads, exp_avgs, exp_avg_sqs = list(params), list(grads), list(exp_avgs), list(exp_avg_sqs)
        _view_as_real(params, grads, exp_avgs, exp_avg_sqs)
        for i, p in enumerate(params):
            _tensor_step(p, grads[i], exp_avgs[i], exp_avg_sqs[i], mu_products[i], state_steps[i],
                         decoupled_weight_decay, differentiable, maximize, beta1, beta2, lr, weight_decay,
                         momentum_decay, eps)
        return
    lr, beta1, beta2 = _get_value(lr), _get_value(beta1), _get_value(beta2)
    options = maximize, weight_decay != 0, decoupled_weight_decay
    rest = eps, 1 - lr * weight_decay if decoupled_weight_decay else weight_decay, 1 - beta1, beta2, 1 - beta2

    def numbers(key):
        t, product = key
        mu, following = _momenta(beta1, momentum_decay, t)
        of_grad, of_mean = -lr * (1 - mu) / (1 - product), -lr * following / (1 - product * following)
        return options, (of_grad, of_mean, 1 - beta2 ** t, *rest)

    keys = []
    for t, product in zip(_advance(state_steps), mu_products):
        a = product._a
        a.fill(a[()] * a.dtype.type(_momenta(beta1, momentum_decay, t)[0]))
        bump(product)
        keys.append((t, a.item()))
    _run(layout, optim_kernels.nadam, [params, exp_avgs, exp_avg_sqs], grads, _by_step(keys, numbers))


def _momenta(beta1, decay, t):
    """The momentum of step `t` and of the next one."""
    return beta1 * (1 - 0.5 * 0.96 ** (t * decay)), beta1 * (1 - 0.5 * 0.96 ** ((t + 1) * decay))


def _tensor_step(p, g, m, v, mu_product, step, decoupled, differentiable, maximize, beta1, beta2, lr, weight_decay,
                 momentum_decay, eps):
    if maximize:
        g = -g
    step += 1
    t = step.item()
    if weight_decay != 0:
        if decoupled:
            p.mul_(1 - lr * weight_decay)
        else:
            g = g.add(p, alpha=weight_decay)
    mu, following = _momenta(beta1, momentum_decay, t)
    mu_product *= mu
    product = mu_product.item()
    of_grad, of_mean = (1 - mu) / (1 - product), following / (1 - product * following)
    if differentiable:
        m.copy_(m + (g - m) * (1 - beta1))
        v.copy_(v * beta2 + g * g * (1 - beta2))
        denominator = (v.clone() / (1 - beta2 ** t)).sqrt() + eps
        p.sub_(g / denominator * (lr * of_grad))
        p.sub_(m.clone() / denominator * (lr * of_mean))
        return
    lr = _get_value(lr)
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    denominator = v.div(1 - beta2 ** t).sqrt().add_(eps)
    p.addcdiv_(g, denominator, value=-lr * of_grad)
    p.addcdiv_(m, denominator, value=-lr * of_mean)
