"""Joining tensors along an existing or a new dim. Shared by cat, stack and the gradients of split
and unbind."""
from mindtorch.core.tensor.stride_rules import STRIDED, format_of, format_strides, in_format, as_computed, suggested
from mindtorch.core.dispatch.type_promotion import result_dtype
from mindtorch.core.dispatch.tensor_list_primitive import tensor_list_primitive
from mindtorch.ops._checks import wrap_dim
from mindtorch.ops.basic import cast, new_full
from mindtorch.ops.indexing._basic_index import along, narrow, pick_select, tensor_list


def _cat_grad(ctx, grad):
    dim, n, start, out = ctx.dim, grad.ndim, 0, []
    for needed, s in zip(ctx.needs, ctx.shapes):
        if len(s) != n:
            out.append(new_full(grad, size=s, value=0, np_dtype=grad._np_dtype) if needed else None)      # an ignored empty tensor
            continue
        out.append(narrow(grad, dim, start, s[dim]) if needed else None)
        start += s[dim]
    return out


def _stack_grad(ctx, grad):
    return [pick_select(grad, key=along(ctx.dim, i)) if needed else None for i, needed in enumerate(ctx.needs)]


def _suggested_by_all(r, operands, kw):
    """Restrides the result to channels-last if all operands suggest that format."""
    formats = {suggested(a) for a in operands if a.shape != (0,) or r.ndim == 1}
    return in_format(r, formats.pop() if len(formats) == 1 else "contiguous")


cat_ = tensor_list_primitive("cat", "tensors, *, dim", _cat_grad, raw=True, layout=_suggested_by_all)
stack_ = tensor_list_primitive("stack", "tensors, *, dim, strides", _stack_grad, raw=True, layout=as_computed)


def common_dtype(tensors):
    """Returns the tensors cast to their common dtype."""
    d = tensors[0]._np_dtype
    for t in tensors:
        if t._np_dtype is not d:
            d = result_dtype(*tensors)
            return [cast(t, d) for t in tensors]
    return tensors


def cat_tensors(tensors, dim=0):
    """Concatenates a list of tensors (torch.cat)."""
    tensors = tensor_list("cat", tensors)
    if not tensors:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    d, n, mixed = tensors[0]._np_dtype, 0, False
    for i, t in enumerate(tensors):
        if t._np_dtype is not d:
            mixed = True
        k = t.ndim
        if not k:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
        if k > n:
            n = k
    if mixed:
        tensors = common_dtype(tensors)
    if dim.__class__ is int and 0 <= dim < n:
        return cat_(tensors, dim=dim)
    if dim.__class__ is int and n == 1 and all([t._sizes == (0,) for t in tensors]):
        dim = 0  # nothing to join: PyTorch does not check the dim
    return cat_(tensors, dim=wrap_dim("cat", dim, n))


def stack_tensors(tensors, dim=0):
    """Stacks a list of tensors (torch.stack)."""
    tensors = tensor_list("stack", tensors)
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = tensors[0]
    shape, d, mixed = first._sizes, first._np_dtype, False
    for t in tensors:
        if t is first:
            continue
        if t._sizes != shape:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and "
                               f"{list(t._sizes)} at entry {[x._sizes != shape for x in tensors].index(True)}")
        if t._np_dtype is not d:
            mixed = True
    if mixed:
        tensors = common_dtype(tensors)
    if dim.__class__ is not int or not 0 <= dim <= len(shape):
        dim = wrap_dim("stack", dim, len(shape) + 1)
    strides = None
    if STRIDED.on and dim < len(shape) and len(shape) in (4, 5):
        # As in PyTorch: the tensors are concatenated along `dim`, where the result may be
        # channels-last, and viewed with one more dim.
        formats = {format_of(t) for t in tensors}
        if len(formats) == 1 and formats != {"contiguous"}:
            st = format_strides(shape[:dim] + (len(tensors) * shape[dim],) + shape[dim + 1:], formats.pop())
            strides = st[:dim] + (st[dim] * shape[dim],) + st[dim:]
    return stack_(tensors, dim=dim, strides=strides)
