"""Norms of vectors and matrices, condition numbers."""
import math

from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import as_np
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Float, Index, Scalar
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.core.tensor.sync import of_all
from mindtorch.ops.reduction import reduce
from mindtorch.ops._checks import check_tensor, wrap_dim, wrap_dims
from mindtorch.ops.nn._fused import full_like
from mindtorch.ops.linalg._common import check_floating_dtype, check_kernel, check_matrix, check_square
from mindtorch.ops.linalg._spectral import singular_values
from mindtorch.ops._operands import scalar
from mindtorch.ops.basic import cast, mul_, ne_
from mindtorch.ops.linalg.solve import inv_ex_
from mindtorch.ops.elementwise.binary import div_
from mindtorch.ops.elementwise._logic import where_


def _in_dtype(f, x, dtype):
    """Casts x to the dtype in which a norm is computed. Raises RuntimeError if that narrows the
    dtype or changes its kind."""
    if dtype is None:
        return x
    d, have = as_np(dtype), x._np_dtype
    if d.kind not in "fcV":
        raise RuntimeError(f"{f}: dtype should be floating point or complex, but got {scalar_type_name(d)}")
    if (d.kind == "c") != (have.kind == "c"):
        kind = "complex" if have.kind == "c" else "real"
        raise RuntimeError(f"{f}: dtype should be {kind} for {kind} inputs, but got {scalar_type_name(d)}")
    if d != have and d.itemsize <= have.itemsize:
        raise RuntimeError(f"{f}: the dtype of the input ({scalar_type_name(have)}) should be convertible without narrowing to "
                           f"the specified dtype ({scalar_type_name(d)})")
    return cast(x, d)


def _order(name, ord):
    """Returns the order of a vector norm as a float."""
    if ord.__class__ is Tensor or is_tensor(ord):
        ord = ord.item()
    if isinstance(ord, complex):
        raise RuntimeError("linalg.vector_norm: Expected a non-complex scalar as the order of norm.")
    try:
        return float(ord)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name}(): argument 'ord' (position 2) must be Number, not {type(ord).__name__}")


def _vector_norm(name, x, ord, dim, keepdim, dtype):
    check_tensor(name, x)
    f = "linalg.vector_norm"
    p = 2.0 if ord.__class__ is int and ord == 2 else _order(name, ord)
    check_floating_dtype(f, x)
    x = _in_dtype(f, x, dtype)
    axes = wrap_dims(name, dim, x.ndim)
    if x._numel == 0 and (p < 0 or p == math.inf):
        for d in range(x.ndim) if axes is None else axes:
            if x._sizes[d] == 0:
                what = ("on an empty tensor because the operation does not have an identity" if axes is None else
                        f"on the dimension {d}because this dimension is empty and the operation does not have an "
                        "identity")
                raise RuntimeError(f"{f} cannot compute the {p:g} norm {what}")
    return reduce.vector_norm_(x, p=p, axes=axes, keepdim=bool(keepdim))


@register_op(ns="linalg", out="same")
def vector_norm(input, ord: Scalar = 2, dim: Index = None, keepdim: Bool = False, *, dtype=None):
    """(sum |x|^ord)^(1/ord) over `dim` (all dims if None); ord can also be 0 (count of nonzeros),
    inf or -inf."""
    return _vector_norm("linalg_vector_norm", input, ord, dim, keepdim, dtype)


# ------------------------------------------------------------------ matrices
def _check_order(ord):
    f = "linalg.matrix_norm"
    if isinstance(ord, str):
        if ord not in ("fro", "nuc"):
            raise RuntimeError(f"{f}: Order {ord} not supported.")
        return ord
    p = float(ord.item() if (ord.__class__ is Tensor or is_tensor(ord)) else ord)
    if abs(p) not in (1.0, 2.0, math.inf):
        raise RuntimeError(f"{f}: Order {p:g} not supported.")
    return p


def _extreme(x, low, dim, keepdim):
    return reduce.amin(x, dim, keepdim) if low else reduce.amax(x, dim, keepdim)


def _largest(x, low, dim, keepdim):
    """Returns the maximum (`low`: minimum) along a dim. Along an empty dim, the maximum is 0 and
    the minimum raises an error."""
    if not low and x._sizes[dim] == 0:
        return reduce.sum_dims(x, axes=(dim,), keepdim=keepdim)
    return _extreme(x, low, dim, keepdim)


def matrix_norm_of(x, ord, dim, keepdim, dtype):
    f = "linalg.matrix_norm"
    check_floating_dtype(f, x)
    check_matrix(f, x)
    if isinstance(dim, int) or len(dim) != 2:
        got = str(dim) if isinstance(dim, int) else ", ".join(map(str, dim))
        raise RuntimeError(f"{f}: dim must be a 2-tuple. Got {got}")
    p = _check_order(ord)
    n = x.ndim
    rows, cols = wrap_dim(f, dim[0], n), wrap_dim(f, dim[1], n)
    if rows == cols:
        raise RuntimeError(f"{f}: dims must be different. Got ({dim[0]}, {dim[1]})")
    x = _in_dtype(f, x, dtype)
    if p == "fro":
        return _vector_norm("linalg_vector_norm", x, 2, (rows, cols), keepdim, None)
    if p in ("nuc", 2.0, -2.0):
        check_floating_dtype(f, x, low=False)
        check_kernel("linalg_svd_cpu", x)
        moved = x if (rows, cols) == (n - 2, n - 1) else x.movedim((rows, cols), (-2, -1))
        s = singular_values(moved)
        last = s.ndim - 1
        r = reduce.sum_dims(s, axes=(last,), keepdim=False) if p == "nuc" else _largest(s, p < 0, last, False)
        if keepdim:
            first, second = sorted((rows, cols))
            r = r.unsqueeze(first).unsqueeze(second)
        return r
    if abs(p) == math.inf:
        rows, cols = cols, rows
    # Sums of absolute values along one dim, then their maximum (minimum) along the other.
    sums = reduce.vector_norm_(x, p=1.0, axes=(rows,), keepdim=bool(keepdim))
    return _largest(sums, p < 0, cols - 1 if not keepdim and cols > rows else cols, bool(keepdim))


@register_op(ns="linalg", out="same")
def matrix_norm(input, ord: Scalar = "fro", dim: Index = (-2, -1), keepdim: Bool = False, *, dtype=None):
    """Norms of matrices: "fro", "nuc" (sum of singular values), +-1 (columns), +-inf (rows), +-2
    (singular values)."""
    check_tensor("linalg_matrix_norm", input)
    if ord is None or not isinstance(ord, (str, int, float, Tensor)) or isinstance(dim, int):
        got = type(ord).__name__ if not isinstance(dim, int) else "dim=int"
        rest = "tuple of ints dim, bool keepdim, *, torch.dtype dtype, Tensor out)\n"
        raise TypeError(f"linalg_matrix_norm() received an invalid combination of arguments - got (Tensor, {got}), but "
                        f"expected one of:\n * (Tensor input, Number ord, {rest} * (Tensor input, str ord, {rest}")
    return matrix_norm_of(input, ord, dim, keepdim, dtype)


@register_op(ns="linalg", out="same")
def norm(input, ord: Scalar = None, dim: Index = None, keepdim: Bool = False, *, dtype=None):
    """Vector norm (one dim, or ord None) or matrix norm (two dims)."""
    check_tensor("linalg_norm", input)
    n = input.ndim
    if dim is not None:
        dims = dim if isinstance(dim, (tuple, list)) else (dim,)
        if len(dims) not in (1, 2):
            raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    elif ord is not None:
        if n not in (1, 2):
            raise RuntimeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. "
                               f"Got {n}D.")
        dims = None
    if ord is None:
        return _vector_norm("linalg_vector_norm", input, 2, dim, keepdim, dtype)
    if isinstance(ord, str):
        if dims is None:
            dims = (-2, -1)
        elif ord not in ("fro", "nuc"):
            raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
        return matrix_norm_of(input, ord, dims, keepdim, dtype)
    if dims is None:
        dims = (0, 1) if n == 2 else (0,)
    if len(dims) == 2:
        return matrix_norm_of(input, ord, dims, keepdim, dtype)
    return _vector_norm("linalg_vector_norm", input, ord, dims, keepdim, dtype)


@register_op(method=False, out=True)
def frobenius_norm(input, dim: Index, keepdim: Bool = False):
    """Square root of the sum of squares over one or two dims."""
    check_tensor("frobenius_norm", input)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) > 2:
        raise RuntimeError(f"Expected at most 2 dimensions, but got {len(dims)} dimensions instead.")
    return _vector_norm("frobenius_norm", input, 2, dims, keepdim, None)


@register_op(method=False, out=True)
def nuclear_norm(input, dim: Index = (-2, -1), keepdim: Bool = False):
    """Sum of the singular values of matrices."""
    check_tensor("nuclear_norm", input)
    return matrix_norm_of(input, "nuc", dim, keepdim, None)


# ------------------------------------------------------------------ condition
@register_op(ns="linalg", out=True, autocast="float32")
def cond(input, p: Float = None):
    """Condition numbers: quotient of singular values (p None, 2, -2), else norm(A) * norm(A^-1);
    inf if A is singular."""
    f = "linalg.cond"
    check_tensor("linalg_cond", input)
    if input.ndim < 2:
        raise RuntimeError(f"{f}: The input tensor must have at least 2 dimensions.")
    if isinstance(p, str):
        check_square(f"{f}(ord={p})", input)
        if p not in ("fro", "nuc"):
            raise RuntimeError(f"{f} got an invalid norm type: {p}")
    else:
        p = 2.0 if p is None else float(p)
        if abs(p) not in (1.0, 2.0, math.inf):
            raise RuntimeError(f"{f} got an invalid norm type: {p:g}")
        if abs(p) != 2.0:
            check_square(f"{f}(ord={p:g})", input)
    if p in (2.0, -2.0, "nuc"):
        check_floating_dtype("linalg.svd", input)
        check_kernel("linalg_svd_cpu", input)
        if not input._numel:
            return _no_condition(input)
        s = singular_values(input)
        last = s.ndim - 1
        if p == "nuc":
            one = full_like(s, 1.0)
            sums = [reduce.sum_dims(t, axes=(last,), keepdim=False) for t in (s, div_(one, s))]
            return mul_(*sums)
        top, low = s[..., 0], s[..., s._sizes[-1] - 1]
        return div_(top, low) if p > 0 else div_(low, top)
    check_floating_dtype("linalg.inv", input, low=False)
    if not input._numel:
        return _no_condition(input)
    inverse, _ = inv_ex_(input)
    r = mul_(matrix_norm_of(input, p, (-2, -1), False, None), matrix_norm_of(inverse, p, (-2, -1), False, None))
    undefined = ne_(r, r)
    return where_(undefined, full_like(r, math.inf), r) if of_all(undefined).any() else r


def _no_condition(x):
    """Returns 0 for matrices without elements."""
    d = (-2, -1)
    return mul_(reduce.vector_norm_(x, p=2.0, axes=tuple(i + x.ndim for i in d), keepdim=False), scalar(0, x))
