"""The names of mindtorch 0.4's `mindtorch.utils`, loaded on access: MindSpore's current device and
mode (docs/from-mindtorch-0.4.md covers the rest)."""
import importlib

_NAMES = ("get_backend", "graph_mode_condition", "is_under_ascend_context", "is_under_cpu_context", "is_under_gpu_context", "pynative_mode_condition",
          "unsupported_attr")
__all__ = list(_NAMES)


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("mindtorch.tools._from_04"), name)


def __dir__():
    return [*globals(), *_NAMES]
