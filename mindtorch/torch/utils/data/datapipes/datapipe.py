"""The two kinds of data pipes, and the registry of their functional forms."""
import functools
import importlib

from mindtorch.torch.utils.data.dataset import Dataset, IterableDataset

__all__ = ["IterDataPipe", "MapDataPipe", "DFIterDataPipe", "functional_datapipe", "guaranteed_datapipes_determinism", "non_deterministic"]


# Functional forms of PyTorch's pipes that are not supported.
_MISSING = ("demux", "fork", "groupby", "routed_decode")


def _load():
    """Imports the pipes of this package, which register their functional forms."""
    for kind in ("iter", "map"):
        importlib.import_module(f"mindtorch.torch.utils.data.datapipes.{kind}")


class _Forms:
    """Functional forms (`pipe.map(f)` for `Mapper(pipe, f)`) of one kind of pipe."""

    functions = {}

    def __getattr__(self, name):
        made = type(self).functions.get(name)
        if made is None and not name.startswith("_"):
            _load()
            made = type(self).functions.get(name)
        if made is None:
            if name in _MISSING:
                raise NotImplementedError(f"the data pipe {name!r} is not supported here: write it as a Dataset or IterableDataset")
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(made, self)

    @classmethod
    def register_function(cls, name, function):
        """Registers function(pipe, ...) as `pipe.name(...)`."""
        cls.functions[name] = function

    @classmethod
    def register_datapipe_as_function(cls, name, cls_to_register, enable_df_api_tracing=False):
        """Registers a class as `pipe.name(...)`."""
        if not cls_to_register.__module__.startswith(__package__):
            _load()
        if name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {name} as it is already taken")
        cls.functions[name] = cls_to_register

    def __getstate__(self):
        return self.__dict__

    def __repr__(self):
        return type(self).__name__

    def reset(self):
        """Resets the pipe; called before a new iteration."""


class IterDataPipe(_Forms, IterableDataset):
    """Pipe that is iterated over."""

    functions = {}


class DFIterDataPipe(IterDataPipe):
    """Pipe of data frames."""


class MapDataPipe(_Forms, Dataset):
    """Pipe that is indexed."""

    functions = {}


class functional_datapipe:
    """Class decorator that registers a functional form on pipes of the same kind."""

    def __init__(self, name, enable_df_api_tracing=False):
        self.name = name

    def __call__(self, cls):
        if isinstance(cls, type) and issubclass(cls, MapDataPipe):
            MapDataPipe.register_datapipe_as_function(self.name, cls)
        elif isinstance(cls, type) and issubclass(cls, IterDataPipe):
            IterDataPipe.register_datapipe_as_function(self.name, cls)
        else:
            raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")
        return cls


_deterministic = False


class guaranteed_datapipes_determinism:
    """Context manager: creating a non-deterministic pipe inside raises TypeError."""

    def __init__(self):
        self._before = None

    def __enter__(self):
        global _deterministic
        self._before, _deterministic = _deterministic, True

    def __exit__(self, *exc):
        global _deterministic
        _deterministic = self._before


class non_deterministic:
    """Class decorator that marks instances as non-deterministic (always, or depending on a function
    of the arguments)."""

    def __init__(self, arg=None):
        self.when = arg if callable(arg) and not isinstance(arg, type) else None
        self.cls = arg if isinstance(arg, type) else None

    def __call__(self, *args, **kwargs):
        if self.cls is None:
            self.cls = args[0]
            return self
        if _deterministic and (self.when is None or self.when(*args, **kwargs)):
            raise TypeError(f"{self.cls.__name__} is non-deterministic inside guaranteed_datapipes_determinism")
        return self.cls(*args, **kwargs)
