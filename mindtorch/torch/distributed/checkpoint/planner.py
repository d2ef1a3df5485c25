"""Save and load plans: the planners that create them and their items."""
import abc
import enum
import functools
import io
import operator
from dataclasses import dataclass
from typing import Any

import mindtorch.torch as torch
from mindtorch.torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties

__all__ = ["WriteItemType", "LoadItemType", "BytesIOWriteData", "TensorWriteData", "WriteItem", "ReadItem", "SavePlan",
           "LoadPlan", "SavePlanner", "LoadPlanner"]


class WriteItemType(enum.Enum):
    """Kind of item to write: a complete tensor, a part of a tensor, or another object."""

    TENSOR = enum.auto()
    SHARD = enum.auto()
    BYTE_IO = enum.auto()


class LoadItemType(enum.Enum):
    """Kind of item to read: a part of a tensor, or another object."""

    TENSOR = enum.auto()
    BYTE_IO = enum.auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """Size of a non-tensor object."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """A chunk and the properties of its tensor."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: torch.Size


@dataclass(frozen=True)
class WriteItem:
    """One item to write."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self):
        """Returns the bytes of the chunk, or None for a non-tensor object."""
        if self.tensor_data is None:
            return None
        count = functools.reduce(operator.mul, self.tensor_data.chunk.sizes, 1)
        return count * self.tensor_data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """One item to read: `lengths` elements from `storage_offsets` of the stored object to
    `dest_offsets` of the local one."""

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: torch.Size
    storage_index: MetadataIndex
    storage_offsets: torch.Size
    lengths: torch.Size


@dataclass(frozen=True)
class SavePlan:
    """Items that one rank writes."""

    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True


@dataclass
class LoadPlan:
    """Items that one rank reads."""

    items: list[ReadItem]
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(abc.ABC):
    """Decides which rank writes what.

    `set_up_planner` and `create_local_plan` run on every rank, `create_global_plan` on the
    coordinator, `finish_plan` and `resolve_data` on every rank again.
    """

    @abc.abstractmethod
    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        """Receives the state_dict to be saved."""

    @abc.abstractmethod
    def create_local_plan(self):
        """Returns the SavePlan of this rank."""

    @abc.abstractmethod
    def create_global_plan(self, all_plans):
        """Returns (SavePlan of each rank, Metadata) from the plans of all ranks."""

    @abc.abstractmethod
    def finish_plan(self, new_plan):
        """Returns this rank's final plan."""

    @abc.abstractmethod
    def resolve_data(self, write_item):
        """Returns the tensor or io.BytesIO of an item."""


class LoadPlanner:
    """Decides what each rank reads, and receives the data."""

    @abc.abstractmethod
    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        """Receives the state_dict to be filled and the checkpoint's metadata."""

    @abc.abstractmethod
    def create_local_plan(self):
        """Returns the LoadPlan of this rank."""

    @abc.abstractmethod
    def create_global_plan(self, global_plan):
        """Returns the LoadPlan of each rank from the plans of all ranks."""

    @abc.abstractmethod
    def finish_plan(self, central_plan):
        """Returns this rank's final plan."""

    @abc.abstractmethod
    def load_bytes(self, read_item, value):
        """Receives an io.BytesIO that was read."""

    def resolve_bytes(self, read_item):
        """Returns a stream into which an item is read, for readers that request one."""
        return io.BytesIO()

    @abc.abstractmethod
    def resolve_tensor(self, read_item):
        """Returns the tensor to be filled, which has the item's lengths as its shape."""

    @abc.abstractmethod
    def commit_tensor(self, read_item, tensor):
        """Called after the tensor of `resolve_tensor` has been filled."""
