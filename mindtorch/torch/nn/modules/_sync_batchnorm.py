"""Batch normalization over the batches of all processes of a group."""
import mindtorch.torch as torch
from mindtorch.torch.autograd.function import once_differentiable


class _Synchronised(torch.autograd.Function):
    """Normalizes with the mean and variance of the inputs of all processes.

    The processes gather means and sums of squared deviations instead of sums and sums of squares,
    because the latter cancel if the mean is large compared to the deviation. The backward pass
    all-reduces the two sums that the input's gradient needs. The gradients of weight and bias stay
    local, like those of all other parameters.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, eps, group, stats):
        from mindtorch.torch import distributed as dist

        channels = x.size(1)
        dims = [d for d in range(x.dim()) if d != 1]
        shape = [1, channels] + [1] * (x.dim() - 2)
        n = x.numel() // channels
        upcast = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        here = x.device.type == "cpu"
        kind = torch.float64 if here else upcast.dtype  # (accelerators have few float64 kernels)
        mine = torch.zeros(2 * channels + 1, dtype=kind, device=x.device)
        if n:
            mean = upcast.mean(dims)
            mine[:channels] = mean
            mine[channels:-1] = ((upcast - mean.view(shape)) ** 2).sum(dims)
            mine[-1] = n
        world = dist.get_world_size(group)
        everybody = torch.empty(world, mine.numel(), dtype=kind, device=x.device)
        dist.all_gather_into_tensor(everybody, mine, group=group)
        counts, means, deviations = everybody[:, -1:], everybody[:, :channels], everybody[:, channels:-1]
        total = counts.sum()
        mean = (counts * means).sum(0) / total
        var = (deviations + counts * (means - mean) ** 2).sum(0) / total
        if here:
            # (on an accelerator it stays on the device, so that the step does not synchronize)
            total = total.item()
        stats += [mean, var, total]
        scale = torch.rsqrt(var + eps)
        xhat = (upcast - mean.to(upcast.dtype).view(shape)) * scale.to(upcast.dtype).view(shape)
        ctx.save_for_backward(xhat, weight)
        ctx.scale, ctx.total, ctx.group, ctx.dtype = scale.to(upcast.dtype), total, group, x.dtype
        out = xhat
        if weight is not None:
            out = out * weight.view(shape).to(upcast.dtype)
        if bias is not None:
            out = out + bias.view(shape).to(upcast.dtype)
        return out.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        from mindtorch.torch import distributed as dist

        xhat, weight = ctx.saved_tensors
        channels = xhat.size(1)
        dims = [d for d in range(xhat.dim()) if d != 1]
        shape = [1, channels] + [1] * (xhat.dim() - 2)
        g = g.to(xhat.dtype)
        sums = torch.cat([g.sum(dims), (g * xhat).sum(dims)])
        grad_bias, grad_weight = sums[:channels].clone(), sums[channels:].clone()
        grad_x = None
        if ctx.needs_input_grad[0]:
            dist.all_reduce(sums, group=ctx.group)
            means = sums / ctx.total
            grad_x = g - means[:channels].view(shape) - xhat * means[channels:].view(shape)
            scale = ctx.scale if weight is None else ctx.scale * weight.to(xhat.dtype)
            grad_x = (grad_x * scale.view(shape)).to(ctx.dtype)
        return grad_x, grad_weight if ctx.needs_input_grad[1] else None, grad_bias if ctx.needs_input_grad[2] else None, None, None, None


def synchronised(norm, input, running_mean, running_var, factor):
    """Computes SyncBatchNorm of a training batch and updates the running statistics with those of
    all processes."""
    stats = []
    out = _Synchronised.apply(input, norm.weight, norm.bias, norm.eps, norm.process_group, stats)
    mean, var, total = stats
    if running_mean is not None:
        with torch.no_grad():
            others = (total - 1).clamp(min=1) if isinstance(total, torch.Tensor) else max(total - 1, 1)
            unbiased = var * (total / others)
            running_mean.mul_(1 - factor).add_(mean.to(running_mean.dtype), alpha=factor)
            running_var.mul_(1 - factor).add_(unbiased.to(running_var.dtype), alpha=factor)
    return out
