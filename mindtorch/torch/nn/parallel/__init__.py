"""Data parallelism (https://pytorch.org/docs/stable/generated/torch.nn.DataParallel.html)."""
from mindtorch.torch.nn.parallel.data_parallel import DataParallel, data_parallel
from mindtorch.torch.nn.parallel.distributed import DistributedDataParallel

#: how torch.compile treats the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "refused"

__all__ = ["data_parallel", "DataParallel", "DistributedDataParallel"]
