"""Batching rules of primitives, loaded with the first vmap.

A rule receives the operands over all slices. `mapped` says which of them have the slice dimension,
which is always the first. Results have the slice dimension in front, too. A rule that does not
support a case returns None. Most primitives share one of a few rules, which derive the details from
the signature of the primitive:

    pointwise   broadcasts the dimensions of a slice from the right
    leading     the kernel accepts any number of leading dimensions
    along       attributes that name dimensions are shifted by one; sizes get the number of slices in front
    full_reduction
                full reductions become reductions over all dimensions but the first
    views       depends on the attributes of each view

Primitives without a rule are computed slice by slice (`mindtorch/core/transforms/vmap.py`).
"""
import math

from mindtorch.core.transforms import vmap
from mindtorch.core.transforms.vmap import call, align_batch_dim
from mindtorch.core.dispatch.op_schema import OPS
from mindtorch.core.dispatch.primitives import PRIMITIVES
from mindtorch.core.tensor.tensor import ScalarOperand, SavedArray, shallow_copy
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
    return _expand(unsqueeze_front(v), size=(level.size, *v._sizes))


def unsqueeze_front(v):
    """Adds a dimension of size 1 in front."""
    return pick(v, key=(None, ...))


# ------------------------------------------------------------------ elementwise
def pointwise(prim, operands, mapped, attrs, level):
    """Broadcasts from the right: inserts dimensions of size 1 after the slice dimension until all
    slices have equally many dimensions."""
    n = max([_ndim(v, m) for v, m in zip(operands, mapped) if v is not None])
    return call(prim, [v if v is None else align_batch_dim(v, m, n) for v, m in zip(operands, mapped)], attrs)


def like_first(prim, operands, mapped, attrs, level):
    """Like `pointwise`, for results that have the shape of the first operand."""
    return pointwise(prim, [full(operands[0], mapped[0], level), *operands[1:]], [True, *mapped[1:]], attrs, level)


def pointwise_backward(prim, operands, mapped, attrs, level):
    """Like `pointwise`, for gradients of elementwise functions. Their kernels may write the result
    over any operand, so all tensor operands are expanded to all slices."""
    number = [v.__class__ is ScalarOperand for v in operands]
    return pointwise(prim, [v if c else full(v, m, level) for v, m, c in zip(operands, mapped, number)], [not c for c in number], attrs, level)


_POINTWISE = """
    to_copy real_copy copies clone without_nan pairs_in_order complex polar frexp masked_scale masked_zero gelu gelu_backward silu silu_backward
    hardtanh threshold hardsigmoid hardsigmoid_backward hardswish hardswish_backward negative_part_backward real_view imag_view detach_copy
    least_magnitude standard_gamma_grad transposed_copy
    bernoulli bernoulli_p poisson binomial standard_gamma native_dropout rrelu_noise
"""
_LIKE_FIRST = "copy zero"


def filled(prim, operands, mapped, attrs, level):
    """Fills with one value for all slices, or with one value per slice, which the kernel and its
    gradient rule do not support."""
    if not mapped[1]:
        return like_first(prim, operands, mapped, attrs, level)
    if prim.name == "fill":
        a = full(operands[0], mapped[0], level)
        return PRIMITIVES["copy"](a, _expand(align_batch_dim(operands[1], True, a.ndim - 1), size=a._sizes))
    n = max(_ndim(operands[0], mapped[0]), _ndim(operands[2], mapped[2]))
    a, value, mask = (align_batch_dim(v, m, n) for v, m in zip(operands, mapped))
    return _where(mask, value, a)


# ------------------------------------------------------------------ leading dimensions
def leading(prim, operands, mapped, attrs, level):
    """Expands all operands to the same leading dimension."""
    return call(prim, [full(v, m, level) for v, m in zip(operands, mapped)], attrs)


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


def _constants(attrs, ndim, level):
    return {k: _moved(k, v, ndim) if k in _DIMS else (level.size, *v) if k in ("size", "shape") and v.__class__ is not int else v for k, v in attrs.items()}


def along(prim, operands, mapped, attrs, level):
    """Expands all operands to all slices and shifts the attributes by one dimension. 0-dim slices
    become 1-D."""
    ndim = max([_ndim(v, m) for v, m in zip(operands, mapped) if v is not None])
    # Some kernels accept a 0-dim operand as a scalar.
    is_scalar = [v is not None and ndim and not _ndim(v, m) for v, m in zip(operands, mapped)]
    if any([a and m for a, m in zip(is_scalar, mapped)]):
        return None
    operands = [v if a else full(v, m, level) for v, m, a in zip(operands, mapped, is_scalar)]
    if attrs.get("axis", 0) is None or attrs.get("dim", 0) is None:
        return None
    if not ndim:
        if len(operands) > 1 or "shape" in attrs or "size" in attrs:
            return None
        r = call(prim, [pick(operands[0], key=(..., None))], _constants(attrs, 1, level))
        return tuple([_flat(t, level) for t in r]) if r.__class__ is tuple else _flat(r, level)
    return call(prim, operands, _constants(attrs, ndim, level))


def _flat(t, level):
    return t if t is None or t.ndim == 1 else _reshape(t, (level.size,))


_ALONG = """
    flip roll flip_axis shift cumsum cumsum_backward cumprod sum_dims mean_dims prod_dim amax amin max_dim min_dim argmax argmin count_nonzero logsumexp var std
    mean_upcast all any median_dim nanmedian_dim kthvalue mode sort_stable sort argsort topk cummax cummin logcumsumexp diff diff_backward pair_sums
    pair_sums_backward softmax log_softmax glu fft_c2c fft_r2c_full fft_r2c fft_c2r fft_half_weights repeat_interleave unsafe_transpose
    softmax_backward log_softmax_backward glu_backward cumprod_backward extreme_share linear_recurrence
    gather scatter scatter_add scatter_multiply scatter_reduce scatter_count gather_backward linalg_cross
    diagonal_backward unfold_backward
"""


def vector_norm(prim, operands, mapped, attrs, level):
    """Norm along dimensions; along all of them if none is named."""
    x, = operands
    if x.ndim == 1:
        return None
    r = call(prim, operands, {**attrs, "axes": _moved("axes", attrs["axes"], x.ndim - 1)})
    return r if r.ndim or not attrs["keepdim"] else None


def expand_reduced(prim, operands, mapped, attrs, level):
    """Broadcasts a reduced tensor to the shape that it had before the reduction."""
    g, shape, axes = operands[0], attrs["shape"], attrs["axes"]
    axes = tuple(range(1, len(shape) + 1)) if axes is None else tuple([d % max(len(shape), 1) + 1 for d in axes]) if shape else ()
    if g.ndim != len(shape) + 1:
        g = _view_of(g, (level.size, *[1 if i + 1 in axes else n for i, n in enumerate(shape)]))
    return _expand(g, size=(level.size, *shape)).clone()


def _view_of(x, size):
    return x if x._sizes == size else _reshape(x, size)


def broadcast(prim, operands, mapped, attrs, level):
    return prim.function(align_batch_dim(operands[0], True, len(attrs["shape"])), shape=(level.size, *attrs["shape"]))


def sum_to_size(prim, operands, mapped, attrs, level):
    x, size = operands[0], attrs["size"]
    ones = (1,) * (x.ndim - 1 - len(size))
    return _view_of(prim.function(x, size=(level.size, *ones, *size)), (level.size, *size))


def repeat(prim, operands, mapped, attrs, level):
    return prim.function(align_batch_dim(operands[0], True, len(attrs["repeats"])), repeats=(1, *attrs["repeats"]))


def new_full(prim, operands, mapped, attrs, level):
    return prim.function(operands[0], **{**attrs, "size": (level.size, *attrs["size"])})


def slice_region(prim, operands, mapped, attrs, level):
    """Zeros with a value in the region that a basic index selects, or a copy with that region
    replaced."""
    attrs = {**attrs, "key": _key(attrs["key"])}
    if "shape" in attrs:
        attrs["shape"] = (level.size, *attrs["shape"])
    operands = [full(v, m, level) for v, m in zip(operands, mapped)]
    return call(prim, operands, attrs)


def diag_embed(prim, operands, mapped, attrs, level):
    n = operands[0].ndim
    return prim.function(operands[0], offset=attrs["offset"], dim1=attrs["dim1"] % n + 1, dim2=attrs["dim2"] % n + 1)


# ------------------------------------------------------------------ full reductions
def prod_backward(prim, operands, mapped, attrs, level):
    """Gradient of a product along a dimension, or of a full product."""
    if attrs["axis"] is not None:
        return along(prim, operands, mapped, attrs, level)
    g, a, out = (full(v, m, level) for v, m in zip(operands, mapped))
    row = (level.size, math.prod(a._sizes[1:]))
    return _view_of(prim.function(_reshape(g, (level.size,)), _reshape(a, row), _reshape(out, (level.size,)), axis=1, keepdim=False), a._sizes)


def full_reduction(op, **more):
    """Returns a rule that reduces over all dimensions but the first."""
    reduce = PRIMITIVES[op]

    def rule(prim, operands, mapped, attrs, level):
        x = operands[0]
        if x.ndim == 1:
            x = pick(x, key=(..., None))
        return reduce(x, axes=tuple(range(1, x.ndim)), keepdim=False, **more)
    return rule


def _flat_reduction(op):
    reduce = PRIMITIVES[op]

    def rule(prim, operands, mapped, attrs, level):
        return reduce(_reshape(operands[0], (level.size, -1)), axis=1, keepdim=False) if operands[0]._numel else None
    return rule


def elements(prim, operands, mapped, attrs, level):
    return _FULL_REDUCTIONS["mean_all" if attrs["mean"] else "sum_all"](prim, operands, mapped, attrs, level) if operands[0]._numel else None


def expand_elements(prim, operands, mapped, attrs, level):
    g, shape = operands[0], attrs["shape"]
    n = max(math.prod(shape), 1)
    g = g / n if attrs["mean"] else g
    return _expand(_reshape(g, (level.size, *[1] * len(shape))), size=(level.size, *shape)).clone()


def trace(prim, operands, mapped, attrs, level):
    return operands[0].diagonal(0, 1, 2).sum(-1)


_FULL_REDUCTIONS = {"sum_all": full_reduction("sum_dims"), "mean_all": full_reduction("mean_dims"), "max_all": full_reduction("amax"),
                    "min_all": full_reduction("amin"), "prod_all": _flat_reduction("prod_dim")}


# ------------------------------------------------------------------ views
def _key(key):
    return (_ALL, *key) if key.__class__ is tuple else (_ALL, key)


def by_key(prim, operands, mapped, attrs, level):
    return prim.function(operands[0], key=_key(attrs["key"]))


def view(prim, operands, mapped, attrs, level):
    size = list(attrs["size"])
    x = operands[0]
    if -1 in size:
        rest = math.prod([n for n in size if n != -1])
        if not rest:
            return None
        size[size.index(-1)] = math.prod(x._sizes[1:]) // rest
    return prim.function(x, size=(level.size, *size))


def shifted_view(prim, operands, mapped, attrs, level):
    x = operands[0]
    n = x.ndim - 1
    if prim.name == "unsqueeze":
        return prim.function(x, dim=attrs["dim"] % (n + 1) + 1)
    return prim.function(x, **{k: v % max(n, 1) + 1 if k in _DIMS else v for k, v in attrs.items()}) if n else None


def unsqueeze_ends(prim, operands, mapped, attrs, level):
    return pick(operands[0], key=(_ALL, *[None] * attrs["before"], ..., *[None] * attrs["after"]))


def squeeze(prim, operands, mapped, attrs, level):
    x, axes = operands[0], attrs["axes"]
    n = x.ndim - 1
    if axes is None:
        axes = [d for d in range(n) if x._sizes[d + 1] == 1]
    elif axes.__class__ is int:
        axes = (axes,)
    axes = [d % n for d in axes] if n else []
    return prim.function(x, axes=tuple([d + 1 for d in axes]))


def permute(prim, operands, mapped, attrs, level):
    n = operands[0].ndim - 1
    return prim.function(operands[0], dims=(0, *[d % max(n, 1) + 1 for d in attrs["dims"]]))


def t(prim, operands, mapped, attrs, level):
    return PRIMITIVES["transpose"](operands[0], dim0=1, dim1=2) if operands[0].ndim == 3 else pick(operands[0], key=(...,))


def expand(prim, operands, mapped, attrs, level):
    x, size = operands[0], attrs["size"]
    x = align_batch_dim(x, True, len(size))
    return prim.function(x, size=(level.size, *[x._sizes[i + 1] if n == -1 else n for i, n in enumerate(size)]))


def as_strided(prim, operands, mapped, attrs, level):
    x, k = operands[0], operands[0]._np_dtype.itemsize
    return x.as_strided((level.size, *attrs["size"]), (x.stride(0), *[s // k for s in attrs["stride"]]),
                        x.storage_offset() + (attrs["at"] - attrs["home"]) // k)


def main_diagonal(prim, operands, mapped, attrs, level):
    x = operands[0]
    return x.as_strided((level.size, min(x._sizes[1:])), (x.stride(0), sum(x.stride()[1:])), x.storage_offset())


# ------------------------------------------------------------------ joining
def cat(prim, operands, mapped, attrs, level):
    n = max([v.ndim - m for v, m in zip(operands, mapped)])
    if any([v.ndim - m != n for v, m in zip(operands, mapped)]):
        return None
    return prim.function([full(v, m, level) for v, m in zip(operands, mapped)], dim=attrs["dim"] + 1)


def stack(prim, operands, mapped, attrs, level):
    return prim.function([full(v, m, level) for v, m in zip(operands, mapped)], dim=attrs["dim"] + 1, strides=None)


# ------------------------------------------------------------------ products
def mm(prim, operands, mapped, attrs, level):
    """Batched matrix product, or a single product with all rows if only the left operand is mapped.
    """
    (a, b), (_, mb), ta, tb = operands, mapped, attrs["ta"], attrs["tb"]
    if not mb and not ta:
        n, m, k = a._sizes
        return _view_of(_mm(_reshape(a, (n * m, k)), b, ta=False, tb=tb), (n, m, b._sizes[0 if tb else 1]))
    return _bmm(a, b, ta=ta, tb=tb)


def _rows(x):
    """Reshapes to (slices, rows, columns)."""
    return x if x.ndim == 3 else _reshape(x, (x._sizes[0], math.prod(x._sizes[1:-1]), x._sizes[-1]))


def linear(prim, operands, mapped, attrs, level):
    """A single product with all rows if all slices share the weight."""
    (x, w), b = operands[:2], operands[2] if len(operands) > 2 else None
    (mx, mw), mb = mapped[:2], len(operands) > 2 and mapped[2]
    if not mw and not mb:
        return call(prim, operands, attrs)
    if mw:
        x = full(x, mx, level)
        y = _bmm(_rows(x), w, ta=False, tb=prim.name == "linear")
        y = _view_of(y, (*x._sizes[:-1], y._sizes[-1]))
    else:
        y = prim.function(x, w)
    return y if b is None else y + align_batch_dim(b, mb, _ndim(y, mx or mw))


def fold(prim, operands, mapped, attrs, level):
    return _bmm(*[_rows(full(v, m, level)) for v, m in zip(operands, mapped)], ta=True, tb=False)


def column_sum(prim, operands, mapped, attrs, level):
    x = operands[0]
    return PRIMITIVES["sum_dims"](x, axes=tuple(range(1, x.ndim - 1)), keepdim=False) if x.ndim > 2 else x.clone()


def expand_rows(prim, operands, mapped, attrs, level):
    return prim.function(align_batch_dim(operands[0], True, len(attrs["shape"])), shape=(level.size, *attrs["shape"]))


def mv(prim, operands, mapped, attrs, level):
    a, v = operands
    if not mapped[1]:
        return a @ v
    if not mapped[0]:
        return _mm(v, a, ta=False, tb=True) if a.ndim == 2 else None
    return (a @ pick(v, key=(..., None)))[..., 0] if a.ndim == 3 else None


def vm(prim, operands, mapped, attrs, level):
    a, u = (full(v, m, level) for v, m in zip(operands, mapped))
    return (pick(a, key=(_ALL, None)) @ u)[:, 0] if a.ndim == 2 and u.ndim == 3 else None


def dot(prim, operands, mapped, attrs, level):
    a, b = operands
    if not mapped[1]:
        return _mv(a, b)
    if not mapped[0]:
        return _mv(b, a)
    return (a * b).sum(-1)


def outer(prim, operands, mapped, attrs, level):
    a, b = (full(v, m, level) for v, m in zip(operands, mapped))
    return pick(a, key=(..., None)) * pick(b, key=(_ALL, None)) if a.ndim == b.ndim == 2 else None


def addmm(prim, operands, mapped, attrs, level):
    c, a, b = operands
    n = max(_ndim(a, mapped[1]), _ndim(b, mapped[2]))  # n is 3 for batches of matrices
    if n == 2 and (mapped[1] or mapped[2]):
        r = mm(prim, (a, b), mapped[1:], {"ta": False, "tb": False}, level)
    else:
        r = (_mm if n == 2 else _bmm)(align_batch_dim(a, mapped[1], n), align_batch_dim(b, mapped[2], n), ta=False, tb=False)
    if attrs["alpha"] != 1:
        r = r * attrs["alpha"]
    c = align_batch_dim(c, mapped[0], n)
    if not attrs["beta"]:  # c is not read, but it has a gradient
        r = full(r, mapped[1] or mapped[2], level)
        return PRIMITIVES["copy"](_expand(c, size=r._sizes), r)
    return r + (c if attrs["beta"] == 1 else c * attrs["beta"])


def einsum(prim, operands, mapped, attrs, level):
    la, lb, lo = attrs["la"], attrs["lb"], attrs["lo"]
    if la.__class__ is not tuple:
        return None
    n = max([i for i in (*la, *lb, *lo) if i.__class__ is int], default=0) + 1
    a, b = operands
    return prim.function(a, b, la=(n, *la) if mapped[0] else la, lb=(n, *lb) if mapped[1] else lb, lo=(n, *lo))


_mv = PRIMITIVES["mv"]


# ------------------------------------------------------------------ indexing
def _adjacent(dims):
    return dims[-1] - dims[0] + 1 == len(dims)


def _slices_index(level, n):
    """Returns the index 0, 1, ... of the slices, followed by n dimensions of size 1."""
    return _reshape(_arange(level.size), (level.size, *[1] * n))


class _BatchedIndex:
    """Rewrites index tensors at dimensions of a slice as indices into the tensor of all slices.

    `indices` and `dims` are the rewritten index. `source` and `target` say how the dimensions of
    the result have to move.
    """

    def __init__(self, indices, mapped, dims, level, batched):
        # batched: the indexed tensor itself has the slice dimension.
        any_index = any(mapped)
        self.n = n = max([_ndim(i, m) for i, m in zip(indices, mapped)])
        adjacent = _adjacent(dims)
        if not any_index:
            self.indices, self.dims = tuple(indices), tuple([d + 1 for d in dims])
            # Like NumPy, PyTorch puts the result dimensions of non-adjacent indices in front of all
            # others.
            self.source, self.target = (range(0), range(0)) if adjacent else (range(n, n + 1), range(1))
        elif batched:
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


def index(prim, operands, mapped, attrs, level):
    p = _BatchedIndex(operands[1:], mapped[1:], attrs["dims"], level, mapped[0])
    return p.out(_gather.index_at(operands[0], p.indices, p.dims))


def index_backward(prim, operands, mapped, attrs, level):
    p = _BatchedIndex(operands[1:], mapped[1:], attrs["dims"], level, True)
    return _gather.index_back(p.back(full(operands[0], mapped[0], level)), p.indices, (level.size, *attrs["size"]), p.dims)


def index_put(prim, operands, mapped, attrs, level):
    a, values, dims = full(operands[0], mapped[0], level), operands[1], attrs["dims"]
    p = _BatchedIndex(operands[2:], mapped[2:], dims, level, True)
    shape = [()]
    for i, m in zip(operands[2:], mapped[2:]):
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


def index_select(prim, operands, mapped, attrs, level):
    a, i = operands
    if not mapped[0] and a.ndim or mapped[0] and a.ndim == 1 or mapped[1] and i.ndim == 1:
        if not (not mapped[0] and mapped[1] and i.ndim == 2):
            return None
    dim = attrs["dim"] % max(_ndim(a, mapped[0]), 1)
    if not mapped[1]:
        return prim.function(a, i, dim=dim + 1, check=attrs["check"])
    p = _BatchedIndex((i,), (True,), (dim,), level, mapped[0])
    return p.out(_gather.index_at(a, p.indices, p.dims))


def index_select_backward(prim, operands, mapped, attrs, level):
    g, i = operands
    if not attrs["size"] or mapped[1] and i.ndim == 1:
        return None
    dim = attrs["dim"] % len(attrs["size"])
    if not mapped[1]:
        return prim.function(g, i, size=(level.size, *attrs["size"]), dim=dim + 1)
    p = _BatchedIndex((i,), (True,), (dim,), level, True)
    return _gather.index_back(p.back(full(g, mapped[0], level)), p.indices, (level.size, *attrs["size"]), p.dims)


def with_source(prim, operands, mapped, attrs, level):
    """index_add, index_copy and index_fill with the same indices for all slices."""
    *tensors, i = operands
    if mapped[-1] or _ndim(operands[0], mapped[0]) == 0:
        return None
    a = full(tensors[0], mapped[0], level)
    if prim.name == "index_fill":
        if mapped[1]:
            return None
        return prim.function(a, tensors[1], i, **{**attrs, "dim": attrs["dim"] % (a.ndim - 1) + 1})
    return prim.function(a, full(tensors[1], mapped[1], level), i, **{**attrs, "dim": attrs["dim"] % (a.ndim - 1) + 1})


def embedding(prim, operands, mapped, attrs, level):
    """Looks up the rows of all slices in one stacked weight."""
    w, i = operands
    if not mapped[0]:
        return call(prim, operands, attrs)
    if attrs["by_freq"] or attrs["padding"] is not None and attrs["padding"] >= 0:
        return None
    rows = w._sizes[1]
    i = full(i, mapped[1], level) + _slices_index(level, _ndim(i, mapped[1])) * rows
    return prim.function(_reshape(w, (level.size * rows, w._sizes[2])), i, **attrs)


def embedding_backward(prim, operands, mapped, attrs, level):
    g, i = operands
    if attrs["by_freq"] or attrs["padding"] is not None and attrs["padding"] >= 0:
        return None
    rows = attrs["rows"]
    i = full(i, mapped[1], level) + _slices_index(level, _ndim(i, mapped[1])) * rows
    r = prim.function(full(g, mapped[0], level), i, **{**attrs, "rows": level.size * rows})
    return _reshape(r, (level.size, rows, r._sizes[-1]))


# ------------------------------------------------------------------ miscellaneous
def unchanged(prim, operands, mapped, attrs, level):
    """Calls the primitive unchanged on the tensors of all slices."""
    return prim.function(*operands, **attrs)


def put_along(prim, operands, mapped, attrs, level):
    """put_along and take_along: indices along a dimension."""
    g, i = (full(v, m, level) for v, m in zip(operands, mapped))
    if not attrs["shape"]:
        return None
    return prim.function(g, i, **{**attrs, "axis": attrs["axis"] % len(attrs["shape"]) + 1, "shape": (level.size, *attrs["shape"])})


def declare(rules):
    """Sets the batching rules of primitives. rules: {space-separated names: rule}."""
    for names, rule in rules.items():
        for name in names.split():
            PRIMITIVES[name].prim.batch = rule


for _f in PRIMITIVES.values():
    if _f.prim.elementwise and _f.prim.batch is None:
        _f.prim.batch = pointwise
declare({
    _POINTWISE: pointwise, _LIKE_FIRST: like_first, "fill masked_fill": filled, _LEADING: leading, _ALONG: along, "linalg_vector_norm": vector_norm,
    "expand_reduced": expand_reduced,
    "broadcast": broadcast,
    "sum_to_size": sum_to_size, "repeat": repeat, "new_full": new_full, "slice_backward slice_scatter select_scatter": slice_region, "diag_embed": diag_embed,
    "mean_elements sum_elements": elements, "expand_elements": expand_elements, "trace": trace, "prod_backward": prod_backward,
    "slice select subscript_unsqueeze subscript_alias": by_key, "view unsafe_view": view,
    "unsqueeze transpose diagonal unfold split split_with_sizes unbind unsafe_split": shifted_view, "unsqueeze_ends": unsqueeze_ends, "squeeze": squeeze,
    "permute": permute, "t": t, "expand": expand, "as_strided": as_strided, "main_diagonal": main_diagonal,
    "real_pairs complex_of_pairs conj_view neg_view": unchanged,
    "cat": cat, "stack": stack, "mm": mm, "bmm": pointwise, "linear matmul_rows": linear, "fold": fold, "column_sum": column_sum,
    "expand_rows": expand_rows, "mv": mv,
    "vm": vm, "dot": dot, "outer": outer, "addmm": addmm, "einsum": einsum,
    "index_1 index_2 index_3": index, "index_backward_1 index_backward_2 index_backward_3": index_backward,
    "index_put_1 index_put_2 index_put_3 index_put_add_1 index_put_add_2 index_put_add_3": index_put, "index_select": index_select,
    "index_select_backward": index_select_backward, "index_add index_copy index_fill": with_source, "embedding": embedding,
    "embedding_dense_backward": embedding_backward, "put_along take_along": put_along, "one_hot": unchanged,
})
for _name, _rule in _FULL_REDUCTIONS.items():
    PRIMITIVES[_name].prim.batch = _rule
for _f in PRIMITIVES.values():
    if _f.prim.batch is pointwise and _f.prim.inputs[0] == "g":
        _f.prim.batch = pointwise_backward


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
