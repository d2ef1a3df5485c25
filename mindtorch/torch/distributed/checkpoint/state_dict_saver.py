"""torch.distributed.checkpoint.save and async_save."""
import concurrent.futures
import enum
import inspect
from dataclasses import dataclass
from typing import Any

import mindtorch.torch.distributed as dist
from mindtorch.torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from mindtorch.torch.distributed.checkpoint.staging import AsyncStager, BlockingAsyncStager
from mindtorch.torch.distributed.checkpoint.stateful import Stateful
from mindtorch.torch.distributed.checkpoint.utils import _DistWrapper, in_group, storage_for

__all__ = ["save_state_dict", "save", "async_save", "AsyncCheckpointerType", "AsyncSaveResponse"]


class AsyncCheckpointerType(enum.Enum):
    """Kind of worker that writes an asynchronous checkpoint."""

    THREAD = "thread"
    PROCESS = "process"


@dataclass
class AsyncSaveResponse:
    """Two futures: completion of the copy and of the checkpoint."""

    staging_completion: Any
    upload_completion: Any


def save_state_dict(state_dict, storage_writer, process_group=None, coordinator_rank=0, no_dist=False, planner=None):
    """Older name of `save`, with a storage writer."""
    storage_writer.reset()
    return _save_state_dict(state_dict, storage_writer, process_group, coordinator_rank, not in_group(no_dist, "save"), planner)


def save(state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None, no_dist=False,
         use_collectives=True):
    """Saves a state_dict from all ranks of a group into one checkpoint and returns its Metadata.

    Tensors replicated on several ranks (with the same key) are written once, DTensors shard by
    shard, and objects with state_dict() as their state_dict. An error on any rank raises
    CheckpointException on all ranks.
    """
    together = in_group(no_dist, "save")
    writer = storage_for(storage_writer, checkpoint_id, reader=False)
    return _save_state_dict(_plain(state_dict), writer, process_group, 0, not together, planner, use_collectives)


def _plain(state_dict):
    return {k: v.state_dict() if isinstance(v, Stateful) else v for k, v in state_dict.items()}


_groups = {}  # process group -> group that its asynchronous saves use


def _own_group(process_group):
    """Returns a group of the same ranks for the saving thread, whose collectives must not mix with
    those of the training."""
    world = dist.group.WORLD
    key = world if process_group is None else process_group
    found = _groups.get(id(key))
    if found is None or found[0] is not key or found[1] is not world:
        ranks = dist.get_process_group_ranks(key)
        found = _groups[id(key)] = (key, world, dist.new_group(ranks))
    return found[2]


def async_save(state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None,
               async_checkpointer_type=AsyncCheckpointerType.THREAD, async_stager=None, no_dist=False, use_collectives=True):
    """Runs `save` in a thread: copies the tensors, then returns a concurrent.futures.Future of the
    Metadata.

    With a stager that copies in a separate thread, returns an AsyncSaveResponse. All ranks of the
    group must call it. The first call creates a group for the saving threads, so for a
    process_group that is not the whole world every rank of the world must take part in that call
    (as with new_group).
    """
    if async_checkpointer_type is not AsyncCheckpointerType.THREAD:
        raise NotImplementedError(f"async_save with async_checkpointer_type={async_checkpointer_type} is not supported: use "
                                  "AsyncCheckpointerType.THREAD")
    together = in_group(no_dist, "save")
    writer = storage_for(storage_writer, checkpoint_id, reader=False)
    state_dict = _plain(state_dict)
    if async_stager is None:
        async_stager = writer if isinstance(writer, AsyncStager) else BlockingAsyncStager()
    staged = async_stager.stage(state_dict)
    group = process_group
    if together:
        group = _own_group(process_group)
    pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="mindtorch-checkpoint")
    later = isinstance(staged, concurrent.futures.Future)

    def work():
        copy = staged.result() if later else staged
        return _save_state_dict(copy, writer, group, 0, not together, planner, use_collectives)

    written = pool.submit(work)
    pool.shutdown(wait=False)
    if later:
        return AsyncSaveResponse(staged, written)
    if async_stager.should_synchronize_after_execute:
        async_stager.synchronize_staging()
    return written


def _save_state_dict(state_dict, writer, process_group, coordinator_rank, no_dist, planner, use_collectives=True):
    ranks = _DistWrapper(process_group, not no_dist, coordinator_rank)
    planner = DefaultSavePlanner() if planner is None else planner
    metadata = None

    def local_step():
        storage_meta = writer.storage_meta()
        if "storage_meta" in inspect.signature(planner.set_up_planner).parameters:
            planner.set_up_planner(state_dict=state_dict, storage_meta=storage_meta, is_coordinator=ranks.is_coordinator)
        else:
            planner.set_up_planner(state_dict, ranks.is_coordinator)
        options = {} if use_collectives else {"rank": ranks.get_rank(), "use_collectives": False}
        writer.set_up_storage_writer(ranks.is_coordinator, **(options or {"rank": ranks.get_rank()}))
        return writer.prepare_local_plan(planner.create_local_plan())

    def global_step(plans):
        nonlocal metadata
        plans, metadata = planner.create_global_plan(plans)
        return writer.prepare_global_plan(plans)

    def write(plan):
        return writer.write_data(planner.finish_plan(plan), planner).wait()

    if not use_collectives:
        # Every rank writes its own checkpoint with its own metadata.
        plan = local_step()
        plans, metadata = planner.create_global_plan([plan])
        return writer.finish(metadata, [write(plans[0])]) or metadata
    central = ranks.reduce_scatter("plan", local_step, global_step)

    def finish(results):
        return writer.finish(metadata, results) or metadata

    return ranks.all_reduce("write", lambda: write(central), finish)
