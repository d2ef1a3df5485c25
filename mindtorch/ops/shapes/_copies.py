"""Copying variants of the view ops, under PyTorch's names: view_copy, permute_copy, ..."""
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Index, Int, SymInt
from mindtorch.ops.shapes import _memory, _splits, views
from mindtorch.ops.indexing._basic_index import pick_alias
from mindtorch.ops.shapes._sizes import ints_of
from mindtorch.ops.shapes.shape import clone_


def _copied(r):
    """Copies a view (or each view of a tuple) to its own storage."""
    if isinstance(r, tuple):
        return tuple([clone_(x, fmt="contiguous") for x in r])
    return clone_(r, fmt="contiguous")


@register_op(out="same", method=False, aten="alias_copy.default")
def alias_copy(input):
    """Returns a copy."""
    return _copied(pick_alias(input, key=...))


@register_op(out="same", method=False, aten="as_strided_copy.default")
def as_strided_copy(input, size, stride, storage_offset: SymInt = None):
    """Like as_strided, but returns a copy."""
    return _copied(_memory.as_strided(input, size, stride, storage_offset))


@register_op(out="same", method=False, aten="diagonal_copy.default")
def diagonal_copy(input, offset: Int = 0, dim1: Int = 0, dim2: Int = 1):
    """Like diagonal, but returns a copy."""
    return _copied(views.diagonal(input, offset, dim1, dim2))


@register_op(out="same", method=False, aten="expand_copy.default")
def expand_copy(input, size, *, implicit: Bool = False):
    """Like expand, but returns a copy."""
    return _copied(views.expand_to(input, ints_of("expand_copy", size, "size")))


@register_op(out="same", method=False, aten="permute_copy.default")
def permute_copy(input, dims):
    """Like permute, but returns a copy."""
    return _copied(views.permute(input, dims))


@register_op(out="same", method=False)
def select_copy(input, dim: Int, index: SymInt):
    """Like select, but returns a copy."""
    return _copied(views.select(input, dim, index))


@register_op(out="same", aten="narrow_copy.default")
def narrow_copy(input, dim: Int, start: SymInt, length: SymInt):
    """Like narrow, but returns a copy."""
    return _copied(views.narrow(input, dim, start, length))


@register_op(out="same", method=False)
def split_copy(input, split_size: SymInt, dim: Int = 0):
    """Like split, but returns copies."""
    return _copied(_splits.split(input, split_size, dim))


@register_op(out="same", method=False, aten="split_with_sizes_copy.default")
def split_with_sizes_copy(input, split_sizes, dim: Int = 0):
    """Like split_with_sizes, but returns copies."""
    return _copied(_splits.split_with_sizes(input, split_sizes, dim))


@register_op(out="same", method=False)
def squeeze_copy(input, dim: Index = None):
    """Like squeeze, but returns a copy."""
    return _copied(views.squeeze(input, dim))


@register_op(out="same", method=False, aten="unsqueeze_copy.default")
def unsqueeze_copy(input, dim: Int):
    """Like unsqueeze, but returns a copy."""
    return _copied(views.unsqueeze(input, dim))


@register_op(out="same", method=False, aten="t_copy.default")
def t_copy(input):
    """Like t, but returns a copy."""
    return _copied(views.t(input))


@register_op(out="same", method=False)
def transpose_copy(input, dim0: Int, dim1: Int):
    """Like transpose, but returns a copy."""
    return _copied(views.transpose(input, dim0, dim1))


@register_op(out="same", method=False)
def unbind_copy(input, dim: Int = 0):
    """Like unbind, but returns copies."""
    return _copied(_splits.unbind(input, dim))


@register_op(out="same", method=False, aten="unfold_copy.default")
def unfold_copy(input, dimension: Int, size: Int, step: Int):
    """Like unfold, but returns a copy."""
    return _copied(views.unfold(input, dimension, size, step))


@register_op(out="same", method=False, aten="view_copy.default")
def view_copy(input, size=None, dtype=None):
    """Like view, but returns a copy."""
    return _copied(views.view(input, size=size, dtype=dtype) if dtype is not None else views.view(input, size))


@register_op(out="same", method=False)
def view_as_real_copy(input):
    """Like view_as_real, but returns a copy."""
    return _copied(_memory.view_as_real(input))


@register_op(out="same", method=False)
def view_as_complex_copy(input):
    """Like view_as_complex, but returns a copy."""
    return _copied(_memory.view_as_complex(input))
