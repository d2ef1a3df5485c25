"""Indexed pipes that change the order of items."""
import random

from mindtorch.torch.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = ["ShufflerIterDataPipe"]


class ShufflerIterDataPipe(IterDataPipe):
    """Iterable pipe over the items of an indexed pipe in random order, drawn again for each
    iteration."""

    def __init__(self, datapipe, *, indices=None):
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe))) if indices is None else indices
        self._enabled, self._seed = True, None

    def set_shuffle(self, shuffle=True):
        self._enabled = shuffle
        return self

    def set_seed(self, seed):
        self._seed = seed
        return self

    def __iter__(self):
        order = self.indices
        if self._enabled:
            from mindtorch import torch
            seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_().item()) if self._seed is None else self._seed
            self._seed = None
            order = random.Random(seed).sample(order, len(order))[::-1]
        for i in order:
            yield self.datapipe[i]

    def __len__(self):
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)
