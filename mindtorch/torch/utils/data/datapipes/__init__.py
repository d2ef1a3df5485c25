"""Data pipes: datasets that are put together like iterators (kept by torch for older programs)."""
from mindtorch.torch.utils.data.datapipes import datapipe, iter, map  # noqa: F401
