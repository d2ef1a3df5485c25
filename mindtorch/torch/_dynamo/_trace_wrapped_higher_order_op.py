"""torch._dynamo._trace_wrapped_higher_order_op."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "no graph is captured", "trace_wrapped", "TransformGetItemToIndex")
