"""torch.distributed.tensor: tensors distributed over a mesh of processes."""
from mindtorch.torch.distributed.tensor import _ops  # noqa: F401  (calls of torch's functions)
from mindtorch.torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: F401
from mindtorch.torch.distributed.tensor._api import (DTensor, distribute_module, distribute_tensor, empty, full, ones, rand,  # noqa: F401
                                                     randn, zeros)
from mindtorch.torch.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard  # noqa: F401

__all__ = ["DTensor", "distribute_tensor", "distribute_module", "Shard", "Replicate", "Partial", "Placement", "ones", "empty",
           "full", "rand", "randn", "zeros"]
