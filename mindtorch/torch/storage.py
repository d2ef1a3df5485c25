"""torch.UntypedStorage and torch.TypedStorage: the memory that tensors are views of.

A tensor's memory is the root of its array's ``base`` chain.  A storage object is a window on those bytes; while one is
alive, every tensor on the same memory gives the same object, so that pickling and copying can see what is shared.
"""

import contextlib
import copy
import io
import os
import pickle
import weakref

import numpy as np

from mindtorch import ops as _ops
from mindtorch.backend.cpu.host import address, byte_bounds
from mindtorch.backend.device import Opaque, home_of
from mindtorch.core import device as _device, meta
from mindtorch.core import dtypes as _dtypes
from mindtorch.core.layout import noted
from mindtorch.core.tensor import Version, put_on, version, wrap
from mindtorch.torch import _device_storage as _there

__all__ = ["TypedStorage", "UntypedStorage"]

_U8 = np.dtype(np.uint8)
_alive = weakref.WeakValueDictionary()  # id(root array) -> its UntypedStorage


# ------------------------------------------------------------------ geometry
def root_of(a):
    """The array that owns (or was given) the memory which `a` is a view of."""
    if a.__class__ is Opaque:
        return home_of(a)
    base = a.base
    while base is not None:
        if isinstance(base, np.ndarray):
            a = base
        elif not isinstance(base, np.lib.stride_tricks.DummyArray):
            break
        base = base.base
    return a


class _Memory:
    """Gives NumPy the bytes that an array with gaps or reversed axes spans, and keeps the array alive."""

    def __init__(self, a):
        low, high = byte_bounds(a)
        self.owner = a
        self.__array_interface__ = {
            "data": (low, not a.flags.writeable),
            "shape": (high - low,),
            "typestr": "|u1",
            "version": 3,
        }


def _bytes_of(root):
    """One-dimensional uint8 view of all of `root`'s memory."""
    if not root.flags.forc:
        order = sorted(range(root.ndim), key=lambda d: -root.strides[d])
        root = root.transpose(order)
    if root.flags.c_contiguous:
        return root.reshape(-1).view(np.uint8)
    if root.flags.f_contiguous:
        return root.T.reshape(-1).view(np.uint8)
    return np.asarray(_Memory(root))


def offset_of(t, storage):
    """Elements between the start of a tensor's storage and its first element."""
    a = t._a
    offset, rest = divmod(address(a) - address(storage._bytes if t._h is None else storage._root), a.itemsize)
    # A view without elements may stand anywhere, even outside its storage.
    return offset if a.size or not rest and 0 <= offset * a.itemsize <= storage.nbytes() else 0


def untyped(t):
    """The UntypedStorage under a tensor; the same object for all tensors on the same memory while it lives."""
    root = root_of(t._a) if t._h is None else _there.home(t)
    storage = _alive.get(id(root))
    if storage is None or storage._root is not root:
        storage = object.__new__(UntypedStorage)
        if t._h is None:
            storage._set(root, t.device)
        else:
            storage._set_flat(_there.flat_of(t), root)
            storage._ver = version(t)
    return storage


def _in_bounds(nbytes, item, offset, size, stride):
    """RuntimeError if a tensor of that geometry would reach outside of a storage."""
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: {len(stride)} and {len(size)}")
    if offset < 0 or any(s < 0 for s in size) or any(s < 0 for s in stride):
        raise RuntimeError(
            f"negative size, stride or offset: size {list(size)}, stride {list(stride)}, storage offset {offset}"
        )
    if 0 in size:
        return
    need = (offset + sum((n - 1) * s for n, s in zip(size, stride)) + 1) * item
    if need > nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize {item} "
            f"requiring a storage size of {need} are out of bounds for storage of size {nbytes}"
        )


def view_on(storage, dtype, offset, size, stride):
    """Array on a storage's bytes; RuntimeError if it would reach outside."""
    np_dtype = dtype.np
    u8, item = storage._bytes, np_dtype.itemsize
    size, stride = tuple(size), tuple(stride)
    _in_bounds(len(u8), item, offset, size, stride)
    if 0 in size:
        return np.empty(size, np_dtype) if not len(u8) else _empty_view(u8, np_dtype, offset, size, stride)
    try:
        return noted(np.ndarray(size, np_dtype, u8, offset * item, tuple([s * item for s in stride])))
    except (ValueError, OverflowError) as e:
        raise RuntimeError(f"sizes {list(size)} with strides {list(stride)} make no tensor: {e}") from e


def _empty_view(u8, np_dtype, offset, size, stride):
    item = np_dtype.itemsize
    start = offset * item if offset * item <= len(u8) else 0
    try:
        return np.ndarray(size, np_dtype, u8[start:], 0, tuple([s * item for s in stride]))
    except (ValueError, OverflowError):
        # NumPy lets even an empty array's strides stay within the buffer; without elements they mean nothing.
        return np.empty(size, np_dtype)


# ------------------------------------------------------------------ UntypedStorage
class _StorageBase:
    """What both kinds of storage answer alike."""

    is_sparse = False
    is_sparse_csr = False
    filename = None

    is_cuda = property(lambda self: self.device.type == "cuda")

    def __len__(self):
        return self.size()

    def __iter__(self):
        return iter(self.tolist())

    def __repr__(self):
        return str(self)

    def __copy__(self):
        return self.clone()

    def is_shared(self):
        """Whether other processes can see the memory."""
        from mindtorch.torch.multiprocessing import reductions

        return self.untyped()._flat is None and reductions.is_shared_array(self.untyped()._root)

    def is_pinned(self, device="cuda"):
        return False

    def pin_memory(self, device="cuda"):
        if self.device.type != "cpu":
            raise TypeError(f"cannot pin '{self.type()}' only CPU memory can be pinned")
        raise NotImplementedError("pin_memory of a storage is not supported: MindSpore gives no pinned host memory to others")

    def share_memory_(self):
        """Moves the memory to where other processes see it, with the tensors that stand on it."""
        from mindtorch.torch.multiprocessing import reductions

        if self.device.type not in ("cpu", "meta"):
            raise NotImplementedError(f"share_memory_ of a storage on device {self.device} is not supported: MindSpore cannot give a device's memory to other "
                                      "processes; share a copy on cpu")
        reductions.share_root(self.untyped()._root)
        return self

    @classmethod
    def _new_shared(cls, size, *, device="cpu"):
        """A storage in shared memory: of `size` bytes, or elements for a typed one."""
        from mindtorch.torch.multiprocessing import reductions

        if issubclass(cls, UntypedStorage):
            return UntypedStorage._of_bytes(reductions.new_shared(size))
        new = reductions.new_shared(size * (cls.dtype or _dtypes.get_default_dtype()).itemsize)
        return TypedStorage(wrap_storage=UntypedStorage._of_bytes(new), dtype=cls.dtype)

    def get_device(self):
        return None if self.device.type == "cpu" else self.device.index

    def _position(self, i):
        n = self.size()
        if not -n <= i < n:
            raise IndexError(f"index {i} out of range for storage of size {n}")
        return i % n


class UntypedStorage(_StorageBase):
    """A block of bytes (https://pytorch.org/docs/stable/storage.html).

    ``UntypedStorage(n)`` is new memory of n bytes, ``UntypedStorage([1, 2])`` holds the given bytes.
    """

    _flat = _pending = None     # of memory that is a device's

    def __init__(self, *args, device=None, wrap_storage=None):
        if wrap_storage is not None:
            raise TypeError("UntypedStorage() takes no wrap_storage: call .untyped() on a typed one")
        device = _device.check(device)
        if len(args) > 1:
            raise TypeError(f"UntypedStorage() takes a size or a sequence of bytes, got {len(args)} arguments")
        self._set(_new_bytes("torch.UntypedStorage()", args[0] if args else 0), device)

    def _set(self, root, device):
        # `_root` is what keeps the memory; `_u8` its plain view.
        if device is not _device.cpu and device.type in _device.registered:
            # (No tensor is on it yet: the bytes are sent there when one is made, in that one's type.)
            self._u8 = None
            self._root = self._pending = _bytes_of(root)
        else:
            self._root = root
            self._u8 = _bytes_of(root)
        self._device = device
        _alive[id(root)] = self

    def _set_flat(self, flat, root=None):
        # A device's memory, all of which the tensor `flat` covers.
        self._u8 = self._pending = None
        self._flat, self._device = flat, flat._dev
        self._root = _there.home(flat) if root is None else root
        _alive[id(self._root)] = self

    def _flat_of(self, dtype=_U8):
        """A device's memory as a flat tensor, of `dtype` if it is sent there only now."""
        if self._flat is None:
            self._set_flat(_there.sent(self._pending, self._device, dtype))
        return self._flat

    @property
    def _bytes(self):
        """The bytes as an array: the memory itself, or a copy of a device's, not to be written to."""
        if self._u8 is not None:
            return self._u8
        return self._pending if self._flat is None else _there.on_host(self._flat)

    @staticmethod
    def _of(t):
        """The storage under a tensor."""
        return untyped(t)

    @classmethod
    def _of_bytes(cls, u8, device=None):
        """Storage on an existing one-dimensional uint8 array that is the root of its memory."""
        self = object.__new__(cls)
        self._set(u8, device or _device.cpu)
        return self

    @staticmethod
    def from_file(filename, shared=False, nbytes=0):
        """Storage on a file's bytes; shared=True writes through to the file, which is made `nbytes` long if it is shorter."""
        filename = os.fspath(filename)
        if shared:
            with open(filename, "ab") as f:
                if f.tell() < nbytes:
                    f.truncate(nbytes)
        elif os.path.getsize(filename) < nbytes:
            raise RuntimeError(f"file {filename} has {os.path.getsize(filename)} bytes, fewer than the {nbytes} asked for")
        if not nbytes:
            return UntypedStorage(0)
        u8 = np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,))
        storage = UntypedStorage._of_bytes(np.frombuffer(u8, np.uint8))
        storage.filename = filename if shared else None
        return storage

    @property
    def device(self):
        return self._device

    @property
    def _cdata(self):
        return id(self._root)

    def size(self):
        return len(self._bytes) if self._flat is None else self._flat._nbytes

    nbytes = size

    def element_size(self):
        return 1

    def data_ptr(self):
        """Address of the first byte; 0 without memory."""
        if self._device.type == "meta":
            return 0
        return address(self._u8) if self._u8 is not None else self._flat_of().data_ptr()

    def untyped(self):
        return self

    def type(self, dtype=None, non_blocking=False):
        if dtype is None:
            return "torch.storage.UntypedStorage"
        return _typed(self, dtype)

    def __getitem__(self, i):
        if isinstance(i, slice):
            # A slice is a storage on the same bytes; it must not be mistaken for the whole.
            part = object.__new__(UntypedStorage)
            if self._u8 is None:
                start, stop, step = i.indices(self.size())
                if step != 1:
                    raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
                flat = self._flat_of()
                part._u8 = None
                part._flat = _there.part(flat, _U8, start, (max(stop - start, 0),), (1,))
                part._root = part._flat._a
            else:
                part._root = part._u8 = self._bytes[i]
            part._device = self._device
            return part
        return int(self._bytes[self._position(i)])

    def __setitem__(self, i, value):
        value = int(value) % 256
        with self._written() as u8:
            u8[i if isinstance(i, slice) else self._position(i)] = value

    @contextlib.contextmanager
    def _written(self):
        """The bytes, to be written to."""
        u8 = self._u8 if self._u8 is not None else self._pending
        if u8 is not None:
            yield u8
            return
        u8 = self._bytes.copy()
        yield u8
        _there.overwrite(self._flat, u8)

    def tolist(self):
        return self._bytes.tolist()

    def __str__(self):
        body = "".join(f" {b}\n" for b in self._bytes[:1000].tolist())
        more = " ...\n" if self.size() > 1000 else ""
        return f"{body}{more}[torch.storage.UntypedStorage(device={self._device}) of size {self.size()}]"

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and other._root is self._root

    def __hash__(self):
        return id(self._root)

    def clone(self):
        if self._flat is None:
            return UntypedStorage._of_bytes(self._bytes.copy(), self._device)
        new = object.__new__(UntypedStorage)
        new._set_flat(_there.copied(self._flat))
        return new

    def cpu(self):
        return self if self._device.type == "cpu" else self.to(_device.cpu)

    def to(self, device=None, non_blocking=False):
        """The same bytes on `device`; itself if they are there already."""
        device = _device.check(device)
        if device == self._device:
            return self
        return UntypedStorage._of_bytes(self._bytes if device.type == "meta" else self._bytes.copy(), device)

    def cuda(self, device=None, non_blocking=False):
        return self.to("cuda" if device is None else device)

    def npu(self, device=None, non_blocking=False):
        return self.to("npu" if device is None else device)

    def copy_(self, source, non_blocking=None):
        other = source.untyped()
        if other.nbytes() != self.nbytes():
            raise RuntimeError(
                f"size does not match, self was {self.nbytes()} bytes but src was {other.nbytes()} bytes"
            )
        with self._written() as u8:
            u8[...] = other._bytes
        return self

    def fill_(self, value):
        with self._written() as u8:
            u8[...] = int(value) % 256
        return self

    def byteswap(self, dtype):
        """Reverses the bytes of each element of `dtype`, in place."""
        width = dtype.itemsize // (2 if dtype.is_complex else 1)
        if width > 1:
            with self._written() as u8:
                u8.view(f"u{width}").byteswap(inplace=True)

    def resize_(self, size):
        if size == self.size():
            return self
        raise NotImplementedError(
            f"UntypedStorage.resize_ is not supported on device {self._device}: tensors hold memory of fixed size "
            f"(here {self.size()} bytes, asked for {size}); use Tensor.resize_"
        )

    def new(self):
        return UntypedStorage(0, device=self._device)

    def __deepcopy__(self, memo):
        key = ("mindtorch.storage", id(self._root))
        new = memo.get(key)
        if new is None:
            # The memo also keeps this object alive, so that the id stays its own.
            new = memo[key] = self.clone()
            memo[id(self)] = new
        return new

    def __reduce_ex__(self, protocol):
        if protocol >= 5:
            # The writer may carry the bytes out of band, or put them into the pickle without another copy.
            return _storage_from_buffer, (pickle.PickleBuffer(self._bytes), str(self._device))
        return _load_from_bytes, (_to_bytes(self),)

    def __sizeof__(self):
        return object.__sizeof__(self) + self.size()


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
    _convert.__doc__ = f"The values as a typed storage of torch's {_name}."
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


def _new_bytes(who, what):
    if isinstance(what, (bool, float)) or what is None:
        raise TypeError(f"{who}: expected a size or a sequence of int, got {type(what).__name__}")
    if hasattr(what, "__index__"):
        n = what.__index__()
        if n < 0:
            raise RuntimeError(f"{who}: a storage cannot have {n} bytes")
        if n >= 2**63:
            raise ValueError("Overflow when unpacking long long")
        return np.empty(n, np.uint8)
    values = []
    for v in what:
        if not hasattr(v, "__index__"):
            raise RuntimeError(
                f"{who}: tried to construct a storage from a sequence ({type(what).__name__}), but one of the items "
                "was "
                f"of type {type(v).__name__} instead of int"
            )
        values.append(v.__index__() % 256)
    return np.array(values, np.uint8)


def _typed(storage, dtype):
    """A typed copy of a storage's values; an untyped one holds bytes."""
    if isinstance(dtype, str):
        dtype = _BY_STORAGE_NAME[dtype.rsplit(".", 1)[-1]]
    elif isinstance(dtype, type):
        dtype = dtype.dtype
    return TypedStorage(wrap_storage=_convert_bytes(storage, dtype), dtype=dtype)


def _convert_bytes(storage, dtype):
    from mindtorch.backend.cpu.basic import cast_array

    a = storage._values() if isinstance(storage, TypedStorage) else storage._bytes
    return UntypedStorage._of_bytes(cast_array(a, dtype.np).view(np.uint8), storage.device)


# ------------------------------------------------------------------ TypedStorage
class TypedStorage(_StorageBase):
    """A storage read as elements of one dtype.

    ``TypedStorage(n, dtype=)``, ``TypedStorage([..], dtype=)`` or ``TypedStorage(wrap_storage=, dtype=)``.
    """

    dtype = None

    def __init__(self, *args, device=None, dtype=None, wrap_storage=None, _internal=False):
        if dtype is None:
            dtype = type(self).dtype or _dtypes.get_default_dtype()
        self.dtype = dtype
        if wrap_storage is not None:
            if args or not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(
                    "TypedStorage.__init__ received an invalid combination of arguments: wrap_storage must be the "
                    "only one "
                    f"and an UntypedStorage, but got {type(wrap_storage)}"
                )
            self._untyped_storage = wrap_storage
        elif len(args) > 1:
            raise TypeError(f"TypedStorage.__init__ takes a size or a sequence, got {len(args)} arguments")
        else:
            self._untyped_storage = UntypedStorage._of_bytes(
                _new_elements(dtype, args[0] if args else 0), _device.check(device)
            )

    @staticmethod
    def _of(t):
        """The storage under a tensor, with the tensor's dtype."""
        return TypedStorage(wrap_storage=untyped(t), dtype=t.dtype)

    @classmethod
    def from_buffer(cls, buffer, byte_order=None, count=-1, offset=0, dtype=None):
        """Copies elements out of an object with the buffer protocol; `byte_order` is "native", "big" or "little"."""
        dtype = cls.dtype or dtype or _dtypes.get_default_dtype()
        if byte_order is None and dtype.itemsize > 1:
            raise RuntimeError("function missing required argument 'byte_order' (pos 2)")
        raw = np.frombuffer(buffer, np.uint8, offset=offset)
        n = len(raw) // dtype.itemsize if count < 0 else count
        if n * dtype.itemsize > len(raw):
            raise ValueError(f"buffer has only {len(raw)} bytes after offset {offset}, but {n} elements were asked for")
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

    def data_ptr(self):
        return self._untyped_storage.data_ptr()

    def pickle_storage_type(self):
        """Name of the legacy class for this dtype; KeyError if there is none."""
        try:
            return _STORAGE_NAMES[self.dtype]
        except KeyError:
            raise KeyError(f"dtype {self.dtype} is not recognized") from None

    _pickle_storage_type = pickle_storage_type

    def type(self, dtype=None, non_blocking=False):
        if dtype is None:
            return "torch." + self.pickle_storage_type()
        return _typed(self, dtype)

    def __getitem__(self, i):
        if isinstance(i, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        v = self._values()[self._position(i)]
        return float(v) if self.dtype is _dtypes.bfloat16 else v.item()

    def __setitem__(self, i, value):
        with self._untyped_storage._written() as u8:
            u8.view(self.dtype.np)[i if isinstance(i, slice) else self._position(i)] = value

    def tolist(self):
        v = self._values()
        return (v.astype(np.float32) if self.dtype is _dtypes.bfloat16 else v).tolist()

    def __str__(self):
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
        with self._untyped_storage._written() as u8:
            u8.view(self.dtype.np)[...] = value
        return self

    def resize_(self, size):
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    def __deepcopy__(self, memo):
        return TypedStorage(wrap_storage=copy.deepcopy(self._untyped_storage, memo), dtype=self.dtype)

    def __reduce_ex__(self, protocol):
        return _typed_from_untyped, (self._untyped_storage, self.dtype)


def _new_elements(dtype, what):
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
    """isinstance(TypedStorage of that dtype on the CPU, torch.FloatStorage) holds."""

    def __instancecheck__(cls, x):
        return type(x) is TypedStorage and x.dtype is cls.dtype and x.device.type == "cpu"


class _LegacyStorage(TypedStorage, metaclass=_LegacyMeta):
    """torch.FloatStorage and its like: calling one makes a TypedStorage of its dtype."""

    def __new__(cls, *args, device=None, wrap_storage=None):
        return TypedStorage(*args, device=device, wrap_storage=wrap_storage, dtype=cls.dtype)


_STORAGE_NAMES = {
    _dtypes.float64: "DoubleStorage",
    _dtypes.float32: "FloatStorage",
    _dtypes.float16: "HalfStorage",
    _dtypes.int64: "LongStorage",
    _dtypes.int32: "IntStorage",
    _dtypes.int16: "ShortStorage",
    _dtypes.int8: "CharStorage",
    _dtypes.uint8: "ByteStorage",
    _dtypes.bool_: "BoolStorage",
    _dtypes.bfloat16: "BFloat16Storage",
    _dtypes.complex128: "ComplexDoubleStorage",
    _dtypes.complex64: "ComplexFloatStorage",
}
_BY_STORAGE_NAME = {v: k for k, v in _STORAGE_NAMES.items()}

#: Legacy class name -> class, and dtype -> class.
CLASSES = {
    n: _LegacyMeta(
        n,
        (_LegacyStorage,),
        {"dtype": d, "__module__": __name__, "__qualname__": n, "__doc__": f"Storage of {d} elements."},
    )
    for d, n in _STORAGE_NAMES.items()
}
CLASS_OF = {d: CLASSES[n] for d, n in _STORAGE_NAMES.items()}
globals().update(CLASSES)


def is_storage(obj):
    """Whether `obj` is a torch storage (https://pytorch.org/docs/stable/generated/torch.is_storage.html)."""
    return isinstance(obj, (UntypedStorage, TypedStorage))


# ------------------------------------------------------------------ what plain pickles call
def _to_bytes(storage):
    from mindtorch.torch.serialization import save

    buffer = io.BytesIO()
    save(storage, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def _load_from_bytes(b):
    """Storage out of a pickle of protocol 4 and below: the bytes are a file as torch.save writes it."""
    from mindtorch.torch.serialization import load

    return load(io.BytesIO(b), weights_only=False)


def _storage_from_buffer(buffer, device):
    u8 = np.frombuffer(buffer, np.uint8)
    if not u8.flags.writeable:
        u8 = u8.copy()
    return UntypedStorage._of_bytes(u8, _device.check(device))


def _typed_from_untyped(untyped_storage, dtype):
    return TypedStorage(wrap_storage=untyped_storage, dtype=dtype)


# ------------------------------------------------------------------ what Tensor's methods call
def set_source(source, dtype, offset=0, size=None, stride=None):
    """The tensor on whose memory ``Tensor.set_`` puts another: all of a storage, or a strided part of it."""
    if isinstance(source, TypedStorage) and source.dtype is not dtype:
        raise RuntimeError(
            f"Expected a Storage of type {dtype} or an UntypedStorage, but got type {source.dtype} for argument 1 "
            "'storage'"
        )
    storage = source.untyped()
    if size is None:
        size = (storage.nbytes() // dtype.itemsize - offset,)
    if stride is None:
        stride = _ops.shapes._sizes.contiguous_strides(tuple(size))
    return tensor_on(storage, dtype, offset, size, stride)


def tensor_on(storage, dtype, offset, size, stride, requires_grad=False):
    """Tensor on an untyped storage's memory, sharing it with every other tensor made so."""
    if storage.device.type == "meta":
        return _meta_on(storage, dtype, offset, size, stride, requires_grad)
    if storage._u8 is None:
        size, stride = tuple(size), tuple(stride)
        _in_bounds(storage.nbytes(), dtype.np.itemsize, offset, size, stride)
        t = _there.part(storage._flat_of(dtype.np), dtype.np, offset, size, stride)
    else:
        t = wrap(view_on(storage, dtype, offset, size, stride))
        if storage.device is not _device.cpu:
            put_on(t, storage.device)
    t._ver = _shared_version(storage)
    if requires_grad:
        t.requires_grad = True
    return t


def _meta_on(storage, dtype, offset, size, stride, requires_grad):
    """A tensor without values: of its storage nothing is read but the device."""
    item, size = dtype.np.itemsize, tuple(size)
    span = 0 if 0 in size else offset + 1 + sum((n - 1) * s for n, s in zip(size, stride))
    flat = meta.blank((span,), dtype.np)
    a = np.ndarray(size, dtype.np, flat, offset * item, [s * item for s in stride]) if span else meta.blank(size, dtype.np)
    return meta.on(a, requires_grad)


def _shared_version(storage):
    """One write counter for the tensors made on one storage, so that a write through one is seen by all."""
    v = getattr(storage, "_ver", None)
    if v is None:
        v = storage._ver = Version()
    return v


# Tensor.set_ and torch.tensor meet storages on the floor below.
_ops.indexing._writes.tensor_of_storage = set_source
