"""torch.distributed.tensor.parallel: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "parallelize_module loss_parallel",
       "ColwiseParallel RowwiseParallel SequenceParallel PrepareModuleInput PrepareModuleOutput "
       "PrepareModuleInputOutput ParallelStyle")
