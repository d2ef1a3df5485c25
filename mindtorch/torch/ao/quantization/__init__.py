"""torch.ao.quantization: placeholders that raise NotImplementedError when used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "quantized tensors are not supported",
       "quantize quantize_dynamic quantize_qat prepare prepare_qat convert fuse_modules "
       "fuse_modules_qat get_default_qconfig get_default_qat_qconfig "
       "get_default_qconfig_mapping get_default_qat_qconfig_mapping default_eval_fn "
       "add_quant_dequant swap_module propagate_qconfig_ float_qparams_weight_only_qconfig "
       "default_dynamic_qconfig per_channel_dynamic_qconfig float16_dynamic_qconfig "
       "disable_observer enable_observer disable_fake_quant enable_fake_quant",
       "QuantStub DeQuantStub QuantWrapper QConfig QConfigMapping FakeQuantize FakeQuantizeBase "
       "ObserverBase MinMaxObserver MovingAverageMinMaxObserver PerChannelMinMaxObserver "
       "MovingAveragePerChannelMinMaxObserver HistogramObserver PlaceholderObserver "
       "NoopObserver RecordingObserver")
