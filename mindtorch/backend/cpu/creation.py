"""Kernels that create arrays from sizes and scalars: filled arrays, ranges, identity matrices;
complex numbers from parts.

Except for the complex ones, the kernels have no tensor operands. `size` is a tuple. `stride` has
the requested dense strides in elements (None: C order). `value` is a Python scalar that fits the
dtype. `device` only selects the kernel.
"""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.copies import MANY, fill, zeros
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.mindspore.private import bfloat16_np
from mindtorch.backend.strides import empty, noted

_F16, _F32, _F64, _I64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)


# ------------------------------------------------------------------ filled arrays
@kernel("empty")
def _empty(size, stride, np_dtype, device):
    return np.empty(size, np_dtype) if stride is None else empty(size, np_dtype, stride)


@kernel("empty_strided")
def _empty_strided(size, stride, span, np_dtype, device):
    """Returns an array with any strides on `span` elements of memory."""
    if not span:
        return np.empty(size, np_dtype)
    k = np_dtype.itemsize
    return noted(np.ndarray(size, np_dtype, np.empty(span, np_dtype), 0, [s * k for s in stride]))


@kernel("zeros")
def _zeros(size, stride, np_dtype, device):
    if stride is None:
        return zeros(size, np_dtype)
    r = empty(size, np_dtype, stride)
    fill(r, np.zeros((), np_dtype))
    return r


@kernel("full")
def _full(size, stride, value, np_dtype, device):
    r = np.empty(size, np_dtype) if stride is None else empty(size, np_dtype, stride)
    if r.nbytes < MANY and np_dtype.kind != "V":
        r.fill(value)
    else:
        fill(r, np.array(value, np_dtype) if np_dtype.kind != "V" else np.array(value, _F32).astype(np_dtype))
    return r


# ------------------------------------------------- dtype conversion by the rules of torch.tensor
def to_ints(a, d):
    """Converts an array to an integer dtype.

    Raises RuntimeError for values out of range. The range of unsigned dtypes includes the negated
    values.
    """
    if a.dtype == d:
        return a
    info = np.iinfo(d)
    if a.size and a.dtype.kind != "b":
        low, high = a.min(), a.max()
        if not (float(low) >= (-int(info.max) if d.kind == "u" else int(info.min)) and float(high) <= float(info.max)):
            raise RuntimeError(f"value cannot be converted to type {d.name} without overflow")
    if a.dtype.kind == "f":
        a = a.astype(_I64)
    return a.astype(d)


def convert(a, d):
    """Converts an array to a dtype that can hold its values; raises an error if it cannot."""
    if a.dtype == d:
        return a
    if d.kind in "iu":
        if a.dtype.kind == "c":
            raise TypeError("int() argument must be a real number, not 'complex'")
        return to_ints(a, d)
    if a.dtype.kind == "c" and d.kind in "fV":
        raise TypeError("must be real number, not complex")
    if d == bfloat16_np:
        return a.astype(_F32).astype(d)
    return a.astype(d)


# ------------------------------------------------------------------ ranges
@kernel("arange")
def _arange(start, step, steps, np_dtype, device):
    """Computes start + step * i, rounded like PyTorch's vectorized loop."""
    if np_dtype is _I64 and step == 1:
        return np.arange(start, start + steps)
    if np_dtype.kind in "iu":
        return np.arange(steps, dtype=_I64).__mul__(int(step)).__add__(int(start)).astype(np_dtype)
    i = np.arange(steps, dtype=_F64)
    k = {4: 8, 2: 16}.get(np_dtype.itemsize, steps + 1)
    # PyTorch processes vector registers in pairs. The first value of each register is rounded to
    # the dtype, and the others are computed from it.
    m = steps // (2 * k) * 2 * k
    first = convert(start + step * i[:m:k], np_dtype).astype(_F64)
    head = (first[:, None] + step * i[:k]).reshape(-1) if m else i[:0]
    return convert(np.concatenate((head, start + step * i[m:])), np_dtype)


def _even(start, end, steps, d):
    """Returns evenly spaced values, computed from the nearer end like in PyTorch."""
    work = {"i": _F64, "u": _F64, "V": _F32, "b": _F64}.get(d.kind, d)
    if d == _F16:
        work = _F32
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
    # In higher precision: PyTorch multiplies and adds with one rounding.
    upcast_dtype = np.dtype(np.longdouble) if work == _F64 else _F64 if work == _F32 else work
    start, end, step, i = np.array(start, upcast_dtype), np.array(end, upcast_dtype), np.array(step, upcast_dtype), i.astype(upcast_dtype)
    return np.concatenate((start + step * i[:half], end - step * (steps - 1 - i[half:]))).astype(work)


def _even_low(start, end, steps, d):
    """Like `_even`, for a 16-bit dtype: every operation is rounded to it."""
    def rounded(x):
        return np.asarray(x, _F32).astype(d).astype(_F32)

    start, end = rounded(start), rounded(end)
    step = rounded(rounded(end - start) / rounded(np.float32(steps - 1)))
    i = np.arange(steps, dtype=_F32)
    half = steps // 2
    return np.concatenate((rounded(start + rounded(step * i[:half])), rounded(end - rounded(step * (steps - 1 - i[half:])))))


def _as_dtype(a, np_dtype):
    return a.astype(_I64).astype(np_dtype) if np_dtype.kind in "iu" else convert(a, np_dtype)


@kernel("linspace")
@quiet
def _linspace(start, end, steps, np_dtype, device):
    return _as_dtype(np.empty(0, np_dtype) if not steps else _even(start, end, steps, np_dtype), np_dtype)


@kernel("logspace")
@quiet
def _logspace(start, end, steps, base, np_dtype, device):
    upcast_dtype = np.dtype(np.complex128) if np_dtype.kind == "c" else _F64
    return _as_dtype(np.empty(0, np_dtype) if not steps else np.power(np.array(base, upcast_dtype), _even(start, end, steps, upcast_dtype)), np_dtype)


@kernel("eye")
def _eye(n, m, np_dtype, device):
    return np.eye(n, m, dtype=_F32).astype(np_dtype) if np_dtype == bfloat16_np else np.eye(n, m, dtype=np_dtype)


# ------------------------------------------------------------------ complex numbers from parts
@quiet
def _complex(re, im):
    r = np.empty(np.broadcast_shapes(re.shape, im.shape), np.complex64 if re.dtype == _F32 else np.complex128)
    r.real, r.imag = re, im
    return r


kernel("complex", _complex)


@kernel("polar")
@quiet
def _polar(abs, angle):
    return _complex(abs * np.cos(angle), abs * np.sin(angle))
