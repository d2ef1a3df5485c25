"""torch.distributed.tensor.parallel.loss: a name that can be imported and raises
NotImplementedError when used."""
from mindtorch.torch.distributed.tensor.parallel import loss_parallel  # noqa: F401
