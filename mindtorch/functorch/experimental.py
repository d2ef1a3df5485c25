"""functorch.experimental: functions of torch.func that were once experimental."""
from mindtorch.torch.func import chunk_vmap, functionalize, hessian, jacfwd, jvp, replace_all_batch_norm_modules_

__all__ = ["chunk_vmap", "functionalize", "hessian", "jacfwd", "jvp", "replace_all_batch_norm_modules_"]
