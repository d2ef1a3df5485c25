"""Reductions: sums, products, extremes, all and any, norms, moments.

Median, mode and quantiles are in `mindtorch/ops/reduction/_order_stats.py`, histograms in
`mindtorch/ops/reduction/_histogram.py`.
"""
import math

from mindtorch.core.autograd import forward_ad
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import F32, U8, as_np
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.stride_rules import as_computed
from mindtorch.core.tensor.scalars import read
from mindtorch.core.dispatch.type_promotion import promote_int_to_float, promote_pair
from mindtorch.core.tensor.return_types import made, struct
from mindtorch.core.dispatch.op_registry import OPS, SameDtype, register_op, store_out
from mindtorch.core.dispatch.op_schema import Bool, Float, Index, Int, Scalar
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.core.tensor.sync import of_all
from mindtorch.ops.reduction._along import all_, any_, put_at
from mindtorch.ops.reduction._running import product_of_others
from mindtorch.ops._checks import as_index, check_tensor, tensor_type_error, not_implemented, wrap_dim, wrap_dims
from mindtorch.ops.elementwise._logic import where
from mindtorch.core.device import device_dispatch
from mindtorch.ops._operands import scalar
from mindtorch.ops.basic import add_, cast, conj, eq_, mask_grad, mul_, ne_, sub_
from mindtorch.ops.shapes.shape import in_c_order
from mindtorch.ops.shapes.views import expand_, unsqueeze_
from mindtorch.ops.elementwise.binary import div_, maximum, minimum, pow_number
from mindtorch.ops.elementwise.unary import abs_, exp_, sgn_


# ------------------------------------------------------------------ shapes
#: expand_reduced: a reduced tensor repeated over the shape it was reduced from.
expand_reduced = primitive("expand_reduced", "g, *, shape, axes, keepdim", lambda ctx, grad: sum_dims(grad, axes=ctx.axes, keepdim=ctx.keepdim), raw=True,
                           layout=as_computed, node="ExpandBackward0")


def _restore_dims(g, shape, axes, keepdim):
    """Reinserts the reduced dims of g, so that it broadcasts to the shape it was reduced from."""
    if axes is not None and not keepdim and len(axes) < len(shape):
        for d in axes:
            g = unsqueeze_(g, dim=d)
    return g


def _sum_backward(ctx, grad, shape, axes, keepdim):
    """Returns the gradient of a sum.

    For a leaf, it is the sum's gradient expanded to the operand's shape with strides of 0, as in
    PyTorch (.grad gets a copy). For a node it is materialized on the host, because many kernels need
    C-contiguous memory there; a device whose kernels accept strides saves a launch.
    """
    if ctx._next_edges[0].__class__ is tuple and not device_dispatch.is_strided(grad):
        return expand_reduced(grad, shape=shape, axes=axes, keepdim=keepdim)
    return expand_(_restore_dims(grad, shape, axes, keepdim), size=shape)


sum_all = primitive("sum_all", "a", lambda ctx, grad: _sum_backward(ctx, grad, ctx.shapes[0], None, False), node="SumBackward0", aten="sum.default")
sum_dims = primitive("sum_dims", "a, *, axes, keepdim", lambda ctx, grad: _sum_backward(ctx, grad, ctx.shapes[0], ctx.axes, ctx.keepdim), node="SumBackward1")


def count(shape, axes):
    """Returns the number of elements that are reduced to one."""
    n = 1
    for d in range(len(shape)) if axes is None else axes:
        n *= shape[d]
    return n


def same_kind(g, like):
    """Casts a real gradient to the dtype of its operand, which may be complex."""
    return cast(g, like._np_dtype)


# ------------------------------------------------------------------ sum, mean, prod
def _input(name, x, dtype):
    check_tensor(name, x)
    return x if dtype is None else cast(x, as_np(dtype))


@register_op(name="sum", out="dtype_from_out")
def sum_op(input, dim: Index = None, keepdim: Bool = False, *, dtype=None):
    """Sums over `dim` (an int, several ints, or all). Integers and bools return int64."""
    if dim is None and dtype is None and not keepdim:
        try:
            if input._np_dtype.kind in "fcV":
                return sum_all(input)
        except AttributeError:
            raise tensor_type_error("sum", "input", 1, input) from None
    x = _input("sum", input, dtype)
    r = sum_dims(x, axes=wrap_dims("sum", dim, x.ndim), keepdim=keepdim)
    return r if dtype is None else cast(r, as_np(dtype))


@register_op(out="dtype_from_out")
def nansum(input, dim: Index = None, keepdim: Bool = False, *, dtype=None):
    """Sums over `dim`, counting NaN as zero."""
    x = _input("nansum", input, dtype)
    if x._np_dtype.kind == "c":
        raise RuntimeError("nansum on CPU does not support complex inputs")
    if x._np_dtype.kind in "fV":
        x = _without_nan(x)
    return sum_op(x, dim, keepdim, dtype=dtype)


_without_nan = primitive("without_nan", "a", lambda ctx, grad: mul_(grad, cast(eq_(ctx.a, ctx.a), grad._np_dtype)), node="NansumBackward0")


def _mean_backward(g, shape, axes, keepdim):
    return expand_reduced(mul_(g, scalar(1 / max(count(shape, axes), 1), g)), shape=shape, axes=axes, keepdim=keepdim)


mean_all = primitive("mean_all", "a", lambda ctx, grad: _mean_backward(grad, ctx.shapes[0], None, False), node="MeanBackward0", aten="mean.default")
mean_dims = primitive("mean_dims", "a, *, axes, keepdim", lambda ctx, grad: _mean_backward(grad, ctx.shapes[0], ctx.axes, ctx.keepdim), node="MeanBackward1")
#: the mean that variances use: accumulated in double precision
mean_upcast = primitive("mean_upcast", "a, *, axes, keepdim", lambda ctx, grad: _mean_backward(grad, ctx.shapes[0], ctx.axes, ctx.keepdim),
                        node="MeanBackward1")


@register_op(out=True)
def mean(input, dim: Index = None, keepdim: Bool = False, *, dtype=None):
    """Computes the mean over `dim`. RuntimeError for integers, unless `dtype` is a floating point
    dtype."""
    x = _input("mean", input, dtype)
    d = x._np_dtype
    if d.kind not in "fcV":
        raise RuntimeError("mean(): could not infer output dtype. Input dtype must be either a floating point or "
                           f"complex dtype. Got: {scalar_type_name(d)}")
    if dim is None and not keepdim:
        return mean_all(x)
    return mean_dims(x, axes=wrap_dims("mean", dim, x.ndim), keepdim=keepdim)


@register_op(out=True)
def nanmean(input, dim: Index = None, keepdim: Bool = False, *, dtype=None):
    """Computes the mean over `dim`, ignoring NaN."""
    check_tensor("nanmean", input)
    if input._np_dtype.kind not in "fcV":
        raise RuntimeError("nanmean(): expected input to have floating point or complex dtype but got "
                           f"{scalar_type_name(input._np_dtype)}")
    x = _input("nanmean", input, dtype)
    there = eq_(x, x)
    s = nansum(x, dim, keepdim)
    return div_(s, cast(sum_op(there, dim, keepdim), s._np_dtype))


def _prod_grad(g, a, out, axis, keepdim):
    if not mode.on:
        return _prod_backward(g, a, out, axis=axis, keepdim=keepdim)
    axes = None if axis is None else (axis,)
    expanded = expand_reduced(g, shape=a._sizes, axes=axes, keepdim=keepdim)
    if not a.ndim:
        return expanded
    if of_all(all_(a, axes=None, keepdim=False)).all():
        return mul_(expanded, conj(div_(expand_reduced(out, shape=a._sizes, axes=axes, keepdim=keepdim), a)))
    # A factor is zero: the quotient would be 0 / 0.
    if axis is None:
        return mul_(expanded, conj(product_of_others(a.reshape(-1), 0).reshape(a._sizes)))
    return mul_(expanded, conj(product_of_others(a, axis)))


prod_all = primitive("prod_all", "a", lambda ctx, grad: _prod_grad(grad, ctx.a, ctx.out, None, False), node="ProdBackward0", aten="prod.default")
prod_dim = primitive("prod_dim", "a, *, axis, keepdim", lambda ctx, grad: _prod_grad(grad, ctx.a, ctx.out, ctx.axis, ctx.keepdim), node="ProdBackward1",
                     aten="prod.dim_int")
_prod_backward = primitive("prod_backward", "g, a, out, *, axis, keepdim", raw=True)


@register_op(out="dtype_from_out", autocast="float32")
def prod(input, dim: Int = None, keepdim: Bool = False, *, dtype=None):
    """Multiplies all elements, or those along one `dim`. Integers and bools return int64."""
    x = _input("prod", input, dtype)
    if dim is None:
        r = prod_all(x)
    elif isinstance(dim, (tuple, list)):
        raise TypeError(f"prod() received an invalid combination of arguments: dim must be int, not "
                        f"{type(dim).__name__}")
    else:
        axis = wrap_dim("prod", dim, x.ndim)
        r = prod_dim(x, axis=axis if x.ndim else None, keepdim=keepdim)
    return r if dtype is None else cast(r, as_np(dtype))


# ------------------------------------------------------------------ extremes
#
# 1 / (number of ties) where an element equals the extreme, else 0. If the extreme is NaN, the NaN
# elements are the ties (`nan`), or the entire result is NaN.
_share = primitive("extreme_share", "a, out, *, axes, keepdim, nan", raw=True)


def _extreme_grad(g, a, out, axes, keepdim, nan=True):
    return mul_(expand_reduced(g, shape=a._sizes, axes=axes, keepdim=keepdim), _share(a, out, axes=axes, keepdim=keepdim, nan=nan))


def _extreme(name):
    """Defines the primitives of a reduction by maximum or minimum: over all elements, over axes,
    and along one axis as (values, indices)."""
    camel = name.capitalize()
    full = primitive(name + "_all", "a", lambda ctx, grad: _extreme_grad(grad, ctx.a, ctx.out, None, False), node=camel + "Backward1",
                     aten=f"{name}.default")
    dims = primitive("a" + name, "a, *, axes, keepdim", lambda ctx, grad: _extreme_grad(grad, ctx.a, ctx.out, ctx.axes, ctx.keepdim, False))
    along = primitive(name + "_dim", "a, *, axis, keepdim", lambda ctx, grad: put_at(
        grad[0], ctx.out1, axis=ctx.axis, keepdim=ctx.keepdim, shape=ctx.shapes[0], repeated=False), nondiff=(1,), node=camel + "Backward0", aten=f"{name}.dim")
    return full, dims, along


_max_all, amax_, _max_dim = _extreme("max")
_min_all, amin_, _min_dim = _extreme("min")
_Max, _Min, _Aminmax = struct("max", "values indices"), struct("min", "values indices"), struct("aminmax", "min max")


def _no_complex(name, x):
    if x._np_dtype.kind == "c":
        raise not_implemented(name, x)


def check_nonempty(name, x, axis, kind=IndexError):
    """Raises an error if the reduced dim is empty. `kind` is the error for a reduction over all
    dims (axis=None)."""
    if x._numel == 0:
        if axis is None:
            raise kind(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                       f"reduction dim "
                       "with the 'dim' argument.")
        if x._sizes[axis] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")


def _max_or_min(name, input, dim, keepdim, other, full, along, struct_, pairwise):
    if input.__class__ is not Tensor:
        check_tensor(name, input)
    if other is not None or dim is not None and dim.__class__ is not int and is_tensor(dim):
        if keepdim is False or other is not None:
            return pairwise(input, dim if other is None else other)
        dim = read(name, "dim", "int", dim)
    _no_complex(name, input)
    if dim is None:
        check_nonempty(name, input, None, RuntimeError)
        return full(input)
    axis = wrap_dim(name, dim, input.ndim)
    if input.ndim:
        check_nonempty(name, input, axis)
    return made(struct_, along(input, axis=axis, keepdim=keepdim))


@register_op(name="max", out=SameDtype(pairs=True))
def max_op(input, dim=None, keepdim: Bool = False, *, other=None):
    """Returns the maximum of all elements; over `dim` as (values, indices); of two tensors,
    elementwise."""
    return _max_or_min("max", input, dim, keepdim, other, _max_all, _max_dim, _Max, maximum)


@register_op(name="min", out=SameDtype(pairs=True))
def min_op(input, dim=None, keepdim: Bool = False, *, other=None):
    """Returns the minimum of all elements; over `dim` as (values, indices); of two tensors,
    elementwise."""
    return _max_or_min("min", input, dim, keepdim, other, _min_all, _min_dim, _Min, minimum)


def _amax_or_amin(name, input, dim, keepdim, prim):
    check_tensor(name, input)
    axes = wrap_dims(name, dim, input.ndim)
    if axes is None:
        check_nonempty(name, input, None, RuntimeError)
    elif input._numel == 0:
        for d in axes:
            check_nonempty(name, input, d)
    _no_complex(name, input)
    return prim(input, axes=axes, keepdim=keepdim)


@register_op(out="same")
def amax(input, dim: Index = (), keepdim: Bool = False):
    """Returns the maximum over `dim` (one, several or all). Ties share the gradient."""
    return _amax_or_amin("amax", input, dim, keepdim, amax_)


@register_op(out="same")
def amin(input, dim: Index = (), keepdim: Bool = False):
    """Returns the minimum over `dim` (one, several or all). Ties share the gradient."""
    return _amax_or_amin("amin", input, dim, keepdim, amin_)


@register_op(out="same", aten="aminmax.default")
def aminmax(input, *, dim: Int = None, keepdim: Bool = False):
    """Returns (min, max) of all elements or over one `dim`."""
    check_tensor("aminmax", input)
    axes = None if dim is None else as_index("aminmax", dim)
    return _Aminmax(_amax_or_amin("aminmax", input, axes, keepdim, amin_),
                    _amax_or_amin("aminmax", input, axes, keepdim, amax_))


def _arg(name):
    prim = primitive(name, "a, *, axis, keepdim", aten=f"{name}.default")

    def arg(input, dim: Int = None, keepdim: Bool = False):
        check_tensor(name, input)
        if input._np_dtype.kind in "bc":
            raise not_implemented(name, input)
        axis = None if dim is None else wrap_dim(name, dim, input.ndim)
        if input.ndim or not input._numel:
            check_nonempty(name, input, axis)
        return prim(input, axis=axis, keepdim=keepdim)
    arg.__name__ = name
    which = "largest" if name == "argmax" else "smallest"
    arg.__doc__ = f"Returns the index of the {which} element of the flattened tensor, or along `dim`."
    return register_op(arg, out="same")


argmax = _arg("argmax")
argmin = _arg("argmin")


# ------------------------------------------------------------------ all, any
def _truth(name, prim):
    def truth(input, dim: Int = None, keepdim: Bool = False):
        check_tensor(name, input)
        if isinstance(dim, (tuple, list)) and not dim:
            axes = ()  # PyTorch reduces nothing then
        else:
            axes = wrap_dims(name, dim, input.ndim)
        r = prim(input, axes=axes, keepdim=keepdim)
        return cast(r, U8) if input._np_dtype == U8 else r
    truth.__name__ = name
    truth.__doc__ = f"True if {name} element{'s are' if name == 'all' else ' is'} true, over `dim` or the entire tensor."
    return register_op(truth, out=SameDtype("{name} only supports bool tensor for result, got: {have}", ("bool", "uint8")))


_truth("all", all_)
_truth("any", any_)


_count_nonzero = primitive("count_nonzero", "a, *, axes", raw=True)


def _nonzeros(input, dim: Int = None, *more):
    """Counts the nonzero elements over the given dims or in the entire tensor."""
    check_tensor("count_nonzero", input)
    return _count_nonzero(input, axes=wrap_dims("count_nonzero", (dim, *more) if more else dim, input.ndim))


_nonzeros.__name__ = "count_nonzero"


@register_op(out=False, method=_nonzeros)
def count_nonzero(input, dim: Int = None):
    """Counts the nonzero elements over `dim` or in the entire tensor."""
    return _nonzeros(input, dim)


# ------------------------------------------------------------------ logsumexp
logsumexp_ = primitive(
    "logsumexp", "a, *, axes, keepdim",
    lambda ctx, grad: mul_(expand_reduced(grad, shape=ctx.shapes[0], axes=ctx.axes, keepdim=ctx.keepdim), conj(exp_(sub_(
        ctx.a, expand_reduced(ctx.out, shape=ctx.shapes[0], axes=ctx.axes, keepdim=ctx.keepdim))))))


@register_op(out=True, aliases="special.logsumexp")
def logsumexp(input, dim: Index, keepdim: Bool = False):
    """Computes log(sum(exp(input))) over `dim`, without overflow."""
    check_tensor("logsumexp", input)
    return logsumexp_(promote_int_to_float(input), axes=wrap_dims("logsumexp", dim, input.ndim), keepdim=keepdim)


# ------------------------------------------------------------------ moments
def _var_grad(g, a, axes, keepdim, correction):
    n = count(a._sizes, axes)
    d = sub_(a, mean_upcast(a, axes=axes, keepdim=True))
    rest = n - correction
    if rest > 0 or rest and axes is not None:
        g = mul_(g, scalar(2 / rest, g))
    else:
        # Applied to d and not to g, so that the tangent of an empty input, which is an empty sum,
        # is 0.
        d = mul_(abs_(d) if axes is None else d, scalar(math.inf, g))
    return same_kind(mul_(same_kind(expand_reduced(g, shape=a._sizes, axes=axes, keepdim=keepdim), d), d), a)


def _std_grad(g, a, out, axes, keepdim, correction):
    # Avoids a division by zero, also where the rule is transposed for tangents.
    none = scalar(0, out)
    g, out = mask_grad(g, ne_(out, none)), add_(out, cast(eq_(out, none), out._np_dtype))
    return _var_grad(div_(g, mul_(out, scalar(2, out))), a, axes, keepdim, correction)


var_ = primitive("var", "a, *, axes, keepdim, correction", lambda ctx, grad: _var_grad(grad, ctx.a, ctx.axes, ctx.keepdim, ctx.correction))
std_ = primitive("std", "a, *, axes, keepdim, correction", lambda ctx, grad: _std_grad(grad, ctx.a, ctx.out, ctx.axes, ctx.keepdim, ctx.correction))


def _moment(name, prim, input, dim, unbiased, keepdim, correction):
    check_tensor(name, input)
    if dim.__class__ is bool:
        # var(unbiased) is a separate overload.
        if unbiased is not None:
            raise TypeError(f"{name}() received an invalid combination of arguments: dim must be int, not bool")
        dim, unbiased = None, dim
    if input._np_dtype.kind not in "fcV":
        raise RuntimeError("std and var only support floating point and complex dtypes")
    if unbiased is not None and correction is not None:
        raise TypeError(f"{name}() received an invalid combination of arguments: both unbiased and correction are "
                        f"given")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return prim(input, axes=wrap_dims(name, dim, input.ndim), keepdim=keepdim, correction=correction)


@register_op(out=True)
def var(input, dim: Index = None, unbiased: Bool = None, keepdim: Bool = False, *, correction: Scalar = None):
    """Computes the variance over `dim`, divided by n - correction (default 1; `unbiased=False`: 0).
    """
    return _moment("var", var_, input, dim, unbiased, keepdim, correction)


@register_op(out=True)
def std(input, dim: Index = None, unbiased: Bool = None, keepdim: Bool = False, *, correction: Scalar = None):
    """Computes the standard deviation over `dim`, divided by n - correction (default 1;
    `unbiased=False`: 0)."""
    return _moment("std", std_, input, dim, unbiased, keepdim, correction)


def _mean_of_moment(input, dim, keepdim):
    return mean_upcast(input, axes=None if dim.__class__ is bool else wrap_dims("mean", dim, input.ndim), keepdim=keepdim)


@register_op(method=False)
def var_mean(input, dim: Index = None, unbiased: Bool = None, keepdim: Bool = False, *, correction: Scalar = None):
    """Returns (variance, mean) over `dim`."""
    return var(input, dim, unbiased, keepdim, correction=correction), _mean_of_moment(input, dim, keepdim)


@register_op(method=False)
def std_mean(input, dim: Index = None, unbiased: Bool = None, keepdim: Bool = False, *, correction: Scalar = None):
    """Returns (standard deviation, mean) over `dim`."""
    return std(input, dim, unbiased, keepdim, correction=correction), _mean_of_moment(input, dim, keepdim)


# ------------------------------------------------------------------ norms
def _norm_grad(g, a, out, p, axes, keepdim):
    shape = a._sizes
    if p == 0:
        return None  # no gradient, as in PyTorch: parameters keep .grad = None
    if p in (math.inf, -math.inf):
        size = abs_(a)
        return mul_(sgn_(a), same_kind(_extreme_grad(g, size, out, axes, keepdim), a))
    if p == 2:
        # The order matters: a / norm is at most 1, while gradient / norm may overflow for a small
        # norm.
        none = scalar(0, out)
        # For a norm of zero, an infinite gradient becomes NaN, as in PyTorch.
        g, out = mul_(g, cast(ne_(out, none), g._np_dtype)), add_(out, cast(eq_(out, none), out._np_dtype))
        g, out = _restore_dims(g, shape, axes, keepdim), _restore_dims(out, shape, axes, keepdim)
        return mul_(same_kind(g, a), div_(a, same_kind(out, a)))
    expanded = expand_reduced(g, shape=shape, axes=axes, keepdim=keepdim)
    if p == 1:
        return mul_(sgn_(a), same_kind(expanded, a))
    size = abs_(a)
    if p < 1:
        # The power is infinite at zero, where the derivative is defined as 0. The product is not
        # masked as a whole, so that NaN propagates.
        along = mul_(sgn_(a), same_kind(mask_grad(pow_number(size, p=p - 1), ne_(size, scalar(0, size))), a))
        return mul_(along, same_kind(mul_(expanded, expand_reduced(pow_number(out, p=1 - p), shape=shape, axes=axes, keepdim=keepdim)), a))
    ratio = mask_grad(div_(g, pow_number(out, p=p - 1)), ne_(out, scalar(0, out)))
    ratio = same_kind(expand_reduced(ratio, shape=shape, axes=axes, keepdim=keepdim), a)
    if p < 2:
        return mul_(mul_(sgn_(a), same_kind(pow_number(size, p=p - 1), a)), ratio)
    return mul_(mul_(a, same_kind(pow_number(size, p=p - 2), a)), ratio)


vector_norm_ = primitive("linalg_vector_norm", "a, *, p, axes, keepdim",
                         lambda ctx, grad: _norm_grad(grad, ctx.a, ctx.out, ctx.p, ctx.axes, ctx.keepdim))


def vector_norm(x, p=2, dim=None, keepdim=False, dtype=None, name="linalg.vector_norm"):
    """Computes the p-norm of the elements over `dim`, like torch.linalg.vector_norm."""
    check_tensor(name, x)
    if dtype is not None:
        x = cast(x, as_np(dtype))
    d = x._np_dtype
    if d.kind not in "fcV":
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {scalar_type_name(d)}")
    axes = wrap_dims(name, dim, x.ndim)
    p = float(p.item() if (p.__class__ is Tensor or is_tensor(p)) else p)
    if x._numel == 0 and (p < 0 or p == math.inf):
        for d in range(x.ndim) if axes is None else axes:
            if x._sizes[d] == 0:
                where = "on an empty tensor" if axes is None else f"on the dimension {d}"
                raise RuntimeError(f"linalg.vector_norm cannot compute the {p:g} norm {where} because the operation "
                                   f"does not have an identity")
    return vector_norm_(x, p=p, axes=axes, keepdim=keepdim)


def _norm(input, p, dim, keepdim, dtype):
    check_tensor("norm", input)
    if p.__class__ is not str:
        if p.__class__ is Tensor:
            p = read("linalg_vector_norm", "ord", "number", p)
        return vector_norm(input, 2 if p is None else p, dim, keepdim, dtype)
    if p == "fro":
        return vector_norm(input, 2, dim, keepdim, dtype)
    if p == "nuc":
        return OPS["linalg.matrix_norm"].fn(input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")


@register_op(method=False)
def norm(input, p: Float = "fro", dim: Index = None, keepdim: Bool = False, out=None, dtype=None):
    """Computes the p-norm over `dim`. p is a Python scalar, "fro" or "nuc"."""
    r = _norm(input, p, dim, keepdim, dtype)
    if out is None:
        return r
    SameDtype().check("norm", out, r)
    return store_out("norm", out, r)


def _norm_method(self, p: Float = "fro", dim: Index = None, keepdim: Bool = False, dtype=None):
    """Computes the p-norm over `dim`. p is a Python scalar, "fro" or "nuc"."""
    return _norm(self, p, dim, keepdim, dtype)


Tensor.norm = _norm_method


@register_op(aten="dist.default")
def dist(input, other, p: Float = 2):
    """Computes the p-norm of the difference."""
    check_tensor("dist", input)
    check_tensor("dist", other, "other", 2)
    a, b = promote_pair(input, other)
    return vector_norm(sub_(a, b), p)


@register_op(inplace=True, out="same", aten="renorm.default")
def renorm(input, p: Float, dim: Int, maxnorm: Scalar):
    """Scales slices along `dim` whose p-norm exceeds maxnorm down to maxnorm."""
    check_tensor("renorm", input)
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    axis = wrap_dim("renorm", dim, input.ndim)
    dims = [d for d in range(input.ndim) if d != axis]
    # The norm of 16-bit elements is not rounded to 16 bits.
    x = cast(input, F32) if input._np_dtype.itemsize == 2 else input
    n = vector_norm(x, p, dims, True)
    over = n > maxnorm
    if forward_ad.is_differentiated(n):
        # Slices that are not scaled (including those with NaN) must not contribute to the
        # derivative of the norm.
        n = vector_norm(where(over, x, 0.0), p, dims, True)
    # The small constant keeps a scaled slice from exceeding the limit through rounding.
    factor = where(over, maxnorm / (n + 1e-7), 1.0)
    return in_c_order(mul_(input, same_kind(factor, input)))


# ------------------------------------------------------------------ trace, hash
trace_ = primitive("trace", "a", lambda ctx, grad: on_diagonal(grad, shape=ctx.shapes[0]), aten="trace.default")
on_diagonal = primitive("trace_backward", "g, *, shape", lambda ctx, grad: trace_(grad))


@register_op(autocast="float32")
def trace(input):
    """Sums the diagonal of a matrix. Integers return int64."""
    check_tensor("trace", input)
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return trace_(input)


_hash = primitive("hash_tensor", "a, *, axes, keepdim", raw=True)


@register_op(out="same")
def hash_tensor(input, dim: Index = (), *, keepdim: Bool = False, mode: Int = 0):
    """Computes the XOR of the elements' bits over `dim`, as uint64. Floats are read as float64,
    integers as int64."""
    check_tensor("hash_tensor", input)
    if mode != 0:
        raise NotImplementedError(f"'hash_tensor' is not implemented for mode {mode} on device {input.device}")
    _no_complex("hash_tensor", input)
    return _hash(input, axes=wrap_dims("hash_tensor", dim, input.ndim), keepdim=keepdim)
