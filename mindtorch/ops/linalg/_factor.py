"""Factorizations: Cholesky, QR, LU, LDL, Householder reflectors."""
from mindtorch.backend.errors import LinAlgError, batch_element, first, not_definite
from mindtorch.core.tensor.dtypes import I32
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.return_types import TYPES
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import detached
from mindtorch.ops._checks import check_tensor
from mindtorch.ops.linalg._common import (broadcast_batches, check_info, column, ct, eye_like, new_constant, hm, mh, mm, check_floating_dtype, check_kernel,
                                          check_matrix, check_square, partial, square_floating, composite_grads, total, type_name)
from mindtorch.ops._operands import no_derivative, scalar
from mindtorch.ops.indexing._basic_index import narrow
from mindtorch.ops.basic import add_, broadcast, conj, mul_, neg_, sub_
from mindtorch.ops.linalg.solve import check_linear_inputs, need_pair_dtype, triangular_
from mindtorch.ops.shapes.shape import cat, constant_pad, diag_embed_, tril_, triu_
from mindtorch.ops.shapes.views import diagonal_


def _half_diagonal(x):
    """Returns the matrix with its diagonal halved."""
    d = diagonal_(x, offset=0, dim1=-2, dim2=-1)
    return sub_(x, diag_embed_(mul_(d, scalar(0.5, x)), offset=0, dim1=-2, dim2=-1))


def _solve_tri(a, b, upper, left=True, unit=False, adjoint=False):
    return triangular_(a, b, upper=upper, left=left, unit=unit, adjoint=adjoint)


# ------------------------------------------------------------------ Cholesky
def _cholesky_grad(g, f, upper):
    """Returns L^-H S L^-1, where S is half of L^H gL with its lower part mirrored. As in PyTorch,
    the imaginary part of the diagonal is kept."""
    if upper:
        f, g = ct(f), ct(g)
    s = tril_(hm(f, g), diagonal=0)
    s = mul_(add_(s, ct(tril_(s, diagonal=-1))), scalar(0.5, s))
    return _solve_tri(f, _solve_tri(f, s, False, adjoint=True), False, left=False)


cholesky_ = primitive("linalg_cholesky", "a, *, upper, name", lambda ctx, grad: _cholesky_grad(grad, ctx.out, ctx.upper),
                      node="LinalgCholeskyExBackward0")
cholesky_ex_ = primitive("linalg_cholesky_ex", "a, *, upper", lambda ctx, grad: _cholesky_grad(grad[0], ctx.out0, ctx.upper), nondiff=(1,))
legacy_cholesky_ = primitive("cholesky", "a, *, upper, name", lambda ctx, grad: _cholesky_grad(grad, ctx.out, ctx.upper))


@register_op(ns="linalg", out="same", autocast="float32")
def cholesky(input, *, upper: Bool = False):
    """Returns L with A = L L^H (upper: U with A = U^H U), reading one triangle of A (*, n, n).

    Raises LinAlgError unless A is positive-definite.
    """
    square_floating("linalg_cholesky", "linalg.cholesky", input, "input", kernel="cholesky_cpu")
    return cholesky_(input, upper=bool(upper), name="linalg.cholesky")


@register_op(ns="linalg", out="same", autocast="float32", aten="linalg_cholesky_ex.default")
def cholesky_ex(input, *, upper: Bool = False, check_errors: Bool = False):
    """Returns (L, info); info k > 0 means that the leading minor of order k is not
    positive-definite."""
    square_floating("linalg_cholesky_ex", "linalg.cholesky", input, "input", kernel="cholesky_cpu")
    factor, info = cholesky_ex_(input, upper=bool(upper))
    if check_errors:
        check_info(info, not_definite, "linalg.cholesky_ex", input._sizes)
    return TYPES["linalg_cholesky_ex"](factor, info)


@register_op(name="cholesky", out=True, autocast="float32", aten="cholesky.default")
def torch_cholesky(input, upper: Bool = False):
    """Returns L with A = L L^H (upper: U with A = U^H U); raises LinAlgError unless A is
    positive-definite."""
    check_tensor("cholesky", input)
    check_kernel("cholesky_cpu", input)
    if input.ndim > 1 and not input._numel:
        return input.clone()
    check_square("cholesky", input)
    return legacy_cholesky_(input, upper=bool(upper), name="cholesky")


def _gram_grad(g):
    """Returns -(g + g^H), the factor between two inverses in the gradients of A = L L^H."""
    return neg_(add_(g, ct(g)))


def _cholesky_solve_grads(g, b, f, x, needs, upper):
    gb = cholesky_solve_(g, f, upper=upper)
    if not needs[1]:
        return gb, None
    s = _gram_grad(mh(gb, x))
    return gb if needs[0] else None, mm(f, s) if upper else mm(s, f)


cholesky_solve_ = primitive("cholesky_solve", "b, f, *, upper",
                            lambda ctx, grad: _cholesky_solve_grads(grad, ctx.b, ctx.f, ctx.out, ctx.needs, ctx.upper))


@register_op(out=True, autocast="float32", aten="cholesky_solve.default")
def cholesky_solve(input, input2, upper: Bool = False):
    """Returns X with A X = B for right-hand sides B = input (*, n, k); A is given by its Cholesky
    factor (*, n, n)."""
    check_tensor("cholesky_solve", input)
    check_tensor("cholesky_solve", input2, "input2", 2)
    for n, x in (("b", input), ("u", input2)):
        if x.ndim < 2:
            raise RuntimeError(f"{n} should have at least 2 dimensions, but has {x.ndim} dimensions instead")
    check_linear_inputs(input, input2, "cholesky_solve")
    check_kernel("cholesky_solve_cpu", input2)
    return cholesky_solve_(input, input2, upper=bool(upper))


def _cholesky_inverse_grad(g, f, m, upper):
    s = mm(m, mm(_gram_grad(g), m))
    return mm(f, s) if upper else mm(s, f)


cholesky_inverse_ = primitive("cholesky_inverse", "f, *, upper",
                              lambda ctx, grad: _cholesky_inverse_grad(grad, ctx.f, ctx.out, ctx.upper))


@register_op(out=True, autocast="float32", aten="cholesky_inverse.default")
def cholesky_inverse(input, upper: Bool = False):
    """Inverse of A, given by its Cholesky factor (*, n, n). Raises LinAlgError if the factor has a
    zero on its diagonal."""
    check_tensor("cholesky_inverse", input)
    check_square("cholesky_inverse", input)
    check_kernel("cholesky_inverse_out_cpu", input)
    return cholesky_inverse_(input, upper=bool(upper))


# ------------------------------------------------------------------ QR
def _qr_grad(g, q, r, mode):
    """Gradient of A = Q R, from the square part of R (Q^H dQ is skew-Hermitian, dR is upper
    triangular with a real diagonal)."""
    if mode == "r":
        raise RuntimeError("The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
                           "linalg.qr(A, mode='reduced') if you are going to differentiate through linalg.qr.")
    m, k, n = q._sizes[-2], q._sizes[-1], r._sizes[-1]
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
    gq, gr = g
    last = r.ndim - 1
    wide = n > k
    r1, rest = (narrow(r, last, 0, k), None) if wide else (r, None)
    if wide and gr is not None:
        rest = narrow(gr, last, k, n - k)
        gr = narrow(gr, last, 0, k)
        gq = total(gq, mm(q, mh(narrow(r, last, k, n - k), rest)))
    s = total(None if gr is None else mh(gr, r1), None if gq is None else neg_(hm(q, gq)))
    if s is None:
        return None
    s = triu_(_half_diagonal(s), diagonal=0)
    ga = mm(q, add_(s, ct(s)))
    ga = _solve_tri(r1, total(ga, gq), True, left=False, adjoint=True)
    if not wide:
        return ga
    if rest is None:
        return constant_pad(ga, (0, n - k))
    return cat([ga, mm(q, rest)], -1)


qr_ = partial(primitive("linalg_qr", "a, *, mode", lambda ctx, grad: _qr_grad(grad, ctx.out0, ctx.out1, ctx.mode)))


def qr_of(name, A, mode):
    check_floating_dtype("linalg.qr", A)
    check_matrix("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or "
                           "'complete'")
    check_kernel("geqrf_cpu", A)
    return TYPES[name](*qr_(A, mode=mode))


@register_op(ns="linalg", out="same", autocast="float32", aten="linalg_qr.default")
def qr(A, mode="reduced"):
    """Returns (Q, R) of matrices (*, m, n). Q has min(m, n) orthonormal columns ("complete": m;
    "r": none)."""
    check_tensor("linalg_qr", A, "A")
    return qr_of("linalg_qr", A, mode)


@register_op(name="qr", out="same", autocast="float32")
def torch_qr(input, some: Bool = True):
    """Returns (Q, R) of matrices (*, m, n). Q has min(m, n) orthonormal columns, or m of them if
    not `some`."""
    check_tensor("qr", input)
    return qr_of("qr", input, "reduced" if some else "complete")


def _no_geqrf_gradient(ctx, grad):
    raise NotImplementedError("the derivative for 'geqrf' is not implemented.")


geqrf_ = primitive("geqrf", "a", _no_geqrf_gradient)


@register_op(out=True, autocast="float32", aten="geqrf.default")
def geqrf(input):
    """Returns (a, tau): a holds R in its upper triangle and the Householder vectors below it, tau
    holds their factors."""
    check_tensor("geqrf", input)
    if input.ndim < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    check_kernel("geqrf_cpu", input)
    if mode.on and input._requires_grad_ and input._np_dtype.kind == "c":
        raise RuntimeError("geqrf does not support automatic differentiation for outputs with complex dtype.")
    return TYPES["geqrf"](*geqrf_(input))


# ------------------------------------------------------------------ Householder reflectors
def _apply_reflectors(a, tau, c, adjoint):
    """Applies Householder reflectors to `c` with tensor ops. The gradients of the kernels are
    computed through it."""
    k = tau._sizes[-1]
    v = narrow(a, a.ndim - 1, 0, k)
    v = add_(tril_(v, diagonal=-1), eye_like(a, m=a._sizes[-2], n=k))
    m = mul_(column(tau), triu_(hm(v, v), diagonal=1))
    w = hm(v, c)
    if adjoint:
        t = mul_(conj(column(tau)), _solve_tri(m, w, True, unit=True, adjoint=True))
    else:
        t = _solve_tri(m, mul_(column(tau), w), True, unit=True)
    return sub_(c, mm(v, t))


def _householder_composed(a, tau):
    m, n = a._sizes[-2:]
    return _apply_reflectors(a, tau, broadcast(eye_like(a, m=m, n=n), shape=a._sizes), False)


householder_ = primitive("linalg_householder_product", "a, tau",
                         lambda ctx, grad: composite_grads(_householder_composed, (ctx.a, ctx.tau), grad) if ctx.tau._numel else (None, None))


def _householder_checked(name, input, tau, second):
    f = "torch.linalg.householder_product"
    check_tensor(name, input)
    check_tensor(name, tau, second, 2)
    a, t = input._sizes, tau._sizes
    if len(a) < 2:
        raise RuntimeError(f"{f}: input must have at least 2 dimensions.")
    if a[-2] < a[-1]:
        raise RuntimeError(f"{f}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if a[-1] < (t[-1] if t else 1):
        raise RuntimeError(f"{f}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    _check_tau(f, a, t)
    if tau._np_dtype != input._np_dtype:
        raise RuntimeError(f"{f}: tau dtype {type_name(tau)} does not match input dtype {type_name(input)}")
    check_kernel("orgqr_cpu", input)
    return householder_(input, tau)


def _check_tau(f, a, t):
    if len(a) - len(t) != 1:
        raise RuntimeError(f"{f}: Expected tau to have one dimension less than input, but got tau.ndim equal to "
                           f"{len(t)} and input.ndim is equal to {len(a)}")
    if a[:-2] != t[:-1]:
        raise RuntimeError(f"{f}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got "
                           f"{list(t[:-1])}")


@register_op(ns="linalg", out=True, autocast="float32", aten="linalg_householder_product.default")
def householder_product(input, tau):
    """First n columns of the product of Householder reflectors, whose vectors are below the
    diagonal of input (*, m, n)."""
    return _householder_checked("linalg_householder_product", input, tau, "tau")


@register_op(out=True)
def orgqr(input, input2):
    """Like linalg.householder_product: returns the Q of a result of geqrf."""
    return _householder_checked("orgqr", input, input2, "input2")


def _ormqr_grads(a, tau, x, g, left, transpose):
    def composed(a, tau, x):
        if left:
            return _apply_reflectors(a, tau, x, transpose)
        return ct(_apply_reflectors(a, tau, ct(x), not transpose))
    return composite_grads(composed, (a, tau, x), g)


ormqr_ = primitive("ormqr", "a, tau, c, *, left, transpose", lambda ctx, grad: _ormqr_grads(ctx.a, ctx.tau, ctx.c, grad, ctx.left, ctx.transpose))


@register_op(out="same", autocast="float32", aten="ormqr.default")
def ormqr(input, input2, input3, left: Bool = True, transpose: Bool = False):
    """Returns Q C, C Q, Q^H C or C Q^H for C = input3 and the full Q of the reflectors (input,
    input2) that geqrf returned."""
    f, tau, other = "torch.ormqr", input2, input3
    check_tensor("ormqr", input)
    check_tensor("ormqr", tau, "input2", 2)
    check_tensor("ormqr", other, "input3", 3)
    a, t, c = input._sizes, tau._sizes, other._sizes
    if len(a) < 2:
        raise RuntimeError(f"{f}: input must have at least 2 dimensions.")
    if len(c) < 2:
        raise RuntimeError(f"{f}: other must have at least 2 dimensions.")
    side = -2 if left else -1
    if c[side] < (t[-1] if t else 1):
        raise RuntimeError(f"{f}: other.shape[{side}] must be greater than or equal to tau.shape[-1]")
    if c[side] != a[-2]:
        raise RuntimeError(f"{f}: other.shape[{side}] must be equal to input.shape[-2]")
    if t and t[-1] != min(c[side], a[-1]):
        raise RuntimeError(f"{f}: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1])")
    _check_tau(f, a, t)
    if len(c) != len(a):
        raise RuntimeError(f"{f}: Expected other to have the same number of dimensions as input, but got other.ndim "
                           f"equal to {len(c)} and input.ndim is equal to {len(a)}")
    if c[:-2] != a[:-2]:
        raise RuntimeError(f"{f}: Expected batch dimensions of other to be equal to input.shape[:-2], but got "
                           f"{list(c[:-2])}")
    if tau._np_dtype != input._np_dtype:
        raise RuntimeError(f"{f}: Expected input and tau to have the same dtype, but input has dtype{type_name(input)} "
                           f"and tau has dtype {type_name(tau)}")
    if other._np_dtype != input._np_dtype:
        raise RuntimeError(f"{f}: Expected input and other to have the same dtype, but input has "
                           f"dtype{type_name(input)} and other has dtype {type_name(other)}")
    check_kernel("ormqr_cpu", input)
    return ormqr_(input, tau, other, left=bool(left), transpose=bool(transpose))


# ------------------------------------------------------------------ LU
def _lu_grad(p, lower, upper, gl, gu):
    """Gradient of A = P L U of any shape, with a constant tensor P."""
    m, k, n = lower._sizes[-2], lower._sizes[-1], upper._sizes[-1]
    if gl is None and gu is None:
        return None
    rows, cols = lower.ndim - 2, upper.ndim - 1
    l1 = narrow(lower, rows, 0, k) if m > k else lower
    u1 = narrow(upper, cols, 0, k) if n > k else upper
    below = above = g2 = None
    if gl is not None:
        below = hm(l1, narrow(gl, rows, 0, k) if m > k else gl)
    if gu is not None:
        above = mh(narrow(gu, cols, 0, k) if n > k else gu, u1)
    if m > k and gl is not None:
        bottom, l2 = narrow(gl, rows, k, m - k), narrow(lower, rows, k, m - k)
        above = total(above, neg_(hm(l2, bottom)))
        g2 = _solve_tri(u1, bottom, True, left=False, adjoint=True)
    if n > k and gu is not None:
        right, u2 = narrow(gu, cols, k, n - k), narrow(upper, cols, k, n - k)
        below = total(below, neg_(mh(right, u2)))
    x = total(None if below is None else tril_(below, diagonal=-1), None if above is None else triu_(above, diagonal=0))
    x = _solve_tri(u1, x, True, left=False, adjoint=True)
    if n > k:
        x = cat([x, right], -1) if gu is not None else constant_pad(x, (0, n - k))
    x = _solve_tri(l1, x, False, unit=True, adjoint=True)
    if m > k:
        x = cat([x, g2], -2) if g2 is not None else constant_pad(x, (0, 0, 0, m - k))
    return mm(p, x)


def _packed_grad(g, lu, pivots):
    lower, upper = unpack_lu(lu)
    m, k, n = lower._sizes[-2], lower._sizes[-1], upper._sizes[-1]
    gl = tril_(narrow(g, lower.ndim - 1, 0, k) if n > k else g, diagonal=-1)
    gu = triu_(narrow(g, lower.ndim - 2, 0, k) if m > k else g, diagonal=0)
    return _lu_grad(_permutation(pivots, m=m, np_dtype=g._np_dtype, transposed=False), lower, upper, gl, gu)


def unpack_lu(lu):
    """Returns (L, U) of packed factors, computed with tensor ops."""
    m, n = lu._sizes[-2:]
    k, d = min(m, n), lu.ndim
    lower = tril_(narrow(lu, d - 1, 0, k) if n > k else lu, diagonal=-1)
    upper = triu_(narrow(lu, d - 2, 0, k) if m > k else lu, diagonal=0)
    return add_(lower, eye_like(lu, m=m, n=k)), upper


lu_ = partial(primitive("linalg_lu", "a", lambda ctx, grad: _lu_grad(detached(ctx.out0), ctx.out1, ctx.out2, grad[1], grad[2]), nondiff=(0,)))
lu_factor_ = primitive("linalg_lu_factor_ex", "a", lambda ctx, grad: _packed_grad(grad[0], ctx.out0, ctx.out1), nondiff=(1, 2))
#: _permutation(pivots, m=, np_dtype=, transposed=): P with A = P L U, or its transpose.
_permutation = primitive("permutation_matrix", "pivots, *, m, np_dtype, transposed")


def check_lu(f, name, A, pivot):
    check_tensor(name, A, "A")
    if A.ndim < 2:
        raise RuntimeError(f"{f}: Expected tensor with 2 or more dimensions. Got size: {list(A._sizes)} instead")
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    check_kernel("lu_cpu", A)


def zero_pivot(name, shape, info):
    i, k = first(info)
    return RuntimeError(f"{name}: {batch_element(shape, i)}U[{k},{k}] is zero and using it on lu_solve would result in "
                        "a division by zero. If you still want to perform the factorization, consider calling "
                        "linalg.lu(A, pivot) or "
                        "linalg.lu_factor_ex(A, pivot)")


@register_op(ns="linalg", out="same", aten="linalg_lu.default")
def lu(A, *, pivot: Bool = True):
    """Returns (P, L, U) with A = P L U for matrices (*, m, n)."""
    check_lu("linalg.lu", "linalg_lu", A, pivot)
    return TYPES["linalg_lu"](*lu_(A))


@register_op(ns="linalg", out="same")
def lu_factor(A, *, pivot: Bool = True):
    """Returns (LU, pivots): both factors in one matrix, and the row exchanges counted from 1.
    Raises RuntimeError for a zero pivot."""
    check_lu("torch.lu_factor", "linalg_lu_factor", A, pivot)
    packed, pivots, info = lu_factor_(A)
    check_info(info, zero_pivot, "torch.linalg.lu_factor", A._sizes)
    return TYPES["linalg_lu_factor"](packed, pivots)


@register_op(ns="linalg", out="same", aten="linalg_lu_factor_ex.default")
def lu_factor_ex(A, *, pivot: Bool = True, check_errors: Bool = False):
    """Returns (LU, pivots, info); info k > 0 means that the k-th pivot is zero."""
    check_lu("torch.lu_factor", "linalg_lu_factor_ex", A, pivot)
    packed, pivots, info = lu_factor_(A)
    if check_errors:
        check_info(info, zero_pivot, "torch.linalg.lu_factor_ex", A._sizes)
    return TYPES["linalg_lu_factor_ex"](packed, pivots, info)


def _lu_solve_grads(g, lu, pivots, x, needs, adjoint):
    """Gradients from A = P L U. With W solving the adjoint system, they are -(P^T W)(U X)^H for L
    and -(L^H P^T W) X^H for U."""
    w = lu_solve_(lu, pivots, g, adjoint=not adjoint)
    if not needs[0]:
        return None, None, w
    lower, upper = unpack_lu(lu)
    n = lu._sizes[-1]
    pt = _permutation(pivots, m=n, np_dtype=g._np_dtype, transposed=True)
    y, z = (x, w) if adjoint else (w, x)
    y = mm(pt, y)
    gl = tril_(mh(y, mm(upper, z)), diagonal=-1)
    gu = triu_(mh(hm(lower, y), z), diagonal=0)
    return neg_(add_(gl, gu)), None, w if needs[2] else None


lu_solve_ = primitive("linalg_lu_solve", "lu, pivots, b, *, adjoint", lambda ctx, grad: _lu_solve_grads(
    grad, ctx.lu, ctx.pivots, ctx.out, ctx.needs, ctx.adjoint))


@register_op(ns="linalg", out="same", name="lu_solve", aten="linalg_lu_solve.default")
def linalg_lu_solve(LU, pivots, B, *, left: Bool = True, adjoint: Bool = False):
    """Returns X with A X = B (left=False: X A = B; adjoint: A^H), from the factors that lu_factor
    returned."""
    for i, (n, x) in enumerate((("LU", LU), ("pivots", pivots), ("B", B))):
        check_tensor("linalg_lu_solve", x, n, i + 1)
    return lu_solve_checked(LU, pivots, B, left, adjoint)


def lu_solve_checked(LU, pivots, B, left=True, adjoint=False):
    f = "linalg.lu_solve"
    check_floating_dtype("torch." + f, LU)
    if pivots._np_dtype != I32:
        raise RuntimeError(f"{f}: pivots should be a Tensor of scalar type torch.int32")
    check_square("torch." + f, LU)
    check_matrix(f, B, "B")
    n, b = LU._sizes[-1], B._sizes
    if (b[-2] if left else b[-1]) != n:
        raise RuntimeError(f"{f}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
                           f"({n}x{n} and {b[-2]}x{b[-1]})")
    if not pivots.ndim or pivots._sizes[-1] != n:
        raise RuntimeError(f"{f}: Number of pivots per batch should be same as the dimension of the matrix")
    if LU._sizes[:-1] != pivots._sizes:
        raise RuntimeError(f"{f}: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
                           f"{list(pivots._sizes)} instead")
    if LU._np_dtype != B._np_dtype:
        raise RuntimeError(f"{f}: Expected LU and B to have the same dtype, but found LU of type {type_name(LU)} and B "
                           f"of type {type_name(B)} instead")
    check_kernel("lu_solve_cpu", LU)
    broadcast_batches(b[:-2], LU._sizes[:-2])
    if left:
        return lu_solve_(LU, pivots, B, adjoint=bool(adjoint))
    # X A = B is equivalent to A^H X^H = B^H.
    return ct(lu_solve_(LU, pivots, ct(B), adjoint=not adjoint))


def _unpack_grad(g, shape):
    gl, gu = g
    m, n = shape[-2:]
    if gl is not None:
        gl = tril_(constant_pad(gl, (0, n - m)) if n > m else gl, diagonal=-1)
    if gu is not None:
        gu = triu_(constant_pad(gu, (0, 0, 0, m - n)) if m > n else gu, diagonal=0)
    return total(gl, gu)


lu_unpack_ = partial(primitive("lu_unpack", "lu", lambda ctx, grad: _unpack_grad(grad, ctx.shapes[0])))
_unpack_pivots = primitive("lu_unpack_pivots", "pivots, *, m, np_dtype")


@register_op(method=False, out="same", aten="lu_unpack.default")
def lu_unpack(LU_data, LU_pivots, unpack_data: Bool = True, unpack_pivots: Bool = True):
    """Returns (P, L, U) of packed LU factors; parts that are not requested are empty."""
    check_tensor("lu_unpack", LU_data, "LU_data")
    check_tensor("lu_unpack", LU_pivots, "LU_pivots", 2)
    if LU_data.ndim < 2:
        raise RuntimeError(f"torch.lu_unpack: Expected tensor with 2 or more dimensions. Got size: {list(LU_data._sizes)} "
                           "instead")
    if unpack_pivots and LU_pivots._np_dtype != I32:
        raise RuntimeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 "
                           "dtype.\nNote: this function is intended to be used with the output produced by "
                           "torch.linalg.lu_factor")
    perm = lower = upper = new_constant(LU_data, (0,))
    if unpack_pivots:
        perm = _unpack_pivots(LU_pivots, m=LU_data._sizes[-2], np_dtype=LU_data._np_dtype)
    if unpack_data:
        lower, upper = lu_unpack_(LU_data)
    return TYPES["lu_unpack"](perm, lower, upper)


# ------------------------------------------------------------------ LDL
def _no_ldl_gradient(ctx, grad):
    raise RuntimeError("derivative for aten::linalg_ldl_factor_ex is not implemented")


ldl_factor_ = primitive("linalg_ldl_factor_ex", "a, *, hermitian", _no_ldl_gradient, nondiff=(1, 2))


def _ldl(name, input, hermitian):
    square_floating(name, "torch.linalg.ldl_factor_ex", input, "input", kernel="ldl_factor_kernel_cpu")
    return ldl_factor_(input, hermitian=bool(hermitian))


def _zero_block(name, shape, info):
    i, k = first(info)
    return LinAlgError(f"{name}: {batch_element(shape, i)}The factorization has a zero diagonal block at {k}: the "
                       "matrix is singular.")


@register_op(ns="linalg", out="same")
def ldl_factor(input, *, hermitian: Bool = False):
    """Returns (LD, pivots) of symmetric (or Hermitian) matrices, reading the lower triangle. Raises
    LinAlgError if one is singular."""
    ld, pivots, info = _ldl("linalg_ldl_factor", input, hermitian)
    check_info(info, _zero_block, "torch.linalg.ldl_factor", input._sizes)
    return TYPES["linalg_ldl_factor"](ld, pivots)


@register_op(ns="linalg", out="same", aten="linalg_ldl_factor_ex.default")
def ldl_factor_ex(input, *, hermitian: Bool = False, check_errors: Bool = False):
    """Returns (LD, pivots, info); info k > 0 means that the k-th block of D is zero."""
    ld, pivots, info = _ldl("linalg_ldl_factor_ex", input, hermitian)
    if check_errors:
        check_info(info, _zero_block, "torch.linalg.ldl_factor_ex", input._sizes)
    return TYPES["linalg_ldl_factor_ex"](ld, pivots, info)


_unsolved = no_derivative("linalg_ldl_solve")
ldl_solve_ = primitive("linalg_ldl_solve", "ld, pivots, b, *, hermitian", _unsolved, None, _unsolved)


@register_op(ns="linalg", out="same", aten="linalg_ldl_solve.default")
def ldl_solve(LD, pivots, B, *, hermitian: Bool = False):
    """Returns X with A X = B, from the factors that ldl_factor returned (not differentiable)."""
    f = "torch.linalg.ldl_solve"
    for i, (n, x) in enumerate((("LD", LD), ("pivots", pivots), ("B", B))):
        check_tensor("linalg_ldl_solve", x, n, i + 1)
    if B.ndim < 2:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-max(B.ndim, 1)}, "
                         f"{max(B.ndim, 1) - 1}], but got -2)")
    need_pair_dtype(B, LD)
    check_square(f, LD)
    n, b = LD._sizes[-1], B._sizes
    if n != b[-2]:
        raise RuntimeError(f"Incompatible matrix sizes for {f}: each A matrix is {n} by {n} but each b matrix is "
                           f"{b[-2]} by {b[-1]}")
    if LD._sizes[:-1] != pivots._sizes:
        raise RuntimeError(f"{f}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
                           f"{list(pivots._sizes)} instead")
    if pivots._np_dtype.kind not in "iu":
        raise RuntimeError(f"{f}: Expected pivots to be integers. Got {type_name(pivots)}")
    check_kernel("ldl_solve_kernel_cpu", LD)
    broadcast_batches(b[:-2], LD._sizes[:-2])
    return ldl_solve_(LD, pivots, B, hermitian=bool(hermitian))


