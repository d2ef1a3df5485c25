"""MindSpore's distributed checkpoints: one folder per rank, and a strategy file that describes how
parameters are split.

Converts between these and the folders of torch.distributed.checkpoint, so that
`mindspore.transform_checkpoints`, `load_distributed_checkpoint` and training under
SEMI_AUTO_PARALLEL can use checkpoints written here, and vice versa.
"""
import glob
import json
import os

import mindspore as ms
import numpy as np
from mindspore.train import node_strategy_pb2

from mindtorch.core.tensor.tensor import wrap_array
from mindtorch.torch.distributed.checkpoint.default_planner import DefaultSavePlanner, create_default_global_save_plan
from mindtorch.torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from mindtorch.torch.distributed.checkpoint.format_utils import whole_state_dict
from mindtorch.torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, MetadataIndex, TensorProperties,
                                                             TensorStorageMetadata)
from mindtorch.torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

__all__ = ["write_rank_checkpoints", "read_rank_checkpoints"]


def _split_dim(md, ranks):
    """Returns the dimension along which a stored tensor is split, if it can be split there into
    `ranks` equal parts; else None."""
    starts = [{c.offsets[d] for c in md.chunks} for d in range(len(md.size))]
    split = [d for d, s in enumerate(starts) if len(s) > 1]
    return split[0] if len(split) == 1 and md.size[split[0]] % ranks == 0 else None


def write_rank_checkpoints(checkpoint, folder, ranks, prefix="checkpoint", strategy_file=None, key="", split=None, integrated=False):
    """Writes a checkpoint of torch.distributed.checkpoint as `folder/rank_<i>/<prefix>.ckpt` and a
    strategy file.

    Tensors stored in parts along one dimension are split along that dimension; the others are
    complete in every rank's file. `split` ({name: dimension or None}) overrides this. `key`
    ("model") selects the tensors below it and removes it from their names. With `integrated`, every
    rank's file has complete tensors, and there is no strategy file. The extension of the strategy
    file selects its format: JSON for .json, else protobuf; the default is
    `folder/src_strategy.ckpt`.

    Returns the names of the entries left out because they are not tensors.
    """
    metadata = FileSystemReader(checkpoint).read_metadata()
    below = key + "." if key else ""
    chosen = {n[len(below):]: md for n, md in metadata.state_dict_metadata.items() if n.startswith(below)}
    if not chosen:
        raise KeyError(f"the checkpoint has no entries below '{key}'")
    split = split or {}
    unknown = sorted(set(split) - set(chosen))
    if unknown:
        raise KeyError(f"no such tensors: {', '.join(unknown)}")
    layouts, dims = {}, {}
    for name, md in chosen.items():
        if not isinstance(md, TensorStorageMetadata):
            continue
        d = None if integrated else split[name] if name in split else _split_dim(md, ranks)
        if d is not None and md.size[d] % ranks:
            raise ValueError(f"'{name}' of shape {tuple(md.size)} cannot be split into {ranks} equal parts along dimension {d}")
        dims[name] = d
        shape = [s // ranks if i == d else s for i, s in enumerate(md.size)]
        layouts[name] = {"dev_matrix": [ranks], "tensor_map": [0 if i == d else -1 for i in range(len(shape))],
                         "param_split_shape": shape, "indices_offset": [], "field": 0, "opt_weight_shard_step": 0,
                         "opt_weight_shard_size": 0}
    whole = whole_state_dict(checkpoint, flat=True)
    for rank in range(ranks):
        items = []
        for name, d in dims.items():
            a = whole[below + name]._array
            if d is not None:
                n = a.shape[d] // ranks
                a = np.take(a, range(rank * n, (rank + 1) * n), axis=d)
            items.append({"name": name, "data": wrap_array(np.ascontiguousarray(a))})
        os.makedirs(os.path.join(folder, f"rank_{rank}"), exist_ok=True)
        ms.save_checkpoint(items, os.path.join(folder, f"rank_{rank}", f"{prefix}.ckpt"))
    if not integrated:
        _write_strategy(strategy_file or os.path.join(folder, "src_strategy.ckpt"), layouts)
    return sorted(set(chosen) - set(dims))


def _write_strategy(path, layouts):
    if path.endswith(".json"):
        text = {"current_stage": 0, "parallel_strategy_item": {}, "parallel_layout_item": layouts}
        with open(path, "w", encoding="utf-8") as f:
            json.dump(text, f)
        return
    whole = node_strategy_pb2.ParallelStrategyMap(current_stage=0)
    for name, layout in layouts.items():
        item = whole.parallel_layout_item.add()
        item.param_name = name
        out = item.parallel_layouts
        for field in ("dev_matrix", "tensor_map", "param_split_shape", "indices_offset"):
            getattr(out, field).add().dim.extend(layout[field])
        out.field, out.opt_weight_shard_step, out.opt_weight_shard_size = 0, 0, 0
    with open(path, "wb") as f:
        f.write(whole.SerializeToString())


def _read_strategy(path):
    """Returns {name: layout} of a strategy file."""
    if path.endswith(".json"):
        with open(path, encoding="utf-8") as f:
            return json.load(f)["parallel_layout_item"]
    whole = node_strategy_pb2.ParallelStrategyMap()
    with open(path, "rb") as f:
        whole.ParseFromString(f.read())
    return {item.param_name: {"dev_matrix": list(item.parallel_layouts.dev_matrix[0].dim),
            "tensor_map": [list(m.dim) for m in item.parallel_layouts.tensor_map],
            "opt_weight_shard_size": item.parallel_layouts.opt_weight_shard_size,
            "field": item.parallel_layouts.field}
            for item in whole.parallel_layout_item}


def _offset(name, layout, rank, shape):
    """Returns (shape of the complete tensor, offsets of this rank's part)."""
    matrix, table = layout["dev_matrix"], layout["tensor_map"]
    if table and isinstance(table[0], list):
        if len(table) != 1:
            raise NotImplementedError(f"'{name}' is split along one dimension in two ways at once, which is not supported")
        table = table[0]
    if layout.get("field") or layout.get("opt_weight_shard_size", 0) not in (0, -1):
        raise NotImplementedError(f"'{name}' is split by the optimizer or by fields, which is not supported")
    if rank >= int(np.prod(matrix)):
        raise ValueError(f"rank {rank} is not in the device matrix {matrix} of '{name}'")
    at = np.unravel_index(rank, matrix)
    whole, begin = [], []
    for size, m in zip(shape, table if len(table) == len(shape) else [-1] * len(shape)):
        parts, index = (1, 0) if m < 0 else (matrix[len(matrix) - 1 - m], int(at[len(matrix) - 1 - m]))
        whole.append(size * parts)
        begin.append(size * index)
    return tuple(whole), tuple(begin)


class _Parts(DefaultSavePlanner):
    """Planner that returns the parts of one rank to the writer."""

    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def resolve_data(self, write_item):
        return self.parts[write_item.index.fqn]


def read_rank_checkpoints(folder, checkpoint, strategy_file=None, prefix=None):
    """Writes MindSpore's `folder/rank_<i>/*.ckpt` as a checkpoint of torch.distributed.checkpoint.

    strategy_file describes how parameters are split (None: every rank has complete parameters). If
    a rank's folder has several files, the last one by name is used, or the last one that begins
    with `prefix`.
    """
    found = {}
    for path in glob.glob(os.path.join(glob.escape(folder), "rank_*")):
        files = sorted(f for f in os.listdir(path) if f.endswith(".ckpt") and f.startswith(prefix or ""))
        if files:
            found[int(path.rpartition("_")[2])] = os.path.join(path, files[-1])
    if not found or sorted(found) != list(range(len(found))):
        raise FileNotFoundError(f"{folder} must have rank_0, rank_1, ... with a .ckpt file each; found ranks {sorted(found)}")
    layouts = _read_strategy(strategy_file) if strategy_file else {}
    plans, planners, seen = [], [], set()
    for rank in range(len(found)):
        parts, items = {}, []
        for name, p in ms.load_checkpoint(found[rank]).items():
            a = np.array(p.asnumpy())
            whole, begin = (a.shape, (0,) * a.ndim) if name not in layouts else _offset(name, layouts[name], rank, a.shape)
            if (name, begin) in seen:
                continue
            seen.add((name, begin))
            parts[name] = t = wrap_array(a)
            size = type(t.shape)
            items.append(WriteItem(MetadataIndex(name, begin), WriteItemType.SHARD, tensor_data=TensorWriteData(
                ChunkStorageMetadata(size(begin), t.shape), TensorProperties.create_from_tensor(t), size(whole))))
        plans.append(SavePlan(items, planner_data={name: (name,) for name in parts}))
        planners.append(_Parts(parts))
    plans, metadata = create_default_global_save_plan(plans)
    metadata.planner_data = {name: (name,) for name in metadata.state_dict_metadata}
    writer = FileSystemWriter(checkpoint)
    writer.set_up_storage_writer(True)
    plans = writer.prepare_global_plan([writer.prepare_local_plan(p) for p in plans])
    writer.finish(metadata, [writer.write_data(plan, planner).wait() for plan, planner in zip(plans, planners)])
