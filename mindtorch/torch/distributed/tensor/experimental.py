"""torch.distributed.tensor.experimental: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "only torch.distributed.tensor's stable interface is offered", "context_parallel implicit_replication local_map "
       "register_sharding")
