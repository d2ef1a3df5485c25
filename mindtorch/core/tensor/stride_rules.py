"""Memory layouts: the strides that PyTorch gives to a result, and how results get them.

PyTorch's rule for an elementwise result is that of its TensorIterator: dimensions are ordered by
the operands' strides. Convolutions, pooling, norms and resizing follow the memory format that their
input suggests; most other ops return C order. Kernels compute in whatever order is fast. `settle`
then gives a result the strides required by its primitive's rule. It is called only if an operand is
not in C order, and not even checked before the first such tensor exists (`STRIDED`,
backend/mindspore/private.py).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from mindtorch.backend.cpu.copies import beside, crosses, store
from mindtorch.backend.interface import Array, Layout, Strides
from mindtorch.backend.meta.arrays import is_meta_array, on_strides
from mindtorch.backend.mindspore.private import STRIDED
from mindtorch.backend.strides import (BY_RANK, LAST, can_view, contiguous_strides, empty, format_strides, suggested_format, is_dense, is_ordered,  # noqa: F401
                                       like_strides, memory_order, noted, ordered_strides, pointwise_strides, strides_of, suggested)
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.tensor.tensor import Tensor

ndarray = np.ndarray
#: The input arrays of a primitive; None for an omitted tensor.
Operands: TypeAlias = Sequence[Any]


# ------------------------------------------------------------------ tensors
def format_of(t: Tensor) -> str:
    """Returns the memory format suggested by a tensor's strides (suggest_memory_format)."""
    return suggested_format(t._sizes, t.stride()) if t.ndim in BY_RANK else "contiguous"


def is_format(t: Tensor, fmt: str) -> bool:
    """True if the tensor has that memory format already."""
    if fmt in ("preserve", "contiguous"):
        return t._contiguous
    order = LAST[fmt]
    return t.ndim == len(order) and bool(is_ordered(t._sizes, t.stride(), order))


# ------------------------------------------------------------------ arrays
def empty_for(r: Array, strides: Strides) -> Array:
    """Returns an uninitialized array of the shape and dtype of `r`; a meta array if `r` is one."""
    if dispatch_state.meta and is_meta_array(r):
        return on_strides(r.shape, r.dtype, strides)
    return empty(r.shape, r.dtype, strides)


def as_strided_copy(r: Array, strides: Strides) -> Array:
    """Returns `r` with dense strides (in elements): itself, or a copy."""
    if not r.size or not r.ndim or strides_of(r) == strides:
        return r
    k = r.itemsize
    want = tuple([s * k for s in strides])
    if r.strides == want:
        STRIDED.on = STRIDED.unusual_strides = True  # NumPy counts it as C order, too
        return r
    if all(n == 1 or have == s for n, have, s in zip(r.shape, r.strides, want)):
        # Only the strides of size-1 dimensions differ, which address nothing.
        r = r.view()
        r.strides = want
        STRIDED.on = STRIDED.unusual_strides = True
        return r
    to = empty_for(r, strides)
    if not (dispatch_state.meta and is_meta_array(to)):
        store(to, r)
    return to


# ------------------------------------------------------------------ rules
#
# A rule is called as rule(result, operands, constants) and returns the result in PyTorch's layout.
# A tuple of rules (None: C order) applies to the results one by one. A primitive declares its rule
# (`layout=`). The default is `pointwise` for elementwise kernels and C order for others.
def pointwise(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Layout of an elementwise result."""
    first = operands[0]
    if first is not None and first.shape == r.shape and first.strides == r.strides and not STRIDED.unusual_strides and len(operands) == 1:
        k = r.itemsize
        if k == first.itemsize and is_dense(r.shape, [s // k for s in r.strides]):
            return r
    return as_strided_copy(r, pointwise_strides(r.shape, tuple([(a.shape, strides_of(a)) for a in operands if a is not None])))


def with_number(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Layout of an elementwise result of tensors and a scalar.

    PyTorch's TensorIterator treats the scalar as one more 0-dim operand.
    """
    return pointwise(r, (*operands, _NUMBER), kw)


_NUMBER = np.zeros(())


def but_last(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Layout of an elementwise result whose last operand is a scalar.

    PyTorch's kernel does not iterate over that scalar.
    """
    return pointwise(r, operands[:-1], kw)


def pointwise_unless_reduced(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Layout of an elementwise result; C order if the kernel reduced."""
    return (pointwise if r.shape == np.broadcast_shapes(*[a.shape for a in operands if a is not None]) else contiguous)(r, operands, kw)


def like(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Layout of the first operand, if it is dense."""
    a = operands[0]
    return as_strided_copy(r, like_strides(a.shape, strides_of(a))) if a.shape == r.shape else contiguous(r, operands, kw)


def contiguous(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """C order."""
    if r.flags.c_contiguous and 1 not in r.shape:
        return r  # no other strides are possible; saves 1.5 us
    return as_strided_copy(r, contiguous_strides(r.shape))


def in_format(r: Array, fmt: str) -> Array:
    """Returns `r` in a memory format, if its number of dimensions matches the format."""
    return as_strided_copy(r, format_strides(r.shape, fmt if fmt != "contiguous" and len(LAST[fmt]) == r.ndim else "contiguous"))


def by_operand(i: int) -> Layout:
    """Returns the rule that gives a result the memory format suggested by operand `i`."""
    return lambda r, operands, kw: in_format(r, suggested(operands[i]))


suggested_by_first = by_operand(0)


def indexed(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Layout of a tensor indexed by tensors at the dimensions `dims`.

    This is the iteration order of PyTorch's kernel.
    """
    a, indices, dims = operands[0], operands[1:], kw["dims"]
    if a.flags.c_contiguous:
        return contiguous(r, operands, kw)
    shape = np.broadcast_shapes(*[i.shape for i in indices])
    rest = [s for d, s in enumerate(a.strides) if d not in dims]
    start = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    steps = [rest[:start] + [0] * len(shape) + rest[start:]]
    for i in indices:
        steps.append([0] * start + list(np.broadcast_to(i, shape).strides) + [0] * (len(rest) - start))
    return as_strided_copy(r, ordered_strides(r.shape, memory_order(r.shape, steps)[::-1]))


def any_suggests(*which: int) -> Layout:
    """Returns the rule for channels last if one of the operands `which` suggests it."""
    def rule(r, operands, kw):
        for i in which:
            fmt = suggested(operands[i])
            if fmt != "contiguous":
                return in_format(r, fmt)
        return contiguous(r, operands, kw)
    return rule


def as_computed(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Layout as returned by the kernel."""
    return r


def of_first(rule: Layout, n: int) -> Layout:
    """Returns a rule that considers only the first `n` operands."""
    return lambda r, operands, kw: rule(r, operands[:n], kw)


def dropout(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Layout of an elementwise result.

    A mask of whole channels, which the kernel draws, counts as an operand.
    """
    x = operands[0]
    return pointwise(r, (x, np.empty(x.shape[:2] + (1,) * (x.ndim - 2), bool)) if kw["feature"] else operands, kw)


def under_mask(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Layout of an elementwise result.

    The second operand, a mask, counts only if it is broadcast.
    """
    return pointwise(r, operands if operands[1].shape != r.shape else operands[:1], kw)


def halves(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Layout of an elementwise result of the two halves of the first operand."""
    half = (r.shape, strides_of(operands[0]))
    return as_strided_copy(r, pointwise_strides(r.shape, (half, half))) if r.ndim == operands[0].ndim else contiguous(r, operands, kw)


def batch_norm(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Layout of batch norm.

    Unlike other layers over channels, it returns C order if a shape such as (N, 1, H, W) is in both
    formats at once.
    """
    a = operands[0]
    if a.flags.c_contiguous or a.ndim not in (4, 5):
        return contiguous(r, operands, kw)
    last = "channels_last" if a.ndim == 4 else "channels_last_3d"
    return in_format(r, last if is_ordered(a.shape, strides_of(a), LAST[last]) else suggested(a))


def convolution(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Channels last if input or weight suggest it.

    Meta arrays, which are read-only, get C order as on PyTorch's meta device.
    """
    return (_either if r.flags.writeable else contiguous)(r, operands, kw)


_either = any_suggests(0, 1)


def restride(rule: Any, r: Any, operands: Operands, kw: dict[str, Any]) -> Any:
    """Returns a primitive's result (or results) in PyTorch's layout, by its rule."""
    if r.__class__ is tuple:
        rules = rule if rule.__class__ is tuple else (rule,) * len(r)
        return tuple([x if x is None else (one or contiguous)(x if x.__class__ is ndarray else np.asarray(x), operands, kw)
                      for x, one in zip(r, rules)])
    return rule(r if r.__class__ is ndarray else np.asarray(r), operands, kw)


def pointwise_plan(operands: Operands) -> tuple[Strides | None, list[int] | None, list[int] | None]:
    """Returns (strides in elements of an elementwise result, order, back): how to compute it.

    The operands' dimensions are transposed to `order`, in which the result is in C order, and the
    result is transposed by `back`. None means no transposition.
    """
    given = [a for a in operands if a is not None]
    try:
        shape = np.broadcast_shapes(*[a.shape for a in given])
    except ValueError:
        return None, None, None  # the kernel raises the error
    strides = pointwise_strides(shape, tuple([(a.shape, strides_of(a)) for a in given]))
    if is_ordered(shape, strides, range(len(shape))) and strides != contiguous_strides(shape):
        STRIDED.on = STRIDED.unusual_strides = True  # NumPy counts it as C order, too
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], i))
    if order == list(range(len(shape))) or not all(a.ndim in (0, len(shape)) for a in given):
        return strides, None, None
    return strides, order, sorted(range(len(order)), key=order.__getitem__)


def mixed_order_operands(operands: Operands, plan: tuple[Strides | None, list[int] | None, list[int] | None]) -> tuple[int, ...]:
    """Returns the operands that a kernel gets as copies.

    If one operand is in C order (in the plan's order), these are the large ones with another
    innermost axis.
    """
    order = plan[1]
    if plan[0] is None:
        return ()
    given = [a if a is None or order is None or not a.ndim else a.transpose(order) for a in operands]
    if not any([a is not None and a.ndim and a.size > 1 and a.flags.c_contiguous for a in given]):
        return ()
    return tuple([i for i, a in enumerate(given) if a is not None and a.ndim and not a.flags.c_contiguous and crosses(a)])


def in_c_order(a: Array, kernel: Any) -> Array:
    """Returns a copy in C order for a kernel; a meta array is returned unchanged."""
    return a if dispatch_state.meta and is_meta_array(a) else beside(a, getattr(kernel, "shares", None))
