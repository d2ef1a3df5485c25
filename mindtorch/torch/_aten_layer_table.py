"""Entries of `mindtorch/torch/_aten_layers.py`: the aten form of primitives and ops, and their
gradients."""
import math

from mindtorch.core.tensor.dtypes import F32
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.ops.nn import norm, rnn
from mindtorch.torch._aten_layers import PRIMITIVES, _present, _three, _trimmed, layer, op, prim, run, dispatch_layer
from mindtorch.torch._aten_layer_names import RESIZED
from mindtorch.torch._aten_losses import REDUCTIONS


def _f(name):
    row = OPS[name]
    return row.public or row.fn


# ------------------------------------------------------------------ convolutions
@layer("convolution", "ConvolutionBackward0", loose=(2,))
def _convolution_backward(g, args, named, outs, mask):
    x, w, b, *rest = args
    found = run("convolution_backward", g, x, w, [0] if b is None else list(b._sizes), *rest, _three(mask, (x, w, b)))
    return _present(found, (x, w, b))


@prim("convolution")
def _convolution(x, w, b=None, *, stride, padding, dilation, groups, out):
    if out is not None:
        return NotImplemented
    if any([lo != hi for lo, hi in padding]):
        # aten pads both sides equally. The smaller side is passed as padding, and the difference is
        # padded explicitly beforehand.
        x = _f("nn.functional.pad")(x, [n for lo, hi in reversed(padding) for n in (max(lo - hi, 0), max(hi - lo, 0))])
    pads = [min(lo, hi) for lo, hi in padding]
    return dispatch_layer("convolution", x, w, b, list(stride), pads, list(dilation), False, [0] * len(pads), groups)


@prim("convolution_transposed")
def _convolution_transposed(g, w, b=None, *, size, stride, padding, dilation, groups):
    if any([lo != hi for lo, hi in padding]):
        return NotImplemented
    pads = [lo for lo, _ in padding]
    more = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, s, p, d, k in zip(size, g._sizes[2:], stride, pads, dilation, w._sizes[2:])]
    if any([not 0 <= m < max(s, d) for m, s, d in zip(more, stride, dilation)]):
        return NotImplemented
    return dispatch_layer("convolution", g, w, b, list(stride), pads, list(dilation), True, more, groups)


# ------------------------------------------------------------------ normalisation
def _no_statistics(x, w, b, running_mean, running_var, training, momentum, eps):
    return _f("nn.functional.batch_norm")(x, None if training else running_mean, None if training else running_var, w, b, training, momentum, eps)


@layer("native_batch_norm", "NativeBatchNormBackward0", keeps=(1, 2), loose=(2, 3, 4), again=_no_statistics)
def _batch_norm_backward(g, args, named, outs, mask):
    x, w, b, mean, var, training, momentum, eps = args
    found = run("native_batch_norm_backward", g, x, w, mean, var, outs[1], outs[2], training, eps, _three(mask[:3], (x, w, b)))
    return [*_present(found, (x, w, b)), *[None for t in (mean, var) if t is not None]]


@op("nn.functional.batch_norm", "batch_norm")
def _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps, cudnn_enabled=True):
    if not is_tensor(input) or input.ndim < 2 or input._np_dtype.kind not in "fV":
        return NotImplemented
    if training and input._numel // (input._sizes[1] or 1) == 1 or (running_mean is None) != (running_var is None) or running_mean is None and not training or eps < 0:
        return NotImplemented  # the op itself raises the error for these
    norm._check_bn(input._np_dtype, input._sizes[1], running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    return dispatch_layer("native_batch_norm", input, weight, bias, running_mean, running_var, bool(training), 0.0 if momentum is None else momentum, eps)[0]


@op("native_batch_norm")
def _native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    return dispatch_layer("native_batch_norm", input, weight, bias, running_mean, running_var, training, momentum, eps)


@prim("native_instance_norm")
def _instance_norm(x, w=None, b=None, *, groups, eps):
    n, c = x._sizes[:2]
    rows = x.contiguous().view(1, n * c, *x._sizes[2:])
    each = [None if t is None else t.repeat(n) for t in (w, b)]
    y = dispatch_layer("native_batch_norm", rows, *each, None, None, True, 0.0, eps)[0]
    return y.view(x._sizes), None, None, None


@layer("native_layer_norm", "NativeLayerNormBackward0", keeps=(1, 2))
def _layer_norm_backward(g, args, named, outs, mask):
    x, shape, w, b, _ = args
    return _present(run("native_layer_norm_backward", g, x, shape, outs[1], outs[2], w, b, _three(mask, (x, w, b))), (x, w, b))


@op("native_layer_norm")
def _native_layer_norm(input, normalized_shape, weight, bias, eps):
    return dispatch_layer("native_layer_norm", input, list(normalized_shape), weight, bias, eps)


@op("native_group_norm")
def _native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    return dispatch_layer("native_group_norm", input, weight, bias, N, C, HxW, group, eps)


@prim("native_layer_norm")
def _layer_norm(x, w=None, b=None, *, n, dims, eps):
    return dispatch_layer("native_layer_norm", x, list(x._sizes[-dims:]), w, b, eps)[0], None, None, None, None


@layer("native_group_norm", "NativeGroupNormBackward0", keeps=(1, 2), loose=(2,))
def _group_norm_backward(g, args, named, outs, mask):
    x, w, b, n, c, inner, groups, _ = args
    return _present(run("native_group_norm_backward", g.contiguous(), x, outs[1], outs[2], w, n, c, inner, groups, _three(mask, (x, w, b))), (x, w, b))


@prim("native_group_norm")
def _group_norm(x, w=None, b=None, *, groups, eps):
    n, c = x._sizes[:2]
    return dispatch_layer("native_group_norm", x, w, b, n, c, math.prod(x._sizes[2:]), groups, eps)[0], None, None, None


# ------------------------------------------------------------------ pooling
def _each(x, n, default=None):
    """Expands a size to aten's list of n."""
    if x is None:
        return default
    if isinstance(x, (tuple, list)):
        return list(x) * (n if len(x) == 1 else 1)
    return [x] * n


def _max_pool_backward(n):
    def backward(g, args, named, outs, mask):
        x, kernel, *rest = args
        stride, padding, dilation, ceil = [*rest, *([], [0] * n, [1] * n, False)[len(rest):]]
        return [run(f"max_pool{n}d_with_indices_backward", g, x, kernel, stride, padding, dilation, ceil, outs[1])]
    return backward


def _max_pool(n, both):
    def max_pool(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        if not is_tensor(input):
            return NotImplemented
        sizes = [_each(kernel_size, n), _each(stride, n, []), _each(padding, n), _each(dilation, n)]
        if n == 1:
            if input.ndim not in (2, 3):
                return NotImplemented
            first = [1, 1, 0, 1]
            widened = [v and [f, *v] for f, v in zip(first, sizes)]
            widened[1] = widened[1] or widened[0]
            r = dispatch_layer("max_pool2d_with_indices", input.unsqueeze(-2), *_trimmed([*widened, bool(ceil_mode)], [[0, 0], [1, 1], False]))
            return (r[0].squeeze(-2), r[1].squeeze(-2)) if both or return_indices else r[0].squeeze(-2)
        r = dispatch_layer(f"max_pool{n}d_with_indices", input, *_trimmed([*sizes, bool(ceil_mode)], [[], [0] * n, [1] * n, False]))
        return (r[0], r[1]) if both or return_indices else r[0]
    return max_pool


for _n in (1, 2, 3):
    if _n > 1:
        layer(f"max_pool{_n}d_with_indices", f"MaxPool{_n}DWithIndicesBackward0", keeps=(1,))(_max_pool_backward(_n))
    op(f"nn.functional.max_pool{_n}d", f"max_pool{_n}d")(_max_pool(_n, False))
    op(f"nn.functional.max_pool{_n}d_with_indices", f"max_pool{_n}d_with_indices")(_max_pool(_n, True))


def _avg_pool_backward(n):
    def backward(g, args, named, outs, mask):
        x, kernel, *rest = args
        return [run(f"avg_pool{n}d_backward", g, x, kernel, *rest, *([], [0] * n, False, True, None)[len(rest):])]
    return backward


def _avg_pool(n):
    def avg_pool(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        if not is_tensor(input):
            return NotImplemented
        sizes, flags = [_each(kernel_size, n), _each(stride, n, []), _each(padding, n)], [bool(ceil_mode), bool(count_include_pad), divisor_override]
        if n > 1:
            return dispatch_layer(f"avg_pool{n}d", input, *_trimmed([*sizes, *flags], [[], [0] * n, False, True, None]))
        if input.ndim not in (2, 3):
            return NotImplemented
        widened = [v and [f, *v] for f, v in zip((1, 1, 0), sizes)]
        widened[1] = widened[1] or widened[0]
        return dispatch_layer("avg_pool2d", input.unsqueeze(-2), *_trimmed([*widened, *flags], [[0, 0], False, True, None])).squeeze(-2)
    return avg_pool


for _n in (1, 2, 3):
    if _n > 1:
        layer(f"avg_pool{_n}d", f"AvgPool{_n}DBackward0")(_avg_pool_backward(_n))
    op(f"nn.functional.avg_pool{_n}d", f"avg_pool{_n}d")(_avg_pool(_n))


def _adaptive(n):
    def backward(g, args, named, outs, mask):
        return [run(f"_adaptive_avg_pool{n}d_backward", g, args[0])]
    layer(f"_adaptive_avg_pool{n}d", f"AdaptiveAvgPool{n}DBackward0")(backward)

    @prim(f"adaptive_avg_pool{n}d")
    def said(x, *, out):
        if all([k == 1 for k in out]):
            return x.mean([-1 - i for i in range(n)], keepdim=True)
        return dispatch_layer(f"_adaptive_avg_pool{n}d", x, list(out))

    @layer(f"adaptive_max_pool{n}d", f"AdaptiveMaxPool{n}DBackward0", keeps=(1,))
    def max_backward(g, args, named, outs, mask):
        return [run(f"adaptive_max_pool{n}d_backward", g, args[0], outs[1])]

    @prim(f"adaptive_max_pool{n}d")
    def said_max(x, *, target, return_indices):
        r = dispatch_layer(f"adaptive_max_pool{n}d", x, list(target))
        return (r[0], r[1]) if return_indices else r[0]


_adaptive(2)
_adaptive(3)


# ------------------------------------------------------------------ losses
def _nll_backward(name):
    def backward(g, args, named, outs, mask):
        return [run(name + "_backward", g, *args, outs[1]), *[None] * (len(mask) - 1)]
    return backward


layer("nll_loss_forward", "NllLossBackward0", keeps=(1,))(_nll_backward("nll_loss"))
layer("nll_loss2d_forward", "NllLoss2DBackward0", keeps=(1,))(_nll_backward("nll_loss2d"))


@prim("nll_loss")
def _nll_loss(x, target, weight=None, *, reduction, ignore_index):
    if x.ndim == 2:
        return dispatch_layer("nll_loss_forward", x, target, weight, REDUCTIONS.index(reduction), ignore_index)[0], None
    sizes = target._sizes
    if x.ndim != 4:
        n, c = x._sizes[:2]
        x, target = x.contiguous().view(n, c, 1, -1), target.contiguous().view(n, 1, -1)
    r = dispatch_layer("nll_loss2d_forward", x, target, weight, REDUCTIONS.index(reduction), ignore_index)[0]
    return (r.view(sizes) if reduction == "none" else r), None


@prim("cross_entropy_loss")
def _cross_entropy(x, target, weight=None, *, ignore_index, smoothing, reduction):
    if smoothing:
        return NotImplemented
    logs = _f("log_softmax")(x, 1)
    return _nll_loss(logs, target, weight, reduction=reduction, ignore_index=ignore_index)[0], None, None, None


# ------------------------------------------------------------------ attention
_FLASH = "_scaled_dot_product_flash_attention_for_cpu"


@layer(_FLASH, "ScaledDotProductFlashAttentionForCpuBackward0", keeps=(0, 1))
def _flash_backward(g, args, named, outs, mask):
    q, k, v, *rest = args
    dropout, causal = [*rest, *(0.0, False)[len(rest):]]
    given = {"attn_mask": named.get("attn_mask"), **({} if named.get("scale") is None else {"scale": named["scale"]})}
    return [*run(_FLASH + "_backward", g, q, k, v, outs[0], outs[1], dropout, causal, **given), *[None] * (len(mask) - 3)]


def _bias(mask, like):
    """Converts an attention mask to an additive bias."""
    if mask._np_dtype.kind != "b":
        return mask
    return _f("where")(mask, like.new_zeros(()), like.new_full((), -math.inf))


def _flash_allowed():
    import sys
    module = sys.modules.get("mindtorch.torch.nn.attention")
    return module is None or module.SDPBackend.FLASH_ATTENTION in module._allowed


@prim("scaled_dot_product_attention")
def _attention(q, k, v, bias=None, *, causal, scale, keep, generator):
    if q.ndim == 5 and k.ndim == 5 and k._sizes[2] == 1 and bias is None:  # heads that share a key
        y = _attention(q.flatten(1, 2), k.squeeze(2), v.squeeze(2), None, causal=causal, scale=scale, keep=keep, generator=generator)
        return y if y is NotImplemented else (y[0].unflatten(1, q._sizes[1:3]), None, None)
    e = q._sizes[-1]
    grouped = k._sizes[-3] if k.ndim > 2 else 1
    flash = (keep == 1 and q.ndim == k.ndim == v.ndim == 4 and e == k._sizes[-1] == v._sizes[-1] and q._sizes[0] == k._sizes[0] == v._sizes[0] and q._numel and k._numel
             and grouped == v._sizes[-3] and grouped and q._sizes[-3] % grouped == 0 and q._np_dtype.kind in "fV" and _flash_allowed()
             and (bias is None or bias.ndim in (2, 4) and not bias._requires_grad_))
    if flash:
        named = {} if bias is None else {"attn_mask": _bias(bias, q)}
        if scale != 1 / math.sqrt(e):
            named["scale"] = scale
        return dispatch_layer(_FLASH, q, k, v, *((0.0, True) if causal else ()), **named)[0], None, None
    if q.ndim > 2 and grouped != q._sizes[-3] and grouped != 1:
        k, v = [t.repeat_interleave(q._sizes[-3] // grouped, -3) for t in (k, v)]
    if causal:
        bias = _bias(q.new_ones((q._sizes[-2], k._sizes[-2])).bool().tril(), q)
    root = math.sqrt(scale) if scale >= 0 else None
    if root is None:
        return NotImplemented
    s = (q * root) @ (k.transpose(-2, -1) * root)
    if bias is not None:
        s = s + _bias(bias, q)
    p = _f("_safe_softmax")(s, -1)
    if keep != 1:
        p = _f("nn.functional.dropout")(p, 1 - keep)
    return p @ v, None, None


# ------------------------------------------------------------------ sums of products
@prim("vm")
def _gradient_of_vector(a, u):
    """Gradient of the vector in a batched matrix-vector product.

    It is summed to the vector's shape anyway, so one product over the rows of all batches computes
    it.
    """
    if a.ndim < 3 or a._sizes[:-1] != u._sizes or mode.on and (a._requires_grad_ or u._requires_grad_):
        return NotImplemented
    return run("mv", a.reshape(-1, a._sizes[-1]).t(), u.reshape(-1))


@prim("einsum")
def _sum_of_products(a, b, *, la, lb, lo):
    """Expresses a two-operand einsum as a batched matrix product."""
    both = [k for k in lo if k in la and k in lb]
    rows, cols = [k for k in lo if k in la and k not in lb], [k for k in lo if k in lb and k not in la]
    summed = [k for k in la if k in lb and k not in lo]
    if any([k not in lo and k not in other for labels, other in ((la, lb), (lb, la)) for k in labels]):
        return NotImplemented
    sizes = {**dict(zip(lb, b._sizes)), **dict(zip(la, a._sizes))}
    if len(set(la)) != len(la) or len(set(lb)) != len(lb) or any([dict(zip(lb, b._sizes)).get(k, n) != n for k, n in zip(la, a._sizes)]):
        return NotImplemented

    if all([sizes[k] == 1 for k in summed]):
        # No summed dimension: an element-wise product.
        made = [*lo, *summed]

        def aligned(t, labels):
            t = t.permute([labels.index(k) for k in made if k in labels])
            for i, k in enumerate(made):
                t = t if k in labels else t.unsqueeze(i)
            return t
        r = aligned(a, la) * aligned(b, lb)
        return r.view([sizes[k] for k in lo]) if summed else r

    def matrices(t, labels, first, second):
        t = t.permute([labels.index(k) for k in (*both, *first, *second)])
        return t.reshape([_volume(sizes, g) for g in (both, first, second)])
    r = matrices(a, la, rows, summed).bmm(matrices(b, lb, summed, cols))
    made = [*both, *rows, *cols]
    return r.view([sizes[k] for k in made]).permute([made.index(k) for k in lo])


def _volume(sizes, labels):
    return math.prod([sizes[k] for k in labels])




# ------------------------------------------------------------------ others
@layer("gelu", "GeluBackward0")
def _gelu_backward(g, args, named, outs, mask):
    return [run("gelu_backward", g, *args, **named)]


@prim("gelu")
def _gelu(x, *, approximate):
    return dispatch_layer("gelu", x, **({} if approximate == "none" else {"approximate": approximate})), None


def _resized(name):
    camel = "".join([w[:-1] + w[-1].upper() if w[-2:] in ("1d", "2d", "3d") else w for w in [w.capitalize() for w in name.split("_")]])
    corners = "linear" in name or "cubic" in name

    @layer(name, camel + "Backward0")
    def backward(g, args, named, outs, mask):
        x, size, *rest = args
        return [run(name + "_backward", g, size, list(x._sizes), *rest)]

    @prim(name)
    def said(x, *, size, scales, align):
        return dispatch_layer(name, x, *_trimmed([list(size), *([align] if corners else []), *scales], [None] * len(scales)))


for _n in RESIZED:
    _resized(_n)


def _repeated(kind, name, n):
    @layer(name, f"{kind}Pad{n}DBackward0")
    def backward(g, args, named, outs, mask):
        return [run(name + "_backward", g, *args)]


for _n in (1, 2, 3):
    _repeated("Reflection", f"reflection_pad{_n}d", _n)
    _repeated("Replication", f"replication_pad{_n}d", _n)


@prim("pad_by_index")
def _pad_by_index(x, *, plan):
    modes, n = {p[1] for p in plan}, x.ndim - min([p[0] for p in plan])
    if len(modes) != 1 or n > 3 or not modes <= {"reflect", "replicate"}:
        return NotImplemented
    pads = {axis: (lo, hi) for axis, _, _, lo, hi in plan}
    name = {"reflect": "reflection", "replicate": "replication"}[modes.pop()]
    return dispatch_layer(f"{name}_pad{n}d", x, [k for axis in range(x.ndim - 1, x.ndim - n - 1, -1) for k in pads.get(axis, (0, 0))])


# ------------------------------------------------------------------ recurrent layers
@prim("gru")
def _gru(x, h0, w_ih, w_hh, b_ih=None, b_hh=None, *, sizes, reverse, keep):
    return (*rnn._compose_gru(x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse), None, None, None)


def _rnn(x, h0, w_ih, w_hh, b_ih=None, b_hh=None, *, relu, sizes, reverse, keep):
    return (*rnn._compose_rnn(x, h0, w_ih, w_hh, b_ih, b_hh, relu, sizes, reverse), None, None)


PRIMITIVES["rnn"] = _rnn


# Cells compute in PyTorch's order: the product with the state comes first, so its gradient is
# computed last.
@prim("rnn_cell")
def _rnn_cell(x, h0, w_ih, w_hh, b_ih=None, b_hh=None, *, relu, sizes, reverse, keep):
    z = _f("nn.functional.linear")(h0, w_hh, b_hh)
    z = _f("nn.functional.linear")(x, w_ih, b_ih) + z
    h = z.relu() if relu else z.tanh()
    return h, h, None, None


@prim("lstm_cell")
def _lstm_cell(x, h0, c0, w_ih, w_hh, b_ih=None, b_hh=None, w_hr=None, *, sizes, reverse, keep):
    linear = _f("nn.functional.linear")
    z = linear(h0, w_hh, b_hh)
    i, f, g, o = (linear(x, w_ih, b_ih) + z).chunk(4, 1)
    c = f.sigmoid() * c0 + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return h, h, c, None


@prim("lstm")
def _lstm(x, h0, c0, w_ih, w_hh, b_ih=None, b_hh=None, w_hr=None, *, sizes, reverse, keep):
    # PyTorch has a dedicated operator, mkldnn_rnn_layer, for unpacked float32 LSTMs.
    if x._np_dtype == F32 and w_hr is None and len(set(sizes)) < 2:
        return NotImplemented
    return (*rnn._compose_lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse), None)
