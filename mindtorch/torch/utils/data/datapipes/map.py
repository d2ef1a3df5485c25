"""Indexed pipes."""
from mindtorch.torch.utils.data.datapipes.datapipe import MapDataPipe, functional_datapipe

__all__ = ["Mapper", "SequenceWrapper"]


class SequenceWrapper(MapDataPipe):
    """A pipe over a sequence or dict."""

    def __init__(self, sequence, deepcopy=True):
        self.sequence = sequence

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
