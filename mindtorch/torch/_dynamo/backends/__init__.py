"""torch._dynamo.backends: what torch.compile takes as `backend`."""
from mindtorch.torch._dynamo.backends import registry  # noqa: F401
