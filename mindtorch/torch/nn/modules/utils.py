"""Small helpers of the layers."""
import collections
from itertools import repeat

from mindtorch.torch.nn.functional import _list_with_default  # noqa: F401

__all__ = ["consume_prefix_in_state_dict_if_present"]


def _ntuple(n, name="parse"):
    """A function that repeats a number n times and makes a tuple of any iterable."""
    def parse(x):
        if isinstance(x, collections.abc.Iterable):
            return tuple(x)
        return tuple(repeat(x, n))
    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t, n):
    """(a, b), 2 -> (b, b, a, a): the order in which F.pad takes paddings."""
    return tuple(x for x in reversed(t) for _ in range(n))


def consume_prefix_in_state_dict_if_present(state_dict, prefix):
    """Renames keys that begin with `prefix` (such as "module." of a DataParallel's state), in place."""
    for key in [k for k in state_dict if k.startswith(prefix)]:
        state_dict[key[len(prefix):]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        for key in list(metadata):
            # "module" itself is the wrapper's own entry.
            if key and key.startswith(prefix.rstrip(".")) and (key + ".").startswith(prefix):
                metadata[key[len(prefix):]] = metadata.pop(key)
