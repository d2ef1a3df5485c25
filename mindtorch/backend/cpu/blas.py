"""Matrix products: OpenBLAS through NumPy, or for float32 oneDNN, shared between threads.

OpenBLAS wakes its own threads for each product and lets them spin afterwards, next to those of
`threads.share`. In some environments it is limited to AVX2 (OPENBLAS_CORETYPE). On one core with
AVX-512, us of NumPy with OpenBLAS at AVX2 / at AVX-512 / oneDNN / PyTorch (MKL): 64x784 @ 784x512
540 / 310 / 222 / 500; 256x128 @ 128x512 290 / 157 / 144 / 313.

On a core with only AVX2, oneDNN takes 0.74 of NumPy's time (0.95 of PyTorch's). This is the median
of 393 products of random shapes of 8 to 1536 with at least 128 thousand multiplications, either
side transposed or not. 23 of them were slower, by a tenth to a third, most of them with 512
columns. Below 128 thousand multiplications the ratio is 1.24. For stacks with at least 300 thousand
multiplications it is 0.65.

Products with few rows, as in a generating model, depend on how fast the other matrix is read. With
AVX-512, us of NumPy / oneDNN on one thread / on two / PyTorch on two: 1 row by 768x3072
(transposed) 441 / 429 / 279 / 326, 7 rows 1419 / 1122 / 598 / 932; 1 row by 512x512 42 / 44 / 29 /
34.
"""
import math

import numpy as np

from mindtorch.backend.cpu import onednn, threads
from mindtorch.backend.cpu import _numpy_private
from mindtorch.backend.cpu._numpy_private import SILENT

_F32 = np.dtype(np.float32)
_add, _matmul, _multiply = _numpy_private.add, _numpy_private.matmul, _numpy_private.silent(np.multiply)
# maximum multiplications for `a.dot(b)`, which reaches the same BLAS call in 0.3 us (`matmul` 0.9
# us); BLAS starts no threads for them
_DOT = 1 << 13
# minimum elements of an outer product for a broadcast multiplication instead (by BLAS vs this:
# 256x256 75 us vs 19 us; 8 of 64x64 40 us vs 13 us)
_OUTER = 1 << 12
# minimum multiplications for oneDNN to be as fast (its call takes 3 us); twice that without AVX-512
_LEAST = 1 << 16
_ONE = 1 << 19  # the same for one matrix of a stack, where NumPy's loop costs nothing
_WORTH = 1 << 22  # minimum multiplications for waking threads
# the same for the threads of thread_pool.py, which already wait for work: 256x13 @ 13x256 23 us on
# one, 13 us on two; 80x80 @ 80x80 15 us, 12 us
_WORTH_POOL = 3 << 18
# minimum elements of a matrix that oneDNN multiplies by few rows or columns; `_READ_SHARED` if
# threads share the work
_READ = 1 << 19
_READ_SHARED = 1 << 17
# minimum multiplications of a stack of matrices for a C loop over oneDNN, which then beats NumPy's
# over OpenBLAS
_STACK = 1 << 18


def blas_ready(a):
    """Returns `a`, or a copy if its last two strides would keep NumPy from using BLAS (50 times
    slower)."""
    f = a.flags
    if f.c_contiguous or f.f_contiguous:
        return a
    it = a.itemsize
    s1, s2 = a.strides[-2:]
    n1, n2 = a.shape[-2:]
    if s2 == it and s1 >= n2 * it and not s1 % it or s1 == it and s2 >= n1 * it and not s2 % it:
        return a
    return np.ascontiguousarray(a)


def product(a, b, out=None):
    """Computes a @ b over the last two dims; leading dims broadcast. `out`, if given, is
    C-contiguous."""
    if out is None and a.ndim == 2 == b.ndim and 1 < a.size * b.shape[1] <= _DOT and a.shape[1] == b.shape[0]:
        return a.dot(b)
    if a.ndim > 1 < b.ndim and a.shape[-1] == 1 == b.shape[-2] and (a.ndim > 2 or a.size * b.size >= _OUTER):
        return _multiply(a, b, out, extobj=SILENT)
    a, b = blas_ready(a), blas_ready(b)
    if a.ndim == 2 and a.size * b.shape[-1] < _LEAST:
        return threads.matmul(a, b, out)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        return threads.matmul(a, b, out)
    m, k = a.shape[-2:]
    n = b.shape[-1]
    work = m * k * n
    fits = a.dtype is _F32 and b.dtype is _F32 and min(m, n, k) >= 8
    if a.ndim == 2 == b.ndim:
        if min(m, n) < 8 and _few(a, b, max(m, n) * k):
            return _read(a, b, np.empty((m, n), _F32) if out is None else out)
        if fits and work >= _LEAST and onednn.has_private() and (work >= 2 * _LEAST or onednn.has_avx512()):
            return _one(a, b, np.empty((m, n), _F32) if out is None else out, work)
        return threads.matmul(a, b, out) if work < _WORTH else _rows(a, b, out)
    if a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2]:
        return threads.matmul(a, b, out)
    many = math.prod(a.shape[:-2])
    large = fits and work >= _ONE and onednn.has_private()
    stacked = fits and many * work >= _STACK and onednn.has_private()
    if many * work < _WORTH and not large and not stacked:
        return threads.matmul(a, b, out)
    if out is None:
        out = np.empty(a.shape[:-1] + (n,), np.result_type(a, b))
    if stacked and onednn.gemms(a, b, out, many * work < _WORTH_POOL):
        return out
    if many * work < _WORTH and not large:
        return threads.matmul(a, b, out)
    axis = 0
    while axis < a.ndim - 3 and a.shape[axis] == 1:
        axis += 1
    head = (slice(None),) * axis

    def part(start, stop):
        at = head + (slice(start, stop),)
        x, y, z = a[at], b[at], out[at]
        if not large:
            _matmul(x, y, out=z, extobj=SILENT)
            return
        for i in np.ndindex(x.shape[:-2]):
            onednn.gemm(x[i], y[i], z[i])
    if many * work < _WORTH:
        part(0, a.shape[axis])
    else:
        threads.share(a.shape[axis], part)
    return out


def product_plus(a, b, row):
    """Computes a @ b + row for two matrices; `row` is added to each row of the product.

    If threads share the product, they add `row` while the result is in their caches: 256x128 @
    128x384 on two threads takes 147 us, vs 160 us with a separate addition in NumPy (136 us without
    any).
    """
    m, k = a.shape
    n = b.shape[1]
    if m * k * n >= _WORTH_POOL and min(m, n, k) >= 8 and k == b.shape[0] and a.dtype is _F32 and b.dtype is _F32 and row.dtype is _F32 \
            and row.flags.c_contiguous and row.shape == (n,) and onednn.has_private():
        out = np.empty((m, n), _F32)
        if onednn.gemm_shared(blas_ready(a), blas_ready(b), out, row):
            return out
    y = product(a, b)
    _add(y, row, out=y, extobj=SILENT)
    return y


def _few(a, b, read):
    """True if oneDNN is as fast for a product with few output rows or columns that reads `read`
    elements."""
    return a.dtype is _F32 and b.dtype is _F32 and a.shape[-1] >= 8 and read >= (_READ_SHARED if threads.count() > 1 else _READ) and onednn.has_private()


def _read(a, b, out):
    """Computes such a product with oneDNN on all threads."""
    if not onednn.gemm_shared(a, b, out):
        onednn.gemm(a, b, out)
    return out


def by_vector(a, v):
    """Computes a @ v for a matrix and a vector."""
    a = blas_ready(a)
    if a.ndim == 2 and a.shape[1] == v.shape[0] and _few(a, v, a.size):
        return _read(a, blas_ready(v[:, None]), np.empty((a.shape[0], 1), _F32)).reshape(-1)
    return threads.matmul(a, v)


def _one(a, b, out, work):
    if work < _WORTH_POOL or not onednn.gemm_shared(a, b, out):
        _cut(a, b, out, onednn.gemm, work)
    return out


def _rows(a, b, out):
    """Computes a large product with BLAS, which is kept from starting its own threads."""
    if out is None:
        out = np.empty((a.shape[0], b.shape[1]), np.result_type(a, b))
    if out.dtype != a.dtype or out.dtype != b.dtype or out.dtype.kind not in "fc":
        return threads.matmul(a, b, out)
    _cut(a, b, out, lambda x, y, z: _matmul(x, y, out=z, extobj=SILENT), _WORTH)
    return out


def _cut(a, b, out, f, work):
    m, n = out.shape
    if work < _WORTH:
        f(a, b, out)
    elif m >= n:
        threads.share(-(-m // 16), lambda s, t: f(a[s * 16:t * 16], b, out[s * 16:t * 16]))
    else:
        threads.share(-(-n // 16), lambda s, t: f(a, b[:, s * 16:t * 16], out[:, s * 16:t * 16]))
