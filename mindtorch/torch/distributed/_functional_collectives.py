"""torch.distributed._functional_collectives: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "all_gather_tensor all_reduce all_to_all_single all_to_all_single_autograd wait_tensor "
       "reduce_scatter_tensor broadcast all_gather_tensor_autograd "
       "reduce_scatter_tensor_autograd",
       "AsyncCollectiveTensor")
