"""Iterable pipes that shard items over workers and ranks."""
import enum
import itertools

from mindtorch.torch.utils.data._utils.worker import get_worker_info
from mindtorch.torch.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe

__all__ = ["SHARDING_PRIORITIES", "ShardingFilterIterDataPipe"]


class SHARDING_PRIORITIES(enum.IntEnum):
    """Kinds of sharding groups, in the order in which they are applied."""

    DEFAULT = 1
    DISTRIBUTED = 2
    MULTIPROCESSING = 3


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(IterDataPipe):
    """Pipe that returns the shard of this worker process and this rank: every n-th item."""

    def __init__(self, source_datapipe, sharding_group_filter=None):
        self.source_datapipe, self._given = source_datapipe, None

    def is_shardable(self):
        return True

    def apply_sharding(self, num_of_instances, instance_id, sharding_group=None):
        """Sets the shard explicitly."""
        self._given = num_of_instances, instance_id

    def _share(self):
        if self._given is not None:
            return self._given
        from mindtorch.torch import distributed as dist

        info = get_worker_info()
        workers, worker = (info.num_workers, info.id) if info is not None else (1, 0)
        ranks, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_available() and dist.is_initialized() else (1, 0)
        return workers * ranks, worker * ranks + rank

    def __iter__(self):
        n, i = self._share()
        return itertools.islice(iter(self.source_datapipe), i, None, n)

    def __len__(self):
        n, i = self._share()
        whole = len(self.source_datapipe)
        return whole // n + (i < whole % n)
