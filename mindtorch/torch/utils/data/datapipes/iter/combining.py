"""Iterable pipes that combine several pipes."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe

__all__ = ["ConcaterIterDataPipe", "ZipperIterDataPipe", "MultiplexerIterDataPipe"]


@functional_datapipe("concat")
class ConcaterIterDataPipe(IterDataPipe):
    """Pipe that concatenates pipes."""

    def __init__(self, *datapipes):
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __iter__(self):
        for d in self.datapipes:
            yield from d

    def __len__(self):
        return sum(len(d) for d in self.datapipes)


@functional_datapipe("zip")
class ZipperIterDataPipe(IterDataPipe):
    """Pipe of tuples with one item of each pipe."""

    def __init__(self, *datapipes):
        self.datapipes = datapipes

    def __iter__(self):
        yield from zip(*self.datapipes)

    def __len__(self):
        return min(len(d) for d in self.datapipes)


@functional_datapipe("mux")
class MultiplexerIterDataPipe(IterDataPipe):
    """Pipe that returns one item of each pipe in turn, until the shortest pipe ends."""

    def __init__(self, *datapipes):
        self.datapipes = datapipes

    def __iter__(self):
        return (x for group in zip(*self.datapipes) for x in group)

    def __len__(self):
        return min(map(len, self.datapipes)) * len(self.datapipes)


refuse(globals(), "write it as a Dataset or IterableDataset", "", "DemultiplexerIterDataPipe ForkerIterDataPipe")
