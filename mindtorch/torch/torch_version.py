"""torch.torch_version: a string class that compares as a version."""
from mindtorch.torch.version import TorchVersion

__all__ = ["TorchVersion"]
