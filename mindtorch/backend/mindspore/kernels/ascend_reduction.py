"""Ascend kernels for min/max, variance of any shape including 0-d, product gradients and counts.

Where aclnn has no kernel, aclnn kernels are composed without reading values on the host.
"""
import math

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import broadcast, cast, dtype_of, G, ms, op, reshape, shape_of, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, CUBE, zeros
from mindtorch.backend.mindspore.kernels.reduction import count, reduced, sums

NUMERIC = CUBE + " int64 int32"


# ------------------------------------------------------------------ min and max
def _extreme(name, dim_prim, arg_prim):
    @ascend(name + "_dim")
    def pair(a, *, axis, keepdim):
        if not shape_of(a):
            return copy(a), zeros((), ms.int64)
        return op(dim_prim)(a, axis, keepdim)

    @ascend("arg" + name)
    def index_of(a, *, axis, keepdim):
        shape = shape_of(a)
        if not shape:
            return zeros((), ms.int64)
        if axis is None:
            return reshape(op(arg_prim)(a, None, False), (1,) * len(shape) if keepdim else ())
        return op(arg_prim)(a, axis, keepdim)


_extreme("max", G.MaxDim, G.ArgMaxExt)
_extreme("min", G.MinDim, G.ArgMinExt)


# ------------------------------------------------------------------ variance and standard deviation
def _moment(name, prim):
    @ascend(name, only=CUBE)
    def f(a, *, axes, keepdim, correction):
        shape = shape_of(a)
        if not shape:
            return reshape(f(reshape(a, (1,)), axes=None, keepdim=False, correction=correction), ())
        axes = None if axes is None else tuple(axes)
        if int(correction) == correction:
            return op(prim)(a, axes, int(correction), keepdim)
        # aclnn accepts only an integer correction; this path takes three launches
        n = count(shape, axes)
        r = o.div(o.mul(op(G.Var)(a, axes, 0, keepdim), float(n)), max(n - correction, 0.0))
        return r if prim is G.Var else op(G.Sqrt)(r)


_moment("var", G.Var)
_moment("std", G.Std)


# ------------------------------------------------------------------ products
@ascend("prod_dim")
def _prod_dim(a, *, axis, keepdim):
    shape = shape_of(a)
    if axis is None or not shape:
        return reshape(op(G.ProdExt)(a, None, False, None), (1,) * len(shape) if keepdim and shape else ())
    return op(G.ProdExt)(a, axis, keepdim, None)


@ascend("prod_backward", only=CUBE)
def _prod_backward(g, a, out, *, axis, keepdim):
    """Computes g * out / a for each factor. If a line holds one zero, the gradient of the zero is
    the product of the other factors. If it holds two or more, all gradients are zero. Ten launches.
    """
    shape = shape_of(a)
    if not shape:
        return copy(g)
    axes = None if axis is None else (axis,)
    grad = reshape(g, reduced(shape, axes, True))
    product_of_all = reshape(out, reduced(shape, axes, True))
    zero = o.eq(a, 0)
    zeroes = sums(zero, axes, True)
    rest = o.where(zero, 1.0, a)
    product = reshape(op(G.ProdExt)(rest, axis, axis is not None, None), shape_of(product_of_all))
    beside = o.where(o.and_(zero, o.eq(zeroes, 1)), product, 0.0)
    return o.mul(o.where(o.eq(zeroes, 0), o.div(product_of_all, rest), beside), grad)


# ------------------------------------------------------------------ counts
@ascend("masked_count")
def _masked_count(mask, *, shape, axes, keepdim):
    return sums(broadcast(mask, shape), None if axes is None else tuple(axes), keepdim) if shape else cast(mask, ms.int64)


@ascend("histc", only="float32")
def _histc(a, *, bins, low, high):
    if low > high or not (math.isfinite(low) and math.isfinite(high)):
        raise UnsupportedByKernel
    return cast(op(G.HistcExt)(reshape(a, (-1,)), bins, low, high), dtype_of(a))
