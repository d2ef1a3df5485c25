"""Adafactor (https://pytorch.org/docs/stable/generated/torch.optim.Adafactor.html)."""
import math

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.optim._spaces import InPlace, Lists
from mindtorch.torch.optim.optimizer import Optimizer, _STEP, _check_steps, _get_value, _group_step, _zero_step, _zeros

__all__ = ["Adafactor", "adafactor"]


def adafactor(params, grads, row_vars, col_vars, variances, state_steps, foreach=None, grad_scale=None, found_inf=None,
              has_complex=False, *, d, lr, beta2_decay, weight_decay, eps1, eps2, maximize):
    """Performs one step of Adafactor on lists of tensors.

    `variances` is used for parameters of fewer than two dimensions, `row_vars` and `col_vars` for
    the others.
    """
    _check_steps(state_steps)
    if grad_scale is not None or found_inf is not None:
        raise AssertionError("Grad scaling should occur outside of optimizer.step()")
    lr = _get_value(lr)
    for i, p in enumerate(params):
        if torch.is_complex(p):
            raise RuntimeError("Adafactor does not support complex parameters")
        _one(p, grads[i], row_vars[i], col_vars[i], variances[i], state_steps[i], d, lr, beta2_decay, weight_decay,
             eps1, eps2, maximize, foreach)


def _one(p, g, row, col, variance, step, d, lr, beta2_decay, weight_decay, eps1, eps2, maximize, foreach):
    if maximize:
        g = -g
    if eps1 is None:
        eps1 = torch.finfo(p.dtype).eps
    step += 1
    t = step.item()
    weight = t ** beta2_decay
    size = max(eps2, p.norm(2).item() / math.sqrt(p.numel())) * min(lr, 1.0 / math.sqrt(t))
    if weight_decay != 0:
        (Lists if foreach else InPlace).mul_(p, 1 - lr * weight_decay)
    if g.dim() > 1:
        row.lerp_(g.norm(dim=-1, keepdim=True).square_().div_(g.size(-1)), weight)
        col.lerp_(g.norm(dim=-2, keepdim=True).square_().div_(g.size(-2)), weight)
        estimate = row @ col
        estimate.div_(row.mean(dim=-2, keepdim=True).clamp_(min=eps1))
    else:
        variance.lerp_(g * g, weight)
        estimate = variance.clone()
    update = estimate.clamp_(min=eps1 * eps1).rsqrt_().mul_(g)
    clip = max(1.0, update.norm(2).item() / (math.sqrt(update.numel()) * d))
    if foreach:
        p.add_(Lists.mul_(update, -size / clip))
    else:
        p.add_(update, alpha=-size / clip)


class Adafactor(Optimizer):
    """Adafactor: stores the second moments of a matrix as the means of its rows and columns.

    Args:
        eps: (eps1, eps2). eps1 regularizes the squared gradients (None: the epsilon of the
            dtype); eps2 is the minimum scale of a parameter.
        d: clipping threshold of the update, at least 1.
    """

    _added_options = dict(foreach=None)
    _states = _STEP,

    def __init__(self, params, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, *, foreach=None,
                 maximize=False):
        if is_tensor(lr) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        eps1, eps2 = eps[0], eps[1]
        for ok, text in ((0.0 <= lr, f"Learning rate should be >= 0 but is: {lr}"),
                         (0.0 >= beta2_decay, f"beta2_decay should be <= 0 but is: {beta2_decay}"),
                         (eps1 is None or eps1 >= 0.0, f"epsilon1 should be >= 0 but is: {eps1}"),
                         (0.0 <= eps2, f"epsilon2 should be >= 0 but is: {eps2}"),
                         (1.0 <= d, f"Clipping threshold d should be >= 1 but is: {d}"),
                         (0.0 <= weight_decay, f"weight_decay should be >= 0 but is: {weight_decay}")):
            if not ok:
                raise ValueError(text)
        super().__init__(params, dict(lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay,
                                      foreach=foreach, maximize=maximize))

    def _init_group(self, group, params_with_grad, grads, row_vars, col_vars, variances, state_steps):
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.is_sparse:
                raise RuntimeError("Adafactor does not support sparse gradients")
            state = self.state[p]
            if not state:
                state["step"] = _zero_step()
                if g.dim() > 1:
                    shape = list(g.shape)
                    state["row_var"] = g.new_zeros([*shape[:-1], 1])
                    state["col_var"] = g.new_zeros([*shape[:-2], 1, shape[-1]])
                else:
                    state["variance"] = _zeros(g)
            params_with_grad.append(p)
            grads.append(g)
            row_vars.append(state.get("row_var"))
            col_vars.append(state.get("col_var"))
            variances.append(state.get("variance"))
            state_steps.append(state["step"])
        return False

    step = _group_step(adafactor)
