"""torch.distributed.nn.functional: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce "
       "reduce_scatter scatter",
       "")
