"""torch.distributed.tensor._utils: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "compute_local_shape_and_global_offset compute_global_tensor_info compute_local_shape",
       "")
