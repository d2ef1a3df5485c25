"""Cumulative ops along one axis, differences and numerical integration."""
import math

from mindtorch.core.tensor import dtypes
from mindtorch.core.tensor.dtypes import C64, U8, as_np
from mindtorch.core.tensor.stride_rules import pointwise
from mindtorch.core.tensor.scalars import number_of, read
from mindtorch.core.dispatch.type_promotion import promote_int_to_float, promote_pair, promote_types
from mindtorch.core.tensor.return_types import made, struct
from mindtorch.core.dispatch.op_registry import OPS, inplace_method, register_op
from mindtorch.core.dispatch.op_schema import Float, Int
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.ops.reduction._along import put_at
from mindtorch.ops._checks import check_tensor, not_implemented, wrap_dim, wrap_dims
from mindtorch.ops._operands import scalar
from mindtorch.ops.basic import cast, conj, mul_, new_full
from mindtorch.ops.reduction._running import cumprod_, cumsum_, recur, shift
from mindtorch.ops.reduction.reduce import sum_dims
from mindtorch.ops.elementwise.unary import exp_


# ------------------------------------------------------------------ cumsum, cumprod
def _cumulative(name, prim, input, dim, dtype):
    check_tensor(name, input)
    d = None if dtype is None else as_np(dtype)
    x = input if d is None else cast(input, d)
    r = prim(x, axis=wrap_dim(name, dim, x.ndim))
    return r if d is None else cast(r, d)


@register_op(out="dtype_from_out")
def cumsum(input, dim: Int, *, dtype=None):
    """Computes cumulative sums along `dim`. Integers and bools return int64."""
    return _cumulative("cumsum", cumsum_, input, dim, dtype)


@register_op(out="dtype_from_out")
def cumprod(input, dim: Int, *, dtype=None):
    """Computes cumulative products along `dim`. Integers and bools return int64."""
    return _cumulative("cumprod", cumprod_, input, dim, dtype)


def _in_place(name, fn):
    @inplace_method(name)
    def f(self, dim, *, dtype=None):
        if self._np_dtype.kind == "b" and dtype is None:
            raise not_implemented(name + "_", self)
        r = fn(self, dim, dtype=dtype)
        return cast(r, self._np_dtype) if dtype is None else r  # in-place ops keep an integer dtype


_in_place("cumsum", cumsum)
_in_place("cumprod", cumprod)


# ------------------------------------------------------------------ cummax, cummin
def _running_extreme(name):
    prim = primitive(name, "a, *, axis", lambda ctx, grad: put_at(
        grad[0], ctx.out1, axis=ctx.axis, keepdim=True, shape=ctx.shapes[0], repeated=True), nondiff=(1,))
    result = struct(name, "values indices")

    def cum(input, dim: Int):
        check_tensor(name, input)
        if input._np_dtype.kind == "c":
            raise not_implemented(name, input)
        return made(result, prim(input, axis=wrap_dim(name, dim, input.ndim)))
    cum.__name__ = name
    cum.__doc__ = f"(values, indices) of the running {'maxima' if name == 'cummax' else 'minima'} along `dim`."
    return register_op(cum, out="same", aten=f"{name}.default")


cummax = _running_extreme("cummax")
cummin = _running_extreme("cummin")


# ------------------------------------------------------------------ logcumsumexp
def _logcumsumexp_grad(g, a, out, axis):
    if a.ndim == 0:
        return g
    # d out[i] / d a[k] = exp(a[k] - out[i]), summed from the end: s[k] = g[k] + exp(out[k] -
    # out[k+1]) s[k+1], where no factor exceeds 1 in magnitude. Past the end, out is inf: the factor
    # there is 0, and its derivative is not infinite.
    ratio = exp_(_difference(out, shift(out, axis=axis, by=1, fill=math.inf)))
    return mul_(recur(g, conj(ratio), axis=axis), conj(exp_(_difference(a, out))))


_difference = primitive("finite_difference", "a, b", lambda ctx, grad: grad, lambda ctx, grad: mul_(grad, scalar(-1, grad)), node="SubBackward0")
logcumsumexp_ = primitive("logcumsumexp", "a, *, axis", lambda ctx, grad: _logcumsumexp_grad(grad, ctx.a, ctx.out, ctx.axis))


@register_op(out="same", aten="logcumsumexp.default")
def logcumsumexp(input, dim: Int):
    """Computes log(cumsum(exp(input))) along `dim`, without overflow."""
    check_tensor("logcumsumexp", input)
    if input._np_dtype.kind in "biu":
        raise not_implemented("logcumsumexp", input)
    return logcumsumexp_(input, axis=wrap_dim("logcumsumexp", dim, input.ndim))


# ------------------------------------------------------------------ differences
diff_ = primitive("diff", "a, *, axis", lambda ctx, grad: undiff(grad, axis=ctx.axis), layout=pointwise, node="SubBackward0")
undiff = primitive("diff_backward", "g, *, axis", lambda ctx, grad: diff_(grad, axis=ctx.axis))
pair_sums = primitive("pair_sums", "a, *, axis", lambda ctx, grad: unpair(grad, axis=ctx.axis), layout=pointwise, node="AddBackward0")
unpair = primitive("pair_sums_backward", "g, *, axis", lambda ctx, grad: pair_sums(grad, axis=ctx.axis), node="AddBackwardBackward0")


@register_op(out="same")
def diff(input, n: Int = 1, dim: Int = -1, prepend=None, append=None):
    """Computes the n-th differences of neighbors along `dim`. For bools: whether they differ."""
    check_tensor("diff", input)
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    axis = wrap_dim("diff", dim, input.ndim)
    if n.__class__ is not int:
        n = read("diff", "n", "int", n)
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if n == 0:
        return input.clone()  # nothing is prepended or appended
    x = input
    if prepend is not None or append is not None:
        for extra in (prepend, append):
            if extra is not None and extra.ndim != x.ndim:
                raise RuntimeError("diff expects prepend or append to be the same dimension as input")
            if extra is not None and any([a != b for i, (a, b) in enumerate(zip(extra._sizes, x._sizes)) if i != axis]):
                raise RuntimeError("diff expects the shape of tensor to prepend or append to match that of input except along the differencing dimension; "
                                   f"input.size() = {list(x._sizes)}, got {list(extra._sizes)} and dim {axis}")
        x = OPS["cat"].fn([t for t in (prepend, x, append) if t is not None], axis)
    for _ in range(min(n, x._sizes[axis])):
        x = diff_(x, axis=axis)
    return x


# ------------------------------------------------------------------ trapezoidal rule
#
# Integers are added as integers, in PyTorch's order: float32 cannot represent large sums.
def _check_samples(name, y, x, dx, dim):
    """Checks the arguments. Returns (axis, spacings between the sample points x or None)."""
    check_tensor(name, y)
    if y.ndim == 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    axis = wrap_dim(name, dim, y.ndim)
    if x is not None and dx is not None:
        raise TypeError(f"{name}() received an invalid combination of arguments: x and dx exclude each other")
    if y._np_dtype.kind == "b" and x is None:
        raise RuntimeError(f"{name}: received a bool input for `y`, but bool is not supported")
    if y._sizes[axis] == 0 or x is None:
        return axis, None
    check_tensor(name, x, "x", 2)
    if x._np_dtype.kind == "b" or y._np_dtype.kind == "b":
        raise RuntimeError(f"{name}: received a bool input for `x` or `y`, but bool is not supported")
    if x.ndim != 1:
        return axis, diff_(x, axis=axis - y.ndim + x.ndim)
    if x._sizes[0] != y._sizes[axis]:
        raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
    return axis, diff_(x, axis=0).reshape([-1 if i == axis else 1 for i in range(y.ndim)])


def _neighbor_sums(y, axis):
    """Returns the sums of neighboring samples."""
    if y._np_dtype.kind not in "iu":
        return pair_sums(y, axis=axis)
    n = y._sizes[axis] - 1
    return y.narrow(axis, 0, n) + y.narrow(axis, 1, n)


@register_op(method=False, aliases="trapz")
def trapezoid(y, x=None, *, dx: Float = None, dim: Int = -1):
    """Integrates samples y along `dim` by the trapezoidal rule. Either sample points x, or a
    spacing dx (default 1)."""
    axis, steps = _check_samples("trapezoid", y, x, dx, dim)
    n = y._sizes[axis]
    if n == 0:
        return new_full(y, size=tuple([n for i, n in enumerate(y._sizes) if i != axis]), value=0, np_dtype=y._np_dtype)
    if x is not None:
        return sum_dims(_neighbor_sums(y, axis) * steps, axes=(axis,), keepdim=False) / 2
    ends = y.select(axis, 0) + y.select(axis, n - 1)
    r = sum_dims(y, axes=(axis,), keepdim=False) - ends * 0.5
    return r if dx is None else r * dx


@register_op(method=False)
def cumulative_trapezoid(y, x=None, *, dx: Float = None, dim: Int = -1):
    """Computes the cumulative integral of samples y along `dim` by the trapezoidal rule."""
    axis, steps = _check_samples("cumulative_trapezoid", y, x, dx, dim)
    if y._sizes[axis] == 0:
        return (promote_int_to_float(y) if x is None else promote_pair(promote_int_to_float(y), promote_int_to_float(x))[0]).clone()
    heights = _neighbor_sums(y, axis)
    return cumsum_(heights * ((1 if dx is None else dx) / 2), axis=axis) if x is None else cumsum_(heights * steps, axis=axis) / 2


# ------------------------------------------------------------------ gradient
_stencil = primitive("gradient", "a, *, axis, step, edge_order, np_dtype",
                     lambda ctx, grad: _unstencil(grad, axis=ctx.axis, step=ctx.step, edge_order=ctx.edge_order, np_dtype=ctx.np_dtype))
_unstencil = primitive("gradient_backward", "g, *, axis, step, edge_order, np_dtype",
                       lambda ctx, grad: _stencil(grad, axis=ctx.axis, step=ctx.step, edge_order=ctx.edge_order, np_dtype=ctx.np_dtype))


def _parabola_derivative(rows, p, q):
    """Returns the derivative at the first of three samples of the parabola through them. The other
    samples are at distances p and p + q."""
    a, b, c = rows
    return b * ((p + q) / (p * q)) - a * ((2 * p + q) / (p * (p + q))) - c * (p / (q * (p + q)))


def _gradient_at_coordinates(x, at, axis, edge_order):
    """Returns the derivatives of samples at coordinates (n,). The coordinates may be complex and
    may require a gradient."""
    last = x._sizes[axis] - 1
    h = diff_(at, axis=0).reshape([-1 if i == axis else 1 for i in range(x.ndim)])

    def row(i, n=1):
        return x.narrow(axis, i, n)
    p, q = h.narrow(axis, 0, last - 1), h.narrow(axis, 1, last - 1)
    inside = row(1, last - 1) * ((q - p) / (p * q)) - row(0, last - 1) * (q / (p * (p + q))) + row(2, last - 1) * (p / (q * (p + q)))
    steps = [h.narrow(axis, i, 1) for i in ((0, last - 1) if edge_order == 1 else (0, 1, last - 1, last - 2))]
    if edge_order == 1:
        edges = (row(1) - row(0)) / steps[0], (row(last) - row(last - 1)) / steps[1]
    else:
        edges = _parabola_derivative((row(0), row(1), row(2)), *steps[:2]), _parabola_derivative((row(last), row(last - 1), row(last - 2)), -steps[2],
                                                                                                 -steps[3])
    return OPS["cat"].fn([edges[0], inside, edges[1]], axis)


@register_op(method=False)
def gradient(input, *, spacing=None, dim=None, edge_order: Int = 1):
    """Estimates the derivative along each of `dim` (default: all) with second-order accuracy.
    Returns a tuple."""
    check_tensor("gradient", input)
    if input._np_dtype == U8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    if input._np_dtype.kind == "b":
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.")
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    ndim = input.ndim
    axes = wrap_dims("gradient", dim, ndim)
    axes = tuple(range(ndim)) if axes is None else axes if dim.__class__ is int else tuple(wrap_dim("gradient", d, ndim) for d in dim)
    listed = isinstance(spacing, (tuple, list))
    if listed:
        steps = list(spacing)
        if len(steps) != len(axes):
            raise RuntimeError(f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
                               f"equal to the "
                               f"number of dimensions, {len(axes)}, but got a list of length {len(steps)}")
    else:
        steps = [1 if spacing is None else spacing] * len(axes)
    x = promote_int_to_float(input)
    np_dtype = dtypes.default_np() if x._np_dtype.kind != "f" else x._np_dtype
    out = []
    for d, step in zip(axes, steps):
        n = input._sizes[d]
        if n < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
        if (step.__class__ is Tensor or is_tensor(step)) and step.ndim:
            if step._sizes != (n,):
                raise RuntimeError("torch.gradient expected each element of spacing to have one coordinate for each "
                                   "sample")
            out.append(_gradient_at_coordinates(x, promote_int_to_float(step), d, edge_order))
            continue
        if listed and (step.__class__ is Tensor or is_tensor(step)):
            raise RuntimeError("torch.gradient expected each element of spacing to have one dimension, but got an element with 0 dimensions!")
        step = number_of("gradient", step, "spacing")
        if step.__class__ is complex:
            r = _stencil(x, axis=d, step=1.0, edge_order=edge_order, np_dtype=np_dtype)
            one = cast(r, promote_types(r._np_dtype, C64))
            out.append(mul_(one, scalar(1 / step, one)))
        else:
            out.append(_stencil(x, axis=d, step=float(step), edge_order=edge_order, np_dtype=np_dtype))
    return tuple(out)
