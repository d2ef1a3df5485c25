"""Decides which recorded calls of torch.compile the C kernels support, and where they are faster
than eager mode (figures in conv_norm_lstm.py).

An info describes one operand: (shape, dtype, strides in bytes, ...).
"""
import math

import numpy as np

from mindtorch.backend.cpu.conv import out_size
from mindtorch.backend.c_kernels import conv_norm_lstm

_F32 = np.dtype(np.float32)


def available():
    """True if there are C kernels."""
    return conv_norm_lstm.lib() is not None


def _plain(*infos):
    return all(i is None or i[1] == _F32 for i in infos)


# ------------------------------------------------------------------ convolution
def takes_conv(x, w, b, groups):
    """True if there is a kernel for a 2D convolution (or transposed convolution) of these infos; b
    may be None."""
    return available() and len(x[0]) == 4 and len(w[0]) == 4 and groups == 1 and _plain(x, w, b) and 0 not in x[0] and 0 not in w[0]


def _fast(x, w, stride, padding, dilation, out):
    """Returns for which of forward, input gradient and weight gradient of a convolution of these
    shapes C is faster than eager mode."""
    if out[0] * out[1] < 4 or w[2] * w[3] == 1 and stride == (1, 1):
        return False, False, False  # a single matrix product
    if x[0] * out[0] * out[1] * math.prod(w) < conv_norm_lstm.WORTH_CONV:
        return False, False, False
    return conv_norm_lstm.conv_choice(tuple(x), tuple(w), stride, padding, dilation, tuple(out))


def conv(x, w, stride, pads, dilation):
    """Returns (output size, for which of forward, input gradient and weight gradient C is faster)
    for a convolution of these shapes; None if for none."""
    if stride[0] != stride[1] or stride[0] > 4:
        return None
    out = out_size(x[2:], w[2:], stride, pads, dilation)
    if min(out) < 1:
        return None
    fast = _fast(x, w, stride, pads, dilation, out)
    return (out, fast) if any(fast) else None


def conv_transpose(x, w, stride, pads, dilation, extra):
    """Like `conv`, for transposed convolutions; extra: the output_padding."""
    if stride[0] != stride[1] or stride[0] > 4:
        return None
    size = tuple((m - 1) * s - 2 * p + d * (k - 1) + e + 1 for m, s, (p, _), d, k, e in zip(x[2:], stride, pads, dilation, w[2:], extra))
    if min(size) < 1:
        return None
    # It is the input gradient of the convolution from the larger to the smaller size.
    forward, backward, weight = _fast((x[0], w[1]) + size, w, stride, pads, dilation, x[2:])
    fast = backward, forward, weight
    return (size, fast) if any(fast) else None


# ------------------------------------------------------------------ other layers
def batch_norm(x, running_mean, running_var, w, b, training, res):
    """True if C supports training batch norm of these infos, followed by + res."""
    if not available() or not training or len(x[0]) < 2 or not _plain(x, running_mean, running_var, w, b, res):
        return False
    n, c = math.prod(x[0]), x[0][1]
    if n < max(1, conv_norm_lstm.WORTH_NORM) or n // c < 2 or (running_mean is None) != (running_var is None) or res is not None and res[0] != x[0]:
        return False
    return all(v is None or v[0] == (c,) and v[2] == (4,) for v in (running_mean, running_var, w, b))


def takes_max_pool(x, return_indices, ceil_mode):
    """True if there is a kernel for 2D max pooling of this info."""
    return available() and len(x[0]) == 4 and _plain(x) and not return_indices and not ceil_mode and 0 not in x[0]


def linear(x, w, b, relu):
    """True if C supports a linear layer of these infos (followed by relu, if requested) and is
    worth using: with relu, or if one of its products is faster in C."""
    if not available() or not _plain(x, w, b) or len(w[0]) != 2 or not x[0] or x[0][-1] != w[0][1] or 0 in x[0] or 0 in w[0]:
        return False
    if b is not None and (b[0] != w[0][:1] or b[2] != (4,)):
        return False
    m, (n, k) = math.prod(x[0][:-1]), w[0]
    choice = conv_norm_lstm.product_choice
    return relu or any([choice(m, k, n, tb=True), choice(m, n, k), choice(n, m, k, ta=True)])


def lstm(x, h, c, weights):
    """True if C supports an LSTM over a padded batch of these infos."""
    return (available() and len(x[0]) == 3 and 0 not in x[0] and _plain(x, h, c, *weights) and h[0] == c[0]
            and not h[0][2] % conv_norm_lstm.vector_width())
