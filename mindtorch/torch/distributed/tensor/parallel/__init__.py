"""Tensor parallelism: Linear layers split over ranks
(https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html)."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.tensor.parallel.api import parallelize_module
from mindtorch.torch.distributed.tensor.parallel.style import (ColwiseParallel, ParallelStyle, PrepareModuleInput,
                                                               PrepareModuleInputOutput, PrepareModuleOutput, RowwiseParallel,
                                                               SequenceParallel)

__all__ = ["ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
           "RowwiseParallel", "SequenceParallel", "loss_parallel", "parallelize_module"]

refuse(globals(), "compute the loss on redistributed outputs (output_layouts=Replicate())", "loss_parallel")
