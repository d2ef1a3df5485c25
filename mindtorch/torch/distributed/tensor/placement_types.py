"""torch.distributed.tensor.placement_types: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.tensor import Partial, Placement, Replicate, Shard  # noqa: F401

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False", "", "_StridedShard")
