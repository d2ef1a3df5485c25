"""Transport of batches from a worker process: a pipe for messages, shared memory for large buffers.

The memory is anonymous (memfd) and its descriptors are sent through the pipe. It is therefore freed
when the processes exit, whatever the reason. A segment is reused as soon as no array of the
receiver references it, which saves the page faults of new segments. On systems without memfd, all
data goes through the pipe.
"""

import collections
import io
import mmap
import os
import pickle
import signal
import socket
import struct
import threading
import weakref
from multiprocessing import reduction

try:
    import resource
except ImportError:  # not available on Windows
    resource = None

import numpy as np

from mindtorch.backend.cpython import at_fork
from mindtorch.core.tensor.tensor import Parameter, Tensor
from mindtorch.torch.multiprocessing.reductions import parts_of, tensor_of_parts
from mindtorch.torch.storage import UntypedStorage

# Below this size in bytes, a copy through the pipe is as fast as shared memory: the round trip
# takes 37 us vs 31 us plus the bookkeeping of a segment at 16 KB, and 90 us through the pipe at 64
# KB.
_SMALL = 16 << 10
# A pickle of at least this size is itself sent in a segment, so that messages stay short and do not
# block the sender.
_LONG = 48 << 10

# Maximum number of live segments of all workers of a loader; each uses one file descriptor in both
# processes.
_MAX_SEGMENTS = 256


def segments_per_worker(workers):
    """Returns the maximum number of segments per worker, such that file descriptors do not run out.
    """
    if resource is None:
        return 0
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    few = _MAX_SEGMENTS if limit == resource.RLIM_INFINITY else min(_MAX_SEGMENTS, limit // 8)
    return max(few // workers, 2)


# After this many messages, free segments beyond the peak use of that period plus _SPARE are
# released.
_REVIEW = 64
_SPARE = 4

CAN_SHARE = hasattr(os, "memfd_create") and reduction.HAVE_SEND_HANDLE and hasattr(socket, "AF_UNIX")

# Length of the segment notes, epoch, batch number, message kind.
_HEAD = struct.Struct("<IqqB")
DATA, END, ERROR = range(3)


# ------------------------------------------------------------------ state of the sender
class _Segment:
    __slots__ = ("id", "size", "fd", "map", "remote", "local", "__weakref__")

    def __init__(self, number, size):
        self.id, self.size = number, size
        self.fd = os.memfd_create("mindtorch-data", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        self.map = mmap.mmap(self.fd, size)
        self.remote = 0  # number of messages that carry the segment and are not returned yet
        self.local = None  # weak reference to this process's array on the segment


def _rounded(size):
    """Rounds sizes up in steps of up to an eighth, so that a segment fits batches of similar size.
    """
    step = max(4096, 1 << max(size.bit_length() - 4, 0))
    return -(-size // step) * step


class Pool:
    """Shared-memory segments of one worker."""

    def __init__(self, limit):
        self._limit = limit
        self._all = {}  # id -> _Segment
        self._roots = {}  # id(array) -> _Segment, for the destination arrays of stacked batches
        self._next = 0
        self._peak = self._uses = 0
        self.fresh = []  # segments whose descriptor has not been sent yet
        self.dropped = []  # ids for the receiver to release

    def _free(self):
        return [s for s in self._all.values() if not s.remote and (s.local is None or s.local() is None)]

    def acquire(self, size):
        """Returns a free segment of at least `size` bytes; None if too many are in use."""
        want = _rounded(size)
        free = self._free()
        fit = [s for s in free if want <= s.size <= 2 * want]
        if fit:
            return min(fit, key=lambda s: s.size)
        if len(self._all) >= self._limit:
            if not free:
                return None
            self._drop(min(free, key=lambda s: s.size))
        segment = self._all[self._next] = _Segment(self._next, want)
        self._next += 1
        self.fresh.append(segment)
        return segment

    def _drop(self, segment):
        del self._all[segment.id]
        if segment in self.fresh:
            self.fresh.remove(segment)
        else:
            self.dropped.append(segment.id)
        os.close(segment.fd)

    def allocate(self, shape, dtype):
        """Returns an array on a segment to stack a batch into; None if it is small or no segment is
        free."""
        size = dtype.itemsize
        for n in shape:
            size *= n
        if size < _SMALL:
            return None
        segment = self.acquire(size)
        if segment is None:
            return None
        root = np.frombuffer(segment.map, np.uint8, size)
        key = id(root)
        roots = self._roots
        segment.local = weakref.ref(root, lambda _: roots.pop(key, None))
        roots[key] = segment
        return root.view(dtype).reshape(shape)

    def holding(self, a):
        """Returns the segment that the contiguous array `a` fills completely; None if it was not
        allocated here."""
        base = a.base
        segment = None if base is None else self._roots.get(id(base))
        return segment if segment is not None and segment.local() is base and a.nbytes == base.nbytes else None

    def put(self, view):
        """Copies bytes into a segment and returns it; None if no segment is free."""
        segment = self.acquire(len(view))
        if segment is not None:
            segment.map[: len(view)] = view
        return segment

    def sent(self):
        """Must be called after every message: periodically releases segments that were not needed
        recently."""
        self._peak = max(self._peak, sum(s.remote > 0 for s in self._all.values()))
        self._uses += 1
        if self._uses >= _REVIEW:
            free = self._free()
            for segment in free[: max(len(self._all) - self._peak - _SPARE, 0)]:
                self._drop(segment)
            self._peak = self._uses = 0

    def given_back(self, ids):
        for i in ids:
            segment = self._all.get(i)
            if segment is not None:
                segment.remote -= 1


# ------------------------------------------------------------------ pickling
_BY_VALUE = Tensor, Parameter, UntypedStorage


class _Pickler(pickle.Pickler):
    """Pickler that passes the memory of tensors out of band and pickles all other objects like
    multiprocessing."""

    def __init__(self, file, callback):
        super().__init__(file, 5, buffer_callback=callback)
        self.dispatch_table = reduction.ForkingPickler._copyreg_dispatch_table.copy()
        self.dispatch_table.update(reduction.ForkingPickler._extra_reducers)
        for kind in _BY_VALUE:
            # torch.multiprocessing sends a descriptor that this process would have to serve, but it
            # may exit at any time.
            self.dispatch_table.pop(kind, None)

    def reducer_override(self, obj):
        reduced = parts_of(obj)
        if reduced is NotImplemented:
            return reduced
        flat, *rest = reduced
        return tensor_of_parts, (pickle.PickleBuffer(flat), *rest)


def _dumps(obj, pool):
    """Pickles a batch to (pickle, [(segment, bytes)]); buffers without a segment are part of the
    pickle."""
    file, refs = io.BytesIO(), []

    def callback(buffer):
        view = buffer.raw()
        if pool is None or len(view) < _SMALL:
            return True
        segment = pool.holding(view.obj) if isinstance(view.obj, np.ndarray) else None
        if segment is None:
            segment = pool.put(view)
        if segment is None:
            return True
        segment.remote += 1
        refs.append((segment, len(view)))
        return False

    try:
        _Pickler(file, callback).dump(obj)
    except BaseException:
        for segment, _ in refs:
            segment.remote -= 1
        raise
    return file.getbuffer(), refs


class Sender:
    """The worker's end of the pipe."""

    def __init__(self, conn, limit):
        self._conn = conn
        self.pool = Pool(limit) if CAN_SHARE and limit else None

    def send(self, epoch, number, kind, obj):
        """Sends a batch; raises the pickling error if the batch cannot be pickled."""
        pool = self.pool
        payload, refs = _dumps(obj, pool)
        if pool is None:
            self._conn.send_bytes(_HEAD.pack(0, epoch, number, kind) + payload)
            return
        outside = None
        if len(payload) >= _LONG:
            segment = pool.put(payload)
            if segment is not None:
                segment.remote += 1
                outside, payload = (segment.id, len(payload)), b""
        fresh, pool.fresh = pool.fresh, []
        dropped, pool.dropped = pool.dropped, []
        notes = b""
        if refs or fresh or dropped or outside:
            notes = pickle.dumps(([(s.id, s.size) for s in fresh], dropped, [(s.id, n) for s, n in refs], outside), 5)
        self._conn.send_bytes(b"".join((_HEAD.pack(len(notes), epoch, number, kind), notes, payload)))
        if fresh:
            with socket.socket(fileno=os.dup(self._conn.fileno())) as s:
                for segment in fresh:
                    reduction.sendfds(s, [segment.fd])
        pool.sent()


class Receiver:
    """The loader's end of the pipe of one worker."""

    def __init__(self, conn):
        self.conn = conn
        self._maps = {}
        self._alive = {}  # weak references to the arrays on segments
        self.returned = collections.deque()

    def receive(self):
        """Receives the next message as (epoch, number, kind, function that unpickles); raises
        EOFError if the worker has exited."""
        data = memoryview(self.conn.recv_bytes())
        length, epoch, number, kind = _HEAD.unpack_from(data)
        payload = data[_HEAD.size + length :]
        buffers = []
        if length:
            fresh, dropped, refs, outside = pickle.loads(data[_HEAD.size : _HEAD.size + length])
            for i in dropped:
                del self._maps[i]
            if fresh:
                self._attach(fresh)
            buffers = [self._array(*r) for r in refs]
            if outside:
                payload = self._array(*outside)
        return epoch, number, kind, lambda: pickle.loads(payload, buffers=buffers)

    def _attach(self, fresh):
        with socket.socket(fileno=os.dup(self.conn.fileno())) as s:
            for number, size in fresh:
                fd = reduction.recvfds(s, 1)[0]
                try:
                    self._maps[number] = mmap.mmap(fd, size)
                finally:
                    os.close(fd)

    def _array(self, number, size):
        root = np.frombuffer(self._maps[number], np.uint8, size)
        alive, returned = self._alive, self.returned

        def gone(ref):
            # The worker may reuse the segment.
            alive.pop(id(ref), None)
            returned.append(number)

        ref = weakref.ref(root, gone)
        alive[id(ref)] = ref
        return root

    def take_returned(self):
        """Returns the ids of unreferenced segments, to be reported to the worker."""
        ids = []
        while self.returned:
            ids.append(self.returned.popleft())
        return ids


# ------------------------------------------------------------------ forks
_ends = weakref.WeakSet()


def keep_from_children(conn):
    """Closes the loader's end of a pipe in every process forked later, so that a worker detects
    when the loader exits."""
    _ends.add(conn)


def _restore_ctrl_c():
    # MindSpore's fork callbacks leave a C handler for SIGINT that terminates the process. Restore
    # Python's.
    handler = signal.getsignal(signal.SIGINT)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _close_in_child():
    for conn in list(_ends):
        conn.close()
    _ends.clear()
    _restore_ctrl_c()


at_fork("memory shared with loader workers", after_in_child=_close_in_child, after_in_parent=_restore_ctrl_c)
