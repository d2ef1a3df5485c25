"""The one door to a tensor's memory as such, for what is bound to the host's: storages, shared memory, files, sockets, DLPack.

Values are read by `values` (core/values.py), which every device has; what goes through here works on host tensors only, and says so.

Memory can move (a storage grows, goes to shared memory, or stops being shared with a lazy copy): `move` puts all tensors on it elsewhere.  They are
looked for among all objects there are, so that ordinary tensors need no list of who stands on what.

Copy on write: a storage and its lazy copies have arrays of their own on the same bytes, all read-only, so that every write is stopped where writes to
read-only memory are stopped anyway; `written` gives the storage memory of its own there.  Nothing else knows of it, and nothing is asked per call.
"""
from __future__ import annotations

import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mindtorch.backend.cpython import module_lock
from mindtorch.backend.cpu.host import address, byte_bounds
from mindtorch.backend.device import Opaque, home_of
from mindtorch.backend.interface import Array
from mindtorch.core import tensor as _tensor
from mindtorch.core.bits import Bits, plain, renewed
from mindtorch.core.tensor import Tensor, attributes, replace_memory


def host_memory(t: Tensor) -> Array:
    """The array that is a tensor's memory, to be read and written; NotImplementedError for a device's tensor."""
    if t._h is not None:
        raise NotImplementedError(f"the memory of a {t.dtype} tensor on device {t._dev} is not the host's: copy the tensor to cpu first")
    if COW.on and not t._a.flags.writeable:
        written(t)
    return t._a


def owns_memory(t: Tensor) -> bool:
    """Whether a tensor does not look into another one's memory."""
    return t._base is None if t._h is not None else t._a.base is None


def living() -> list[Any]:
    """All objects that Python's collector knows, for finding tensors; what gc.freeze has set aside is taken back, for it cannot be listed there."""
    if gc.get_freeze_count():
        gc.unfreeze()
    return gc.get_objects()


# ------------------------------------------------------------------ whose memory it is
def root_of(a: Array) -> Array:
    """The array that owns (or was given) the memory which `a` is a view of."""
    if a.__class__ is Opaque:
        return home_of(a)
    base: Any = a.base
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


def bytes_of(root: Array) -> Array:
    """One-dimensional uint8 view of all of `root`'s memory."""
    if not root.flags.forc:
        order = sorted(range(root.ndim), key=lambda d: -root.strides[d])
        root = root.transpose(order)
    if root.flags.c_contiguous:
        return root.reshape(-1).view(np.uint8)
    if root.flags.f_contiguous:
        return root.T.reshape(-1).view(np.uint8)
    return np.asarray(_Memory(root))


# ------------------------------------------------------------------ who stands on it
def _kinds(kind):
    return {kind}.union(*map(_kinds, kind.__subclasses__()))


def stands_on(t: Tensor, root: Array) -> bool:
    """Whether a tensor lies in the memory of `root`."""
    a = attributes(t).get("_a")
    return a is not None and a.size > 0 and root_of(a) is root


def standing_on(root: Array) -> list[Tensor]:
    """All tensors in the memory of `root`."""
    objects, kinds = living(), _kinds(Tensor)
    # (A million of them, of which a few are tensors: picked without a line of Python for each.)
    return [x for x in itertools.compress(objects, map(kinds.__contains__, map(type, objects))) if stands_on(x, root)]


def _references(x: object) -> int:
    return sys.getrefcount(x)


# References that a call adds beyond the variable of its own: Python 3.10 keeps a call's arguments on the caller's stack until it returns, later ones
# hand them over.
_PASSED = _references(_kinds) - sys.getrefcount(_kinds) - 1


def held_elsewhere(root: Array, tensors: Iterable[Tensor], own_references: int) -> bool:
    """Whether somebody who is none of these tensors (all that stand on `root`), nor its storage, holds the memory.

    own_references: how many references to `root` the caller and those before it hold.  (A tensor holds its array twice, the second time as a MindSpore tensor.)
    """
    counts: dict[int, int] = {}
    for x in tensors:
        counts[id(x._a)] = counts.get(id(x._a), 0) + 1
    # (this function's variable, and what getrefcount is given)
    known = own_references + 2 + _PASSED + (2 if storage_on(root) is not None else 0) + _lent.get(id(root), 0)
    for x in tensors:
        n = counts.pop(id(x._a), 0)
        if n and x._a is root:
            known += 2 * n
        elif n:
            known += 1
            if sys.getrefcount(x._a) > 2 * n + 1:
                return True
    return sys.getrefcount(root) > known


def _found(root, t, own_references):
    """All tensors on `root`: `t`, its base and the views known of that, if nobody else holds the memory; else those that are found."""
    if t is not None:
        base = t if t._base is None else t._base
        some = {id(x): x for x in (t, base, *[r() for r in base._views or ()]) if x is not None and stands_on(x, root)}
        if not held_elsewhere(root, some.values(), own_references + 1 + _PASSED):
            return list(some.values())
    return standing_on(root)


#: The storage object on a root, and what is called after it has moved; set by the facade, which has the storages.
storage_on: Callable[[Array], Any] = None                     # type: ignore[assignment]
storage_moved: Callable[[Array, Array], object] = None        # type: ignore[assignment]
_lock = module_lock(globals(), "_lock", threading.RLock)


def move(root: Array, new: Array, tensors: Iterable[Tensor] | None = None) -> None:
    """Puts all tensors in the memory of `root` (or those given), and its storage, on the bytes `new`, at the same places there."""
    start = address(bytes_of(root))
    found = list(standing_on(root) if tensors is None else tensors)
    for x in {id(t): t for t in map(plain, found)}.values():
        b = x._a
        replace_memory(x, np.ndarray(b.shape, b.dtype, new, address(b) - start, b.strides))
    for x in found:
        if x._h.__class__ is Bits:
            renewed(x)
    place = _places.pop(id(root), None)
    if place is not None:
        _note(_places, new, place)
    storage_moved(root, new)


# ------------------------------------------------------------------ a storage's name
class _Place:
    """Stands for a storage, wherever its memory is."""

    __slots__ = ()


_places: dict[int, _Place] = {}             # id(root) -> the place that has been asked for


def _note(table, root, value):
    table[id(root)] = value
    weakref.finalize(root, table.pop, id(root), None).atexit = False


def place_of(root: Array) -> int:
    """A number that tells storages apart as long as they live, and stays when their memory moves."""
    place = _places.get(id(root))
    if place is None:
        place = _Place()
        _note(_places, root, place)
    return id(place)


# ------------------------------------------------------------------ copy on write
class _Cow:
    """on: whether there have been lazy copies."""

    __slots__ = ("on",)

    def __init__(self) -> None:
        self.on = False


COW = _Cow()


class _Block:
    """Bytes that several storages share until one is written to.  source: the array that owns them; count: how many storages are on them."""

    __slots__ = ("source", "count", "__weakref__")

    def __init__(self, root: Array) -> None:
        self.source, self.count = weakref.ref(root), 1


_blocks: dict[int, _Block] = {}             # id(root) of a storage that is copy-on-write -> its bytes
_lent: dict[int, int] = {}                  # id(root) -> how many lazy copies' arrays look into it: each of them is a reference to it


def _left(key, block):
    if _blocks.get(key) is block:
        del _blocks[key]
        block.count -= 1


def _returned(key):
    _lent[key] -= 1
    if not _lent[key]:
        del _lent[key]


def _enter(root, block):
    _blocks[id(root)] = block
    weakref.finalize(root, _left, id(root), block).atexit = False


def is_cow(t: Tensor) -> bool:
    """Whether a tensor's storage shares its bytes with a lazy copy of it, until one is written to."""
    return COW.on and t._h is None and id(root_of(t._a)) in _blocks


def _lock_all(root, tensors, on):
    # (The root goes first: NumPy lets a view be written to only where that may be.)
    storage = storage_on(root)
    for a in [root, *[x._a for x in tensors], *([storage._u8] if storage is not None else [])]:
        a.flags.writeable = on


def lazy_memory(t: Tensor) -> Array | None:
    """The array of a lazy copy of a tensor: of the same geometry on a storage of its own, with the same bytes until either is written to.

    None where that cannot be: somebody who is no tensor (an ndarray of the user's, another library) holds the memory and could write to it, or there is none.
    """
    if t._h is not None or t._dev.type == "meta" or not t._numel:
        return None
    with _lock:
        root = root_of(t._a)
        tensors = _found(root, t, 1)
        block = _blocks.get(id(root))
        if block is not None:
            _lock_all(root, tensors, True)
        elif not root.flags.owndata or not root.flags.writeable or held_elsewhere(root, tensors, 1):
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
        _lent[id(root)] = _lent.get(id(root), 0) + 1
        weakref.finalize(new, _returned, id(root)).atexit = False
        a = t._a
        return np.ndarray(a.shape, a.dtype, new, address(a) - address(bytes_of(root)), a.strides)


def written(t: Tensor) -> bool:
    """Called before a write to a tensor on read-only memory: gives its storage memory of its own if it is copy-on-write; False: it is not."""
    if t._h is not None or not COW.on:
        return False
    return own(root_of(t._a), t)


_tensor._unlocked = written


def unshare(tensors: Iterable[Tensor]) -> None:
    """The same for all of some tensors that are about to be written to without a look at each (asked for where COW.on)."""
    for t in tensors:
        if t._h is None and not t._a.flags.writeable:
            written(t)


def own(root: Array, t: Tensor | None = None) -> bool:
    """Gives a storage that is copy-on-write memory of its own: a copy, or, of the last of them that nobody else looks at, the shared bytes."""
    with _lock:
        block = _blocks.pop(id(root), None)
        if block is None:
            return False
        block.count -= 1
        tensors = _found(root, t, 1 + _PASSED)
        if block.count or id(root) in _lent or held_elsewhere(root, tensors, 1 + _PASSED) or not _last(block, root):
            move(root, bytes_of(root).copy(), tensors)
            return True
        _lock_all(root, tensors, True)
        for x in tensors:
            replace_memory(x, x._a)         # (MindSpore's tensor may have been made of a read-only array)
        return True


def _last(block, root):
    """Whether the owner of the bytes that storages share is held by nobody but the last of them."""
    source = block.source()
    return source is root or source is not None and sys.getrefcount(source) <= 3
