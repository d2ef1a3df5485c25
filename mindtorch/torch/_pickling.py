"""Pickling for files: storages by reference, and this package's classes and functions under
PyTorch's names."""

import functools
import io
import pickle

from mindtorch.core.tensor import dtypes as _dtypes
from mindtorch.core.tensor.tensor import Parameter, Tensor, is_tensor
from mindtorch.torch import _globals, _utils
from mindtorch.torch._types import _get_layout, layout
from mindtorch.torch.storage import CLASS_OF, TypedStorage, UntypedStorage


class _NeedsPython(Exception):
    """Raised if the C pickler cannot write an object."""


class Storages:
    """Storages of one file in order of appearance, and the dtype with which each is read."""

    def __init__(self, legacy, tag):
        self._tag = tag  # returns the device tag of a storage
        self._keys = {}
        self._dtypes = {}
        self.items = {}  # key -> UntypedStorage; keeps them alive, so that their ids are not reused
        self._legacy = legacy

    def width(self, key):
        """Returns the element size in bytes that the file uses for a storage."""
        dtype = self._dtypes[key]
        return 1 if dtype is None else dtype.itemsize

    def reference(self, storage):
        """Returns the persistent id that a pickle stores in place of a storage."""
        untyped = storage.untyped()
        if untyped.device.type == "meta":
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        dtype = storage.dtype if isinstance(storage, TypedStorage) else None
        size = untyped.nbytes()
        # Arrays may share memory without a common base, so storages are identified by their
        # address.
        storage_id = (untyped.data_ptr(), size) if size else id(untyped)
        key = self._keys.get(storage_id)
        if key is None:
            key = self._keys[storage_id] = str(len(self._keys))
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
                f"the file format has no storage class for a TypedStorage of {dtype}: save the tensor or its untyped storage"
            )
        kind = UntypedStorage if dtype is None else CLASS_OF[dtype]
        location = self._tag(untyped)
        reference = ("storage", kind, key, location, size if dtype is None else size // dtype.itemsize)
        return (*reference, None) if self._legacy else reference


class _Naming:
    """Mixin for both the C and the Python pickler: storages by reference, this package's objects
    under PyTorch's names."""

    def __init__(self, file, protocol, storages):
        super().__init__(file, protocol)
        self._storages = storages
        self.renamed = {}  # (module, qualname) as written by the C pickler -> PyTorch's

    def persistent_id(self, obj):
        t = type(obj)
        if t is UntypedStorage or t is TypedStorage:
            return self._storages.reference(obj)
        return None

    def reducer_override(self, obj):
        if is_tensor(obj):
            reduce = type(obj).__reduce_ex__
            if reduce is Tensor.__reduce_ex__ or reduce is _PARAMETER_REDUCE:
                return _utils.reduced(obj, True)
        elif isinstance(obj, _dtypes.dtype):
            return self._global(obj, "torch", obj.name)
        elif type(obj) is layout:
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
    """The C pickler writes this package's own names; `pickled` replaces them by PyTorch's."""

    def _global(self, obj, module, name):
        if isinstance(obj, _dtypes.dtype) or not _globals.importable(obj):
            raise _NeedsPython
        if (obj.__module__, obj.__qualname__) != (module, name):
            self.renamed[obj.__module__, obj.__qualname__] = module, name
        return NotImplemented


class _AnyPickler(_Naming):
    """Mixin for a pickler written in Python (the standard library's or dill's). Writes PyTorch's
    names directly."""

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
    """Pickles one object and returns (bytes, storages)."""
    base = pickle_module.Pickler
    if base is pickle.Pickler:
        if protocol < 4:
            try:
                storages, buffer = Storages(legacy, tag), io.BytesIO()
                pickler = _CPickler(buffer, protocol, storages)
                pickler.dump(obj)
                return _rename(buffer.getvalue(), pickler.renamed), storages
            except _NeedsPython:
                pass  # the slower pickler below produces the same result
        base = pickle._Pickler
    elif not issubclass(base, pickle._Pickler):
        raise NotImplementedError(
            f"torch.save with pickle_module={pickle_module.__name__} is not supported: its Pickler is not written in "
            "Python, so objects cannot be saved under torch's names"
        )
    storages, buffer = Storages(legacy, tag), io.BytesIO()
    _python_pickler(base)(buffer, protocol, storages).dump(obj)
    return buffer.getvalue(), storages


def _rename(data, renamed):
    parts = []
    for (home, qualname), (module, name) in renamed.items():
        # Every global is written once and then memoized. A second match would be user data that
        # looks like one.
        old = f"c{home}\n{qualname}\n".encode()
        if data.count(old) != 1:
            raise _NeedsPython
        parts.append((data.index(old), old, f"c{module}\n{name}\n".encode()))
    out, end = [], 0
    for start, old, new in sorted(parts):
        out += data[end:start], new
        end = start + len(old)
    return b"".join([*out, data[end:]])


