"""torch.cuda.graphs: placeholders for CUDA graphs, which are unsupported."""
from mindtorch.torch.cuda import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_callables

__all__ = ["is_current_stream_capturing", "graph_pool_handle", "CUDAGraph", "graph", "make_graphed_callables"]
