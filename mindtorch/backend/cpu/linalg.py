"""LAPACK kernels on batches of matrices.

numpy.linalg loops over batches, but has no reusable factorizations and no error codes. Where those
are needed, scipy's wrappers are called matrix by matrix (1 us per call). scipy also has a newer
OpenBLAS. float32 512x512 on one AVX-512 core, NumPy vs scipy: inverse 59 vs 8 ms, solve 79 vs 17
ms, Cholesky 12 vs 2 ms, QR 100 vs 41 ms, SVD 320 vs 148 ms, eigh 114 vs 53 ms. At 64x64, the
threshold of `large`, the difference is a third. scipy is imported at the first use. Singular values
and eigenvalues are in `spectral.py`.
"""
import math
from typing import Any

import numpy as np

from mindtorch.backend.cpu import kernel, threads
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.errors import not_definite, singular_inverse, singular_system

_NP_ERROR = np.linalg.LinAlgError
_PREFIX = {"f": "s", "d": "d", "F": "c", "D": "z"}
_routines: dict[Any, Any] = {}
EPS = {"f": float(np.finfo(np.float32).eps), "F": float(np.finfo(np.float32).eps), "d": float(np.finfo(np.float64).eps),
       "D": float(np.finfo(np.float64).eps)}
REAL = {"f": np.dtype(np.float32), "F": np.dtype(np.float32), "d": np.dtype(np.float64), "D": np.dtype(np.float64)}


def routine(name, dtype, blas=False):
    """Returns scipy's wrapper of a LAPACK (or BLAS) routine for a dtype.

    For complex dtypes, a leading "or" of the name becomes "un".
    """
    key = (name, dtype.char)
    r = _routines.get(key)
    if r is None:
        import scipy.linalg.blas
        import scipy.linalg.lapack
        threads.follow_scipy()
        if dtype.kind == "c" and name.startswith("or"):
            name = "un" + name[2:]
        r = _routines[key] = getattr(scipy.linalg.blas if blas else scipy.linalg.lapack, _PREFIX[dtype.char] + name)
    return r


def stack_of(a):
    """Returns the matrices of a batch as a three-dimensional array."""
    return a.reshape((-1,) + a.shape[-2:]) if a.ndim != 3 else a


def large(a):
    """True for matrices that are large enough for calls of scipy's LAPACK."""
    return a.shape[-1] >= 64 and a.size > 0


def each(one, a, *more):
    """Applies one(matrix, ...) -> tuple of arrays to a matrix or to every matrix of a batch.

    `more` has the same batch dims.
    """
    if a.ndim == 2:
        return tuple(np.ascontiguousarray(r) for r in one(a, *more))
    results = zip(*[one(*x) for x in zip(*map(stack_of, (a, *more)))])
    return tuple(np.stack(r).reshape(a.shape[:-2] + np.shape(r[0])) for r in results)


def h(a):
    """Returns the conjugate transpose of the last two dimensions."""
    return np.conj(a.swapaxes(-1, -2)) if a.dtype.kind == "c" else a.swapaxes(-1, -2)


@kernel("adjoint")
def _adjoint(a):
    return np.conjugate(a.swapaxes(-1, -2), order="C")


@kernel("eye_like")
def _eye_like(a, *, m, n):
    """Returns an identity matrix of m rows and n columns in a's dtype."""
    return np.eye(m, n, dtype=a.dtype)


# ------------------------------------------------------------------ LU
@kernel("linalg_lu_factor_ex")
def lu_factor(a):
    """Returns (LU, pivots counted from 1, info). info k > 0 means that U[k, k] is the first zero
    pivot."""
    m, n = a.shape[-2:]
    batch = a.shape[:-2]
    out = np.empty(a.shape, a.dtype)
    pivots = np.empty(batch + (min(m, n),), np.int32)
    info = np.zeros(batch, np.int32)
    if not out.size:
        return out, pivots, info
    getrf = routine("getrf", a.dtype)
    if a.ndim == 2:
        out[...], p, code = getrf(a)
        pivots[...] = p + 1
        info[...] = code
        return out, pivots, info
    o, p3, i3 = stack_of(out), pivots.reshape(-1, pivots.shape[-1]), info.reshape(-1)
    for i, x in enumerate(stack_of(a)):
        o[i], p, i3[i] = getrf(x)
        p3[i] = p + 1
    return out, pivots, info


def permutation(pivots, m):
    """Returns the row order for pivots that count from 1: row i of P^T A is row order[i] of A."""
    k = pivots.shape[-1]
    batch = pivots.shape[:-1]
    order = np.broadcast_to(np.arange(m), batch + (m,)).copy()
    if not k or not order.size:
        return order
    flat, piv = order.reshape(-1, m), pivots.reshape(-1, k)
    rows = np.arange(len(flat))
    for i in range(min(k, m)):
        j = piv[:, i] - 1
        old = flat[:, i].copy()
        flat[:, i] = flat[rows, j]
        flat[rows, j] = old
    return order


@kernel("permutation_matrix")
def permutation_matrix(pivots, *, m, np_dtype, transposed=False):
    """Returns P with A = P L U, or its transpose."""
    order = permutation(pivots, m)
    p = np.zeros(order.shape + (m,), np_dtype)
    np.put_along_axis(p, order[..., None], np.ones((), np_dtype), -1)
    return p if transposed else np.ascontiguousarray(p.swapaxes(-1, -2))


@kernel("lu_unpack_pivots")
def _unpack_pivots(pivots, *, m, np_dtype):
    if pivots.size and (pivots.min() < 1 or pivots.max() > m):
        raise RuntimeError("pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive.Did you "
                           "properly pass the result of lu_factor?")
    return permutation_matrix(pivots, m=m, np_dtype=np_dtype)


@kernel("lu_unpack")
def unpack(lu):
    """Returns (L, U) of the packed factors."""
    m, n = lu.shape[-2:]
    k = min(m, n)
    lower = np.tril(lu[..., :, :k], -1)
    i = np.arange(k)
    lower[..., i, i] = 1
    return lower, np.triu(lu[..., :k, :])


@kernel("linalg_lu")
def _lu(a):
    packed, pivots, _ = lu_factor(a)
    return (permutation_matrix(pivots, m=a.shape[-2], np_dtype=a.dtype), *unpack(packed))


@kernel("linalg_lu_solve")
@quiet
def lu_solve(lu, pivots, b, *, adjoint):
    """Solves A X = B (A^H X = B if `adjoint`) from the factors of A."""
    if pivots.size and (pivots.min() < 1 or pivots.max() > lu.shape[-1]):
        side = "smaller or equal to LU.size(-2)" if pivots.min() >= 1 else "greater or equal to 1"
        raise RuntimeError(f"Pivots given to lu_solve must all be {side}. Did you properly pass the result of "
                           "lu_factor?")
    batch = np.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    out = np.empty(batch + b.shape[-2:], b.dtype)
    if not out.size:
        return out
    f = np.broadcast_to(lu, batch + lu.shape[-2:])
    p = np.broadcast_to(pivots, batch + pivots.shape[-1:]) - 1
    b = np.broadcast_to(b, out.shape)
    getrs, trans = routine("getrs", b.dtype), 2 if adjoint else 0
    if b.ndim == 2:
        out[...] = getrs(f, p, b, trans)[0]
        return out
    o = stack_of(out)
    p = p.reshape(-1, p.shape[-1])
    for i, (x, y) in enumerate(zip(stack_of(f), stack_of(b))):
        o[i] = getrs(x, p[i], y, trans)[0]
    return out


# ------------------------------------------------------------------ triangular systems
@kernel("linalg_solve_triangular")
@quiet
def solve_triangular(a, b, *, upper, left, unit, adjoint):
    """Solves op(A) X = B (X op(A) = B if not `left`) for a triangular A.

    A zero on the diagonal gives inf or nan, as in BLAS.
    """
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = batch + b.shape[-2:]
    if 0 in shape:
        return np.zeros(shape, b.dtype)
    trsm, side = routine("trsm", b.dtype, True), 0 if left else 1
    lower, diag, trans = not upper, int(unit), 2 if adjoint else 0
    if len(shape) == 2:
        return np.ascontiguousarray(trsm(1, a, b, side=side, lower=lower, trans_a=trans, diag=diag))
    out = np.empty(shape, b.dtype)
    o = stack_of(out)
    a = np.broadcast_to(a, batch + a.shape[-2:])
    for i, (x, y) in enumerate(zip(stack_of(a), stack_of(np.broadcast_to(b, shape)))):
        o[i] = trsm(1, x, y, side=side, lower=lower, trans_a=trans, diag=diag)
    return out


@kernel("triangular_solve")
def _triangular_solve(b, a, *, upper, transpose, unit):
    if transpose:
        x = np.conj(solve_triangular(a, np.conj(b), upper=upper, left=True, unit=unit, adjoint=True))
    else:
        x = solve_triangular(a, b, upper=upper, left=True, unit=unit, adjoint=False)
    return x, np.broadcast_to(a, x.shape[:-2] + a.shape[-2:]).copy()


# ------------------------------------------------------------------ Cholesky
@quiet
def _leading_minors(a):
    """Computes the unblocked factorization of one matrix (LAPACK's potf2).

    Returns (L, 0), or (partial L, k) if the leading minor of order k is the first that is not
    positive. Unlike OpenBLAS's potrf it detects nan and infinite elements. Elements that were not
    reached keep their values.
    """
    low = np.tril(a)
    n = len(low)
    for j in range(n):
        d = low[j, j].real - (np.abs(low[j, :j]) ** 2).sum()
        if not d > 0:
            low[j, j] = d
            return low, j + 1
        d = np.sqrt(d)
        low[j, j] = d
        if j + 1 < n:
            low[j + 1:, j] = (low[j + 1:, j] - low[j + 1:, :j] @ np.conj(low[j, :j])) / d
    return low, 0


def _potrf(a):
    # Pass the transpose, as in `_getri`: 256x256 takes 404 us, with `a` itself 624 us.
    r, info = routine("potrf", a.dtype)(a.T, lower=0, clean=1)
    if info:
        raise _NP_ERROR
    return (r.T,)


def _np_cholesky(a):
    # 16x16: 5 us, in NumPy 16 us
    return each(_potrf, a)[0] if large(a) or a.ndim == 2 and a.size else np.linalg.cholesky(a)


@quiet
def _all_factors(a, upper):
    """Returns L or U if all matrices have a factorization, else None."""
    try:
        r = _np_cholesky(h(a) if upper else a)
    except _NP_ERROR:
        return None
    if not math.isfinite(abs(r.diagonal(0, -2, -1).sum())):
        return None
    return np.ascontiguousarray(h(r)) if upper else r


@kernel("linalg_cholesky_ex")
@quiet
def cholesky(a, *, upper):
    """Returns (L or U, info), computed from the requested triangle.

    info k means that the leading minor of order k is not positive-definite.
    """
    info = np.zeros(a.shape[:-2], np.int32)
    r = _all_factors(a, upper)
    if r is not None:
        return r, info
    if upper:
        a = h(a)
    r = np.empty(a.shape, a.dtype)
    o, codes = stack_of(r), info.reshape(-1)
    for i, x in enumerate(stack_of(a)):
        try:
            o[i] = _np_cholesky(x)
            if np.isfinite(np.diagonal(o[i])).all():
                continue
        except _NP_ERROR:
            pass
        o[i], codes[i] = _leading_minors(x)
    return (np.ascontiguousarray(h(r)) if upper else r), info


@kernel("linalg_cholesky cholesky")
def _cholesky_or_raise(a, *, upper, name):
    r = _all_factors(a, upper)
    if r is not None:
        return r
    r, info = cholesky(a, upper=upper)
    if info.any():
        raise not_definite(name, a.shape, info)
    return r


@kernel("cholesky_solve")
@quiet
def cholesky_solve(b, f, *, upper):
    """Solves A X = B from the Cholesky factor of A."""
    y = solve_triangular(f, b, upper=upper, left=True, unit=False, adjoint=upper)
    return solve_triangular(f, y, upper=upper, left=True, unit=False, adjoint=not upper)


@kernel("cholesky_inverse")
def _cholesky_inverse(f, *, upper):
    zero = f.diagonal(0, -2, -1) == 0
    if zero.any():
        raise singular_inverse("cholesky_inverse", f.shape, np.where(zero.any(-1), zero.argmax(-1) + 1, 0))
    eye = np.broadcast_to(np.eye(f.shape[-1], dtype=f.dtype), f.shape)
    return cholesky_solve(eye, f, upper=upper)


# ------------------------------------------------------------------ inverse and systems
@quiet
def inv(a):
    """Returns the inverse. Raises numpy.linalg.LinAlgError if a matrix is singular."""
    return each(_getri, a)[0] if large(a) else np.linalg.inv(a)


def _getri(a):
    # Fortran reads the transpose of a C-order array without a copy. The inverse of the transpose
    # returns in the same layout.
    lu, p, info = routine("getrf", a.dtype)(a.T)
    if info:
        raise _NP_ERROR
    return (routine("getri", a.dtype)(lu, p, lwork=64 * len(a))[0].T,)


def _gesv(a, b):
    x, info = routine("gesv", a.dtype)(a, b)[2:]
    if info:
        raise _NP_ERROR
    return (x,)


def _np_solve(a, b):
    if not large(a) or not b.size:
        return np.linalg.solve(a, b)
    if a.ndim > 2 or b.ndim > 2:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = np.broadcast_to(a, batch + a.shape[-2:]), np.broadcast_to(b, batch + b.shape[-2:])
    return each(_gesv, a, b)[0]


@quiet
def solve_by_lu(a, b, *, left):
    """Returns (X, info), computed matrix by matrix.

    Singular matrices give inf and nan, from the division by a zero pivot.
    """
    if not left:
        lu, pivots, info = lu_factor(np.ascontiguousarray(a.swapaxes(-1, -2)))
        x = _by_triangles(lu, pivots, b.swapaxes(-1, -2))
        return np.ascontiguousarray(x.swapaxes(-1, -2)), info
    lu, pivots, info = lu_factor(a)
    return _by_triangles(lu, pivots, b), info


def _by_triangles(lu, pivots, b):
    order = permutation(pivots, lu.shape[-1])
    batch = np.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    b = np.broadcast_to(b, batch + b.shape[-2:])
    y = np.take_along_axis(b, np.broadcast_to(order, batch + order.shape[-1:])[..., None], -2)
    y = solve_triangular(lu, y, upper=False, left=True, unit=True, adjoint=False)
    return solve_triangular(lu, y, upper=True, left=True, unit=False, adjoint=False)


@quiet
def solve(a, b, *, left):
    """Solves A X = B (X A = B if not `left`). Raises numpy.linalg.LinAlgError if a matrix is
    singular."""
    if b.ndim < a.ndim:
        # NumPy would treat B with one dimension less as a batch of vectors.
        b = b.reshape((1,) * (a.ndim - b.ndim) + b.shape)
    if left:
        return _np_solve(a, b)
    return np.ascontiguousarray(_np_solve(a.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2))


def _inv_by_lu(a):
    eye = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return solve_by_lu(a, eye, left=True)


@kernel("linalg_inv")
def _inv_or_raise(a):
    try:
        return inv(a)
    except _NP_ERROR:
        r, info = _inv_by_lu(a)
        if not info.any():
            return r
        raise singular_inverse("linalg.inv", a.shape, info) from None


@kernel("linalg_inv_ex")
def _inv_ex(a):
    try:
        return inv(a), np.zeros(a.shape[:-2], np.int32)
    except _NP_ERROR:
        return _inv_by_lu(a)


def _as_matrix(b, vector):
    return b[..., None] if vector else b


@kernel("linalg_solve")
def _solve_or_raise(a, b, *, left, vector):
    m = _as_matrix(b, vector)
    try:
        r = solve(a, m, left=left)
    except _NP_ERROR:
        r, info = solve_by_lu(a, m, left=left)
        if info.any():
            raise singular_system("torch.linalg.solve", a.shape, info) from None
    return r[..., 0] if vector else r


@kernel("linalg_solve_ex")
def _solve_ex(a, b, *, left, vector):
    m = _as_matrix(b, vector)
    try:
        r, info = solve(a, m, left=left), np.zeros(a.shape[:-2], np.int32)
    except _NP_ERROR:
        r, info = solve_by_lu(a, m, left=left)
    return (r[..., 0] if vector else r), info


# ------------------------------------------------------------------ determinants
def _pivots_of(a):
    """Returns (diagonal of U, sign of the permutation) of large matrices."""
    lu, pivots, _ = lu_factor(a)
    is_odd = (pivots != np.arange(1, a.shape[-1] + 1)).sum(-1) % 2
    return np.diagonal(lu, 0, -2, -1), np.where(is_odd, -1, 1).astype(REAL[a.dtype.char])


@kernel("linalg_det")
@quiet
def det(a):
    if large(a):
        d, sign = _pivots_of(a)
        return np.asarray(d.prod(-1) * sign, a.dtype)
    return np.asarray(np.linalg.det(a))


@kernel("linalg_slogdet")
@quiet
def slogdet(a):
    if large(a):
        d, sign = _pivots_of(a)
        size = np.abs(d)
        phase = np.where(size == 0, 0, d / np.where(size == 0, 1, size))
        return np.asarray(phase.prod(-1) * sign, a.dtype), np.asarray(np.log(size).sum(-1))
    sign, logabs = np.linalg.slogdet(a)
    return np.asarray(sign, a.dtype), np.asarray(logabs, REAL[a.dtype.char])


@kernel("linalg_adjugate")
@quiet
def adjugate(a):
    """Returns adj(A) = det(A) A^-1. For singular matrices it is computed from the singular value
    decomposition."""
    if a.shape[-1] == 0:
        return np.zeros(a.shape, a.dtype)
    try:
        r = np.linalg.inv(a) * np.linalg.det(a)[..., None, None]
        if np.isfinite(r).all() or not np.isfinite(a).all():
            return r.astype(a.dtype, copy=False)
    except _NP_ERROR:
        pass
    u, s, vh = np.linalg.svd(a)
    n = a.shape[-1]
    others = np.stack([np.prod(np.delete(s, i, -1), -1) for i in range(n)], -1)
    phase = np.linalg.det(u) * np.linalg.det(vh)
    return ((h(vh) * (others * phase[..., None])[..., None, :]) @ h(u)).astype(a.dtype, copy=False)


# ------------------------------------------------------------------ orthogonal factors
@kernel("geqrf")
def geqrf(a):
    """Returns (reflectors below the diagonal with R above, tau)."""
    m, n = a.shape[-2:]
    out = np.empty(a.shape, a.dtype)
    tau = np.zeros(a.shape[:-2] + (min(m, n),), a.dtype)
    if out.size:
        f = routine("geqrf", a.dtype)
        o, t = stack_of(out), tau.reshape(-1, tau.shape[-1])
        for i, x in enumerate(stack_of(a)):
            o[i], t[i] = f(x)[:2]
    return out, tau


def reflectors(a, k):
    """Returns the unit lower trapezoids V of the first k reflectors."""
    v = np.tril(a[..., :k], -1)
    i = np.arange(k)
    v[..., i, i] = 1
    return v


@quiet
def apply_reflectors(v, tau, c, adjoint):
    """Computes H_1 ... H_k C, or the adjoint of the product times C.

    Uses I - V T V^H with T = (I + D triu(V^H V, 1))^-1 D, D = diag(tau).
    """
    d = tau[..., :, None]
    w = h(v) @ c
    m = np.triu(h(v) @ v, 1) * d
    i = np.arange(m.shape[-1])
    m[..., i, i] += 1
    t = np.conj(d) * np.linalg.solve(h(m), w) if adjoint else np.linalg.solve(m, d * w)
    return c - v @ t


@kernel("linalg_householder_product")
def _householder(a, tau):
    m, n = a.shape[-2:]
    c = np.broadcast_to(np.eye(m, n, dtype=a.dtype), a.shape)
    return apply_reflectors(reflectors(a, tau.shape[-1]), tau, c, False)


@kernel("ormqr")
def _ormqr(a, tau, c, *, left, transpose):
    v = reflectors(a, tau.shape[-1])
    if left:
        return apply_reflectors(v, tau, c, transpose)
    return np.ascontiguousarray(h(apply_reflectors(v, tau, h(c), not transpose)))


def _qr_of(a, mode):
    m, n = a.shape
    k, work = min(m, n), 32 * max(m, n)
    f, tau, _, _ = routine("geqrf", a.dtype)(a, lwork=work)
    r = np.triu(f if mode == "complete" else f[:k])
    if mode == "r":
        return (r,)
    if mode == "complete" and m > n:
        q = np.empty((m, m), a.dtype, order="F")
        q[:, :n] = f
    else:
        q = f[:, :k]
    return routine("orgqr", a.dtype)(q, tau, lwork=work)[0], r


@kernel("linalg_qr")
def qr(a, *, mode):
    """Returns (Q, R).

    Stacks of small matrices use NumPy, which computes in double precision at little cost. A single
    16x16 matrix takes 49 us in NumPy, 32 us by direct LAPACK calls.
    """
    if a.ndim == 2 and a.size or large(a) and a.shape[-2] >= 64:
        r = each(lambda x: _qr_of(x, mode), a)
        return r if mode != "r" else (np.zeros((0,), a.dtype), *r)
    if mode == "r":
        return np.zeros((0,), a.dtype), np.linalg.qr(a, "r")
    q, r = np.linalg.qr(a, mode)
    return q, r


# ------------------------------------------------------------------ symmetric indefinite
@kernel("linalg_ldl_factor_ex")
def ldl_factor(a, *, hermitian):
    """Returns (LD, pivots, info) of the lower triangle, with Bunch-Kaufman pivoting."""
    n = a.shape[-1]
    out = np.empty(a.shape, a.dtype)
    pivots = np.zeros(a.shape[:-1], np.int32)
    info = np.zeros(a.shape[:-2], np.int32)
    if out.size:
        f = routine("hetrf" if hermitian and a.dtype.kind == "c" else "sytrf", a.dtype)
        o, p, codes = stack_of(out), pivots.reshape(-1, n), info.reshape(-1)
        for i, x in enumerate(stack_of(a)):
            ld, p[i], codes[i] = f(x, lower=1)
            o[i] = np.tril(ld)
    return out, pivots, info


@kernel("linalg_ldl_solve")
@quiet
def ldl_solve(ld, pivots, b, *, hermitian):
    """Solves A X = B from the factors of `ldl_factor`."""
    batch = np.broadcast_shapes(ld.shape[:-2], b.shape[:-2])
    out = np.empty(batch + b.shape[-2:], b.dtype)
    if out.size:
        f = routine("hetrs" if hermitian and b.dtype.kind == "c" else "sytrs", b.dtype)
        ld = np.broadcast_to(ld, batch + ld.shape[-2:])
        p = np.broadcast_to(pivots, batch + pivots.shape[-1:]).reshape(-1, pivots.shape[-1]).astype(np.int32)
        o = stack_of(out)
        for i, (x, y) in enumerate(zip(stack_of(ld), stack_of(np.broadcast_to(b, out.shape)))):
            o[i] = f(x, p[i], y, lower=1)[0]
    return out
