"""Singular values, eigenvalues, pseudo-inverse, rank, least squares, matrix exponential: arrays in,
arrays out.

NumPy or scipy is chosen as in linalg.py.
"""
import math

import numpy as np

from mindtorch.backend.cpu import kernel, threads
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.linalg import EPS, REAL, each, h, large, routine, stack_of
from mindtorch.backend.cpu.pointwise import mismatch
from mindtorch.backend.errors import LinAlgError, batch_element, first

_NP_ERROR = np.linalg.LinAlgError
_COMPLEX = {"f": np.dtype(np.complex64), "F": np.dtype(np.complex64), "d": np.dtype(np.complex128), "D": np.dtype(np.complex128)}


# ------------------------------------------------------------------ singular values and eigenvalues
def _scipy_can(a):
    """True if scipy's drivers can be used.

    They reject non-finite input, for which PyTorch returns NaN or raises its own error.
    """
    if not large(a) or not np.isfinite(a).all():
        return False
    threads.follow_scipy()
    return True


def _svd_of(a, full):
    """Returns (U, S, V^H). Raises numpy.linalg.LinAlgError if the iteration fails."""
    if a.shape[-2] >= 64 and _scipy_can(a):
        from scipy.linalg import svd
        return each(lambda x: svd(x, full_matrices=full, check_finite=False), a)
    return tuple(np.linalg.svd(a, full))


def _svdvals_of(a):
    if a.shape[-2] >= 64 and _scipy_can(a):
        from scipy.linalg import svd
        return each(lambda x: (svd(x, compute_uv=False, check_finite=False),), a)[0]
    return np.linalg.svd(a, compute_uv=False)


def _eigh_of(a, lower):
    """Returns (eigenvalues, eigenvectors) of Hermitian matrices."""
    if _scipy_can(a):
        from scipy.linalg import eigh
        return each(lambda x: eigh(x, lower=lower, driver="evd", check_finite=False), a)
    return tuple(np.linalg.eigh(a, "L" if lower else "U"))


def _eigvalsh_of(a, lower):
    # A finite sum implies finite elements, and takes a third of the time of checking each.
    if (large(a) or a.ndim == 2 and a.size) and math.isfinite(abs(a.sum())):
        evd = routine("heevd" if a.dtype.kind == "c" else "syevd", a.dtype)
        work = 34 * a.shape[-1]  # room for blocks: 256x256 takes 2.0 ms, with the minimum 2.7 ms

        def one(x):
            # LAPACK reads the transpose without a copy. The transpose of a Hermitian matrix has the
            # same eigenvalues.
            w, _, info = evd(x.T, compute_v=0, lower=not lower, lwork=work)
            if info:
                raise _NP_ERROR
            return (w,)
        return each(one, a)[0]
    return np.linalg.eigvalsh(a, "L" if lower else "U")


def _eig_of(a, vectors):
    """Returns (eigenvalues, eigenvectors), or (eigenvalues,), complex."""
    c = _COMPLEX[a.dtype.char]
    if _scipy_can(a):
        from scipy.linalg import eig
        r = each(lambda x: eig(x, check_finite=False) if vectors else (eig(x, right=False, check_finite=False),), a)
    else:
        r = tuple(np.linalg.eig(a)) if vectors else (np.linalg.eigvals(a),)
    return tuple(x.astype(c, copy=False) for x in r)


def _not_converged(f, a):
    for i, x in enumerate(stack_of(a)):
        if not np.isfinite(x).all():
            return LinAlgError(f"{f}: {batch_element(a.shape, i)}The algorithm failed to converge because the input "
                               "matrix contained non-finite values.")
    return LinAlgError(f"{f}: The algorithm failed to converge because the input matrix is ill-conditioned or has too "
                       "many repeated singular values.")


def _no_eigenvalues(f):
    return LinAlgError(f"{f}: The algorithm failed to converge because the input matrix is ill-conditioned or has too "
                       "many repeated eigenvalues.")


def _iterative(name, compute, error):
    """Registers and returns a kernel that raises error(a) if the iteration of `compute` fails."""
    @kernel(name)
    @quiet
    def decompose(a, **options):
        try:
            return compute(a, **options)
        except _NP_ERROR:
            raise error(a) from None
    return decompose


def _finite(a):
    """Returns the array. RuntimeError if an element is not finite."""
    if not np.isfinite(a).all():
        raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    return a


_svd = _iterative("linalg_svd", _svd_of, lambda a: _not_converged("linalg.svd", a))
_svdvals = _iterative("linalg_svdvals", _svdvals_of, lambda a: _not_converged("linalg.svd", a))
_eigh = _iterative("linalg_eigh", _eigh_of, lambda a: _no_eigenvalues("linalg.eigh"))
_eigvalsh = _iterative("linalg_eigvalsh", _eigvalsh_of, lambda a: _no_eigenvalues("linalg.eigh"))
_iterative("linalg_eig", lambda a: _eig_of(_finite(a), True), lambda a: _no_eigenvalues("linalg.eig"))
_iterative("linalg_eigvals", lambda a: _eig_of(_finite(a), False)[0], lambda a: _no_eigenvalues("linalg.eig"))


@kernel("depends_on_phase")
@quiet
def _depends_on_phase(k, m, gk, gm, *, divisor):
    """True if a loss depends on the phases of complex vectors, which are determined only up to a
    phase.

    k and m are the gradients gk and gm of the vectors, expressed in terms of the vectors. The
    imaginary parts of their diagonals are `divisor` times the derivatives in the direction of the
    phases.
    """
    imag, scale = 0.0, 0.0
    for x, g in ((k, gk), (m, gm)):
        if x is not None and x.size:
            imag = imag + x.diagonal(0, -2, -1).imag / divisor
            scale = max(scale, float(np.abs(g).max()))
    if not isinstance(imag, np.ndarray) or not imag.size:
        return np.asarray(False)
    tol = 1e-2 if imag.dtype == np.float32 else 1e-6
    return np.asarray(not (np.abs(imag) <= tol * (1.0 + scale)).all() and np.isfinite(imag).all())


# ------------------------------------------------------------------ what counts as zero
def _tolerances(a, atol, rtol):
    """Returns (atol, rtol) in a's precision.

    Without rtol it is eps * max(m, n), or 0 if a positive atol is passed.
    """
    real = REAL[a.dtype.char]
    if rtol is None:
        default = EPS[a.dtype.char] * max(a.shape[-2:])
        rtol = np.asarray(default) if atol is None else np.where(atol > 0, 0.0, default)
    return (np.zeros(()) if atol is None else atol).astype(real), rtol.astype(real)


def _nonzero_mask(s, top, atol, rtol):
    """Returns a mask of the singular values (or absolute eigenvalues) that count as nonzero."""
    for t in (atol, rtol):
        error = mismatch(t.shape, top.shape)
        if error is not None:
            raise error
    return s > np.maximum(atol, rtol * top)[..., None]


@kernel("linalg_pinv")
@quiet
def _pinv(a, atol, rtol, *, hermitian):
    if not a.size:
        return np.zeros(a.shape[:-2] + a.shape[:-3:-1], a.dtype)
    atol, rtol = _tolerances(a, atol, rtol)
    if hermitian:
        s, u = _eigh(a, lower=True)
        size = np.abs(s)
        inverse = np.where(_nonzero_mask(size, size.max(-1), atol, rtol), 1 / s, 0).astype(s.dtype)
        return np.matmul(u * inverse[..., None, :], h(u))
    u, s, vh = _svd(a, full=False)
    inverse = np.where(_nonzero_mask(s, s[..., 0], atol, rtol), 1 / s, 0).astype(s.dtype)
    return np.matmul(h(vh) * inverse[..., None, :], h(u))


@kernel("linalg_matrix_rank")
@quiet
def _rank(a, atol, rtol, *, hermitian):
    atol, rtol = _tolerances(a, atol, rtol)
    if not a.size:
        batch = np.broadcast_shapes(a.shape[:-2], atol.shape, rtol.shape)
        return np.zeros(batch, np.int64)
    if hermitian:
        s = np.abs(_eigvalsh(a, lower=True))
        top = s.max(-1)
    else:
        s = _svdvals(a)
        top = s[..., 0]
    return np.asarray(_nonzero_mask(s, top, atol, rtol).sum(-1, dtype=np.int64))


# ------------------------------------------------------------------ least squares
def _lstsq_of(a, b, rcond, driver):
    """Returns (X, residuals, rank, singular values, info) of one LAPACK driver; zeros for what it
    does not compute."""
    m, n = a.shape[-2:]
    nrhs = b.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.zeros(batch + (n, nrhs), a.dtype)
    rest = np.zeros(batch + (nrhs,), REAL[a.dtype.char])
    rank = np.zeros(batch, np.int64)
    values = np.zeros(batch + (min(m, n),), REAL[a.dtype.char])
    info = np.zeros(batch, np.int32)
    if a.size and b.size:
        x3, e, s = stack_of(x), rest.reshape(-1, nrhs), values.reshape(-1, min(m, n))
        r, c = rank.reshape(-1), info.reshape(-1)
        a3 = stack_of(np.broadcast_to(a, batch + a.shape[-2:]))
        for i, (y, z) in enumerate(zip(a3, stack_of(np.broadcast_to(b, batch + b.shape[-2:])))):
            full, r[i], found, c[i] = _lstsq_one(y, z, rcond, driver)
            x3[i] = full[:n]
            if found is not None:
                s[i] = found
            e[i] = (np.abs(full[n:]) ** 2).sum(0)
    elif b.size and n == 0:
        rest[...] = (np.abs(b) ** 2).sum(-2)
    return x, rest, rank, values, info


def _lstsq_one(a, b, rcond, driver):
    m, n = a.shape
    if m < n:
        b = np.concatenate([b, np.zeros((n - m, b.shape[1]), b.dtype)])
    if driver == "gels":
        _, x, info = routine("gels", a.dtype)(a, b)
        return x, 0, None, info
    if driver == "gelsy":
        work = routine("gelsy_lwork", a.dtype)(m, n, b.shape[1], rcond)[0]
        _, x, _, rank, info = routine("gelsy", a.dtype)(a, b, np.zeros(n, np.int32), rcond, int(work.real))
        return x, rank, None, info
    if driver == "gelsd":
        sizes = routine("gelsd_lwork", a.dtype)(m, n, b.shape[1], rcond)
        args = [int(np.real(w)) for w in sizes[:-1]]
        x, s, rank, info = routine("gelsd", a.dtype)(a, b, *args, cond=rcond)
        return x, rank, s, info
    _, x, s, rank, _, info = routine("gelss", a.dtype)(a, b, cond=rcond)
    return x, rank, s, info


@kernel("linalg_lstsq")
def _lstsq(a, b, *, rcond, driver):
    if rcond is None:
        rcond = EPS[a.dtype.char] * max(a.shape[-2:])
    x, rest, rank, found, info = _lstsq_of(a, b, rcond, driver)
    if driver == "gels" and info.any():
        i, code = first(info)
        raise LinAlgError(f"torch.linalg.lstsq: {batch_element(a.shape, i)}The least squares solution could not be "
                          f"computed because the input matrix does not have full rank (error code: {code}).")
    return x, rest, rank, found


# ------------------------------------------------------------------ exponential
# Numerator coefficients of the diagonal Pade approximants to exp, and the norms up to which each
# keeps double precision (Higham, "The scaling and squaring method for the matrix exponential
# revisited", SIAM Review 51, 2009).
_PADE = {3: (120., 60., 12., 1.), 5: (30240., 15120., 3360., 420., 30., 1.),
         7: (17297280., 8648640., 1995840., 277200., 25200., 1512., 56., 1.),
         9: (17643225600., 8821612800., 2075673600., 302702400., 30270240., 2162160., 110880., 3960., 90., 1.),
         13: (64764752532480000., 32382376266240000., 7771770303897600., 1187353796428800., 129060195264000.,
              10559470521600., 670442572800., 33522128640., 1323241920., 40840800., 960960., 16380., 182., 1.)}
_THETA = {"d": {3: 1.495585217958292e-2, 5: 2.539398330063230e-1, 7: 9.504178996162932e-1, 9: 2.097847961257068,
                13: 5.371920351148152},
          "f": {3: 4.258730016922831e-1, 5: 1.880152677804762, 7: 3.925724783138660}}


@kernel("linalg_matrix_exp")
@quiet
def matrix_exp(a):
    """Computes exp(A) by scaling and squaring."""
    n = a.shape[-1]
    if not a.size:
        return np.zeros(a.shape, a.dtype)
    norm = float(np.abs(a).sum(-2).max())
    theta = _THETA["f" if a.dtype.char in "fF" else "d"]
    top = max(theta)
    if not np.isfinite(norm):
        # Only the matrices with non-finite elements become NaN, not the complete batch.
        r = np.full(a.shape, np.nan, a.dtype)
        for i, x in enumerate(stack_of(a)):
            if np.isfinite(x).all():
                stack_of(r)[i] = matrix_exp(x)
        return r
    squarings = 0
    m = min((k for k, limit in theta.items() if norm <= limit), default=None)
    if m is None:
        m = top
        squarings = max(0, int(np.ceil(np.log2(norm / theta[top]))))
        a = a * a.dtype.type(2.0 ** -squarings)
    b = _PADE[m]
    eye = np.eye(n, dtype=a.dtype)
    a2 = a @ a
    powers = [eye, a2]
    for _ in range(2, m // 2 + 1):
        powers.append(powers[-1] @ a2)
    one = a.dtype.type
    u = a @ sum(one(b[2 * i + 1]) * p for i, p in enumerate(powers))
    v = sum(one(b[2 * i]) * p for i, p in enumerate(powers))
    r = np.linalg.solve(v - u, v + u)
    for _ in range(squarings):
        r = r @ r
    return r


@kernel("linalg_matrix_power")
def _power_zero(a):
    """Returns the power 0 of every matrix."""
    return np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape).copy()
