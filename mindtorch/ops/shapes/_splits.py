"""View ops that return several views: split, chunk, tensor_split, unbind."""
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import I64
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Int, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops._checks import check_tensor, wrap_dim
from mindtorch.ops.indexing._basic_index import along, narrow, pick
from mindtorch.ops.shapes._joining import cat_tensors, stack_tensors
from mindtorch.ops.shapes._sizes import int_of, ints_of, size_of


def _parts(g):
    """Returns the list of gradients of the outputs. For a single output, the engine passes its
    gradient without a list."""
    return g if g.__class__ is list else [g]


_split_one = primitive("split", "a, *, dim, bounds", lambda ctx, grad: cat_tensors(_parts(grad), ctx.dim), view=True)
_split_sizes = primitive("split_with_sizes", "a, *, dim, bounds", lambda ctx, grad: cat_tensors(_parts(grad), ctx.dim), view=True)
_unbind = primitive("unbind", "a, *, dim", lambda ctx, grad: stack_tensors(_parts(grad), ctx.dim), view=True, aten="unbind.int")
_unsafe_split = primitive("unsafe_split", "a, *, dim, bounds", lambda ctx, grad: cat_tensors(_parts(grad), ctx.dim), raw=True)
# in-place writes to the parts modify the input, without a record in autograd
_unsafe_split.prim.shares = True


def _bounds(sizes):
    out, at = [], 0
    for n in sizes:
        out.append((at, at + n))
        at += n
    return tuple(out)


def _split_by(x, size, dim, cut=_split_one):
    if not x.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    dim = wrap_dim("split", dim, x.ndim)
    n = x._sizes[dim]
    if not size and n:
        raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}")
    starts = range(0, n, size) if n else (0,)
    return cut(x, dim=dim, bounds=tuple([(i, min(i + size, n)) for i in starts]))


def _split_into(x, sizes, dim, cut=_split_sizes):
    if not x.ndim:
        raise RuntimeError("split_with_sizes expects at least a 1-dimensional tensor")
    dim = wrap_dim("split_with_sizes", dim, x.ndim)
    n = x._sizes[dim]
    if sizes and min(sizes) < 0:
        raise RuntimeError("split_with_sizes expects split_sizes have only non-negative entries, but got "
                           f"split_sizes={list(sizes)}")
    if sum(sizes) != n:
        raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at "
                           f"dimension {dim}), but "
                           f"got split_sizes={list(sizes)}")
    return cut(x, dim=dim, bounds=_bounds(sizes))


@register_op(method=False, tags="view dynamic_output_shape", condition="of tensors")
def split(tensor, split_size_or_sections, dim: Int = 0):
    """Splits the tensor along `dim` into parts of one size (the last may be smaller), or of the
    listed sizes."""
    check_tensor("split", tensor, "tensor")
    return _split_any(tensor, split_size_or_sections, dim)


def _split_any(x, sizes, dim):
    if sizes.__class__ is int:
        return _split_by(x, sizes, dim)
    if isinstance(sizes, (tuple, list)):
        return _split_into(x, size_of("split_with_sizes", (sizes,), "split_sizes"), dim)
    return _split_by(x, int_of("split", sizes, "split_size"), dim)


def _split_method(self, split_size: SymInt, dim: Int = 0):
    """Splits the tensor along `dim` into parts of one size (the last may be smaller), or of the
    listed sizes."""
    return _split_any(self, split_size, dim)


_split_method.__name__ = "split"
Tensor.split = _split_method


@register_op(tags="view dynamic_output_shape", condition="of tensors")
def split_with_sizes(input, split_sizes, dim: Int = 0):
    """Splits the tensor along `dim` into parts of the listed sizes."""
    return _split_into(input, ints_of("split_with_sizes", split_sizes, "split_sizes"), dim)


@register_op
def unsafe_split(input, split_size: SymInt, dim: Int = 0):
    """Like split, but autograd allows in-place writes to the parts, assuming that the input is not
    used again."""
    return _split_by(input, int_of("unsafe_split", split_size, "split_size"), dim, _unsafe_split)


@register_op
def unsafe_split_with_sizes(input, split_sizes, dim: Int = 0):
    """Like split_with_sizes, but autograd allows in-place writes to the parts, assuming that the
    input is not used again."""
    return _split_into(input, ints_of("unsafe_split_with_sizes", split_sizes, "split_sizes"), dim, _unsafe_split)


@register_op
def unsafe_chunk(input, chunks: Int, dim: Int = 0):
    """Like chunk, but autograd allows in-place writes to the parts, assuming that the input is not
    used again."""
    return _chunk(input, chunks, dim, _unsafe_split, _unsafe_split)


@register_op(tags="view")
def chunk(input, chunks: Int, dim: Int = 0):
    """Splits the tensor along `dim` into at most `chunks` parts of equal size (the last may be
    smaller)."""
    return _chunk(input, chunks, dim, _split_one, _split_sizes)


def _chunk(input, chunks, dim, cut, cut_empty):
    if not input.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    chunks = int_of("chunk", chunks, "chunks")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    d = wrap_dim("chunk", dim, input.ndim)
    n = input._sizes[d]
    size = -(-n // chunks)
    if not size:
        return cut_empty(input, dim=d, bounds=((0, 0),) * chunks)
    return cut(input, dim=d, bounds=tuple([(i, min(i + size, n)) for i in range(0, n, size)]))


def _cut_at(x, points, dim):
    n, at, out = x._sizes[dim], 0, []
    for p in points:
        out.append(pick(x, key=along(dim, slice(at, p))))
        at = p
    out.append(pick(x, key=along(dim, slice(at, n))))
    return tuple(out)


def _cut_equally(x, sections, dim):
    if sections <= 0:
        raise RuntimeError(f"number of sections must be larger than 0, got {sections}")
    n = x._sizes[dim]
    small, more = divmod(n, sections)
    return tuple([narrow(x, dim, i * small + min(i, more), small + (i < more)) for i in range(sections)])


@register_op(tags="view dynamic_output_shape", condition="of tensors")
def tensor_split(input, indices_or_sections=None, dim: Int = 0, *, indices=None, sections=None, tensor_indices_or_sections=None):
    """Splits the tensor along `dim` at the given indices, or into that many parts, whose sizes
    differ by at most one."""
    at = next((x for x in (indices_or_sections, indices, sections, tensor_indices_or_sections) if x is not None), None)
    if at is None:
        raise TypeError("tensor_split() missing 1 required positional arguments: \"indices_or_sections\"")
    if not input.ndim:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    d = wrap_dim("tensor_split", dim, input.ndim)
    if at.__class__ is Tensor or is_tensor(at):
        if at._np_dtype != I64:
            raise RuntimeError("tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
                               f"{scalar_type_name(at._np_dtype)}")
        if at.ndim > 1:
            raise RuntimeError("tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
                               "one-dimensional tensor, "
                               f"but got a tensor with {at.ndim} dims")
        at = to_host(at).tolist()
    if isinstance(at, (tuple, list)):
        return _cut_at(input, ints_of("tensor_split", at, "indices"), d)
    return _cut_equally(input, int_of("tensor_split", at, "sections"), d)


def _split_along(name, least, dim):
    def fn(input, indices_or_sections=None, *, indices=None, sections=None):
        at = next((x for x in (indices_or_sections, indices, sections) if x is not None), None)
        check_tensor(name, input)
        n = input.ndim
        if n < least:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor "
                               f"with {n} dimensions!")
        d = 0 if n == 1 else dim
        if not isinstance(at, (tuple, list)):
            at = int_of(name, at, "sections")
            if at <= 0 or input._sizes[d] % at:
                raise RuntimeError(f"torch.{name} attempted to split along dimension {d}, but the size of the "
                                   "dimension "
                                   f"{input._sizes[d]} is not divisible by the split_size {at}!")
        return tensor_split(input, at, d)

    fn.__doc__ = f"Like tensor_split, along dim {dim}{' (0 for one-dimensional tensors)' if least == 1 else ''}."
    register_op(fn, name=name, tags="view")


_split_along("hsplit", 1, 1)
_split_along("vsplit", 2, 0)
_split_along("dsplit", 3, 2)


@register_op(tags="view")
def unbind(input, dim: Int = 0):
    """Returns the slices along a dim as a tuple of views without that dim."""
    n = input.ndim
    if not n:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return _unbind(input, dim=wrap_dim("unbind", dim, n))


