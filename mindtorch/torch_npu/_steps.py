"""Single Adam steps, applied to one parameter in place."""
from mindtorch import torch


@torch.no_grad()
def npu_apply_adam_w(beta1_power, beta2_power, lr, weight_decay, beta1, beta2, epsilon, grad, max_grad_norm=None, amsgrad=False, maximize=False, *, out):
    """Performs one step of AdamW on out=(var, m, v) in place; returns out.

        beta1_power, beta2_power  the powers before this step: beta ** (step - 1)
        max_grad_norm             with amsgrad: the maximum of the second moments so far, updated in
                                  place
    """
    var, m, v = out
    g = -grad if maximize else grad
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    second = v
    if amsgrad:
        if max_grad_norm is None:
            raise ValueError("npu_apply_adam_w: amsgrad=True needs max_grad_norm, a tensor of var's shape")
        second = max_grad_norm.copy_(torch.maximum(max_grad_norm, v))
    denominator = (second / (1 - beta2_power * beta2)).sqrt_().add_(epsilon)
    var.mul_(1 - lr * weight_decay).addcdiv_(m, denominator, value=-lr / (1 - beta1_power * beta1))
    return var, m, v


@torch.no_grad()
def npu_apply_adam(beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad, use_locking=False, use_nesterov=False, *, out):
    """Performs one step of Adam on out=(var, m, v) in place; returns out.

        beta1_power, beta2_power  beta ** step; lr is multiplied by sqrt(1 - beta2_power) /
                                  (1 - beta1_power), and epsilon is added to sqrt(v)
    """
    var, m, v = out
    m.lerp_(grad, 1 - beta1)
    v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    rate = lr * (1 - beta2_power) ** 0.5 / (1 - beta1_power)
    first = m * beta1 + grad * (1 - beta1) if use_nesterov else m
    var.addcdiv_(first, v.sqrt().add_(epsilon), value=-rate)
    return var, m, v
