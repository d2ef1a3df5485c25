"""torch.distributed.nn: collectives through which gradients flow."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.nn import functional  # noqa: F401
from mindtorch.torch.distributed.nn.functional import *  # noqa: F401,F403

refuse(globals(), "there is no torch.distributed.rpc", "", "RemoteModule")
