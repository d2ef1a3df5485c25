"""Checkpoints in a directory: `.metadata` and one or more files `__<rank>_<n>.distcp` per rank, in
PyTorch's format.

A .distcp file is a sequence of torch.save archives, one for each tensor or object. `.metadata`
contains the offset and length of each.
"""
import concurrent.futures
import contextlib
import enum
import io
import os
import pathlib
import pickle
import uuid
import warnings
from dataclasses import dataclass, replace
from typing import Any

import mindtorch.torch as torch
from mindtorch.torch import futures, serialization
from mindtorch.torch._pickling import pickled
from mindtorch.torch.distributed.checkpoint.metadata import StorageMeta
from mindtorch.torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from mindtorch.torch.distributed.checkpoint.staging import BlockingAsyncStager
from mindtorch.torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult

__all__ = ["FileSystemWriter", "FileSystemReader", "FileSystem", "FileSystemBase", "SerializationFormat"]

_METADATA = ".metadata"
CURRENT_DCP_VERSION = "1.0.0"
_PICKLE_PROTOCOL = 4


@dataclass
class _StorageInfo:
    """Location of one stored item."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Any = None

    def __getstate__(self):
        # Files of older PyTorch releases do not have this field. It is only needed if a transform
        # was applied.
        return {k: v for k, v in self.__dict__.items() if v is not None or k != "transform_descriptors"}


@dataclass
class _StoragePrefix:
    prefix: str


class SerializationFormat(enum.Enum):
    """Serialization format of an item."""

    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


class FileSystemBase:
    """File system operations that FileSystemWriter and FileSystemReader need."""

    def create_stream(self, path, mode):
        raise NotImplementedError(f"{type(self).__name__}.create_stream")

    def concat_path(self, path, suffix):
        raise NotImplementedError(f"{type(self).__name__}.concat_path")

    def rename(self, path, new_path):
        raise NotImplementedError(f"{type(self).__name__}.rename")

    def init_path(self, path):
        raise NotImplementedError(f"{type(self).__name__}.init_path")

    def mkdir(self, path):
        raise NotImplementedError(f"{type(self).__name__}.mkdir")

    def exists(self, path):
        raise NotImplementedError(f"{type(self).__name__}.exists")

    def rm_file(self, path):
        raise NotImplementedError(f"{type(self).__name__}.rm_file")

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        raise NotImplementedError(f"{cls.__name__}.validate_checkpoint_id")


class FileSystem(FileSystemBase):
    """The local file system."""

    @contextlib.contextmanager
    def create_stream(self, path, mode):
        with open(path, mode) as stream:
            yield stream

    def concat_path(self, path, suffix):
        return pathlib.Path(path) / suffix

    def init_path(self, path):
        return pathlib.Path(path)

    def rename(self, path, new_path):
        os.replace(path, new_path)

    def mkdir(self, path):
        os.makedirs(path, exist_ok=True)

    def exists(self, path):
        return os.path.exists(path)

    def rm_file(self, path):
        os.unlink(path)

    def ls(self, path):
        return os.listdir(path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        """True for a path with a writable existing parent, False for a URL such as s3://."""
        if isinstance(checkpoint_id, pathlib.Path):
            return True
        if "://" in str(checkpoint_id):
            return False
        return any(p.exists() and os.access(str(p), os.W_OK) for p in pathlib.Path(checkpoint_id).absolute().parents)


def _sized(item):
    return item.tensor_storage_size() or 0


def _split(items, count):
    """Distributes items over `count` lists of about the same total size, largest items first."""
    lots, sizes = [[] for _ in range(count)], [0] * count
    for item in sorted(items, key=_sized, reverse=True):
        i = sizes.index(min(sizes))
        lots[i].append(item)
        sizes[i] += _sized(item)
    return [lot for lot in lots if lot]


class FileSystemWriter(BlockingAsyncStager, StorageWriter):
    """Writes a checkpoint to the directory `path`
    (https://docs.pytorch.org/docs/stable/distributed.checkpoint.html).

    Writes one file per rank, or with single_file_per_rank=False one per item, using `thread_count`
    threads.
    """

    def __init__(self, path, single_file_per_rank=True, sync_files=True, thread_count=1, per_thread_copy_ahead=10_000_000,
                 cache_staged_state_dict=False, overwrite=True, _extensions=None,
                 serialization_format=SerializationFormat.TORCH_SAVE):
        BlockingAsyncStager.__init__(self, cache_staged_state_dict=cache_staged_state_dict)
        if _extensions:
            raise NotImplementedError("FileSystemWriter with stream transforms (_extensions) is not supported")
        if serialization_format is not SerializationFormat.TORCH_SAVE:
            raise NotImplementedError(f"FileSystemWriter with serialization_format={serialization_format} is not supported: "
                                      "use SerializationFormat.TORCH_SAVE")
        self.fs = FileSystem()
        self.path = self.fs.init_path(path)
        self.single_file_per_rank, self.sync_files, self.thread_count = single_file_per_rank, sync_files, thread_count
        self.per_thread_copy_ahead, self.overwrite = per_thread_copy_ahead, overwrite
        self.save_id = str(uuid.uuid4())
        self.rank = None
        self.use_collectives = True

    def reset(self, checkpoint_id=None):
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.save_id = str(uuid.uuid4())

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        self.rank = kwargs.get("rank")
        self.use_collectives = kwargs.get("use_collectives", True)

    def _metadata_path(self):
        if self.use_collectives:
            return self.fs.concat_path(self.path, _METADATA)
        return self.fs.concat_path(self.path, f"__{self.rank}{_METADATA}")

    def _make_way(self):
        path = self._metadata_path()
        if self.fs.exists(path):
            if not self.overwrite:
                raise RuntimeError(f"Checkpoint already exists and self.overwrite={self.overwrite}.")
            warnings.warn(f"Detected an existing checkpoint in {path}, overwriting since self.overwrite={self.overwrite}. "
                          "Past version 2.5 of PyTorch, `overwrite` will default to False. Set this variable to True to "
                          "maintain this functionality or False to raise when an existing checkpoint is found.", stacklevel=3)
            # Delete the metadata first and write it last: a half-overwritten checkpoint is then
            # invalid, and does not load as a mixture of two.
            self.fs.rm_file(path)

    def prepare_local_plan(self, plan):
        self.fs.mkdir(self.path)
        if not self.use_collectives:
            self._make_way()
            return replace(plan, storage_data=_StoragePrefix(f"__{self.rank}_"))
        return plan

    def prepare_global_plan(self, plans):
        self._make_way()
        return [replace(p, storage_data=_StoragePrefix(f"__{i}_")) for i, p in enumerate(plans)]

    def write_data(self, plan, planner):
        prefix = plan.storage_data.prefix
        if self.single_file_per_rank:
            lots = _split(plan.items, max(self.thread_count, 1)) if self.thread_count > 1 else [plan.items] if plan.items else []
        else:
            lots = [[item] for item in plan.items]
        named = [(f"{prefix}{i}.distcp", lot) for i, lot in enumerate(lots)]
        results = []
        if self.thread_count > 1:
            with concurrent.futures.ThreadPoolExecutor(self.thread_count) as pool:
                for r in pool.map(lambda a: self._write(*a, planner), named):
                    results += r
        else:
            for name, lot in named:
                results += self._write(name, lot, planner)
        done = futures.Future()
        done.set_result(results)
        return done

    def _write(self, name, items, planner):
        results = []
        with self.fs.create_stream(self.fs.concat_path(self.path, name), "wb") as stream:
            for item in sorted(items, key=lambda item: item.type != WriteItemType.BYTE_IO):     # objects first
                data = planner.resolve_data(item)
                offset = stream.tell()
                if item.type == WriteItemType.BYTE_IO:
                    stream.write(data.getbuffer())
                else:
                    buffer = io.BytesIO()
                    # Clone, so that no more of the storage than the chunk itself is written.
                    torch.save(data.detach().cpu().clone(memory_format=torch.contiguous_format), buffer)
                    stream.write(buffer.getbuffer())
                length = stream.tell() - offset
                results.append(WriteResult(item.index, length, _StorageInfo(name, offset, length)))
            if self.sync_files:
                _sync(stream)
        return results

    def finish(self, metadata, results):
        path = self._metadata_path()
        metadata = replace(metadata, version=CURRENT_DCP_VERSION, storage_meta=self.storage_meta(),
                           storage_data={r.index: r.storage_data for rank in results for r in rank})
        data, _ = pickled(metadata, pickle, _PICKLE_PROTOCOL, False, serialization.location_tag)
        temporary = self.fs.concat_path(self.path, f"{path.name}.tmp")
        with self.fs.create_stream(temporary, "wb") as stream:
            stream.write(data)
            if self.sync_files:
                _sync(stream)
        self.fs.rename(temporary, path)
        self.metadata_path = path
        return metadata

    def storage_meta(self):
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self.save_id)

    @property
    def checkpoint_id(self):
        """The directory."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return FileSystem.validate_checkpoint_id(checkpoint_id)


def _sync(stream):
    stream.flush()
    try:
        os.fsync(stream.fileno())
    except (AttributeError, io.UnsupportedOperation):
        os.sync()  # a stream that is not a file


class FileSystemReader(StorageReader):
    """Reads a checkpoint written by a FileSystemWriter (mindtorch's or PyTorch's) to the directory
    `path`."""

    def __init__(self, path, _extension_registry=None):
        self.fs = FileSystem()
        self.path = self.fs.init_path(path)
        self.storage_data = {}
        self.load_id = str(uuid.uuid4())
        self.rank = None

    def reset(self, checkpoint_id=None):
        self.storage_data = {}
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.load_id = str(uuid.uuid4())

    @property
    def checkpoint_id(self):
        """The directory."""
        return self.path

    def read_metadata(self, *args, **kwargs):
        rank = kwargs.get("rank")
        path = self.fs.concat_path(self.path, _METADATA if rank is None else f"__{rank}{_METADATA}")
        with self.fs.create_stream(path, "rb") as stream:
            metadata = serialization._unpickler_class(pickle.Unpickler)(stream).load()
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        self.storage_data = metadata.storage_data
        self.rank = kwargs.get("rank")

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def read_data(self, plan, planner):
        files = {}
        for item in plan.items:
            info = self.storage_data.get(item.storage_index)
            if info is None:
                raise ValueError(f"the checkpoint's metadata has no storage location for {item.storage_index}")
            if getattr(info, "transform_descriptors", None):
                raise NotImplementedError(f"'{item.storage_index.fqn}' was stored through the stream transforms "
                                          f"{info.transform_descriptors}, which are not supported")
            files.setdefault(info.relative_path, {}).setdefault((info.offset, info.length), []).append(item)
        for name, places in files.items():
            with self.fs.create_stream(self.fs.concat_path(self.path, name), "rb") as stream:
                for (offset, length), items in sorted(places.items(), key=lambda p: p[0]):
                    stream.seek(offset)
                    data = stream.read(length)
                    if len(data) != length:
                        raise EOFError(f"{name} ends after {offset + len(data)} bytes, where '{items[0].storage_index.fqn}' "
                                       f"needs {offset + length}: the checkpoint is truncated")
                    self._hand_over(io.BytesIO(data), items, planner)
        done = futures.Future()
        done.set_result(None)
        return done

    @staticmethod
    def _hand_over(data, items, planner):
        stored = None
        for item in items:
            if item.type == LoadItemType.BYTE_IO:
                data.seek(0)
                planner.load_bytes(item, data)
                continue
            if stored is None:
                stored = torch.load(data, map_location="cpu", weights_only=True)
            part = stored
            for dim, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
                part = part.narrow(dim, start, length)
            target = planner.resolve_tensor(item).detach()
            if target.shape != part.shape:
                raise AssertionError(f"req {item.storage_index} mismatch sizes {target.shape} vs {part.shape}")
            target.copy_(part)
            planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return FileSystem.validate_checkpoint_id(checkpoint_id)
