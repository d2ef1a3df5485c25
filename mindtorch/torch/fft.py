"""torch.fft: discrete Fourier transforms (https://pytorch.org/docs/stable/fft.html). The names come
from the op table."""
from mindtorch.torch import _namespace

_namespace.fill(globals(), "fft")
__all__ = [_n for _n in globals() if not _n.startswith("_")]
