"""Optimizers that are spread over processes."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["as_functional_optim", "DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]

refuse(globals(), "it needs torch.distributed.rpc or TorchScript, which are not offered; use ZeroRedundancyOptimizer",
       "as_functional_optim", "DistributedOptimizer")
refuse(globals(), "average the parameters with torch.distributed.all_reduce every few steps instead", "", "PostLocalSGDOptimizer")
