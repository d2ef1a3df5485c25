"""Primitives behind gathering and scattering.

Index tensors are int64. `check`: whether the indices can be out of range; indices used by gradient
rules have been checked in the forward pass.
"""
from mindtorch.core.tensor.stride_rules import indexed, as_computed, like
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.ops.basic import new_full, sum_to
from mindtorch.ops.indexing._basic_index import slice_backward
from mindtorch.ops.shapes.views import reshape_


def zero_scalar(g):
    """Returns a 0-dim zero of g's dtype."""
    return new_full(g, size=(), value=0, np_dtype=g._np_dtype)


# ------------------------------------------------------------------ gather and scatter
gather_ = primitive("gather", "a, index, *, dim, check", lambda ctx, grad: gather_back(grad, ctx.index, size=ctx.shapes[0], dim=ctx.dim), None, raw=True)
#: zeros of `size` with g added at the indices that gather read
gather_back = primitive("gather_backward", "g, index, *, size, dim", lambda ctx, grad: gather_(grad, ctx.index, dim=ctx.dim, check=False), None)
#: a copy of `a` with src added at the indices; src can be larger than index
scatter_add_ = primitive("scatter_add", "a, src, index, *, dim, check", lambda ctx, grad: grad,
                         lambda ctx, grad: pad_source_grad(gather_(grad, ctx.index, dim=ctx.dim, check=False), ctx.shapes[1]), None)
scatter_ = primitive("scatter", "a, src, index, *, dim, check", lambda ctx, grad: scatter_zero(grad, ctx.index, ctx.dim),
                     lambda ctx, grad: _gathered(grad, ctx.index, ctx.dim, ctx.shapes[1]), None, raw=True)
scatter_multiply = primitive("scatter_multiply", "a, src, index, *, dim", node="ScatterBackward0")
#: number of values that scatter_reduce combines for each output element, at least 1; in g's dtype
scatter_count = primitive("scatter_count", "g, index, *, dim, include_self")


def pad_source_grad(g, shape):
    """Pads the gradient of the used corner of a source with zeros."""
    if g._sizes == shape:
        return g
    return slice_backward(g, shape=shape, key=tuple([slice(0, n) for n in g._sizes]))


def scatter_zero(g, index, dim):
    return scatter_(g, zero_scalar(g), index, dim=dim, check=False)


def _gathered(g, index, dim, shape):
    r = gather_(g, index, dim=dim, check=False)
    return sum_to(r, size=()) if not shape else pad_source_grad(r, shape)


# ------------------------------------------------------------------ index_select, index_add, ...
select_rows = primitive("index_select", "a, index, *, dim, check", lambda ctx, grad: rows_back(grad, ctx.index, size=ctx.shapes[0], dim=ctx.dim), None,
                        raw=True)
#: zeros of `size` with g added at the indices that index_select read
rows_back = primitive("index_select_backward", "g, index, *, size, dim", lambda ctx, grad: _rows_of(grad, ctx.index, ctx.dim, ctx.shapes[0]), None)


def _rows_of(g, index, dim, shape):
    return reshape_(select_rows(g, index, dim=dim, check=False), shape)


def _scaled(g, alpha):
    return g if alpha == 1 else g * (alpha.conjugate() if isinstance(alpha, complex) else alpha)


add_rows = primitive("index_add", "a, src, index, *, dim, alpha", lambda ctx, grad: grad,
                     lambda ctx, grad: _scaled(_rows_of(grad, ctx.index, ctx.dim, ctx.shapes[1]), ctx.alpha), None)
copy_rows = primitive("index_copy", "a, src, index, *, dim", lambda ctx, grad: _zero_rows(grad, ctx.index, ctx.dim),
                      lambda ctx, grad: _rows_of(grad, ctx.index, ctx.dim, ctx.shapes[1]), None, raw=True)
fill_rows = primitive("index_fill", "a, value, index, *, dim, check", lambda ctx, grad: _zero_rows(grad, ctx.index, ctx.dim),
                      lambda ctx, grad: _select_unique_rows(grad, ctx.index, ctx.dim), None, raw=True, layout=like)
#: the distinct indices into a dimension of n, all non-negative
_unique_indices = primitive("unique_indices", "index, *, n", raw=True)
#: expands a 1-D index into a dimension of n to an index for scatter, of the shape of the source
index_rows = primitive("index_rows", "index, *, n, size, dim", raw=True)


def _select_unique_rows(g, index, dim):
    """Selects each row once: a value written to one index twice has an effect only once."""
    return select_rows(g, _unique_indices(index, n=g._sizes[dim] if g.ndim else 1), dim=dim, check=False)


def _zero_rows(g, index, dim):
    return fill_rows(g, zero_scalar(g), index, dim=dim, check=False)


# ------------------------------------------------------------------ take and put
take_ = primitive("take", "a, index, *, check", lambda ctx, grad: _take_backward(grad, ctx.index, size=ctx.shapes[0]), None, raw=True)
_take_backward = primitive("take_backward", "g, index, *, size", lambda ctx, grad: take_(grad, ctx.index, check=False), None)
#: indices into a flattened tensor of n elements, 1-D and non-negative
put_indices = primitive("put_indices", "index, *, n", raw=True)
#: indices into a dimension of n, broadcast to `size` and non-negative
take_along_indices = primitive("take_along_indices", "index, *, n, size", raw=True)


# ------------------------------------------------------------------ indexing with tensors
class _ByCount(dict):
    """Primitives of one kind by their number of index tensors; those with more than three are
    created on first use."""

    def __init__(self, make):
        self.make = make
        for n in (1, 2, 3):
            self[n] = make(n)

    def __missing__(self, n):
        r = self[n] = self.make(n)
        return r


def _names(n):
    return [f"i{k}" for k in range(n)]


def _indices(c):
    """Returns the index tensors that a node has saved."""
    n = len(c.dims)
    return (c.i0,) if n == 1 else (c.i0, c.i1) if n == 2 else [getattr(c, name) for name in _names(n)]


def _index(n):
    return primitive(f"index_{n}", f"a, {', '.join(_names(n))}, *, dims", lambda ctx, grad: index_back(grad, _indices(ctx), ctx.shapes[0], ctx.dims),
                     *[None] * n, raw=True, saves=_names(n), node="IndexBackward0", layout=indexed)


def _index_back(n):
    return primitive(f"index_backward_{n}", f"g, {', '.join(_names(n))}, *, size, dims", lambda ctx, grad: index_at(grad, _indices(ctx), ctx.dims),
                     *[None] * n, saves=_names(n), node="IndexBackwardBackward0")


def _put(n):
    return primitive(f"index_put_{n}", f"a, values, {', '.join(_names(n))}, *, dims",
                     lambda ctx, grad: put_at(grad, zero_scalar(grad), _indices(ctx), ctx.dims), lambda ctx, grad: index_at(grad, _indices(ctx), ctx.dims),
                     *[None] * n, raw=True, saves=_names(n), node="IndexPutBackward0", layout=like)


def _add(n):
    return primitive(f"index_put_add_{n}", f"a, values, {', '.join(_names(n))}, *, dims", lambda ctx, grad: grad,
                     lambda ctx, grad: index_at(grad, _indices(ctx), ctx.dims), *[None] * n, saves=_names(n), node="IndexPutBackward0", layout=like)


_INDEX, _BACK, _PUT, _ADD = _ByCount(_index), _ByCount(_index_back), _ByCount(_put), _ByCount(_add)


def index_at(x, indices, dims):
    """Returns x indexed by tensors at the dimensions `dims` (ascending)."""
    return _INDEX[len(dims)](x, *indices, dims=dims)


def index_back(g, indices, size, dims):
    """Returns zeros of `size` with g added at the indices that `index_at` read."""
    return _BACK[len(dims)](g, *indices, size=size, dims=dims)


def put_at(x, values, indices, dims):
    """Returns a copy of x with values written at the indices."""
    return _PUT[len(dims)](x, values, *indices, dims=dims)


def add_at(x, values, indices, dims):
    """Like `put_at`, but adds the values, also at repeated indices. float16 sums are computed in
    float32."""
    return _ADD[len(dims)](x, values, *indices, dims=dims)


# ------------------------------------------------------------------ nonzero elements
#
# nonzero: one row for each nonzero element
nonzero_ = primitive("nonzero", "a", raw=True, layout=as_computed, aten="nonzero.default")
#: like nonzero, with one tensor per dimension (a 0-dim tensor counts as 1-D)
nonzero_tuple = primitive("nonzero_tuple", "a", raw=True, layout=as_computed)
#: like nonzero_tuple, for a mask, with contiguous tensors: converts a mask to index tensors
mask_indices = primitive("mask_indices", "mask", raw=True)
nonzero_static_ = primitive("nonzero_static", "a, *, size, fill_value", raw=True)
unravel = primitive("unravel_index", "a, *, size", raw=True)
one_hot_ = primitive("one_hot", "a, *, num_classes", raw=True)
