"""Internal modules of DataLoader under the names that libraries import."""
import importlib

from mindtorch.torch._utils import ExceptionWrapper  # noqa: F401
from mindtorch.torch.utils.data._utils import collate, fetch, worker  # noqa: F401

#: Seconds that a worker has to exit before it is terminated.
MP_STATUS_CHECK_INTERVAL = 5.0


def __getattr__(name):
    if name == "pin_memory":  # no memory is pinned here, so the module is loaded on first access
        return importlib.import_module("mindtorch.torch.utils.data._utils.pin_memory")
    raise AttributeError(f"module 'torch.utils.data._utils' has no attribute '{name}'")
