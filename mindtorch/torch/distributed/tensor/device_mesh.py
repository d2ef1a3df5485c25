"""torch.distributed.tensor.device_mesh: older location of DeviceMesh."""
from mindtorch.torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: F401
