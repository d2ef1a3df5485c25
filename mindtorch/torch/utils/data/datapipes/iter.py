"""Iterable pipes."""
import copy
import itertools
import random

from mindtorch.torch.utils.data._utils.collate import default_collate
from mindtorch.torch.utils.data._utils.worker import get_worker_info
from mindtorch.torch.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe

__all__ = ["Batcher", "Collator", "Concater", "Filter", "IterableWrapper", "Mapper", "Multiplexer", "ShardingFilter", "Shuffler", "UnBatcher",
           "Zipper"]


class _Over(IterDataPipe):
    """A pipe over another one."""

    def __init__(self, datapipe):
        self.datapipe = datapipe

    def __len__(self):
        return len(self.datapipe)


class IterableWrapper(IterDataPipe):
    """A pipe over any iterable, copied before each pass unless deepcopy=False."""

    def __init__(self, iterable, deepcopy=True):
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self):
        yield from copy.deepcopy(self.iterable) if self.deepcopy else self.iterable

    def __len__(self):
        return len(self.iterable)


@functional_datapipe("map")
class Mapper(_Over):
    """fn of each item, or of its columns input_col (the result goes to output_col)."""

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
            # The result takes the place of the first column, the others go.
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
class Collator(Mapper):
    """Items collated to tensors."""

    def __init__(self, datapipe, conversion=default_collate, collate_fn=None):
        super().__init__(datapipe, collate_fn or conversion)


@functional_datapipe("filter")
class Filter(_Over):
    """Items for which filter_fn is true."""

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


@functional_datapipe("batch")
class Batcher(_Over):
    """Lists (or wrapper_class) of batch_size items; the last may be shorter unless drop_last."""

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
class UnBatcher(_Over):
    """Items of nested lists, unbatch_level deep (-1: all the way)."""

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


@functional_datapipe("concat")
class Concater(IterDataPipe):
    """One pipe after the other."""

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
class Zipper(IterDataPipe):
    """Tuples of one item of each pipe."""

    def __init__(self, *datapipes):
        self.datapipes = datapipes

    def __iter__(self):
        yield from zip(*self.datapipes)

    def __len__(self):
        return min(len(d) for d in self.datapipes)


@functional_datapipe("shuffle")
class Shuffler(_Over):
    """Items in random order, out of a buffer of buffer_size."""

    def __init__(self, datapipe, *, buffer_size=10000, unbatch_level=0):
        if buffer_size <= 0:
            raise ValueError("buffer_size should be larger than 0")
        super().__init__(datapipe if not unbatch_level else datapipe.unbatch(unbatch_level=unbatch_level))
        self.buffer_size, self._enabled, self._seed = buffer_size, True, None

    def set_shuffle(self, shuffle=True):
        self._enabled = shuffle
        return self

    def set_seed(self, seed):
        self._seed = seed
        return self

    def __iter__(self):
        if not self._enabled:
            yield from self.datapipe
            return
        from mindtorch import torch
        rng = random.Random(int(torch.empty((), dtype=torch.int64).random_().item()) if self._seed is None else self._seed)
        self._seed = None
        buffer = []
        for x in self.datapipe:
            if len(buffer) == self.buffer_size:
                i = rng.randint(0, len(buffer) - 1)
                buffer[i], x = x, buffer[i]
                yield x
            else:
                buffer.append(x)
        rng.shuffle(buffer)
        yield from buffer


@functional_datapipe("mux")
class Multiplexer(IterDataPipe):
    """One item of each pipe in turn, until the shortest is over."""

    def __init__(self, *datapipes):
        self.datapipes = datapipes

    def __iter__(self):
        return (x for group in zip(*self.datapipes) for x in group)

    def __len__(self):
        return min(map(len, self.datapipes)) * len(self.datapipes)


@functional_datapipe("sharding_filter")
class ShardingFilter(IterDataPipe):
    """The share of this worker process and of this rank: every n-th item."""

    def __init__(self, source_datapipe, sharding_group_filter=None):
        self.source_datapipe, self._given = source_datapipe, None

    def is_shardable(self):
        return True

    def apply_sharding(self, num_of_instances, instance_id, sharding_group=None):
        """Sets the share by hand."""
        self._given = num_of_instances, instance_id

    def _share(self):
        if self._given is not None:
            return self._given
        from mindtorch.torch import distributed as dist

        info = get_worker_info()
        workers, worker = (info.num_workers, info.id) if info is not None else (1, 0)
        ranks, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_available() and dist.is_initialized() else (1, 0)
        return workers * ranks, worker * ranks + rank

    def __iter__(self):
        n, i = self._share()
        return itertools.islice(iter(self.source_datapipe), i, None, n)

    def __len__(self):
        n, i = self._share()
        whole = len(self.source_datapipe)
        return whole // n + (i < whole % n)
