"""torch.ao.quantization.fake_quantize: placeholders that raise NotImplementedError when used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "quantized tensors are not supported",
       "disable_fake_quant enable_fake_quant disable_observer enable_observer",
       "FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize")
