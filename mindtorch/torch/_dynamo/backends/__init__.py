"""torch._dynamo.backends: the values that torch.compile accepts as `backend`."""
from mindtorch.torch._dynamo.backends import registry  # noqa: F401
