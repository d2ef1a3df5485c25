"""Replacements for recorded calls in torch.compile: ops of `mindtorch/ops/compiled.py`, where a C
kernel supports the call and is faster.

Each `plan_*` inspects the infos (shape, dtype, strides, ...) and constants of a call, and returns
the function to call instead, or None.
"""
from mindtorch.backend.c_kernels import plans
from mindtorch.backend.c_kernels.plans import available
from mindtorch.ops import compiled


def plan_conv(x, w, b, stride=1, padding=0, dilation=1, groups=1):
    """Plans conv2d; b may be None."""
    if not plans.takes_conv(x, w, b, groups):
        return None
    stride, pads, dilation = compiled.conv_numbers(w[0], stride, padding, dilation)
    plan = plans.conv(x[0], w[0], stride, pads, dilation)
    return plan and compiled.conv2d(stride, pads, dilation, *plan)


def plan_conv_transpose(x, w, b, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """Plans conv_transpose2d."""
    if not plans.takes_conv(x, w, b, groups):
        return None
    stride, pads, dilation, extra = compiled.conv_transpose_numbers(stride, padding, output_padding, dilation)
    plan = plans.conv_transpose(x[0], w[0], stride, pads, dilation, extra)
    return plan and compiled.conv_transpose2d(stride, pads, dilation, *plan)


def plan_batch_norm(x, running_mean, running_var, w, b, training, momentum, eps, res=None, act=0, slope=0.0):
    """Plans batch_norm in training mode, followed by + res, then relu (1) or leaky relu (2)."""
    return compiled.batch_norm(momentum, eps, act, slope) if plans.batch_norm(x, running_mean, running_var, w, b, training, res) else None


def plan_max_pool(x, relu, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """Plans max_pool2d of x, or of relu(x) if `relu`."""
    if not plans.takes_max_pool(x, return_indices, ceil_mode):
        return None
    kernel, stride, padding, dilation, out = compiled.pool_numbers(x[0], kernel_size, stride, padding, dilation)
    return compiled.max_pool(kernel, stride, padding, out, relu) if dilation == (1, 1) else None


def plan_linear(x, w, b, relu=False):
    """Plans linear, followed by relu if `relu`."""
    return compiled.linear_layer(relu) if plans.linear(x, w, b, relu) else None


def plan_lstm(x, h, c, weights):
    """Plans lstm over a padded batch."""
    return compiled.lstm if plans.lstm(x, h, c, weights) else None


__all__ = ["available", "plan_batch_norm", "plan_conv", "plan_conv_transpose", "plan_linear", "plan_lstm", "plan_max_pool"]
