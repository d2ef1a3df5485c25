"""Iterable pipes of decoded files (not supported)."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "write a function for `.map`, which decodes an item", "", "RoutedDecoderIterDataPipe")
