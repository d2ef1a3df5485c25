"""Where checkpoints are kept: what a store has to offer."""
import abc
from dataclasses import dataclass
from typing import Any

from mindtorch.torch.distributed.checkpoint.metadata import MetadataIndex

__all__ = ["WriteResult", "StorageWriter", "StorageReader"]


@dataclass(frozen=True)
class WriteResult:
    """What one item became."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(abc.ABC):
    """Writes plans: `set_up_storage_writer` to `write_data` on every rank, `prepare_global_plan` and `finish` on one."""

    @abc.abstractmethod
    def reset(self, checkpoint_id=None):
        """A new checkpoint begins."""

    @abc.abstractmethod
    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        """Tells whether this rank coordinates."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan):
        """This rank's plan with storage_data of this store."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans):
        """All ranks' plans with storage_data of this store."""

    @abc.abstractmethod
    def write_data(self, plan, planner):
        """Writes what the plan says; a Future of the list of WriteResult."""

    @abc.abstractmethod
    def finish(self, metadata, results):
        """Writes the description, which makes the checkpoint valid."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        """Whether this kind of store takes such an id."""

    def storage_meta(self):
        """StorageMeta of the checkpoint, or None."""
        return None


class StorageReader(abc.ABC):
    """Reads plans."""

    @abc.abstractmethod
    def reset(self, checkpoint_id=None):
        """Another checkpoint is to be read."""

    @abc.abstractmethod
    def read_metadata(self, *args, **kwargs):
        """The checkpoint's Metadata."""

    @abc.abstractmethod
    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        """Takes the description."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan):
        """This rank's plan with storage_data of this store."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans):
        """All ranks' plans with storage_data of this store."""

    @abc.abstractmethod
    def read_data(self, plan, planner):
        """Reads what the plan says and hands it to the planner; a Future."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        """Whether this kind of store takes such an id."""
