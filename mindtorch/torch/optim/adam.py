"""Adam (https://pytorch.org/docs/stable/generated/torch.optim.Adam.html); AdamW is Adam with decoupled weight decay."""
from mindtorch.backend.cpu import optimizer as optim_kernels
from mindtorch.core.tensor import Tensor
from mindtorch.torch.optim.optimizer import (
    Optimizer,
    _advance,
    _amp_skips,
    _by_step,
    _check_at_least_zero,
    _check_betas,
    _check_capturable,
    _check_foreach,
    _check_fused,
    _check_lr,
    _check_steps,
    _device_dtype_check_for_fused,
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

__all__ = ["Adam", "adam"]


class Adam(Optimizer):
    """Adam.

    lr, betas  numbers, or one-element tensors (not with foreach=True).
    amsgrad    divides by the largest second moment so far.
    decoupled_weight_decay  shrinks the parameters instead of adding to the gradients, as AdamW does.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None,
                 maximize=False, capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False):
        _check_lr(lr)
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        _check_at_least_zero(eps=eps)
        _check_betas(betas)
        _check_at_least_zero(weight_decay=weight_decay)
        tensors = [isinstance(b, Tensor) for b in betas]
        if any(tensors) and not all(isinstance(b, Tensor) for b in betas):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, is_tensor in enumerate(tensors):
            if is_tensor:
                if foreach and not capturable:
                    raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
                if betas[i].numel() != 1:
                    raise ValueError(f"Tensor betas[{i}] must be 1-element")
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize, foreach=foreach,
            capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=decoupled_weight_decay))
        _check_fused(self, fused, foreach, differentiable)

    def __setstate__(self, state):
        super().__setstate__(state)
        _upgrade(self, amsgrad=False, maximize=False, foreach=None, capturable=False, differentiable=False,
                 decoupled_weight_decay=False, fused=None)

    def _init_group(self, group, params_with_grad, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps):
        has_complex, states, amsgrad, fused = False, self.state, group["amsgrad"], group["fused"]
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.is_sparse:
                raise RuntimeError("Adam does not support sparse gradients, please consider SparseAdam instead")
            has_complex = has_complex or p._stype.kind == "c"
            state = states[p]
            if not state:
                if fused:
                    _device_dtype_check_for_fused(p)
                state["step"] = _zero_step(fused)
                state["exp_avg"] = _zeros(p)
                state["exp_avg_sq"] = _zeros(p)
                if amsgrad:
                    state["max_exp_avg_sq"] = _zeros(p)
            params_with_grad.append(p)
            grads.append(g)
            exp_avgs.append(state["exp_avg"])
            exp_avg_sqs.append(state["exp_avg_sq"])
            if amsgrad:
                max_exp_avg_sqs.append(state["max_exp_avg_sq"])
            if group["differentiable"] and state["step"].requires_grad:
                raise RuntimeError("`requires_grad` is not supported for `step` in differentiable mode")
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
            adam(*columns, foreach=group["foreach"], capturable=group["capturable"],
                 differentiable=group["differentiable"], fused=group["fused"],
                 grad_scale=getattr(self, "grad_scale", None), found_inf=getattr(self, "found_inf", None),
                 has_complex=has_complex, decoupled_weight_decay=group["decoupled_weight_decay"],
                 amsgrad=group["amsgrad"], beta1=beta1, beta2=beta2, lr=group["lr"],
                 weight_decay=group["weight_decay"], eps=group["eps"], maximize=group["maximize"])
        return loss


def adam(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, foreach=None, capturable=False,
         differentiable=False, fused=None, grad_scale=None, found_inf=None, has_complex=False,
         decoupled_weight_decay=False, *, amsgrad, beta1, beta2, lr, weight_decay, eps, maximize):
    """One step of Adam on lists of tensors; `state_steps` holds one-element tensors, which count up."""
    _check_steps(state_steps)
    if not params:
        return
    _check_foreach(foreach, differentiable)
    _check_capturable(capturable, params, supports_xla=not foreach)
    if _amp_skips(grads, grad_scale, found_inf):
        return
    layout = _host_layout(params, differentiable)
    if layout is None:
        if has_complex:
            params, grads, exp_avgs, exp_avg_sqs = list(params), list(grads), list(exp_avgs), list(exp_avg_sqs)
            max_exp_avg_sqs = list(max_exp_avg_sqs)
            _view_as_real(params, grads, exp_avgs, exp_avg_sqs, *([max_exp_avg_sqs] if amsgrad else []))
        for i, p in enumerate(params):
            _tensor_step(p, grads[i], exp_avgs[i], exp_avg_sqs[i], max_exp_avg_sqs[i] if amsgrad else None,
                         state_steps[i], differentiable, decoupled_weight_decay, beta1, beta2, lr, weight_decay, eps,
                         maximize)
        return
    lr, beta1, beta2, decay = _get_value(lr), _get_value(beta1), _get_value(beta2), _get_value(weight_decay)
    options = maximize, decay != 0, decoupled_weight_decay, amsgrad
    rest = 1 - lr * decay if decoupled_weight_decay else decay, 1 - beta1, beta2, 1 - beta2

    def numbers(t):
        return options, (-lr / (1 - beta1 ** t), (1 - beta2 ** t) ** 0.5, eps, *rest)

    changed = [params, exp_avgs, exp_avg_sqs] + ([max_exp_avg_sqs] if amsgrad else [])
    consts = _by_step(_advance(state_steps), numbers)
    _run(layout, optim_kernels.adam, changed, grads, consts, optim_kernels.native_adam)


def _tensor_step(p, g, m, v, vmax, step, differentiable, decoupled, beta1, beta2, lr, weight_decay, eps, maximize):
    if maximize:
        g = -g
    step += 1
    if not differentiable:
        lr, beta1, beta2 = _get_value(lr), _get_value(beta1), _get_value(beta2)
    if weight_decay != 0:
        if decoupled:
            p.mul_(1 - lr * weight_decay)
        elif isinstance(weight_decay, Tensor) and weight_decay.requires_grad:
            g = g + p * weight_decay
        else:
            g = g.add(p, alpha=_get_value(weight_decay))
    if not differentiable:
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        t = step.item()
        if vmax is not None:
            vmax.copy_(vmax.maximum(v))
            v = vmax
        root = (1 - beta2 ** t) ** 0.5
        p.addcdiv_(m, (v.sqrt() / root).add_(eps), value=-(lr / (1 - beta1 ** t)))
        return
    # Recorded for backward: the moments enter as copies, so that the next step may change them in place.
    w = 1 - beta1
    m.copy_(m + (g - m) * w)
    v.copy_(v * beta2 + g * g * (1 - beta2))
    t = step.detach().clone()
    if vmax is not None:
        vmax.copy_(vmax.clone().maximum(v))
        v = vmax
    denominator = v.clone().sqrt() / (1 - beta2 ** t) ** 0.5 + eps
    p.sub_(m.clone() / denominator * (lr / (1 - beta1 ** t)))
