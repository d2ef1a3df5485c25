"""torch.ao.quantization.observer: placeholders that raise NotImplementedError when used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "quantized tensors are not supported",
       "",
       "ObserverBase MinMaxObserver MovingAverageMinMaxObserver PerChannelMinMaxObserver "
       "MovingAveragePerChannelMinMaxObserver HistogramObserver PlaceholderObserver "
       "NoopObserver RecordingObserver")
