"""torch.fx.passes.shape_prop: shape propagation."""
from typing import NamedTuple

from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch._types import NAMES
from mindtorch.torch.fx.interpreter import Interpreter
from mindtorch.torch.fx.node import map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """Metadata of a tensor."""

    shape: tuple
    dtype: object
    requires_grad: bool
    stride: tuple
    memory_format: object
    is_quantized: bool
    qparams: dict


_FORMATS = [NAMES[n] for n in ("contiguous_format", "channels_last", "channels_last_3d")]


def _extract_tensor_metadata(result, include_contiguity=True):
    """Returns the TensorMetadata of a tensor. Its memory format is None if no PyTorch format
    matches."""
    form = next((f for f in _FORMATS if result.is_contiguous(memory_format=f)), None) if include_contiguity else None
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), form, False, {})


class ShapeProp(Interpreter):
    """Runs a graph and stores `tensor_meta` and `type` of each value in its node's meta."""

    def run_node(self, n):
        result = super().run_node(n)
        seen = []

        def look(x):
            if is_tensor(x):
                seen.append(x)
                return _extract_tensor_metadata(x)
            return x
        meta = map_aggregate(result, look)
        if seen:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args):
        """Runs the graph on example inputs."""
        return super().run(*args)
