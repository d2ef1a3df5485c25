"""How tensors go to other processes: their memory becomes shared memory, and its descriptor is sent.

The memory is anonymous (memfd), so that nothing is left when the processes are gone.  As with real torch's
'file_descriptor' strategy, the sender has to live until the receiver has taken the tensor out; a child process that comes
to its end waits a moment for that.
"""

import mmap
import os
import sys
import threading
import time
import weakref
from multiprocessing import parent_process, reduction, resource_sharer, util
from multiprocessing.reduction import ForkingPickler

import numpy as np

from mindtorch.backend.cpython import module_lock
from mindtorch.backend.cpu.host import address
from mindtorch.core.dtypes import NAMES
from mindtorch.core.tensor import Parameter, Tensor, wrap, taken
from mindtorch.core.memory import bytes_of, host_memory, move, root_of, standing_on, stands_on
from mindtorch.torch import storage as _storage
from mindtorch.torch._utils import reduce_tensor as _by_value

__all__ = ["init_reductions", "reduce_storage", "reduce_tensor", "rebuild_storage_fd", "rebuild_tensor"]

_CAN_SHARE = hasattr(os, "memfd_create") and reduction.HAVE_SEND_HANDLE

_segments = {}  # id(root array) -> _Segment
_by_file = weakref.WeakValueDictionary()  # (device, inode) -> root array that this process has on it
_moving = module_lock(globals(), "_moving", threading.RLock)  # a Queue pickles in a thread of its own


class _Segment:
    """A block of shared memory, known by the array on all of it."""

    def __init__(self, root, fd):
        self.fd = fd
        key = id(root)
        _segments[key] = self
        status = os.fstat(fd)
        _by_file[status.st_dev, status.st_ino] = root
        weakref.finalize(root, self._gone, key).atexit = False

    def _gone(self, key):
        _segments.pop(key, None)
        os.close(self.fd)


def _map(fd, size):
    root = np.frombuffer(mmap.mmap(fd, size), np.uint8, size)
    _Segment(root, fd)
    return root


def new_shared(size):
    """A new array of bytes in shared memory."""
    if not _CAN_SHARE:
        raise NotImplementedError("shared memory for tensors is not supported on this system: it has no memfd_create")
    if not size:
        return np.empty(0, np.uint8)
    fd = os.memfd_create("mindtorch-shared", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, size)
        return _map(fd, size)
    except BaseException:
        os.close(fd)
        raise


def is_shared_array(a):
    """Whether an array's memory is shared memory."""
    return id(root_of(a)) in _segments


def is_shared(t):
    """Whether a tensor's memory is shared memory."""
    return is_shared_array(host_memory(t))


# ------------------------------------------------------------------ by value
def _memory_order(a):
    """(contiguous array, order of axes): `a` is the first transposed back; copies only what is not dense."""
    if a.flags.c_contiguous:
        return a, None
    order = tuple(sorted(range(a.ndim), key=lambda d: (-a.strides[d], d)))
    turned = a.transpose(order)
    if turned.flags.c_contiguous:
        return turned, order
    return np.ascontiguousarray(a).reshape(a.shape), None


def parts_of(obj):
    """(bytes as an array, what else `tensor_of_parts` needs) of a plain tensor on the CPU; NotImplemented for all else."""
    if not taken(obj):
        return NotImplemented
    if obj._gnode is not None:
        raise RuntimeError(
            "a tensor that requires grad and is not a leaf cannot go to another process, since autograd does not "
            "cross process boundaries: call detach() on it first"
        )
    if type(obj) is not Tensor or obj.device.type != "cpu":
        return NotImplemented
    a, order = _memory_order(host_memory(obj))
    return a.reshape(-1).view(np.uint8), obj.dtype.name, a.shape, order, obj._rg


def tensor_of_parts(buffer, dtype, shape, order, requires_grad):
    """The tensor that `parts_of` took apart, on the bytes of `buffer`."""
    a = np.ndarray(shape, NAMES[dtype].np, buffer)
    if order is not None:
        a = a.transpose(np.argsort(order))
    t = wrap(a)
    if requires_grad:
        t.requires_grad = True
    return t


# ------------------------------------------------------------------ moving
def share(t, thorough=True):
    """Moves the storage under a tensor to shared memory, and every tensor on it."""
    if t._numel and not is_shared(t):
        base = t if t._base is None else t._base
        share_root(root_of(host_memory(t)), (t, base, *(r() for r in base._views or ())), thorough)
    return t


def share_root(root, known=(), thorough=True):
    """Moves the memory of an array to shared memory, and the tensors on it.

    The views of a base are known (`known`); those made by ``detach()`` or ``.data`` are looked for, if `thorough`.
    """
    with _moving:
        if is_shared_array(root) or not root.size:
            return
        movers = {id(x): x for x in known if x is not None and stands_on(x, root)}
        # A tensor holds the array itself twice (the second time as a MindSpore tensor), a view of it once.
        expected = sum(2 if host_memory(x) is root else 1 for x in movers.values())
        if thorough and sys.getrefcount(root) > expected + 2:
            movers = {id(x): x for x in standing_on(root)}
        old = bytes_of(root)
        new = new_shared(len(old))
        new[...] = old
        move(root, new, movers.values())


# ------------------------------------------------------------------ sending
# Seconds that a child process, at its end, waits for others to take out what it has sent.
_GRACE = 2.0


def _wait_until_taken():
    if parent_process() is None:
        return
    end = time.monotonic() + _GRACE
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join(max(end - time.monotonic(), 0))  # it was told to quit; what it still has may be a tensor
    sharer = resource_sharer._resource_sharer
    while sharer._cache and time.monotonic() < end:
        time.sleep(0.005)
    if sharer._listener is not None:
        resource_sharer.stop(1.0)  # what is being sent at this moment is sent whole


def _at_the_end(_=None):
    # After queues have told their threads to quit (10), and before the socket that gives descriptors out goes (0).
    util.Finalize(None, _wait_until_taken, exitpriority=5)


_at_the_end()
util.register_after_fork(_wait_until_taken, _at_the_end)  # forks forget what their parent registered


def _handle(root):
    segment = _segments[id(root)]
    return reduction.DupFd(segment.fd), root.nbytes


def rebuild_storage_fd(cls, handle, size):
    """UntypedStorage on shared memory that another process has sent."""
    root = _attach(handle, size)
    known = _storage._alive.get(id(root))
    return cls._of_bytes(root) if known is None else known


def _attach(handle, size):
    fd = handle.detach()
    with _moving:
        status = os.fstat(fd)
        root = _by_file.get((status.st_dev, status.st_ino))
        if root is None:
            return _map(fd, size)
    os.close(fd)  # memory that this process has already
    return root


def rebuild_tensor(cls, handle, size, dtype, offset, shape, strides, requires_grad):
    """Tensor (or Parameter) on shared memory that another process has sent."""
    t = wrap(np.ndarray(shape, NAMES[dtype].np, _attach(handle, size), offset, strides))
    if cls is not Tensor:
        return cls(t, requires_grad)
    if requires_grad:
        t.requires_grad = True
    return t


def reduce_tensor(tensor):
    """What goes to another process in a tensor's place; moves its storage to shared memory, as real torch does."""
    if tensor._gnode is not None and tensor._rg:
        raise RuntimeError(
            "a tensor that requires grad and is not a leaf cannot go to another process, since autograd does not cross "
            "process boundaries: call detach() on it before sending it (putting it on the queue)"
        )
    a = host_memory(tensor)
    if not a.size or not _CAN_SHARE or tensor.device.type != "cpu" or not a.flags.writeable:
        return _by_value(tensor, 4)
    share(tensor, thorough=False)
    a = host_memory(tensor)
    root = root_of(a)
    where = address(a) - address(root)
    return rebuild_tensor, (type(tensor), *_handle(root), tensor.dtype.name, where, a.shape, a.strides, tensor._rg)


def reduce_storage(storage):
    """What goes to another process in a storage's place: its shared memory, or a copy of its bytes."""
    root = storage._root
    if id(root) in _segments:
        return rebuild_storage_fd, (type(storage), *_handle(root))
    return storage.__reduce_ex__(4)


def init_reductions():
    """Registers the above with multiprocessing; `torch.multiprocessing` does it when it is imported."""
    ForkingPickler.register(Tensor, reduce_tensor)
    ForkingPickler.register(Parameter, reduce_tensor)
    ForkingPickler.register(_storage.UntypedStorage, reduce_storage)
