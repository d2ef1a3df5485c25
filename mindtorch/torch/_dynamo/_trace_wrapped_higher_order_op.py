"""torch._dynamo._trace_wrapped_higher_order_op."""
import contextlib

from mindtorch.torch._refusing import refuse

refuse(globals(), "no graph is captured", "trace_wrapped")


class TransformGetItemToIndex(contextlib.ContextDecorator):
    """Context manager: inside torch.vmap, tensors are indexed by tensors of no dimensions. Here they always can be."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return None
