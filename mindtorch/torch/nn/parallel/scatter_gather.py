"""torch.nn.parallel.scatter_gather."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "tensors are not spread over accelerators", "scatter scatter_kwargs gather is_namedtuple")
