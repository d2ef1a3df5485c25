"""The few primitives that everything else is built on: cast, copy, sum to a shape, add, multiply.
"""
from mindtorch.core.dispatch.lazy_conj import conj_view
from mindtorch.core.tensor.stride_rules import as_computed, like, pointwise
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor


_cast = primitive("to_copy", "a, *, dtype", lambda ctx, grad: cast(grad, ctx.dtypes[0]), raw=True, layout=like)


def cast(x, dtype):
    """Casts a tensor to NumPy dtype `dtype`; returns `x` itself if it already has that dtype."""
    if x._np_dtype == dtype:
        return x
    return _cast(x, dtype=dtype)


def cast_grad(g, dtype):
    """Casts a gradient to the dtype of its tensor."""
    return cast(g, dtype)


#: copies to another device
_moved = primitive("to_device", "a, *, source, target", lambda ctx, grad: move(grad, ctx.source), raw=True, node="ToCopyBackward0")


def move(x, dev):
    """Moves a tensor to the device `dev` (a torch.device); returns `x` itself if it is already
    there."""
    return x if x._device == dev else _moved(x, source=x._device, target=dev)


# ------------------------------------------------------------------ shape of gradients
sum_to = primitive("sum_to_size", "a, *, size", lambda ctx, grad: broadcast(grad, shape=ctx.shapes[0]), layout=as_computed)
broadcast = primitive("broadcast", "a, *, shape", lambda ctx, grad: sum_to(grad, size=ctx.shapes[0]), raw=True, node="ExpandBackward0")

clone = primitive("clone", "a", lambda ctx, grad: grad, raw=True, layout=like, aten="clone.default")

# ------------------------------------------------------------------ tensors of one value
#
# new_full(like, size=, value=, np_dtype=): on the device of `like`, whose values are not read.
new_full = primitive("new_full", "like, *, size, value, np_dtype", raw=True)


def zeros_like(g):
    """Returns the zero gradient of a piecewise constant function."""
    return new_full(g, size=g._sizes, value=0, np_dtype=g._np_dtype)


# ------------------------------------------------------------------ arithmetic of gradient rules
add_ = primitive("add", "a, b", lambda ctx, grad: grad, lambda ctx, grad: grad, aten="add.Tensor")
sub_ = primitive("sub", "a, b", lambda ctx, grad: grad, lambda ctx, grad: neg_(grad))
neg_ = primitive("neg", "a", lambda ctx, grad: neg_(grad), aten="neg.default")
mul_ = primitive("mul", "a, b", lambda ctx, grad: mul_(grad, conj(ctx.b)), lambda ctx, grad: mul_(grad, conj(ctx.a)), aten="mul.Tensor")
_conj = primitive("conj", "a", lambda ctx, grad: _conj(grad))

# ------------------------------------------------------------------ bool masks of gradient rules
eq_, ne_, lt_, le_, gt_, ge_ = [primitive(n, "a, b", aten=f"{n}.Tensor {n}.Scalar") for n in ("eq", "ne", "lt", "le", "gt", "ge")]
and_, or_ = [primitive(n, "a, b", aten=f"{n}.default") for n in ("logical_and", "logical_or")]
not_ = primitive("logical_not", "a", aten="logical_not.default")
#: keep(g, mask): g where the bool tensor `mask` is True, else 0 (also where g is NaN or inf).
mask_grad = primitive("mask_grad", "g, mask", lambda ctx, grad: mask_grad(grad, ctx.mask), None, raw=True, layout=pointwise, node="MaskedFillBackward0")


def conj(x):
    """Returns the complex conjugate; a real tensor is returned unchanged."""
    return _conj(x) if x._np_dtype.kind == "c" and (x.__class__ is Tensor or is_tensor(x)) else (x if x._np_dtype.kind != "c" else x.conj())


def lazy_conj(x):
    """Returns the conjugate of a complex tensor as a view; a real tensor is returned unchanged."""
    return conj_view(x) if x._np_dtype.kind == "c" else x
