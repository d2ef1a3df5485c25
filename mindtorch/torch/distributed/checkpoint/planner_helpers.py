"""Creation of plan items from values and chunks."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.distributed.checkpoint._local import local_chunk, local_part
from mindtorch.torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, MetadataIndex,
                                                             TensorProperties, TensorStorageMetadata)
from mindtorch.torch.distributed.checkpoint.planner import (BytesIOWriteData, LoadItemType, ReadItem, TensorWriteData,
                                                            WriteItem, WriteItemType)


def _create_write_items(fqn, value):
    """Returns the items to write for what this rank has of a value (none for a DTensor on other
    ranks)."""
    if not is_tensor(value):
        return [WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO, bytes_io_data=BytesIOWriteData(0))]
    chunk = local_chunk(value)
    if chunk is None:
        return []
    offsets, part = chunk
    size = torch.Size(value.shape)
    whole = part is value
    return [WriteItem(MetadataIndex(fqn, offsets), WriteItemType.TENSOR if whole else WriteItemType.SHARD,
            tensor_data=TensorWriteData(ChunkStorageMetadata(offsets, torch.Size(part.shape)),
                                        TensorProperties.create_from_tensor(part), size))]


def _create_read_items(fqn, md, value):
    """Returns the items to read for this rank's part of a value. Raises ValueError if the file
    contains another kind of object."""
    if not is_tensor(value):
        if not isinstance(md, BytesStorageMetadata):
            raise ValueError(f"Invalid checkpoint metadata for {fqn}, expected BytesStorageMetadata but found {type(md)}")
        index = MetadataIndex(fqn)
        none = torch.Size((0,))
        return [ReadItem(LoadItemType.BYTE_IO, index, none, index, none, none)]
    if not isinstance(md, TensorStorageMetadata):
        raise ValueError(f"Invalid checkpoint metadata for {fqn}, expected TensorStorageMetadata but found {type(md)}")
    chunk = local_chunk(value)
    if chunk is None:
        return []
    offsets, part = chunk
    return create_read_items_for_chunk_list(fqn, md, [ChunkStorageMetadata(offsets, torch.Size(part.shape))])


def create_read_items_for_chunk_list(fqn, checkpoint_md, local_chunks):
    """Returns the items to read to fill the local chunks, independent of the chunks in the file."""
    items = []
    for i, mine in enumerate(local_chunks):
        for j, stored in enumerate(checkpoint_md.chunks):
            low = [max(a, b) for a, b in zip(mine.offsets, stored.offsets)]
            high = [min(a + n, b + m) for a, n, b, m in zip(mine.offsets, mine.sizes, stored.offsets, stored.sizes)]
            if any(h <= x for x, h in zip(low, high)):
                continue
            items.append(ReadItem(
                LoadItemType.TENSOR,
                MetadataIndex(fqn, mine.offsets, i), torch.Size(x - a for x, a in zip(low, mine.offsets)),
                MetadataIndex(fqn, stored.offsets, j), torch.Size(x - a for x, a in zip(low, stored.offsets)),
                torch.Size(h - x for x, h in zip(low, high))))
    return items


def find_local_part(value, index):
    """Returns this rank's tensor that an index identifies. Raises ValueError if it does not have
    that part."""
    if index.offset is None:
        return local_part(value)
    chunk = local_chunk(value)
    if chunk is None or tuple(chunk[0]) != tuple(index.offset):
        raise ValueError(f"no part of '{index.fqn}' at offset {tuple(index.offset)} is on this rank")
    return chunk[1]
