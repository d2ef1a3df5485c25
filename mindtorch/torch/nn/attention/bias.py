"""torch.nn.attention.bias: causal masks that are not materialized
(https://pytorch.org/docs/stable/nn.attention.bias.html)."""
import enum
import warnings

import mindtorch.torch as torch
from mindtorch.torch import _function_protocol

__all__ = ["causal_upper_left", "causal_lower_right", "CausalVariant", "CausalBias"]


class CausalVariant(enum.IntEnum):
    """The corner of the score matrix to which the diagonal of a causal mask is aligned."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2

    def __repr__(self):
        return f"<CausalVariant.{self.name}: {self.value}>"


class CausalBias(torch.Tensor):
    """A causal mask of shape (queries, keys) for `scaled_dot_product_attention(attn_mask=)`.

    NotImplementedError for any other use of its values. ValueError if combined with is_causal=True.
    AssertionError if `variant` is not a CausalVariant.
    """

    def __new__(cls, variant, seq_len_q, seq_len_kv):
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        _function_protocol.activate()  # (classes of this package do not activate it by themselves)
        t = torch.Tensor._make_subclass(cls, torch.empty(0))
        t.variant, t.seq_len_q, t.seq_len_kv = variant, seq_len_q, seq_len_kv
        if seq_len_q > seq_len_kv and variant is CausalVariant.LOWER_RIGHT:
            warnings.warn("Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!", stacklevel=3)
        return t

    def __init__(self, *args, **kwargs):
        pass

    def _materialize(self, device=None):
        """Returns the mask as a bool tensor: True where a query attends to a key."""
        shift = 0 if self.variant is CausalVariant.UPPER_LEFT else self.seq_len_kv - self.seq_len_q
        return torch.ones(self.seq_len_q, self.seq_len_kv, dtype=torch.bool, device=device).tril(shift)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is not torch.nn.functional.scaled_dot_product_attention:
            raise NotImplementedError(f"CausalBias is only for scaled_dot_product_attention(attn_mask=), not for {getattr(func, '__name__', func)}")
        named = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"), args), **kwargs)
        bias = named["attn_mask"]
        if not isinstance(bias, cls) or any(isinstance(named[n], cls) for n in ("query", "key", "value")):
            raise NotImplementedError("CausalBias can only be passed as attn_mask of scaled_dot_product_attention")
        if named.pop("is_causal", False):
            raise ValueError("CausalBias should not be used with causal=True")
        square = bias.seq_len_q == bias.seq_len_kv or bias.variant is CausalVariant.UPPER_LEFT
        named["attn_mask"] = None if square else bias._materialize(named["query"].device)
        return func(**named, is_causal=square)

    def __repr__(self):
        return repr(self._materialize())


def causal_upper_left(*size):
    """Creates a mask of shape (queries, keys) in which the first query attends to the first key
    only."""
    _two(size)
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size):
    """Creates a mask of shape (queries, keys) in which the last query attends to all keys."""
    _two(size)
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)


def _two(size):
    if len(size) != 2:
        raise AssertionError(f"a causal bias requires two sizes (queries, keys), got {len(size)}")
