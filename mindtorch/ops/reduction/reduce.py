"""Reductions: sums, products, extremes, truth, norms, moments.

Median, mode and quantiles are in `_order_stats.py`, histograms in `_histogram.py`.
"""
import math

import numpy as np

from mindtorch.backend.cpu.pointwise import masked
from mindtorch.backend.cpu.reduce import sums, total
from mindtorch.backend.cpu.host import quiet
from mindtorch.core.alias import title
from mindtorch.core.dtypes import F32, I64, U8, as_np
from mindtorch.core.grad_mode import mode
from mindtorch.core.promote import as_float, pair
from mindtorch.core.return_types import struct
from mindtorch.core.table import TABLE, fresh, op, store_out
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor
from mindtorch.ops.reduction._along import put_at
from mindtorch.ops._checks import as_index, need_tensor, not_tensor, unsupported, wrap_dim, wrap_dims
from mindtorch.ops.elementwise._logic import where
from mindtorch.ops._operands import number, plain
from mindtorch.ops.basic import cast, conj, keep, mul_, sub_, zeros_like
from mindtorch.ops.shapes.shape import in_c_order
from mindtorch.ops.elementwise.binary import div_, maximum, minimum, pow_number
from mindtorch.ops.elementwise.unary import abs_, exp_, sgn_



# ------------------------------------------------------------------ shapes
def _spread(g, *, shape, axes, keepdim):
    if axes is not None and not keepdim:
        g = g.reshape([1 if d in axes else n for d, n in enumerate(shape)])
    elif axes is None and g.ndim:
        g = g.reshape((1,) * len(shape))
    r = np.empty(shape, g.dtype)
    r[...] = g
    return r


#: spread: a reduced tensor repeated over the shape it was reduced from.
spread = primitive("expand", _spread, lambda c, g: sum_dims(g, axes=c.axes, keepdim=c.keepdim), raw=True)


def _sum(a, *, axes, keepdim):
    if a.dtype.kind in "biu":
        return np.add.reduce(a, axis=axes, dtype=I64, keepdims=keepdim)
    return total(a, axes, keepdim)


sum_all = primitive("sum", lambda a: total(a), lambda c, g: spread(g, shape=c.shapes[0], axes=None, keepdim=False))
sum_dims = primitive("sum", _sum, lambda c, g: spread(g, shape=c.shapes[0], axes=c.axes, keepdim=c.keepdim),
                     node="SumBackward1")


def count(shape, axes):
    """Number of elements that are reduced into one."""
    n = 1
    for d in range(len(shape)) if axes is None else axes:
        n *= shape[d]
    return n


def _reduced_shape(shape, axes):
    """Shape after a reduction with keepdim."""
    return tuple(1 if axes is None or d in axes else n for d, n in enumerate(shape))


def same_kind(g, like):
    """A real gradient beside a complex operand."""
    return cast(g, like._stype)


# ------------------------------------------------------------------ sum, mean, prod
def _input(name, x, dtype):
    need_tensor(name, x)
    return x if dtype is None else cast(x, as_np(dtype))


@op(name="sum", out=True)
def sum_op(input, dim=None, keepdim=False, *, dtype=None):
    """Sum over `dim` (an int, several, or all); integers and bools give int64."""
    if dim is None and dtype is None and not keepdim:
        try:
            if input._stype.kind in "fcV":
                return sum_all(input)
        except AttributeError:
            raise not_tensor("sum", "input", 1, input) from None
    x = _input("sum", input, dtype)
    r = sum_dims(x, axes=wrap_dims("sum", dim, x.ndim), keepdim=keepdim)
    return r if dtype is None else cast(r, as_np(dtype))


@op(out=True)
def nansum(input, dim=None, keepdim=False, *, dtype=None):
    """Sum over `dim` with nan counted as zero."""
    x = _input("nansum", input, dtype)
    if x._stype.kind == "c":
        raise RuntimeError("nansum on CPU does not support complex inputs")
    if x._stype.kind in "fV":
        x = _without_nan(x)
    return sum_op(x, dim, keepdim, dtype=dtype)


_without_nan = primitive("nansum", lambda a: masked(a, a == a), lambda c, g: mul_(g, cast(fresh(np.asarray(plain(c.a) == plain(c.a))), g._stype)))


def _mean(a, *, axes, keepdim):
    n = count(a.shape, axes)
    r = sums(a, axes, keepdim)
    return r / a.dtype.type(n) if n else r * a.dtype.type(np.nan)


mean_all = primitive("mean", quiet(lambda a: _mean(a, axes=None, keepdim=False)),
                     lambda c, g: spread(mul_(g, number(1 / max(count(c.shapes[0], None), 1), g)), shape=c.shapes[0],
                                         axes=None,
                                         keepdim=False), inputs="a")
mean_dims = primitive("mean", quiet(_mean),
                      lambda c, g: spread(mul_(g, number(1 / max(count(c.shapes[0], c.axes), 1), g)), shape=c.shapes[0],
                                          axes=c.axes, keepdim=c.keepdim), node="MeanBackward1")


@op(out=True)
def mean(input, dim=None, keepdim=False, *, dtype=None):
    """Mean over `dim`; RuntimeError for integers, unless `dtype` makes them floats."""
    x = _input("mean", input, dtype)
    a = x._a
    if a.dtype.kind not in "fcV":
        raise RuntimeError("mean(): could not infer output dtype. Input dtype must be either a floating point or "
                           "complex dtype. "
                           f"Got: {title(a.dtype)}")
    if dim is None and not keepdim:
        return mean_all(x)
    return mean_dims(x, axes=wrap_dims("mean", dim, a.ndim), keepdim=keepdim)


@op(out=True)
def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    """Mean over `dim` of what is not nan."""
    need_tensor("nanmean", input)
    a = input._a
    if a.dtype.kind not in "fcV":
        raise RuntimeError("nanmean(): expected input to have floating point or complex dtype but got "
                           f"{title(a.dtype)}")
    x = _input("nanmean", input, dtype)
    there = fresh(plain(x) == plain(x))
    s = nansum(x, dim, keepdim)
    return div_(s, cast(sum_op(there, dim, keepdim), s._stype))


def _prod(a, *, axis, keepdim):
    kw = {"dtype": I64} if a.dtype.kind in "biu" else {}
    return np.multiply.reduce(a, axis=axis, keepdims=keepdim, **kw)


def _prod_grad(g, a, out, axis, keepdim):
    axes = None if axis is None else (axis,)
    wide = spread(g, shape=a._sizes, axes=axes, keepdim=keepdim)
    if not a.ndim:
        return wide
    if plain(a).all():
        return mul_(wide, conj(div_(spread(out, shape=a._sizes, axes=axes, keepdim=keepdim), a)))
    if axis is None and not mode.on and np.count_nonzero(plain(a)) < a._numel - 1:
        return zeros_like(a)        # two zeros: nought, whatever the others are
    # Some factor is zero: the quotient would be 0 / 0.
    from mindtorch.ops.reduction.scan import product_of_others
    if axis is None:
        return mul_(wide, conj(product_of_others(a.reshape(-1), 0).reshape(a._sizes)))
    return mul_(wide, conj(product_of_others(a, axis)))


prod_all = primitive("prod", quiet(_prod), lambda c, g: _prod_grad(g, c.a, c.out, c.axis, c.keepdim))
prod_dim = primitive("prod", quiet(_prod), lambda c, g: _prod_grad(g, c.a, c.out, c.axis, c.keepdim),
                     node="ProdBackward1")


@op(out=True)
def prod(input, dim=None, keepdim=False, *, dtype=None):
    """Product of all elements or over one `dim`; integers and bools give int64."""
    x = _input("prod", input, dtype)
    if dim is None:
        r = prod_all(x, axis=None, keepdim=False)
    elif isinstance(dim, (tuple, list)):
        raise TypeError(f"prod() received an invalid combination of arguments: dim must be int, not "
                        f"{type(dim).__name__}")
    else:
        axis = wrap_dim("prod", dim, x.ndim)
        r = prod_dim(x, axis=axis if x.ndim else None, keepdim=keepdim)
    return r if dtype is None else cast(r, as_np(dtype))


# ------------------------------------------------------------------ extremes
@quiet
def _ties(a, out, axes, keepdim, nan):
    """1 / (number of winners) where an element equals the extreme, else 0; beside nan the nans win (`nan`), or all is nan."""
    x, y = a._a, out._a
    if axes is None or not keepdim:
        y = y.reshape(_reduced_shape(x.shape, axes))
    hit = x == y
    if nan:
        hit |= (x != x) & (y != y)
    n = np.add.reduce(hit, axis=axes, keepdims=True, dtype=I64)
    return fresh((hit / n).astype(F32 if x.dtype.kind == "V" else x.dtype).astype(x.dtype))


def _extreme_grad(g, a, out, axes, keepdim, nan=True):
    return mul_(spread(g, shape=a._sizes, axes=axes, keepdim=keepdim), _ties(a, out, axes, keepdim, nan))


def _extreme(name, ufunc):
    """Primitives of a reduction by maximum or minimum: full, over axes."""
    full = primitive(name, quiet(lambda a: ufunc.reduce(a, axis=None)),
                     lambda c, g: _extreme_grad(g, c.a, c.out, None, False), inputs="a",
                     node=name.capitalize() + "Backward1")

    def over(a, *, axes, keepdim):
        return ufunc.reduce(a, axis=axes, keepdims=keepdim)
    dims = primitive("a" + name, quiet(over), lambda c, g: _extreme_grad(g, c.a, c.out, c.axes, c.keepdim, False))
    return full, dims


_max_all, amax_ = _extreme("max", np.maximum)
_min_all, amin_ = _extreme("min", np.minimum)


def _winner(name, ufunc, arg):
    """Primitive of max and min along one axis: (values, indices)."""
    def kernel(a, *, axis, keepdim):
        if a.ndim == 0:
            return a.copy(), np.zeros((), I64)
        return ufunc.reduce(a, axis=axis, keepdims=keepdim), arg(a, axis=axis, keepdims=keepdim)
    return primitive(name, quiet(kernel), lambda c, g: put_at(
        g[0], index=c.out1._a, axis=c.axis, keepdim=c.keepdim, shape=c.shapes[0], repeated=False), nondiff=(1,))


_max_dim = _winner("max", np.maximum, np.argmax)
_min_dim = _winner("min", np.minimum, np.argmin)
_Max, _Min, _Aminmax = struct("max", "values indices"), struct("min", "values indices"), struct("aminmax", "min max")


def _no_complex(name, a):
    if a.dtype.kind == "c":
        raise unsupported(name, a.dtype)


def need_elements(name, a, axis, kind=IndexError):
    """`kind` of error if the reduced dimension (None: all) is empty."""
    if a.size == 0:
        if axis is None:
            raise kind(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                       f"reduction dim "
                       "with the 'dim' argument.")
        if a.shape[axis] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")


def _max_or_min(name, input, dim, keepdim, other, full, along, struct_, pairwise):
    need_tensor(name, input)
    if other is not None or isinstance(dim, Tensor):
        return pairwise(input, dim if other is None else other)
    a = input._a
    _no_complex(name, a)
    if dim is None:
        need_elements(name, a, None, RuntimeError)
        return full(input)
    axis = wrap_dim(name, dim, a.ndim)
    if a.ndim:
        need_elements(name, a, axis)
    return struct_(*along(input, axis=axis, keepdim=keepdim))


@op(name="max", out=True)
def max_op(input, dim=None, keepdim=False, *, other=None):
    """Maximum of all elements; over `dim` as (values, indices); of two tensors, elementwise."""
    return _max_or_min("max", input, dim, keepdim, other, _max_all, _max_dim, _Max, maximum)


@op(name="min", out=True)
def min_op(input, dim=None, keepdim=False, *, other=None):
    """Minimum of all elements; over `dim` as (values, indices); of two tensors, elementwise."""
    return _max_or_min("min", input, dim, keepdim, other, _min_all, _min_dim, _Min, minimum)


def _amax_or_amin(name, input, dim, keepdim, prim):
    need_tensor(name, input)
    a = input._a
    axes = wrap_dims(name, dim, a.ndim)
    if axes is None:
        need_elements(name, a, None, RuntimeError)
    elif a.size == 0:
        for d in axes:
            need_elements(name, a, d)
    _no_complex(name, a)
    return prim(input, axes=axes, keepdim=keepdim)


@op(out=True)
def amax(input, dim=(), keepdim=False):
    """Maximum over `dim` (one, several or all); the gradient is shared by ties."""
    return _amax_or_amin("amax", input, dim, keepdim, amax_)


@op(out=True)
def amin(input, dim=(), keepdim=False):
    """Minimum over `dim` (one, several or all); the gradient is shared by ties."""
    return _amax_or_amin("amin", input, dim, keepdim, amin_)


@op(out=True)
def aminmax(input, *, dim=None, keepdim=False):
    """(min, max) of all elements or over one `dim`."""
    need_tensor("aminmax", input)
    axes = None if dim is None else as_index("aminmax", dim)
    return _Aminmax(_amax_or_amin("aminmax", input, axes, keepdim, amin_),
                    _amax_or_amin("aminmax", input, axes, keepdim, amax_))


def _arg(name, fn):
    def kernel(a, *, axis, keepdim):
        if a.ndim == 0:
            return np.zeros((), I64)
        return fn(a, axis=axis, keepdims=keepdim)
    prim = primitive(name, kernel)

    def arg(input, dim=None, keepdim=False):
        need_tensor(name, input)
        a = input._a
        if a.dtype.kind in "bc":
            raise unsupported(name, a.dtype)
        axis = None if dim is None else wrap_dim(name, dim, a.ndim)
        if a.ndim or not a.size:
            need_elements(name, a, axis)
        return prim(input, axis=axis, keepdim=keepdim)
    arg.__name__ = name
    which = "largest" if name == "argmax" else "smallest"
    arg.__doc__ = f"Index of the {which} element, of all (flattened) or along `dim`."
    return op(arg, out=True)


argmax = _arg("argmax", np.argmax)
argmin = _arg("argmin", np.argmin)


# ------------------------------------------------------------------ truth
def _truth(name, ufunc):
    def kernel(a, *, axes, keepdim):
        return ufunc.reduce(a != 0 if a.dtype.kind != "b" else a, axis=axes, keepdims=keepdim)
    prim = primitive(name, kernel)

    def truth(input, dim=None, keepdim=False):
        need_tensor(name, input)
        a = input._a
        if isinstance(dim, (tuple, list)) and not dim:
            axes = ()         # torch reduces nothing then
        else:
            axes = wrap_dims(name, dim, a.ndim)
        r = prim(input, axes=axes, keepdim=keepdim)
        return cast(r, U8) if a.dtype == U8 else r
    truth.__name__ = name
    truth.__doc__ = f"True if {name} element{'s are' if name == 'all' else ' is'} true, over `dim` or the whole tensor."
    return op(truth, out=True)


all_op = _truth("all", np.logical_and)
any_op = _truth("any", np.logical_or)


@op(out=False)
def count_nonzero(input, dim=None):
    """Number of elements that are not zero, over `dim` or in the whole tensor."""
    need_tensor("count_nonzero", input)
    a = input._a
    axes = wrap_dims("count_nonzero", dim, a.ndim)
    return fresh(np.asarray(np.add.reduce(a != 0, axis=axes, dtype=I64), order="C"))


# ------------------------------------------------------------------ logsumexp
def _logsumexp(a, *, axes, keepdim):
    if a.size == 0:
        return np.full(np.add.reduce(a, axis=axes, keepdims=keepdim).shape, -np.inf, a.dtype)
    m = np.maximum.reduce(a.real, axis=axes, keepdims=True)
    m = np.where(np.isfinite(m), m, np.zeros((), m.dtype))
    r = np.log(sums(np.exp(a - m), axes, True)) + m
    return r if keepdim else r.reshape(np.add.reduce(a, axis=axes).shape)


logsumexp_ = primitive(
    "logsumexp", quiet(_logsumexp),
    lambda c, g: mul_(spread(g, shape=c.shapes[0], axes=c.axes, keepdim=c.keepdim), conj(exp_(sub_(
        c.a, spread(c.out, shape=c.shapes[0], axes=c.axes, keepdim=c.keepdim))))))


@op(out=True, aliases="special.logsumexp")
def logsumexp(input, dim, keepdim=False):
    """log(sum(exp(input))) over `dim`, without overflow."""
    need_tensor("logsumexp", input)
    return logsumexp_(as_float(input), axes=wrap_dims("logsumexp", dim, input.ndim), keepdim=keepdim)


# ------------------------------------------------------------------ moments
def _centred(a, axes):
    n = count(a.shape, axes)
    return a - sums(a, axes, True) / a.dtype.type(n) if n else a


def _var(a, *, axes, keepdim, correction):
    n = count(a.shape, axes)
    d = _centred(a, axes)
    sq = sums(d.real * d.real + d.imag * d.imag if d.dtype.kind == "c" else d * d, axes, keepdim)
    return sq / sq.dtype.type(max(n - correction, 0)) if n else sq * sq.dtype.type(np.nan)


def _std(a, *, axes, keepdim, correction):
    return np.sqrt(_var(a, axes=axes, keepdim=keepdim, correction=correction))


def _var_grad(g, a, axes, keepdim, correction):
    n = count(a._sizes, axes)
    d = sub_(a, mean_dims(a, axes=axes, keepdim=True))
    rest = max(n - correction, 0)
    wide = spread(g, shape=a._sizes, axes=axes, keepdim=keepdim)
    return mul_(same_kind(wide, a), mul_(d, number(2 / rest if rest else math.inf, d)))


def _std_grad(g, a, out, axes, keepdim, correction):
    half = keep(div_(g, mul_(out, number(2, out))), fresh(plain(out) != 0))
    return _var_grad(half, a, axes, keepdim, correction)


var_ = primitive("var", quiet(_var), lambda c, g: _var_grad(g, c.a, c.axes, c.keepdim, c.correction))
std_ = primitive("std", quiet(_std), lambda c, g: _std_grad(g, c.a, c.out, c.axes, c.keepdim, c.correction))


def _moment(name, prim, input, dim, unbiased, keepdim, correction):
    need_tensor(name, input)
    a = input._a
    if dim.__class__ is bool:
        # var(unbiased) is an overload of its own.
        if unbiased is not None:
            raise TypeError(f"{name}() received an invalid combination of arguments: dim must be int, not bool")
        dim, unbiased = None, dim
    if a.dtype.kind not in "fcV":
        raise RuntimeError("std and var only support floating point and complex dtypes")
    if unbiased is not None and correction is not None:
        raise TypeError(f"{name}() received an invalid combination of arguments: both unbiased and correction are "
                        f"given")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return prim(input, axes=wrap_dims(name, dim, a.ndim), keepdim=keepdim, correction=correction)


@op(out=True)
def var(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Variance over `dim`, divided by n - correction (default 1; `unbiased=False`: 0)."""
    return _moment("var", var_, input, dim, unbiased, keepdim, correction)


@op(out=True)
def std(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Standard deviation over `dim`, divided by n - correction (default 1; `unbiased=False`: 0)."""
    return _moment("std", std_, input, dim, unbiased, keepdim, correction)


def _mean_beside(input, dim, keepdim):
    return mean(input, None if dim.__class__ is bool else dim, keepdim)


@op(method=False)
def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """(variance, mean) over `dim`."""
    return var(input, dim, unbiased, keepdim, correction=correction), _mean_beside(input, dim, keepdim)


@op(method=False)
def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """(standard deviation, mean) over `dim`."""
    return std(input, dim, unbiased, keepdim, correction=correction), _mean_beside(input, dim, keepdim)


# ------------------------------------------------------------------ norms
def _vector_norm(a, *, p, axes, keepdim):
    x = np.abs(a) if a.dtype.kind == "c" or p != 2 else a
    if p == 2:
        return np.sqrt(sums(x * x, axes, keepdim))
    if p == 1:
        return sums(x, axes, keepdim)
    if p == 0:
        return np.add.reduce(x != 0, axis=axes, dtype=x.dtype, keepdims=keepdim)
    if p == math.inf:
        return np.maximum.reduce(x, axis=axes, keepdims=keepdim)
    if p == -math.inf:
        return np.minimum.reduce(x, axis=axes, keepdims=keepdim)
    return sums(x ** x.dtype.type(p), axes, keepdim) ** x.dtype.type(1 / p)


def _norm_grad(g, a, out, p, axes, keepdim):
    shape = a._sizes
    if p == 0:
        return zeros_like(a)
    if p in (math.inf, -math.inf):
        size = abs_(a)
        return mul_(sgn_(a), same_kind(_extreme_grad(g, size, out, axes, keepdim), a))
    wide = spread(g, shape=shape, axes=axes, keepdim=keepdim)
    if p == 1:
        return mul_(sgn_(a), same_kind(wide, a))
    if p == 2:
        ratio = keep(div_(g, out), fresh(plain(out) != 0))
        return mul_(a, same_kind(spread(ratio, shape=shape, axes=axes, keepdim=keepdim), a))
    size = abs_(a)
    if p < 1:
        # Infinite at zero, where the slope is taken for nought; not masked as a whole, so that nan stays.
        along = mul_(sgn_(a), same_kind(keep(pow_number(size, p=p - 1), fresh(plain(size) != 0)), a))
        return mul_(along, same_kind(mul_(wide, spread(pow_number(out, p=1 - p), shape=shape, axes=axes, keepdim=keepdim)), a))
    ratio = keep(div_(g, pow_number(out, p=p - 1)), fresh(plain(out) != 0))
    ratio = same_kind(spread(ratio, shape=shape, axes=axes, keepdim=keepdim), a)
    if p < 2:
        return mul_(mul_(sgn_(a), same_kind(pow_number(size, p=p - 1), a)), ratio)
    return mul_(mul_(a, same_kind(pow_number(size, p=p - 2), a)), ratio)


vector_norm_ = primitive("linalg_vector_norm", quiet(_vector_norm),
                         lambda c, g: _norm_grad(g, c.a, c.out, c.p, c.axes, c.keepdim))


def vector_norm(x, p=2, dim=None, keepdim=False, dtype=None, name="linalg.vector_norm"):
    """p-norm of the elements over `dim`: the meaning of torch.linalg.vector_norm."""
    need_tensor(name, x)
    if dtype is not None:
        x = cast(x, as_np(dtype))
    a = x._a
    if a.dtype.kind not in "fcV":
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {title(a.dtype)}")
    axes = wrap_dims(name, dim, a.ndim)
    p = float(p.item() if isinstance(p, Tensor) else p)
    if a.size == 0 and (p < 0 or p == math.inf):
        for d in range(a.ndim) if axes is None else axes:
            if a.shape[d] == 0:
                whole = "on an empty tensor" if axes is None else f"on the dimension {d}"
                raise RuntimeError(f"linalg.vector_norm cannot compute the {p:g} norm {whole} because the operation "
                                   f"does not "
                                   "have an identity")
    return vector_norm_(x, p=p, axes=axes, keepdim=keepdim)


def _norm(input, p, dim, keepdim, dtype):
    need_tensor("norm", input)
    if p.__class__ is not str:
        return vector_norm(input, 2 if p is None else p, dim, keepdim, dtype)
    if p == "fro":
        return vector_norm(input, 2, dim, keepdim, dtype)
    if p == "nuc":
        return TABLE["linalg.matrix_norm"].fn(input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")


@op(method=False)
def norm(input, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    """p-norm over `dim`; p is a number, "fro" or "nuc"."""
    r = _norm(input, p, dim, keepdim, dtype)
    return r if out is None else store_out("norm", out, r)


def _norm_method(self, p="fro", dim=None, keepdim=False, dtype=None):
    """p-norm over `dim`; p is a number, "fro" or "nuc"."""
    return _norm(self, p, dim, keepdim, dtype)


Tensor.norm = _norm_method


@op
def dist(input, other, p=2):
    """p-norm of the difference."""
    need_tensor("dist", input)
    need_tensor("dist", other, "other", 2)
    a, b = pair(input, other)
    return vector_norm(sub_(a, b), p)


@op(inplace=True, out=True)
def renorm(input, p, dim, maxnorm):
    """Slices along `dim` whose p-norm exceeds maxnorm are scaled down to it."""
    need_tensor("renorm", input)
    a = input._a
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    if a.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {a.ndim} dimensions")
    axis = wrap_dim("renorm", dim, a.ndim)
    dims = [d for d in range(a.ndim) if d != axis]
    n = vector_norm(input, p, dims, True)
    over = n > maxnorm
    if n._rg and not over._a.all():
        # Slices that stay as they are (those with nan too) have nothing to do with the norm's slope.
        n = vector_norm(where(over, input, 0.0), p, dims, True)
    # The small number keeps a scaled slice from exceeding the limit by rounding.
    factor = where(over, maxnorm / (n + 1e-7), 1.0)
    return in_c_order(mul_(input, same_kind(factor, input)))


# ------------------------------------------------------------------ trace, hash
def _trace(a):
    return np.trace(a, dtype=I64 if a.dtype.kind in "biu" else a.dtype)


def _diagonal(g, *, shape):
    r = np.zeros(shape, g.dtype)
    n = min(shape)
    r[np.arange(n), np.arange(n)] = g
    return r


trace_ = primitive("trace", _trace, lambda c, g: on_diagonal(g, shape=c.shapes[0]))
on_diagonal = primitive("trace_backward", _diagonal, lambda c, g: trace_(g))


@op
def trace(input):
    """Sum of the diagonal of a matrix; integers give int64."""
    need_tensor("trace", input)
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return trace_(input)


@op(out=True)
def hash_tensor(input, dim=(), *, keepdim=False, mode=0):
    """XOR of the elements' bits (floats as float64, integers as int64) over `dim`, as uint64."""
    need_tensor("hash_tensor", input)
    if mode != 0:
        raise NotImplementedError(f"'hash_tensor' is not implemented for mode {mode} on device cpu")
    a = input._a
    _no_complex("hash_tensor", a)
    wide = a.astype(F32 if a.dtype.kind == "V" else a.dtype)
    bits = np.ascontiguousarray(wide.astype(np.float64 if wide.dtype.kind == "f" else I64)).view(np.uint64)
    return fresh(np.bitwise_xor.reduce(bits.reshape(a.shape), axis=wrap_dims("hash_tensor", dim, a.ndim),
                                       keepdims=keepdim))


from mindtorch.ops.reduction import _histogram, _order_stats  # noqa: E402,F401
