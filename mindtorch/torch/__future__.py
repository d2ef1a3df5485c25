"""torch.__future__: how modules put converted parameters in the place of the old ones."""
from mindtorch.torch.nn.modules._state import conversion as _conversion


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """True: `module.to()` and its like make new parameters; False (the default): the old ones get the new data where they can."""
    _conversion.overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Whether converting a module makes new parameters."""
    return _conversion.overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """True: converting and loading exchange old and new parameters by torch.utils.swap_tensors, so that references stay valid."""
    _conversion.swap = value


def get_swap_module_params_on_conversion() -> bool:
    """Whether converting and loading a module exchange its parameters' contents."""
    return _conversion.swap
