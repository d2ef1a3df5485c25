"""Copies of a state_dict that are written while the originals continue to change."""
import concurrent.futures
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mindtorch.core.tensor.tensor import is_tensor

__all__ = ["AsyncStager", "BlockingAsyncStager", "DefaultStager", "StagingOptions"]


@runtime_checkable
class AsyncStager(Protocol):
    """Creates the copy that an asynchronous save writes."""

    _synchronize_after_execute = True

    @property
    def should_synchronize_after_execute(self):
        """True if `synchronize_staging` must be called before async_save returns."""
        return self._synchronize_after_execute

    def stage(self, state_dict):
        """Returns the copy, or a Future of it."""
        raise NotImplementedError(f"{type(self).__name__} must implement stage method")

    def synchronize_staging(self):
        """Waits until the copy is complete."""

    def close(self):
        """Releases the stager's resources."""


def staged(value, cache=None):
    """Returns a deep copy of the containers and tensors of a state_dict. `cache` is an earlier copy
    whose memory is reused."""
    if is_tensor(value):
        from mindtorch.torch.distributed.tensor import DTensor

        if isinstance(value, DTensor):
            return value._with_local(value._local_tensor.detach().clone())
        value = value.detach()
        if is_tensor(cache) and cache.shape == value.shape and cache.dtype == value.dtype:
            return cache.copy_(value)
        return value.clone()
    if isinstance(value, dict):
        old = cache if isinstance(cache, dict) else {}
        return {k: staged(v, old.get(k)) for k, v in value.items()}
    if type(value) in (list, tuple):
        old = cache if isinstance(cache, (list, tuple)) and len(cache) == len(value) else [None] * len(value)
        return type(value)(staged(v, o) for v, o in zip(value, old))
    return value


class BlockingAsyncStager(AsyncStager):
    """Copies before async_save returns. With cache_staged_state_dict, the copies reuse the same
    memory."""

    _synchronize_after_execute = False

    def __init__(self, cache_staged_state_dict=False, type_check=False):
        self.cache_staged_state_dict, self.type_check = cache_staged_state_dict, type_check
        self.state_dict_cache = None

    def stage(self, state_dict):
        copy = staged(state_dict, self.state_dict_cache)
        if self.cache_staged_state_dict:
            self.state_dict_cache = copy
        return copy

    def synchronize_staging(self):
        pass

    def close(self):
        self.state_dict_cache = None


@dataclass
class StagingOptions:
    """Options of the copy. All memory is host memory, so only `use_async_staging` has an effect."""

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


class DefaultStager(AsyncStager):
    """With use_async_staging, copies in a separate thread: `stage` returns a Future, and the
    state_dict must not change until it is done."""

    _synchronize_after_execute = False

    def __init__(self, config=None):
        self._config = config or StagingOptions()
        self._pool = concurrent.futures.ThreadPoolExecutor(1) if self._config.use_async_staging else None
        self._last = None

    def stage(self, state_dict, **kwargs):
        if self._pool is None:
            return staged(state_dict)
        self._last = self._pool.submit(staged, state_dict)
        return self._last

    def synchronize_staging(self):
        if self._last is not None:
            self._last.result()

    def close(self):
        if self._pool is not None:
            self._pool.shutdown(wait=True)
