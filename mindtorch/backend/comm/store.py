"""Key-value stores through which processes find each other: in one process, in a file, over TCP,
and with a key prefix.

Keys are text, values are bytes; a counter is stored as decimal text. Nothing here needs MindSpore.
"""
import datetime
import fcntl
import os
import struct
import threading
import time
import weakref
from typing import Any

from mindtorch.backend import cpython
from mindtorch.backend.comm.errors import DistStoreError, QueueEmptyError

DEFAULT_TIMEOUT = datetime.timedelta(seconds=300)


def seconds(timeout):
    """Converts a timeout (timedelta or Python number) to seconds."""
    return timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)


def as_bytes(value):
    """Converts a value to the bytes that the stores hold."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (list, tuple)) and all(isinstance(v, int) for v in value):
        return bytes(value)
    raise TypeError(f"a store's value must be str or bytes, not {type(value).__name__}")


def number(raw, key):
    """Converts the value of a key to an integer, for counters."""
    try:
        return int(raw)
    except ValueError:
        raise ValueError(f"the value of key {key!r} is not an integer, which add() needs") from None


def missing_text(timeout, keys):
    """Returns the message of a timeout while waiting for keys."""
    return f"wait timeout after {round(seconds(timeout) * 1000)}ms, keys: {', '.join('/' + k for k in keys)}"


class Store:
    """Base of the stores (https://pytorch.org/docs/stable/distributed.html#torch.distributed.Store)."""

    def __init__(self):
        self._timeout = DEFAULT_TIMEOUT

    @property
    def timeout(self):
        """The timeout of `get` and `wait`."""
        return getattr(self, "_timeout", DEFAULT_TIMEOUT)

    def set_timeout(self, timeout):
        """Sets the timeout of `get` and `wait` (a timedelta or seconds)."""
        self._timeout = timeout if isinstance(timeout, datetime.timedelta) else datetime.timedelta(seconds=timeout)

    def _refuse(self, what):
        raise NotImplementedError(f"{type(self).__name__}.{what} is not implemented")

    def set(self, key, value):
        """Sets the value of a key."""
        self._refuse("set")

    def get(self, key):
        """Returns the value of a key as bytes; waits until it is set, DistStoreError after the
        timeout."""
        self._refuse("get")

    def add(self, key, value):
        """Adds to a counter, which starts at 0; returns its new value."""
        self._refuse("add")

    def compare_set(self, key, expected_value, desired_value):
        """Sets a key to `desired_value` if its value is `expected_value` (if that is empty: also if
        it is not set). Returns the resulting value; for a missing key that stays unset,
        `expected_value`."""
        self._refuse("compare_set")

    def wait(self, keys, timeout=None):
        """Waits until all keys are set; DistStoreError after the timeout."""
        self._refuse("wait")

    def check(self, keys):
        """True if all keys are set; does not wait."""
        self._refuse("check")

    def delete_key(self, key):
        """Removes a key; True if it was set."""
        self._refuse("delete_key")

    def num_keys(self):
        """Returns the number of keys."""
        self._refuse("num_keys")

    def list_keys(self):
        """Returns all keys."""
        self._refuse("list_keys")

    def append(self, key, value):
        """Appends to the value of a key."""
        self._refuse("append")

    def queue_push(self, key, value):
        """Appends a value to a queue."""
        raise NotImplementedError("queue support is not implemented.")

    def queue_pop(self, key, block=True):
        """Removes and returns the first value of a queue."""
        raise NotImplementedError("queue support is not implemented.")

    def queue_len(self, key):
        """Returns the number of values in a queue."""
        raise NotImplementedError("queue support is not implemented.")

    def multi_get(self, keys):
        """Returns the values of several keys."""
        return [self.get(k) for k in keys]

    def multi_set(self, keys, values):
        """Sets several keys."""
        for k, v in zip(keys, values):
            self.set(k, v)

    def has_extended_api(self):
        """True if append and the multi_ functions are single requests."""
        return False

    def clone(self):
        """Returns the same store over a separate connection, for use in another thread."""
        return self


class Table:
    """The contents of a store, without locks or waiting."""

    def __init__(self):
        self.values = {}
        self.queues = {}

    def set(self, key, value):
        self.values[key] = value

    def append(self, key, value):
        self.values[key] = self.values.get(key, b"") + value

    def add(self, key, amount):
        n = number(self.values.get(key, b"0"), key) + amount
        self.values[key] = str(n).encode()
        return n

    def compare_set(self, key, expected, desired):
        there = self.values.get(key)
        if there is None:
            if expected:
                return expected
        elif there != expected:
            return there
        self.values[key] = desired
        return desired

    def delete(self, key):
        return self.values.pop(key, None) is not None

    def check(self, keys):
        return all(k in self.values for k in keys)

    def push(self, key, value):
        self.queues.setdefault(key, []).append(value)

    def pop(self, key):
        queue = self.queues.get(key)
        return queue.pop(0) if queue else None

    def length(self, key):
        return len(self.queues.get(key, ()))


class HashStore(Store):
    """Store shared by the threads of one process."""

    def __init__(self):
        super().__init__()
        self._table, self._changed = Table(), threading.Condition()

    def _write(self, fn, *args):
        with self._changed:
            r = fn(*args)
            self._changed.notify_all()
            return r

    def set(self, key, value):
        self._write(self._table.set, key, as_bytes(value))

    def append(self, key, value):
        self._write(self._table.append, key, as_bytes(value))

    def add(self, key, value):
        return self._write(self._table.add, key, int(value))

    def compare_set(self, key, expected_value, desired_value):
        return self._write(self._table.compare_set, key, as_bytes(expected_value), as_bytes(desired_value))

    def delete_key(self, key):
        return self._write(self._table.delete, key)

    def get(self, key):
        self.wait([key])
        return self._table.values[key]

    def wait(self, keys, timeout=None):
        timeout = self._timeout if timeout is None else timeout
        with self._changed:
            if not self._changed.wait_for(lambda: self._table.check(keys), seconds(timeout)):
                raise DistStoreError(missing_text(timeout, [k for k in keys if k not in self._table.values]))

    def check(self, keys):
        with self._changed:
            return self._table.check(keys)

    def num_keys(self):
        return len(self._table.values)

    def list_keys(self):
        with self._changed:
            return list(self._table.values)

    def queue_push(self, key, value):
        self._write(self._table.push, key, as_bytes(value))

    def queue_pop(self, key, block=True):
        with self._changed:
            if block and not self._changed.wait_for(lambda: self._table.length(key), seconds(self._timeout)):
                raise DistStoreError(missing_text(self._timeout, [key]))
            value = self._table.pop(key)
        if value is None:
            raise QueueEmptyError("queue is empty")
        return value

    def queue_len(self, key):
        return self._table.length(key)

    def has_extended_api(self):
        return True


_SET, _DELETE = 0, 1
_RECORD = struct.Struct("<BII")     # what, length of the key, length of the value
MAX_KEY, MAX_VALUE = 1 << 20, 1 << 30       # bytes
_USERS = "efcount/"


class _Log:
    """The file of a FileStore. Every write is appended, under a file lock."""

    def __init__(self, path):
        self.path, self.table, self.position, self.lock, self.pid = path, Table(), 0, threading.Lock(), os.getpid()

    def locked(self, change):
        """Reads what other processes have written, then calls `change`, which returns (result,
        records to append)."""
        with self.lock, open(self.path, "ab+") as f:
            fcntl.lockf(f, fcntl.LOCK_EX)
            try:
                self._read(f)
                result, records = change(self.table)
                if records:
                    # A truncated record at the end is from a process that died while writing: the
                    # lock excludes other writers.
                    if f.seek(0, os.SEEK_END) > self.position:
                        f.truncate(self.position)
                    f.write(b"".join(_RECORD.pack(kind, len(k), len(v)) + k + v for kind, k, v in records))
                    f.flush()
                    self._read(f)
                return result
            finally:
                fcntl.lockf(f, fcntl.LOCK_UN)

    def _read(self, f):
        f.seek(self.position)
        raw = f.read()
        at = 0
        while len(raw) - at >= _RECORD.size:
            kind, k, v = _RECORD.unpack_from(raw, at)
            begin = at + _RECORD.size
            try:
                if kind not in (_SET, _DELETE) or k > MAX_KEY or v > MAX_VALUE:
                    raise ValueError(f"record {kind} with a key of {k} bytes and a value of {v} bytes")
                if begin + k + v > len(raw):
                    break
                key, value = raw[begin:begin + k].decode(), raw[begin + k:begin + k + v]
            except ValueError as e:
                raise DistStoreError(f"{self.path} is not a FileStore file, or is corrupt at byte {self.position + at}: {e}") from None
            at = begin + k + v
            if kind == _SET:
                self.table.set(key, value)
            else:
                self.table.delete(key)
        self.position += at

    def change(self, fn, key):
        """Calls fn on the table and appends the resulting value of the key."""
        raw = key.encode()
        if len(raw) > MAX_KEY:
            raise DistStoreError(f"FileStore: a key of {len(raw)} bytes; the most is {MAX_KEY}")

        def change(table):
            before = table.values.get(key)
            result = fn(table)
            after = table.values.get(key)
            if after is None:
                return result, [] if before is None else [(_DELETE, raw, b"")]
            if len(after) > MAX_VALUE:
                if before is None:
                    table.delete(key)
                else:
                    table.set(key, before)
                raise DistStoreError(f"FileStore: a value of {len(after)} bytes; the most is {MAX_VALUE}")
            return result, [(_SET, raw, after)]
        return self.locked(change)

    def users(self, n):
        return self.change(lambda table: table.add(_USERS, n), _USERS)

    def leave(self):
        """Records that this process no longer uses the file; the last one removes it."""
        if self.pid == os.getpid() and os.path.exists(self.path):
            try:
                if self.users(-1) <= 0:
                    os.unlink(self.path)
            except OSError:
                # the directory is gone, or no longer writable: there is nothing left to clean up
                pass


class FileStore(Store):
    """Store in a file that all processes can open; the last process that drops its store removes
    the file."""

    def __init__(self, file_name, world_size=-1):
        super().__init__()
        self.path, self.world_size = os.fspath(file_name), world_size
        self._log = _Log(self.path)
        self._log.users(1)
        weakref.finalize(self, self._log.leave)

    def set(self, key, value):
        value = as_bytes(value)
        self._log.change(lambda table: table.set(key, value), key)

    def append(self, key, value):
        value = as_bytes(value)
        self._log.change(lambda table: table.append(key, value), key)

    def add(self, key, value):
        return self._log.change(lambda table: table.add(key, int(value)), key)

    def compare_set(self, key, expected_value, desired_value):
        expected, desired = as_bytes(expected_value), as_bytes(desired_value)
        return self._log.change(lambda table: table.compare_set(key, expected, desired), key)

    def delete_key(self, key):
        return self._log.change(lambda table: table.delete(key), key)

    def check(self, keys):
        return self._log.locked(lambda table: (table.check(keys), []))

    def wait(self, keys, timeout=None):
        timeout = self._timeout if timeout is None else timeout
        end, pause = time.monotonic() + seconds(timeout), 0.001
        while not self.check(keys):
            if time.monotonic() > end:
                raise DistStoreError(missing_text(timeout, [k for k in keys if k not in self._log.table.values]))
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)

    def get(self, key):
        self.wait([key])
        return self._log.table.values[key]

    def num_keys(self):
        return self._log.locked(lambda table: (len(table.values), []))

    def list_keys(self):
        return self._log.locked(lambda table: (list(table.values), []))


class PrefixStore(Store):
    """Wraps another store and prepends a prefix to every key."""

    def __init__(self, prefix, store):
        self.prefix, self._inner = prefix, store

    @property
    def underlying_store(self):
        """The store without the prefix."""
        return self._inner

    @property
    def _underlying_non_prefix_store(self):
        s = self._inner
        while isinstance(s, PrefixStore):
            s = s._inner
        return s

    @property
    def timeout(self):
        return self._inner.timeout

    def set_timeout(self, timeout):
        self._inner.set_timeout(timeout)

    def _key(self, key):
        return f"{self.prefix}/{key}"

    def set(self, key, value):
        self._inner.set(self._key(key), value)

    def get(self, key):
        return self._inner.get(self._key(key))

    def add(self, key, value):
        return self._inner.add(self._key(key), value)

    def compare_set(self, key, expected_value, desired_value):
        return self._inner.compare_set(self._key(key), expected_value, desired_value)

    def wait(self, keys, timeout=None):
        keys = [self._key(k) for k in keys]
        return self._inner.wait(keys) if timeout is None else self._inner.wait(keys, timeout)

    def check(self, keys):
        return self._inner.check([self._key(k) for k in keys])

    def delete_key(self, key):
        return self._inner.delete_key(self._key(key))

    def append(self, key, value):
        self._inner.append(self._key(key), value)

    def multi_get(self, keys):
        return self._inner.multi_get([self._key(k) for k in keys])

    def multi_set(self, keys, values):
        self._inner.multi_set([self._key(k) for k in keys], values)

    def queue_push(self, key, value):
        self._inner.queue_push(self._key(key), value)

    def queue_pop(self, key, block=True):
        return self._inner.queue_pop(self._key(key), block)

    def queue_len(self, key):
        return self._inner.queue_len(self._key(key))

    def num_keys(self):
        return self._inner.num_keys()

    def list_keys(self):
        return self._inner.list_keys()

    def has_extended_api(self):
        return self._inner.has_extended_api()

    def clone(self):
        return PrefixStore(self.prefix, self._inner.clone())


_forked: weakref.WeakSet[Any] = weakref.WeakSet()


def at_fork(owner):
    """Calls `owner.after_fork()` in every forked child, as long as the owner is alive."""
    _forked.add(owner)


def _in_child():
    for owner in list(_forked):
        owner.after_fork()


cpython.at_fork("connections of stores", after_in_child=_in_child)
