"""torch.ao.nn.quantized: placeholders that raise NotImplementedError when used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "quantized tensors are not supported",
       "",
       "Linear Conv1d Conv2d Conv3d FloatFunctional QFunctional Embedding EmbeddingBag Quantize "
       "DeQuantize")
