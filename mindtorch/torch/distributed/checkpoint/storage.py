"""Interfaces of checkpoint storage."""
import abc
from dataclasses import dataclass
from typing import Any

from mindtorch.torch.distributed.checkpoint.metadata import MetadataIndex

__all__ = ["WriteResult", "StorageWriter", "StorageReader"]


@dataclass(frozen=True)
class WriteResult:
    """Result of writing one item."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(abc.ABC):
    """Writes plans: `set_up_storage_writer` to `write_data` run on every rank,
    `prepare_global_plan` and `finish` on one."""

    @abc.abstractmethod
    def reset(self, checkpoint_id=None):
        """Starts a new checkpoint."""

    @abc.abstractmethod
    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        """Passes whether this rank is the coordinator."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan):
        """Returns this rank's plan with this storage's storage_data."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans):
        """Returns all ranks' plans with this storage's storage_data."""

    @abc.abstractmethod
    def write_data(self, plan, planner):
        """Writes the plan's items and returns a Future of a list of WriteResult."""

    @abc.abstractmethod
    def finish(self, metadata, results):
        """Writes the metadata, which makes the checkpoint valid."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        """True if this kind of storage accepts the id."""

    def storage_meta(self):
        """Returns the StorageMeta of the checkpoint, or None."""
        return None


class StorageReader(abc.ABC):
    """Reads plans."""

    @abc.abstractmethod
    def reset(self, checkpoint_id=None):
        """Selects another checkpoint to read."""

    @abc.abstractmethod
    def read_metadata(self, *args, **kwargs):
        """Returns the checkpoint's Metadata."""

    @abc.abstractmethod
    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        """Receives the metadata."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan):
        """Returns this rank's plan with this storage's storage_data."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans):
        """Returns all ranks' plans with this storage's storage_data."""

    @abc.abstractmethod
    def read_data(self, plan, planner):
        """Reads the plan's items and passes them to the planner. Returns a Future."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        """True if this kind of storage accepts the id."""
