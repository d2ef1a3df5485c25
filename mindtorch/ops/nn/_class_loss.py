"""Losses over classes: nll_loss, cross_entropy, linear_cross_entropy, ctc_loss."""
import math

import numpy as np

from mindtorch.backend.cpu import loss as kernels
from mindtorch.backend.cpu.host import quiet
from mindtorch.core.dtypes import F32, I64
from mindtorch.core.grad_mode import mode
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor, wrap
from mindtorch.ops.nn._fused import again, reduced, reduction_of, tensor_arg, title
from mindtorch.ops.nn.activation import log_softmax_


# ------------------------------------------------------------------ nll
nll_ = primitive("nll_loss", quiet(kernels.nll),
                 lambda c, g: nll_grad_(g, target=c.target, weight=c.weight, total=c.total, reduction=c.reduction,
                                        counted=c.counted, size=c.shapes[0]))
nll_grad_ = primitive("nll_loss_backward", quiet(kernels.nll_grad),
                      lambda c, g: nll_(g, target=c.target, weight=c.weight, total=c.total, reduction=c.reduction, counted=c.counted))


def _classes(x, target, weight, ignore_index):
    """(targets without ignored ones, weight of each sample, sum of weights, mask) for input (N, C, *)."""
    t = target._a
    if t.dtype != I64:
        # MindSpore's datasets and tensors have int32 labels; torch's own are int64, and int32 is a mistake there.
        if t.dtype != np.uint8 and not (target._foreign and t.dtype == np.int32):
            raise RuntimeError(f"expected target dtype to be Long or Byte, but got {title(t)}")
        t = t.astype(I64)
    count = x.shape[1]
    if weight is not None:
        if weight._sizes != (count,):
            raise RuntimeError(f"weight tensor should be defined either for all {count} classes or no classes but got "
                               "weight "
                               f"tensor of shape: {list(weight._sizes)}")
        if weight._stype != x.dtype:
            raise RuntimeError(f"expected scalar type {title(x)} but found {title(weight)}")
    if t.size and t.min() >= 0 and t.max() < count and not 0 <= ignore_index < count:
        mask = None
    else:
        mask = t != ignore_index
        bad = mask & ((t < 0) | (t >= count))
        if bad.any():
            raise IndexError(f"Target {t[bad].reshape(-1)[0]} is out of bounds.")
        t = np.where(mask, t, 0)
    low = x.dtype.itemsize == 2
    d = F32 if low else x.dtype
    if weight is None:
        if mask is None:
            return t, d.type(1), t.size, None
        w = mask.astype(d)
        return t, w, float(w.sum()), mask
    w = weight._a.astype(d)[t]
    if mask is not None:
        w = np.where(mask, w, w.dtype.type(0))
    return t, w, float(w.sum()), mask


def _nll(input, target, weight, ignore_index, reduction):
    tensor_arg("nll_loss_nd", "input", input)
    tensor_arg("nll_loss_nd", "target", target, 2)
    x, t = input._a, target._a
    if x.ndim < 1:
        raise ValueError(f"Expected 1 or more dimensions (got {x.ndim})")
    if x.ndim > 1 and (not t.ndim or x.shape[0] != t.shape[0]):
        raise ValueError(f"Expected input batch_size ({x.shape[0]}) to match target batch_size "
                         f"({t.shape[0] if t.ndim else 1}).")
    if x.ndim <= 2 and t.ndim > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if x.ndim > 2 and t.shape != x.shape[:1] + x.shape[2:]:
        raise RuntimeError(f"Expected target size {list(x.shape[:1] + x.shape[2:])}, got {list(t.shape)}")
    if x.dtype.kind not in "fV":
        raise NotImplementedError(f"\"nll_loss_out_frame\" not implemented for '{title(x)}' on device cpu")
    single = x.ndim == 1
    if single:
        if t.size != 1:
            raise ValueError(f"Expected input batch_size (1) to match target batch_size ({t.size}).")
        scalar = not t.ndim
        input, target = input.unsqueeze(0), target.reshape([1])
    t, w, total, mask = _classes(input._a, target, weight, ignore_index)
    y = nll_(input, target=t, weight=w, total=total, reduction=reduction, counted=mask)
    return y.reshape([]) if single and reduction == "none" and scalar else y


@op(ns="nn.functional", method=False)
def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """-input at the target class: (N, C, *) log probabilities with targets (N, *)."""
    return _nll(input, target, weight, ignore_index, reduction_of(reduction, size_average, reduce))


# ------------------------------------------------------------------ cross entropy
_ce_backward = primitive("cross_entropy_backward", kernels.cross_entropy_grad)


def _ce_rule(c, g):
    if mode.on:
        def compose(x):
            return _cross_entropy_of_logs(log_softmax_(x, dim=1), c.target, c.weight, c.classes, c.total, c.smoothing,
                                          c.reduction, c.ctx.get("mask"))
        return again(compose, (c.x,), g)[0]
    return _ce_backward(g, target=c.target, weight=c.weight, classes=c.classes, total=c.total, smoothing=c.smoothing,
                        reduction=c.reduction, ctx=c.ctx)


def _ce_forward(x, *, target, weight, classes, total, smoothing, reduction, ctx):
    return kernels.cross_entropy(x, target=target, weight=weight, classes=classes, total=total, smoothing=smoothing,
                                 reduction=reduction, ctx=ctx)


ce_ = primitive("cross_entropy_loss", _ce_forward, _ce_rule, node="NllLossBackward0")


def _cross_entropy_of_logs(logs, t, w, classes, total, smoothing, reduction, mask):
    """Cross entropy of log probabilities (N, C, *), with smoothing, out of ops with gradients."""
    hard = nll_(logs, target=t, weight=w, total=total, reduction=reduction, counted=mask)
    if not smoothing:
        return hard
    d = logs._stype
    weights = logs if classes is None else logs * wrap(classes.astype(d).reshape([1, -1] + [1] * (logs.ndim - 2)))
    soft = -weights.sum(1)
    if mask is not None:
        soft = soft.masked_fill(wrap(np.logical_not(mask)), 0)
    if reduction != "none":
        soft = soft.sum()
        if reduction == "mean":
            soft = soft / (total if total else math.nan)
    return hard * (1 - smoothing) + soft * (smoothing / logs._sizes[1])


def _by_class(input, target, weight, ignore_index, smoothing, reduction):
    x, t = input._a, target._a
    if x.ndim == 0:
        raise RuntimeError(f"Expected floating point type for target with class probabilities, got {title(t)}")
    if x.dtype.kind not in "fV":
        raise NotImplementedError(f"\"log_softmax_lastdim_kernel_impl\" not implemented for '{title(x)}' on device cpu")
    if x.ndim != 2 or t.ndim != 1 or t.shape[0] != x.shape[0] or not x.size:
        if x.ndim == 1:
            if t.size != 1:
                raise ValueError(f"Expected input batch_size (1) to match target batch_size ({t.size}).")
            r = _by_class(input.unsqueeze(0), target.reshape([1]), weight, ignore_index, smoothing, reduction)
            return r.reshape([]) if reduction == "none" and not t.ndim else r
        if x.ndim > 1 and (not t.ndim or x.shape[0] != t.shape[0]):
            raise ValueError(f"Expected input batch_size ({x.shape[0]}) to match target batch_size "
                             f"({t.shape[0] if t.ndim else 1}).")
        if x.ndim == 2 and t.ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        logs = log_softmax_(input, dim=1)
        if not smoothing:
            return _nll(logs, target, weight, ignore_index, reduction)
        if t.shape != x.shape[:1] + x.shape[2:]:
            raise RuntimeError(f"Expected target size {list(x.shape[:1] + x.shape[2:])}, got {list(t.shape)}")
        t, w, total, mask = _classes(x, target, weight, ignore_index)
        return _cross_entropy_of_logs(logs, t, w, None if weight is None else weight._a, total, smoothing, reduction, mask)
    t, w, total, mask = _classes(x, target, weight, ignore_index)
    ctx = {"counted": mask}
    classes = None
    if smoothing:
        ctx["mask"] = np.ones(t.shape, w.dtype if weight is not None else np.float32) if mask is None else mask
        if weight is not None:
            classes = weight._a if x.dtype.itemsize != 2 else weight._a.astype(np.float32)
    return ce_(input, target=t, weight=w, classes=classes, total=total, smoothing=smoothing, reduction=reduction, ctx=ctx)


def _by_probability(input, target, weight, smoothing, reduction):
    x = input._a
    axis = 0 if x.ndim == 1 else 1
    count = x.shape[axis]
    logs = log_softmax_(input, dim=axis)
    t = target
    if smoothing:
        t = t * (1 - smoothing) + smoothing / count
    v = logs * t
    if weight is not None:
        if weight._sizes != (count,):
            raise RuntimeError("cross_entropy: weight tensor should be defined either for all "
                               f"{count} classes or no classes but got weight tensor of shape: {list(weight._sizes)}")
        v = v * (weight if x.ndim == 1 else weight.reshape([1, -1] + [1] * (x.ndim - 2)))
    if reduction == "none":
        return -v.sum(axis)
    s = -v.sum()
    if reduction == "mean":
        n = x.size // count if count else 0
        s = s / n if n else s * math.nan
    return s


@op(ns="nn.functional", method=False)
def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
                  label_smoothing=0.0):
    """Cross entropy of logits (N, C, *) with class numbers (N, *) or probabilities of input's shape."""
    tensor_arg("cross_entropy_loss", "input", input)
    tensor_arg("cross_entropy_loss", "target", target, 2)
    if reduction != "mean" or size_average is not None or reduce is not None:
        reduction = reduction_of(reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    if target._sizes == input._sizes:
        if target._stype.kind not in "fV":
            raise RuntimeError(f"Expected floating point type for target with class probabilities, got {title(target)}")
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return _by_probability(input, target, weight, label_smoothing, reduction)
    return _by_class(input, target, weight, ignore_index, label_smoothing, reduction)


@op(ns="nn.functional", method=False)
def linear_cross_entropy(input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean", ignore_index=None,
                         label_smoothing=0.0, options=None):
    """cross_entropy(linear(input, linear_weight, linear_bias), target).

    linear_weight (C, *, in) gives logits (N, C, *); `options` about chunking changes memory only, and nothing here.
    """
    from mindtorch.ops.linalg.matmul import linear
    tensor_arg("linear_cross_entropy", "input", input)
    tensor_arg("linear_cross_entropy", "linear_weight", linear_weight, 2)
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    w = linear_weight._a
    if w.ndim > 2:
        features = math.prod(w.shape[:-1])
        bias = None if linear_bias is None else linear_bias.expand(w.shape[:-1]).reshape(features)
        logits = linear(input, linear_weight.reshape(features, w.shape[-1]), bias)
        logits = logits.reshape(input._sizes[:-1] + w.shape[:-1])
    else:
        logits = linear(input, linear_weight, linear_bias)
    return cross_entropy(logits, target, weight, ignore_index=-100 if ignore_index is None else ignore_index,
                         reduction=reduction, label_smoothing=label_smoothing)


# ------------------------------------------------------------------ CTC
_ctc_grad = primitive("ctc_loss_backward", kernels.ctc_grad)


def _ctc_rule(c, g):
    if mode.on:
        raise RuntimeError("derivative for aten::_ctc_loss_backward is not implemented")
    return _ctc_grad(g, c.lp, input_lengths=c.input_lengths, target_lengths=c.target_lengths, zero_infinity=c.zero_infinity,
                     ctx=c.ctx)


def _ctc_forward(lp, *, labels, input_lengths, target_lengths, blank, zero_infinity, ctx):
    return kernels.ctc(lp, labels=labels, input_lengths=input_lengths, target_lengths=target_lengths, blank=blank, ctx=ctx)


ctc_ = primitive("ctc_loss", _ctc_forward, _ctc_rule, node="CtcLossBackward0")


def _lengths(x, what):
    if isinstance(x, Tensor):
        if x._stype.kind not in "iu":
            raise RuntimeError(f"{what} must be integral")
        return x._a.astype(I64).reshape(-1)
    return np.array([int(i) for i in (x if isinstance(x, (list, tuple)) else [x])], I64)


def _ctc(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity):
    tensor_arg("ctc_loss", "log_probs", log_probs)
    tensor_arg("ctc_loss", "targets", targets, 2)
    if log_probs._stype.kind not in "fV" or log_probs._stype.itemsize == 2:
        raise NotImplementedError(f"\"ctc_loss_cpu\" not implemented for '{title(log_probs)}' on device cpu")
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        if targets.ndim == 1:
            targets = targets.unsqueeze(0)
    lp, t = log_probs._a, targets._a
    steps, n, classes = lp.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    il, tl = _lengths(input_lengths, "input_lengths"), _lengths(target_lengths, "target_lengths")
    for what, v in (("input_lengths", il), ("target_lengths", tl)):
        if v.size != n:
            raise RuntimeError(f"{what} must be of size batch_size")
    if il.size and il.max() > steps:
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got value {il.max()} (while "
                           "checking "
                           "arguments for ctc_loss_allocate_outputs)")
    if il.size and min(il.min(), tl.min()) < 0:
        raise RuntimeError("Expected lengths to have value at least 0")
    longest = int(tl.max()) if tl.size else 0
    labels = np.full((n, longest), blank, I64)
    if t.ndim == 1:
        start = 0
        for i, k in enumerate(tl):
            labels[i, :k] = t[start:start + k]
            start += k
    else:
        if t.shape[1] < longest:
            raise RuntimeError(f"Expected tensor to have size at least {longest} at dimension 1, but got size "
                               f"{t.shape[1]} for "
                               "argument #2 'targets' (while checking arguments for ctc_loss_allocate_outputs)")
        for i, k in enumerate(tl):
            labels[i, :k] = t[i, :k]
    losses = ctc_(log_probs, labels=labels, input_lengths=il, target_lengths=tl, blank=blank, zero_infinity=zero_infinity, ctx={})
    if zero_infinity:
        losses = losses.masked_fill(wrap(np.isinf(losses._a)), 0)
    if reduction == "mean":
        return reduced(losses / wrap(np.maximum(tl, 1).astype(lp.dtype)), "mean")
    if single and reduction == "none":
        return losses.reshape([])
    return reduced(losses, reduction)


@op(ns="nn.functional", method=False)
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """Connectionist temporal classification of log probabilities (T, N, C) or (T, C)."""
    return _ctc(log_probs, targets, input_lengths, target_lengths, blank, reduction_of(reduction), zero_infinity)


@op(method=False, name="ctc_loss")
def _torch_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=1, zero_infinity=False):
    """ctc_loss with torch's number for the reduction."""
    return _ctc(log_probs, targets, input_lengths, target_lengths, blank, reduction_of(reduction), zero_infinity)
