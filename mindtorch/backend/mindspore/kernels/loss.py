"""Losses over classes (cross entropy, negative log likelihood) and of two tensors, with their
gradients.

A target that is not a valid class counts as ignored here: detecting it would require a
synchronization.
"""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import (HALF, P, STYPES, cast, runtime_assert, constant, dtype_of, from_contiguous, full, kernel, memory_of, ms,
                                                       number, op, reshape, shape_of)
from mindtorch.backend.mindspore.kernels._index_utils import counting, dense, expanded
from mindtorch.backend.mindspore.kernels.softmax import log_probabilities

_F = "float32 float64"
_rows: dict = {}


def _row(n, value, dtype, but=None):
    """Returns a cached row of n equal values, with 0 at the index `but`."""
    key = n, value, dtype, but
    h = _rows.get(key)
    if h is None:
        if len(_rows) > 512:
            _rows.clear()
        a = np.full((n,), value, STYPES[dtype])
        if but is not None:
            a[but] = 0
        h = _rows[key] = from_contiguous(a)
    return constant(h)


def _zeros(shape, dtype):
    return full(shape, 0, dtype)


def _class_weights(weight, classes, ignore_index, dtype):
    """Returns the class weights with 0 for the ignored class; None means that all are 1."""
    if not 0 <= ignore_index < classes:
        return weight
    one = _row(classes, 1, dtype, ignore_index)
    return one if weight is None else op(P.Mul)(weight, one)


def _hits(target, classes, dtype, axis):
    """Returns the one-hot encoding of the target; a row of zeros for an invalid class."""
    return op(P.OneHot, axis)(target, classes, number(1, dtype), number(0, dtype))


def _weighted_hits(target, weight, classes, ignore_index, dtype, axis=-1, rank=2):
    """Returns (class weights at each target's class, their sum per sample)."""
    hits = _hits(target, classes, dtype, axis)
    by = _class_weights(weight, classes, ignore_index, dtype)
    if by is not None:
        hits = op(P.Mul)(hits, by if rank == 2 else reshape(by, (-1,) + (1,) * (rank - 2)))
    return hits, op(P.ReduceSum)(hits, 1)


def _over(a, total):
    """Returns a / total, and 0 where total is 0. If no sample counts, the loss is NaN but its
    gradient is 0."""
    return op(P.DivNoNan)(a, total)


def _total(w):
    return op(P.ReduceSum)(w)


# ------------------------------------------------------------------ cross entropy
@kernel("cross_entropy_loss", target="CPU", only="float32 float16 bfloat16 int64")
def _cross_entropy(x, target, weight, *, ignore_index, smoothing, reduction):
    """Returns (loss, log probabilities, weights at the targets' classes, weight per sample)."""
    low = dtype_of(x) if dtype_of(x) in HALF else None
    if low is not None:
        x, weight = cast(x, ms.float32), None if weight is None else cast(weight, ms.float32)
    d, c = dtype_of(x), shape_of(x)[1]
    logs = log_probabilities(x, 1)
    hits, w = _weighted_hits(target, weight, c, ignore_index, d)
    if smoothing:
        hits = _smooth(hits, w, target, weight, c, ignore_index, smoothing, d)
        loss = op(P.Neg)(op(P.ReduceSum)(op(P.Mul)(hits, logs), 1))
        if reduction != "none":
            loss = _total(loss)
            if reduction == "mean":
                loss = op(P.RealDiv)(loss, _total(w))
    else:
        loss = _likelihood(logs, target, weight, reduction, ignore_index)
    return loss if low is None else cast(loss, low), logs, hits, w


def _smooth(hits, w, target, weight, c, ignore_index, smoothing, d):
    """Returns the weight of each class for each sample with label smoothing."""
    counts = w if weight is None else op(P.ReduceSum)(_weighted_hits(target, None, c, ignore_index, d)[0], 1)
    every = op(P.Mul)(reshape(counts, (-1, 1)), _row(c, smoothing / c, d) if weight is None else op(P.Mul)(weight, number(smoothing / c, d)))
    return op(P.Add)(op(P.Mul)(hits, number(1 - smoothing, d)), every)


def _likelihood(logs, target, weight, reduction, ignore_index):
    c, d = shape_of(logs)[1], dtype_of(logs)
    if reduction == "none":
        # P.NLLLoss does not write the outputs of ignored samples.
        hits, w = _weighted_hits(target, weight, c, ignore_index, d)
        v = op(P.ReduceSum)(op(P.Select)(op(P.Equal)(hits, number(0, d)), _zeros(shape_of(hits), d), logs), 1)
        return op(P.Neg)(v if weight is None else op(P.Mul)(v, w))
    return op(P.NLLLoss, reduction, ignore_index)(logs, target, _row(c, 1, d) if weight is None else weight)[0]


@kernel("cross_entropy_backward", target="CPU", only="float32 float16 bfloat16 int64")
def _cross_entropy_backward(g, target, weight, logs, hits, w, *, ignore_index, smoothing, reduction):
    low = dtype_of(g) if dtype_of(g) in HALF else None
    if low is not None:
        g = cast(g, ms.float32)
    a = g if reduction != "mean" else _over(g, _total(w))
    a = reshape(a, (-1, 1))
    each = reshape(w, (-1, 1)) if not smoothing else op(P.ReduceSum, True)(hits, 1)
    r = op(P.Mul)(op(P.Sub)(op(P.Mul)(o.exp(logs), each), hits), a)
    return r if low is None else cast(r, low)


# ------------------------------------------------------------------ negative log likelihood
def _matrix(x, target):
    """Reshapes (N, C, *) and (N, *) to (samples, C) and (samples,)."""
    s = shape_of(x)
    if len(s) == 2:
        return x, target
    x = op(P.Transpose)(reshape(x, (s[0], s[1], -1)), (0, 2, 1))
    return reshape(x, (-1, s[1])), reshape(target, (-1,))


@kernel("nll_loss", target="CPU", only="float32 int64")
def _nll(x, target, weight, *, reduction, ignore_index):
    """Returns (loss, weight per sample)."""
    s = shape_of(x)
    d = dtype_of(x)
    _, w = _weighted_hits(target, weight, s[1], ignore_index, d, 1, len(s))
    m, t = _matrix(x, target)
    loss = _likelihood(m, t, weight, reduction, ignore_index)
    return reshape(loss, shape_of(target)) if reduction == "none" else loss, w


@kernel("sample_weights", target="CPU", only="float32 int64")
def _sample_weights(x, target, weight, *, ignore_index):
    s = shape_of(x)
    return (_weighted_hits(target, weight, s[1], ignore_index, dtype_of(x), 1, len(s))[1],)


@kernel("nll_of_samples", target="CPU", only="float32 int64")
def _nll_of_samples(x, target, w, *, reduction, ignore_index):
    m, t = _matrix(x, target)
    v = reshape(_likelihood(m, t, None, "none", ignore_index), shape_of(target))
    if w is not None:
        v = op(P.Mul)(v, w)
    if reduction == "none":
        return v
    v = _total(v)
    if reduction == "sum":
        return v
    return op(P.RealDiv)(v, number(math.prod(shape_of(target)), dtype_of(x)) if w is None else _total(w))


@kernel("nll_loss_backward", target="CPU", only="float32 int64")
def _nll_backward(g, target, w, *, reduction, ignore_index, size):
    d = dtype_of(g)
    rank = len(size)
    if reduction == "mean":
        g = _over(g, _total(w)) if w is not None else op(P.Mul)(g, number(1 / math.prod(shape_of(target)), d))
    a = op(P.Neg)(g) if w is None else op(P.Mul)(op(P.Neg)(g), w)
    hits = _hits(target, size[1], d, 1)
    t = shape_of(target)
    return op(P.Mul)(hits, reshape(a, (t[0], 1, *t[1:]) if len(shape_of(a)) else (1,) * rank))


# ------------------------------------------------------------------ losses of two tensors
def _n(value, like):
    return number(float(value), dtype_of(like))


def _clipped(d, most):
    # With the constant first, P.Maximum and P.Minimum propagate NaN of the operand.
    return op(P.Minimum)(_n(most, d), op(P.Maximum)(_n(-most, d), d))


def _mse(x, t, _):
    # In a graph SquaredDifference returns a Python scalar if both operands are 0-d.
    return op(P.SquaredDifference)(x, t) if shape_of(x) or shape_of(t) else op(P.Square)(op(P.Sub)(x, t))


def _mse_elementwise_backward(x, t, _):
    return op(P.Mul)(_minus(x, t), _n(2, x))


def _minus(x, t):
    return op(P.Sub)(x, t)


def _l1(x, t, _):
    return op(P.Abs)(_minus(x, t))


def _sign(d):
    # P.Sign of NaN is NaN, but PyTorch's derivative there is 0.
    return op(P.Sub)(cast(op(P.Greater)(d, _n(0, d)), dtype_of(d)), cast(op(P.Less)(d, _n(0, d)), dtype_of(d)))


def _l1_elementwise_backward(x, t, _):
    return _sign(_minus(x, t))


def _huber(x, t, delta):
    d = op(P.Abs)(_minus(x, t))
    m = op(P.Minimum)(_n(delta, d), d)
    return op(P.Mul)(m, op(P.Sub)(d, op(P.Mul)(m, _n(0.5, d))))


def _huber_elementwise_backward(x, t, delta):
    return _clipped(_minus(x, t), delta)


def _smooth_l1(x, t, beta):
    return op(P.Mul)(_huber(x, t, beta), _n(1 / beta, x))


def _smooth_l1_elementwise_backward(x, t, beta):
    return _clipped(op(P.Mul)(_minus(x, t), _n(1 / beta, x)), 1)


def _bce_logits(x, t, _):
    # (1 - t) x - log(sigmoid(x)), with log(sigmoid(x)) = min(x, 0) - log(1 + exp(-|x|)). It agrees
    # with PyTorch for infinite x.
    r = o.log1p(o.exp(op(P.Neg)(op(P.Abs)(x))))
    return op(P.Add)(op(P.Mul)(op(P.Sub)(_n(1, x), t), x), op(P.Sub)(r, op(P.Minimum)(_n(0, x), x)))


def _bce_logits_elementwise_backward(x, t, _):
    return op(P.Sub)(o.sigmoid(x), t)


def _bce_logits_target_backward(x, t, _):
    return op(P.Neg)(x)


def _limited(x):
    return op(P.Maximum)(_n(-100, x), x)


def _bce(x, t, _):
    a, b = _limited(o.log(x)), _limited(o.log1p(op(P.Neg)(x)))
    return op(P.Neg)(op(P.Add)(op(P.Mul)(_minus(a, b), t), b))


def _reduced(v, reduction):
    if reduction == "none" or not shape_of(v):
        return v
    s = _total(v)
    return s if reduction == "sum" else op(P.Mul)(s, _n(1 / math.prod(shape_of(v)), v))


def _pair(name, value, derivative, target_backward=None):
    """Registers the kernels of a loss of two tensors and of its gradients. Without `target_backward`
    the loss depends on the difference only."""
    def forward(x, target, *, reduction, param):
        return _reduced(value(x, target, param), reduction)

    def gradients(g, x, target, *, reduction, param, needs):
        gx = gt = None
        if needs[0] or target_backward is None:
            gx = derivative(x, target, param)
            if reduction == "mean":
                g = op(P.Mul)(g, _n(1 / math.prod(shape_of(gx)), g))
            gx = op(P.Mul)(gx, g)
        elif reduction == "mean":
            g = op(P.Mul)(g, _n(1 / math.prod(_common(shape_of(x), shape_of(target))), g))
        if needs[1]:
            gt = op(P.Neg)(gx) if target_backward is None else op(P.Mul)(expanded(target_backward(x, target, param), _common(shape_of(x), shape_of(target))), g)
        return gx if needs[0] else None, gt
    kernel(name, forward, target="CPU", only=_F)
    kernel(name + "_backward", gradients, target="CPU", only=_F)


def _common(a, b):
    if len(a) < len(b):
        a, b = b, a
    b = (1,) * (len(a) - len(b)) + tuple(b)
    return tuple([n if m == 1 else m for m, n in zip(a, b)])


_pair("mse_loss", _mse, _mse_elementwise_backward)
_pair("l1_loss", _l1, _l1_elementwise_backward)
_pair("smooth_l1_loss", _smooth_l1, _smooth_l1_elementwise_backward)
_pair("huber_loss", _huber, _huber_elementwise_backward)
_pair("binary_cross_entropy_with_logits", _bce_logits, _bce_logits_elementwise_backward, _bce_logits_target_backward)


@kernel("binary_cross_entropy", target="CPU", only=_F)
def _bce_loss(x, target, *, reduction, param):
    """Returns NaN for a value outside [0, 1]. The host kernel raises an error there, which would
    require a synchronization here."""
    return _reduced(_bce(x, target, param), reduction)


@kernel("binary_cross_entropy_backward", target="CPU", only=_F)
def _bce_backward(g, x, target, *, reduction, param, needs):
    if reduction == "mean":
        g = op(P.Mul)(g, _n(1 / math.prod(shape_of(x)), g))
    gx = gt = None
    other = op(P.Sub)(_n(1, x), x)
    if needs[0]:
        v = op(P.Maximum)(_n(1e-12, x), op(P.Mul)(other, x))
        gx = op(P.Mul)(op(P.RealDiv)(_minus(x, target), v), g)
    if needs[1]:
        gt = op(P.Mul)(op(P.Sub)(o.log1p(op(P.Neg)(x)), o.log(x)), g)
    return gx, gt


kernel("limited_norm", lambda a, *, least: op(P.Maximum)(_n(least, a), a), target="CPU", only=_F)


# ------------------------------------------------------------------ checks of targets, variances
#
# Invalid values raise PyTorch's error. The check reads the values directly, because memory of this
# target is host memory.
def _in_range(t, low, high):
    def outside(h):
        a = memory_of(h)
        if a.min() < low or a.max() >= high:
            raise RuntimeError("target out of range")
    runtime_assert(t, outside)


@kernel("class_hits", target="CPU")
def _class_hits(t, *, classes):
    """Returns a bool tensor (N, C), True at each sample's target class."""
    _in_range(t, 0, classes)
    n = math.prod(shape_of(t))
    return o.eq(reshape(cast(t, ms.int64), (n, 1)), reshape(counting(classes), (1, classes)))


@kernel("multilabel_targets", target="CPU")
def _multilabel_targets(t, *, classes):
    """For rows of targets that end at the first -1, returns (targets with 0 after the end, mask of
    the pairs of a target and a class that do not count)."""
    if classes is not None:
        _in_range(t, -1, classes)
    rows, n = shape_of(t)
    t = cast(dense(t), ms.int64)
    live = o.eq(op(P.CumSum)(cast(o.lt(t, 0), ms.int64), 1), 0)
    hit = o.and_(o.eq(reshape(t, (rows, n, 1)), reshape(counting(n), (1, 1, n))), reshape(live, (rows, n, 1)))
    is_target = op(P.ReduceAny, True)(hit, (1,))
    return o.where(live, t, 0), o.or_(o.not_(reshape(live, (rows, n, 1))), is_target)


def _no_variance(h):
    if (memory_of(h) < 0).any():
        raise ValueError("var has negative entry/entries")


@kernel("limited_variance", target="CPU", half=True, only="float32 float64 float16 bfloat16")
def _limited_variance(a, *, least):
    """Raises the variance to at least `least` by an addition. Raises ValueError if a variance is
    negative."""
    w = dense(o.upcast(a))
    runtime_assert(w, _no_variance)
    d = dtype_of(a)
    lift = o.upcast(cast(o.where(o.lt(w, least), o.sub(least, w), 0), d))
    return cast(o.add(w, lift), d) if d is not dtype_of(w) else o.add(w, lift)
