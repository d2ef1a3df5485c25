"""torch.nn.parallel.scatter_gather."""
from mindtorch.torch._refusing import refuse

#: how torch.compile treats the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "refused"

refuse(globals(), "a process drives a single accelerator", "scatter scatter_kwargs gather is_namedtuple")
