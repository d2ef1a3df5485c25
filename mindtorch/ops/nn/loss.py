"""Loss functions of one, two or three tensors.

Classification losses and CTC are in `mindtorch/ops/nn/_class_loss.py`.
"""
import math
import warnings

from mindtorch.core.tensor.dtypes import I64
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.stride_rules import like, pointwise, pointwise_unless_reduced
from mindtorch.core.dispatch.type_promotion import promote_pair, result_dtype
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Float, Int, Scalar
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.ops.nn import _class_loss  # noqa: F401  (declares cross_entropy, nll_loss, ctc_loss)
from mindtorch.ops.nn._fused import composite_backward_upcast, dim_of, check_floating, reduced, reduction_of, check_tensor_arg, scalar_type_name
from mindtorch.ops._checks import broadcast_pair, check_number
from mindtorch.ops._operands import scalar
from mindtorch.ops.basic import cast, eq_, gt_, mask_grad, le_, mul_, ne_, new_full
from mindtorch.ops.nn.activation import logsigmoid, logsigmoid_


# ------------------------------------------------------------------ elementwise losses, one kernel each
def _elementwise(name, compose, node, layout=pointwise_unless_reduced):
    """Defines a loss of two tensors: kernels for the value and the gradients, and a composition for
    higher-order gradients."""
    backward = primitive(name + "_backward", "g, x, target, *, reduction, param, needs", layout=pointwise_unless_reduced)

    def rule(ctx, grad):
        if mode.on:
            return composite_backward_upcast(lambda x, t: reduced(compose(x, t, ctx.param), ctx.reduction), (ctx.x, ctx.target), grad)
        return backward(grad, ctx.x, ctx.target, reduction=ctx.reduction, param=ctx.param, needs=ctx.needs)
    return primitive(name, "x, target, *, reduction, param", rule, node=node, layout=layout)


_mse = _elementwise("mse_loss", lambda x, t, _: (x - t) * (x - t), "MseLossBackward0")
_l1 = _elementwise("l1_loss", lambda x, t, _: (x - t).abs(), "MeanBackward0")


def _compose_smooth(x, t, beta):
    d = (x - t).abs()
    m = d.clamp(max=beta)
    return m * (d - m * 0.5) / beta


def _compose_huber(x, t, delta):
    d = (x - t).abs()
    m = d.clamp(max=delta)
    return m * (d - m * 0.5)


_smooth = _elementwise("smooth_l1_loss", _compose_smooth, "SmoothL1LossBackward0")
_huber = _elementwise("huber_loss", _compose_huber, "HuberLossBackward0", like)
#: Raises an error for inputs that are not probabilities.
_bce = _elementwise("binary_cross_entropy",
                    lambda x, t, _: (t - 1) * (1 - x).log().clamp(min=-100) - t * x.log().clamp(min=-100),
                    "BinaryCrossEntropyBackward0", like)
_bce_logits = _elementwise("binary_cross_entropy_with_logits",
                           lambda x, t, _: x.relu() - x * t + (-x.abs()).exp().log1p(),
                           "BinaryCrossEntropyWithLogitsBackward0", like)


def _operands(name, input, target):
    check_tensor_arg(name, "input", input)
    check_tensor_arg(name, "target", target, 2)


def _warn_size(input, target):
    if target._sizes != input._sizes:
        warnings.warn(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This will likely "
                      "lead to incorrect results due to broadcasting. Please ensure they have the same size.", stacklevel=4)


def _pair_loss(kernel, p, param, input, target, weight, reduction, kinds="fV"):
    """Computes a loss of differences, with an optional weight per element."""
    _warn_size(input, target)
    if input._sizes != target._sizes:
        broadcast_pair(input._sizes, target._sizes)
    x, t = promote_pair(input, target)
    if x._np_dtype.kind not in kinds:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type_name(x)}' on device {x.device}")
    if weight is None:
        return p(x, t, reduction=reduction, param=param)
    if weight._sizes != input._sizes:
        raise ValueError("Weights and input must have the same size.")
    v = p(x, t, reduction="none", param=param) * weight
    if reduction == "mean":
        return v.sum() / weight.sum()
    return reduced(v, reduction)


@register_op(ns="nn.functional", method=False, autocast="float32", aten=("mse_loss", "input", "target", "reduction"))
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """Computes squared differences."""
    _operands("mse_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    return _pair_loss("mse_cpu", _mse, None, input, target, weight, reduction)


@register_op(ns="nn.functional", method=False, autocast="float32", aten=("l1_loss", "input", "target", "reduction"))
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """Computes absolute differences."""
    _operands("l1_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    if result_dtype(input, target).kind not in "fV":
        _warn_size(input, target)
        v = (input - target).abs()
        if weight is not None:
            v = v * weight
        return v if reduction == "none" else v.mean() if reduction == "mean" else v.sum()
    return _pair_loss("abs_cpu", _l1, None, input, target, weight, reduction)


@register_op(ns="nn.functional", method=False, autocast="float32", aten=("smooth_l1_loss", "input", "target", "reduction", "beta"))
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta: Scalar = 1.0):
    """Computes squared differences / (2 beta) where they are below `beta`, absolute differences -
    beta / 2 above."""
    _operands("smooth_l1_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return _pair_loss("smooth_l1_cpu", _smooth, float(beta), input, target, None, reduction)


@register_op(ns="nn.functional", method=False, autocast="float32", aten=("huber_loss", "input", "target", "reduction", "delta"))
def huber_loss(input, target, reduction="mean", delta: Float = 1.0, weight=None):
    """Computes squared differences / 2 where they are below `delta`, delta * (absolute differences
    - delta / 2) above."""
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


@register_op(ns="nn.functional", method=False, autocast="float32", aten=("binary_cross_entropy.default", "input", "target", "weight", "reduction"))
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Computes -(t log x + (1 - t) log(1 - x)) for probabilities x. Logarithms are clamped at -100.
    """
    _operands("binary_cross_entropy", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    if input._sizes != target._sizes:
        raise ValueError(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is "
                         "deprecated. Please ensure they have the same size.")
    if input._np_dtype != target._np_dtype:
        raise RuntimeError(f"Found dtype {scalar_type_name(target)} but expected {scalar_type_name(input)}")
    check_floating("binary_cross_entropy", input)
    if weight is None:
        return _bce(input, target, reduction=reduction, param=None)
    if not _broadcasts(weight._sizes, input._sizes):
        raise RuntimeError(f"Attempting to broadcast a dimension of length {weight._sizes[-1]} at -1! Mismatching "
                           "argument at "
                           f"index 1 had {weight.shape}; but expected shape should be broadcastable to {list(input._sizes)}")
    return _weighted(_bce(input, target, reduction="none", param=None), weight, reduction)


def _broadcasts(shape, to):
    """True if a tensor of shape `shape` can be expanded to `to`."""
    return len(shape) <= len(to) and all(m in (1, n) for m, n in zip(reversed(shape), reversed(to)))


def _logits_loss(input, target, weight, pos_weight, reduction):
    _operands("binary_cross_entropy_with_logits", input, target)
    if target._sizes != input._sizes:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    x, t = promote_pair(input, target)
    check_floating("binary_cross_entropy_with_logits", x)
    if x._np_dtype != target._np_dtype and target._np_dtype.kind in "iub":
        raise RuntimeError(f"result type {scalar_type_name(x)} can't be cast to the desired output type {scalar_type_name(target)}")
    if pos_weight is None:
        if weight is None:
            return _bce_logits(x, t, reduction=reduction, param=None)
        return _weighted(_bce_logits(x, t, reduction="none", param=None), weight, reduction)
    low = _softplus_negative(x)
    v = (1 - t) * x + ((pos_weight - 1) * t + 1) * low
    return _weighted(v, weight, reduction)


def _softplus_negative(x):
    """Computes log(1 + exp(-x))."""
    return -logsigmoid_(x)


@register_op(ns="nn.functional", method=False, autocast="float32",
             aten=("binary_cross_entropy_with_logits.default", "input", "target", "weight", "pos_weight", "reduction"))
def binary_cross_entropy_with_logits(input, target, weight=None, size_average=None, reduce=None, reduction="mean",
                                     pos_weight=None):
    """Computes the binary cross entropy of sigmoid(input) in a form that does not overflow."""
    return _logits_loss(input, target, weight, pos_weight, reduction_of(reduction, size_average, reduce))


@register_op(method=False, name="binary_cross_entropy_with_logits", autocast="float32")
def _torch_bce_logits(input, target, weight=None, pos_weight=None, reduction=1):
    """binary_cross_entropy_with_logits with the reduction as an integer (0: none, 1: mean, 2: sum).
    """
    return _logits_loss(input, target, weight, pos_weight, reduction_of(reduction))


# ------------------------------------------------------------------ divergences and likelihoods
def _kl(input, target, reduction, log_target):
    _operands("kl_div", input, target)
    v = target.exp() * (target - input) if log_target else target.xlogy(target) - target * input
    if reduction == "batchmean":
        return v.sum() / input._sizes[0] if input.ndim else v.sum()
    return reduced(v, reduction)


@register_op(ns="nn.functional", method=False, autocast="float32")
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target: Bool = False):
    """Computes target * (log(target) - input): the Kullback-Leibler divergence of log probabilities
    `input`."""
    if size_average is not None or reduce is not None or reduction != "batchmean":
        if reduction == "mean" and size_average is None and reduce is None:
            warnings.warn("reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides "
                          "only by the batch size, and aligns with the KL div math definition.'mean' will be changed "
                          "to behave the "
                          "same as 'batchmean' in the next major release.", stacklevel=2)
        reduction = reduction_of(reduction, size_average, reduce)
    return _kl(input, target, reduction, log_target)


@register_op(method=False, name="kl_div")
def _torch_kl_div(input, target, reduction=1, *, log_target: Bool = False):
    """kl_div with the reduction as an integer (0: none, 1: mean, 2: sum)."""
    return _kl(input, target, reduction_of(reduction), log_target)


def _poisson(input, target, log_input, full, eps, reduction):
    _operands("poisson_nll_loss", input, target)
    v = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        t = target
        stirling = t * t.log() - t + (t * (2 * math.pi)).log() * 0.5
        v = v + stirling.masked_fill(le_(t, scalar(1, t)), 0)
    return reduced(v, reduction)


@register_op(ns="nn.functional", method=False, autocast="float32")
def poisson_nll_loss(input, target, log_input: Bool = True, full: Bool = False, size_average=None, eps: Float = 1e-08, reduce=None, reduction="mean"):
    """Computes the negative log likelihood of Poisson counts."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _poisson(input, target, log_input, full, eps, reduction_of(reduction, size_average, reduce))


@register_op(method=False, name="poisson_nll_loss", autocast="float32")
def _torch_poisson(input, target, log_input: Bool, full: Bool, eps: Float, reduction):
    """poisson_nll_loss with the reduction as an integer (0: none, 1: mean, 2: sum)."""
    return _poisson(input, target, log_input, full, eps, reduction_of(reduction))


@register_op(ns="nn.functional", method=False)
def gaussian_nll_loss(input, target, var, full=False, eps=1e-06, reduction="mean"):
    """Computes the negative log likelihood of normal samples with given variances."""
    _operands("gaussian_nll_loss", input, target)
    if isinstance(var, (int, float)):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = new_full(input, size=input._sizes, value=var, np_dtype=input._np_dtype)
    # The lower bound does not block the gradient.
    var = _limited_variance(var, least=eps)
    if var._sizes != input._sizes:
        if input._sizes[:-1] == var._sizes:
            var = var.unsqueeze(-1)
        elif not (input.ndim == var.ndim and sum(m != n for m, n in zip(input._sizes, var._sizes)) <= 1
                  and 1 in var._sizes):
            raise ValueError("var is of incorrect size")
    reduction = _check_reduction(reduction)
    r = (var.log() + (input - target) * (input - target) / var) * 0.5
    if full:
        r = r + 0.5 * math.log(2 * math.pi)
    return reduced(r, reduction)


#: max(a, least). ValueError if an element is negative.
_limited_variance = primitive("limited_variance", "a, *, least", lambda ctx, grad: grad, raw=True, layout=pointwise, node="AddBackward0")


def _check_reduction(reduction):
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    return reduction


# ------------------------------------------------------------------ similarities and distances
@register_op(method=False, aliases="nn.functional.cosine_similarity")
def cosine_similarity(x1, x2, dim: Int = 1, eps: Float = 1e-08):
    """Computes the dot product of x1 and x2 along `dim`, divided by the product of their norms.
    Each norm is at least eps."""
    check_tensor_arg("cosine_similarity", "x1", x1)
    check_tensor_arg("cosine_similarity", "x2", x2, 2)
    if eps.__class__ is not float:
        eps = check_number("cosine_similarity", "eps", eps)
    d = result_dtype(x1, x2)
    if d.kind not in "fVc":
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {scalar_type_name(d)}")
    a, b = promote_pair(x1, x2)
    n = max(a.ndim, b.ndim)
    dim = dim_of(dim, n) - n
    if a._sizes != b._sizes:
        a, b = a.expand(_common(a, b)), b.expand(_common(a, b))
    if not n:
        dim = 0
    na, nb = (_limited_norm(t, dim, eps) for t in (a, b))
    return mul_(a / na, b / nb).sum(dim)


def _common(a, b):
    return broadcast_pair(a._sizes, b._sizes)


_raised = primitive("limited_norm", "a, *, least", lambda ctx, grad: grad, raw=True, layout=pointwise, node="AddBackward0")


def _limited_norm(x, dim, eps):
    n = x.norm(2, dim, keepdim=True)
    # As in gaussian_nll_loss, the lower bound does not block the gradient.
    return _raised(n, least=eps) if n._np_dtype.kind == "f" else n.clamp_min(eps)


@register_op(method=False, aliases="nn.functional.pairwise_distance")
def pairwise_distance(x1, x2, p: Float = 2.0, eps: Float = 1e-06, keepdim: Bool = False):
    """Computes the p-norm of x1 - x2 + eps over the last dim."""
    check_tensor_arg("pairwise_distance", "x1", x1)
    check_tensor_arg("pairwise_distance", "x2", x2, 2)
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


def _cosine_embedding(input1, input2, target, margin, reduction):
    for i, t in enumerate((input1, input2, target)):
        check_tensor_arg("cosine_embedding_loss", ("input1", "input2", "target")[i], t, i + 1)
    n = target.ndim
    if n not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input1.ndim != n + 1 or input2.ndim != n + 1:
        raise RuntimeError(f"{n}D target tensor expects {n + 1}D input tensors, but found inputs with sizes "
                           f"{list(input1._sizes)} and {list(input2._sizes)}.")
    eps = 1e-12
    cos = mul_(*promote_pair(input1, input2)).sum(n) / ((input1 * input1).sum(n) + eps).mul((input2 * input2).sum(n) + eps).sqrt()
    _common(cos, target)
    pos, neg = ne_(target, scalar(1, target)), ne_(target, scalar(-1, target))
    v = (1 - cos).masked_fill(pos, 0) + (cos - margin).clamp_min(0).masked_fill(neg, 0)
    return reduced(v, reduction)


@register_op(ns="nn.functional", method=False, autocast="float32")
def cosine_embedding_loss(input1, input2, target, margin: Float = 0, size_average=None, reduce=None, reduction="mean"):
    """Computes 1 - cos for targets 1, max(0, cos - margin) for targets -1."""
    return _cosine_embedding(input1, input2, target, margin, reduction_of(reduction, size_average, reduce))


@register_op(method=False, name="cosine_embedding_loss", autocast="float32")
def _torch_cosine_embedding(input1, input2, target, margin: Float = 0.0, reduction=1):
    """cosine_embedding_loss with the reduction as an integer (0: none, 1: mean, 2: sum)."""
    return _cosine_embedding(input1, input2, target, margin, reduction_of(reduction))


# ------------------------------------------------------------------ margins
def _check_triplet(anchor, positive, negative):
    for i, t in enumerate((anchor, positive, negative)):
        check_tensor_arg("triplet_margin_loss", ("anchor", "positive", "negative")[i], t, i + 1)
    dims = {t.ndim for t in (anchor, positive, negative)}
    if len(dims) > 1:
        raise RuntimeError("The anchor, positive, and negative tensors are expected to have the same number of "
                           "dimensions, but got: "
                           f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D "
                           "inputs")


def _triplet(anchor, positive, negative, margin, p, eps, swap, reduction):
    _check_triplet(anchor, positive, negative)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = far.minimum(pairwise_distance(positive, negative, p, eps))
    return reduced((near - far + margin).clamp_min(0), reduction)


@register_op(ns="nn.functional", method=False, autocast="float32")
def triplet_margin_loss(anchor, positive, negative, margin: Float = 1.0, p: Float = 2, eps: Float = 1e-06, swap: Bool = False, size_average=None, reduce=None,
                        reduction="mean"):
    """Computes max(0, distance to positive - distance to negative + margin)."""
    return _triplet(anchor, positive, negative, margin, p, eps, swap, reduction_of(reduction, size_average, reduce))


@register_op(method=False, name="triplet_margin_loss", autocast="float32")
def _torch_triplet(anchor, positive, negative, margin: Float = 1.0, p: Float = 2.0, eps: Float = 1e-06, swap: Bool = False, reduction=1):
    """triplet_margin_loss with the reduction as an integer (0: none, 1: mean, 2: sum)."""
    return _triplet(anchor, positive, negative, margin, p, eps, swap, reduction_of(reduction))


@register_op(ns="nn.functional", method=False)
def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False,
                                      reduction="mean"):
    """Like triplet_margin_loss, with any distance function."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = pairwise_distance if distance_function is None else distance_function
    _check_triplet(anchor, positive, negative)
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced((near - far + margin).clamp_min(0), reduction_of(reduction))


def _ranking(input1, input2, target, margin, reduction):
    for i, t in enumerate((input1, input2, target)):
        check_tensor_arg("margin_ranking_loss", ("input1", "input2", "target")[i], t, i + 1)
    return reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


@register_op(ns="nn.functional", method=False, autocast="float32")
def margin_ranking_loss(input1, input2, target, margin: Float = 0, size_average=None, reduce=None, reduction="mean"):
    """Computes max(0, -target * (input1 - input2) + margin)."""
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError("margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
                           f"{input1.shape}, input2: {input2.shape}, target: {target.shape} ")
    return _ranking(input1, input2, target, margin, reduction_of(reduction, size_average, reduce))


@register_op(method=False, name="margin_ranking_loss", autocast="float32")
def _torch_ranking(input1, input2, target, margin: Float = 0.0, reduction=1):
    """margin_ranking_loss with the reduction as an integer (0: none, 1: mean, 2: sum)."""
    return _ranking(input1, input2, target, margin, reduction_of(reduction))


def _hinge(input, target, margin, reduction):
    _operands("hinge_embedding_loss", input, target)
    one, minus = eq_(target, scalar(1, target)), eq_(target, scalar(-1, target))
    _common(input, target)
    v = (margin - input).clamp_min(0).masked_fill(one, 0) + input.masked_fill(minus, 0)
    return reduced(v, reduction)


@register_op(ns="nn.functional", method=False, autocast="float32")
def hinge_embedding_loss(input, target, margin: Float = 1.0, size_average=None, reduce=None, reduction="mean"):
    """Returns input for targets 1, max(0, margin - input) for targets -1."""
    return _hinge(input, target, margin, reduction_of(reduction, size_average, reduce))


@register_op(method=False, name="hinge_embedding_loss", autocast="float32")
def _torch_hinge(input, target, margin: Float = 1.0, reduction=1):
    """hinge_embedding_loss with the reduction as an integer (0: none, 1: mean, 2: sum)."""
    return _hinge(input, target, margin, reduction_of(reduction))


@register_op(ns="nn.functional", method=False, autocast="float32", aten=("soft_margin_loss.default", "input", "target", "reduction"))
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """Computes log(1 + exp(-target * input))."""
    _operands("soft_margin_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    return reduced((-target * input).exp().log1p(), reduction)


@register_op(ns="nn.functional", method=False)
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Computes the binary cross entropy of logits, averaged over the classes (last dim)."""
    _operands("multilabel_soft_margin_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    v = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        v = v * weight
    return reduced(v.sum(-1) / input._sizes[-1], reduction)


def _positive(z):
    """Computes max(z, 0) with zero gradient at z == 0. NaN becomes 0."""
    return mask_grad(z, gt_(z, scalar(0, z)))


def _rows_and_classes(input):
    """Returns (N, C) for scores of shape (N, C) or (C). RuntimeError if there are no scores."""
    n = input.ndim
    if n > 2 or (n == 2 and not input._sizes[1]) or (n < 2 and not input._numel):
        raise RuntimeError("Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
                           f"{list(input._sizes)}")
    return input._sizes[0] if n == 2 else 1, input._sizes[-1] if n else 1


#: (N, C) mask of the target class of each sample. RuntimeError for targets out of range.
_class_hits = primitive("class_hits", "t, *, classes")
#: For rows of targets, which end at the first -1: (targets, 0 after the end; mask of the (target,
#: class) pairs that do not count)
_multilabel_targets = primitive("multilabel_targets", "t, *, classes")


@register_op(ns="nn.functional", method=False, autocast="float32", aten=("multi_margin_loss.default", "input", "target", "p", "margin", "weight", "reduction"))
def multi_margin_loss(input, target, p: Float = 1, margin: Float = 1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Averages weight * max(0, margin - input at the target + input)^p over the wrong classes."""
    _operands("multi_margin_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    if p != 1 and p != 2:
        raise ValueError("only p == 1 and p == 2 supported")
    check_floating("multi_margin_loss", input)
    rows, classes = _rows_and_classes(input)
    if target.ndim > 1 or target._numel != rows:
        raise RuntimeError(f"multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch "
                           f"size). Expected target size [{rows}], but got {list(target._sizes)}. Input has shape {list(input._sizes)}.")
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    if weight is not None and weight._numel != classes:
        raise RuntimeError(f"inconsistent weight size, expected {classes} but got {list(weight._sizes)}")
    x, t = input.reshape(rows, classes), cast(target.reshape(rows), I64)
    hit = _class_hits(t, classes=classes)
    z = _positive(margin - x.gather(1, t.unsqueeze(1)) + x)
    if p == 2:
        z = z * z
    if weight is not None:
        z = z * weight.gather(0, t).unsqueeze(1)
    v = z.masked_fill(hit, 0).sum(1) / classes
    if reduction == "none" and not target.ndim:
        return v.reshape([])
    return reduced(v, reduction)


@register_op(ns="nn.functional", method=False, autocast="float32")
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """Sums max(0, 1 - (input at a target - input elsewhere)) / classes. A row's targets end at the
    first -1."""
    _operands("multilabel_margin_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    rows, n = _rows_and_classes(input)
    if target._sizes != input._sizes and not (input._numel == 1 and target._numel == 1 and input.ndim < 2):
        raise RuntimeError(f"inconsistent target size: {list(target._sizes)} for input of size: {list(input._sizes)}")
    check_floating("multilabel_margin_loss_forward_out", input)
    x = input.reshape(rows, n)
    at, drop = _multilabel_targets(target.reshape(rows, n), classes=n if input.ndim else None)
    z = _positive(1 - (x.gather(1, at).unsqueeze(2) - x.unsqueeze(1)))
    v = z.masked_fill(drop, 0).sum([1, 2]) / n
    if input.ndim < 2:
        v = v.reshape([])
    return reduced(v, reduction)
