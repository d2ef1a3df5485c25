"""Errors of inter-process communication; torch.distributed exports them under PyTorch's names."""


class DistError(RuntimeError):
    """Base class of the errors of torch.distributed."""

    __module__ = "torch.distributed"


class DistBackendError(DistError):
    """A collective or point-to-point operation failed: a peer died, timed out, or called a
    different operation."""

    __module__ = "torch.distributed"


class DistNetworkError(DistError):
    """A connection could not be established or was lost."""

    __module__ = "torch.distributed"


class DistStoreError(DistError):
    """A store did not answer, or a key was not set in time."""

    __module__ = "torch.distributed"


class QueueEmptyError(DistStoreError):
    """A queue of a store is empty."""

    __module__ = "torch.distributed"
