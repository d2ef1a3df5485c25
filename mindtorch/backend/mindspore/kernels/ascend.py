"""Kernels only for Ascend, where the CPU target's kernel would compile an op online (aclop), copy
scalars from the host, or launch repeatedly.

Each is one launch of an aclnn kernel unless stated otherwise; views launch nothing.
"""
import math

import numpy as np

from mindtorch.backend.device import reserve_address_range
from mindtorch.backend.mindspore import aclnn
from mindtorch.backend.mindspore.kernels._call import (_Types, COMPLEX, DTYPES, G, UnsupportedByKernel, MSTensor, P, stype_of, dtype_of, is_contiguous,
                                                       cached_constants,
                                                       STATE, kernel, mint, ms, number, op, shape_of, stride_of)
from mindtorch.backend.mindspore.kernels.joining import fitting
from mindtorch.backend.mindspore.npu import UNSIGNED, Npu
from mindtorch.backend.strides import check_rank, contiguous_strides, format_strides, is_dense, like_strides

_memory = Npu("Ascend")
CUBE = "float32 float16 bfloat16"  # dtypes of the matrix unit
ALL_FLOATS = CUBE + " float64"
COMPLEXES = " complex64 complex128"


def tensor_of(x, like):
    """Returns a scalar as a 0-d tensor, cached on the device; a tensor is returned unchanged."""
    return x if isinstance(x, MSTensor) else number(x, dtype_of(like))


#: types of the aclScalars that are made of Python numbers, as torch_npu makes them
_SCALAR_TYPES = {float: aclnn.TYPES["float64"], int: aclnn.TYPES["int64"], bool: aclnn.TYPES["bool"]}


def scalar_argument(value):
    """Returns a Python number as an argument of kind `s` (`mindtorch/backend/mindspore/aclnn.py`)."""
    return value, _SCALAR_TYPES[value.__class__]


def named(kernel, kinds):
    """Returns the function that launches a kernel by its name (`aclnn.find`), or None: in graphs, and if
    it is unavailable."""
    return aclnn.find(kernel, kinds) if STATE.on is None else None


def new_like(x, shape=None):
    """Returns what `outputs` of a launch by name describes a tensor of x's dtype by."""
    return shape_of(x) if shape is None else tuple(shape), aclnn.TYPES[stype_of(x).name]


def empty(shape, dtype):
    """Returns uninitialized memory; no launch."""
    return op(G.Empty)(tuple(shape), dtype, "Ascend")


#: dtypes that only FillScalar supports
_UNSIGNED = _Types([DTYPES[s] for s in UNSIGNED])


def zeros(shape, dtype):
    return op(G.FillScalar)(tuple(shape), 0, dtype) if dtype in _UNSIGNED else op(G.Zeros)(tuple(shape), dtype)


def copy(x):
    """Copies the values to new storage, in C order."""
    return op(G.Copy)(x)


def strided(x, shape, strides, offset=0):
    """Returns a view of the memory of `x`; strides and offset are in elements, relative to the
    first element of `x`."""
    return op(G.AsStrided)(x, tuple(shape), tuple(strides), offset + x.storage_offset())


def swapped(x):
    """Returns a view with the last two dimensions exchanged."""
    return op(G.TransposeExtView)(x, -1, -2)


def ones(n, dtype):
    """Returns a cached vector of ones, for missing weights."""
    return _vector(n, dtype, 1)


def zeros_of(n, dtype):
    return _vector(n, dtype, 0)


@cached_constants(1024)
def _vector(n, dtype, value):
    return op(G.FillScalar)((n,), value, dtype)


def ascend(names, fn=None, **settings):
    return kernel(names, fn, target="Ascend", **settings)


def needed_only(grads, needs):
    """Returns the gradients that are needed, None for the others."""
    return tuple([g if wanted else None for g, wanted in zip(grads, needs)])


def ones_where(needs):
    """Returns 1 for each gradient that is needed, else 0, as gradient kernels expect."""
    return tuple([1 if n else 0 for n in needs])


# ------------------------------------------------------------------ tensors of one value
def _of_value(size, value, dtype):
    if value.__class__ is not complex and (value == 0 and not math.copysign(1, value) < 0):
        return zeros(size, dtype)
    if dtype in COMPLEX or value == 0:
        # InplaceOne and FillScalar do not support complex numbers, and FillScalar returns 0 for -0
        raise UnsupportedByKernel
    return op(G.Ones)(tuple(size), dtype) if value == 1 and dtype not in _UNSIGNED else op(G.FillScalar)(tuple(size), value, dtype)


ascend("new_full", lambda like, *, size, value, np_dtype: _of_value(size, value, DTYPES[np_dtype]), empty=True)


@ascend("full")
def _full(*, size, stride, value, np_dtype, device):
    if stride is not None:
        raise UnsupportedByKernel
    return _of_value(size, value, DTYPES[np_dtype])


@ascend("zeros")
def _zeros(*, size, stride, np_dtype, device):
    if stride is not None:
        raise UnsupportedByKernel
    return zeros(size, DTYPES[np_dtype])


@ascend("empty")
def _empty(*, size, stride, np_dtype, device):
    if stride is not None:
        raise UnsupportedByKernel
    return empty(size, DTYPES[np_dtype])


@ascend("arange")
def _arange(*, start, step, steps, np_dtype, device):
    if np_dtype.kind not in "i" or np_dtype.itemsize < 4 or start.__class__ is not int or step.__class__ is not int:
        # MindSpore does not support int8 and int16; for fractions only the host computes the last
        # digits of start + i * step as PyTorch does
        raise UnsupportedByKernel
    return op(G.Arange)(start, start + step * steps, step, DTYPES[np_dtype])


# ------------------------------------------------------------------ copies
ascend("to_copy", lambda a, *, dtype: op(P.Cast)(a, DTYPES[dtype]))


def _laid(a, strides):
    """Returns a copy with these dense strides: a copy of a view whose dimensions are in the order
    of that memory."""
    shape = shape_of(a)
    if tuple(strides) == contiguous_strides(shape):
        return copy(a)
    have = stride_of(a)
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], -shape[i]))
    r = copy(strided(a, [shape[i] for i in order], [have[i] for i in order]))
    return strided(r, shape, strides)


ascend("copies detach_copy", copy)


@ascend("clone")
def _clone(a):
    strides = tuple(stride_of(a))
    return copy(a) if is_contiguous(a) or not is_dense(shape_of(a), strides) else _laid(a, strides)


@ascend("clone_format")
def _clone_format(a, *, fmt):
    if fmt == "contiguous" or fmt == "preserve" and is_contiguous(a):
        return copy(a)
    shape = shape_of(a)
    if fmt == "preserve":
        return _laid(a, like_strides(shape, tuple(stride_of(a))))
    check_rank(shape, fmt)
    return _laid(a, format_strides(shape, fmt))


ascend("unsafe_view", lambda a, *, size: op(P.Reshape)(a, tuple(size)))
ascend("broadcast", lambda a, *, shape: copy(op(P.BroadcastTo, tuple(shape))(a)))


@ascend("expand_reduced")
def _expand_reduced(g, *, shape, axes, keepdim):
    if axes is not None and not keepdim:
        g = g.view(tuple([1 if d in axes else n for d, n in enumerate(shape)])) if is_contiguous(g) else op(P.Reshape)(
            g, tuple([1 if d in axes else n for d, n in enumerate(shape)]))
    return copy(op(P.BroadcastTo, tuple(shape))(g))


@ascend("expand_rows expand_channels")
def _expand_rows(g, *, shape):
    if len(shape) > 2 and shape_of(g) == tuple(shape[1:2]) and shape_of(g) != tuple(shape[-1:]):
        g = op(P.Reshape)(g, shape_of(g) + (1,) * (len(shape) - 2))
    return copy(op(P.BroadcastTo, tuple(shape))(g))


# ------------------------------------------------------------------ regions of memory (two launches where a base is made)
def _inside(base, region, apart=True):
    """Returns (sizes, strides, offset) of a region in elements, if it is inside a base in C order
    and has the base's element type.

    Raises `UnsupportedByKernel` otherwise. apart: its elements must not overlap.
    """
    have, steps, kind = base
    sizes, strides, offset, np_dtype = region
    k = kind.itemsize
    n = k * math.prod(have)
    dense, at = [], k
    for m in reversed(have):
        dense.append(at)
        at *= m
    if np_dtype != kind or 0 in sizes or any(s != d for s, d, m in zip(steps, reversed(dense), have) if m != 1):
        raise UnsupportedByKernel
    if offset < 0 or offset % k or offset + k + sum([(m - 1) * s for m, s in zip(sizes, strides)]) > n or any(s % k for s in strides):
        raise UnsupportedByKernel
    dims = sorted([(s, m) for m, s in zip(sizes, strides) if m > 1])
    reach = 0
    for s, m in dims:
        if s <= reach and apart:
            raise UnsupportedByKernel  # overlapping elements
        reach += s * (m - 1)
    return sizes, [s // k for s in strides], offset // k


@ascend("read_region")
def _read_region(a, *, base, region):
    sizes, strides, offset = _inside(base, region)
    return copy(strided(a if is_contiguous(a) else copy(a), sizes, strides, offset))


@cached_constants(64)
def _indices_of(sizes, strides, offset):
    """Returns the offset of each element of a region, as a vector cached on the device."""
    at = np.asarray(offset, np.int64)
    for n, s in zip(sizes, strides):
        at = at[..., None] + np.arange(n) * s
    return _memory.upload(np.ascontiguousarray(at.reshape(-1)))


@ascend("scatter_region")
def _scatter_region(value, *, base, region):
    r = zeros(base[0], dtype_of(value))
    try:
        sizes, strides, offset = _inside(base, region)
    except UnsupportedByKernel:
        at = _indices_of(*[tuple(x) if x.__class__ is list else x for x in _inside(base, region, apart=False)])
        # An element that several elements of the region share gets their sum.
        line = op(G.IndexAddExt)(r.view((math.prod(base[0]),)), 0, at, op(P.Reshape)(value, (-1,)), 1)
        return line.view(tuple(base[0]))
    op(G.InplaceCopy)(strided(r, sizes, strides, offset), value)
    return r


@ascend("copy_slices as_strided_scatter")
def _copy_slices(a, value, *, base, region):
    sizes, strides, offset = _inside(base, region)
    r = copy(a)
    op(G.InplaceCopy)(strided(r, sizes, strides, offset), value)
    return r


@ascend("slice_backward")
def _slice_backward(g, *, shape, key):
    r = zeros(shape, dtype_of(g))
    full = np.ndarray.view(reserve_address_range(shape, stype_of(g)), np.ndarray)
    part = full[key]
    if part.base is None or min(part.strides, default=0) < 0:
        raise UnsupportedByKernel
    k = part.itemsize
    at = (part.__array_interface__["data"][0] - full.__array_interface__["data"][0]) // k
    if part.shape != shape_of(g) or not part.size:
        raise UnsupportedByKernel
    op(G.InplaceCopy)(strided(r, part.shape, [s // k for s in part.strides], at), g)
    return r


# --------------------- arithmetic: scalars stay scalars, and do not promote a half-precision result
def _is_number(x):
    return not isinstance(x, MSTensor)


@ascend("add", scalars=True, numbers=True)
def _add(a, b):
    if _is_number(a):
        a, b = b, a
    if dtype_of(a) is ms.bool_:
        return op(P.LogicalOr)(a, tensor_of(b, a))
    if b.__class__ is complex:
        b = tensor_of(b, a)
    return op(G.AddScalar)(a, b, 1) if _is_number(b) else op(G.AddExt)(a, b, 1)


def _from_scalar(value, x):
    """Returns value - x by one launch, or None."""
    launch = named("Rsubs", "tsso") if value.__class__ in (int, float) else None
    return None if launch is None else launch(x, scalar_argument(value), scalar_argument(1), outputs=(new_like(x),))[0]


@ascend("sub", scalars=True, numbers=True)
def _sub(a, b):
    if _is_number(a):
        r = _from_scalar(a, b)
        if r is not None:
            return r
        return op(G.SubExt)(tensor_of(a, b), b, 1)
    return op(G.SubScalar)(a, b, 1) if _is_number(b) and b.__class__ is not complex else op(G.SubExt)(a, tensor_of(b, a), 1)


ascend("rsub", lambda a, b: _sub(b, a), scalars=True)


@ascend("mul", scalars=True, numbers=True)
def _mul(a, b):
    if _is_number(a):
        a, b = b, a
    if dtype_of(a) is ms.bool_:
        return op(P.LogicalAnd)(a, tensor_of(b, a))
    return op(G.Muls)(a, b) if _is_number(b) and b.__class__ is not complex else op(G.Mul)(a, tensor_of(b, a))


@ascend("div", scalars=True, only=ALL_FLOATS + COMPLEXES, numbers=True)
def _div(a, b):
    if b.__class__ is complex:
        b = tensor_of(b, a)
    return op(G.Div)(tensor_of(a, b), b) if _is_number(a) else mint.div(a, b)


@ascend("add_scaled", scalars=True, numbers=True)
def _add_scaled(a, b, *, alpha):
    a, b = tensor_of(a, b), tensor_of(b, a)
    return op(G.AddExt)(a, b, alpha)


@ascend("sub_scaled", scalars=True, numbers=True)
def _sub_scaled(a, b, *, alpha):
    a, b = tensor_of(a, b), tensor_of(b, a)
    return op(G.SubExt)(a, b, alpha)


ascend("lerp_number", lambda a, b, *, weight: op(G.LerpScalar)(a, b, weight), only=CUBE, numbers=True)


def _three(prim):
    def f(a, b, d, v):
        like = a if isinstance(a, MSTensor) else b if isinstance(b, MSTensor) else d
        return op(prim)(tensor_of(a, like), tensor_of(b, like), tensor_of(d, like), v)
    return f


ascend("addcmul", _three(G.AddcmulExt), scalars=True, only=CUBE)
ascend("addcdiv", _three(G.AddcdivExt), scalars=True, only=CUBE)
ascend("clamp_numbers", lambda a, *, low, high: op(G.ClampScalar)(a, low, high), only="float32 float16 bfloat16 float64 int64 int32")


# ------------------------------------------------------------------ joining
@ascend("cat", empty=True)
def _cat(*tensors, dim):
    some, shape = fitting(tensors, dim)
    return op(G.Concat, dim)(tuple(some)) if some else empty(shape, dtype_of(tensors[0]))


ascend("stack", lambda *tensors, dim, strides: op(G.StackExt, dim)(tensors))
