"""torch.ao.quantization.quantize_fx: placeholders that raise NotImplementedError when used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "quantized tensors are not supported",
       "prepare_fx prepare_qat_fx convert_fx fuse_fx",
       "")
