"""Indexed pipes: a function of each item."""
from mindtorch.torch.utils.data.datapipes.datapipe import MapDataPipe, functional_datapipe

__all__ = ["default_fn", "MapperMapDataPipe"]


def default_fn(data):
    """The item as it is."""
    return data


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe):
    """fn of each item."""

    def __init__(self, datapipe, fn=default_fn):
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, i):
        return self.fn(self.datapipe[i])

    def __len__(self):
        return len(self.datapipe)
