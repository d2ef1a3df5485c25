"""Adam (https://pytorch.org/docs/stable/generated/torch.optim.Adam.html); AdamW is Adam with decoupled weight decay."""
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.optim.optimizer import (
    Optimizer, _STEP, _State, _amp_skips, _begin, _check_at_least_zero, _check_betas, _check_fused,
    _check_lr, _counted, _get_value, _group_step, _update)

__all__ = ["Adam", "adam"]


def adam(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, foreach=None, capturable=False,
         differentiable=False, fused=None, grad_scale=None, found_inf=None, has_complex=False,
         decoupled_weight_decay=False, *, amsgrad, beta1, beta2, lr, weight_decay, eps, maximize):
    """Performs one step of Adam on lists of tensors; `state_steps` are one-element tensors that are
    incremented."""
    plan = _begin("adam_step", params, state_steps, foreach, differentiable, capturable, supports_xla=not foreach, fused=fused)
    if _amp_skips(grads, grad_scale, found_inf):
        return
    if not differentiable:
        lr, beta1, beta2 = _get_value(lr), _get_value(beta1), _get_value(beta2)
    if plan is not None:
        weight_decay = _get_value(weight_decay)
    options = maximize, bool(weight_decay != 0), decoupled_weight_decay, amsgrad

    def numbers(t):
        return options, (lr / (1 - beta1 ** t), (1 - beta2 ** t) ** 0.5, eps, 1 - lr * weight_decay if decoupled_weight_decay else weight_decay,
                         1 - beta1, beta2, 1 - beta2)

    # A differentiable step keeps the step count as a tensor.
    keys = map(_tensor_count, state_steps) if differentiable else _counted(plan, state_steps)
    changed = [params, exp_avgs, exp_avg_sqs] + ([max_exp_avg_sqs] if amsgrad else [])
    _update(plan, "adam_step", changed, grads, keys, numbers, differentiable, has_complex, foreach=foreach)


def _tensor_count(step):
    step += 1
    return step.detach().clone()


class Adam(Optimizer):
    """Adam.

    Args:
        lr, betas: Python scalars or one-element tensors (not with foreach=True).
        amsgrad: divides by the largest second moment so far.
        decoupled_weight_decay: shrinks the parameters instead of adding to the gradients, like
            AdamW.
    """

    _added_options = dict(amsgrad=False, maximize=False, foreach=None, capturable=False, differentiable=False, decoupled_weight_decay=False, fused=None)
    _states = _STEP, _State("exp_avg"), _State("exp_avg_sq"), _State("max_exp_avg_sq", when=lambda group: group["amsgrad"])
    _lists = "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"
    _no_sparse = "Adam does not support sparse gradients, please consider SparseAdam instead"
    _fused_checks = "state"

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None,
                 maximize=False, capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False):
        _check_lr(lr)
        if is_tensor(lr) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        _check_at_least_zero(eps=eps)
        _check_betas(betas)
        _check_at_least_zero(weight_decay=weight_decay)
        tensors = [is_tensor(b) for b in betas]
        if any(tensors) and not all(is_tensor(b) for b in betas):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, given_tensor in enumerate(tensors):
            if given_tensor:
                if foreach and not capturable:
                    raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
                if betas[i].numel() != 1:
                    raise ValueError(f"Tensor betas[{i}] must be 1-element")
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize, foreach=foreach,
            capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=decoupled_weight_decay))
        _check_fused(self, fused, foreach, differentiable)

    def _init_group(self, group, *columns):
        has_complex = super()._init_group(group, *columns)
        if group["differentiable"] and any([t.requires_grad for t in columns[-1]]):
            raise RuntimeError("`requires_grad` is not supported for `step` in differentiable mode")
        return has_complex

    step = _group_step(adam)
