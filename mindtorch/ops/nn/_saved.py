"""Saved tensors of PyTorch's layer nodes, for primitives that save other values.

Used only while saved-tensor hooks are active (`mindtorch/core/autograd/saves.py`).
"""
import math

from mindtorch.core.tensor.dtypes import F32
from mindtorch.core.autograd.saves import declare_saved
from mindtorch.core.dispatch.primitives import PRIMITIVES
from mindtorch.ops.basic import cast, new_full
from mindtorch.ops.nn import _class_loss, attention, dropout, norm, pooling, rnn
from mindtorch.ops.nn.activation import log_softmax_


# ------------------------------------------------------------------ dropout: the mask as a factor of the input
def _dropout_noise(name):
    def after(c):
        one = new_full(c.x, size=c.out1._sizes, value=1, np_dtype=c.x._np_dtype)
        return [("other", dropout.masked_scale(one, c.out1, scale=getattr(c, name)))]
    return after


def _noise_backward(ctx, grad):
    return grad * ctx.other


for _p, _name in ((dropout.drop_, "scale"), (dropout.alpha_, "a")):
    declare_saved(_p, after=_dropout_noise(_name), rule=_noise_backward)


# ------------------------------------------------------------------ pooling: the input and the indices of the maxima
def _flat(dims):
    """Returns functions that convert a tensor to PyTorch's saved shape and back. PyTorch implements
    1-d pooling as 2-d pooling over the second spatial dim."""
    return (lambda t: t.unsqueeze(-2), lambda t: t.squeeze(-2)) if dims == 1 else (lambda t: t, lambda t: t)


def _max_pool_saved(dims):
    flat = _flat(dims)

    def after(c):
        index = pooling._max_index(c.out1, size=c.x._sizes[-dims:], kernel=c.kernel, stride=c.stride, padding=c.padding, dilation=c.dilation)
        return [("result1", flat[0](index))]

    def rule(ctx, grad):
        return pooling.scatter_flat_(grad, flat[1](ctx.result1), size=ctx.shapes[0][-dims:])
    return {"ahead": lambda c: [("x", *flat)], "after": after, "rule": rule}


for _n, _p in pooling._max_pool.items():
    declare_saved(_p, **_max_pool_saved(_n))
    for _name in ("avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "fractional_max_pool"):
        if f"{_name}{_n}d" in PRIMITIVES:
            declare_saved(PRIMITIVES[f"{_name}{_n}d"], ("x", *_flat(_n)))


# ------------------------------------------------------------------ norms: the statistics
def _upcast(x):
    return cast(x, F32) if x._np_dtype.itemsize == 2 else x


def _statistics(x, eps):
    """Returns (mean, 1 / standard deviation) over the last dim, which stays as size 1."""
    mean = x.mean(-1, keepdim=True)
    return mean, ((x - mean).square().mean(-1, keepdim=True) + eps).rsqrt()


def _layer_norm_stats(c):
    sizes = c.x._sizes
    lead = sizes[:len(sizes) - c.dims]
    mean, rstd = _statistics(_upcast(c.x.detach()).reshape(*lead, c.n), c.eps)
    shape = (*lead, *[1] * c.dims)
    return [("result1", mean.reshape(shape)), ("result2", rstd.reshape(shape))]


def _group_norm_stats(c):
    sizes = c.x._sizes
    mean, rstd = _statistics(_upcast(c.x.detach()).reshape(sizes[0], c.groups, math.prod(sizes[1:]) // c.groups), c.eps)
    return [("result1", mean.squeeze(-1)), ("result2", rstd.squeeze(-1))]


def _batch_norm_stats(c):
    rstd = (c.out2 + c.eps).rsqrt() if c.out3 is None else c.out3
    return [("result1", c.out1), ("result2", rstd)]


def _empty_stats(c):
    none = new_full(c.x, size=(0,), value=0, np_dtype=c.x._np_dtype)
    return [("result1", none), ("result2", none)]


def _instance_norm_inputs(c):
    sizes = c.x._sizes
    count = sizes[0]

    def repeated(t):
        return t.repeat(count)

    def back(t):
        return t.narrow(0, 0, sizes[1])
    return [("x", lambda t: t.reshape(1, sizes[0] * sizes[1], *sizes[2:]), lambda t: t.reshape(sizes)), ("w", repeated, back)]


def _instance_norm_stats(c):
    return [(k, t.reshape(-1)) for k, t in _group_norm_stats(c)]


declare_saved(norm.ln_, "b", "x", "w", after=_layer_norm_stats)
declare_saved(norm.gn_, "x", "w", after=_group_norm_stats)
declare_saved(norm._instance_norm_, ahead=_instance_norm_inputs, after=_instance_norm_stats)
declare_saved(norm.bn_train, "x", "w", after=_batch_norm_stats)
declare_saved(norm._bn_moving, "x", "w", "running_mean", "running_var", after=_batch_norm_stats, recompute=norm.bn_train)
declare_saved(norm.bn_eval, "x", "w", "mean", "var", after=_empty_stats)


def _rms_norm_saved(c):
    sizes = c.x._sizes
    lead = (*sizes[:len(sizes) - c.dims], *[1] * c.dims)
    x = _upcast(c.x.detach())
    r = c.out1.reshape(lead)
    saved = [("root", r), ("factor", r), ("scaled", x)]
    return saved if c.w is None else [*saved, "w", ("normalized", cast(x * r, c.x._np_dtype))]


declare_saved(norm.rms_, "x", after=_rms_norm_saved)


# ------------------------------------------------------------------ attention
def _is_flash(c):
    """True if PyTorch uses its fused kernel, which saves the logsumexp of each row."""
    return c.q.ndim == 4 and c.keep == 1.0


def _attention_inputs(c):
    if not _is_flash(c):
        return [("k", lambda t: t.mT, lambda t: t.mT), "q"]
    bias = c.bias
    if bias is None or bias._np_dtype.kind != "b":
        return ["bias", "q", "k", "v"]
    return [("bias", lambda m: attention._additive_mask(m, c.q._np_dtype), lambda m: m.ne(-math.inf)), "q", "k", "v"]


def _weights(c):
    s = _upcast(c.q.detach()) @ _upcast(c.k.detach()).mT * c.scale
    if c.bias is not None:
        s = s + attention._additive_mask(c.bias, s._np_dtype)
    if c.causal:
        s = s + new_full(s, size=s._sizes[-2:], value=-math.inf, np_dtype=s._np_dtype).triu(1)
    return s


def _attention_results(c):
    if _is_flash(c):
        return [("logsumexp", _weights(c).logsumexp(-1)), ("output", c.out0)]
    p = c.out1
    if p is None:
        p = cast(_weights(c).softmax(-1), c.q._np_dtype)
    if c.out2 is None:
        return [("out1", p), "v", ("weights", p)]
    noise = dropout.masked_scale(new_full(p, size=p._sizes, value=1, np_dtype=p._np_dtype), c.out2, scale=1 / c.keep)
    return [("out1", p), ("noise", noise), "v", ("weights", p * noise)]


def _restore_dropout_mask(values, node):
    if "noise" in values:
        values["out2"] = values["noise"].ne(0)
    elif "out1" in values:
        values["out2"] = None


declare_saved(attention.attention_, ahead=_attention_inputs, after=_attention_results, restored=_restore_dropout_mask)


# ------------------------------------------------------------------ losses
def _total_weight(c):
    counted = c.target.ne(c.ignore_index)
    one = new_full(c.x, size=(), value=1, np_dtype=c.x._np_dtype)
    if c.reduction == "none":
        return one * 0
    if c.weight is None:
        return cast(counted.sum(), c.x._np_dtype)
    return (c.weight.detach()[c.target.masked_fill(~counted, 0)] * counted).sum()


declare_saved(_class_loss.nll_, "x", "target", "weight", after=lambda c: [("total_weight", _total_weight(c))])


def _cross_entropy_saved(c):
    """Returns the log probabilities in place of the logits, which PyTorch does not save. Used as
    logits, they have the same gradients."""
    logs = log_softmax_(c.x.detach(), dim=1)
    return [("x", lambda x: logs, lambda x: x), ("logs", logs), "target", "weight", ("total_weight", _total_weight(c))]


declare_saved(_class_loss.ce_, after=_cross_entropy_saved)


# ------------------------------------------------------------------ recurrent layers
declare_saved(rnn.lstm_layer, "h0", "c0", "x", "w_ih", "w_hh", "b_ih", "b_hh", "w_hr",
      after=lambda c: [("y", c.out0), ("hn", c.out1), ("cn", c.out2), *([] if c.out3 is None or c.x._handle is not None else [("out3", c.out3)])])
# On a device, the values of `out3` alone are not enough: its kernel saves more of its call there.
# The result is therefore recomputed.

declare_saved(PRIMITIVES["gather"], "index", "a")
