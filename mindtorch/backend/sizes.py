"""Size arithmetic shared by ops and the kernels of every device."""
from __future__ import annotations

from collections.abc import Sequence

from mindtorch.backend.interface import Sizes



def out_size(size: Sizes, kernel: Sizes, stride: Sizes, padding: Sequence[tuple[int, int]], dilation: Sizes) -> Sizes:
    """Returns the spatial sizes of a convolution's result; `padding` holds (before, after) pairs.
    """
    return tuple((n + lo + hi - d * (k - 1) - 1) // s + 1
                 for n, k, s, (lo, hi), d in zip(size, kernel, stride, padding, dilation))
