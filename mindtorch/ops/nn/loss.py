"""Loss functions of one, two or three tensors; classification losses and CTC are in _class_loss.py."""
import math
import warnings

import numpy as np

from mindtorch.backend.cpu import loss as kernels
from mindtorch.backend.cpu.host import quiet
from mindtorch.core.grad_mode import mode
from mindtorch.core.promote import pair, result_dtype
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import wrap
from mindtorch.ops.nn import _class_loss  # noqa: F401  (declares cross_entropy, nll_loss, ctc_loss)
from mindtorch.ops.nn._fused import again, dim_of, need_float, reduced, reduction_of, tensor_arg, title
from mindtorch.ops._operands import plain
from mindtorch.ops.basic import keep, mul_


# ------------------------------------------------------------------ elementwise losses as one kernel
def _elementwise(name, value, slope, compose, node, target_slope=None):
    """A loss of two tensors: value and slope kernels, and a composition for gradients of gradients.

    Without `target_slope` the loss depends on the difference alone.
    """
    def forward(x, target, *, reduction, param):
        if kernels.in_pieces(x, target):
            return kernels.value_in_pieces(value, x, target, param, reduction)
        return kernels.reduce_values(_atleast(value, x, target, param), reduction)

    def gradients(g, x, target, *, reduction, param, needs):
        t = target
        gx = gt = None
        scale = g
        if reduction == "mean":
            n = math.prod(np.broadcast_shapes(x.shape, t.shape))
            scale = g * g.dtype.type(1 / n if n else math.nan)
        if kernels.in_pieces(x, t):
            if needs[0] or target_slope is None:
                gx = kernels.slope_in_pieces(slope, x, t, param, scale)
            if needs[1] and target_slope is not None:
                gt = kernels.slope_in_pieces(target_slope, x, t, param, scale)
        elif needs[0] or target_slope is None:
            gx = _atleast(slope, x, t, param)
            gx *= scale
        if needs[1]:
            if target_slope is None:
                gt = np.negative(gx)
            elif gt is None:
                gt = _atleast(target_slope, x, t, param)
                gt *= scale
        return gx if needs[0] else None, gt

    backward = primitive(name + "_backward", quiet(gradients))

    def rule(c, g):
        if mode.on:
            return again(lambda x, t: reduced(compose(x, t, c.param), c.reduction), (c.x, c.target), g)
        return backward(g, c.x, c.target, reduction=c.reduction, param=c.param, needs=c.needs)
    return primitive(name, quiet(forward), rule, node=node)


def _atleast(fn, x, t, param):
    if x.ndim or t.ndim:
        return fn(x, t, param)
    return fn(x.reshape(1), t.reshape(1), param).reshape(())


_mse = _elementwise("mse_loss", kernels.mse, kernels.mse_slope, lambda x, t, _: (x - t) * (x - t), "MseLossBackward0")
_l1 = _elementwise("l1_loss", kernels.l1, kernels.l1_slope, lambda x, t, _: (x - t).abs(), "MeanBackward0")


def _compose_smooth(x, t, beta):
    d = (x - t).abs()
    m = d.clamp(max=beta)
    return m * (d - m * 0.5) / beta


def _compose_huber(x, t, delta):
    d = (x - t).abs()
    m = d.clamp(max=delta)
    return m * (d - m * 0.5)


_smooth = _elementwise("smooth_l1_loss", kernels.smooth_l1, kernels.smooth_l1_slope, _compose_smooth,
                       "SmoothL1LossBackward0")
_huber = _elementwise("huber_loss", kernels.huber, kernels.huber_slope, _compose_huber, "HuberLossBackward0")
_bce = _elementwise("binary_cross_entropy", kernels.bce, kernels.bce_slope,
                    lambda x, t, _: (t - 1) * (1 - x).log().clamp(min=-100) - t * x.log().clamp(min=-100),
                    "BinaryCrossEntropyBackward0", kernels.bce_target_slope)
_bce_logits = _elementwise("binary_cross_entropy_with_logits", kernels.bce_logits, kernels.bce_logits_slope,
                           lambda x, t, _: x.relu() - x * t + (-x.abs()).exp().log1p(),
                           "BinaryCrossEntropyWithLogitsBackward0", kernels.bce_logits_target_slope)


def _operands(name, input, target):
    tensor_arg(name, "input", input)
    tensor_arg(name, "target", target, 2)


def _warn_size(input, target):
    if target._sizes != input._sizes:
        warnings.warn(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This will likely "
                      "lead to incorrect results due to broadcasting. Please ensure they have the same size.", stacklevel=4)


def _pair_loss(kernel, p, param, input, target, weight, reduction, kinds="fV"):
    """A difference loss with an optional weight per element."""
    _warn_size(input, target)
    x, t = pair(input, target)
    if x._stype.kind not in kinds:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{title(x)}' on device cpu")
    if weight is None:
        return p(x, t, reduction=reduction, param=param)
    if weight._sizes != input._sizes:
        raise ValueError("Weights and input must have the same size.")
    v = p(x, t, reduction="none", param=param) * weight
    if reduction == "mean":
        return v.sum() / weight.sum()
    return reduced(v, reduction)


@op(ns="nn.functional", method=False)
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """Squared differences."""
    _operands("mse_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    return _pair_loss("mse_cpu", _mse, None, input, target, weight, reduction)


@op(ns="nn.functional", method=False)
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """Absolute differences."""
    _operands("l1_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    if result_dtype(input, target).kind not in "fV":
        _warn_size(input, target)
        v = (input - target).abs()
        if weight is not None:
            v = v * weight
        return v if reduction == "none" else v.mean() if reduction == "mean" else v.sum()
    return _pair_loss("abs_cpu", _l1, None, input, target, weight, reduction)


@op(ns="nn.functional", method=False)
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """Squared differences / (2 beta) below `beta`, absolute ones less beta / 2 above."""
    _operands("smooth_l1_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return _pair_loss("smooth_l1_cpu", _smooth, float(beta), input, target, None, reduction)


@op(ns="nn.functional", method=False)
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """Half squared differences below `delta`, delta * (absolute ones less delta / 2) above."""
    _operands("huber_loss", input, target)
    reduction = reduction_of(reduction)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    return _pair_loss("huber_cpu", _huber, float(delta), input, target, weight, reduction)


# ------------------------------------------------------------------ binary cross entropy
def _weighted(v, weight, reduction):
    if weight is not None:
        v = v * weight
    return reduced(v, reduction)


@op(ns="nn.functional", method=False)
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """-(t log x + (1 - t) log(1 - x)) for probabilities x, logarithms limited at -100."""
    _operands("binary_cross_entropy", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    x, t = input._a, target._a
    if x.shape != t.shape:
        raise ValueError(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is "
                         "deprecated. Please ensure they have the same size.")
    if x.dtype != t.dtype:
        raise RuntimeError(f"Found dtype {title(t)} but expected {title(x)}")
    need_float("binary_cross_entropy", input)
    if x.size:
        low, high = x.min(), x.max()
        if not (low >= 0 and high <= 1) and not (np.isnan(low.astype(np.float32)) and _in_range(x)):
            raise RuntimeError("all elements of input should be between 0 and 1")
    if weight is None:
        return _bce(input, target, reduction=reduction, param=None)
    try:
        np.broadcast_to(np.empty(weight._sizes), x.shape)
    except ValueError:
        raise RuntimeError(f"Attempting to broadcast a dimension of length {weight._sizes[-1]} at -1! Mismatching "
                           "argument at "
                           f"index 1 had {weight.shape}; but expected shape should be broadcastable to {list(x.shape)}") from None
    return _weighted(_bce(input, target, reduction="none", param=None), weight, reduction)


def _in_range(x):
    with np.errstate(invalid="ignore"):
        return not ((x < 0) | (x > 1)).any()


def _logits_loss(input, target, weight, pos_weight, reduction):
    _operands("binary_cross_entropy_with_logits", input, target)
    if target._sizes != input._sizes:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    x, t = pair(input, target)
    need_float("binary_cross_entropy_with_logits", x)
    if x._stype != target._stype and target._stype.kind in "iub":
        raise RuntimeError(f"result type {title(x)} can't be cast to the desired output type {title(target)}")
    if pos_weight is None:
        if weight is None:
            return _bce_logits(x, t, reduction=reduction, param=None)
        return _weighted(_bce_logits(x, t, reduction="none", param=None), weight, reduction)
    low = _softplus_negative(x)
    v = (1 - t) * x + ((pos_weight - 1) * t + 1) * low
    return _weighted(v, weight, reduction)


def _softplus_negative(x):
    """log(1 + exp(-x))."""
    from mindtorch.ops.nn.activation import logsigmoid_
    return -logsigmoid_(x)


@op(ns="nn.functional", method=False)
def binary_cross_entropy_with_logits(input, target, weight=None, size_average=None, reduce=None, reduction="mean",
                                     pos_weight=None):
    """Binary cross entropy of sigmoid(input), in a form that does not overflow."""
    return _logits_loss(input, target, weight, pos_weight, reduction_of(reduction, size_average, reduce))


@op(method=False, name="binary_cross_entropy_with_logits")
def _torch_bce_logits(input, target, weight=None, pos_weight=None, reduction=1):
    """binary_cross_entropy_with_logits with torch's number for the reduction."""
    return _logits_loss(input, target, weight, pos_weight, reduction_of(reduction))


# ------------------------------------------------------------------ divergences and likelihoods
def _kl(input, target, reduction, log_target):
    _operands("kl_div", input, target)
    v = target.exp() * (target - input) if log_target else target.xlogy(target) - target * input
    if reduction == "batchmean":
        return v.sum() / input._sizes[0] if input.ndim else v.sum()
    return reduced(v, reduction)


@op(ns="nn.functional", method=False)
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target * (log(target) - input): Kullback-Leibler divergence of log probabilities `input`."""
    if size_average is not None or reduce is not None or reduction != "batchmean":
        if reduction == "mean" and size_average is None and reduce is None:
            warnings.warn("reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides "
                          "only by the batch size, and aligns with the KL div math definition.'mean' will be changed "
                          "to behave the "
                          "same as 'batchmean' in the next major release.", stacklevel=2)
        reduction = reduction_of(reduction, size_average, reduce)
    return _kl(input, target, reduction, log_target)


@op(method=False, name="kl_div")
def _torch_kl_div(input, target, reduction=1, *, log_target=False):
    """kl_div with torch's number for the reduction."""
    return _kl(input, target, reduction_of(reduction), log_target)


def _poisson(input, target, log_input, full, eps, reduction):
    _operands("poisson_nll_loss", input, target)
    v = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        t = target
        stirling = t * t.log() - t + (t * (2 * math.pi)).log() * 0.5
        v = v + stirling.masked_fill(wrap(np.asarray(t._a <= 1)), 0)
    return reduced(v, reduction)


@op(ns="nn.functional", method=False)
def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, reduction="mean"):
    """Negative log likelihood of Poisson counts."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _poisson(input, target, log_input, full, eps, reduction_of(reduction, size_average, reduce))


@op(method=False, name="poisson_nll_loss")
def _torch_poisson(input, target, log_input, full, eps, reduction):
    """poisson_nll_loss with torch's number for the reduction."""
    return _poisson(input, target, log_input, full, eps, reduction_of(reduction))


@op(ns="nn.functional", method=False)
def gaussian_nll_loss(input, target, var, full=False, eps=1e-06, reduction="mean"):
    """Negative log likelihood of normal numbers with given variances."""
    _operands("gaussian_nll_loss", input, target)
    if isinstance(var, (int, float)):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = wrap(np.full(input._sizes, var, input._stype))
    elif (var._a < 0).any():
        raise ValueError("var has negative entry/entries")
    if var._sizes != input._sizes:
        if input._sizes[:-1] == var._sizes:
            var = var.unsqueeze(-1)
        elif not (input.ndim == var.ndim and sum(m != n for m, n in zip(input._sizes, var._sizes)) <= 1
                  and 1 in var._sizes):
            raise ValueError("var is of incorrect size")
    reduction = _plain(reduction)
    # The limit does not stop the gradient.
    low = var._a if var._stype.itemsize != 2 else var._a.astype(np.float32)
    lift = np.where(low < low.dtype.type(eps), low.dtype.type(eps) - low, low.dtype.type(0))
    v = var + wrap(lift.astype(var._stype)) if lift.any() else var
    r = (v.log() + (input - target) * (input - target) / v) * 0.5
    if full:
        r = r + 0.5 * math.log(2 * math.pi)
    return reduced(r, reduction)


def _plain(reduction):
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    return reduction


# ------------------------------------------------------------------ similarities and distances
@op(method=False, aliases="nn.functional.cosine_similarity")
def cosine_similarity(x1, x2, dim=1, eps=1e-08):
    """Scalar product of x1 and x2 along `dim` over the product of their norms, each at least eps."""
    tensor_arg("cosine_similarity", "x1", x1)
    tensor_arg("cosine_similarity", "x2", x2, 2)
    d = result_dtype(x1, x2)
    if d.kind not in "fVc":
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {title(d)}")
    a, b = pair(x1, x2)
    n = max(a.ndim, b.ndim)
    dim = dim_of(dim, n) - n
    if a._sizes != b._sizes:
        a, b = a.expand(_common(a, b)), b.expand(_common(a, b))
    if not n:
        dim = 0
    na, nb = (_limited_norm(t, dim, eps) for t in (a, b))
    return mul_(a / na, b / nb).sum(dim)


def _common(a, b):
    try:
        return np.broadcast_shapes(a._sizes, b._sizes)
    except ValueError:
        from mindtorch.backend.cpu.pointwise import mismatch
        raise mismatch(a._sizes, b._sizes) from None


def _limited_norm(x, dim, eps):
    n = x.norm(2, dim, keepdim=True)
    # As with gaussian_nll_loss, the limit does not stop the gradient.
    return n + wrap(np.maximum(n._a, np.asarray(eps, n._stype)) - n._a) if n._stype.kind == "f" else n.clamp_min(eps)


@op(method=False, aliases="nn.functional.pairwise_distance")
def pairwise_distance(x1, x2, p=2.0, eps=1e-06, keepdim=False):
    """p-norm of x1 - x2 + eps over the last dim."""
    tensor_arg("pairwise_distance", "x1", x1)
    tensor_arg("pairwise_distance", "x2", x2, 2)
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


def _cosine_embedding(input1, input2, target, margin, reduction):
    for i, t in enumerate((input1, input2, target)):
        tensor_arg("cosine_embedding_loss", ("input1", "input2", "target")[i], t, i + 1)
    n = target.ndim
    if n not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input1.ndim != n + 1 or input2.ndim != n + 1:
        raise RuntimeError(f"{n}D target tensor expects {n + 1}D input tensors, but found inputs with sizes "
                           f"{list(input1._sizes)} and {list(input2._sizes)}.")
    eps = 1e-12
    cos = mul_(*pair(input1, input2)).sum(n) / ((input1 * input1).sum(n) + eps).mul((input2 * input2).sum(n) + eps).sqrt()
    t = target._a
    _common(cos, target)
    pos = wrap(np.asarray(t == 1)).logical_not()
    neg = wrap(np.asarray(t == -1)).logical_not()
    v = (1 - cos).masked_fill(pos, 0) + (cos - margin).clamp_min(0).masked_fill(neg, 0)
    return reduced(v, reduction)


@op(ns="nn.functional", method=False)
def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """1 - cos for targets 1, max(0, cos - margin) for targets -1."""
    return _cosine_embedding(input1, input2, target, margin, reduction_of(reduction, size_average, reduce))


@op(method=False, name="cosine_embedding_loss")
def _torch_cosine_embedding(input1, input2, target, margin=0.0, reduction=1):
    """cosine_embedding_loss with torch's number for the reduction."""
    return _cosine_embedding(input1, input2, target, margin, reduction_of(reduction))


# ------------------------------------------------------------------ margins
def _triplet(anchor, positive, negative, margin, p, eps, swap, reduction):
    for i, t in enumerate((anchor, positive, negative)):
        tensor_arg("triplet_margin_loss", ("anchor", "positive", "negative")[i], t, i + 1)
    dims = {t.ndim for t in (anchor, positive, negative)}
    if len(dims) > 1:
        raise RuntimeError("The anchor, positive, and negative tensors are expected to have the same number of "
                           "dimensions, but got: "
                           f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D "
                           "inputs")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = far.minimum(pairwise_distance(positive, negative, p, eps))
    return reduced((near - far + margin).clamp_min(0), reduction)


@op(ns="nn.functional", method=False)
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, size_average=None, reduce=None,
                        reduction="mean"):
    """max(0, distance to positive - distance to negative + margin)."""
    return _triplet(anchor, positive, negative, margin, p, eps, swap, reduction_of(reduction, size_average, reduce))


@op(method=False, name="triplet_margin_loss")
def _torch_triplet(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-06, swap=False, reduction=1):
    """triplet_margin_loss with torch's number for the reduction."""
    return _triplet(anchor, positive, negative, margin, p, eps, swap, reduction_of(reduction))


@op(ns="nn.functional", method=False)
def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False,
                                      reduction="mean"):
    """triplet_margin_loss with any distance."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = pairwise_distance if distance_function is None else distance_function
    for i, t in enumerate((anchor, positive, negative)):
        tensor_arg("triplet_margin_loss", ("anchor", "positive", "negative")[i], t, i + 1)
    dims = {t.ndim for t in (anchor, positive, negative)}
    if len(dims) > 1:
        raise RuntimeError("The anchor, positive, and negative tensors are expected to have the same number of "
                           "dimensions, but got: "
                           f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D "
                           "inputs")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced((near - far + margin).clamp_min(0), reduction_of(reduction))


def _ranking(input1, input2, target, margin, reduction):
    for i, t in enumerate((input1, input2, target)):
        tensor_arg("margin_ranking_loss", ("input1", "input2", "target")[i], t, i + 1)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError("margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
                           f"{input1.shape}, input2: {input2.shape}, target: {target.shape} ")
    return reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


@op(ns="nn.functional", method=False)
def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """max(0, -target * (input1 - input2) + margin)."""
    return _ranking(input1, input2, target, margin, reduction_of(reduction, size_average, reduce))


@op(method=False, name="margin_ranking_loss")
def _torch_ranking(input1, input2, target, margin=0.0, reduction=1):
    """margin_ranking_loss with torch's number for the reduction."""
    return _ranking(input1, input2, target, margin, reduction_of(reduction))


def _hinge(input, target, margin, reduction):
    _operands("hinge_embedding_loss", input, target)
    t = target._a
    one, minus = wrap(np.asarray(t == 1)), wrap(np.asarray(t == -1))
    _common(input, target)
    v = (margin - input).clamp_min(0).masked_fill(one, 0) + input.masked_fill(minus, 0)
    return reduced(v, reduction)


@op(ns="nn.functional", method=False)
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """input for targets 1, max(0, margin - input) for targets -1."""
    return _hinge(input, target, margin, reduction_of(reduction, size_average, reduce))


@op(method=False, name="hinge_embedding_loss")
def _torch_hinge(input, target, margin=1.0, reduction=1):
    """hinge_embedding_loss with torch's number for the reduction."""
    return _hinge(input, target, margin, reduction_of(reduction))


@op(ns="nn.functional", method=False)
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-target * input))."""
    _operands("soft_margin_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    return reduced((-target * input).exp().log1p(), reduction)


@op(ns="nn.functional", method=False)
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Binary cross entropy of logits, averaged over the classes (last dim)."""
    _operands("multilabel_soft_margin_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    from mindtorch.ops.nn.activation import logsigmoid
    v = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        v = v * weight
    return reduced(v.sum(-1) / input._sizes[-1], reduction)


def _positive(z):
    """z where it is above 0, else nothing: no slope at the margin itself, and nan counts as none."""
    return keep(z, wrap(np.asarray(plain(z) > 0)))


def _class_margins(name, input, target, weight):
    """(input as (N, C), target as (N,))."""
    a, t = input._a, target._a
    if a.ndim > 2 or (a.ndim == 2 and not a.shape[1]) or (a.ndim < 2 and not a.size):
        raise RuntimeError("Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
                           f"{list(a.shape)}")
    rows = a.shape[0] if a.ndim == 2 else 1
    if t.ndim > 1 or t.size != rows:
        raise RuntimeError(f"{name}: target tensor should be 1-D with size equal to the number of input samples (batch "
                           "size). "
                           f"Expected target size [{rows}], but got {list(t.shape)}. Input has shape {list(a.shape)}.")
    classes = a.shape[-1] if a.ndim else 1
    if t.size and (t.min() < 0 or t.max() >= classes):
        raise RuntimeError("target out of range")
    if weight is not None and weight._numel != classes:
        raise RuntimeError(f"inconsistent weight size, expected {classes} but got {list(weight._sizes)}")
    return input.reshape(rows, classes), t.reshape(rows)


@op(ns="nn.functional", method=False)
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Mean over the wrong classes of weight * max(0, margin - input at the target + input)^p."""
    _operands("multi_margin_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    if p != 1 and p != 2:
        raise ValueError("only p == 1 and p == 2 supported")
    need_float("multi_margin_loss", input)
    x, t = _class_margins("multi_margin_loss", input, target, weight)
    index = wrap(t[:, None].astype(np.int64))
    z = _positive(margin - x.gather(1, index) + x)
    if p == 2:
        z = z * z
    if weight is not None:
        z = z * weight.gather(0, wrap(t.astype(np.int64))).unsqueeze(1)
    hit = np.zeros(x._sizes, bool)
    hit[np.arange(t.size), t] = True
    v = z.masked_fill(wrap(hit), 0).sum(1) / x._sizes[1]
    if reduction == "none" and not target.ndim:
        return v.reshape([])
    return reduced(v, reduction)


@op(ns="nn.functional", method=False)
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """Sums of max(0, 1 - (input at a target - input elsewhere)) / classes; a row's targets end at the first -1."""
    _operands("multilabel_margin_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    a, t = input._a, target._a
    if a.ndim > 2 or (a.ndim == 2 and not a.shape[1]) or (a.ndim < 2 and not a.size):
        raise RuntimeError("Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
                           f"{list(a.shape)}")
    if t.shape != a.shape and not (a.size == 1 and t.size == 1 and a.ndim < 2):
        raise RuntimeError(f"inconsistent target size: {list(t.shape)} for input of size: {list(a.shape)}")
    need_float("multilabel_margin_loss_forward_out", input)
    if t.size and (t.min() < -1 or t.max() >= a.shape[-1] if a.ndim else False):
        raise RuntimeError("target out of range")
    rows = a.shape[0] if a.ndim == 2 else 1
    n = a.shape[-1] if a.ndim else 1
    x, t = input.reshape(rows, n), t.reshape(rows, n).astype(np.int64)
    live = np.cumprod(t >= 0, axis=1).astype(bool)
    is_target = np.zeros((rows, n), bool)
    r, k = np.nonzero(live)
    is_target[r, t[r, k]] = True
    picked = x.gather(1, wrap(np.where(live, t, 0)))
    z = _positive(1 - (picked.unsqueeze(2) - x.unsqueeze(1)))
    drop = ~live[:, :, None] | is_target[:, None, :]
    v = z.masked_fill(wrap(drop), 0).sum([1, 2]) / n
    if a.ndim < 2:
        v = v.reshape([])
    return reduced(v, reduction)
