"""Folding of batch normalization into the preceding layer.

https://pytorch.org/docs/stable/generated/torch.nn.utils.fuse_conv_bn_eval.html
"""
import copy

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _fused_copy(layer, bn):
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    return copy.deepcopy(layer)


def _fold(weight, bias, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape):
    """Returns (weight, bias) equivalent to the layer followed by the normalization. `shape`
    broadcasts the scale to the weight."""
    bias_before = torch.zeros_like(bn_rm) if bias is None else bias
    scale = torch.rsqrt(bn_rv + bn_eps)
    if bn_w is not None:
        scale = scale * bn_w
    shift = torch.zeros_like(bn_rm) if bn_b is None else bn_b
    new_weight = (weight * scale.reshape(shape)).to(weight.dtype)
    new_bias = ((bias_before - bn_rm) * scale + shift).to(weight.dtype if bias is None else bias.dtype)
    return (Parameter(new_weight.detach(), weight.requires_grad),
            Parameter(new_bias.detach(), weight.requires_grad if bias is None else bias.requires_grad))


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    """Returns weight and bias of a convolution (transposed with `transpose`) with the normalization
    folded in."""
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    return _fold(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """Returns a copy of `conv` with `bn` folded in. Both must be in evaluation mode."""
    fused = _fused_copy(conv, bn)
    fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps,
                                                    bn.weight, bn.bias, transpose)
    return fused


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    """Returns weight and bias of a linear layer with the normalization folded in."""
    return _fold(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def fuse_linear_bn_eval(linear, bn):
    """Returns a copy of `linear` with `bn` folded in. Both must be in evaluation mode."""
    fused = _fused_copy(linear, bn)
    if bn.num_features not in (1, linear.out_features):
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
                             f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}")
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps,
                                                      bn.weight, bn.bias)
    return fused
