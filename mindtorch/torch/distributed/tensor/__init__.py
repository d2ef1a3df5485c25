"""torch.distributed.tensor: names of distributed tensors, which refuse when they are used."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: F401

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "distribute_tensor distribute_module empty ones zeros full rand randn",
       "DTensor Shard Replicate Partial Placement DeviceMesh")
