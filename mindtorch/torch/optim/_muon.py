"""Muon (https://pytorch.org/docs/stable/generated/torch.optim.Muon.html)."""
import math

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.optim.optimizer import Optimizer, _get_value, _group_step, _zeros

__all__ = ["Muon", "muon"]

# Coefficients of the quintic iteration, chosen for fast growth of small singular values.
DEFAULT_A, DEFAULT_B, DEFAULT_C = 3.4445, -4.7750, 2.0315
DEFAULT_NS_STEPS = 5
EPS = 1e-7


def muon(params, grads, muon_momentum_bufs, *, foreach=None, lr, weight_decay, momentum, nesterov, ns_coefficients,
         ns_steps, eps, adjust_lr_fn, has_complex):
    """Performs one step of Muon on lists of matrices."""
    if foreach:
        raise RuntimeError("Foreach is not supported for Muon yet")
    lr = _get_value(lr)
    for p, g, buffer in zip(params, grads, muon_momentum_bufs):
        if g.ndim != 2:
            raise ValueError("Param gradient must be a 2D matrix")
        buffer.lerp_(g, 1 - momentum)
        update = g.lerp(buffer, momentum) if nesterov else buffer
        update = _zeropower_via_newtonschulz(update, ns_coefficients, ns_steps, eps)
        p.mul_(1 - lr * weight_decay)
        p.add_(update, alpha=-_adjust_lr(lr, adjust_lr_fn, p.shape))


def _adjust_lr(lr, adjust_lr_fn, param_shape):
    """Returns the learning rate for a matrix of the given shape."""
    rows, columns = param_shape[:2]
    if adjust_lr_fn is None or adjust_lr_fn == "original":
        return lr * math.sqrt(max(1, rows / columns))
    if adjust_lr_fn == "match_rms_adamw":
        return lr * 0.2 * math.sqrt(max(rows, columns))
    return lr


def _zeropower_via_newtonschulz(grad, ns_coefficients, ns_steps, eps):
    """Approximates U V^T for grad = U S V^T, in bfloat16."""
    if ns_steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if grad.dim() != 2:
        raise ValueError("Input tensor gradient must be a 2D matrix")
    if len(ns_coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = ns_coefficients
    x = grad.bfloat16()
    tall = grad.size(0) > grad.size(1)
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=eps)  # scales all singular values to at most 1
    for _ in range(ns_steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x



class Muon(Optimizer):
    """Muon: momentum orthogonalized by a Newton-Schulz iteration in bfloat16; for matrices only.

    Args:
        ns_coefficients, ns_steps, eps: parameters of the iteration.
        adjust_lr_fn: "original" (or None) scales lr by the shape of the matrix as in the first
            publication; "match_rms_adamw" makes updates as large as those of AdamW.
    """

    def __init__(self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True,
                 ns_coefficients=(DEFAULT_A, DEFAULT_B, DEFAULT_C), eps=EPS, ns_steps=DEFAULT_NS_STEPS,
                 adjust_lr_fn=None):
        if is_tensor(lr) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for name, value in (("Learning rate", lr), ("momentum", momentum), ("weight decay", weight_decay)):
            if not 0.0 <= value:
                raise ValueError(f"{name} should be >= 0 but is: {value}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, dict(
            lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, ns_coefficients=ns_coefficients,
            eps=eps, ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn))
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError("Muon only supports 2D parameters whereas we found a parameter with size: "
                                     f"{p.size()}")

    def _init_group(self, group, params_with_grad, grads, muon_momentum_bufs):
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if torch.is_complex(p):
                raise RuntimeError("Muon does not support complex parameters")
            if g.is_sparse:
                raise RuntimeError("Muon does not support sparse gradients")
            state = self.state[p]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = _zeros(g)
            params_with_grad.append(p)
            grads.append(g)
            muon_momentum_bufs.append(state["momentum_buffer"])
        return False

    step = _group_step(muon, without=("foreach",))
