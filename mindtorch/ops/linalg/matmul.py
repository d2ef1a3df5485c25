"""Matrix products: matmul and its relatives, linear; einsum and distances live in _contract.py and _distance.py."""
import math

import numpy as np

from mindtorch.backend.cpu import heavy as cpu, threads
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.product import blas_ready, product
from mindtorch.core import alias
from mindtorch.core.foreign import is_foreign
from mindtorch.core.promote import pair, result_dtype, to
from mindtorch.core.sparse import SparseUse, dispatch
from mindtorch.core.table import TABLE, op, resize
from mindtorch.core.tape import sequence, primitive
from mindtorch.core.tensor import Tensor, wrap
from mindtorch.ops.linalg import _distance  # noqa: F401  (declares cdist, pdist)
from mindtorch.ops.linalg._contract import contract
from mindtorch.ops.nn._fused import cname, dim_of, tensor_arg, times, title
from mindtorch.ops.basic import add_, cast, conj, mul_

# ------------------------------------------------------------------ kernels with gradients
# op(a) @ op(b), where op transposes if ta (tb): the flags spare transposed views in the gradients.
mm_ = primitive("mm", cpu.matmul,
                lambda c, g: (mm_(conj(c.b), g, ta=c.tb, tb=True) if c.ta else mm_(g, conj(c.b), ta=False, tb=not c.tb)),
                lambda c, g: (mm_(g, conj(c.a), ta=True, tb=c.ta) if c.tb else mm_(conj(c.a), g, ta=not c.ta, tb=False)))
bmm_ = primitive("bmm", cpu.matmul,
                 lambda c, g: (bmm_(conj(c.b), g, ta=c.tb, tb=True) if c.ta else bmm_(g, conj(c.b), ta=False, tb=not c.tb)),
                 lambda c, g: (bmm_(g, conj(c.a), ta=True, tb=c.ta) if c.tb else bmm_(conj(c.a), g, ta=not c.ta, tb=False)))


def _linear(x, w, b=None):
    return cpu.linear(x, w, b)


# x @ w.T + b over the last dim, x @ w over the last dim, and the sum of outer products that is their weights' gradient:
# each one's gradients are the others.
linear_ = primitive("linear", _linear, lambda c, g: rows_(g, conj(c.w)), lambda c, g: fold_(g, conj(c.x)),
                    lambda c, g: column_sum_(g) if c.shapes[2] == g._sizes[-1:] else g, node="AddmmBackward0", order=(2, 0, 1))
rows_ = primitive("matmul_rows", cpu.matmul_rows, lambda c, g: linear_(g, conj(c.w)), lambda c, g: fold_(conj(c.x), g),
                  node="MmBackward0")
fold_ = primitive("fold", cpu.fold, lambda c, g: linear_(conj(c.b), g),
                  lambda c, g: rows_(conj(c.a), g), node="MmBackward0")
column_sum_ = primitive("column_sum", cpu.column_sum, lambda c, g: _spread_rows(g, shape=c.shapes[0]), node="SumBackward1")
_spread_rows = primitive("spread_rows", lambda g, *, shape: np.broadcast_to(g, shape).copy(), lambda c, g: column_sum_(g),
                         raw=True, node="ExpandBackward0")

dot_ = primitive("dot", quiet(lambda a, b: np.dot(a, b) if a.size <= 8192 else threads.alone(np.dot, a, b)),
                 lambda c, g: mul_(g, conj(c.b)), lambda c, g: mul_(g, conj(c.a)))
# Matrix times vector, vector times matrix, outer product, all with leading batch dims.
@quiet
def _mv(a, v):
    return threads.matmul(blas_ready(a), v) if v.ndim == 1 else threads.matmul(a, v[..., None])[..., 0]


@quiet
def _vm(a, u):
    return threads.matmul(u[..., None, :], a)[..., 0, :] if u.ndim > 1 or a.ndim > 2 else threads.matmul(u, a)


mv_ = primitive("mv", _mv,
                lambda c, g: outer_(g, conj(c.v)), lambda c, g: vm_(conj(c.a), g))
vm_ = primitive("vm", _vm,
                lambda c, g: outer_(conj(c.u), g), lambda c, g: mv_(conj(c.a), g), node="MvBackward0")
outer_ = primitive("outer", quiet(lambda x, y: x[..., :, None] * y[..., None, :]),
                   lambda c, g: mv_(g, conj(c.y)), lambda c, g: vm_(g, conj(c.x)), node="MulBackward0")


# ------------------------------------------------------------------ matmul and its special cases
_NO_BOOL = "\"{}\" not implemented for 'Bool'"


def _product_dtypes(a, b):
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {_c(a)} != {_c(b)}")
    raise NotImplementedError(_NO_BOOL.format("addmm_impl_cpu_") + " on device cpu")


def _c(a):
    return {"int64": "long int"}.get(a.dtype.name) or cname(_Like(a))


class _Like:
    __slots__ = ("_a",)

    def __init__(self, a):
        self._a = a


def _sizes(a, b):
    return RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a[0]}x{a[1]} and {b[0]}x{b[1]})")


@op(out=True, aliases="linalg.matmul")
def matmul(input, other):
    """Matrix product with NumPy's broadcasting rules: vectors, matrices and batches of them."""
    try:
        a, b = input._a, other._a
    except AttributeError:
        tensor_arg("matmul", "input", input)
        tensor_arg("matmul", "other", other, 2)
    except SparseUse:
        return dispatch["matmul"](input, other)
    na, nb = a.ndim, b.ndim
    if nb == 2 and na >= 2:
        if a.dtype != b.dtype or a.dtype.kind == "b":
            _product_dtypes(a, b)
        if a.shape[-1] != b.shape[0]:
            raise _sizes((math.prod(a.shape[:-1]), a.shape[-1]), b.shape)
        return mm_(input, other, ta=False, tb=False) if na == 2 else rows_(input, other)
    if na > 2 and nb > 2 or na == 2 and nb > 2:
        if a.dtype != b.dtype:
            raise RuntimeError(f"expected scalar type {title(a)} but found {title(b)}")
        if a.dtype.kind == "b":
            _product_dtypes(a, b)
        if a.shape[-1] != b.shape[-2]:
            batch = math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
            raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{batch}, "
                               f"{a.shape[-1]}] but "
                               f"got: [{batch}, {b.shape[-2]}].")
        _check_batch(a.shape[:-2], b.shape[:-2])
        return bmm_(input, other, ta=False, tb=False)
    if not na or not nb:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {na}D and {nb}D")
    if na == 1 and nb == 1:
        return dot(input, other)
    if a.dtype != b.dtype or a.dtype.kind == "b":
        _product_dtypes(a, b)
    if nb == 1:
        if a.shape[-1] != b.shape[0]:
            if na > 2:
                raise RuntimeError(f"size mismatch, got input ({math.prod(a.shape[:-1])}), mat "
                                   f"({math.prod(a.shape[:-1])}x"
                                   f"{a.shape[-1]}), vec ({b.shape[0]})")
            raise RuntimeError(f"size mismatch, got input ({a.shape[0]}), mat ({a.shape[0]}x{a.shape[1]}), vec "
                               f"({b.shape[0]})")
        return mv_(input, other)
    if a.shape[0] != b.shape[-2]:
        raise _sizes((1, a.shape[0]), b.shape[-2:])
    return vm_(other, input)


def _check_batch(a, b):
    for i, (m, n) in enumerate(zip(reversed(a), reversed(b))):
        if m != n and m != 1 and n != 1:
            raise RuntimeError(f"The size of tensor a ({m}) must match the size of tensor b ({n}) at non-singleton "
                               "dimension "
                               f"{max(len(a), len(b)) - 1 - i}")


def _matmul_operator(self, other):
    return matmul(self, other) if isinstance(other, Tensor) or is_foreign(other) else NotImplemented


def _rmatmul_operator(self, other):
    return matmul(other, self) if isinstance(other, Tensor) or is_foreign(other) else NotImplemented


Tensor.__matmul__ = _matmul_operator
Tensor.__rmatmul__ = _rmatmul_operator


@op(out=True)
def mm(input, mat2):
    """Product of two matrices."""
    try:
        tensor_arg("mm", "input", input)
        tensor_arg("mm", "mat2", mat2, 2)
    except SparseUse:
        return dispatch["mm"](input, mat2)
    a, b = input._a, mat2._a
    if a.ndim != 2:
        raise RuntimeError("self must be a matrix")
    if b.ndim != 2:
        raise RuntimeError("mat2 must be a matrix")
    return matmul(input, mat2)


@op(out=True)
def bmm(input, mat2):
    """Products of two batches of matrices: (B, N, M) and (B, M, P)."""
    tensor_arg("bmm", "input", input)
    tensor_arg("bmm", "mat2", mat2, 2)
    a, b = input._a, mat2._a
    if a.ndim != 3:
        raise RuntimeError("batch1 must be a 3D tensor")
    if b.ndim != 3:
        raise RuntimeError("batch2 must be a 3D tensor")
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected scalar type {title(a)} but found {title(b)}")
    if a.dtype.kind == "b":
        raise NotImplementedError(_NO_BOOL.format("bmm") + " on device cpu")
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{a.shape[0]}, "
                           f"{a.shape[2]}] but "
                           f"got: [{b.shape[0]}, {b.shape[1]}].")
    return bmm_(input, mat2, ta=False, tb=False)


@op(out=True)
def mv(input, vec):
    """Product of a matrix and a vector."""
    tensor_arg("mv", "input", input)
    tensor_arg("mv", "vec", vec, 2)
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {input.ndim}, {vec.ndim}")
    return matmul(input, vec)


def _check_vectors(name, a, b):
    tensor_arg(name, "input", a)
    tensor_arg(name, "tensor" if name == "dot" else "other", b, 2)
    x, y = a._a, b._a
    if x.ndim != 1 or y.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {x.ndim}D and {y.ndim}D tensors")
    if x.dtype != y.dtype:
        raise RuntimeError(f"dot : expected both vectors to have same dtype, but found {title(x)} and {title(y)}")
    if x.size != y.size:
        raise RuntimeError(f"inconsistent tensor size, expected tensor [{x.size}] and src [{y.size}] to have the same "
                           "number of "
                           f"elements, but got {x.size} and {y.size} elements respectively")
    if x.dtype.kind == "b":
        raise NotImplementedError(_NO_BOOL.format(name) + " on device cpu")


@op(out=True)
def dot(input, tensor):
    """Scalar product of two vectors (not conjugated)."""
    _check_vectors("dot", input, tensor)
    return dot_(input, tensor)


@op(out=True)
def vdot(input, other):
    """Scalar product of two vectors, the first one conjugated."""
    _check_vectors("vdot", input, other)
    return dot_(conj(input), other)


@op(out=True, aliases="ger")
def outer(input, vec2):
    """All products of the elements of two vectors: (N,) and (M,) -> (N, M)."""
    tensor_arg("outer", "input", input)
    tensor_arg("outer", "vec2", vec2, 2)
    for n, t in (("self", input), ("vec2", vec2)):
        if t.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {n}, but got {t.ndim}-D")
    a, b = pair(input, vec2)
    return outer_(a, b)


@op(out=True)
def inner(input, other):
    """Sums of products over the last dim of both."""
    tensor_arg("inner", "input", input)
    tensor_arg("inner", "other", other, 2)
    a, b = input._a, other._a
    if not a.ndim or not b.ndim:
        x, y = pair(input, other)
        return mul_(x, y)
    if a.shape[-1] != b.shape[-1]:
        raise RuntimeError("inner() the last dimension must match on both input tensors but got shapes "
                           f"{list(a.shape)} and {list(b.shape)}")
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {_c(a)} != {_c(b)}")
    if a.dtype.kind == "b":
        raise NotImplementedError(_NO_BOOL.format("dot" if a.ndim == b.ndim == 1 else "addmm_impl_cpu_") + " on device "
                                                                                                           "cpu")
    if a.ndim == b.ndim == 1:
        return dot_(input, other)
    k = a.ndim - 1
    la, lb = tuple(range(a.ndim)), tuple(range(a.ndim, a.ndim + b.ndim - 1)) + (k,)
    return contract(input, other, la, lb, la[:-1] + lb[:-1])


# ------------------------------------------------------------------ with addition
def _scaled(x, k):
    """k * x for a number k in x's dtype."""
    return x if k == 1 else times(x, _number(x, k))


def _number(x, k):
    d = x._stype
    if d.kind in "iu":
        return int(k)
    if d.kind == "b":
        return bool(k)
    return k


def _plus(input, beta, r, alpha):
    """beta * input + alpha * r."""
    if not input.ndim and r._stype != input._stype:
        input = cast(input, r._stype)
    r = _scaled(r, alpha)
    if beta == 0:
        return r
    return add_(_scaled(input, beta), r)


def _check_expand(shape, target):
    lead = len(target) - len(shape)
    if lead < 0:
        raise RuntimeError(f"expand(): the number of sizes provided ({len(target)}) must be greater or equal to the "
                           "number of "
                           f"dimensions in the tensor ({len(shape)})")
    for i, n in enumerate(shape):
        if n != target[i + lead] and n != 1:
            raise RuntimeError(f"The expanded size of the tensor ({target[i + lead]}) must match the existing size "
                               f"({n}) at "
                               f"non-singleton dimension {i + lead}.  Target sizes: {list(target)}.  Tensor sizes: "
                               f"{list(shape)}")


@quiet
def _addmm(c, a, b, *, beta, alpha):
    r = product(a, b)
    if alpha != 1:
        r *= r.dtype.type(alpha)
    if beta == 1:
        r += c
    elif beta:
        r += c * c.dtype.type(beta)
    return r


addmm_ = primitive("addmm", _addmm, lambda c, g: _scaled(g, c.beta),
                   lambda c, g: _scaled(bmm_(g, conj(c.b), ta=False, tb=True), _conj_number(c.alpha)),
                   lambda c, g: _scaled(bmm_(conj(c.a), g, ta=True, tb=False), _conj_number(c.alpha)))


def _conj_number(k):
    return k.conjugate() if isinstance(k, complex) else k


def _check_addmm(name, input, mat1, mat2):
    tensor_arg(name, "input", input)
    tensor_arg(name, "mat1", mat1, 2)
    tensor_arg(name, "mat2", mat2, 3)
    a, b = mat1._a, mat2._a
    if input._stype != b.dtype:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {title(input)} and {title(b)}")
    if a.dtype != b.dtype or a.dtype.kind == "b":
        _product_dtypes(a, b)


@op(inplace=True, out=True)
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta * input + alpha * mat1 @ mat2 (beta 0: `input` is not read)."""
    try:
        _check_addmm("addmm", input, mat1, mat2)
    except SparseUse:
        return dispatch["addmm"](input, mat1, mat2, beta=beta, alpha=alpha)
    a, b = mat1._a, mat2._a
    if a.ndim != 2 or b.ndim != 2:
        raise RuntimeError(f"mat1 must be a matrix, got {a.ndim}-D tensor" if a.ndim != 2 else
                           f"mat2 must be a matrix, got {b.ndim}-D tensor")
    if a.shape[1] != b.shape[0]:
        raise _sizes(a.shape, b.shape)
    _check_expand(input._sizes, (a.shape[0], b.shape[1]))
    return addmm_(input, mat1, mat2, beta=_number(input, beta), alpha=_number(input, alpha))


@op(inplace=True, out=True)
def baddbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta * input + alpha * batch1 @ batch2 for batches of matrices (beta 0: `input` is not read)."""
    _check_batches("baddbmm", input, batch1, batch2)
    a, b = batch1._a, batch2._a
    _check_expand(input._sizes, (a.shape[0], a.shape[1], b.shape[2]))
    return addmm_(input, batch1, batch2, beta=_number(input, beta), alpha=_number(input, alpha))


def _check_batches(name, input, batch1, batch2):
    tensor_arg(name, "input", input)
    tensor_arg(name, "batch1", batch1, 2)
    tensor_arg(name, "batch2", batch2, 3)
    a, b = batch1._a, batch2._a
    for n, x in (("batch1", a), ("batch2", b)):
        if x.ndim != 3:
            raise RuntimeError(f"{n} must be a 3D tensor")
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected scalar type {title(a)} but found {title(b)}")
    if input._stype != a.dtype:
        raise RuntimeError(f"Input dtypes must be the same, got: input: {cname(input)}, batch1: {cname(batch1)}, "
                           "batch2: "
                           f"{cname(batch2)}")
    if a.dtype.kind == "b":
        raise NotImplementedError(_NO_BOOL.format(name) + " on device cpu")
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{a.shape[0]}, "
                           f"{a.shape[2]}] but "
                           f"got: [{b.shape[0]}, {b.shape[1]}].")


@op(out=True)
def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta * input + alpha * the sum over the batch of batch1 @ batch2."""
    _check_batches("addbmm", input, batch1, batch2)
    a, b = batch1._a, batch2._a
    _check_expand(input._sizes, (a.shape[1], b.shape[2]))
    r = contract(batch1, batch2, (0, 1, 2), (0, 2, 3), (1, 3))
    return _plus(input, _number(input, beta), r, _number(r, alpha))


def _addbmm_(self, batch1, batch2, *, beta=1, alpha=1):
    """In-place addbmm; unlike other ops it resizes a tensor that only broadcasts to the result."""
    since = next(sequence)
    r = addbmm(self, batch1, batch2, beta=beta, alpha=alpha)
    if self._sizes != r._sizes:
        alias.check_inplace(self, False)
        resize(self, r._sizes)
    return alias.assign(self, r, since, (batch1, batch2))


Tensor.addbmm_ = _addbmm_


@op(inplace=True, out=True)
def addmv(input, mat, vec, *, beta=1, alpha=1):
    """beta * input + alpha * mat @ vec."""
    tensor_arg("addmv", "input", input)
    tensor_arg("addmv", "mat", mat, 2)
    tensor_arg("addmv", "vec", vec, 3)
    m, v = mat._a, vec._a
    if m.ndim != 2 or v.ndim != 1 or input.ndim > 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {input.ndim}, {m.ndim}, {v.ndim}")
    if m.shape[1] != v.shape[0] or (input.ndim and input._sizes[0] not in (1, m.shape[0])):
        raise RuntimeError(f"size mismatch, got input ({input._numel}), mat ({m.shape[0]}x{m.shape[1]}), vec "
                           f"({v.shape[0]})")
    if m.dtype != v.dtype or input._stype != m.dtype:
        raise RuntimeError(f"expected scalar type {title(m)} but found {title(v if v.dtype != m.dtype else input)}")
    if m.dtype.kind == "b":
        raise NotImplementedError(_NO_BOOL.format("addmv_impl_cpu") + " on device cpu")
    return _plus(input, _number(input, beta), mv_(mat, vec), _number(input, alpha))


@op(inplace=True, out=True)
def addr(input, vec1, vec2, *, beta=1, alpha=1):
    """beta * input + alpha * outer(vec1, vec2), with type promotion."""
    tensor_arg("addr", "input", input)
    for n, t in (("vec1", vec1), ("vec2", vec2)):
        tensor_arg("addr", n, t)
        if t.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {n}, but got {t.ndim}-D")
    d = result_dtype(input, vec1, vec2)
    _check_expand(input._sizes, (vec1._numel, vec2._numel))
    for n, k in (("beta", beta), ("alpha", alpha)):
        if isinstance(k, float) and d.kind in "iub":
            raise RuntimeError(f"For integral input tensors, argument {n} must not be a floating point number.")
    r = outer_(to(vec1, d), to(vec2, d))
    r = _plus(to(input, d), _number_for(d, beta), r, _number_for(d, alpha))
    return r


def _number_for(d, k):
    return int(k) if d.kind in "iu" else bool(k) if d.kind == "b" else k


# ------------------------------------------------------------------ linear
@op(ns="nn.functional", method=False)
def linear(input, weight, bias=None):
    """input @ weight.T + bias over the last dim: (*, in), (out, in), (out,) -> (*, out)."""
    try:
        x, w = input._a, weight._a
    except AttributeError:
        tensor_arg("linear", "input", input)
        tensor_arg("linear", "weight", weight, 2)
    if w.ndim == 2 and x.ndim and x.dtype == w.dtype and x.shape[-1] == w.shape[1] and x.dtype.kind != "b":
        if bias is None:
            return linear_(input, weight)
        tensor_arg("linear", "bias", bias, 3)
        b = bias._a
        if b.dtype == x.dtype and b.shape == w.shape[:1]:
            return linear_(input, weight, bias)
        if b.dtype != x.dtype:
            raise RuntimeError(f"self and mat2 must have the same dtype, but got {title(b)} and {title(x)}")
        _check_expand(b.shape, x.shape[:-1] + w.shape[:1])
        return add_(linear_(input, weight), bias)
    if not x.ndim or not w.ndim:
        raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are {x.ndim}D and {w.ndim}D")
    if x.dtype != w.dtype or x.dtype.kind == "b":
        _product_dtypes(x, w)
    if w.ndim > 2:
        raise RuntimeError("t() expects a tensor with <= 2 dimensions, but self is " + f"{w.ndim}D")
    if w.ndim == 1:
        r = matmul(input, weight)
        return r if bias is None else add_(r, bias)
    raise _sizes((math.prod(x.shape[:-1]), x.shape[-1]), w.shape[::-1])


@op(method=False, aliases="nn.functional.bilinear")
def bilinear(input1, input2, weight, bias=None):
    """y[..., o] = sum over i, j of x1[..., i] * weight[o, i, j] * x2[..., j], plus bias."""
    a, b, w = input1._a, input2._a, weight._a
    if a.ndim != b.ndim:
        raise RuntimeError(f"bilinear(): input dimensions do not match: got {a.ndim} and {b.ndim}")
    for i in range(a.ndim - 1):
        if a.shape[i] != b.shape[i]:
            raise RuntimeError(f"bilinear(): input batch dimensions do not match at dim {i}: got {a.shape[i]} and "
                               f"{b.shape[i]}")
    if a.shape[-1] != w.shape[1]:
        raise RuntimeError(f"bilinear(): input1 size does not match weight size: got {a.shape[-1]} but expected "
                           f"{w.shape[1]}")
    if b.shape[-1] != w.shape[2]:
        raise RuntimeError(f"bilinear(): input2 size does not match weight size: got {b.shape[-1]} but expected "
                           f"{w.shape[2]}")
    if bias is not None and bias._sizes[0] != w.shape[0]:
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {bias._sizes[0]} but expected "
                           f"{w.shape[0]}")
    n = a.ndim - 1
    lead, o, i, j = tuple(range(n)), n, n + 1, n + 2
    t = contract(input1, weight, lead + (i,), (o, i, j), lead + (o, j))
    y = contract(t, input2, lead + (o, j), lead + (j,), lead + (o,))
    return y if bias is None else add_(y, bias)


# ------------------------------------------------------------------ chains, kron, cross
@op(method=False, name="chain_matmul")
def chain_matmul(*matrices, out=None):
    """Product of matrices in the cheapest order."""
    if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)):
        matrices = tuple(matrices[0])
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    for i, m in enumerate(matrices):
        tensor_arg("chain_matmul", "matrices", m, i + 1)
        if m.ndim != 2:
            raise RuntimeError(f"Tensor dimension is {m.ndim}, expected 2 instead.")
    r = multiply_chain(matrices)
    if out is not None:
        from mindtorch.core.table import store_out
        return store_out("chain_matmul", out, r)
    return r


def multiply_chain(ms):
    """Product of a sequence of matrices, bracketed for the fewest multiplications."""
    n = len(ms)
    if n == 1:
        return ms[0]
    if n == 2:
        return matmul(*ms)
    sizes = [m._sizes[0] for m in ms] + [ms[-1]._sizes[1]]
    cost = [[0] * n for _ in range(n)]
    cut = [[0] * n for _ in range(n)]
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            cost[i][j], cut[i][j] = min((cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                                        for k in range(i, j))

    def product(i, j):
        return ms[i] if i == j else matmul(product(i, cut[i][j]), product(cut[i][j] + 1, j))
    return product(0, n - 1)


@op(out=True)
def kron(input, other):
    """Kronecker product."""
    tensor_arg("kron", "input", input)
    tensor_arg("kron", "other", other, 2)
    a, b = pair(input, other)
    n = max(a.ndim, b.ndim)
    sa = (1,) * (n - a.ndim) + a._sizes
    sb = (1,) * (n - b.ndim) + b._sizes
    x = a.reshape([k for s in sa for k in (s, 1)])
    y = b.reshape([k for s in sb for k in (1, s)])
    return mul_(x, y).reshape([s * t for s, t in zip(sa, sb)])


def _cross(a, b, *, dim):
    a, b = np.broadcast_arrays(a, b)
    x, y = np.moveaxis(a, dim, 0), np.moveaxis(b, dim, 0)
    r = np.empty(x.shape, x.dtype)
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        r[i] = x[j] * y[k] - x[k] * y[j]
    return np.ascontiguousarray(np.moveaxis(r, 0, dim))


cross_ = primitive("linalg_cross", quiet(_cross), lambda c, g: cross_(conj(c.b), g, dim=c.dim),
                   lambda c, g: cross_(g, conj(c.a), dim=c.dim), inputs=None)


def cross_product(input, other, dim):
    """linalg.cross: the vector product along `dim`, which must have length 3; other dims broadcast."""
    a, b = pair(input, other)
    x, y = a._a, b._a
    n = max(x.ndim, y.ndim)
    if x.ndim != y.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    d = dim_of(dim, n)
    if x.shape[d] != 3 or y.shape[d] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {x.shape[d]} and {y.shape[d]}")
    _check_batch(x.shape, y.shape)
    if x.dtype.kind == "b":
        raise NotImplementedError("\"cross\" not implemented for 'Bool' on device cpu")
    return cross_(a, b, dim=d - n)


@op(out=True)
def cross(input, other, dim=None):
    """Vector product along `dim` (default: the first dim of size 3)."""
    tensor_arg("cross", "input", input)
    tensor_arg("cross", "other", other, 2)
    if dim is None:
        shape = input._sizes
        if 3 not in shape:
            raise RuntimeError("no dimension of size 3 in input")
        dim = list(shape).index(3)
    return cross_product(input, other, dim)




# ------------------------------------------------------------------ grouped products
@op(ns="nn.functional", method=False)
def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Products of groups of matrices.

    Three dims are a batch of groups; two dims hold the groups one after the other, `offs` (int32) being where each ends:
    (R, K) x (G, K, N) -> (R, N); (G, M, K) x (K, N) -> (M, N); (M, K) x (K, N) -> (G, M, N).
    """
    tensor_arg("grouped_mm", "mat_a", mat_a)
    tensor_arg("grouped_mm", "mat_b", mat_b, 2)
    a, b = mat_a._a, mat_b._a
    if a.ndim not in (2, 3) or b.ndim not in (2, 3):
        raise RuntimeError("grouped_mm: mat_a and mat_b have to be 2 or 3 dimensional")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if (offs is None) != (a.ndim == 3 and b.ndim == 3):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    if offs is None:
        r = matmul(mat_a, mat_b)
    else:
        ends = offs._a.tolist()
        spans = list(zip([0] + ends[:-1], ends))
        cat, stack = TABLE["cat"].fn, TABLE["stack"].fn
        if a.ndim == 2 and b.ndim == 3:
            r = cat([matmul(mat_a.narrow(0, s, e - s), mat_b.select(0, g)) for g, (s, e) in enumerate(spans)], 0)
            if r._sizes[0] < a.shape[0]:
                r = cat([r, wrap(np.zeros((a.shape[0] - r._sizes[0], b.shape[2]), r._stype))], 0)
        elif a.ndim == 3:
            r = cat([matmul(mat_a.select(0, g), mat_b.narrow(1, s, e - s)) for g, (s, e) in enumerate(spans)], 1)
        else:
            r = stack([matmul(mat_a.narrow(1, s, e - s), mat_b.narrow(0, s, e - s)) for s, e in spans], 0)
    return r if out_dtype is None else r.to(out_dtype)


def _no_low_precision(name):
    def refuse(mat_a, mat_b, *args, **kwargs):
        """Refused: it takes 8-bit and 4-bit floating point matrices, which no kernel here has."""
        raise NotImplementedError(f"'{name}' is not implemented for dtype {mat_a.dtype} on device cpu: there are no "
                                  "float8 kernels")
    return refuse


scaled_mm = _no_low_precision("scaled_mm")
scaled_grouped_mm = _no_low_precision("scaled_grouped_mm")
