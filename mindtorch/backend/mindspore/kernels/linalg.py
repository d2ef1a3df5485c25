"""Factorizations that MindSpore's CPU target computes rightly and that need no answer about singular matrices; the others are the host's."""
from mindtorch.backend.mindspore.kernels import FLOATS
from mindtorch.backend.mindspore.kernels._call import P, dtype_of, kernel, number, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels.matmul import turned
from mindtorch.backend.mindspore.kernels.reduction import copied, sums


def _taint(a):
    """0 for each matrix of finite numbers, nan for others: what Svd makes of those means nothing."""
    n = len(shape_of(a))
    return sums(op(P.Mul)(a, number(0.0, dtype_of(a))), (n - 2, n - 1), True)


@kernel("linalg_svdvals", target="CPU", only=FLOATS)
def _svdvals(a):
    s = op(P.Svd, False, False)(a)[0]
    return op(P.Add)(s, reshape(_taint(a), (*shape_of(s)[:-1], 1)))


@kernel("linalg_svd", target="CPU", only=FLOATS)
def _svd(a, *, full):
    """(u, s, vh)"""
    s, u, v = op(P.Svd, full, True)(a)
    bad = _taint(a)
    return op(P.Add)(u, bad), op(P.Add)(s, reshape(bad, (*shape_of(s)[:-1], 1))), copied(op(P.Add)(turned(v), bad))
