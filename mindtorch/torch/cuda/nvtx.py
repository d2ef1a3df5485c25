"""torch.cuda.nvtx: annotations for NVIDIA's profiler. They have no effect.

Without an accelerator they raise RuntimeError, as in a PyTorch build without CUDA.
"""
import contextlib
import itertools
import threading

from mindtorch.core.device import device as _device

__all__ = ["range_push", "range_pop", "range_start", "range_end", "mark", "range"]


class _Open(threading.local):
    depth = 0


_open, _numbers = _Open(), itertools.count()


def _need():
    if not _device.accelerator():
        raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")


def range_push(msg):
    """Opens a range and returns the number of enclosing ranges."""
    _need()
    _open.depth += 1
    return _open.depth - 1


def range_pop():
    """Closes the innermost range and returns the number of enclosing ranges, or -1 if none was
    open."""
    _need()
    if not _open.depth:
        return -1
    _open.depth -= 1
    return _open.depth


def range_start(msg):
    """Opens a range that may be closed in another thread, and returns its id."""
    _need()
    return next(_numbers)


def range_end(range_id):
    """Closes a range by id."""
    _need()


def mark(msg):
    """Marks a point in time."""
    _need()


@contextlib.contextmanager
def range(msg, *args, **kwargs):
    """Context manager for a range around a block. The text is `msg.format(*args, **kwargs)`."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
