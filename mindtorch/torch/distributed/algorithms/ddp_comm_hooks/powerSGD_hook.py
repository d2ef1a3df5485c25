"""torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook: placeholders that raise
NotImplementedError when used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "use default_hooks.fp16_compress_hook or bf16_compress_hook",
       "powerSGD_hook batched_powerSGD_hook",
       "PowerSGDState")
