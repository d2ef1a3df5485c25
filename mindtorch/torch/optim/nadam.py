"""NAdam (https://pytorch.org/docs/stable/generated/torch.optim.NAdam.html)."""
import mindtorch.torch as torch
from mindtorch.core.device.fused_optim import scale_number
from mindtorch.torch.optim.optimizer import (
    Optimizer, _STEP, _State, _begin, _check_at_least_zero, _check_betas, _check_lr, _counted,
    _get_value, _group_step, _host_number, _update)

__all__ = ["NAdam", "nadam"]


def nadam(params, grads, exp_avgs, exp_avg_sqs, mu_products, state_steps, decoupled_weight_decay=False, foreach=None,
          capturable=False, differentiable=False, has_complex=False, maximize=False, *, beta1, beta2, lr, weight_decay,
          momentum_decay, eps):
    """Performs one step of NAdam on lists of tensors; `state_steps` and `mu_products` are updated
    in place."""
    if not all(torch.is_tensor(t) for t in mu_products):
        raise RuntimeError("API has changed, `mu_products` argument must contain a list of singleton tensors")
    plan = _begin("nadam_step", params, state_steps, foreach, differentiable, capturable, supports_xla=not foreach,
                  checked="params, mu_products, and state_steps" if foreach else "params, mu_products and state_steps")
    options = maximize, bool(weight_decay != 0), decoupled_weight_decay
    if plan is not None:
        lr, beta1, beta2 = _get_value(lr), _get_value(beta1), _get_value(beta2)
    rate = lr if differentiable else _get_value(lr)

    def keys():
        for t, product in zip(_counted(plan, state_steps), mu_products):
            mu = _momentum(beta1, momentum_decay, t)
            if plan is None:
                product *= mu
                yield t, product if differentiable else product.item()
            else:
                yield t, scale_number(product, mu)

    def numbers(key):
        t, product = key
        of_grad, of_mean = 1 - _momentum(beta1, momentum_decay, t), _momentum(beta1, momentum_decay, t + 1)
        # PyTorch's order of operations; the fused kernel's order differs in the last bit
        if plan is None:
            of_grad, of_mean = rate * (of_grad / (1 - product)), rate * (of_mean / (1 - product * of_mean))
        else:
            of_grad, of_mean = rate * of_grad / (1 - product), rate * of_mean / (1 - product * of_mean)
        wd = 1 - lr * weight_decay if decoupled_weight_decay else _get_value(weight_decay)
        return options, (of_grad, of_mean, 1 - beta2 ** t, eps, wd, 1 - beta1, beta2, 1 - beta2)

    _update(plan, "nadam_step", [params, exp_avgs, exp_avg_sqs], grads, keys(), numbers, differentiable, foreach=foreach)


def _momentum(beta1, decay, t):
    """Returns the momentum of step `t`."""
    return beta1 * (1 - 0.5 * 0.96 ** (t * decay))


class NAdam(Optimizer):
    """NAdam: Adam with Nesterov momentum, whose schedule is set by momentum_decay.

    Args:
        decoupled_weight_decay: shrinks the parameters instead of adding to the gradients.
    """

    _added_options = dict(maximize=False, foreach=None, capturable=False, differentiable=False, decoupled_weight_decay=False)
    _states = (_STEP, _State("mu_product", lambda p, g, group: _host_number(1.0), scalar=True), _State("exp_avg"), _State("exp_avg_sq"))
    _lists = "exp_avg", "exp_avg_sq", "mu_product", "step"
    _no_sparse = "NAdam does not support sparse gradients"

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

    step = _group_step(nadam)
