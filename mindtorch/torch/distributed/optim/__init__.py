"""Optimizers that are sharded over processes, and optimizers whose step takes the gradients as
arguments."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.optim.utils import (  # noqa: F401
    _FunctionalAdadelta,
    _FunctionalAdagrad,
    _FunctionalAdam,
    _FunctionalAdamax,
    _FunctionalAdamW,
    _FunctionalRMSprop,
    _FunctionalRprop,
    _FunctionalSGD,
    as_functional_optim,
)
from mindtorch.torch.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["as_functional_optim", "DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]

refuse(globals(), "it needs torch.distributed.rpc, which is not supported; use ZeroRedundancyOptimizer", "DistributedOptimizer")
refuse(globals(), "average the parameters with torch.distributed.all_reduce every few steps instead", "", "PostLocalSGDOptimizer")
