"""torch.nested, which is not supported: every function raises NotImplementedError.

Pad (torch.nn.utils.rnn.pad_sequence) or pack (pack_sequence) tensors of different lengths instead.
"""

__all__ = ["as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor"]


def _refuse(name, given, dtype=None):
    first = given[0] if isinstance(given, (list, tuple)) and given else given
    dtype = dtype or getattr(first, "dtype", None) or type(first).__name__
    raise NotImplementedError(f"torch.nested.{name} is not supported (dtype {dtype}, device {getattr(first, 'device', 'cpu')}): pad the "
                              "tensors with torch.nn.utils.rnn.pad_sequence or pack them with pack_sequence")


def nested_tensor(tensor_list, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """Would copy tensors into a nested tensor: raises NotImplementedError."""
    _refuse("nested_tensor", tensor_list, dtype)


def as_nested_tensor(ts, dtype=None, device=None, layout=None):
    """Would convert tensors to a nested tensor: raises NotImplementedError."""
    _refuse("as_nested_tensor", ts, dtype)


def nested_tensor_from_jagged(values, offsets=None, lengths=None, jagged_dim=None, min_seqlen=None, max_seqlen=None):
    """Would build a nested tensor from one contiguous tensor of values: raises NotImplementedError.
    """
    _refuse("nested_tensor_from_jagged", values)


def narrow(tensor, dim, start, length, layout=None):
    """Would narrow each row by its own start and length: raises NotImplementedError."""
    _refuse("narrow", tensor)


def masked_select(tensor, mask):
    """Would select the masked elements of each row: raises NotImplementedError."""
    _refuse("masked_select", tensor)


def to_padded_tensor(input, padding, output_size=None, out=None):
    """Would pad a nested tensor to a plain one: raises NotImplementedError."""
    _refuse("to_padded_tensor", input)
