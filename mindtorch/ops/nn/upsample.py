"""Interpolation, grid_sample, affine_grid, pixel and channel shuffles."""
import itertools
import math
import warnings

from mindtorch.core.tensor.dtypes import U8
from mindtorch.core.autograd.grad_mode import mode as grad_mode
from mindtorch.core.tensor.stride_rules import by_operand
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Float, Int, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.ops.nn._fused import composite_backward_upcast, check_tensor_arg, scalar_type_name
from mindtorch.ops.basic import mul_
from mindtorch.ops.linalg.matmul import bmm_
from mindtorch.ops.nn.pooling import _adaptive_mean

_suggested = by_operand(0)

# ------------------------------------------------------------------ interpolation
#
# All modes share one kernel and one gradient kernel. Each mode has its own primitive because each
# has its own grad_fn name.
def _resize_primitive(name):
    def rule(ctx, grad):
        return _resize_grad(grad, size=ctx.shapes[0][2:], kind=name, scales=ctx.scales, align=ctx.align)
    camel = "".join(w.capitalize() if w[-2:] not in ("1d", "2d", "3d") else w[:-2].capitalize() + w[-2:].upper() for w in name.split("_"))
    return primitive(name, "x, *, size, scales, align", rule, node=camel + "Backward0", layout=_suggested)


_resize_grad = primitive("upsample_backward", "g, *, size, kind, scales, align",
                         lambda ctx, grad: _RESIZE[ctx.kind](grad, size=ctx.shapes[0][2:], scales=ctx.scales, align=ctx.align), layout=_suggested)
_NAMES = {(mode, n): f"upsample_{mode.replace('-', '_')}{n}d" for mode in ("nearest", "nearest-exact") for n in (1, 2, 3)}
_NAMES.update({("linear", 1): "upsample_linear1d", ("bilinear", 2): "upsample_bilinear2d", ("trilinear", 3): "upsample_trilinear3d",
               ("bicubic", 2): "upsample_bicubic2d", ("lanczos", 2): "upsample_lanczos2d"})
_AA = {mode: f"upsample_{mode}2d_aa" for mode in ("bilinear", "bicubic", "lanczos")}
_RESIZE = {name: _resize_primitive(name) for name in (*_NAMES.values(), *_AA.values())}
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def _resize(input, mode, size, scales, align, antialias=False):
    """Interpolates the spatial dims of `input` to `size`."""
    shape = input._sizes
    dims = len(shape) - 2
    names = ("W",) if dims == 1 else ("H", "W") if dims == 2 else ("D", "H", "W")
    if min(shape[2:]) <= 0 or min(size) <= 0:
        raise RuntimeError("Input and output sizes should be greater than 0, but got input ("
                           + ", ".join(f"{n}: {s}" for n, s in zip(names, shape[2:])) + ") output ("
                           + ", ".join(f"{n}: {s}" for n, s in zip(names, size)) + ")")
    if not shape[1]:
        raise RuntimeError(f"Non-empty {input.ndim}D data tensor expected but got a tensor with sizes {list(shape)}")
    if input._np_dtype.kind not in "fV" and input._np_dtype != U8:
        kind = mode.replace("-", "_") if mode != "lanczos" else "lanczos"
        raise NotImplementedError(f"\"upsample_{kind}{dims}d\" not implemented for '{scalar_type_name(input)}' on device {input.device}")
    p = _RESIZE[_AA[mode] if antialias else _NAMES[mode, dims]]
    return p(input, size=tuple([int(size[i]) for i in range(dims)]), scales=tuple([scales[i] for i in range(dims)]), align=bool(align))


_MODES = "nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact"


@register_op(ns="nn.functional", method=False)
def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners: Bool = None, recompute_scale_factor=None,
                antialias=False):
    """Resamples the spatial dims of (N, C, *spatial) to `size` or by `scale_factor`.

    Modes: nearest, nearest-exact, area (1 to 3 dims), linear (1), bilinear and bicubic (2, with
    optional antialiasing), trilinear (3).
    """
    check_tensor_arg("interpolate", "input", input)
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | "
                             "bicubic | "
                             "trilinear")
    elif align_corners is None:
        align_corners = False
    dims = input.ndim - 2
    spatial = input._sizes[2:]
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    scales = (None,) * max(dims, 0)
    if size is not None:
        if isinstance(size, (list, tuple)):
            if len(size) != dims:
                raise ValueError("Input and output must have the same number of spatial dimensions, but got input with "
                                 "spatial "
                                 f"dimensions of {list(spatial)} and output size of {size}. Please provide input "
                                 "tensor in (N, C, "
                                 "d1, d2, ...,dK) format and output size in (o1, o2, ...,oK) format.")
            size = tuple(int(s) for s in size)
        else:
            size = (int(size),) * dims
        if recompute_scale_factor:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    elif scale_factor is not None:
        if isinstance(scale_factor, (list, tuple)):
            if len(scale_factor) != dims:
                raise ValueError("Input and scale_factor must have the same number of spatial dimensions, but got "
                                 "input with "
                                 f"spatial dimensions of {list(spatial)} and scale_factor of shape {scale_factor}. "
                                 "Please provide "
                                 "input tensor in (N, C, d1, d2, ...,dK) format and scale_factor in (s1, s2, ...,sK) "
                                 "format.")
            scales = tuple(float(s) for s in scale_factor)
        else:
            scales = (float(scale_factor),) * dims
        size = tuple(int(math.floor(n * s)) for n, s in zip(spatial, scales))
        if max(size) >= 1 << 63:
            raise RuntimeError("value cannot be converted to type int64_t without overflow")
        if recompute_scale_factor or mode == "area":
            scales = (None,) * dims
    else:
        raise ValueError("either size or scale_factor should be defined")
    if mode == "lanczos" and align_corners:
        raise ValueError("Lanczos mode does not support align_corners=True")
    if antialias and not (mode in _AA and input.ndim == 4):
        raise ValueError("Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D "
                         "tensor as "
                         "input")
    if mode == "area" and dims in (1, 2, 3):
        return _adaptive_mean(dims, input, size)
    if mode in _LINEAR.values() and dims in (1, 2, 3) and mode != _LINEAR[dims]:
        need = {"linear": 3, "bilinear": 4, "trilinear": 5}[mode]
        raise NotImplementedError(f"Got {input.ndim}D input, but {mode} mode needs {need}D input")
    if (mode, dims) not in _NAMES or (mode == "lanczos" and not antialias):
        raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for the "
                                  "modes: "
                                  f"{_MODES} (got {mode})")
    return _resize(input, mode, size, scales, align_corners, antialias)


@register_op(ns="nn.functional", method=False)
def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners: Bool = None):
    """Deprecated name of interpolate."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


@register_op(ns="nn.functional", method=False)
def upsample_nearest(input, size=None, scale_factor=None):
    """Deprecated: interpolate with mode="nearest"."""
    warnings.warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, "nearest")


@register_op(ns="nn.functional", method=False)
def upsample_bilinear(input, size=None, scale_factor=None):
    """Deprecated: interpolate with mode="bilinear", align_corners=True."""
    warnings.warn("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, "bilinear", True)


@register_op(method=False, name="_upsample_bilinear2d_aa")
def _upsample_bilinear2d_aa(input, output_size, align_corners: Bool, scales_h: Float = None, scales_w: Float = None):
    """Computes antialiased bilinear interpolation."""
    return _resize(input, "bilinear", tuple(output_size), (scales_h, scales_w), align_corners, True)


# ------------------------------------------------------------------ grid_sample
_grid_grad = primitive("grid_sampler_backward", "g, x, grid, *, kind, padding, align, needs")
#: Reads x (N, C, *size) at flat indices (N, P) of the spatial dims; then its adjoint.
_at_points = primitive("grid_points", "x, index", lambda ctx, grad: _add_points(grad, ctx.index, size=ctx.shapes[0]), None)
_add_points = primitive("grid_points_backward", "g, index, *, size", lambda ctx, grad: _at_points(grad, ctx.index), None)
#: For one axis of n pixels: the indices of the taps, then the terms of their weights (see
#: `_weights_of`).
_taps = primitive("grid_taps", "coordinate, *, n, kind, padding, align")


def _weights_of(coordinate, n, mode, padding, align):
    """Returns (index, weight) of each tap along one axis.

    The weights are computed from the coordinate (a tensor) with differentiable ops.
    """
    items = _taps(coordinate, n=n, kind=mode, padding=padding, align=align)
    if mode == "nearest":
        return [items]
    if mode == "bilinear":
        # The position is a linear function of the coordinate: its derivative times the coordinate,
        # plus a remainder.
        i0, i1, inside0, inside1, slope, rest = items
        f = coordinate * slope + rest
        return [(i0, (1 - f) * inside0), (i1, f * inside1)]
    f = coordinate * (((n - 1) if align else n) / 2) + items[8]
    a = -0.75

    def near(x):
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x):
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    weights = [far(f + 1), near(f), near(1 - f), far(2 - f)]
    return [(i, w * m) for i, w, m in zip(items[:4], weights, items[4:8])]


def _compose_grid(x, grid, mode, padding, align):
    size, out = x._sizes[2:], grid._sizes[1:-1]
    dims = len(size)
    n, c = x._sizes[:2]
    flat = grid.reshape(n, -1, dims)
    axes = [_weights_of(flat.select(2, dims - 1 - i), size[i], mode, padding, align) for i in range(dims)]
    total = None
    for choice in itertools.product(*axes):
        index = w = None
        for extent, (i, t) in zip(size, choice):
            index = i if index is None else index * extent + i
            w = t if w is None else mul_(w, t)
        v = mul_(_at_points(x, index), w.unsqueeze(1))
        total = v if total is None else total + v
    return total.reshape((n, c) + out)


def _grid_rule(ctx, grad):
    if grad_mode.on:
        return composite_backward_upcast(lambda x, grid: _compose_grid(x, grid, ctx.kind, ctx.padding, ctx.align), (ctx.x, ctx.grid), grad)
    return _grid_grad(grad, ctx.x, ctx.grid, kind=ctx.kind, padding=ctx.padding, align=ctx.align, needs=ctx.needs)


_grid_sample = {n: primitive(f"grid_sampler_{n}d", "x, grid, *, kind, padding, align", _grid_rule, node=f"GridSampler{n}DBackward0")
                for n in (2, 3)}


def _sampled(input, grid, mode, padding_mode, align_corners):
    check_tensor_arg("grid_sampler", "input", input)
    check_tensor_arg("grid_sampler", "grid", grid, 2)
    x, t, size, grid_size = input, grid, input._sizes, grid._sizes
    ndim = len(size)
    if size[0] != grid_size[0]:
        raise RuntimeError("grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
                           f"{list(size)} and grid with sizes {list(grid_size)}")
    if grid_size[-1] != ndim - 2:
        raise RuntimeError(f"grid_sampler(): expected grid to have size {ndim - 2} in last dimension, but got grid "
                           "with sizes "
                           f"{list(grid_size)}")
    if ndim not in (4, 5) or len(grid_size) != ndim:
        raise RuntimeError("grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got "
                           "input with "
                           f"sizes {list(size)} and grid with sizes {list(grid_size)}")
    if ndim == 5 and mode == "bicubic":
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if 0 in size[2:]:
        raise RuntimeError("grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
                           "sizes "
                           f"{list(size)} with dimension {size.index(0, 2)} being empty")
    if x._np_dtype != t._np_dtype:
        raise RuntimeError(f"expected scalar type {scalar_type_name(x)} but found {scalar_type_name(t)}")
    if x._np_dtype.kind not in "fV":
        raise NotImplementedError(f"\"grid_sampler_{x.ndim - 2}d_cpu_kernel_impl\" not implemented for '{scalar_type_name(x)}' on "
                                  "device cpu")
    return _grid_sample[ndim - 2](input, grid, kind=mode, padding=padding_mode, align=bool(align_corners))


@register_op(ns="nn.functional", method=False, autocast="float32")
def grid_sample(input, grid, mode="bilinear", padding_mode: Int = "zeros", align_corners: Bool = None):
    """Samples input (N, C, H, W) or (N, C, D, H, W) at the points of grid (N, *out, 2 or 3), with
    coordinates in [-1, 1]."""
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError("nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but "
                         "got: "
                         f"'{mode}'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError("nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', "
                         "but got: "
                         f"'{padding_mode}'")
    if align_corners is None:
        warnings.warn("Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
                      "align_corners=True if the old behavior is desired. See the documentation of grid_sample for "
                      "details.",
                      stacklevel=2)
        align_corners = False
    return _sampled(input, grid, mode, padding_mode, align_corners)


_GRID_MODES, _GRID_PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _declare_sampler(name, autocast):
    def sampler(input, grid, interpolation_mode: Int, padding_mode: Int, align_corners: Bool):
        """grid_sample with the modes as integers."""
        return _sampled(input, grid, _GRID_MODES[interpolation_mode], _GRID_PADDINGS[padding_mode], align_corners)
    register_op(method=False, name=name, autocast=autocast)(sampler)


_declare_sampler("grid_sampler", None)
_declare_sampler("grid_sampler_2d", "float32")
_declare_sampler("grid_sampler_3d", "float32")


#: homogeneous coordinates of the output points, (N, prod(size), dims + 1), in theta's dtype
_base_grid = primitive("affine_base_grid", "theta, *, size, align", raw=True)


@register_op(ns="nn.functional", method=False)
def affine_grid(theta, size, align_corners: Bool = None):
    """Returns the sampling grid of affine maps theta (N, 2, 3) or (N, 3, 4) for outputs of `size`
    (N, C, *spatial)."""
    check_tensor_arg("affine_grid", "theta", theta)
    if align_corners is None:
        warnings.warn("Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
                      "align_corners=True if the old behavior is desired. See the documentation of grid_sample for "
                      "details.",
                      stacklevel=2)
        align_corners = False
    if theta._np_dtype.kind not in "fV":
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    size = tuple(int(s) for s in size)
    if len(size) not in (4, 5):
        raise NotImplementedError("affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
                                  "respectively. Got "
                                  f"size {size}.")
    n = len(size) - 2
    if theta.ndim != 3 or theta._sizes[-2:] != (n, n + 1):
        raise ValueError(f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {size}. Got "
                         f"{theta.shape}.")
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return _affine(theta, size, align_corners)


def _affine(theta, size, align_corners):
    base = _base_grid(theta, size=size, align=bool(align_corners))
    return bmm_(base, theta, ta=False, tb=True).reshape((size[0],) + size[2:] + (len(size) - 2,))


@register_op(method=False)
def affine_grid_generator(theta, size, align_corners: Bool):
    """Like affine_grid, with a required align_corners."""
    return _affine(theta, tuple(int(s) for s in size), align_corners)


# ------------------------------------------------------------------ shuffles
shuffle_ = primitive("pixel_shuffle", "x, *, factor", lambda ctx, grad: unshuffle_(grad, factor=ctx.factor), raw=True, layout=_suggested)
unshuffle_ = primitive("pixel_unshuffle", "x, *, factor", lambda ctx, grad: shuffle_(grad, factor=ctx.factor), raw=True, layout=_suggested)


def _check_shuffle(name, input, option, factor):
    """Checks the arguments that both shuffles have and returns the input's sizes."""
    check_tensor_arg(name, "input", input)
    if input.ndim < 3:
        raise RuntimeError(f"{name} expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)")
    if factor <= 0:
        raise RuntimeError(f"{name} expects a positive {option}, but got {factor}")
    return input._sizes


@register_op(method=False, aliases="nn.functional.pixel_shuffle", aten="pixel_shuffle.default")
def pixel_shuffle(input, upscale_factor: Int):
    """Rearranges (*, C r^2, H, W) to (*, C, H r, W r)."""
    shape, r = _check_shuffle("pixel_shuffle", input, "upscale_factor", upscale_factor), upscale_factor
    if shape[-3] % (r * r):
        raise RuntimeError("pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                           "upscale_factor, "
                           f"but input.size(-3)={shape[-3]} is not divisible by {r * r}")
    return shuffle_(input, factor=r)


@register_op(method=False, aliases="nn.functional.pixel_unshuffle", aten="pixel_unshuffle.default")
def pixel_unshuffle(input, downscale_factor: Int):
    """Rearranges (*, C, H r, W r) to (*, C r^2, H, W)."""
    shape, r = _check_shuffle("pixel_unshuffle", input, "downscale_factor", downscale_factor), downscale_factor
    for what, i in (("height", -2), ("width", -1)):
        if shape[i] % r:
            raise RuntimeError(f"pixel_unshuffle expects {what} to be divisible by downscale_factor, but "
                               f"input.size({i})="
                               f"{shape[i]} is not divisible by {r}")
    return unshuffle_(input, factor=r)


channels_ = primitive("native_channel_shuffle", "x, *, groups",
                      lambda ctx, grad: channels_(grad, groups=grad._sizes[1] // ctx.groups if ctx.groups else 1), raw=True, layout=_suggested)


@register_op(method=False, aliases="nn.functional.channel_shuffle native_channel_shuffle nn.functional.native_channel_shuffle")
def channel_shuffle(input, groups: SymInt):
    """Interleaves the channels of `groups` groups of (N, C, *)."""
    check_tensor_arg("channel_shuffle", "input", input)
    shape = input._sizes
    if input.ndim <= 2:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if shape[1] % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {shape[1]} channels and {groups} "
                           "groups.")
    return channels_(input, groups=groups) if input._numel else input.clone()
