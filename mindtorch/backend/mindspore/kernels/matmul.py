"""Matrix and vector products, and sums of products."""
import math

from mindtorch.backend.mindspore.kernels._call import (ASCEND, COMPLEX, G, UnsupportedByKernel, P, broadcast, dtype_of, is_contiguous, kernel, mint, ms, number,
                                                       op,
                                                       reshape, shape_of)
from mindtorch.backend.mindspore.kernels.ascend import CUBE, swapped
from mindtorch.backend.mindspore.kernels.reduction import copied

_PRODUCTS = "float32 float64 float16 bfloat16 int32 int64 complex64 complex128 int8 int16 uint8" if not ASCEND else "float32 float16 bfloat16"


def turned(x):
    """Returns a view with the last two dimensions swapped."""
    n = len(shape_of(x))
    return op(P.Transpose)(x, (*range(n - 2), n - 1, n - 2))


def _plain(x, t):
    """Returns (x, t) with a contiguous x if x or its transpose is contiguous: the kernel's
    transpose flag is cheaper than a copy."""
    if not is_contiguous(x):
        y = turned(x)
        if is_contiguous(y):
            return y, not t
    return x, t


def matmul(a, b, ta=False, tb=False):
    """Computes op(a) @ op(b) of two matrices. A transposed view costs 35 us more than the flag."""
    if ASCEND:
        return op(G.MatMulExt)(turned(a) if ta else a, turned(b) if tb else b)
    (a, ta), (b, tb) = _plain(a, ta), _plain(b, tb)
    return op(P.MatMul, ta, tb)(a, b)


def batched(a, b, ta=False, tb=False):
    """Computes op(a) @ op(b) over the last two dimensions. Leading dimensions broadcast."""
    x, y = shape_of(a), shape_of(b)
    if len(x) == 2 and len(y) == 2:
        return matmul(a, b, ta, tb)
    if ASCEND:
        return op(G.MatMulExt)(turned(a) if ta else a, turned(b) if tb else b)
    lead = x[:-2]
    if lead != y[:-2]:
        n = max(len(x), len(y))
        lead = tuple([q if p == 1 else p for p, q in zip((1,) * (n - len(x)) + x[:-2], (1,) * (n - len(y)) + y[:-2])])
        a, b = broadcast(a, lead + x[-2:]), broadcast(b, lead + y[-2:])
    # with the transpose flags, MindSpore 2.10 returns wrong complex values
    if dtype_of(a) in COMPLEX:
        a, b, ta, tb = turned(a) if ta else a, turned(b) if tb else b, False, False
    else:
        (a, ta), (b, tb) = _plain(a, ta), _plain(b, tb)
    return op(P.BatchMatMul, ta, tb)(a, b)


kernel("mm", lambda a, b, *, ta, tb: matmul(a, b, ta, tb), target="CPU", only=_PRODUCTS)
kernel("bmm", lambda a, b, *, ta, tb: batched(a, b, ta, tb), target="CPU", only=_PRODUCTS)
kernel("mm bmm", lambda a, b, *, ta, tb: op(G.MatMulExt)(swapped(a) if ta else a, swapped(b) if tb else b), target="Ascend", only=CUBE)


def rows(x):
    """Reshapes to a matrix of rows along the last dimension."""
    s = shape_of(x)
    return x if len(s) == 2 else reshape(x, (math.prod(s[:-1]), s[-1]))


def _back(y, x, n):
    """Restores the leading dimensions of x in the rows of y."""
    s = shape_of(x)
    return y if len(s) == 2 else y.view((*s[:-1], n))


def with_bias(y, b):
    """Adds to a matrix a row or a tensor that broadcasts to it.

    At 64x512, BiasAdd takes 50 us vs 240 us for Add. At 8x8, it takes 35 us vs 22 us. BiasAdd also
    runs on MindSpore's older launch path, and switching between the two paths costs 40 to 80 us.
    """
    s = shape_of(y)
    if len(s) == 2 and s[0] * s[1] > 8192 and shape_of(b) == s[1:] and not ASCEND:
        return op(P.BiasAdd)(y, b)
    return op(P.Add)(y, b)


@kernel("linear", only=_PRODUCTS, target="CPU")
def _linear(x, w, b):
    """MatMul and BiasAdd together take a third of the time of Dense."""
    if len(shape_of(w)) != 2:
        raise UnsupportedByKernel
    y = op(P.MatMul, False, True)(rows(x), w) if is_contiguous(w) else matmul(rows(x), w, False, True)
    n = shape_of(w)[0]
    if b is None:
        return _back(y, x, n)
    if shape_of(b) in ((n,), ()):
        return _back(with_bias(y, b), x, n)
    return op(P.Add)(_back(y, x, n), b)


@kernel("linear", only=_PRODUCTS, target="Ascend")
def _linear_ascend(x, w, b):
    if len(shape_of(w)) != 2 or b is not None and shape_of(b) != shape_of(w)[:1]:
        raise UnsupportedByKernel
    return op(G.Dense)(x, w, b)


kernel("matmul_rows", lambda x, w: _back(matmul(rows(x), w), x, shape_of(w)[1]), target="CPU", only=_PRODUCTS)
kernel("matmul_rows", lambda x, w: op(G.MatMulExt)(x, w), target="Ascend", only=CUBE)
kernel("fold", lambda a, b: matmul(rows(a), rows(b), True, False), target="CPU", only=_PRODUCTS)
kernel("fold", lambda a, b: op(G.MatMulExt)(swapped(rows(a)), rows(b)), target="Ascend", only=CUBE)


# ------------------------------------------------------------------ vectors, with batch dimensions
@kernel("dot", only=_PRODUCTS)
def _dot(a, b):
    if ASCEND:
        return op(G.Dot)(a, b)
    return matmul(reshape(a, (1, -1)), reshape(b, (1, -1)), False, True).view(())


@kernel("mv", only=_PRODUCTS)
def _mv(a, v):
    s = shape_of(v)
    return _without(batched(a, reshape(v, (*s, 1))), -1)


@kernel("vm", only=_PRODUCTS)
def _vm(a, u):
    s = shape_of(u)
    return _without(batched(reshape(u, (*s[:-1], 1, s[-1])), a), -2)


def _without(x, at):
    s = list(shape_of(x))
    del s[at]
    return x.view(tuple(s))


@kernel("outer")
def _outer(x, y):
    x, y = reshape(x, (*shape_of(x), 1)), reshape(y, (*shape_of(y)[:-1], 1, shape_of(y)[-1]))
    return op(P.Mul if dtype_of(x) is not ms.bool_ else P.LogicalAnd)(x, y)


@kernel("linalg_cross", only="float32 float64")
def _cross(a, b, *, dim):
    x, y = shape_of(a), shape_of(b)
    if x != y:
        n = max(len(x), len(y))
        x, y = (1,) * (n - len(x)) + x, (1,) * (n - len(y)) + y
        shape = tuple([q if p == 1 else p for p, q in zip(x, y)])
        a, b = broadcast(a, shape), broadcast(b, shape)
    return op(P.Cross, dim)(a, b) if not ASCEND else mint.linalg.cross(a, b, dim=dim) if hasattr(mint.linalg, "cross") else mint.cross(a, b, dim)


# ------------------------------------------------------------------ products with an addition
def _scaled(x, k):
    return x if k == 1 else op(P.Mul)(x, number(k, dtype_of(x)))


@kernel("addmm", only=_PRODUCTS)
def _addmm(c, a, b, *, beta, alpha):
    if ASCEND and len(shape_of(a)) == 2 and beta:
        return op(G.Addmm)(c, a, b, beta, alpha)
    if ASCEND and len(shape_of(a)) == 3 and beta:
        return op(G.Baddbmm)(c, a, b, beta, alpha)
    r = _scaled(batched(a, b), alpha)
    return r if beta == 0 else with_bias(r, _scaled(c, beta))


# ------------------------------------------------------------------ contractions
def _permuted(x, labels, order):
    p = tuple([labels.index(i) for i in order])
    return x if p == tuple(range(len(p))) else op(P.Transpose)(x, p)


@kernel("einsum", only=_PRODUCTS)
def _contract(a, b, *, la, lb, lo):
    """Sums products over the labels in `la` and `lb` that are not in `lo`, as one batched product.
    Dimensions of size 1 broadcast."""
    sa, sb = dict(zip(la, shape_of(a))), dict(zip(lb, shape_of(b)))
    shared = [i for i in la if i in sb]
    if any([sa[i] != sb[i] for i in shared]):
        size = {i: max(sa[i], sb[i]) for i in shared}
        a, b = broadcast(a, [size.get(i, n) for i, n in sa.items()]), broadcast(b, [size.get(i, n) for i, n in sb.items()])
        sa.update(size)
        sb.update(size)
    size = {**sa, **sb}
    batch = [i for i in lo if i in sa and i in sb]
    con = [i for i in shared if i not in lo]
    left, right = [i for i in lo if i in sa and i not in sb], [i for i in lo if i in sb and i not in sa]
    if not con:
        x = reshape(_permuted(a, la, batch + left), [size[i] for i in batch + left] + [1] * len(right))
        y = reshape(_permuted(b, lb, batch + right), [size[i] for i in batch] + [1] * len(left) + [size[i] for i in right])
        r = op(P.Mul)(x, y)
    else:
        nb, nl, nr, nk = [math.prod([size[i] for i in s]) for s in (batch, left, right, con)]
        # The position of the summed dimensions in an operand decides whether the transpose flag or
        # a copy is needed.
        (x, ta), (y, tb) = _matrices(a, la, batch, left, con, nb, nl, nk), _matrices(b, lb, batch, right, con, nb, nr, nk)
        r = matmul(x, y, ta, not tb) if nb == 1 else batched(x, y, ta, not tb)
        r = r.view(tuple([size[i] for i in batch + left + right]))
    r = _permuted(r, batch + left + right, list(lo))
    return r if is_contiguous(r) else copied(r)


def _matrices(x, labels, batch, own, con, nb, n, k):
    """Returns (x as ((nb,) n, k), False), or (x as ((nb,) k, n), True) if that is its memory order.
    """
    lead = (nb,) if nb > 1 else ()
    if list(labels) == batch + con + own and own:
        return reshape(x, (*lead, k, n)), True
    return reshape(_permuted(x, labels, batch + own + con), (*lead, n, k)), False
