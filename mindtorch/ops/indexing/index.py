"""Indexing by tensors: gather and scatter, index_*, masked_*, take and put, nonzero, and the *_scatter ops."""
import numpy as np

from mindtorch.backend.cpu import large
from mindtorch.core.alias import Layout, read_region, title
from mindtorch.core.dtypes import I64
from mindtorch.core.table import fresh, op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor, wrap
from mindtorch.ops._checks import need_tensor, unsupported, wrap_dim
from mindtorch.ops.indexing._gather import (Places, _within, accumulate, add_rows, by_rows, check_bounds, copy_rows, fill_rows, gather_, positions,
                                   scatter_add_, select_rows)
from mindtorch.ops.indexing._masks import zero_dim
from mindtorch.ops.shapes._memory import strided_region
from mindtorch.ops._numbers import number_as, number_of
from mindtorch.ops.indexing._region import pick
from mindtorch.ops.shapes._sizes import copy_as, flat_bytes, ints_of, offset_of, root
from mindtorch.ops.basic import cast, conj, mul_, sum_to
from mindtorch.ops.elementwise.binary import div_
from mindtorch.ops.shapes.shape import clone_
from mindtorch.ops.shapes.views import (broadcast_shape, diagonal_, diagonal_params, expand_to, reshape_, select_key, slice_key,
                                 unsafe_view)



def _places(index, dtype_error):
    """The index tensor's values as int64, kept for backward."""
    a = index._a
    if a.dtype is not I64:
        if a.dtype.name not in ("int64", "int32"):
            raise dtype_error
        a = a.astype(I64)
    return Places(a, (index,))


# ------------------------------------------------------------------ gather and scatter
def _check_index(name, x, dim, index, src=None):
    """(dim, places) of gather and the scatter family, with torch's checks."""
    need_tensor(name, index, "index", 3)
    a, i = x._a, index._a
    dim = wrap_dim(name, dim, a.ndim)
    if not i.size:
        return dim, None
    places = _places(index, RuntimeError(f"{name}(): Expected dtype int32/int64 for index"))
    what = "input" if name == "gather" else "self"
    if max(a.ndim, 1) != max(i.ndim, 1):
        raise RuntimeError(f"Index tensor must have the same number of dimensions as {what} tensor")
    if src is not None and max(src.ndim, 1) != max(i.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    shape, have = i.shape or (1,), a.shape or (1,)
    given = have if src is None else src._sizes or (1,)
    for ax, n in enumerate(shape):
        if ax != dim and n > have[ax] or src is not None and n > given[ax]:
            if name == "gather":
                raise RuntimeError(f"Size does not match at dimension {ax} expected index {list(shape)} to be no "
                                   "larger than self "
                                   f"{list(have)} apart from dimension {dim}")
            tail = "" if src is None else f" and to be no larger size than src {list(given)}"
            raise RuntimeError(f"Expected index {list(shape)} to be no larger than self {list(have)} apart from "
                               f"dimension {dim}{tail}")
    check_bounds(places.value, have[dim], dim, False, RuntimeError)
    return dim, places


@op(out=True)
def gather(input, dim, index, *, sparse_grad=False):
    """out[i][j][k] = input[index[i][j][k]][j][k] for dim 0, and so on; index may be smaller than input apart from `dim`."""
    dim, places = _check_index("gather", input, dim, index)
    if not index._numel:
        return _empty_gather(input, index)
    return gather_(input, index=places, dim=dim)


def _empty_gather(x, index):
    return _take(x, index=Places(np.empty(index._sizes, np.int64), ()))


def _corner(src, shape):
    """The part of a source that an index of `shape` uses."""
    return src[tuple([slice(0, n) for n in shape])] if src.ndim == len(shape) else src.reshape(shape)


def _scatter(a, src, *, index, dim):
    r = np.array(a, order="C")
    i = index.get()
    if dim and i.ndim and i.size >= large.LEAST:
        v = _corner(src, i.shape) if src.ndim else None

        def do(flat, at, part, s, t):
            flat[at] = src if v is None else v[s:t]
        by_rows(r, i, dim, do)
        return r
    r.reshape(-1)[positions(a.shape, i, dim)] = _corner(src, i.shape) if src.ndim else src
    return r


scatter_ = primitive("scatter", _scatter, lambda c, g: _scatter_zero(g, c.index, c.dim),
                     lambda c, g: _gathered(g, c.index, c.dim, c.shapes[1]), raw=True)


def _scatter_zero(g, index, dim):
    return scatter_(g, wrap(np.zeros((), g._stype)), index=index, dim=dim)


def _gathered(g, index, dim, shape):
    r = gather_(g, index=index, dim=dim)
    return sum_to(r, size=()) if not shape else _within(r, shape)


@op(inplace=True, out=True)
def scatter(input, dim, index, src=None, value=None, *, reduce=None):
    """input with src[i][j][k] (or one value) written to [index[i][j][k]][j][k] for dim 0, and so on.

    reduce "add" or "multiply" combines with what is there.
    """
    if src is None:
        src = value
    if not isinstance(src, Tensor):
        src = wrap(number_as(number_of("scatter", src), input._stype))
        dim, places = _check_index("scatter", input, dim, index)
        full = None
    else:
        if src._stype != input._stype:
            raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
        dim, places = _check_index("scatter", input, dim, index, src)
        full = src
    if not index._numel:
        return clone_(input, fmt="contiguous")
    if reduce is None:
        return scatter_(input, src, index=places, dim=dim)
    if reduce == "add":
        return scatter_add_(input, src, index=places, dim=dim)
    if reduce != "multiply":
        raise RuntimeError("reduce argument must be either add or multiply.")
    if input._rg or full is not None and full._rg:
        raise NotImplementedError("'scatter' with reduce='multiply' has no gradient: use scatter_reduce with "
                                  "reduce='prod'")
    return _scatter_multiply(input, src, index=places, dim=dim)


_scatter_multiply = primitive("scatter", lambda a, src, *, index, dim: _reduced_into(np.array(a, order="C"), src, index.get(), dim, "prod"))


def _reduced_into(r, src, i, dim, how):
    src = np.broadcast_to(_corner(src, i.shape) if src.ndim else src, i.shape)
    accumulate(r.reshape(-1), positions(r.shape, i, dim), np.ascontiguousarray(src), how)
    return r


@op(inplace=True, out=True)
def scatter_add(input, dim, index, src):
    """input with src[i][j][k] added at [index[i][j][k]][j][k] for dim 0, and so on."""
    need_tensor("scatter_add", src, "src", 4)
    if src._stype != input._stype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    dim, places = _check_index("scatter_add", input, dim, index, src)
    if not index._numel:
        return clone_(input, fmt="contiguous")
    return scatter_add_(input, src, index=places, dim=dim)


# ------------------------------------------------------------------ scatter_reduce
def _extreme(d, how):
    if d.kind == "f":
        return np.inf if how == "amin" else -np.inf
    if d.kind == "b":
        return how == "amin"
    return np.iinfo(d).max if how == "amin" else np.iinfo(d).min


def _scatter_reduce(a, src, *, index, dim, how, include_self):
    i = index.get()
    r = np.array(a, order="C")
    flat, pos = r.reshape(-1), positions(a.shape, i, dim)
    src = np.ascontiguousarray(_corner(src, i.shape))
    kind = a.dtype.kind
    if not include_self:
        start = {"sum": 0, "mean": 0, "prod": 1}.get(how)
        flat[pos] = _extreme(a.dtype, how) if start is None else start
    accumulate(flat, pos, src, "sum" if how == "mean" else how)
    if how == "mean":
        n = np.full(flat.shape, 1 if include_self else 0, np.int64)
        np.add.at(n, pos.reshape(-1), np.ones(pos.size, np.int64))
        n = np.maximum(n, 1).reshape(r.shape)
        if kind in "iu":
            return np.floor_divide(r, n.astype(r.dtype))
        r = r / n.astype(r.dtype if kind == "f" else r.real.dtype)
        return r.astype(a.dtype, copy=False)
    return r


def _ones(shape, d):
    return wrap(np.ones(shape, d))


def _scatter_reduce_grads(c, g):
    """(gradient of self, gradient of src)."""
    how, index, dim = c.how, c.index, c.dim
    a, src, out = c.a, c.src, c.out
    i = index.get()
    d = g._stype
    pick = lambda x: gather_(x, index=index, dim=dim)                    # noqa: E731
    back = lambda x: _within(x, src._sizes)                            # noqa: E731
    if how == "sum":
        ga, gs = g, back(pick(g))
    elif how == "mean":
        n = _ones(a._sizes, d) if c.include_self else wrap(np.zeros(a._sizes, d))
        n = scatter_add_(n, _ones(i.shape, d), index=index, dim=dim)
        n = fresh(np.maximum(n._a.real, 1).astype(d))
        ga, gs = g / n, back(pick(g / n))
    elif how == "prod":
        ga, gs = _prod_grads(g, a, src, out, index, dim, c.include_self)
        gs = back(gs)
    else:
        # Those that reached the extreme share the gradient (self's element counts among them even where it took no part).
        mine = fresh((a._a == out._a).astype(d))
        theirs = fresh((_corner(src._a, i.shape) == pick(out)._a).astype(d))
        n = scatter_add_(mine, theirs, index=index, dim=dim)
        share = div_(g, n)          # where nan reached it nobody did: 0 / 0
        ga, gs = mul_(mine, share), back(mul_(theirs, pick(share)))
    if not c.include_self:
        ga = _scatter_zero(ga, index, dim)
    return ga, gs


def _prod_grads(g, a, src, out, index, dim, include_self):
    """Gradients of a product, also where factors are zero: each factor's gradient is the product of the others."""
    i = index.get()
    d = g._stype
    used = slice_corner(src, i.shape)
    zero_src = _corner(src._a, i.shape) == 0
    zero_self = (a._a == 0) if include_self else np.zeros(a._sizes, bool)
    if not zero_src.any() and not zero_self.any():
        whole = mul_(g, conj(out))
        ga = whole / conj(a) if include_self else g
        return ga, gather_(whole, index=index, dim=dim) / conj(used)
    # Zeros are replaced by 1 and counted: with none, product / factor; with one, only the zero itself gets the rest.
    one_src = fresh(np.where(zero_src, np.ones((), d), _corner(src._a, i.shape)))
    one_self = fresh(np.where(zero_self, np.ones((), d), a._a))
    rest = _scatter_reduce_call(one_self, one_src, index, dim, include_self)
    zeros = zero_self.astype(np.int64)
    zeros = _reduced_into(np.array(zeros), zero_src.astype(np.int64), i, dim, "sum")
    near = positions(zeros.shape, i, dim)
    at_src = zeros.reshape(-1)[near]
    keep_self = np.where(zero_self, zeros == 1, zeros == 0).astype(d)
    keep_src = np.where(zero_src, at_src == 1, at_src == 0).astype(d)
    whole = mul_(g, conj(rest))
    ga = mul_(whole / conj(one_self), fresh(keep_self)) if include_self else g
    return ga, mul_(gather_(whole, index=index, dim=dim) / conj(one_src), fresh(keep_src))


def slice_corner(x, shape):
    """View of the used corner of a source."""
    if x._sizes == shape:
        return x
    return pick(x, key=tuple([slice(0, n) for n in shape])) if x.ndim == len(shape) else reshape_(x, shape)


def _scatter_reduce_call(a, src, index, dim, include_self):
    return scatter_reduce_(a, src, index=index, dim=dim, how="prod", include_self=include_self)


scatter_reduce_ = primitive("scatter_reduce", _scatter_reduce, lambda c, g: _scatter_reduce_grads(c, g), saves=("a", "src", "out"))


@op(inplace=True, out=True)
def scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """As scatter, combining all values for a place by "sum", "prod", "mean", "amax" or "amin" (with what is there, or without)."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    need_tensor("scatter_reduce", src, "src", 4)
    if src._stype != input._stype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    dim, places = _check_index("scatter_reduce", input, dim, index, src)
    d = input._stype
    if d.kind == "b" and reduce == "mean" or d.kind == "c" and reduce in ("amax", "amin"):
        raise unsupported(f"scatter_reduce with reduce='{reduce}'", d)
    if not index._numel:
        return clone_(input, fmt="contiguous")
    return scatter_reduce_(input, src, index=places, dim=dim, how=reduce, include_self=bool(include_self))


# ------------------------------------------------------------------ index_select, index_add, ...
def index_select_(x, dim, index):
    """index_select with everything known to be right."""
    return select_rows(x, index=Places(index._a, (index,)), dim=dim)


@op(out=True)
def index_select(input, dim, index):
    """The places of a dimension that a one-dimensional index names."""
    need_tensor("index_select", index, "index", 3)
    a, i = input._a, index._a
    if i.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    places = _places(index, RuntimeError("index_select(): Expected dtype int32 or int64 for index"))
    dim = wrap_dim("index_select", dim, a.ndim)
    if not a.ndim and i.size != 1:
        raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {i.size} value(s)")
    check_bounds_select(places.value, a.shape[dim] if a.ndim else 1)
    if not i.ndim:
        places.value = places.value.reshape(1)
    return select_rows(input, index=places, dim=dim)


def check_bounds_select(i, n):
    if i.size:
        u = i.view(np.uint64)
        if u.item(u.argmax()) >= n:
            raise IndexError("index out of range in self")


@op(inplace=True, out=True)
def index_add(input, dim, index, source, *, alpha=1):
    """input with alpha * source added at the places of `dim` that index names (repeated places add up)."""
    need_tensor("index_add", index, "index", 3)
    need_tensor("index_add", source, "source", 4)
    a, i, s = input._a, index._a, source._a
    dim = wrap_dim("index_add", dim, a.ndim)
    if i.ndim > 1:
        raise IndexError(f"index_add_(): Index is supposed to be a vector, but got dim: {i.ndim} with type: "
                         f"{title(i.dtype)} and size: "
                         f"{list(i.shape)}")
    places = _places(index, RuntimeError("index_add_(): Expected dtype int32/int64 for index but got: "
                                         f"{title(i.dtype)}"))
    if a.dtype != s.dtype:
        raise RuntimeError(f"index_add_(): self ({title(a.dtype)}) and source ({title(s.dtype)}) must have the same "
                           "scalar type")
    _check_rows("index_add_(): Number of indices ({m}) should be equal to source.size(dim): ({n}), for dim: {dim}",
                "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape "
                "= {a} "
                "source.shape = {s}", a, i, s, dim, RuntimeError)
    check_bounds(places.value, a.shape[dim] if a.ndim else 1, dim, False, RuntimeError)
    places.value = places.value.reshape(-1)
    alpha = number_of("index_add", alpha, "alpha")
    if a.dtype.kind in "iu":
        alpha = int(alpha)
    return add_rows(input, source, index=places, dim=dim, alpha=alpha)


def _check_rows(count_text, shape_text, a, i, s, dim, kind):
    """The source must have the shape of the indexed part of self."""
    n = s.shape[dim] if s.ndim > dim else 1
    if s.ndim and a.ndim and i.size != n or not s.ndim and i.size != 1:
        raise kind(count_text.format(m=i.size, n=n, dim=dim))
    mine = a.shape[:dim] + a.shape[dim + 1:]
    theirs = s.shape[:dim] + s.shape[dim + 1:]
    if a.ndim != s.ndim and not (s.ndim == 0 and not mine) or mine != theirs:
        raise RuntimeError(shape_text.format(a=list(a.shape), s=list(s.shape)))


@op(inplace=True, out=True)
def index_copy(input, dim, index, source):
    """input with source written to the places of `dim` that index names."""
    need_tensor("index_copy", index, "index", 3)
    need_tensor("index_copy", source, "source", 4)
    a, i, s = input._a, index._a, source._a
    dim = wrap_dim("index_copy", dim, a.ndim)
    if i.ndim > 1:
        raise IndexError(f"index_copy_(): Index should have dimension 1 or 0 (got {i.ndim})")
    if a.dtype != s.dtype:
        raise RuntimeError("index_copy_(): self and source expected to have the same dtype, but got (self) "
                           f"{title(a.dtype)} and (source) "
                           f"{title(s.dtype)}")
    if i.dtype != I64:
        raise RuntimeError(f"index_copy_(): Expected a long tensor for index, but got {title(i.dtype)}")
    if s.ndim and a.ndim and s.ndim != a.ndim:
        raise IndexError("index_copy_(): When source and destination are not scalars, their dimensionality must "
                         "match. Source "
                         f"dimensionality ({s.ndim}), destination dimensionality ({a.ndim})")
    _check_rows("index_copy_(): Number of indices ({m}) should be equal to source.size(dim) ({n})",
                "index_copy_(): Source/destination tensor must have same slice shapes, got {a} and "
                "{s}", a, i, s, dim, IndexError)
    places = Places(i.reshape(-1), (index,))
    check_bounds(places.value, a.shape[dim] if a.ndim else 1, dim, False, IndexError, "index_copy_(): ")
    return copy_rows(input, source, index=places, dim=dim)


@op(inplace=True, out=True)
def index_fill(input, dim, index, value):
    """input with one value written to the places of `dim` that index names."""
    need_tensor("index_fill", index, "index", 3)
    a, i = input._a, index._a
    dim = wrap_dim("index_fill", dim, a.ndim)
    if i.dtype != I64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if i.ndim > 1:
        raise RuntimeError("Index has to be a vector/scalar")
    value = zero_dim("index_fill_", value, a.dtype)
    n = a.shape[dim] if a.ndim else 1
    check_bounds(i, n, dim)
    return fill_rows(input, value, index=Places(i.reshape(-1), (index,)), dim=dim)


@op(inplace=True, out=True)
def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """As index_copy, combining all values for a place by "prod", "mean", "amax" or "amin" (with what is there, or without)."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    need_tensor("index_reduce", index, "index", 3)
    need_tensor("index_reduce", source, "source", 4)
    a, i, s = input._a, index._a, source._a
    dim = wrap_dim("index_reduce", dim, a.ndim)
    if i.ndim > 1:
        raise IndexError("index_reduce_(): Index is supposed to be a vector")
    if a.dtype != s.dtype:
        raise RuntimeError(f"index_reduce_(): Expected self and source to have the same dtype, got {title(a.dtype)} "
                           f"and {title(s.dtype)}")
    if a.dtype.kind == "c" and reduce in ("amax", "amin"):
        raise unsupported("index_reduce", a.dtype)
    places = _places(index, RuntimeError("index_reduce_(): Expected dtype int32/int64 for index"))
    if (s.shape[dim] if s.ndim else 1) != i.size:
        raise RuntimeError("index_reduce_(): Number of indices should be equal to source.size(dim)")
    check_bounds(places.value, a.shape[dim] if a.ndim else 1, dim, False, RuntimeError)
    shape = [1] * max(s.ndim, 1)
    shape[dim] = i.size
    full = np.broadcast_to(places.value.reshape(shape if s.ndim else ()), s.shape)
    if not s.size:
        return clone_(input, fmt="contiguous")
    return scatter_reduce_(input, source, index=Places(full, (index,)), dim=dim, how=reduce,
                           include_self=bool(include_self))


# ------------------------------------------------------------------ take and put
def _check_flat(name, x, index):
    need_tensor(name, index, "index", 2)
    i = index._a
    if i.dtype != I64:
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {title(i.dtype)}")
    n = x._numel
    if i.size:
        if not n:
            raise IndexError(f"{name}(): tried to take from an empty tensor")
        if i.min() < -n or i.max() >= n:
            bad = i[(i >= n) | (i < -n)].reshape(-1)[0]
            raise IndexError(f"out of range: tried to access index {int(bad)} on a tensor of {n} elements.")
        if i.min() < 0:
            i = np.where(i < 0, i + n, i)
    return Places(i, (index,))


@op(out=True)
def take(input, index):
    """Elements of the flattened tensor at the given positions."""
    places = _check_flat("take", input, index)
    return _take(input, index=places)


def _take_back(g, *, shape, index):
    r = np.zeros(shape, g.dtype)
    accumulate(r.reshape(-1), index.get(), np.ascontiguousarray(g))
    return r


_take = primitive("take", lambda a, *, index: a.reshape(-1).take(index.get()) if index.get().size else np.empty(index.get().shape, a.dtype),
                  lambda c, g: _taken_back(g, shape=c.shapes[0], index=c.index), raw=True)
_taken_back = primitive("take_backward", _take_back, lambda c, g: _take(g, index=c.index))


@op(inplace=True, out=False)
def put(input, index, source, accumulate=False):
    """input with the elements of source written to (or added at) the given positions of the flattened tensor."""
    need_tensor("put", source, "source", 3)
    if input._stype != source._stype:
        raise RuntimeError("put_(): self and source expected to have the same dtype, but got self.dtype = "
                           f"{title(input._stype)} and "
                           f"source.dtype = {title(source._stype)}")
    need_tensor("put", index, "index", 2)
    if index._numel != source._numel:
        raise IndexError("put_(): Expected source and index to have the same number of elements, but got "
                         "source.numel() = "
                         f"{source._numel}, index.numel() = {index._numel}")
    places = _check_flat("put_", input, index)
    places.value = places.value.reshape(-1)
    flat, src = reshape_(input, (input._numel,)), reshape_(source, (source._numel,))
    if not index._numel:
        return clone_(input, fmt="contiguous")
    if accumulate:
        r = scatter_add_(flat, src, index=places, dim=0)
    else:
        r = scatter_(flat, src, index=places, dim=0)
    return unsafe_view(r, size=input._sizes)


@op(out=True)
def take_along_dim(input, indices, dim=None):
    """gather with index and input broadcast against each other apart from `dim` (None: over the flattened tensors)."""
    need_tensor("take_along_dim", indices, "indices", 2)
    i = indices._a
    if i.dtype != I64:
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {title(i.dtype)}")
    if dim is None:
        x, i, dim = reshape_(input, (input._numel,)), i.reshape(-1), 0
    else:
        x = input
        if x.ndim != i.ndim:
            raise RuntimeError("torch.take_along_dim(): input and indices should have the same number of dimensions, "
                               "but got "
                               f"{x.ndim} dimensions for input, and {i.ndim} dimensions for indices")
        dim = wrap_dim("take_along_dim", dim, x.ndim)
        if x.ndim:
            rest = broadcast_shape([x._sizes[:dim] + (1,) + x._sizes[dim + 1:], i.shape[:dim] + (1,) + i.shape[dim + 1:]])
            i = np.broadcast_to(i, rest[:dim] + (i.shape[dim],) + rest[dim + 1:])
            x = expand_to(x, rest[:dim] + (x._sizes[dim],) + rest[dim + 1:])
    n = x._sizes[dim] if x.ndim else 1
    if i.size and n:
        i = i % n
    index = Places(i, (indices,))
    if not i.size:
        return _take(x, index=Places(np.empty(i.shape, np.int64), ()))
    check_bounds(i, n, dim, False, RuntimeError)
    return gather_(x, index=index, dim=dim)


# ------------------------------------------------------------------ where the elements are not zero
def nonzero_arrays(x):
    """NumPy's nonzero of a tensor (0-dim ones as one-dimensional)."""
    a = x._a
    if a.dtype.kind == "V":
        a = a.astype(np.float32)
    return (a.reshape(1) if not a.ndim else a).nonzero()


@op(out=True)
def nonzero(input, *, as_tuple=False):
    """Indices of the elements that are not zero: one row each, or (as_tuple) a tensor for each dimension."""
    need_tensor("nonzero", input)
    where = nonzero_arrays(input)
    if as_tuple:
        return tuple([wrap(i) for i in where])
    if not input.ndim:
        return wrap(np.zeros((where[0].size, 0), np.int64))
    return wrap(np.stack(where, 1))


@op
def argwhere(input):
    """Indices of the elements that are not zero, one row each."""
    return nonzero(input)


@op
def nonzero_static(input, *, size, fill_value=-1):
    """nonzero cut or filled up to `size` rows."""
    rows = nonzero(input)._a
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    out = np.full((size, rows.shape[1]), fill_value, np.int64)
    n = min(size, rows.shape[0])
    out[:n] = rows[:n]
    return wrap(out)


@op(method=False)
def unravel_index(indices, shape):
    """Flat positions as coordinates: a tuple with a tensor for each dimension of `shape`."""
    need_tensor("unravel_index", indices, "indices")
    a = indices._a
    if a.dtype.kind not in "iu":
        raise ValueError(f"expected 'indices' to be an integer tensor, but got {indices.dtype}")
    shape = ints_of("unravel_index", shape, "shape")
    if shape and min(shape) < 0:
        raise ValueError(f"'shape' cannot have negative values, but got {shape}")
    out = []
    for n in reversed(shape):
        out.append(wrap(np.asarray(a % n)))
        a = np.asarray(a // n)
    return tuple(reversed(out))


@op(ns="nn.functional")
def one_hot(input, num_classes=-1):
    """int64 tensor with a 1 at each given class in a new last dimension."""
    need_tensor("one_hot", input)
    a = input._a
    if a.dtype != I64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if not a.size:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return wrap(np.zeros((*a.shape, num_classes), np.int64))
    if a.min() < 0:
        raise RuntimeError("Class values must be non-negative.")
    top = int(a.max()) + 1
    if num_classes == -1:
        num_classes = top
    elif num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    elif top > num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    r = np.zeros((a.size, num_classes), np.int64)
    r[np.arange(a.size), a.reshape(-1)] = 1
    return wrap(r.reshape(*a.shape, num_classes))


# ------------------------------------------------------------------ a copy with one region replaced
def _whole_copy(a):
    """Copy with the same strides and offset, on a copy of the whole storage."""
    if a.flags.c_contiguous and a.base is None or not a.size:
        return a.copy()
    if 0 in a.strides and any(n > 1 and not s for n, s in zip(a.shape, a.strides)):
        return copy_as(a)
    return np.ndarray(a.shape, a.dtype, flat_bytes(root(a)).copy(), offset_of(a), a.strides)


def _replace(a, src, *, part, params):
    r = _whole_copy(a)
    part.prim.fwd(r, **params)[...] = src
    return r


def _replacer(name):
    p = primitive(name, _replace,
                  lambda c, g: p(g, wrap(np.zeros(c.shapes[1], g._stype)), part=c.part, params=c.params),
                  lambda c, g: _plain_copy(c.part(g, **c.params)), raw=True)
    return p


_plain_copy = primitive("clone", lambda a: a.copy(), lambda c, g: g, raw=True)


def _replaced(prim, x, region, src):
    """A copy of x with src in `region`, a view of x made by a view primitive: the same view is taken of the copy."""
    name = prim.prim.name
    need_tensor(name, src, "src", 2)
    part, params = region
    shape = part.prim.fwd(x._a, **params).shape
    if shape != src._sizes:
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(src._sizes)}, "
                           "slice size = "
                           f"{list(shape)}")
    if src._stype != x._stype:
        src = cast(src, x._stype)
    return prim(x, src, part=part, params=params)


_slice_scatter, _select_scatter, _diagonal_scatter = [_replacer(n) for n in ("slice_scatter", "select_scatter", "diagonal_scatter")]


@op
def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """A copy of input with src in the slice start:end:step of a dimension."""
    return _replaced(_slice_scatter, input, (pick, {"key": slice_key(input, dim, start, end, step)}), src)


@op
def select_scatter(input, src, dim, index):
    """A copy of input with src at one place of a dimension."""
    return _replaced(_select_scatter, input, (pick, {"key": select_key(input, dim, index)}), src)


@op
def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy of input with src on a diagonal."""
    return _replaced(_diagonal_scatter, input, (diagonal_, diagonal_params(input, offset, dim1, dim2)), src)


@op
def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """A copy of input with src in the region that as_strided names.

    The gradient of input is zero in that region (torch 2.13 keeps it there and drops it everywhere else).
    """
    need_tensor("as_strided_scatter", src, "src", 2)
    size, st, at, home = strided_region(input, size, stride, storage_offset, "as_strided_scatter")
    if size != src._sizes:
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(src._sizes)}, "
                           "slice size = "
                           f"{list(size)}")
    if src._stype != input._stype:
        src = cast(src, input._stype)
    return _as_strided_scatter(input, src, layout=Layout(input._a), geo=(size, st, at - home, input._stype))


def _write_region(a, src, *, layout, geo):
    base, region = layout.canvas(geo, a)
    region[...] = src
    return base


_as_strided_scatter = primitive(
    "as_strided_scatter", _write_region,
    lambda c, g: _as_strided_scatter(g, wrap(np.zeros(c.shapes[1], g._stype)), layout=c.layout, geo=c.geo),
    lambda c, g: read_region(g, layout=c.layout, geo=c.geo), raw=True)


from mindtorch.ops.shapes import _copies  # noqa: E402,F401  (x[...], x[...] = v, in-place methods, copies of views)
from mindtorch.ops.indexing import _subscript, _writes  # noqa: E402,F401  (x[...], x[...] = v, in-place methods, copies of views)
