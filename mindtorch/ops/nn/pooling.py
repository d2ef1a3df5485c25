"""Pooling: maxima, means and p-norms over windows, adaptive and fractional pools, unpooling."""
import functools
import math

from mindtorch.core.autograd import forward_ad
from mindtorch.core.dispatch.deterministic import alert
from mindtorch.core.dispatch.dispatcher import SCALAR_TYPES
from mindtorch.core.tensor.dtypes import I64
from mindtorch.core.tensor.stride_rules import by_operand, format_strides, suggested_format, as_strided_copy, strides_of
from mindtorch.core.tensor.scalars import read
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Float, Int
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.ops.creation.random import rand
from mindtorch.ops.nn._fused import expand_param, check_tensor_arg, scalar_type_name
from mindtorch.ops.shapes._sizes import int_of

# ------------------------------------------------------------------ primitives
_by_input = by_operand(0)


def _suggested(r, operands, kw):
    """Restrides the result to the memory format that the input suggests.

    An unbatched input with three spatial dims is treated as a batch of one.
    """
    a = operands[0]
    if a.ndim == 4 and len(kw.get("kernel", ())) == 3:
        memory_format = suggested_format((1, *a.shape), (a.size, *strides_of(a)))
        return as_strided_copy(r, format_strides((1, *r.shape), memory_format)[1:])
    return _by_input(r, operands, kw)

# Gathering elements at flat indices of the spatial dims, and scattering (with addition or
# assignment) to them, are each other's gradients.
gather_flat_ = primitive("gather_flat", "x, index, *, dims",
                         lambda ctx, grad: scatter_flat_(grad, ctx.index, size=ctx.shapes[0][-ctx.dims:]), None, layout=_suggested)
scatter_flat_ = primitive("scatter_flat", "g, index, *, size",
                          lambda ctx, grad: gather_flat_(grad, ctx.index, dims=len(ctx.size)), None, layout=_suggested)
max_unpool_ = primitive("max_unpool", "x, index, *, size",
                        lambda ctx, grad: gather_flat_(grad, ctx.index, dims=len(ctx.size)), None, layout=_suggested)

#: offsets of elements within their windows -> flat indices into the spatial dims of the input,
#: which has `size`
_max_index = primitive("max_pool_index", "arg, *, size, kernel, stride, padding, dilation", layout=_suggested)
_max_grad = primitive(
    "max_pool_backward", "g, arg, *, size, kernel, stride, padding, dilation",
    lambda ctx, grad: gather_flat_(grad, _max_index(ctx.arg, size=ctx.size, kernel=ctx.kernel, stride=ctx.stride, padding=ctx.padding,
                                                    dilation=ctx.dilation), dims=len(ctx.size)), None, layout=_suggested)


def _max_rule(ctx, grad):
    return _max_grad(grad, ctx.out1, size=ctx.shapes[0][-len(ctx.kernel):], kernel=ctx.kernel, stride=ctx.stride, padding=ctx.padding, dilation=ctx.dilation)


#: (y, and with `return_indices` the offset of each maximum in its window, in a small integer dtype)
_max_pool = {n: primitive(f"max_pool{n}d", "x, *, kernel, stride, padding, dilation, out, return_indices", _max_rule, node=node, residuals=(1,),
                          layout=None if n == 1 else _suggested)
             for n, node in ((1, "SqueezeBackward1"), (2, "MaxPool2DWithIndicesBackward0"), (3, "MaxPool3DWithIndicesBackward0"))}


def _avg_primitives(dims, node, layout=None):
    forward = primitive(f"avg_pool{dims}d", "x, *, kernel, stride, padding, out, include_pad, override",
                        lambda ctx, grad: backward(grad, size=ctx.shapes[0][-dims:], kernel=ctx.kernel, stride=ctx.stride,
                                                   padding=ctx.padding, include_pad=ctx.include_pad, override=ctx.override), node=node, layout=layout)
    backward = primitive(f"avg_pool{dims}d_backward", "g, *, size, kernel, stride, padding, include_pad, override",
                         lambda ctx, grad: forward(grad, kernel=ctx.kernel, stride=ctx.stride, padding=ctx.padding,
                                                   out=ctx.shapes[0][-dims:], include_pad=ctx.include_pad, override=ctx.override), layout=layout)
    return forward


_avg_pool = {1: _avg_primitives(1, "SqueezeBackward1"), 2: _avg_primitives(2, "AvgPool2DBackward0", _suggested),
             3: _avg_primitives(3, "AvgPool3DBackward0")}


def _adaptive_avg_primitives(dims, node, layout=None):
    forward = primitive(f"adaptive_avg_pool{dims}d", "x, *, out",
                        lambda ctx, grad: backward(grad, size=ctx.shapes[0][-dims:]), node=node, layout=layout)
    backward = primitive(f"adaptive_avg_pool{dims}d_backward", "g, *, size",
                         lambda ctx, grad: forward(grad, out=ctx.shapes[0][-dims:]), layout=layout)
    return forward


_adaptive_avg = {1: _adaptive_avg_primitives(1, "SqueezeBackward1"),
                 2: _adaptive_avg_primitives(2, "AdaptiveAvgPool2DBackward0", _suggested),
                 3: _adaptive_avg_primitives(3, "AdaptiveAvgPool3DBackward0")}


#: (y, and with `return_indices` the flat indices of the maxima in the input's spatial dims)
_adaptive_max = {n: primitive(f"adaptive_max_pool{n}d", "x, *, target, return_indices",
                              lambda ctx, grad: scatter_flat_(grad[0], ctx.out1, size=ctx.shapes[0][-len(ctx.target):]),
                              node=f"AdaptiveMaxPool{max(n, 2)}DBackward0", nondiff=(1,), layout=_suggested if n == 2 else None)
                 for n in (1, 2, 3)}
_fractional = {n: primitive(f"fractional_max_pool{n}d", "x, samples, *, kernel, target",
                            lambda ctx, grad: (scatter_flat_(grad[0], ctx.out1, size=ctx.shapes[0][-len(ctx.kernel):]), None),
                            node=f"FractionalMaxPool{n}DBackward0", nondiff=(1,))
               for n in (2, 3)}


# ------------------------------------------------------------------ arguments
_MAXIMA, _MEANS, _ADAPTIVE_MEANS = [{n: f"{name}_pool{n}d" for n in (1, 2, 3)} for name in ("max", "avg", "adaptive_avg")]


def _sizes(name, n, what, x, default=None):
    words = {1: "one int", 2: "two ints", 3: "three ints"}[n]
    if x is None or (x.__class__ in (list, tuple) and not x):
        if default is None and x is not None:
            raise RuntimeError(f"{name}: {what} must either be a single int, or a tuple of {words}")
        return default
    if x.__class__ is int:
        return (x,) * n
    try:
        return expand_param(x, n, name, what)
    except RuntimeError:
        raise RuntimeError(f"{name}: {what} must either be a single int, or a tuple of {words}") from None


_BATCHED = "Expected {} or {} (batch mode) tensor with optional 0 dim batch size for input, but got:{}"


def _check_batched(name, shape, n):
    """Raises RuntimeError unless there are n spatial dims, channels and optionally a batch. Only
    the batch may be empty."""
    dims = f"{n + 1}D", f"{n + 2}D"
    if len(shape) not in (n + 1, n + 2):
        raise RuntimeError(f"{name}: {_BATCHED.format(*dims, list(shape))}" if n == 1 else
                           "non-empty {} or {} (batch mode) tensor expected for input".format(*dims))
    if 0 in (shape[1:] if len(shape) == n + 2 else shape):
        raise RuntimeError(f"{name}(): Expected input's non-batch dimensions to have positive length, but input has a shape of {list(shape)}"
                           if n == 3 else f"{name}: {_BATCHED.format(*dims, list(shape))}")


def _pooled_size(size, kernel, stride, padding, dilation, ceil_mode):
    """Returns the output size along each dim. PyTorch drops a last window that would start in the
    padding at the end."""
    out = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation):
        span = n + 2 * p - d * (k - 1) - 1
        o = (-(-span // s) if ceil_mode else span // s) + 1
        if ceil_mode and (o - 1) * s >= n + p:
            o -= 1
        out.append(o)
    return tuple(out)


def _window(name, n, shape, kernel, stride, padding, dilation, ceil_mode):
    """Returns (kernel, stride, padding, dilation, output size) of windows over (..., C, *spatial).
    Checks the arguments."""
    # The cached function accepts ints unchecked. Its cache cannot distinguish 2.0 from 2 or True
    # from 1, so other types are checked here.
    if kernel.__class__ is not int:
        kernel = _sizes(name, n, "kernel_size", kernel)
    if stride.__class__ is not int:
        stride = _sizes(name, n, "stride", stride, kernel)
    if padding.__class__ is not int:
        padding = _sizes(name, n, "padding", padding)
    if dilation.__class__ is not int:
        dilation = _sizes(name, n, "dilation", dilation)
    return _windows(name, n, shape, kernel, stride, padding, dilation, bool(ceil_mode))


@functools.lru_cache(1024)
def _windows(name, n, shape, kernel, stride, padding, dilation, ceil_mode):
    """Like `_window`, where each argument is an int or n ints. RuntimeError for invalid windows.
    Cached: the checks take 3 us."""
    if name == "avg_pool1d" and len(shape) not in (2, 3):
        raise RuntimeError(f"Expected 2 to 3 dimensions, but got {len(shape)}-dimensional tensor for argument #1 'self' (while "
                           "checking arguments for avg_pool1d)")
    if name == "avg_pool2d" and len(shape) < 3:
        raise IndexError("Dimension out of range (expected to be in range of [-2, 1], but got -3)")
    _check_batched(name, shape, n)
    kernel, stride, padding, dilation = [(x,) * n if x.__class__ is int else x for x in (kernel, stride, padding, dilation)]
    if min(stride) <= 0:
        raise RuntimeError("stride should not be zero" if n > 1 else f"{name}() stride must be greater than zero, but "
                                                                     "got "
                           f"{stride[0]}")
    if min(kernel) <= 0:
        raise RuntimeError("kernel size should be greater than zero, but got " + " ".join(
            f"k{d}: {k}" for d, k in zip("DHW"[3 - n:], kernel)))
    if min(dilation) <= 0:
        raise RuntimeError("dilation should be greater than zero, but got " + " ".join(
            f"dilation{d}: {k}" for d, k in zip("DHW"[3 - n:], dilation)))
    if min(padding) < 0:
        raise RuntimeError(f"pad must be non-negative, but got pad: {min(padding)}")
    for p, k, d in zip(padding, kernel, dilation):
        if p > (d * (k - 1) + 1) // 2:
            raise RuntimeError(f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} "
                               "and "
                               f"dilation={d}")
    out = _pooled_size(shape[-n:], kernel, stride, padding, dilation, ceil_mode)
    if name == "avg_pool3d" and min(out) >= 1 and any([have < k for have, k in zip(shape[-3:], kernel)]):
        raise RuntimeError("input image (" + " ".join([f"{d}: {have}" for d, have in zip("THW", shape[-3:])]) + ") smaller than kernel size ("
                           + " ".join([f"k{d}: {k}" for d, k in zip("THW", kernel)]) + ")")
    if min(out) < 1:
        c = shape[-n - 1]
        raise RuntimeError("Given input size: (" + "x".join(map(str, (c,) + shape[-n:]))
                           + "). Calculated output size: (" + "x".join(map(str, (c,) + tuple(max(0, o) for o in out)))
                           + "). Output size is too small")
    return kernel, stride, padding, dilation, out


def _check_dtype(kernel_name, x, ints):
    if x._np_dtype.kind in ("fV" if not ints else "fViu"):
        return
    raise NotImplementedError(f"\"{kernel_name}\" not implemented for '{scalar_type_name(x)}' on device {x.device}")


# ------------------------------------------------------------------ max pools
def _max(n, input, kernel_size, stride, padding, dilation, ceil_mode, indices):
    name = _MAXIMA[n]
    check_tensor_arg(name, "input", input)
    kernel, stride, padding, dilation, out = _window(name, n, input._sizes, kernel_size, stride, padding, dilation, ceil_mode)
    _check_dtype("max_pool1d_impl" if n == 1 else name, input, n > 1)
    return_indices = indices or forward_ad.is_differentiated(input)
    y = _max_pool[n](input, kernel=kernel, stride=stride, padding=padding, dilation=dilation, out=out, return_indices=return_indices)
    if not return_indices:
        return y
    y, arg = y
    if not indices:
        return y
    return y, _max_index(arg, size=input._sizes[-n:], kernel=kernel, stride=stride, padding=padding, dilation=dilation)


@register_op(ns="nn.functional", method=False)
def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: Bool = False, return_indices=False):
    """Returns the maximum of each window of (N, C, L) or (C, L), with its index if
    `return_indices`."""
    return _max(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@register_op(ns="nn.functional", method=False)
def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: Bool = False, return_indices=False):
    """Returns the maximum of each window of (N, C, H, W) or (C, H, W), with its flat index if
    `return_indices`."""
    return _max(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@register_op(ns="nn.functional", method=False, autocast="float32")
def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: Bool = False, return_indices=False):
    """Returns the maximum of each window of (N, C, D, H, W) or (C, D, H, W), with its flat index if
    `return_indices`."""
    return _max(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _declare_max(n):
    def pool(input, kernel_size, stride=(), padding=0, dilation=1, ceil_mode: Bool = False):
        """Returns the maximum of each window."""
        return _max(n, input, kernel_size, stride, padding, dilation, ceil_mode, False)

    def with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: Bool = False, return_indices=False):
        """Returns the maximum of each window and its index."""
        return _max(n, input, kernel_size, stride, padding, dilation, ceil_mode, True)
    register_op(method=False, name=f"max_pool{n}d")(pool)
    register_op(ns="nn.functional", method=False, name=f"max_pool{n}d_with_indices")(with_indices)


for _n in (1, 2, 3):
    _declare_max(_n)


@register_op(method=False, name="max_pool1d_with_indices")
def _max_pool1d_with_indices(input, kernel_size, stride=(), padding=0, dilation=1, ceil_mode: Bool = False):
    """Returns the maximum of each window and its index."""
    return _max(1, input, kernel_size, stride, padding, dilation, ceil_mode, True)


# ------------------------------------------------------------------ average pools
def _avg(n, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    name = _MEANS[n]
    check_tensor_arg(name, "input", input)
    if divisor_override is not None:
        if divisor_override.__class__ not in SCALAR_TYPES:
            divisor_override = read(name, "divisor_override", "int", divisor_override)
        if divisor_override == 0:
            raise RuntimeError("divisor must be not zero")
    kernel, stride, padding, _, out = _window(name, n, input._sizes, kernel_size, stride, padding, 1, ceil_mode)
    if (d := input._np_dtype).kind not in "fV" and d != I64:
        raise NotImplementedError(f"\"avg_pool{max(n, 2)}d\" not implemented for '{scalar_type_name(input)}' on device {input.device}")
    return _avg_pool[n](input, kernel=kernel, stride=stride, padding=padding, out=out, include_pad=bool(count_include_pad),
                        override=divisor_override)


@register_op(method=False, aliases="nn.functional.avg_pool1d")
def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode: Bool = False, count_include_pad: Bool = True):
    """Computes the mean of each window of (N, C, L) or (C, L)."""
    return _avg(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@register_op(ns="nn.functional", method=False)
def avg_pool2d(input, kernel_size, stride=None, padding=0, ceil_mode: Bool = False, count_include_pad: Bool = True, divisor_override: Int = None):
    """Computes the mean of each window of (N, C, H, W) or (C, H, W)."""
    return _avg(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@register_op(ns="nn.functional", method=False, autocast="float32")
def avg_pool3d(input, kernel_size, stride=None, padding=0, ceil_mode: Bool = False, count_include_pad: Bool = True, divisor_override: Int = None):
    """Computes the mean of each window of (N, C, D, H, W) or (C, D, H, W)."""
    return _avg(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp(n, input, norm_type, kernel_size, stride, ceil_mode):
    kernel = _sizes(f"lp_pool{n}d", n, "kernel_size", kernel_size)
    p = float(norm_type)
    y = _avg(n, input.pow(p), kernel, stride, 0, ceil_mode, True, None)
    # A sum of odd powers may be negative. The derivative of the root is infinite at 0; relu does
    # not propagate it to the elements of the window.
    y = y.sign() * y.abs().relu()
    return (y * math.prod(kernel)).pow(1.0 / p)


@register_op(ns="nn.functional", method=False)
def lp_pool1d(input, norm_type: Float, kernel_size, stride=None, ceil_mode: Bool = False):
    """Computes the p-norm of each window of (N, C, L) or (C, L)."""
    return _lp(1, input, norm_type, kernel_size, stride, ceil_mode)


@register_op(ns="nn.functional", method=False)
def lp_pool2d(input, norm_type: Float, kernel_size, stride=None, ceil_mode: Bool = False):
    """Computes the p-norm of each window of (N, C, H, W) or (C, H, W)."""
    return _lp(2, input, norm_type, kernel_size, stride, ceil_mode)


@register_op(ns="nn.functional", method=False)
def lp_pool3d(input, norm_type: Float, kernel_size, stride=None, ceil_mode: Bool = False):
    """Computes the p-norm of each window of (N, C, D, H, W) or (C, D, H, W)."""
    return _lp(3, input, norm_type, kernel_size, stride, ceil_mode)


# ------------------------------------------------------------------ adaptive pools
def _adaptive_output(name, n, x, output_size, channels):
    """Checks output_size and returns the result of `_pieces`. `channels`: the channel dim must not
    be empty."""
    if n == 1 and output_size.__class__ not in SCALAR_TYPES:
        output_size = read(name, "output_size", "index", output_size)
    if output_size.__class__ is not int:
        output_size = tuple(output_size)
        for o in output_size:
            if o.__class__ is not int and o is not None:
                output_size = tuple([o if o is None else int_of(name, o, "output_size", i) for i, o in enumerate(output_size)])
                break
    return _adaptive_windows(name, n, x._sizes, output_size, channels)


@functools.lru_cache(1024)
def _adaptive_windows(name, n, shape, output_size, channels):
    """Returns (n output sizes, window sizes).

    The window sizes are those of the adjacent pieces if there are several pieces, all of equal
    size; otherwise None.
    """
    size = shape[-n:]
    if len(shape) not in (n + 1, n + 2):
        raise RuntimeError(f"Expected 2 to 3 dimensions, but got {len(shape)}-dimensional tensor for argument #1 'self' (while checking "
                           "arguments for adaptive_avg_pool1d)" if name == "adaptive_avg_pool1d" else
                           f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got{':' if '_max_' in name else ''} {list(shape)}")
    if output_size.__class__ is int:
        out = (output_size,) * n
    else:
        if len(output_size) != n:
            raise RuntimeError(f"{name}: output_size must be {n}")
        out = tuple([s if o is None else o for o, s in zip(output_size, size)])
    if min(out) < 0:
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0 but received "
                           "{" + ", ".join(map(str, out)) + "}")
    _check_filled(name, shape, 1 if channels else len(shape) - n)
    if math.prod(shape[:-n]) * math.prod(out) >= 1 << 60:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={[*shape[:-n], *out]}")
    alike = 0 not in out and any([o != 1 for o in out]) and all([s % o == 0 for s, o in zip(size, out)])
    return out, tuple([s // o for s, o in zip(size, out)]) if alike else None


def _check_filled(name, shape, first):
    for i in range(first, len(shape)):
        if not shape[i]:
            raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {list(shape)} "
                               f"with dimension {i} being empty")


def _forward_only(name, y, out):
    """Returns `y`. If `y` is empty, its backward raises an error."""
    if 0 in out and y._grad_fn_ is not None:
        def refuse(grads):
            if grads[0] is None:
                return
            raise RuntimeError(f"{name}_backward(): Expected grad_output to have non-zero size for non-batch dimensions, but grad_output has sizes "
                               f"{list(y._sizes)}")
        y._grad_fn_.register_prehook(refuse)
    return y


def _adaptive_mean(n, input, output_size):
    name = _ADAPTIVE_MEANS[n]
    check_tensor_arg(name, "input", input)
    out, kernel = _adaptive_output(name, n, input, output_size, n == 3)
    _check_dtype(_ADAPTIVE_MEANS[n if n > 1 else 2], input, False)
    if kernel is not None:
        return _avg_pool[n](input, kernel=kernel, stride=kernel, padding=(0,) * n, out=out, include_pad=True, override=None)
    y = _adaptive_avg[n](input, out=out)
    return _forward_only(name, y, out) if 0 in out else y


@register_op(method=False, aliases="nn.functional.adaptive_avg_pool1d")
def adaptive_avg_pool1d(input, output_size):
    """Computes the means of `output_size` pieces of (N, C, L) or (C, L)."""
    return _adaptive_mean(1, input, output_size)


@register_op(ns="nn.functional", method=False)
def adaptive_avg_pool2d(input, output_size):
    """Computes the means over a grid of `output_size` pieces of (N, C, H, W) or (C, H, W). None
    keeps the size of a dim."""
    return _adaptive_mean(2, input, output_size)


@register_op(ns="nn.functional", method=False, autocast="float32")
def adaptive_avg_pool3d(input, output_size):
    """Computes the means over a grid of `output_size` pieces of (N, C, D, H, W) or (C, D, H, W).
    None keeps the size of a dim."""
    return _adaptive_mean(3, input, output_size)


def _adaptive_largest(n, input, output_size, indices):
    name = f"adaptive_max_pool{n}d"
    check_tensor_arg(name, "input", input)
    out, _ = _adaptive_output(name, n, input, output_size, True)
    _check_dtype(f"adaptive_max_pool{max(n, 2)}d", input, False)
    return_indices = indices or forward_ad.is_differentiated(input)
    y = _adaptive_max[n](input, target=out, return_indices=return_indices)
    if return_indices:
        _forward_only(name, y[0], out)
    return y if indices or not return_indices else y[0]


@register_op(ns="nn.functional", method=False)
def adaptive_max_pool1d(input, output_size, return_indices=False):
    """Returns the maxima of `output_size` pieces of (N, C, L) or (C, L)."""
    return _adaptive_largest(1, input, output_size, return_indices)


@register_op(ns="nn.functional", method=False)
def adaptive_max_pool2d(input, output_size, return_indices=False):
    """Returns the maxima over a grid of `output_size` pieces of (N, C, H, W) or (C, H, W)."""
    return _adaptive_largest(2, input, output_size, return_indices)


@register_op(ns="nn.functional", method=False, autocast="float32")
def adaptive_max_pool3d(input, output_size, return_indices=False):
    """Returns the maxima over a grid of `output_size` pieces of (N, C, D, H, W) or (C, D, H, W)."""
    return _adaptive_largest(3, input, output_size, return_indices)


@register_op(method=False, name="adaptive_max_pool1d")
def _adaptive_max_pool1d(input, output_size):
    """Returns the maxima of `output_size` pieces and their indices."""
    return _adaptive_largest(1, input, output_size, True)


def _declare_adaptive(n):
    def with_indices(input, output_size, return_indices=False):
        """Returns the maxima of the pieces and their indices."""
        return _adaptive_largest(n, input, output_size, True)
    register_op(ns="nn.functional", method=False, name=f"adaptive_max_pool{n}d_with_indices")(with_indices)


for _n in (1, 2, 3):
    _declare_adaptive(_n)


# ------------------------------------------------------------------ fractional max pools
def _fractional_pool(n, input, kernel_size, output_size, output_ratio, indices, samples):
    name = f"fractional_max_pool{n}d"
    check_tensor_arg(name, "input", input)
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got: {list(input._sizes)}")
    _check_filled(name, input._sizes, 1)
    size = input._sizes[-n:]
    for what, given in ("kernel_size", kernel_size), ("output_size", output_size):
        if isinstance(given, (list, tuple)) and len(given) != n:
            raise RuntimeError(f"{name}: {what} must either be a single int, or a tuple of {('two', 'three')[n - 2]} ints")
    kernel = _sizes(name, n, "kernel_size", kernel_size)
    if output_size is None:
        if isinstance(output_ratio, float) and n == 2:
            if not 0 < output_ratio < 1:
                raise ValueError(f"output_ratio must be between 0 and 1, but got {output_ratio}")
        ratio = (output_ratio,) * n if isinstance(output_ratio, (int, float)) else tuple(output_ratio)
        if len(ratio) != n:
            raise ValueError(f"{name} requires output_ratio to either be a single Int or tuple of Ints.")
        out = tuple(int(s * r) for s, r in zip(size, ratio))
    else:
        out = _sizes(name, n, "output_size", output_size)
    names = ("time", "height", "width")[3 - n:]
    for w, s, k, o in zip(names, size, kernel, out):
        if o + k - 1 > s:
            raise RuntimeError(f"{name}(): pool {w} {k} too large relative to input {w} {s}")
    _check_dtype(f"{name}_out_frame", input, False)
    lead = input._sizes[:-n] if input.ndim == n + 2 else (1, input._sizes[0])
    if samples is None:
        samples = rand(lead + (n,), dtype=input.dtype, device=input.device)
    else:
        check_tensor_arg(name, "_random_samples", samples)
        if samples._np_dtype != input._np_dtype:
            raise RuntimeError("Expect _random_samples to have the same dtype as input")
        if samples.ndim != 3:
            raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {samples.ndim}")
        # If there are samples for more batches than the input has, the first ones are used.
        if samples._sizes[0] < lead[0]:
            raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
        if samples._sizes[1] != lead[1]:
            raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
        if samples._sizes[2] != n:
            raise RuntimeError(f"Expect _random_samples.size(2) equals to {n}; got {samples._sizes[2]}.")
        if samples._sizes[0] > lead[0]:
            samples = samples.narrow(0, 0, lead[0])
    y, index = _fractional[n](input, samples, kernel=kernel, target=out)
    return (y, index) if indices else y


@register_op(ns="nn.functional", method=False, autocast="float32")
def fractional_max_pool2d(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
    """Returns the maxima of randomly placed windows of (N, C, H, W) or (C, H, W)."""
    return _fractional_pool(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


@register_op(ns="nn.functional", method=False, autocast="float32")
def fractional_max_pool3d(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
    """Returns the maxima of randomly placed windows of (N, C, D, H, W) or (C, D, H, W)."""
    return _fractional_pool(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


@register_op(ns="nn.functional", method=False)
def fractional_max_pool2d_with_indices(input, kernel_size, output_size=None, output_ratio=None, return_indices=False,
                                       _random_samples=None):
    """Like fractional_max_pool2d, and also returns the indices of the maxima."""
    return _fractional_pool(2, input, kernel_size, output_size, output_ratio, True, _random_samples)


@register_op(ns="nn.functional", method=False)
def fractional_max_pool3d_with_indices(input, kernel_size, output_size=None, output_ratio=None, return_indices=False,
                                       _random_samples=None):
    """Like fractional_max_pool3d, and also returns the indices of the maxima."""
    return _fractional_pool(3, input, kernel_size, output_size, output_ratio, True, _random_samples)


# ------------------------------------------------------------------ unpooling
def _unpool(n, input, indices, kernel_size, stride, padding, output_size):
    name = f"max_unpool{n}d"
    # PyTorch implements 1-d unpooling with the 2-d op
    alert(f"max_unpooling{max(n, 2)}d_forward_out")
    check_tensor_arg(name, "input", input)
    check_tensor_arg(name, "indices", indices, 2)
    kernel = _sizes(name, n, "kernel_size", kernel_size)
    stride = _sizes(name, n, "stride", stride, kernel)
    padding = _sizes(name, n, "padding", padding)
    size = tuple((s - 1) * t + k - 2 * p for s, t, k, p in zip(input._sizes[-n:], stride, kernel, padding))
    if output_size is not None:
        out = tuple(output_size)
        if len(out) == n + 2:
            out = out[2:]
        if len(out) != n:
            raise ValueError("output_size should be a sequence containing "
                             f"{n} or {n + 2} elements, but it has a length of '{len(tuple(output_size))}'")
        for d, (o, s, t) in enumerate(zip(out, size, stride)):
            if not s - t < o < s + t:
                raise ValueError(f"invalid output_size \"{_tup(out)}\" (dim {d} must be between {s - t} and {s + t})")
        size = tuple(int(o) for o in out)
    if indices._np_dtype != I64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {scalar_type_name(indices)}")
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"Input to {name} should be a {n + 1}d or {n + 2}d Tensor, but got a tensor with {input.ndim} "
                           "dimensions.")
    if indices._sizes != input._sizes:
        raise RuntimeError(f"Expected shape of indices to be same as that of the input tensor ({list(input._sizes)}) but "
                           "got indices "
                           f"tensor with shape: {list(indices._sizes)}")
    return max_unpool_(input, indices, size=size)


def _tup(v):
    return "(" + ", ".join(map(str, v)) + ")"


@register_op(ns="nn.functional", method=False, autocast="float32")
def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Writes the results of max_pool1d to their original indices, and zeros elsewhere."""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


@register_op(ns="nn.functional", method=False, autocast="float32")
def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Writes the results of max_pool2d to their original indices, and zeros elsewhere."""
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


@register_op(ns="nn.functional", method=False, autocast="float32")
def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Writes the results of max_pool3d to their original indices, and zeros elsewhere."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)
