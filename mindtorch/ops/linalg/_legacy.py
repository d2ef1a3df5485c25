"""Linear algebra of the torch namespace only: lu, triangular_solve, low-rank SVD, lobpcg; functions
that PyTorch removed."""
from mindtorch.core.dispatch.type_promotion import promote_int_to_float
from mindtorch.core.tensor.return_types import TYPES
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.ops._checks import check_tensor
from mindtorch.ops.linalg._common import ct, hm, mh, mm, check_floating_dtype, check_kernel, partial, total
from mindtorch.ops.linalg._factor import check_lu, cholesky, lu_factor_, lu_solve_checked, qr_
from mindtorch.ops.linalg._spectral import eigh, svd_
from mindtorch.ops.basic import conj, neg_, sub_
from mindtorch.ops.linalg.solve import check_linear_inputs, solve_triangular, triangle, triangular_
from mindtorch.ops.creation.random import randn


# ------------------------------------------------------------------ LU
@register_op(autocast="float32")
def lu(input, pivot: Bool = True, get_infos=False):
    """Returns (LU, pivots) as linalg.lu_factor does, with get_infos also the error codes. A zero
    pivot is not an error."""
    check_lu("torch.lu_factor", "lu", input, pivot)
    packed, pivots, info = lu_factor_(input)
    return TYPES["_lu_with_info"](packed, pivots, info) if get_infos else (packed, pivots)


@register_op(name="lu_solve", out="same", autocast="float32")
def torch_lu_solve(input, LU_data, LU_pivots):
    """Returns X with A X = B for B = input, from the factors that lu_factor returned."""
    for i, (n, x) in enumerate((("input", input), ("LU_data", LU_data), ("LU_pivots", LU_pivots))):
        check_tensor("lu_solve", x, n, i + 1)
    return lu_solve_checked(LU_data, LU_pivots, input)


# ------------------------------------------------------------------ triangular systems
def _triangular_solve_grads(g, a, x, needs, upper, transpose, unit):
    gx, gc = g
    gb = ga = None
    if gx is not None:
        if transpose:
            # A^T X = B: the gradient of B solves conj(A) gB = gX.
            gb = conj(triangular_(a, conj(gx), upper=upper, left=True, unit=unit, adjoint=False))
            ga = conj(mh(x, gb))
        else:
            gb = triangular_(a, gx, upper=upper, left=True, unit=unit, adjoint=True)
            ga = mh(gb, x)
        ga = neg_(triangle(ga, upper, unit))
    return gb if needs[0] else None, total(ga, gc) if needs[1] else None


triangular_solve_ = partial(primitive("triangular_solve", "b, a, *, upper, transpose, unit", lambda ctx, grad: _triangular_solve_grads(
    grad, ctx.a, ctx.out0, ctx.needs, ctx.upper, ctx.transpose, ctx.unit)))


@register_op(out="same", autocast="float32", aten="triangular_solve.default")
def triangular_solve(input, A, upper: Bool = True, transpose: Bool = False, unitriangular: Bool = False):
    """Returns (X, clone of A) with A X = B (transpose: A^T X = B) for B = input; reads one triangle
    of A."""
    check_tensor("triangular_solve", input)
    check_tensor("triangular_solve", A, "A", 2)
    for n, x in (("b", input), ("A", A)):
        if x.ndim < 2:
            raise RuntimeError(f"torch.triangular_solve: Expected {n} to have at least 2 dimensions, but it has "
                               f"{x.ndim} dimensions instead")
    check_linear_inputs(input, A, "triangular_solve")
    check_kernel("triangular_solve_cpu", A)
    return TYPES["triangular_solve"](*triangular_solve_(input, A, upper=bool(upper), transpose=bool(transpose),
                                                        unit=bool(unitriangular)))


# ------------------------------------------------------------------ low rank
def _range_of(A, q, niter):
    """Returns orthonormal columns that approximately span the range of A, from q random vectors
    (Halko, Martinsson, Tropp, 2009)."""
    x = qr_(mm(A, randn(A._sizes[-1], q, dtype=A.dtype, device=A.device)), mode="reduced")[0]
    for _ in range(niter):
        x = qr_(hm(A, x), mode="reduced")[0]
        x = qr_(mm(A, x), mode="reduced")[0]
    return x


def _low_rank(A, q, niter, M):
    q = 6 if q is None else q
    m, n = A._sizes[-2:]
    if M is not None:
        M = M.broadcast_to(A.shape)
        A = sub_(A, M)
    tall = m >= n
    if not tall:
        A = ct(A)
    x = _range_of(A, min(q, m, n), niter)
    u, s, vh = svd_(hm(x, A), full=False)
    u, v = mm(x, u), ct(vh)
    return (u, s, v) if tall else (v, s, u)


@register_op(method=False)
def svd_lowrank(A, q=6, niter=2, M=None):
    """Returns (U, S, V) of rank q such that A - M is approximately U diag(S) V^H, from q random
    vectors and niter power iterations."""
    if A.ndim < 2:
        raise ValueError(f"not enough values to unpack (expected 2, got {A.ndim})")
    if A._np_dtype.kind not in "fc" or A._np_dtype.itemsize == 2:
        check_floating_dtype("svd_lowrank", A)
        check_kernel("geqrf_cpu", A)
    return _low_rank(A, q, 2 if niter is None else niter, M)


@register_op(method=False)
def pca_lowrank(A, q=None, center=True, niter=2):
    """Returns (U, S, V) of A, with its columns centred by default. The columns of V are the
    principal directions."""
    if A.ndim < 2:
        raise ValueError(f"not enough values to unpack (expected 2, got {A.ndim})")
    m, n = A._sizes[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if not niter >= 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    if A._np_dtype.kind not in "fc" or A._np_dtype.itemsize == 2:
        check_floating_dtype("pca_lowrank", A)
        check_kernel("geqrf_cpu", A)
    return _low_rank(sub_(A, A.mean(-2, keepdim=True)) if center else A, q, niter, None)


@register_op(method=False)
def lobpcg(A, k: SymInt = None, B=None, X=None, n: SymInt = None, iK=None, niter=None, tol=None, largest: Bool = None, method=None, tracker=None,
           ortho_iparams=None, ortho_fparams=None, ortho_bparams=None):
    """Returns (E, X): the k largest (smallest) eigenvalues of A X = B X diag(E), with A symmetric
    and B positive definite, and their eigenvectors.

    They come from the full decomposition of the dense matrices. They are exact whatever the
    starting vectors, preconditioner, iteration count and tolerance, which only control PyTorch's
    iteration. `tracker` raises NotImplementedError because there is no iteration to track.
    """
    check_tensor("lobpcg", A)
    if tracker is not None:
        raise NotImplementedError(f"'lobpcg' is not implemented with a tracker for dtype {A.dtype} on device {A.device}")
    if A.ndim < 2 or A._sizes[-1] != A._sizes[-2]:
        raise AssertionError(f"A must be square, got shape {A.shape!r}")
    A = promote_int_to_float(A)
    check_kernel("linalg_eigh_cpu", A)
    m = A._sizes[-1]
    k = (1 if X is None else X._sizes[-1]) if k is None else k
    if m < 3 * k:
        raise ValueError(f"LOBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the "
                         f"number of requested eigenpairs (={k})")
    A = (A + ct(A)) * 0.5
    factor = None
    if B is not None:
        factor = cholesky(B)
        A = solve_triangular(factor, A, upper=False)
        A = solve_triangular(ct(factor), A, upper=True, left=False)
    values, vectors = eigh(A)
    if largest is None or largest:
        values, vectors = values[..., m - k:].flip(-1), vectors[..., m - k:].flip(-1)
    else:
        values, vectors = values[..., :k], vectors[..., :k]
    if factor is not None:
        vectors = solve_triangular(ct(factor), vectors, upper=True)
    return values, vectors


# ------------------------------------------------------------------ removed
_GONE = {
    "symeig": "torch.linalg.eigvalsh(A, UPLO=...) or torch.linalg.eigh, which read the lower triangle by default",
    "eig": "torch.linalg.eigvals or torch.linalg.eig, which return complex tensors",
    "solve": "torch.linalg.solve(A, B), which has the arguments reversed",
    "lstsq": "torch.linalg.lstsq(A, B), which has the arguments reversed",
    "matrix_rank": "torch.linalg.matrix_rank, where 'symmetric' is called 'hermitian'",
}


def _removed(name, instead, method):
    def gone(input, *args):
        raise RuntimeError(f"This function was deprecated since version 1.9 and is now removed. Use {instead}.")
    gone.__name__ = name
    gone.__doc__ = f"Removed from PyTorch: raises a RuntimeError that names its successor, {instead}."
    register_op(gone, method=method)


for _name, _instead in _GONE.items():
    _removed(_name, _instead, _name != "matrix_rank")

