"""Losses and their gradients. `reduction` is 0 (none), 1 (mean) or 2 (sum). A gradient's seed has
the loss's shape, or one element for all."""
from mindtorch.tools.standin.kernels._engine import F
from mindtorch.tools.standin.kernels._results import upcast
from mindtorch.tools.standin.kernels._table import gradients, kernel

REDUCTION = ("none", "mean", "sum", "batchmean")


def _seeded(function, grad, x, reduction):
    """Returns the gradient of function(x) with respect to x."""
    seed = grad.expand(x.shape) if reduction == 0 else grad.reshape([])
    return gradients(function, upcast(seed), upcast(x))[0]


def _pair(name, function, between="", kinds=""):
    """Registers a loss of an input and a target, and its gradient. `between` lists the arguments
    before the reduction, `kinds` those after it."""
    after = f", {kinds}" if kinds else ""
    before = f"{between}, " if between else ""
    n = len(between.split(",")) if between else 0

    def loss(self, target, *rest):
        *rest, out = rest
        return function(upcast(self), upcast(target), *map(upcast, rest[:n]), REDUCTION[rest[n]], *rest[n + 1:])

    def gradient(grad, self, target, *rest):
        *rest, out = rest
        weights = [upcast(w) for w in rest[:n]]
        return _seeded(lambda x: function(x, upcast(target), *weights, REDUCTION[rest[n]], *rest[n + 1:]), grad, self, rest[n])

    kernel(name, f"self, target, {before}reduction:int{after}, out!")(loss)
    kernel(name + "Backward", f"grad, self, target, {before}reduction:int{after}, out!")(gradient)


def _kl_div(x, target, reduction, log):
    if reduction == "mean":  # (F.kl_div warns about "mean" on each call)
        return F.kl_div(x, target, reduction="none", log_target=log).mean()
    return F.kl_div(x, target, reduction=reduction, log_target=log)


_pair("MseLoss", lambda x, t, r: F.mse_loss(x, t, reduction=r))
_pair("L1Loss", lambda x, t, r: F.l1_loss(x, t, reduction=r))
_pair("SmoothL1Loss", lambda x, t, r, beta: F.smooth_l1_loss(x, t, reduction=r, beta=beta), kinds="beta:float")
_pair("SoftMarginLoss", lambda x, t, r: F.soft_margin_loss(x, t, reduction=r))
_pair("KlDiv", _kl_div, kinds="log:bool")
_pair("BinaryCrossEntropy", lambda x, t, w, r: F.binary_cross_entropy(x, t, w, reduction=r), between="weight")
_pair("BinaryCrossEntropyWithLogits", lambda x, t, w, p, r: F.binary_cross_entropy_with_logits(x, t, w, reduction=r, pos_weight=p), between="weight, positive")


# ---- classes
def _nll(x, target, weight, reduction, ignored):
    return F.nll_loss(x, target.long(), upcast(weight), ignore_index=ignored, reduction=REDUCTION[reduction])


def _total(target, weight, ignored):
    """Sums the weights of all targets that are not ignored."""
    counted = target.long()[target != ignored]
    return upcast(weight)[counted].sum()


def _nll_gradient(grad, self, target, weight, reduction, ignored, total, out):
    seed = grad.expand(target.shape) if reduction == 0 else grad.reshape([])
    return gradients(lambda x: _nll(x, target, weight, reduction, ignored), upcast(seed), upcast(self))[0]


kernel("NLLLoss NLLLoss2d", "self, target, weight, reduction:int, ignored:int, out!, total!")(
    lambda self, target, weight, reduction, ignored, out, total: (_nll(upcast(self), target, weight, reduction, ignored), _total(target, weight, ignored)))
kernel("NLLLossBackward NLLLoss2dBackward", "grad, self, target, weight, reduction:int, ignored:int, total, out!")(_nll_gradient)


def _cross_entropy(x, target, weight, reduction, ignored, smoothing):
    return F.cross_entropy(x, target.long(), upcast(weight), ignore_index=ignored, reduction=reduction or "mean", label_smoothing=smoothing)


def _fused(self, target, weight, reduction, ignored, smoothing, scale, auxiliary, out, log_probabilities, z_loss, log_sum):
    if scale or auxiliary:
        raise NotImplementedError("the loss of log(Z)")
    self = upcast(self)
    return _cross_entropy(self, target, weight, reduction, ignored, smoothing), F.log_softmax(self, 1), None, None


def _fused_gradient(grad, log_probabilities, target, weight, grad_z, log_sum, reduction, ignored, smoothing, scale, out):
    if grad_z is not None or scale:
        raise NotImplementedError("the loss of log(Z)")
    seed = grad.expand(target.shape) if reduction == "none" else grad.reshape([])
    # (A softmax's logits are its log probabilities up to a constant, which affects neither the loss
    # nor its gradient.)
    return gradients(lambda x: _cross_entropy(x, target, weight, reduction, ignored, smoothing), upcast(seed), upcast(log_probabilities))[0]


kernel("CrossEntropyLoss", "self, target, weight, reduction:string, ignored:int, smoothing:double, scale:double, auxiliary:bool, "
       "out!, log_probabilities!, z_loss!, log_sum!")(_fused)
kernel("CrossEntropyLossGrad", "grad, log_probabilities, target, weight, grad_z, log_sum, reduction:string, ignored:int, smoothing:double, scale:double, "
       "out!")(_fused_gradient)
