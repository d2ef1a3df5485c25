"""Ascend: triangular systems and orthogonal factors.

Inverses, general systems, determinants and Cholesky factors have to report which matrix is singular
or not definite. aclnn's kernels do not, so the host computes these.
"""
from mindtorch.backend.mindspore.kernels import FLOATS
from mindtorch.backend.mindspore.kernels._call import broadcast, dtype_of, G, op, shape_of
from mindtorch.backend.mindspore.kernels._index_utils import dense, stacks
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, CUBE, empty, swapped


def _solved(a, b, upper, transpose, unit):
    """Returns X with op(A) X = B; `upper` describes A itself. One launch, and one for each operand
    that is not in C order."""
    a, b = stacks(a, b)
    return op(G.TriangularSolve)(b, a, upper, transpose, unit)[0]


@ascend("linalg_solve_triangular", only=FLOATS)
def _solve_triangular(a, b, *, upper, left, unit, adjoint):
    if left:
        return _solved(a, b, upper, adjoint, unit)
    return copy(swapped(_solved(a, swapped(b), upper, not adjoint, unit)))      # (X op(A) = B is op(A)^T X^T = B^T)


@ascend("triangular_solve", only=FLOATS)
def _triangular_solve(b, a, *, upper, transpose, unit):
    x = _solved(a, b, upper, transpose, unit)
    return x, copy(broadcast(a, (*shape_of(x)[:-2], *shape_of(a)[-2:])))


ascend("cholesky_solve", lambda b, f, *, upper: _solved(f, _solved(f, b, upper, upper, False), upper, not upper, False), only=FLOATS)


@ascend("linalg_qr", only=FLOATS)
def _qr(a, *, mode):
    q, r = G.linalg_qr(dense(a), "complete" if mode == "complete" else "reduced")
    return (empty((0,), dtype_of(a)) if mode == "r" else q), r


ascend("adjoint", lambda a: copy(swapped(a)), only=CUBE)
