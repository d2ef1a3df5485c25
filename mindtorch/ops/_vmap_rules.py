"""Batching rules of primitives, loaded with the first vmap.

A rule receives the operands over all slices. `mapped` says which of them have the slice dimension,
which is always the first. Results have the slice dimension in front, too. A rule that does not
support a case returns None. Most primitives share one of a few rules, which derive the details from
the signature of the primitive:

    pointwise   broadcasts the dimensions of a slice from the right
    leading     the kernel accepts any number of leading dimensions
    along       attributes that name dimensions are shifted by one; sizes get the number of slices in front
    whole       full reductions become reductions over all dimensions but the first
    views       depends on the attributes of each view

Primitives without a rule are computed slice by slice (`mindtorch/core/vmap.py`).
"""
import math

from mindtorch.core import vmap
from mindtorch.core.vmap import call, align_batch_dim
from mindtorch.core.op_schema import OPS
from mindtorch.core.primitives import PRIMITIVES
from mindtorch.core.tensor import ScalarOperand, SavedArray, shallow_copy
from mindtorch.ops.indexing import _gather
from mindtorch.ops.indexing._basic_index import pick

_ALL = slice(None)
_view, _permute, _expand, _bmm, _mm = (PRIMITIVES[n] for n in ("view", "permute", "expand", "bmm", "mm"))
_arange, _reshape, _where = (OPS[n].fn for n in ("arange", "reshape", "where"))


def _ndim(v, m):
    """Returns the number of dimensions of a slice."""
    return v.ndim - m


def full(v, m, level):
    """Returns an operand over all slices; an operand shared by all slices is expanded."""
    if v is None or m:
        return shallow_copy(v) if v.__class__ is SavedArray else v
    if v.__class__ is SavedArray or v.__class__ is ScalarOperand:
        v = shallow_copy(v)
    return _expand(fitted_one(v), size=(level.size, *v._sizes))


def fitted_one(v):
    """Adds a dimension of size 1 in front."""
    return pick(v, key=(None, ...))


def to_front(x, dim):
    """Moves the dimension `dim` to the front."""
    return x if not dim else _permute(x, dims=(dim, *[d for d in range(x.ndim) if d != dim]))


# ------------------------------------------------------------------ elementwise
def pointwise(prim, vals, mapped, kw, level):
    """Broadcasts from the right: inserts dimensions of size 1 after the slice dimension until all
    slices have equally many dimensions."""
    n = max([_ndim(v, m) for v, m in zip(vals, mapped) if v is not None])
    return call(prim, [v if v is None else align_batch_dim(v, m, n) for v, m in zip(vals, mapped)], kw)


def like_first(prim, vals, mapped, kw, level):
    """Like `pointwise`, for results that have the shape of the first operand."""
    return pointwise(prim, [full(vals[0], mapped[0], level), *vals[1:]], [True, *mapped[1:]], kw, level)


def alike(prim, vals, mapped, kw, level):
    """Like `pointwise`, for gradients of elementwise functions. Their kernels may write the result
    over any operand, so all tensor operands are expanded to all slices."""
    number = [v.__class__ is ScalarOperand for v in vals]
    return pointwise(prim, [v if c else full(v, m, level) for v, m, c in zip(vals, mapped, number)], [not c for c in number], kw, level)


_POINTWISE = """
    to_copy real_copy copies clone without_nan pairs_in_order complex polar frexp masked_scale masked_zero gelu gelu_backward silu silu_backward
    hardtanh threshold hardsigmoid hardsigmoid_backward hardswish hardswish_backward negative_part_backward real_view imag_view detach_copy
    least_magnitude standard_gamma_grad transposed_copy
    bernoulli bernoulli_p poisson binomial standard_gamma native_dropout rrelu_noise
"""
_LIKE_FIRST = "copy zero"


def filled(prim, vals, mapped, kw, level):
    """Fills with one value for all slices, or with one value per slice, which the kernel and its
    gradient rule do not support."""
    if not mapped[1]:
        return like_first(prim, vals, mapped, kw, level)
    if prim.name == "fill":
        a = full(vals[0], mapped[0], level)
        return PRIMITIVES["copy"](a, _expand(align_batch_dim(vals[1], True, a.ndim - 1), size=a._sizes))
    n = max(_ndim(vals[0], mapped[0]), _ndim(vals[2], mapped[2]))
    a, value, mask = (align_batch_dim(v, m, n) for v, m in zip(vals, mapped))
    return _where(mask, value, a)


# ------------------------------------------------------------------ leading dimensions
def leading(prim, vals, mapped, kw, level):
    """Expands all operands to the same leading dimension."""
    return call(prim, [full(v, m, level) for v, m in zip(vals, mapped)], kw)


_LEADING = """
    tril triu adjoint linalg_inv linalg_inv_ex linalg_solve_ex linalg_adjugate linalg_det linalg_slogdet linalg_cholesky linalg_cholesky_ex cholesky
    cholesky_solve cholesky_inverse linalg_qr geqrf linalg_householder_product linalg_lu linalg_lu_factor_ex linalg_lu_solve lu_unpack
    lu_unpack_pivots linalg_svd linalg_svdvals linalg_eigh linalg_eigvalsh linalg_eig linalg_eigvals linalg_solve_triangular triangular_solve
    linalg_matrix_exp permutation_matrix dirichlet_grad linalg_solve
"""


# ------------------------------------------------------------------ dimension and size attributes
def _moved(name, value, ndim):
    """Adjusts an attribute for one more leading dimension, for slices of `ndim` dimensions."""
    if name in ("dim", "axis", "dim0", "dim1", "dim2"):
        return value + 1 if value >= 0 else value
    return tuple([d % max(ndim, 1) + 1 for d in value]) if value is not None else tuple(range(1, ndim + 1))


_DIMS = frozenset(("dim", "axis", "dim0", "dim1", "dim2", "axes", "dims"))


def _constants(kw, ndim, level):
    return {k: _moved(k, v, ndim) if k in _DIMS else (level.size, *v) if k in ("size", "shape") and v.__class__ is not int else v for k, v in kw.items()}


def along(prim, vals, mapped, kw, level):
    """Expands all operands to all slices and shifts the attributes by one dimension. 0-dim slices
    become 1-D."""
    ndim = max([_ndim(v, m) for v, m in zip(vals, mapped) if v is not None])
    # Some kernels accept a 0-dim operand as a scalar.
    alone = [v is not None and ndim and not _ndim(v, m) for v, m in zip(vals, mapped)]
    if any([a and m for a, m in zip(alone, mapped)]):
        return None
    vals = [v if a else full(v, m, level) for v, m, a in zip(vals, mapped, alone)]
    if kw.get("axis", 0) is None or kw.get("dim", 0) is None:
        return None
    if not ndim:
        if len(vals) > 1 or "shape" in kw or "size" in kw:
            return None
        r = call(prim, [pick(vals[0], key=(..., None))], _constants(kw, 1, level))
        return tuple([_flat(t, level) for t in r]) if r.__class__ is tuple else _flat(r, level)
    return call(prim, vals, _constants(kw, ndim, level))


def _flat(t, level):
    return t if t is None or t.ndim == 1 else _reshape(t, (level.size,))


_ALONG = """
    flip roll flip_axis shift cumsum cumsum_backward cumprod sum_dims mean_dims prod_dim amax amin max_dim min_dim argmax argmin count_nonzero logsumexp var std
    wide_mean all any median_dim nanmedian_dim kthvalue mode sort_stable sort argsort topk cummax cummin logcumsumexp diff diff_backward pair_sums
    pair_sums_backward softmax log_softmax glu fft_c2c fft_r2c_full fft_r2c fft_c2r fft_half_weights repeat_interleave unsafe_transpose
    softmax_backward log_softmax_backward glu_backward cumprod_backward extreme_share linear_recurrence
    gather scatter scatter_add scatter_multiply scatter_reduce scatter_count gather_backward linalg_cross
    diagonal_backward unfold_backward
"""


def vector_norm(prim, vals, mapped, kw, level):
    """Norm along dimensions; along all of them if none is named."""
    x, = vals
    if x.ndim == 1:
        return None
    r = call(prim, vals, {**kw, "axes": _moved("axes", kw["axes"], x.ndim - 1)})
    return r if r.ndim or not kw["keepdim"] else None


def spread(prim, vals, mapped, kw, level):
    """Broadcasts a reduced tensor to the shape that it had before the reduction."""
    g, shape, axes = vals[0], kw["shape"], kw["axes"]
    axes = tuple(range(1, len(shape) + 1)) if axes is None else tuple([d % max(len(shape), 1) + 1 for d in axes]) if shape else ()
    if g.ndim != len(shape) + 1:
        g = _view_of(g, (level.size, *[1 if i + 1 in axes else n for i, n in enumerate(shape)]))
    return _expand(g, size=(level.size, *shape)).clone()


def _view_of(x, size):
    return x if x._sizes == size else _reshape(x, size)


def broadcast(prim, vals, mapped, kw, level):
    return prim.function(align_batch_dim(vals[0], True, len(kw["shape"])), shape=(level.size, *kw["shape"]))


def sum_to_size(prim, vals, mapped, kw, level):
    x, size = vals[0], kw["size"]
    ones = (1,) * (x.ndim - 1 - len(size))
    return _view_of(prim.function(x, size=(level.size, *ones, *size)), (level.size, *size))


def repeat(prim, vals, mapped, kw, level):
    return prim.function(align_batch_dim(vals[0], True, len(kw["repeats"])), repeats=(1, *kw["repeats"]))


def new_full(prim, vals, mapped, kw, level):
    return prim.function(vals[0], **{**kw, "size": (level.size, *kw["size"])})


def region(prim, vals, mapped, kw, level):
    """Zeros with a value in the region that a basic index selects, or a copy with that region
    replaced."""
    kw = {**kw, "key": _key(kw["key"])}
    if "shape" in kw:
        kw["shape"] = (level.size, *kw["shape"])
    vals = [full(v, m, level) for v, m in zip(vals, mapped)]
    return call(prim, vals, kw)


def diag_embed(prim, vals, mapped, kw, level):
    n = vals[0].ndim
    return prim.function(vals[0], offset=kw["offset"], dim1=kw["dim1"] % n + 1, dim2=kw["dim2"] % n + 1)


# ------------------------------------------------------------------ full reductions
def prod_backward(prim, vals, mapped, kw, level):
    """Gradient of a product along a dimension, or of a full product."""
    if kw["axis"] is not None:
        return along(prim, vals, mapped, kw, level)
    g, a, out = (full(v, m, level) for v, m in zip(vals, mapped))
    row = (level.size, math.prod(a._sizes[1:]))
    return _view_of(prim.function(_reshape(g, (level.size,)), _reshape(a, row), _reshape(out, (level.size,)), axis=1, keepdim=False), a._sizes)


def whole(op, **more):
    """Returns a rule that reduces over all dimensions but the first."""
    reduce = PRIMITIVES[op]

    def rule(prim, vals, mapped, kw, level):
        x = vals[0]
        if x.ndim == 1:
            x = pick(x, key=(..., None))
        return reduce(x, axes=tuple(range(1, x.ndim)), keepdim=False, **more)
    return rule


def _in_a_row(op):
    reduce = PRIMITIVES[op]

    def rule(prim, vals, mapped, kw, level):
        return reduce(_reshape(vals[0], (level.size, -1)), axis=1, keepdim=False) if vals[0]._numel else None
    return rule


def elements(prim, vals, mapped, kw, level):
    return _WHOLE["mean_all" if kw["mean"] else "sum_all"](prim, vals, mapped, kw, level) if vals[0]._numel else None


def expand_elements(prim, vals, mapped, kw, level):
    g, shape = vals[0], kw["shape"]
    n = max(math.prod(shape), 1)
    g = g / n if kw["mean"] else g
    return _expand(_reshape(g, (level.size, *[1] * len(shape))), size=(level.size, *shape)).clone()


def trace(prim, vals, mapped, kw, level):
    return vals[0].diagonal(0, 1, 2).sum(-1)


_WHOLE = {"sum_all": whole("sum_dims"), "mean_all": whole("mean_dims"), "max_all": whole("amax"), "min_all": whole("amin"), "prod_all": _in_a_row("prod_dim")}


# ------------------------------------------------------------------ views
def _key(key):
    return (_ALL, *key) if key.__class__ is tuple else (_ALL, key)


def by_key(prim, vals, mapped, kw, level):
    return prim.function(vals[0], key=_key(kw["key"]))


def view(prim, vals, mapped, kw, level):
    size = list(kw["size"])
    x = vals[0]
    if -1 in size:
        rest = math.prod([n for n in size if n != -1])
        if not rest:
            return None
        size[size.index(-1)] = math.prod(x._sizes[1:]) // rest
    return prim.function(x, size=(level.size, *size))


def shifted_view(prim, vals, mapped, kw, level):
    x = vals[0]
    n = x.ndim - 1
    if prim.name == "unsqueeze":
        return prim.function(x, dim=kw["dim"] % (n + 1) + 1)
    return prim.function(x, **{k: v % max(n, 1) + 1 if k in _DIMS else v for k, v in kw.items()}) if n else None


def unsqueeze_ends(prim, vals, mapped, kw, level):
    return pick(vals[0], key=(_ALL, *[None] * kw["before"], ..., *[None] * kw["after"]))


def squeeze(prim, vals, mapped, kw, level):
    x, axes = vals[0], kw["axes"]
    n = x.ndim - 1
    if axes is None:
        axes = [d for d in range(n) if x._sizes[d + 1] == 1]
    elif axes.__class__ is int:
        axes = (axes,)
    axes = [d % n for d in axes] if n else []
    return prim.function(x, axes=tuple([d + 1 for d in axes]))


def permute(prim, vals, mapped, kw, level):
    n = vals[0].ndim - 1
    return prim.function(vals[0], dims=(0, *[d % max(n, 1) + 1 for d in kw["dims"]]))


def t(prim, vals, mapped, kw, level):
    return PRIMITIVES["transpose"](vals[0], dim0=1, dim1=2) if vals[0].ndim == 3 else pick(vals[0], key=(...,))


def expand(prim, vals, mapped, kw, level):
    x, size = vals[0], kw["size"]
    x = align_batch_dim(x, True, len(size))
    return prim.function(x, size=(level.size, *[x._sizes[i + 1] if n == -1 else n for i, n in enumerate(size)]))


def as_strided(prim, vals, mapped, kw, level):
    x, k = vals[0], vals[0]._np_dtype.itemsize
    return x.as_strided((level.size, *kw["size"]), (x.stride(0), *[s // k for s in kw["stride"]]), x.storage_offset() + (kw["at"] - kw["home"]) // k)


def main_diagonal(prim, vals, mapped, kw, level):
    x = vals[0]
    return x.as_strided((level.size, min(x._sizes[1:])), (x.stride(0), sum(x.stride()[1:])), x.storage_offset())


# ------------------------------------------------------------------ joining
def cat(prim, vals, mapped, kw, level):
    n = max([v.ndim - m for v, m in zip(vals, mapped)])
    if any([v.ndim - m != n for v, m in zip(vals, mapped)]):
        return None
    return prim.function([full(v, m, level) for v, m in zip(vals, mapped)], dim=kw["dim"] + 1)


def stack(prim, vals, mapped, kw, level):
    return prim.function([full(v, m, level) for v, m in zip(vals, mapped)], dim=kw["dim"] + 1, strides=None)


# ------------------------------------------------------------------ products
def mm(prim, vals, mapped, kw, level):
    """Batched matrix product, or a single product with all rows if only the left operand is mapped.
    """
    (a, b), (_, mb), ta, tb = vals, mapped, kw["ta"], kw["tb"]
    if not mb and not ta:
        n, m, k = a._sizes
        return _view_of(_mm(_reshape(a, (n * m, k)), b, ta=False, tb=tb), (n, m, b._sizes[0 if tb else 1]))
    return _bmm(a, b, ta=ta, tb=tb)


def _rows(x):
    """Reshapes to (slices, rows, columns)."""
    return x if x.ndim == 3 else _reshape(x, (x._sizes[0], math.prod(x._sizes[1:-1]), x._sizes[-1]))


def linear(prim, vals, mapped, kw, level):
    """A single product with all rows if all slices share the weight."""
    (x, w), b = vals[:2], vals[2] if len(vals) > 2 else None
    (mx, mw), mb = mapped[:2], len(vals) > 2 and mapped[2]
    if not mw and not mb:
        return call(prim, vals, kw)
    if mw:
        x = full(x, mx, level)
        y = _bmm(_rows(x), w, ta=False, tb=prim.name == "linear")
        y = _view_of(y, (*x._sizes[:-1], y._sizes[-1]))
    else:
        y = prim.function(x, w)
    return y if b is None else y + align_batch_dim(b, mb, _ndim(y, mx or mw))


def fold(prim, vals, mapped, kw, level):
    return _bmm(*[_rows(full(v, m, level)) for v, m in zip(vals, mapped)], ta=True, tb=False)


def column_sum(prim, vals, mapped, kw, level):
    x = vals[0]
    return PRIMITIVES["sum_dims"](x, axes=tuple(range(1, x.ndim - 1)), keepdim=False) if x.ndim > 2 else x.clone()


def spread_rows(prim, vals, mapped, kw, level):
    return prim.function(align_batch_dim(vals[0], True, len(kw["shape"])), shape=(level.size, *kw["shape"]))


def mv(prim, vals, mapped, kw, level):
    a, v = vals
    if not mapped[1]:
        return a @ v
    if not mapped[0]:
        return _mm(v, a, ta=False, tb=True) if a.ndim == 2 else None
    return (a @ pick(v, key=(..., None)))[..., 0] if a.ndim == 3 else None


def vm(prim, vals, mapped, kw, level):
    a, u = (full(v, m, level) for v, m in zip(vals, mapped))
    return (pick(a, key=(_ALL, None)) @ u)[:, 0] if a.ndim == 2 and u.ndim == 3 else None


def dot(prim, vals, mapped, kw, level):
    a, b = vals
    if not mapped[1]:
        return _mv(a, b)
    if not mapped[0]:
        return _mv(b, a)
    return (a * b).sum(-1)


def outer(prim, vals, mapped, kw, level):
    a, b = (full(v, m, level) for v, m in zip(vals, mapped))
    return pick(a, key=(..., None)) * pick(b, key=(_ALL, None)) if a.ndim == b.ndim == 2 else None


def addmm(prim, vals, mapped, kw, level):
    c, a, b = vals
    n = max(_ndim(a, mapped[1]), _ndim(b, mapped[2]))  # n is 3 for batches of matrices
    if n == 2 and (mapped[1] or mapped[2]):
        r = mm(prim, (a, b), mapped[1:], {"ta": False, "tb": False}, level)
    else:
        r = (_mm if n == 2 else _bmm)(align_batch_dim(a, mapped[1], n), align_batch_dim(b, mapped[2], n), ta=False, tb=False)
    if kw["alpha"] != 1:
        r = r * kw["alpha"]
    c = align_batch_dim(c, mapped[0], n)
    if not kw["beta"]:  # c is not read, but it has a gradient
        r = full(r, mapped[1] or mapped[2], level)
        return PRIMITIVES["copy"](_expand(c, size=r._sizes), r)
    return r + (c if kw["beta"] == 1 else c * kw["beta"])


def einsum(prim, vals, mapped, kw, level):
    la, lb, lo = kw["la"], kw["lb"], kw["lo"]
    if la.__class__ is not tuple:
        return None
    n = max([i for i in (*la, *lb, *lo) if i.__class__ is int], default=0) + 1
    a, b = vals
    return prim.function(a, b, la=(n, *la) if mapped[0] else la, lb=(n, *lb) if mapped[1] else lb, lo=(n, *lo))


_mv = PRIMITIVES["mv"]


# ------------------------------------------------------------------ indexing
def _adjacent(dims):
    return dims[-1] - dims[0] + 1 == len(dims)


def _slices_index(level, n):
    """Returns the index 0, 1, ... of the slices, followed by n dimensions of size 1."""
    return _reshape(_arange(level.size), (level.size, *[1] * n))


class _Places:
    """Rewrites index tensors at dimensions of a slice as indices into the tensor of all slices.

    `indices` and `dims` are the rewritten index. `source` and `target` say how the dimensions of
    the result have to move.
    """

    def __init__(self, indices, mapped, dims, level, whole):
        # whole: the indexed tensor itself has the slice dimension.
        any_index = any(mapped)
        self.n = n = max([_ndim(i, m) for i, m in zip(indices, mapped)])
        adjacent = _adjacent(dims)
        if not any_index:
            self.indices, self.dims = tuple(indices), tuple([d + 1 for d in dims])
            # Like NumPy, PyTorch puts the result dimensions of non-adjacent indices in front of all
            # others.
            self.source, self.target = (range(0), range(0)) if adjacent else (range(n, n + 1), range(1))
        elif whole:
            self.indices = (_slices_index(level, n), *[align_batch_dim(i, m, n) for i, m in zip(indices, mapped)])
            self.dims = (0, *[d + 1 for d in dims])
            # The slice index is one of the indices, so the result dimensions of the indices come
            # first. They move back only if the indices of a slice are adjacent and do not start at
            # dimension 0.
            self.source, self.target = (range(1, n + 1), range(dims[0] + 1, dims[0] + 1 + n)) if adjacent and dims[0] else (range(0), range(0))
        else:
            self.indices, self.dims = tuple([align_batch_dim(i, m, n) for i, m in zip(indices, mapped)]), dims
            self.source, self.target = (range(dims[0], dims[0] + 1), range(1)) if adjacent and dims[0] else (range(0), range(0))

    def out(self, r):
        """Moves the slice dimension of a result to the front."""
        return r.movedim(tuple(self.source), tuple(self.target)) if self.source else r

    def back(self, g):
        """Inverse of `out`: orders the dimensions of `g`, which has the layout of a result, as the
        indexed tensor expects."""
        return g.movedim(tuple(self.target), tuple(self.source)) if self.source else g


def index(prim, vals, mapped, kw, level):
    p = _Places(vals[1:], mapped[1:], kw["dims"], level, mapped[0])
    return p.out(_gather.index_at(vals[0], p.indices, p.dims))


def index_backward(prim, vals, mapped, kw, level):
    p = _Places(vals[1:], mapped[1:], kw["dims"], level, True)
    return _gather.index_back(p.back(full(vals[0], mapped[0], level)), p.indices, (level.size, *kw["size"]), p.dims)


def index_put(prim, vals, mapped, kw, level):
    a, values, dims = full(vals[0], mapped[0], level), vals[1], kw["dims"]
    p = _Places(vals[2:], mapped[2:], dims, level, True)
    shape = [()]
    for i, m in zip(vals[2:], mapped[2:]):
        shape.append(i._sizes[m:])
    at = OPS["broadcast_shapes"].fn(*shape) if "broadcast_shapes" in OPS else _broadcast(shape)
    rest = [n for d, n in enumerate(a._sizes[1:]) if d not in dims]
    first = dims[0] if _adjacent(dims) else 0
    want = (level.size, *rest[:first], *at, *rest[first:])
    values = align_batch_dim(values, mapped[1], len(want) - 1) if values.__class__ is not ScalarOperand else values
    values = values if values.__class__ is ScalarOperand else p.back(_expand(values, size=want) if values._sizes != want else values)
    kinds = _gather._ADD if "add" in prim.name else _gather._PUT
    return kinds[len(p.dims)](a, values, *p.indices, dims=p.dims)


def _broadcast(shapes):
    n = max(map(len, shapes))
    return tuple([max([s[i - n + len(s)] if i - n + len(s) >= 0 else 1 for s in shapes], key=lambda k: (k != 1, k)) for i in range(n)])


def index_select(prim, vals, mapped, kw, level):
    a, i = vals
    if not mapped[0] and a.ndim or mapped[0] and a.ndim == 1 or mapped[1] and i.ndim == 1:
        if not (not mapped[0] and mapped[1] and i.ndim == 2):
            return None
    dim = kw["dim"] % max(_ndim(a, mapped[0]), 1)
    if not mapped[1]:
        return prim.function(a, i, dim=dim + 1, check=kw["check"])
    p = _Places((i,), (True,), (dim,), level, mapped[0])
    return p.out(_gather.index_at(a, p.indices, p.dims))


def index_select_backward(prim, vals, mapped, kw, level):
    g, i = vals
    if not kw["size"] or mapped[1] and i.ndim == 1:
        return None
    dim = kw["dim"] % len(kw["size"])
    if not mapped[1]:
        return prim.function(g, i, size=(level.size, *kw["size"]), dim=dim + 1)
    p = _Places((i,), (True,), (dim,), level, True)
    return _gather.index_back(p.back(full(g, mapped[0], level)), p.indices, (level.size, *kw["size"]), p.dims)


def with_source(prim, vals, mapped, kw, level):
    """index_add, index_copy and index_fill with the same indices for all slices."""
    *own, i = vals
    if mapped[-1] or _ndim(vals[0], mapped[0]) == 0:
        return None
    a = full(own[0], mapped[0], level)
    if prim.name == "index_fill":
        if mapped[1]:
            return None
        return prim.function(a, own[1], i, **{**kw, "dim": kw["dim"] % (a.ndim - 1) + 1})
    return prim.function(a, full(own[1], mapped[1], level), i, **{**kw, "dim": kw["dim"] % (a.ndim - 1) + 1})


def embedding(prim, vals, mapped, kw, level):
    """Looks up the rows of all slices in one stacked weight."""
    w, i = vals
    if not mapped[0]:
        return call(prim, vals, kw)
    if kw["by_freq"] or kw["padding"] is not None and kw["padding"] >= 0:
        return None
    rows = w._sizes[1]
    i = full(i, mapped[1], level) + _slices_index(level, _ndim(i, mapped[1])) * rows
    return prim.function(_reshape(w, (level.size * rows, w._sizes[2])), i, **kw)


def embedding_backward(prim, vals, mapped, kw, level):
    g, i = vals
    if kw["by_freq"] or kw["padding"] is not None and kw["padding"] >= 0:
        return None
    rows = kw["rows"]
    i = full(i, mapped[1], level) + _slices_index(level, _ndim(i, mapped[1])) * rows
    r = prim.function(full(g, mapped[0], level), i, **{**kw, "rows": level.size * rows})
    return _reshape(r, (level.size, rows, r._sizes[-1]))


# ------------------------------------------------------------------ miscellaneous
def same_question(prim, vals, mapped, kw, level):
    """Calls the primitive unchanged on the tensors of all slices."""
    return prim.function(*vals, **kw)


def put_along(prim, vals, mapped, kw, level):
    """put_along and take_along: indices along a dimension."""
    g, i = (full(v, m, level) for v, m in zip(vals, mapped))
    if not kw["shape"]:
        return None
    return prim.function(g, i, **{**kw, "axis": kw["axis"] % len(kw["shape"]) + 1, "shape": (level.size, *kw["shape"])})


def declare(rules):
    """Sets the batching rules of primitives. rules: {space-separated names: rule}."""
    for names, rule in rules.items():
        for name in names.split():
            PRIMITIVES[name].prim.batch = rule


for _f in PRIMITIVES.values():
    if _f.prim.elementwise:
        _f.prim.batch = pointwise
declare({
    _POINTWISE: pointwise, _LIKE_FIRST: like_first, "fill masked_fill": filled, _LEADING: leading, _ALONG: along, "linalg_vector_norm": vector_norm,
    "spread": spread,
    "broadcast": broadcast,
    "sum_to_size": sum_to_size, "repeat": repeat, "new_full": new_full, "slice_backward slice_scatter select_scatter": region, "diag_embed": diag_embed,
    "mean_elements sum_elements": elements, "expand_elements": expand_elements, "trace": trace, "prod_backward": prod_backward,
    "slice select subscript_unsqueeze subscript_alias": by_key, "view unsafe_view": view,
    "unsqueeze transpose diagonal unfold split split_with_sizes unbind unsafe_split": shifted_view, "unsqueeze_ends": unsqueeze_ends, "squeeze": squeeze,
    "permute": permute, "t": t, "expand": expand, "as_strided": as_strided, "main_diagonal": main_diagonal,
    "real_pairs complex_of_pairs conj_view neg_view": same_question,
    "cat": cat, "stack": stack, "mm": mm, "bmm": pointwise, "linear matmul_rows": linear, "fold": fold, "column_sum": column_sum,
    "spread_rows": spread_rows, "mv": mv,
    "vm": vm, "dot": dot, "outer": outer, "addmm": addmm, "einsum": einsum,
    "index_1 index_2 index_3": index, "index_backward_1 index_backward_2 index_backward_3": index_backward,
    "index_put_1 index_put_2 index_put_3 index_put_add_1 index_put_add_2 index_put_add_3": index_put, "index_select": index_select,
    "index_select_backward": index_select_backward, "index_add index_copy index_fill": with_source, "embedding": embedding,
    "embedding_dense_backward": embedding_backward, "put_along take_along": put_along, "one_hot": same_question,
})
for _name, _rule in _WHOLE.items():
    PRIMITIVES[_name].prim.batch = _rule
for _f in PRIMITIVES.values():
    if _f.prim.batch is pointwise and _f.prim.inputs[0] == "g":
        _f.prim.batch = alike


# ------------------------------------------------------------------ whole ops
def detach(level, args, kwargs):
    """Detaches from the history inside the vmap and from that of the tensor of all slices."""
    return vmap.detached(args[0], level)


def _dynamic(name):
    def refuse(level, args, kwargs):
        raise RuntimeError(f"vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over aten::{name}.")
    return refuse


def _like(name):
    fn = OPS[name].fn

    def rule(level, args, kwargs):
        if not args:
            return NotImplemented
        v, m = vmap.remove_batch_dim(args[0], level)
        if not m:
            return NotImplemented
        with vmap._Outside(level):
            return vmap.add_batch_dim(fn(v, *args[1:], **kwargs), True, level)
    return rule


def _new(name):
    """new_* with the size of all slices, so that slices can be written to the result in place."""
    def rule(level, args, kwargs):
        v, m = vmap.remove_batch_dim(args[0], level)
        if not m:
            return NotImplemented
        more, kwargs = args[1:], dict(kwargs)
        if "size" in kwargs:
            size = kwargs.pop("size")
        elif more and more[0].__class__ is not int:
            size, *more = more
        else:
            size, more = more, ()
        with vmap._Outside(level):
            return vmap.add_batch_dim(getattr(v, name)((level.size, *size), *more, **kwargs), True, level)
    return rule


vmap.OUT_OF_PLACE.update({"fill_where": lambda x, value, mask: _where(mask, value, x),
                          "put": lambda x, value, *indices, dims: _gather.put_at(x, value, indices, dims)})
vmap.RULES.update({n: _like(n) for n in "zeros_like ones_like full_like empty_like".split()})
vmap.RULES.update({n: _new(n) for n in "new_zeros new_ones new_full new_empty".split()})
vmap.RULES.update({"detach": detach, **{n: _dynamic(n) for n in "nonzero argwhere unique unique_consecutive masked_select bincount".split()}})
