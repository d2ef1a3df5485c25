"""Matrix products and functions built on them: powers, exponential, vecdot, vander, tensorinv,
tensorsolve."""
import math

from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Int, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.ops.reduction import reduce
from mindtorch.ops._checks import check_tensor, wrap_dim
from mindtorch.ops.nn._fused import c_type_name
from mindtorch.ops.linalg._common import ct, new_constant, check_floating_dtype, check_square, type_name
from mindtorch.ops.basic import clone, conj, mul_, zeros_like
from mindtorch.ops.indexing._basic_index import tensor_list
from mindtorch.ops.shapes._sizes import int_of
from mindtorch.ops.linalg.solve import inv, solve
from mindtorch.ops.linalg.matmul import cross_product, matmul, multiply_chain
from mindtorch.ops.reduction.scan import cumprod
from mindtorch.ops.shapes.shape import cat
from mindtorch.ops.shapes.views import diagonal as diagonal_op


# ------------------------------------------------------------------ powers and the exponential
_power_zero = primitive("linalg_matrix_power", "a", lambda ctx, grad: zeros_like(grad), raw=True)


def _power(name, input, n):
    check_tensor(name, input)
    n = int_of(name, n, "n")
    check_square("linalg.matrix_power", input)
    if n == 0:
        return _power_zero(input)
    if n < 0:
        input, n = inv(input), -n
    if n == 1:
        return clone(input)
    r = None
    while True:
        # Binary exponentiation: the bits of n select the squares to multiply.
        if n & 1:
            r = input if r is None else matmul(r, input)
        n >>= 1
        if not n:
            return r
        input = matmul(input, input)


@register_op(ns="linalg", out=True)
def matrix_power(input, n: Int):
    """A^n of square matrices for an int n; a negative n gives powers of the inverse."""
    return _power("linalg_matrix_power", input, n)


@register_op(name="matrix_power", out=True)
def torch_matrix_power(input, n: Int):
    """A^n of square matrices for an int n; a negative n gives powers of the inverse."""
    return _power("matrix_power", input, n)


def _exp_derivative(a, g):
    """Derivative of exp at A in direction G: the upper right block of exp([[A, G], [0, A]])."""
    n = a._sizes[-1]
    zero = new_constant(a, a._sizes)
    block = cat([cat([a, g], -1), cat([zero, a], -1)], -2)
    return exp_(block)[..., :n, n:]


exp_ = primitive("linalg_matrix_exp", "a", lambda ctx, grad: _exp_derivative(ct(ctx.a), grad))


def _matrix_exp(name, input):
    check_tensor(name, input)
    check_floating_dtype("linalg.matrix_exp", input)
    check_square("linalg.matrix_exp", input)
    return exp_(input)


@register_op(ns="linalg")
def matrix_exp(input):
    """exp of square matrices."""
    return _matrix_exp("linalg_matrix_exp", input)


@register_op(name="matrix_exp")
def torch_matrix_exp(input):
    """exp of square matrices."""
    return _matrix_exp("matrix_exp", input)


# ------------------------------------------------------------------ products
@register_op(ns="linalg", out="same", autocast="lower")
def multi_dot(tensors):
    """Product of two or more matrices in the cheapest order; the first and the last can be vectors.
    """
    ts = list(tensor_list("linalg_multi_dot", tensors))
    if len(ts) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(ts)}")
    first, last = ts[0].ndim, ts[-1].ndim
    for end, n in (("first", first), ("last", last)):
        if n not in (1, 2):
            raise RuntimeError(f"multi_dot(): the {end} tensor must be 1D or 2D but got {n}D")
    if first == 1:
        ts[0] = ts[0].unsqueeze(0)
    if last == 1:
        ts[-1] = ts[-1].unsqueeze(-1)
    for i, t in enumerate(ts):
        if t.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {t.ndim}D")
        if t._np_dtype != ts[0]._np_dtype:
            raise RuntimeError(f"multi_dot(): all tensors must have be the same dtype but tensor 0 is {c_type_name(ts[0])} "
                               f"and tensor {i} {c_type_name(t)}")
        if i and t._sizes[0] != ts[i - 1]._sizes[1]:
            raise RuntimeError(f"multi_dot(): tensors {i - 1} and {i} with shapes {list(ts[i - 1]._sizes)} and "
                               f"{list(t._sizes)} cannot be multiplied")
    r = multiply_chain(ts)
    if last == 1:
        r = r.squeeze(-1)
    return r.squeeze(0) if first == 1 else r


@register_op(ns="linalg", out="same", aten="linalg_cross.default")
def cross(input, other, *, dim: Int = -1):
    """Vector product along a dim of size 3; the other dims broadcast."""
    check_tensor("linalg_cross", input)
    check_tensor("linalg_cross", other, "other", 2)
    if not input.ndim and not other.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if input._np_dtype != other._np_dtype:
        raise RuntimeError(f"expected scalar type {type_name(input)} but found {type_name(other)}")
    return cross_product(input, other, dim)


@register_op(ns="linalg", out="same", autocast="lower")
def vecdot(x, y, *, dim: Int = -1):
    """Sums of conj(x) * y along `dim`, with broadcasting."""
    check_tensor("linalg_vecdot", x, "x")
    check_tensor("linalg_vecdot", y, "y", 2)
    f = "linalg.vecdot"
    check_floating_dtype(f, x)
    if x._np_dtype != y._np_dtype:
        raise RuntimeError(f"{f}: Expected x and y to have the same dtype, but found x of type {type_name(x)} and y of "
                           f"type {type_name(y)} instead")
    if x.ndim == 1 and y.ndim == 1 and x._sizes != y._sizes:
        m, n = x._numel, y._numel
        raise RuntimeError(f"inconsistent tensor size, expected tensor [{m}] and src [{n}] to have the same number of "
                           f"elements, but got {m} and {n} elements respectively")
    r = mul_(conj(x), y)
    axis = wrap_dim("linalg_vecdot", dim, r.ndim)
    return reduce.sum_dims(r, axes=(axis,), keepdim=False) if r.ndim else r


@register_op(ns="linalg")
def vander(x, *, N: SymInt = None):
    """Vandermonde matrices (*, n, N): powers 0 .. N-1 of the elements of vectors (*, n)."""
    check_tensor("linalg_vander", x, "x")
    d = x._np_dtype
    if d.kind == "b" or d.kind in "fV" and d.itemsize == 2:
        raise RuntimeError("linalg.vander supports floating point, complex, and integer tensors, but got "
                           f"{type_name(x)}")
    n = (x._sizes[-1] if x.ndim else 1) if N is None else N
    if n <= 1:
        raise RuntimeError("N must be greater than 1.")
    if not x.ndim:
        x = x.unsqueeze(0)
    powers = cumprod(x.unsqueeze(-1).expand(x.shape + (n - 1,)), -1)
    return cat([new_constant(powers, x._sizes + (1,), 1), powers], -1)


@register_op(ns="linalg")
def diagonal(A, *, offset: Int = 0, dim1: Int = -2, dim2: Int = -1):
    """Returns a view of the diagonals of two dims."""
    check_tensor("linalg_diagonal", A, "A")
    return diagonal_op(A, offset, dim1, dim2)


# ------------------------------------------------------------------ tensors as matrices
@register_op(ns="linalg", out=True, autocast="float32")
def tensorinv(input, ind: Int = 2):
    """Inverts a tensor as the linear map that tensordot over `ind` dims applies."""
    check_tensor("linalg_tensorinv", input)
    shape = input._sizes
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    if ind > len(shape):
        raise RuntimeError(f"ArrayRef: invalid slice, N = {ind}; size = {len(shape)}")
    rows, cols = shape[:ind], shape[ind:]
    m, n = math.prod(rows), math.prod(cols)
    if m != n:
        raise RuntimeError("Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), "
                           f"but got {n} != {m}")
    return inv(input.reshape((n, m))).reshape(cols + rows)


@register_op(ns="linalg", out=True, autocast="float32")
def tensorsolve(input, other, dims=None):
    """Returns X with tensordot(A, X) = B; `dims` of A are first moved to its end."""
    check_tensor("linalg_tensorsolve", input)
    check_tensor("linalg_tensorsolve", other, "other", 2)
    if dims is not None:
        input = input.movedim(tuple(dims), tuple(range(-len(dims), 0)))
    k = other.ndim
    rest = input._sizes[k:]
    m, n = other._numel, math.prod(rest)
    if m != n:
        raise RuntimeError("Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
                           f"prod(self.shape[:other.ndim]), but got {n} != {m}")
    return solve(input.reshape((n, n)), other.reshape((other._numel,))).reshape(rest)
