"""torch.nn.parallel.scatter_gather."""
from mindtorch.torch._refusing import refuse

#: how torch.compile takes the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "refused"

refuse(globals(), "tensors are not spread over accelerators", "scatter scatter_kwargs gather is_namedtuple")
