"""torch.distributed.checkpoint.default_planner: names that refuse when they are used."""
from mindtorch.torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner  # noqa: F401
