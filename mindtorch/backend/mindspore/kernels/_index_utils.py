"""Helpers of kernels that move elements: reinterpretation as integers, C order, copies, views and
writes, index checks.

On the CPU target memory is the host's. Indices are checked there before MindSpore's kernels get
them, which costs about 3 us and raises PyTorch's errors. (GatherNd ends the process at an index out
of range; Gather accepts negative ones.) On Ascend indices are not checked: the device handles an
index out of range (`ascend_places.py`).
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from mindtorch.backend.cpu.indexing import check_bounds
from mindtorch.backend.mindspore.kernels._call import (ASCEND, G, P, STATE, STYPES, broadcast, cast, runtime_assert, constant, converted, copied, dtype_of,  # noqa: F401
                                                       from_contiguous, full, host_span, is_contiguous, ms, number, op, reshape, shape_of,
                                                       stride_of, stype_of)
from mindtorch.backend.mindspore.kernels import kernel
from mindtorch.backend.mindspore.npu import Npu, memory_of

_memory = Npu("Ascend" if ASCEND else "CPU")
view, write = _memory.view, _memory.write
_I64 = np.dtype(np.int64)


def cpu_kernel(names: str, fn: Any = None, **settings: Any) -> Any:
    """Registers a kernel for the CPU target only, where memory is the host's."""
    return kernel(names, fn, target="CPU", **settings)


#: dtypes that few kernels move -> dtypes of the same size that all kernels move
_AS = {} if ASCEND else {ms.bfloat16: np.int16, ms.uint16: np.int16, ms.uint32: np.int32, ms.uint64: np.int64, ms.complex64: np.int64}

#: for a graph: dtype -> a dtype that represents all its values
_HOLDS = {ms.bfloat16: ms.float32, ms.uint16: ms.int32, ms.uint32: ms.int64, ms.uint64: ms.int64}


def table(a: Any) -> Any:
    """Returns a tensor of values that depend only on sizes."""
    return from_contiguous(np.ascontiguousarray(a)) if not ASCEND else _memory.upload(np.asarray(a))


_counts: dict[int, Any] = {}


def counting(n: int) -> Any:
    """Returns 0, 1, ..., n - 1 as int64, cached if short."""
    t = _counts.get(n)
    if t is not None:
        return constant(t)
    t = table(np.arange(n))
    if n <= 4096 and len(_counts) < 256:
        _counts[n] = t
    return t


def dense(h: Any) -> Any:
    """Returns the values in C order; `h` itself if it is. (MindSpore's own Contiguous takes 400 us
    on the CPU target.)"""
    if is_contiguous(h):
        return h
    return h.contiguous() if ASCEND else converted(h, stype_of(h))


def stacks(a: Any, b: Any) -> tuple[Any, Any]:
    """Broadcasts the leading dimensions of two stacks of matrices; the results are in C order."""
    one, other = shape_of(a), shape_of(b)
    lead = np.broadcast_shapes(one[:-2], other[:-2])
    return dense(broadcast(a, (*lead, *one[-2:]))), dense(broadcast(b, (*lead, *other[-2:])))


def fresh(h: Any) -> Any:
    """Returns a copy in C order."""
    return op(G.Copy)(h) if ASCEND else converted(h, stype_of(h))


def bits(h: Any) -> Any:
    """Returns the same memory in C order, as integers of the same size if kernels that move
    elements do not support the dtype."""
    h = dense(h)
    as_ = _AS.get(dtype_of(h))
    if as_ is None:
        return h
    if STATE.on is not None:  # a graph cannot reinterpret memory
        return cast(h, _HOLDS.get(dtype_of(h), dtype_of(h)))
    return from_contiguous(host_span(h).view(as_))


def unbits(r: Any, like: Any) -> Any:
    """Returns the result of a kernel on `bits` in the dtype of `like`."""
    d = dtype_of(like)
    if d not in _AS:
        return r
    return cast(r, d) if STATE.on is not None else from_contiguous(host_span(r).view(STYPES[d]))


def part(h: Any, shape: Any) -> Any:
    """Returns the leading part of a tensor, of `shape`."""
    shape = tuple(shape)
    return h if shape_of(h) == shape else view(h, shape, tuple(stride_of(h)), 0, stype_of(h))


def expanded(h: Any, shape: Any) -> Any:
    """Broadcasts a tensor to `shape`, in C order."""
    shape = tuple(shape)
    if shape_of(h) == shape:
        return dense(h)
    if ASCEND:
        return op(G.BroadcastTo)(h, shape)
    if STATE.on is not None:
        have = (1,) * (len(shape) - len(shape_of(h))) + shape_of(h)
        strides = (0,) * (len(shape) - len(shape_of(h))) + tuple(stride_of(h))
        return copied(view(h, shape, tuple([s if n == m else 0 for n, m, s in zip(have, shape, strides)]), 0, stype_of(h)))
    return from_contiguous(np.ascontiguousarray(np.broadcast_to(host_span(h), shape)))


def permuted(h: Any, order: Any) -> Any:
    """Permutes dimensions; the result is in C order."""
    order = tuple(order)
    if order == tuple(range(len(order))):
        return dense(h)
    sizes, strides = shape_of(h), stride_of(h)
    return dense(view(h, tuple([sizes[d] for d in order]), tuple([strides[d] for d in order]), 0, stype_of(h)))


def zeros(shape: Any, dtype: Any) -> Any:
    return full(shape, 0, dtype)


def size_of(h: Any) -> int:
    return math.prod(shape_of(h))


def split_at(shape: Any, dim: int) -> tuple[int, int, int]:
    """Returns (elements before the dimension, along it, after it)."""
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1:])


# ------------------------------------------------------------------ indices
def check_range(i: Any, n: int, dim: int, negative: bool = True, kind: type[Exception] = IndexError, prefix: str = "") -> None:
    """Raises the error for an index out of range for a dimension of size n."""
    runtime_assert(i, lambda h: check_bounds(np.ascontiguousarray(memory_of(h)), n, dim, negative, kind, prefix))


def wrapped(i: Any, n: int) -> Any:
    """Returns an index in C order with negative indices, which count from the end, made
    nonnegative."""
    i = dense(i)
    if STATE.on is None:
        a = host_span(i)
        if not a.size or a.min() >= 0:
            return i
    return op(P.Select)(op(P.Less)(i, number(0, ms.int64)), op(P.Add)(i, number(n, ms.int64)), i)


def linear_indices(index: Any, shape: Any, dim: int) -> Any:
    """Returns the linear indices, as (elements, 1), of what gather(dim, index) reads from a tensor
    of `shape`."""
    step, offset = 1, np.zeros((1,) * len(shape), _I64)
    for d in range(len(shape) - 1, -1, -1):
        if d == dim:
            at = step
        else:
            offset = offset + np.arange(shape_of(index)[d]).reshape([-1 if k == d else 1 for k in range(len(shape))]) * step
        step *= shape[d]
    r = dense(index)
    if at != 1:
        r = op(P.Mul)(r, number(at, ms.int64))
    if offset.any():
        r = op(P.Add)(r, table(offset))
    return reshape(r, (-1, 1))


# ------------------------------------------------------------------ shapes that depend on values (`KernelFlags.dynamic_shape`)
def without_classes(handles: Any, constants: Any) -> bool:
    """True if one_hot derives the number of classes from the largest index."""
    return constants["num_classes"] < 0


def bag_by_values(handles: Any, constants: Any) -> bool:
    """True if the bags of embedding_bag depend on offsets or on a padding index."""
    return constants["padding"] >= 0 or handles[1] is not None
