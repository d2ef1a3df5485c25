"""Gathering, scattering and indexing with tensors on Ascend, by aclnn kernels.  Places outside are the device's to find, as on CUDA."""
from mindtorch.backend.mindspore.kernels._call import G, Lacking, P, dtype_of, is_contiguous, op, shape_of, stride_of
from mindtorch.backend.mindspore.kernels._places import part, size_of, wrapped
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, strided, zeros
from mindtorch.backend.mindspore.kernels.indexing import _Plan, _inverse

_SUMMED = "float32 float16 bfloat16 int64 int32"


def _dims(*handles):
    """All of them have dimensions: aclnn's kernels want some."""
    for h in handles:
        if not shape_of(h):
            raise Lacking


def _dense(h):
    return h if is_contiguous(h) else copy(h)


def _turned(h, order):
    """Dimensions in another order: a view."""
    sizes, strides = shape_of(h), stride_of(h)
    return h if order is None else strided(h, [sizes[d] for d in order], [strides[d] for d in order])


# ------------------------------------------------------------------ gather and scatter
@ascend("gather")
def _gather(a, i, *, dim, check):
    _dims(a, i)
    return op(G.GatherD)(a, dim, i)


def _added(size, dim, i, g):
    return op(G.ScatterAddExt)(zeros(size, dtype_of(g)), dim, i, g)


@ascend("gather_backward", only=_SUMMED)
def _gather_backward(g, i, *, size, dim):
    _dims(g, i)
    if not size:
        raise Lacking
    return _added(size, dim, i, g)


def _source(src, i):
    s, sizes = shape_of(src), shape_of(i)
    if not s:
        return op(P.BroadcastTo, sizes)(src)
    if len(s) != len(sizes):
        raise Lacking
    return part(src, sizes)


@ascend("scatter")
def _scatter(a, src, i, *, dim, check):
    _dims(a, i)
    return op(G.Scatter)(a, dim, i, _source(src, i), "none")


@ascend("scatter_add", only=_SUMMED)
def _scatter_add(a, src, i, *, dim, check=True):
    _dims(a, i)
    return op(G.ScatterAddExt)(a, dim, i, _source(src, i))


@ascend("scatter_reduce", only=_SUMMED)
def _scatter_reduce(a, src, i, *, dim, how, include_self, check):
    _dims(a, i)
    if how != "sum" or not include_self:
        raise Lacking
    return op(G.ScatterAddExt)(a, dim, i, _source(src, i))


@ascend("scatter_multiply scatter_count")
def _no_kernel(*handles, **constants):
    raise Lacking


# ------------------------------------------------------------------ rows along a dimension
@ascend("index_select")
def _index_select(a, i, *, dim, check):
    _dims(a)
    return op(G.IndexSelect)(a, dim, i if len(shape_of(i)) == 1 else op(P.Reshape)(i, (-1,)))


def _line(i):
    return i if len(shape_of(i)) == 1 else op(P.Reshape)(i, (-1,))


@ascend("index_select_backward", only=_SUMMED)
def _index_select_backward(g, i, *, size, dim):
    if not size:
        raise Lacking
    return op(G.InplaceIndexAddExt)(zeros(size, dtype_of(g)), dim, _line(i), g, 1)


@ascend("index_add", only=_SUMMED)
def _index_add(a, src, i, *, dim, alpha):
    _dims(a, src)
    return op(G.InplaceIndexAddExt)(copy(a), dim, _line(i), src, alpha)


@ascend("index_copy")
def _index_copy(a, src, i, *, dim):
    _dims(a, src)
    return op(G.InplaceIndexCopy)(copy(a), dim, _line(i), src)


@ascend("index_fill")
def _index_fill(a, value, i, *, dim, check):
    _dims(a)
    return op(G.InplaceIndexFillTensor)(copy(a), dim, _line(i), value)


@ascend("take")
def _take(a, i, *, check):
    return op(P.Reshape)(op(G.IndexSelect)(op(P.Reshape)(a, (-1,)), 0, _line(wrapped(i, size_of(a)))), shape_of(i))


@ascend("take_along")
def _take_along(g, index, *, axis, keepdim, shape, repeated):
    _dims(g)
    r = op(G.GatherD)(g, axis, _full_rank(index, axis, keepdim))
    return r if keepdim or not shape else op(P.Reshape)(r, shape_of(index))


@ascend("put_along")
def _put_along(g, index, *, axis, keepdim, shape, repeated):
    if not shape:
        raise Lacking
    i = _full_rank(index, axis, keepdim)
    g = op(P.Reshape)(g, shape_of(i))
    return _added(shape, axis, i, g) if repeated else op(G.Scatter)(zeros(shape, dtype_of(g)), axis, i, g, "none")


def _full_rank(index, axis, keepdim):
    s = shape_of(index)
    return index if keepdim else op(P.Reshape)(index, s[:axis] + (1,) + s[axis:])


# ------------------------------------------------------------------ indexing with tensors
def _picked(indices):
    n = max([len(shape_of(i)) for i in indices])
    out = [1] * n
    for i in indices:
        s = shape_of(i)
        for k, m in enumerate(s):
            if m != 1:
                out[n - len(s) + k] = m
    return tuple(out)


def _index(a, *indices, dims):
    plan = _Plan(shape_of(a), dims, _picked(indices))
    r = op(G.Index)(_turned(a, plan.front if tuple(dims) != tuple(range(len(dims))) else None), indices)
    return r if plan.back is None else copy(_turned(r, plan.back))


def _put_into(r, values, indices, dims, accumulate):
    """r[indices] = values, or += those, in place."""
    picked = _picked(indices)
    plan = _Plan(shape_of(r), dims, picked)
    if shape_of(values) != plan.result:
        values = op(P.BroadcastTo, plan.result)(values)
    place = _turned(r, plan.front if tuple(dims) != tuple(range(len(dims))) else None)
    op(G.InplaceIndexPut)(place, indices, _dense(values if plan.back is None else _turned(values, _inverse(plan.back))), accumulate)
    return r


def _index_put(a, values, *indices, dims):
    return _put_into(copy(a), values, indices, dims, False)


def _index_put_add(a, values, *indices, dims):
    return _put_into(copy(a), values, indices, dims, True)


def _index_backward(g, *indices, size, dims):
    return _put_into(zeros(size, dtype_of(g)), g, indices, dims, True)


@ascend("put")
def _put(a, values, *indices, dims):
    if not size_of(a) or not all([size_of(i) for i in indices]):
        raise Lacking
    _put_into(a, values, indices, dims, False)


for _n in range(1, 33):
    ascend(f"index_{_n}", _index)
    ascend(f"index_put_{_n}", _index_put)
    ascend(f"index_put_add_{_n}", _index_put_add, only=_SUMMED)
    ascend(f"index_backward_{_n}", _index_backward, only=_SUMMED)
