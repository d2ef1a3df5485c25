"""Utilities that a user calls directly.

    from mindtorch.tools import mstorch_enable    `import torch` returns the facade from here on
    mindtorch.tools.mstorch_disable()             `import torch` returns PyTorch again
    with mindtorch.tools.enabled(): ...           the facade inside the block, then the previous
                                                  state
    mindtorch.tools.is_enabled()                  True while the facade is enabled

Importing this package enables nothing and loads neither MindSpore nor PyTorch.
"""
import importlib

from mindtorch.tools._hook import disable as mstorch_disable, enabled, is_enabled

# Public name -> the private module that defines it. Modules are imported on first use because most
# of them need MindSpore. (`mstorch_enable` is not listed: it is a submodule, and importing it
# enables the facade.)
_LAZY = {
    "cast_to_adapter_tensor": "mindtorch.tools._convert",
    "cast_to_ms_tensor": "mindtorch.tools._convert",
    "CachedDataset": "mindtorch.tools._cache",
    "CompareError": "mindtorch.tools.model_diff.compare",
    "compare_layers": "mindtorch.tools.model_diff.compare",
    "debug_layer_info": "mindtorch.tools._layer_info",
    "init_env": "mindtorch.tools._init_env",
    "load_layer_info": "mindtorch.tools._layer_info",
    "read_config": "mindtorch.tools._config",
    "read_rank_checkpoints": "mindtorch.tools._rank_checkpoints",
    "watch": "mindtorch.tools._training_monitor",
    "watch_training": "mindtorch.tools._training_monitor",
    "write_rank_checkpoints": "mindtorch.tools._rank_checkpoints",
}

__all__ = ["enabled", "is_enabled", "mstorch_disable"]
__all__.extend(_LAZY)


def __getattr__(name):
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_LAZY})
