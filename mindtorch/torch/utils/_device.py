"""torch.utils._device: context managers that set the device of new tensors."""
import functools

import mindtorch.torch as torch
from mindtorch.core.device import device as _device
from mindtorch.torch.overrides import TorchFunctionMode
from mindtorch.torch.utils._contextlib import context_decorator

_NAMES = """empty empty_permuted empty_strided empty_quantized ones arange bartlett_window blackman_window eye full hamming_window hann_window
 kaiser_window linspace logspace rand randn randint randperm range sparse_coo_tensor sparse_compressed_tensor sparse_csr_tensor sparse_csc_tensor
 sparse_bsr_tensor sparse_bsc_tensor tril_indices triu_indices zeros asarray tensor as_tensor scalar_tensor fft.fftfreq fft.rfftfreq
 nested.nested_tensor""".split()


@functools.cache
def _device_constructors():
    """Returns the functions that create a tensor on the default device unless `device` is passed.
    """
    return {functools.reduce(getattr, name.split("."), torch) for name in _NAMES}


def __getattr__(name):
    # None until a script sets a device; the dispatcher reads the default in core
    if name == "CURRENT_DEVICE":
        now = _device.get_default()
        return None if now is _device.cpu else now
    raise AttributeError(f"module 'torch.utils._device' has no attribute '{name}'")


class DeviceContext(TorchFunctionMode):
    """Context manager that creates new tensors on `device` unless the call names another device."""

    def __init__(self, device):
        self.device = torch.device(device)

    def __enter__(self):
        self.old_device = __getattr__("CURRENT_DEVICE")
        self.device.__enter__()
        return self

    def __exit__(self, *exc):
        return self.device.__exit__(*exc)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in _device_constructors() and kwargs.get("device") is None:
            kwargs["device"] = self.device
        return func(*args, **kwargs)


def device_decorator(device, func):
    """Wraps `func` so that every call runs with the default device `device`."""
    return context_decorator(lambda: device, func)


def set_device(device):
    """Decorator that runs the function with the default device `device`."""
    return lambda func: device_decorator(torch.device(device), func)
