"""torch.fx.passes.shape_prop: the shapes of a program's values, noted at its nodes."""
from typing import NamedTuple

from mindtorch.core.tensor import taken
from mindtorch.torch.fx.interpreter import Interpreter
from mindtorch.torch.fx.node import map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What a tensor is like."""

    shape: tuple
    dtype: object
    requires_grad: bool
    stride: tuple
    memory_format: object
    is_quantized: bool
    qparams: dict


class ShapeProp(Interpreter):
    """Runs a program and notes each value's `tensor_meta` and `type` in its node's meta."""

    def run_node(self, n):
        result = super().run_node(n)
        seen = []

        def look(x):
            if taken(x):
                seen.append(x)
                return TensorMetadata(x.shape, x.dtype, x.requires_grad, x.stride(), None, False, {})
            return x
        meta = map_aggregate(result, look)
        if seen:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args):
        """Runs the program on example inputs."""
        return super().run(*args)
