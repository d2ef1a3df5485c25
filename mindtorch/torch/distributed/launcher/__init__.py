"""torch.distributed.launcher: start workers from Python."""
from mindtorch.torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: F401
