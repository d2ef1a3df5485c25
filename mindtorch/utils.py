"""What mindtorch 0.4 has under `mindtorch.utils`, loaded when asked for: which device and mode MindSpore is in (docs/from-mindtorch-0.4.md has the rest)."""
import importlib

__all__ = ["get_backend", "graph_mode_condition", "is_under_ascend_context", "is_under_cpu_context", "is_under_gpu_context", "pynative_mode_condition",
           "unsupported_attr"]


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("mindtorch.tools._from_04"), name)


def __dir__():
    return [*globals(), *__all__]
