"""torch._C._functions: autograd nodes that belong to no op."""
from mindtorch.core.autograd.graph import AccumulateGrad, Node, new_node  # noqa: F401
from mindtorch.torch.autograd.function import Function


class _Failing(Function):
    @staticmethod
    def forward(ctx, message, *tensors):
        ctx.message = message
        outs = tuple(t.view_as(t) for t in tensors)
        return outs[0] if len(outs) == 1 else outs

    @staticmethod
    def backward(ctx, *gs):
        raise RuntimeError(ctx.message)


_Failing._backward_cls.__name__ = "Error"


class _Loose(Node):
    """Node outside of any graph. Calling it creates a node in the graph."""

    __slots__ = ("__dict__",)

    def __new__(cls, *args, **kwargs):
        n = new_node(cls)
        n._prim, n._next_edges, n._input_metadata = None, [], ()
        return n

    def name(self):
        return f"torch::autograd::{type(self).__name__}"


class DelayedError(_Loose):
    """DelayedError(message, num_inputs)(*tensors): returns the tensors; their backward raises
    RuntimeError(message)."""

    __slots__ = ()

    def __init__(self, message, num_inputs):
        self.message, self.num_inputs = message, num_inputs

    def __call__(self, *tensors):
        if len(tensors) != self.num_inputs:
            raise TypeError(f"expected {self.num_inputs} arguments, got {len(tensors)} instead")
        return _Failing.apply(self.message, *tensors)


class _Undefined(Function):
    @staticmethod
    def forward(ctx, *tensors):
        outs = tuple(t.view_as(t) for t in tensors)
        return outs[0] if len(outs) == 1 else outs

    @staticmethod
    def backward(ctx, *gs):
        return (None,) * len(gs)


class UndefinedGrad(_Loose):
    """UndefinedGrad()(*tensors): returns the tensors; their backward returns no gradients."""

    __slots__ = ()

    def __call__(self, *tensors):
        return _Undefined.apply(*tensors)
