"""Options of linear_cross_entropy (https://pytorch.org/docs/stable/generated/torch.nn.LinearCrossEntropyLoss.html)."""
from dataclasses import dataclass

__all__ = ["LinearCrossEntropyOptions"]

_METHODS = ("auto", "aspect_ratio", "batch_size", "memory")
_POLICIES = ("accurate", "balanced", "compact", "auto")


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """Options that control how PyTorch splits the batch into chunks to save memory.

    The loss does not depend on them. Here they are validated and otherwise have no effect.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int = None
    chunking_method: str = "auto"
    acc_policy: str = "auto"
    acc_dtype: object = None

    def __post_init__(self):
        size = self.batch_chunk_size
        if size is not None and (not isinstance(size, int) or size <= 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size}")
        if self.chunking_method is not None and self.chunking_method.split(":")[0] not in _METHODS:
            raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
