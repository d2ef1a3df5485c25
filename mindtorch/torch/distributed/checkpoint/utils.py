"""Steps executed by all ranks together: an error on one rank raises CheckpointException on all
ranks."""
import mindtorch.torch.distributed as dist
from mindtorch.torch.distributed.checkpoint.api import CheckpointException, is_wrapped_exception, wrap_exception


def _failures(results):
    return {i: r for i, r in enumerate(results) if is_wrapped_exception(r)}


def _attempt(fn, *args):
    try:
        return fn(*args)
    except BaseException as e:
        return wrap_exception(e)


class _DistWrapper:
    """The ranks of a group, or with use_dist=False only this process."""

    def __init__(self, group, use_dist, coordinator_rank):
        self.group, self.use_dist, self.coordinator_rank = group, use_dist, coordinator_rank
        if use_dist:
            self.global_coordinator_rank = coordinator_rank if group is None else dist.get_global_rank(group, coordinator_rank)
            self.rank = dist.get_rank(group)
            self.is_coordinator = self.rank == coordinator_rank
        else:
            self.global_coordinator_rank = self.rank = 0
            self.is_coordinator = True

    def get_rank(self):
        return self.rank

    def get_world_size(self):
        return dist.get_world_size(self.group) if self.use_dist else 1

    def gather_object(self, obj):
        """Returns all ranks' objects on the coordinator, None elsewhere."""
        if not self.use_dist:
            return [obj]
        found = [None] * self.get_world_size() if self.is_coordinator else None
        dist.gather_object(obj, found, dst=self.global_coordinator_rank, group=self.group)
        return found

    def all_gather_object(self, obj):
        """Returns all ranks' objects."""
        if not self.use_dist:
            return [obj]
        found = [None] * self.get_world_size()
        dist.all_gather_object(found, obj, group=self.group)
        return found

    def scatter_object(self, objs):
        """Returns this rank's element of the coordinator's list of objects."""
        if not self.use_dist:
            return objs[0]
        mine = [None]
        dist.scatter_object_list(mine, objs if self.is_coordinator else None, src=self.global_coordinator_rank, group=self.group)
        return mine[0]

    def broadcast_object(self, obj):
        """Returns the coordinator's object."""
        if not self.use_dist:
            return obj
        box = [obj]
        dist.broadcast_object_list(box, src=self.global_coordinator_rank, group=self.group)
        return box[0]

    def _reduced(self, step, everything, reduce_fun):
        """Returns reduce_fun(everything), or a CheckpointException if it or a rank has failed."""
        failed = _failures(everything)
        if not failed:
            answer = _attempt(reduce_fun, everything)
            if not is_wrapped_exception(answer):
                return answer
            failed = {self.rank: answer}
        return CheckpointException(step, failed)

    def reduce_scatter(self, step, map_fun, reduce_fun):
        """Runs map_fun() on every rank and reduce_fun(all results) on the coordinator. Returns its
        i-th result on rank i."""
        everything = self.gather_object(_attempt(map_fun))
        answers = self._reduced(step, everything, reduce_fun) if self.is_coordinator else None
        if isinstance(answers, CheckpointException):
            answers = [answers] * self.get_world_size()
        return _given(self.scatter_object(answers))

    def all_reduce(self, step, map_fun, reduce_fun):
        """Runs map_fun() on every rank and reduce_fun(all results) on the coordinator. Returns its
        result on all ranks."""
        everything = self.gather_object(_attempt(map_fun))
        answer = self._reduced(step, everything, reduce_fun) if self.is_coordinator else None
        return _given(self.broadcast_object(answer))

    def all_gather(self, step, map_fun):
        """Runs map_fun() on every rank and returns all results on all ranks."""
        everything = self.all_gather_object(_attempt(map_fun))
        failed = _failures(everything)
        if failed:
            raise CheckpointException(step, failed)
        return everything

    def broadcast(self, step, map_fun):
        """Runs map_fun() on the coordinator and returns its result on all ranks."""
        answer = None
        if self.is_coordinator:
            answer = _attempt(map_fun)
            if is_wrapped_exception(answer):
                answer = CheckpointException(step, {self.rank: answer})
        return _given(self.broadcast_object(answer))


def _given(answer):
    if isinstance(answer, CheckpointException):
        raise answer
    return answer


def in_group(no_dist, what):
    """True if the ranks work together. Warns if there is no process group or no_dist is set."""
    import warnings

    no_dist = no_dist or not (dist.is_available() and dist.is_initialized())
    if no_dist:
        warnings.warn(f"torch.distributed is disabled, unavailable or uninitialized, assuming the intent is to {what} in a "
                      "single process.", stacklevel=3)
    return not no_dist


def storage_for(given, checkpoint_id, reader):
    """Returns the storage reader or writer of a call: the given one, reset to checkpoint_id, or a
    new one for that directory."""
    if given is not None:
        if checkpoint_id is not None:
            given.reset(checkpoint_id)
        return given
    if not checkpoint_id:
        raise RuntimeError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
    from mindtorch.torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

    kind = FileSystemReader if reader else FileSystemWriter
    if not kind.validate_checkpoint_id(checkpoint_id):
        raise RuntimeError(f"Cannot detect which StorageReader or StorageWriter to use for {checkpoint_id!r}: it is not a "
                           "local path, and other stores are not supported; specify the storage_reader/storage_writer.")
    return kind(checkpoint_id, single_file_per_rank=True) if kind is FileSystemWriter else kind(checkpoint_id)
