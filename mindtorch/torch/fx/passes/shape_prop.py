"""torch.fx.passes.shape_prop: the shapes of a program's values, noted at its nodes."""
from typing import NamedTuple

from mindtorch.core.tensor import taken
from mindtorch.torch._types import NAMES
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


_FORMATS = [NAMES[n] for n in ("contiguous_format", "channels_last", "channels_last_3d")]


def _extract_tensor_metadata(result, include_contiguity=True):
    """The TensorMetadata of a tensor; its memory format is None if it has none of torch's."""
    form = next((f for f in _FORMATS if result.is_contiguous(memory_format=f)), None) if include_contiguity else None
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), form, False, {})


class ShapeProp(Interpreter):
    """Runs a program and notes each value's `tensor_meta` and `type` in its node's meta."""

    def run_node(self, n):
        result = super().run_node(n)
        seen = []

        def look(x):
            if taken(x):
                seen.append(x)
                return _extract_tensor_metadata(x)
            return x
        meta = map_aggregate(result, look)
        if seen:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args):
        """Runs the program on example inputs."""
        return super().run(*args)
