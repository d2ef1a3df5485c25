"""torch.distributed.nn: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.nn import functional  # noqa: F401

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "",
       "RemoteModule")
