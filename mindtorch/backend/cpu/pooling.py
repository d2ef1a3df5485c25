"""CPU pooling kernels over the trailing spatial dims of an array.

Windows are reduced one dim after the other: k passes over strided slices for each dim instead of
k^2 over all. 64x6x28x28 with 2x2 max pooling takes 93 us (MindSpore 325 us), with the indices for
the gradient 360 us (MindSpore 1748 us), the gradient 200 us (2120 us). PyTorch on one core takes
1200 us and as much again.
"""
import math

import numpy as np

from mindtorch.backend.cpu import kernel, large
from mindtorch.backend.cpu.activation import where_or_zero
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.sum import sums


def _lowest(dtype):
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _framed(x, out, kernel, stride, padding, dilation, fill):
    """Returns x as (lead, *spatial), with `fill` wherever the windows reach outside."""
    dims = len(out)
    x = np.ascontiguousarray(x)
    x = x.reshape((math.prod(x.shape[:-dims]),) + x.shape[-dims:])
    shape = [(o - 1) * s + d * (k - 1) + 1 for o, k, s, d in zip(out, kernel, stride, dilation)]
    if not any(padding) and all(m <= n for m, n in zip(shape, x.shape[1:])):
        return x
    shape = [max(m, p + n) for m, p, n in zip(shape, padding, x.shape[1:])]
    r = np.full([x.shape[0]] + shape, fill, x.dtype)
    r[(slice(None),) + tuple(slice(p, p + n) for p, n in zip(padding, x.shape[1:]))] = x
    return r


def _part(x, axis, start, step, count):
    """Returns every `step`-th of `count` entries along `axis` (negative) from `start` on."""
    return x[(Ellipsis, slice(start, start + step * (count - 1) + 1, step)) + (slice(None),) * (-1 - axis)]


def _in_planes(x, dims, plane, out):
    """Returns x as (lead, *spatial) if it is large enough to be processed in pieces (`large.py`),
    else None.

    plane: elements of a plane on its larger side (input or output).
    """
    lead = math.prod(x.shape[:-dims])
    if lead < 2 or lead * plane < large.LEAST or not math.prod(out) or not x.size:
        return None
    return np.ascontiguousarray(x).reshape((lead,) + x.shape[-dims:])


def _by_planes(fn, out, plane, x, *more):
    """Computes fn(x, *more), of spatial size `out`, in pieces of complete planes if they are large.

    plane: elements of a plane on its larger side (input or output). more: arrays of x's shape.
    """
    dims = len(out)
    planes = _in_planes(x, dims, plane, out)
    if planes is None:
        return fn(x, *more)
    r, more = np.empty((len(planes),) + tuple(out), x.dtype), [a.reshape(planes.shape) for a in more]

    def part(i, j):
        r[i:j] = fn(planes[i:j], *[a[i:j] for a in more])
    large.each_rows(len(planes), plane, part)
    return r.reshape(x.shape[:-dims] + tuple(out))


@kernel("max_pool1d max_pool2d max_pool3d")
def _max_pool(x, *, kernel, stride, padding, dilation, out, return_indices):
    """Returns the maximum of each window; with `return_indices` also its index within the window."""
    # C vs NumPy, 3x3 windows with stride 2: 1x4x8x8 4 us vs 27 us, 4x16x32x32 96 us vs 128 us,
    # 16x64x32x32 1320 us vs 600 us; with indices 5 us vs 83 us for the first, 1700 us vs 2200 us
    # for the last.
    if return_indices or x.size < large.LEAST:
        got = large.pooling().maxima(x, kernel, stride, padding, dilation, out, _index_dtype(kernel) if return_indices else None)
        if got is not None:
            return got if return_indices else got[0]
    return _largest(x, kernel, stride, padding, dilation, out, return_indices)


@quiet
def _largest(x, kernel, stride, padding, dilation, out, return_indices):
    dims = len(out)
    planes = _in_planes(x, dims, math.prod(x.shape[-dims:]), out)
    if planes is None:
        return _maxima(x, kernel, stride, padding, dilation, out, return_indices)
    r = np.empty((len(planes),) + tuple(out), x.dtype)
    arg = np.empty(r.shape, _index_dtype(kernel)) if return_indices else None

    def part(i, j):
        y = _maxima(planes[i:j], kernel, stride, padding, dilation, out, return_indices)
        if return_indices:
            y, arg[i:j] = y
        r[i:j] = y
    large.each_rows(len(planes), math.prod(x.shape[-dims:]), part)
    shape = x.shape[:-dims] + tuple(out)
    return (r.reshape(shape), arg.reshape(shape)) if return_indices else r.reshape(shape)


def _index_dtype(kernel):
    return np.int8 if math.prod(kernel) <= 127 else np.int32


def _maxima(x, kernel, stride, padding, dilation, out, return_indices):
    dims = len(out)
    y = _framed(x, out, kernel, stride, padding, dilation, _lowest(x.dtype))
    shape = x.shape[:-dims] + tuple(out)
    if not math.prod(shape):
        y = np.zeros(shape, x.dtype)
        return (y, np.zeros(shape, np.int8)) if return_indices else y
    if not return_indices:
        for i in range(dims):
            k, s, d, axis = kernel[i], stride[i], dilation[i], i - dims
            m = _part(y, axis, 0, s, out[i])
            if k == 1:
                m = m if s == 1 else m.copy()
            else:
                m = np.maximum(m, _part(y, axis, d, s, out[i]))
            for j in range(2, k):
                np.maximum(m, _part(y, axis, j * d, s, out[i]), out=m)
            y = m
        y = y.reshape(shape)
        return y if y.base is None or not np.shares_memory(y, x) else y.copy()
    framed = y
    y, arg = _max_indices(framed, kernel, stride, padding, dilation, out)
    if x.dtype.kind == "f" and math.isnan(y.max()):
        # Comparisons do not find NaN: the last NaN of a window wins.
        order = np.where(np.isnan(framed), np.arange(1, framed[0].size + 1).reshape(framed.shape[1:]), 0)
        arg = np.where(np.isnan(y), _max_indices(order, kernel, stride, padding, dilation, out)[1], arg)
    return y.reshape(shape), arg.reshape(shape)


def _max_indices(y, kernel, stride, padding, dilation, out):
    # From the last dim to the first, so that the first in memory of equal elements wins.
    dims = len(out)
    small = _index_dtype(kernel)
    arg = None
    below = 1  # number of window indices per step along the current dim
    for i in reversed(range(dims)):
        k, s, d, p, axis = kernel[i], stride[i], dilation[i], padding[i], i - dims
        # If a window begins in the padding, its first index is the first one inside.
        first = np.maximum(0, -(-(p - np.arange(out[i]) * s) // d)).astype(small)
        first = first.reshape((-1,) + (1,) * (dims - 1 - i))
        m = _part(y, axis, 0, s, out[i])
        winner = np.empty(m.shape, small)
        winner[...] = first
        was = None if arg is None else _part(arg, axis, 0, s, out[i]).copy()
        if was is not None and first.any():
            for j in range(1, int(first.max()) + 1):
                rows = np.flatnonzero(first.reshape(-1) == j)
                sel = (Ellipsis, rows) + (slice(None),) * (-1 - axis)
                was[sel] = arg[(Ellipsis, rows * s + j * d) + (slice(None),) * (-1 - axis)]
        for j in range(1, k):
            v = _part(y, axis, j * d, s, out[i])
            wins = np.greater(v, m)
            w = wins.view(np.int8)
            # j increases, so the latest winner has the largest index.
            np.maximum(winner, w * small(j), out=winner)
            if was is not None:
                step = _part(arg, axis, j * d, s, out[i]) - was
                step *= w
                was += step
            m = np.maximum(m, v)
        if m.base is not None:
            m = m.copy()
        winner *= small(below)
        arg = winner if was is None else winner + was
        y = m
        below *= k
    return y, arg


@kernel("max_pool_index")
def _index(arg, *, size, kernel, stride, padding, dilation):
    """Converts window-relative indices to flat int64 indices into the spatial dims of the input."""
    dims = len(size)
    out = arg.shape[-dims:]
    base = np.zeros(out, np.int64)
    delta = np.zeros(kernel, np.int64)
    unit = 1
    for i in reversed(range(dims)):
        tail = (1,) * (dims - 1 - i)
        base += ((np.arange(out[i]) * stride[i] - padding[i]) * unit).reshape((-1,) + tail)
        delta += (np.arange(kernel[i]) * dilation[i] * unit).reshape((-1,) + tail)
        unit *= size[i]
    return delta.reshape(-1).take(arg) + base


def _flat(index, dims, plane):
    """Converts indices into planes to indices into the flattened array."""
    lead = math.prod(index.shape[:-dims])
    index = index.reshape(lead, math.prod(index.shape[-dims:]))
    return index + (np.arange(lead, dtype=np.int64) * plane)[:, None]


@kernel("scatter_flat")
@quiet
def _scatter_flat(g, index, *, size):
    """Sums the elements of g at their flat indices in planes of `size`."""
    dims = len(size)
    plane = math.prod(size)
    shape = g.shape[:-dims] + tuple(size)
    flat = _flat(index, dims, plane).reshape(-1)
    # 75264 elements: np.add.at takes 72 us, np.bincount with its cast from float64 161 us.
    r = np.zeros(math.prod(shape), g.dtype)
    np.add.at(r, flat, g.reshape(-1))
    return r.reshape(shape)


@kernel("gather_flat")
def _gather_flat(x, index, *, dims):
    """Returns the elements of x at flat indices into its last `dims` dims."""
    plane = math.prod(x.shape[-dims:])
    return np.ascontiguousarray(x).reshape(-1).take(_flat(index, dims, plane)).reshape(index.shape)


@kernel("max_unpool")
def _max_unpool(x, index, *, size):
    """Returns zeros in planes of `size`, with the elements of x written at their flat indices."""
    dims = len(size)
    if index.size:
        plane = math.prod(size)
        worst = index.max() if index.max() >= plane else index.min()
        if not 0 <= worst < plane:
            raise RuntimeError(f"Found an invalid max index: {worst} (output volumes are of size " + "x".join(map(str, size)) + ")")
    shape = x.shape[:-dims] + tuple(size)
    r = np.zeros(math.prod(shape), x.dtype)
    r[_flat(index, dims, math.prod(size)).reshape(-1)] = x.reshape(-1)
    return r.reshape(shape)


@kernel("max_pool_backward")
def _max_pool_backward(g, arg, *, size, kernel, stride, padding, dilation):
    """Computes the gradient of max pooling from the saved window indices."""
    if (r := large.pooling().maxima_back(g, arg, size, kernel, stride, padding, dilation)) is not None:
        return r
    return _by_planes(lambda p, a: _max_pool_grad(p, a, size, kernel, stride, padding, dilation), size, math.prod(size), g, arg)


@quiet
def _max_pool_grad(g, arg, size, kernel, stride, padding, dilation):
    dims = len(size)
    count = math.prod(kernel)
    apart = count <= 9 and all(s >= d * (k - 1) + 1 for k, s, d in zip(kernel, stride, dilation))
    if apart and not any(padding) and g.size:
        out = g.shape[-dims:]
        shape = [max(n, (o - 1) * s + d * (k - 1) + 1) for n, o, k, s, d in zip(size, out, kernel, stride, dilation)]
        tight = shape == [o * k for o, k in zip(out, kernel)]
        r = (np.empty if tight else np.zeros)(g.shape[:-dims] + tuple(shape), g.dtype)
        for q, at in enumerate(np.ndindex(*kernel)):
            region = tuple(slice(j * d, j * d + s * (o - 1) + 1, s) for j, o, s, d in zip(at, out, stride, dilation))
            r[(Ellipsis,) + region] = where_or_zero(g, arg == q)
        if tuple(shape) != tuple(size):
            r = np.ascontiguousarray(r[(Ellipsis,) + tuple(slice(0, n) for n in size)])
        return r
    index = _index(arg, size=size, kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    return _scatter_flat(g, index, size=size)


# ------------------------------------------------------------------ average pooling
def _divisors(size, kernel, stride, padding, out, include_pad, override):
    """Returns 1 / (number of elements of each window), as a scalar or an array over the output."""
    if override is not None:
        return 1.0 / override
    for n, k, s, p, o in zip(size, kernel, stride, padding, out):
        if p or (o - 1) * s + k > n:
            break
    else:
        return 1.0 / math.prod(kernel)
    counts = []
    for n, k, s, p, o in zip(size, kernel, stride, padding, out):
        start = np.arange(o) * s - p
        end = np.minimum(start + k, n + p)
        if not include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        counts.append(end - start)
    if all((c == c[0]).all() for c in counts if c.size):
        return 1.0 / max(1, math.prod(int(c[0]) for c in counts if c.size))
    total = np.ones((), np.int64)
    for i, c in enumerate(counts):
        total = total * c.reshape((-1,) + (1,) * (len(counts) - 1 - i))
    return 1.0 / np.maximum(total, 1)


def _scaled(y, by):
    if y.dtype.kind == "f":
        y *= y.dtype.type(by) if isinstance(by, float) else by.astype(y.dtype)
        return y
    n = np.rint(1 / by).astype(np.int64) if not isinstance(by, float) else round(1 / by)
    # Integers: PyTorch divides with truncation.
    return (np.sign(y) * np.sign(n) * (np.abs(y) // np.abs(n))).astype(y.dtype)


@kernel("avg_pool1d avg_pool2d avg_pool3d")
def _avg_pool(x, *, kernel, stride, padding, out, include_pad, override):
    """Returns the mean of each window."""
    # C vs NumPy, 2x2 windows: 1x4x8x8 4 us vs 20 us, 4x16x32x32 55 us vs 57 us, 16x64x32x32 810 us
    # vs 600 us.
    if x.size < large.LEAST and (r := large.pooling().means(x, kernel, stride, padding, out, include_pad, override)) is not None:
        return r
    return _by_planes(lambda p: _averages(p, kernel, stride, padding, out, include_pad, override), out, math.prod(x.shape[-len(out):]), x)


@quiet
def _averages(x, kernel, stride, padding, out, include_pad, override):
    dims = len(out)
    size = x.shape[-dims:]
    shape = x.shape[:-dims] + tuple(out)
    if not math.prod(shape):
        return np.zeros(shape, x.dtype)
    one = (1,) * dims
    y = _framed(x, out, kernel, stride, padding, one, 0)
    for i in range(dims):
        k, s, axis = kernel[i], stride[i], i - dims
        m = _part(y, axis, 0, s, out[i])
        m = m + _part(y, axis, 1, s, out[i]) if k > 1 else m.copy()
        for j in range(2, k):
            m += _part(y, axis, j, s, out[i])
        y = m
    return _scaled(y, _divisors(size, kernel, stride, padding, out, include_pad, override)).reshape(shape)


@kernel("avg_pool1d_backward avg_pool2d_backward avg_pool3d_backward")
def _avg_pool_backward(g, *, size, kernel, stride, padding, include_pad, override):
    """Computes the gradient of average pooling: distributes each mean over its window."""
    if (r := large.pooling().means_back(g, size, kernel, stride, padding, include_pad, override)) is not None:
        return r
    return _by_planes(lambda p: _avg_pool_grad(p, size, kernel, stride, padding, include_pad, override), size, math.prod(size), g)


@quiet
def _avg_pool_grad(g, size, kernel, stride, padding, include_pad, override):
    dims = len(size)
    out = g.shape[-dims:]
    shape = g.shape[:-dims] + tuple(size)
    if not g.size:
        return np.zeros(shape, g.dtype)
    by = _divisors(size, kernel, stride, padding, out, include_pad, override)
    y = g * (g.dtype.type(by) if isinstance(by, float) else by.astype(g.dtype))
    y = y.reshape((-1,) + out)
    for i in reversed(range(dims)):
        k, s, p, axis = kernel[i], stride[i], padding[i], i - dims
        full = list(y.shape)
        full[axis] = max((out[i] - 1) * s + k, p + size[i])
        r = np.zeros(full, y.dtype)
        if s >= k:
            for j in range(k):
                _part(r, axis, j, s, out[i])[...] = y
        else:
            for j in range(k):
                v = _part(r, axis, j, s, out[i])
                v += y
        y = r[(Ellipsis, slice(p, p + size[i])) + (slice(None),) * (-1 - axis)]
    return np.ascontiguousarray(y).reshape(shape)


# ------------------------------------------------------------------ adaptive pooling
def _segments(n, o):
    """Returns the bounds of the o (possibly overlapping) segments of n that PyTorch's adaptive
    pooling uses."""
    return [(i * n // o, -(-(i + 1) * n // o)) for i in range(o)]


@kernel("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d")
def _adaptive_avg(x, *, out):
    """Returns the mean of each segment."""
    # C vs NumPy, forward and backward: 4x16x32x32 to 7x7 69 us vs 378 us and 76 us vs 685 us, to
    # 1x1 42 us vs 19 us and 17 us vs 25 us; 16x64x32x32 to 1x1 559 us vs 98 us and 217 us vs 159
    # us; 1x3x8x8 to 1x1 3 us vs 12 us and 4 us vs 11 us.
    if x.size and 0 not in out and (x.size < large.FEW or max(out) > 1) and (r := large.pooling().pieces(x, tuple(out))) is not None:
        return r[0]
    return _adaptive_means(x, out)


@quiet
def _adaptive_means(x, out):
    dims = len(out)
    size = x.shape[-dims:]
    shape = x.shape[:-dims] + tuple(out)
    if not math.prod(shape) or not x.size:
        return np.zeros(shape, x.dtype)
    if all(o == 1 for o in out) and x.dtype.kind == "f":
        m = np.ascontiguousarray(x).reshape(-1, math.prod(size))
        r = sums(m, (1,))
        r *= x.dtype.type(1 / m.shape[1])
        return r.reshape(shape)
    y = x
    for i in range(dims):
        axis = i - dims
        if out[i] == size[i]:
            continue
        full = list(y.shape)
        full[axis] = out[i]
        r = np.empty(full, y.dtype)
        for j, (a, b) in enumerate(_segments(size[i], out[i])):
            _part(r, axis, j, 1, 1)[...] = _part(y, axis, a, 1, b - a).mean(axis=axis, keepdims=True)
        y = r
    return y.copy() if y is x else y


@kernel("adaptive_avg_pool1d_backward adaptive_avg_pool2d_backward adaptive_avg_pool3d_backward")
def _adaptive_avg_backward(g, *, size):
    """Computes the gradient of adaptive average pooling."""
    if g.size and 0 not in size and (max(g.shape[-len(size):]) > 1 or g.size * math.prod(size) < large.LEAST) \
            and (r := large.pooling().pieces_back(g, tuple(size))) is not None:
        return r
    return _adaptive_means_grad(g, size)


@quiet
def _adaptive_means_grad(g, size):
    dims = len(size)
    out = g.shape[-dims:]
    shape = g.shape[:-dims] + tuple(size)
    if not g.size:
        return np.zeros(shape, g.dtype)
    if all(o == 1 for o in out):
        return np.broadcast_to(g * g.dtype.type(1 / math.prod(size)), shape).copy()
    y = g
    for i in range(dims):
        axis = i - dims
        if out[i] == size[i]:
            continue
        full = list(y.shape)
        full[axis] = size[i]
        r = np.zeros(full, y.dtype)
        for j, (a, b) in enumerate(_segments(size[i], out[i])):
            v = _part(r, axis, a, 1, b - a)
            v += _part(y, axis, j, 1, 1) * y.dtype.type(1 / (b - a))
        y = r
    return y.copy() if y is g else y


@kernel("adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d")
def _adaptive_max(x, *, target, return_indices):
    """Returns the maximum of each segment; with `return_indices` also its flat index in the
    input's spatial dims."""
    # With indices, C vs NumPy: 1x3x8x8 to 3x3 4 us vs 400 us, 4x16x32x32 to 7x7 270 us vs 1560 us,
    # 16x64x32x32 to 1x1 1280 us vs 1880 us.
    if x.size and 0 not in target and (r := large.pooling().pieces(x, tuple(target), True, return_indices)) is not None:
        return r if return_indices else r[0]
    return _adaptive_maxima(x, target, return_indices)


@quiet
def _adaptive_maxima(x, out, return_indices):
    dims = len(out)
    size = x.shape[-dims:]
    shape = x.shape[:-dims] + tuple(out)
    if not math.prod(shape):
        y = np.zeros(shape, x.dtype)
        return (y, np.zeros(shape, np.int64)) if return_indices else y
    y, index, unit = x, None, 1
    for i in reversed(range(dims)):
        axis = i - dims
        full = list(y.shape)
        full[axis] = out[i]
        r, at = np.empty(full, y.dtype), np.empty(full, np.int64)
        for j, (a, b) in enumerate(_segments(size[i], out[i])):
            window = _part(y, axis, a, 1, b - a)
            k = window.argmax(axis=axis)
            # of several NaNs the last one wins
            if x.dtype.kind == "f" and (lost := np.isnan(window)).any():
                k = np.where(lost.any(axis=axis), b - a - 1 - np.flip(lost, axis).argmax(axis=axis), k)
            k = np.expand_dims(k, axis)
            _part(r, axis, j, 1, 1)[...] = np.take_along_axis(window, k, axis)
            t = (k + a) * unit
            if index is not None:
                t += np.take_along_axis(_part(index, axis, a, 1, b - a), k, axis)
            _part(at, axis, j, 1, 1)[...] = t
        y, index = r, at
        unit *= size[i]
    return (y, index) if return_indices else y


# ------------------------------------------------------------------ fractional pooling
def _fractional_starts(samples, n, o, k):
    """Returns the first element of each of o windows of size k in n, one row per plane."""
    if o == 1:
        return np.full(samples.shape + (1,), n - k, np.int64)
    alpha = samples.dtype.type(n - k) / samples.dtype.type(o - 1)
    i = np.arange(o, dtype=samples.dtype)
    s = samples[..., None]
    starts = ((i + s) * alpha).astype(np.int64) - (s * alpha).astype(np.int64)
    starts[..., -1] = n - k
    return starts


@kernel("fractional_max_pool2d fractional_max_pool3d")
@quiet
def _fractional_max(x, samples, *, kernel, target):
    """Returns the maximum of each randomly placed window, and its flat index.

    x: (N, C, *spatial) or (C, *spatial). samples: (N, C, dims).
    """
    out = target
    dims = len(out)
    if x.ndim == dims + 1:
        samples = samples[0]
    size = x.shape[-dims:]
    lead = x.shape[:-dims]
    if 0 in out:
        return np.zeros(lead + tuple(out), x.dtype), np.zeros(lead + tuple(out), np.int64)
    index = np.zeros(lead + (1,) * (2 * dims), np.int64)
    unit = 1
    for i in reversed(range(dims)):
        # In two dims a plane's samples start with the width, in three with the depth.
        starts = _fractional_starts(samples[..., dims - 1 - i if dims == 2 else i], size[i], out[i], kernel[i])
        t = (starts[..., None] + np.arange(kernel[i])) * unit
        shape = [1] * (2 * dims)
        shape[i], shape[dims + i] = out[i], kernel[i]
        index = index + t.reshape(lead + tuple(shape))
        unit *= size[i]
    index = index.reshape(lead + tuple(out) + (math.prod(kernel),))
    plane = math.prod(size)
    flat = index.reshape(math.prod(lead), math.prod(index.shape[len(lead):])) + (np.arange(math.prod(lead)) * plane)[:, None]
    v = np.ascontiguousarray(x).reshape(-1).take(flat).reshape(index.shape)
    k = v.argmax(axis=-1)[..., None]
    return np.take_along_axis(v, k, -1)[..., 0], np.take_along_axis(index, k, -1)[..., 0]
