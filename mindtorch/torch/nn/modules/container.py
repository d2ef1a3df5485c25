"""Containers of modules and parameters (https://pytorch.org/docs/stable/nn.html#containers)."""
import operator
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import chain, islice

from mindtorch.core.tensor.tensor import Parameter, is_tensor
from mindtorch.torch.nn.modules.module import Module, _addindent, as_child

__all__ = ["Container", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"]


def _position(idx, n):
    """Converts an index to a non-negative one. IndexError if it is out of range."""
    i = operator.index(idx)
    if not -n <= i < n:
        raise IndexError(f"index {idx} is out of range")
    return i % n


def _renumber(module, modules):
    module._modules.clear()
    module._modules.update((str(i), m) for i, m in enumerate(modules))


def _pairs(kind, given, fits_mapping):
    """Yields the (key, value) pairs of a mapping or an iterable of pairs, with PyTorch's error
    messages."""
    if isinstance(given, fits_mapping):
        yield from given.items()
        return
    for i, pair in enumerate(given):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{kind} update sequence element #{i} should be Iterable; is{type(pair).__name__}")
        if len(pair) != 2:
            raise ValueError(f"{kind} update sequence element #{i} has length {len(pair)}; 2 is required")
        yield pair[0], pair[1]


def _iterable(what, given, tail=""):
    if not isinstance(given, Iterable) or is_tensor(given):
        raise TypeError(f"{what} should be called with an iterable{tail}, but got {type(given).__name__}")


def _key(sequential, idx):
    return next(islice(sequential._modules, _position(idx, len(sequential)), None))


def _times(sequential, n):
    if not isinstance(n, int):
        raise TypeError(f"unsupported operand type(s) for *: {type(sequential)} and {type(n)}")
    if n <= 0:
        raise ValueError(f"Non-positive multiplication factor {n} for {type(sequential)}")
    return list(sequential) * n


class Container(Module):
    """Deprecated: named submodules as keyword arguments."""

    def __init__(self, **kwargs):
        super().__init__()
        warnings.warn("`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. "
                      "Subclass that instead.", FutureWarning, stacklevel=2)
        for name, module in kwargs.items():
            self.add_module(name, module)


class Sequential(Module):
    """Modules that are called in sequence, each with the previous result.

    Created from modules or from an OrderedDict of named modules. Supports indexing, slicing,
    extending and adding like a list.
    """

    def __init__(self, *args):
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else (
            (str(i), m) for i, m in enumerate(args))
        for name, module in named:
            self.add_module(name, module)

    def _get_item_by_idx(self, iterator, idx):
        return next(islice(iterator, _position(idx, len(self)), None))

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            return type(self)(OrderedDict(list(self._modules.items())[idx]))
        return self._modules[_key(self, idx)]

    def __setitem__(self, idx, module):
        setattr(self, _key(self, idx), module)

    def __delitem__(self, idx):
        keys = list(self._modules)[idx] if isinstance(idx, slice) else [_key(self, idx)]
        for key in keys:
            delattr(self, key)
        _renumber(self, list(self._modules.values()))

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __add__(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(list(other))

    def __mul__(self, other):
        return Sequential(*_times(self, other))

    __rmul__ = __mul__

    def __imul__(self, other):
        _renumber(self, _times(self, other))
        return self

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def append(self, module):
        """Appends a module."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index, module):
        """Inserts a module before `index`."""
        module = as_child(self, module)
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        n = len(self)
        if not -n <= index <= n:
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index, module)
        _renumber(self, modules)
        return self

    def extend(self, sequential):
        """Appends modules."""
        for module in sequential:
            self.append(module)
        return self

    def pop(self, key):
        """Removes a module (or a slice of modules) and returns it."""
        taken = self[key]
        del self[key]
        return taken


class ModuleList(Module):
    """A list of modules that are registered as submodules. It has no forward."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _get_abs_string_index(self, idx):
        return str(_position(idx, len(self)))

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            return type(self)(list(self._modules.values())[idx])
        return self._modules[self._get_abs_string_index(idx)]

    def __setitem__(self, idx, module):
        setattr(self, self._get_abs_string_index(idx), module)

    def __delitem__(self, idx):
        modules = list(self)
        del modules[idx if isinstance(idx, slice) else _position(idx, len(modules))]
        _renumber(self, modules)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        combined = ModuleList()
        for i, module in enumerate(chain(self, other)):
            combined.add_module(str(i), module)
        return combined

    def __repr__(self):
        texts = [repr(m) for m in self]
        lines, start = [], 0
        for i in range(1, len(texts) + 1):
            if i == len(texts) or texts[i] != texts[start]:
                many = i - start
                label = f"({start}): " if many == 1 else f"({start}-{i - 1}): {many} x "
                lines.append("  " + _addindent(label + texts[start], 2))
                start = i
        body = "\n" + "\n".join(lines) + "\n" if lines else ""
        return f"{self._get_name()}({body})"

    def insert(self, index, module):
        """Inserts a module before `index`."""
        modules = list(self)
        modules.insert(index, module)
        _renumber(self, modules)

    def append(self, module):
        """Appends a module."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key):
        """Removes a module (or a slice of modules) and returns it."""
        taken = self[key]
        del self[key]
        return taken

    def extend(self, modules):
        """Appends modules."""
        _iterable("ModuleList.extend", modules)
        for module in modules:
            self.append(module)
        return self


class ModuleDict(Module):
    """An insertion-ordered dict of modules that are registered as submodules. It has no forward."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        """Removes all modules."""
        self._modules.clear()

    def pop(self, key):
        """Removes the module under `key` and returns it."""
        return self._modules.pop(key)

    def keys(self):
        """Returns the keys."""
        return self._modules.keys()

    def items(self):
        """Returns the (key, module) pairs."""
        return self._modules.items()

    def values(self):
        """Returns the modules."""
        return self._modules.values()

    def update(self, modules):
        """Adds the modules of a mapping or of (key, module) pairs."""
        _iterable("ModuleDict.update", modules, " of key/value pairs")
        for key, module in _pairs("ModuleDict", modules, (Mapping, ModuleDict)):
            self[key] = module


def _as_parameter(value):
    return Parameter(value) if is_tensor(value) and not is_tensor(value, Parameter) else value


def _describe(key, value, kind):
    if is_tensor(value):
        size = "x".join(str(n) for n in value.shape)
        name = "Parameter" if is_tensor(value, Parameter) else "Tensor"
        device = "" if value.device.type in ("cpu", "meta") else f" ({value.device})"
        return f"  ({key}): {name} containing: [{kind(value)} of size {size}{device}]"
    return f"  ({key}): Object of type: {type(value).__name__}"


class ParameterList(Module):
    """A list of parameters. Tensors become parameters; other values are stored unchanged."""

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def _get_abs_string_index(self, idx):
        return str(_position(idx, len(self)))

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            return type(self)(self[i] for i in range(*idx.indices(len(self))))
        return getattr(self, self._get_abs_string_index(idx))

    def __setitem__(self, idx, param):
        setattr(self, self._get_abs_string_index(idx), _as_parameter(param))

    def __len__(self):
        return self._size

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __iadd__(self, parameters):
        return self.extend(parameters)

    def append(self, value):
        """Appends a value."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values):
        """Appends values."""
        _iterable("ParameterList.extend", values)
        for value in values:
            self.append(value)
        return self

    def extra_repr(self):
        return "\n".join(_describe(i, v, lambda t: t.dtype) for i, v in enumerate(self))

    def __call__(self, *args, **kwargs):
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters with string keys. Tensors become parameters; other values are stored
    unchanged."""

    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    def _key_to_attr(self, key):
        if not isinstance(key, str):
            raise TypeError("Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                            f"'{type(key).__name__}'). Open an issue on github if you need non-string keys.")
        return key

    def __getitem__(self, key):
        return getattr(self, self._key_to_attr(key))

    def __setitem__(self, key, value):
        attr = self._key_to_attr(key)
        setattr(self, attr, _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, self._key_to_attr(key))

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __reversed__(self):
        return reversed(list(self._keys))

    def __contains__(self, key):
        return key in self._keys

    def copy(self):
        """Returns a new ParameterDict with the same values."""
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key, default=None):
        """Returns the value under `key`, after setting it to `default` if the key is missing."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def clear(self):
        """Removes all values."""
        for k in list(self._keys):
            del self[k]

    def pop(self, key):
        """Removes the value under `key` and returns it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self):
        """Removes the last (key, value) pair and returns it."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key, default=None):
        """Returns the value under `key`, or `default`."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys, default=None):
        """Returns a new ParameterDict with these keys and a common value."""
        return ParameterDict((k, default) for k in keys)

    def keys(self):
        """Returns the keys."""
        return self._keys.keys()

    def items(self):
        """Returns the (key, value) pairs."""
        return ((k, self[k]) for k in self._keys)

    def values(self):
        """Returns the values."""
        return (self[k] for k in self._keys)

    def update(self, parameters):
        """Adds the values of a mapping or of (key, value) pairs. The keys of a plain dict are
        sorted."""
        if not is_tensor(parameters):  # (a tensor fails below, because its rows are not pairs)
            _iterable("ParametersDict.update", parameters, " of key/value pairs")
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            parameters = sorted(parameters.items())
        for key, value in _pairs("ParameterDict", parameters, (Mapping, ParameterDict)):
            self[key] = value

    def extra_repr(self):
        return "\n".join(_describe(k, v, lambda t: t.type()) for k, v in self.items())

    def __call__(self, input):
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other):
        merged = self.copy()
        merged.update(other)
        return merged

    def __ror__(self, other):
        merged = other.copy()
        merged.update(self)
        return merged

    def __ior__(self, other):
        self.update(other)
        return self
