"""Gradients of convolutions (https://pytorch.org/docs/stable/nn.functional.html)."""
import mindtorch.torch as torch
from mindtorch.torch.nn import functional as F

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _input_gradient(conv, input_size, weight, grad_output, stride, padding, dilation, groups):
    with torch.enable_grad():
        x = torch.zeros(tuple(input_size), dtype=weight.dtype, device=weight.device, requires_grad=True)
        y = conv(x, weight, None, stride, padding, dilation, groups)
        # The result is a differentiable function of `weight` and `grad_output`.
        return torch.autograd.grad(y, x, grad_output, create_graph=weight.requires_grad or grad_output.requires_grad)[0]


def _weight_gradient(conv, input, weight_size, grad_output, stride, padding, dilation, groups):
    with torch.enable_grad():
        w = torch.zeros(tuple(weight_size), dtype=input.dtype, device=input.device, requires_grad=True)
        y = conv(input, w, None, stride, padding, dilation, groups)
        return torch.autograd.grad(y, w, grad_output, create_graph=input.requires_grad or grad_output.requires_grad)[0]


def conv1d_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
    """Computes the gradient of conv1d with respect to its input."""
    return _input_gradient(F.conv1d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
    """Computes the gradient of conv1d with respect to its weight."""
    return _weight_gradient(F.conv1d, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
    """Computes the gradient of conv2d with respect to its input."""
    return _input_gradient(F.conv2d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
    """Computes the gradient of conv2d with respect to its weight."""
    return _weight_gradient(F.conv2d, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
    """Computes the gradient of conv3d with respect to its input."""
    return _input_gradient(F.conv3d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
    """Computes the gradient of conv3d with respect to its weight."""
    return _weight_gradient(F.conv3d, input, weight_size, grad_output, stride, padding, dilation, groups)
