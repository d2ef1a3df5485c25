"""torch.distributed.device_mesh: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "init_device_mesh",
       "DeviceMesh")
