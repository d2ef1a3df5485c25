"""torch.autograd.Variable: a tensor, since PyTorch 0.4."""
from mindtorch.core.tensor import Tensor, detached, set_requires_grad


class _VariableMeta(type):
    def __instancecheck__(cls, other):
        return isinstance(other, Tensor)


class Variable(metaclass=_VariableMeta):
    """Variable(tensor, requires_grad=False): the tensor's memory as a new leaf."""

    def __new__(cls, data=None, requires_grad=False, volatile=None):
        t = detached(data)
        if requires_grad:
            set_requires_grad(t, True)
        return t
