"""Planners that save and load complete state_dicts: replicated tensors once, DTensors shard by
shard."""
import io
from dataclasses import replace

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.distributed.checkpoint._nested_dict import flatten_state_dict, set_element
from mindtorch.torch.distributed.checkpoint.metadata import (BytesStorageMetadata, Metadata, StorageMeta,
                                                             TensorStorageMetadata)
from mindtorch.torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItemType
from mindtorch.torch.distributed.checkpoint.planner_helpers import (_create_read_items, _create_write_items,
                                                                    find_local_part)

__all__ = ["DefaultSavePlanner", "DefaultLoadPlanner", "create_default_local_load_plan", "create_default_global_load_plan",
           "create_default_local_save_plan", "create_default_global_save_plan"]


def create_default_local_save_plan(state_dict, is_coordinator):
    """Returns a SavePlan of everything that this rank has of a flat state_dict."""
    return SavePlan([item for fqn, value in state_dict.items() for item in _create_write_items(fqn, value)])


def create_default_global_save_plan(all_plans, rewrite_index_hints=True):
    """Returns (plans, Metadata) of what all ranks together write. A key may occur in one plan only,
    unless its tensor is split in chunks."""
    described, new_plans = {}, []
    for plan in all_plans:
        items = []
        for item in plan.items:
            fqn = item.index.fqn
            if item.type == WriteItemType.BYTE_IO:
                described[fqn] = BytesStorageMetadata()
                items.append(item)
                continue
            data = item.tensor_data
            md = described.setdefault(fqn, TensorStorageMetadata(data.properties, data.size, []))
            if not isinstance(md, TensorStorageMetadata) or md.size != data.size:
                raise ValueError(f"the ranks disagree about '{fqn}': {md} and a tensor of size {tuple(data.size)}")
            items.append(replace(item, index=replace(item.index, index=len(md.chunks))) if rewrite_index_hints else item)
            md.chunks.append(data.chunk)
        new_plans.append(replace(plan, items=items))
    return new_plans, Metadata(described)


def create_default_local_load_plan(state_dict, metadata, strict=True):
    """Returns a LoadPlan that fills a flat state_dict. If `strict`, raises RuntimeError for a key
    missing in the checkpoint."""
    items = []
    for fqn, value in state_dict.items():
        md = metadata.state_dict_metadata.get(fqn)
        if md is None:
            if strict:
                raise RuntimeError(f"Missing key in checkpoint state_dict: {fqn}.")
            continue
        if isinstance(md, TensorStorageMetadata) and is_tensor(value) and tuple(value.shape) != tuple(md.size):
            raise ValueError(f"Size mismatch between saved {md.size} and current: {torch.Size(value.shape)} for {fqn}")
        if isinstance(md, BytesStorageMetadata) and is_tensor(value):
            # The file's content decides: the object replaces the tensor, as in PyTorch.
            value = None
        items += _create_read_items(fqn, md, value)
    return LoadPlan(items)


def create_default_global_load_plan(all_plans):
    """Returns the ranks' plans unchanged: every rank reads what it needs."""
    return all_plans


def _dedup(plans, to_lowest):
    """Leaves each item in one plan: that of the lowest rank that has it, or of the rank with the
    least to write."""
    holders = {}
    for i, plan in enumerate(plans):
        for item in plan.items:
            holders.setdefault(item.index, []).append((i, item))
    keep = [set() for _ in plans]
    load = [0] * len(plans)
    # Assign items that only one rank has first, so that the others balance the load.
    for index, found in sorted(holders.items(), key=lambda kv: len(kv[1]) > 1):
        size = found[0][1].tensor_storage_size() or 1
        i = found[0][0] if to_lowest else min((i for i, _ in found), key=lambda i: load[i])
        keep[i].add(index)
        load[i] += size
    return [replace(p, items=[item for item in p.items if item.index in kept]) for p, kept in zip(plans, keep)]


def _check_chunks(metadata):
    """Raises ValueError unless the chunks of each tensor cover it without overlap."""
    for fqn, md in metadata.state_dict_metadata.items():
        if not isinstance(md, TensorStorageMetadata):
            continue
        volume = 0
        for i, c in enumerate(md.chunks):
            if any(o < 0 or o + n > s for o, n, s in zip(c.offsets, c.sizes, md.size)):
                raise ValueError(f"Failed to validate global plan: a chunk of '{fqn}' lies outside its size {tuple(md.size)}: {c}")
            volume += torch.Size(c.sizes).numel()
            for d in md.chunks[:i]:
                if all(a < b + m and b < a + n for a, n, b, m in zip(c.offsets, c.sizes, d.offsets, d.sizes)) and md.size:
                    raise ValueError(f"Failed to validate global plan: chunks of '{fqn}' overlap: {c} and {d}")
        if volume != torch.Size(md.size).numel():
            raise ValueError(f"Failed to validate global plan: the chunks of '{fqn}' have {volume} elements, its size "
                             f"{tuple(md.size)} requires {torch.Size(md.size).numel()}")


class DefaultSavePlanner(SavePlanner):
    """Saves a state_dict with nested dicts and lists flattened. Data replicated on several ranks is
    written by one of them.

    `flatten_sharded_tensors` and `enable_plan_caching` are accepted but have no effect.
    """

    def __init__(self, flatten_state_dict=True, flatten_sharded_tensors=True, dedup_replicated_tensors=None,
                 dedup_save_to_lowest_rank=False, enable_plan_caching=False):
        self.flatten_state_dict, self.dedup_save_to_lowest_rank = flatten_state_dict, dedup_save_to_lowest_rank
        self.mappings = {}

    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.is_coordinator = state_dict, is_coordinator

    def create_local_plan(self):
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            plan = replace(plan, planner_data=self.mappings)
        self.plan = plan
        return plan

    def create_global_plan(self, all_plans):
        plans, metadata = create_default_global_save_plan(_dedup(all_plans, self.dedup_save_to_lowest_rank))
        if self.flatten_state_dict:
            metadata = replace(metadata, planner_data={k: v for p in all_plans for k, v in p.planner_data.items()})
        _check_chunks(metadata)
        self.global_plan, self.metadata = plans, metadata
        return plans, metadata

    def finish_plan(self, new_plan):
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item):
        found = self.lookup_object(write_item.index)
        return self.transform_object(write_item, found)

    def lookup_object(self, index):
        """Returns the value, or this rank's part of it, that an index identifies."""
        return find_local_part(self.state_dict[index.fqn], index)

    def transform_object(self, write_item, object):
        """Returns the data written for a value: a tensor unchanged, anything else serialized by
        torch.save."""
        if write_item.type == WriteItemType.BYTE_IO:
            buffer = io.BytesIO()
            torch.save(object, buffer)
            return buffer
        return object


class DefaultLoadPlanner(LoadPlanner):
    """Loads into the tensors of a state_dict in place. Other values are replaced.

    Raises RuntimeError for a missing key, unless `allow_partial_load`.
    """

    def __init__(self, flatten_state_dict=True, flatten_sharded_tensors=True, allow_partial_load=False):
        self.flatten_state_dict, self.allow_partial_load = flatten_state_dict, allow_partial_load
        self.original_state_dict, self.mappings = {}, {}

    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self):
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def create_global_plan(self, global_plan):
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, central_plan):
        return central_plan

    def load_bytes(self, read_item, value):
        obj = torch.load(value, weights_only=False)
        fqn = read_item.dest_index.fqn
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[fqn], obj)
        self.state_dict[fqn] = obj

    def resolve_tensor(self, read_item):
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item, tensor):
        pass

    def lookup_tensor(self, index):
        """Returns this rank's tensor (or its part of one) that an index identifies."""
        return find_local_part(self.state_dict[index.fqn], index)

    def transform_tensor(self, read_item, tensor):
        """Returns the part of a tensor that an item fills."""
        tensor = tensor.detach()
        for dim, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths)):
            tensor = tensor.narrow(dim, start, length)
        return tensor


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Fills an empty dict with the complete checkpoint, or with `keys` of it."""

    def __init__(self, keys=None, *args, **kwargs):
        self.keys = keys
        super().__init__(*args, **kwargs)

    def _wanted(self, path):
        if self.keys is None:
            return True
        return any(".".join(map(str, path[:i])) in self.keys for i in range(1, len(path) + 1))

    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        if state_dict:
            raise ValueError("the state_dict must be empty: it is filled with what the checkpoint holds")
        paths = metadata.planner_data or {}
        for key, md in metadata.state_dict_metadata.items():
            path = paths.get(key, (key,))
            if not self._wanted(path):
                continue
            value = torch.empty(md.size, dtype=md.properties.dtype) if isinstance(md, TensorStorageMetadata) else md
            if self.flatten_state_dict:
                set_element(state_dict, path, value)
            else:
                state_dict[key] = value
        super().set_up_planner(state_dict, metadata or Metadata({}, storage_meta=StorageMeta()), is_coordinator)
