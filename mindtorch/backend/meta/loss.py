"""Shapes of two-operand losses and their gradients."""
import numpy as np

from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array

_NAMES = "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits".split()


@kernel(" ".join(_NAMES))
def _pair(fwd, arrays, kw):
    x, t = arrays
    return meta_array(np.broadcast_shapes(x.shape, t.shape) if kw["reduction"] == "none" else (), x.dtype)


@kernel(" ".join([n + "_backward" for n in _NAMES]))
def _pair_backward(fwd, arrays, kw):
    _, x, t = arrays
    shape = np.broadcast_shapes(x.shape, t.shape)
    return tuple([meta_array(shape, x.dtype) if n else None for n in kw["needs"]])
