"""Indexed pipes that apply a function to each item."""
from mindtorch.torch.utils.data.datapipes.datapipe import MapDataPipe, functional_datapipe

__all__ = ["default_fn", "MapperMapDataPipe"]


def default_fn(data):
    """Returns the item unchanged."""
    return data


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe):
    """Pipe that applies `fn` to each item."""

    def __init__(self, datapipe, fn=default_fn):
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, i):
        return self.fn(self.datapipe[i])

    def __len__(self):
        return len(self.datapipe)
