"""Indexed pipes that batch items."""
from mindtorch.torch.utils.data.datapipes.datapipe import MapDataPipe, functional_datapipe

__all__ = ["BatcherMapDataPipe"]


@functional_datapipe("batch")
class BatcherMapDataPipe(MapDataPipe):
    """Pipe that groups items into lists (or wrapper_class) of batch_size items; the last may be
    shorter unless drop_last."""

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
