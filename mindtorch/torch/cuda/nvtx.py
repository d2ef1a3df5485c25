"""torch.cuda.nvtx: marks for NVIDIA's profiler.  No profiler takes them here; without an accelerator they are refused, as in a torch without CUDA."""
import contextlib
import itertools
import threading

from mindtorch.core import device as _device

__all__ = ["range_push", "range_pop", "range_start", "range_end", "mark", "range"]


class _Open(threading.local):
    depth = 0


_open, _numbers = _Open(), itertools.count()


def _need():
    if not _device.accelerator():
        raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")


def range_push(msg):
    """Opens a range; how many are open around it."""
    _need()
    _open.depth += 1
    return _open.depth - 1


def range_pop():
    """Closes the innermost range; how many are left around it, -1 where none was open."""
    _need()
    if not _open.depth:
        return -1
    _open.depth -= 1
    return _open.depth


def range_start(msg):
    """Opens a range that may end in another thread; its number."""
    _need()
    return next(_numbers)


def range_end(range_id):
    """Closes the range of a number."""
    _need()


def mark(msg):
    """A point in time."""
    _need()


@contextlib.contextmanager
def range(msg, *args, **kwargs):
    """A range around a block; the text is `msg.format(*args, **kwargs)`."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
