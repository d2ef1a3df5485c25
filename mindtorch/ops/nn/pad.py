"""torch.nn.functional.pad in all its modes."""
from mindtorch.backend.cpu import resize as kernels
from mindtorch.core.promote import number_dtype
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.ops.nn._fused import tensor_arg, title
from mindtorch.ops.shapes.shape import in_c_order

pad_constant_ = primitive("constant_pad_nd", kernels.pad_constant,
                          lambda c, g: pad_constant_(g, pads=tuple((-lo, -hi) for lo, hi in c.pads), value=0), raw=True)
take_axes_ = primitive("pad_by_index", kernels.take_axes, lambda c, g: take_axes_grad_(g, plan=c.plan), raw=True,
                       node="ReflectionPad2DBackward0")
take_axes_grad_ = primitive("pad_by_index_backward", kernels.take_axes_grad, lambda c, g: take_axes_(g, plan=c.plan), raw=True)


def _pairs(pad, ndim):
    """The list that starts with the last dim -> a (before, after) pair for each dim in order."""
    pad = [p.__index__() if not hasattr(p, "_a") else int(p._a.reshape(())) for p in pad]
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
    a = input._a
    pairs = _pairs(pad, a.ndim)
    for i, (n, (lo, hi)) in enumerate(zip(a.shape, pairs)):
        if n + lo + hi < 0:
            raise RuntimeError(f"The input size {n}, plus negative padding {lo} and {hi} resulted in a negative output "
                               "size, which "
                               f"is invalid. Check dimension {i} of your input.")
    if a.dtype.kind in "iu":
        value = int(value)
    elif a.dtype.kind == "b":
        value = bool(value)
    number_dtype(value)
    return pad_constant_(input, pads=pairs, value=value)


@op(method=False)
def constant_pad_nd(input, pad, value=0):
    """input with `value` before and after its last dims; negative counts cut off."""
    tensor_arg("constant_pad_nd", "input", input)
    return _constant(input, pad, value)


@op(ns="nn.functional", method=False, name="pad")
def pad_(input, pad, mode="constant", value=None):
    """input padded at the ends of its last dims: constant (any dims), reflect, replicate or circular (1 to 3 dims)."""
    tensor_arg("pad", "input", input)
    if mode == "constant":
        return _constant(input, pad, 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    a = input._a
    pairs = _pairs(pad, a.ndim)
    if value is not None and value != 0:
        raise RuntimeError(f"Padding mode \"{mode}\" doesn't take in value argument")
    n = len(pad) // 2
    if not n or a.ndim not in (n + 1, n + 2) or n > 3:
        raise NotImplementedError(f"Padding size {len(pad)} is not supported for {a.ndim}D input tensor.")
    if mode != "circular" and 0 in a.shape[1 if a.ndim == n + 2 else 0:]:
        raise RuntimeError(f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with possibly 0 batch size and other "
                           "non-zero "
                           f"dimensions for input, but got: {list(a.shape)}")
    plan = []
    for axis in range(a.ndim - n, a.ndim):
        size, (lo, hi) = a.shape[axis], pairs[axis]
        if mode == "reflect" and (lo >= size or hi >= size):
            raise RuntimeError("Argument #4: Padding size should be less than the corresponding input dimension, but "
                               "got: padding "
                               f"({lo}, {hi}) at dimension {axis} of input {list(a.shape)}")
        if mode == "circular" and (lo > size or hi > size):
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if size + lo + hi < (1 if mode != "circular" else 0):
            raise RuntimeError(f"input ({'DHW'[3 - a.ndim + axis]}: {size}) is too small. Calculated output "
                               f"{'DHW'[3 - a.ndim + axis]}: {size + lo + hi}")
        if lo or hi:
            plan.append((axis, kernels.pad_index(mode, size, lo, hi), size, lo))
    if a.dtype.kind == "b" and mode != "circular":
        names = {"reflect": "reflection_pad", "replicate": "replication_pad"}
        raise NotImplementedError(f"\"{names[mode]}{n}d\" not implemented for '{title(a)}' on device cpu")
    if mode == "circular":
        input = in_c_order(input)
    return take_axes_(input, plan=tuple(plan)) if plan else input.clone()
