"""Memory layouts: which strides torch gives to a result, and how results get them.

torch's rule for an elementwise result is its iterator's: dimensions are ordered by the operands' strides.  Convolutions, pooling,
norms and resizing look at the memory format that their input suggests; most others give C order.  Kernels compute in whatever order
they are fast in; `settle` then gives a result the strides that its primitive's rule asks for.  It is called only where an operand is
out of C order, and not even asked about before the first such tensor exists (`STRIDED`, backend/mindspore/private.py).
"""
import functools

import numpy as np

from mindtorch.backend.mindspore.private import STRIDED

ndarray = np.ndarray

#: layout rules by primitive name, filled by the ops floor: rule(result, operands, constants) -> the result in torch's layout; a
#: tuple of rules (None: C order) goes with the results one by one.  What has no rule and is not elementwise gives C order.
RULES = {}


# ------------------------------------------------------------------ facts about strides
def contiguous_strides(shape):
    """Strides in elements of C order."""
    out, n = [], 1
    for s in reversed(shape):
        out.append(n)
        n *= s or 1
    return tuple(reversed(out))


LAST = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}
_BY_RANK = {4: "channels_last", 5: "channels_last_3d"}


def ordered_strides(shape, order):
    """Strides in elements of a dense layout; `order`: the dimensions from the outermost to the innermost."""
    out, n = [0] * len(shape), 1
    for d in reversed(order):
        out[d] = n
        n *= shape[d] or 1
    return tuple(out)


@functools.lru_cache(4096)
def format_strides(shape, fmt):
    """Strides in elements of a memory format ("contiguous", "channels_last", "channels_last_3d")."""
    return contiguous_strides(shape) if fmt == "contiguous" else ordered_strides(shape, LAST[fmt])


def strides_of(a):
    """Strides in elements as torch gives them.

    NumPy leaves those of dimensions of size 1 undefined in C order; there they are C order's, but for an array that has been laid out
    with the channels last: a shape like (N, 1, H, W) is in both formats at once, and its strides tell which was meant.
    """
    if a.flags.c_contiguous:
        plain = contiguous_strides(a.shape)
        if STRIDED.odd and a.ndim in (4, 5) and a.size:
            k = a.itemsize
            last = format_strides(a.shape, _BY_RANK[a.ndim])
            if last != plain and a.strides == tuple([s * k for s in last]):
                return last
        return plain
    k = a.itemsize
    return tuple([s // k for s in a.strides])


@functools.lru_cache(4096)
def _suggested(shape, strides):
    n = len(shape)
    if strides[1] == 0:
        return "contiguous"
    least = 0
    for d in (1, *range(n - 1, 1, -1), 0):
        if shape[d] == 0 or strides[d] < least or d == 0 and least == strides[1]:
            return "contiguous"
        least = strides[d] * (shape[d] if shape[d] > 1 else 1)
    return _BY_RANK[n]


def suggested(a):
    """The memory format that an array's strides suggest, as torch's suggest_memory_format tells it."""
    return _suggested(a.shape, strides_of(a)) if a.ndim in (4, 5) else "contiguous"


def is_dense(shape, strides):
    """True if the elements lie side by side, each in a place of its own."""
    want = 1
    for s, n in sorted((s, n) for s, n in zip(strides, shape) if n != 1):
        if not n:
            return True
        if s != want:
            return False
        want *= n
    return True


def is_ordered(shape, strides, order):
    """True if the elements lie densely in the given order of dimensions (from the outermost), whatever the strides of size 1 say."""
    want = 1
    for d in reversed(order):
        if shape[d] != 1:
            if strides[d] != want:
                return 0 in shape
            want *= shape[d]
    return True


def memory_order(shape, strides):
    """Dimensions from the innermost outwards as torch's loops order a result's, given the operands' strides.

    An insertion sort by the first operand that tells two dimensions apart; a stride of 0 tells nothing.
    """
    perm = list(range(len(shape)))[::-1]
    for i in range(1, len(perm)):
        one = i
        for zero in range(i - 1, -1, -1):
            swap = _should_swap(perm[zero], perm[one], shape, strides)
            if swap > 0:
                perm[zero], perm[one] = perm[one], perm[zero]
                one = zero
            elif swap < 0:
                break
    return perm


def _should_swap(d0, d1, shape, strides):
    for st in strides:
        s0, s1 = st[d0], st[d1]
        if s0 == 0 or s1 == 0:
            continue
        if s0 != s1:
            return -1 if s0 < s1 else 1
        if shape[d0] > shape[d1]:
            return 1
    return 0


@functools.lru_cache(8192)
def pointwise_strides(shape, operands):
    """Strides in elements of an elementwise result; `operands`: (shape, strides in elements) of each."""
    if all(s == shape for s, _ in operands):
        if all(is_ordered(shape, st, range(len(shape))) for _, st in operands):
            return contiguous_strides(shape)
        if len(shape) == 4 and all(is_ordered(shape, st, LAST["channels_last"]) for _, st in operands):
            return format_strides(shape, "channels_last")
        first = operands[0][1]
        if all(st == first for _, st in operands) and is_dense(shape, first):
            return first
    n, seen = len(shape), []
    for s, st in operands:
        lead = n - len(s)
        seen.append((0,) * lead + tuple([0 if have == 1 and shape[lead + i] != 1 else step for i, (have, step) in enumerate(zip(s, st))]))
    return ordered_strides(shape, memory_order(shape, seen)[::-1])


@functools.lru_cache(4096)
def like_strides(shape, strides):
    """Strides in elements of torch's empty_like: the same where dense, else dense in the order of the given ones."""
    return strides if is_dense(shape, strides) else ordered_strides(shape, memory_order(shape, (strides,))[::-1])


# ------------------------------------------------------------------ arrays
def empty(shape, dtype, strides):
    """Uninitialised array that owns memory of the given dense strides (in elements)."""
    if strides == contiguous_strides(shape) or 0 in shape:
        return np.empty(shape, dtype)
    k = np.dtype(dtype).itemsize
    r = ndarray(shape, dtype, strides=[s * k for s in strides])
    STRIDED.on = True
    if r.flags.c_contiguous:
        STRIDED.odd = True
    return r


def noted(a):
    """The array `a`, whose strides somebody chose; says so where it is in C order and in the channels-last format at once."""
    if a.ndim in (4, 5) and a.flags.c_contiguous and a.size and not STRIDED.odd:
        k = a.itemsize
        if a.strides == tuple([s * k for s in format_strides(a.shape, _BY_RANK[a.ndim])]) != tuple([s * k for s in contiguous_strides(a.shape)]):
            STRIDED.on = STRIDED.odd = True
    return a


def empty_for(r, strides):
    """Uninitialised array of the shape and dtype of `r` (the meta device puts one without memory here)."""
    return empty(r.shape, r.dtype, strides)


def laid_out(r, strides):
    """The array `r` with dense strides (in elements): itself, or a copy."""
    if not r.size or not r.ndim or strides_of(r) == strides:
        return r
    k = r.itemsize
    want = tuple([s * k for s in strides])
    if r.strides == want:
        return r
    if all(n == 1 or have == s for n, have, s in zip(r.shape, r.strides, want)):
        # Only the strides of dimensions of size 1 differ, which address nothing.
        r = r.view()
        r.strides = want
        STRIDED.on = STRIDED.odd = True
        return r
    to = empty_for(r, strides)
    copy(to, r)
    return to


def copy(to, r):
    """to = r; a seam for the meta device."""
    to[...] = r


# ------------------------------------------------------------------ rules
def pointwise(r, operands, kw):
    """The order of an elementwise result."""
    first = operands[0]
    if first is not None and first.shape == r.shape and first.strides == r.strides and not STRIDED.odd and len(operands) == 1:
        k = r.itemsize
        if k == first.itemsize and is_dense(r.shape, [s // k for s in r.strides]):
            return r
    return laid_out(r, pointwise_strides(r.shape, tuple([(a.shape, strides_of(a)) for a in operands if a is not None])))


def like(r, operands, kw):
    """The layout of the first operand, where it is dense."""
    a = operands[0]
    return laid_out(r, like_strides(a.shape, strides_of(a))) if a.shape == r.shape else contiguous(r, operands, kw)


def contiguous(r, operands, kw):
    """C order."""
    return laid_out(r, contiguous_strides(r.shape))


def in_format(r, fmt):
    """`r` in a memory format, where it has as many dimensions as that."""
    return laid_out(r, format_strides(r.shape, fmt if fmt != "contiguous" and len(LAST[fmt]) == r.ndim else "contiguous"))


def by_operand(i):
    """The rule that a result has the memory format that operand `i` suggests."""
    return lambda r, operands, kw: in_format(r, suggested(operands[i]))


suggested_by_first = by_operand(0)


def any_suggests(*which):
    """The rule that a result has the channels last if one of the operands `which` suggests it."""
    def rule(r, operands, kw):
        for i in which:
            fmt = suggested(operands[i])
            if fmt != "contiguous":
                return in_format(r, fmt)
        return contiguous(r, operands, kw)
    return rule


def kept(r, operands, kw):
    """As the kernel left it."""
    return r


def rule_of(prim):
    """A primitive's rule, looked up once."""
    rule = prim.layout = RULES.get(prim.name) or (pointwise if prim.elementwise else contiguous)
    return rule


def settle(rule, r, operands, kw):
    """A primitive's result (or results) in torch's layout, by its rule."""
    if r.__class__ is tuple:
        rules = rule if rule.__class__ is tuple else (rule,) * len(r)
        return tuple([x if x is None else (one or contiguous)(x if x.__class__ is ndarray else np.asarray(x), operands, kw)
                      for x, one in zip(r, rules)])
    return rule(r if r.__class__ is ndarray else np.asarray(r), operands, kw)


def pointwise_plan(operands):
    """(strides in elements of an elementwise result, order, back): how to compute it.

    The operands' dimensions are to be put into `order`, in which the result is in C order, and the result's `back`; None: as they are.
    """
    given = [a for a in operands if a is not None]
    try:
        shape = np.broadcast_shapes(*[a.shape for a in given])
    except ValueError:
        return None, None, None         # the kernel says what is wrong
    strides = pointwise_strides(shape, tuple([(a.shape, strides_of(a)) for a in given]))
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], i))
    if order == list(range(len(shape))) or not all(a.ndim in (0, len(shape)) for a in given):
        return strides, None, None
    return strides, order, sorted(range(len(order)), key=order.__getitem__)
