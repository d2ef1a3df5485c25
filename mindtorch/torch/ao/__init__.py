"""torch.ao: placeholders for quantization and pruning tools, which raise NotImplementedError when
used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "quantized tensors are not supported",
       "",
       "")
