"""torch.overrides: the __torch_function__ protocol
(https://pytorch.org/docs/stable/torch.overrides.html)."""
import functools
import inspect

from mindtorch.core.tensor.tensor import Tensor
from mindtorch.torch import _function_protocol as _protocol

#: Capture policy of this module's functions under torch.compile (see torch/_dynamo/_capture.py).
CAPTURE = "safe"

__all__ = ["get_ignored_functions", "get_overridable_functions", "get_testing_overrides", "handle_torch_function", "has_torch_function",
           "has_torch_function_unary", "has_torch_function_variadic", "resolve_name", "is_tensor_like",
           "is_tensor_method_or_property", "wrap_torch_function", "enable_reentrant_dispatch", "TorchFunctionMode",
           "BaseTorchFunctionMode"]


def has_torch_function(relevant_args):
    """True if an argument overrides __torch_function__, or if a mode is active."""
    s = _protocol.state
    return bool(s.modes) or (not s.off and any(_protocol.overrides(a) for a in relevant_args))


def has_torch_function_unary(obj):
    """Like `has_torch_function`, for a single argument."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args):
    """Like `has_torch_function`, for several positional arguments."""
    return has_torch_function(args)


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """Calls public_api through the __torch_function__ of its arguments; raises TypeError if all
    return NotImplemented."""
    return _protocol.call(public_api, _protocol.overloaded(relevant_args), args, kwargs)


def wrap_torch_function(dispatcher):
    """Decorator that dispatches to the __torch_function__ of the arguments returned by
    dispatcher(*args, **kwargs)."""
    def deco(fn):
        @functools.wraps(fn)
        def wrapped(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return fn(*args, **kwargs)
        return wrapped
    return deco


def is_tensor_like(inp):
    """True for a tensor, and for any object with a __torch_function__."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def get_overridable_functions():
    """Returns the functions that support __torch_function__, grouped by namespace."""
    out = {}
    for f, where in _protocol.functions():
        out.setdefault(where, []).append(f)
    return out


@functools.cache
def _ignored():
    from mindtorch import torch
    return frozenset(f for n in _protocol._NOT_FUNCTIONS if callable(f := getattr(torch, n, None)))


def get_ignored_functions():
    """Returns the functions that cannot be overridden."""
    return set(_ignored())


@functools.cache
def get_testing_overrides():
    """Maps each overridable function to a dummy with the same signature that returns -1."""
    out = {}
    for f, _ in _protocol.functions():
        text = ", ".join(_parameters(f))
        scope = {}
        exec(f"def dummy({text}):\n    return -1\n", scope)
        out[f] = scope["dummy"]
    return out


def _parameters(f):
    star = False
    for p in inspect.signature(f).parameters.values():
        if p.kind == p.VAR_POSITIONAL:
            star = True
            yield "*" + p.name
        elif p.kind == p.VAR_KEYWORD:
            yield "**" + p.name
        else:
            if p.kind == p.KEYWORD_ONLY and not star:
                star = True
                yield "*"
            yield p.name if p.default is p.empty else p.name + "=None"


def is_tensor_method_or_property(func):
    """True for methods and properties of torch.Tensor."""
    return func in _methods() or getattr(func, "__name__", None) == "__get__"


def _methods():
    return {f for f in vars(Tensor).values() if callable(f)}


def resolve_name(f):
    """Returns the dotted name of a function under torch; None if it has none."""
    for found, where in _protocol.functions():
        if found is f:
            name = where.__name__.removeprefix("mindtorch.")
            return f"{'torch.Tensor' if where is Tensor else name}.{f.__name__}"
    return None


def get_default_nowrap_functions():
    """Returns the functions whose results are not wrapped in the subclass."""
    return {f for n in _protocol._PLAIN if callable(f := vars(Tensor).get(n))}


def enable_reentrant_dispatch():
    """Context manager for use inside a __torch_dispatch__: ops are recorded as they are where the
    operator was called."""
    from mindtorch.torch._dispatch_protocol import reentrant
    return reentrant()


class TorchFunctionMode(_protocol.StackedMode):
    """Context manager whose __torch_function__(func, types, args, kwargs) intercepts every call of
    a PyTorch function inside the block."""

    _protocol = _protocol

    def __init__(self):
        pass

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError


class BaseTorchFunctionMode(TorchFunctionMode):
    """Mode that calls the function unchanged."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _get_current_function_mode():
    modes = _protocol.state.modes
    return modes[-1] if modes else None


def _get_current_function_mode_stack():
    return list(_protocol.state.modes)
