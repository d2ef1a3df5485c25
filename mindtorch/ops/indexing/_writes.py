"""In-place methods with an implementation of their own: fill_, zero_, copy_, index_put_, resize_,
set_, ..."""
import warnings

from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import inplace, from_data
from mindtorch.core.autograd import forward_ad
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.conj_neg_bits import bits_of, plain
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.tensor.dtypes import BOOL, I32, I64, U8
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.stride_rules import contiguous_strides, format_of, format_strides, as_computed, pointwise
from mindtorch.core.dispatch.op_registry import register_op, resize
from mindtorch.core.dispatch.op_schema import Bool, Scalar, SymInt
from mindtorch.core.dispatch.primitives import primitive, sequence
from mindtorch.core.tensor.tensor import ScalarOperand, Tensor, shallow_copy, bump_version, is_tensor
from mindtorch.core.tensor.sync import tensor_from
from mindtorch.ops._checks import check_tensor
from mindtorch.core.tensor.scalars import NUMBER, cast_scalar, scalar_array
from mindtorch.ops.basic import cast, move, sum_to, zeros_like
from mindtorch.ops.indexing import _expanded
from mindtorch.ops.indexing._gather import add_at, mask_indices, put_at
from mindtorch.ops.indexing._subscript import index_on_device, result_shape
from mindtorch.ops.shapes._sizes import check_nonnegative, check_rank, format_name, size_of
from mindtorch.ops.shapes.views import broadcast_shape, reshape_


def _method(fn):
    setattr(Tensor, fn.__name__, fn)
    return fn


# ------------------------------------------------------------------ fill_, zero_
_fill = primitive("fill", "a, value", lambda ctx, grad: zeros_like(grad), lambda ctx, grad: sum_to(grad, size=()), raw=True, layout=as_computed)
_zero = primitive("zero", "a", lambda ctx, grad: zeros_like(grad), raw=True, layout=as_computed)


def _fill_value(name, value, x):
    """Returns a scalar or 0-dim tensor as a 0-dim operand of x's dtype."""
    d = x._np_dtype
    if value.__class__ is float or value.__class__ is int:
        return cast_scalar(value, d)
    if value.__class__ is ScalarOperand:
        return value
    if value.__class__ is Tensor or is_tensor(value):
        if value.ndim:
            raise RuntimeError(f"{name} only supports 0-dimension value tensor but got tensor with {value.ndim} "
                               "dimensions.")
        return value if value._np_dtype == d else cast(value, d)
    if not isinstance(value, NUMBER):
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({type_name(value)}), but "
                        "expected one of: "
                        "(Tensor value), (Number value)")
    return cast_scalar(value, d)


@register_op(method=False)
def fill(input, value):
    """Returns a tensor like input, filled with `value` (a scalar or 0-dim tensor)."""
    check_tensor("fill", input)
    return _fill(input, _fill_value("fill_", value, input))


@_method
def fill_(self, value):
    """Writes one value (a scalar or 0-dim tensor) to every element."""
    value = _fill_value("fill_", value, self)
    if not (mode.on and (self._requires_grad_ or value._requires_grad_) or dispatch_state.dual is not None and dispatch_state.dual(self, value)):
        inplace.check_inplace(self, False, value.__class__ is ScalarOperand)
        inplace.fill(self, value)
        return self
    inplace.check_inplace(self, True)
    since = next(sequence)
    return inplace.assign(self, _fill(self, value), since, (value,))


@_method
def zero_(self):
    """Writes 0 to every element."""
    inplace.check_inplace(self, False, True)
    if not (mode.on and self._requires_grad_ or dispatch_state.dual is not None and dispatch_state.dual(self)):
        inplace.zero(self)
        return self
    since = next(sequence)
    return inplace.assign(self, _zero(self), since)


# ------------------------------------------------------------------ copy_
_copy = primitive("copy", "a, src", lambda ctx, grad: zeros_like(grad), lambda ctx, grad: cast(grad, ctx.dtypes[1]), raw=True, layout=pointwise)


@_method
def copy_(self, src=None, non_blocking: Bool = False, *, other=None):
    """Copies the elements of another tensor (broadcast, cast) into this one."""
    if src is None:
        src = other
    if src.__class__ is not Tensor and not (src.__class__ is Tensor or is_tensor(src)):
        if not isinstance(src, (int, float, bool)):
            raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type_name(src)}")
        src = tensor_from(scalar_array(src, self._np_dtype), self)
    grad = mode.on and (self._requires_grad_ or src._requires_grad_) or dispatch_state.dual is not None and dispatch_state.dual(self, src)
    if grad and src._device is not self._device and src._device.type != "meta":
        src = move(src, self._device)
    inplace.check_inplace(self, grad, src is self)
    size = self._sizes
    if size != src._sizes:
        shape = broadcast_shape([size, src._sizes])
        if shape != size:
            raise RuntimeError(f"output with shape {list(size)} doesn't match the broadcast shape {list(shape)}")
    inplace.assert_no_partial_overlap(self, (src,))
    if not grad:
        inplace.copy(self, src)
        return self
    since = next(sequence)
    return inplace.assign(self, _copy(self, src), since, (src,))


@_method
def fill_diagonal_(self, fill_value: Scalar, wrap=False):
    """Writes one value to the main diagonal. With `wrap`, the diagonal starts again below it in
    tall matrices."""
    size = self._sizes
    if len(size) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(size) > 2 and len(set(size)) != 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    part = _diagonal_view(self, 0)
    part.fill_(fill_value)
    if wrap and len(size) == 2 and size[0] > size[1] + 1:
        for start in range(size[1] + 1, size[0], size[1] + 1):
            _diagonal_view(self, start).fill_(fill_value)
    return self


def _diagonal_view(x, row):
    if x.ndim == 2:
        return (x[row:] if row else x).diagonal()
    return _main_diagonal(x)


_main_diagonal = primitive("main_diagonal", "a", lambda ctx, grad: _diagonal_back(grad, size=ctx.shapes[0]), view=True, node="DiagonalBackward0")
_diagonal_back = primitive("main_diagonal_backward", "g, *, size", lambda ctx, grad: _main_diagonal(grad), raw=True)


# ------------------------------------------------------------------ index_put
def _indices(x, indices):
    if (indices.__class__ is Tensor or is_tensor(indices)) or not isinstance(indices, (tuple, list)):
        raise TypeError("index_put(): argument 'indices' (position 1) must be tuple of Tensors, not "
                        f"{type(indices).__name__}")
    for i, k in enumerate(indices):
        if not (k.__class__ is Tensor or is_tensor(k)):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type_name(k)}")
    if len(indices) > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim} (got {len(indices)})")
    if not indices:
        raise RuntimeError("index_put needs at least one index tensor")
    found = []
    for k in indices:
        if k._device is not x._device:
            k = index_on_device(k, x)
        d = k._np_dtype
        if d == U8:
            warnings.warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.", stacklevel=4)
            k, d = cast(k, BOOL), BOOL
        if d.kind == "b":
            at = len(found)
            if k._sizes != x._sizes[at:at + k.ndim]:
                raise IndexError(f"The shape of the mask {list(k._sizes)} at index 0 does not match the shape of the "
                                 "indexed tensor "
                                 f"{list(x._sizes)} at index {at}")
            found.extend(mask_indices(k))
        elif d == I64 or d == I32:
            found.append(cast(k, I64))
        else:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    return found, tuple(range(len(found)))


def _put_expanded(x, indices, values, accumulate=False):
    check_tensor("index_put_", values, "values", 3)
    found, dims = _indices(x, indices)
    is_masked_fill = len(indices) == 1 and indices[0]._np_dtype.kind == "b" and values._numel == 1 and not accumulate
    part, value, found = _expanded.index_put(x, values, found, dims, result_shape(x._sizes, found, dims), accumulate)
    if is_masked_fill:
        _expanded.warn("masked_fill_")  # PyTorch treats one mask with one value as a fill
    part.index_put_(found, value, accumulate)


@register_op(inplace="own", overlap="assert_no_overlap", expanded=_put_expanded)
def index_put(input, indices, values, accumulate: Bool = False):
    """Returns input with values written at a tuple of index tensors. With `accumulate`, values are
    added, also at repeated indices."""
    check_tensor("index_put", values, "values", 3)
    found, dims = _indices(input, indices)
    shape = result_shape(input._sizes, found, dims)
    have = values._sizes
    if have != shape:
        i = 0
        while len(have) - i > len(shape) and have[i] == 1:
            i += 1
        if i:
            have = have[i:]
            values = reshape_(values, have)
        lead = len(shape) - len(have)
        if lead < 0 or any(n != 1 and n != shape[lead + j] for j, n in enumerate(have)):
            raise RuntimeError(f"shape mismatch: value tensor of shape {list(have)} cannot be broadcast to indexing "
                               f"result of shape {list(shape)}")
    if input._np_dtype != values._np_dtype:
        raise RuntimeError(f"Index put requires the source and destination dtypes match, got {scalar_type_name(input._np_dtype)} for the "
                           "destination and "
                           f"{scalar_type_name(values._np_dtype)} for the source.")
    return (add_at if accumulate else put_at)(input, values, found, dims)


# ------------------------------------------------------------------ memory
@_method
def resize_(self, *sizes, size=None, memory_format=None):
    """Changes the tensor's size and keeps the elements that fit; new elements are 0."""
    size = size_of("resize_", sizes if size is None else (size,))
    check_nonnegative(size)
    if mode.on and self._requires_grad_:
        raise RuntimeError("cannot resize variables that require grad")
    if dispatch_state.dual is not None and dispatch_state.dual(self):
        raise RuntimeError("cannot resize variables that has a forward grad")
    if size != self._sizes:
        resize(self, size)
    return self if memory_format is None else _restride(self, "resize_", format_name(memory_format))


def _restride(t, name, fmt):
    """Sets the strides of a tensor to those of a memory format; its elements stay where they are in
    memory."""
    if fmt == "preserve":
        raise RuntimeError(f"{name}: unsupported memory format Preserve")
    check_rank(t._sizes, fmt)
    strides = format_strides(t._sizes, fmt)
    if t.stride() != strides:
        inplace.restride(t, strides)
    return t


@_method
def resize_as_(self, the_template, *, memory_format=None):
    """Changes the tensor's size to that of another."""
    check_tensor("resize_as_", the_template, "the_template")
    self.resize_(the_template._sizes)
    if memory_format is None:
        return self
    fmt = format_name(memory_format)
    return _restride(self, "resize_as_", format_of(the_template) if fmt == "preserve" else fmt)


def _same_device(t, device):
    if t._device is not device and t._device != device:
        raise RuntimeError(f'Attempted to set the storage of a tensor on device "{t._device}" to a storage on different device "{device}".  This is no longer '
                           "allowed; the devices must match.")


@_method
def set_(self, source=None, storage_offset: SymInt = 0, size=None, stride=None):
    """Makes the tensor use another tensor's memory (all of it, or a strided part)."""
    if mode.on and self._requires_grad_ and self._grad_fn_ is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    had = bits_of(self)
    _set(self, source, storage_offset, size, stride)
    if had[0] or had[1]:
        # self keeps its lazy bits, whatever the source has
        hooks.bits_set_memory(self, plain(self) if plain(self) is not self else shallow_copy(self), *had)
    return self


def _set(self, source, storage_offset, size, stride):
    if source is None:
        inplace.set_empty_storage(self)
        return self
    if not (source.__class__ is Tensor or is_tensor(source)):
        if source.__class__ not in from_data.STORAGES:
            raise TypeError(f"set_(): argument 'source' must be Tensor or Storage, not {type_name(source)}")
        _same_device(self, source.device)
        inplace.set_storage(self, hooks.tensor_of_storage(source, self.dtype, storage_offset, size, stride))
        return self
    source = plain(source)
    _same_device(self, source._device)
    if source._np_dtype != self._np_dtype:
        raise RuntimeError(f"Could not set tensor of type {scalar_type_name(source._np_dtype)} to a tensor of type "
                           f"{scalar_type_name(self._np_dtype)}")
    if size is None:
        inplace.set_storage(self, source)
    else:
        if not source._contiguous:
            raise RuntimeError("set_(): a source tensor that is used as a storage has to be contiguous")
        size = size_of("set_", (size,))
        k = self._np_dtype.itemsize
        stride = contiguous_strides(size) if stride is None else tuple(stride)
        try:
            inplace.set_storage_within(self, source, size, tuple([s * k for s in stride]), storage_offset * k)
        except ValueError:
            raise RuntimeError(f"set_(): size {list(size)} with strides {list(stride)} and offset {storage_offset} exceeds the source's "
                               "storage; growing the storage is not supported") from None
    return self


# ------------------------------------------------------------------ in-place views
def _geometry(name, view):
    """Declares Tensor.<name>: the tensor itself becomes the view that `view(self, ...)` returns."""
    def method(self, *args, **kwargs):
        grad = mode.on and self._requires_grad_
        if grad:
            inplace.check_inplace(self, True)
        elif self._inference and not mode.inference:
            inplace.check_inplace(self, False)
        r = view(self, *args, **kwargs)
        inplace.set_storage(self, r)
        bump_version(self)
        if dispatch_state.dual is not None:
            forward_ad.moved(self, r)
        if grad:
            self._grad_fn_, self._output_nr = r._grad_fn_, r._output_nr
        else:
            inplace.reread_view(self)
        return self

    method.__name__ = name
    method.__doc__ = f"In-place {name[:-1]}: changes the shape and strides of the tensor itself."
    setattr(Tensor, name, method)


for _name in ("as_strided", "transpose", "swapaxes", "swapdims", "t", "squeeze", "unsqueeze"):
    _geometry(_name + "_", getattr(Tensor, _name))
