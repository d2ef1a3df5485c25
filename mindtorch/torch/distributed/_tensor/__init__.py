"""torch.distributed._tensor: older name of torch.distributed.tensor."""
from mindtorch.torch.distributed.tensor import (DTensor, DeviceMesh, Partial, Placement, Replicate, Shard,  # noqa: F401
                                                distribute_module, distribute_tensor, init_device_mesh)
