"""torch.linalg and related functions of the torch namespace: inverses, systems of equations,
determinants.

Gradients are formulas in tensor ops. Factorizations are in `mindtorch/ops/linalg/_factor.py`,
singular values and eigenvalues in `mindtorch/ops/linalg/_spectral.py`, norms in
`mindtorch/ops/linalg/_norms.py`, matrix products in `mindtorch/ops/linalg/_products.py`, functions
that only the torch namespace has in `mindtorch/ops/linalg/_legacy.py`.
"""
from mindtorch.backend.errors import LinAlgError, singular_inverse, singular_system  # noqa: F401
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.return_types import TYPES
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.ops._checks import check_tensor
from mindtorch.ops._operands import scalar
from mindtorch.ops.linalg._common import (broadcast_batches, check_info, column, ct, hm, cast_like, mh, mm, check_floating_dtype, check_kernel, check_matrix,
                                          check_square, partial, row, square_floating, type_name)
from mindtorch.ops.elementwise._logic import where
from mindtorch.ops.basic import add_, conj, eq_, mul_, neg_, sub_
from mindtorch.ops.shapes.shape import tril_, triu_
from mindtorch.ops.elementwise.unary import real_part


# ------------------------------------------------------------------ inverse
def _inv_grad(g, out):
    return neg_(hm(out, mh(g, out)))


inv_ = primitive("linalg_inv", "a", lambda ctx, grad: _inv_grad(grad, ctx.out), node="LinalgInvExBackward0")
inv_ex_ = primitive("linalg_inv_ex", "a", lambda ctx, grad: _inv_grad(grad[0], ctx.out0), nondiff=(1,))


@register_op(ns="linalg", out="same", autocast="float32")
def inv(A):
    """Inverse of square matrices (*, n, n); raises LinAlgError if one is singular."""
    square_floating("linalg_inv", "linalg.inv", A)
    return inv_(A)


@register_op(out=True, autocast="float32")
def inverse(input):
    """Inverse of square matrices (*, n, n); raises LinAlgError if one is singular."""
    square_floating("inverse", "linalg.inv", input, "input")
    return inv_(input)


@register_op(ns="linalg", out="same", autocast="float32", aten="linalg_inv_ex.default")
def inv_ex(A, *, check_errors: Bool = False):
    """Returns (inverse, info); info k > 0 means that the k-th pivot is zero, for which
    `check_errors` raises LinAlgError."""
    square_floating("linalg_inv_ex", "linalg.inv", A)
    inverse, info = inv_ex_(A)
    if check_errors:
        check_info(info, singular_inverse, "linalg.inv_ex", A._sizes)
    return TYPES["linalg_inv_ex"](inverse, info)


# ------------------------------------------------------------------ systems of equations
#
# A X = B: the gradient of B solves A^H gB = gX, the gradient of A is -gB X^H. Singular matrices
# give inf and NaN here.
def _solve_grads(g, a, x, needs, left, vector):
    gb = solve_ex_(ct(a), g, left=left, vector=vector)[0]
    if not needs[0]:
        return None, gb
    if vector:
        ga = mm(column(gb), row(conj(x)))
    else:
        ga = mh(gb, x) if left else hm(x, gb)
    return neg_(ga), gb if needs[1] else None


solve_ = primitive("linalg_solve", "a, b, *, left, vector", lambda ctx, grad: _solve_grads(grad, ctx.a, ctx.out, ctx.needs, ctx.left, ctx.vector),
                   node="LinalgSolveExBackward0")
solve_ex_ = primitive("linalg_solve_ex", "a, b, *, left, vector",
                      lambda ctx, grad: _solve_grads(grad[0], ctx.a, ctx.out0, ctx.needs, ctx.left, ctx.vector), nondiff=(1,))


def _check_system(name, A, B, left):
    """Checks the arguments of solve and solve_ex. True if B is a vector (or a batch of them)."""
    check_tensor(name, A, "A")
    check_tensor(name, B, "B", 2)
    a, b = A._sizes, B._sizes
    f = "linalg.solve"
    check_floating_dtype(f, A)
    check_square(f, A)
    if A._np_dtype != B._np_dtype:
        raise RuntimeError(f"{f}: Expected A and B to have the same dtype, but found A of type {type_name(A)} and B of "
                           f"type {type_name(B)} instead")
    check_kernel("lu_cpu", A)
    vector = len(b) == 1 or a[:-1] == b
    if not vector:
        check_matrix(f, B, "B")
    _check_sizes(f, a, b + (1,) if vector else b, left)
    broadcast_batches(b[:-1] if vector else b[:-2], a[:-2])
    return vector


def _check_sizes(f, a, b, left):
    n = a[-1]
    if (b[-2] if left else b[-1]) != n:
        raise RuntimeError(f"{f}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
                           f"({n}x{n} and {b[-2]}x{b[-1]})")


@register_op(ns="linalg", out="same", autocast="float32")
def solve(A, B, *, left: Bool = True):
    """Returns X with A X = B (left=False: X A = B), for A (*, n, n) and B (*, n, k) or vectors (*,
    n). Raises LinAlgError if A is singular."""
    return solve_(A, B, vector=_check_system("linalg_solve", A, B, left), left=left)


@register_op(ns="linalg", out="same")
def solve_ex(A, B, *, left: Bool = True, check_errors: Bool = False):
    """Returns (result, info) of solve; info k > 0 means that the k-th pivot is zero, for which
    `check_errors` raises LinAlgError."""
    vector = _check_system("linalg_solve_ex", A, B, left)
    result, info = solve_ex_(A, B, left=left, vector=vector)
    if check_errors:
        check_info(info, singular_system, "torch.linalg.solve_ex", A._sizes)
    return TYPES["linalg_solve_ex"](result, info)


# ------------------------------------------------------------------ triangular systems
def triangle(x, upper, unit):
    """Returns the part of a matrix that a triangular solver reads."""
    return triu_(x, diagonal=int(unit)) if upper else tril_(x, diagonal=-int(unit))


def _triangular_grads(g, a, x, needs, upper, left, unit, adjoint):
    gb = triangular_(a, g, upper=upper, left=left, unit=unit, adjoint=not adjoint)
    if not needs[0]:
        return None, gb
    if left:
        ga = mh(x, gb) if adjoint else mh(gb, x)
    else:
        ga = hm(gb, x) if adjoint else hm(x, gb)
    return neg_(triangle(ga, upper, unit)), gb if needs[1] else None


#: triangular_(a, b, ...): X with op(A) X = B or X op(A) = B for the triangle of A that `upper`
#: selects. op is the adjoint or the identity.
triangular_ = primitive("linalg_solve_triangular", "a, b, *, upper, left, unit, adjoint", lambda ctx, grad: _triangular_grads(
    grad, ctx.a, ctx.out, ctx.needs, ctx.upper, ctx.left, ctx.unit, ctx.adjoint))


@register_op(ns="linalg", out="same", aten="linalg_solve_triangular.default")
def solve_triangular(input, B, *, upper: Bool, left: Bool = True, unitriangular: Bool = False):
    """Returns X with A X = B (left=False: X A = B), reading one triangle of A (*, n, n). A zero
    pivot gives inf or NaN."""
    check_tensor("linalg_solve_triangular", input)
    check_tensor("linalg_solve_triangular", B, "B", 2)
    f = "linalg.solve_triangular"
    check_square(f, input)
    check_matrix(f, B, "B")
    _check_sizes(f, input._sizes, B._sizes, left)
    broadcast_batches(B._sizes[:-2], input._sizes[:-2])
    check_kernel("triangular_solve_cpu", input)
    if B._np_dtype != input._np_dtype:
        # PyTorch does not check this and misreads the memory of an operand with another dtype.
        raise RuntimeError(f"{f}: Expected A and B to have the same dtype, but found A of type {type_name(input)} and "
                           f"B of type {type_name(B)} instead")
    return triangular_(input, B, upper=bool(upper), left=bool(left), unit=bool(unitriangular), adjoint=False)


# ------------------------------------------------------------------ determinants
def _adjoint_of_adjugate(g, a):
    """Gradient of det: adj(A)^H times g. It uses differentiable ops while the backward pass is
    recorded."""
    if mode.on:
        r = mul_(det_(a)[..., None, None], inv_ex_(a)[0])
    else:
        r = _adjugate(a)
    return mul_(g[..., None, None], ct(r))


#: adjugate, det(A) A^-1, also of singular matrices
_adjugate = primitive("linalg_adjugate", "a")
det_ = primitive("linalg_det", "a", lambda ctx, grad: _adjoint_of_adjugate(grad, ctx.a))


@register_op(ns="linalg", out="same")
def det(A):
    """Determinants of square matrices (*, n, n)."""
    square_floating("linalg_det", "linalg.det", A, kernel="lu_cpu")
    return det_(A)


@register_op(name="det")
def torch_det(input):
    """Determinants of square matrices (*, n, n)."""
    square_floating("det", "linalg.det", input, "input", kernel="lu_cpu")
    return det_(input)


def _slogdet_grad(g, a, sign):
    """The gradient of log|det| is A^-H. The phase of the sign adds its imaginary part (a real sign
    is constant)."""
    gs, gl = g
    if a._np_dtype.kind == "c":
        gl = None if gl is None else cast_like(gl, a)
        if gs is not None:
            w = mul_(gs, conj(sign))
            w = sub_(w, cast_like(real_part(w), w))
            gl = w if gl is None else add_(gl, w)
    if gl is None:
        return None
    return mul_(gl[..., None, None], ct(inv_ex_(a)[0]))


slogdet_ = partial(primitive("linalg_slogdet", "a", lambda ctx, grad: _slogdet_grad(grad, ctx.a, ctx.out0)))


@register_op(ns="linalg", out="same")
def slogdet(A):
    """Returns (sign, logarithm of the absolute value) of determinants; a complex sign is the
    determinant's phase."""
    square_floating("linalg_slogdet", "linalg.slogdet", A)
    return TYPES["linalg_slogdet"](*slogdet_(A))


@register_op(name="slogdet", out=True)
def torch_slogdet(input):
    """Returns (sign, logarithm of the absolute value) of determinants; a complex sign is the
    determinant's phase."""
    square_floating("slogdet", "linalg.slogdet", input, "input")
    return TYPES["slogdet"](*slogdet_(input))


@register_op
def logdet(input):
    """Logarithms of determinants; nan where a real determinant is negative."""
    square_floating("logdet", "logdet", input, "input")
    sign, logabs = slogdet_(input)
    if input._np_dtype.kind == "c":
        return add_(cast_like(logabs, sign), sign.log())
    return where(eq_(sign, scalar(-1, sign)), float("nan"), logabs)


def need_pair_dtype(b, a):
    """Raises RuntimeError unless the right-hand side and the matrix have the same dtype."""
    if a._np_dtype != b._np_dtype:
        raise RuntimeError(f"Expected b and A to have the same dtype, but found b of type {type_name(b)} and A of type "
                           f"{type_name(a)} instead.")


def check_linear_inputs(b, a, name):
    """Checks the arguments of solvers with the signature (b, factor of A)."""
    need_pair_dtype(b, a)
    check_square("", a)
    n = a._sizes[-1]
    if n != b._sizes[-2]:
        raise RuntimeError(f"Incompatible matrix sizes for {name}: each A matrix is {n} by {n} but each b matrix is "
                           f"{b._sizes[-2]} by {b._sizes[-1]}")
    broadcast_batches(b._sizes[:-2], a._sizes[:-2])
