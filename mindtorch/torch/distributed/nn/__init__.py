"""torch.distributed.nn: differentiable collectives."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.nn import functional  # noqa: F401
from mindtorch.torch.distributed.nn.functional import *  # noqa: F401,F403

refuse(globals(), "it needs torch.distributed.rpc, which is not supported", "", "RemoteModule")
