"""Order statistics: median, k-th value, mode, quantiles."""
from mindtorch.core.autograd import forward_ad
from mindtorch.core.tensor.stride_rules import like
from mindtorch.core.tensor.return_types import struct
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Int, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, ScalarOperand, is_tensor
from mindtorch.ops.reduction._along import put_at, take_at
from mindtorch.ops._checks import check_tensor, not_implemented, wrap_dim
from mindtorch.ops._operands import scalar
from mindtorch.ops.elementwise._ternary import lerp_
from mindtorch.ops.basic import add_, cast, mul_, sub_
from mindtorch.ops.reduction.reduce import _extreme_grad, check_nonempty


def _selected_backward(ctx, grad):
    """Gradient rule of primitives that pick one element per slice and return (values, indices). The
    gradient goes to the picked element."""
    return put_at(grad[0], ctx.out1, axis=ctx.axis, keepdim=ctx.keepdim, shape=ctx.shapes[0], repeated=False)


def _along(name, input, dim):
    check_tensor(name, input)
    if input._np_dtype.kind == "c":
        raise not_implemented(name, input)
    axis = wrap_dim(name, dim, input.ndim)
    if input.ndim:
        check_nonempty(name, input, axis)
    return axis


# ------------------------------------------------------------------ median
def _median(name, skip):
    full = primitive(name + "_all", "a", lambda ctx, grad: _extreme_grad(grad, ctx.a, ctx.out, None, False), node=name.capitalize() + "Backward0")
    along = primitive(name + "_dim", "a, *, axis, keepdim", _selected_backward, nondiff=(1,), node=name.capitalize() + "Backward1")
    result = struct(name, "values indices")

    def median(input, dim: Int = None, keepdim: Bool = False):
        check_tensor(name, input)
        if dim is None:
            if input._np_dtype.kind in "bc":
                raise not_implemented(name, input)
            return full(input)
        return result(*along(input, axis=_along(name, input, dim), keepdim=keepdim))
    median.__name__ = name
    skipping = ", ignoring NaN" if skip else ""
    median.__doc__ = f"Returns the lower median of all elements{skipping}; over `dim` as (values, indices)."
    return register_op(median, out="same")


median = _median("median", False)
nanmedian = _median("nanmedian", True)


# ------------------------------------------------------------------ kthvalue, mode
_kthvalue = primitive("kthvalue", "a, *, k, axis, keepdim", _selected_backward, nondiff=(1,))
_mode = primitive("mode", "a, *, axis, keepdim", _selected_backward, nondiff=(1,))
_Kthvalue, _Mode = struct("kthvalue", "values indices"), struct("mode", "values indices")


@register_op(out="same", aten="kthvalue.default")
def kthvalue(input, k: SymInt, dim: Int = -1, keepdim: Bool = False):
    """Returns (values, indices) of the k-th smallest elements along `dim`. k counts from 1."""
    axis = _along("kthvalue", input, dim)
    n = input._sizes[axis] if input.ndim else 1
    if not 1 <= k <= n:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {axis}")
    return _Kthvalue(*_kthvalue(input, k=k, axis=axis, keepdim=keepdim))


@register_op(out="same", aten="mode.default")
def mode(input, dim: Int = -1, keepdim: Bool = False):
    """Returns (values, indices) of the most frequent elements along `dim`. Ties return the smallest
    element."""
    return _Mode(*_mode(input, axis=_along("mode", input, dim), keepdim=keepdim))


# ------------------------------------------------------------------ quantiles
_sort = primitive("sort_stable", "a, *, axis", lambda ctx, grad: put_at(
    grad[0], ctx.out1, axis=ctx.axis, keepdim=True, shape=ctx.shapes[0], repeated=False), nondiff=(1,), layout=like, node="SortBackward0")
#: (index below, index above, fraction between them, last index) of the quantiles q among sorted
#: values
_ranks = primitive("quantile_ranks", "v, q, *, axis, interpolation, skip, op", residuals=(0, 1, 2, 3))
_KINDS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(name, input, q, dim, keepdim, interpolation, skip):
    check_tensor(name, input)
    d, ndim = input._np_dtype, input.ndim
    if d.kind != "f" or d.itemsize < 4:
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if input._numel == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if q.__class__ is Tensor or is_tensor(q):
        if q.ndim > 1:
            raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
        if q._np_dtype != d:
            raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    else:
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q:g}")
        q = ScalarOperand(q, d)
    if interpolation not in _KINDS:
        raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
                           f"{interpolation}")
    axis = None if dim is None else wrap_dim(name, dim, ndim)
    x = input.reshape(-1) if axis is None or not ndim else input
    along = 0 if axis is None else axis
    s, _ = _sort(x, axis=along)
    low, high, w, last = _ranks(s, q, axis=along, interpolation=interpolation, skip=skip, op=name)
    at = {"axis": along, "keepdim": True, "shape": s._sizes, "repeated": True}
    r = take_at(s, low, **at)
    if high is not None:
        high = take_at(s, high, **at)
        if interpolation == "midpoint":
            w = scalar(0.5, s)
        elif forward_ad.is_differentiated(q):
            w = sub_(mul_(q.reshape([-1 if i == along else 1 for i in range(s.ndim)]), last), cast(low, d))
        # Interpolates from the nearer end, so that an exact hit returns that end even if the other
        # end is infinite.
        if interpolation == "linear" and not forward_ad.is_differentiated(w):
            r = lerp_(r, high, w)
        else:
            r = add_(r, mul_(sub_(high, r), w)) if interpolation == "linear" else sub_(high, mul_(sub_(high, r), w))

    # (.., q, ..) -> (q, .., 1, ..) with the reduced dim kept. It is dropped below if it is not
    # needed.
    r = r.unsqueeze(0).transpose(0, along + 1)
    if axis is None:
        r = r.reshape((q._numel,) + (1,) * (ndim if keepdim else 0))
    elif not keepdim or not ndim:
        r = r.squeeze(along + 1)
    return r if q.ndim else r.squeeze(0)


@register_op(out="same", autocast="float32")
def quantile(input, q, dim: Int = None, keepdim: Bool = False, *, interpolation="linear"):
    """Computes the q-th quantiles over `dim` or of the flattened tensor. q is a Python scalar or a
    1-d tensor. NaN propagates."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@register_op(out="same", autocast="float32")
def nanquantile(input, q, dim: Int = None, keepdim: Bool = False, *, interpolation="linear"):
    """Computes the q-th quantiles over `dim` or of the flattened tensor, ignoring NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)
