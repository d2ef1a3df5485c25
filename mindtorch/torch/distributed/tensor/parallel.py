"""torch.distributed.tensor.parallel: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "parameters are split over ranks by fully_shard or distribute_tensor only",
       "parallelize_module loss_parallel",
       "ColwiseParallel RowwiseParallel SequenceParallel PrepareModuleInput PrepareModuleOutput "
       "PrepareModuleInputOutput ParallelStyle")
