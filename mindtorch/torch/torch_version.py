"""torch.torch_version: a version string that compares as a version."""
from mindtorch.torch.version import TorchVersion

__all__ = ["TorchVersion"]
