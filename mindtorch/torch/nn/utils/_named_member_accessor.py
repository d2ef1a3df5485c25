"""Access to parameters, buffers and submodules by dotted names. Libraries build functional calls on
it."""
from mindtorch.core.tensor.tensor import is_tensor

__all__ = ["NamedMemberAccessor"]

_MISSING = object()


def _dict_of(module, name):
    """Returns the dict in which a module stores the tensor `name`, or None for a plain attribute.
    """
    if name in module._parameters:
        return module._parameters
    return module._buffers if name in module._buffers else None


def _check_name(module, name):
    if not hasattr(module, "_parameters"):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if name == "":
        raise KeyError('tensor name can\'t be empty string ""')


def set_tensor(module, name, tensor):
    """Replaces a parameter or buffer with a tensor of any class. Any other name is set as an
    attribute."""
    _check_name(module, name)
    tensors = _dict_of(module, name)
    if tensors is None:
        setattr(module, name, tensor)
    else:
        tensors[name] = tensor


def swap_tensor(module, name, tensor, allow_missing=False):
    """Like `set_tensor`, and returns the previous tensor. With `_MISSING` as `tensor`, removes the
    name."""
    _check_name(module, name)
    if tensor is not _MISSING and not is_tensor(tensor) and tensor is not None:
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    tensors = _dict_of(module, name)
    if tensors is not None:
        old = tensors[name]
    elif hasattr(module, name):
        old = getattr(module, name)
        if not is_tensor(old):
            raise TypeError(f"{module._get_name()}.{name} is not an instance of torch.Tensor")
    elif allow_missing:
        old = _MISSING
    else:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if tensor is _MISSING:
        if tensors is not None:
            del tensors[name]
        elif old is not _MISSING:
            delattr(module, name)
    elif tensors is not None:
        tensors[name] = tensor
    else:
        setattr(module, name, tensor)
    return old


def swap_submodule(module, name, submodule):
    """Replaces a child module and returns the previous one."""
    if "." in name:
        raise KeyError('submodule name can\'t contain "."')
    if name not in module._modules:
        raise KeyError(f"submodule {name} does not exist")
    old = module._modules[name]
    module._modules[name] = submodule
    return old


class NamedMemberAccessor:
    """Gets, sets and swaps members of a module by their dotted names. Submodule lookups are cached.
    """

    def __init__(self, module):
        self.module = module
        self.memo = {}

    def _owner(self, name):
        path, _, last = name.rpartition(".")
        return self.get_submodule(path), last

    def get_submodule(self, name):
        if not name:
            return self.module
        if name not in self.memo:
            self.memo[name] = self.module.get_submodule(name)
        return self.memo[name]

    def swap_submodule(self, path, value):
        owner, last = self._owner(path)
        self.memo.clear()
        return swap_submodule(owner, last, value)

    def get_tensor(self, name):
        owner, last = self._owner(name)
        value = getattr(owner, last)
        if value is not None and not is_tensor(value):
            raise TypeError(f"{name} is not an instance of torch.Tensor")
        return value

    def set_tensor(self, name, value):
        owner, last = self._owner(name)
        set_tensor(owner, last, value)

    def del_tensor(self, name):
        owner, last = self._owner(name)
        swap_tensor(owner, last, _MISSING)

    def swap_tensor(self, name, value, allow_missing=False):
        owner, last = self._owner(name)
        return swap_tensor(owner, last, value, allow_missing)

    def get_tensors(self, names):
        return [self.get_tensor(n) for n in names]

    def set_tensors(self, names, values):
        self.set_tensors_dict(_pairs(names, values))

    def set_tensors_dict(self, named_tensors):
        for name, value in named_tensors.items():
            self.set_tensor(name, value)

    def del_tensors(self, names):
        for name in names:
            self.del_tensor(name)

    def swap_tensors(self, names, values, allow_missing=False):
        return [self.swap_tensor(n, v, allow_missing) for n, v in _pairs(names, values).items()]

    def swap_tensors_dict(self, named_tensors, allow_missing=False):
        """Swaps tensors and returns (previous tensors by name, missing names). On an error, all
        swaps are undone."""
        former = {}
        try:
            for name, value in named_tensors.items():
                former[name] = self.swap_tensor(name, value, allow_missing=True)
            missing = [n for n, old in former.items() if old is _MISSING]
            if missing and not allow_missing:
                raise RuntimeError(f"Missing key(s): {', '.join(map(repr, missing))}.")
        except Exception:
            for name, old in former.items():
                self.swap_tensor(name, old, allow_missing=True)
            raise
        return former, missing

    def check_keys(self, keys):
        """Returns (names of the module that are not in `keys`, keys that the module lacks)."""
        given, existing = set(keys), {n for n, _ in self.named_tensors(remove_duplicate=False)}
        return sorted(existing - given), sorted(given - existing)

    def named_parameters(self, remove_duplicate=True):
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate=True):
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate=True):
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)

    def named_modules(self, remove_duplicate=True):
        yield from self.module.named_modules(remove_duplicate=remove_duplicate)


def _pairs(names, values):
    names, values = list(names), list(values)
    if len(names) != len(values):
        raise AssertionError("names and values must have the same length")
    return dict(zip(names, values))
