"""Sends tensors to other processes: their memory becomes shared memory, and its file descriptor is
sent.

The memory is anonymous (memfd), so nothing remains after the processes exit. As with PyTorch's
'file_descriptor' strategy, the sender must stay alive until the receiver has unpickled the tensor.
A child process waits a moment for that when it exits.
"""

import threading
import time
from multiprocessing import parent_process, reduction, resource_sharer, util
from multiprocessing.reduction import ForkingPickler

import numpy as np

from mindtorch.backend.cpu.host import address
from mindtorch.core.tensor.dtypes import NAMES
from mindtorch.core.tensor.tensor import Parameter, Tensor, wrap_array, is_tensor
from mindtorch.core.tensor.storage_impl import host_memory, storage_root
from mindtorch.torch import storage as _storage
from mindtorch.torch._shared_memory import CAN_SHARE, attach, is_shared_array, segments, share_root
from mindtorch.torch._utils import reduce_tensor as _by_value

__all__ = ["init_reductions", "reduce_storage", "reduce_tensor", "rebuild_storage_fd", "rebuild_tensor"]


def is_shared(t):
    """True if a tensor is in shared memory."""
    return is_shared_array(host_memory(t))


# ------------------------------------------------------------------ by value
def _memory_order(a):
    """Returns (contiguous array, axis order) such that transposing the array back yields `a`.

    Copies only if `a` is not dense.
    """
    if a.flags.c_contiguous:
        return a, None
    order = tuple(sorted(range(a.ndim), key=lambda d: (-a.strides[d], d)))
    turned = a.transpose(order)
    if turned.flags.c_contiguous:
        return turned, order
    return np.ascontiguousarray(a).reshape(a.shape), None


def parts_of(obj):
    """Returns (bytes as an array, the other arguments of `tensor_of_parts`) for a plain CPU tensor.

    NotImplemented for any other object.
    """
    if not is_tensor(obj):
        return NotImplemented
    if obj._grad_fn_ is not None:
        raise RuntimeError(
            "a non-leaf tensor that requires grad cannot be sent to another process, because autograd does not "
            "cross process boundaries: call detach() on it first"
        )
    if type(obj) is not Tensor or obj.device.type != "cpu":
        return NotImplemented
    a, order = _memory_order(host_memory(obj))
    return a.reshape(-1).view(np.uint8), obj.dtype.name, a.shape, order, obj._requires_grad_


def tensor_of_parts(buffer, dtype, shape, order, requires_grad):
    """Rebuilds the tensor that `parts_of` decomposed, on the memory of `buffer`."""
    a = np.ndarray(shape, NAMES[dtype].np, buffer)
    if order is not None:
        a = a.transpose(np.argsort(order))
    t = wrap_array(a)
    if requires_grad:
        t.requires_grad = True
    return t


# ------------------------------------------------------------------ moving to shared memory
def share(t, thorough=True):
    """Moves the storage of a tensor, and every tensor on it, to shared memory."""
    if t._numel and not is_shared(t):
        base = t if t._base is None else t._base
        share_root(storage_root(host_memory(t)), (t, base, *(r() for r in base._views or ())), thorough)
    return t


# ------------------------------------------------------------------ sending
# Seconds that an exiting child process waits for receivers to fetch what it has sent.
_GRACE = 2.0


def _wait_until_taken():
    if parent_process() is None:
        return
    end = time.monotonic() + _GRACE
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            # it has been told to quit, but may still have a tensor to send
            thread.join(max(end - time.monotonic(), 0))
    sharer = resource_sharer._resource_sharer
    while sharer._cache and time.monotonic() < end:
        time.sleep(0.005)
    if sharer._listener is not None:
        resource_sharer.stop(1.0)  # completes a transfer in progress


def _at_the_end(_=None):
    # Runs after queues have stopped their threads (priority 10), and before the socket that serves
    # file descriptors is closed (0).
    util.Finalize(None, _wait_until_taken, exitpriority=5)


_at_the_end()
util.register_after_fork(_wait_until_taken, _at_the_end)  # forks do not inherit the registration


def _handle(root):
    segment = segments[id(root)]
    return reduction.DupFd(segment.fd), root.nbytes


def rebuild_storage_fd(cls, handle, size):
    """Rebuilds an UntypedStorage on shared memory sent by another process."""
    root = attach(handle, size)
    known = _storage._alive.get(id(root))
    return cls._of_bytes(root) if known is None else known


def rebuild_tensor(cls, handle, size, dtype, offset, shape, strides, requires_grad):
    """Rebuilds a Tensor (or Parameter) on shared memory sent by another process."""
    t = wrap_array(np.ndarray(shape, NAMES[dtype].np, attach(handle, size), offset, strides))
    if cls is not Tensor:
        return cls(t, requires_grad)
    if requires_grad:
        t.requires_grad = True
    return t


def reduce_tensor(tensor):
    """Pickles a tensor for another process; moves its storage to shared memory, like PyTorch."""
    if tensor._grad_fn_ is not None and tensor._requires_grad_:
        raise RuntimeError(
            "a non-leaf tensor that requires grad cannot be sent to another process, because autograd does not cross "
            "process boundaries: call detach() on it before sending it (putting it on the queue)"
        )
    a = host_memory(tensor)
    if not a.size or not CAN_SHARE or tensor.device.type != "cpu" or not a.flags.writeable:
        return _by_value(tensor, 4)
    share(tensor, thorough=False)
    a = host_memory(tensor)
    root = storage_root(a)
    where = address(a) - address(root)
    return rebuild_tensor, (type(tensor), *_handle(root), tensor.dtype.name, where, a.shape, a.strides, tensor._requires_grad_)


def reduce_storage(storage):
    """Pickles a storage for another process: as its shared memory, or as a copy of its bytes."""
    root = storage._root
    if id(root) in segments:
        return rebuild_storage_fd, (type(storage), *_handle(root))
    return storage.__reduce_ex__(4)


def init_reductions():
    """Registers the reducers with multiprocessing. Importing `torch.multiprocessing` calls this."""
    ForkingPickler.register(Tensor, reduce_tensor)
    ForkingPickler.register(Parameter, reduce_tensor)
    ForkingPickler.register(_storage.UntypedStorage, reduce_storage)
