"""Ops that make tensors: from Python data and arrays, filled ones, ranges, complex numbers out of parts."""
import math
import sys
import warnings
from itertools import chain

import numpy as np

from mindtorch.backend.cpu.host import quiet
from mindtorch.core import dtypes, tensor as _tensor
from mindtorch.core.alias import title
from mindtorch.core.dtypes import C128, F32, F64, I64, as_np, bfloat16_np, of_np
from mindtorch.core.foreign import type_name
from mindtorch.core.promote import number_dtype
from mindtorch.core.table import check_extent, op, resize, store_out
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Const, Size, Tensor, adopt, detached, wrap
from mindtorch.ops._checks import need_tensor, unsupported
from mindtorch.ops.creation._from_data import array_of, convert, copied, finish, is_sequence, place, usable
from mindtorch.ops._numbers import number_as, number_of
from mindtorch.core.layout import STRIDED, noted
from mindtorch.ops.shapes._sizes import copy_as, empty_as, format_name, int_of, ints_of, size_of
from mindtorch.backend.cpu.basic import cast_array
from mindtorch.ops.basic import conj, mul_



# ------------------------------------------------------------------ common arguments
def new_size(name, args, size):
    """Size of a new tensor, given as f(2, 3), f((2, 3)) or f(size=...)."""
    if size is not None:
        args = (size,)
    elif not args:
        raise TypeError(f"{name}() missing 1 required positional arguments: \"size\"")
    if len(args) == 1 and isinstance(args[0], float):
        raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, not float")
    n = size_of(name, args)
    if n and min(n) < 0:
        raise RuntimeError(f"{name}: Dimension size must be non-negative.")
    if math.prod(n) >> 59:
        check_extent(n)
    return n


# ------------------------------------------------------------------ filled tensors
def _into(name, out, size, fill):
    """out= of zeros, ones, full, empty: resized and filled in its own dtype."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type_name(out)}")
    if out._sizes != size:
        resize(out, size)
    return out if fill is None else out.fill_(fill)


def _out_dtype(name, dtype, out):
    if out is not None and dtype is not None and as_np(dtype) != out._stype:
        raise RuntimeError(f"dtype {of_np(as_np(dtype))} does not match dtype of out parameter ({out.dtype})")


@op(method=False)
def zeros(*args, size=None, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A tensor full of 0."""
    size = new_size("zeros", args, size)
    if out is not None:
        _out_dtype("zeros", dtype, out)
        return _into("zeros", out, size, 0)
    d = place("zeros", dtype, device, layout)
    return finish(np.zeros(size, dtypes.default_np() if d is None else d), requires_grad, device)


@op(method=False)
def ones(*args, size=None, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A tensor full of 1."""
    size = new_size("ones", args, size)
    if out is not None:
        _out_dtype("ones", dtype, out)
        return _into("ones", out, size, 1)
    d = place("ones", dtype, device, layout)
    return finish(np.ones(size, dtypes.default_np() if d is None else d), requires_grad, device)


@op(method=False)
def empty(*args, size=None, out=None, dtype=None, layout=None, device=None, pin_memory=False, memory_format=None, requires_grad=False):
    """A tensor whose elements are yet to be written."""
    size = new_size("empty", args, size)
    if out is not None:
        return _into("empty", out, size, None)
    d = place("empty", dtype, device, layout)
    d = dtypes.default_np() if d is None else d
    if memory_format is None:
        return finish(np.empty(size, d), requires_grad, device)
    return finish(_empty_format("empty", size, d, memory_format), requires_grad, device)


def _empty_format(name, size, d, memory_format):
    fmt = format_name(memory_format)
    if fmt == "preserve":
        raise RuntimeError(f"{name}: unsupported memory format option Preserve")
    return empty_as(None, size, d, fmt)


@op(method=False)
def full(size, fill_value, *, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A tensor full of one value, whose kind gives the dtype unless one is asked for."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"full(): argument 'size' (position 1) must be tuple of ints, not {type_name(size)}")
    size = new_size("full", (size,), None)
    if out is not None:
        return _into("full", out, size, fill_value)
    d = place("full", dtype, device, layout)
    natural = fill_value._stype if isinstance(fill_value, Tensor) else None
    value = number_of("full", fill_value, "fill_value")
    if d is None:
        d = number_dtype(value) if natural is None else natural
    return finish(np.full(size, number_as(value, d), d), requires_grad, device)


def _like(name, input, dtype, layout, device, memory_format):
    need_tensor(name, input)
    d = place(name, dtype, device, layout)
    a = input._a
    return empty_as(a, None, a.dtype if d is None else d, format_name(memory_format))


@op(method=False)
def zeros_like(input, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None):
    """A tensor of the size (and dtype) of input, full of 0."""
    if dtype is None and memory_format is None and device is None and layout is None:
        need_tensor("zeros_like", input)
        a = input._a
        if a.flags.c_contiguous and not STRIDED.odd:
            return finish(np.zeros(a.shape, a.dtype), requires_grad, input._dev if device is None else device)
    a = _like("zeros_like", input, dtype, layout, device, memory_format)
    a.fill(np.zeros((), a.dtype))
    return finish(a, requires_grad, input._dev if device is None else device)


@op(method=False)
def ones_like(input, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None):
    """A tensor of the size (and dtype) of input, full of 1."""
    if dtype is None and memory_format is None and device is None and layout is None:
        need_tensor("ones_like", input)
        a = input._a
        if a.flags.c_contiguous and not STRIDED.odd and a.dtype.kind != "V":
            return finish(np.ones(a.shape, a.dtype), requires_grad, input._dev if device is None else device)
    a = _like("ones_like", input, dtype, layout, device, memory_format)
    a.fill(number_as(1, a.dtype))
    return finish(a, requires_grad, input._dev if device is None else device)


@op(method=False)
def full_like(input, fill_value, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None):
    """A tensor of the size (and dtype) of input, full of one value."""
    a = _like("full_like", input, dtype, layout, device, memory_format)
    a.fill(number_as(number_of("full_like", fill_value, "fill_value"), a.dtype))
    return finish(a, requires_grad, input._dev if device is None else device)


@op(method=False)
def empty_like(input, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None):
    """A tensor of the size (and dtype) of input, whose elements are yet to be written."""
    return finish(_like("empty_like", input, dtype, layout, device, memory_format), requires_grad, input._dev if device is None else device)


@op(method=False)
def empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A tensor of the given size and strides (in elements), whose elements are yet to be written."""
    d = place("empty_strided", dtype, device, layout)
    return finish(_empty_strided(size, stride, dtypes.default_np() if d is None else d), requires_grad, device)


def _empty_strided(size, stride, d):
    size, stride = ints_of("empty_strided", size, "size"), ints_of("empty_strided", stride, "stride")
    if len(size) != len(stride):
        raise RuntimeError(f"dimensionality of sizes ({len(size)}) must match dimensionality of strides "
                           f"({len(stride)})")
    if any(n < 0 for n in chain(size, stride)):
        raise RuntimeError(f"empty_strided: negative sizes or strides are not supported, got {list(size)} and "
                           f"{list(stride)}")
    k = d.itemsize
    span = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))
    check_extent(size if span >> 59 == 0 else (span,))
    if not span:
        return np.empty(size, d)
    return noted(np.ndarray(size, d, np.empty(span, d), 0, [s * k for s in stride]))


@op(method=False)
def empty_permuted(size, physical_layout, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A tensor whose dimensions lie in memory in the given order, outermost first; its elements are yet to be written."""
    d = place("empty_permuted", dtype, device, layout)
    size, order = ints_of("empty_permuted", size, "size"), ints_of("empty_permuted", physical_layout, "physical_layout")
    if len(size) != len(order):
        raise RuntimeError("Number of dimensions in size does not match the length of the physical_layout; i.e. "
                           f"len(size) = {len(size)} is "
                           f"not equal to len(physical_layout) = {len(order)}")
    if sorted(order) != list(range(len(size))):
        raise RuntimeError(f"Dimension out of range or duplicate dim in physical_layout {list(order)}")
    a = np.empty([size[i] for i in order], dtypes.default_np() if d is None else d)
    return finish(a.transpose(sorted(range(len(order)), key=order.__getitem__)), requires_grad, device)


# ------------------------------------------------------------------ new_*
def _new(name, fill):
    def method(self, *args, size=None, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
        n = new_size(name, args, size)
        d = place(name, dtype, device, layout)
        d = self._stype if d is None else d
        a = np.empty(n, d) if fill is None else np.zeros(n, d) if fill == 0 else np.full(n, number_as(fill, d), d)
        return finish(a, requires_grad, self._dev if device is None else device)

    method.__doc__ = f"A tensor of this one's dtype {'full of ' + str(fill) if fill is not None else 'whose elements are yet to be written'}."
    op(method, name=name, function=False)


_new("new_zeros", 0)
_new("new_ones", 1)
_new("new_empty", None)


@op(function=False)
def new_full(self, size, fill_value, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    """A tensor of this one's dtype full of one value."""
    n = new_size("new_full", (size,), None)
    d = place("new_full", dtype, device, layout)
    d = self._stype if d is None else d
    a = np.full(n, number_as(number_of("new_full", fill_value, "fill_value"), d), d)
    return finish(a, requires_grad, self._dev if device is None else device)


@op(function=False)
def new_empty_strided(self, size, stride, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    """A tensor of this one's dtype with the given strides, whose elements are yet to be written."""
    d = place("new_empty_strided", dtype, device, layout)
    return finish(_empty_strided(size, stride, self._stype if d is None else d), requires_grad, self._dev if device is None else device)


@op(function=False)
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    """A tensor of this one's dtype with a copy of `data`."""
    d = place("new_tensor", dtype, device, layout)
    d = self._stype if d is None else d
    if isinstance(data, Tensor):
        return finish(copy_as(data._a) if data._stype == d else cast_array(data._a, d), requires_grad, self._dev if device is None else device)
    return finish(copied(data, d), requires_grad, self._dev if device is None else device)


# ------------------------------------------------------------------ legacy constructors
def legacy_tensor(d, args, kwargs=None, of=None):
    """torch.Tensor(2, 3), torch.Tensor([1., 2.]), torch.LongTensor(...), x.new(...): sizes or data, in NumPy dtype `d`."""
    kwargs = dict(kwargs or {})
    device = kwargs.pop("device", None)
    if device is not None and getattr(device, "type", device) != "cpu":
        raise RuntimeError(f"legacy constructor expects device type: cpu but device type: {getattr(device, 'type', device)} was passed")
    place("Tensor", None, "cpu", kwargs.pop("layout", None))
    data = kwargs.pop("data", None)
    if data is not None:
        args = (data,)
    if "size" in kwargs:
        args = (Size(kwargs.pop("size")),)
    if kwargs:
        raise TypeError(f"new() got an unexpected keyword argument '{next(iter(kwargs))}'")
    if not args:
        return wrap(np.empty(0, d))
    x = args[0]
    if len(args) == 1:
        if isinstance(x, Tensor):
            if of is not None and x._stype != of:
                raise TypeError(f"expected a tensor of type {title(of)} (got {title(x._stype)})")
            return detached(x)
        if isinstance(x, _tensor.MSTensor):
            return adopt(x)
        if isinstance(x, np.ndarray):
            a = usable(x)
            return wrap(a if a.dtype == d else cast_array(a, d))
        if isinstance(x, Size):
            return wrap(np.empty(x, d))
        if isinstance(x, (str, bytes)):
            raise TypeError(f"new(): invalid data type '{type(x).__name__}'")
        if is_sequence(x):
            return wrap(array_of(x, d))
        if isinstance(x, (float, complex)):
            raise TypeError(f"new(): data must be a sequence (got {type(x).__name__})")
        if hasattr(x, "_untyped_storage") or hasattr(x, "untyped"):
            from mindtorch.ops.indexing import _writes
            if _writes.array_of_storage is not None:
                return wrap(_writes.array_of_storage(x, of_np(d), 0, None, None))
    return wrap(np.empty(new_size("new", args, None), d))


def _legacy(*args, **kwargs):
    return legacy_tensor(dtypes.default_np(), args, kwargs)


_tensor._legacy_constructor = _legacy


def _new_method(self, *args, **kwargs):
    """Legacy: a tensor of this one's dtype out of sizes or data."""
    return legacy_tensor(self._stype, args, kwargs)


Tensor.new = _new_method


# ------------------------------------------------------------------ ranges
def _range_number(name, x):
    """(Python number, is it an integer) of an end of a range."""
    if x.__class__ is int:
        return x, True
    x = number_of(name, x)
    if isinstance(x, (complex, np.complexfloating)):
        raise RuntimeError("value cannot be converted to type double without overflow")
    if isinstance(x, (bool, np.bool_, int, np.integer)):
        return int(x), True
    return float(x), False


def _range_args(name, start, end, step, dtype, device, layout):
    d = place(name, dtype, device, layout)
    (start, i), (end, j), (step, k) = _range_number(name, start), _range_number(name, end), _range_number(name, step)
    whole = i and j and k
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if step > 0 and end < start or step < 0 and end > start:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    check_extent((int((end - start) / step),))
    return start, end, step, d, whole


def _steps(start, step, n, d):
    """start + step * i as torch's vectorised loop rounds it."""
    if d.kind in "iu":
        return np.arange(n, dtype=np.int64).__mul__(int(step)).__add__(int(start)).astype(d)
    i = np.arange(n, dtype=np.float64)
    k = {4: 8, 2: 16}.get(d.itemsize, n + 1)
    # Vector registers, taken in pairs: the first value of each is rounded to the dtype, then the others are counted from it.
    m = n // (2 * k) * 2 * k
    first = convert(start + step * i[:m:k], d).astype(F64)
    head = (first[:, None] + step * i[:k]).reshape(-1) if m else i[:0]
    return convert(np.concatenate((head, start + step * i[m:])), d)


@op(method=False)
def arange(start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """start, start + step, ... below end; int64 if all three are integers, else the default dtype."""
    if end is None:
        start, end = 0, start
    if start.__class__ is int and end.__class__ is int and step == 1 and dtype is None and device is None and 0 <= end - start < 1 << 59 and out is None:
        return finish(np.arange(start, end), requires_grad, device)
    start, end, step, d, whole = _range_args("arange", start, end, step, dtype, device, layout)
    if d is None:
        d = out._stype if out is not None else I64 if whole else dtypes.default_np()
    if d.kind in "bc":
        raise unsupported("arange", d)
    if d == I64 and not whole:
        start, end, step, whole = int(start), int(end), int(step), True     # torch counts int64 ranges in integers alone
        if not step:
            raise RuntimeError("step must be nonzero")
    n = -((start - end) // step) if whole else math.ceil((end - start) / step)
    return _range_out("arange", out, _steps(start, step, max(int(n), 0), d), requires_grad, device)


def _range_out(name, out, a, requires_grad, device):
    return finish(a, requires_grad, device) if out is None else store_out(name, out, wrap(a))


@op(method=False, name="range")
def range_(start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """start, start + step, ... up to and including end (deprecated: arange)."""
    warnings.warn("torch.range is deprecated and will be removed in a future release because its behavior is "
                  "inconsistent with Python's "
                  "range builtin. Instead, use torch.arange, which produces values in [start, end).", stacklevel=2)
    if end is None:
        start, end = 0, start
    start, end, step, d, _ = _range_args("range", start, end, step, dtype, device, layout)
    d = dtypes.default_np() if d is None else d
    if d.kind in "bc":
        raise unsupported("range", d)
    return _range_out("range", out, _steps(start, step, int((end - start) / step) + 1, d), requires_grad, device)


def _ends(name, start, end, steps, dtype, device, layout):
    d = place(name, dtype, device, layout)
    for x in (start, end):
        if isinstance(x, Tensor) and x.ndim:
            raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors")
    try:
        steps = int_of(name, steps, "steps")
    except TypeError:
        raise TypeError(f"{name}() received an invalid combination of arguments: steps must be int, not "
                        f"{type(steps).__name__}") from None
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    start, end = number_of(name, start, "start"), number_of(name, end, "end")
    cplx = isinstance(start, (complex, np.complexfloating)) or isinstance(end, (complex, np.complexfloating))
    if d is None:
        d = dtypes.default_complex_np() if cplx else dtypes.default_np()
    elif cplx and d.kind != "c":
        raise RuntimeError(f"torch.{name}(): inferred dtype {of_np(dtypes.default_complex_np())} can't be safely cast "
                           f"to passed dtype {of_np(d)}")
    return start, end, steps, d


def _even(start, end, steps, d):
    """Evenly spaced values, counted from the nearer end as torch does."""
    work = {"i": F64, "u": F64, "V": F32, "b": F64}.get(d.kind, d)
    if d == np.float16:
        work = F32
    if d.kind in "iu":
        start, end = int(start), int(end)
    start, end = np.array(start, work)[()], np.array(end, work)[()]
    if steps == 1:
        return np.array([start], work)
    if d.itemsize == 2 and d.kind in "fV":
        return _even_low(start, end, steps, d)
    step = (end - start) / np.array(steps - 1, work.type(0).real.dtype)[()]
    i = np.arange(steps)
    half = steps // 2
    # In a wider dtype: torch multiplies and adds with one rounding.
    wide = np.dtype(np.longdouble) if work == F64 else F64 if work == F32 else work
    start, end, step, i = np.array(start, wide), np.array(end, wide), np.array(step, wide), i.astype(wide)
    return np.concatenate((start + step * i[:half], end - step * (steps - 1 - i[half:]))).astype(work)


def _even_low(start, end, steps, d):
    """_even in a 16-bit dtype: every operation is rounded to it."""
    def rounded(x):
        return np.asarray(x, F32).astype(d).astype(F32)

    start, end = rounded(start), rounded(end)
    step = rounded(rounded(end - start) / rounded(np.float32(steps - 1)))
    i = np.arange(steps, dtype=F32)
    half = steps // 2
    return np.concatenate((rounded(start + rounded(step * i[:half])), rounded(end - rounded(step * (steps - 1 - i[half:])))))


@op(method=False)
@quiet
def linspace(start, end, steps, *, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """`steps` evenly spaced values from start to end, both included."""
    start, end, steps, d = _ends("linspace", start, end, steps, dtype if out is None or dtype is not None else out.dtype, device, layout)
    a = np.empty(0, d) if not steps else _even(start, end, steps, d)
    return _range_out("linspace", out, a.astype(np.int64).astype(d) if d.kind in "iu" else convert(a, d), requires_grad, device)


@op(method=False)
@quiet
def logspace(start, end, steps, base=10.0, *, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """base to the power of `steps` evenly spaced exponents."""
    start, end, steps, d = _ends("logspace", start, end, steps, dtype if out is None or dtype is not None else out.dtype, device, layout)
    wide = C128 if d.kind == "c" else F64
    a = np.empty(0, d) if not steps else np.power(np.array(base, wide), _even(start, end, steps, wide))
    return _range_out("logspace", out, a.astype(np.int64).astype(d) if d.kind in "iu" else convert(a, d), requires_grad, device)


@op(method=False)
def eye(n, m=None, *, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A matrix with 1 on the diagonal and 0 elsewhere."""
    n = int_of("eye", n, "n")
    m = n if m is None else int_of("eye", m, "m")
    for name, k in (("n", n), ("m", m)):
        if k < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {k}")
    check_extent((n, m))
    d = place("eye", dtype, device, layout)
    if d is None:
        d = out._stype if out is not None else dtypes.default_np()
    return _range_out("eye", out, np.eye(n, m, dtype=np.float32).astype(d) if d == bfloat16_np else np.eye(n, m, dtype=d), requires_grad, device)


# ------------------------------------------------------------------ complex numbers out of parts
@quiet
def _complex(re, im):
    r = np.empty(np.broadcast_shapes(re.shape, im.shape), np.complex64 if re.dtype == F32 else np.complex128)
    r.real, r.imag = re, im
    return r


def _part(name):
    return lambda g: getattr(sys.modules["mindtorch.ops.elementwise.unary"], name)(g)


_real, _imag = _part("real"), _part("imag")
complex_ = primitive("complex", _complex, lambda c, g: _real(g), lambda c, g: _imag(g), raw=True)


def _times_conj(g, z):
    """Real part of g * conj(z)."""
    return _real(mul_(g, conj(z)))


polar_ = primitive("polar", quiet(lambda abs, angle: _complex(abs * np.cos(angle), abs * np.sin(angle))),
                   lambda c, g: _times_conj(g, c.out.sgn()), lambda c, g: _times_conj(g, mul_(c.out, Const(1j, c.out._stype))), raw=True,
                   inputs="abs angle")


def _parts(name, a, b):
    need_tensor(name, a)
    need_tensor(name, b, "imag" if name == "complex" else "angle", 2)
    da, db = a._stype, b._stype
    if da.kind != "f" or db.kind != "f":
        raise RuntimeError(f"Expected both inputs to be Half, Float or Double tensors but got {title(da)} and "
                           f"{title(db)}")
    if da != db:
        raise RuntimeError(f"Expected object of scalar type {title(da)} but got scalar type {title(db)} for second "
                           "argument")
    if da == np.float16:
        raise unsupported(name, da)


@op(out=True, method=False, name="complex")
def complex_op(real, imag):
    """Complex numbers with the given real and imaginary parts (float32 or float64 tensors of one dtype)."""
    _parts("complex", real, imag)
    return complex_(real, imag)


@op(out=True, method=False)
def polar(abs, angle):
    """Complex numbers with the given absolute values and angles (float32 or float64 tensors of one dtype)."""
    _parts("polar", abs, angle)
    return polar_(abs, angle)
