"""Optimizer steps, and the check for finite gradients."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import kernel


def _adamw(p, m, v, largest, grad, step, lr, beta1, beta2, decay, eps, amsgrad, maximize):
    """Computes AdamW in float32. `step` counts finished steps: the kernel adds 1."""
    done = float(step.reshape(-1)[0]) + 1
    g = -grad.float() if maximize else grad.float()
    new_m = beta1 * m.float() + (1 - beta1) * g
    new_v = beta2 * v.float() + (1 - beta2) * g * g
    bound = torch.maximum(largest.float(), new_v) if amsgrad else new_v
    root = bound.sqrt() / (1 - beta2 ** done) ** 0.5 + eps
    new_p = p.float() * (1 - lr * decay) - lr / (1 - beta1 ** done) * new_m / root
    return new_p, new_m, new_v, bound if amsgrad else None


kernel("ApplyAdamWV2", "p!, m!, v!, largest!, grad, step, lr:float, beta1:float, beta2:float, decay:float, eps:float, amsgrad:bool, maximize:bool")(_adamw)
# (Launched once per tensor, with the same flag: the first non-finite value sets it, and it stays
# set.)
kernel("AllFinite", "grad, found!")(lambda grad, found: torch.logical_or(found, ~torch.isfinite(grad).all()))
