"""Host-only access to raw tensor memory: storages, shared memory, files, sockets, DLPack.

Values are read with `values` (core/tensor/sync.py), which works on every device. The functions here
accept host tensors only and raise an error for others.

Memory can move: when a storage grows, goes to shared memory, or stops being shared with a lazy
copy. `rebase` rebases all tensors that use the storage. It finds them among all objects of the
process, so that ordinary tensors need no list of aliases.

Copy on write: a storage and its lazy copies have separate arrays on the same bytes, all read-only.
Every write is therefore caught where writes to read-only memory are caught anyway; `on_write` then
gives the storage its own memory. No other code is aware of it, and there is no check per call.
"""
from __future__ import annotations

import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from mindtorch.backend.cpython import module_lock
from mindtorch.backend.cpu.host import address, byte_bounds
from mindtorch.backend.device import GeometryArray, storage_array
from mindtorch.backend.interface import Array
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor.conj_neg_bits import ConjNegBits, plain, rebuilt
from mindtorch.core.tensor.tensor import Tensor, attributes, replace_memory


def host_memory(t: Tensor) -> Array:
    """Returns the array that is a tensor's memory, for reading and writing.

    Raises NotImplementedError for a tensor on a device.
    """
    if t._handle is not None:
        raise NotImplementedError(f"the memory of a {t.dtype} tensor on device {t._device} is not the host's: copy the tensor to cpu first")
    if COW.on and not t._array.flags.writeable:
        on_write(t)
    return t._array


def owns_memory(t: Tensor) -> bool:
    """True if a tensor is not a view of another tensor's memory."""
    return t._base is None if t._handle is not None else t._array.base is None


def living() -> list[Any]:
    """Returns all objects tracked by Python's garbage collector, for finding tensors.

    Objects set aside by gc.freeze are unfrozen, since they cannot be listed otherwise.
    """
    if gc.get_freeze_count():
        gc.unfreeze()
    return gc.get_objects()


# ------------------------------------------------------------------ owner of the memory
def storage_root(a: Array) -> Array:
    """Returns the array that owns (or received) the memory of which `a` is a view."""
    if a.__class__ is GeometryArray:
        return storage_array(a)
    base: Any = a.base
    while base is not None:
        if isinstance(base, np.ndarray):
            a = base
        elif not isinstance(base, np.lib.stride_tricks.DummyArray):
            break
        base = base.base
    return a


class _Memory:
    """Exposes to NumPy the bytes spanned by an array with gaps or reversed axes.

    Keeps the array alive.
    """

    def __init__(self, a):
        low, high = byte_bounds(a)
        self.owner = a
        self.__array_interface__ = {
            "data": (low, not a.flags.writeable),
            "shape": (high - low,),
            "typestr": "|u1",
            "version": 3,
        }


def bytes_of(root: Array) -> Array:
    """Returns a one-dimensional uint8 view of all of `root`'s memory."""
    if not root.flags.forc:
        order = sorted(range(root.ndim), key=lambda d: -root.strides[d])
        root = root.transpose(order)
    if root.flags.c_contiguous:
        return root.reshape(-1).view(np.uint8)
    if root.flags.f_contiguous:
        return root.T.reshape(-1).view(np.uint8)
    return np.asarray(_Memory(root))


# ------------------------------------------------------------------ tensors that use it
def _kinds(kind):
    return {kind}.union(*map(_kinds, kind.__subclasses__()))


def shares_storage(t: Tensor, root: Array) -> bool:
    """True if a tensor is stored in the memory of `root`."""
    a = attributes(t).get("_array")
    return a is not None and a.size > 0 and storage_root(a) is root


def aliases_of(root: Array) -> list[Tensor]:
    """Returns all tensors stored in the memory of `root`."""
    objects, kinds = living(), _kinds(Tensor)
    # There may be a million objects, few of them tensors: filter them without Python code per
    # object.
    return [x for x in itertools.compress(objects, map(kinds.__contains__, map(type, objects))) if shares_storage(x, root)]


def _references(x: object) -> int:
    return sys.getrefcount(x)


# References that a call adds in addition to its own variable: Python 3.10 keeps a call's arguments
# on the caller's stack until it returns, later versions move them.
_PASSED = _references(_kinds) - sys.getrefcount(_kinds) - 1


def has_external_references(root: Array, tensors: Iterable[Tensor], own_references: int) -> bool:
    """True if the memory is referenced by an object other than these tensors and their storage.

    tensors: all tensors that use `root`. own_references: number of references to `root` that the
    caller and its callers hold. (A tensor holds its array twice, the second time as a MindSpore
    tensor.)
    """
    counts: dict[int, int] = {}
    for x in tensors:
        counts[id(x._array)] = counts.get(id(x._array), 0) + 1
    # this function's variable, and the argument of getrefcount
    known = own_references + 2 + _PASSED + (2 if hooks.storage_on(root) is not None else 0) + _lazy_copies.get(id(root), 0)
    for x in tensors:
        n = counts.pop(id(x._array), 0)
        if n and x._array is root:
            known += 2 * n
        elif n:
            known += 1
            if sys.getrefcount(x._array) > 2 * n + 1:
                return True
    return sys.getrefcount(root) > known


def _found(root, t, own_references):
    """Returns all tensors on `root`.

    Fast path: `t`, its base and the base's known views, if nothing else references the memory.
    Otherwise all objects are searched.
    """
    if t is not None:
        base = t if t._base is None else t._base
        some = {id(x): x for x in (t, base, *[r() for r in base._views or ()]) if x is not None and shares_storage(x, root)}
        if not has_external_references(root, some.values(), own_references + 1 + _PASSED):
            return list(some.values())
    return aliases_of(root)


_lock = module_lock(globals(), "_lock", threading.RLock)


def rebase(root: Array, new: Array, tensors: Iterable[Tensor] | None = None) -> None:
    """Moves all tensors in the memory of `root` and its storage to the bytes `new`.

    Offsets stay the same. tensors: move only these.
    """
    start = address(bytes_of(root))
    found = list(aliases_of(root) if tensors is None else tensors)
    for x in {id(t): t for t in map(plain, found)}.values():
        b = x._array
        replace_memory(x, np.ndarray(b.shape, b.dtype, new, address(b) - start, b.strides))
    for x in found:
        if x._handle.__class__ is ConjNegBits:
            rebuilt(x)
    storage_id = _storage_ids.pop(id(root), None)
    if storage_id is not None:
        _note(_storage_ids, new, storage_id)
    hooks.storage_moved(root, new)


# ------------------------------------------------------------------ identity of a storage
class _StorageId:
    """Identity of a storage, independent of where its memory is."""

    __slots__ = ()


_storage_ids: dict[int, _StorageId] = {}  # id(root) -> its identity, once requested


def _note(table, root, value):
    table[id(root)] = value
    weakref.finalize(root, table.pop, id(root), None).atexit = False


def storage_number(root: Array) -> int:
    """Returns an id of a storage that is unique during its lifetime and survives moves."""
    storage_id = _storage_ids.get(id(root))
    if storage_id is None:
        storage_id = _StorageId()
        _note(_storage_ids, root, storage_id)
    return id(storage_id)


# ------------------------------------------------------------------ copy on write
class _Cow:
    """Flag `on`: True once a lazy copy has been made."""

    __slots__ = ("on",)

    def __init__(self) -> None:
        self.on = False


COW = _Cow()


class _Block:
    """Bytes that several storages share until one is written to.

    source: weak reference to the array that owns them; count: number of storages on them.
    """

    __slots__ = ("source", "count", "__weakref__")

    def __init__(self, root: Array) -> None:
        self.source, self.count = weakref.ref(root), 1


_blocks: dict[int, _Block] = {}  # id(root) of a copy-on-write storage -> its bytes
# id(root) -> number of lazy copies whose arrays view it; each of them is a reference to it
_lazy_copies: dict[int, int] = {}


def _forget_block(key, block):
    if _blocks.get(key) is block:
        del _blocks[key]
        block.count -= 1


def _returned(key):
    _lazy_copies[key] -= 1
    if not _lazy_copies[key]:
        del _lazy_copies[key]


def _enter(root, block):
    _blocks[id(root)] = block
    weakref.finalize(root, _forget_block, id(root), block).atexit = False


def is_cow(t: Tensor) -> bool:
    """True if a tensor's storage shares its bytes with a lazy copy."""
    return COW.on and t._handle is None and id(storage_root(t._array)) in _blocks


def _lock_all(root, tensors, on):
    # The root goes first: NumPy makes a view writable only if its base is.
    storage = hooks.storage_on(root)
    for a in [root, *[x._array for x in tensors], *([storage._u8] if storage is not None else [])]:
        a.flags.writeable = on


def lazy_memory(t: Tensor) -> Array | None:
    """Returns the array for a lazy copy of a tensor: same geometry, separate storage, shared bytes.

    The bytes are shared until either side is written to. Returns None where this is impossible:
    there is no memory, or an object that is not a tensor (the user's ndarray, another library)
    references it and could write to it.
    """
    if t._handle is not None or t._device.type == "meta" or not t._numel:
        return None
    with _lock:
        root = storage_root(t._array)
        tensors = _found(root, t, 1)
        block = _blocks.get(id(root))
        if block is not None:
            _lock_all(root, tensors, True)
        elif not root.flags.owndata or not root.flags.writeable or has_external_references(root, tensors, 1):
            return None
        else:
            block = _Block(root)
            COW.on = True
            _enter(root, block)
        shared: Any = memoryview(bytes_of(root))          # type: ignore[arg-type]
        _lock_all(root, tensors, False)
        new = np.frombuffer(shared, np.uint8)
        new.flags.writeable = False
        block.count += 1
        _enter(new, block)
        _lazy_copies[id(root)] = _lazy_copies.get(id(root), 0) + 1
        weakref.finalize(new, _returned, id(root)).atexit = False
        a = t._array
        return np.ndarray(a.shape, a.dtype, new, address(a) - address(bytes_of(root)), a.strides)


def on_write(t: Tensor) -> bool:
    """Called before a write to a tensor on read-only memory.

    Gives a copy-on-write storage its own memory and returns True; returns False for other tensors.
    """
    if t._handle is not None or not COW.on:
        return False
    return materialize_cow(storage_root(t._array), t)


def unshare(tensors: Iterable[Tensor]) -> None:
    """Like `on_write`, for tensors that are about to be modified without a check of each.

    Needed only while COW.on.
    """
    for t in tensors:
        if t._handle is None and not t._array.flags.writeable:
            on_write(t)


def materialize_cow(root: Array, t: Tensor | None = None) -> bool:
    """Gives a copy-on-write storage its own memory.

    This is a copy, except for the last user of the shared bytes, which keeps them if they have no
    other reference. Returns False for a storage that is not copy-on-write.
    """
    with _lock:
        block = _blocks.pop(id(root), None)
        if block is None:
            return False
        block.count -= 1
        tensors = _found(root, t, 1 + _PASSED)
        if block.count or id(root) in _lazy_copies or has_external_references(root, tensors, 1 + _PASSED) or not _last(block, root):
            rebase(root, bytes_of(root).copy(), tensors)
            return True
        _lock_all(root, tensors, True)
        for x in tensors:
            # MindSpore's tensor may have been created from a read-only array.
            replace_memory(x, x._array)
        return True


def _last(block, root):
    """True if only the last storage references the owner of the shared bytes."""
    source = block.source()
    return source is root or source is not None and sys.getrefcount(source) <= 3
