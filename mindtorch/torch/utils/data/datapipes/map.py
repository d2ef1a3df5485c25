"""Indexed pipes."""
import copy

from mindtorch.torch.utils.data.datapipes.datapipe import MapDataPipe, functional_datapipe

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Zipper"]


class SequenceWrapper(MapDataPipe):
    """A pipe over a sequence or dict."""

    def __init__(self, sequence, deepcopy=True):
        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, i):
        return self.sequence[i]

    def __len__(self):
        return len(self.sequence)


@functional_datapipe("map")
class Mapper(MapDataPipe):
    """fn of each item."""

    def __init__(self, datapipe, fn=lambda x: x):
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, i):
        return self.fn(self.datapipe[i])

    def __len__(self):
        return len(self.datapipe)


@functional_datapipe("batch")
class Batcher(MapDataPipe):
    """Lists (or wrapper_class) of batch_size items; the last may be shorter unless drop_last."""

    def __init__(self, datapipe, batch_size, drop_last=False, wrapper_class=list):
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = datapipe, batch_size, drop_last, wrapper_class

    def __getitem__(self, i):
        if not 0 <= i < len(self):
            raise IndexError(f"Index {i} is out of bound.")
        start = i * self.batch_size
        return self.wrapper_class([self.datapipe[k] for k in range(start, min(start + self.batch_size, len(self.datapipe)))])

    def __len__(self):
        n = len(self.datapipe)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


@functional_datapipe("concat")
class Concater(MapDataPipe):
    """One pipe after the other."""

    def __init__(self, *datapipes):
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __getitem__(self, index):
        i = index
        for pipe in self.datapipes:
            if i < len(pipe):
                return pipe[i]
            i -= len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self):
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class Zipper(MapDataPipe):
    """Tuples of the items of all pipes at an index."""

    def __init__(self, *datapipes):
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __getitem__(self, i):
        return tuple([pipe[i] for pipe in self.datapipes])

    def __len__(self):
        return min(map(len, self.datapipes))
