"""Interpolation, grid_sample, affine_grid, pixel and channel shuffles."""
import math
import warnings

import numpy as np

from mindtorch.backend.cpu import resize as kernels
from mindtorch.core.dtypes import F32, F64
from mindtorch.core.grad_mode import mode as grad_mode
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import wrap
from mindtorch.ops.nn._fused import again, tensor_arg, title
from mindtorch.ops.basic import mul_
from mindtorch.ops.linalg.matmul import bmm_



# ------------------------------------------------------------------ interpolation
def _resize_primitives(node):
    forward = primitive("resize", kernels.resize, lambda c, g: backward(g, plan=c.plan), node=node)
    backward = primitive("resize_backward", kernels.resize_grad, lambda c, g: forward(g, plan=c.plan))
    return forward


_NODES = {("nearest", n): f"UpsampleNearest{n}DBackward0" for n in (1, 2, 3)}
_NODES.update({("nearest-exact", n): f"UpsampleNearestExact{n}DBackward0" for n in (1, 2, 3)})
_NODES.update({("linear", 1): "UpsampleLinear1DBackward0", ("bilinear", 2): "UpsampleBilinear2DBackward0",
               ("trilinear", 3): "UpsampleTrilinear3DBackward0", ("bicubic", 2): "UpsampleBicubic2DBackward0",
               ("lanczos", 2): "UpsampleLanczos2DBackward0"})
_RESIZE = {k: _resize_primitives(n) for k, n in _NODES.items()}
_AA = {m: _resize_primitives(f"Upsample{m.capitalize()}2DAaBackward0") for m in ("bilinear", "bicubic", "lanczos")}
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def _source_scale(n, out, scale, real):
    """Input elements per output element, in the precision torch computes it in."""
    return real(1.0 / scale) if scale is not None and scale > 0 else real(n) / real(out)


def _nearest_plan(axis, n, out, scale, exact, real):
    s = _source_scale(n, out, scale, real)
    i = np.arange(out).astype(real)
    i = np.floor((i + real(0.5)) * s if exact else i * s).astype(np.int64)
    return axis, np.minimum(i, n - 1)[None], None, n


def _positions(n, out, scale, align, real):
    i = np.arange(out).astype(real)
    if align:
        return i * (real(n - 1) / real(out - 1) if out > 1 else real(0))
    return _source_scale(n, out, scale, real) * (i + real(0.5)) - real(0.5)


def _linear_plan(axis, n, out, scale, align, real):
    if n == out:
        return None
    p = np.maximum(_positions(n, out, scale, align, real), real(0))
    i = np.minimum(p.astype(np.int64), n - 1)
    f = np.clip(p - i.astype(real), real(0), real(1))
    return axis, np.stack([i, np.minimum(i + 1, n - 1)]), np.stack([real(1) - f, f]), n


def _cubic_plan(axis, n, out, scale, align, real):
    p = _positions(n, out, scale, align, real)
    base = np.floor(p)
    weights = kernels.cubic(p - base, 0)
    i = base.astype(np.int64) + np.arange(-1, 3)[:, None]
    return axis, np.clip(i, 0, n - 1), np.stack(weights).astype(real), n


def _filter_linear(x):
    return np.maximum(0, 1 - np.abs(x))


def _filter_cubic(x):
    a, x = -0.5, np.abs(x)
    return np.where(x < 1, ((a + 2) * x - (a + 3)) * x * x + 1, np.where(x < 2, (((x - 5) * x + 8) * x - 4) * a, 0))


def _filter_lanczos(x):
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


_FILTERS = {"bilinear": (_filter_linear, 2), "bicubic": (_filter_cubic, 4), "lanczos": (_filter_lanczos, 6)}


def _antialias_plan(axis, n, out, scale, align, real, mode):
    """Weights of a filter that grows with the reduction, as Pillow's."""
    fn, width = _FILTERS[mode]
    if align:
        s = (n - 1) / (out - 1) if out > 1 else 0.0
    else:
        s = 1.0 / scale if scale is not None and scale > 0 else n / out
    support = width * 0.5 * s if s >= 1 else width * 0.5
    inverse = 1.0 / s if s >= 1 else 1.0
    taps = int(math.ceil(support)) * 2 + 1
    index, weight = np.zeros((taps, out), np.int64), np.zeros((taps, out))
    for o in range(out):
        center = s * (o + 0.5)
        lo = max(int(center - support + 0.5), 0)
        count = min(min(int(center + support + 0.5), n) - lo, taps)
        w = fn((np.arange(count) + lo - center + 0.5) * inverse)
        total = w.sum()
        index[:count, o] = np.arange(lo, lo + count)
        weight[:count, o] = w / total if total else w
    return axis, index, weight.astype(real), n


def _resize(input, mode, size, scales, align, antialias=False):
    """Interpolates the spatial dims of `input` to `size`."""
    a = input._a
    dims = a.ndim - 2
    names = ("W",) if dims == 1 else ("H", "W") if dims == 2 else ("D", "H", "W")
    if min(a.shape[2:]) <= 0 or min(size) <= 0:
        raise RuntimeError("Input and output sizes should be greater than 0, but got input ("
                           + ", ".join(f"{n}: {s}" for n, s in zip(names, a.shape[2:])) + ") output ("
                           + ", ".join(f"{n}: {s}" for n, s in zip(names, size)) + ")")
    if not a.shape[1]:
        raise RuntimeError(f"Non-empty {a.ndim}D data tensor expected but got a tensor with sizes {list(a.shape)}")
    if a.dtype.kind not in "fV" and a.dtype != np.uint8:
        kind = mode.replace("-", "_") if mode != "lanczos" else "lanczos"
        raise NotImplementedError(f"\"upsample_{kind}{dims}d\" not implemented for '{title(a)}' on device cpu")
    # Weights for bytes are made in float64 before they are rounded to 16 bits.
    real = np.float64 if a.dtype == F64 or a.dtype == np.uint8 and "nearest" not in mode else np.float32
    plan = []
    for i in range(dims):
        args = (i + 2, a.shape[i + 2], int(size[i]), scales[i])
        if mode in ("nearest", "nearest-exact"):
            plan.append(_nearest_plan(*args, mode == "nearest-exact", real))
        elif antialias:
            plan.append(_antialias_plan(*args, align, real, mode))
        elif mode == "bicubic":
            plan.append(_cubic_plan(*args, align, real))
        else:
            plan.append(_linear_plan(*args, align, real))
    plan = tuple(p for p in plan if p is not None)
    p = _AA[mode] if antialias else _RESIZE[mode, dims]
    if a.dtype == np.uint8 and any(w is not None for _, _, w, _ in plan):
        return wrap(kernels.resize_bytes(a, plan=plan))
    return p(input, plan=plan)


_MODES = "nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact"


@op(ns="nn.functional", method=False)
def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
                antialias=False):
    """Resamples the spatial dims of (N, C, *spatial) to `size` or by `scale_factor`.

    Modes: nearest, nearest-exact, area (1 to 3 dims), linear (1), bilinear, bicubic (2, both also antialiased), trilinear (3).
    """
    tensor_arg("interpolate", "input", input)
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | "
                             "bicubic | "
                             "trilinear")
    elif align_corners is None:
        align_corners = False
    a = input._a
    dims = a.ndim - 2
    spatial = a.shape[2:]
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
        if recompute_scale_factor or mode == "area":
            scales = (None,) * dims
    else:
        raise ValueError("either size or scale_factor should be defined")
    if mode == "lanczos" and align_corners:
        raise ValueError("Lanczos mode does not support align_corners=True")
    if antialias and not (mode in _FILTERS and a.ndim == 4):
        raise ValueError("Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D "
                         "tensor as "
                         "input")
    if mode == "area" and dims in (1, 2, 3):
        from mindtorch.ops.nn.pooling import _adaptive_mean
        return _adaptive_mean(dims, input, size)
    if mode in _LINEAR.values() and dims in (1, 2, 3) and mode != _LINEAR[dims]:
        need = {"linear": 3, "bilinear": 4, "trilinear": 5}[mode]
        raise NotImplementedError(f"Got {a.ndim}D input, but {mode} mode needs {need}D input")
    if (mode, dims) not in _RESIZE or (mode == "lanczos" and not antialias):
        raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {a.ndim}D) for the "
                                  "modes: "
                                  f"{_MODES} (got {mode})")
    return _resize(input, mode, size, scales, align_corners, antialias)


@op(ns="nn.functional", method=False)
def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """interpolate under its old name."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


@op(ns="nn.functional", method=False)
def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate with mode="nearest"."""
    warnings.warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, "nearest")


@op(ns="nn.functional", method=False)
def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate with mode="bilinear", align_corners=True."""
    warnings.warn("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, "bilinear", True)


@op(method=False, name="_upsample_bilinear2d_aa")
def _upsample_bilinear2d_aa(input, output_size, align_corners, scales_h=None, scales_w=None):
    """Antialiased bilinear interpolation."""
    return _resize(input, "bilinear", tuple(output_size), (scales_h, scales_w), align_corners, True)


# ------------------------------------------------------------------ grid_sample
_grid_grad = primitive("grid_sampler_backward", kernels.grid_sample_grad)
_at_points = primitive(
    "grid_points", lambda x, *, index: np.take_along_axis(
        x.reshape(x.shape[0], x.shape[1], -1), np.broadcast_to(index[:, None], x.shape[:2] + index.shape[1:]), 2),
    lambda c, g: _add_points(g, index=c.index, size=c.shapes[0]))


def _add_at_points(g, *, index, size):
    n, c = size[:2]
    plane = math.prod(size[2:])
    flat = (np.arange(n * c) * plane).reshape(n, c, 1) + index[:, None]
    r = np.zeros(n * c * plane, g.dtype)
    np.add.at(r, flat.reshape(-1), g.reshape(-1))
    return r.reshape(size)


_add_points = primitive("grid_points_backward", _add_at_points, lambda c, g: _at_points(g, index=c.index))


def _weights_of(coordinate, n, mode, padding, align):
    """Taps of one axis, their weights as ops of the coordinate (a tensor) that can be differentiated."""
    c = coordinate._a
    items = kernels.taps(c, n, mode, padding, align)
    if mode == "nearest":
        return [(i, wrap(w)) for i, w, _ in items]
    t = c.dtype.type
    if mode == "bilinear":
        p, slope = kernels.position(c, n, padding, align)
        # The position as a function of the coordinate: its slope times the coordinate, plus what is left.
        f = coordinate * wrap(slope) + wrap(p - np.floor(p) - c * slope)
        inside = [wrap(_inside(np.floor(p).astype(np.int64) + k, n, c.dtype)) for k in (0, 1)]
        return [(items[0][0], (1 - f) * inside[0]), (items[1][0], f * inside[1])]
    p, slope = kernels.unnormalize(c, n, align)
    f = coordinate * float(slope) + wrap(p - np.floor(p) - c * t(slope))
    a = -0.75

    def near(x):
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x):
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    weights = [far(f + 1), near(f), near(1 - f), far(2 - f)]
    masks = [_cubic_inside(p, k, n, padding, c.dtype) for k in range(4)]
    return [(i[0], w * wrap(m)) for i, w, m in zip(items, weights, masks)]


def _inside(i, n, dtype):
    return ((i >= 0) & (i < n)).astype(dtype)


def _cubic_inside(p, k, n, padding, dtype):
    if padding != "zeros":
        return np.ones_like(p)
    return _inside(np.floor(p).astype(np.int64) + (k - 1), n, dtype)


def _compose_grid(x, grid, mode, padding, align):
    size, out = x._sizes[2:], grid._sizes[1:-1]
    dims = len(size)
    n, c = x._sizes[:2]
    flat = grid.reshape(n, -1, dims)
    axes = [_weights_of(flat.select(2, dims - 1 - i), size[i], mode, padding, align) for i in range(dims)]
    total = None
    for choice in np.ndindex(*[len(a) for a in axes]):
        index, w = 0, None
        for i, k in enumerate(choice):
            index = index * size[i] + axes[i][k][0]
            w = axes[i][k][1] if w is None else mul_(w, axes[i][k][1])
        v = mul_(_at_points(x, index=index), w.unsqueeze(1))
        total = v if total is None else total + v
    return total.reshape((n, c) + out)


def _grid_rule(c, g):
    if grad_mode.on:
        return again(lambda x, grid: _compose_grid(x, grid, c.kind, c.padding, c.align), (c.x, c.grid), g)
    return _grid_grad(g, c.x, c.grid, kind=c.kind, padding=c.padding, align=c.align, needs=c.needs)


_grid_sample = {n: primitive(f"grid_sampler_{n}d", kernels.grid_sample, _grid_rule, node=f"GridSampler{n}DBackward0")
                for n in (2, 3)}


def _sampled(input, grid, mode, padding_mode, align_corners):
    tensor_arg("grid_sampler", "input", input)
    tensor_arg("grid_sampler", "grid", grid, 2)
    x, t = input._a, grid._a
    if x.shape[0] != t.shape[0]:
        raise RuntimeError("grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
                           f"{list(x.shape)} and grid with sizes {list(t.shape)}")
    if t.shape[-1] != x.ndim - 2:
        raise RuntimeError(f"grid_sampler(): expected grid to have size {x.ndim - 2} in last dimension, but got grid "
                           "with sizes "
                           f"{list(t.shape)}")
    if x.ndim not in (4, 5) or t.ndim != x.ndim:
        raise RuntimeError("grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got "
                           "input with "
                           f"sizes {list(x.shape)} and grid with sizes {list(t.shape)}")
    if x.ndim == 5 and mode == "bicubic":
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    for i in range(2, x.ndim):
        if not x.shape[i]:
            raise RuntimeError("grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
                               "sizes "
                               f"{list(x.shape)} with dimension {i} being empty")
    if x.dtype != t.dtype:
        raise RuntimeError(f"expected scalar type {title(x)} but found {title(t)}")
    if x.dtype.kind not in "fV":
        raise NotImplementedError(f"\"grid_sampler_{x.ndim - 2}d_cpu_kernel_impl\" not implemented for '{title(x)}' on "
                                  "device cpu")
    return _grid_sample[x.ndim - 2](input, grid, kind=mode, padding=padding_mode, align=bool(align_corners))


@op(ns="nn.functional", method=False)
def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """input (N, C, H, W) or (N, C, D, H, W) at the places of grid (N, *out, 2 or 3), given in [-1, 1]."""
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


def _declare_sampler(name):
    def sampler(input, grid, interpolation_mode, padding_mode, align_corners):
        """grid_sample with modes as numbers."""
        return _sampled(input, grid, _GRID_MODES[interpolation_mode], _GRID_PADDINGS[padding_mode], align_corners)
    op(method=False, name=name)(sampler)


for _n in ("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"):
    _declare_sampler(_n)


def _base_grid(size, align, dtype):
    """Homogeneous coordinates of the output places, (1, prod(size), dims + 1)."""
    dims = len(size)
    axes = []
    for n in size:
        if n <= 1:
            axes.append(np.zeros(n, dtype))
        else:
            line = np.linspace(-1, 1, n).astype(dtype)
            axes.append(line if align else line * dtype.type((n - 1) / n))
    mesh = np.meshgrid(*axes, indexing="ij")
    r = np.ones(tuple(size) + (dims + 1,), dtype)
    for i in range(dims):
        r[..., i] = mesh[dims - 1 - i]
    return r.reshape(1, -1, dims + 1)


@op(ns="nn.functional", method=False)
def affine_grid(theta, size, align_corners=None):
    """Sampling grid of affine maps theta (N, 2, 3) or (N, 3, 4) for outputs of `size` (N, C, *spatial)."""
    tensor_arg("affine_grid", "theta", theta)
    if align_corners is None:
        warnings.warn("Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
                      "align_corners=True if the old behavior is desired. See the documentation of grid_sample for "
                      "details.",
                      stacklevel=2)
        align_corners = False
    a = theta._a
    if a.dtype.kind not in "fV":
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    size = tuple(int(s) for s in size)
    if len(size) not in (4, 5):
        raise NotImplementedError("affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
                                  "respectively. Got "
                                  f"size {size}.")
    n = len(size) - 2
    if a.ndim != 3 or a.shape[-2:] != (n, n + 1):
        raise ValueError(f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {size}. Got "
                         f"{theta.shape}.")
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return _affine(theta, size, align_corners)


def _affine(theta, size, align_corners):
    a = theta._a
    n = len(size) - 2
    dtype = F32 if a.dtype.itemsize == 2 else a.dtype
    base = np.broadcast_to(_base_grid(size[2:], align_corners, dtype), (size[0], math.prod(size[2:]), n + 1))
    return bmm_(wrap(base.astype(a.dtype)), theta, ta=False, tb=True).reshape((size[0],) + size[2:] + (n,))


@op(method=False)
def affine_grid_generator(theta, size, align_corners):
    """affine_grid with align_corners required."""
    return _affine(theta, tuple(int(s) for s in size), align_corners)


# ------------------------------------------------------------------ shuffles
def _shuffle(x, *, factor):
    """(*, C r^2, H, W) -> (*, C, H r, W r)."""
    r = factor
    *lead, c, h, w = x.shape
    y = x.reshape(*lead, c // (r * r), r, r, h, w)
    k = len(lead)
    return np.ascontiguousarray(y.transpose(*range(k + 1), k + 3, k + 1, k + 4, k + 2)).reshape(*lead, c // (r * r), h * r, w * r)


def _unshuffle(x, *, factor):
    r = factor
    *lead, c, h, w = x.shape
    y = x.reshape(*lead, c, h // r, r, w // r, r)
    k = len(lead)
    return np.ascontiguousarray(y.transpose(*range(k + 1), k + 2, k + 4, k + 1, k + 3)).reshape(*lead, c * r * r, h // r, w // r)


shuffle_ = primitive("pixel_shuffle", _shuffle, lambda c, g: unshuffle_(g, factor=c.factor), raw=True)
unshuffle_ = primitive("pixel_unshuffle", _unshuffle, lambda c, g: shuffle_(g, factor=c.factor), raw=True)


@op(method=False, aliases="nn.functional.pixel_shuffle")
def pixel_shuffle(input, upscale_factor):
    """(*, C r^2, H, W) -> (*, C, H r, W r)."""
    tensor_arg("pixel_shuffle", "input", input)
    a, r = input._a, upscale_factor
    if a.ndim < 3:
        raise RuntimeError(f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {a.ndim} "
                           "dimension(s)")
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    if a.shape[-3] % (r * r):
        raise RuntimeError("pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                           "upscale_factor, "
                           f"but input.size(-3)={a.shape[-3]} is not divisible by {r * r}")
    return shuffle_(input, factor=r)


@op(method=False, aliases="nn.functional.pixel_unshuffle")
def pixel_unshuffle(input, downscale_factor):
    """(*, C, H r, W r) -> (*, C r^2, H, W)."""
    tensor_arg("pixel_unshuffle", "input", input)
    a, r = input._a, downscale_factor
    if a.ndim < 3:
        raise RuntimeError(f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {a.ndim} "
                           "dimension(s)")
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    for what, i in (("height", -2), ("width", -1)):
        if a.shape[i] % r:
            raise RuntimeError(f"pixel_unshuffle expects {what} to be divisible by downscale_factor, but "
                               f"input.size({i})="
                               f"{a.shape[i]} is not divisible by {r}")
    return unshuffle_(input, factor=r)


def _channels(x, *, groups):
    n, c = x.shape[:2]
    y = x.reshape((n, groups, c // groups) + x.shape[2:])
    return np.ascontiguousarray(y.swapaxes(1, 2)).reshape(x.shape)


channels_ = primitive("native_channel_shuffle", _channels,
                      lambda c, g: channels_(g, groups=g._sizes[1] // c.groups if c.groups else 1), raw=True)


@op(method=False, aliases="nn.functional.channel_shuffle native_channel_shuffle nn.functional.native_channel_shuffle")
def channel_shuffle(input, groups):
    """Interleaves the channels of `groups` groups of (N, C, *)."""
    tensor_arg("channel_shuffle", "input", input)
    a = input._a
    if a.ndim <= 2:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(a.shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if a.shape[1] % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {a.shape[1]} channels and {groups} "
                           "groups.")
    return channels_(input, groups=groups) if a.size else input.clone()
