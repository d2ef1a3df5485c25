"""Transformer layers (https://pytorch.org/docs/stable/nn.html#transformer-layers)."""
import copy
import warnings

import mindtorch.torch as torch
from mindtorch.torch.nn import functional as F
from mindtorch.torch.nn.init import xavier_uniform_
from mindtorch.torch.nn.modules._attention import MultiheadAttention
from mindtorch.torch.nn.modules.activation import GELU, ReLU
from mindtorch.torch.nn.modules.container import ModuleList
from mindtorch.torch.nn.modules.dropout import Dropout
from mindtorch.torch.nn.modules.linear import Linear
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.nn.modules.normalization import LayerNorm

__all__ = ["Transformer", "TransformerEncoder", "TransformerDecoder", "TransformerEncoderLayer",
           "TransformerDecoderLayer"]


def _get_activation_fn(name):
    if not isinstance(name, str):
        return name
    if name not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {name}")
    return getattr(F, name)


def _get_clones(module, n):
    return ModuleList([copy.deepcopy(module) for _ in range(n)])


def _generate_square_subsequent_mask(sz, device=None, dtype=None):
    """Returns a causal mask: 0 on and below the diagonal, -inf above it."""
    return torch.triu(torch.full((sz, sz), float("-inf"), dtype=dtype, device=device), diagonal=1)


def _detect_is_causal(mask, is_causal, size):
    """Returns `is_causal` if it is not None, else whether `mask` is the causal mask of this size.
    """
    if is_causal is not None or mask is None:
        return bool(is_causal)
    if mask.size() != torch.Size((size, size)):
        return False
    causal = _generate_square_subsequent_mask(size, mask.device, mask.dtype if mask.is_floating_point() else None)
    return bool((mask == (causal if mask.is_floating_point() else causal.bool())).all())


def _as_float_mask(mask, name, dtype, other=None):
    """Converts a bool mask to 0 and -inf. AssertionError for an integer mask."""
    if mask is None:
        return None
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if other is not None and other.dtype != mask.dtype:
        warnings.warn(f"Support for mismatched {name} and attn_mask is deprecated. Use same type for both instead.",
                      stacklevel=3)
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))
    return mask


def _get_seq_len(src, batch_first):
    """Returns the length L of (L, N, E), (N, L, E) with `batch_first`, or (L, E)."""
    size = src.size()
    return size[0] if len(size) == 2 else size[1 if batch_first else 0]


class Transformer(Module):
    """Encoder and decoder of "Attention is all you need".

    Maps src (S, N, E) and tgt (T, N, E) to (T, N, E); N comes first with `batch_first`.
    """

    def __init__(self, d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048,
                 dropout=0.1,
                 activation=F.relu, custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5, batch_first=False,
                 norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        kw = {"device": device, "dtype": dtype}
        shape = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            layer = TransformerEncoderLayer(*shape, **kw)
            self.encoder = TransformerEncoder(layer, num_encoder_layers, LayerNorm(d_model, layer_norm_eps, bias=bias,
                                                                                   **kw))
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            layer = TransformerDecoderLayer(*shape, **kw)
            self.decoder = TransformerDecoder(layer, num_decoder_layers, LayerNorm(d_model, layer_norm_eps, bias=bias,
                                                                                   **kw))
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None,
                tgt_key_padding_mask=None, memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None,
                memory_is_causal=False):
        if src.dim() == 3:
            batch = 0 if self.batch_first else 1
            if src.size(batch) != tgt.size(batch):
                raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                            tgt_key_padding_mask=tgt_key_padding_mask,
                            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
                            memory_is_causal=memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None, dtype=None):
        """Returns the causal mask (sz, sz), with 0 where a position attends to itself and earlier
        ones, else -inf."""
        return _generate_square_subsequent_mask(sz, device, dtype)

    def _reset_parameters(self):
        for p in self.parameters():
            if p.dim() > 1:
                xavier_uniform_(p)


class TransformerEncoder(Module):
    """A stack of `num_layers` copies of an encoder layer, with an optional final norm."""

    __constants__ = ["norm"]

    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        obstacle = _nested_obstacle(encoder_layer)
        self.use_nested_tensor = enable_nested_tensor and not obstacle
        self.mask_check = mask_check
        if enable_nested_tensor and obstacle:
            warnings.warn("enable_nested_tensor is True, but self.use_nested_tensor is False because "
                          f"{obstacle}", stacklevel=2)

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        padding = src_key_padding_mask
        src_key_padding_mask = _as_float_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype, mask)
        mask = _as_float_mask(mask, "mask", src.dtype)
        first = self.layers[0]
        batch_first = getattr(getattr(first, "self_attn", None), "batch_first", False)
        causal = _detect_is_causal(mask, is_causal, _get_seq_len(src, batch_first))
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, is_causal=causal, src_key_padding_mask=src_key_padding_mask)
        if padding is not None and mask is None and self.use_nested_tensor and _would_nest(self, first, src, padding):
            # Where PyTorch's inference path packs the sequences, the output at padded positions is
            # 0.
            dropped = padding if padding.dtype == torch.bool else padding == float("-inf")
            output = output.masked_fill(dropped.unsqueeze(-1), 0.0)
        if self.norm is not None:
            output = self.norm(output)
        return output


def _nested_obstacle(layer):
    """Returns why PyTorch would not pack the sequences of an encoder made of this layer, or "" if
    it would."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    attention = layer.self_attn
    for obstacle, there in (
            ("encoder_layer.norm_first was True", layer.norm_first),
            ("encoder_layer.self_attn.batch_first was not True(use batch_first for better inference performance)",
             not attention.batch_first),
            ("encoder_layer.self_attn._qkv_same_embed_dim was not True", not attention._qkv_same_embed_dim),
            ("encoder_layer.self_attn was passed bias=False", attention.in_proj_bias is None),
            ("encoder_layer.activation_relu_or_gelu was not True", not layer.activation_relu_or_gelu),
            ("encoder_layer.norm1.eps was not equal to encoder_layer.norm2.eps", layer.norm1.eps != layer.norm2.eps),
            ("encoder_layer.self_attn.num_heads is odd", attention.num_heads % 2 == 1)):
        if there:
            return obstacle
    return ""


def _would_nest(encoder, first, src, padding):
    """True if PyTorch's encoder takes its packed inference path."""
    if first.training or src.dim() != 3:
        return False
    if torch.is_grad_enabled() and (src.requires_grad or any(p.requires_grad for p in first.parameters())):
        return False
    if encoder.mask_check:
        # Only padding at the end can be packed.
        keep = ~(padding if padding.dtype == torch.bool else padding == float("-inf"))
        lengths = keep.sum(dim=1, keepdim=True)
        places = torch.arange(padding.size(1), device=padding.device).unsqueeze(0)
        return bool((keep == (places < lengths)).all())
    return True


class TransformerDecoder(Module):
    """A stack of `num_layers` copies of a decoder layer, with an optional final norm."""

    __constants__ = ["norm"]

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=None, memory_is_causal=False):
        batch_first = getattr(getattr(self.layers[0], "self_attn", None), "batch_first", False)
        causal = _detect_is_causal(tgt_mask, tgt_is_causal, _get_seq_len(tgt, batch_first))
        output = tgt
        for layer in self.layers:
            output = layer(output, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                           tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask,
                           tgt_is_causal=causal, memory_is_causal=memory_is_causal)
        return output if self.norm is None else self.norm(output)


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with dropout, residual connection and layer norm."""

    __constants__ = ["norm_first"]

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        kw = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **kw)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **kw)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **kw)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kw)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kw)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        activation = _get_activation_fn(activation)
        if activation is F.relu or isinstance(activation, ReLU):
            self.activation_relu_or_gelu = 1
        elif activation is F.gelu or isinstance(activation, GELU):
            self.activation_relu_or_gelu = 2
        else:
            self.activation_relu_or_gelu = 0
        self.activation = activation

    def __setstate__(self, state):
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        src_key_padding_mask = _as_float_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype, src_mask)
        src_mask = _as_float_mask(src_mask, "src_mask", src.dtype)
        if (src_mask is not None or src_key_padding_mask is not None) and self._in_one_kernel(src):
            return self._by_one_kernel(src, src_mask, src_key_padding_mask)
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal=is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, src_mask, src_key_padding_mask, is_causal=is_causal))
        return self.norm2(x + self._ff_block(x))

    def _in_one_kernel(self, x):
        """True if PyTorch computes the layer with its fused inference kernel."""
        return (self.self_attn._in_one_kernel(x) and self.activation_relu_or_gelu and self.norm1.eps == self.norm2.eps
                and not (torch.is_grad_enabled() and any([p.requires_grad for p in self.parameters()]))
                and not any([m._forward_hooks or m._forward_pre_hooks for m in self.modules()]))

    def _by_one_kernel(self, src, src_mask, src_key_padding_mask):
        # The kernel treats every mask as bool: nonzero entries are masked.
        batch, length, _ = src.shape
        mask, _ = self.self_attn.merge_masks(src_mask, src_key_padding_mask, src)
        mask = mask.bool().view(batch, 1, 1, length) if mask.dim() == 2 else mask.bool()
        mask = mask.expand(batch, self.self_attn.num_heads, length, length).reshape(-1, length, length)
        x = src + self.self_attn.masked_by_softmax(self.norm1(src) if self.norm_first else src, mask, None)
        if self.norm_first:
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x)
        return self.norm2(x + self._ff_block(x))

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        x = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False,
                           is_causal=is_causal)[0]
        return self.dropout1(x)

    def _ff_block(self, x):
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(Module):
    """Self-attention, cross-attention to the encoder's output, and a feed-forward network, each
    with dropout, residual connection and layer norm."""

    __constants__ = ["norm_first"]

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        kw = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, bias=bias, **kw)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, bias=bias,
                                                 **kw)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **kw)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **kw)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kw)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kw)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kw)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _get_activation_fn(activation)

    def __setstate__(self, state):
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=False, memory_is_causal=False):
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), tgt_mask, tgt_key_padding_mask, tgt_is_causal)
            x = x + self._mha_block(self.norm2(x), memory, memory_mask, memory_key_padding_mask, memory_is_causal)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
        x = self.norm2(x + self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal))
        return self.norm3(x + self._ff_block(x))

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        x = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal,
                           need_weights=False)[0]
        return self.dropout1(x)

    def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
        x = self.multihead_attn(x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
                                is_causal=is_causal, need_weights=False)[0]
        return self.dropout2(x)

    def _ff_block(self, x):
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))
