"""Boxes and regions of images: non-maximum suppression, means and maxima of bins of regions,
deformable convolutions; images as arrays.

Runs in C if a compiler is available (`mindtorch/backend/c_kernels/roi.py`), else in NumPy, region
by region.
"""
import math

import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.half import upcast
from mindtorch.backend.cpu.host import quiet


def _in_c(dtype):
    """Returns the C kernels for arrays of this dtype, or None."""
    from mindtorch.backend.c_kernels import roi  # few programs need it
    return roi if roi.ready(dtype) else None


@kernel("nms")
def _nms(boxes, s, *, threshold):
    """Returns the indices of the boxes that are kept, best score first.

    A box is removed if its overlap (IoU) with a better one exceeds the threshold.
    """
    if boxes.dtype.itemsize == 2:
        boxes, s = upcast(boxes), upcast(s)
    order = np.lexsort((-s, ~np.isnan(s)))  # stable; NaN is the best score, as in PyTorch's sort
    sides = np.ascontiguousarray(boxes[order].T)
    c_kernels = _in_c(sides.dtype)
    if c_kernels is not None:
        return order[~c_kernels.suppress(sides, threshold)]
    x1, y1, x2, y2 = sides
    area = (x2 - x1) * (y2 - y1)
    alive = np.ones(len(order), bool)
    with np.errstate(all="ignore"):
        for i in range(len(order)):
            if not alive[i]:
                continue
            rest = slice(i + 1, None)
            w = np.maximum(0, np.minimum(x2[i], x2[rest]) - np.maximum(x1[i], x1[rest]))
            h = np.maximum(0, np.minimum(y2[i], y2[rest]) - np.maximum(y1[i], y1[rest]))
            inter = w * h
            # torchvision's threshold is a double, whatever the dtype of the boxes.
            alive[rest] &= ~((inter / (area[i] + area[rest] - inter)).astype(np.float64) > threshold)
    return order[alive]


# ------------------------------------------------------------------ bins of regions
def _rounded(v):
    """Rounds half away from zero, like C's round."""
    return np.copysign(np.floor(np.abs(v) + v.dtype.type(0.5)), v)


def _images(rois, n):
    """Returns the image index of each region."""
    named = rois[:, 0]
    wrong = ~((named > -1) & (named < n))  # NaN is rejected too; fractions are truncated
    if wrong.any():
        raise RuntimeError(f"roi batch index {named[wrong][0]} is out of range for an input of {n} images")
    return named.astype(np.int32)


#: maximum samples of a bin: a float32 value that fits in int32
_MOST = 2 ** 31 - 128


@quiet
def _axes(rois, kind, scale, size, samples):
    """Returns the (vertical, horizontal) axes of the regions, computed in their dtype as in
    torchvision."""
    t = rois.dtype
    box = rois[:, 1:] * t.type(scale)
    if kind == "ps_pool":
        box = _rounded(box)
    elif kind != "legacy_align":
        box = box - t.type(0.5)
    extent = box[:, 2:] - box[:, :2]
    if kind in ("ps_pool", "legacy_align"):
        extent = np.maximum(extent, t.type(1))
    both = []
    for column, bins in ((1, size[0]), (0, size[1])):
        # same layout as in roi_typed.h
        axis = np.zeros(len(rois), [("start", t), ("bin", t), ("samples", np.int32), ("unused", np.int32)])
        axis["start"], axis["bin"] = box[:, column], extent[:, column] / t.type(bins)
        if kind == "ps_pool":
            axis["samples"] = -1
        else:
            axis["samples"] = min(samples, _MOST) if samples > 0 else np.clip(np.nan_to_num(np.ceil(axis["bin"]), nan=0, posinf=0), 0, _MOST)
        both.append(axis)
    return both


def _weights(axis, bins, size):
    """Returns the weights [K, bins, size] of each bin on the pixels of an axis (roi_typed.h:
    weigh)."""
    t = axis["start"].dtype
    r = np.zeros((len(axis), bins, size), t)
    start, each, samples = (axis[n][:, None] for n in ("start", "bin", "samples"))
    i = np.arange(bins, dtype=t)[None]
    if len(axis) and axis["samples"][0] < 0:
        low, high = (np.clip(f(v), 0, size) for f, v in ((np.floor, i * each + start), (np.ceil, (i + 1) * each + start)))
        pixel = np.arange(size)
        inside = (pixel >= low[..., None]) & (pixel < high[..., None])
        return np.where(inside, 1 / np.maximum(high - low, 1)[..., None], 0).astype(t)
    region, bin = np.ogrid[:len(axis), :bins]
    for s in range(int(axis["samples"].max(initial=0))):
        n = np.maximum(samples, 1).astype(t)
        position = start + i * each + t.type(s + 0.5) * each / n
        here = (position >= -1) & (position <= size) & (s < samples)
        position = np.where(here, np.maximum(position, 0), 0)
        p = position.astype(np.int64)
        last = p >= size - 1
        p = np.where(last, size - 1, p)
        second = np.where(last, 0, position - p)
        r[region, bin, p] += np.where(here, (1 - second) / n, 0).astype(t)
        r[region, bin, np.minimum(p + 1, size - 1)] += np.where(here, second / n, 0).astype(t)
    return r


def _span(w):
    """Returns the slice of the pixels on which weights [bins, size] are not all zero."""
    used = np.flatnonzero(w.any(0))
    return slice(used[0], used[-1] + 1) if len(used) else slice(0, 0)


def _crops(rois, index, shape, kind, scale, size, samples):
    """Yields for each region: its number, its index in the images (all channels), its weights of
    rows and of columns there."""
    vertical, horizontal = _axes(rois, kind, scale, size, samples)
    wy, wx = _weights(vertical, size[0], shape[2]), _weights(horizontal, size[1], shape[3])
    for k in range(len(index)):
        y, x = _span(wy[k]), _span(wx[k])
        yield k, (index[k], slice(None), y, x), wy[k][:, y], wx[k][:, x]


def _per_bin(crop, size):
    """Reshapes a crop [C, h, w] to [channels, rows, columns, h, w], for bins that have their own
    channels."""
    return crop.reshape(crop.shape[0] // (size[0] * size[1]), *size, *crop.shape[1:])


@kernel("region_bins")
def _bins(a, rois, *, kind, scale, size, samples):
    """Returns [K, channels, *size]: each bin of each region of a[N, C, H, W].

      kind   "align", "legacy_align" (not shifted by half a pixel, no region smaller than one):
             means of bilinear samples
             "ps_align", "ps_pool": bin b reads channels b, b + bins, ...; "ps_pool" is the mean
             of the pixels
    """
    index = _images(rois, a.shape[0])
    position_sensitive = kind.startswith("ps")
    channels = a.shape[1] // (size[0] * size[1]) if position_sensitive else a.shape[1]
    if not (len(index) and a.size):
        return np.zeros((len(index), channels, *size), a.dtype)
    c_kernels = _in_c(a.dtype)
    if c_kernels is not None:
        if position_sensitive:
            a = np.ascontiguousarray(_per_bin(a.transpose(1, 0, 2, 3), size).transpose(3, 4, 5, 1, 2, 0)).reshape(
                a.shape[0], *a.shape[2:], a.shape[1]).transpose(0, 3, 1, 2)
        return c_kernels.bins(a, index, *_axes(rois, kind, scale, size, samples), size, channels if position_sensitive else 0)
    r = np.empty((len(index), channels, *size), a.dtype)
    for k, image, wy, wx in _crops(rois, index, a.shape, kind, scale, size, samples):
        if position_sensitive:
            r[k] = np.einsum("iy,jx,cijyx->cij", wy, wx, _per_bin(a[image], size), optimize=True)
        else:
            r[k] = np.matmul(wy, a[image] @ wx.T)
    return r


@kernel("region_bins_backward")
def _bins_backward(g, rois, *, kind, scale, size, samples, shape):
    """Returns the gradient of region_bins' input, which has the shape `shape`."""
    index = _images(rois, shape[0])
    position_sensitive = kind.startswith("ps")
    if not (g.size and math.prod(shape)):
        return np.zeros(shape, g.dtype)
    c_kernels = _in_c(g.dtype)
    if c_kernels is not None:
        r = c_kernels.bins_backward(g, index, *_axes(rois, kind, scale, size, samples), shape, g.shape[1] if position_sensitive else 0)
        if position_sensitive:
            n, c, h, w = shape
            r = np.ascontiguousarray(r.reshape(n, *size, g.shape[1], h, w).transpose(0, 3, 1, 2, 4, 5)).reshape(shape)
        return r
    r = np.zeros(shape, g.dtype)
    for k, image, wy, wx in _crops(rois, index, shape, kind, scale, size, samples):
        if position_sensitive:
            r[image] += np.einsum("iy,jx,cij->cijyx", wy, wx, g[k]).reshape(r[image].shape)
        else:
            r[image] += np.matmul(wy.T, g[k] @ wx)
    return r


@kernel("roi_maxima")
@quiet
def _roi_maxima(a, rois, *, scale, height, width):
    """Finds the largest value in each bin of each region.

    Returns (its index in the flat input; 1, or 0 if the bin is empty; its index in the plane, -1 if
    the bin is empty).
    """
    if a.dtype.itemsize == 2:
        return (*(r := _roi_maxima(upcast(a), upcast(rois), scale=scale, height=height, width=width))[:1], r[1].astype(a.dtype), r[2])
    n, c, h, w = a.shape
    batch = _images(rois, n)
    box = _rounded(rois[:, 1:] * rois.dtype.type(scale))
    extent = np.maximum(box[:, 2:] - box[:, :2] + 1, 1)
    ends = []
    for column, bins, size in ((1, height, h), (0, width, w)):
        i, each, start = np.arange(bins, dtype=rois.dtype), (extent[:, column] / rois.dtype.type(bins))[:, None], box[:, column, None]
        ends.append(np.stack([np.clip(np.nan_to_num(f(v * each) + start), 0, size) for f, v in ((np.floor, i), (np.ceil, i + 1))], -1).astype(np.int32))
    c_kernels = _in_c(a.dtype)
    if c_kernels is not None:
        where = c_kernels.maxima(a, batch, *ends)
    else:
        where = np.full((len(batch), c, height, width), -1, np.int32)
        for r in range(len(batch)):
            for i, (top, bottom) in enumerate(ends[0][r]):
                for j, (left, right) in enumerate(ends[1][r]):
                    if bottom > top and right > left:
                        at = a[batch[r], :, top:bottom, left:right].reshape(c, (bottom - top) * (right - left)).argmax(1)
                        where[r, :, i, j] = (top + at // (right - left)) * w + left + at % (right - left)
    base = (batch[:, None].astype(np.int64) * c + np.arange(c)[None, :])[:, :, None, None] * (h * w)
    return np.where(where < 0, 0, where + base).reshape(-1), (where >= 0).astype(a.dtype), where


# ------------------------------------------------------------------ deformable convolutions
def _corners(x, offset, groups, geometry):
    """Yields the four pixels around each tap.

    Each is (flat index in its plane, inside mask, the two factors of its weight, signs of their
    derivatives). Arrays are [N, groups, taps, oh, ow].
    """
    kh, kw, oh, ow, sh, sw, ph, pw, dh, dw = geometry
    h, w = x.shape[2:]
    taps = np.arange(kh * kw)[:, None, None]
    moved = offset.reshape(x.shape[0], groups, kh * kw, 2, oh, ow)
    y = moved[:, :, :, 0] + (taps // kw * dh - ph + np.arange(oh)[:, None] * sh).astype(x.dtype)
    x_ = moved[:, :, :, 1] + (taps % kw * dw - pw + np.arange(ow) * sw).astype(x.dtype)
    near = (y > -2) & (y < h + 1) & (x_ > -2) & (x_ < w + 1)
    y, x_ = np.where(near, y, -2), np.where(near, x_, -2)
    y0, x0 = np.floor(y).astype(np.int64), np.floor(x_).astype(np.int64)
    v, u = y - y0, x_ - x0
    for down in (0, 1):
        for right in (0, 1):
            yy, xx = y0 + down, x0 + right
            inside = (yy >= 0) & (yy < h) & (xx >= 0) & (xx < w)
            yield np.where(inside, yy * w + xx, 0), inside, (v if down else 1 - v, u if right else 1 - u), (2 * down - 1, 2 * right - 1)


def _laid(x, offset, mask, groups, geometry):
    n, c = x.shape[:2]
    shape = n, groups, geometry[0] * geometry[1], *geometry[2:4]
    return np.ascontiguousarray(offset), None if mask is None else np.ascontiguousarray(mask), shape, x.reshape(n, groups, c // groups, x.shape[2] * x.shape[3])


@kernel("deformed_columns")
def _columns(x, offset, mask, *, groups, geometry):
    """Returns [N, oh, ow, taps, C]: the values that the taps of a deformable convolution read,
    times the mask (or None).

    They are zero outside the image. geometry: kernel, out, stride, padding, dilation, two values
    each.
    """
    offset, mask, shape, planes = _laid(x, offset, mask, groups, geometry)
    c_kernels = _in_c(x.dtype)
    if c_kernels is not None:
        return c_kernels.moved(x, offset, mask, groups, geometry)
    total = np.zeros((*planes.shape[:3], np.prod(shape[2:], dtype=int)), x.dtype)
    for pixel, inside, (v, u), _ in _corners(x, offset, groups, geometry):
        weight = np.where(inside, v * u, 0) * (1 if mask is None else mask.reshape(shape))
        pixel = pixel.reshape(*shape[:2], 1, total.shape[3])
        total += np.take_along_axis(planes, pixel, 3) * weight.reshape(pixel.shape)
    total = total.reshape(x.shape[0], x.shape[1], *shape[2:])
    return np.ascontiguousarray(total.transpose(0, 3, 4, 2, 1).astype(x.dtype, copy=False))


@kernel("deformed_columns_backward")
def _columns_backward(g, x, offset, mask, *, groups, geometry):
    """Returns the gradients of x, offset and mask (None without one)."""
    offset, mask, shape, planes = _laid(x, offset, mask, groups, geometry)
    c_kernels = _in_c(x.dtype)
    if c_kernels is not None:
        return c_kernels.moved_backward(g, x, offset, mask, groups, geometry)
    n, _, each, area = planes.shape
    g = g.transpose(0, 4, 3, 1, 2).reshape(n, groups, each, math.prod(shape[2:]))
    gx, gy_, gx_, gm = np.zeros(x.size), 0, 0, 0
    base = np.arange(n * groups * each).reshape(n, groups, each, 1) * area
    m = 1 if mask is None else mask.reshape(shape)
    for pixel, inside, (v, u), (down, right) in _corners(x, offset, groups, geometry):
        pixel = pixel.reshape(n, groups, 1, g.shape[3])
        weight = (np.where(inside, v * u, 0) * m).reshape(pixel.shape)
        gx += np.bincount((base + pixel).reshape(-1), (g * weight).reshape(-1), x.size)
        dot = np.where(inside, (g * np.take_along_axis(planes, pixel, 3)).sum(2).reshape(shape), 0)
        gy_, gx_, gm = gy_ + down * u * m * dot, gx_ + right * v * m * dot, gm + v * u * dot
    go = np.stack([gy_, gx_], 3).astype(x.dtype, copy=False).reshape(offset.shape)
    return gx.astype(x.dtype).reshape(x.shape), go, None if mask is None else gm.astype(x.dtype, copy=False).reshape(mask.shape)


# ------------------------------------------------------------------ Pillow images
def pixels(picture):
    """Returns an image as an array [C, H, W]."""
    a = np.array(picture)
    return np.ascontiguousarray(a[None] if a.ndim == 2 else a.transpose(2, 0, 1))


def gray16(picture):
    """Returns a 16-bit grayscale image as an array [1, H, W]."""
    return np.array(picture).astype(np.uint16)[None]


def frames(pictures):
    """Returns several images as an array [N, C, H, W]."""
    return np.stack([pixels(p) for p in pictures])


def pillow_layout(a):
    """Returns an array [C, H, W] in the layout that Pillow accepts."""
    return a[0] if a.shape[0] == 1 else np.ascontiguousarray(a.transpose(1, 2, 0))


def read_bytes(filename):
    """Returns the bytes of a file."""
    return np.fromfile(filename, np.uint8)


def as_bytes(data):
    """Returns a bytes object as a new array."""
    return np.frombuffer(data, np.uint8).copy()
