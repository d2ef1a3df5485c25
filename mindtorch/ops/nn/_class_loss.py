"""Losses over classes: nll_loss, cross_entropy, linear_cross_entropy, ctc_loss."""
import math

from mindtorch.core.tensor.dtypes import F32, I32, I64, U8
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Int, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops._operands import no_derivative, scalar
from mindtorch.ops.basic import cast, eq_
from mindtorch.ops.elementwise.binary import div_
from mindtorch.ops.linalg.matmul import linear
from mindtorch.ops.nn._fused import composite_backward_upcast, reduced, reduction_of, check_tensor_arg, scalar_type_name
from mindtorch.ops.nn.activation import log_softmax_
from mindtorch.ops.reduction.reduce import sum_all


# ------------------------------------------------------------------ nll
def _nll_back(ctx, grad):
    return nll_grad_(grad, ctx.target, ctx.w, reduction=ctx.reduction, ignore_index=ctx.ignore_index, size=ctx.shapes[0])


#: (loss, sample weights). The weights are 0 for ignored samples, and None if all are 1.
nll_ = primitive("nll_loss", "x, target, weight=None, *, reduction, ignore_index", lambda ctx, grad: nll_grad_(
    grad, ctx.target, ctx.out1, reduction=ctx.reduction, ignore_index=ctx.ignore_index, size=ctx.shapes[0]), None, None, residuals=(1,))
#: The same loss, computed from the sample weights that `nll_` returned.
_nll_of_samples = primitive("nll_of_samples", "x, target, w=None, *, reduction, ignore_index", _nll_back, None, None, node="NllLossBackward0")
nll_grad_ = primitive("nll_loss_backward", "g, target, w=None, *, reduction, ignore_index, size", lambda ctx, grad: _nll_of_samples(
    grad, ctx.target, ctx.w, reduction=ctx.reduction, ignore_index=ctx.ignore_index), None, None)


_sample_weights = primitive("sample_weights", "x, target, weight=None, *, ignore_index", raw=True)


def _checked(x, target, weight):
    """Returns targets as int64. RuntimeError if a dtype or the number of weights does not match
    input (N, C, *)."""
    if target._np_dtype != I64:
        # Labels in MindSpore's datasets and tensors are int32, so external int32 tensors are
        # accepted. PyTorch's labels are int64, and int32 is an error there.
        if target._np_dtype != U8 and not (target._from_mindspore and target._np_dtype == I32):
            raise RuntimeError(f"expected target dtype to be Long or Byte, but got {scalar_type_name(target)}")
        target = cast(target, I64)
    if weight is not None:
        count = x._sizes[1]
        if weight._sizes != (count,):
            raise RuntimeError(f"weight tensor should be defined either for all {count} classes or no classes but got "
                               f"weight tensor of shape: {list(weight._sizes)}")
        if weight._np_dtype != x._np_dtype:
            raise RuntimeError(f"expected scalar type {scalar_type_name(x)} but found {scalar_type_name(weight)}")
    return target


def _nll(input, target, weight, ignore_index, reduction):
    check_tensor_arg("nll_loss_nd", "input", input)
    check_tensor_arg("nll_loss_nd", "target", target, 2)
    shape, t = input._sizes, target._sizes
    if len(shape) == 2 and len(t) == 1 and shape[0] == t[0] and input._np_dtype.kind in "fV":
        return nll_(input, _checked(input, target, weight), weight, reduction=reduction, ignore_index=ignore_index)[0]
    if not shape:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if len(shape) > 1 and (not t or shape[0] != t[0]):
        raise ValueError(f"Expected input batch_size ({shape[0]}) to match target batch_size ({t[0] if t else 1}).")
    if len(shape) <= 2 and len(t) > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if len(shape) > 2 and t != shape[:1] + shape[2:]:
        raise RuntimeError(f"Expected target size {list(shape[:1] + shape[2:])}, got {list(t)}")
    if input._np_dtype.kind not in "fV":
        raise NotImplementedError(f"\"nll_loss_out_frame\" not implemented for '{scalar_type_name(input)}' on device {input.device}")
    single = len(shape) == 1
    if single:
        if target._numel != 1:
            raise ValueError(f"Expected input batch_size (1) to match target batch_size ({target._numel}).")
        input, target = input.unsqueeze(0), target.reshape([1])
    y, _ = nll_(input, _checked(input, target, weight), weight, reduction=reduction, ignore_index=ignore_index)
    return y.reshape([]) if single and reduction == "none" and not t else y


@register_op(ns="nn.functional", method=False, autocast="float32", aten=("nll_loss", "input", "target", "weight", "reduction", "ignore_index"))
def nll_loss(input, target, weight=None, size_average=None, ignore_index: SymInt = -100, reduce=None, reduction="mean"):
    """Computes the negative log likelihood loss of log probabilities (N, C, *) with class indices
    (N, *)."""
    return _nll(input, target, weight, ignore_index, reduction_of(reduction, size_average, reduce))


# ------------------------------------------------------------------ cross entropy
_ce_backward = primitive("cross_entropy_backward", "g, target, weight=None, e, s, w=None, *, ignore_index, smoothing, reduction", raw=True)


def _ce_rule(ctx, grad):
    if mode.on:
        w = ctx.out3
        if w is None and ctx.x._handle is not None:
            # Device kernels may omit the sample weights.
            w, = _sample_weights(ctx.x, ctx.target, ctx.weight, ignore_index=ctx.ignore_index)

        def compose(x):
            return _cross_entropy_of_logs(log_softmax_(x, dim=1), ctx.target, ctx.weight, w, ctx.ignore_index, ctx.smoothing, ctx.reduction)
        return composite_backward_upcast(compose, (ctx.x,), grad)[0]
    return _ce_backward(grad, ctx.target, ctx.weight, ctx.out1, ctx.out2, ctx.out3, ignore_index=ctx.ignore_index, smoothing=ctx.smoothing,
                        reduction=ctx.reduction)


#: (loss, exponentials of the shifted logits, their sums, sample weights as in `nll_`)
ce_ = primitive("cross_entropy_loss", "x, target, weight=None, *, ignore_index, smoothing, reduction", _ce_rule, None, None,
                raw=True, residuals=(1, 2, 3), node="NllLossBackward0")


def _cross_entropy_of_logs(logs, target, weight, w, ignore_index, smoothing, reduction):
    """Computes cross entropy with label smoothing from log probabilities (N, C, *), using
    differentiable ops.

    w: sample weights, or None.
    """
    hard = _nll_of_samples(logs, target, w, reduction=reduction, ignore_index=ignore_index)
    if not smoothing:
        return hard
    d = logs._np_dtype
    weights = logs if weight is None else logs * cast(weight, d).reshape([1, -1] + [1] * (logs.ndim - 2))
    soft = -weights.sum(1)
    if w is not None:
        soft = soft.masked_fill(eq_(target, scalar(ignore_index, target)), 0)
    if reduction != "none":
        soft = soft.sum()
        if reduction == "mean":
            soft = _over_total(soft, target, w)
    return hard * (1 - smoothing) + soft * (smoothing / logs._sizes[1])


def _over_total(x, target, w):
    """Divides x by the sum of the sample weights. The result is NaN where the sum is zero."""
    if w is None:
        return x / (target._numel or math.nan)
    total = sum_all(cast(w, F32) if w._np_dtype.itemsize == 2 else w)
    total = total.masked_fill(eq_(total, scalar(0, total)), math.nan)
    return cast(div_(cast(x, total._np_dtype), total), x._np_dtype)


def _by_class(input, target, weight, ignore_index, smoothing, reduction):
    shape, t = input._sizes, target._sizes
    n = len(shape)
    if not n:
        raise RuntimeError(f"Expected floating point type for target with class probabilities, got {scalar_type_name(target)}")
    if input._np_dtype.kind not in "fV":
        raise NotImplementedError(f"\"log_softmax_lastdim_kernel_impl\" not implemented for '{scalar_type_name(input)}' on device {input.device}")
    if n != 2 or len(t) != 1 or t[0] != shape[0] or not input._numel:
        if n == 1:
            if target._numel != 1:
                raise ValueError(f"Expected input batch_size (1) to match target batch_size ({target._numel}).")
            r = _by_class(input.unsqueeze(0), target.reshape([1]), weight, ignore_index, smoothing, reduction)
            return r.reshape([]) if reduction == "none" and not t else r
        if not t or shape[0] != t[0]:
            raise ValueError(f"Expected input batch_size ({shape[0]}) to match target batch_size ({t[0] if t else 1}).")
        if n == 2 and len(t) > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        logs = log_softmax_(input, dim=1)
        if not smoothing:
            return _nll(logs, target, weight, ignore_index, reduction)
        if t != shape[:1] + shape[2:]:
            raise RuntimeError(f"Expected target size {list(shape[:1] + shape[2:])}, got {list(t)}")
        target = _checked(input, target, weight)
        w, = _sample_weights(logs, target, weight, ignore_index=ignore_index)
        return _cross_entropy_of_logs(logs, target, weight, w, ignore_index, smoothing, reduction)
    return ce_(input, _checked(input, target, weight), weight, ignore_index=ignore_index, smoothing=smoothing, reduction=reduction)[0]


def _by_probability(input, target, weight, smoothing, reduction):
    axis = 0 if input.ndim == 1 else 1
    count = input._sizes[axis]
    logs = log_softmax_(input, dim=axis)
    t = target
    if smoothing:
        t = t * (1 - smoothing) + smoothing / count
    v = logs * t
    if weight is not None:
        if weight._sizes != (count,):
            raise RuntimeError("cross_entropy: weight tensor should be defined either for all "
                               f"{count} classes or no classes but got weight tensor of shape: {list(weight._sizes)}")
        v = v * (weight if input.ndim == 1 else weight.reshape([1, -1] + [1] * (input.ndim - 2)))
    if reduction == "none":
        return -v.sum(axis)
    s = -v.sum()
    if reduction == "mean":
        n = input._numel // count if count else 0
        s = s / n if n else s * math.nan
    return s


@register_op(ns="nn.functional", method=False, autocast="float32",
             aten=("cross_entropy_loss", "input", "target", "weight", "reduction", "ignore_index", "label_smoothing"))
def cross_entropy(input, target, weight=None, size_average=None, ignore_index: SymInt = -100, reduce=None, reduction="mean",
                  label_smoothing=0.0):
    """Computes the cross entropy of logits (N, C, *) with class indices (N, *) or with class
    probabilities of input's shape."""
    check_tensor_arg("cross_entropy_loss", "input", input)
    check_tensor_arg("cross_entropy_loss", "target", target, 2)
    if reduction != "mean" or size_average is not None or reduce is not None:
        reduction = reduction_of(reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    if target._sizes == input._sizes:
        if target._np_dtype.kind not in "fV":
            raise RuntimeError(f"Expected floating point type for target with class probabilities, got {scalar_type_name(target)}")
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return _by_probability(input, target, weight, label_smoothing, reduction)
    return _by_class(input, target, weight, ignore_index, label_smoothing, reduction)


@register_op(ns="nn.functional", method=False)
def linear_cross_entropy(input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean", ignore_index: SymInt = None,
                         label_smoothing=0.0, options=None):
    """Computes cross_entropy(linear(input, linear_weight, linear_bias), target).

    A linear_weight of shape (C, *, in) produces logits (N, C, *). `options` controls chunking,
    which only affects memory use; it is ignored here.
    """
    check_tensor_arg("linear_cross_entropy", "input", input)
    check_tensor_arg("linear_cross_entropy", "linear_weight", linear_weight, 2)
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}")
    if linear_bias is not None and linear_bias._sizes != linear_weight._sizes[:-1]:
        raise RuntimeError(f"expected linear_bias shape {tuple(linear_weight._sizes[:-1])}, got {tuple(linear_bias._sizes)}")
    if weight is not None and weight._sizes != linear_weight._sizes[:1]:
        raise RuntimeError(f"expected weight shape to be {tuple(linear_weight._sizes[:1])}, got {tuple(weight._sizes)}")
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
    if input._sizes[-1] != linear_weight._sizes[-1]:
        raise RuntimeError("expected equal input and linear_weight last dimensions (in_features), got "
                           f"{input._sizes[-1]} and {linear_weight._sizes[-1]}, respectively")
    if linear_weight.ndim > 2:
        *lead, width = linear_weight._sizes
        features = math.prod(lead)
        bias = None if linear_bias is None else linear_bias.expand(lead).reshape(features)
        logits = linear(input, linear_weight.reshape(features, width), bias)
        logits = logits.reshape([*input._sizes[:-1], *lead])
    else:
        logits = linear(input, linear_weight, linear_bias)
    return cross_entropy(logits, target, weight, ignore_index=-100 if ignore_index is None else ignore_index,
                         reduction=reduction, label_smoothing=label_smoothing)


# ------------------------------------------------------------------ CTC
_no_second_ctc = no_derivative("_ctc_loss_backward")
_ctc_grad = primitive("ctc_loss_backward", "g, lp, nll, alpha, labels, *, input_lengths, target_lengths, blank, zero_infinity",
                      _no_second_ctc, _no_second_ctc, _no_second_ctc, None, None)


def _ctc_rule(ctx, grad):
    return _ctc_grad(grad[0], ctx.lp, ctx.out0, ctx.out1, ctx.out2, input_lengths=ctx.input_lengths, target_lengths=ctx.target_lengths, blank=ctx.blank,
                     zero_infinity=ctx.zero_infinity)


#: (loss of each sample, log_alpha, labels as (N, S), divisor of each loss for reduction="mean")
ctc_ = primitive("ctc_loss", "lp, targets, *, input_lengths, target_lengths, blank, zero_infinity", _ctc_rule, None, nondiff=(3,), residuals=(1, 2),
                 node="CtcLossBackward0")


def _lengths(x, what):
    """Returns lengths as a tuple of ints. Tensors are read on the host because the number of steps
    depends on them."""
    if x.__class__ is Tensor or is_tensor(x):
        if x._np_dtype.kind not in "iu":
            raise RuntimeError(f"{what} must be integral")
        return tuple(to_host(x).reshape(-1).tolist())
    return tuple([int(i) for i in (x if isinstance(x, (list, tuple)) else [x])])


def _ctc(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity):
    check_tensor_arg("ctc_loss", "log_probs", log_probs)
    check_tensor_arg("ctc_loss", "targets", targets, 2)
    if log_probs._np_dtype.kind not in "fV" or log_probs._np_dtype.itemsize == 2:
        raise NotImplementedError(f"\"ctc_loss_cpu\" not implemented for '{scalar_type_name(log_probs)}' on device {log_probs.device}")
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        if targets.ndim == 1:
            targets = targets.unsqueeze(0)
    steps, n, classes = log_probs._sizes
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    il, tl = _lengths(input_lengths, "input_lengths"), _lengths(target_lengths, "target_lengths")
    for what, v in (("input_lengths", il), ("target_lengths", tl)):
        if len(v) != n:
            raise RuntimeError(f"{what} must be of size batch_size")
    if il and max(il) > steps:
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got value {max(il)} (while "
                           "checking arguments for ctc_loss_allocate_outputs)")
    if il and min(*il, *tl) < 0:
        raise RuntimeError("Expected lengths to have value at least 0")
    longest = max(tl, default=0)
    if targets.ndim != 1 and targets._sizes[1] < longest:
        raise RuntimeError(f"Expected tensor to have size at least {longest} at dimension 1, but got size "
                           f"{targets._sizes[1]} for argument #2 'targets' (while checking arguments for ctc_loss_allocate_outputs)")
    losses, _, _, by = ctc_(log_probs, targets, input_lengths=il, target_lengths=tl, blank=blank, zero_infinity=zero_infinity)
    if zero_infinity:
        losses = losses.masked_fill(losses.isinf(), 0)
    if reduction == "mean":
        return reduced(losses / by, "mean")
    if single and reduction == "none":
        return losses.reshape([])
    return reduced(losses, reduction)


@register_op(ns="nn.functional", method=False, autocast="float32")
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank: Int = 0, reduction="mean", zero_infinity: Bool = False):
    """Computes the connectionist temporal classification loss of log probabilities (T, N, C) or (T,
    C)."""
    return _ctc(log_probs, targets, input_lengths, target_lengths, blank, reduction_of(reduction), zero_infinity)


@register_op(method=False, name="ctc_loss")
def _torch_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank: Int = 0, reduction=1, zero_infinity: Bool = False):
    """Like nn.functional.ctc_loss, with the reduction as an integer (0: none, 1: mean, 2: sum)."""
    return _ctc(log_probs, targets, input_lengths, target_lengths, blank, reduction_of(reduction), zero_infinity)
