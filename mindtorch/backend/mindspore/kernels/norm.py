"""Batch, layer, RMS, group and instance norm and their gradients, for the CPU target. The Ascend
kernels are in `ascend_norm.py`.

Forward kernels accept half precision directly (their primitives are raw). The result has the dtype
of the input, and the values saved for the gradient are float32. float64 runs on the host kernels
because MindSpore has no such kernels for its CPU target.
"""
import functools
import math

from mindtorch.backend.mindspore.kernels._call import (G, HALF, UnsupportedByKernel, P, cast, copied, dtype_of,
                                                       full, kernel, ms, number, op, plain, reshape, shape_of)
from mindtorch.backend.mindspore.kernels.random import _DEVICE
from mindtorch.backend.mindspore.recorder_api import STATE, Number, constant, is_state
from mindspore.ops.operations import _grad_ops as GO

_SUPPORTED = "float32 float16 bfloat16"
_rows: dict = {}


def _row(n, value):
    """Returns a cached float32 tensor of n equal values (n may be a shape). It must not be
    modified."""
    h = _rows.get((n, value))
    if h is None:
        if len(_rows) > 512:
            _rows.clear()
        h = _rows[n, value] = full(n if n.__class__ is tuple else (n,), value, ms.float32)
    return constant(h)


def _upcast(h):
    return cast(h, ms.float32) if h is not None and dtype_of(h) in HALF else h


def _as(h, shape):
    s = shape_of(h)
    return h if len(s) == len(shape) and s[1:] == tuple(shape[1:]) else reshape(h, shape)


def _low(x):
    """Returns the half-precision dtype that the result is cast back to, or None."""
    d = dtype_of(x)
    return d if d in HALF else None


def _back(y, low):
    return y if low is None else cast(y, low)


def _wanted(grads, needs):
    return tuple([h if need else None for h, need in zip(grads, needs)])


# ------------------------------------------------------------------ batch norm
def _images(x):
    """Reshapes (N, C, ...) to a rank that MindSpore's batch norm supports: 2 or 4."""
    s = shape_of(x)
    return x if len(s) in (2, 4) else reshape(x, (s[0], s[1], 1, math.prod(s[2:])))


_scratch: dict = {}


def _check_eps(eps):
    if not 0 < eps <= 1:
        raise UnsupportedByKernel  # MindSpore's batch norm supports no other epsilon


@functools.cache
def _without_effect(eps):
    """Batch norm that does not update its running statistics, so that a graph may pass constants
    for them. With an update it requires Parameters."""
    prim = P.BatchNorm(is_training=True, epsilon=eps, momentum=0.0)
    prim.set_signatures(())
    prim.del_prim_attr("side_effect_mem")
    return prim


def _normalized(x, w, b, mean, var, momentum, eps):
    """Returns (result, mean, variance) of a batch. `mean` and `var` are running statistics that are
    updated in place; None: there are none."""
    _check_eps(eps)
    s, low = shape_of(x), _low(x)
    c = s[1]
    if mean is None:
        scratch = _scratch.get(c)
        if scratch is None:  # the kernel writes running statistics in any case; these are never read
            scratch = _scratch[c] = full((c,), 0.0, ms.float32), full((c,), 1.0, ms.float32)
        mean, var = map(constant, scratch)
        norm = _without_effect(eps)
    else:
        norm = op(P.BatchNorm, is_training=True, epsilon=eps, momentum=momentum)
    y, _, _, m, v = norm(
        _images(_upcast(x)), _row(c, 1.0) if w is None else _upcast(w), _row(c, 0.0) if b is None else _upcast(b), mean, var)
    return _back(y if len(s) in (2, 4) else reshape(y, s), low), m, v


@kernel("native_batch_norm_train", target="CPU", only=_SUPPORTED)
def _batch_norm_train(x, w, b, *, eps):
    """Returns (result, mean, variance, None, variance). The gradient kernel expects the variance.
    """
    y, mean, var = _normalized(x, w, b, None, None, 0.0, eps)
    return y, mean, var, None, var


#: Momenta for which MindSpore's batch norm has been instantiated. A cumulative average uses a new
#: momentum in every step, so their number is limited.
_momenta: set = set()


@kernel("native_batch_norm_moving", target="CPU", only=_SUPPORTED, varying="momentum")
def _batch_norm_moving(x, w, b, running_mean, running_var, *, momentum, eps):
    """Like `_batch_norm_train`, with running statistics. They are updated in the same launch where
    it can write to them."""
    if momentum.__class__ is not Number and 0 <= momentum <= 1 and (momentum in _momenta or len(_momenta) < 32) and (
            STATE.on is None or w is not None and b is not None and all([is_state(h) for h in (w, b, running_mean, running_var)])):
        _momenta.add(momentum)
        own = [plain(h) if dtype_of(h) is ms.float32 else None for h in (running_mean, running_var)]
        rows = [copied(_upcast(h)) if r is None else r for h, r in zip((running_mean, running_var), own)]
        y, mean, var = _normalized(x, w, b, *rows, momentum, eps)
        for h, r, row in zip((running_mean, running_var), own, rows):
            if r is None:
                _DEVICE.write(h, row)
        return y, mean, var, None, var
    y, mean, var, *saved = _batch_norm_train(x, w, b, eps=eps)
    count = math.prod(shape_of(x)) // shape_of(x)[1]
    moved = _running_statistics(mean, var, _upcast(running_mean), _upcast(running_var), momentum=momentum,
                                factor=count / (count - 1) if count > 1 else math.nan)
    for h, row in zip((running_mean, running_var), moved):
        _DEVICE.write(h, row)
    return y, mean, var, *saved


@kernel("native_batch_norm_train_backward", target="CPU", only="float32")
def _batch_norm_train_backward(g, x, w, mean, rstd, var, *, eps, needs):
    _check_eps(eps)
    s = shape_of(x)
    c = s[1]
    gx, gw, gb, *_ = op(GO.BatchNormGrad, is_training=True, epsilon=eps)(
        _images(g), _images(x), _row(c, 1.0) if w is None else w, mean, var, var)
    return _wanted((gx if len(s) in (2, 4) else reshape(gx, s), gw, gb), needs)


@kernel("native_batch_norm_eval", target="CPU", only="float32")
def _batch_norm_eval(x, w, b, mean, var, *, eps):
    _check_eps(eps)
    s = shape_of(x)
    c = s[1]
    y = op(P.BatchNorm, is_training=False, epsilon=eps)(_images(x), _row(c, 1.0) if w is None else w, _row(c, 0.0) if b is None else b, mean, var)[0]
    return y if len(s) in (2, 4) else reshape(y, s)


@kernel("native_batch_norm_eval_backward", target="CPU", only="float32")
def _batch_norm_eval_backward(g, x, w, mean, var, *, eps, needs):
    _check_eps(eps)
    s = shape_of(x)
    c = s[1]
    gx, gw, gb, *_ = op(GO.BatchNormGrad, is_training=False, epsilon=eps)(_images(g), _images(x), _row(c, 1.0) if w is None else w, mean, var, var)
    return (*_wanted((gx if len(s) in (2, 4) else reshape(gx, s), gw, gb), needs), None, None)


def _moved(a, b, momentum):
    """Computes a + momentum * (b - a). Lerp does not support float64."""
    if dtype_of(a) is not ms.float64:
        return op(P.Lerp)(a, b, number(momentum, dtype_of(b)))
    return op(P.Add)(a, op(P.Mul)(op(P.Sub)(cast(b, ms.float64), a), number(momentum, ms.float64)))


@kernel("running_statistics", target="CPU", only="float32 float64 float16 bfloat16")
def _running_statistics(mean, var, running_mean, running_var, *, momentum, factor):
    m = v = None
    given = [x for x in (running_mean, running_var) if x is not None]
    if given and dtype_of(given[0]) in HALF:
        low = dtype_of(given[0])
        r = _running_statistics(*[None if x is None else cast(x, ms.float32) for x in (mean, var, running_mean, running_var)], momentum=momentum, factor=factor)
        return tuple([None if x is None else cast(x, low) for x in r])
    if running_mean is not None:
        m = _moved(running_mean, mean, momentum)
    if running_var is not None:
        v = _moved(running_var, op(P.Mul)(var, number(factor, dtype_of(var))), momentum)
    return m, v


@kernel("instance_statistics", target="CPU", only=_SUPPORTED)
def _instance_statistics(x):
    n, c, *_ = s = shape_of(x)
    _, mean, var, *_ = _batch_norm_train(reshape(_upcast(x), (1, n * c, 1, math.prod(s[2:]))), None, None, eps=1e-5)
    by = number(1 / n, ms.float32)
    return tuple([op(P.Mul)(op(P.ReduceSum)(reshape(h, (n, c)), 0), by) for h in (mean, var)])


# ------------------------------------------------------------------ layer norm, rms norm
#
# What MindSpore's LayerNormGrad adds to the variance that it receives.
_ADDED = 1e-7


@kernel("native_layer_norm", target="CPU", only=_SUPPORTED)
def _layer_norm(x, w, b, *, n, dims, eps):
    """Returns (result, mean, 1 / standard deviation, variance, None)."""
    s, low = shape_of(x), _low(x)
    last = s[len(s) - dims:]
    at = len(s) - dims
    x = _upcast(x)
    if not at:
        x, at = reshape(x, (1, *s)), 1
    y, mean, var = op(P.LayerNorm, at, at, eps)(x, _row(last, 1.0) if w is None else _upcast(w), _row(last, 0.0) if b is None else _upcast(b))
    return _back(y if len(s) != dims else reshape(y, s), low), mean, op(P.Rsqrt)(op(P.Add)(var, number(eps, ms.float32))), var, None


@kernel("native_layer_norm_backward", target="CPU", only="float32")
def _layer_norm_backward(g, x, w, mean, rstd, var, xhat, *, n, eps, needs, shape):
    s = shape_of(x)
    g, x, mean = _as(g, (-1, n)), _as(x, (-1, n)), _as(mean, (-1, 1))
    if eps >= _ADDED:
        var = op(P.Add)(_as(var, (-1, 1)), number(eps - _ADDED, ms.float32))
        gx, gw, gb = op(G.LayerNormGrad, 1, 1)(x, g, var, mean, _row(n, 1.0) if w is None else _as(w, (n,)))
    # subtracting 1e-7 from a tiny variance would lose its digits; at 64x32 this path takes 880 us
    # vs 175 us
    else:
        rstd = _as(rstd, (-1, 1))
        xhat = op(P.Mul)(op(P.Sub)(x, mean), rstd)
        gw, gb = op(P.ReduceSum)(op(P.Mul)(g, xhat), 0), op(P.ReduceSum)(g, 0)
        h, by = g if w is None else op(P.Mul)(g, _as(w, (n,))), number(1 / n, ms.float32)
        along, total = op(P.ReduceSum, True)(op(P.Mul)(h, xhat), 1), op(P.ReduceSum, True)(h, 1)
        gx = op(P.Mul)(op(P.Sub)(h, op(P.Mul)(op(P.Add)(op(P.Mul)(xhat, along), total), by)), rstd)
    return (_as(gx, s) if needs[0] else None, _as(gw, shape_of(w)) if needs[1] else None, _as(gb, shape) if needs[2] else None)


@kernel("rms_norm", target="CPU", only=_SUPPORTED + " float64")
def _rms_norm(x, w, *, n, dims, eps):
    s, low = shape_of(x), _low(x)
    m = reshape(_upcast(x), (-1, n))
    d = dtype_of(m)
    rstd = op(P.Rsqrt)(op(P.Add)(op(P.Mul)(op(P.ReduceSum, True)(op(P.Square)(m), 1), number(1 / n, d)), number(eps, d)))
    y = op(P.Mul)(m, rstd)
    if w is not None:
        y = op(P.Mul)(y, reshape(_upcast(w), (n,)))
    return _back(reshape(y, s), low), reshape(rstd, (-1,))


@kernel("rms_norm_backward", target="CPU", only="float32 float64")
def _rms_norm_backward(g, x, w, rstd, *, n, needs):
    s = shape_of(x)
    g, x, rstd = reshape(g, (-1, n)), reshape(x, (-1, n)), reshape(rstd, (-1, 1))
    xhat = op(P.Mul)(x, rstd)
    gw = gx = None
    if needs[1]:
        gw = reshape(op(P.ReduceSum)(op(P.Mul)(g, xhat), 0), shape_of(w))
    if needs[0]:
        h = g if w is None else op(P.Mul)(g, reshape(w, (n,)))
        c = op(P.Mul)(op(P.ReduceSum, True)(op(P.Mul)(h, xhat), 1), number(1 / n, dtype_of(g)))
        gx = reshape(op(P.Mul)(op(P.Sub)(h, op(P.Mul)(xhat, c)), rstd), s)
    return gx, gw


# ------------------------------------------------------------------ group norm, instance norm
@kernel("native_group_norm native_instance_norm", target="CPU", only=_SUPPORTED)
def _group_norm(x, w, b, *, groups, eps):
    s, low = shape_of(x), _low(x)
    c = s[1]
    y, mean, rstd = op(G.GroupNorm)(_upcast(x), groups, _row(c, 1.0) if w is None else _upcast(w), _row(c, 0.0) if b is None else _upcast(b), eps)
    return _back(y, low), mean, rstd, None


@kernel("native_group_norm_backward", target="CPU", only="float32")
def _group_norm_backward(g, x, w, mean, rstd, xhat, *, groups, needs):
    r = op(G.GroupNormGrad)(g, x, mean, rstd, _row(shape_of(x)[1], 1.0) if w is None else w, groups, *[bool(n) for n in needs])
    return _wanted(r, needs)


# ------------------------------------------------------------------ local response norm
@kernel("channel_window_sum", target="CPU", only="float32 float64")
def _window_sum(x, *, size, before):
    s = shape_of(x)
    if size > 32:
        raise UnsupportedByKernel
    m = reshape(x, (s[0], s[1], -1))
    m = op(P.Pad, ((0, 0), (before, size - 1 - before), (0, 0)))(m)
    r = None
    for i in range(size):
        part = op(P.Slice)(m, (0, i, 0), (s[0], s[1], shape_of(m)[2]))
        r = part if r is None else op(P.Add)(r, part)
    return reshape(r, s)
