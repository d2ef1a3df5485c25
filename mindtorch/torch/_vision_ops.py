"""Operators of the "torchvision" namespace in Python: torchvision's own kernels are C++ and cannot
be loaded.

The kernels run on the host (`backend/cpu/vision.py`): NMS, mean and max over region bins, and
deformable im2col. Tensors of other devices are computed there too.
"""
import math

from mindtorch import torch
from mindtorch.core.autograd.grad_mode import mode as grad_mode
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.torch import _meta, _ops


def _op(schema, keys="CompositeImplicitAutograd"):
    """Registers an operator. Meta tensors are handled as for a built-in op."""
    def deco(fn):
        def kernel(*args):
            return _meta.call(fn, fn, args, {}) if _meta.takes(fn, args, {}) else fn(*args)
        _ops.define("torchvision", schema).kernels[keys] = kernel
        return fn
    return deco


@_op("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", "CompositeExplicitAutograd")
def nms(dets, scores, iou_threshold):
    """Returns the indices of the remaining boxes, best score first. A box is dropped if its IoU
    with a better one exceeds the threshold."""
    if dets.dim() != 2:
        raise RuntimeError(f"boxes should be a 2d tensor, got {dets.dim()}D")
    if dets.size(1) != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {dets.size(1)}")
    if scores.dim() != 1:
        raise RuntimeError(f"scores should be a 1d tensor, got {scores.dim()}D")
    if dets.size(0) != scores.size(0):
        raise RuntimeError("boxes and scores should have same number of elements in dimension 0, got "
                           f"{dets.size(0)} and {scores.size(0)}")
    if dets.dtype != scores.dtype:
        raise RuntimeError(f"dets should have the same type as scores, got {dets.dtype} and {scores.dtype}")
    _floating("nms", dets)
    return _nms(dets, scores, threshold=iou_threshold)


_nms = primitive("nms", "dets, scores, *, threshold", raw=True)


def _floating(name, t):
    if not t.is_floating_point():
        raise NotImplementedError(f"torchvision::{name} is not implemented for {t.dtype} on {t.device.type}")


def _same_type(first, **others):
    """Raises RuntimeError unless all have the dtype of `first`, as which the kernels read them."""
    for name, t in others.items():
        if t.dtype != first.dtype:
            raise RuntimeError(f"{name} has the dtype {t.dtype}, expected {first.dtype}")


def _check_rois(input, rois):
    if input.dim() != 4:
        raise RuntimeError(f"input must have shape [N, C, H, W], got {tuple(input.shape)}")
    _floating("roi_align and its like", input)
    if rois.dim() != 2 or rois.size(1) != 5:
        raise RuntimeError("rois must have shape as Tensor[K, 5]")
    if input.dtype != rois.dtype:
        raise RuntimeError(f"Expected tensor for argument #1 'input' to have the same type as tensor for argument #2 'rois'; "
                           f"but type {input.dtype} does not equal {rois.dtype}")


def _bins_rule(ctx, grad):
    return _bins_backward(grad, ctx.rois, kind=ctx.kind, scale=ctx.scale, size=ctx.size, samples=ctx.samples, shape=ctx.shapes[0])


def _gathered(ctx, grad):
    return _bins(grad, ctx.rois, kind=ctx.kind, scale=ctx.scale, size=ctx.size, samples=ctx.samples)


#: Mean over the bins of regions (`backend/cpu/vision.py`) and its gradient for the image. Both are
#: linear; each is the other's gradient.
_bins = primitive("region_bins", "image, rois, *, kind, scale, size, samples", _bins_rule, None)
_bins_backward = primitive("region_bins_backward", "grad, rois, *, kind, scale, size, samples, shape", _gathered, None)


def _scattered(grad, rois, options, shape):
    """Returns the gradient of the images, of shape `shape`. Raises RuntimeError if the shape of
    `grad` does not match the channels, regions and bins."""
    _check_rois(grad, rois)
    bins = math.prod(options["size"])
    channels = shape[1] // bins if options["kind"].startswith("ps") and bins else shape[1]
    if tuple(grad.shape) != (rois.size(0), channels, *options["size"]):
        raise RuntimeError(f"grad has the shape {tuple(grad.shape)}, expected {(rois.size(0), channels, *options['size'])}")
    return _bins_backward(grad, rois, **options, shape=shape)


def _options(kind, spatial_scale, pooled_height, pooled_width, sampling_ratio=0):
    if min(pooled_height, pooled_width) < 0:
        raise RuntimeError(f"pooled sizes have to be non-negative, got {pooled_height} and {pooled_width}")
    return {"kind": kind, "scale": float(spatial_scale), "size": (int(pooled_height), int(pooled_width)), "samples": int(sampling_ratio)}


def _aligned(aligned):
    return "align" if aligned else "legacy_align"


@_op("roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, "
     "bool aligned) -> Tensor")
def roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    """Mean of bilinear samples in each bin of each region. Returns [K, C, pooled_height,
    pooled_width]."""
    _check_rois(input, rois)
    return _bins(input, rois, **_options(_aligned(aligned), spatial_scale, pooled_height, pooled_width, sampling_ratio))


@_op("_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, SymInt batch_size, "
     "SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor")
def _roi_align_backward(grad, rois, spatial_scale, pooled_height, pooled_width, batch_size, channels, height, width, sampling_ratio, aligned):
    options = _options(_aligned(aligned), spatial_scale, pooled_height, pooled_width, sampling_ratio)
    return _scattered(grad, rois, options, (batch_size, channels, height, width))


def _own_channels(input, pooled_height, pooled_width):
    """Returns the number of channels per bin."""
    bins = pooled_height * pooled_width
    if bins < 1 or input.shape[1] % bins:
        raise RuntimeError("input channels must be a multiple of pooling height * pooling width")
    return input.shape[1] // bins


@_op("ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio) "
     "-> (Tensor, Tensor)")
def ps_roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio):
    """Position-sensitive roi_align: each bin reads its own group of channels. Returns (output,
    channel mapping)."""
    _check_rois(input, rois)
    c = _own_channels(input, pooled_height, pooled_width)
    r = _bins(input, rois, **_options("ps_align", spatial_scale, pooled_height, pooled_width, sampling_ratio))
    return r, _mapping(input, (rois.shape[0], c, pooled_height, pooled_width))


@_op("_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
     "int sampling_ratio, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor")
def _ps_roi_align_backward(grad, rois, channel_mapping, spatial_scale, pooled_height, pooled_width, sampling_ratio, batch_size, channels, height,
                           width):
    return _scattered(grad, rois, _options("ps_align", spatial_scale, pooled_height, pooled_width, sampling_ratio), (batch_size, channels, height, width))


def _mapping(input, shape):
    """Returns the index of the channel that each bin reads."""
    return torch.arange(math.prod(shape[1:]), dtype=torch.int32, device=input.device).reshape(shape[1:]).expand(shape).clone()


@_op("roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)")
def roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """Maximum in each bin of each region and its index, both [K, C, pooled_height, pooled_width] (0
    and -1 for an empty bin)."""
    _check_rois(input, rois)
    index, mask, where = _roi_maxima(input, rois, scale=spatial_scale, height=pooled_height, width=pooled_width)
    if not input.numel():
        # no bin contains a pixel; adding the empty sum attaches the autograd history
        return mask.reshape(where.shape) + input.sum(), where
    return input.reshape(-1).index_select(0, index).reshape(where.shape) * mask, where


#: Returns (index of each maximum in the flattened input, 0 for an empty bin; mask with 0 for an
#: empty bin, else 1; index in its plane, -1 for an empty bin).
_roi_maxima = primitive("roi_maxima", "input, rois, *, scale, height, width", raw=True)


@_op("_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, SymInt pooled_height, SymInt pooled_width, SymInt batch_size, "
     "SymInt channels, SymInt height, SymInt width) -> Tensor")
def _roi_pool_backward(grad, rois, argmax, spatial_scale, pooled_height, pooled_width, batch_size, channels, height, width):
    _check_rois(grad, rois)
    if tuple(grad.shape) != tuple(argmax.shape) or tuple(grad.shape) != (rois.size(0), channels, pooled_height, pooled_width):
        raise RuntimeError(f"grad and argmax have the shapes {tuple(grad.shape)} and {tuple(argmax.shape)}, expected "
                           f"{(rois.size(0), channels, pooled_height, pooled_width)}")
    plane = height * width
    if not plane:
        return grad.new_zeros(batch_size, channels, height, width)
    image = rois[:, 0].long().reshape(-1, 1, 1, 1) * channels + torch.arange(channels, device=grad.device).reshape(1, -1, 1, 1)
    index = (image * plane + argmax.clamp(0).long()).reshape(-1)
    flat = grad.new_zeros(batch_size * channels * plane)
    return flat.index_add(0, index, (grad * (argmax >= 0)).reshape(-1)).reshape(batch_size, channels, height, width)


@_op("ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)")
def ps_roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """Position-sensitive roi_pool: mean over each bin, each reading its own group of channels.
    Returns (output, channel mapping)."""
    _check_rois(input, rois)
    c = _own_channels(input, pooled_height, pooled_width)
    r = _bins(input, rois, **_options("ps_pool", spatial_scale, pooled_height, pooled_width))
    return r, _mapping(input, (rois.shape[0], c, pooled_height, pooled_width))


@_op("_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
     "SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor")
def _ps_roi_pool_backward(grad, rois, channel_mapping, spatial_scale, pooled_height, pooled_width, batch_size, channels, height, width):
    return _scattered(grad, rois, _options("ps_pool", spatial_scale, pooled_height, pooled_width), (batch_size, channels, height, width))


# ------------------------------------------------------------------ deformable convolution
def _columns_rule(ctx, grad):
    if grad_mode.on:
        # For a differentiable gradient (create_graph) use differentiable ops. They run on aliases,
        # because the operands may depend on each other.
        given = [None if t is None else t.view_as(t) for t in (ctx.image, ctx.offset, ctx.mask)]
        found = iter(torch.autograd.grad(_compose_columns(*given, ctx.groups, ctx.geometry), [t for t in given if t is not None and t.requires_grad], grad,
                                         create_graph=True))
        return tuple([next(found) if t is not None and t.requires_grad else None for t in given])
    return _columns_backward(grad, ctx.image, ctx.offset, ctx.mask, groups=ctx.groups, geometry=ctx.geometry)


#: Deformable im2col: the values read by the displaced taps, [N, oh, ow, taps, C]. `geometry`:
#: kernel, out, stride, padding, dilation, two ints each.
_columns = primitive("deformed_columns", "image, offset, mask=None, *, groups, geometry", _columns_rule)
_columns_backward = primitive("deformed_columns_backward", "grad, image, offset, mask=None, *, groups, geometry")


def _compose_columns(x, offset, mask, groups, geometry):
    """Like `_columns`, composed of differentiable ops."""
    kh, kw, oh, ow, sh, sw, ph, pw, dh, dw = geometry
    n, c, h, w = x.shape
    like = {"dtype": x.dtype, "device": x.device}
    moved = offset.reshape(n, groups, kh * kw, 2, oh, ow)
    tap = torch.arange(kh * kw, device=x.device).reshape(-1, 1, 1)
    y = moved[:, :, :, 0] + ((tap // kw) * dh - ph).to(x.dtype) + torch.arange(oh, **like).reshape(-1, 1) * sh
    x_ = moved[:, :, :, 1] + ((tap % kw) * dw - pw).to(x.dtype) + torch.arange(ow, **like) * sw
    with torch.no_grad():
        near = (y > -2) & (y < h + 1) & (x_ > -2) & (x_ < w + 1)
        y0, x0 = (torch.where(near, t.floor(), -2).long() for t in (y, x_))
    planes, total = x.reshape(n, groups, c // groups, h * w), 0
    v, u = y - y0, x_ - x0
    for down in (0, 1):
        for right in (0, 1):
            yy, xx = y0 + down, x0 + right
            inside = (yy >= 0) & (yy < h) & (xx >= 0) & (xx < w)
            index = torch.where(inside, yy * w + xx, 0).reshape(n, groups, 1, -1).expand(-1, -1, c // groups, -1)
            weight = torch.where(inside, (v if down else 1 - v) * (u if right else 1 - u), 0)
            total = total + planes.gather(3, index) * weight.reshape(n, groups, 1, -1)
    if mask is not None:
        total = total * mask.reshape(n, groups, 1, -1)
    return total.reshape(n, c, kh * kw, oh, ow).permute(0, 3, 4, 2, 1)


def _check_deformed(input, weight, offset, mask, bias, out, offset_groups, groups, use_mask):
    n, c, kh, kw = (*input.shape[:2], *weight.shape[2:])
    _floating("deform_conv2d", input)
    _same_type(input, weight=weight, offset=offset, bias=bias, **({"mask": mask} if use_mask else {}))
    taps = offset_groups * kh * kw
    if weight.shape[1] * groups != c:
        raise RuntimeError(f"the input's {c} channels are not {groups} groups of the weight's {weight.shape[1]}")
    if offset.shape[1] != 2 * taps:
        raise RuntimeError(f"offset.shape[1] is not valid: got: {offset.shape[1]} expected: {2 * taps}")
    if use_mask and mask.shape[1] != taps:
        raise RuntimeError(f"mask.shape[1] is not valid: got: {mask.shape[1]} expected: {taps}")
    if c % offset_groups:
        raise RuntimeError(f"the input's {c} channels are not {offset_groups} groups of offsets")
    for name, t in (("offset", offset), ("mask", mask))[:1 + use_mask]:
        if t.shape[0] != n:
            raise RuntimeError(f"invalid batch size of {name}: got {t.shape[0]}, expected {n}")
        if tuple(t.shape[2:]) != out:
            raise RuntimeError(f"{name} output dims: ({t.shape[2]}, {t.shape[3]}) - computed output dims: ({out[0]}, {out[1]})")


@_op("deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
     "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor")
def deform_conv2d(input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups,
                  offset_groups, use_mask):
    """Convolution whose taps are displaced by `offset` [N, 2 * offset_groups * kh * kw, oh, ow] and
    weighted by `mask`."""
    for name, t in (("input", input), ("weight", weight), ("offset", offset)) + ((("mask", mask),) if use_mask else ()):
        if t.dim() != 4:
            raise RuntimeError(f"{name} must have 4 dimensions, got {tuple(t.shape)}")
    if min(stride_h, stride_w, dilation_h, dilation_w, groups, offset_groups) < 1 or min(pad_h, pad_w) < 0:
        raise RuntimeError("stride, dilation, groups and offset_groups have to be positive, padding not negative")
    n, c, h, w = input.shape
    out_c, _, kh, kw = weight.shape
    oh = (h + 2 * pad_h - dilation_h * (kh - 1) - 1) // stride_h + 1
    ow = (w + 2 * pad_w - dilation_w * (kw - 1) - 1) // stride_w + 1
    _check_deformed(input, weight, offset, mask, bias, (oh, ow), offset_groups, groups, use_mask)
    geometry = (kh, kw, oh, ow, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w)
    cols = _columns(input, offset, mask if use_mask else None, groups=offset_groups, geometry=geometry)
    if groups == 1:
        r = torch.matmul(cols.reshape(n * oh * ow, kh * kw * c), weight.permute(2, 3, 1, 0).reshape(-1, out_c))
    else:
        each = c // groups
        cols = cols.reshape(n * oh * ow, kh * kw, groups, each).permute(2, 0, 1, 3).reshape(groups, n * oh * ow, kh * kw * each)
        kernel = weight.reshape(groups, out_c // groups, each, kh, kw).permute(0, 3, 4, 2, 1).reshape(groups, kh * kw * each, out_c // groups)
        r = torch.matmul(cols, kernel).permute(1, 0, 2)
    return (r.reshape(n, oh, ow, out_c) + bias).permute(0, 3, 1, 2).contiguous()


def _refused(name):
    def kernel(*args, **kwargs):
        raise NotImplementedError(f"torchvision::{name} is not supported on device cpu")
    return kernel


_op("_cuda_version() -> int")(lambda: -1)

# Unsupported operators: quantized tensors are not supported, and the gradients of deform_conv2d
# come from autograd.
_REGION = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_CONV = ("SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
         "SymInt offset_groups, bool use_mask")
for _schema in (
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        f"qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, {_REGION}, int sampling_ratio, bool aligned) "
        "-> Tensor",
        "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
        f"_deform_conv2d_backward(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, {_CONV}) "
        "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"):
    _op(_schema)(_refused(_schema.partition("(")[0]))
