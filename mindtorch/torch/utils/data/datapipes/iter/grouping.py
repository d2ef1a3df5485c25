"""Iterable pipes that batch and unbatch items."""
import itertools

from mindtorch.torch._refusing import refuse
from mindtorch.torch.utils.data.datapipes.datapipe import functional_datapipe
from mindtorch.torch.utils.data.datapipes.iter._over import _Over

__all__ = ["BatcherIterDataPipe", "UnBatcherIterDataPipe"]


@functional_datapipe("batch")
class BatcherIterDataPipe(_Over):
    """Pipe that groups items into lists (or wrapper_class) of batch_size items; the last may be
    shorter unless drop_last."""

    def __init__(self, datapipe, batch_size, drop_last=False, wrapper_class=list):
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        super().__init__(datapipe)
        self.batch_size, self.drop_last, self.wrapper_class = batch_size, drop_last, wrapper_class

    def __iter__(self):
        items = iter(self.datapipe)
        while batch := list(itertools.islice(items, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.wrapper_class(batch)

    def __len__(self):
        n = len(self.datapipe)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(_Over):
    """Pipe that flattens nested lists, unbatch_level deep (-1: completely)."""

    def __init__(self, datapipe, unbatch_level=1):
        super().__init__(datapipe)
        self.unbatch_level = unbatch_level

    def _items(self, x, level):
        if level == 0 or level < 0 and not isinstance(x, (list, tuple)):
            yield x
        elif not isinstance(x, (list, tuple)):
            raise IndexError(f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe")
        else:
            for y in x:
                yield from self._items(y, level - 1 if level > 0 else level)

    def __iter__(self):
        for x in self.datapipe:
            yield from self._items(x, self.unbatch_level)

    def __len__(self):
        raise TypeError(f"{type(self).__name__} instance doesn't have valid length")


refuse(globals(), "write it as a Dataset or IterableDataset", "", "GrouperIterDataPipe")
