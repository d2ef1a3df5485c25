"""torch.autograd.Variable: a tensor, since PyTorch 0.4."""
from mindtorch.core.autograd import engine
from mindtorch.core.tensor.tensor import Tensor, detached, set_requires_grad


class _VariableMeta(type):
    def __instancecheck__(cls, other):
        return isinstance(other, Tensor)


class _Engine:
    """Engine functions that hooks call during a backward pass."""

    queue_callback = staticmethod(engine.call_at_end)


class Variable(metaclass=_VariableMeta):
    """Variable(tensor, requires_grad=False): returns a new leaf tensor on the tensor's memory."""

    _execution_engine = _Engine()

    def __new__(cls, data=None, requires_grad=False, volatile=None):
        t = detached(data)
        if requires_grad:
            set_requires_grad(t, True)
        return t
