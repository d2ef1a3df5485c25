"""Matrix products: matmul and related ops, linear. einsum is in
`mindtorch/ops/linalg/_contract.py`, distances are in `mindtorch/ops/linalg/_distance.py`."""
import math

from mindtorch.core.tensor import inplace
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import I32, as_np
from mindtorch.core.dispatch.error_messages import is_pytorch_tensor
from mindtorch.core.dispatch.type_promotion import promote_pair, result_dtype, to
from mindtorch.core.tensor.sparse import SparseUse, dispatch
from mindtorch.core.dispatch.op_registry import OPS, register_op, resize, store_out
from mindtorch.core.dispatch.op_schema import Int, Scalar
from mindtorch.core.dispatch.primitives import sequence, primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops.linalg import _distance  # noqa: F401  (declares cdist, pdist)
from mindtorch.ops.linalg._contract import contract
from mindtorch.ops.nn._fused import c_type_name, dim_of, check_tensor_arg, times
from mindtorch.ops.basic import add_, cast, conj, mul_, new_full

# ------------------------------------------------------------------ kernels with gradients
#
# op(a) @ op(b), where op transposes if ta (tb). The flags avoid transposed views in the gradients.
mm_ = primitive("mm", "a, b, *, ta, tb",
                lambda ctx, grad: (mm_(conj(ctx.b), grad, ta=ctx.tb, tb=True) if ctx.ta else mm_(grad, conj(ctx.b), ta=False, tb=not ctx.tb)),
                lambda ctx, grad: (mm_(grad, conj(ctx.a), ta=True, tb=ctx.ta) if ctx.tb else mm_(conj(ctx.a), grad, ta=not ctx.ta, tb=False)))
bmm_ = primitive("bmm", "a, b, *, ta, tb",
                 lambda ctx, grad: (bmm_(conj(ctx.b), grad, ta=ctx.tb, tb=True) if ctx.ta else bmm_(grad, conj(ctx.b), ta=False, tb=not ctx.tb)),
                 lambda ctx, grad: (bmm_(grad, conj(ctx.a), ta=True, tb=ctx.ta) if ctx.tb else bmm_(conj(ctx.a), grad, ta=not ctx.ta, tb=False)))


# x @ w.T + b over the last dim, x @ w over the last dim, and the sum of outer products that is the
# gradient of the weights. The gradients of each are the other two.
linear_ = primitive("linear", "x, w, b=None", lambda ctx, grad: rows_(grad, conj(ctx.w)), lambda ctx, grad: fold_(grad, conj(ctx.x)),
                    lambda ctx, grad: column_sum_(grad) if ctx.shapes[2] == grad._sizes[-1:] else grad, node="AddmmBackward0", order=(2, 0, 1))
rows_ = primitive("matmul_rows", "x, w", lambda ctx, grad: linear_(grad, conj(ctx.w)), lambda ctx, grad: fold_(conj(ctx.x), grad),
                  node="MmBackward0")
fold_ = primitive("fold", "a, b", lambda ctx, grad: linear_(conj(ctx.b), grad),
                  lambda ctx, grad: rows_(conj(ctx.a), grad), node="MmBackward0")
column_sum_ = primitive("column_sum", "a", lambda ctx, grad: _expand_rows(grad, shape=ctx.shapes[0]), node="SumBackward1")
_expand_rows = primitive("expand_rows", "g, *, shape", lambda ctx, grad: column_sum_(grad),
                         raw=True, node="ExpandBackward0")

dot_ = primitive("dot", "a, b", lambda ctx, grad: mul_(grad, conj(ctx.b)), lambda ctx, grad: mul_(grad, conj(ctx.a)), aten="dot.default")
# Matrix-vector, vector-matrix and outer products, all with leading batch dims.
mv_ = primitive("mv", "a, v", lambda ctx, grad: outer_(grad, conj(ctx.v)), lambda ctx, grad: vm_(conj(ctx.a), grad), aten="mv.default")
vm_ = primitive("vm", "a, u", lambda ctx, grad: outer_(conj(ctx.u), grad), lambda ctx, grad: mv_(conj(ctx.a), grad), node="MvBackward0")
outer_ = primitive("outer", "x, y", lambda ctx, grad: mv_(grad, conj(ctx.y)), lambda ctx, grad: vm_(grad, conj(ctx.x)), node="MulBackward0",
                   aten="outer.default")


# ------------------------------------------------------------------ matmul and its special cases
_NO_BOOL = "\"{}\" not implemented for 'Bool'"


def _product_dtypes(a, b):
    """Raises for operands of different dtypes and for bool. (Called if the dtypes are not the same
    object, which is faster to check.)"""
    if a._np_dtype != b._np_dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {_c_type(a)} != {_c_type(b)}")
    if a._np_dtype.kind == "b":
        raise NotImplementedError(_NO_BOOL.format("addmm_impl_cpu_") + f" on device {a.device}")


def _c_type(x):
    return {"int64": "long int"}.get(x._np_dtype.name) or c_type_name(x)


def _no_product(a, b):
    return RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a[0]}x{a[1]} and {b[0]}x{b[1]})")


@register_op(out="same", aliases="linalg.matmul", autocast="lower")
def matmul(input, other):
    """Matrix product with NumPy's broadcasting rules: vectors, matrices and batches of them."""
    try:
        a, b = input._sizes, other._sizes
    except AttributeError:
        check_tensor_arg("matmul", "input", input)
        check_tensor_arg("matmul", "other", other, 2)
        raise
    except SparseUse:
        return dispatch["matmul"](input, other)
    na, nb, d = len(a), len(b), input._np_dtype
    if nb == 2 and na >= 2:
        if d is not other._np_dtype or d.kind == "b":
            _product_dtypes(input, other)
        if a[-1] != b[0]:
            raise _no_product((math.prod(a[:-1]), a[-1]), b)
        return mm_(input, other, ta=False, tb=False) if na == 2 else rows_(input, other)
    e = other._np_dtype
    if na > 2 and nb > 2 or na == 2 and nb > 2:
        if d is not e and d != e:
            raise RuntimeError(f"expected scalar type {scalar_type_name(d)} but found {scalar_type_name(e)}")
        if d.kind == "b":
            _product_dtypes(input, other)
        if a[-1] != b[-2]:
            _check_batch(a[:-2], b[:-2])
            batch = math.prod(broadcast_sizes(a[:-2], b[:-2]))
            raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{batch}, {a[-1]}] but "
                               f"got: [{batch}, {b[-2]}].")
        _check_batch(a[:-2], b[:-2])
        return bmm_(input, other, ta=False, tb=False)
    if not na or not nb:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {na}D and {nb}D")
    if na == 1 and nb == 1:
        if d is not e or a != b or d.kind == "b":
            _check_vectors("dot", input, other)
        return dot_(input, other)
    if d is not e or d.kind == "b":
        _product_dtypes(input, other)
    if nb == 1:
        if a[-1] != b[0]:
            if na > 2:
                rows = math.prod(a[:-1])
                raise RuntimeError(f"size mismatch, got input ({rows}), mat ({rows}x{a[-1]}), vec ({b[0]})")
            raise RuntimeError(f"size mismatch, got input ({a[0]}), mat ({a[0]}x{a[1]}), vec ({b[0]})")
        return mv_(input, other)
    if a[0] != b[-2]:
        raise _no_product((1, a[0]), b[-2:])
    return vm_(other, input)


def broadcast_sizes(a, b):
    """Returns the shape that two compatible shapes broadcast to."""
    n = max(len(a), len(b))
    return tuple([y if x == 1 else x for x, y in zip((1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b))])


def _check_batch(a, b):
    for i, (m, n) in enumerate(zip(reversed(a), reversed(b))):
        if m != n and m != 1 and n != 1:
            raise RuntimeError(f"The size of tensor a ({m}) must match the size of tensor b ({n}) at non-singleton "
                               "dimension "
                               f"{max(len(a), len(b)) - 1 - i}")


def _matmul_operator(self, other):
    return matmul(self, other) if (other.__class__ is Tensor or is_tensor(other)) or is_pytorch_tensor(other) else NotImplemented


def _rmatmul_operator(self, other):
    return matmul(other, self) if (other.__class__ is Tensor or is_tensor(other)) or is_pytorch_tensor(other) else NotImplemented


Tensor.__matmul__ = _matmul_operator
Tensor.__rmatmul__ = _rmatmul_operator


@register_op(out="same", autocast="lower")
def mm(input, mat2):
    """Product of two matrices."""
    try:
        a, b, d, e = input._sizes, mat2._sizes, input._np_dtype, mat2._np_dtype
    except AttributeError:
        check_tensor_arg("mm", "input", input)
        check_tensor_arg("mm", "mat2", mat2, 2)
        raise
    except SparseUse:
        return dispatch["mm"](input, mat2)
    if len(a) != 2:
        raise RuntimeError("self must be a matrix")
    if len(b) != 2:
        raise RuntimeError("mat2 must be a matrix")
    if d is not e or d.kind == "b":
        _product_dtypes(input, mat2)
    if a[1] != b[0]:
        raise _no_product(a, b)
    return mm_(input, mat2, ta=False, tb=False)


@register_op(out="same", autocast="lower")
def bmm(input, mat2):
    """Products of two batches of matrices: (B, N, M) and (B, M, P)."""
    try:
        a, b, d, e = input._sizes, mat2._sizes, input._np_dtype, mat2._np_dtype
    except AttributeError:
        check_tensor_arg("bmm", "input", input)
        check_tensor_arg("bmm", "mat2", mat2, 2)
        raise
    if len(a) != 3:
        raise RuntimeError("batch1 must be a 3D tensor")
    if len(b) != 3:
        raise RuntimeError("batch2 must be a 3D tensor")
    if d is not e and d != e:
        raise RuntimeError(f"expected scalar type {scalar_type_name(d)} but found {scalar_type_name(e)}")
    if d.kind == "b":
        raise NotImplementedError(_NO_BOOL.format("bmm") + f" on device {input.device}")
    if a[0] != b[0] or a[2] != b[1]:
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{a[0]}, {a[2]}] but "
                           f"got: [{b[0]}, {b[1]}].")
    return bmm_(input, mat2, ta=False, tb=False)


@register_op(out="same")
def mv(input, vec):
    """Product of a matrix and a vector."""
    try:
        a, v, d, e = input._sizes, vec._sizes, input._np_dtype, vec._np_dtype
    except AttributeError:
        check_tensor_arg("mv", "input", input)
        check_tensor_arg("mv", "vec", vec, 2)
        raise
    if len(a) != 2 or len(v) != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {len(a)}, {len(v)}")
    if d is not e or d.kind == "b":
        _product_dtypes(input, vec)
    if a[1] != v[0]:
        raise RuntimeError(f"size mismatch, got input ({a[0]}), mat ({a[0]}x{a[1]}), vec ({v[0]})")
    return mv_(input, vec)


def _check_vectors(name, a, b):
    try:
        x, y, d, e = a._sizes, b._sizes, a._np_dtype, b._np_dtype
    except AttributeError:
        check_tensor_arg(name, "input", a)
        check_tensor_arg(name, "tensor" if name == "dot" else "other", b, 2)
        raise
    if len(x) != 1 or len(y) != 1:
        raise RuntimeError(f"1D tensors expected, but got {len(x)}D and {len(y)}D tensors")
    if d is not e and d != e:
        raise RuntimeError(f"dot : expected both vectors to have same dtype, but found {scalar_type_name(d)} and {scalar_type_name(e)}")
    if x != y:
        raise RuntimeError(f"inconsistent tensor size, expected tensor [{x[0]}] and src [{y[0]}] to have the same number of "
                           f"elements, but got {x[0]} and {y[0]} elements respectively")
    if d.kind == "b":
        raise NotImplementedError(_NO_BOOL.format(name) + f" on device {a.device}")


@register_op(out="same")
def dot(input, tensor):
    """Scalar product of two vectors (not conjugated)."""
    _check_vectors("dot", input, tensor)
    return dot_(input, tensor)


@register_op(out="same")
def vdot(input, other):
    """Scalar product of two vectors, the first one conjugated."""
    _check_vectors("vdot", input, other)
    return dot_(conj(input), other)


@register_op(out=True, aliases="ger")
def outer(input, vec2):
    """All products of the elements of two vectors: (N,) and (M,) -> (N, M)."""
    check_tensor_arg("outer", "input", input)
    check_tensor_arg("outer", "vec2", vec2, 2)
    for n, t in (("self", input), ("vec2", vec2)):
        if t.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {n}, but got {t.ndim}-D")
    a, b = promote_pair(input, vec2)
    return outer_(a, b)


def _inner_autocast(input, other, **out):
    """Returns inner's autocast category."""
    return "lower" if is_tensor(input) and is_tensor(other) and input.ndim and other.ndim and input.ndim + other.ndim > 2 else None


@register_op(out="same", autocast=_inner_autocast)
def inner(input, other):
    """Sums of products over the last dim of both operands."""
    check_tensor_arg("inner", "input", input)
    check_tensor_arg("inner", "other", other, 2)
    a, b, d = input._sizes, other._sizes, input._np_dtype
    if not a or not b:
        x, y = promote_pair(input, other)
        return mul_(x, y)
    if a[-1] != b[-1]:
        raise RuntimeError("inner() the last dimension must match on both input tensors but got shapes "
                           f"{list(a)} and {list(b)}")
    if d != other._np_dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {_c_type(input)} != {_c_type(other)}")
    vectors = len(a) == len(b) == 1
    if d.kind == "b":
        raise NotImplementedError(_NO_BOOL.format("dot" if vectors else "addmm_impl_cpu_") + f" on device {input.device}")
    if vectors:
        return dot_(input, other)
    k = len(a) - 1
    la, lb = tuple(range(k + 1)), tuple(range(k + 1, k + len(b))) + (k,)
    return contract(input, other, la, lb, la[:-1] + lb[:-1])


# ------------------------------------------------------------------ with addition
def _scaled(x, k):
    """Returns k * x for a scalar k in x's dtype."""
    return x if k == 1 else times(x, _scalar_of_dtype(x, k))


def _scalar_of_dtype(x, k):
    d = x._np_dtype
    if d.kind in "iu":
        return int(k)
    if d.kind == "b":
        return bool(k)
    return k


def _scaled_sum(input, beta, r, alpha):
    """beta * input + alpha * r."""
    if not input.ndim and r._np_dtype != input._np_dtype:
        input = cast(input, r._np_dtype)
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


addmm_ = primitive("addmm", "c, a, b, *, beta, alpha", lambda ctx, grad: _scaled(grad, _conj_number(ctx.beta)),
                   lambda ctx, grad: _scaled(bmm_(grad, conj(ctx.b), ta=False, tb=True), _conj_number(ctx.alpha)),
                   lambda ctx, grad: _scaled(bmm_(conj(ctx.a), grad, ta=True, tb=False), _conj_number(ctx.alpha)))


def _conj_number(k):
    return k.conjugate() if isinstance(k, complex) else k


def _check_addmm(name, input, mat1, mat2):
    check_tensor_arg(name, "input", input)
    check_tensor_arg(name, "mat1", mat1, 2)
    check_tensor_arg(name, "mat2", mat2, 3)
    d, e = input._np_dtype, mat2._np_dtype
    if d != e:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {scalar_type_name(d)} and {scalar_type_name(e)}")
    if mat1._np_dtype != e or e.kind == "b":
        _product_dtypes(mat1, mat2)


@register_op(inplace=True, out="same", autocast="lower", overlap="unchecked")
def addmm(input, mat1, mat2, *, beta: Scalar = 1, alpha: Scalar = 1):
    """beta * input + alpha * mat1 @ mat2 (beta 0: `input` is not read)."""
    try:
        _check_addmm("addmm", input, mat1, mat2)
    except SparseUse:
        return dispatch["addmm"](input, mat1, mat2, beta=beta, alpha=alpha)
    a, b = mat1._sizes, mat2._sizes
    if len(a) != 2 or len(b) != 2:
        raise RuntimeError(f"mat1 must be a matrix, got {len(a)}-D tensor" if len(a) != 2 else
                           f"mat2 must be a matrix, got {len(b)}-D tensor")
    if a[1] != b[0]:
        raise _no_product(a, b)
    _check_expand(input._sizes, (a[0], b[1]))
    return addmm_(input, mat1, mat2, beta=_scalar_of_dtype(input, beta), alpha=_scalar_of_dtype(input, alpha))


@register_op(inplace=True, out="same", autocast="lower", overlap="unchecked")
def baddbmm(input, batch1, batch2, *, beta: Scalar = 1, alpha: Scalar = 1):
    """beta * input + alpha * batch1 @ batch2 for batches of matrices (beta 0: `input` is not read).
    """
    _check_batches("baddbmm", input, batch1, batch2)
    _check_expand(input._sizes, batch1._sizes[:2] + batch2._sizes[2:])
    return addmm_(input, batch1, batch2, beta=_scalar_of_dtype(input, beta), alpha=_scalar_of_dtype(input, alpha))


def _check_batches(name, input, batch1, batch2):
    check_tensor_arg(name, "input", input)
    check_tensor_arg(name, "batch1", batch1, 2)
    check_tensor_arg(name, "batch2", batch2, 3)
    a, b, d = batch1._sizes, batch2._sizes, batch1._np_dtype
    for n, x in (("batch1", a), ("batch2", b)):
        if len(x) != 3:
            raise RuntimeError(f"{n} must be a 3D tensor")
    if d != batch2._np_dtype:
        raise RuntimeError(f"expected scalar type {scalar_type_name(d)} but found {scalar_type_name(batch2._np_dtype)}")
    if input._np_dtype != d:
        raise RuntimeError(f"Input dtypes must be the same, got: input: {c_type_name(input)}, batch1: {c_type_name(batch1)}, "
                           f"batch2: {c_type_name(batch2)}")
    if d.kind == "b":
        raise NotImplementedError(_NO_BOOL.format(name) + f" on device {batch1.device}")
    if a[0] != b[0] or a[2] != b[1]:
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{a[0]}, {a[2]}] but "
                           f"got: [{b[0]}, {b[1]}].")


@register_op(out="same", autocast="lower", aten="addbmm.default")
def addbmm(input, batch1, batch2, *, beta: Scalar = 1, alpha: Scalar = 1):
    """beta * input + alpha * the sum over the batch of batch1 @ batch2."""
    _check_batches("addbmm", input, batch1, batch2)
    _check_expand(input._sizes, (batch1._sizes[1], batch2._sizes[2]))
    r = contract(batch1, batch2, (0, 1, 2), (0, 2, 3), (1, 3))
    return _scaled_sum(input, _scalar_of_dtype(input, beta), r, _scalar_of_dtype(r, alpha))


def _addbmm_(self, batch1, batch2, *, beta: Scalar = 1, alpha: Scalar = 1):
    """In-place addbmm; unlike other ops it resizes a tensor that only broadcasts to the result."""
    since = next(sequence)
    r = addbmm(self, batch1, batch2, beta=beta, alpha=alpha)
    if self._sizes != r._sizes:
        inplace.check_inplace(self, False)
        resize(self, r._sizes)
    return inplace.assign(self, r, since, (batch1, batch2))


Tensor.addbmm_ = _addbmm_


@register_op(inplace=True, out="same", overlap="unchecked", aten="addmv.default")
def addmv(input, mat, vec, *, beta: Scalar = 1, alpha: Scalar = 1):
    """beta * input + alpha * mat @ vec."""
    check_tensor_arg("addmv", "input", input)
    check_tensor_arg("addmv", "mat", mat, 2)
    check_tensor_arg("addmv", "vec", vec, 3)
    m, v, d = mat._sizes, vec._sizes, mat._np_dtype
    if len(m) != 2 or len(v) != 1 or input.ndim > 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {input.ndim}, {len(m)}, {len(v)}")
    if m[1] != v[0] or (input.ndim and input._sizes[0] not in (1, m[0])):
        raise RuntimeError(f"size mismatch, got input ({input._numel}), mat ({m[0]}x{m[1]}), vec ({v[0]})")
    if d != vec._np_dtype or input._np_dtype != d:
        raise RuntimeError(f"expected scalar type {scalar_type_name(d)} but found {scalar_type_name((vec if vec._np_dtype != d else input)._np_dtype)}")
    if d.kind == "b":
        raise NotImplementedError(_NO_BOOL.format("addmv_impl_cpu") + f" on device {mat.device}")
    return _scaled_sum(input, _scalar_of_dtype(input, beta), mv_(mat, vec), _scalar_of_dtype(input, alpha))


@register_op(inplace=True, out=True, overlap="unchecked", aten="addr.default")
def addr(input, vec1, vec2, *, beta: Scalar = 1, alpha: Scalar = 1):
    """beta * input + alpha * outer(vec1, vec2), with type promotion."""
    check_tensor_arg("addr", "input", input)
    for n, t in (("vec1", vec1), ("vec2", vec2)):
        check_tensor_arg("addr", n, t)
        if t.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {n}, but got {t.ndim}-D")
    d = result_dtype(input, vec1, vec2)
    _check_expand(input._sizes, (vec1._numel, vec2._numel))
    for n, k in (("beta", beta), ("alpha", alpha)):
        if isinstance(k, float) and d.kind in "iub":
            raise RuntimeError(f"For integral input tensors, argument {n} must not be a floating point number.")
    r = outer_(to(vec1, d), to(vec2, d))
    r = _scaled_sum(to(input, d), _number_for(d, beta), r, _number_for(d, alpha))
    return r


def _number_for(d, k):
    return int(k) if d.kind in "iu" else bool(k) if d.kind == "b" else k


# ------------------------------------------------------------------ linear
@register_op(ns="nn.functional", method=False, autocast="lower")
def linear(input, weight, bias=None):
    """input @ weight.T + bias over the last dim: (*, in), (out, in), (out,) -> (*, out)."""
    try:
        x, w = input._sizes, weight._sizes
    except AttributeError:
        check_tensor_arg("linear", "input", input)
        check_tensor_arg("linear", "weight", weight, 2)
        raise
    d, e = input._np_dtype, weight._np_dtype
    if len(w) == 2 and x and (d is e or d == e) and x[-1] == w[1] and d.kind != "b":
        if bias is None:
            return linear_(input, weight)
        check_tensor_arg("linear", "bias", bias, 3)
        b, e = bias._sizes, bias._np_dtype
        if (e is d or e == d) and b == w[:1]:
            return linear_(input, weight, bias)
        if e != d:
            raise RuntimeError(f"self and mat2 must have the same dtype, but got {scalar_type_name(e)} and {scalar_type_name(d)}")
        _check_expand(b, x[:-1] + w[:1])
        return add_(linear_(input, weight), bias)
    if not x or not w:
        raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are {len(x)}D and {len(w)}D")
    if d is not e or d.kind == "b":
        _product_dtypes(input, weight)
    if len(w) > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {len(w)}D")
    if len(w) == 1:
        r = matmul(input, weight)
        return r if bias is None else add_(r, bias)
    raise _no_product((math.prod(x[:-1]), x[-1]), w[::-1])


@register_op(method=False, aliases="nn.functional.bilinear")
def bilinear(input1, input2, weight, bias=None):
    """y[..., o] = sum over i, j of x1[..., i] * weight[o, i, j] * x2[..., j], plus bias."""
    given = {"input1": input1, "input2": input2, "weight": weight, **({} if bias is None else {"bias": bias})}
    if any(x._np_dtype != input1._np_dtype for x in given.values()):
        raise RuntimeError("All tensors must have the same dtype, got " + ", ".join(f"{k}: {c_type_name(x)}" for k, x in given.items()))
    a, b, w = input1._sizes, input2._sizes, weight._sizes
    if len(a) != len(b):
        raise RuntimeError(f"bilinear(): input dimensions do not match: got {len(a)} and {len(b)}")
    for i, (m, n) in enumerate(zip(a[:-1], b[:-1])):
        if m != n:
            raise RuntimeError(f"bilinear(): input batch dimensions do not match at dim {i}: got {m} and {n}")
    if a[-1] != w[1]:
        raise RuntimeError(f"bilinear(): input1 size does not match weight size: got {a[-1]} but expected {w[1]}")
    if b[-1] != w[2]:
        raise RuntimeError(f"bilinear(): input2 size does not match weight size: got {b[-1]} but expected {w[2]}")
    if bias is not None and bias._sizes[0] != w[0]:
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {bias._sizes[0]} but expected {w[0]}")
    n = len(a) - 1
    lead, o, i, j = tuple(range(n)), n, n + 1, n + 2
    t = contract(input1, weight, lead + (i,), (o, i, j), lead + (o, j))
    y = contract(t, input2, lead + (o, j), lead + (j,), lead + (o,))
    return y if bias is None else add_(y, bias)


# ------------------------------------------------------------------ chains, kron, cross
@register_op(method=False, name="chain_matmul")
def chain_matmul(*matrices, out=None):
    """Product of matrices in the cheapest order."""
    if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)):
        matrices = tuple(matrices[0])
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    for i, m in enumerate(matrices):
        check_tensor_arg("chain_matmul", "matrices", m, i + 1)
        if m.ndim != 2:
            raise RuntimeError(f"Tensor dimension is {m.ndim}, expected 2 instead.")
    r = multiply_chain(matrices)
    if out is not None:
        return store_out("chain_matmul", out, r)
    return r


def multiply_chain(ms):
    """Multiplies a sequence of matrices in the order with the fewest multiplications."""
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


@register_op(out=True)
def kron(input, other):
    """Kronecker product."""
    check_tensor_arg("kron", "input", input)
    check_tensor_arg("kron", "other", other, 2)
    a, b = promote_pair(input, other)
    n = max(a.ndim, b.ndim)
    sa = (1,) * (n - a.ndim) + a._sizes
    sb = (1,) * (n - b.ndim) + b._sizes
    x = a.reshape([k for s in sa for k in (s, 1)])
    y = b.reshape([k for s in sb for k in (1, s)])
    return mul_(x, y).reshape([s * t for s, t in zip(sa, sb)])


cross_ = primitive("linalg_cross", "a, b, *, dim", lambda ctx, grad: cross_(conj(ctx.b), grad, dim=ctx.dim),
                   lambda ctx, grad: cross_(grad, conj(ctx.a), dim=ctx.dim))


def cross_product(input, other, dim):
    """linalg.cross: the vector product along `dim`, which must have length 3; other dims broadcast.
    """
    a, b = promote_pair(input, other)
    x, y = a._sizes, b._sizes
    n = max(len(x), len(y))
    if len(x) != len(y):
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    d = dim_of(dim, n)
    if x[d] != 3 or y[d] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {x[d]} and {y[d]}")
    _check_batch(x, y)
    if a._np_dtype.kind == "b":
        raise NotImplementedError(f"\"cross\" not implemented for 'Bool' on device {a.device}")
    return cross_(a, b, dim=d - n)


@register_op(out="same")
def cross(input, other, dim: Int = None):
    """Vector product along `dim` (default: the first dim of size 3)."""
    check_tensor_arg("cross", "input", input)
    check_tensor_arg("cross", "other", other, 2)
    if dim is None:
        shape = input._sizes
        if 3 not in shape:
            raise RuntimeError("no dimension of size 3 in input")
        dim = list(shape).index(3)
    return cross_product(input, other, dim)




# ------------------------------------------------------------------ grouped products
_GROUPED = ("Float", "BFloat16", "Half")


@register_op(method=False)
def _grouped_mm(input, mat2, offs=None, bias=None, out_dtype=None):
    """Products of groups of matrices: torch.nn.functional.grouped_mm."""
    check_tensor_arg("_grouped_mm", "input", input)
    check_tensor_arg("_grouped_mm", "mat2", mat2, 2)
    a, b, d = input._sizes, mat2._sizes, input._np_dtype
    for name, x in (("mat_a", input), ("mat_b", mat2)):
        if scalar_type_name(x._np_dtype) not in _GROUPED:
            raise RuntimeError(f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got {scalar_type_name(x._np_dtype)}")
    for name, size in (("mat_a", a), ("mat_b", b)):
        if len(size) not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    if a[-1] != b[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    if (offs is None) != (len(a) == len(b) == 3):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype is not None and as_np(out_dtype) != d:
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")
    if d != mat2._np_dtype:
        _product_dtypes(input, mat2)
    if offs is None:
        if a[0] != b[0]:
            raise RuntimeError("batched dimension has to match")
        return bmm_(input, mat2, ta=False, tb=False)
    return _grouped_matmul(input, mat2, offs)


def _grouped_matmul(x, y, offs):
    """Implements `_grouped_mm` for checked operands, at least one of which stores its groups one
    after the other."""
    check_tensor_arg("_grouped_mm", "offs", offs, 3)
    a, b = x._sizes, y._sizes
    if len(offs._sizes) != 1:
        raise RuntimeError("offs has to be 1D")
    if offs._np_dtype.name != "int32":
        raise RuntimeError("Offsets have to be int32")
    groups = a[0] if len(a) == 3 else b[0] if len(b) == 3 else offs._sizes[0]
    if groups != offs._sizes[0]:
        raise RuntimeError("matrix batch sizes have to match")
    along = b[1] if len(a) == 3 else a[0] if len(b) == 3 else a[1]
    ends = to_host(offs).tolist()
    spans = list(zip([0] + ends[:-1], ends))
    for start, end in spans:
        if not start <= end <= along:
            raise RuntimeError(f"_grouped_mm: offsets must be non-decreasing and at most {along}, the size of the grouped dimension, but got {ends}")
    parts = [mm_(x.narrow(0, s, e - s) if len(b) == 3 else x.select(0, g) if len(a) == 3 else x.narrow(1, s, e - s),
                 y.select(0, g) if len(b) == 3 else y.narrow(1, s, e - s) if len(a) == 3 else y.narrow(0, s, e - s), ta=False, tb=False)
             for g, (s, e) in enumerate(spans)]
    if len(a) == len(b) == 2:
        return OPS["stack"].fn(parts, 0) if parts else new_full(x, size=(0, a[0], b[1]), value=0, np_dtype=x._np_dtype)
    # Rows and columns after the last group belong to none and become zeros.
    rest = along - (ends[-1] if ends else 0)
    if rest:
        parts.append(new_full(x, size=(rest, b[-1]) if len(b) == 3 else (a[1], rest), value=0, np_dtype=x._np_dtype))
    return OPS["cat"].fn(parts, 0 if len(b) == 3 else 1)


@register_op(ns="nn.functional", method=False)
def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Products of groups of float32, bfloat16 or float16 matrices.

    Three dims are a batch of groups. Two dims store the groups one after the other; `offs` (int32)
    holds the end of each:
     (R, K) x (G, K, N) -> (R, N); (G, M, K) x (K, N) -> (M, N); (M, K) x (K, N) -> (G, M, N).

    All strides are supported, whereas PyTorch's kernels need rows of a multiple of 16 bytes.
    """
    return _grouped_mm(mat_a, mat_b, offs, bias, out_dtype)


@register_op(method=False, out="same")
def _int_mm(input, mat2):
    """Product of two int8 matrices, computed in int32."""
    check_tensor_arg("_int_mm", "input", input)
    check_tensor_arg("_int_mm", "mat2", mat2, 2)
    a, b = input._sizes, mat2._sizes
    if len(a) != 2 or len(b) != 2:
        raise RuntimeError(f"Expected {'self' if len(a) != 2 else 'mat2'} to be of dimension 2 but got {len(a) if len(a) != 2 else len(b)}")
    for name, x in (("self", input), ("mat2", mat2)):
        if x._np_dtype.name != "int8":
            raise RuntimeError(f"Expected {name} dtype to be of type int8 but got {c_type_name(x)}")
    if a[1] != b[0]:
        raise RuntimeError(f"self.size(1) needs to match mat2.size(0) but got {a[1]} and {b[0]}")
    return mm_(to(input, I32), to(mat2, I32), ta=False, tb=False)


def _no_low_precision(name):
    def refuse(mat_a, mat_b, *args, **kwargs):
        """Raises NotImplementedError: there are no kernels for 8-bit and 4-bit floating-point
        matrices."""
        raise NotImplementedError(f"'{name}' is not implemented for dtype {mat_a.dtype} on device {mat_a.device}: there are no "
                                  "float8 kernels")
    return refuse


scaled_mm = _no_low_precision("scaled_mm")
scaled_grouped_mm = _no_low_precision("scaled_grouped_mm")
