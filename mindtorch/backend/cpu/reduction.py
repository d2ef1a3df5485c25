"""Reduction kernels: sums, products, extrema, all/any, norms, moments, and the helpers of their
gradients."""
import functools
import math

import numpy as np

from mindtorch.backend.cpu import kernel, large
from mindtorch.backend.cpu.half import stepwise
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.pointwise import binary, masked
from mindtorch.backend.cpu.sum import (LARGEST, LEAST, NORM, PRODUCT, SIZES, SUM, c_reduce, small_squares, small_sum, sums,
                                       total, sum_all)
from mindtorch.backend.cpu.scan import products_of_others

_F32, _F64, _I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
_times, _over = stepwise(binary(np.multiply)), stepwise(binary(np.true_divide))


@kernel("expand_reduced")
def expand_reduced(g, *, shape, axes, keepdim):
    """Expands a reduced array to the shape it was reduced from."""
    if axes is not None and not keepdim:
        g = g.reshape([1 if d in axes else n for d, n in enumerate(shape)])
    elif axes is None and g.ndim:
        g = g.reshape((1,) * len(shape))
    r = np.empty(shape, g.dtype)
    r[...] = g
    return r


def count(shape, axes):
    """Returns the number of elements that are reduced into one."""
    n = 1
    for d in range(len(shape)) if axes is None else axes:
        n *= shape[d]
    return n


# ------------------------------------------------------------------ sum, mean, prod
kernel("sum_all", sum_all)


@kernel("sum_dims")
def _sum(a, *, axes, keepdim):
    if a.dtype.kind in "biu":
        if axes is None and a.dtype.kind == "b" and not keepdim:
            return np.array(np.count_nonzero(a), _I64)  # 1 million: 30 us, by addition 700 us
        return np.add.reduce(a, axis=axes, dtype=_I64, keepdims=keepdim)
    return total(a, axes, keepdim)


@kernel("without_nan")
def _without_nan(a):
    return masked(a, a == a)


def _mean(a, *, axes, keepdim):
    n = count(a.shape, axes)
    r = sums(a, axes, keepdim)
    return r / a.dtype.type(n) if n else r * a.dtype.type(np.nan)


_mean_quietly = quiet(_mean)


@kernel("mean_dims")
def _mean_dims(a, *, axes, keepdim):
    n = count(a.shape, axes)
    r = small_sum(a, axes, keepdim)
    if r is not None:
        return np.true_divide(r, _number(n, a.dtype))
    r = c_reduce(a, axes, keepdim, SUM, n)
    return _mean_quietly(a, axes=axes, keepdim=keepdim) if r is None else r


@functools.lru_cache(256)
def _number(n, dtype):
    """Returns n as a 0-d array, which costs 0.6 us less than a NumPy scalar next to an array."""
    r = np.full((), n, dtype)
    r.flags.writeable = False
    return r


@kernel("mean_all")
def _mean_all(a):
    r = small_sum(a, None)
    if r is not None:
        return r / a.dtype.type(a.size)
    r = c_reduce(a, None, False, SUM, a.size)
    return _mean_quietly(a, axes=None, keepdim=False) if r is None else r


def _prod(a, *, axis, keepdim):
    if (r := c_reduce(a, None if axis is None else (axis,), keepdim, PRODUCT)) is not None:
        return r
    kw = {"dtype": _I64} if a.dtype.kind in "biu" else {}
    return np.multiply.reduce(a, axis=axis, keepdims=keepdim, **kw)


@kernel("prod_all")
@quiet
def _prod_all(a):
    return _prod(a, axis=None, keepdim=False)


_prod_quietly = quiet(_prod)


@kernel("prod_dim")
def _prod_dim(a, *, axis, keepdim):
    # 8x8: 0.9 us, NumPy 1.9 us
    if a.ndim and a.size >= large.SOME and (r := large.reduce().reduce(a, (axis,), keepdim, PRODUCT)) is not None:
        return r
    return _prod_quietly(a, axis=axis, keepdim=keepdim)


@kernel("prod_backward")
@quiet
def _prod_backward(g, a, out, *, axis, keepdim):
    """Computes the gradient of a product.

    It uses the quotient of the product by each factor or, if one is zero, the product of the other
    factors.
    """
    axes = None if axis is None else (axis,)
    expanded = expand_reduced(g, shape=a.shape, axes=axes, keepdim=keepdim)
    if not a.ndim:
        return expanded
    x = a.astype(_F32) if a.dtype.kind == "V" else a
    if x.all():
        others = _over(expand_reduced(out, shape=a.shape, axes=axes, keepdim=keepdim), a)
    elif axis is None and np.count_nonzero(x) < a.size - 1:
        return np.zeros(a.shape, g.dtype)  # two zeros: each product of the other factors is zero
    elif axis is None:
        others = products_of_others(a.reshape(-1), 0).reshape(a.shape)
    else:
        others = products_of_others(a, axis)
    return _times(expanded, others.conj() if others.dtype.kind == "c" else others)


# ------------------------------------------------------------------ extrema
@kernel("extreme_share")
@quiet
def _extreme_share(a, out, *, axes, keepdim, nan):
    """Returns 1 / (number of winners) where an element equals the extremum, else 0.

    If the extremum is NaN, the NaN elements win (`nan`), or every share is NaN.
    """
    x, y = a, out
    if axes is None or not keepdim:
        y = y.reshape([1 if axes is None or d in axes else n for d, n in enumerate(x.shape)])
    hit = x == y
    if nan:
        is_nan = y != y
        if is_nan.any():
            hit |= (x != x) & is_nan
    if x.dtype in (_F32, _F64) and count(x.shape, axes) <= 1 << 24:
        # Up to 2^24 ones are counted exactly: a 256x256 matrix takes 30 us, vs 110 us when counted
        # as integers and divided as doubles.
        r = hit.astype(x.dtype)
        r *= (1 / sums(r, axes, True).astype(_F64)).astype(x.dtype)
        return r
    n = np.add.reduce(hit, axis=axes, keepdims=True, dtype=_I64)
    return (hit / n).astype(_F32 if x.dtype.kind == "V" else x.dtype).astype(x.dtype)


def _few(a, axis):
    """True if `_picked` supports the array and the axis."""
    return 0 < a.size < large.FEW and axis == a.ndim - 1 and a.dtype.kind in "fiu" and a.flags.c_contiguous


@functools.lru_cache(256)
def _starts(rows, width):
    r = np.arange(0, rows * width, width)
    r.flags.writeable = False
    return r


def _picked(a, arg_extreme, keepdim):
    """Returns (extrema, their indices) along the last dimension of a small C-contiguous array.

    The extrema are read at the indices: 16 rows of 16 take 1.4 us, vs 3.6 us with `reduce` and
    `argmax`. `ufunc.reduce` may return the other of two zeros (0 and -0) than the one at the index,
    and may warn about NaN.
    """
    shape = a.shape
    n = shape[-1]
    where = arg_extreme(a.reshape(-1, n), 1)
    r = a.reshape(-1)[where + _starts(len(where), n)]
    if len(shape) == 2 and not keepdim:
        return r, where
    shape = (*shape[:-1], 1) if keepdim else shape[:-1]
    return r.reshape(shape), where.reshape(shape)


def _extreme(name, ufunc, arg, what):
    """Registers the kernels of a maximum or minimum: full, over axes, along one axis as (values,
    indices), and the index alone."""
    arg_extreme, silently = getattr(np.ndarray, arg.__name__), quiet(functools.partial(ufunc.reduce, axis=None))

    def full(a):
        if a.size < large.FEW and a.dtype.kind in "fiu" and a.flags.c_contiguous and a.size:
            # 0.5 us vs 1.5 us with `reduce`; a NaN counts as the largest and as the smallest
            return a.reshape(-1)[arg_extreme(a)]
        if (r := c_reduce(a, None, False, what)) is not None:
            return r
        return silently(a)

    quietly = quiet(ufunc.reduce)

    def over(a, *, axes, keepdim):
        if (r := c_reduce(a, axes, keepdim, what)) is not None:
            return r
        return quietly(a, axis=axes, keepdims=keepdim)

    def some(a, *, axes, keepdim):
        if axes is not None and len(axes) == 1 and _few(a, axes[0]):
            return _picked(a, arg_extreme, keepdim)[0]
        return over(a, axes=axes, keepdim=keepdim)

    def along(a, *, axis, keepdim):
        if a.ndim == 0:
            return a.copy(), np.zeros((), _I64)
        if _few(a, axis):
            return _picked(a, arg_extreme, keepdim)
        return over(a, axes=(axis,), keepdim=keepdim), arg_extreme(a, axis, keepdims=keepdim)

    def index(a, *, axis, keepdim):
        if a.ndim == 0:
            return np.zeros((), _I64)
        return arg_extreme(a, axis, keepdims=keepdim)
    kernel(name + "_all", full)
    kernel("a" + name, some)
    kernel(name + "_dim", along)
    kernel("arg" + name, index)


_extreme("max", np.maximum, np.argmax, LARGEST)
_extreme("min", np.minimum, np.argmin, LEAST)


# ------------------------------------------------------------------ all, any
def _true(a):
    """Returns a as bools.

    The zero has a's dtype: NumPy cannot compare 0-d bfloat16 with a Python scalar.
    """
    return a if a.dtype.kind == "b" else a != a.dtype.type(0)


def _truth(name, ufunc):
    def truth(a, *, axes, keepdim):
        if a.itemsize == 1 and a.size >= large.FEW:
            # NumPy reads any byte but 0 of bools as true, and may return such a byte: 8 million
            # uint8 take 0.07 ms, compared with 0 first 0.4 ms
            return np.asarray(ufunc.reduce(a.view(bool), axis=axes, keepdims=keepdim)).view(np.uint8) != 0
        return ufunc.reduce(_true(a), axis=axes, keepdims=keepdim)
    kernel(name, truth)


_truth("all", np.logical_and)
_truth("any", np.logical_or)


@kernel("count_nonzero")
def _count_nonzero(a, *, axes):
    if axes is None or len(axes) == a.ndim:  # 1 million bools: 30 us, by addition 700 us
        if a.dtype.kind in "biu" or a.size < large.FEW and a.dtype.kind != "V":
            return np.array(np.count_nonzero(a), _I64)
        return np.array(np.count_nonzero(_true(a)), _I64)
    return np.add.reduce(_true(a), axis=axes, dtype=_I64)


# ------------------------------------------------------------------ logsumexp
@kernel("logsumexp")
@quiet
def _logsumexp(a, *, axes, keepdim):
    if a.size == 0:
        return np.full(np.add.reduce(a, axis=axes, keepdims=keepdim).shape, -np.inf, a.dtype)
    # 4: LOG_SUM
    if axes is not None and axes == (a.ndim - 1,) and a.size >= large.SOME and (r := large.reduce().soft(4, a, -1)) is not None:
        return r.reshape(*r.shape, 1) if keepdim else r
    m = c_reduce(a, axes, True, LARGEST)
    if m is None:
        m = np.maximum.reduce(a.real, axis=axes, keepdims=True)
    m = np.where(np.isfinite(m), m, np.zeros((), m.dtype))
    r = np.log(sums(np.exp(a - m), axes, True)) + m
    return r if keepdim else r.reshape(np.add.reduce(a, axis=axes).shape)


# ------------------------------------------------------------------ moments
VARIANCE, DEVIATION, MEAN = range(3)  # as in `mindtorch/backend/c_kernels/reduce.py`


def _moment(a, axes, keepdim, correction, what):
    """Computes variances, standard deviations or means over `axes`.

    PyTorch accumulates in double precision and also takes the root there. The mean is the first
    element plus the mean of the differences from it. The mean of equal values is therefore exact,
    and their variance 0.
    """
    if a.dtype.kind == "c":
        # PyTorch rounds the variances of the real and the imaginary part.
        real, imag = [_moment(x, axes, keepdim, correction, MEAN if what == MEAN else VARIANCE) for x in (a.real, a.imag)]
        return (real + imag * a.dtype.type(1j)) if what == MEAN else np.sqrt(real + imag) if what == DEVIATION else real + imag
    over = float(max(count(a.shape, axes) - correction, 0))
    r = large.reduce().moments(a, axes, keepdim, what, over)
    if r is None:
        mean, squares = _upcast_moments(a, axes, keepdim)
        r = (mean if what == MEAN else np.sqrt(squares / np.float64(over)) if what == DEVIATION else squares / np.float64(over)).astype(a.dtype)
    return r


def _upcast_moments(a, axes, keepdim):
    """Returns (means, sums of squared deviations) in double precision."""
    n = count(a.shape, axes)
    if not n:
        r = np.add.reduce(a, axis=axes, dtype=_F64, keepdims=keepdim) * math.nan
        return r, r
    at = (..., *[slice(0, 1) if axes is None or i in axes else slice(None) for i in range(a.ndim)])
    first = a[at]
    first = np.where(np.isfinite(first), first, 0).astype(_F64)
    d = np.asarray(np.subtract(a, first, dtype=_F64))
    less = np.add.reduce(d, axis=axes, keepdims=True) / n
    d -= less
    squares = np.add.reduce(np.multiply(d, d, out=d), axis=axes, keepdims=keepdim)
    return np.reshape(first + less, np.shape(squares)), squares


_moment_quietly = quiet(_moment)


@kernel("var")
def _var_kernel(a, *, axes, keepdim, correction):
    return _moment_quietly(a, axes, keepdim, correction, VARIANCE)


@kernel("std")
def _std_kernel(a, *, axes, keepdim, correction):
    return _moment_quietly(a, axes, keepdim, correction, DEVIATION)


@kernel("mean_upcast")
def _mean_upcast(a, *, axes, keepdim):
    return _moment_quietly(a, axes, keepdim, 0, MEAN)


# ------------------------------------------------------------------ norms
@kernel("linalg_vector_norm")
def vector_norm(a, *, p, axes, keepdim):
    # The norm of one element is its absolute value: its square cannot leave the range, and no power
    # rounds it.
    if p and count(a.shape, axes) == 1:
        r = np.abs(a)
        return r if keepdim or axes == () or not a.ndim else r.reshape([n for d, n in enumerate(a.shape) if axes is not None and d not in axes])
    if p == 2 and axes is None and not keepdim:
        squares = small_squares(a)
        if squares is not None:
            # the rounded double-precision root is the correctly rounded root
            return np.array(math.sqrt(squares), a.dtype)
    if p in (1, 2) and a.size >= large.SOME and (r := large.reduce().reduce(a, axes, keepdim, NORM if p == 2 else SIZES)) is not None:
        return r
    return _vector_norm_quietly(a, p=p, axes=axes, keepdim=keepdim)


@quiet
def _vector_norm_quietly(a, *, p, axes, keepdim):
    x = np.abs(a) if a.dtype.kind == "c" or p != 2 else a
    if p == 2:
        return np.sqrt(sums(x * x, axes, keepdim))
    if p == 1:
        return sums(x, axes, keepdim)
    if p == 0:
        return np.add.reduce(x != 0, axis=axes, dtype=x.dtype, keepdims=keepdim)
    if p == math.inf:
        return np.maximum.reduce(x, axis=axes, keepdims=keepdim)
    if p == -math.inf:
        return np.minimum.reduce(x, axis=axes, keepdims=keepdim)
    return sums(x ** x.dtype.type(p), axes, keepdim) ** x.dtype.type(1 / p)


# ------------------------------------------------------------------ trace, hash
@kernel("trace")
def _trace(a):
    return np.trace(a, dtype=_I64 if a.dtype.kind in "biu" else a.dtype)


@kernel("trace_backward")
def _diagonal(g, *, shape):
    r = np.zeros(shape, g.dtype)
    n = min(shape)
    r[np.arange(n), np.arange(n)] = g
    return r


@kernel("hash_tensor")
def _hash(a, *, axes, keepdim):
    upcasted = a.astype(_F32 if a.dtype.kind == "V" else a.dtype)
    bits = np.ascontiguousarray(upcasted.astype(_F64 if upcasted.dtype.kind == "f" else _I64)).view(np.uint64)
    return np.bitwise_xor.reduce(bits.reshape(a.shape), axis=axes, keepdims=keepdim)
