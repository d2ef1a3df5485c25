"""torch.UntypedStorage and torch.TypedStorage: the memory that tensors are views of.

`UntypedStorage` is defined in _untyped_storage.py.
"""

import copy
import io
import pickle

import numpy as np

from mindtorch import ops as _ops
from mindtorch.core.device import device as _device
from mindtorch.core.tensor import from_data
from mindtorch.core.dispatch import meta
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor import dtypes as _dtypes
from mindtorch.core.tensor.storage_impl import bytes_of as _bytes_of, storage_root  # noqa: F401
from mindtorch.core.tensor.tensor import VersionCounter, set_device, is_tensor, wrap_array
from mindtorch.torch import _device_storage as _there
from mindtorch.torch._globals import STORAGE_DTYPES, STORAGE_NAMES
from mindtorch.torch._untyped_storage import UntypedStorage, _alive, _checked, _in_bounds, _StorageBase, StorageBase, checked_size, offset_of, untyped, view_on  # noqa: F401

__all__ = ["TypedStorage", "UntypedStorage"]


for _name in (
    "double",
    "float",
    "half",
    "long",
    "int",
    "short",
    "char",
    "byte",
    "bool",
    "bfloat16",
    "complex_double",
    "complex_float",
):

    def _convert(self, _name=_name):
        return _typed(self, _CONVERSIONS[_name])

    _convert.__name__ = _convert.__qualname__ = _name
    _convert.__doc__ = f"Returns a copy of the values as a TypedStorage of type {_name}."
    setattr(_StorageBase, _name, _convert)
del _convert, _name

_CONVERSIONS = {
    "double": _dtypes.float64,
    "float": _dtypes.float32,
    "half": _dtypes.float16,
    "long": _dtypes.int64,
    "int": _dtypes.int32,
    "short": _dtypes.int16,
    "char": _dtypes.int8,
    "byte": _dtypes.uint8,
    "bool": _dtypes.bool_,
    "bfloat16": _dtypes.bfloat16,
    "complex_double": _dtypes.complex128,
    "complex_float": _dtypes.complex64,
}


def _typed(storage, dtype):
    """Returns a typed copy of a storage's values; an untyped storage is read as bytes."""
    if storage.device.type == "meta" and not isinstance(dtype, (str, type)):
        return TypedStorage(storage.size(), dtype=dtype, device=storage.device)
    if isinstance(dtype, str):
        dtype = STORAGE_DTYPES[dtype.rsplit(".", 1)[-1]]
    elif isinstance(dtype, type):
        dtype = dtype.dtype
    return TypedStorage(wrap_storage=_convert_bytes(storage, dtype), dtype=dtype)


def _convert_bytes(storage, dtype):
    from mindtorch.backend.cpu.basic import cast_array

    a = storage._values() if isinstance(storage, TypedStorage) else storage._bytes
    return UntypedStorage._of_bytes(cast_array(a, dtype.np).view(np.uint8), storage.device)


def _untyped_type(self, dtype=None, non_blocking=False):
    return "torch.storage.UntypedStorage" if dtype is None else _typed(self, dtype)


# ------------------------------------------------------------------ TypedStorage
class TypedStorage(_StorageBase):
    """A storage read as elements of one dtype.

    ``TypedStorage(n, dtype=)``, ``TypedStorage([..], dtype=)`` or ``TypedStorage(wrap_storage=, dtype=)``.
    """

    dtype = None

    def __init__(self, *args, device=None, dtype=None, wrap_storage=None, _internal=False):
        if wrap_storage is not None:
            if args:
                raise RuntimeError("TypedStorage: No positional arguments should be given when using 'wrap_storage'")
            if dtype is None:
                raise RuntimeError("TypedStorage: Argument 'dtype' must be specified where there is 'wrap_storage'")
            if not isinstance(dtype, _dtypes.dtype):
                raise TypeError(f"TypedStorage: Argument 'dtype' must be torch.dtype, not {type(dtype)}")
            if device is not None:
                raise RuntimeError("TypedStorage: Argument 'device' should not be specified where there is 'wrap_storage'")
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(f"TypedStorage: Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage)}")
            self.dtype, self._untyped_storage = dtype, wrap_storage
            return
        self.dtype = dtype = _dtypes.get_default_dtype() if dtype is None else dtype
        if len(args) > 1:
            raise RuntimeError(f"TypedStorage: Too many positional arguments: a size or a sequence, got {len(args)}")
        device = _device.check(device)
        if device.type not in ("cpu", "meta") and device.type not in _device.registered:
            raise RuntimeError(f"TypedStorage: Storage device not recognized: {device.type}")
        what = args[0] if args else 0
        if device.type == "meta" and hasattr(what, "__index__"):
            self._untyped_storage = UntypedStorage(what.__index__() * dtype.itemsize, device=device)
        else:
            self._untyped_storage = UntypedStorage._of_bytes(_new_elements(dtype, what), device)

    @staticmethod
    def _of(t):
        """Returns the storage of a tensor, with the tensor's dtype."""
        return TypedStorage(wrap_storage=untyped(t), dtype=t.dtype)

    @classmethod
    def from_buffer(cls, buffer, byte_order=None, count=-1, offset=0, dtype=None):
        """Copies elements from an object with the buffer protocol; `byte_order` is "native", "big"
        or "little"."""
        dtype = cls.dtype or dtype or _dtypes.get_default_dtype()
        if byte_order is None and dtype.itemsize > 1:
            raise RuntimeError("function missing required argument 'byte_order' (pos 2)")
        raw = np.frombuffer(buffer, np.uint8, offset=offset)
        n = len(raw) // dtype.itemsize if count < 0 else count
        if n * dtype.itemsize > len(raw):
            raise ValueError(f"buffer has only {len(raw)} bytes after offset {offset}, but {n} elements were requested")
        new = UntypedStorage._of_bytes(raw[: n * dtype.itemsize].copy())
        if byte_order == "big":
            new.byteswap(dtype)
        return TypedStorage(wrap_storage=new, dtype=dtype)

    def _values(self):
        return self._untyped_storage._bytes.view(self.dtype.np)

    @property
    def device(self):
        return self._untyped_storage.device

    @property
    def _cdata(self):
        return self._untyped_storage._cdata

    def untyped(self):
        return self._untyped_storage

    def size(self):
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    _size = size

    def nbytes(self):
        return self._untyped_storage.nbytes()

    def element_size(self):
        return self.dtype.itemsize

    @classmethod
    def from_file(cls, filename, shared=False, size=0):
        """Returns a storage of `size` elements backed by a file (FloatStorage.from_file etc.); see
        UntypedStorage.from_file."""
        if cls is TypedStorage:
            raise RuntimeError("from_file can only be called on derived classes")
        return TypedStorage(wrap_storage=UntypedStorage.from_file(filename, shared, size * cls.dtype.itemsize), dtype=cls.dtype)

    @classmethod
    def _new_shared(cls, size, *, device="cpu"):
        """Returns a storage of `size` elements in shared memory."""
        dtype = cls.dtype or _dtypes.get_default_dtype()
        return TypedStorage(wrap_storage=UntypedStorage._new_shared(size * dtype.itemsize), dtype=cls.dtype)

    @property
    def filename(self):
        """Returns the file that backs the memory, if the memory is shared with a file."""
        return self._untyped_storage.filename

    def data_ptr(self):
        return self._untyped_storage.data_ptr()

    def pickle_storage_type(self):
        """Returns the name of the legacy class for this dtype; raises KeyError if there is none."""
        try:
            return STORAGE_NAMES[self.dtype]
        except KeyError:
            raise KeyError(f"dtype {self.dtype} is not recognized") from None

    _pickle_storage_type = pickle_storage_type

    def type(self, dtype=None, non_blocking=False):
        if dtype is None:
            return "torch." + self.pickle_storage_type() if self.device.type != "meta" else "torch.storage.TypedStorage"
        return _typed(self, dtype)

    def __getitem__(self, i):
        if self.device.type == "meta":
            return self._values()
        if isinstance(i, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        v = self._values()[self._position(i)]
        return float(v) if self.dtype is _dtypes.bfloat16 else v.item()

    def __setitem__(self, i, value):
        if is_storage(value):
            raise RuntimeError(f"cannot set item with value type {type(value)}")
        if self.device.type == "meta":
            return
        with self._untyped_storage._written() as u8:
            u8.view(self.dtype.np)[i if isinstance(i, slice) else self._position(i)] = value

    def tolist(self):
        v = self._values()
        return (v.astype(np.float32) if self.dtype is _dtypes.bfloat16 else v).tolist()

    def __str__(self):
        if self.device.type == "meta":
            return f"...\n[torch.storage.TypedStorage(dtype={self.dtype}, device=meta) of size {self.size()}]"
        body = "".join(f" {v}\n" for v in self.tolist()[:1000])
        more = " ...\n" if self.size() > 1000 else ""
        return (
            f"{body}{more}[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {self.size()}]"
        )

    def clone(self):
        return TypedStorage(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def cpu(self):
        return TypedStorage(wrap_storage=self._untyped_storage.cpu(), dtype=self.dtype)

    def cuda(self, device=None, non_blocking=False):
        return TypedStorage(wrap_storage=self._untyped_storage.cuda(device), dtype=self.dtype)

    def npu(self, device=None, non_blocking=False):
        return TypedStorage(wrap_storage=self._untyped_storage.npu(device), dtype=self.dtype)

    def to(self, *, device, non_blocking=False):
        return TypedStorage(wrap_storage=self._untyped_storage.to(device), dtype=self.dtype)

    def copy_(self, source, non_blocking=None):
        self._untyped_storage.copy_(source.untyped())
        return self

    def fill_(self, value):
        self[:] = value
        return self

    def resize_(self, size):
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    def __sizeof__(self):
        return object.__sizeof__(self) + self.nbytes()

    def __deepcopy__(self, memo):
        return TypedStorage(wrap_storage=copy.deepcopy(self._untyped_storage, memo), dtype=self.dtype)

    def __reduce_ex__(self, protocol):
        return _typed_from_untyped, (self._untyped_storage, self.dtype)


def _new_elements(dtype, what):
    if isinstance(what, (str, bytes)):
        raise TypeError(f"TypedStorage: invalid data type {type(what).__name__}")
    if is_tensor(what):
        raise TypeError(f"TypedStorage: Argument type not recognized: {type(what)}")
    if hasattr(what, "__index__") and not isinstance(what, bool):
        n = what.__index__()
        if n < 0:
            raise RuntimeError(f"a storage cannot have {n} elements")
        return np.empty(n * dtype.itemsize, np.uint8)
    a = np.asarray(list(what))
    return (
        a.astype(np.float32).astype(dtype.np).view(np.uint8)
        if dtype is _dtypes.bfloat16
        else a.astype(dtype.np).view(np.uint8)
    )


class _LegacyMeta(type):
    """Metaclass for isinstance: a CPU TypedStorage of the class's dtype is an instance of
    torch.FloatStorage etc."""

    def __instancecheck__(cls, x):
        return type(x) is TypedStorage and x.dtype is cls.dtype and x.device.type == "cpu"


class _LegacyStorage(TypedStorage, metaclass=_LegacyMeta):
    """Base of torch.FloatStorage etc.: calling a subclass creates a TypedStorage of its dtype."""

    def __new__(cls, *args, wrap_storage=None, **kwargs):
        if cls is _LegacyStorage:
            raise RuntimeError("Only child classes of _LegacyStorage can be instantiated")
        for name in ("device", "dtype"):
            if name in kwargs:
                raise RuntimeError(f"{cls.__name__}.__init__: Keyword argument '{name}' cannot be specified: the class determines it")
        kwargs.pop("_internal", None)
        if kwargs:
            raise TypeError(f"{cls.__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
        if wrap_storage is None:
            return TypedStorage(*args, dtype=cls.dtype)
        if args:
            raise RuntimeError(f"{cls.__name__}.__init__: No positional arguments should be given when using 'wrap_storage'")
        if isinstance(wrap_storage, UntypedStorage) and wrap_storage.device.type != "cpu":
            raise RuntimeError(f"{cls.__name__}.__init__: Device of 'wrap_storage' must be cpu, but got {wrap_storage.device.type}")
        return TypedStorage(wrap_storage=wrap_storage, dtype=cls.dtype)


#: Legacy class name -> class, and dtype -> class.
CLASSES = {
    n: _LegacyMeta(
        n,
        (_LegacyStorage,),
        {"dtype": d, "__module__": __name__, "__qualname__": n, "__doc__": f"Storage of {d} elements."},
    )
    for d, n in STORAGE_NAMES.items()
}
CLASS_OF = {d: CLASSES[n] for d, n in STORAGE_NAMES.items()}
globals().update(CLASSES)


def _dtype_to_storage_type_map():
    """Returns a map from dtypes to the names of the legacy classes."""
    return dict(STORAGE_NAMES)


def _storage_type_to_dtype_map():
    """Returns a map from the names of the legacy classes to dtypes."""
    return dict(STORAGE_DTYPES)


def is_storage(obj):
    """True if `obj` is a PyTorch storage
    (https://pytorch.org/docs/stable/generated/torch.is_storage.html)."""
    return isinstance(obj, (UntypedStorage, TypedStorage))


# ------------------------------------------------------------------ called by plain pickles
#: torch.save and torch.load, which serialization.py registers here
file_format: dict = {}


def _to_bytes(storage):
    buffer = io.BytesIO()
    file_format["save"](storage, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def _load_from_bytes(b):
    """Restores a storage from a pickle of protocol 4 or below; the bytes are a file written by
    torch.save."""
    return file_format["load"](io.BytesIO(b), weights_only=False)


def _storage_from_buffer(buffer, device):
    u8 = np.frombuffer(buffer, np.uint8)
    if not u8.flags.writeable:
        u8 = u8.copy()
    return UntypedStorage._of_bytes(u8, _device.check(device))


def _reduce_untyped(storage, protocol):
    if protocol >= 5:
        # The pickler may carry the bytes out of band, or write them into the pickle without
        # another copy.
        return _storage_from_buffer, (pickle.PickleBuffer(storage._copied()), str(storage._device))
    return _load_from_bytes, (_to_bytes(storage),)


def _typed_from_untyped(untyped_storage, dtype):
    return TypedStorage(wrap_storage=untyped_storage, dtype=dtype)


# ------------------------------------------------------------------ called by Tensor's methods
def set_source(source, dtype, offset=0, size=None, stride=None):
    """Returns the source tensor for ``Tensor.set_``: all of a storage, or a strided part of it."""
    if isinstance(source, TypedStorage) and source.dtype is not dtype:
        raise RuntimeError(
            f"Expected a Storage of type {scalar_type_name(dtype.np)} or an UntypedStorage, but got {scalar_type_name(source.dtype.np)}"
        )
    storage = source.untyped()
    if size is None:
        size = (storage.nbytes() // dtype.itemsize - offset,)
    if stride is None:
        stride = _ops.shapes._sizes.contiguous_strides(tuple(size))
    return tensor_on(storage, dtype, offset, size, stride)


def tensor_on(storage, dtype, offset, size, stride, requires_grad=False):
    """Returns a tensor on an untyped storage's memory, shared with all other tensors created on it.
    """
    offset, size, stride = _checked(dtype, offset, size, stride)
    if storage.device.type == "meta":
        return _meta_on(storage, dtype, offset, size, stride, requires_grad)
    if storage._u8 is None:
        _in_bounds(storage.nbytes(), dtype.np.itemsize, offset, size, stride)
        t = _there.part(storage._flat_of(dtype.np), dtype.np, offset, size, stride)
    else:
        t = wrap_array(view_on(storage, dtype, offset, size, stride))
        if storage.device is not _device.cpu:
            set_device(t, storage.device)
    t._version_counter = _shared_version(storage)
    if requires_grad:
        t.requires_grad = True
    return t


def _meta_on(storage, dtype, offset, size, stride, requires_grad):
    """Returns a meta tensor on the storage if the storage is large enough (it is never read), else
    on a new meta array."""
    item = dtype.np.itemsize
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: {len(stride)} and {len(size)}")
    if offset < 0 or min(size, default=0) < 0 or min(stride, default=0) < 0:
        raise RuntimeError(f"negative size, stride or offset: size {list(size)}, stride {list(stride)}, storage offset {offset}")
    span = 0 if 0 in size else offset + 1 + sum((n - 1) * s for n, s in zip(size, stride))
    flat = storage._root if span * item <= storage._root.nbytes else meta.meta_array((span,), dtype.np)
    a = np.ndarray(size, dtype.np, flat, offset * item, [s * item for s in stride]) if span else meta.meta_array(size, dtype.np)
    return meta.on(a, requires_grad)


def _shared_version(storage):
    """Returns the version counter shared by all tensors created on a storage, so that each sees the
    others' in-place writes."""
    v = getattr(storage, "_version_counter", None)
    if v is None:
        v = storage._version_counter = VersionCounter()
    return v


# Methods of untyped storages that return typed ones or read the file format.
StorageBase.type = _untyped_type
StorageBase.__reduce_ex__ = _reduce_untyped

from_data.STORAGES.update((TypedStorage, UntypedStorage))
