"""Indexed pipes that combine several pipes."""
from mindtorch.torch.utils.data.datapipes.datapipe import MapDataPipe, functional_datapipe

__all__ = ["ConcaterMapDataPipe", "ZipperMapDataPipe"]


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe):
    """Pipe that concatenates pipes."""

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
class ZipperMapDataPipe(MapDataPipe):
    """Pipe of tuples of the items of all pipes at an index."""

    def __init__(self, *datapipes):
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __getitem__(self, i):
        return tuple([pipe[i] for pipe in self.datapipes])

    def __len__(self):
        return min(map(len, self.datapipes))
