"""Iterable pipes that apply a function to each item."""
import copy

from mindtorch.torch.utils.data._utils.collate import default_collate
from mindtorch.torch.utils.data.datapipes.datapipe import functional_datapipe
from mindtorch.torch.utils.data.datapipes.iter._over import _Over

__all__ = ["MapperIterDataPipe", "CollatorIterDataPipe"]


@functional_datapipe("map")
class MapperIterDataPipe(_Over):
    """Pipe that applies `fn` to each item, or to its columns input_col; the result is stored in
    output_col."""

    def __init__(self, datapipe, fn, input_col=None, output_col=None):
        super().__init__(datapipe)
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        self.fn, self.input_col, self.output_col = fn, input_col, output_col

    def _apply(self, item):
        col, out = self.input_col, self.output_col
        if col is None:
            return self.fn(item)
        r = self.fn(*[item[c] for c in col]) if isinstance(col, (list, tuple)) else self.fn(item[col])
        kind = type(item)
        item = list(item) if kind is tuple else copy.copy(item)
        if out is None:
            # The result replaces the first column; the other columns are removed.
            columns = col if isinstance(col, (list, tuple)) else [col]
            item[columns[0]] = r
            for c in sorted(columns[1:], reverse=True):
                del item[c]
        elif out == -1:
            item.append(r)
        else:
            item[out[0] if isinstance(out, (list, tuple)) else out] = r
        return tuple(item) if kind is tuple else item

    def __iter__(self):
        for item in self.datapipe:
            yield self._apply(item)


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Pipe that collates items to tensors."""

    def __init__(self, datapipe, conversion=default_collate, collate_fn=None):
        super().__init__(datapipe, collate_fn or conversion)
