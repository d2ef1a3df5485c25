"""Conversion of checkpoint directories to torch.save files and back."""
import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch import futures
from mindtorch.torch.distributed.checkpoint._nested_dict import flatten_state_dict
from mindtorch.torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from mindtorch.torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from mindtorch.torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata,
                                                             TensorProperties, TensorStorageMetadata)
from mindtorch.torch.distributed.checkpoint.planner import LoadItemType
from mindtorch.torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from mindtorch.torch.distributed.checkpoint.state_dict_saver import _save_state_dict
from mindtorch.torch.distributed.checkpoint.storage import StorageReader

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp", "BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner"]


def whole_state_dict(dcp_checkpoint_dir, flat=False):
    """Returns the complete content of a checkpoint, nested as it was saved or with flat keys. Runs
    in this process only."""
    state = {}
    planner = _EmptyStateDictLoadPlanner(flatten_state_dict=not flat)
    _load_state_dict(state, FileSystemReader(dcp_checkpoint_dir), planner=planner, no_dist=True)
    return state


def dcp_to_torch_save(dcp_checkpoint_dir, torch_save_path):
    """Writes a complete checkpoint as one torch.save file. Runs in this process only."""
    torch.save(whole_state_dict(dcp_checkpoint_dir), torch_save_path)


def torch_save_to_dcp(torch_save_path, dcp_checkpoint_dir):
    """Writes a torch.save file of a state_dict as a checkpoint. Runs in this process only."""
    state = torch.load(torch_save_path, weights_only=False)
    _save_state_dict(state, FileSystemWriter(dcp_checkpoint_dir), None, 0, True, None)


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a torch.save file on the coordinator and sends its tensors to the other ranks."""

    def __init__(self, checkpoint_id=None, coordinator_rank=0):
        self.checkpoint_id, self.coordinator_rank = checkpoint_id, coordinator_rank

    def reset(self, checkpoint_id=None):
        self.checkpoint_id = checkpoint_id or self.checkpoint_id

    def read_metadata(self, *args, **kwargs):
        return Metadata(state_dict_metadata={})

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        self.is_coordinator = is_coordinator

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def read_data(self, plan, planner):
        flat = flatten_state_dict(torch.load(self.checkpoint_id, map_location="cpu", weights_only=False))[0] \
            if self.is_coordinator else {}
        together = dist.is_available() and dist.is_initialized()
        wanted = {}
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                raise NotImplementedError(f"BroadcastingTorchSaveReader only reads tensors: '{item.storage_index.fqn}' is not a tensor")
            wanted.setdefault(item.storage_index.fqn, []).append(item)
        keys = [k for k, v in flat.items() if is_tensor(v)]
        if together:
            box = [keys]
            dist.broadcast_object_list(box, src=self.coordinator_rank)
            keys = box[0]
        missing = sorted(set(wanted) - set(keys))
        for key in keys:
            # One at a time and in the same order on all ranks, whichever parts a rank has.
            box = [flat.get(key)]
            if together:
                dist.broadcast_object_list(box, src=self.coordinator_rank)
            for item in wanted.get(key, ()):
                part = box[0]
                for dim, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
                    part = part.narrow(dim, start, length)
                target = planner.resolve_tensor(item).detach()
                if target.shape != part.shape:
                    raise AssertionError(f"req {item.storage_index} mismatch sizes, {target.shape} vs {part.shape}")
                target.copy_(part)
                planner.commit_tensor(item, target)
        if missing:
            raise RuntimeError(f"Missing key in checkpoint state_dict: {', '.join(missing)}.")
        done = futures.Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        import os

        return os.path.isfile(checkpoint_id)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Derives the metadata of a checkpoint without metadata (a torch.save file) from the state_dict
    to be filled."""

    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        super().set_up_planner(state_dict, metadata, is_coordinator)
        described = {}
        for key, value in self.state_dict.items():
            if not is_tensor(value):
                described[key] = BytesStorageMetadata()
                continue
            size = torch.Size(value.shape)
            described[key] = TensorStorageMetadata(TensorProperties(dtype=value.dtype), size,
                                                   [ChunkStorageMetadata(torch.Size([0] * len(size)), size)])
        self.metadata = Metadata(described)
