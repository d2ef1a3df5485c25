"""segment_reduce: reductions over segments of one axis."""
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.dispatch.type_promotion import number_dtype
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Int, Scalar
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.ops._checks import check_tensor
from mindtorch.ops._operands import no_derivative
from mindtorch.ops.shapes._sizes import count

_KINDS = {"sum": "sum", "mean": "mean", "max": "max", "amax": "max", "min": "min", "amin": "min", "prod": "prod"}

_segment_back = primitive("segment_reduce_backward", "g, a, out, starts, counts, *, how, n, initial",
                          no_derivative("_segment_reduce_backward"), None, None, None, None)
_segment_reduce = primitive("segment_reduce", "a, starts, counts, *, how, n, initial", lambda ctx, grad: _segment_back(
    grad, ctx.a, ctx.out, ctx.starts, ctx.counts, how=ctx.how, n=ctx.n, initial=ctx.initial), None, None)
#: tensors (batch, segments): the start of each segment along an axis of n elements, and its length
_segment_starts = primitive("segment_starts", "v, *, n, lengths, unsafe", raw=True)


def _starts_and_counts(data, lengths, offsets, axis, unsafe):
    """Returns tensors (batch, segments) with the start of each segment along the axis and its
    length."""
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    which, given = ("lengths", lengths) if lengths is not None else ("offsets", offsets)
    check_tensor("segment_reduce", given, which, 3)
    sizes = given._sizes
    if given._np_dtype.kind not in "iu":
        raise NotImplementedError(f"'segment_reduce' is not implemented for {which} of dtype {given.dtype} on device {given.device}")
    if data.ndim < len(sizes):
        raise RuntimeError(f"segment_reduce(): data has fewer dimensions ({data.ndim}) than {which} ({len(sizes)})")
    if axis != len(sizes) - 1:
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of {which} but got {axis}.")
    if sizes[:-1] != data._sizes[:axis]:
        raise RuntimeError(f"segment_reduce(): {which} of shape {list(sizes)} does not match data of shape "
                           f"{list(data._sizes)} in the dimensions before axis {axis}")
    return _segment_starts(given, n=data._sizes[axis], lengths=lengths is not None, unsafe=bool(unsafe))


@register_op(out=True, method=False, aliases="_segment_reduce")
def segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis: Int = 0, unsafe: Bool = False, initial: Scalar = None):
    """Reduces segments of data along `axis` ("sum", "mean", "max", "min", "prod"), specified by
    lengths or offsets.

    With data (batch..., n, rest...) and lengths (batch..., segments), the result has shape
    (batch..., segments, rest...). Floating dtypes only.
    """
    check_tensor("segment_reduce", data, "data")
    d, size = data._np_dtype, data._sizes
    if reduce not in _KINDS:
        raise RuntimeError(f"Unsupported reduction: {reduce}")
    if d.kind not in "fV":
        raise NotImplementedError(f"\"_segment_reduce_cpu\" not implemented for '{scalar_type_name(d)}' on device {data.device}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if initial is not None:
        initial = initial.item() if (initial.__class__ is Tensor or is_tensor(initial)) else initial
        number_dtype(initial)
    axis = axis + len(size) if axis < 0 else axis
    starts, counts = _starts_and_counts(data, lengths, offsets, axis, unsafe)
    n, rest = size[axis], size[axis + 1:]
    flat = data.reshape(starts._sizes[0] * n, count(rest))
    r = _segment_reduce(flat, starts, counts, how=_KINDS[reduce], n=n, initial=initial)
    return r.reshape(*size[:axis], counts._sizes[1], *rest)
