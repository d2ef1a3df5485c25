"""Shared memory of tensors: anonymous files (memfd), so nothing remains after the processes exit.

torch/multiprocessing/reductions.py sends it to other processes.
"""
import mmap
import os
import sys
import threading
import weakref
from multiprocessing import reduction

import numpy as np

from mindtorch.backend.cpython import module_lock
from mindtorch.core.tensor.storage_impl import aliases_of, bytes_of, host_memory, rebase, shares_storage, storage_root

CAN_SHARE = hasattr(os, "memfd_create") and reduction.HAVE_SEND_HANDLE

segments = {}  # id(root array) -> _Segment
# (device, inode) -> this process's root array on that memory
_by_file = weakref.WeakValueDictionary()
_moving = module_lock(globals(), "_moving", threading.RLock)  # a Queue pickles in its own thread


class _Segment:
    """A block of shared memory, identified by the array that covers all of it."""

    def __init__(self, root, fd):
        self.fd = fd
        key = id(root)
        segments[key] = self
        status = os.fstat(fd)
        _by_file[status.st_dev, status.st_ino] = root
        weakref.finalize(root, self._gone, key).atexit = False

    def _gone(self, key):
        segments.pop(key, None)
        os.close(self.fd)


def _map(fd, size):
    root = np.frombuffer(mmap.mmap(fd, size), np.uint8, size)
    _Segment(root, fd)
    return root


def new_shared(size):
    """Allocates an array of bytes in shared memory."""
    if not CAN_SHARE:
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
    """True if an array is in shared memory."""
    return id(storage_root(a)) in segments


def share_root(root, known=(), thorough=True):
    """Moves the memory of an array, and the tensors on it, to shared memory.

    The views of a base are passed as `known`. Tensors made by ``detach()`` or ``.data`` are
    searched for if `thorough`.
    """
    with _moving:
        if is_shared_array(root) or not root.size:
            return
        movers = {id(x): x for x in known if x is not None and shares_storage(x, root)}
        # A tensor on the array itself holds two references to it (one through its MindSpore
        # tensor); a view holds one.
        expected = sum(2 if host_memory(x) is root else 1 for x in movers.values())
        if thorough and sys.getrefcount(root) > expected + 2:
            movers = {id(x): x for x in aliases_of(root)}
        old = bytes_of(root)
        new = new_shared(len(old))
        new[...] = old
        rebase(root, new, movers.values())


def attach(handle, size):
    """Maps the shared memory of another process; memory that is mapped already is mapped once."""
    fd = handle.detach()
    with _moving:
        status = os.fstat(fd)
        root = _by_file.get((status.st_dev, status.st_ino))
        if root is None:
            return _map(fd, size)
    os.close(fd)  # this process has already mapped this memory
    return root
