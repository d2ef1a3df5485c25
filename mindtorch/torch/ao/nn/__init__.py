"""torch.ao.nn: placeholders that raise NotImplementedError when used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "quantized tensors are not supported",
       "",
       "")
