"""Cache of a dataset's items in memory or on disk, shared by all worker processes and epochs on one
machine.

Built on SQLite (Python's sqlite3): several processes can read and write one file, a killed process
leaves the file intact, and there is no extra dependency. A cache in memory is a file in /dev/shm
that is deleted with the process that created it.
"""
import contextlib
import fcntl
import io
import operator
import os
import pickle
import shutil
import sqlite3
import tempfile
import threading
import warnings
import weakref

from mindtorch.backend import secure_files
from mindtorch.backend.cpython import at_fork
from mindtorch.torch.multiprocessing.reductions import parts_of, tensor_of_parts
from mindtorch.torch.utils.data import Dataset, IterableDataset

_FILE, _LOCK, _PREFIX = "items.sqlite", "lock", "mindtorch-cache-"
_FORMAT = 1
_MEMORY = "/dev/shm"
_PATIENCE = 120.0  # seconds to wait for another process's write
_LARGEST = 900 << 20  # SQLite limits a value to 10**9 bytes


class _Pickler(pickle.Pickler):
    """Pickles tensors by their bytes, without the reference to a storage that other tensors might
    share."""

    def reducer_override(self, obj):
        reduced = parts_of(obj)
        if reduced is NotImplemented:
            return reduced
        flat, *rest = reduced
        return _restore, (pickle.PickleBuffer(flat), *rest)


def _restore(buffer, *rest):
    # A buffer that was read-only when it was stored is unpickled as bytes.
    return tensor_of_parts(buffer if isinstance(buffer, bytearray) else bytearray(buffer), *rest)


def _dumps(item):
    file = io.BytesIO()
    _Pickler(file, 5).dump(item)
    return file.getbuffer()


# ------------------------------------------------------------------ the file
_files = set()
_no_new_files = threading.Lock()    # held during a fork


class _File:
    """The SQLite file of a cache, used by one thread at a time: ``with file as db``.

    A fork waits until no thread is inside SQLite, because SQLite's locks cover all of its files. A
    child that is forked while a thread of its parent holds such a lock hangs in its first access:
    this happened in 5 of 114 forks with two other threads creating and dropping caches. So every
    connection is opened, used and closed with its lock held, including the connection of a cache
    that the garbage collector collects.
    """

    def __init__(self, folder, durable):
        self._path, self._durable = os.path.join(folder, _FILE), durable
        self._lock, self._db = threading.Lock(), None
        with _no_new_files:
            _files.add(self)

    def __enter__(self):
        self._lock.acquire()
        try:
            if self._db is None:
                self._db = self._connect()
        except BaseException:
            self._lock.release()
            raise
        return self._db

    def __exit__(self, *_):
        self._lock.release()

    def _connect(self):
        db = sqlite3.connect(self._path, _PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            # Measured for items of 150 KB: larger pages halve the write time. Mapping the file
            # makes reads 3x faster (35 us).
            db.execute("pragma page_size=16384")
            db.execute("pragma mmap_size=2147418112")
            # Readers and a writer do not block each other. A crash of the machine loses at most the
            # last items.
            db.execute("pragma journal_mode=wal")
            db.execute(f"pragma synchronous={'normal' if self._durable else 'off'}")
            db.execute("create table if not exists items (i unique, item blob)")
            db.execute("create table if not exists about (name text primary key, value text)")
        except sqlite3.DatabaseError as e:
            db.close()
            raise RuntimeError(f"the cache {os.path.dirname(self._path)} cannot be used ({e}): delete it if it is damaged") from e
        return db

    def _disconnect(self):
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def close(self):
        """Closes the connection. The next use opens it again."""
        with self._lock:
            self._disconnect()

    def give_up(self):
        """Closes the connection permanently, because its cache has been deleted.

        The garbage collector calls this, perhaps in a thread that holds another file's lock, so it
        never blocks. Only a fork can hold this file's lock at that time, and a fork closes the
        files that it locks.
        """
        if self._lock.acquire(False):
            try:
                self._disconnect()
            finally:
                self._lock.release()
        _files.discard(self)


_held = []


def _before_fork():
    """Closes and locks all SQLite files. They must not be open across a fork, because SQLite's
    locks belong to the process that acquired them."""
    _no_new_files.acquire()
    for file in list(_files):
        file._lock.acquire()
        _held.append(file)
        file._disconnect()


def _after_fork():
    while _held:
        _held.pop()._lock.release()
    _no_new_files.release()


at_fork("caches", before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class CachedDataset(Dataset):
    """A map-style dataset that computes each item once and then reads it from a cache.

    All processes that have this object share the cache: this process and DataLoader workers, with
    any start method. Every access returns new objects, so modifying an item in place changes no
    other item. Randomness in `dataset` is frozen together with the item: move it to `transform`.

        dataset    a dataset with ``__getitem__`` for int or str; TypeError for an IterableDataset
        folder     directory that keeps the cache for later runs; None: in memory (/dev/shm),
                   deleted with this object. It must be on a local disk, belong to you, and be
                   writable by no other user (PermissionError), because its content is unpickled
        transform  applied to every item after it is read, never cached
        max_bytes  size limit: beyond it nothing is added, and items that are not cached are
                   computed at every access; default: half of the free space
        key        a string that identifies the dataset and its parameters; ValueError if `folder`
                   was filled under another key or from a dataset of another length
    """

    def __init__(self, dataset, folder=None, *, transform=None, max_bytes=None, key=""):
        if isinstance(dataset, IterableDataset):
            raise TypeError("CachedDataset needs a map-style dataset, but got an IterableDataset: its items have no index")
        if not hasattr(dataset, "__getitem__"):
            raise TypeError(f"CachedDataset needs a dataset with __getitem__, but got {type(dataset).__name__}")
        self.dataset, self.transform = dataset, transform
        self._finalizer = None
        if folder is None:
            self.folder = _memory_folder(self)
        else:
            self.folder = os.path.abspath(os.fspath(folder))
            # Unpickling executes code from the file, so no other user may have written it.
            self.folder = secure_files.secure_dir(self.folder, parents=False, mode=0o700)
            for name in (_FILE, f"{_FILE}-wal"):
                # (Another process deletes the -wal file when it closes the first.)
                with contextlib.suppress(FileNotFoundError):
                    secure_files.check(os.path.join(self.folder, name))
        self._durable = folder is not None
        if max_bytes is None:
            free = os.statvfs(self.folder)
            max_bytes = free.f_bavail * free.f_frsize // 2 + self._size_on_disk()
        self.max_bytes = max_bytes
        self._open()
        self._check(str(key))

    # ---- opening
    def _open(self):
        self._file, self._full = _File(self.folder, self._durable), False
        weakref.finalize(self, self._file.give_up)

    def _size_on_disk(self):
        path = os.path.join(self.folder, _FILE)
        return os.path.getsize(path) if os.path.exists(path) else 0

    def _check(self, key):
        try:
            length = str(len(self.dataset))
        except TypeError:
            length = "unknown"
        with self._file as db:
            for name, value in (("format", str(_FORMAT)), ("key", key), ("length", length)):
                db.execute("insert or ignore into about values (?, ?)", (name, value))
                there = db.execute("select value from about where name = ?", (name,)).fetchone()[0]
                if there != value:
                    raise ValueError(f"the cache {self.folder} was filled with {name} {there!r}, not {value!r}: "
                                     "use another folder, or delete it")

    def close(self):
        """Closes the file in this process; the next access opens it again. A cache in memory is
        deleted."""
        self._file.close()
        if self._finalizer is not None:
            self._finalizer()

    def clear(self):
        """Removes all items, for every process."""
        with self._file as db:
            # The file keeps its size and is refilled.
            db.execute("delete from items")
            self._full = False

    def stored(self):
        """Returns (number of items, their size in bytes)."""
        with self._file as db:
            return db.execute("select count(*) from items").fetchone()[0], self._bytes(db)

    @staticmethod
    def _bytes(db):
        used, free, size = (db.execute("pragma " + p).fetchone()[0] for p in ("page_count", "freelist_count", "page_size"))
        return (used - free) * size

    # ---- the dataset
    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        i = index if type(index) in (int, str) else operator.index(index)
        if type(i) is int and i < 0:
            i += len(self.dataset)
            if i < 0:
                raise IndexError(f"index {index} is out of range for a dataset of length {len(self.dataset)}")
        with self._file as db:
            found = db.execute("select item from items where i = ?", (i,)).fetchone()
        if found is not None:
            item = pickle.loads(found[0])
        else:
            item = self.dataset[i]
            data = _dumps(item)
            self._store(i, data)
            # Return a new object the first time as well: the dataset may keep its own.
            item = pickle.loads(data)
        return item if self.transform is None else self.transform(item)

    def _store(self, i, data):
        with self._file as db:
            if self._full:
                return
            try:
                if self._bytes(db) + len(data) <= self.max_bytes and len(data) <= _LARGEST:
                    db.execute("insert or replace into items values (?, ?)", (i, data))
                    return
                if len(data) > _LARGEST:
                    why = f"item {i} has {len(data)} bytes"
                else:
                    self._full, why = True, f"it has reached its limit of {self.max_bytes} bytes"
            except sqlite3.OperationalError as e:
                if "full" not in str(e):
                    raise
                self._full, why = True, str(e)
        warnings.warn(f"cache {self.folder}: {why}; items that are not in it are computed at every access", stacklevel=4)

    def __getattr__(self, name):
        # Other attributes of the dataset, such as its classes.
        if name.startswith("_") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    # ---- other processes
    def __getstate__(self):
        state = self.__dict__.copy()
        # Only the process that created the file owns it: a copy must not delete it.
        for name in ("_file", "_full"):
            del state[name]
        state["_finalizer"] = None
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()


# ------------------------------------------------------------------ caches in memory
def _memory_folder(cache):
    """Creates a folder in memory that is deleted with `cache`, or later by `_sweep` if this process
    is killed."""
    parent = _MEMORY if os.access(_MEMORY, os.W_OK) else tempfile.gettempdir()
    _sweep(parent)
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    # The file is locked before it gets its final name. Otherwise another process could mistake a
    # folder that is being created for an abandoned one.
    fd = os.open(os.path.join(folder, "new"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.rename(os.path.join(folder, "new"), os.path.join(folder, _LOCK))
    cache._finalizer = weakref.finalize(cache, _remove, folder, fd, os.getpid())
    return folder


def _remove(folder, fd, pid):
    if os.getpid() == pid:       # not in a fork of the owner
        shutil.rmtree(folder, ignore_errors=True)
        os.close(fd)


def _sweep(parent):
    """Deletes folders of killed processes: their lock file is unlocked."""
    for name in os.listdir(parent):
        folder = os.path.join(parent, name)
        if not name.startswith(_PREFIX):
            continue
        with contextlib.suppress(OSError):  # another process may be cleaning up too
            if os.lstat(folder).st_uid == os.geteuid():
                _take_away(folder)


def _take_away(folder):
    with open(os.path.join(folder, _LOCK), "rb") as f:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
