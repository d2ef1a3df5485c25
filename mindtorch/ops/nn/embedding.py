"""Embedding lookups: embedding, embedding_bag."""
from mindtorch.core.device import device_dispatch
from mindtorch.core.tensor.inplace import store
from mindtorch.core.tensor.dtypes import F32, F64, I32, I64, cpp_names
from mindtorch.core.tensor.stride_rules import as_computed
from mindtorch.core.tensor.sparse import sparse_of
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Float, Int, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import attributes, bump_version, saved_to_tensor
from mindtorch.ops.basic import cast, new_full
from mindtorch.ops.nn._fused import check_tensor_arg


# ------------------------------------------------------------------ embedding
lookup_ = primitive("embedding", "weight, index, *, padding, by_freq",
                    lambda ctx, grad: lookup_grad_(grad, ctx.index, padding=ctx.padding, by_freq=ctx.by_freq, rows=ctx.shapes[0][0]), None, raw=True)
#: The same lookup with a sparse gradient.
sparse_lookup_ = primitive("embedding_sparse", "weight, index, *, padding, by_freq", lambda ctx, grad: _sparse_rows(ctx.index, grad, ctx.shapes[0], ctx.padding,
                                                                                                                    ctx.by_freq),
                           None, raw=True, node="EmbeddingBackward0")
lookup_grad_ = primitive("embedding_dense_backward", "g, index, *, padding, by_freq, rows", lambda ctx, grad: _lookup_double_backward(ctx, grad), None,
                         saves=("index",))
_scale_of = primitive("embedding_scale", "index, *, padding, by_freq, rows, np_dtype", None, raw=True)
_indices_not_equal = primitive("indices_not_equal", "index, *, value", None, raw=True)
#: Scales rows of the weight down in place.
_renorm = primitive("embedding_renorm_", "weight, index, *, max_norm, norm_type", None, None, raw=True, layout=as_computed)


def _lookup_double_backward(ctx, grad):
    # Gradient of the gradient: a lookup in which the padding row is 0.
    r = lookup_(grad, ctx.index, padding=-1, by_freq=False)
    if ctx.padding >= 0 or ctx.by_freq:
        r = r * _scale_of(ctx.index, padding=ctx.padding, by_freq=ctx.by_freq, rows=ctx.rows, np_dtype=r._np_dtype)
    return r


def _sparse_rows(index, g, size, padding=-1, by_freq=False):
    """Returns the gradient as a sparse tensor that holds the rows that were looked up."""
    if by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    index = index.reshape(-1)
    rows = g.reshape(index._numel, size[1])
    if padding >= 0:
        there = _indices_not_equal(index, value=padding)
        index, rows = index.index_select(0, there), rows.index_select(0, there)
    return _sparse_grad(cast(index, I64), rows, size)


def _sparse_grad(index, rows, size):
    r = sparse_of(index.unsqueeze(0), rows, size)
    attributes(r)["_lookup"] = True
    return r


def _index(name, indices):
    """Returns the indices as int64. Kernels check that they are in range."""
    d = indices._np_dtype
    if d == I64:
        return indices
    if d != I32:
        raise _of_other_type("indices", "Long, Int", d, name)
    return cast(indices, I64)


def _tensor_type_name(d):
    return cpp_names(d).tensor


def _of_other_type(what, wanted, d, name):
    return RuntimeError(f"Expected tensor for argument #1 '{what}' to have one of the following scalar types: {wanted}; but got {_tensor_type_name(d)} "
                        f"instead (while checking arguments for {name})")


def _embedding(input, weight, padding, by_freq, sparse):
    check_tensor_arg("embedding", "indices", input)
    check_tensor_arg("embedding", "weight", weight)
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    find = sparse_lookup_ if sparse else lookup_
    return find(weight, _index("embedding", input), padding=padding, by_freq=by_freq)


def renorm(weight, index, max_norm, norm_type):
    """Scales the rows at `index` down in place to norm `max_norm` where their norm is larger."""
    r = _renorm(weight, _index("embedding_renorm_", index), max_norm=max_norm, norm_type=norm_type)
    if weight._handle is None:
        bump_version(weight)
    else:
        # a device kernel returns the new values, the host kernel writes them in place
        store(weight, r)


@register_op(ns="nn.functional", method=False, writes=("max_norm", None))
def embedding(input, weight, padding_idx: SymInt = None, max_norm: Float = None, norm_type: Float = 2.0, scale_grad_by_freq: Bool = False,
              sparse: Bool = False):
    """Looks up rows of `weight` at `input`: (*) -> (*, D). The row `padding_idx` gets no gradient.
    """
    check_tensor_arg("embedding", "weight", weight, 2)
    if padding_idx is None:
        padding = -1
    else:
        n = weight._sizes[0]
        assert -n <= padding_idx < n, "Padding_idx must be within num_embeddings"
        padding = padding_idx + n if padding_idx < 0 else padding_idx
    if max_norm is not None:
        renorm(weight, input, max_norm, norm_type)
    return _embedding(input, weight, padding, scale_grad_by_freq, sparse)


@register_op(method=False, name="embedding")
def _torch_embedding(weight, indices, padding_idx: SymInt = -1, scale_grad_by_freq: Bool = False, sparse: Bool = False):
    """embedding with the argument order of torch.embedding."""
    return _embedding(indices, weight, padding_idx, scale_grad_by_freq, sparse)


@register_op(method=False, name="embedding_renorm_")
def embedding_renorm_(input, indices, max_norm: Float, norm_type: Float):
    """Scales the rows of `input` at `indices` down in place."""
    renorm(input, indices, max_norm, norm_type)
    return input


# ------------------------------------------------------------------ embedding_bag
_bag_indices = primitive("embedding_bag_indices", "index, offsets=None, *, rows, include_last, padding, divisor", raw=True,
                         residuals=(0, 1, 2, 3))

bag_sum_ = primitive("embedding_bag_sum", "rows, bag, *, bags", lambda ctx, grad: _pick_rows(grad, ctx.bag), None, node="EmbeddingBagBackward0")
_pick_rows = primitive("pick_rows", "a, index", lambda ctx, grad: _put_rows(grad, ctx.index, rows=ctx.shapes[0][0]), None, raw=True)
_put_rows = primitive("put_rows", "g, index, *, rows", lambda ctx, grad: _pick_rows(grad, ctx.index), None)

_BAG_ROWS = "weight, index, bag, samples=None, divisor=None, *, bags"


def _divide_by_count(ctx, grad):
    return grad if ctx.divisor is None else grad / ctx.divisor


def _bag_samples(ctx, grad):
    return _bag_dots(ctx.weight, _divide_by_count(ctx, grad), ctx.index, ctx.bag)


def _bag_sparse(ctx, grad):
    rows = _pick_rows(_divide_by_count(ctx, grad), ctx.bag)
    return _sparse_grad(ctx.index, rows if ctx.samples is None else rows * ctx.samples.unsqueeze(1), ctx.shapes[0])


#: The bag sums computed directly from the weight, without materializing the rows. For float32 and
#: float64 on the host.
bag_rows_ = primitive("embedding_bag_rows", _BAG_ROWS,
                      lambda ctx, grad: _bag_rows_back(_divide_by_count(ctx, grad), ctx.index, ctx.bag, ctx.samples, rows=ctx.shapes[0][0]), None, None,
                      _bag_samples,
                      None,
                      node="EmbeddingBagBackward0", saves=("divisor",))
sparse_bag_rows_ = primitive("embedding_bag_rows_sparse", _BAG_ROWS, _bag_sparse, None, None, _bag_samples, None,
                             node="EmbeddingBagBackward0", saves=("divisor",))
_bag_rows_back = primitive("embedding_bag_rows_backward", "g, index, bag, samples=None, *, rows",
                           lambda ctx, grad: bag_rows_(grad, ctx.index, ctx.bag, ctx.samples, None, bags=ctx.shapes[0][0]), None, None,
                           lambda ctx, grad: _bag_dots(grad, ctx.g, ctx.index, ctx.bag), node="EmbeddingBagDenseBackward0")
_bag_dots = primitive("embedding_bag_dots", "weight, g, index, bag",
                      lambda ctx, grad: _bag_rows_back(ctx.g, ctx.index, ctx.bag, grad, rows=ctx.shapes[0][0]),
                      lambda ctx, grad: bag_rows_(ctx.weight, ctx.index, ctx.bag, grad, None, bags=ctx.shapes[1][0]), None, None,
                      node="EmbeddingBagPerSampleWeightsBackward0")

bag_max_ = primitive("embedding_bag_max", "rows, bag, *, bags", lambda ctx, grad: _bag_max_back(grad[0], ctx.out1, count=ctx.shapes[0][0]), None,
                     nondiff=(1,), node="EmbeddingBagBackward0")
_bag_max_back = primitive("embedding_bag_max_backward", "g, at, *, count", lambda ctx, grad: _bag_max_gather(grad, ctx.at), None,
                          node="EmbeddingBagBackwardBackward0")
_bag_max_gather = primitive("embedding_bag_max_gather", "a, at", lambda ctx, grad: _bag_max_back(grad, ctx.at, count=ctx.shapes[0][0]), None,
                            node="EmbeddingBagGatherBackward0")
_bag_winners = primitive("embedding_bag_winners", "at, live", raw=True)

_MODES = ("sum", "mean", "max")


def _bags(weight, indices, offsets, by_freq, mode, samples, include_last, padding, sparse):
    """Returns (result, offset2bag, bag_size, positions of the maxima or None, indices in use).

    The result, offset2bag and bag_size are as in torch.embedding_bag.
    """
    d = weight._np_dtype
    if offsets is not None and offsets._np_dtype not in (I32, I64):
        raise _of_other_type("offsets", "Long, Int", offsets._np_dtype, "embedding_bag")
    if offsets is not None and offsets._np_dtype == I64 and indices._np_dtype.kind in "iub":
        indices = cast(indices, I64)
    indices = _index("embedding_bag", indices)
    if d.kind not in "fV":
        raise _of_other_type("weight", "Half, BFloat16, Float, Double", d, "embedding_bag")
    if samples is not None and samples._np_dtype != d:
        raise RuntimeError("Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 'per_sample_weights'; "
                           f"but type {_tensor_type_name(d)} does not equal {_tensor_type_name(samples._np_dtype)} (while checking arguments for "
                           f"embedding_bag)")
    if include_last and (padding >= 0 or mode == "max" or d == F64):
        # PyTorch uses the last offset as the end of the last bag only for sums and means of these
        # dtypes without padding. In all other cases the last bag extends to the end.
        include_last = "open"
    live, bag_live, bag, sizes, there, divisor = _bag_indices(
        indices, offsets, rows=weight._sizes[0], include_last=include_last, padding=padding,
        divisor=None if mode != "mean" else d if d.kind == "f" else F32)
    at, bags = None, sizes._numel
    s = None
    if samples is not None:
        s = samples.reshape(-1)
        if live._numel != s._numel and there is None:  # indices behind the last offset are not used
            s = s.narrow(0, 0, live._numel)
        if there is not None:
            s = s.index_select(0, there)
    if mode != "max" and not by_freq and device_dispatch.uses_cpu_kernels(weight) and (d == F32 or d == F64):
        y = (sparse_bag_rows_ if sparse else bag_rows_)(weight, saved_to_tensor(live) if sparse else live, bag_live, s, divisor, bags=bags)
        return y, bag, sizes, at, live
    rows = (sparse_lookup_ if sparse else lookup_)(weight, saved_to_tensor(live) if sparse else live, padding=padding, by_freq=by_freq)
    if mode == "max":
        y, at = bag_max_(rows, bag_live, bags=bags)
    else:
        if s is not None:
            rows = rows * s.unsqueeze(1)
        y = bag_sum_(rows, bag_live, bags=bags)
        if mode == "mean":
            y = y / divisor
            if y._np_dtype != d:
                y = y.to(weight.dtype)
    return y, bag, sizes, at, live


@register_op(ns="nn.functional", method=False, writes=("max_norm", None))
def embedding_bag(input, weight, offsets=None, max_norm: Float = None, norm_type: Float = 2, scale_grad_by_freq: Bool = False, mode: Int = "mean",
                  sparse: Bool = False, per_sample_weights=None, include_last_offset: Bool = False, padding_idx: Int = None):
    """Computes sums, means or maxima over bags of rows of `weight`.

    (B, N) indices, or (K,) indices with offsets (B,) -> (B, D).
    """
    check_tensor_arg("embedding_bag", "input", input)
    check_tensor_arg("embedding_bag", "weight", weight, 2)
    if weight._np_dtype == I64 and input._np_dtype.kind in "fV":
        input, weight = weight, input
    if per_sample_weights is not None and per_sample_weights._sizes != input._sizes:
        raise ValueError(f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must "
                         "have the same "
                         f"shape as the input ({input.shape})")
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
                             "fixed length "
                             f"sequences. However, found offsets of type {type(offsets)}")
    elif input.ndim == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.ndim != 1:
            raise ValueError("offsets has to be a 1D Tensor")
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if mode not in _MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and (scale_grad_by_freq or sparse):
        raise ValueError("max mode does not support " + ("scaling the gradient by the frequency" if scale_grad_by_freq else
                                                         "sparse weights"))
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. per_sample_weights is only "
                                  "supported for "
                                  f"mode='sum' (got mode='{mode}'). Please open a feature request on GitHub.")
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    n = weight._sizes[0]
    padding = -1
    if padding_idx is not None:
        if not -n <= padding_idx < n:
            raise RuntimeError("padding_idx must be within the number of embeddings, -"
                               f"{n} through {n - 1}, but got {padding_idx}")
        padding = padding_idx % n
    if max_norm is not None:
        renorm(weight, input, max_norm, norm_type)
    return _bags(weight, input, offsets, scale_grad_by_freq, mode, per_sample_weights, include_last_offset, padding, sparse)[0]


def _bag_parts(weight, indices, offsets, by_freq, mode, sparse, samples, include_last, padding):
    """Returns (result, offset2bag, bag_size, max_indices). `mode` is an integer, and padding=-1
    means none."""
    for name, t, dims in ("input", indices, (1, 2)), ("offsets", offsets, (1,)), ("weight", weight, (2,)):
        check_tensor_arg("embedding_bag", name, t)
        if t.ndim not in dims:
            raise RuntimeError(f"{name} has to be a {' or '.join([f'{n}D' for n in dims])} Tensor, but got Tensor of dimension {t.ndim}")
    y, bag, sizes, at, live = _bags(weight, indices.reshape(-1), offsets, by_freq, _MODES[mode], samples, include_last, padding, sparse)
    sizes = saved_to_tensor(sizes)
    if mode == 2:
        return y, saved_to_tensor(bag), sizes, _bag_winners(at, live)
    if mode == 0:
        many = offsets._sizes[0]
        if padding < 0 and weight._np_dtype != F64:
            return y, new_full(sizes, size=(0,), value=0, np_dtype=I64), *[new_full(sizes, size=(many,), value=0, np_dtype=I64) for _ in range(2)]
        return y, saved_to_tensor(bag), *[new_full(sizes, size=(many,), value=0, np_dtype=I64) for _ in range(2)]
    return y, saved_to_tensor(bag), sizes, sizes.clone()


@register_op(method=False, name="embedding_bag")
def _torch_embedding_bag(weight, indices, offsets, scale_grad_by_freq: Bool = False, mode: Int = 0, sparse: Bool = False, per_sample_weights=None,
                         include_last_offset: Bool = False, padding_idx: Int = None):
    """embedding_bag with the argument order of torch.embedding_bag.

    Returns (result, offset2bag, bag_size, max_indices).
    """
    padding = -1
    if padding_idx is not None:
        n = weight._sizes[0]
        if not -n <= padding_idx < n:
            raise RuntimeError(f"padding_idx must be within the number of embeddings, -{n} through {n - 1}, but got {padding_idx}")
        padding = padding_idx % n
    return _bag_parts(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding)


@register_op(method=False, name="_embedding_bag")
def _embedding_bag(weight, indices, offsets, scale_grad_by_freq: Bool = False, mode: Int = 0, sparse: Bool = False, per_sample_weights=None,
                   include_last_offset: Bool = False, padding_idx: Int = -1):
    """Like torch.embedding_bag, with padding_idx=-1 for none."""
    return _bag_parts(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)


@register_op(method=False, name="_embedding_bag_forward_only")
def _embedding_bag_forward_only(weight, indices, offsets, scale_grad_by_freq: Bool = False, mode: Int = 0, sparse: Bool = False, per_sample_weights=None,
                                include_last_offset: Bool = False, padding_idx: Int = -1):
    """Like torch._embedding_bag, without a gradient."""
    return _bag_parts(weight.detach(), indices, offsets, scale_grad_by_freq, mode, sparse,
                      None if per_sample_weights is None else per_sample_weights.detach(), include_last_offset, padding_idx)
