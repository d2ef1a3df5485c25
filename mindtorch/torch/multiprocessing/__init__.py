"""torch.multiprocessing: Python's multiprocessing; tensors travel by pickle.

What is sent is a copy: memory is not shared between processes.
"""
import multiprocessing
import multiprocessing.connection
from multiprocessing import *  # noqa: F401,F403
from multiprocessing import resource_tracker  # noqa: F401

from mindtorch.torch.multiprocessing.spawn import (ENV_VAR_PARALLEL_START, ProcessContext, ProcessException,  # noqa: F401
                                                   ProcessExitedException, ProcessRaisedException, SpawnContext, spawn,
                                                   start_processes)

__all__ = ["set_sharing_strategy", "get_sharing_strategy", "get_all_sharing_strategies", *multiprocessing.__all__]

_strategy = "file_system"


def set_sharing_strategy(new_strategy):
    """'file_system' is the only one that is known here, as memory is never shared between processes."""
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"sharing strategy {new_strategy!r} is not one of {sorted(get_all_sharing_strategies())}")
    global _strategy
    _strategy = new_strategy


def get_sharing_strategy():
    return _strategy


def get_all_sharing_strategies():
    return {"file_descriptor", "file_system"}


def init_reductions():
    """Nothing to set up: tensors pickle by themselves."""


def __getattr__(name):
    return getattr(multiprocessing, name)
