"""torch.ao: names of quantization and pruning tools, which refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "quantized tensors are not supported",
       "",
       "")
