"""Memory layouts: which strides torch gives to a result, and how results get them.

torch's rule for an elementwise result is its iterator's: dimensions are ordered by the operands' strides.  Convolutions, pooling,
norms and resizing look at the memory format that their input suggests; most others give C order.  Kernels compute in whatever order
they are fast in; `settle` then gives a result the strides that its primitive's rule asks for.  It is called only where an operand is
out of C order, and not even asked about before the first such tensor exists (`STRIDED`, backend/mindspore/private.py).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from mindtorch.backend.cpu.copies import beside, crosses, store
from mindtorch.backend.interface import Array, Layout, Strides
from mindtorch.backend.meta.arrays import is_blank, on_strides
from mindtorch.backend.mindspore.private import STRIDED
from mindtorch.backend.strides import (BY_RANK, LAST, can_view, contiguous_strides, empty, format_strides, format_told, is_dense, is_ordered,  # noqa: F401
                                       like_strides, memory_order, noted, ordered_strides, pointwise_strides, strides_of, suggested)
from mindtorch.core.dispatch import FLAGS
from mindtorch.core.tensor import Tensor

ndarray = np.ndarray
#: the arrays that a primitive was given; None for a tensor that was left out
Operands: TypeAlias = Sequence[Any]


# ------------------------------------------------------------------ tensors
def format_of(t: Tensor) -> str:
    """The memory format that a tensor's strides suggest, as torch's suggest_memory_format tells it."""
    return format_told(t._sizes, t.stride()) if t.ndim in BY_RANK else "contiguous"


def is_format(t: Tensor, fmt: str) -> bool:
    """True if the tensor is laid out in that memory format already."""
    if fmt in ("preserve", "contiguous"):
        return t._contiguous
    order = LAST[fmt]
    return t.ndim == len(order) and bool(is_ordered(t._sizes, t.stride(), order))


# ------------------------------------------------------------------ arrays
def empty_for(r: Array, strides: Strides) -> Array:
    """Uninitialised array of the shape and dtype of `r`; without memory if `r` has none."""
    if FLAGS.meta and is_blank(r):
        return on_strides(r.shape, r.dtype, strides)
    return empty(r.shape, r.dtype, strides)


def laid_out(r: Array, strides: Strides) -> Array:
    """The array `r` with dense strides (in elements): itself, or a copy."""
    if not r.size or not r.ndim or strides_of(r) == strides:
        return r
    k = r.itemsize
    want = tuple([s * k for s in strides])
    if r.strides == want:
        STRIDED.on = STRIDED.odd = True         # (in C order, too, as NumPy has it)
        return r
    if all(n == 1 or have == s for n, have, s in zip(r.shape, r.strides, want)):
        # Only the strides of dimensions of size 1 differ, which address nothing.
        r = r.view()
        r.strides = want
        STRIDED.on = STRIDED.odd = True
        return r
    to = empty_for(r, strides)
    if not (FLAGS.meta and is_blank(to)):
        store(to, r)
    return to


# ------------------------------------------------------------------ rules
# rule(result, operands, constants) -> the result in torch's layout.  A tuple of rules (None: C order) goes with the results one by one.
# A primitive declares its rule (`layout=`); the default is `pointwise` for elementwise kernels and C order for others.
def pointwise(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """The order of an elementwise result."""
    first = operands[0]
    if first is not None and first.shape == r.shape and first.strides == r.strides and not STRIDED.odd and len(operands) == 1:
        k = r.itemsize
        if k == first.itemsize and is_dense(r.shape, [s // k for s in r.strides]):
            return r
    return laid_out(r, pointwise_strides(r.shape, tuple([(a.shape, strides_of(a)) for a in operands if a is not None])))


def with_number(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """The order of an elementwise result of tensors and a number, which torch's iterator takes as one more operand, of no dimensions."""
    return pointwise(r, (*operands, _NUMBER), kw)


_NUMBER = np.zeros(())


def but_last(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """The order of an elementwise result, the last operand being a number that torch's kernel does not iterate over."""
    return pointwise(r, operands[:-1], kw)


def pointwise_unless_reduced(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Elementwise order, unless the kernel reduced."""
    return (pointwise if r.shape == np.broadcast_shapes(*[a.shape for a in operands if a is not None]) else contiguous)(r, operands, kw)


def like(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """The layout of the first operand, where it is dense."""
    a = operands[0]
    return laid_out(r, like_strides(a.shape, strides_of(a))) if a.shape == r.shape else contiguous(r, operands, kw)


def contiguous(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """C order."""
    if r.flags.c_contiguous and 1 not in r.shape:
        return r            # (which no other strides are: 1.5 us less)
    return laid_out(r, contiguous_strides(r.shape))


def in_format(r: Array, fmt: str) -> Array:
    """`r` in a memory format, where it has as many dimensions as that."""
    return laid_out(r, format_strides(r.shape, fmt if fmt != "contiguous" and len(LAST[fmt]) == r.ndim else "contiguous"))


def by_operand(i: int) -> Layout:
    """The rule that a result has the memory format that operand `i` suggests."""
    return lambda r, operands, kw: in_format(r, suggested(operands[i]))


suggested_by_first = by_operand(0)


def indexed(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """The order of a tensor indexed by tensors (at the dimensions `dims`), in which torch's kernel iterates."""
    a, indices, dims = operands[0], operands[1:], kw["dims"]
    if a.flags.c_contiguous:
        return contiguous(r, operands, kw)
    shape = np.broadcast_shapes(*[i.shape for i in indices])
    rest = [s for d, s in enumerate(a.strides) if d not in dims]
    start = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    steps = [rest[:start] + [0] * len(shape) + rest[start:]]
    for i in indices:
        steps.append([0] * start + list(np.broadcast_to(i, shape).strides) + [0] * (len(rest) - start))
    return laid_out(r, ordered_strides(r.shape, memory_order(r.shape, steps)[::-1]))


def any_suggests(*which: int) -> Layout:
    """The rule that a result has the channels last if one of the operands `which` suggests it."""
    def rule(r, operands, kw):
        for i in which:
            fmt = suggested(operands[i])
            if fmt != "contiguous":
                return in_format(r, fmt)
        return contiguous(r, operands, kw)
    return rule


def kept(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """As the kernel left it."""
    return r


def of_first(rule: Layout, n: int) -> Layout:
    """A rule that looks at the first `n` operands only."""
    return lambda r, operands, kw: rule(r, operands[:n], kw)


def dropout(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Elementwise order; the mask of whole channels, which the kernel draws, counts as an operand."""
    x = operands[0]
    return pointwise(r, (x, np.empty(x.shape[:2] + (1,) * (x.ndim - 2), bool)) if kw["feature"] else operands, kw)


def under_mask(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Elementwise order; the second operand, a mask, counts where it is to be broadcast."""
    return pointwise(r, operands if operands[1].shape != r.shape else operands[:1], kw)


def halves(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Elementwise order of the two halves of the first operand."""
    half = (r.shape, strides_of(operands[0]))
    return laid_out(r, pointwise_strides(r.shape, (half, half))) if r.ndim == operands[0].ndim else contiguous(r, operands, kw)


def batch_norm(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """Unlike that of other layers over channels, C order also where a shape like (N, 1, H, W) is in both formats at once."""
    a = operands[0]
    if a.flags.c_contiguous or a.ndim not in (4, 5):
        return contiguous(r, operands, kw)
    last = "channels_last" if a.ndim == 4 else "channels_last_3d"
    return in_format(r, last if is_ordered(a.shape, strides_of(a), LAST[last]) else suggested(a))


def convolution(r: Array, operands: Operands, kw: dict[str, Any]) -> Array:
    """The channels last where input or weight suggest it.  (Arrays without memory are read-only: torch's meta device gives C order here.)"""
    return (_either if r.flags.writeable else contiguous)(r, operands, kw)


_either = any_suggests(0, 1)


def settle(rule: Any, r: Any, operands: Operands, kw: dict[str, Any]) -> Any:
    """A primitive's result (or results) in torch's layout, by its rule."""
    if r.__class__ is tuple:
        rules = rule if rule.__class__ is tuple else (rule,) * len(r)
        return tuple([x if x is None else (one or contiguous)(x if x.__class__ is ndarray else np.asarray(x), operands, kw)
                      for x, one in zip(r, rules)])
    return rule(r if r.__class__ is ndarray else np.asarray(r), operands, kw)


def pointwise_plan(operands: Operands) -> tuple[Strides | None, list[int] | None, list[int] | None]:
    """(strides in elements of an elementwise result, order, back): how to compute it.

    The operands' dimensions are to be put into `order`, in which the result is in C order, and the result's `back`; None: as they are.
    """
    given = [a for a in operands if a is not None]
    try:
        shape = np.broadcast_shapes(*[a.shape for a in given])
    except ValueError:
        return None, None, None         # the kernel says what is wrong
    strides = pointwise_strides(shape, tuple([(a.shape, strides_of(a)) for a in given]))
    if is_ordered(shape, strides, range(len(shape))) and strides != contiguous_strides(shape):
        STRIDED.on = STRIDED.odd = True         # (NumPy has it in C order, too)
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], i))
    if order == list(range(len(shape))) or not all(a.ndim in (0, len(shape)) for a in given):
        return strides, None, None
    return strides, order, sorted(range(len(order)), key=order.__getitem__)


def crossing(operands: Operands, plan: tuple[Strides | None, list[int] | None, list[int] | None]) -> tuple[int, ...]:
    """Which operands a kernel gets as copies: beside one in C order (both in the plan's order) those that lie across it."""
    order = plan[1]
    if plan[0] is None:
        return ()
    given = [a if a is None or order is None or not a.ndim else a.transpose(order) for a in operands]
    if not any([a is not None and a.ndim and a.size > 1 and a.flags.c_contiguous for a in given]):
        return ()
    return tuple([i for i, a in enumerate(given) if a is not None and a.ndim and not a.flags.c_contiguous and crosses(a)])


def in_c_order(a: Array, kernel: Any) -> Array:
    """A copy in C order for a kernel (an array without memory as it is)."""
    return a if FLAGS.meta and is_blank(a) else beside(a, getattr(kernel, "shares", None))
