"""torch.__future__: how modules replace their parameters on conversion."""
from mindtorch.torch.nn.modules._state import conversion as _conversion


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """True: `module.to()` and similar methods create new parameters. False (the default): the
    existing parameters receive the new data where possible."""
    _conversion.overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """True if converting a module creates new parameters."""
    return _conversion.overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """True: conversion and loading swap old and new parameters with torch.utils.swap_tensors, so
    that references stay valid."""
    _conversion.swap = value


def get_swap_module_params_on_conversion() -> bool:
    """True if converting and loading a module swap the contents of its parameters."""
    return _conversion.swap
