"""Small helpers for the layers."""
import collections
from itertools import repeat

from mindtorch.torch.nn.functional import _list_with_default  # noqa: F401

__all__ = ["consume_prefix_in_state_dict_if_present"]


def _ntuple(n, name="parse"):
    """Returns a function that repeats a scalar n times and converts an iterable to a tuple."""
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
    """Repeats each element n times in reverse order: (a, b), 2 -> (b, b, a, a), the order of F.pad.
    """
    return tuple(x for x in reversed(t) for _ in range(n))


def consume_prefix_in_state_dict_if_present(state_dict, prefix):
    """Removes `prefix` from the keys that start with it (such as "module." of DataParallel), in
    place."""
    for key in [k for k in state_dict if k.startswith(prefix)]:
        state_dict[key[len(prefix):]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        for key in list(metadata):
            # "module" itself is the entry of the wrapper.
            if key and key.startswith(prefix.rstrip(".")) and (key + ".").startswith(prefix):
                metadata[key[len(prefix):]] = metadata.pop(key)
