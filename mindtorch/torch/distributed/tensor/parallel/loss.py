"""torch.distributed.tensor.parallel.loss: a name that refuses when it is used."""
from mindtorch.torch.distributed.tensor.parallel import loss_parallel  # noqa: F401
