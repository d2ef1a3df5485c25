"""torch.distributed.algorithms.ddp_comm_hooks.default_hooks: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "allreduce_hook fp16_compress_hook bf16_compress_hook fp16_compress_wrapper "
       "bf16_compress_wrapper",
       "")
