"""Copies, dtype conversions, filled tensors and sums to a shape: the kernels that all others build
on."""
import math

import numpy as np

from mindtorch.backend.kernels import TABLES
from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import (STATE, stype_of, ASCEND, COMPLEX, DTYPES, FLOATING, G, UnsupportedByKernel, P, broadcast, cast, copied,
                                                       dtype_of,
                                                       from_contiguous, full, is_contiguous, kernel, mint, ms, op, reshape, shape_of,
                                                       stride_of)
from mindtorch.backend.mindspore.kernels._index_utils import write
from mindtorch.backend.mindspore.private import from_array
from mindtorch.backend.strides import check_rank, contiguous_strides, format_strides, is_dense, like_strides


# ------------------------------------------------------------------ copies
def _laid(a, strides):
    """Returns a copy with the given dense strides."""
    shape = shape_of(a)
    if strides == contiguous_strides(shape):
        return copied(a)
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], -shape[i]))
    back = sorted(range(len(shape)), key=order.__getitem__)
    return copied(a.permute(*order)).permute(*back)


@kernel("clone", empty=True)
def _clone(a):
    if is_contiguous(a):
        return copied(a)
    strides = tuple(stride_of(a))
    return _laid(a, strides) if is_dense(shape_of(a), strides) else copied(a)


kernel("detach_copy copies", lambda a: copied(a), empty=True)


@kernel("clone_format", empty=True)
def _clone_format(a, *, fmt):
    shape = shape_of(a)
    if fmt == "contiguous" or fmt == "preserve" and is_contiguous(a):
        return copied(a)
    if fmt == "preserve":
        return _laid(a, like_strides(shape, tuple(stride_of(a))))
    check_rank(shape, fmt)
    return _laid(a, format_strides(shape, fmt))


def _converted(a, np_dtype):
    """Converts to a NumPy dtype by PyTorch's rules."""
    d = DTYPES[np_dtype]
    have = dtype_of(a)
    if d == have:
        return copied(a)
    if d is ms.bool_ and have in COMPLEX:
        return o.ne(a, 0)
    return cast(a, d)


@kernel("to_copy", empty=True)
def _to_copy(a, *, dtype):
    if is_contiguous(a):
        return _converted(a, dtype)
    strides = tuple(stride_of(a))
    if dtype == stype_of(a) or not is_dense(shape_of(a), strides):
        return _converted(_clone(a), dtype) if dtype != stype_of(a) else _clone(a)
    order = sorted(range(len(strides)), key=lambda i: -strides[i])
    return _converted(a.permute(*order), dtype).permute(*sorted(range(len(order)), key=order.__getitem__))


@kernel("to_copy_format", empty=True)
def _to_copy_format(a, *, dtype, fmt):
    return _clone_format(a if dtype is None or dtype == stype_of(a) else _to_copy(a, dtype=dtype), fmt=fmt)


@kernel("copy", empty=True)
def _copy_of(a, src):
    """Returns `src` in the shape and dtype of a."""
    return _converted(broadcast(src, shape_of(a)), stype_of(a))


# ------------------------------------------------------------------ fills
kernel("new_full", lambda like, *, size, value, np_dtype: full(size, value, DTYPES[np_dtype]), empty=True)
kernel("fill", lambda a, value: copied(broadcast(value, shape_of(a))), empty=True)
kernel("zero", lambda a: full(shape_of(a), 0, dtype_of(a)), empty=True)


# ------------------------------------------------------------------ shapes
kernel("broadcast", lambda a, *, shape: full(shape, 0, dtype_of(a)) if 0 in shape else copied(broadcast(a, shape)), empty=True)


def _reduced(a, axes, keep=False):
    if ASCEND:
        return mint.sum(a, axes, keep)
    if axes == (0,) and shape_of(a)[0] > 64:  # as in `reduction.sums`
        r = _reduced(reshape(a, (1, *shape_of(a))), (0, 1))
        return r if not keep else reshape(r, (1, *shape_of(a)[1:]))
    if dtype_of(a) in FLOATING:
        # 17 us vs 36 us for ReduceSum; SumExt returns int64 for integers, hence only floating
        # dtypes
        return op(G.SumExt)(a, axes, keep, None)
    return op(P.ReduceSum, keep)(a, axes)


@kernel("sum_to_size")
def _sum_to(a, *, size):
    shape = shape_of(a)
    if dtype_of(a) is ms.bool_:
        raise UnsupportedByKernel
    lead = len(shape) - len(size)
    inner = tuple([i + lead for i, n in enumerate(size) if n == 1 and shape[i + lead] != 1])
    if not inner:
        return _reduced(a, tuple(range(lead))) if lead else copied(a)
    if not lead:
        return _reduced(a, inner, True)
    return _reduced(a, (*range(lead), *inner)).view(tuple(size))


def _all(a):
    shape = shape_of(a)
    return _reduced(a, tuple(range(len(shape)))) if shape else copied(a)


@kernel("mean_elements sum_elements", only="float32 float64 int64 int32 complex64 complex128" + (" float16 bfloat16" if ASCEND else ""))
def _total(a, *, mean):
    r = _all(a)
    return o.div(r, math.prod(shape_of(a))) if mean else r


@kernel("expand_elements")
def _expand_elements(g, *, shape, mean):
    if 0 in shape:
        raise UnsupportedByKernel
    n = math.prod(shape)
    return copied(broadcast(o.div(g, n) if mean and n > 1 else g, shape))


# ------------------------------------------------------------------ gradients
#
# `mindtorch/core/autograd/accumulate_grad.py` calls these directly: no operand is upcast.
kernel("gradient_sum", lambda a, b: o.add(a, b))


@kernel("gradient_accumulate")
def _accumulate(a, b):
    """Computes a += b in place."""
    if ASCEND and STATE.on is None:
        a.add_(b)
    elif 0 not in shape_of(a):
        write(a, o.add(a, b))


# ------------------------------------------------------------------ creation
def _as_wanted(h, size, stride):
    """Returns `h` in the requested dense strides."""
    return h if stride is None or tuple(stride) == contiguous_strides(tuple(size)) else _laid(h, tuple(stride))


def _host(size, stride, np_dtype, value=None):
    """Allocates in host memory, which MindSpore's CPU target uses."""
    if stride is None or tuple(stride) == contiguous_strides(tuple(size)):
        return from_contiguous(np.empty(size, np_dtype)) if value is None else full(size, value, DTYPES[np_dtype])
    order = sorted(range(len(size)), key=lambda i: (-stride[i], -size[i]))
    r = _host([size[i] for i in order], None, np_dtype, value)
    return r.permute(*sorted(range(len(order)), key=order.__getitem__))


@kernel("empty", empty=True)
def _empty(*, size, stride, np_dtype, device):
    return _host(size, stride, np_dtype) if not ASCEND else _as_wanted(mint.empty(tuple(size), dtype=DTYPES[np_dtype], device="Ascend"), size, stride)


@kernel("zeros", empty=True)
def _zeros(*, size, stride, np_dtype, device):
    return _host(size, stride, np_dtype, 0) if not ASCEND else _as_wanted(mint.zeros(tuple(size), dtype=DTYPES[np_dtype]), size, stride)


@kernel("full", empty=True, varying="value")
def _full(*, size, stride, value, np_dtype, device):
    return _host(size, stride, np_dtype, value) if not ASCEND else _as_wanted(full(size, value, DTYPES[np_dtype]), size, stride)


@kernel("empty_strided", target="CPU", empty=True)
def _empty_strided(*, size, stride, span, np_dtype, device):
    if not span:
        return from_contiguous(np.empty(size, np_dtype))
    k = np_dtype.itemsize
    return from_array(np.ndarray(size, np_dtype, np.empty(span, np_dtype), 0, [s * k for s in stride]))


def _ready_made(name):
    """Registers the host kernel for MindSpore's CPU target. It creates the values in the memory
    where they stay, without a copy."""
    make = TABLES["cpu"][name]

    @kernel(name, target="CPU", empty=True)
    def f(**constants):
        return from_contiguous(np.ascontiguousarray(make(**constants)))


for _name in ("arange", "linspace", "logspace", "eye"):
    _ready_made(_name)


@kernel("linspace", target="Ascend")
def _linspace(*, start, end, steps, np_dtype, device):
    if np_dtype.kind not in "fV" or not steps:
        raise UnsupportedByKernel
    return mint.linspace(start, end, steps, dtype=DTYPES[np_dtype])


@kernel("eye", target="Ascend")
def _eye(*, n, m, np_dtype, device):
    if np_dtype.kind == "c" or np_dtype.kind == "u" and np_dtype.itemsize > 1 or np_dtype == np.float64:
        raise UnsupportedByKernel  # aclnnEye does not support these dtypes
    return mint.eye(n, m, dtype=DTYPES[np_dtype])
