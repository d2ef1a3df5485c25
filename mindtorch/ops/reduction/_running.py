"""Primitives along one axis: flips, shifts, cumulative sums and products, linear recurrences."""
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.stride_rules import like
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.sync import of_all
from mindtorch.ops.basic import conj, mul_
from mindtorch.ops.elementwise.binary import div_
from mindtorch.ops.reduction._along import all_

# ------------------------------------------------------------------ flips and shifts used by the gradients
flip_ = primitive("flip_axis", "a, *, axis", lambda ctx, grad: flip_(grad, axis=ctx.axis), raw=True, layout=like, node="FlipBackward0")


#: out[k] = a[k + by], where by is 1 or -1. The end without such an element is `fill`.
shift = primitive("shift", "a, *, axis, by, fill", lambda ctx, grad: shift(grad, axis=ctx.axis, by=-ctx.by, fill=0), raw=True)


def _recur_grad_g(h, r, axis):
    # The adjoint runs in the other direction: t[k] = h[k] + conj(r[k-1]) t[k-1].
    back = flip_(shift(conj(r), axis=axis, by=-1, fill=0), axis=axis)
    return flip_(recur(flip_(h, axis=axis), back, axis=axis), axis=axis)


#: recur(g, r)[k] = g[k] + r[k] * recur(g, r)[k + 1], from the end of the axis.
recur = primitive("linear_recurrence", "g, r, *, axis", lambda ctx, grad: _recur_grad_g(grad, ctx.r, ctx.axis),
                  lambda ctx, grad: mul_(_recur_grad_g(grad, ctx.r, ctx.axis), conj(shift(ctx.out, axis=ctx.axis, by=1, fill=0))))


# ------------------------------------------------------------------ cumsum, cumprod
cumsum_ = primitive("cumsum", "a, *, axis", lambda ctx, grad: cumsum_from_end(grad, axis=ctx.axis), aten="cumsum.default")
cumsum_from_end = primitive("cumsum_backward", "a, *, axis", lambda ctx, grad: cumsum_(grad, axis=ctx.axis))


def _cumprod_grad(g, a, out, axis):
    if a.ndim == 0:
        return g
    if not mode.on:
        return _cumprod_backward(g, a, out, axis=axis)
    if of_all(all_(a, axes=None, keepdim=False)).all():
        return div_(cumsum_from_end(mul_(g, conj(out)), axis=axis), conj(a))
    # d out[i] / d a[k] is (product before k) * (product after k, up to i). The sum over i is a
    # linear recurrence.
    before = shift(out, axis=axis, by=-1, fill=1)
    return mul_(conj(before), recur(g, shift(conj(a), axis=axis, by=1, fill=0), axis=axis))


cumprod_ = primitive("cumprod", "a, *, axis", lambda ctx, grad: _cumprod_grad(grad, ctx.a, ctx.out, ctx.axis), aten="cumprod.default")
_cumprod_backward = primitive("cumprod_backward", "g, a, out, *, axis", raw=True)


def product_of_others(a, axis):
    """Returns at each index along `axis` the product of all other elements. Correct also if some
    are zero."""
    before = shift(cumprod_(a, axis=axis), axis=axis, by=-1, fill=1)
    after = shift(cumprod_(flip_(a, axis=axis), axis=axis), axis=axis, by=-1, fill=1)
    return mul_(before, flip_(after, axis=axis))
