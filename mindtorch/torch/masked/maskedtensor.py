"""torch.masked.MaskedTensor, which is not supported: its constructors raise NotImplementedError."""

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]


def _refuse(name, data):
    raise NotImplementedError(f"torch.masked.{name} is not supported (dtype {getattr(data, 'dtype', type(data).__name__)}, device "
                              f"{getattr(data, 'device', 'cpu')}): use the functions of torch.masked with mask=, such as "
                              "torch.masked.sum(x, mask=m)")


class MaskedTensor:
    """A tensor with a mask. Not supported: the constructor raises NotImplementedError."""

    def __new__(cls, data, mask, requires_grad=False):
        _refuse("MaskedTensor", data)


def masked_tensor(data, mask, requires_grad=False):
    """Would copy the data into a MaskedTensor: raises NotImplementedError."""
    _refuse("masked_tensor", data)


def as_masked_tensor(data, mask):
    """Would wrap the data in a MaskedTensor: raises NotImplementedError."""
    _refuse("as_masked_tensor", data)


def is_masked_tensor(obj, /):
    """True if `obj` is a MaskedTensor. Always False, because none can be created."""
    return isinstance(obj, MaskedTensor)
