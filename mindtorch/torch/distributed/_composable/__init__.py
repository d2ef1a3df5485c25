"""torch.distributed._composable: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "checkpoint replicate fully_shard contract",
       "")
