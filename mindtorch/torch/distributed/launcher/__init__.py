"""torch.distributed.launcher: starts workers from Python."""
from mindtorch.torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: F401
