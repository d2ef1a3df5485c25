"""torch.distributed.rpc.api: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "_require_initialized _wait_all",
       "")
