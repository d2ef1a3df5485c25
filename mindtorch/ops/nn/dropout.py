"""All dropout variants, with the same masks as PyTorch."""
import math
import struct
import warnings

from mindtorch.core.tensor import stride_rules, tensor_wrappers
from mindtorch.core.device import device_dispatch, rng
from mindtorch.core.tensor.dtypes import BF16, BOOL, F16, F64
from mindtorch.core.tensor.scalars import read
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Float
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor
from mindtorch.ops.basic import new_full
from mindtorch.ops.nn._fused import inplace as overwrite
from mindtorch.ops.nn._fused import check_tensor_arg, scalar_type_name

#: x * scale where the mask is set, else 0.
masked_scale = primitive("masked_scale", "x, mask, *, scale", lambda ctx, grad: masked_scale(grad, ctx.mask, scale=ctx.scale), None, node="MulBackward0",
                         layout=stride_rules.under_mask)
#: (result, mask). Each element stays with probability `keep`; with `feature`, each channel of each
#: sample.
drop_ = primitive("dropout", "x, *, keep, scale, feature, generator", lambda ctx, grad: masked_scale(grad, ctx.out1, scale=ctx.scale), residuals=(1,),
                  node="MulBackward0", layout=(stride_rules.dropout, stride_rules.as_computed))
# Computes x * mask * a + b, where b depends on the mask.
alpha_ = primitive("alpha_dropout", "x, *, keep, a, slope, offset, feature, generator", lambda ctx, grad: masked_scale(grad, ctx.out1, scale=ctx.a),
                   residuals=(1,),
                   node="AddBackward0", layout=(stride_rules.dropout, stride_rules.as_computed))
#: Dropout that returns its mask, which is drawn in C order. PyTorch multiplies x by `scale` rounded
#: to x's dtype, and the gradient by the unrounded value.
_native = primitive("native_dropout", "x, *, keep, scale, generator", lambda ctx, grad: masked_scale(grad[0], ctx.out1, scale=_scale_factor(ctx.keep)),
                    nondiff=(1,),
                    node="MulBackward0", layout=(stride_rules.pointwise, stride_rules.as_computed))


#: x / (1 - p) where the bit of dropout's mask is set, else 0.
_do_mask = primitive("dropout_do_mask", "x, bits, *, p", lambda ctx, grad: _do_mask(grad, ctx.bits, p=ctx.p), None, node="MulBackward0",
                     layout=stride_rules.as_computed)
#: (result, mask with one bit for each element in C order): dropout of devices that have a kernel for it.
_by_bits = primitive("dropout_by_bits", "x, *, p, generator", lambda ctx, grad: _do_mask(grad, ctx.out1, p=ctx.p), residuals=(1,), node="MulBackward0",
                     layout=(stride_rules.as_computed, stride_rules.as_computed))


def _has_bits(x, generator):
    """True if the device of x has a kernel that draws masks of bits, and x has its own memory."""
    return (x._handle is not None and device_dispatch.has_kernel(x._device, "dropout_by_bits") and not generator.on_host and dispatch_state.dual is None
            and not tensor_wrappers.is_wrapped(x) and x._np_dtype.kind in "fV" and x._np_dtype != F64)


def _scale_factor(keep):
    """Returns the factor that scales the remaining elements."""
    return 1.0 / keep if keep else 0.0


def _check(p, name="dropout"):
    if p.__class__ is Tensor:
        p = read(name, "p", "float", p)
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return p


def _generator_of(x):
    """Returns the generator that draws the masks of x."""
    return rng.default_generator if x._handle is None else rng.default_of(x._device)


def _check_dtype(x):
    if x._np_dtype.kind not in "fVc":
        raise RuntimeError(f"result type Float can't be cast to the desired output type {scalar_type_name(x)}")


def _dropout(input, p, train, feature=False, alpha=False):
    """Applies one of PyTorch's four dropout variants."""
    if p == 0 or not train or not input._numel:
        return input
    if p == 1:
        _check_dtype(input)
        return masked_scale(input, new_full(input, size=input._sizes, value=0, np_dtype=BOOL), scale=0.0)
    if feature and input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    if alpha:
        k = 1.7580993408473766
        s = 1.0 / math.sqrt((k * k * p + 1) * (1 - p))
        y = alpha_(input, keep=1 - p, a=s, slope=k * s, offset=k * s * p, feature=feature, generator=_generator_of(input))[0]
    elif not feature and _has_bits(input, generator := _generator_of(input)):
        y = _by_bits(input, p=p, generator=generator)[0]
    else:
        y = drop_(input, keep=1 - p, scale=_inverse_keep_prob(p, input._np_dtype), feature=feature, generator=_generator_of(input))[0]
    _check_dtype(input)  # PyTorch has drawn the random numbers before it raises this error.
    return y


_SINGLE = struct.Struct("f")


_HALF, _WORD = struct.Struct("e"), struct.Struct("I")


def _inverse_keep_prob(p, d):
    """Returns 1 / (1 - p) as PyTorch computes it for dtype d: in float64 for float64, else in
    float32, rounded to d."""
    if d == F64:
        return 1.0 / (1.0 - p)
    keep, = _SINGLE.unpack(_SINGLE.pack(1 - p))
    return _rounded(1 / keep if keep else math.inf, d)


def _rounded(growth, d):
    """Rounds a non-negative Python scalar to dtype d."""
    if d.name in ("float64", "complex128"):
        return growth
    growth, = _SINGLE.unpack(_SINGLE.pack(growth))
    if d == F16:
        return growth if growth > 65504 else _HALF.unpack(_HALF.pack(growth))[0]
    if d == BF16:
        word, = _WORD.unpack(_SINGLE.pack(growth))
        word += 0x7FFF + (word >> 16 & 1)  # round to nearest, ties to even
        return _SINGLE.unpack(_WORD.pack(word & 0xFFFF0000))[0]
    return growth


def _functional(name, input, p, training, inplace, feature=False, alpha=False):
    check_tensor_arg(name, "input", input)
    p = _check(p, name)
    if inplace:
        if p == 0 or not training:
            return input
        return overwrite(input, _dropout, p, training, feature, alpha)
    return _dropout(input, p, training, feature, alpha)


@register_op(ns="nn.functional", method=False, tags="nondeterministic_seeded")
def dropout(input, p: Float = 0.5, training: Bool = True, inplace=False):
    """In training, sets elements to 0 with probability p and scales the others by 1 / (1 - p)."""
    return _functional("dropout", input, p, training, inplace)


@register_op(ns="nn.functional", method=False, tags="nondeterministic_seeded")
def alpha_dropout(input, p: Float = 0.5, training: Bool = False, inplace=False):
    """Dropout that preserves the mean and variance of selu activations."""
    return _functional("alpha_dropout", input, p, training, inplace, alpha=True)


@register_op(ns="nn.functional", method=False, tags="nondeterministic_seeded")
def feature_alpha_dropout(input, p: Float = 0.5, training: Bool = False, inplace=False):
    """Applies alpha_dropout to entire channels."""
    return _functional("feature_alpha_dropout", input, p, training, inplace, feature=True, alpha=True)


@register_op(ns="nn.functional", method=False, tags="nondeterministic_seeded")
def dropout1d(input, p: Float = 0.5, training: Bool = True, inplace=False):
    """Applies dropout to entire channels of (N, C, L) or (C, L)."""
    p = _check(p, "feature_dropout")
    check_tensor_arg("dropout1d", "input", input)
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


@register_op(ns="nn.functional", method=False, tags="nondeterministic_seeded")
def dropout2d(input, p: Float = 0.5, training: Bool = True, inplace=False):
    """Applies dropout to entire channels of (N, C, H, W) or (N, C, L)."""
    p = _check(p, "feature_dropout")
    check_tensor_arg("dropout2d", "input", input)
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


@register_op(ns="nn.functional", method=False, tags="nondeterministic_seeded")
def dropout3d(input, p: Float = 0.5, training: Bool = True, inplace=False):
    """Applies dropout to entire channels of (N, C, D, H, W) or (C, D, H, W)."""
    p = _check(p, "feature_dropout")
    check_tensor_arg("dropout3d", "input", input)
    n = input.ndim
    if n not in (4, 5):
        warnings.warn(f"dropout3d: Received a {n}-D input to dropout3d, which is deprecated and will result in an error in a future "
                      "release. To retain the behavior and silence this warning, please use dropout instead. Note that "
                      "dropout3d "
                      "exists to provide channel-wise dropout on inputs with 3 spatial dimensions, a channel "
                      "dimension, and an "
                      "optional batch dimension (i.e. 4D or 5D inputs).", stacklevel=2)
    return _unbatched("dropout3d", input, p, training, inplace, n != 5)


# ------------------------------------------------------------------ torch.dropout and its variants
def _declare(name, feature, alpha):
    def plain(input, p: Float, train: Bool):
        """Applies dropout. Unlike in torch.nn.functional, the training flag is required."""
        check_tensor_arg(name, "input", input)
        p = _check(p, name)
        return _dropout(input, p, train, feature, alpha)

    def in_place(input, p: Float, train: Bool):
        """In-place version."""
        check_tensor_arg(name + "_", "input", input)
        p = _check(p, name)
        return input if p == 0 or not train else overwrite(input, _dropout, p, train, feature, alpha)
    register_op(method=False, name=name, tags="nondeterministic_seeded")(plain)
    register_op(method=False, name=name + "_", tags="nondeterministic_seeded")(in_place)


for _name, _feature, _alpha in (("dropout", False, False), ("alpha_dropout", False, True), ("feature_dropout", True, False),
                                ("feature_alpha_dropout", True, True)):
    _declare(_name, _feature, _alpha)


@register_op(method=False, tags="nondeterministic_seeded")
def native_dropout(input, p: Float, train: Bool):
    """Returns (result, mask) of dropout."""
    check_tensor_arg("native_dropout", "input", input)
    if train is False or p == 0 or not input._numel:
        return input.clone(), new_full(input, size=input._sizes, value=1, np_dtype=BOOL)
    return _native(input, keep=1 - p, scale=_rounded(_scale_factor(1.0 - p), input._np_dtype), generator=_generator_of(input))


@register_op(method=False)
def native_dropout_backward(grad_output, mask, scale: Float):
    """Computes grad_output * mask * scale."""
    return masked_scale(grad_output, mask, scale=scale)
