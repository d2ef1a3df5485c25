"""torch.fft: discrete Fourier transforms (https://pytorch.org/docs/stable/fft.html), filled from the op table."""
from mindtorch.torch import _namespace

__all__ = _namespace.fill(globals(), "fft")
