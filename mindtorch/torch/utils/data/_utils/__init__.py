"""Parts of the loader under the names that libraries import."""
import importlib

from mindtorch.torch._utils import ExceptionWrapper  # noqa: F401
from mindtorch.torch.utils.data._utils import collate, fetch, worker  # noqa: F401

#: Seconds that a worker gets to finish before it is ended.
MP_STATUS_CHECK_INTERVAL = 5.0


def __getattr__(name):
    if name == "pin_memory":            # (nothing here pins memory, so it is loaded when touched)
        return importlib.import_module("mindtorch.torch.utils.data._utils.pin_memory")
    raise AttributeError(f"module 'torch.utils.data._utils' has no attribute '{name}'")
