"""Data pipes: datasets that are put together like iterators (kept by torch for older programs)."""
import importlib

from mindtorch.torch.utils.data.datapipes import datapipe  # noqa: F401


def __getattr__(name):
    # Few programs have pipes: they are loaded when touched, or when a pipe is asked for a functional form.
    if name in ("iter", "map"):
        return importlib.import_module(f"mindtorch.torch.utils.data.datapipes.{name}")
    raise AttributeError(f"module 'torch.utils.data.datapipes' has no attribute '{name}'")
