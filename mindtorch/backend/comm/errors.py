"""Errors of communication between processes; torch.distributed exports them under torch's names."""


class DistError(RuntimeError):
    """An error of torch.distributed."""

    __module__ = "torch.distributed"


class DistBackendError(DistError):
    """A collective or point-to-point operation failed: a peer is dead, late, or called something else."""

    __module__ = "torch.distributed"


class DistNetworkError(DistError):
    """A connection could not be made or was lost."""

    __module__ = "torch.distributed"


class DistStoreError(DistError):
    """A store did not answer, or a key did not come in time."""

    __module__ = "torch.distributed"


class QueueEmptyError(DistStoreError):
    """A queue of a store holds nothing."""

    __module__ = "torch.distributed"
