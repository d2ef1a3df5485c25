"""torch._subclasses: placeholders for fake tensors, which are unsupported (use the meta device for
tensors without values)."""
from mindtorch.torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: F401
