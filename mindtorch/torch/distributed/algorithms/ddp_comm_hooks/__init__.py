"""torch.distributed.algorithms.ddp_comm_hooks: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "register_ddp_comm_hook",
       "DDPCommHookType")
