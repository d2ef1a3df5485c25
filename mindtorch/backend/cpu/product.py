"""Matrix products: OpenBLAS through NumPy, or for float32 oneDNN's, shared out between threads.

OpenBLAS wakes threads of its own for each product and lets them spin afterwards, beside `threads.share`'s, and in some
environments it is held to AVX2 (OPENBLAS_CORETYPE).  us on one core of an AVX-512 machine, NumPy with OpenBLAS at AVX2 / at
AVX-512 / oneDNN / torch (MKL): 64x784 @ 784x512 540 / 310 / 222 / 500; 256x128 @ 128x512 290 / 157 / 144 / 313; 512x128 @
128x16 23 / 17 / 16; 16x512 @ 512x4608 1345 / 620 / 328; 64x32 @ 32x64 3.3 / / 3.6.  On one with AVX2 alone, oneDNN's time over NumPy's, the median of
393 products of random shapes of 8 to 1536 from 128 thousand multiplications on, either side transposed or not: 0.74 (0.95 of torch's); 23 were slower,
by a tenth to a third, most of them with 512 columns; below that 1.24.  Stacks from 300 thousand multiplications on: 0.65.

Few rows, as of a model that generates, are a matter of how fast the other matrix is read: us of NumPy, oneDNN on one thread and on two, torch on two, with
AVX-512, of 1, 2 and 7 rows by 768x3072 (transposed): 441 429 279 326, 1471 462 270 445, 1419 1122 598 932; 1 row by 512x512 42 44 29 34, by 128x256 5 7 7 6.
"""
import math

import numpy as np

from mindtorch.backend.cpu import onednn, threads
from mindtorch.backend.cpu import _numpy_private
from mindtorch.backend.cpu._numpy_private import SILENT

_F32 = np.dtype(np.float32)
_add, _matmul, _multiply = _numpy_private.add, _numpy_private.matmul, _numpy_private.silent(np.multiply)
_DOT = 1 << 13          # multiplications up to which `a.dot(b)` (0.3 us) takes the way to the same BLAS as `matmul` (0.9 us), which starts no threads for them
_OUTER = 1 << 12        # elements of an outer product from which on it is no product (256x256 75 and 19 us; 8 of 64x64 40 and 13)
_LEAST = 1 << 16        # multiplications from which on oneDNN is as fast (its call takes 3 us); without AVX-512 twice that
_ONE = 1 << 19          # the same for one matrix of many, where NumPy's loop costs nothing
_WORTH = 1 << 22        # multiplications from which on threads are woken
_WORTH_POOL = 3 << 18   # the same for those that wait for work (pool.py): 256x13 @ 13x256 23 us on one, 13 on two; 80x80 @ 80x80 15, 12
_READ = 1 << 19         # elements of a matrix from which on oneDNN multiplies it by few rows or columns, and where threads share that
_READ_SHARED = 1 << 17
_STACK = 1 << 18        # multiplications of a stack of matrices from which on a loop in C over oneDNN beats NumPy's over OpenBLAS


def blas_ready(a):
    """`a`, or a copy of it if its last two strides would keep NumPy from handing it to BLAS (a factor of 50)."""
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
    """a @ b over the last two dims; leading dims broadcast.  `out`, where given, is C-contiguous."""
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
        if fits and work >= _LEAST and onednn.own() and (work >= 2 * _LEAST or onednn.wide()):
            return _one(a, b, np.empty((m, n), _F32) if out is None else out, work)
        return threads.matmul(a, b, out) if work < _WORTH else _rows(a, b, out)
    if a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2]:
        return threads.matmul(a, b, out)
    many = math.prod(a.shape[:-2])
    large = fits and work >= _ONE and onednn.own()
    wide = fits and many * work >= _STACK and onednn.own()
    if many * work < _WORTH and not large and not wide:
        return threads.matmul(a, b, out)
    if out is None:
        out = np.empty(a.shape[:-1] + (n,), np.result_type(a, b))
    if wide and onednn.gemms(a, b, out, many * work < _WORTH_POOL):
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
    """a @ b of two matrices, and `row` added to each row of that; where threads share the product, while it is in their caches (256x128 @ 128x384 on two:
    136 us, with NumPy's addition behind it 160, this way 147; 2048x64 @ 64x64 94, 136, 99)."""
    m, k = a.shape
    n = b.shape[1]
    if m * k * n >= _WORTH_POOL and min(m, n, k) >= 8 and k == b.shape[0] and a.dtype is _F32 and b.dtype is _F32 and row.dtype is _F32 \
            and row.flags.c_contiguous and row.shape == (n,) and onednn.own():
        out = np.empty((m, n), _F32)
        if onednn.gemm_shared(blas_ready(a), blas_ready(b), out, row):
            return out
    y = product(a, b)
    _add(y, row, out=y, extobj=SILENT)
    return y


def _few(a, b, read):
    """Whether oneDNN is as fast for a product that few rows or columns come out of, for which so many elements are read."""
    return a.dtype is _F32 and b.dtype is _F32 and a.shape[-1] >= 8 and read >= (_READ_SHARED if threads.count() > 1 else _READ) and onednn.own()


def _read(a, b, out):
    """Such a product, by oneDNN on all threads."""
    if not onednn.gemm_shared(a, b, out):
        onednn.gemm(a, b, out)
    return out


def by_vector(a, v):
    """a @ v of a matrix and a vector."""
    a = blas_ready(a)
    if a.ndim == 2 and a.shape[1] == v.shape[0] and _few(a, v, a.size):
        return _read(a, blas_ready(v[:, None]), np.empty((a.shape[0], 1), _F32)).reshape(-1)
    return threads.matmul(a, v)


def _one(a, b, out, work):
    if work < _WORTH_POOL or not onednn.gemm_shared(a, b, out):
        _cut(a, b, out, onednn.gemm, work)
    return out


def _rows(a, b, out):
    """A large product by BLAS, which is kept from threads of its own."""
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
