"""torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "powerSGD_hook batched_powerSGD_hook",
       "PowerSGDState")
