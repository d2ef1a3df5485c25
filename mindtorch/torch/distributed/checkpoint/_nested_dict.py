"""Conversion between nested state_dicts and flat ones whose keys are dotted paths."""
from mindtorch.core.tensor.tensor import is_tensor


def _nested(value):
    """True if a value is traversed: a dict, or a list that contains a tensor, a dict or such a
    list. Tuples are never traversed."""
    if isinstance(value, dict):
        return True
    return isinstance(value, list) and any(is_tensor(v) or _nested(v) for v in value)


def flatten_state_dict(state_dict):
    """Returns ({dotted path: value}, {dotted path: tuple of keys}). Raises ValueError if two paths
    have the same name.

    Keys other than list indices are converted to strings, as in PyTorch's files.
    """
    flat, paths = {}, {}

    def walk(path, value):
        if _nested(value):
            items = ((str(k), v) for k, v in value.items()) if isinstance(value, dict) else enumerate(value)
            for k, v in items:
                walk((*path, k), v)
            return
        name = ".".join(map(str, path))
        if name in flat:
            raise ValueError(f"duplicated flatten key {name}")
        flat[name], paths[name] = value, path

    for key, value in state_dict.items():
        walk((str(key),), value)
    return flat, paths


def set_element(root, path, value):
    """Sets the value at a path, creating dicts and lists on the way. Missing list elements become
    None."""
    here = root
    for key, after in zip(path, path[1:]):
        inner = [] if type(after) is int else {}
        if isinstance(here, list):
            _fill(here, key)
            if here[key] is None:
                here[key] = inner
            here = here[key]
        else:
            # Only in files every key is a string: the dict that is filled may have integer keys.
            key = key if key in here else next((k for k in here if str(k) == key), key)
            here = here.setdefault(key, inner)
    last = path[-1]
    if isinstance(here, list):
        _fill(here, last)
    elif last not in here:
        last = next((k for k in here if str(k) == last), last)
    here[last] = value


def _fill(items, index):
    while len(items) <= index:
        items.append(None)


def unflatten_state_dict(state_dict, mapping):
    """Returns the nested form of a flat state_dict. `mapping` is the second result of
    `flatten_state_dict`."""
    nested = {}
    for key, value in state_dict.items():
        set_element(nested, mapping[key], value)
    return nested
