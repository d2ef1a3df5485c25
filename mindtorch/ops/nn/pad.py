"""torch.nn.functional.pad in all its modes."""
import functools

from mindtorch.core.dispatch.dispatcher import dispatch_state, SCALAR_TYPES
from mindtorch.core.tensor.stride_rules import suggested_by_first
from mindtorch.core.tensor.scalars import read
from mindtorch.core.dispatch.type_promotion import number_dtype
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Scalar
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.ops.nn._fused import check_tensor_arg, scalar_type_name
from mindtorch.ops.shapes._sizes import size_of
from mindtorch.ops.shapes.shape import in_c_order, pad_constant_

#: `plan` holds (axis, mode, size, before, after) for each padded dim.
take_axes_ = primitive("pad_by_index", "x, *, plan", lambda ctx, grad: take_axes_grad_(grad, plan=ctx.plan), raw=True, node="ReflectionPad2DBackward0",
                       layout=suggested_by_first)
take_axes_grad_ = primitive("pad_by_index_backward", "g, *, plan", lambda ctx, grad: take_axes_(grad, plan=ctx.plan), raw=True, layout=suggested_by_first)


def _counts(pad):
    return size_of("pad", (pad if pad.__class__ is tuple else tuple(pad),), "pad")


@functools.lru_cache(1024)
def _pairs(pad, ndim):
    """Converts the ints of a padding, which start with the last dim, to a (before, after) pair for
    each dim in order."""
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(pad) > 2 * ndim:
        raise RuntimeError("Padding length should be less than or equal to two times the input dimension but got "
                           "padding length "
                           f"{len(pad)} and input of dimension {ndim}")
    pairs = [(0, 0)] * ndim
    for i in range(len(pad) // 2):
        pairs[ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1])
    return tuple(pairs)


def _constant(input, pad, value):
    pairs = _pairs(_counts(pad), input.ndim)
    for i, (n, (lo, hi)) in enumerate(zip(input._sizes, pairs)):
        if n + lo + hi < 0:
            raise RuntimeError(f"The input size {n}, plus negative padding {lo} and {hi} resulted in a negative output "
                               "size, which "
                               f"is invalid. Check dimension {i} of your input.")
    kind = input._np_dtype.kind
    if value.__class__ not in SCALAR_TYPES:
        value = read("pad", "value", "number", value)
    if kind in "iu":
        value = int(value)
    elif kind == "b":
        value = bool(value)
    number_dtype(value)
    return pad_constant_(input, pads=pairs, value=value)


@register_op(method=False, aten="constant_pad_nd.default")
def constant_pad_nd(input, pad, value: Scalar = 0):
    """Pads the last dims of input with `value`. Negative counts crop."""
    check_tensor_arg("constant_pad_nd", "input", input)
    return _constant(input, pad, value)


@register_op(ns="nn.functional", method=False, name="pad")
def pad_(input, pad, mode="constant", value: Scalar = None):
    """Pads the last dims of input: constant (any dims), reflect, replicate or circular (1 to 3
    dims)."""
    check_tensor_arg("pad", "input", input)
    if mode == "constant":
        return _constant(input, pad, 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    ndim, pad = input.ndim, _counts(pad)
    pairs = _pairs(pad, ndim)
    if value is not None and value != 0:
        raise RuntimeError(f"Padding mode \"{mode}\" doesn't take in value argument")
    n = len(pad) // 2
    if not n or ndim not in (n + 1, n + 2) or n > 3:
        raise NotImplementedError(f"Padding size {len(pad)} is not supported for {ndim}D input tensor.")
    # Dispatcher layers see one op per rank. If none is active, the shared implementation is called
    # directly.
    return _BY_RANK[mode, n](input, pad) if mode != "circular" and dispatch_state.ops else _pad_nonconstant(input, pairs, n, mode)


def _pad_nonconstant(input, pairs, n, mode):
    """Extends the last n dims of input: mirrored, with the edge element, or wrapped around."""
    plan = _plan(input._sizes, pairs, n, mode)
    if input._np_dtype.kind == "b" and mode != "circular":
        names = {"reflect": "reflection_pad", "replicate": "replication_pad"}
        raise NotImplementedError(f"\"{names[mode]}{n}d\" not implemented for '{scalar_type_name(input)}' on device {input.device}")
    if mode == "circular":
        input = in_c_order(input)
    return take_axes_(input, plan=plan) if plan else input.clone()


@functools.lru_cache(1024)
def _plan(sizes, pairs, n, mode):
    """Returns the plan for `take_axes_`. Checks the arguments.

    Cached: a call with a 1x3x8x8 input takes 9.6 us, vs 13.7 us without the cache.
    """
    ndim = len(sizes)
    if mode != "circular" and 0 in sizes[1 if ndim == n + 2 else 0:]:
        raise RuntimeError(f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with possibly 0 batch size and other "
                           "non-zero "
                           f"dimensions for input, but got: {list(sizes)}")
    plan = []
    for axis in range(ndim - n, ndim):
        size, (lo, hi) = sizes[axis], pairs[axis]
        if mode == "reflect" and (lo >= size or hi >= size):
            raise RuntimeError("Argument #4: Padding size should be less than the corresponding input dimension, but "
                               "got: padding "
                               f"({lo}, {hi}) at dimension {axis} of input {list(sizes)}")
        if mode == "circular" and (lo > size or hi > size):
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if size + lo + hi < (1 if mode != "circular" else 0):
            raise RuntimeError(f"input ({'DHW'[3 - ndim + axis]}: {size}) is too small. Calculated output "
                               f"{'DHW'[3 - ndim + axis]}: {size + lo + hi}")
        if lo or hi:
            plan.append((axis, mode, size, lo, hi))
    return tuple(plan)


def _declare_pad(mode, name, n):
    def padded(input, padding):
        check_tensor_arg(name, "input", input)
        if len(padding) != 2 * n or input.ndim not in (n + 1, n + 2):
            raise RuntimeError(f"{name}: expected {2 * n} padding values and an input of {n + 1} or {n + 2} dimensions, but got "
                               f"{len(padding)} values and {input.ndim} dimensions")
        return _pad_nonconstant(input, _pairs(_counts(padding), input.ndim), n, mode)
    padded.__name__ = name
    padded.__doc__ = f"`torch.nn.functional.pad` over {n} dims in mode \"{mode}\", as a separate op."
    return register_op(padded, ns="_C._nn", method=False, autocast="float32")


#: (mode, number of dims) -> the op that autocast recognizes
_BY_RANK = {(mode, n): _declare_pad(mode, f"{stem}_pad{n}d", n) for mode, stem in (("reflect", "reflection"), ("replicate", "replication")) for n in (1, 2, 3)}
