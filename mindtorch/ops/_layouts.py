"""The strides that torch gives to the results of kernels that are not elementwise: rules by primitive name (core/layout.py).

What stands nowhere here, and is not elementwise, gives C order, as most of torch's kernels do.
"""
import numpy as np

from mindtorch.core.layout import (RULES, batch_norm, by_operand, convolution, contiguous, kept, like, pointwise)


def _give(rule, names):
    for n in names.split():
        RULES[n] = rule


def _where_elementwise(r, operands, kw):
    """Elementwise order, unless the kernel reduced."""
    return (pointwise if r.shape == np.broadcast_shapes(*[a.shape for a in operands if a is not None]) else contiguous)(r, operands, kw)


def _masked(r, operands, kw):
    """Elementwise order of a tensor and the mask among the constants."""
    mask = kw.get("mask")
    return pointwise(r, (operands[0], mask) if mask.__class__ is np.ndarray and mask.shape != r.shape else operands[:1], kw)


# Kernels written by hand that are elementwise in effect.
_give(pointwise, """add sub imag real""")
_give(_where_elementwise, """l1_loss mse_loss smooth_l1_loss binary_cross_entropy_backward binary_cross_entropy_with_logits_backward
 huber_loss_backward l1_loss_backward mse_loss_backward smooth_l1_loss_backward""")
_give(lambda r, operands, kw: (like if r.shape == operands[0].shape else contiguous)(r, operands, kw),
      "binary_cross_entropy binary_cross_entropy_with_logits huber_loss")
_give(_masked, "dropout alpha_dropout")

# What torch allocates like its first operand.
_give(like, "to_copy clone native_dropout")

# Layers over channels.
_give(batch_norm, "native_batch_norm")
_give((by_operand(1), None, None, None, None), "native_batch_norm_backward")
_give(convolution, "convolution convolution_transposed")

# Kernels that see to it themselves.
_give(kept, "transpose sum_to_size")
