"""Ops that create tensors of other shapes by copying: joining, repeating, flips and rotations,
triangles, padding."""
import warnings

from mindtorch.backend.strides import check_rank
from mindtorch.core.device import device as _device
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import F32, I64, as_np
from mindtorch.core.tensor.stride_rules import STRIDED, contiguous_strides, format_of, is_format, as_computed, like, suggested_by_first
from mindtorch.core.tensor.scalars import read
from mindtorch.core.dispatch.op_registry import check_extent, register_op
from mindtorch.core.dispatch.op_schema import Bool, Int, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import ScalarOperand, Tensor, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops._checks import check_tensor, not_implemented, wrap_dim
from mindtorch.ops.basic import cast, new_full, sum_to
from mindtorch.ops.indexing._gather import select_rows
from mindtorch.ops.indexing._basic_index import tensor_list
from mindtorch.ops.shapes._joining import cat_tensors, stack_tensors
from mindtorch.ops.shapes._sizes import format_name, int_of, ints_of, size_of
from mindtorch.ops.shapes.views import atleast, diagonal_, expand_to, reshape_, transpose_, unsafe_view, view_


# ------------------------------------------------------------------ joining
@register_op(out=True, method=False, aliases="concat concatenate", overlap="assert_no_overlap")
def cat(tensors, dim: Int = 0):
    """Concatenates tensors along a dim, in their common dtype."""
    return cat_tensors(tensors, dim)


@register_op(out=True, method=False, overlap="assert_no_overlap")
def stack(tensors, dim: Int = 0):
    """Joins tensors of one shape along a new dim."""
    return stack_tensors(tensors, dim)


def _all_atleast(n, name, tensors):
    return [atleast(n, x) for x in _nonempty_list(name, tensors)]


def _nonempty_list(name, tensors):
    tensors = tensor_list(name, tensors)
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return tensors


@register_op(out=True, method=False)
def hstack(tensors):
    """Concatenates tensors along dim 1 (one-dimensional tensors along dim 0)."""
    tensors = _all_atleast(1, "hstack", tensors)
    return cat_tensors(tensors, 0 if tensors[0].ndim == 1 else 1)


@register_op(out=True, method=False, aliases="row_stack")
def vstack(tensors):
    """Concatenates tensors along dim 0. One-dimensional tensors are rows."""
    return cat_tensors(_all_atleast(2, "vstack", tensors), 0)


@register_op(out=True, method=False)
def dstack(tensors):
    """Concatenates tensors along dim 2."""
    return cat_tensors(_all_atleast(3, "dstack", tensors), 2)


@register_op(out=True, method=False)
def column_stack(tensors):
    """Concatenates tensors along dim 1. Tensors with fewer than two dims are columns."""
    cols = [reshape_(x, (x._numel, 1)) if x.ndim <= 1 else x for x in _nonempty_list("column_stack", tensors)]
    return cat_tensors(cols, 1)




@register_op(method=False, aten="block_diag.default")
def block_diag(*tensors):
    """Places matrices along the diagonal of a matrix of zeros."""
    tensors = tensor_list("block_diag", tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors)
    if not tensors:
        return new_full(ScalarOperand(0, F32), size=(1, 0), value=0, np_dtype=F32)
    for i, x in enumerate(tensors):
        if x.ndim > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has "
                               f"{x.ndim} dimensions")
    blocks = [atleast(2, x) for x in tensors]
    width = sum(x._sizes[1] for x in blocks)
    rows, at = [], 0
    for x in blocks:
        n = x._sizes[1]
        rows.append(constant_pad(x, (at, width - at - n)))
        at += n
    return cat_tensors(rows, 0)


# ------------------------------------------------------------------ repeating
def _repeat_grad(ctx, grad):
    shape = (1,) * (len(ctx.repeats) - len(ctx.shapes[0])) + ctx.shapes[0]
    pairs = [n for pair in zip(ctx.repeats, shape) for n in pair]
    return reshape_(sum_to(reshape_(grad, tuple(pairs)), size=tuple([n for s in shape for n in (1, s)])), ctx.shapes[0])


repeat_ = primitive("repeat", "a, *, repeats", _repeat_grad, raw=True)


def _repeat(x, repeats):
    if repeats and min(repeats) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(repeats)}: "
                           f"{[r * n for r, n in zip(repeats, (1,) * (len(repeats) - x.ndim) + x._sizes)]}")
    check_extent(repeats)
    return repeat_(x, repeats=repeats)


@register_op(function=False, tags="dynamic_output_shape", condition="of tensors")
def repeat(self, *args, repeats=None):
    """Repeats the tensor `repeats` times along each dim."""
    repeats = size_of("repeat", args if repeats is None else (repeats,), "repeats")
    if len(repeats) < self.ndim:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    return _repeat(self, repeats)


def _tile(x, dims):
    return _repeat(x, (1,) * (x.ndim - len(dims)) + dims)


@register_op(method=False, tags="dynamic_output_shape", condition="of tensors")
def tile(input, dims):
    """Like repeat. Missing repeats on the left count as 1."""
    check_tensor("tile", input)
    return _tile(input, ints_of("tile", dims, "dims"))


def _tile_method(self, *args, dims=None):
    """Like repeat. Missing repeats on the left count as 1."""
    return _tile(self, size_of("tile", args if dims is None else (dims,), "dims"))


Tensor.tile = _tile_method

_repeat_each = primitive("repeat_interleave", "a, *, n, dim", lambda ctx, grad: _sum_groups(grad, ctx.n, ctx.dim, ctx.shapes[0]), raw=True)
#: 0, 1, 2, ..., each repeated as often as `counts` specifies
_repeat_indices = primitive("repeat_indices", "counts, *, np_dtype", None, raw=True)


def _sum_groups(g, n, dim, shape):
    split = (*shape[:dim + 1], n, *shape[dim + 1:])
    return reshape_(sum_to(reshape_(g, split), size=(*shape[:dim + 1], 1, *shape[dim + 1:])), shape)


@register_op(tags="dynamic_output_shape", condition="of tensors")
def repeat_interleave(input, repeats=None, dim: Int = None, *, output_size: SymInt = None):
    """Repeats each element (or each slice along `dim`) several times in a row.

    With a single tensor of repeats, returns the repeated indices.
    """
    if repeats is None:
        _check_counts(input)
        return _repeat_indices(input, np_dtype=input._np_dtype)
    if dim is None:
        input, dim = reshape_(input, (input._numel,)), 0
    dim = wrap_dim("repeat_interleave", dim, input.ndim)
    x = input if input.ndim else reshape_(input, (1,))
    n = x._sizes[dim]
    if repeats.__class__ is Tensor or is_tensor(repeats):
        _check_counts(repeats)
        if repeats._numel == 1 and n != 1:
            repeats = int(to_host(repeats).reshape(()))
            if repeats < 0:
                raise RuntimeError("repeats can not be negative")
        elif repeats._numel != n:
            raise RuntimeError("repeats must have the same size as input along dim, but got repeats.size(0) = "
                               f"{repeats._numel} and input.size({dim}) = {n}")
        else:
            indices = _repeat_indices(repeats, np_dtype=I64)
            if output_size is not None and output_size != indices._numel:
                raise RuntimeError(f"allocated size does not match required size: output_size={output_size}, needed "
                                   f"{indices._numel}")
            return select_rows(x, indices, dim=dim, check=False)
    repeats = int_of("repeat_interleave", repeats, "repeats")
    if repeats < 0:
        raise RuntimeError(f"Repeats must be non-negative, got {repeats}")
    r = _repeat_each(x, n=repeats, dim=dim)
    # PyTorch returns a view of an intermediate result, which is visible under no_grad
    return view_(r, size=r._sizes)


def _check_counts(repeats):
    if repeats.ndim > 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    if repeats._np_dtype.name not in ("int64", "int32"):
        raise not_implemented("repeat_interleave", repeats)


# ------------------------------------------------------------------ roll, flip, rotate
roll_ = primitive("roll", "a, *, shifts, dims", lambda ctx, grad: roll_(grad, shifts=tuple([-s for s in ctx.shifts]), dims=ctx.dims), raw=True,
                  layout=suggested_by_first)


flip_ = primitive("flip", "a, *, dims", lambda ctx, grad: flip_(grad, dims=ctx.dims), raw=True, layout=like)


@register_op
def roll(input, shifts, dims=None):
    """Shifts elements along dims (without dims: in the flattened tensor). Elements shifted out
    reenter at the other end."""
    shifts = ints_of("roll", shifts, "shifts")
    dims = () if dims is None else ints_of("roll", dims, "dims")
    if not shifts:
        raise RuntimeError("`shifts` required")
    if not dims and len(shifts) == 1:
        flat = roll_(reshape_(input, (input._numel,)), shifts=shifts, dims=(0,))
        return unsafe_view(flat, size=input._sizes)
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    if not input.ndim:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
    return roll_(input, shifts=shifts, dims=tuple([wrap_dim("roll", d, input.ndim) for d in dims]))


@register_op(method=False)
def flip(input, dims):
    """Reverses the order of elements along dims (a copy)."""
    check_tensor("flip", input)
    return _flip(input, ints_of("flip", dims, "dims"))


def _flip(x, dims):
    dims = tuple([wrap_dim("flip", d, x.ndim) for d in dims])
    if len(set(dims)) != len(dims):
        twice = next(d for d in dims if dims.count(d) > 1)
        raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
    return flip_(x, dims=dims if x.ndim else ())


def _flip_method(self, *args, dims=None):
    """Reverses the order of elements along dims (a copy)."""
    if not args and dims is None:
        raise TypeError("flip() missing 1 required positional arguments: \"dims\"")
    return _flip(self, size_of("flip", args if dims is None else (dims,), "dims"))


Tensor.flip = _flip_method


@register_op
def fliplr(input):
    """Reverses the order of the columns."""
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip_(input, dims=(1,))


@register_op
def flipud(input):
    """Reverses the order of the rows."""
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip_(input, dims=(0,))


#: transpose of an intermediate result that nothing else references; not a view for autograd
_turned = primitive("unsafe_transpose", "a, *, dim0, dim1", lambda ctx, grad: transpose_(grad, dim0=ctx.dim0, dim1=ctx.dim1), raw=True,
                    node="TransposeBackward0", layout=as_computed)


@register_op(aten="rot90.default")
def rot90(input, k: Int = 1, dims=(0, 1)):
    """Rotates by k * 90 degrees in the plane of two dims, from the first towards the second."""
    dims = ints_of("rot90", dims, "dims")
    if k.__class__ is not int:
        k = read("rot90", "k", "int", k)
    n = input.ndim
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if n < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {n}")
    if dims[0] == dims[1] or abs(dims[0] - dims[1]) == n:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    a, b = [wrap_dim("rot90", d, n) for d in dims]
    k %= 4
    if k == 1:
        return _turned(flip_(input, dims=(b,)), dim0=a, dim1=b)
    if k == 2:
        return flip_(input, dims=(a, b))
    if k == 3:
        return _turned(flip_(input, dims=(a,)), dim0=a, dim1=b)
    return clone_(input, fmt="contiguous")


# ------------------------------------------------------------------ copies
clone_ = primitive("clone_format", "a, *, fmt", lambda ctx, grad: grad, raw=True, node="CloneBackward0", layout=as_computed)
_to_format = primitive("to_copy_format", "a, *, dtype, fmt", lambda ctx, grad: cast(grad, ctx.dtypes[0]), raw=True, node="ToCopyBackward0", layout=as_computed)


def in_format(x, fmt, dtype=None):
    """Returns x in a memory format (not "preserve") and optionally in another NumPy dtype, like
    Tensor.to(memory_format=...). Returns x itself if nothing changes."""
    check_rank(x._sizes, fmt)
    if (dtype is None or x._np_dtype == dtype) and format_of(x) == fmt:
        return x
    return _to_format(x, dtype=dtype, fmt=fmt)


def in_c_order(x):
    """Returns x with contiguous strides: x itself or a copy."""
    if x._contiguous and (not STRIDED.unusual_strides or x.stride() == contiguous_strides(x._sizes)):
        return x
    return clone_(x, fmt="contiguous")


@register_op(tags="linear_pointwise")
def clone(input, *, memory_format=None):
    """Returns a copy with its own storage, in the input's memory format or the requested one."""
    return clone_(input, fmt=format_name(memory_format))


@register_op(function=False, tags="linear_pointwise")
def contiguous(self, memory_format=None):
    """Returns the tensor in contiguous memory (or another memory format). Returns the tensor itself
    if it already is."""
    if memory_format is None:
        return self if self._contiguous else clone_(self, fmt="contiguous")
    fmt = format_name(memory_format)
    if fmt == "preserve":
        if self._contiguous:
            return self
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    return self if is_format(self, fmt) else clone_(self, fmt=fmt)


# ------------------------------------------------------------------ grids and products
@register_op(method=False)
def meshgrid(*tensors, indexing=None):
    """Returns the coordinate tensors of the grid spanned by one-dimensional tensors ("ij" or "xy"
    order), as views."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tensors[0]
    tensors = list(tensor_list("meshgrid", tensors))
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing is None:
        warnings.warn("torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
                      "argument.", stacklevel=2)
        indexing = "ij"
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f"torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: {indexing}")
    for x in tensors:
        if x.ndim > 1:
            raise RuntimeError("torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: "
                               f"tensor of {x.ndim} dimensions")
        if x._np_dtype != tensors[0]._np_dtype:
            raise RuntimeError("meshgrid expects all tensors to have the same dtype")
        if x._device != tensors[0]._device:
            raise RuntimeError("meshgrid expects all tensors to have the same device")
    swap = indexing == "xy" and len(tensors) >= 2
    if swap:
        tensors[0], tensors[1] = tensors[1], tensors[0]
    n = len(tensors)
    size = tuple([x._numel for x in tensors])
    grids = [expand_to(view_(x, size=(1,) * i + (x._numel,) + (1,) * (n - 1 - i)) if x._contiguous else
                       reshape_(x, (1,) * i + (x._numel,) + (1,) * (n - 1 - i)), size) for i, x in enumerate(tensors)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@register_op(method=False)
def cartesian_prod(*tensors):
    """Returns all combinations of the elements of one-dimensional tensors, one per row."""
    tensors = tensor_list("cartesian_prod", tensors)
    for x in tensors:
        if x.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x._sizes)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack_tensors([reshape_(x, (x._numel,)) for x in meshgrid(*tensors, indexing="ij")], 1)


@register_op(method=False)
def combinations(input, r: Int = 2, with_replacement: Bool = False):
    """Returns all combinations of r elements of a one-dimensional tensor, one per row."""
    if input.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input._sizes)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return new_full(input, size=(0,), value=0, np_dtype=input._np_dtype)
    rows = _combination_indices(input, n=input._numel, r=r, with_replacement=bool(with_replacement))
    return unsafe_view(select_rows(input, reshape_(rows, (rows._numel,)), dim=0, check=False), size=rows._sizes)


#: the combinations of r integers below n, one per row
_combination_indices = primitive("combination_indices", "like, *, n, r, with_replacement", None, raw=True)


# ------------------------------------------------------------------ triangles and diagonals
tril_ = primitive("tril", "a, *, diagonal", lambda ctx, grad: tril_(grad, diagonal=ctx.diagonal), raw=True, aten="tril.default")
triu_ = primitive("triu", "a, *, diagonal", lambda ctx, grad: triu_(grad, diagonal=ctx.diagonal), raw=True, aten="triu.default")
_triangle_indices = primitive("tri_indices", "*, row, col, offset, lower, np_dtype, device", raw=True)


def _need_matrix(name, x):
    if x.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")


@register_op(inplace=True, out="same")
def tril(input, diagonal: SymInt = 0):
    """Returns the lower triangle of the last two dims, with zeros above the given diagonal."""
    _need_matrix("tril", input)
    return tril_(input, diagonal=int_of("tril", diagonal, "diagonal"))


@register_op(inplace=True, out="same")
def triu(input, diagonal: SymInt = 0):
    """Returns the upper triangle of the last two dims, with zeros below the given diagonal."""
    _need_matrix("triu", input)
    return triu_(input, diagonal=int_of("triu", diagonal, "diagonal"))


def _tri_indices(name, row, col, offset, dtype, device, layout, lower):
    device = _device.check(device)
    if layout is not None and repr(layout) != "torch.strided":
        raise NotImplementedError(f"{name}: layout {layout!r} is not supported on device cpu")
    if row < 0 or col < 0:
        word, n = ("row", row) if row < 0 else ("col", col)
        raise RuntimeError(f"{word} must be non-negative, got{n}")
    d = I64 if dtype is None else as_np(dtype)
    if d.kind not in "iu":
        raise NotImplementedError(f"\"{name}\" not implemented for '{scalar_type_name(d)}'")
    return _triangle_indices(row=row, col=col, offset=offset, lower=lower, np_dtype=d, device=device)


@register_op(method=False)
def tril_indices(row: Int, col: Int, offset: Int = 0, *, dtype=None, layout=None, device=None, pin_memory: Bool = None):
    """Returns the row and column indices of the lower triangle of a (row, col) matrix, as a tensor
    of two rows."""
    return _tri_indices("tril_indices", row, col, offset, dtype, device, layout, True)


@register_op(method=False)
def triu_indices(row: Int, col: Int, offset: Int = 0, *, dtype=None, layout=None, device=None, pin_memory: Bool = None):
    """Returns the row and column indices of the upper triangle of a (row, col) matrix, as a tensor
    of two rows."""
    return _tri_indices("triu_indices", row, col, offset, dtype, device, layout, False)


diag_embed_ = primitive("diag_embed", "a, *, offset, dim1, dim2", lambda ctx, grad: diagonal_(grad, offset=ctx.offset, dim1=ctx.dim1, dim2=ctx.dim2), raw=True,
                        aten="diag_embed.default")


@register_op
def diag_embed(input, offset: Int = 0, dim1: Int = -2, dim2: Int = -1):
    """Writes the last dim to the diagonal of matrices in dims dim1 and dim2 of the result."""
    if not input.ndim:
        raise IndexError("Dimension specified as -1 but tensor has no dimensions")
    n = input.ndim + 1
    dim1, dim2 = wrap_dim("diag_embed", dim1, n), wrap_dim("diag_embed", dim2, n)
    if dim1 == dim2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return diag_embed_(input, offset=offset, dim1=dim1, dim2=dim2)


@register_op(out="same")
def diag(input, diagonal: Int = 0):
    """Returns a diagonal matrix for a vector, or the diagonal of a matrix (a copy)."""
    n = input.ndim
    if n == 1:
        return diag_embed_(input, offset=diagonal, dim1=0, dim2=1)
    if n != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {n}D")
    return clone_(diagonal_(input, offset=diagonal, dim1=0, dim2=1), fmt="contiguous")


@register_op
def diagflat(input, offset: Int = 0):
    """Returns a matrix with all elements on its diagonal."""
    return diag_embed_(reshape_(input, (input._numel,)), offset=offset, dim1=0, dim2=1)


# ------------------------------------------------------------------ padding
pad_constant_ = primitive("constant_pad_nd", "x, *, pads, value",
                          lambda ctx, grad: pad_constant_(grad, pads=tuple([(-lo, -hi) for lo, hi in ctx.pads]), value=0), raw=True,
                          layout=suggested_by_first)


def constant_pad(x, pad):
    """Pads with zeros. `pad` is (before, after) of the last dim, then of the previous dim, and so
    on. Negative counts crop."""
    pads = [(0, 0)] * x.ndim
    for i in range(0, len(pad), 2):
        pads[-1 - i // 2] = (pad[i], pad[i + 1])
    return pad_constant_(x, pads=tuple(pads), value=0)
