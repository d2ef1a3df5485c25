"""torch.testing: comparisons for tests."""
from mindtorch.torch.testing._comparison import assert_allclose, assert_close, make_tensor  # noqa: F401

__all__ = ["assert_allclose", "assert_close", "make_tensor"]
