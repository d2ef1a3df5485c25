"""Iterable pipes that change the order of items."""
import random

from mindtorch.torch.utils.data.datapipes.datapipe import functional_datapipe
from mindtorch.torch.utils.data.datapipes.iter._over import _Over
from mindtorch.torch.utils.data.sampler import SequentialSampler

__all__ = ["SamplerIterDataPipe", "ShufflerIterDataPipe"]


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(_Over):
    """Pipe that returns items in random order, from a buffer of buffer_size items."""

    def __init__(self, datapipe, *, buffer_size=10000, unbatch_level=0):
        if buffer_size <= 0:
            raise AssertionError("buffer_size should be larger than 0")
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
        rng = random.Random(int(torch.empty((), dtype=torch.int64, device="cpu").random_().item()) if self._seed is None else self._seed)
        self._seed = None
        buffer = []
        for x in self.datapipe:
            if len(buffer) == self.buffer_size:
                i = rng.randint(0, len(buffer) - 1)
                buffer[i], x = x, buffer[i]
                yield x
            else:
                buffer.append(x)
        while buffer:
            yield buffer.pop(rng.randint(0, len(buffer) - 1))


class SamplerIterDataPipe(_Over):
    """Pipe that iterates with a sampler of `torch.utils.data` over the pipe (default: in sequence).
    """

    def __init__(self, datapipe, sampler=SequentialSampler, sampler_args=None, sampler_kwargs=None):
        try:
            len(datapipe)
        except TypeError:
            raise AssertionError("Sampler class requires input datapipe implemented `__len__`") from None
        super().__init__(datapipe)
        self.sampler_args = () if sampler_args is None else sampler_args
        self.sampler_kwargs = dict(sampler_kwargs or {})
        self.sampler_kwargs["data_source"] = datapipe
        self.sampler = sampler(*self.sampler_args, **self.sampler_kwargs)

    def __iter__(self):
        return iter(self.sampler)

    def __len__(self):
        return len(self.sampler)
