"""View ops: their results share the memory of the input.

Nothing is copied, and writes through a view are visible in the input.
"""
import warnings

from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.dispatch.dispatcher import dispatch_state, dispatch_op, dispatching
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.tensor.stride_rules import can_view
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Index, Int, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.tensor.tensor import Size, Tensor, is_tensor
from mindtorch.ops._checks import check_tensor, wrap_dim
from mindtorch.ops.shapes._memory import view_dtype
from mindtorch.ops.indexing._basic_index import along, narrow as narrow_, pick_alias, pick_select, tensor_list
from mindtorch.ops.shapes._sizes import count, infer_size, int_of, ints_of, size_of
from mindtorch.ops.basic import lazy_conj

#: How torch.compile captures the functions of this module (`mindtorch/torch/_dynamo/_capture.py`).
#: These dispatch by themselves and are recorded when they do.
CAPTURE = {"_reshape_method": "safe", "_permute_method": "safe"}


# ------------------------------------------------------------------ view and reshape
view_ = primitive("view", "a, *, size", lambda ctx, grad: reshape_(grad, ctx.shapes[0]), view=True)
#: Reshapes a tensor that nothing else references, such as an intermediate result. Not a view for
#: autograd.
unsafe_view = primitive("unsafe_view", "a, *, size", lambda ctx, grad: reshape_(grad, ctx.shapes[0]), raw=True)


def reshape_(x, size):
    """Returns x in another shape (a tuple without -1): a view if the strides allow it, else a copy.
    """
    if x._contiguous or can_view(x._sizes, x.stride(), size):
        return view_(x, size=size)
    return unsafe_view(x, size=size)


@register_op(function=False, tags="view")
def view(self, *shape, size=None, dtype=None):
    """Views the tensor's memory in another shape or, given a dtype, as another dtype.

    RuntimeError if the strides do not allow it; reshape copies if necessary.
    """
    if shape:
        for n in shape:
            if n.__class__ is not int or n < -1:
                break
        else:
            return view_(self, size=shape)
        first = shape[0]
        if first.__class__ is not int and len(shape) == 1:
            if first.__class__ is str or not hasattr(first, "__iter__") and hasattr(first, "np"):
                return view_dtype(self, first)
            if isinstance(first, (float, bool)):
                raise TypeError(f"view() received an invalid combination of arguments - got ({type_name(first)}), "
                                "but expected "
                                "one of: (torch.dtype dtype), (tuple of ints size)")
        shape = size_of("view", shape)
    elif size is not None:
        shape = size_of("view", (size,))
    elif dtype is not None:
        return view_dtype(self, dtype)
    else:
        raise TypeError("view() received an invalid combination of arguments - got (), but expected one of: "
                        "(torch.dtype dtype), "
                        "(tuple of ints size)")
    if shape and min(shape) < -1:
        infer_size(shape, self._numel)
    return view_(self, size=shape)


@register_op(method=False, tags="view")
def reshape(input, shape):
    """Returns the tensor in another shape: a view if the strides allow it, else a copy. A -1 is
    inferred."""
    check_tensor("reshape", input)
    return _reshape(input, (shape,))


def _reshape(x, shape):
    for n in shape:
        if n.__class__ is not int or n < -1:
            break
    else:
        if shape and x._contiguous:
            return view_(x, size=shape)
    size = size_of("reshape", shape, "shape")
    if x._contiguous and (not size or min(size) >= -1):
        return view_(x, size=size)
    return reshape_(x, infer_size(size, x._numel))


def _reshape_method(self, *args, shape=None):
    """Returns the tensor in another shape: a view if the strides allow it, else a copy. A -1 is
    inferred."""
    try:
        if dispatch_state.ops:
            return dispatch_op(_reshape_entry, (self, *args), {} if shape is None else {"shape": shape})
        return _reshape(self, args if shape is None else (shape,))
    except Exception as e:
        hide_internal_frames(e)
        raise


_reshape_method.__name__ = "reshape"
Tensor.reshape, _reshape_entry = dispatching(lambda self, *args, shape=None: _reshape(self, args if shape is None else (shape,)),
                                             "Tensor.reshape")(_reshape_method)


@register_op(function=False, tags="view")
def view_as(self, other):
    """Views the tensor in the shape of `other`."""
    check_tensor("view_as", other, "other")
    return view_(self, size=other._sizes)


@register_op(function=False, tags="view")
def reshape_as(self, other):
    """Reshapes the tensor to the shape of `other`."""
    check_tensor("reshape_as", other, "other")
    return reshape_(self, infer_size(other._sizes, self._numel))


@register_op(tags="view")
def ravel(input):
    """Flattens the tensor to one dim: a view of a contiguous tensor, else a copy."""
    return view_(input.contiguous(), size=(input._numel,))


@register_op(tags="view")
def flatten(input, start_dim: Int = 0, end_dim: Int = -1):
    """Merges dims start_dim..end_dim into one. Returns the tensor itself if there is nothing to
    merge."""
    shape = input._sizes
    n = len(shape)
    first, last = wrap_dim("flatten", start_dim, n), wrap_dim("flatten", end_dim, n)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not n:
        return reshape_(input, (1,))
    if first == last:
        return input
    return reshape_(input, (*shape[:first], count(shape[first:last + 1]), *shape[last + 1:]))


@register_op(tags="view")
def unflatten(input, dim: Int, sizes):
    """Splits `dim` into several dims, one of which may be -1."""
    shape = input._sizes
    d = wrap_dim("unflatten", dim, len(shape))
    sizes = ints_of("unflatten", sizes, "sizes")
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    n = shape[d] if shape else 1
    if not shape:
        raise RuntimeError(f"unflatten got an unexpected error: Dimension specified as {dim} but tensor has no "
                           "dimensions")
    known = 1
    for s in sizes:
        known *= s if s != -1 else 1
    if sizes.count(-1) <= 1 and min(sizes) >= -1 and (known != n if -1 not in sizes else not known or n % known):
        raise RuntimeError(f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {d} ({n}) "
                           "in the input tensor")
    return view_(input, size=(*shape[:d], *infer_size(sizes, n), *shape[d + 1:]))


# ------------------------------------------------------------------ adding and removing dims
unsqueeze_ = primitive("unsqueeze", "a, *, dim", lambda ctx, grad: reshape_(grad, ctx.shapes[0]), view=True, aten="unsqueeze.default")
#: Inserts dims of size 1 before and after all others.
_unsqueeze_ends = primitive("unsqueeze_ends", "a, *, before, after", lambda ctx, grad: reshape_(grad, ctx.shapes[0]), view=True, node="UnsqueezeBackward0")
_squeeze = primitive("squeeze", "a, *, axes", lambda ctx, grad: reshape_(grad, ctx.shapes[0]), view=True)


@register_op(tags="view")
def unsqueeze(input, dim: Int):
    """Inserts a dim of size 1 at `dim`."""
    if dim.__class__ is int and 0 <= dim <= 1 and dim <= input.ndim:
        return unsqueeze_(input, dim=dim)
    return unsqueeze_(input, dim=wrap_dim("unsqueeze", dim, input.ndim + 1))


def _squeezed(input, dim: Index = None, *more):
    """Removes dims of size 1 (all of them, or the given ones)."""
    shape = input._sizes
    if dim.__class__ is int and not more and 0 <= dim < len(shape):
        return _squeeze(input, axes=(dim,) if shape[dim] == 1 else ())
    if dim is None:
        axes = tuple([i for i, n in enumerate(shape) if n == 1])
    else:
        dims = [wrap_dim("squeeze", d, len(shape)) for d in (dim if isinstance(dim, (tuple, list)) and not more else (dim, *more))]
        if len(set(dims)) != len(dims):
            twice = next(d for d in dims if dims.count(d) > 1)
            raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
        axes = tuple([d for d in dims if shape and shape[d] == 1])
    return _squeeze(input, axes=axes)


_squeezed.__name__ = "squeeze"


@register_op(method=_squeezed, tags="view")
def squeeze(input, dim: Index = None):
    """Removes dims of size 1 (all of them, or those in `dim`)."""
    return _squeezed(input, dim)


# ------------------------------------------------------------------ order of dims
transpose_ = primitive("transpose", "a, *, dim0, dim1", lambda ctx, grad: transpose_(grad, dim0=ctx.dim0, dim1=ctx.dim1), view=True, aten="transpose.int")
t_ = primitive("t", "a", lambda ctx, grad: t_(grad), view=True, aten="t.default")
permute_ = primitive("permute", "a, *, dims",
                     lambda ctx, grad: permute_(grad, dims=tuple(sorted(range(len(ctx.dims)), key=ctx.dims.__getitem__))), view=True)


@register_op(tags="view")
def transpose(input, dim0: Int, dim1: Int):
    """Swaps two dims."""
    n = input.ndim
    if not (dim0.__class__ is int is dim1.__class__ and 0 <= dim0 < n > dim1 >= 0):
        dim0, dim1 = wrap_dim("transpose", dim0, n), wrap_dim("transpose", dim1, n)
        if not n:
            return pick_alias(input, key=...)
    return transpose_(input, dim0=dim0, dim1=dim1)


@register_op(tags="view")
def swapaxes(input, axis0: Int, axis1: Int):
    """Swaps two dims."""
    return transpose(input, axis0, axis1)


@register_op(tags="view")
def swapdims(input, dim0: Int, dim1: Int):
    """Swaps two dims."""
    return transpose(input, dim0, dim1)


@register_op(tags="view")
def t(input):
    """Transposes a matrix. Tensors with fewer dims are unchanged."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return t_(input)


def _permute(x, dims):
    n = x.ndim
    if n == len(dims) == len({*dims}) and dims.__class__ is tuple:
        for d in dims:
            if d.__class__ is not int or not 0 <= d < n:
                break
        else:
            return permute_(x, dims=dims)
    if len(dims) != n:
        raise RuntimeError("permute(sparse_coo): number of dimensions in the tensor input does not match the length "
                           "of the desired "
                           f"ordering of dimensions i.e. input.dim() = {n} is not equal to len(dims) = {len(dims)}")
    dims = tuple([d if d.__class__ is int and 0 <= d < n else wrap_dim("permute", d, n) for d in dims])
    if len(set(dims)) != n:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return permute_(x, dims=dims)


@register_op(method=False, tags="view")
def permute(input, dims):
    """Reorders the dims."""
    check_tensor("permute", input)
    return _permute(input, ints_of("permute", dims, "dims"))


def _permute_method(self, *args, dims=None):
    """Reorders the dims."""
    try:
        if dispatch_state.ops:
            return dispatch_op(_permute_entry, (self, *args), {} if dims is None else {"dims": dims})
        return _permute(self, size_of("permute", args, "dims") if dims is None else ints_of("permute", dims, "dims"))
    except Exception as e:
        hide_internal_frames(e)
        raise


def _permuted(self, *args, dims=None):
    return _permute(self, size_of("permute", args, "dims") if dims is None else ints_of("permute", dims, "dims"))


_permute_method.__name__ = "permute"
Tensor.permute, _permute_entry = dispatching(_permuted, "Tensor.permute")(_permute_method)


def _movedim(name, x, source, destination):
    n = x.ndim
    source, destination = ints_of(name, source, "source"), ints_of(name, destination, "destination")
    if len(source) != len(destination):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({list(source)} dims) should contain "
                           "the same number "
                           f"of dims as destination ({list(destination)} dims)")
    src = [wrap_dim(name, d, n) for d in source]
    dst = [wrap_dim(name, d, n) for d in destination]
    for given, dims, word in ((source, src, "source"), (destination, dst, "destination")):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{word}` ({list(given)})")
    if not n:
        return pick_alias(x, key=...)
    order = [d for d in range(n) if d not in src]
    for d, s in sorted(zip(dst, src)):
        order.insert(d, s)
    return permute_(x, dims=tuple(order))


@register_op(tags="view")
def movedim(input, source, destination):
    """Moves dims to other positions. The other dims keep their order."""
    return _movedim("movedim", input, source, destination)


@register_op(tags="view")
def moveaxis(input, source, destination):
    """Moves dims to other positions. The other dims keep their order."""
    return _movedim("moveaxis", input, source, destination)


def _reversed(self):
    n = self.ndim
    if n != 2:
        if n == 0:
            warnings.warn("Tensor.T is deprecated on 0-D tensors. This function is the identity in these "
                          "cases.", stacklevel=2)
        elif n > 2:
            warnings.warn(f"x.T on a tensor of {n} dimensions is deprecated: use x.mT for batches of matrices, or "
                          "x.permute to "
                          "reverse all dimensions", stacklevel=2)
    return permute_(self, dims=tuple(range(n - 1, -1, -1)))


def _matrices(self, name):
    n = self.ndim
    if n == 1:
        raise RuntimeError(f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor.")
    if n == 0:
        warnings.warn(f"{name} is deprecated on 0-D tensors. This function is the identity in these "
                      "cases.", stacklevel=3)
        return self
    return transpose_(self, dim0=n - 2, dim1=n - 1)


def _hermitian(self):
    n = self.ndim
    if n not in (0, 2):
        hint = " For batches of matrices, consider using tensor.mH" if n > 2 else ""
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {n}-D tensor.{hint}")
    return self if not n else adjoint(self)


@register_op(tags="view")
def adjoint(input):
    """Returns the conjugate transpose of the last two dims: a view."""
    return lazy_conj(_matrices(input, "adjoint()"))


def _get_mT(self):
    """Swaps the last two dims."""
    return _matrices(self, "mT")


def _get_mH(self):
    """Returns the conjugate transpose of the last two dims."""
    return lazy_conj(_matrices(self, "mH"))


Tensor.T = property(_reversed, doc="All dimensions in reverse order.")
Tensor.mT = property(_get_mT)
Tensor.H = property(_hermitian, doc="Conjugate transpose of a matrix.")
Tensor.mH = property(_get_mH)


# ------------------------------------------------------------------ slicing
def _int_dim(name, x, dim):
    n = x.ndim
    if not n:
        raise IndexError(f"{name}() cannot be applied to a 0-dim tensor.")
    return wrap_dim(name, dim, n)


@register_op(tags="view")
def select(input, dim: Int, index: SymInt):
    """Returns the slice at one index of a dim, without that dim."""
    return pick_select(input, key=select_key(input, dim, index))


def select_key(x, dim, index):
    """Returns the NumPy index of a select call."""
    dim = _int_dim("select", x, dim)
    n, i = x._sizes[dim], int_of("select", index, "index")
    if not -n <= i < n:
        raise IndexError(f"select(): index {i} out of range for tensor of size {list(x._sizes)} at dimension {dim}")
    return along(dim, i)


@register_op(tags="view")
def narrow(input, dim: Int, start, length: SymInt):
    """Returns `length` elements of a dim, beginning at `start`."""
    if not input.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    length = int_of("narrow", length, "length")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if (start.__class__ is Tensor or is_tensor(start)) and (start.ndim or start._np_dtype.kind not in "iu"):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    start = int_of("narrow", start, "start")
    dim = wrap_dim("narrow", dim, input.ndim)
    n = input._sizes[dim]
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    if start < 0:
        start += n
    if start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return narrow_(input, dim, start, length)


def slice_key(x, dim, start, end, step):
    """Returns the NumPy index of every step-th element from start to end, both clamped to the dim.
    """
    dim = _int_dim("slice", x, dim)
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    return along(dim, slice(start, end, step))


diagonal_ = primitive("diagonal", "a, *, offset, dim1, dim2", lambda ctx, grad: _diagonal_back(
    grad, shape=ctx.shapes[0], offset=ctx.offset, dim1=ctx.dim1, dim2=ctx.dim2), view=True, aten="diagonal.default")
_diagonal_back = primitive("diagonal_backward", "g, *, shape, offset, dim1, dim2", lambda ctx, grad: diagonal_(
    grad, offset=ctx.offset, dim1=ctx.dim1, dim2=ctx.dim2), raw=True)


@register_op(tags="view")
def diagonal(input, offset: Int = 0, dim1: Int = 0, dim2: Int = 1):
    """Returns the diagonal of two dims, as the last dim."""
    return diagonal_(input, **diagonal_params(input, offset, dim1, dim2))


def diagonal_params(x, offset, dim1, dim2):
    """Checks and returns the parameters of diagonal."""
    n = x.ndim
    dim1, dim2 = wrap_dim("diagonal", dim1, n), wrap_dim("diagonal", dim2, n)
    if dim1 == dim2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return {"offset": int_of("diagonal", offset, "offset"), "dim1": dim1, "dim2": dim2}


unfold_ = primitive("unfold", "a, *, dim, size, step",
                    lambda ctx, grad: unfold_back(grad, shape=ctx.shapes[0], dim=ctx.dim, size=ctx.size, step=ctx.step), view=True, aten="unfold.default")
#: adds up overlapping windows
unfold_back = primitive("unfold_backward", "g, *, shape, dim, size, step",
                        lambda ctx, grad: unfold_(grad, dim=ctx.dim, size=ctx.size, step=ctx.step), raw=True)


@register_op(function=False, tags="view")
def unfold(self, dimension: Int, size: Int, step: Int):
    """Returns windows of `size` elements, `step` apart, along a dim. The elements of a window
    become the last dim."""
    dim = wrap_dim("unfold", dimension, self.ndim)
    n = self._sizes[dim] if self.ndim else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {dim} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    return unfold_(self, dim=dim, size=size, step=step)


# ------------------------------------------------------------------ broadcasting
expand_ = primitive("expand", "a, *, size", lambda ctx, grad: grad, view=True)


def expand_to(x, size):
    """Broadcasts `x` to `size` as a view. `size` is a tuple in which -1 keeps the size of a dim."""
    shape = x._sizes
    lead = len(size) - len(shape)
    if lead >= 0:
        for n, have in zip(size[lead:], shape):
            if n != have and (have != 1 or n < 0):
                break
        else:
            if not lead or min(size[:lead]) >= 0:
                return expand_(x, size=size)
    if lead < 0:
        raise RuntimeError(f"expand(torch.{scalar_type_name(x._np_dtype)}Tensor{{{list(shape)}}}, size={list(size)}): the number "
                           "of sizes provided "
                           f"({len(size)}) must be greater or equal to the number of dimensions in the tensor "
                           f"({len(shape)})")
    out = list(size)
    for i, n in enumerate(size):
        have = 1 if i < lead else shape[i - lead]
        if n == -1:
            if i < lead:
                raise RuntimeError(f"The expanded size of the tensor ({n}) isn't allowed in a leading, non-existing "
                                   f"dimension {i}")
            out[i] = have
        elif n != have and have != 1:
            raise RuntimeError(f"The expanded size of the tensor ({n}) must match the existing size ({have}) at "
                               "non-singleton dimension "
                               f"{i}.  Target sizes: {list(size)}.  Tensor sizes: {list(shape)}")
        elif n < -1:
            raise RuntimeError(f"expand: invalid size {n} in {list(size)}")
    return expand_(x, size=tuple(out))


@register_op(function=False, tags="view")
def expand(self, *args, size=None, implicit: Bool = False):
    """Broadcasts the tensor to a larger size, as a view. -1 keeps the size of a dim."""
    return expand_to(self, size_of("expand", args if size is None else (size,)))


@register_op(function=False, tags="view")
def expand_as(self, other):
    """Broadcasts the tensor to the size of `other`, as a view."""
    check_tensor("expand_as", other, "other")
    return expand_to(self, other._sizes)


@register_op(tags="view")
def broadcast_to(input, size):
    """Broadcasts the tensor to a larger size, as a view. -1 keeps the size of a dim."""
    return expand_to(input, ints_of("broadcast_to", size, "size"))


def _broadcast_to_method(self, *args, size=None):
    """Broadcasts the tensor to a larger size, as a view. -1 keeps the size of a dim."""
    return expand_to(self, size_of("broadcast_to", args if size is None else (size,)))


Tensor.broadcast_to = _broadcast_to_method


def broadcast_shape(shapes):
    """Returns the shape that all shapes broadcast to. RuntimeError if there is none."""
    out = []
    for shape in shapes:
        if len(shape) > len(out):
            out = [1] * (len(shape) - len(out)) + out
        for i in range(1, len(shape) + 1):
            n, m = shape[-i], out[-i]
            if n != m and n != 1:
                if m != 1:
                    raise RuntimeError(f"The size of tensor a ({m}) must match the size of tensor b ({n}) at "
                                       "non-singleton dimension "
                                       f"{len(out) - i}")
                out[-i] = n
    return tuple(out)


@register_op(method=False, tags="metadata_only")
def broadcast_shapes(*shapes):
    """Returns the size that tensors of the given sizes broadcast to."""
    sizes = [ints_of("broadcast_shapes", s, "shapes") for s in shapes]
    for s in sizes:
        if s and min(s) < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension ({min(s)}): ({min(s)})")
    out = []
    for s in sizes:
        out = [1] * (len(s) - len(out)) + out
        for i in range(1, len(s) + 1):
            if s[-i] != out[-i] and s[-i] != 1:
                if out[-i] != 1:
                    raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape")
                out[-i] = s[-i]
    return Size(out)


@register_op(method=False)
def broadcast_tensors(*tensors):
    """Returns the tensors as views of one common size."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tensors[0]
    tensors = tensor_list("broadcast_tensors", tensors)
    size = broadcast_shape([x._sizes for x in tensors])
    return tuple([x if x._sizes == size else expand_to(x, size) for x in tensors])


#: required number of dims -> {current number of dims: (dims to insert before, after)}
_LEAST = {1: {0: (1, 0)}, 2: {0: (2, 0), 1: (1, 0)}, 3: {0: (3, 0), 1: (1, 1), 2: (0, 1)}}


def atleast(n, x):
    """Returns a view of x with at least n dims."""
    ends = _LEAST[n].get(x.ndim)
    return x if ends is None else _unsqueeze_ends(x, before=ends[0], after=ends[1])


def _declare_atleast(n):
    name = f"atleast_{n}d"

    def fn(*tensors):
        if len(tensors) == 1:
            if is_tensor(tensors[0]):
                return atleast(n, tensors[0])
            tensors = tensors[0]
        return tuple([atleast(n, x) for x in tensor_list(name, tensors)])

    fn.__doc__ = f"Returns tensors of fewer than {n} dims as views with {n} dims, and the others unchanged."
    register_op(fn, name=name, method=False)


for _n in _LEAST:
    _declare_atleast(_n)
