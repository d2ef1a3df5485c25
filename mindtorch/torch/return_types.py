"""torch.return_types: the named tuples that ops with several results return.

They are made where the ops are declared; this module shows them under torch's names.
"""
from mindtorch.core.return_types import TYPES

__all__ = sorted(TYPES)


def __getattr__(name):
    if name == "all_return_types":
        return list(TYPES.values())
    # torch gives a type of its own to results stored by out=; here it is the same one.
    plain = name[:-len("_out")] if name.endswith("_out") else name
    if plain in TYPES:
        return TYPES[plain]
    raise AttributeError(f"module 'torch.return_types' has no attribute '{name}'")


def __dir__():
    return sorted([*TYPES, "all_return_types"])
