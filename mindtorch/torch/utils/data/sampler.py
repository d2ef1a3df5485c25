"""Samplers: the order in which a loader requests samples. For a given seed, the order matches
PyTorch's."""

import itertools
from typing import Generic, TypeVar

import numpy as np

from mindtorch.core.device import rng
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.core.tensor.sync import to_host as values_of

__all__ = [
    "BatchSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

_T_co = TypeVar("_T_co", covariant=True)

# PyTorch draws indices with replacement in chunks of this size, on demand.
_PIECE = 32


def on_host(generator):
    """Returns a generator that draws on the CPU without creating tensors; a device generator is
    converted."""
    return generator.for_host() if isinstance(generator, rng.Counter) else generator


def draw_seed(generator=None):
    """Draws a seed from a generator (None: the global one), as PyTorch does for samplers and
    workers."""
    return int(rng.random((), "int64", on_host(generator)))


def _positive(name, n):
    if not isinstance(n, int) or isinstance(n, bool) or n <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={n}")


class Sampler(Generic[_T_co]):
    """Base class of samplers: ``__iter__`` yields indices (or lists of indices); ``__len__`` is
    optional."""

    def __iter__(self):
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """Sampler that yields 0, 1, 2, ... in order."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Sampler of a random permutation, or of `num_samples` indices with replacement.

    Without replacement and with more `num_samples` than samples, it concatenates several
    permutations.
    """

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        _positive("num_samples", self.num_samples)

    @property
    def num_samples(self):
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        n = len(self.data_source)
        generator = on_host(self.generator)
        if generator is None:
            # Draw a seed from the global generator for a new generator: PyTorch's order of draws.
            generator = rng.Generator()
            generator.manual_seed(draw_seed())
        if self.replacement:
            for _ in range(self.num_samples // _PIECE):
                yield from rng.randint(0, n, (_PIECE,), generator=generator).tolist()
            yield from rng.randint(0, n, (self.num_samples % _PIECE,), generator=generator).tolist()
        else:
            for _ in range(self.num_samples // n):
                yield from rng.randperm(n, generator=generator).tolist()
            yield from rng.randperm(n, generator=generator).tolist()[: self.num_samples % n]

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Sampler of the given indices in random order."""

    def __init__(self, indices, generator=None):
        self.indices = indices
        self.generator = generator

    def __iter__(self):
        for i in rng.randperm(len(self.indices), generator=on_host(self.generator)).tolist():
            yield self.indices[i]

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Sampler of `num_samples` indices by weight (the weights need not sum to one)."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        from mindtorch.core.tensor.tensor import wrap_array

        _positive("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        values = np.array(values_of(weights) if is_tensor(weights) else weights, np.float64)
        if values.ndim != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {values.shape}")
        self.weights = wrap_array(values)
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self):
        yield from rng.multinomial(
            values_of(self.weights), self.num_samples, self.replacement, generator=on_host(self.generator)
        ).tolist()

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler[list]):
    """Sampler that groups the indices of another sampler into lists of `batch_size`."""

    def __init__(self, sampler, batch_size, drop_last):
        _positive("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self):
        indices = iter(self.sampler)
        while True:
            batch = list(itertools.islice(indices, self.batch_size))
            if not batch or self.drop_last and len(batch) < self.batch_size:
                return
            yield batch

    def __len__(self):
        n = len(self.sampler)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
