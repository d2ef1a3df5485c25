"""NumPy interface of reduce.c: reductions over adjacent axes of C-contiguous arrays. Without a
compiler every function returns None, as it does for arrays without a kernel, and the caller uses
NumPy. C reads the arrays' headers directly (passing an address and a shape as arguments would take
1 us).
"""
import ctypes
import functools

import numpy as np

from mindtorch.backend.cpu._numpy_private import header
from mindtorch.backend.c_kernels import build, thread_pool

_P, _L, _I, _D = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_double
_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
_ARGUMENTS = {"mt_reduce": [_P, _P, _I, _I, _I, _D], "mt_moments": [_P, _P, _I, _I, _I, _D]}
_SINGLE = {"mt_attend": [_I] + [_P] * 6 + [_D],
           "mt_soft": [_P, _P, _P, _I, _I], "mt_cross": [_P] * 5, "mt_cross_back": [_P] * 5,
           "mt_norm": [_P] * 6 + [_D], "mt_norm_back": [_P] * 8, "mt_channels": [_P] * 6, "mt_scaled": [_P] * 6 + [_D],
           "mt_groups": [_P] * 7 + [_I, _D], "mt_groups_back": [_P] * 8 + [_I]}
#: kinds of reductions (as in reduce.c)
SUM, SQUARES, SIZES, PRODUCT, LARGEST, LEAST, NORM = range(7)


@functools.cache
def _lib():
    found, threads = build.reduce(), thread_pool.lib()
    if found is None or threads is None:
        return None
    declared = {**{f"{n}_{t}": a for n, a in _ARGUMENTS.items() for t in _TYPES.values()}, **_SINGLE}
    build.declare(found, declared, declared, direct=True)
    found.mt_use(threads.mt_share)
    return found


@functools.cache
def _functions(name):
    lib = _lib()
    return {} if lib is None else {d: getattr(lib, f"{name}_{t}") for d, t in _TYPES.items()}


_reduce: dict[object, object] | None = None


def reduce(a, axes, keepdim, what, over=1.0):
    """Reduces a over `axes` (a sorted tuple; None: all) by `what` and divides by `over`; None if
    unavailable."""
    global _reduce
    if _reduce is None:
        _reduce = _functions("mt_reduce")
    f = _reduce.get(a.dtype)
    if f is None or not thread_pool.ready_for(a.size):
        return None
    ndim = a.ndim
    shape: tuple[int, ...]
    if axes is None:
        low, high, shape = 0, ndim, (1,) * ndim if keepdim else ()
    else:
        if not axes:
            return None
        low, high = axes[0], axes[-1] + 1
        if high - low != len(axes):
            return _by_runs(a, axes, keepdim, what, over)
        shape = a.shape
        shape = (*shape[:low], *[1] * (high - low), *shape[high:]) if keepdim else shape[:low] + shape[high:]
    r = np.empty(shape, a.dtype)
    if f(header(a), header(r), low, high, what, over):
        return _by_memory(a, axes, keepdim, what, over)
    return r


_moments: dict[object, object] | None = None


#: kinds of moments (as in reduce.c)
VARIANCE, DEVIATION, MEAN = range(3)


def moments(a, axes, keepdim, what, over):
    """Returns, over `axes` (a sorted tuple; None: all), the sums of squared deviations from the
    mean divided by `over`, the square roots of that, or the means. None if unavailable."""
    global _moments
    if _moments is None:
        _moments = _functions("mt_moments")
    f = _moments.get(a.dtype)
    if f is None or not thread_pool.ready_for(a.size):
        return None
    ndim = a.ndim
    low, high = (0, ndim) if axes is None else (axes[0], axes[-1] + 1) if axes else (0, 0)
    shape = a.shape
    if axes is not None and high - low != len(axes) or not a.flags.c_contiguous or not a.flags.aligned:
        # Order the dimensions as in memory if the reduced ones are adjacent there; else copy with
        # the reduced ones last.
        axes = tuple(range(ndim)) if axes is None else axes
        order = sorted(range(ndim), key=lambda d: -a.strides[d])
        b, places = a.transpose(order), sorted([order.index(d) for d in axes])
        if not b.flags.c_contiguous or not b.flags.aligned or places and places[-1] - places[0] >= len(places):
            order = [d for d in range(ndim) if d not in axes] + list(axes)
            b, places = a.transpose(order), range(ndim - len(axes), ndim)
            b = np.require(b, requirements="CA")
        r = np.empty([1 if d in axes else shape[d] for d in order], a.dtype)
        low, high = (places[0], places[-1] + 1) if places else (0, 0)
        if f(header(b), header(r), low, high, what, over):
            return None
        r = r.transpose([order.index(d) for d in range(ndim)])
        return r if keepdim else r.reshape([n for d, n in enumerate(shape) if d not in axes])
    r = np.empty((*shape[:low], *[1] * (high - low), *shape[high:]) if keepdim else shape[:low] + shape[high:], a.dtype)
    return None if f(header(a), header(r), low, high, what, over) else r


def _by_runs(a, axes, keepdim, what, over):
    """Reduces one run of adjacent axes after another, starting from the right."""
    low = len(axes) - 1
    while low and axes[low - 1] == axes[low] - 1:
        low -= 1
    # (squares and absolute values are applied in the first pass only)
    first, then = (SQUARES if what == NORM else what, NORM if what == NORM else SUM if what in (SQUARES, SIZES) else what)
    if then == NORM:
        return None
    r = reduce(a, axes[low:], True, first)
    r = None if r is None else reduce(r, axes[:low], True, then, over)
    return r if r is None or keepdim else r.reshape([n for d, n in enumerate(a.shape) if d not in axes])


def _by_memory(a, axes, keepdim, what, over):
    """Reduces an array that is dense in another order of its axes; None for other arrays."""
    ndim = a.ndim
    order = sorted(range(ndim), key=lambda d: -a.strides[d])
    b = a.transpose(order)
    if not b.flags.c_contiguous or not b.flags.aligned or order == list(range(ndim)):
        return None
    if axes is None:
        return reduce(b, None, keepdim, what, over)
    r = reduce(b, tuple(sorted([order.index(d) for d in axes])), True, what, over)
    if r is None:
        return None
    r = r.transpose([order.index(d) for d in range(ndim)])
    return r if keepdim else r.reshape([n for d, n in enumerate(a.shape) if d not in axes])


# ------------------------------------------------------------------ softmax
_F32, _I64 = np.dtype(np.float32), np.dtype(np.int64)
#: number of elements from which on threads share an array (common.h); row length up to which fewer
#: than four rows are processed one by one
_MANY, _NARROW = 1 << 16, 512
SOFT, LOG_SOFT, SOFT_BACK, LOG_SOFT_BACK, LOG_SUM = range(5)


def _ready(*arrays):
    """Returns the library if these are float32 arrays; the first must have the most elements."""
    for a in arrays:
        if a is not None and a.dtype is not _F32:
            return None
    return _lib() if thread_pool.ready_for(arrays[0].size) else None


def soft(what, x, axis, y=None):
    """Computes softmax or log-softmax along an axis, or its gradient (x: gradient of the result y);
    LOG_SUM: the log of the sum of exponentials along the last axis. float32, not empty; None if
    unavailable."""
    if y is None:
        y = x
    elif x.shape != y.shape:
        return None
    if not x.ndim or (lib := _ready(x, y)) is None:
        return None
    r = np.empty(x.shape[:-1] if what == LOG_SUM else x.shape, _F32)
    return None if lib.mt_soft(header(x), header(y), header(r), axis if axis >= 0 else axis + x.ndim, what) else r


def cross(x, at):
    """For a matrix x with row maxima m, returns (e = exp(x - m), row sums s of e, log(s) - (x[row,
    at[row]] - m)); None if unavailable."""
    if at.dtype != _I64 or (lib := _ready(x)) is None:
        return None
    e, s, v = np.empty(x.shape, _F32), np.empty(len(x), _F32), np.empty(len(x), _F32)
    return None if lib.mt_cross(header(x), header(at), header(e), header(s), header(v)) else (e, s, v)


def cross_back(e, at, factor, less):
    """Computes e * factor[:, None] and subtracts less[row] at [row, at[row]]; None if unavailable.
    """
    if at.dtype != _I64 or (lib := _ready(e, factor, less)) is None:
        return None
    r = np.empty(e.shape, _F32)
    return None if lib.mt_cross_back(header(e), header(at), header(factor), header(less), header(r)) else r


# ------------------------------------------------------------------ attention
_WIDE = {_F32: 0, np.dtype(np.float64): 1}


def attend(q, k, v, bias, causal, scale):
    """Returns (softmax(q @ k.T * scale + bias) @ v, the softmax) for float32 or float64; the bias
    has the same dtype or is bool. None if unavailable."""
    d, yes = q.dtype, bias is not None and bias.dtype.kind == "b"
    wide = _WIDE.get(d)
    if wide is None or k.dtype != d or v.dtype != d or bias is not None and not yes and bias.dtype != d:
        return None
    if thread_pool.ready() is None or (lib := _lib()) is None:
        return None
    *lead, queries, _ = q.shape
    *keys, count, _ = k.shape
    # (values with more heads than the scores are rejected)
    if keys != lead or bias is not None and bias.ndim > q.ndim:
        lead = np.broadcast_shapes(tuple(lead), tuple(keys), () if bias is None else bias.shape[:-2])
    y, p = np.empty((*lead, queries, v.shape[-1]), d), np.empty((*lead, queries, count), d)
    return None if lib.mt_attend(wide | causal << 1 | yes << 2, header(q), header(k), header(v), _at(bias), header(y), header(p), scale) else (y, p)


# ------------------------------------------------------------------ norms
def _at(a):
    return None if a is None else header(a)


def norm(x, n, w, b, eps, centred=True):
    """Normalizes rows of n elements of a non-empty float32 array. Returns (normalized rows * w + b,
    means, 1 / standard deviations); None if unavailable.

    centred=False, for RMS norm: the means are None, and the last result is 1 / root mean square.
    """
    if (lib := _ready(x, w, b)) is None:
        return None
    rows = x.size // n
    y, mean, rstd = np.empty(x.shape, _F32), np.empty(rows, _F32) if centred else None, np.empty(rows, _F32)
    return None if lib.mt_norm(header(x), _at(w), _at(b), header(y), _at(mean), header(rstd), eps) else (y, mean, rstd)


def norm_back(g, x, w, mean, rstd, n, needs):
    """Returns the gradients of x, w and b of `norm`, as far as `needs` requests them; None if
    unavailable."""
    if (lib := _ready(g, x, w, mean, rstd)) is None or g.shape != x.shape:
        return None
    gx, gw, gb = np.empty(x.shape, _F32) if needs[0] else None, np.empty(n, _F32) if needs[1] else None, np.empty(n, _F32) if needs[2] else None
    return None if lib.mt_norm_back(header(g), header(x), _at(w), _at(mean), header(rstd), _at(gx), _at(gw), _at(gb)) else (gx, gw, gb)


#: Number of groups from which on threads share whole groups: with fewer groups, large arrays are
#: processed by rows in another way.
_GROUPS = 8


def groups(x, w, b, count, eps, batch=False):
    """Normalizes each of `count` groups of x (samples, channels, ...), float32, then multiplies by
    w and adds b per channel. Returns (y, means, variances or None if not batch, 1 / standard
    deviations); None if unavailable.

    batch: a group is one channel of all samples.
    """
    if count < _GROUPS and x.size >= _MANY or x.size < 4 * x.shape[0] * x.shape[1] and x.size > _NARROW or (lib := _ready(x, w, b)) is None:
        return None
    y, mean, var, rstd = np.empty(x.shape, _F32), np.empty(count, _F32), np.empty(count, _F32) if batch else None, np.empty(count, _F32)
    return None if lib.mt_groups(header(x), _at(w), _at(b), header(y), header(mean), _at(var), header(rstd), batch, eps) else (y, mean, var, rstd)


def groups_back(g, x, w, mean, rstd, gradient, batch=False):
    """Returns (gradient of x if requested, of w, of b); None if unavailable."""
    if len(mean) < _GROUPS and x.size >= _MANY or x.size < 4 * x.shape[0] * x.shape[1] and x.size > _NARROW or g.shape != x.shape \
            or (lib := _ready(g, x, w, mean, rstd)) is None:
        return None
    gx, gw, gb = np.empty(x.shape, _F32) if gradient else None, np.empty(x.shape[1], _F32), np.empty(x.shape[1], _F32)
    return None if lib.mt_groups_back(header(g), header(x), _at(w), header(mean), header(rstd), _at(gx), header(gw), header(gb), batch) else (gx, gw, gb)


def channels(x, factor, shift=None, y=None, by=None):
    """Computes x * factor + y * by + shift for float32 x and y (samples, channels, ...); the three
    vectors have one value per channel. None if unavailable."""
    if (lib := _ready(x, factor, shift, y, by)) is None:
        return None
    r = np.empty(x.shape, _F32)
    return None if lib.mt_channels(header(x), header(factor), _at(shift), _at(y), _at(by), header(r)) else r


def scaled(x, w, b, mean, var, eps):
    """Computes (x - mean) / sqrt(var + eps) * w + b for the same layout; w and b may be None. None
    if unavailable."""
    if (lib := _ready(x, w, b, mean, var)) is None:
        return None
    r = np.empty(x.shape, _F32)
    return None if lib.mt_scaled(header(x), _at(w), _at(b), header(mean), header(var), header(r), eps) else r
