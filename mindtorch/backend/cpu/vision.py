"""Boxes and regions of pictures: which boxes are kept, where samples and maxima of regions lie; pictures as arrays."""
import math

import numpy as np

from mindtorch.backend.cpu import kernel


@kernel("nms")
def _nms(boxes, s, *, threshold):
    """Indices of the boxes that are kept, best score first; a box goes if a better one covers it by more than the threshold."""
    if boxes.dtype.itemsize == 2:
        boxes, s = boxes.astype(np.float32), s.astype(np.float32)
    order = np.argsort(-s, kind="stable")
    x1, y1, x2, y2 = np.ascontiguousarray(boxes[order].T)
    area = (x2 - x1) * (y2 - y1)
    alive = np.ones(len(order), bool)
    keep = []
    with np.errstate(all="ignore"):
        for i in range(len(order)):
            if not alive[i]:
                continue
            keep.append(order[i])
            rest = slice(i + 1, None)
            w = np.maximum(0, np.minimum(x2[i], x2[rest]) - np.maximum(x1[i], x1[rest]))
            h = np.maximum(0, np.minimum(y2[i], y2[rest]) - np.maximum(y1[i], y1[rest]))
            inter = w * h
            alive[rest] &= ~(inter / (area[i] + area[rest] - inter) > threshold)
    return np.array(keep, np.int64)


def _grid(start, bin_size, bins, samples):
    """Sampling positions of one axis: [bins, samples]."""
    steps = (np.arange(samples) + 0.5) * (bin_size / samples)
    return start + np.arange(bins)[:, None] * bin_size + steps[None, :]


@kernel("roi_taps")
def _roi_taps(image, *, start, bin, bins, samples):
    """Flat indices of the four neighbours of each sample in the image's plane, and their weights; 0 beyond a margin of one pixel."""
    h, w = image.shape[-2:]
    shape = bins[0], samples[0], bins[1], samples[1]
    y, x = (_grid(*of_axis) for of_axis in zip(start, bin, bins, samples))
    y, x = np.broadcast_to(y[:, :, None, None], shape), np.broadcast_to(x[None, None], shape)
    inside = (y >= -1) & (y <= h) & (x >= -1) & (x <= w)
    y, x = y.clip(0, None), x.clip(0, None)
    y0, x0 = np.minimum(y.astype(np.int64), h - 1), np.minimum(x.astype(np.int64), w - 1)
    y1, x1 = np.minimum(y0 + 1, h - 1), np.minimum(x0 + 1, w - 1)
    y, x = np.where(y0 >= h - 1, y0, y), np.where(x0 >= w - 1, x0, x)
    ly, lx = y - y0, x - x0
    index = [(yi * w + xi).reshape(-1) for yi, xi in ((y0, x0), (y0, x1), (y1, x0), (y1, x1))]
    weights = [np.where(inside, v, 0).astype(image.dtype) for v in ((1 - ly) * (1 - lx), (1 - ly) * lx, ly * (1 - lx), ly * lx)]
    return (*index, *weights)


def _round(v):
    """Rounds half away from zero, as C's round does."""
    return int(math.floor(abs(v) + 0.5) * math.copysign(1, v))


@kernel("roi_maxima")
def _roi_maxima(a, rois, *, scale, height, width):
    """Largest value in each bin of each region: its place in the whole flat input, 1 (0 if the bin is empty), its place in the plane (-1)."""
    n, c, h, w = a.shape
    where = np.full((rois.shape[0], c, height, width), -1, np.int64)
    batch = rois[:, 0].astype(np.int64)
    for r, (_, x1, y1, x2, y2) in enumerate(rois.astype(np.float64)):
        x1, y1, x2, y2 = (_round(v * scale) for v in (x1, y1, x2, y2))
        bh, bw = max(y2 - y1 + 1, 1) / height, max(x2 - x1 + 1, 1) / width
        for i in range(height):
            top, bottom = (min(max(math.floor(i * bh) + y1, 0), h), min(max(math.ceil((i + 1) * bh) + y1, 0), h))
            for j in range(width):
                left, right = (min(max(math.floor(j * bw) + x1, 0), w), min(max(math.ceil((j + 1) * bw) + x1, 0), w))
                if bottom <= top or right <= left:
                    continue
                at = a[batch[r], :, top:bottom, left:right].reshape(c, -1).argmax(1)
                where[r, :, i, j] = (top + at // (right - left)) * w + left + at % (right - left)
    base = (batch[:, None] * c + np.arange(c)[None, :])[:, :, None, None] * (h * w)
    return np.where(where < 0, 0, where + base).reshape(-1), (where >= 0).astype(a.dtype), where.astype(np.int32)


@kernel("convolution_tap_positions")
def _tap_positions(x, *, kernel, out, stride, pad, dilation):
    """(y, x) of each tap at each place of the output, [kh * kw, *out], in the dtype of the input."""
    ky, kx = np.divmod(np.arange(kernel[0] * kernel[1]), kernel[1])
    rows = np.arange(out[0])[:, None] * stride[0] - pad[0] + np.zeros((1, out[1]))
    columns = np.arange(out[1])[None, :] * stride[1] - pad[1] + np.zeros((out[0], 1))
    return (rows[None] + (ky * dilation[0])[:, None, None]).astype(x.dtype), (columns[None] + (kx * dilation[1])[:, None, None]).astype(x.dtype)


# ------------------------------------------------------------------ pictures (Pillow's)
def pixels(picture):
    """A picture as an array [C, H, W]."""
    a = np.array(picture)
    return np.ascontiguousarray(a[None] if a.ndim == 2 else a.transpose(2, 0, 1))


def wide_gray(picture):
    """A gray picture of 16 bits as an array [1, H, W]."""
    return np.array(picture).astype(np.uint16)[None]


def frames(pictures):
    """Several pictures as an array [N, C, H, W]."""
    return np.stack([pixels(p) for p in pictures])


def shown(a):
    """An array [C, H, W] as Pillow takes it."""
    return a[0] if a.shape[0] == 1 else np.ascontiguousarray(a.transpose(1, 2, 0))


def read_bytes(filename):
    """The bytes of a file."""
    return np.fromfile(filename, np.uint8)


def as_bytes(data):
    """A bytes object as an array of its own."""
    return np.frombuffer(data, np.uint8).copy()
