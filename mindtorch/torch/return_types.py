"""torch.return_types: the named tuples returned by ops with several results.

The types are created where the ops are declared; this module exports them under PyTorch's names.
"""
from mindtorch.core.tensor.return_types import TYPES

__all__ = sorted(TYPES)


def __getattr__(name):
    if name == "all_return_types":
        return list(TYPES.values())
    # PyTorch has separate types for results stored through out=; here they are the same types.
    plain = name[:-len("_out")] if name.endswith("_out") else name
    if plain in TYPES:
        return TYPES[plain]
    raise AttributeError(f"module 'torch.return_types' has no attribute '{name}'")


def __dir__():
    return sorted([*TYPES, "all_return_types"])
