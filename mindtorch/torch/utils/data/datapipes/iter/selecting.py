"""Iterable pipes that select items."""
from mindtorch.torch.utils.data.datapipes.datapipe import functional_datapipe
from mindtorch.torch.utils.data.datapipes.iter._over import _Over

__all__ = ["FilterIterDataPipe"]


@functional_datapipe("filter")
class FilterIterDataPipe(_Over):
    """Pipe that returns the items for which filter_fn is true."""

    def __init__(self, datapipe, filter_fn, input_col=None):
        super().__init__(datapipe)
        self.filter_fn, self.input_col = filter_fn, input_col

    def __iter__(self):
        col = self.input_col
        for item in self.datapipe:
            given = [item] if col is None else [item[c] for c in col] if isinstance(col, (list, tuple)) else [item[col]]
            keeps = self.filter_fn(*given)
            if not isinstance(keeps, bool):
                raise ValueError(f"Boolean output is required for `filter_fn` of FilterIterDataPipe, got {type(keeps)}")
            if keeps:
                yield item

    def __len__(self):
        raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
