"""torch.utils.data._utils.pin_memory: `pin_memory()` of everything in a batch."""
import collections.abc
import copy

from mindtorch.core.tensor import taken

__all__ = ["pin_memory"]


def pin_memory(data, device=None):
    """A batch with its tensors, and objects that have a pin_memory() of their own, pinned; containers keep their types."""
    if taken(data) or hasattr(data, "pin_memory"):
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
    """`plain` in a container like `data`, or as it is where that container cannot be copied or made."""
    try:
        if not isinstance(data, mutable):
            return type(data)(plain)
        clone = copy.copy(data)         # (keeps what else such an object has)
        fill(clone)
    except TypeError:
        return plain
    return clone
