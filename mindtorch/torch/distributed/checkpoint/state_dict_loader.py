"""torch.distributed.checkpoint.load."""
import inspect
import warnings

from mindtorch.torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from mindtorch.torch.distributed.checkpoint.stateful import Stateful
from mindtorch.torch.distributed.checkpoint.utils import _DistWrapper, in_group, storage_for

__all__ = ["load_state_dict", "load"]


def load_state_dict(state_dict, storage_reader, process_group=None, coordinator_rank=0, no_dist=False, planner=None):
    """Older name of `load`, with a storage reader."""
    storage_reader.reset()
    _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, not in_group(no_dist, "load"), planner)


def load(state_dict, *, checkpoint_id=None, storage_reader=None, planner=None, process_group=None, no_dist=False):
    """Fills a state_dict from a checkpoint, independent of the number of ranks and shards that
    saved it. Tensors are filled in place.

    Objects with load_state_dict() receive their part. An error on any rank, such as a missing key,
    raises a CheckpointException with that error on all ranks.
    """
    together = in_group(no_dist, "load")
    reader = storage_for(storage_reader, checkpoint_id, reader=True)
    # state_dict() may communicate with other ranks, so all ranks must call it for the keys in the
    # same order.
    keys = sorted(set(state_dict), key=str)
    if together:
        all_keys = _DistWrapper(process_group, True, 0).all_gather_object(keys)
        everything = sorted({k for found in all_keys for k in found}, key=str)
        if everything != keys:
            warnings.warn("Detected mismatched keys in state dict after all gather! This behavior is unsupported and may "
                          "cause errors may cause errors.", stacklevel=2)
        keys = everything
    stateful = {}
    for k in keys:
        if k in state_dict:
            v = state_dict[k]
            stateful[k] = v.state_dict() if isinstance(v, Stateful) else v
    _load_state_dict(stateful, reader, process_group, 0, not together, planner)
    for k in keys:
        if k not in state_dict:
            continue
        v = state_dict[k]
        if isinstance(v, Stateful):
            v.load_state_dict(stateful[k])
        else:
            state_dict[k] = stateful[k]


def _load_state_dict(state_dict, storage_reader, process_group=None, coordinator_rank=0, no_dist=False, planner=None):
    ranks = _DistWrapper(process_group, not no_dist, coordinator_rank)
    planner = DefaultLoadPlanner() if planner is None else planner
    reader = storage_reader

    def local_step():
        options = {}
        try:
            metadata = reader.read_metadata()
        except FileNotFoundError as e:
            # Every rank may have written its own checkpoint (save with use_collectives=False).
            options = {"rank": ranks.rank}
            if "kwargs" not in inspect.signature(reader.read_metadata).parameters:
                raise
            try:
                metadata = reader.read_metadata(rank=ranks.rank)
            except FileNotFoundError as own:
                raise AssertionError(f"metadata is None; global metadata read failed: {e}; rank local metadata read failed: "
                                     f"{own}") from None
        planner.set_up_planner(state_dict, metadata, ranks.is_coordinator)
        reader.set_up_storage_reader(metadata, ranks.is_coordinator, **options)
        return reader.prepare_local_plan(planner.create_local_plan())

    def global_step(plans):
        return reader.prepare_global_plan(planner.create_global_plan(plans))

    central = ranks.reduce_scatter("plan", local_step, global_step)
    ranks.all_gather("read", lambda: reader.read_data(planner.finish_plan(central), planner).wait())
