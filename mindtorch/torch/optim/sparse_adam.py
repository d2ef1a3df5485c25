"""SparseAdam (https://pytorch.org/docs/stable/generated/torch.optim.SparseAdam.html)."""
from mindtorch.torch.optim.optimizer import Optimizer, _check_betas, _check_lr, _get_value, _group_step, _zeros

__all__ = ["SparseAdam"]


def sparse_adam(params, grads, exp_avgs, exp_avg_sqs, state_steps, *, eps, beta1, beta2, lr, maximize):
    """Performs one step of Adam on the elements present in the sparse gradients.

    `state_steps` holds the step numbers, already incremented.
    """
    lr = _get_value(lr)
    for p, g, m, v, t in zip(params, grads, exp_avgs, exp_avg_sqs, state_steps):
        g = g.coalesce()
        rows, values = tuple(g._indices()), g._values()
        if not values.numel():
            continue
        if maximize:
            values = -values
        mean = m[rows].lerp(values, 1 - beta1)
        square = v[rows].mul_(beta2).addcmul_(values, values, value=1 - beta2)
        m.index_put_(rows, mean)
        v.index_put_(rows, square)
        size = lr * (1 - beta2 ** t) ** 0.5 / (1 - beta1 ** t)
        p.index_put_(rows, mean.div(square.sqrt().add_(eps)).mul_(-size), accumulate=True)


class SparseAdam(Optimizer):
    """Adam for sparse gradients: updates moments and parameters only where the gradient has values.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        _check_lr(lr)
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        _check_betas(betas)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))
        sparse = [[i, j] for i, group in enumerate(self.param_groups)
                  for j, p in enumerate(group["params"]) if p.is_sparse]
        if sparse:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")

    def _init_group(self, group, params, grads, exp_avgs, exp_avg_sqs, steps):
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if not g.is_sparse:
                raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
            state = self.state[p]
            if not state:
                state.update(step=0, exp_avg=_zeros(p), exp_avg_sq=_zeros(p))
            state["step"] += 1
            params.append(p)
            grads.append(g)
            exp_avgs.append(state["exp_avg"])
            exp_avg_sqs.append(state["exp_avg_sq"])
            steps.append(state["step"])

    step = _group_step(sparse_adam)
