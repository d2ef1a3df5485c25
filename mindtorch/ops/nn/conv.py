"""Convolutions and transposed convolutions in one to three dimensions, unfold and fold.

Three bilinear kernels are each other's gradients: `conv_`, `conv_transposed_` (gradient of the
input) and `conv_weight_` (gradient of the weight). Higher-order gradients therefore need no further
kernels.
"""
import functools
import math

from mindtorch.backend.sizes import out_size
from mindtorch.core.device import device_dispatch
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.stride_rules import convolution as either_last, as_computed
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Int, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.ops._checks import check_tensor
from mindtorch.ops.nn._fused import c_type_name, expand_param, scalar_type_name
from mindtorch.ops.basic import conj

_squeeze = primitive("squeeze_batch", "a", lambda ctx, grad: _unsqueeze(grad), raw=True, layout=as_computed, node="SqueezeBackward1")
_unsqueeze = primitive("unsqueeze_batch", "a", lambda ctx, grad: _squeeze(grad), raw=True, layout=as_computed, node="UnsqueezeBackward0")

conv_ = primitive(
    "convolution", "x, w, b=None, *, stride, padding, dilation, groups, out",
    lambda ctx, grad: conv_transposed_(grad, conj(ctx.w), None, size=ctx.shapes[0][2:], stride=ctx.stride, padding=ctx.padding,
                                       dilation=ctx.dilation, groups=ctx.groups),
    lambda ctx, grad: conv_weight_(grad, conj(ctx.x), kernel=ctx.shapes[1][2:], stride=ctx.stride, padding=ctx.padding, dilation=ctx.dilation,
                                   groups=ctx.groups),
    lambda ctx, grad: channel_sum_(grad), node="ConvolutionBackward0", layout=either_last)
conv_transposed_ = primitive(
    "convolution_transposed", "g, w, b=None, *, size, stride, padding, dilation, groups",
    lambda ctx, grad: conv_(grad, conj(ctx.w), None, stride=ctx.stride, padding=ctx.padding, dilation=ctx.dilation, groups=ctx.groups,
                            out=ctx.shapes[0][2:]),
    lambda ctx, grad: conv_weight_(conj(ctx.g), grad, kernel=ctx.shapes[1][2:], stride=ctx.stride, padding=ctx.padding, dilation=ctx.dilation,
                                   groups=ctx.groups),
    lambda ctx, grad: channel_sum_(grad), node="ConvolutionBackward0", layout=either_last)
conv_weight_ = primitive(
    "convolution_weight", "g, x, *, kernel, stride, padding, dilation, groups",
    lambda ctx, grad: conv_(conj(ctx.x), grad, None, stride=ctx.stride, padding=ctx.padding, dilation=ctx.dilation, groups=ctx.groups,
                            out=ctx.shapes[0][2:]),
    lambda ctx, grad: conv_transposed_(conj(ctx.g), grad, None, size=ctx.shapes[1][2:], stride=ctx.stride, padding=ctx.padding,
                                       dilation=ctx.dilation, groups=ctx.groups), node="ConvolutionBackward0", layout=either_last)
#: The gradients that `needs` selects. x is None if w's gradient is not needed, and w is None if x's
#: gradient is not needed.
_backward = primitive("convolution_backward", "g, x=None, w=None, *, transposed, sizes, kernel, stride, padding, dilation, groups, needs")


def _joint_backward(transposed):
    def rule(ctx, grad):
        """Computes all gradients in one launch, on devices that have such a kernel."""
        needs = tuple([e is not None for e in ctx._next_edges])
        if mode.on or sum(needs) < 2 or grad._np_dtype.kind == "c" or not device_dispatch.has_kernel(grad._device, "convolution_backward"):
            return None
        x = (ctx.g if transposed else ctx.x) if needs[1] else None
        return _backward(grad, x, ctx.w if needs[0] else None, transposed=transposed, sizes=ctx.shapes[0], kernel=ctx.shapes[1], stride=ctx.stride,
                         padding=ctx.padding, dilation=ctx.dilation, groups=ctx.groups, needs=needs)
    return rule


conv_.prim.together, conv_transposed_.prim.together = _joint_backward(False), _joint_backward(True)
channel_sum_ = primitive("channel_sum", "g", lambda ctx, grad: _expand_channels(grad, shape=ctx.shapes[0]),
                         node="SumBackward1")
_expand_channels = primitive(
    "expand_channels", "g, *, shape", lambda ctx, grad: channel_sum_(grad), raw=True, node="ExpandBackward0")

_ONE, _NONE = {1: (1,), 2: (1, 1), 3: (1, 1, 1)}, {n: ((0, 0),) * n for n in (1, 2, 3)}


def _bad_arguments(name, args, kwargs):
    given = [type_name(a) for a in args] + [f"{k}={type_name(v)}" for k, v in kwargs.items()]
    return TypeError(f"{name}() received an invalid combination of arguments - got ({', '.join(given)})")


def _numbers(x, n, name, what):
    try:
        return expand_param(x, n, name, what)
    except RuntimeError:
        raise RuntimeError(f"expected {what} to be a single integer value or a list of {n} values to match the "
                           "convolution "
                           f"dimensions, but got {what}={list(x)}") from None
    except TypeError:
        raise _bad_arguments(name, (), {what: x}) from None


def _pads(padding, n, name, kernel, stride, dilation):
    """Returns (before, after) pairs for an int, a list, "valid" or "same"."""
    if padding == 0 and padding.__class__ is int:
        return _NONE[n]
    if isinstance(padding, str):
        if padding == "valid":
            return _NONE[n]
        if padding != "same":
            raise RuntimeError(f"Invalid padding string: '{padding}'")
        if any(s != 1 for s in stride):
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        total = [d * (k - 1) for d, k in zip(dilation, kernel)]
        return tuple((t // 2, t - t // 2) for t in total)
    return _symmetric_pads(_numbers(padding, n, name, "padding"))


@functools.lru_cache(256)
def _symmetric_pads(p):
    if min(p) < 0:
        raise RuntimeError("negative padding is not supported")
    return tuple((i, i) for i in p)


def _check(x, w, bias, n, stride, dilation, groups, transposed):
    """Checks the arguments. x, w: sizes of input and weight."""
    channels = _check_sizes(x, w, n, stride, dilation, groups, transposed)
    if bias is not None and bias._sizes != (channels,):
        raise RuntimeError(f"Given {'transposed=1, ' if transposed else ''}weight of size {list(w)}, expected bias to "
                           "be "
                           f"1-dimensional with {channels} elements, but got bias of size {list(bias._sizes)} instead")


@functools.lru_cache(1024)
def _check_sizes(x, w, n, stride, dilation, groups, transposed):
    """Returns the number of output channels. Cached: the checks take 1.3 us."""
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if min(stride) <= 0:
        raise RuntimeError("non-positive stride is not supported")
    if min(dilation) <= 0:
        raise RuntimeError(f"dilation should be greater than zero, but got {list(dilation)}")
    ws = list(w)
    what = f"transposed={int(transposed)}" if transposed else f"groups={groups}"
    if len(w) != n + 2:
        raise RuntimeError(f"Expected {n + 2}-dimensional weight for {n + 2}-dimensional input, but got weight of size "
                           f"{ws} "
                           "instead")
    if w[0] < groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got "
                           "weight of "
                           f"size {ws} instead")
    if w[0] % groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but "
                           "got weight "
                           f"of size [{ws}] instead")
    expected = w[0] if transposed else w[1] * groups
    if x[1] != expected:
        raise RuntimeError(f"Given {what}, weight of size {ws}, expected input{list(x)} to have {expected} "
                           "channels, but "
                           f"got {x[1]} channels instead")
    return w[1] * groups if transposed else w[0]


@functools.lru_cache(1024)
def _check_reach(size, kernel, pads, dilation):
    """Raises RuntimeError for a kernel larger than the padded input."""
    for n, k, (lo, hi), d in zip(size, kernel, pads, dilation):
        if n + lo + hi < d * (k - 1) + 1:
            raise RuntimeError(
                "Calculated padded input size per channel: ("
                + " x ".join(str(s + p + q) for s, (p, q) in zip(size, pads)) + "). Kernel size: ("
                + " x ".join(str(e * (j - 1) + 1) for j, e in zip(kernel, dilation))
                + "). Kernel size can't be greater than actual input size")


def _check_dtypes(x, w, b):
    d = x._np_dtype
    if w._np_dtype is not d and w._np_dtype != d:
        raise RuntimeError(f"expected scalar type {scalar_type_name(x)} but found {scalar_type_name(w)}")
    if b is not None and b._np_dtype is not d and b._np_dtype != d:
        raise RuntimeError(f"Input type ({c_type_name(x)}) and bias type ({c_type_name(b)}) should be the same")
    if d.kind == "b":
        raise NotImplementedError(f"\"slow_conv2d_cpu\" not implemented for 'Bool' on device {x.device}")


def _add_batch_dim(name, n, input, weight, bias):
    """Returns (input with a batch dim, True if the dim was added)."""
    for x in (input, weight) if bias is None else (input, weight, bias):
        if not (x.__class__ is Tensor or is_tensor(x)):
            raise _bad_arguments(name, (input, weight) if bias is None else (input, weight, bias), {})
    d = input.ndim
    if d == n + 2:
        return input, False
    if d == n + 1:
        return _unsqueeze(input), True
    raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: "
                       f"{list(input._sizes)}")


def _check_empty(x, real):
    """Accepts empty inputs only if the batch or the channel dim is 0. real: the sizes to check."""
    if 0 in real and real[0] and real[1]:
        raise RuntimeError(f"Only zero batch or zero channel inputs are supported, but got input shape: {list(x)}")


def _conv(name, n, input, weight, bias, stride, padding, dilation, groups):
    input, single = _add_batch_dim(name, n, input, weight, bias)
    x, w = input._sizes, weight._sizes
    stride = _numbers(stride, n, name, "stride")
    dilation = _numbers(dilation, n, name, "dilation")
    _check(x, w, bias, n, stride, dilation, groups, False)
    kernel = w[2:]
    pads = _pads(padding, n, name, kernel, stride, dilation)
    _check_reach(x[2:], kernel, pads, dilation)
    _check_dtypes(input, weight, bias)
    if not input._numel:
        _check_empty(x, x)
    y = conv_(input, weight, bias, stride=stride, padding=pads, dilation=dilation, groups=groups, out=None)
    if not x[1]:
        # without input channels the result is empty, and the bias gets no gradient
        y = y.narrow(1, 0, 0)
    return _squeeze(y) if single else y


@register_op(method=False, aliases="nn.functional.conv1d", autocast="lower")
def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups: SymInt = 1):
    """Convolves (N, C, L) or (C, L) with (O, C / groups, K). `padding` is an int, "valid" or
    "same"."""
    return _conv("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@register_op(method=False, aliases="nn.functional.conv2d", autocast="lower")
def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups: SymInt = 1):
    """Convolves (N, C, H, W) or (C, H, W) with (O, C / groups, KH, KW). `padding` is one or two
    ints, "valid" or "same"."""
    return _conv("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@register_op(method=False, aliases="nn.functional.conv3d", autocast="lower")
def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups: SymInt = 1):
    """Convolves (N, C, D, H, W) or (C, D, H, W) with (O, C / groups, KD, KH, KW)."""
    return _conv("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(name, n, input, weight, bias, stride, padding, output_padding, groups, dilation):
    input, single = _add_batch_dim(name, n, input, weight, bias)
    x, w = input._sizes, weight._sizes
    stride = _numbers(stride, n, name, "stride")
    dilation = _numbers(dilation, n, name, "dilation")
    padding = _numbers(padding, n, name, "padding")
    extra = _numbers(output_padding, n, name, "output_padding")
    if min(padding) < 0:
        raise RuntimeError("negative padding is not supported")
    if min(extra) < 0:
        raise RuntimeError("negative output_padding is not supported")
    _check(x, w, bias, n, stride, dilation, groups, True)
    if any(e >= s and e >= d for e, s, d in zip(extra, stride, dilation)):
        names = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}[n]
        raise RuntimeError("output padding must be smaller than either stride or dilation, but got " + " ".join(
            f"{what}_{m}: {v}" for what, vs in (("output_padding", extra), ("stride", stride), ("dilation", dilation))
            for m, v in zip(names, vs)))
    kernel = w[2:]
    size = tuple((m - 1) * s - 2 * p + d * (k - 1) + e + 1
                 for m, s, p, d, k, e in zip(x[2:], stride, padding, dilation, kernel, extra))
    if min(size) <= 0:
        raise RuntimeError("Given input size per channel: (" + " x ".join(map(str, x[2:]))
                           + "). Calculated output size per channel: (" + " x ".join(map(str, size))
                           + "). Output size is too small")
    _check_dtypes(input, weight, bias)
    if not input._numel:
        _check_empty(x, x)
    if not w[1]:
        raise RuntimeError(f"non-empty {n + 2}D weight tensor expected, but got: {list(w)}")
    y = conv_transposed_(input, weight, bias, size=size, stride=stride, padding=tuple((p, p) for p in padding),
                         dilation=dilation, groups=groups)
    return _squeeze(y) if single else y


@register_op(method=False, aliases="nn.functional.conv_transpose1d", autocast="lower")
def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups: SymInt = 1, dilation=1):
    """Applies the transposed convolution of (N, C, L) or (C, L) with (C, O / groups, K)."""
    return _conv_transpose("conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@register_op(method=False, aliases="nn.functional.conv_transpose2d", autocast="lower")
def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups: SymInt = 1, dilation=1):
    """Applies the transposed convolution of (N, C, H, W) or (C, H, W) with (C, O / groups, KH, KW).
    """
    return _conv_transpose("conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@register_op(method=False, aliases="nn.functional.conv_transpose3d", autocast="lower")
def conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups: SymInt = 1, dilation=1):
    """Applies the transposed convolution of (N, C, D, H, W) or (C, D, H, W) with (C, O / groups,
    KD, KH, KW)."""
    return _conv_transpose("conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding, groups, dilation)


@register_op(method=False)
def convolution(input, weight, bias, stride, padding, dilation, transposed: Bool, output_padding, groups: SymInt):
    """Computes any convolution. The number of spatial dims follows from the weight."""
    n = weight.ndim - 2
    if n not in _ONE:
        raise RuntimeError(f"convolution: expected a weight of 3 to 5 dims, got {n + 2}")
    if transposed:
        return _conv_transpose(f"conv_transpose{n}d", n, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(f"conv{n}d", n, input, weight, bias, stride, padding, dilation, groups)


@register_op(method=False, aliases="nn.functional.conv_tbc")
def conv_tbc(input, weight, bias, pad: Int = 0):
    """Convolves (time, batch, channels) with (kernel, channels, out) along the time dim."""
    x = input.permute(1, 2, 0)
    w = weight.permute(2, 1, 0)
    return conv1d(x, w, bias, 1, pad).permute(2, 0, 1)


# ------------------------------------------------------------------ unfold, fold
im2col_ = primitive("im2col", "x, *, kernel, dilation, padding, stride",
                    lambda ctx, grad: col2im_(grad, size=ctx.shapes[0][2:], kernel=ctx.kernel, dilation=ctx.dilation, padding=ctx.padding,
                                              stride=ctx.stride), raw=True)
col2im_ = primitive("col2im", "cols, *, size, kernel, dilation, padding, stride",
                    lambda ctx, grad: im2col_(grad, kernel=ctx.kernel, dilation=ctx.dilation, padding=ctx.padding, stride=ctx.stride))


def _window_arguments(name, kernel_size, dilation, padding, stride):
    r = [expand_param(v, 2, name, w) for w, v in (("kernel_size", kernel_size), ("dilation", dilation), ("padding", padding),
                                                  ("stride", stride))]
    for w, v in zip(("kernel size", "dilation", None, "stride"), r):
        if w and min(v) <= 0:
            raise RuntimeError(f"{w} should be greater than zero, but got {w.replace(' ', '_')}_height: {v[0]} "
                               f"{w.replace(' ', '_')}_width: {v[1]}")
    if min(r[2]) < 0:
        raise RuntimeError(f"padding should be non-negative, but got pad_height: {r[2][0]} pad_width: {r[2][1]}")
    return r


@register_op(ns="nn.functional", method=False)
def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """Returns the sliding blocks of (N, C, H, W) as columns: (N, C * prod(kernel_size), L)."""
    k, d, p, s = _window_arguments("unfold", kernel_size, dilation, padding, stride)
    check_tensor("unfold", input)
    single = input.ndim == 3
    if not single and input.ndim != 4 or 0 in input._sizes[not single:]:
        if input.ndim == 2:
            raise IndexError("Dimension out of range (expected to be in range of [-2, 1], but got 2)")
        raise RuntimeError("Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
                           "dimensions for "
                           f"input, but got: {list(input._sizes)}")
    x = _unsqueeze(input) if single else input
    out = out_size(x._sizes[2:], k, s, tuple((q, q) for q in p), d)
    if min(out) < 1:
        raise RuntimeError(f"Given input with spatial size {_tup(x._sizes[2:])}, kernel_size={_tup(k)}, "
                           f"dilation={_tup(d)}, "
                           f"padding={_tup(p)}, calculated shape of the array of sliding blocks as {_tup(out)}, but "
                           "its "
                           "components must be at least one.")
    y = im2col_(x, kernel=k, dilation=d, padding=p, stride=s)
    return _squeeze(y) if single else y


def _tup(v):
    return "(" + ", ".join(map(str, v)) + ")"


@register_op(ns="nn.functional", method=False)
def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Sums columns (N, C * prod(kernel_size), L) into (N, C, *output_size). The adjoint of
    `unfold`."""
    size = expand_param(output_size, 2, "fold", "output_size")
    k, d, p, s = _window_arguments("fold", kernel_size, dilation, padding, stride)
    single = input.ndim == 2
    if input.ndim not in (2, 3) or 0 in input._sizes[not single:]:
        raise RuntimeError("Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero "
                           "dimensions "
                           f"for input, but got: {list(input._sizes)}")
    x = _unsqueeze(input) if single else input
    channels, blocks = x._sizes[1:]
    if channels % math.prod(k):
        raise RuntimeError("Expected size of input's dimension 1 to be divisible by the product of kernel_size, but "
                           "got "
                           f"input.size(1)={channels} and kernel_size={_tup(k)}.")
    out = out_size(size, k, s, tuple((q, q) for q in p), d)
    if math.prod(out) != blocks or min(out) < 1:
        given = f"Given output_size={_tup(size)}, kernel_size={_tup(k)}, dilation={_tup(d)}, padding={_tup(p)}, stride={_tup(s)}, "
        if math.prod(out) == blocks:
            raise RuntimeError(f"{given}calculated shape of the array of sliding blocks as {_tup(out)}, which is too small (non-positive)")
        raise RuntimeError(f"{given}expected size of input's dimension 2 to match the calculated number of "
                           "sliding "
                           f"blocks {out[0]} * {out[1]} = {math.prod(out)}, but got input.size(2)={blocks}.")
    y = col2im_(x, size=size, kernel=k, dilation=d, padding=p, stride=s)
    return _squeeze(y) if single else y
