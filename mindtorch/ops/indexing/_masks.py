"""masked_fill, masked_select, masked_scatter."""
import math
from numbers import Complex, Real

from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import BOOL, F32
from mindtorch.core.tensor.stride_rules import contiguous, pointwise
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import ScalarOperand, Tensor, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops._checks import check_tensor
from mindtorch.core.tensor.scalars import NUMBER, cast_scalar
from mindtorch.ops.basic import cast, new_full, sum_to
from mindtorch.ops.indexing import _expanded
from mindtorch.ops.shapes.views import broadcast_shape


def zero_dim(name, value, x):
    """Returns a scalar or 0-dim tensor as a 0-dim operand of x's dtype."""
    d = x._np_dtype
    if value.__class__ is Tensor or is_tensor(value):
        if value.ndim:
            raise RuntimeError(f"{name} only supports a 0-dimensional value tensor, but got tensor with "
                               f"{value.ndim} dimension(s).")
        if value._np_dtype == d:
            return value
        if value._np_dtype.kind == "c" and d.kind != "c" and to_host(value).imag:
            raise RuntimeError(f"value cannot be converted to type {scalar_type_name(d).lower()} without overflow")
        return cast(value, d)
    if name == "index_fill_" and d.kind != "c" and isinstance(value, Complex) and not isinstance(value, Real):
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    return cast_scalar(value, d)


def _first(r, operands, kw):
    """Lays out the result in the elementwise order of the first operand."""
    return pointwise(r, operands[:1], kw)


masked_fill_ = primitive("masked_fill", "a, value, mask", lambda ctx, grad: _masked_zero(grad, ctx.mask), lambda ctx, grad: sum_to(_masked_pick(grad, ctx.mask),
                                                                                                                                   size=()),
                         None, raw=True, layout=contiguous)
_masked_pick = primitive("masked_pick", "a, mask", lambda ctx, grad: _masked_pick(grad, ctx.mask), None, raw=True, layout=_first)
_masked_zero = primitive("masked_zero", "a, mask", lambda ctx, grad: _masked_zero(grad, ctx.mask), None, raw=True, layout=_first)
masked_select_ = primitive("masked_select", "a, mask", lambda ctx, grad: _masked_back(grad, ctx.mask, size=ctx.shapes[0]), None, raw=True,
                           aten="masked_select.default")
_masked_back = primitive("masked_select_backward", "g, mask, *, size", lambda ctx, grad: masked_select_(grad, ctx.mask), None, raw=True)
_masked_scatter = primitive("masked_scatter", "a, src, mask", lambda ctx, grad: _masked_zero(grad, ctx.mask),
                            lambda ctx, grad: _masked_source(grad, ctx.mask, size=ctx.shapes[1]), None, raw=True)
#: gradient of masked_scatter's source: the elements that the mask selects, then zeros
_masked_source = primitive("masked_source", "g, mask, *, size", lambda ctx, grad: _masked_scatter(
    new_full(grad, size=ctx.shapes[0], value=0, np_dtype=grad._np_dtype), grad, ctx.mask), None, raw=True)


def _shapes_fit(x, mask):
    broadcast_shape([mask._sizes, x._sizes])


@register_op(inplace=True, overlap="unchecked", tags="pointwise", expanded=_expanded.masked_fill)
def masked_fill(input, mask, value):
    """Returns input with `value` (a scalar or 0-dim tensor) where the bool tensor mask is True;
    input and mask broadcast."""
    try:
        # Fast path: a float32 tensor and a scalar that it can represent.
        if (value.__class__ is float or value.__class__ is int) and (-3e38 < value < 3e38 or value == -math.inf) and input._np_dtype is F32 \
                and mask._np_dtype is BOOL and mask._sizes == input._sizes:
            return masked_fill_(input, ScalarOperand(value, F32), mask)
    except AttributeError:
        pass
    check_tensor("masked_fill", input)
    check_tensor("masked_fill", mask, "mask", 2)
    if not isinstance(value, (Tensor, *NUMBER)):
        raise TypeError("masked_fill(): argument 'value' (position 3) must be Tensor or Number, not "
                        f"{type(value).__name__}")
    value = zero_dim("masked_fill_", value, input)
    if mask._np_dtype.kind != "b":
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {mask._np_dtype.name}")
    if mask._sizes != input._sizes:
        _shapes_fit(input, mask)
    return masked_fill_(input, value, mask)


@register_op(out="same", tags="dynamic_output_shape")
def masked_select(input, mask):
    """Returns the elements where the bool tensor mask is True as a 1-D tensor; input and mask
    broadcast."""
    check_tensor("masked_select", mask, "mask", 2)
    if mask._np_dtype.kind != "b":
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    if mask._sizes != input._sizes:
        _shapes_fit(input, mask)
    return masked_select_(input, mask)


@register_op(inplace=True, overlap="unchecked", aten="masked_scatter.default")
def masked_scatter(input, mask, source):
    """Returns input with the elements of source, in order, where the bool tensor mask is True."""
    check_tensor("masked_scatter", mask, "mask", 2)
    check_tensor("masked_scatter", source, "source", 3)
    if input._np_dtype != source._np_dtype:
        raise RuntimeError("masked_scatter: expected self and source to have same dtypes but "
                           f"got{scalar_type_name(input._np_dtype)} and "
                           f"{scalar_type_name(source._np_dtype)}")
    if mask._np_dtype.kind != "b":
        raise RuntimeError("masked_scatter_ only supports boolean masks, but got mask with dtype "
                           f"{scalar_type_name(mask._np_dtype)}")
    _shapes_fit(input, mask)
    return _masked_scatter(input, source, mask)
