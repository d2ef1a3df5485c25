"""Resampling of images: interpolation, padding, grid sampling."""
from mindtorch.tools.standin.kernels._engine import F, torch
from mindtorch.tools.standin.kernels._results import chosen, upcast
from mindtorch.tools.standin.kernels._table import gradients, kernel


def _resized(x, size, scales, mode, align=None):
    """Resizes to `size`. If scales are given (> 0) they are used, and must produce that size, if
    necessary before their rounding to float32."""
    if align or not any(s > 0 for s in scales):
        return F.interpolate(x, list(size), mode=mode, align_corners=align)
    for by in list(scales), [float(f"{s:.7g}") for s in scales]:
        if [int(n * s) for n, s in zip(x.shape[2:], by)] == list(size):
            return F.interpolate(x, scale_factor=by, mode=mode, align_corners=align)
    raise ValueError(f"scales {scales} do not lead from {list(x.shape[2:])} to {list(size)}")


def _resized_backward(g, shape, *how):
    return gradients(lambda x: _resized(x, *how), upcast(g), torch.zeros(list(shape), dtype=upcast(g).dtype))[0]


def _scales(rank):
    return ", ".join(f"scale{d}:double" for d in range(rank))


# (nearest resizing of one and two dimensions does not receive the scales, but its backward does)
kernel("UpsampleNearest1d UpsampleNearest2d", "input, size:ints, out!")(lambda x, size, out: _resized(upcast(x), size, (), "nearest"))
kernel("UpsampleNearest2dV2", "input, size:ints, scale0:float, scale1:float, out!")(lambda x, size, a, b, out: _resized(upcast(x), size, (a, b), "nearest"))
kernel("UpsampleNearest3d", f"input, size:ints, {_scales(3)}, out!")(lambda x, size, a, b, c, out: _resized(upcast(x), size, (a, b, c), "nearest"))
for _rank in 1, 2, 3:
    kernel(f"UpsampleNearest{_rank}dBackward", f"grad, size:ints, shape:ints, {_scales(_rank)}, grad_input!")(
        lambda g, size, shape, *rest: _resized_backward(g, shape, size, rest[:-1], "nearest"))
for _name, _rank, _mode in (("Linear1d", 1, "linear"), ("Bilinear2d", 2, "bilinear"), ("Bicubic2d", 2, "bicubic"), ("Trilinear3d", 3, "trilinear")):
    kernel(f"Upsample{_name}", f"input, size:ints, align:bool, {_scales(_rank)}, out!")(
        lambda x, size, align, *rest, mode=_mode: _resized(upcast(x), size, rest[:-1], mode, align))
    kernel(f"Upsample{_name}Backward" + "V2" * (_name == "Bilinear2d"), f"grad, size:ints, shape:ints, align:bool, {_scales(_rank)}, grad_input!")(
        lambda g, size, shape, align, *rest, mode=_mode: _resized_backward(g, shape, size, rest[:-1], mode, align))


def _padded(x, padding, mode):
    """Pads by reflection or replication; an image without a batch dimension temporarily gets one.
    """
    rank = len(padding) // 2
    return F.pad(x.unsqueeze(0), padding, mode).squeeze(0) if x.dim() == rank + 1 else F.pad(x, padding, mode)


for _name, _mode in (("Reflection", "reflect"), ("Replication", "replicate")):
    for _rank in 1, 2, 3:
        kernel(f"{_name}Pad{_rank}d", "input, padding:ints, out!")(lambda x, padding, *out, mode=_mode: _padded(upcast(x), list(padding), mode))
        kernel(f"{_name}Pad{_rank}dBackward", "grad, input, padding:ints, grad_input!")(
            lambda g, x, padding, *out, mode=_mode: gradients(lambda x: _padded(x, list(padding), mode), upcast(g), upcast(x))[0])

_SAMPLES, _OUTSIDE = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _sampled(x, grid, mode, outside, align):
    return F.grid_sample(x, grid, _SAMPLES[mode], _OUTSIDE[outside], align)


kernel("GridSampler2D GridSampler3D", "input, grid, mode:int, outside:int, align:bool, out!")(
    lambda x, grid, mode, outside, align, out: _sampled(upcast(x), upcast(grid), mode, outside, align))


@kernel("GridSampler2DBackward GridSampler3DBackward", "grad, input, grid, mode:int, outside:int, align:bool, mask:bools, grad_input!, grad_grid!")
def _sampled_backward(g, x, grid, mode, outside, align, mask, *_):
    return chosen(mask, *gradients(lambda x, grid: _sampled(x, grid, mode, outside, align), upcast(g), upcast(x), upcast(grid)))
