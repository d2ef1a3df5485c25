"""What is written and read, as plans: who decides them (planners), and their items."""
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
    """A whole tensor, a part of one, or something else."""

    TENSOR = enum.auto()
    SHARD = enum.auto()
    BYTE_IO = enum.auto()


class LoadItemType(enum.Enum):
    """A part of a tensor, or something else."""

    TENSOR = enum.auto()
    BYTE_IO = enum.auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """Size of something that is no tensor."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """A chunk, and the tensor that it is of."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: torch.Size


@dataclass(frozen=True)
class WriteItem:
    """One thing to write."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self):
        """Bytes of the chunk; None for what is no tensor."""
        if self.tensor_data is None:
            return None
        count = functools.reduce(operator.mul, self.tensor_data.chunk.sizes, 1)
        return count * self.tensor_data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """One thing to read: `lengths` from `storage_offsets` of what is stored to `dest_offsets` of what is here."""

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: torch.Size
    storage_index: MetadataIndex
    storage_offsets: torch.Size
    lengths: torch.Size


@dataclass(frozen=True)
class SavePlan:
    """What one rank writes."""

    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True


@dataclass
class LoadPlan:
    """What one rank reads."""

    items: list[ReadItem]
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(abc.ABC):
    """Decides what each rank writes.

    `set_up_planner` and `create_local_plan` run on every rank, `create_global_plan` on the coordinator, `finish_plan` and
    `resolve_data` on every rank again.
    """

    @abc.abstractmethod
    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        """Takes the state_dict that is to be saved."""

    @abc.abstractmethod
    def create_local_plan(self):
        """SavePlan of this rank."""

    @abc.abstractmethod
    def create_global_plan(self, all_plans):
        """(SavePlan of each rank, Metadata) from the plans of all ranks."""

    @abc.abstractmethod
    def finish_plan(self, new_plan):
        """This rank's final plan."""

    @abc.abstractmethod
    def resolve_data(self, write_item):
        """The tensor or io.BytesIO that an item stands for."""


class LoadPlanner:
    """Decides what each rank reads, and takes what was read."""

    @abc.abstractmethod
    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        """Takes the state_dict to be filled and the checkpoint's description."""

    @abc.abstractmethod
    def create_local_plan(self):
        """LoadPlan of this rank."""

    @abc.abstractmethod
    def create_global_plan(self, global_plan):
        """LoadPlan of each rank from the plans of all."""

    @abc.abstractmethod
    def finish_plan(self, central_plan):
        """This rank's final plan."""

    @abc.abstractmethod
    def load_bytes(self, read_item, value):
        """Takes an io.BytesIO that was read."""

    def resolve_bytes(self, read_item):
        """A stream that an item is to be read into; only for readers that ask for one."""
        return io.BytesIO()

    @abc.abstractmethod
    def resolve_tensor(self, read_item):
        """The tensor to be filled, of the item's lengths."""

    @abc.abstractmethod
    def commit_tensor(self, read_item, tensor):
        """Called when the tensor of `resolve_tensor` has been filled."""
