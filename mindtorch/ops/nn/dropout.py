"""Dropout in all its forms, with the masks that torch draws."""
import math
import warnings

import numpy as np

from mindtorch.backend.cpu.host import quiet
from mindtorch.core import rng
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import wrap
from mindtorch.ops.nn._fused import inplace as overwrite
from mindtorch.ops.nn._fused import tensor_arg, title



@quiet
def _drop(x, *, mask, scale):
    r = np.multiply(x, mask)
    r *= x.dtype.type(scale)
    return r if r.__class__ is np.ndarray else np.asarray(r, x.dtype)


drop_ = primitive("dropout", _drop, lambda c, g: drop_(g, mask=c.mask, scale=c.scale), node="MulBackward0")
# x * mask * a + b with b depending on the mask: alpha dropout.
alpha_ = primitive("alpha_dropout", quiet(lambda x, *, mask, a, shift: x * (mask * x.dtype.type(a)) + shift.astype(x.dtype)),
                   lambda c, g: drop_(g, mask=c.mask, scale=c.a), node="AddBackward0")


def mask_like(a, keep):
    """Bools of a's shape, each True with probability `keep`, drawn in the order of a's memory."""
    if a.flags.c_contiguous:
        return rng.bernoulli_mask(a.shape, keep)
    # A tensor like it keeps the order of its strides.
    order = sorted(range(a.ndim), key=lambda i: -a.strides[i])
    m = rng.bernoulli_mask(tuple(a.shape[i] for i in order), keep)
    return m.transpose(np.argsort(order))


def _check(p):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _refuse(a):
    if a.dtype.kind not in "fVc":
        raise RuntimeError(f"result type Float can't be cast to the desired output type {title(a)}")


def _feature_mask(a, p):
    if a.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return rng.bernoulli_mask(a.shape[:2] + (1,) * (a.ndim - 2), 1 - p)


def _dropout(input, p, train, feature=False, alpha=False):
    """One of torch's four dropouts."""
    if p == 0 or not train or not input._numel:
        return input
    a = input._a
    if p == 1:
        _refuse(a)
        return drop_(input, mask=np.zeros(a.shape, bool), scale=0.0)
    mask = _feature_mask(a, p) if feature else mask_like(a, 1 - p)
    _refuse(a)
    if alpha:
        k = 1.7580993408473766
        s = 1.0 / math.sqrt((k * k * p + 1) * (1 - p))
        shift = (mask.astype(np.float64) - 1) * (k * s) + k * s * p
        return alpha_(input, mask=mask, a=s, shift=shift)
    real = np.float64 if a.dtype == np.float64 else np.float32
    return drop_(input, mask=mask, scale=float(real(1) / real(1 - p)))


def _functional(name, input, p, training, inplace, feature=False, alpha=False):
    tensor_arg(name, "input", input)
    _check(p)
    if inplace:
        if p == 0 or not training:
            return input
        return overwrite(input, _dropout, p, training, feature, alpha)
    return _dropout(input, p, training, feature, alpha)


@op(ns="nn.functional", method=False)
def dropout(input, p=0.5, training=True, inplace=False):
    """In training sets elements to 0 with probability p and scales the others by 1 / (1 - p)."""
    return _functional("dropout", input, p, training, inplace)


@op(ns="nn.functional", method=False)
def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout that keeps the mean and variance of selu's activations."""
    return _functional("alpha_dropout", input, p, training, inplace, alpha=True)


@op(ns="nn.functional", method=False)
def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """alpha_dropout of whole channels."""
    return _functional("feature_alpha_dropout", input, p, training, inplace, feature=True, alpha=True)


@op(ns="nn.functional", method=False)
def dropout1d(input, p=0.5, training=True, inplace=False):
    """Dropout of whole channels of (N, C, L) or (C, L)."""
    _check(p)
    tensor_arg("dropout1d", "input", input)
    n = input.ndim
    if n not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {n}D input. Note that dropout1d exists "
                           "to provide "
                           "channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an "
                           "optional batch "
                           "dimension (i.e. 2D or 3D inputs).")
    return _unbatched("dropout1d", input, p, training, inplace, n == 2)


def _unbatched(name, input, p, training, inplace, single):
    if not single:
        return _functional(name, input, p, training, inplace, feature=True)
    if inplace:
        if p == 0 or not training:
            return input
        return overwrite(input, lambda x: _dropout(x.unsqueeze(0), p, training, True).squeeze(0))
    return _functional(name, input.unsqueeze(0), p, training, False, feature=True).squeeze(0)


@op(ns="nn.functional", method=False)
def dropout2d(input, p=0.5, training=True, inplace=False):
    """Dropout of whole channels of (N, C, H, W) or (N, C, L)."""
    _check(p)
    tensor_arg("dropout2d", "input", input)
    n = input.ndim
    if n not in (3, 4):
        warnings.warn(f"dropout2d: Received a {n}-D input to dropout2d, which is deprecated and will result in an error in a future "
                      "release. To retain the behavior and silence this warning, please use dropout instead. Note that "
                      "dropout2d "
                      "exists to provide channel-wise dropout on inputs with 2 spatial dimensions, a channel "
                      "dimension, and an "
                      "optional batch dimension (i.e. 3D or 4D inputs).", stacklevel=2)
    if n == 3:
        warnings.warn("dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - "
                      "input is interpreted as shape (N, C, L), where C is the channel dim. This behavior will change "
                      "in a future "
                      "release to interpret the input as one without a batch dimension, i.e. shape (C, H, W). To "
                      "maintain the 1D "
                      "channel-wise dropout behavior, please switch to using dropout1d instead.", stacklevel=2)
    return _functional("dropout2d", input, p, training, inplace, feature=True)


@op(ns="nn.functional", method=False)
def dropout3d(input, p=0.5, training=True, inplace=False):
    """Dropout of whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    _check(p)
    tensor_arg("dropout3d", "input", input)
    n = input.ndim
    if n not in (4, 5):
        warnings.warn(f"dropout3d: Received a {n}-D input to dropout3d, which is deprecated and will result in an error in a future "
                      "release. To retain the behavior and silence this warning, please use dropout instead. Note that "
                      "dropout3d "
                      "exists to provide channel-wise dropout on inputs with 3 spatial dimensions, a channel "
                      "dimension, and an "
                      "optional batch dimension (i.e. 4D or 5D inputs).", stacklevel=2)
    return _unbatched("dropout3d", input, p, training, inplace, n != 5)


# ------------------------------------------------------------------ torch.dropout and its like
def _declare(name, feature, alpha):
    def plain(input, p, train):
        """torch's form, with the training flag required."""
        tensor_arg(name, "input", input)
        _check(p)
        return _dropout(input, p, train, feature, alpha)

    def in_place(input, p, train):
        """In-place form."""
        tensor_arg(name + "_", "input", input)
        _check(p)
        return input if p == 0 or not train else overwrite(input, _dropout, p, train, feature, alpha)
    op(method=False, name=name)(plain)
    op(method=False, name=name + "_")(in_place)


for _name, _feature, _alpha in (("dropout", False, False), ("alpha_dropout", False, True), ("feature_dropout", True, False),
                                ("feature_alpha_dropout", True, True)):
    _declare(_name, _feature, _alpha)


@op(method=False)
def native_dropout(input, p, train):
    """(result, mask) of dropout."""
    tensor_arg("native_dropout", "input", input)
    a = input._a
    if train is False or p == 0 or not a.size:
        return input.clone(), wrap(np.ones(a.shape, bool))
    mask = rng.bernoulli_mask(a.shape, 1 - p)
    return drop_(input, mask=mask, scale=0.0 if p == 1 else 1.0 / (1.0 - p)), wrap(mask)


@op(method=False)
def native_dropout_backward(grad_output, mask, scale):
    """grad_output * mask * scale."""
    return drop_(grad_output, mask=mask._a, scale=scale)
