"""Sparse COO tensors: sums, norms, softmax."""
from mindtorch.core.tensor.dtypes import as_np
from mindtorch.core.tensor.sparse import sparse_of
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.ops._checks import wrap_dim, wrap_dims
from mindtorch.ops.basic import cast
from mindtorch.ops.sparse import _add_up, _gather, _group_max, _keys, _implements, _raise_unsupported, _rows, _same_pattern, _split, _unique, coalesce


# ------------------------------------------------------------------ reductions
def sum_of(input, dim=None, dtype=None):
    """Sums over dims. The result is sparse while sparse dims remain, else dense."""
    s = input if dtype is None else _same_pattern(input, cast(input._sp_values, as_np(dtype)))
    axes = wrap_dims("sum", dim, s.dim())
    if axes is None:
        return s._sp_values.sum()
    n = s.sparse_dim()
    dense = [a - n + 1 for a in axes if a >= n]
    v = s._sp_values.sum(dense) if dense else s._sp_values
    gone = [a for a in axes if a < n]
    if not gone:
        return coalesce(_same_pattern(s, v))
    if len(gone) == n:
        return v.sum(0)
    left = [i for i in range(n) if i not in gone]
    size = [s._sp_size[i] for i in left] + list(v._sizes[1:])
    return coalesce(sparse_of(_rows(s._coo_idx, dims=tuple(left)), v, size))


@_implements("sum")
def _sum(input, dim=None, keepdim=False, *, dtype=None):
    """Sums all elements, or over dims."""
    r = sum_of(input, dim, dtype)
    if keepdim:
        for a in sorted(wrap_dims("sum", dim, input.dim()) or range(input.dim())):
            r = r.unsqueeze(a)
    return r


@_implements("any")
def _any_of(input, dim=None, keepdim=False):
    """True if an element is nonzero."""
    if dim is not None or keepdim:
        _raise_unsupported("any over dimensions", input)
    return coalesce(input)._sp_values.any()


@_implements("sum_to_size")
def _sum_to_size(input, *size):
    """Sums over the dims in which `size` is one, and over the leading dims that `size` does not
    have."""
    size = size[0] if len(size) == 1 and isinstance(size[0], (list, tuple)) else size
    more = input.dim() - len(size)
    if more < 0 or any([n not in (1, m) for n, m in zip(size, input.shape[max(more, 0):])]):
        raise RuntimeError(f"size {list(size)} is not expandable to size {list(input.shape)}.")
    ones = [i + more for i, (n, m) in enumerate(zip(size, input.shape[more:])) if n == 1 != m]
    r = _sum(input, ones, True) if ones else input
    return sum_of(r, list(range(more))) if more else r


@_implements("norm")
def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    """Computes the norm of all elements."""
    if dim is not None and dim != [] and len(dim if isinstance(dim, (list, tuple)) else (dim,)) != input.dim():
        raise RuntimeError("norm_sparse currently only supports full reductions, so 'dim' must either be empty or contain all dimensions of the input")
    if keepdim:
        raise RuntimeError("norm_sparse currently does not support keepdim=True")
    v = coalesce(input)._sp_values
    return OPS["norm"].fn(v.reshape(-1), 2 if p in ("fro", None) else p, dtype=dtype)


def softmax_of(input, dim, dtype, log):
    """Computes softmax (or log_softmax) along `dim` over the stored elements."""
    s = coalesce(input if dtype is None else _same_pattern(input, cast(input._sp_values, as_np(dtype))))
    if s._sp_values._np_dtype.kind not in "fV":
        raise NotImplementedError(f"'sparse softmax' is not implemented for dtype {s.dtype} on device {s.device}")
    axis, n = wrap_dim("softmax", dim, s.dim()), s.sparse_dim()
    v = s._sp_values
    if axis >= n:
        return _same_pattern(s, (v.log_softmax if log else v.softmax)(axis - n + 1))
    sizes, _ = _split(s)
    others = [i for i in range(n) if i != axis]
    found, group = _unique(_keys(_rows(s._coo_idx, dims=tuple(others)), sizes=tuple([sizes[i] for i in others])))
    count = found._numel
    shifted = v - _group_max(v, group, count=count)
    total = _gather(_add_up(shifted.exp(), group, count), group)
    return _same_pattern(s, shifted - total.log() if log else shifted.exp() / total)
