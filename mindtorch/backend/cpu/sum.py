"""Sums of arrays: fast, and accurate to the last digits for any number of elements.

NumPy adds pairwise only along contiguous memory. Over any other axis it adds row after row, and the
float32 error grows with the number of rows. Sums here go in blocks, so that the error grows at most
with the square root of that number. Along contiguous memory a matrix product with a vector of ones
is ten times faster than NumPy's own sum: 1e6 float32 in full take 27 us (`np.add.reduce` 130-240
us, PyTorch 23 us).

With a C compiler, arrays of `large.FEW` elements or more use `backend/c_kernels/reduce.py`. On one
thread of an EPYC core, us of C vs PyTorch: 256x256 rows 4.2 vs 4.7, columns 4.8 vs 4.8; 1024x1024
rows 64 vs 57, columns 77 vs 316, all 49 vs 50; 100000x3 rows 72 vs 454.
"""
import math

import numpy as np

from mindtorch.backend.cpu import large, threads
from mindtorch.backend.cpu.host import ones, quiet

_add = np.add.reduce
# as in `mindtorch/backend/c_kernels/reduce.py`
SUM, SQUARES, SIZES, PRODUCT, LARGEST, LEAST, NORM = range(7)
_BLOCK = 64             # rows added one after another
_CHUNK = 4096  # elements summed by one product
_LARGE = 1 << 16  # below, starting OpenBLAS's threads costs more than it saves
_NARROW = (np.dtype(np.float32), np.dtype(np.complex64))
_BLAS = (np.dtype(np.float32), np.dtype(np.float64))
# maximum elements for a product with ones, which is as accurate as NumPy's own sum there: OpenBLAS
# adds in chains of 32, NumPy in chains of 16 per block
_LITTLE = 1 << 10


def sums(a, axes=None, keepdim=False):
    """Sums over `axes` (a sorted tuple; None: all) in the array's own dtype. NumPy's warnings are
    not silenced."""
    if (r := c_reduce(a, axes, keepdim, SUM)) is not None:
        return r
    r = small_sum(a, axes, keepdim)
    if r is not None:
        return r
    d = a.dtype
    if a.size <= _BLOCK or d not in _NARROW and (a.size < _LARGE or d not in _BLAS):
        return _add(a, axis=axes, keepdims=keepdim)
    if axes is None:
        x = a.reshape(-1) if a.flags.c_contiguous else a.ravel("K")
        r = _last(x.reshape(1, -1))[0]
        return np.asarray(r).reshape((1,) * a.ndim) if keepdim else r
    shape = a.shape
    rows = 1
    for n in axes:
        rows *= shape[n]
    inner = axes[-1] == a.ndim - 1
    if rows <= _BLOCK and not (inner and a.size >= _LARGE) or inner and a.size < _LARGE and rows == shape[-1] and a.flags.c_contiguous:
        return _add(a, axis=axes, keepdims=keepdim)
    r = _blocked(a, axes)
    return r.reshape([1 if n in axes else s for n, s in enumerate(shape)] if keepdim else
                     [s for n, s in enumerate(shape) if n not in axes])


_quietly = quiet(sums)


def total(a, axes=None, keepdim=False):
    """Like `sums`, without NumPy's warnings."""
    r = small_sum(a, axes, keepdim)
    if r is None:
        r = c_reduce(a, axes, keepdim, SUM)
    return _quietly(a, axes, keepdim) if r is None else r


def small_sum(a, axes, keepdim=False):
    """Sums a small array over all dimensions, the first or the last one, without warnings.

    Returns None for other arrays. Uses a product with ones: 256 elements take 0.4 us, vs 1.2 us
    with `np.add.reduce` plus 0.4 us to silence its warnings. A single element is excluded because
    -0 would become 0.
    """
    n = a.size
    if not 1 < n <= _LITTLE or a.dtype not in _BLAS or not a.flags.c_contiguous:
        return None
    shape = a.shape
    if axes is None or len(axes) == len(shape):
        r = a.reshape(n).dot(ones(n, a.dtype))
        return np.asarray(r).reshape((1,) * len(shape)) if keepdim else r
    if len(axes) != 1:
        return None
    axis, ndim = axes[0], len(shape)
    m = shape[axis]
    if m == 1:
        return None
    if axis == ndim - 1:
        r = (a if ndim == 2 else a.reshape(-1, m)).dot(ones(m, a.dtype))
    elif axis or m > _BLOCK:
        return None
    else:
        r = ones(m, a.dtype).dot(a if ndim == 2 else a.reshape(m, -1))
    return r if ndim == 2 and not keepdim else r.reshape([*shape[:axis], *((1,) if keepdim else ()), *shape[axis + 1:]])


def small_squares(a):
    """Returns the sum of the squares of a small array; None for other arrays."""
    n = a.size
    if not 1 < n <= _LITTLE or a.dtype not in _BLAS or not a.flags.c_contiguous:
        return None
    x = a.reshape(n)
    return x.dot(x)


def sum_all(a):
    """Returns the sum of all elements, without NumPy's warnings."""
    n = a.size
    if 1 < n <= _LITTLE and a.dtype in _BLAS and a.flags.c_contiguous:
        return a.reshape(n).dot(ones(n, a.dtype))
    r = c_reduce(a, None, False, SUM)
    return _quietly(a) if r is None else r


def c_reduce(a, axes, keepdim, what, over=1.0):
    """Reduces a large array in C: `what` (SUM to NORM) over `axes` (a sorted tuple; None: all),
    divided by `over`.

    Returns None if there is no kernel.
    """
    return large.reduce().reduce(a, axes, keepdim, what, over) if a.size >= large.FEW else None


def _last(a):
    """Sums the rows: (m, n) -> (m,)."""
    m, n = a.shape
    if a.size >= _LARGE and a.dtype in _BLAS and a.flags.c_contiguous and (r := large.scan_gather().sums(a)) is not None:
        return r
    if a.dtype not in _BLAS or not n or a.size < _LARGE:
        return _add(a, axis=1)
    if n <= 2 * _CHUNK:
        return a @ ones(n, a.dtype)
    k = n // _CHUNK
    full = k * _CHUNK
    if full == n:
        return _add((a.reshape(m * k, _CHUNK) @ ones(_CHUNK, a.dtype)).reshape(m, k), axis=1)
    r = _add(a[:, full:], axis=1)
    for i in range(m):
        # The chunks of one row are contiguous; those of all rows are not, and would be copied.
        r[i] += _add(a[i, :full].reshape(k, _CHUNK) @ ones(_CHUNK, a.dtype))
    return r


def _blocked(a, axes):
    """Sums over `axes`. The shape of the result is correct up to dimensions of size 1."""
    if not a.flags.c_contiguous:
        # Follow the memory order: a transposed array is contiguous in another order of its axes.
        order = sorted(range(a.ndim), key=lambda d: -a.strides[d])
        if order != list(range(a.ndim)):
            b = a.transpose(order)
            r = _blocked(b, tuple(sorted(order.index(d) for d in axes)))
            other_dims = [d for d in order if d not in axes]
            return r.reshape([a.shape[d] for d in other_dims]).transpose([other_dims.index(d) for d in sorted(other_dims)])
        a = np.ascontiguousarray(a)
    last = a.ndim
    while last - 1 in axes:
        last -= 1
    shape = a.shape[:last]
    if last < a.ndim:
        a = _last(a.reshape(_product(shape), _product(a.shape[last:]))).reshape(shape)
    left = [d for d in axes if d < last]
    while left:
        # One run of adjacent axes at a time, from the right.
        hi = lo = left.pop()
        while left and left[-1] == lo - 1:
            lo = left.pop()
        before, rows, after = _product(shape[:lo]), _product(shape[lo:hi + 1]), _product(shape[hi + 1:])
        a = _columns(a.reshape(before, rows, after))
        shape = shape[:lo] + shape[hi + 1:]
        a = a.reshape(shape)
    return a


def _product(sizes):
    n = 1
    for s in sizes:
        n *= s
    return n


def _columns(a):
    """Sums the middle axis: (b, n, m) -> (b, m)."""
    b, n, m = a.shape
    if m < 16 and n > _BLOCK:
        # Such short rows cost more to traverse than to transpose: 100000x3 takes 0.12 ms instead of
        # 1.2 ms.
        return _last(np.ascontiguousarray(a.transpose(0, 2, 1)).reshape(b * m, n)).reshape(b, m)
    while n > _BLOCK:
        k = n // _BLOCK
        full = k * _BLOCK
        s = _add(a[:, :full].reshape(b, k, _BLOCK, m), axis=2)
        if full < n:
            s = np.concatenate([s, _add(a[:, full:], axis=1)[:, None]], axis=1)
        a, n = s, s.shape[1]
    return _add(a, axis=1)


# ------------------------------------------------------------------ cumulative sums
_STEP = 8  # elements whose cumulative sums come from one product with a triangle of ones
_triangle = np.triu(np.ones((_STEP, _STEP)))


def _running_rows(a):
    """Computes cumulative sums along the rows of a contiguous float32 matrix, in double precision.

    Returns None if one of them is not finite. Sequential additions take 3.2 ms for 1000x1000,
    because each depends on the one before (with NumPy's conversion on the fly 6-10 ms). Adding the
    totals of groups of eight, and a product with a triangle within the groups, takes 1.7 ms
    (PyTorch 0.8 ms). Most sums of float32 values fit in a double, so the results are mostly the
    same to the last bit.
    """
    n, width = a.shape
    r = np.empty(a.shape, a.dtype)
    full = width // _STEP * _STEP
    count = full // _STEP
    good = []

    def part(i, j):
        k = j - i
        x = a[i:j, :full].astype(np.float64).reshape(k * count, _STEP)
        # Add the total of the preceding groups to the first element of each group.
        before = np.add.accumulate(threads.matmul(x, ones(_STEP, x.dtype)).reshape(k, count), axis=1)
        x.reshape(k, count, _STEP)[:, 1:, 0] += before[:, :-1]
        r[i:j, :full] = threads.matmul(x, _triangle).reshape(k, full)
        if full < width:
            tail = a[i:j, full:].astype(np.float64)
            tail[:, 0] += before[:, -1]  # the sum up to here
            np.add.accumulate(tail, axis=1, out=tail)
            r[i:j, full:] = tail
        else:
            tail = before
        # inf * 0 or NaN * 0 has spoiled its group.
        good.append(bool(np.isfinite(tail[:, -1]).all()))
    large.each_rows(n, width, part)
    return r if all(good) else None


def running_products(a):
    """Computes cumulative products along the rows of a contiguous float32 matrix, in double
    precision."""
    r = np.empty(a.shape, a.dtype)

    def part(i, j):
        x = a[i:j].astype(np.float64)
        r[i:j] = np.multiply.accumulate(x, axis=1, out=x)
    large.each_rows(*a.shape, part)
    return r


def running_sums(a, axis):
    """Computes cumulative sums of float32 along `axis`, accumulated in double precision.

    NumPy's accumulate in double takes 6-10 ms for 1000x1000; adding row after row takes 1.6 ms,
    with a transposition 4 ms.
    """
    n, lanes, lines = a.shape[axis], _product(a.shape[axis + 1:]), _product(a.shape[:axis])
    if lanes == 1 and a.size >= 4096 and n >= 4 * _STEP:
        r = _running_rows(np.ascontiguousarray(a).reshape(lines, n))
        if r is not None:
            return r.reshape(a.shape)
    if n < 64 or max(lanes, lines) < 512:
        return np.add.accumulate(a, axis=axis, dtype=np.float64).astype(a.dtype)
    x = a.reshape(lines, n, lanes)
    if lanes < 512:
        # The long dimension moves to the end, where one addition covers all of it.
        x = x.transpose(2, 1, 0)
    x = np.ascontiguousarray(x)
    r = np.empty_like(x)
    s = np.zeros((x.shape[0], x.shape[2]))
    for k in range(n):
        s += x[:, k]
        r[:, k] = s
    if lanes < 512:
        r = np.ascontiguousarray(r.transpose(2, 1, 0))
    return r.reshape(a.shape)


# ------------------------------------------------------------------ rows and columns
#
# Sums for gradients and norms, as products with ones: over the rows of a 256x512 matrix 6 us,
# NumPy's `sum` 20 us, MindSpore 33 us.
def rows(a):
    """Reshapes `a` to a matrix over its last dim (a view if strides allow)."""
    if a.ndim == 2:
        return a
    n = a.shape[-1]
    return a.reshape(math.prod(a.shape[:-1]), n)


@quiet
def _sum(m, axis):
    return m.sum(axis=axis)


def column_sum(a):
    """Sums over all dims but the last."""
    m = rows(a)
    if m.dtype.kind != "f" or not m.flags.c_contiguous:
        return _sum(m, 0)
    if m.size >= large.FEW and (r := large.reduce().reduce(m, (0,), False, large.reduce().SUM)) is not None:
        return r  # 256x128 takes 2.3, the matrix product 3.7; 4096x64 on two threads 8 and 18
    return threads.matmul(ones(m.shape[0], m.dtype), m)


def row_sum(m):
    """Sums each row of a matrix."""
    if m.dtype.kind != "f" or not m.flags.c_contiguous:
        return _sum(m, 1)
    return threads.matmul(m, ones(m.shape[1], m.dtype))


def row_dot(a, b):
    """Returns the dot product of each row of a with the same row of b.

    einsum takes 11, multiply and sum 30. On 2x5 einsum takes 1.7, the product with ones 0.7.
    """
    if 1 < a.size <= 1 << 10 and a.dtype.kind == "f" and a.dtype is b.dtype:
        return np.multiply(a, b).dot(ones(a.shape[1], a.dtype))
    return np.einsum("ij,ij->i", a, b)


@quiet
def channel_sums(a, c, hw):
    """Sums (N, C, ...) over all dims but the channels."""
    if a.dtype.kind == "f" and a.flags.c_contiguous:
        if hw > 1:
            return threads.matmul(a.reshape(-1, hw), ones(hw, a.dtype)).reshape(-1, c).sum(axis=0)
        return threads.matmul(ones(a.shape[0], a.dtype), a.reshape(-1, c))
    return a.reshape(a.shape[0], c, hw).sum(axis=(0, 2))
