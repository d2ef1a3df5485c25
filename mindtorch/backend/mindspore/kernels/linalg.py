"""Factorizations, inverses and linear systems that MindSpore's CPU target computes correctly. The
others use the host kernels.

MindSpore's inverse (MatrixInverse) returns finite values for singular matrices and for NaN without
an error. Inverses are therefore computed as solutions by MatrixSolve, which reports singular
matrices. Ops that raise for singular matrices synchronize, as in PyTorch. The host kernel reports
which matrix was singular and computes results that are not finite.
"""
import numpy as np

from mindtorch.backend.kernels import TABLES
from mindtorch.backend.mindspore.kernels import FLOATS, _ops as o
from mindtorch.backend.mindspore.kernels._call import (stype_of, COMPLEX, UnsupportedByKernel, P, broadcast, dtype_of, from_contiguous, host_span, kernel,
                                                       number, op, reshape, shape_of)
from mindtorch.backend.mindspore.kernels._index_utils import cpu_kernel, dense, fresh, stacks
from mindtorch.backend.mindspore.kernels.matmul import batched, turned
from mindtorch.backend.mindspore.kernels.reduction import copied, sums

_ANY = "float32 float64 complex64 complex128"


def _taint(a):
    """Returns 0 for each finite matrix and NaN for others, for which the result of Svd is
    meaningless."""
    n = len(shape_of(a))
    return sums(op(P.Mul)(a, number(0.0, dtype_of(a))), (n - 2, n - 1), True)


@kernel("linalg_svdvals", target="CPU", only=FLOATS)
def _svdvals(a):
    s = op(P.Svd, False, False)(a)[0]
    return op(P.Add)(s, reshape(_taint(a), (*shape_of(s)[:-1], 1)))


@kernel("linalg_svd", target="CPU", only=FLOATS)
def _svd(a, *, full):
    """Returns (u, s, vh)."""
    s, u, v = op(P.Svd, full, True)(a)
    bad = _taint(a)
    return op(P.Add)(u, bad), op(P.Add)(s, reshape(bad, (*shape_of(s)[:-1], 1))), copied(op(P.Add)(turned(v), bad))


# ------------------------------------------------------------------ constant matrices, transposes
cpu_kernel("eye_like", lambda a, *, m, n: from_contiguous(np.eye(m, n, dtype=stype_of(a))))


def _t(a):
    """Returns the transpose as a copy."""
    return fresh(turned(a))


def _h(a):
    """Returns the conjugate transpose as a copy."""
    a = _t(a)
    return op(P.Conj)(a) if dtype_of(a) in COMPLEX else a


cpu_kernel("adjoint", _h, only=_ANY)


cpu_kernel("transposed_copy", lambda a: from_contiguous(np.array(host_span(a).swapaxes(-1, -2), order="C")), half=True)


def _broadcast_matrix(matrix, shape):
    """Broadcasts a constant NumPy matrix to a stack of matrices."""
    return from_contiguous(np.array(np.broadcast_to(matrix, shape), order="C"))


def _masked(a, mask):
    """Returns `a` where the bool table over the last two dimensions is True, else 0."""
    shape = shape_of(a)
    zero = from_contiguous(np.zeros(shape, stype_of(a)))
    return op(P.Select)(_broadcast_matrix(mask, shape), dense(a), zero)


# ------------------------------------------------------------------ fallback to host kernels
def _by_host(name, ins, kw):
    """Returns the host kernel's result, or raises its error."""
    r = TABLES["cpu"][name](*[None if x is None else host_span(x) for x in ins], **kw)
    return tuple([from_contiguous(np.ascontiguousarray(x).reshape(x.shape)) for x in r]) if r.__class__ is tuple else from_contiguous(
        np.ascontiguousarray(r).reshape(r.shape))


def _finite_result(prim, *ins):
    """Runs a primitive and waits for its result. Returns None if MindSpore raises an error for
    these values or the result is not finite."""
    try:
        r = dense(prim(*ins))
        return r if np.isfinite(host_span(r)).all() else None
    except (ValueError, RuntimeError):  # not invertible, or not positive definite
        return None


def _info(a):
    """Returns an `info` of 0 (success) for each matrix."""
    return from_contiguous(np.zeros(shape_of(a)[:-2], np.int32))


# ------------------------------------------------------------------ systems and inverses
def _solution(a, b, left, vector):
    """Returns X with A X = B (or X A = B), or None if the host kernel has to report the error."""
    if vector:
        b = reshape(b, (*shape_of(b), 1))
    if not left:
        a, b = turned(a), turned(b)
    r = _finite_result(op(P.MatrixSolve), *stacks(a, b))
    if r is None:
        return None
    if not left:
        r = _t(r)
    return reshape(r, shape_of(r)[:-1]) if vector else r


def _eye(a):
    return _broadcast_matrix(np.eye(shape_of(a)[-1], dtype=stype_of(a)), shape_of(a))


@cpu_kernel("linalg_solve", only=_ANY)
def _solve(a, b, *, left, vector):
    r = _solution(a, b, left, vector)
    return _by_host("linalg_solve", (a, b), {"left": left, "vector": vector}) if r is None else r


@cpu_kernel("linalg_solve_ex", only=_ANY)
def _solve_ex(a, b, *, left, vector):
    r = _solution(a, b, left, vector)
    return _by_host("linalg_solve_ex", (a, b), {"left": left, "vector": vector}) if r is None else (r, _info(a))


@cpu_kernel("linalg_inv", only=_ANY)
def _inv(a):
    r = _finite_result(op(P.MatrixSolve), dense(a), _eye(a))
    return _by_host("linalg_inv", (a,), {}) if r is None else r


@cpu_kernel("linalg_inv_ex", only=_ANY)
def _inv_ex(a):
    r = _finite_result(op(P.MatrixSolve), dense(a), _eye(a))
    return _by_host("linalg_inv_ex", (a,), {}) if r is None else (r, _info(a))


cpu_kernel("linalg_matrix_power", _eye)  # power 0 of every matrix


# ------------------------------------------------------------------ triangular systems
def _by_triangle(a, b, upper, unit, adjoint):
    """Solves op(A) X = B for a triangular A."""
    a, b = stacks(a, b)
    if unit:
        k = shape_of(a)[-1]
        a = o.where(_broadcast_matrix(np.eye(k, dtype=bool), shape_of(a)), _eye(a), a)
    return op(P.MatrixTriangularSolve, not upper, adjoint)(a, b)


@cpu_kernel("linalg_solve_triangular", only=_ANY)
def _solve_triangular(a, b, *, upper, left, unit, adjoint):
    if left:
        return _by_triangle(a, b, upper, unit, adjoint)
    # X op(A) = B is equivalent to op(A)^T X^T = B^T.
    if not adjoint:
        return _t(_by_triangle(_t(a), _t(b), not upper, unit, False))
    return _h(_by_triangle(a, _h(b), upper, unit, False))


@cpu_kernel("triangular_solve", only=_ANY)
def _old_triangular_solve(b, a, *, upper, transpose, unit):
    x = _by_triangle(_t(a), b, not upper, unit, False) if transpose else _by_triangle(a, b, upper, unit, False)
    return x, fresh(broadcast(a, (*shape_of(x)[:-2], *shape_of(a)[-2:])))


@cpu_kernel("cholesky_solve", only=_ANY)
def _cholesky_solve(b, f, *, upper):
    return _by_triangle(f, _by_triangle(f, b, upper, False, upper), upper, False, not upper)


@cpu_kernel("cholesky_inverse", only=_ANY)
def _cholesky_inverse(f, *, upper):
    r = _finite_result(lambda: _cholesky_solve(_eye(f), f, upper=upper))
    return _by_host("cholesky_inverse", (f,), {"upper": upper}) if r is None else r


# ------------------------------------------------------------------ Cholesky
def _factor(a, upper):
    """Returns L or U, or None if the host kernel has to report the error. Only the requested
    triangle is read; the other is mirrored from it, because Cholesky rejects asymmetric matrices.
    """
    if upper:
        a = turned(a)
    a, n = dense(a), shape_of(a)[-1]
    low = np.tri(n, dtype=bool)
    r = _finite_result(op(P.Cholesky), o.where(_broadcast_matrix(low, shape_of(a)), a, _t(a)))
    return r if r is None or not upper else _t(r)


@cpu_kernel("linalg_cholesky_ex", only=FLOATS)
def _cholesky_ex(a, *, upper):
    r = _factor(a, upper)
    return _by_host("linalg_cholesky_ex", (a,), {"upper": upper}) if r is None else (r, _info(a))


@cpu_kernel("linalg_cholesky cholesky", only=FLOATS)
def _cholesky(a, *, upper, name):
    r = _factor(a, upper)
    return _by_host("linalg_cholesky", (a,), {"upper": upper, "name": name}) if r is None else r


# ------------------------------------------------------------------ determinants
@cpu_kernel("linalg_det", only=_ANY)
def _det(a):
    if shape_of(a)[-1] < 2:
        return reshape(fresh(a), shape_of(a)[:-2])
    return op(P.MatrixDeterminant)(dense(a))


@cpu_kernel("linalg_slogdet", only=FLOATS)
def _slogdet(a):
    """Returns (sign, log of the absolute value). The magnitude of MindSpore's sign is off 1 by many
    rounding errors, hence `sign`. For a matrix with NaN both outputs are meaningless, hence
    `_taint`."""
    if shape_of(a)[-1] < 2:
        a = reshape(fresh(a), shape_of(a)[:-2])
        return o.sign(a), o.log(o.abs_(a))
    bad = reshape(_taint(a), shape_of(a)[:-2])
    sign, size = op(P.LogMatrixDeterminant)(dense(a))
    return o.add(o.sign(sign), bad), o.add(size, bad)


@cpu_kernel("linalg_adjugate", only=_ANY)
def _adjugate(a):
    """Computes det(A) A^-1. Singular matrices use the host kernel."""
    r = _finite_result(op(P.MatrixSolve), dense(a), _eye(a))
    d = _det(a)
    return _by_host("linalg_adjugate", (a,), {}) if r is None or not host_span(d).all() else o.mul(r, reshape(d, (*shape_of(d), 1, 1)))


# ------------------------------------------------------------------ orthogonal factors
@cpu_kernel("linalg_qr", only=_ANY)
def _qr(a, *, mode):
    q, r = op(P.Qr, mode == "complete")(dense(a))
    if not np.isfinite(host_span(r)).all():
        return _by_host("linalg_qr", (a,), {"mode": mode})
    return (from_contiguous(np.zeros((0,), stype_of(a))), r) if mode == "r" else (q, r)


cpu_kernel("geqrf", lambda a: tuple(op(P.Geqrf)(dense(a))), only=FLOATS)


def _reflectors(a, k):
    """Returns the unit lower trapezoidal matrices V of the first k reflectors."""
    shape = shape_of(a)
    a = dense(op(P.Slice)(dense(a), (0,) * len(shape), (*shape[:-1], k)))
    low = np.tri(shape[-2], k, -1, dtype=bool)
    return o.add(_masked(a, low), _broadcast_matrix(np.eye(shape[-2], k, dtype=stype_of(a)), shape_of(a)))


def _reflected(v, tau, c, adjoint):
    """Computes H_1 ... H_k C, or its adjoint times C, as I - V T V^H with T = (I + D triu(V^H V,
    1))^-1 D and D = diag(tau)."""
    d = reshape(tau, (*shape_of(tau), 1))
    vh = _h(v)
    w, m = batched(vh, c), batched(vh, v)
    k = shape_of(tau)[-1]
    m = o.add(o.mul(_masked(m, ~np.tri(k, dtype=bool)), d), _eye(m))
    if adjoint:
        t = o.mul(op(P.Conj)(d) if dtype_of(d) in COMPLEX else d, _by_triangle(_h(m), w, False, False, False))
    else:
        t = _by_triangle(m, o.mul(d, w), True, False, False)
    return o.sub(c, batched(v, t))


@cpu_kernel("linalg_householder_product", only=_ANY)
def _householder(a, tau):
    shape, k = shape_of(a), shape_of(tau)[-1]
    if not k:
        raise UnsupportedByKernel
    c = _broadcast_matrix(np.eye(*shape[-2:], dtype=stype_of(a)), shape)
    return fresh(_reflected(_reflectors(a, k), tau, c, False))


@cpu_kernel("ormqr", only=_ANY)
def _ormqr(a, tau, c, *, left, transpose):
    k = shape_of(tau)[-1]
    if not k:
        raise UnsupportedByKernel
    v = _reflectors(a, k)
    return fresh(_reflected(v, tau, c, transpose)) if left else _h(_reflected(v, tau, _h(c), not transpose))
