"""torch.multiprocessing: Python's multiprocessing, with tensors sent through shared memory."""
import multiprocessing
import multiprocessing.connection
from multiprocessing import *  # noqa: F401,F403
from multiprocessing import resource_tracker  # noqa: F401

from mindtorch.torch.multiprocessing import reductions  # noqa: F401
from mindtorch.torch.multiprocessing.reductions import init_reductions
from mindtorch.torch.multiprocessing.spawn import (ENV_VAR_PARALLEL_START, ProcessContext, ProcessException,  # noqa: F401
                                                   ProcessExitedException, ProcessRaisedException, SpawnContext, spawn,
                                                   start_processes)

__all__ = ["set_sharing_strategy", "get_sharing_strategy", "get_all_sharing_strategies", *multiprocessing.__all__]

_strategy = "file_descriptor"


def set_sharing_strategy(new_strategy):
    """Sets the strategy: 'file_descriptor' or 'file_system'.

    Both send the file descriptor of anonymous memory, which needs no file system.
    """
    known = get_all_sharing_strategies()
    if new_strategy not in known:
        raise AssertionError(f"invalid sharing strategy {new_strategy!r}, expected one of {known}")
    global _strategy
    _strategy = new_strategy


def get_sharing_strategy():
    """Returns the current strategy."""
    return _strategy


def get_all_sharing_strategies():
    """Returns the names that `set_sharing_strategy` accepts."""
    return {"file_descriptor", "file_system"}


def __getattr__(name):
    return getattr(multiprocessing, name)


init_reductions()
