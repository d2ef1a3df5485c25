"""aten operators for layers and their gradients. Handlers of `__torch_dispatch__` call them to
compute the operators of `mindtorch/torch/_aten_layers.py`.

A gradient is computed either by the primitives of the autograd graph, or by re-executing the layer
and differentiating it.
"""
import functools

from mindtorch.core.autograd import engine, grad_mode
from mindtorch.core.dispatch.dispatcher import is_enabled
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.dispatch.primitives import PRIMITIVES
from mindtorch.core.tensor.tensor import shallow_copy as alias_of
from mindtorch.torch import _aten_layers, _ops
from mindtorch.torch._aten_layer_names import RESIZED
from mindtorch.torch._aten_losses import REDUCTIONS


def _f(name):
    row = OPS[name]
    return row.public or row.fn


def _one(fn):
    """Makes a function visible as one operator to active modes and `__torch_dispatch__` classes."""
    name = fn.__name__

    @functools.wraps(fn)
    def dispatched(*args, **kwargs):
        if is_enabled("ops", "dispatch") and not _aten_layers.state.taken_apart and _aten_layers.wants_dispatch(args, kwargs):
            return _aten_layers.dispatch_layer(name, *args, **kwargs) if name in _aten_layers.LAYERS else _aten_layers.answer(_ops.find_overload("aten::" + name), args, kwargs)
        return fn(*args, **kwargs)
    return dispatched


def _gradients(fn, operands, mask, g):
    """Returns the gradients of fn(*operands) for the operands in the mask, and None for the others.
    """
    with grad_mode.enable_grad():
        leaves = [t.detach().requires_grad_() if on else t for t, on in zip(operands, mask)]
        out = fn(*leaves)
    requested = [t for t, on in zip(leaves, mask) if on]
    found = iter(engine.run_backward([out], [alias_of(g)], False, False, requested, True) if requested else ())
    return tuple([next(found) if on else None for on in mask])


# ------------------------------------------------------------------ convolutions
@_one
def convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask):
    """Returns (grad_input, grad_weight, grad_bias), with None for those that output_mask excludes.
    """
    pads, n = tuple([(p, p) for p in padding]), weight.ndim - 2
    named = {"stride": tuple(stride), "padding": pads, "dilation": tuple(dilation), "groups": groups}
    g, one = grad_output, input.ndim == n + 1
    x = input
    if one:
        g, x = g.unsqueeze(0), x.unsqueeze(0)
    found = [None, None, None]
    if output_mask[0]:
        w = weight.conj()
        found[0] = (PRIMITIVES["convolution"](g, w, None, out=x._sizes[2:], **named) if transposed else
                    PRIMITIVES["convolution_transposed"](g, w, None, size=x._sizes[2:], **named))
        if one:
            found[0] = found[0].squeeze(0)
    if output_mask[1]:
        x = x.conj()
        found[1] = PRIMITIVES["convolution_weight"](*((x, g) if transposed else (g, x)), kernel=weight._sizes[2:], **named)
    if output_mask[2]:
        found[2] = PRIMITIVES["channel_sum"](g)
    return tuple(found)


# ------------------------------------------------------------------ normalisation
@_one
def native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask):
    """Returns (grad_input, grad_weight, grad_bias), with None for those that output_mask excludes.
    """
    axes, shape = [d for d in range(input.ndim) if d != 1], [1, -1] + [1] * (input.ndim - 2)
    mean, rstd = (save_mean, save_invstd) if train else (running_mean, (running_var + eps).rsqrt())
    mean, rstd = mean.reshape(shape), rstd.reshape(shape)
    x, g = (input - mean) * rstd, grad_out
    found = [None, None, None]
    if output_mask[0]:
        h = g if weight is None else g * weight.reshape(shape)
        found[0] = (rstd * (h - h.mean(axes, keepdim=True) - x * (h * x).mean(axes, keepdim=True)) if train else rstd * h).to(input.dtype)
    if output_mask[1]:
        found[1] = (g * x).sum(axes).to(weight.dtype)
    if output_mask[2]:
        found[2] = g.sum(axes).to(g.dtype if weight is None else weight.dtype)
    return tuple(found)


@_one
def native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask):
    """Returns (grad_input, grad_weight, grad_bias), with None for those that output_mask excludes.
    """
    axes = list(range(-len(normalized_shape), 0))
    shape = (*input._sizes[:-len(axes)], *[1] * len(axes))
    x = (input - mean.reshape(shape)) * rstd.reshape(shape)
    lead = list(range(input.ndim - len(axes)))
    rstd, g = rstd.reshape(shape), grad_out
    found = [None, None, None]
    if output_mask[0]:
        h = g if weight is None else g * weight
        found[0] = (rstd * (h - h.mean(axes, keepdim=True) - x * (h * x).mean(axes, keepdim=True))).to(input.dtype)
    if output_mask[1]:
        found[1] = ((g * x).sum(lead) if lead else g * x).to(weight.dtype)
    if output_mask[2]:
        found[2] = (g.sum(lead) if lead else g.clone()).to(bias.dtype)
    return tuple(found)


@_one
def native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask):
    """Returns (grad_input, grad_weight, grad_bias), with None for those that output_mask excludes.
    """
    x = ((input.reshape(N, group, -1) - mean.unsqueeze(-1)) * rstd.unsqueeze(-1)).reshape(N, C, HxW)
    g = grad_out.reshape(N, C, HxW)
    found = [None, None, None]
    if output_mask[0]:
        h = (g if weight is None else g * weight.reshape(C, 1)).reshape(N, group, -1)
        rows = x.reshape(N, group, -1)
        part = rstd.unsqueeze(-1) * (h - h.mean(-1, keepdim=True) - rows * (h * rows).mean(-1, keepdim=True))
        found[0] = part.reshape(input._sizes).to(input.dtype)
    if output_mask[1]:
        found[1] = (g * x).sum([0, 2]).to(weight.dtype)
    if output_mask[2]:
        found[2] = g.sum([0, 2])
    return tuple(found)


# ------------------------------------------------------------------ pooling
def _pools(n):
    def max_pool_with_indices_backward(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices):
        """Gradient of max pooling, from the indices of the maxima."""
        return PRIMITIVES["scatter_flat"](grad_output, indices, size=self._sizes[-n:])

    def avg_pool_backward(grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
        """Gradient of average pooling."""
        return _gradients(lambda x: _f(f"nn.functional.avg_pool{n}d")(x, kernel_size, stride or None, padding, ceil_mode, count_include_pad, divisor_override),
                          [self], [True], grad_output)[0]

    def adaptive_avg_pool(self, output_size):
        """Average pooling to a given output size."""
        return PRIMITIVES[f"adaptive_avg_pool{n}d"](self, out=tuple(output_size))

    def adaptive_avg_pool_backward(grad_output, self):
        """Gradient of adaptive average pooling."""
        return PRIMITIVES[f"adaptive_avg_pool{n}d_backward"](grad_output, size=self._sizes[-n:])

    def adaptive_max_pool(self, output_size):
        """Max pooling to a given output size. Returns (maxima, indices)."""
        return PRIMITIVES[f"adaptive_max_pool{n}d"](self, target=tuple(output_size), return_indices=True)

    def adaptive_max_pool_backward(grad_output, self, indices):
        """Gradient of adaptive max pooling, from the indices of the maxima."""
        return PRIMITIVES["scatter_flat"](grad_output, indices, size=self._sizes[-n:])
    made = {f"max_pool{n}d_with_indices_backward": max_pool_with_indices_backward, f"avg_pool{n}d_backward": avg_pool_backward,
            f"_adaptive_avg_pool{n}d": adaptive_avg_pool, f"_adaptive_avg_pool{n}d_backward": adaptive_avg_pool_backward,
            f"adaptive_max_pool{n}d": adaptive_max_pool, f"adaptive_max_pool{n}d_backward": adaptive_max_pool_backward}
    for name, fn in made.items():
        fn.__name__ = name
        globals()[name] = _one(fn)


_pools(2)
_pools(3)


# ------------------------------------------------------------------ losses
def _losses(suffix):
    def forward(self, target, weight, reduction, ignore_index):
        """Returns (loss, total weight of the targets that are not ignored)."""
        loss = _f("nn.functional.nll_loss")(self, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction])
        with grad_mode.no_grad():
            counts = target != ignore_index
            each = counts.to(self.dtype) if weight is None else weight[target.masked_fill(~counts, 0)].masked_fill(~counts, 0)
            return loss, each.sum() if reduction else self.new_zeros(())

    def backward(grad_output, self, target, weight, reduction, ignore_index, total_weight):
        """Gradient of nll_loss."""
        return _gradients(lambda x: _f("nn.functional.nll_loss")(x, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction]),
                          [self], [True], grad_output)[0]
    forward.__name__, backward.__name__ = f"nll_loss{suffix}_forward", f"nll_loss{suffix}_backward"
    globals()[forward.__name__], globals()[backward.__name__] = _one(forward), _one(backward)


_losses("")
_losses("2d")


# ------------------------------------------------------------------ attention
def _attention(q, k, v, dropout_p, is_causal, attn_mask, scale):
    return _f("nn.functional.scaled_dot_product_attention")(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=q._sizes[1] != k._sizes[1])


@_one
def _scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    """Returns (attention output, logsumexp of the scores)."""
    y = _attention(query, key, value, dropout_p, is_causal, attn_mask, scale)
    with grad_mode.no_grad():
        if query._sizes[1] != key._sizes[1]:
            key = key.repeat_interleave(query._sizes[1] // key._sizes[1], 1)
        s = query @ key.mT * (query._sizes[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            s = s.masked_fill(~s.new_ones(s._sizes[-2:]).bool().tril(), -float("inf"))
        if attn_mask is not None:
            s = s + attn_mask
        return y, s.float().logsumexp(-1) if s._np_dtype.itemsize == 2 else s.logsumexp(-1)


@_one
def _scaled_dot_product_flash_attention_for_cpu_backward(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None):
    """Returns (grad_query, grad_key, grad_value)."""
    return _gradients(lambda q, k, v: _attention(q, k, v, dropout_p, is_causal, attn_mask, scale), [query, key, value], [True] * 3, grad_out)


# ------------------------------------------------------------------ others
@_one
def gelu_backward(grad_output, self, *, approximate="none"):
    """Gradient of gelu."""
    return _gradients(lambda x: _f("nn.functional.gelu")(x, approximate=approximate), [self], [True], grad_output)[0]


def _added(fn, name, doc):
    fn.__name__, fn.__doc__ = name, doc
    globals()[name] = _one(fn)


def _resized(name):
    corners = "linear" in name or "cubic" in name

    def split(rest, n):
        align = bool(rest[0]) if corners else False
        scales = tuple(rest[1:] if corners else rest)
        return {"align": align, "scales": (*scales, *[None] * (n - len(scales)))}

    def forward(self, output_size, *rest):
        return PRIMITIVES[name](self, size=tuple(output_size), **split(rest, self.ndim - 2))

    def backward(grad_output, output_size, input_size, *rest):
        return PRIMITIVES["upsample_backward"](grad_output, size=tuple(input_size[2:]), kind=name, **split(rest, grad_output.ndim - 2))
    _added(forward, name, "Resamples the spatial dimensions.")
    _added(backward, name + "_backward", "Gradient of the resampling.")


for _name in RESIZED:
    _resized(_name)


def _repeated(mode, stem, n):
    def forward(self, padding):
        return _f("nn.functional.pad")(self, list(padding), mode)

    def backward(grad_output, self, padding):
        return _gradients(lambda x: _f("nn.functional.pad")(x, list(padding), mode), [self], [True], grad_output)[0]
    _added(forward, f"{stem}_pad{n}d", "Pads the last dimensions.")
    _added(backward, f"{stem}_pad{n}d_backward", "Gradient of the padding.")


for _n in (1, 2, 3):
    _repeated("reflect", "reflection", _n)
    _repeated("replicate", "replication", _n)


@_one
def embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq):
    """Gradient of the weight of an embedding."""
    return PRIMITIVES["embedding_dense_backward"](grad_output, indices, padding=padding_idx, by_freq=scale_grad_by_freq, rows=num_weights)


@_one
def im2col(self, kernel_size, dilation, padding, stride):
    """torch.nn.functional.unfold."""
    return PRIMITIVES["im2col"](self, kernel=tuple(kernel_size), dilation=tuple(dilation), padding=tuple(padding), stride=tuple(stride))


@_one
def col2im(self, output_size, kernel_size, dilation, padding, stride):
    """torch.nn.functional.fold."""
    return PRIMITIVES["col2im"](self, size=tuple(output_size), kernel=tuple(kernel_size), dilation=tuple(dilation), padding=tuple(padding), stride=tuple(stride))


@_one
def leaky_relu_backward(grad_output, self, negative_slope, self_is_result):
    """Gradient of leaky_relu, given its input or its result."""
    return PRIMITIVES["leaky_relu_backward"](grad_output, self, slope=negative_slope)


@_one
def softplus_backward(grad_output, self, beta, threshold):
    """Gradient of softplus."""
    return PRIMITIVES["softplus_backward"](grad_output, self, beta=beta, threshold=threshold)
