"""Multi-head attention (https://pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html)."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Parameter
from mindtorch.torch.nn import functional as F
from mindtorch.torch.nn import init
from mindtorch.torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from mindtorch.torch.nn.modules.module import Module


class MultiheadAttention(Module):
    """Multi-head attention with `num_heads` heads of size embed_dim / num_heads each.

    Shapes: query (L, N, embed_dim), key (S, N, kdim), value (S, N, vdim); with `batch_first` (N, L,
    ...); or without N. Returns (output, weights): the output has the shape of the query. The
    weights (N, L, S) are averaged over the heads by default; None unless `need_weights`.
    """

    __constants__ = ["batch_first"]

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None,
                 vdim=None, batch_first=False, device=None, dtype=None):
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                             f"num_heads={num_heads} instead")
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def made(*size):
            return Parameter(torch.empty(size, device=device, dtype=dtype))

        separate = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        if self._qkv_same_embed_dim:
            self.in_proj_weight = made(3 * embed_dim, embed_dim)
            for name in separate:
                self.register_parameter(name, None)
        else:
            for name, size in zip(separate, (embed_dim, self.kdim, self.vdim)):
                self.register_parameter(name, made(embed_dim, size))
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", made(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        if add_bias_kv:
            self.bias_k = made(1, 1, embed_dim)
            self.bias_v = made(1, 1, embed_dim)
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self):
        separate = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        for name in ("in_proj_weight",) if self._qkv_same_embed_dim else separate:
            init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
        if self.bias_v is not None:
            init.xavier_normal_(self.bias_v)

    def __setstate__(self, state):
        state.setdefault("_qkv_same_embed_dim", True)
        super().__setstate__(state)

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                average_attn_weights=True, is_causal=False):
        if not need_weights and (attn_mask is not None or key_padding_mask is not None) and query is key is value and self._in_one_kernel(query) \
                and all([m is None or m.dtype == torch.bool for m in (attn_mask, key_padding_mask)]):
            return self.masked_by_softmax(query, attn_mask, key_padding_mask), None
        batched = query.dim() == 3
        swap = self.batch_first and batched
        if swap:
            # Keeps the tensors identical, so that the kernel can detect self-attention.
            if key is value:
                key_t = query.transpose(1, 0) if query is key else key.transpose(1, 0)
                query, value = (key_t if query is key else query.transpose(1, 0)), key_t
                key = key_t
            else:
                query, key, value = (t.transpose(1, 0) for t in (query, key, value))
        separate = {} if self._qkv_same_embed_dim else {
            "use_separate_proj_weight": True, "q_proj_weight": self.q_proj_weight, "k_proj_weight": self.k_proj_weight,
            "v_proj_weight": self.v_proj_weight}
        output, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias,
            training=self.training, key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            average_attn_weights=average_attn_weights, is_causal=is_causal, **separate)
        return (output.transpose(1, 0) if swap else output), weights

    def _in_one_kernel(self, x):
        """True if PyTorch uses its fused inference kernel for self-attention of x. That kernel
        returns NaN for fully masked rows."""
        return (not (self.training or torch.is_autocast_enabled(x.device.type)) and x.device.type == "cpu" and x.dim() == 3 and self.batch_first
                and self._qkv_same_embed_dim and self.in_proj_bias is not None and self.num_heads % 2 == 0 and self.bias_k is None and self.bias_v is None
                and not self.add_zero_attn and x.dtype == self.in_proj_weight.dtype == self.in_proj_bias.dtype
                and not (torch.is_grad_enabled() and any([t.requires_grad for t in (x, *self.parameters(recurse=True))])))

    def masked_by_softmax(self, x, attn_mask, key_padding_mask):
        """Self-attention of x (N, L, E) with a softmax over -inf, as with `need_weights`: fully
        masked rows are NaN."""
        y, _ = self.forward(x, x, x, key_padding_mask=key_padding_mask, attn_mask=attn_mask)
        return y

    def merge_masks(self, attn_mask, key_padding_mask, query):
        """Returns (mask, type) for PyTorch's fused kernel.

        The type is 0 for an attention mask, 1 for a key padding mask, and 2 for both merged to (N,
        heads, L, S). Both are None if there is no mask.
        """
        kind, merged = None, None
        if key_padding_mask is not None:
            kind, merged = 1, key_padding_mask
        if attn_mask is not None:
            batch, length, _ = query.shape
            kind = 2
            if attn_mask.dim() == 3:
                merged = attn_mask.view(batch, -1, length, length)
            else:
                merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
            if key_padding_mask is not None:
                merged = merged + key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
        return merged, kind
