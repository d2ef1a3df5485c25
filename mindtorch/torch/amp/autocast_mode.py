"""torch.amp.autocast (https://pytorch.org/docs/stable/amp.html#autocasting)."""
import contextlib
import functools
import threading
import warnings

from mindtorch.core.dispatch import autocast as _core
from mindtorch.core.device import device as _device
from mindtorch.core.tensor import dtypes
from mindtorch.core.tensor.tensor import is_tensor

#: Capture policy of this module's functions under torch.compile (see `torch/_dynamo/_capture.py`).
CAPTURE = "followed"

__all__ = ["autocast", "autocast_decorator", "custom_fwd", "custom_bwd", "is_autocast_available"]

_FLOAT16 = dtypes.NAMES["float16"]
_LOWER = (dtypes.NAMES["bfloat16"], _FLOAT16)


class _Settings(threading.local):
    """Per-thread settings: the dtype of each device type, and whether casts may be cached."""

    def __init__(self):
        self.dtypes, self.cache = {"cpu": dtypes.NAMES["bfloat16"]}, True


_settings = _Settings()


def snapshot():
    """Returns this thread's complete autocast state, for `restored`."""
    return (_core.state.to, _core.state.there), dict(_settings.dtypes), _settings.cache


@contextlib.contextmanager
def restored(state):
    """Context manager that sets the autocast state to a snapshot, so that re-executed code computes
    as it did the first time."""
    now = snapshot()
    _core.switch(state[0])
    _settings.dtypes, _settings.cache = dict(state[1]), state[2]
    try:
        yield
    finally:
        _core.switch(now[0])
        _settings.dtypes, _settings.cache = now[1:]


def is_autocast_available(device_type):
    """True if tensors can be created on that device type."""
    return device_type == "cpu" or _device.device(device_type).type in _device.accelerator()


def get_autocast_dtype(device_type):
    """Returns the default autocast dtype of that device type."""
    return _settings.dtypes.get(_first_name(device_type), _FLOAT16)


def _first_name(device_type):
    names = _device.accelerator()
    return names[0] if device_type in names else device_type


def set_autocast_dtype(device_type, dtype):
    """Sets the default autocast dtype of that device type."""
    _settings.dtypes[_first_name(device_type)] = dtype


def is_autocast_enabled(device_type=None):
    """True inside an enabled region of that device type (default: 'cuda')."""
    if device_type is None:
        device_type = "cuda"
    return is_autocast_available(device_type) and _region(device_type) is not None


def _region(device_type):
    """Returns the NumPy dtype of the active region of a device type, or None."""
    return _core.state.to if device_type == "cpu" else _core.state.there


def _switch(device_type, to):
    """Sets the NumPy dtype of a device type's active region. Returns the previous regions."""
    return _core.switch((to, _core.state.there) if device_type == "cpu" else (_core.state.to, to))


def set_autocast_enabled(device_type, enabled=None):
    """Enables or disables autocast outside any `with` block."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    if is_autocast_available(device_type):
        _switch(device_type, get_autocast_dtype(device_type).np if enabled else None)


def is_autocast_cache_enabled():
    return _settings.cache


def set_autocast_cache_enabled(enabled):
    """Accepted without effect: casts are not cached."""
    _settings.cache = bool(enabled)


class autocast:
    """Context manager and decorator for mixed precision; can be nested.

    Matrix products and convolutions compute in `dtype`, ops that need float32 compute in float32,
    and other ops keep their dtype.

    device_type is 'cpu' (dtype bfloat16 by default, or float16) or the accelerator's. As in
    PyTorch, a device type that is not available disables the region with a warning.
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        _device.device(device_type)
        self.device, self._enabled = device_type, bool(enabled)
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = _settings.cache if cache_enabled is None else cache_enabled
        self._old = []
        if enabled and not is_autocast_available(device_type):
            warnings.warn(f"User provided device_type of '{device_type}', but {device_type.upper()} is not available. Disabling",
                          stacklevel=3)
            self._enabled = False
        elif self.fast_dtype not in _LOWER and enabled:
            names = ", ".join(map(str, _LOWER))
            warnings.warn(f"In {device_type.upper()} autocast, but the target dtype is not supported. Disabling autocast.\n "
                          f"{device_type.upper()} Autocast only supports dtype of {names} currently.", stacklevel=3)
            self._enabled = False

    def __enter__(self):
        self._old.append(((_core.state.to, _core.state.there), _settings.dtypes.get(_first_name(self.device)), _settings.cache))
        # A region of an unavailable device leaves an enclosing region of another device unchanged.
        if is_autocast_available(self.device):
            _switch(self.device, self.fast_dtype.np if self._enabled else None)
            _settings.dtypes[_first_name(self.device)] = self.fast_dtype
        _settings.cache = self._cache_enabled
        return self

    def __exit__(self, *exc):
        regions, d, _settings.cache = self._old.pop()
        _core.switch(regions)
        if d is None:
            _settings.dtypes.pop(_first_name(self.device), None)
        else:
            _settings.dtypes[_first_name(self.device)] = d
        return False

    def __call__(self, func):
        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            with self:
                return func(*args, **kwargs)
        return wrapper


def autocast_decorator(autocast_instance, func):
    """Wraps func so that it runs inside an autocast region."""
    return autocast_instance(func)


def _cast(x, device_type, d):
    if is_tensor(x):
        return x.to(d) if x.is_floating_point() and _device.device(x.device.type) == _device.device(device_type) and x.dtype is not dtypes.NAMES["float64"] else x
    if isinstance(x, dict):
        return {k: _cast(v, device_type, d) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)(_cast(v, device_type, d) for v in x)
    return x


def custom_fwd(fwd=None, *, device_type=None, cast_inputs=None):
    """Decorator for a Function's forward: saves the autocast state for backward. With cast_inputs,
    casts the inputs and disables autocast."""
    if device_type is None:
        device_type = "cuda"
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx, *args, **kwargs):
        # a region of another device does not concern this function
        here = is_autocast_available(device_type)
        to = _region(device_type)
        ctx._autocast_to = (device_type, to) if here else None
        if cast_inputs is None or to is None or not here:
            return fwd(ctx, *args, **kwargs)
        old = _switch(device_type, None)
        ctx._autocast_to = (device_type, None)
        try:
            return fwd(ctx, *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))
        finally:
            _core.switch(old)
    return forward


def custom_bwd(bwd=None, *, device_type=None):
    """Decorator for a Function's backward: runs it in the autocast state of forward."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx, *args):
        then = ctx._autocast_to
        old = _switch(*(("cpu", _core.state.to) if then is None else then))
        try:
            return bwd(ctx, *args)
        finally:
            _core.switch(old)
    return backward


def _enter_autocast(*vals):
    """Enters autocast(*vals) by a function call, which torch.fx graphs can record, and returns the
    region. `_exit_autocast` exits it."""
    region = autocast(*vals)
    region.__enter__()
    return region


def _exit_autocast(mode):
    """Exits a region entered by `_enter_autocast`."""
    mode.__exit__(None, None, None)


def accelerator():
    """Returns the device type of the accelerator ("cuda" without one)."""
    return next(iter(_device.accelerator()), "cuda")
