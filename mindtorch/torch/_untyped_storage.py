"""torch.UntypedStorage: the memory that tensors are views of, as bytes.

A tensor's memory is the root of its array's ``base`` chain. A storage object is a window on those
bytes. While it is alive, all tensors on that memory return the same storage object, so pickling and
copying can detect sharing.
"""

import contextlib
import functools
import operator
import os
import struct
import weakref

import numpy as np

from mindtorch.backend.cpu.host import address, byte_bounds
from mindtorch.backend.meta.arrays import is_meta_array
from mindtorch.core.device import device as _device
from mindtorch.core.tensor import dtypes as _dtypes, from_data, storage_impl
from mindtorch.core.dispatch import meta
from mindtorch.core.tensor.conj_neg_bits import plain
from mindtorch.core.tensor.stride_rules import noted
from mindtorch.core.tensor.storage_impl import bytes_of as _bytes_of, storage_root
from mindtorch.core.tensor.tensor import version_counter
from mindtorch.torch import _device_storage as _there

_U8 = np.dtype(np.uint8)
_alive = weakref.WeakValueDictionary()  # id(root array) -> its UntypedStorage
# id(root array) -> user attributes of a storage object that was garbage-collected
_saved_attributes: dict[int, dict[str, object]] = {}
_OWN = frozenset(("_u8", "_root", "_device", "_flat", "_pending", "_version_counter", "filename"))


# ------------------------------------------------------------------ geometry
def offset_of(t, storage):
    """Returns the offset of a tensor's first element from the start of its storage, in elements."""
    t = plain(t)
    a = t._array
    if t._device.type == "meta":
        return (address(a) - address(storage._root)) // a.itemsize if a.size else 0
    offset, rest = divmod(address(a) - address(storage._bytes if t._handle is None else storage._root), a.itemsize)
    # A view without elements may have any address, even one outside its storage.
    return offset if a.size or not rest and 0 <= offset * a.itemsize <= storage.nbytes() else 0


def untyped(t):
    """Returns a tensor's UntypedStorage: the same object for all tensors on the same memory while
    it is alive."""
    t = plain(t)
    root = storage_root(t._array) if t._handle is None else _there.home(t)
    storage = _alive.get(id(root))
    if storage is None or storage._root is not root:
        storage = object.__new__(UntypedStorage)
        if t._handle is None:
            storage._set(root, t.device)
        else:
            storage._set_flat(_there.flat_of(t), root)
            storage._version_counter = version_counter(t)
        if _saved_attributes:
            storage.__dict__.update(_saved_attributes.pop(id(root), {}))
    return storage


def _checked(dtype, offset, size, stride):
    """Returns (offset, size, stride) as ints. The arguments may come from a file.

    Raises TypeError or RuntimeError if they do not describe a tensor.
    """
    if not isinstance(dtype, _dtypes.dtype):
        raise TypeError(f"dtype must be torch.dtype, not {type(dtype).__name__}")
    offset = _integer("storage_offset", offset)
    size, stride = checked_size(size), checked_size(stride, "stride")
    count = functools.reduce(operator.mul, filter(None, size), dtype.itemsize)
    if count > _LARGEST or (offset + 1 + sum((n - 1) * s for n, s in zip(size, stride))) * dtype.itemsize > _LARGEST:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}")
    return offset, size, stride


def checked_size(size, name="size"):
    """Returns a size (or strides) as a tuple of 64-bit ints. Raises TypeError for anything else."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"{name} must be a tuple of ints, not {type(size).__name__}")
    return tuple(_integer(name, n) for n in size)


_LARGEST = 2**63 - 1


def _integer(name, n):
    if type(n) is not int:
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise TypeError(f"{name} must be int, not {type(n).__name__}")
        n = operator.index(n)
    if not -_LARGEST <= n <= _LARGEST:
        raise TypeError(f"{name}: {n} does not fit into 64 bits")
    return n


def _in_bounds(nbytes, item, offset, size, stride):
    """Raises RuntimeError if a tensor of that geometry would reach outside its storage."""
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
    """Returns an array view on a storage's bytes. Raises RuntimeError if it would reach outside the
    storage."""
    np_dtype = dtype.np
    u8, item = storage._bytes, np_dtype.itemsize
    _in_bounds(len(u8), item, offset, size, stride)
    if 0 in size:
        return np.empty(size, np_dtype) if not len(u8) else _empty_view(u8, np_dtype, offset, size, stride)
    try:
        return noted(np.ndarray(size, np_dtype, u8, offset * item, tuple([s * item for s in stride])))
    except (ValueError, OverflowError) as e:
        raise RuntimeError(f"sizes {list(size)} with strides {list(stride)} do not describe a valid tensor: {e}") from e


def _empty_view(u8, np_dtype, offset, size, stride):
    item = np_dtype.itemsize
    start = offset * item if offset * item <= len(u8) else 0
    try:
        return np.ndarray(size, np_dtype, u8[start:], 0, tuple([s * item for s in stride]))
    except (ValueError, OverflowError):
        # NumPy requires even an empty array's strides to stay within the buffer. Without elements
        # the strides mean nothing.
        return np.empty(size, np_dtype)


# ------------------------------------------------------------------ UntypedStorage
NO_DATA = "Cannot copy out of meta tensor; no data!"


class _StorageBase:
    """Methods common to typed and untyped storages."""

    is_sparse = False
    is_sparse_csr = False
    filename = None

    is_cuda = property(lambda self: _device.answers_to(self.device, "cuda"))
    is_npu = property(lambda self: _device.answers_to(self.device, "npu"))

    def __len__(self):
        return self.size()

    def __iter__(self):
        return iter(self.tolist())

    def __repr__(self):
        return str(self)

    def __copy__(self):
        return self.clone()

    def is_shared(self):
        """True if other processes can access the memory."""
        from mindtorch.torch import _shared_memory

        return self.untyped()._flat is None and _shared_memory.is_shared_array(self.untyped()._root)

    def is_pinned(self, device="cuda"):
        return False

    def pin_memory(self, device="cuda"):
        if self.device.type != "cpu":
            raise TypeError(f"cannot pin '{self.untyped().type()}' only CPU memory can be pinned")
        raise NotImplementedError("pin_memory of a storage is not supported: MindSpore does not expose pinned host memory")

    def share_memory_(self):
        """Moves the memory, with the tensors on it, to shared memory."""
        if self.device.type == "meta":
            raise RuntimeError("_share_fd_: only available on CPU")
        if self.device.type != "cpu":
            raise NotImplementedError(f"share_memory_ of a storage on device {self.device} is not supported: MindSpore cannot share device memory between "
                                      "processes; share a copy on cpu")
        from mindtorch.torch import _shared_memory

        storage_impl.materialize_cow(self.untyped()._root)
        _shared_memory.share_root(self.untyped()._root)
        return self

    def _share_fd_cpu_(self):
        """Moves the memory to shared memory and returns (file descriptor, size in bytes)."""
        if self.device.type != "cpu":
            raise RuntimeError("_share_fd_: only available on CPU")
        from mindtorch.torch import _shared_memory

        self.share_memory_()
        root = self.untyped()._root
        return os.dup(_shared_memory.segments[id(root)].fd), root.nbytes

    def _share_filename_cpu_(self):
        if self.device.type != "cpu":
            raise RuntimeError("_share_filename_: only available on CPU")
        raise NotImplementedError("sharing a storage by file name is not supported: shared memory is anonymous here and is sent as a file descriptor")

    def _write_file(self, f, is_real_file, save_size, element_size):
        """Writes the bytes to a file. With save_size, first writes the number of elements (8 bytes,
        little endian)."""
        u8 = self.untyped()._copied()
        if save_size:
            f.write(struct.pack("<q", len(u8) // element_size))
        f.write(u8.data)

    def get_device(self):
        return None if self.device.type == "cpu" else self.device.index

    def _position(self, i):
        n = self.size()
        if not -n <= i < n:
            raise IndexError(f"index {i} out of range for storage of size {n}")
        return i % n


class StorageBase(_StorageBase):
    """Base of UntypedStorage and of users' own storage classes. Raises RuntimeError if instantiated
    directly."""

    # device memory: `_flat` is a tensor that covers it, `_pending` are bytes not yet sent to the
    # device
    _flat = _pending = None
    _fixed = False  # True for a slice of another storage, whose size cannot change

    def __del__(self):
        # Attributes that a user set on a storage live as long as its memory: a later storage object
        # on that memory gets them back. (`_OWN` is None at interpreter shutdown.)
        attribute_dict = self.__dict__
        if len(attribute_dict) > 3 and _OWN is not None and (kept := {k: v for k, v in attribute_dict.items() if k not in _OWN}) and attribute_dict.get("_root") is not None:
            _saved_attributes[id(self._root)] = kept
            weakref.finalize(self._root, _saved_attributes.pop, id(self._root), None).atexit = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        from_data.STORAGES.add(cls)

    def __new__(cls, *args, **kwargs):
        if cls is StorageBase:
            raise RuntimeError("Cannot directly construct StorageBase; subclass it and then construct that")
        return object.__new__(cls)

    def __init__(self, *args, device=None, wrap_storage=None):
        if wrap_storage is not None:
            raise TypeError("UntypedStorage() takes no wrap_storage: call .untyped() on a typed one")
        device = _device.check(device)
        if len(args) > 1:
            raise TypeError(f"UntypedStorage() takes a size or a sequence of bytes, got {len(args)} arguments")
        what = args[0] if args else 0
        if device.type == "meta" and type(what) is int and what > 0:
            self._set(storage_root(meta.meta_array((what,), _U8)), device)
        else:
            self._set(_new_bytes("torch.UntypedStorage()", what), device)

    def _set(self, root, device):
        # `_root` keeps the memory alive; `_u8` is its view as bytes.
        if device.type == "meta":
            self._u8 = None
            self._root = root if root.base is not None and is_meta_array(root) else storage_root(meta.meta_array((root.nbytes,), _U8))
            root = self._root
        elif device is not _device.cpu and device.type in _device.registered:
            # No tensor is on this storage yet. The bytes are sent to the device when the first
            # tensor is created, in that tensor's dtype.
            self._u8 = None
            self._root = self._pending = _bytes_of(root)
        else:
            self._root = root
            self._u8 = _bytes_of(root)
        self._device = device
        _alive[id(root)] = self

    def _set_flat(self, flat, root=None):
        # Device memory; the tensor `flat` covers all of it.
        self._u8 = self._pending = None
        self._flat, self._device = flat, flat._device
        self._root = _there.home(flat) if root is None else root
        _alive[id(self._root)] = self

    def _flat_of(self, dtype=_U8):
        """Returns the device memory as a flat tensor. Bytes that are still pending are sent to the
        device now, as `dtype`."""
        if self._flat is None:
            self._set_flat(_there.sent(self._pending, self._device, dtype))
        return self._flat

    @property
    def _bytes(self):
        """The bytes as an array: the memory itself, or a read-only copy of device memory. Raises
        NotImplementedError on device meta."""
        if self._device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        if self._u8 is not None:
            return self._u8
        return self._pending if self._flat is None else _there.on_host(self._flat)

    def _copied(self):
        """Returns `_bytes` for copying elsewhere; PyTorch's "no data" error on device meta."""
        if self._device.type == "meta":
            raise NotImplementedError(NO_DATA)
        return self._bytes

    @staticmethod
    def _of(t):
        """Returns a tensor's storage."""
        return untyped(t)

    @classmethod
    def _of_bytes(cls, u8, device=None):
        """Wraps an existing 1-D uint8 array, which must be the root of its memory."""
        self = object.__new__(cls)
        self._set(u8, device or _device.cpu)
        return self

    @staticmethod
    def from_file(filename, shared=False, nbytes=0):
        """Returns a storage on a file's bytes. shared=True writes through to the file and extends a
        shorter file to `nbytes`."""
        filename = os.fspath(filename)
        if shared:
            with open(filename, "ab") as f:
                if f.tell() < nbytes:
                    f.truncate(nbytes)
        elif os.path.getsize(filename) < nbytes:
            raise RuntimeError(f"file {filename} has {os.path.getsize(filename)} bytes, fewer than the requested {nbytes}")
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
        return storage_impl.storage_number(self._root)

    def size(self):
        if self._device.type == "meta":
            return _cut.get(id(self._root), self._root.nbytes)
        return len(self._bytes) if self._flat is None else self._flat._nbytes

    nbytes = size

    def element_size(self):
        return 1

    def data_ptr(self):
        """Returns the address of the first byte, also for writing; 0 without memory."""
        if self._device.type == "meta":
            return 0
        if storage_impl.COW.on:
            storage_impl.materialize_cow(self._root)
        return address(self._u8) if self._u8 is not None else self._flat_of().data_ptr()

    def untyped(self):
        return self

    def __getitem__(self, i):
        if self._device.type == "meta":
            return self._bytes
        if isinstance(i, slice):
            start, stop, step = i.indices(self.size())
            if step != 1:
                raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
            part = object.__new__(UntypedStorage)
            part._device, part._fixed = self._device, True
            if self._u8 is None:
                part._u8 = None
                part._flat = _there.part(self._flat_of(), _U8, start, (max(stop - start, 0),), (1,))
                part._root = part._flat._array
            else:
                if storage_impl.COW.on:
                    storage_impl.materialize_cow(self._root)
                # A separate storage that starts at offset 0 of the same bytes: the memoryview ends
                # the chain of bases and keeps the memory alive.
                part._root = np.frombuffer(memoryview(self._bytes[i]), _U8)       # type: ignore[arg-type]
                part._u8 = _bytes_of(part._root)
                _alive[id(part._root)] = part
            return part
        return int(self._bytes[self._position(i)])

    def __setitem__(self, i, value):
        value = int(value) % 256
        if self._device.type == "meta":
            return
        with self._written() as u8:
            u8[i if isinstance(i, slice) else self._position(i)] = value

    @contextlib.contextmanager
    def _written(self):
        """Context manager: yields the bytes for writing, and sends them back if they are device
        memory."""
        if storage_impl.COW.on:
            storage_impl.materialize_cow(self._root)
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
        if self._device.type == "meta":
            return f"...\n[torch.storage.UntypedStorage(device=meta) of size {self.size()}]"
        body = "".join(f" {b}\n" for b in self._bytes[:1000].tolist())
        more = " ...\n" if self.size() > 1000 else ""
        return f"{body}{more}[torch.storage.UntypedStorage(device={self._device}) of size {self.size()}]"

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and other._root is self._root

    def __hash__(self):
        return storage_impl.storage_number(self._root)

    def clone(self):
        if self._device.type == "meta":
            return UntypedStorage(self.size(), device=self._device)
        if self._flat is None:
            return UntypedStorage._of_bytes(self._bytes.copy(), self._device)
        new = object.__new__(UntypedStorage)
        new._set_flat(_there.copied(self._flat))
        return new

    def cpu(self):
        return self if self._device.type == "cpu" else self.to(_device.cpu)

    def to(self, device=None, non_blocking=False):
        """Returns the same bytes on `device`, or self if they are already there."""
        device = _device.check(device)
        if device == self._device:
            return self
        if device.type == "meta":
            return UntypedStorage(self.size(), device=device)
        return UntypedStorage._of_bytes(self._copied().copy(), device)

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
        if self._device.type != "meta":
            values = other._copied()
            with self._written() as u8:
                u8[...] = values
        return self

    def fill_(self, value):
        if self._device.type == "meta":
            return self
        with self._written() as u8:
            u8[...] = int(value) % 256
        return self

    def byteswap(self, dtype):
        """Reverses the bytes of each element of `dtype`, in place."""
        width = dtype.itemsize // (2 if dtype.is_complex else 1)
        if width > 1:
            with self._written() as u8:
                u8.view(f"u{width}").byteswap(inplace=True)

    def resizable(self):
        """True if `resize_` is allowed: it is not for a slice of another storage."""
        return not self._fixed

    def resize_(self, size):
        """Resizes the storage to `size` bytes. Tensors on it stay on it.

        On the CPU the memory is reallocated with its values; new bytes are undefined. Raises
        NotImplementedError if a tensor would reach beyond the end of a shrunken storage, and for
        device memory.
        """
        if self._fixed:
            raise RuntimeError("Trying to resize storage that is not resizable")
        if size < 0:
            raise RuntimeError(f"a storage cannot have {size} bytes")
        if size == self.size():
            return self
        if self._device.type == "meta":
            self._resize_blank(size)
            return self
        if self._flat is not None:
            raise NotImplementedError(f"UntypedStorage.resize_ is not supported on device {self._device}: device memory has a fixed size ("
                                      f"{self.size()} bytes, requested {size}); use Tensor.resize_")
        if self._u8 is None:
            new = np.empty(size, _U8)
            n = min(size, len(self._pending))
            new[:n] = self._pending[:n]
            _alive.pop(id(self._root), None)
            self._set(new, self._device)
            return self
        storage_impl.materialize_cow(self._root)
        tensors, start = storage_impl.aliases_of(self._root), address(self._u8)
        for t in tensors:
            if byte_bounds(t._array)[1] - start > size:
                raise NotImplementedError(f"UntypedStorage.resize_ to {size} bytes is not supported on device cpu while a tensor (shape {list(t._sizes)}, dtype "
                                          f"{t.dtype}) reaches beyond the new end; delete the tensor, or move it to other memory with "
                                          "set_()")
        new, n = np.empty(size, _U8), min(size, len(self._u8))
        new[:n] = self._u8[:n]
        storage_impl.rebase(self._root, new, tensors)
        return self

    def _resize_blank(self, size):
        # When a meta storage shrinks its tensors keep their shapes: there are no values to read.
        root = self._root
        if size <= root.nbytes:
            if id(root) not in _cut:
                weakref.finalize(root, _cut.pop, id(root), None).atexit = False
            _cut[id(root)] = size
            return
        start, new = address(root), storage_root(meta.meta_array((size,), _U8))
        for t in storage_impl.aliases_of(root):
            t._array = np.ndarray(t._array.shape, t._array.dtype, new, address(t._array) - start, t._array.strides)
        _moved(root, new)

    def new(self):
        return UntypedStorage(0, device=self._device)

    def __deepcopy__(self, memo):
        key = ("mindtorch.storage", id(self._root))
        new = memo.get(key)
        if new is None:
            # The memo also keeps this object alive, so its id is not reused.
            new = memo[key] = self.clone()
            memo[id(self)] = new
        return new

    def __sizeof__(self):
        return object.__sizeof__(self) + self.size()


class UntypedStorage(StorageBase):
    """A block of bytes (https://pytorch.org/docs/stable/storage.html).

    ``UntypedStorage(n)`` allocates n bytes; ``UntypedStorage([1, 2])`` is initialized with the
    given bytes.
    """

    @classmethod
    def _new_shared(cls, size, *, device="cpu"):
        """Returns a storage of `size` bytes in shared memory."""
        from mindtorch.torch import _shared_memory

        return UntypedStorage._of_bytes(_shared_memory.new_shared(size))


UntypedStorage.__module__ = "mindtorch.torch.storage"
_cut: dict[int, int] = {}  # id(root) of a meta storage that was shrunk -> its size


def _moved(root, new):
    """Moves the storage object on the memory `root` to the memory `new`."""
    storage = _alive.pop(id(root), None)
    if storage is not None and storage._root is root:
        storage._set(new, storage._device)


def _on(root):
    storage = _alive.get(id(root))
    return storage if storage is not None and storage._root is root else None


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
