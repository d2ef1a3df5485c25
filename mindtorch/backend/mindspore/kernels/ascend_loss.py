"""Losses on Ascend: one aclnn launch forward, one for the gradient of the input, unless noted."""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import cast, dtype_of, G, cached_constants, mint, ms, number, op, P, reshape, shape_of, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels._index_utils import counting, table
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, CUBE, empty, ones
from mindtorch.backend.mindspore.kernels.shapes import narrowed
from mindtorch.backend.mindspore.recorder_api import graph_break
from mindspore.ops.operations.nn_ops import CTCLossV2, CTCLossV2Grad

CLASSES = CUBE + " int64"


def _alike(x, target):
    if shape_of(x) != shape_of(target):
        raise UnsupportedByKernel


def _share(g, x, reduction):
    """Returns the gradient of each element's loss."""
    return op(G.Muls)(g, 1 / math.prod(shape_of(x))) if reduction == "mean" else g


# ------------------------------------------------------------------ cross entropy and mean squares
@ascend("cross_entropy_loss", only=CLASSES)
def _cross_entropy(x, target, weight, *, ignore_index, smoothing, reduction):
    """Returns (loss, log probabilities, sum of the weights, None); two launches, four with
    smoothing."""
    _plain_classes(target, weight, dtype_of(x), smoothing)
    logs = op(G.LogSoftmaxExt)(x, 1, None)
    loss, total = op(G.NLLLoss, reduction, ignore_index)(_smoothed(logs, smoothing), target, ones(shape_of(x)[1], dtype_of(x)) if weight is None else weight)
    return loss, logs, total, None


@ascend("cross_entropy_backward", only=CLASSES)
def _cross_entropy_backward(g, target, weight, e, s, w, *, ignore_index, smoothing, reduction):
    _plain_classes(target, weight, dtype_of(e), smoothing)
    r = op(G.NLLLossGrad, reduction, ignore_index)(e, g, target, ones(shape_of(e)[1], dtype_of(e)) if weight is None else weight, s)
    return op(G.LogSoftmaxGrad, 1)(e, _smoothed(r, smoothing))


def _smoothed(x, smoothing):
    """Interpolates each row toward its mean.

    The loss of smoothed targets is the plain loss of such log probabilities; ignored samples and
    means are unaffected. The function is its own transpose, so it also applies to gradients.
    """
    return op(G.LerpScalar)(x, op(G.MeanExt)(x, 1, True, None), smoothing) if smoothing else x


def _plain_classes(target, weight, dtype, smoothing):
    if len(shape_of(target)) != 1 or weight is not None and (smoothing or dtype_of(weight) != dtype):
        raise UnsupportedByKernel


def _pair(name, forward, backward):
    @ascend(name, only=CUBE)
    def f(x, target, *, reduction, param):
        if shape_of(x) != shape_of(target) or param is not None and not param > 0:
            raise UnsupportedByKernel
        return forward(x, target, reduction, param)

    @ascend(name + "_backward", only=CUBE)
    def b(g, x, target, *, reduction, param, needs):
        if shape_of(x) != shape_of(target) or param is not None and not param > 0:
            raise UnsupportedByKernel
        r = backward(g, x, target, reduction, param)
        return r if needs[0] else None, op(G.Neg)(r) if needs[1] else None


_pair("mse_loss", lambda x, t, how, _: op(G.MSELossExt)(x, t, how), lambda g, x, t, how, _: op(G.MSELossGradExt)(g, x, t, how))
_pair("smooth_l1_loss", lambda x, t, how, beta: op(G.SmoothL1Loss, beta, how)(x, t), lambda g, x, t, how, beta: op(G.SmoothL1LossGrad, beta, how)(x, t, g))


# ------------------------------------------------------------------ absolute differences
@ascend("l1_loss", only=CUBE)
def _l1(x, target, *, reduction, param):
    _alike(x, target)
    return op(G.L1LossExt)(x, target, reduction)


@ascend("l1_loss_backward", only=CUBE)
def _l1_backward(g, x, target, *, reduction, param, needs):
    _alike(x, target)
    r = op(G.L1LossBackwardExt)(g, x, target, reduction)
    return r if needs[0] else None, op(G.Neg)(r) if needs[1] else None


# ------------------------------------------------------------------ binary cross entropy
@ascend("binary_cross_entropy", only=CUBE)
def _bce(x, target, *, reduction, param):
    """Does not reject values outside of [0, 1]: the check would have to synchronize."""
    _alike(x, target)
    return op(G.BinaryCrossEntropy, reduction)(x, target, None)


@ascend("binary_cross_entropy_backward", only=CUBE)
def _bce_backward(g, x, target, *, reduction, param, needs):
    _alike(x, target)
    gx = op(G.BinaryCrossEntropyGrad, reduction)(x, target, g, None) if needs[0] else None
    gt = o.mul(o.sub(o.log1p(o.neg(x)), o.log(x)), _share(g, x, reduction)) if needs[1] else None
    return gx, gt


@ascend("binary_cross_entropy_with_logits", only=CUBE)
def _bce_logits(x, target, *, reduction, param):
    _alike(x, target)
    return op(G.BCEWithLogitsLoss, reduction)(x, target, None, None)


@ascend("binary_cross_entropy_with_logits_backward", only=CUBE)
def _bce_logits_backward(g, x, target, *, reduction, param, needs):
    _alike(x, target)
    gx = op(G.BinaryCrossEntropyWithLogitsBackward)(g, x, target, None, None, reduction) if needs[0] else None
    gt = o.neg(o.mul(x, _share(g, x, reduction))) if needs[1] else None
    return gx, gt


# ------------------------------------------------------------------ negative log likelihood
def _sample_weight(x, target, weight, ignore_index):
    """Returns the weight of each sample, 0 where its target is ignored (two launches; five with
    class weights)."""
    live = op(P.NotEqual)(target, number(ignore_index, ms.int64))
    if weight is None:
        return cast(live, dtype_of(x))
    safe = reshape(o.where(live, target, 0), (-1,))
    return o.where(live, reshape(op(G.IndexSelect)(weight, 0, safe), shape_of(target)), 0.0)


ascend("sample_weights", lambda x, target, weight, *, ignore_index: (_sample_weight(x, target, weight, ignore_index),), only=CLASSES)


def _fields(size):
    """Returns the sizes (N, C, *) as (N, C, H, W)."""
    return tuple(size) if len(size) == 4 else (size[0], size[1], 1, math.prod(size[2:]))


@ascend("nll_loss", only=CLASSES)
def _nll(x, target, weight, *, reduction, ignore_index):
    """Returns (loss, weight of each sample); the weight tensor also carries the operands of the
    gradient's kernel."""
    size = shape_of(x)
    d = dtype_of(x)
    if weight is not None and dtype_of(weight) != d:
        raise UnsupportedByKernel
    by = ones(size[1], d) if weight is None else weight
    if len(size) == 2:
        loss, total = op(G.NLLLoss, reduction, ignore_index)(x, target, by)
    else:
        fields = _fields(size)
        loss, total = op(G.NLLLoss2d)(reshape(x, fields), reshape(target, (fields[0], *fields[2:])), by, reduction, ignore_index)
        if reduction == "none":
            loss = reshape(loss, shape_of(target))
    w = _sample_weight(x, target, weight, ignore_index)
    w.of_classes = by, total
    return loss, w


@ascend("nll_loss_backward", only=CLASSES)
def _nll_backward(g, target, w, *, reduction, ignore_index, size):
    found = getattr(w, "of_classes", None)
    if found is None:
        raise UnsupportedByKernel  # the forward ran on the host
    by, total = found
    if len(size) == 2:
        return op(G.NLLLossGrad, reduction, ignore_index)(empty(size, dtype_of(g)), g, target, by, total)
    fields = _fields(size)
    positions = fields[0], *fields[2:]
    g = g if reduction != "none" else reshape(g, positions)
    return reshape(op(G.NLLLoss2dGrad)(g, empty(fields, dtype_of(g)), reshape(target, positions), by, reduction, ignore_index, total), size)


@ascend("nll_of_samples", only=CLASSES)
def _nll_of_samples(x, target, w, *, reduction, ignore_index):
    """Computes the loss from given sample weights, with a launch for each step of its formula."""
    shape = shape_of(target)
    live = op(P.NotEqual)(target, number(ignore_index, ms.int64))
    at = reshape(o.where(live, target, 0), (shape[0], 1, *shape[1:]))
    v = o.where(live, o.neg(reshape(op(G.GatherD)(x, 1, at), shape)), 0.0)
    if w is not None:
        v = o.mul(v, w)
    if reduction == "none":
        return v
    v = op(G.SumExt)(v)
    return v if reduction == "sum" else o.div(v, op(G.SumExt)(w) if w is not None else float(math.prod(shape)))


ascend("limited_norm", lambda a, *, least: op(G.ClampScalar)(a, least, None), only=CUBE)


# -------------------------------------- targets and variances (values out of range are not checked)
@ascend("class_hits", only="int64 int32")
def _class_hits(t, *, classes):
    """Returns (N, C): True where a class is a sample's target."""
    n = math.prod(shape_of(t))
    return op(P.Equal)(reshape(cast(t, ms.int64), (n, 1)), reshape(counting(classes), (1, classes)))


@ascend("multilabel_targets", only="int64 int32")
def _multilabel_targets(t, *, classes):
    """Returns (targets, 0 where there is none; mask of the pairs of a target and a class that do
    not count).

    Each row of targets ends at the first -1.
    """
    rows, n = shape_of(t)
    t = cast(t, ms.int64)
    live = o.eq(op(G.CumsumExt)(cast(o.lt(t, 0), ms.int64), 1, None), 0)
    hit = o.and_(op(P.Equal)(reshape(t, (rows, n, 1)), reshape(counting(n), (1, 1, n))), reshape(live, (rows, n, 1)))
    is_target = mint.any(hit, 1, True)
    return o.where(live, t, 0), o.or_(o.not_(reshape(live, (rows, n, 1))), is_target)


@ascend("limited_variance", only=CUBE + " float64")
def _limited_variance(a, *, least):
    """Raises elements to at least `least`, by an addition. Raises ValueError if one is negative,
    for which PyTorch synchronizes as well."""
    graph_break("it looks at values")
    if mint.any(o.lt(a, 0)).asnumpy():
        raise ValueError("var has negative entry/entries")
    return o.add(a, o.where(o.lt(a, least), o.sub(least, a), 0.0))


# ----------------------------------------------- CTC: MindSpore's old op, since aclnn has no kernel
@ascend("ctc_loss", only="float32 int64 int32")
def _ctc(lp, targets, *, input_lengths, target_lengths, blank, zero_infinity):
    """See the host's kernel."""
    longest, n = max(target_lengths), len(target_lengths)
    if not longest or min(input_lengths) < 1 or dtype_of(lp) is not ms.float32:
        raise UnsupportedByKernel
    targets = cast(targets, ms.int64)
    # Concatenated targets: shorter ones are filled up with arbitrary labels.
    if len(shape_of(targets)) == 1:
        starts = np.cumsum((0, *target_lengths[:-1]))
        at = np.minimum(starts[:, None] + np.arange(longest), shape_of(targets)[0] - 1)
        labels = reshape(op(G.IndexSelect)(targets, 0, table(at.reshape(-1))), (n, longest))
    else:
        labels = copy(narrowed(targets, 1, 0, longest))
    nll, alpha = op(CTCLossV2, blank, "none", False)(lp, labels, *_lengths(input_lengths, target_lengths))
    by = table(np.maximum(target_lengths, 1).astype(np.float32))
    return nll, alpha, labels, by


@cached_constants(256)
def _lengths(*several):
    return [table(np.array(v, np.int64)) for v in several]


@ascend("ctc_loss_backward", only="float32 int64")
def _ctc_backward(g, lp, nll, alpha, labels, *, input_lengths, target_lengths, blank, zero_infinity):
    return op(CTCLossV2Grad, blank, "none", zero_infinity)(g, lp, labels, *_lengths(input_lengths, target_lengths), nll, alpha)


# ------------------------------------------------------------------ Huber loss
@ascend("huber_loss", only=CUBE)
def _huber(x, target, *, reduction, param):
    """Takes five launches, and one for the reduction."""
    d = o.abs_(op(G.SubExt)(x, target, 1))
    m = o.at_most(d, param)
    v = o.mul(m, o.sub(d, o.mul(m, 0.5)))
    return v if reduction == "none" else op(G.SumExt)(v) if reduction == "sum" else op(G.MeanExt)(v)


@ascend("huber_loss_backward", only=CUBE)
def _huber_backward(g, x, target, *, reduction, param, needs):
    r = op(G.ClampScalar)(op(G.SubExt)(x, target, 1), -param, param)
    if reduction == "mean":
        g = op(G.Muls)(g, 1 / math.prod(shape_of(r)))
    r = o.mul(r, g)
    return r if needs[0] else None, o.neg(r) if needs[1] else None
