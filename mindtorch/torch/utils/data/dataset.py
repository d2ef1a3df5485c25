"""Datasets: map-style (Dataset) or iterable (IterableDataset), and the classes that combine them.
"""

import abc
import bisect
import itertools
import math
from typing import Generic, TypeVar

from mindtorch.core.device import rng
from mindtorch.torch.utils.data.sampler import on_host

__all__ = [
    "Dataset",
    "IterableDataset",
    "TensorDataset",
    "StackDataset",
    "ConcatDataset",
    "ChainDataset",
    "Subset",
    "random_split",
]

_T_co = TypeVar("_T_co", covariant=True)
T_co = _T_co
_T = TypeVar("_T")


class Dataset(Generic[_T_co]):
    """Map-style dataset: a subclass defines ``__getitem__``, and ``__len__`` for the samplers that
    need it.

    If defined, ``__getitems__(indices)`` returns the samples of a whole batch as a list.
    """

    def __getitem__(self, index):
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset[_T_co], abc.ABC):
    """Dataset that is a stream of samples: a subclass defines ``__iter__``.

    Every worker process iterates over its own copy; `get_worker_info` identifies the worker's part.
    """

    @abc.abstractmethod
    def __iter__(self):
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other):
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple]):
    """Dataset of the rows of tensors with equal first size; a sample is a tuple with one row of
    each."""

    def __init__(self, *tensors):
        if any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(t[index] for t in self.tensors)

    def __len__(self):
        return self.tensors[0].shape[0]


class StackDataset(Dataset):
    """Dataset that combines datasets of equal length; a sample is a tuple (positional arguments) or
    dict (keyword arguments)."""

    def __init__(self, *args, **kwargs):
        if args and kwargs:
            raise ValueError(
                "StackDataset takes datasets by position (samples are tuples) or by keyword (samples are dicts), not "
                "both"
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets = args or kwargs
        parts = self._parts()
        self._length = len(parts[0])
        if any(len(p) != self._length for p in parts):
            raise ValueError("Size mismatch between datasets")

    def _parts(self):
        return list(self.datasets.values()) if isinstance(self.datasets, dict) else list(self.datasets)

    def _sample(self, values):
        return dict(zip(self.datasets, values)) if isinstance(self.datasets, dict) else tuple(values)

    def __getitem__(self, index):
        return self._sample([p[index] for p in self._parts()])

    def __getitems__(self, indices):
        columns = []
        for p in self._parts():
            column = _many(p, indices)
            if len(column) != len(indices):
                raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(column)}")
            columns.append(column)
        return [self._sample(values) for values in zip(*columns)]

    def __len__(self):
        return self._length


def _many(dataset, indices):
    """Returns the samples of a batch, with a single call if the dataset supports it."""
    at_once = getattr(dataset, "__getitems__", None)
    return at_once(indices) if callable(at_once) else [dataset[i] for i in indices]


class ConcatDataset(Dataset[_T_co]):
    """Concatenation of map-style datasets."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence):
        """Returns the cumulative lengths."""
        return list(itertools.accumulate(len(d) for d in sequence))

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx):
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx += len(self)
        i = bisect.bisect_right(self.cumulative_sizes, idx)
        return self.datasets[i][idx - (self.cumulative_sizes[i - 1] if i else 0)]

    @property
    def cummulative_sizes(self):
        """Former spelling of `cumulative_sizes`."""
        return self.cumulative_sizes


class ChainDataset(IterableDataset):
    """Concatenation of iterable datasets."""

    def __init__(self, datasets):
        self.datasets = datasets

    def __iter__(self):
        for d in self.datasets:
            self._check(d)
            yield from d

    def __len__(self):
        total = 0
        for d in self.datasets:
            self._check(d)
            total += len(d)
        return total

    @staticmethod
    def _check(d):
        if not isinstance(d, IterableDataset):
            raise AssertionError("ChainDataset only supports IterableDataset")


class Subset(Dataset[_T_co]):
    """The samples of a dataset at `indices`."""

    def __init__(self, dataset, indices):
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx):
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices):
        return _many(self.dataset, [self.indices[i] for i in indices])

    def __len__(self):
        return len(self.indices)


def random_split(dataset, lengths, generator=None):
    """Splits a dataset at random into Subsets of given lengths, or of given fractions that sum to
    1.

    Fractions are rounded down; the remaining samples are distributed round-robin, starting with the
    first subset.
    """
    lengths = list(lengths)
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        sizes = []
        for i, fraction in enumerate(lengths):
            if fraction < 0 or fraction > 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1")
            sizes.append(math.floor(total * fraction))
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
        lengths = sizes
        for i, n in enumerate(sizes):
            if not n:
                import warnings

                warnings.warn(
                    f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=2
                )
    if sum(lengths) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = rng.randperm(total, generator=on_host(generator)).tolist()
    ends = list(itertools.accumulate(lengths))
    return [Subset(dataset, order[end - n : end]) for end, n in zip(ends, lengths)]
