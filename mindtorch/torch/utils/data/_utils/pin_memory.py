"""torch.utils.data._utils.pin_memory: calls `pin_memory()` on everything in a batch."""
import collections.abc
import copy

from mindtorch.core.tensor.tensor import is_tensor

__all__ = ["pin_memory"]


def pin_memory(data, device=None):
    """Returns a batch with tensors and objects that have a pin_memory() method pinned; containers
    keep their types."""
    if is_tensor(data) or hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, collections.abc.Mapping):
        pinned = {key: pin_memory(value, device) for key, value in data.items()}
        return _filled(data, collections.abc.MutableMapping, lambda clone: clone.update(pinned), pinned)
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        pinned = [pin_memory(value, device) for value in data]
        if isinstance(data, tuple):
            return type(data)(*pinned) if hasattr(data, "_fields") else type(data)(pinned)
        return _filled(data, collections.abc.MutableSequence, lambda clone: [clone.__setitem__(i, x) for i, x in enumerate(pinned)], pinned)
    return data


def _filled(data, mutable, fill, plain):
    """Returns `plain` in a container like `data`; `plain` itself if that container cannot be copied
    or constructed."""
    try:
        if not isinstance(data, mutable):
            return type(data)(plain)
        clone = copy.copy(data)  # a copy preserves the container's other attributes
        fill(clone)
    except TypeError:
        return plain
    return clone
