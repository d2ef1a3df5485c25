"""Indexing by tensors: gather and scatter, index_*, take and put, nonzero, and the *_scatter ops.
"""
from mindtorch.core.tensor.inplace import base_geometry, read_region, scalar_type_name
from mindtorch.core.dispatch.deterministic import alert
from mindtorch.core.tensor.dtypes import BOOL, I32, I64
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.stride_rules import like
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Int, Scalar, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops._checks import check_tensor, not_implemented, wrap_dim
from mindtorch.core.tensor.scalars import cast_scalar, number_of
from mindtorch.ops.basic import add_, cast, clone, conj, eq_, mul_, new_full, not_
from mindtorch.ops.elementwise.binary import div_
from mindtorch.ops.indexing import _expanded
from mindtorch.ops.indexing._gather import (add_rows, take_along_indices, copy_rows, fill_rows, gather_, index_rows, nonzero_, nonzero_static_, nonzero_tuple,
                                            one_hot_, put_indices, scatter_, scatter_add_, scatter_count, scatter_multiply, scatter_zero, select_rows,
                                            take_, unravel, pad_source_grad)
from mindtorch.ops.indexing._masks import zero_dim
from mindtorch.ops.indexing._basic_index import pick
from mindtorch.ops.shapes._memory import strided_region
from mindtorch.ops.shapes._sizes import ints_of
from mindtorch.ops.shapes.shape import clone_
from mindtorch.ops.shapes.views import (broadcast_shape, diagonal_, diagonal_params, expand_to, reshape_, select_key, slice_key,
                                        unsafe_view)


def _as_int64_index(index, name, refused="Expected dtype int32/int64 for index"):
    """Returns the index tensor as int64."""
    d = index._np_dtype
    if d is I64:
        return index
    if d != I64 and d != I32:
        raise RuntimeError(f"{name}(): {refused.format(scalar_type_name(d))}")
    return cast(index, I64)


# ------------------------------------------------------------------ gather and scatter
def _check_index(name, x, dim, index, src=None):
    """Returns (dim, int64 indices) for gather and the scatter family, after PyTorch's checks."""
    check_tensor(name, index, "index", 3)
    ndim = x.ndim
    dim = wrap_dim(name, dim, ndim)
    if not index._numel:
        return dim, None
    indices = _as_int64_index(index, name)
    what = "input" if name == "gather" else "self"
    n = index.ndim or 1
    if (ndim or 1) != n:
        raise RuntimeError(f"Index tensor must have the same number of dimensions as {what} tensor")
    if src is not None and (src.ndim or 1) != n:
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    shape, have = index._sizes or (1,), x._sizes or (1,)
    given = have if src is None else src._sizes or (1,)
    if shape == have == given:
        return dim, indices
    for ax, n in enumerate(shape):
        if ax != dim and n > have[ax] or src is not None and n > given[ax]:
            if name == "gather":
                raise RuntimeError(f"Size does not match at dimension {ax} expected index {list(shape)} to be no "
                                   "larger than self "
                                   f"{list(have)} apart from dimension {dim}")
            tail = "" if src is None else f" and to be no larger size than src {list(given)}"
            raise RuntimeError(f"Expected index {list(shape)} to be no larger than self {list(have)} apart from "
                               f"dimension {dim}{tail}")
    return dim, indices


@register_op(out="same", overlap="assert_no_overlap")
def gather(input, dim: Int, index, *, sparse_grad: Bool = False):
    """out[i][j][k] = input[index[i][j][k]][j][k] for dim 0, and so on; index can be smaller than
    input except in `dim`."""
    dim, indices = _check_index("gather", input, dim, index)
    if not index._numel:
        return _empty_gather(input, index)
    return gather_(input, indices, dim=dim, check=True)


def _empty_gather(x, index):
    return take_(x, new_full(index, size=index._sizes, value=0, np_dtype=I64), check=False)


@register_op(inplace="own", out="same", overlap="assert_no_overlap")
def scatter(input, dim: Int, index, src=None, value: Scalar = None, *, reduce=None):
    """Returns input with src[i][j][k] (or one value) written to [index[i][j][k]][j][k] for dim 0,
    and so on.

    reduce "add" or "multiply" combines the values with the elements of input.
    """
    if src is None:
        src = value
    if not (src.__class__ is Tensor or is_tensor(src)):
        src = cast_scalar(number_of("scatter", src), input._np_dtype)
        dim, indices = _check_index("scatter", input, dim, index)
        full = None
    else:
        if src._np_dtype != input._np_dtype:
            raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
        dim, indices = _check_index("scatter", input, dim, index, src)
        full = src
    if not index._numel:
        return clone_(input, fmt="contiguous")
    if reduce is None:
        return scatter_(input, src, indices, dim=dim, check=True)
    if reduce == "add":
        return scatter_add_(input, src, indices, dim=dim, check=True)
    if reduce != "multiply":
        raise RuntimeError("reduce argument must be either add or multiply.")
    if input._requires_grad_ or full is not None and full._requires_grad_:
        raise NotImplementedError("'scatter' with reduce='multiply' has no gradient: use scatter_reduce with "
                                  "reduce='prod'")
    return scatter_multiply(input, src, indices, dim=dim)


@register_op(inplace="own", out="same", overlap="assert_no_overlap", aten="scatter_add.default")
def scatter_add(input, dim: Int, index, src):
    """Returns input with src[i][j][k] added at [index[i][j][k]][j][k] for dim 0, and so on."""
    check_tensor("scatter_add", src, "src", 4)
    if src._np_dtype != input._np_dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    dim, indices = _check_index("scatter_add", input, dim, index, src)
    if not index._numel:
        return clone_(input, fmt="contiguous")
    return scatter_add_(input, src, indices, dim=dim, check=True)


# ------------------------------------------------------------------ scatter_reduce
def _ones(like, size):
    return new_full(like, size=size, value=1, np_dtype=like._np_dtype)


def _scatter_reduce_grads(ctx, grad):
    """Returns (gradient of self, gradient of src)."""
    how, index, dim = ctx.how, ctx.index, ctx.dim
    a, src, out = ctx.a, ctx.src, ctx.out
    pick = lambda x: gather_(x, index, dim=dim, check=False)               # noqa: E731
    back = lambda x: pad_source_grad(x, src._sizes)                                 # noqa: E731
    if how == "sum":
        ga, gs = grad, back(pick(grad))
    elif how == "mean":
        part = div_(grad, scatter_count(grad, index, dim=dim, include_self=ctx.include_self))
        ga, gs = part, back(pick(part))
    elif how == "prod":
        ga, gs = _prod_grads(grad, a, src, index, dim, ctx.include_self)
        gs = back(gs)
    else:
        # The elements equal to the extremum share the gradient (self's element counts among them
        # even if it was not included).
        mine = cast(eq_(a, out), grad._np_dtype)
        theirs = cast(eq_(slice_corner(src, index._sizes), pick(out)), grad._np_dtype)
        n = scatter_add_(mine, theirs, index, dim=dim, check=False)
        share = div_(grad, n)  # 0 / 0 where the extremum is NaN, which equals no element
        ga, gs = mul_(mine, share), back(mul_(theirs, pick(share)))
    if not ctx.include_self:
        ga = scatter_zero(ga, index, dim)
    return ga, gs, None


def _prod_grads(g, a, src, index, dim, include_self):
    """Gradients of a product, also where factors are zero: each factor's gradient is the product of
    the others.

    Zeros are replaced by 1 and counted. Without zeros, the gradient is product / factor. With one
    zero, only that zero gets the product of the rest.
    """
    d = g._np_dtype
    used = slice_corner(src, index._sizes)
    zero_src = not_(used)
    zero_self = not_(a) if include_self else new_full(a, size=a._sizes, value=0, np_dtype=BOOL)
    one_src = add_(used, cast(zero_src, d))
    one_self = add_(a, cast(zero_self, d)) if include_self else a
    rest = scatter_reduce_(one_self, one_src, index, dim=dim, how="prod", include_self=include_self, check=False)
    zero_src, zero_self = cast(zero_src, I64), cast(zero_self, I64)
    zeros = scatter_add_(zero_self, zero_src, index, dim=dim, check=False)
    if mode.on and zeros._numel and (to_host(zeros) - to_host(zero_self)).max() > 1:
        raise RuntimeError("scatter_reduce(prod): Double backward is unsupported for src when there is more than one zero for the same index")
    # An element keeps its gradient if no other element is zero.
    keep_self = cast(eq_(zeros, zero_self), d)
    keep_src = cast(eq_(gather_(zeros, index, dim=dim, check=False), zero_src), d)
    product = mul_(g, conj(rest))
    ga = mul_(div_(product, conj(one_self)), keep_self) if include_self else g
    return ga, mul_(div_(gather_(product, index, dim=dim, check=False), conj(one_src)), keep_src)


def slice_corner(x, shape):
    """Returns a view of the used corner of a source."""
    if x._sizes == shape:
        return x
    return pick(x, key=tuple([slice(0, n) for n in shape])) if x.ndim == len(shape) else reshape_(x, shape)


scatter_reduce_ = primitive("scatter_reduce", "a, src, index, *, dim, how, include_self, check", lambda ctx, grad: _scatter_reduce_grads(ctx, grad),
                            saves=("a", "src", "out", "index"))


@register_op(inplace="own", out="same", overlap="assert_no_overlap")
def scatter_reduce(input, dim: Int, index, src, reduce, *, include_self: Bool = True):
    """Like `scatter`, but combines all values for an element by "sum", "prod", "mean", "amax" or
    "amin", with or without the element of input."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    check_tensor("scatter_reduce", src, "src", 4)
    if src._np_dtype != input._np_dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    dim, indices = _check_index("scatter_reduce", input, dim, index, src)
    d = input._np_dtype
    if d.kind == "b" and reduce == "mean" or d.kind == "c" and reduce in ("amax", "amin"):
        raise not_implemented(f"scatter_reduce with reduce='{reduce}'", input)
    if not index._numel:
        return clone_(input, fmt="contiguous")
    return scatter_reduce_(input, src, indices, dim=dim, how=reduce, include_self=bool(include_self), check=True)


# ------------------------------------------------------------------ index_select, index_add, ...
@register_op(out="same", overlap="assert_no_overlap")
def index_select(input, dim: Int, index):
    """Selects the indices of a dimension that a 1-D index lists."""
    check_tensor("index_select", index, "index", 3)
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    indices = _as_int64_index(index, "index_select", "Expected dtype int32 or int64 for index")
    ndim = input.ndim
    dim = wrap_dim("index_select", dim, ndim)
    if not ndim and index._numel != 1:
        raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {index._numel} value(s)")
    return select_rows(input, indices, dim=dim, check=True)


@register_op(inplace="own", out="same", overlap="assert_no_overlap", aten="index_add.default")
def index_add(input, dim: Int, index, source, *, alpha: Scalar = 1):
    """Returns input with alpha * source added at the indices of `dim` (repeated indices add up)."""
    check_tensor("index_add", index, "index", 3)
    check_tensor("index_add", source, "source", 4)
    dim = wrap_dim("index_add", dim, input.ndim)
    if index.ndim > 1:
        raise IndexError(f"index_add_(): Index is supposed to be a vector, but got dim: {index.ndim} with type: "
                         f"{scalar_type_name(index._np_dtype)} and size: "
                         f"{list(index._sizes)}")
    indices = _as_int64_index(index, "index_add_", "Expected dtype int32/int64 for index but got: {}")
    if input._np_dtype is not source._np_dtype and input._np_dtype != source._np_dtype:
        raise RuntimeError(f"index_add_(): self ({scalar_type_name(input._np_dtype)}) and source ({scalar_type_name(source._np_dtype)}) must have the same "
                           "scalar type")
    _check_rows("index_add_(): Number of indices ({m}) should be equal to source.size(dim): ({n}), for dim: {dim}",
                "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape "
                "= {a} "
                "source.shape = {s}", input, index, source, dim, RuntimeError)
    if alpha.__class__ is not int:
        alpha = number_of("index_add", alpha, "alpha")
    if input._np_dtype.kind in "iu":
        alpha = int(alpha)
    return add_rows(input, source, indices, dim=dim, alpha=alpha)


def _check_rows(count_text, shape_text, x, index, source, dim, kind):
    """Checks that the source has the shape of the indexed part of self."""
    mine, theirs, m = x._sizes, source._sizes, index._numel
    n = theirs[dim] if len(theirs) > dim else 1
    if theirs and mine and m != n or not theirs and m != 1:
        raise kind(count_text.format(m=m, n=n, dim=dim))
    rest = mine[:dim] + mine[dim + 1:]
    if len(mine) != len(theirs) and (theirs or rest) or rest != theirs[:dim] + theirs[dim + 1:]:
        raise RuntimeError(shape_text.format(a=list(mine), s=list(theirs)))


@register_op(inplace="own", out="same", overlap="assert_no_overlap", aten="index_copy.default")
def index_copy(input, dim: Int, index, source):
    """Returns input with source written at the indices of `dim`."""
    check_tensor("index_copy", index, "index", 3)
    check_tensor("index_copy", source, "source", 4)
    dim = wrap_dim("index_copy", dim, input.ndim)
    if index.ndim > 1:
        raise IndexError(f"index_copy_(): Index should have dimension 1 or 0 (got {index.ndim})")
    if input._np_dtype != source._np_dtype:
        raise RuntimeError("index_copy_(): self and source expected to have the same dtype, but got (self) "
                           f"{scalar_type_name(input._np_dtype)} and (source) "
                           f"{scalar_type_name(source._np_dtype)}")
    if index._np_dtype != I64:
        raise RuntimeError(f"index_copy_(): Expected a long tensor for index, but got {scalar_type_name(index._np_dtype)}")
    if source.ndim and input.ndim and source.ndim != input.ndim:
        raise IndexError("index_copy_(): When source and destination are not scalars, their dimensionality must "
                         "match. Source "
                         f"dimensionality ({source.ndim}), destination dimensionality ({input.ndim})")
    _check_rows("index_copy_(): Number of indices ({m}) should be equal to source.size(dim) ({n})",
                "index_copy_(): Source/destination tensor must have same slice shapes, got {a} and "
                "{s}", input, index, source, dim, IndexError)
    return copy_rows(input, source, index, dim=dim)


@register_op(inplace="own", out=True, overlap="unchecked", expanded=_expanded.index_fill)
def index_fill(input, dim: Int, index, value):
    """Returns input with one value written at the indices of `dim`."""
    check_tensor("index_fill", index, "index", 3)
    dim = wrap_dim("index_fill", dim, input.ndim)
    if index._np_dtype != I64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if index.ndim > 1:
        raise RuntimeError("Index has to be a vector/scalar")
    return fill_rows(input, zero_dim("index_fill_", value, input), index, dim=dim, check=True)


@register_op(inplace=True, out="same", overlap="assert_no_overlap", aten="index_reduce.default")
def index_reduce(input, dim: Int, index, source, reduce, *, include_self: Bool = True):
    """Like `index_copy`, but combines all values for an index by "prod", "mean", "amax" or "amin",
    with or without the element of input."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    check_tensor("index_reduce", index, "index", 3)
    check_tensor("index_reduce", source, "source", 4)
    d, size = input._np_dtype, source._sizes
    dim = wrap_dim("index_reduce", dim, input.ndim)
    if index.ndim > 1:
        raise IndexError("index_reduce_(): Index is supposed to be a vector")
    if d != source._np_dtype:
        raise RuntimeError(f"index_reduce_(): Expected self and source to have the same dtype, got {scalar_type_name(d)} "
                           f"and {scalar_type_name(source._np_dtype)}")
    if d.kind == "c" and reduce in ("amax", "amin"):
        raise not_implemented("index_reduce", input)
    indices = _as_int64_index(index, "index_reduce_")
    if (size[dim] if size else 1) != index._numel:
        raise RuntimeError("index_reduce_(): Number of indices should be equal to source.size(dim)")
    indices = index_rows(indices, n=input._sizes[dim] if input.ndim else 1, size=size, dim=dim)
    if not source._numel:
        return clone_(input, fmt="contiguous")
    return scatter_reduce_(input, source, indices, dim=dim, how=reduce, include_self=bool(include_self), check=False)


# ------------------------------------------------------------------ take and put
def _flat_index(name, index):
    check_tensor(name, index, "index", 2)
    if index._np_dtype != I64:
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {scalar_type_name(index._np_dtype)}")


@register_op(out="same")
def take(input, index):
    """Returns the elements of the flattened tensor at the given indices."""
    _flat_index("take", index)
    return take_(input, index, check=True)


@register_op(inplace=True, out=False, overlap="assert_no_overlap", aten="put.default")
def put(input, index, source, accumulate: Bool = False):
    """Returns input with the elements of source written to (or added at) the given indices of the
    flattened tensor."""
    check_tensor("put", source, "source", 3)
    if input._np_dtype != source._np_dtype:
        raise RuntimeError("put_(): self and source expected to have the same dtype, but got self.dtype = "
                           f"{scalar_type_name(input._np_dtype)} and "
                           f"source.dtype = {scalar_type_name(source._np_dtype)}")
    check_tensor("put", index, "index", 2)
    if index._numel != source._numel:
        raise IndexError("put_(): Expected source and index to have the same number of elements, but got "
                         "source.numel() = "
                         f"{source._numel}, index.numel() = {index._numel}")
    _flat_index("put_", index)
    indices = put_indices(index, n=input._numel)
    flat, src = reshape_(input, (input._numel,)), reshape_(source, (source._numel,))
    if not index._numel:
        return clone_(input, fmt="contiguous")
    if accumulate:
        r = scatter_add_(flat, src, indices, dim=0, check=False)
    else:
        alert("put_")
        r = scatter_(flat, src, indices, dim=0, check=False)
    return unsafe_view(r, size=input._sizes)


@register_op(out="same")
def take_along_dim(input, indices, dim: Int = None):
    """Like `gather`, but broadcasts index and input against each other except in `dim` (None: uses
    the flattened tensors)."""
    check_tensor("take_along_dim", indices, "indices", 2)
    if indices._np_dtype != I64:
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {scalar_type_name(indices._np_dtype)}")
    size = indices._sizes
    if dim is None:
        x, size, dim = reshape_(input, (input._numel,)), (indices._numel,), 0
        indices = reshape_(indices, size)
    else:
        x = input
        if x.ndim != len(size):
            raise RuntimeError("torch.take_along_dim(): input and indices should have the same number of dimensions, "
                               "but got "
                               f"{x.ndim} dimensions for input, and {len(size)} dimensions for indices")
        dim = wrap_dim("take_along_dim", dim, x.ndim)
        if x.ndim and x._sizes[:dim] + x._sizes[dim + 1:] != size[:dim] + size[dim + 1:]:
            rest = broadcast_shape([x._sizes[:dim] + (1,) + x._sizes[dim + 1:], size[:dim] + (1,) + size[dim + 1:]])
            size = rest[:dim] + (size[dim],) + rest[dim + 1:]
            x = expand_to(x, rest[:dim] + (x._sizes[dim],) + rest[dim + 1:])
    n = x._sizes[dim] if x.ndim else 1
    indices = take_along_indices(indices, n=n, size=size)
    if not indices._numel:
        return take_(x, indices, check=False)
    return gather_(x, indices, dim=dim, check=not n)


# ------------------------------------------------------------------ nonzero elements
@register_op(out="same", tags="dynamic_output_shape")
def nonzero(input, *, as_tuple=False):
    """Returns the indices of the nonzero elements: one row each, or with `as_tuple` (which accepts
    no `out=`) one tensor per dimension."""
    check_tensor("nonzero", input)
    return nonzero_tuple(input) if as_tuple else nonzero_(input)


@register_op(tags="dynamic_output_shape")
def argwhere(input):
    """Returns the indices of the nonzero elements, one row each."""
    return nonzero(input)


@register_op(aten="nonzero_static.default")
def nonzero_static(input, *, size: SymInt, fill_value: Int = -1):
    """Like `nonzero`, truncated or padded to `size` rows."""
    check_tensor("nonzero", input)
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    return nonzero_static_(input, size=size, fill_value=fill_value)


@register_op(method=False)
def unravel_index(indices, shape):
    """Converts flat indices to coordinates: a tuple with one tensor per dimension of `shape`."""
    check_tensor("unravel_index", indices, "indices")
    if indices._np_dtype.kind not in "iu":
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if shape.__class__ is not int and not isinstance(shape, (tuple, list)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    for n in () if shape.__class__ is int else shape:
        if not isinstance(n, int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(n)}")
    shape = ints_of("unravel_index", shape, "shape")
    if shape and min(shape) < 0:
        raise ValueError(f"'shape' cannot have negative values, but got {shape}")
    return unravel(indices, size=shape)


@register_op(ns="nn.functional", tags="dynamic_output_shape", condition="unless told")
def one_hot(input, num_classes: Int = -1):
    """Returns an int64 tensor with a 1 at each given class in a new last dimension."""
    check_tensor("one_hot", input)
    if input._np_dtype != I64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if input._numel:
        return one_hot_(input, num_classes=num_classes)
    if num_classes <= 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    return new_full(input, size=(*input._sizes, num_classes), value=0, np_dtype=I64)


# ------------------------------------------------------------------ a copy with one region replaced
def _cut_scatter(name):
    p = primitive(name, "a, src, *, key", lambda ctx, grad: p(grad, new_full(grad, size=ctx.shapes[1], value=0, np_dtype=grad._np_dtype), key=ctx.key),
                  lambda ctx, grad: clone(pick(grad, key=ctx.key)), raw=True, layout=like)
    return p


_slice_scatter, _select_scatter = _cut_scatter("slice_scatter"), _cut_scatter("select_scatter")
_diagonal_scatter = primitive(
    "diagonal_scatter", "a, src, *, offset, dim1, dim2",
    lambda ctx, grad: _diagonal_scatter(grad, new_full(grad, size=ctx.shapes[1], value=0, np_dtype=grad._np_dtype), offset=ctx.offset, dim1=ctx.dim1,
                                        dim2=ctx.dim2),
    lambda ctx, grad: clone(diagonal_(grad, offset=ctx.offset, dim1=ctx.dim1, dim2=ctx.dim2)), raw=True, layout=like)


def _source(name, x, src):
    """Returns the source in x's dtype."""
    check_tensor(name, src, "src", 2)
    return cast(src, x._np_dtype)


@register_op(aten="slice_scatter.default")
def slice_scatter(input, src, dim: Int = 0, start: SymInt = None, end: SymInt = None, step: SymInt = 1):
    """Returns a copy of input with src in the slice start:end:step of a dimension."""
    src = _source("slice_scatter", input, src)
    return _slice_scatter(input, src, key=slice_key(input, dim, start, end, step))


@register_op(aten="select_scatter.default")
def select_scatter(input, src, dim: Int, index: SymInt):
    """Returns a copy of input with src at one index of a dimension."""
    src = _source("select_scatter", input, src)
    return _select_scatter(input, src, key=select_key(input, dim, index))


@register_op(aten="diagonal_scatter.default")
def diagonal_scatter(input, src, offset: Int = 0, dim1: Int = 0, dim2: Int = 1):
    """Returns a copy of input with src on a diagonal."""
    src = _source("diagonal_scatter", input, src)
    return _diagonal_scatter(input, src, **diagonal_params(input, offset, dim1, dim2))


@register_op(aten="as_strided_scatter.default")
def as_strided_scatter(input, src, size, stride, storage_offset: SymInt = None):
    """Returns a copy of input with src in the region that as_strided selects.

    The gradient of input is zero in that region (PyTorch 2.13 keeps it there and drops it
    everywhere else).
    """
    check_tensor("as_strided_scatter", src, "src", 2)
    size, st, at, home = strided_region(input, size, stride, storage_offset, "as_strided_scatter")
    if size != src._sizes:
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(src._sizes)}, "
                           "slice size = "
                           f"{list(size)}")
    return _as_strided_scatter(input, cast(src, input._np_dtype), base=base_geometry(input), region=(size, st, at - home, input._np_dtype))


_as_strided_scatter = primitive(
    "as_strided_scatter", "a, src, *, base, region",
    lambda ctx, grad: _as_strided_scatter(grad, new_full(grad, size=ctx.shapes[1], value=0, np_dtype=grad._np_dtype), base=ctx.base, region=ctx.region),
    lambda ctx, grad: read_region(grad, base=ctx.base, region=ctx.region), raw=True, layout=like)
