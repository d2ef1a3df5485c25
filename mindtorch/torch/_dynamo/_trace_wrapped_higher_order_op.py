"""torch._dynamo._trace_wrapped_higher_order_op."""
import contextlib

from mindtorch.torch._refusing import refuse

refuse(globals(), "no graph is captured", "trace_wrapped")


class TransformGetItemToIndex(contextlib.ContextDecorator):
    """Context manager under which torch.vmap supports indexing with 0-d tensors. Here that always
    works."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return None
