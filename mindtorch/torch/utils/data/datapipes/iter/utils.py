"""Iterable pipes: a pipe over any iterable."""
import copy

from mindtorch.torch.utils.data.datapipes.datapipe import IterDataPipe

__all__ = ["IterableWrapperIterDataPipe"]


class IterableWrapperIterDataPipe(IterDataPipe):
    """Pipe over any iterable, which is copied before each iteration unless deepcopy=False."""

    def __init__(self, iterable, deepcopy=True):
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self):
        yield from copy.deepcopy(self.iterable) if self.deepcopy else self.iterable

    def __len__(self):
        return len(self.iterable)
