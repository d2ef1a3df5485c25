"""Sampler for the part of a dataset that one process of a distributed job loads."""

import math

from mindtorch.backend.mindspore import parallel_context
from mindtorch.core.device import rng
from mindtorch.torch.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler):
    """Sampler of the indices of this rank: every `num_replicas`-th index, shuffled identically on
    all ranks.

    Call `set_epoch` before each epoch, otherwise all epochs have the same order. All ranks get
    equally many indices: the index list is padded from its start, or truncated with `drop_last`.
    """

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        if num_replicas is None or rank is None:
            from mindtorch.torch import distributed

            if not distributed.is_available():
                raise RuntimeError("Requires distributed package to be available")
            # A MindSpore-style program calls mindspore.communication.init instead of
            # init_process_group.
            native = not distributed.is_initialized() and parallel_context.native_initialised()
            source = parallel_context.native_rank_and_size() if native else None
            if num_replicas is None:
                num_replicas = source[1] if native else distributed.get_world_size()
            if rank is None:
                rank = source[0] if native else distributed.get_rank()
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        n = len(dataset)
        self.num_samples = n // num_replicas if drop_last else math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self):
        n = len(self.dataset)
        if self.shuffle:
            generator = rng.Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = rng.randperm(n, generator=generator).tolist()
        else:
            indices = list(range(n))
        if len(indices) < self.total_size:
            indices *= math.ceil(self.total_size / len(indices))
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """Sets the epoch, which determines the shuffling."""
        self.epoch = epoch
