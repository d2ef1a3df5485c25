"""Ops that create tensors: filled ones, ranges, legacy constructors, complex tensors from parts."""
import math
import sys
import warnings
from itertools import chain

from mindtorch.core.device import device as _device
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import dtypes, from_data, stride_rules as layouts, sparse, tensor as _tensor
from mindtorch.core.dispatch import meta
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.dispatch.deterministic import MODE
from mindtorch.core.tensor.dtypes import F16, I64, as_np, of_np
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.tensor.from_data import array_of, copied, is_array, is_sequence, usable
from mindtorch.core.tensor.stride_rules import STRIDED, pointwise
from mindtorch.core.dispatch.type_promotion import number_dtype
from mindtorch.core.dispatch.op_registry import SameDtype, check_extent, register_op, resize
from mindtorch.core.dispatch.op_schema import Bool, Float, Int, Scalar, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import ScalarOperand, Size, Tensor, adopt, detached, set_requires_grad, is_tensor
from mindtorch.core.tensor.sync import tensor_from
from mindtorch.ops._checks import check_tensor, not_implemented
from mindtorch.core.tensor.scalars import checked_convert, number_of
from mindtorch.ops.basic import cast, conj, mul_
from mindtorch.ops.creation._from_data import (CPU, copy_of, empty_, fill_uninitialized, finalize_new, full_, resolve_device, resolve_dtype,  # noqa: F401
                                               resolve_dtype_device, zeros_)
from mindtorch.ops.shapes._sizes import check_rank, format_name, int_of, ints_of, size_of

empty_strided_ = primitive("empty_strided", "*, size, stride, span, np_dtype, device", raw=True)
arange_ = primitive("arange", "*, start, step, steps, np_dtype, device", raw=True)
linspace_ = primitive("linspace", "*, start, end, steps, np_dtype, device", raw=True)
logspace_ = primitive("logspace", "*, start, end, steps, base, np_dtype, device", raw=True)
eye_ = primitive("eye", "*, n, m, np_dtype, device", raw=True)


# ------------------------------------------------------------------ common arguments
def new_size(name, args, size):
    """Returns the size of a new tensor, passed as f(2, 3), f((2, 3)) or f(size=...)."""
    if size is not None:
        args = (size,)
    elif args:
        # Fast path: nearly always plain ints, or a tuple of them.
        given, n = args, 1
        if len(args) == 1:
            if args[0].__class__ is tuple:
                given = args[0]
            elif args[0].__class__ is Size:
                given = tuple(args[0])
        for s in given:
            if s.__class__ is not int or s < 0:
                break
            n *= s
        else:
            if 0 < n < 1 << 59:
                return given
    else:
        raise TypeError(f"{name}() missing 1 required positional arguments: \"size\"")
    if len(args) == 1 and isinstance(args[0], float):
        raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, not float")
    n = size_of(name, args)
    if n and min(n) < 0:
        raise RuntimeError(f"{name}: Dimension size must be non-negative.")
    if 0 in n or math.prod(n) >> 59:
        check_extent(n)
    return n


# ------------------------------------------------------------------ filled tensors
def agree(name, out, dtype, layout, device):
    """Checks the other arguments of a creation function against out=: dtype, layout and device must
    be those of `out`, or None."""
    if not (out.__class__ is Tensor or is_tensor(out)):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type_name(out)}")
    if dtype is not None and as_np(dtype) != out._np_dtype:
        raise RuntimeError(f"dtype {scalar_type_name(as_np(dtype))} does not match dtype of out parameter ({scalar_type_name(out._np_dtype)})")
    if layout is not None and layout is not out.layout:
        want, have = [repr(x).removeprefix("torch.").removesuffix("_coo").title() for x in (layout, out.layout)]
        raise RuntimeError(f"layout {want} does not match layout of out parameter ({have})")
    if device is not None and _device.check(device).type != out._device.type:
        raise RuntimeError(f"device type {_device.check(device).type} does not match device type of out parameter ({out._device.type})")


def into(name, out, size, fill, dtype, layout, device, requires_grad):
    """Implements out= of zeros, ones, full and empty: resizes `out` and fills it in its own dtype.
    """
    agree(name, out, dtype, layout, device)
    if out._sizes != size:
        resize(out, size)
    if fill is not None:
        out.fill_(fill)
    return required(out, requires_grad)


def required(out, requires_grad):
    """Sets requires_grad of a creation function's out= and returns it."""
    if requires_grad:
        set_requires_grad(out, True)
    return out


@register_op(method=False)
def zeros(*args, size=None, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False):
    """Returns a tensor filled with 0."""
    size = new_size("zeros", args, size)
    if out is not None:
        return into("zeros", out, size, 0, dtype, layout, device, requires_grad)
    if device is None and layout is None and _device._default is CPU:
        on = CPU
    elif layout is not None and repr(layout).startswith("torch.sparse_"):
        return sparse.without_elements(size, dtype, layout, device, requires_grad)
    else:
        on = resolve_device("zeros", dtype, device, layout)
    t = zeros_(size=size, stride=None, np_dtype=dtypes.default_np() if dtype is None else as_np(dtype), device=on)
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)


@register_op(method=False)
def ones(*args, size=None, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False):
    """Returns a tensor filled with 1."""
    size = new_size("ones", args, size)
    if out is not None:
        return into("ones", out, size, 1, dtype, layout, device, requires_grad)
    on = CPU if device is None and layout is None and _device._default is CPU else resolve_device("ones", dtype, device, layout)
    t = full_(size=size, stride=None, value=1, np_dtype=dtypes.default_np() if dtype is None else as_np(dtype), device=on)
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)


@register_op(method=False)
def empty(*args, size=None, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False, memory_format=None, requires_grad=False):
    """Returns an uninitialized tensor."""
    size = new_size("empty", args, size)
    if out is not None:
        out = into("empty", out, size, None, dtype, layout, device, requires_grad)
        return fill_uninitialized(out) if MODE.filling else out
    if device is None and layout is None and _device._default is CPU:
        on = CPU
    elif layout is not None and repr(layout).startswith("torch.sparse_"):
        return sparse.without_elements(size, dtype, layout, device, requires_grad)
    else:
        on = resolve_device("empty", dtype, device, layout)
    stride = None if memory_format is None else _format_stride("empty", size, memory_format)
    if on is not CPU and on.type == "meta" and stride is None:
        # meta tensors can have any size
        return meta.make(size, dtypes.default_np() if dtype is None else as_np(dtype), requires_grad)
    t = empty_(size=size, stride=stride, np_dtype=dtypes.default_np() if dtype is None else as_np(dtype), device=on)
    if MODE.filling:
        fill_uninitialized(t)
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)


def _format_stride(name, size, memory_format):
    fmt = format_name(memory_format)
    if fmt == "preserve":
        raise RuntimeError(f"{name}: unsupported memory format option Preserve")
    return stride_in(size, fmt)


def stride_in(size, fmt):
    """Returns the strides of a new tensor in a memory format; None for C order."""
    if fmt == "contiguous":
        return None
    check_rank(size, fmt)
    stride = layouts.format_strides(tuple(size), fmt)
    return None if stride == layouts.contiguous_strides(size) else stride


def stride_like(x, fmt="preserve"):
    """Returns the strides of a new tensor in the memory order of `x` (as empty_like) or in a memory
    format; None for C order."""
    if fmt != "preserve":
        return stride_in(x._sizes, fmt)
    if x._contiguous and not STRIDED.unusual_strides:
        return None
    stride = layouts.like_strides(x._sizes, x.stride())
    return None if stride == layouts.contiguous_strides(x._sizes) else stride


@register_op(method=False)
def full(size, fill_value: Scalar, *, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False):
    """Returns a tensor filled with one value. Without `dtype`, the kind of the value determines the
    dtype."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"full(): argument 'size' (position 1) must be tuple of ints, not {type_name(size)}")
    size = new_size("full", (size,), None)
    if out is not None:
        return into("full", out, size, fill_value, dtype, layout, device, requires_grad)
    d, on = resolve_dtype_device("full", dtype, device, layout)
    natural = fill_value._np_dtype if (fill_value.__class__ is Tensor or is_tensor(fill_value)) else None
    value = number_of("full", fill_value, "fill_value")
    if d is None:
        d = number_dtype(value) if natural is None else natural
    t = full_(size=size, stride=None, value=checked_convert(value, d), np_dtype=d, device=on)
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)


def like(name, input, dtype, layout, device, memory_format):
    """Returns (strides, element type, device) of a new tensor like `input`."""
    check_tensor(name, input)
    d, on = resolve_dtype_device(name, dtype, device, layout)
    return stride_like(input, format_name(memory_format)), input._np_dtype if d is None else d, input._device if device is None else on


@register_op(method=False, tags="linear_pointwise")
def zeros_like(input, *, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False, memory_format=None):
    """Returns a tensor of the size (and dtype) of input, filled with 0."""
    if dtype is None and memory_format is None and device is None and layout is None and (input.__class__ is Tensor
                                                                                          or is_tensor(input)) and input._contiguous and \
            not STRIDED.unusual_strides:
        stride, d, on = None, input._np_dtype, input._device
    else:
        stride, d, on = like("zeros_like", input, dtype, layout, device, memory_format)
    t = zeros_(size=input._sizes, stride=stride, np_dtype=d, device=on)
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)


@register_op(method=False, tags="pointwise")
def ones_like(input, *, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False, memory_format=None):
    """Returns a tensor of the size (and dtype) of input, filled with 1."""
    if dtype is None and memory_format is None and device is None and layout is None and (input.__class__ is Tensor
                                                                                          or is_tensor(input)) and input._contiguous and \
            not STRIDED.unusual_strides:
        stride, d, on = None, input._np_dtype, input._device
    else:
        stride, d, on = like("ones_like", input, dtype, layout, device, memory_format)
    t = full_(size=input._sizes, stride=stride, value=1, np_dtype=d, device=on)
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)


@register_op(method=False, tags="pointwise")
def full_like(input, fill_value: Scalar, *, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False, memory_format=None):
    """Returns a tensor of the size (and dtype) of input, filled with one value."""
    stride, d, on = like("full_like", input, dtype, layout, device, memory_format)
    value = checked_convert(number_of("full_like", fill_value, "fill_value"), d)
    return finalize_new(full_(size=input._sizes, stride=stride, value=value, np_dtype=d, device=on), requires_grad, on)


@register_op(method=False, tags="pointwise")
def empty_like(input, *, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False, memory_format=None):
    """Returns an uninitialized tensor of the size (and dtype) of input."""
    stride, d, on = like("empty_like", input, dtype, layout, device, memory_format)
    t = empty_(size=input._sizes, stride=stride, np_dtype=d, device=on)
    if MODE.filling:
        fill_uninitialized(t)
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)


@register_op(method=False)
def empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False):
    """Returns an uninitialized tensor of the given size and strides (in elements)."""
    d, on = resolve_dtype_device("empty_strided", dtype, device, layout)
    return finalize_new(_empty_strided(size, stride, dtypes.default_np() if d is None else d, on), requires_grad, on)


def _empty_strided(size, stride, d, on):
    size, stride = ints_of("empty_strided", size, "size"), ints_of("empty_strided", stride, "stride")
    if len(size) != len(stride):
        raise RuntimeError(f"dimensionality of sizes ({len(size)}) must match dimensionality of strides "
                           f"({len(stride)})")
    if any(n < 0 for n in chain(size, stride)):
        raise RuntimeError(f"empty_strided: negative sizes or strides are not supported, got {list(size)} and "
                           f"{list(stride)}")
    span = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))
    check_extent(size if span >> 59 == 0 else (span,))
    if on.type == "meta":
        return meta.strided(size, stride, span, d)
    t = empty_strided_(size=size, stride=stride, span=span, np_dtype=d, device=on)
    return fill_uninitialized(t) if MODE.filling else t


@register_op(method=False)
def empty_permuted(size, physical_layout, *, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False):
    """Returns an uninitialized tensor whose dimensions are laid out in memory in the given order,
    outermost first."""
    d, on = resolve_dtype_device("empty_permuted", dtype, device, layout)
    size, order = ints_of("empty_permuted", size, "size"), ints_of("empty_permuted", physical_layout, "physical_layout")
    if len(size) != len(order):
        raise RuntimeError("Number of dimensions in size does not match the length of the physical_layout; i.e. "
                           f"len(size) = {len(size)} is "
                           f"not equal to len(physical_layout) = {len(order)}")
    if sorted(order) != list(range(len(size))):
        raise RuntimeError(f"Dimension out of range or duplicate dim in physical_layout {list(order)}")
    stride = layouts.ordered_strides(size, order)
    t = empty_(size=size, stride=None if stride == layouts.contiguous_strides(size) else stride, np_dtype=dtypes.default_np() if d is None else d,
               device=on)
    if MODE.filling:
        fill_uninitialized(t)
    return finalize_new(t, requires_grad, on)


# ------------------------------------------------------------------ new_*
def _new(name, fill):
    def method(self, *args, size=None, dtype=None, device=None, requires_grad=False, layout=None, pin_memory: Bool = False):
        n = new_size(name, args, size)
        on = resolve_device(name, dtype, device, layout)
        d = self._np_dtype if dtype is None else as_np(dtype)
        if device is None:
            on = self._device
        if fill == 0:
            t = zeros_(size=n, stride=None, np_dtype=d, device=on)
        elif fill is None:
            t = empty_(size=n, stride=None, np_dtype=d, device=on)
            if MODE.filling:
                fill_uninitialized(t)
        else:
            t = full_(size=n, stride=None, value=fill, np_dtype=d, device=on)
        return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)

    content = "uninitialized" if fill is None else f"filled with {fill}"
    method.__doc__ = f"Returns a tensor of self's dtype, {content}."
    register_op(method, name=name, function=False)


_new("new_zeros", 0)
_new("new_ones", 1)
_new("new_empty", None)


def _dtype_device_of(self, name, dtype, device, layout):
    d, on = resolve_dtype_device(name, dtype, device, layout)
    return self._np_dtype if d is None else d, self._device if device is None else on


@register_op(function=False)
def new_full(self, size, fill_value: Scalar, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory: Bool = False):
    """Returns a tensor of self's dtype, filled with one value."""
    n = new_size("new_full", (size,), None)
    d, on = _dtype_device_of(self, "new_full", dtype, device, layout)
    value = checked_convert(number_of("new_full", fill_value, "fill_value"), d)
    return finalize_new(full_(size=n, stride=None, value=value, np_dtype=d, device=on), requires_grad, on)


@register_op(function=False)
def new_empty_strided(self, size, stride, dtype=None, device=None, requires_grad=False, layout=None, pin_memory: Bool = False):
    """Returns an uninitialized tensor of self's dtype with the given strides."""
    d, on = _dtype_device_of(self, "new_empty_strided", dtype, device, layout)
    return finalize_new(_empty_strided(size, stride, d, on), requires_grad, on)


@register_op(function=False)
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory: Bool = False):
    """Returns a tensor of self's dtype with a copy of `data`."""
    d, on = _dtype_device_of(self, "new_tensor", dtype, device, layout)
    return finalize_new(copy_of(data, d) if (data.__class__ is Tensor or is_tensor(data)) else tensor_from(copied(data, d)), requires_grad, on)


# ------------------------------------------------------------------ legacy constructors
def legacy_tensor(d, args, kwargs=None, of=None):
    """Implements torch.Tensor(2, 3), torch.Tensor([1., 2.]), torch.LongTensor(...) and x.new(...):
    a tensor from sizes or data, in NumPy dtype `d`."""
    kwargs = dict(kwargs or {})
    device = kwargs.pop("device", None)
    if device is not None and getattr(device, "type", device) != "cpu":
        raise RuntimeError(f"legacy constructor expects device type: cpu but device type: {getattr(device, 'type', device)} was passed")
    resolve_dtype("Tensor", None, "cpu", kwargs.pop("layout", None))
    data = kwargs.pop("data", None)
    if data is not None:
        args = (data,)
    if "size" in kwargs:
        args = (Size(kwargs.pop("size")),)
    if kwargs:
        raise TypeError(f"new() got an unexpected keyword argument '{next(iter(kwargs))}'")
    if not args:
        return empty_(size=(0,), stride=None, np_dtype=d, device=CPU)
    x = args[0]
    if len(args) == 1:
        if x.__class__ is Tensor or is_tensor(x):
            if of is not None and x._np_dtype != of:
                raise TypeError(f"expected a tensor of type {scalar_type_name(of)} (got {scalar_type_name(x._np_dtype)})")
            return detached(x)
        if isinstance(x, _tensor.MSTensor):
            return adopt(x)
        if is_array(x):
            return cast(tensor_from(usable(x)), d)
        if isinstance(x, Size):
            return _uninitialized(tuple(x), d)
        if isinstance(x, (str, bytes)):
            raise TypeError(f"new(): invalid data type '{type(x).__name__}'")
        if x.__class__ in from_data.STORAGES:
            return hooks.tensor_of_storage(x, of_np(d), 0, None, None)
        if is_sequence(x):
            return tensor_from(array_of(x, d))
        if isinstance(x, (float, complex)):
            raise TypeError(f"new(): data must be a sequence (got {type(x).__name__})")
    return _uninitialized(new_size("new", args, None), d)


def _uninitialized(size, d):
    t = empty_(size=size, stride=None, np_dtype=d, device=CPU)
    return fill_uninitialized(t) if MODE.filling else t


def _legacy(*args, **kwargs):
    return legacy_tensor(dtypes.default_np(), args, kwargs)


def _new_method(self, *args, **kwargs):
    """Legacy: returns a tensor of self's dtype from sizes or data."""
    t = legacy_tensor(self._np_dtype, args, kwargs, self._np_dtype)
    return t if self._handle is None or t._handle is not None else t.to(self._device)


Tensor.new = _new_method


# ------------------------------------------------------------------ ranges
def _range_number(name, x):
    """Returns (Python scalar, whether it is an integer) for a start, end or step of a range."""
    if x.__class__ is int:
        return x, True
    if x.__class__ is float:
        return x, False
    x = number_of(name, x)
    kind = number_dtype(x).kind
    if kind == "c":
        raise RuntimeError("value cannot be converted to type double without overflow")
    return (int(x), True) if kind in "biu" else (float(x), False)


def _out_dtype_device(name, dtype, device, layout, out):
    """Returns the requested (element type or None, device); out= determines both."""
    if out is None:
        return resolve_dtype_device(name, dtype, device, layout)
    agree(name, out, dtype, layout, device)
    return out._np_dtype, out._device


def _range_args(name, start, end, step, dtype, device, layout, out):
    d, on = _out_dtype_device(name, dtype, device, layout, out)
    (start, i), (end, j), (step, k) = _range_number(name, start), _range_number(name, end), _range_number(name, step)
    all_int = i and j and k
    if step == 0 or step != step:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if step > 0 and end < start or step < 0 and end > start:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    check_extent((int((end - start) / step),))
    return start, end, step, d, all_int, on


@register_op(method=False)
def arange(start: Scalar = 0, end: Scalar = None, step: Scalar = 1, *, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False,
           requires_grad=False):
    """start, start + step, ... below end; int64 if all three are integers, else the default dtype.
    """
    if end is None:
        start, end = 0, start
    if start.__class__ is int and end.__class__ is int and step.__class__ is int and step == 1 and dtype is None and device is None and \
            0 <= end - start < 1 << 59 and out is None:
        on = _device._default
        t = arange_(start=start, step=1, steps=end - start, np_dtype=I64, device=on)
        return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)
    start, end, step, d, all_int, on = _range_args("arange", start, end, step, dtype, device, layout, out)
    if d is None:
        d = I64 if all_int else dtypes.default_np()
    if d.kind in "bc":
        raise not_implemented("arange", on, dtype=d)
    if d == I64 and not all_int:
        # PyTorch computes int64 ranges in integers
        start, end, step, all_int = int(start), int(end), int(step), True
        if not step:
            raise ValueError("step must be nonzero")
    n = -((start - end) // step) if all_int else math.ceil((end - start) / step)
    return _write_out(out, arange_(start=start, step=step, steps=_check_out_count(out, max(int(n), 0)), np_dtype=d, device=on), requires_grad, on)


def _write_out(out, t, requires_grad, on):
    """Returns the result, or writes it to out=, which keeps its shape (and strides) if it has as
    many elements and becomes 1-D otherwise."""
    if out is None:
        return finalize_new(t, requires_grad, on)
    if out._numel != t._numel:
        resize(out, t._sizes)
    return required(out.copy_(t if out.ndim == 1 else t.reshape(out._sizes)), requires_grad)


def _check_out_count(out, n):
    if out is not None and out._numel and out._numel != n:
        warnings.warn(f"The number of elements in the out tensor of shape {list(out._sizes)} is {out._numel} which does not match the computed "
                      f"number of elements {n}. Note that this may occur as a result of rounding error. The out tensor will be resized to a "
                      f"tensor of shape ({n},).", stacklevel=3)
    return n


@register_op(method=False, name="range")
def range_(start: Scalar = 0, end: Scalar = None, step: Scalar = 1, *, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False,
           requires_grad=False):
    """start, start + step, ... up to and including end. Deprecated: use arange."""
    warnings.warn("torch.range is deprecated and will be removed in a future release because its behavior is "
                  "inconsistent with Python's "
                  "range builtin. Instead, use torch.arange, which produces values in [start, end).", stacklevel=2)
    if end is None:
        start, end = 0, start
    start, end, step, d, _, on = _range_args("range", start, end, step, dtype, device, layout, out)
    d = dtypes.default_np() if d is None else d
    if d.kind in "bc":
        raise not_implemented("range", on, dtype=d)
    return _write_out(out, arange_(start=start, step=step, steps=int((end - start) / step) + 1, np_dtype=d, device=on), requires_grad, on)


def _space_args(name, start, end, steps, dtype, device, layout, out):
    d, on = _out_dtype_device(name, dtype, device, layout, out)
    for x in (start, end):
        if (x.__class__ is Tensor or is_tensor(x)) and x.ndim:
            raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors")
    try:
        steps = int_of(name, steps, "steps")
    except TypeError:
        raise TypeError(f"{name}() received an invalid combination of arguments: steps must be int, not "
                        f"{type(steps).__name__}") from None
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    start, end = number_of(name, start, "start"), number_of(name, end, "end")
    cplx = number_dtype(start).kind == "c" or number_dtype(end).kind == "c"
    if d is None:
        d = dtypes.default_complex_np() if cplx else dtypes.default_np()
    elif cplx and d.kind != "c":
        raise RuntimeError(f"torch.{name}(): inferred dtype {of_np(dtypes.default_complex_np())} can't be safely cast "
                           f"to passed dtype {of_np(d)}")
    return start, end, steps, d, on


@register_op(method=False)
def linspace(start, end, steps: Int, *, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False):
    """`steps` evenly spaced values from start to end, both included."""
    start, end, steps, d, on = _space_args("linspace", start, end, steps, dtype, device, layout, out)
    return _write_out(out, linspace_(start=start, end=end, steps=steps, np_dtype=d, device=on), requires_grad, on)


@register_op(method=False)
def logspace(start, end, steps: Int, base: Float = 10.0, *, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False):
    """base to the power of `steps` evenly spaced exponents."""
    start, end, steps, d, on = _space_args("logspace", start, end, steps, dtype, device, layout, out)
    return _write_out(out, logspace_(start=start, end=end, steps=steps, base=base, np_dtype=d, device=on), requires_grad, on)


@register_op(method=False)
def eye(n: SymInt, m: SymInt = None, *, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False):
    """A matrix with 1 on the diagonal and 0 elsewhere."""
    n = int_of("eye", n, "n")
    m = n if m is None else int_of("eye", m, "m")
    for name, k in (("n", n), ("m", m)):
        if k < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {k}")
    check_extent((n, m))
    d, on = _out_dtype_device("eye", dtype, device, layout, out)
    if d is None:
        d = dtypes.default_np()
    t = eye_(n=n, m=m, np_dtype=d, device=on)
    if out is None:
        return finalize_new(t, requires_grad, on)
    if out._sizes != (n, m):
        resize(out, (n, m))
    return required(out.copy_(t), requires_grad)


# ------------------------------------------------------------------ complex tensors from parts
def _lazy_unary(name):
    return lambda g: getattr(sys.modules["mindtorch.ops.elementwise.unary"], name)(g)


_real, _imag = _lazy_unary("real"), _lazy_unary("imag")
complex_ = primitive("complex", "re, im", lambda ctx, grad: _real(grad), lambda ctx, grad: _imag(grad), raw=True, layout=pointwise)


def _times_conj(g, z):
    """Returns the real part of g * conj(z)."""
    return _real(mul_(g, conj(z)))


polar_ = primitive("polar", "abs, angle", lambda ctx, grad: _times_conj(grad, ctx.out.sgn()),
                   lambda ctx, grad: _times_conj(grad, mul_(ctx.out, ScalarOperand(1j, ctx.out._np_dtype))), raw=True, layout=pointwise)


def _complex_operands(name, a, b):
    check_tensor(name, a)
    check_tensor(name, b, "imag" if name == "complex" else "angle", 2)
    da, db = a._np_dtype, b._np_dtype
    if da.kind != "f" or db.kind != "f":
        raise RuntimeError(f"Expected both inputs to be Half, Float or Double tensors but got {scalar_type_name(da)} and "
                           f"{scalar_type_name(db)}")
    if da != db:
        raise RuntimeError(f"Expected object of scalar type {scalar_type_name(da)} but got scalar type {scalar_type_name(db)} for second "
                           "argument")
    if da == F16:
        raise not_implemented(name, a)


@register_op(out=SameDtype("Expected object of scalar type {want} but got scalar type {have} for argument 'out'"), method=False, name="complex",
             aten="complex.default")
def complex_op(real, imag):
    """Returns complex values with the given real and imaginary parts (float32 or float64 tensors of
    one dtype)."""
    _complex_operands("complex", real, imag)
    return complex_(real, imag)


@register_op(out=SameDtype("Expected object of scalar type {want} but got scalar type {have} for argument 'out'"), method=False, autocast="float32",
             aten="polar.default")
def polar(abs, angle):
    """Returns complex values with the given absolute values and angles (float32 or float64 tensors
    of one dtype)."""
    _complex_operands("polar", abs, angle)
    return polar_(abs, angle)
