"""Data pipes: datasets that are composed like iterators (PyTorch keeps them for older programs)."""
import importlib

from mindtorch.torch.utils.data.datapipes import datapipe  # noqa: F401


def __getattr__(name):
    # Few programs use pipes: they are loaded on first access, or when a functional form of a pipe
    # is used.
    if name in ("iter", "map"):
        return importlib.import_module(f"mindtorch.torch.utils.data.datapipes.{name}")
    raise AttributeError(f"module 'torch.utils.data.datapipes' has no attribute '{name}'")
