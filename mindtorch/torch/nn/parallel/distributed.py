"""torch.nn.parallel.distributed."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False", "", "DistributedDataParallel")
