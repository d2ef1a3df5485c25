"""The operators of the namespace "torchvision" in Python; their library's own kernels are C++ and cannot be loaded.

Box suppression is a kernel; the pooling operators are sums over indexed values, so that they have gradients.  Where the regions lie is read
on the host, for the number of samples depends on it.
"""
import math

from mindtorch import torch
from mindtorch.core.tape import primitive
from mindtorch.core.values import values
from mindtorch.torch import _ops


def _op(schema, keys="CompositeImplicitAutograd"):
    def deco(fn):
        _ops.define("torchvision", schema).kernels[keys] = fn
        return fn
    return deco


@_op("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", "CPU")
def nms(dets, scores, iou_threshold):
    """Indices of the boxes that are kept, best score first; a box goes if a better one covers it by more than the threshold."""
    if dets.dim() != 2:
        raise RuntimeError(f"boxes should be a 2d tensor, got {dets.dim()}D")
    if dets.size(1) != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {dets.size(1)}")
    if scores.dim() != 1:
        raise RuntimeError(f"scores should be a 1d tensor, got {scores.dim()}D")
    if dets.size(0) != scores.size(0):
        raise RuntimeError("boxes and scores should have same number of elements in dimension 0, got "
                           f"{dets.size(0)} and {scores.size(0)}")
    return _nms(dets, scores, threshold=iou_threshold)


_nms = primitive("nms", "dets, scores, *, threshold", raw=True)


def _regions(rois):
    """The regions as numbers: (batch, x1, y1, x2, y2) of each."""
    return values(rois.detach().double()).tolist()


def _check_rois(input, rois):
    if rois.dim() != 2 or rois.size(1) != 5:
        raise RuntimeError("rois must have shape as Tensor[K, 5]")
    if input.dtype != rois.dtype:
        raise RuntimeError(f"Expected tensor for argument #1 'input' to have the same type as tensor for argument #2 'rois'; "
                           f"but type {input.dtype} does not equal {rois.dtype}")


#: flat indices in the plane of the four neighbours of each sample, then their weights
_roi_taps = primitive("roi_taps", "image, *, start, bin, bins, samples")


def _bilinear(image, start, bin, bins, samples):
    """Values of image[C, H, W] at `samples` places of each bin, [C, bins, samples, bins, samples]; 0 beyond a margin of one pixel."""
    taps = _roi_taps(image, start=start, bin=bin, bins=bins, samples=samples)
    flat = image.reshape(*image.shape[:-2], -1)
    total = None
    for index, weight in zip(taps[:4], taps[4:]):
        part = flat.index_select(-1, index).reshape(*image.shape[:-2], *weight.shape) * weight
        total = part if total is None else total + part
    return total


@_op("roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, "
     "bool aligned) -> Tensor")
def roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    """Mean of bilinear samples in each bin of each region: [K, C, pooled_height, pooled_width]."""
    _check_rois(input, rois)
    half = input.dtype.itemsize == 2
    source = input.float() if half else input
    out, offset = [], 0.5 if aligned else 0.0
    for b, x1, y1, x2, y2 in _regions(rois):
        x1, y1, x2, y2 = (v * spatial_scale - offset for v in (x1, y1, x2, y2))
        width, height = x2 - x1, y2 - y1
        if not aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        bh, bw = height / pooled_height, width / pooled_width
        ny = sampling_ratio if sampling_ratio > 0 else math.ceil(bh)
        nx = sampling_ratio if sampling_ratio > 0 else math.ceil(bw)
        if ny <= 0 or nx <= 0:
            out.append(source.new_zeros(input.shape[1], pooled_height, pooled_width))
            continue
        out.append(_bilinear(source[int(b)], (y1, x1), (bh, bw), (pooled_height, pooled_width), (ny, nx)).mean((2, 4)))
    if not out:
        return input.new_zeros(0, input.shape[1], pooled_height, pooled_width) + input.sum() * 0
    r = torch.stack(out)
    return r.to(input.dtype) if half else r


@_op("ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio) "
     "-> (Tensor, Tensor)")
def ps_roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio):
    """Position-sensitive roi_align: each bin reads its own group of channels."""
    _check_rois(input, rois)
    bins = pooled_height * pooled_width
    if input.shape[1] % bins:
        raise RuntimeError("input channels must be a multiple of pooling height * pooling width")
    c = input.shape[1] // bins
    # The regions are shifted by half a pixel, and have at least no size at all, as with aligned=True.
    full = roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, True)
    k = full.shape[0]
    picked = full.reshape(k, c, pooled_height, pooled_width, pooled_height, pooled_width)
    picked = picked.diagonal(0, 2, 4).diagonal(0, 2, 3)
    return picked, _mapping(input, (k, c, pooled_height, pooled_width))


def _mapping(input, shape):
    """Which channel each bin reads."""
    return torch.arange(math.prod(shape[1:]), dtype=torch.int32, device=input.device).reshape(shape[1:]).expand(shape).clone()


def _round(v):
    """Rounds half away from zero, as C's round does."""
    return int(math.floor(abs(v) + 0.5) * math.copysign(1, v))


@_op("roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)")
def roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """Largest value in each bin of each region, and where it is: [K, C, pooled_height, pooled_width] (0 and -1 if empty)."""
    _check_rois(input, rois)
    index, mask, where = _roi_maxima(input, rois, scale=spatial_scale, height=pooled_height, width=pooled_width)
    return input.reshape(-1).index_select(0, index).reshape(where.shape) * mask, where


#: places of the maxima in the whole flat input (0 where a bin is empty), 1 or 0 where it is empty, places in their planes or -1
_roi_maxima = primitive("roi_maxima", "input, rois, *, scale, height, width", raw=True)


@_op("ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)")
def ps_roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """Mean over each bin of each region, each bin in its own group of channels."""
    _check_rois(input, rois)
    n, channels, h, w = input.shape
    bins = pooled_height * pooled_width
    if channels % bins:
        raise RuntimeError("input channels must be a multiple of pooling height * pooling width")
    c = channels // bins
    out = []
    for b, x1, y1, x2, y2 in _regions(rois):
        x1, y1, x2, y2 = (_round(v * spatial_scale) for v in (x1, y1, x2, y2))
        bh, bw = max(y2 - y1, 1) / pooled_height, max(x2 - x1, 1) / pooled_width
        for i in range(pooled_height):
            top, bottom = (min(max(math.floor(i * bh + y1), 0), h), min(max(math.ceil((i + 1) * bh + y1), 0), h))
            for j in range(pooled_width):
                left, right = (min(max(math.floor(j * bw + x1), 0), w), min(max(math.ceil((j + 1) * bw + x1), 0), w))
                if bottom <= top or right <= left:
                    out.append(input.new_zeros(c))
                else:
                    out.append(input[int(b), i * pooled_width + j::bins, top:bottom, left:right].mean((1, 2)))
    k = rois.shape[0]
    shape = k, c, pooled_height, pooled_width
    r = torch.stack(out).reshape(k, pooled_height, pooled_width, c).permute(0, 3, 1, 2) if out else input.new_zeros(shape)
    return r, _mapping(input, shape)


@_op("deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
     "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor")
def deform_conv2d(input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups,
                  offset_groups, use_mask):
    """Convolution whose taps are moved by `offset` [N, 2 * offset_groups * kh * kw, oh, ow] and weighted by `mask`."""
    n, c, h, w = input.shape
    out_c, _, kh, kw = weight.shape
    oh, ow = offset.shape[-2:]
    taps = kh * kw
    moved = offset.reshape(n, offset_groups, taps, 2, oh, ow)
    y, x = _tap_positions(input, kernel=(kh, kw), out=(oh, ow), stride=(stride_h, stride_w), pad=(pad_h, pad_w), dilation=(dilation_h, dilation_w))
    y, x = moved[:, :, :, 0] + y, moved[:, :, :, 1] + x
    # The positions carry gradients here: grid_sample has the bilinear rule for both, with zeros outside the image.
    grid = torch.stack((2 * x / max(w - 1, 1) - 1, 2 * y / max(h - 1, 1) - 1) if w > 1 and h > 1 else
                       ((2 * x + 1) / w - 1, (2 * y + 1) / h - 1), -1)
    grid = grid.reshape(n * offset_groups, taps * oh, ow, 2)
    image = input.reshape(n * offset_groups, c // offset_groups, h, w)
    cols = torch.nn.functional.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=w > 1 and h > 1)
    cols = cols.reshape(n, offset_groups, c // offset_groups, taps, oh, ow)
    if use_mask:
        cols = cols * mask.reshape(n, offset_groups, 1, taps, oh, ow)
    cols = cols.reshape(n, groups, c // groups * taps, oh * ow)
    kernel = weight.reshape(groups, out_c // groups, c // groups * taps)
    return torch.matmul(kernel, cols).reshape(n, out_c, oh, ow) + bias.reshape(1, out_c, 1, 1)


#: where the taps of a convolution lie before they are moved, (y, x) of shape [kh * kw, *out] in the dtype of x
_tap_positions = primitive("convolution_tap_positions", "x, *, kernel, out, stride, pad, dilation", raw=True)


def _refused(name):
    def kernel(*args, **kwargs):
        raise NotImplementedError(f"torchvision::{name} is not supported on device cpu")
    return kernel


_op("_cuda_version() -> int")(lambda: -1)

# Quantized tensors are not supported, and the gradients of the operators above come from the tape.
_SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_REGION = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_CONV = ("SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
         "SymInt offset_groups, bool use_mask")
for _schema in (
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        f"qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, {_REGION}, int sampling_ratio, bool aligned) "
        "-> Tensor",
        "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
        f"_roi_align_backward(Tensor grad, Tensor rois, {_REGION}, {_SIZES}, int sampling_ratio, bool aligned) -> Tensor",
        f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_REGION}, {_SIZES}) -> Tensor",
        f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_REGION}, int sampling_ratio, {_SIZES}) -> Tensor",
        f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_REGION}, {_SIZES}) -> Tensor",
        f"_deform_conv2d_backward(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, {_CONV}) "
        "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"):
    _op(_schema)(_refused(_schema.partition("(")[0]))
