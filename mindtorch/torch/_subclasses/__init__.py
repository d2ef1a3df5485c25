"""torch._subclasses: fake tensors, of which there are none; the meta device has tensors without values."""
from mindtorch.torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: F401
