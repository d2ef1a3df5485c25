"""view_copy, permute_copy, ...: the view ops as copies, under torch's names."""
from mindtorch.core.table import op
from mindtorch.ops.shapes import _memory, _splits, views
from mindtorch.ops.indexing._region import pick_alias
from mindtorch.ops.shapes._sizes import ints_of
from mindtorch.ops.shapes.shape import clone_


def _copied(r):
    """The view (or views) with memory of its own."""
    if isinstance(r, tuple):
        return tuple([clone_(x, fmt="contiguous") for x in r])
    return clone_(r, fmt="contiguous")


@op(out="same", method=False)
def alias_copy(input):
    """A copy."""
    return _copied(pick_alias(input, key=...))


@op(out="same", method=False)
def as_strided_copy(input, size, stride, storage_offset=None):
    """as_strided as a copy."""
    return _copied(_memory.as_strided(input, size, stride, storage_offset))


@op(out="same", method=False)
def diagonal_copy(input, offset=0, dim1=0, dim2=1):
    """diagonal as a copy."""
    return _copied(views.diagonal(input, offset, dim1, dim2))


@op(out="same", method=False)
def expand_copy(input, size, *, implicit=False):
    """expand as a copy."""
    return _copied(views.expand_to(input, ints_of("expand_copy", size, "size")))


@op(out="same", method=False)
def permute_copy(input, dims):
    """permute as a copy."""
    return _copied(views.permute(input, dims))


@op(out="same", method=False)
def select_copy(input, dim, index):
    """select as a copy."""
    return _copied(views.select(input, dim, index))


@op(out="same")
def narrow_copy(input, dim, start, length):
    """narrow as a copy."""
    return _copied(views.narrow(input, dim, start, length))


@op(out="same", method=False)
def split_copy(input, split_size, dim=0):
    """split as copies."""
    return _copied(_splits.split(input, split_size, dim))


@op(out="same", method=False)
def split_with_sizes_copy(input, split_sizes, dim=0):
    """split_with_sizes as copies."""
    return _copied(_splits.split_with_sizes(input, split_sizes, dim))


@op(out="same", method=False)
def squeeze_copy(input, dim=None):
    """squeeze as a copy."""
    return _copied(views.squeeze(input, dim))


@op(out="same", method=False)
def unsqueeze_copy(input, dim):
    """unsqueeze as a copy."""
    return _copied(views.unsqueeze(input, dim))


@op(out="same", method=False)
def t_copy(input):
    """t as a copy."""
    return _copied(views.t(input))


@op(out="same", method=False)
def transpose_copy(input, dim0, dim1):
    """transpose as a copy."""
    return _copied(views.transpose(input, dim0, dim1))


@op(out="same", method=False)
def unbind_copy(input, dim=0):
    """unbind as copies."""
    return _copied(_splits.unbind(input, dim))


@op(out="same", method=False)
def unfold_copy(input, dimension, size, step):
    """unfold as a copy."""
    return _copied(views.unfold(input, dimension, size, step))


@op(out="same", method=False)
def view_copy(input, size=None, dtype=None):
    """view as a copy."""
    return _copied(views.view(input, size=size, dtype=dtype) if dtype is not None else views.view(input, size))


@op(out="same", method=False)
def view_as_real_copy(input):
    """view_as_real as a copy."""
    return _copied(_memory.view_as_real(input))


@op(out="same", method=False)
def view_as_complex_copy(input):
    """view_as_complex as a copy."""
    return _copied(_memory.view_as_complex(input))
