"""Pickling for files: storages by reference, and this package's classes and functions under torch's names."""

import functools
import io
import pickle

from mindtorch.core import dtypes as _dtypes
from mindtorch.core.tensor import Parameter, Tensor, taken
from mindtorch.torch import _globals, _utils
from mindtorch.torch._types import layout
from mindtorch.torch.storage import CLASS_OF, TypedStorage, UntypedStorage


class _NeedsPython(Exception):
    """C's pickler cannot write this one down."""


class Storages:
    """Storages of one file in order of appearance, and the dtype each is read as."""

    def __init__(self, legacy, tag):
        self._tag = tag  # gives a storage's device tag
        self._keys = {}
        self._dtypes = {}
        self.items = {}  # key -> UntypedStorage; keeps them alive, so that ids stay their own
        self._legacy = legacy

    def width(self, key):
        """Bytes of an element as the file counts them."""
        dtype = self._dtypes[key]
        return 1 if dtype is None else dtype.itemsize

    def reference(self, storage):
        """What a pickle holds in place of a storage."""
        untyped = storage.untyped()
        if untyped.device.type == "meta":
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        dtype = storage.dtype if isinstance(storage, TypedStorage) else None
        size = untyped.nbytes()
        # Two arrays may share memory without knowing of each other: the address tells.
        place = (untyped.data_ptr(), size) if size else id(untyped)
        key = self._keys.get(place)
        if key is None:
            key = self._keys[place] = str(len(self._keys))
            self.items[key] = untyped
            self._dtypes[key] = dtype
        elif self._dtypes[key] is not dtype:
            if dtype is not None and self._dtypes[key] is not None:
                raise RuntimeError(
                    "Cannot save multiple tensors or storages that view the same data as different types"
                )
            self._dtypes[key] = dtype or self._dtypes[key]
        if dtype is not None and dtype not in CLASS_OF:
            raise RuntimeError(
                f"a TypedStorage of {dtype} has no name in files: save the tensor, or its untyped storage"
            )
        kind = UntypedStorage if dtype is None else CLASS_OF[dtype]
        location = self._tag(untyped)
        reference = ("storage", kind, key, location, size if dtype is None else size // dtype.itemsize)
        return (*reference, None) if self._legacy else reference


class _Naming:
    """Pickler parts shared by C's and Python's: storages by reference, this package's things under torch's names."""

    def __init__(self, file, protocol, storages):
        super().__init__(file, protocol)
        self._storages = storages
        self.renamed = {}  # (module, qualname) as written by C -> torch's

    def persistent_id(self, obj):
        t = type(obj)
        if t is UntypedStorage or t is TypedStorage:
            return self._storages.reference(obj)
        return None

    def reducer_override(self, obj):
        if taken(obj):
            own = type(obj).__reduce_ex__
            if own is Tensor.__reduce_ex__ or own is _PARAMETER_REDUCE:
                return _utils.reduced(obj, True)
        elif isinstance(obj, _dtypes.dtype):
            return self._global(obj, "torch", obj.name)
        elif type(obj) is layout:
            from mindtorch.torch.serialization import _get_layout

            return _get_layout, (repr(obj),)
        elif isinstance(obj, (type, _FUNCTION)):
            known = _globals.torch_name(obj)
            if known is not None:
                return self._global(obj, *known)
        inherited = getattr(super(), "reducer_override", None)
        return NotImplemented if inherited is None else inherited(obj)


_FUNCTION = type(lambda: None)
_PARAMETER_REDUCE = Parameter.__reduce_ex__


class _CPickler(_Naming, pickle.Pickler):
    """C's pickler writes this package's own names; `pickled` puts torch's in their place."""

    def _global(self, obj, module, name):
        if isinstance(obj, _dtypes.dtype) or not _globals.importable(obj):
            raise _NeedsPython
        if (obj.__module__, obj.__qualname__) != (module, name):
            self.renamed[obj.__module__, obj.__qualname__] = module, name
        return NotImplemented


class _AnyPickler(_Naming):
    """Over a pickler written in Python (the standard library's or dill's): writes torch's names at once."""

    def _global(self, obj, module, name):
        self._name = module, name
        return name

    def save_global(self, obj, name=None):
        known = self.__dict__.pop("_name", None)
        if known is None:
            return super().save_global(obj, name)
        module, name = known
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + module.encode() + b"\n" + name.encode() + b"\n")
        self.memoize(obj)


@functools.lru_cache(None)
def _python_pickler(base):
    return type("_PythonPickler", (_AnyPickler, base), {})


def pickled(obj, pickle_module, protocol, legacy, tag):
    """(bytes, storages) of one object."""
    base = pickle_module.Pickler
    if base is pickle.Pickler:
        if protocol < 4:
            try:
                storages, buffer = Storages(legacy, tag), io.BytesIO()
                pickler = _CPickler(buffer, protocol, storages)
                pickler.dump(obj)
                return _rename(buffer.getvalue(), pickler.renamed), storages
            except _NeedsPython:
                pass  # the slower pickler below writes the same
        base = pickle._Pickler
    elif not issubclass(base, pickle._Pickler):
        raise NotImplementedError(
            f"torch.save with pickle_module={pickle_module.__name__} is not supported: its Pickler is not written in "
            "Python, so that torch's names cannot be given to what is pickled"
        )
    storages, buffer = Storages(legacy, tag), io.BytesIO()
    _python_pickler(base)(buffer, protocol, storages).dump(obj)
    return buffer.getvalue(), storages


def _rename(data, renamed):
    parts = []
    for (home, qualname), (module, name) in renamed.items():
        # Every global is written once and remembered.  A second match would be user data that looks like one.
        old = f"c{home}\n{qualname}\n".encode()
        if data.count(old) != 1:
            raise _NeedsPython
        parts.append((data.index(old), old, f"c{module}\n{name}\n".encode()))
    out, end = [], 0
    for start, old, new in sorted(parts):
        out += data[end:start], new
        end = start + len(old)
    return b"".join([*out, data[end:]])


