"""Content of a checkpoint's `.metadata` file: the shape, dtype and chunks of each key and the
location of each chunk.

These classes are pickled under PyTorch's names with PyTorch's fields, so that each library can read
the other's files.
"""
import enum
from dataclasses import dataclass, field
from typing import Any

import mindtorch.torch as torch

__all__ = ["ChunkStorageMetadata", "TensorStorageMetadata", "BytesStorageMetadata", "Metadata", "MetadataIndex",
           "TensorProperties", "StorageMeta"]


@dataclass
class ChunkStorageMetadata:
    """Box within a tensor: its offset and size in each dimension."""

    offsets: torch.Size
    sizes: torch.Size


class _MEM_FORMAT_ENCODING(enum.Enum):
    """Encoding of a memory format."""

    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


_FORMATS = {_MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT: torch.contiguous_format,
            _MEM_FORMAT_ENCODING.TORCH_CHANNELS_LAST: torch.channels_last,
            _MEM_FORMAT_ENCODING.TORCH_PRESERVE_FORMAT: torch.preserve_format}


@dataclass
class TensorProperties:
    """Properties of a tensor other than its shape."""

    dtype: torch.dtype = field(default_factory=torch.get_default_dtype)
    layout: torch.layout = torch.strided
    requires_grad: bool = False
    memory_format: torch.memory_format = torch.contiguous_format
    pin_memory: bool = False

    def __getstate__(self):
        for code, fmt in _FORMATS.items():
            if fmt is self.memory_format:
                return self.dtype, self.layout, self.requires_grad, code, self.pin_memory
        raise RuntimeError(f"Invalid torch.memory_format: {self.memory_format}")

    def __setstate__(self, state):
        self.dtype, self.layout, self.requires_grad, code, self.pin_memory = state
        self.memory_format = _FORMATS[code]

    @staticmethod
    def create_from_tensor(tensor):
        """Returns the properties of a tensor."""
        return TensorProperties(dtype=tensor.dtype, layout=tensor.layout, requires_grad=tensor.requires_grad,
                                memory_format=torch.contiguous_format, pin_memory=False)


@dataclass
class TensorStorageMetadata:
    """A tensor of a checkpoint: its full size, and the chunks in which it is stored."""

    properties: TensorProperties
    size: torch.Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """A non-tensor object of a checkpoint."""


@dataclass
class StorageMeta:
    """Identifies the checkpoint, and the save or load call, to which files belong."""

    checkpoint_id: Any = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """Complete description of a checkpoint."""

    state_dict_metadata: dict[str, Any]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    """Identifies a stored object by its key and, for a chunk of a tensor, its offset. `index` is a
    lookup hint."""

    fqn: str
    offset: torch.Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(self, fqn, offset=None, index=None):
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "offset", None if offset is None else torch.Size(offset))
