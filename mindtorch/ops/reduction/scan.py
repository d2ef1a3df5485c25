"""Cumulative ops along one axis, differences and numerical integration."""
import numpy as np

from mindtorch.backend.cpu.pointwise import elementwise
from mindtorch.backend.cpu.reduce import running_products, running_sums
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.arithmetic import logaddexp as _logaddexp
from mindtorch.core import dtypes
from mindtorch.core.dtypes import C128, C64, F32, F64, I64, as_np
from mindtorch.core.promote import as_float, pair
from mindtorch.core.return_types import struct
from mindtorch.core.table import inplace_method, op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor, wrap
from mindtorch.ops.reduction._along import put_at
from mindtorch.ops._checks import need_tensor, unsupported, wrap_dim, wrap_dims
from mindtorch.ops._operands import number, plain
from mindtorch.ops.basic import cast, conj, mul_
from mindtorch.ops.elementwise.binary import div_
from mindtorch.ops.reduction.reduce import sum_dims
from mindtorch.ops.elementwise.unary import exp_

_WIDE = {F32: F64, C64: C128}


def _at(ndim, axis, index):
    return (slice(None),) * axis + (index,) + (slice(None),) * (ndim - axis - 1)


# ------------------------------------------------------------------ flips and shifts that the gradients are made of
flip_ = primitive("flip", lambda a, *, axis: np.flip(a, axis).copy(), lambda c, g: flip_(g, axis=c.axis), raw=True)


def _shift(a, *, axis, by, fill):
    r = np.full_like(a, fill)
    n = a.shape[axis]
    if n < 2 or not a.size:
        return r        # NumPy crashes on copying an empty piece of a bfloat16 array
    to, of = (slice(0, n - 1), slice(1, n)) if by > 0 else (slice(1, n), slice(0, n - 1))
    r[_at(a.ndim, axis, to)] = a[_at(a.ndim, axis, of)]
    return r


#: out[k] = a[k + by] (by is 1 or -1), `fill` at the end that has none.
shift = primitive("shift", _shift, lambda c, g: shift(g, axis=c.axis, by=-c.by, fill=0), raw=True)


def _recur(g, r, *, axis):
    s = g.copy()
    for k in range(g.shape[axis] - 2, -1, -1):
        here = _at(g.ndim, axis, k)
        s[here] += r[here] * s[_at(g.ndim, axis, k + 1)]
    return s


def _recur_grad_g(h, r, axis):
    # The adjoint runs the other way: t[k] = h[k] + conj(r[k-1]) t[k-1].
    back = flip_(shift(conj(r), axis=axis, by=-1, fill=0), axis=axis)
    return flip_(recur(flip_(h, axis=axis), back, axis=axis), axis=axis)


#: recur(g, r)[k] = g[k] + r[k] * recur(g, r)[k + 1], from the end of the axis.
recur = primitive("linear_recurrence", quiet(_recur), lambda c, h: _recur_grad_g(h, c.r, c.axis),
                  lambda c, h: mul_(_recur_grad_g(h, c.r, c.axis), conj(shift(c.out, axis=c.axis, by=1, fill=0))))


# ------------------------------------------------------------------ cumsum, cumprod
def _accumulate(ufunc):
    @quiet
    def kernel(a, *, axis):
        if a.ndim == 0:
            return a.astype(I64) if a.dtype.kind in "biu" else a.copy()
        if a.dtype.kind in "biu":
            return ufunc.accumulate(a, axis=axis, dtype=I64)
        # Long float32 sums lose digits; torch accumulates them in double as well.
        if ufunc is np.add and a.dtype == F32:
            return running_sums(a, axis)
        if ufunc is np.multiply and a.dtype == F32 and axis == a.ndim - 1 and a.size >= 4096:
            return running_products(np.ascontiguousarray(a).reshape(-1, a.shape[-1])).reshape(a.shape)
        wide = _WIDE.get(a.dtype)
        r = ufunc.accumulate(a, axis=axis, dtype=wide)
        return r if wide is None else r.astype(a.dtype)
    return kernel


_sums, _products = _accumulate(np.add), _accumulate(np.multiply)


def _sums_from_end(a, *, axis):
    return _sums(a, axis=axis) if a.ndim == 0 else np.flip(_sums(np.flip(a, axis), axis=axis), axis).copy()


cumsum_ = primitive("cumsum", _sums, lambda c, g: cumsum_from_end(g, axis=c.axis))
cumsum_from_end = primitive("cumsum_backward", _sums_from_end, lambda c, g: cumsum_(g, axis=c.axis))


def _cumprod_grad(g, a, out, axis):
    if a.ndim == 0:
        return g
    if plain(a).all():
        return div_(cumsum_from_end(mul_(g, conj(out)), axis=axis), conj(a))
    # d out[i] / d a[k] is (product before k) * (product after k, up to i); the sum over i is a linear recurrence.
    before = shift(out, axis=axis, by=-1, fill=1)
    return mul_(conj(before), recur(g, shift(conj(a), axis=axis, by=1, fill=0), axis=axis))


cumprod_ = primitive("cumprod", _products, lambda c, g: _cumprod_grad(g, c.a, c.out, c.axis))


def product_of_others(a, axis):
    """At each place along `axis` the product of all the other elements; right also where some are zero."""
    before = shift(cumprod_(a, axis=axis), axis=axis, by=-1, fill=1)
    after = shift(cumprod_(flip_(a, axis=axis), axis=axis), axis=axis, by=-1, fill=1)
    return mul_(before, flip_(after, axis=axis))


def _cumulative(name, prim, input, dim, dtype):
    need_tensor(name, input)
    d = None if dtype is None else as_np(dtype)
    x = input if d is None else cast(input, d)
    r = prim(x, axis=wrap_dim(name, dim, x.ndim))
    return r if d is None else cast(r, d)


@op(out=True)
def cumsum(input, dim, *, dtype=None):
    """Running sums along `dim`; integers and bools give int64."""
    return _cumulative("cumsum", cumsum_, input, dim, dtype)


@op(out=True)
def cumprod(input, dim, *, dtype=None):
    """Running products along `dim`; integers and bools give int64."""
    return _cumulative("cumprod", cumprod_, input, dim, dtype)


def _in_place(name, fn):
    @inplace_method(name)
    def f(self, dim, *, dtype=None):
        if self._stype.kind == "b" and dtype is None:
            raise unsupported(name + "_", self._stype)
        r = fn(self, dim, dtype=dtype)
        return cast(r, self._stype) if dtype is None else r        # integers keep their type in place


_in_place("cumsum", cumsum)
_in_place("cumprod", cumprod)


# ------------------------------------------------------------------ cummax, cummin
def _running_extreme(name, ufunc):
    @quiet
    def kernel(a, *, axis):
        if a.ndim == 0:
            return a.copy(), np.zeros((), I64)
        v = ufunc.accumulate(a, axis=axis)
        # The last place so far that equals the extreme (nan equals nan).
        place = np.arange(a.shape[axis], dtype=I64).reshape([-1 if i == axis else 1 for i in range(a.ndim)])
        hit = (a == v) | (a != a)
        return v, np.maximum.accumulate(np.where(hit, place, 0), axis=axis)

    prim = primitive(name, kernel, lambda c, g: put_at(
        g[0], index=c.out1._a, axis=c.axis, keepdim=True, shape=c.shapes[0], repeated=True), nondiff=(1,))
    result = struct(name, "values indices")

    def cum(input, dim):
        need_tensor(name, input)
        if input._stype.kind == "c":
            raise unsupported(name, input._stype)
        return result(*prim(input, axis=wrap_dim(name, dim, input.ndim)))
    cum.__name__ = name
    cum.__doc__ = f"(values, indices) of the running {'maxima' if name == 'cummax' else 'minima'} along `dim`."
    return op(cum, out=True)


cummax = _running_extreme("cummax", np.maximum)
cummin = _running_extreme("cummin", np.minimum)


# ------------------------------------------------------------------ logcumsumexp
@quiet
def _running_logsumexp(a, *, axis):
    if a.ndim == 0:
        return a.copy()
    if a.dtype.kind != "c":
        return np.logaddexp.accumulate(a, axis=axis, dtype=_WIDE.get(a.dtype)).astype(a.dtype)
    r = a.copy()
    for k in range(1, a.shape[axis]):
        here = _at(a.ndim, axis, k)
        r[here] = _logaddexp(r[_at(a.ndim, axis, k - 1)], a[here])
    return r


def _logcumsumexp_grad(g, a, out, axis):
    if a.ndim == 0:
        return g
    # d out[i] / d a[k] = exp(a[k] - out[i]), summed from the end: s[k] = g[k] + exp(out[k] - out[k+1]) s[k+1], where no
    # factor exceeds 1 in size.
    ratio = exp_(_difference(out, shift(out, axis=axis, by=1, fill=0)))
    return mul_(recur(g, conj(ratio), axis=axis), conj(exp_(_difference(a, out))))


@elementwise
def _finite_difference(a, b):
    # -inf - -inf: nothing has been added yet, the ratio is 1.
    return np.where(a == b, np.zeros((), a.dtype), a - b)


_difference = primitive("sub", _finite_difference, lambda c, g: g, lambda c, g: mul_(g, number(-1, g)))
logcumsumexp_ = primitive("logcumsumexp", _running_logsumexp, lambda c, g: _logcumsumexp_grad(g, c.a, c.out, c.axis))


@op(out=True)
def logcumsumexp(input, dim):
    """log(cumsum(exp(input))) along `dim`, without overflow."""
    need_tensor("logcumsumexp", input)
    if input._stype.kind in "biu":
        raise unsupported("logcumsumexp", input._stype)
    return logcumsumexp_(input, axis=wrap_dim("logcumsumexp", dim, input.ndim))


# ------------------------------------------------------------------ differences
def _neighbours(a, axis):
    return a[_at(a.ndim, axis, slice(1, None))], a[_at(a.ndim, axis, slice(None, -1))]


@quiet
def _diff(a, *, axis):
    x, y = _neighbours(a, axis)
    return x ^ y if a.dtype.kind == "b" else x - y


def _between(sign):
    """Adjoint of the difference (sign -1) or sum (1) of neighbours."""
    def kernel(g, *, axis):
        shape = list(g.shape)
        shape[axis] += 1
        r = np.zeros(shape, g.dtype)
        r[_at(g.ndim, axis, slice(1, None))] += g
        r[_at(g.ndim, axis, slice(None, -1))] += g if sign > 0 else -g
        return r
    return kernel


diff_ = primitive("sub", _diff, lambda c, g: undiff(g, axis=c.axis))
undiff = primitive("diff_backward", _between(-1), lambda c, g: diff_(g, axis=c.axis))
pair_sums = primitive("add", quiet(lambda a, *, axis: np.add(*_neighbours(a, axis))),
                      lambda c, g: unpair(g, axis=c.axis))
unpair = primitive("add_backward", _between(1), lambda c, g: pair_sums(g, axis=c.axis))


@op(out=True)
def diff(input, n=1, dim=-1, prepend=None, append=None):
    """n-th differences of neighbours along `dim`; of bools, whether they differ."""
    need_tensor("diff", input)
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    axis = wrap_dim("diff", dim, input.ndim)
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if n == 0:
        return input.clone()        # and nothing is put before or after it
    x = input
    if prepend is not None or append is not None:
        from mindtorch.core.table import TABLE
        for extra in (prepend, append):
            if extra is not None and extra.ndim != x.ndim:
                raise RuntimeError("diff expects prepend or append to be the same dimension as input")
        x = TABLE["cat"].fn([t for t in (prepend, x, append) if t is not None], axis)
    for _ in range(min(n, x._sizes[axis])):
        x = diff_(x, axis=axis)
    return x


# ------------------------------------------------------------------ trapezoidal rule
def _panels(name, y, x, dx, dim):
    """Areas between neighbouring samples."""
    need_tensor(name, y)
    if y.ndim == 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    axis = wrap_dim(name, dim, y.ndim)
    if x is not None and dx is not None:
        raise TypeError(f"{name}() received an invalid combination of arguments: x and dx exclude each other")
    if y._stype.kind == "b" and x is None:
        raise RuntimeError(f"{name}: received a bool input for `y`, but bool is not supported")
    if y._sizes[axis] == 0:
        return None, axis
    heights = pair_sums(as_float(y), axis=axis)
    if x is None:
        return mul_(heights, number((1 if dx is None else dx) / 2, heights)), axis
    need_tensor(name, x, "x", 2)
    if x._stype.kind == "b" or y._stype.kind == "b":
        raise RuntimeError(f"{name}: received a bool input for `x` or `y`, but bool is not supported")
    if x.ndim == 1:
        if x._sizes[0] != y._sizes[axis]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        steps = diff_(as_float(x), axis=0)
        steps = steps.reshape([-1 if i == axis else 1 for i in range(y.ndim)])
    else:
        steps = diff_(as_float(x), axis=axis - y.ndim + x.ndim)
    a, b = pair(heights, steps)
    r = mul_(a, b)
    return mul_(r, number(0.5, r)), axis


@op(method=False, aliases="trapz")
def trapezoid(y, x=None, *, dx=None, dim=-1):
    """Integral of samples y along `dim` by the trapezoidal rule; sample points x, or spacing dx (default 1)."""
    p, axis = _panels("trapezoid", y, x, dx, dim)
    if p is None:
        return wrap(np.zeros([n for i, n in enumerate(y._sizes) if i != axis], y._stype))
    return sum_dims(p, axes=(axis,), keepdim=False)


@op(method=False)
def cumulative_trapezoid(y, x=None, *, dx=None, dim=-1):
    """Running integral of samples y along `dim` by the trapezoidal rule."""
    p, axis = _panels("cumulative_trapezoid", y, x, dx, dim)
    if p is None:
        return (as_float(y) if x is None else pair(as_float(y), as_float(x))[0]).clone()
    return cumsum_(p, axis=axis)


# ------------------------------------------------------------------ gradient
def _apply_stencil(a, *, axis, index, weight):
    x = np.moveaxis(a, axis, -1)
    # What has no weight is left out even where it is not finite.
    r = sum(np.where(weight[:, k] == 0, 0, x[..., index[:, k]] * weight[:, k]) for k in range(index.shape[1])).astype(a.dtype)
    return np.ascontiguousarray(np.moveaxis(r, -1, axis))


def _spread_stencil(g, *, axis, index, weight):
    x = np.moveaxis(g, axis, -1)
    r = np.zeros(x.shape, g.dtype)
    for k in range(index.shape[1]):
        np.add.at(r, (..., index[:, k]), x * weight[:, k].astype(g.dtype))
    return np.ascontiguousarray(np.moveaxis(r, -1, axis))


_stencil = primitive("gradient", _apply_stencil,
                     lambda c, g: _unstencil(g, axis=c.axis, index=c.index, weight=c.weight))
_unstencil = primitive("gradient_backward", _spread_stencil,
                       lambda c, g: _stencil(g, axis=c.axis, index=c.index, weight=c.weight))


def _slopes(h, edge_order):
    """Indices and weights (n, 3) of the difference quotients at sample points whose distances are h."""
    n = len(h) + 1
    left, right = h[:-1], h[1:]
    index = np.clip(np.arange(n)[:, None] + np.arange(-1, 2), 0, n - 1)
    weight = np.zeros((n, 3))
    weight[1:-1] = np.stack([-right / (left * (left + right)), (right - left) / (left * right),
                             left / (right * (left + right))], 1)
    if edge_order == 1:
        weight[0] = 0, -1 / h[0], 1 / h[0]
        weight[-1] = -1 / h[-1], 1 / h[-1], 0
    else:
        for row, at, p, q in ((0, (0, 1, 2), h[0], h[1]), (n - 1, (n - 1, n - 2, n - 3), -h[-1], -h[-2])):
            index[row] = at
            weight[row] = -(2 * p + q) / (p * (p + q)), (p + q) / (p * q), -p / (q * (p + q))
    return index, weight


@op(method=False)
def gradient(input, *, spacing=None, dim=None, edge_order=1):
    """Second-order estimates of the slope along each of `dim` (default all), as a tuple."""
    need_tensor("gradient", input)
    a = input._a
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    axes = wrap_dims("gradient", dim, a.ndim)
    axes = tuple(range(a.ndim)) if axes is None else axes if dim.__class__ is int else \
        tuple(wrap_dim("gradient", d, a.ndim) for d in dim)
    if isinstance(spacing, (tuple, list)):
        steps = list(spacing)
        if len(steps) != len(axes):
            raise RuntimeError(f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
                               f"equal to the "
                               f"number of dimensions, {len(axes)}, but got a list of length {len(steps)}")
    else:
        steps = [1 if spacing is None else spacing] * len(axes)
    x = as_float(input)
    wide = dtypes.default_np() if x._stype.kind != "f" else x._stype
    out = []
    for d, step in zip(axes, steps):
        n = a.shape[d]
        if n < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
        if isinstance(step, Tensor) and step.ndim:
            if step._sizes != (n,):
                raise RuntimeError("torch.gradient expected each element of spacing to have one coordinate for each "
                                   "sample")
            h = np.diff(step._a.astype(np.float64))
        else:
            h = np.full(n - 1, float(step))
        index, weight = _slopes(h, edge_order)
        out.append(_stencil(x, axis=d, index=index, weight=weight.astype(wide)))
    return tuple(out)


