"""torch.fx.operator_schemas: normalizes call arguments to the parameter names of a signature."""
import inspect
import typing
from typing import Any, NamedTuple

from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch._globals import torch_name
from mindtorch.torch._ops import OpOverload, OpOverloadPacket

__all__ = ["ArgsKwargsPair", "check_for_mutable_operation", "get_signature_for_torch_op", "create_type_hint", "type_matches", "normalize_function",
           "normalize_module"]

_HOMES = frozenset("torch torch.nn.functional torch.special torch.linalg torch.fft".split())


class ArgsKwargsPair(NamedTuple):
    """Positional and keyword arguments."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _home(fn):
    """Returns the public module of a PyTorch function, or None."""
    if not callable(fn) or isinstance(fn, type):
        return None
    known = torch_name(fn)
    return known[0] if known is not None and known[0] in _HOMES else None


def check_for_mutable_operation(target, args, kwargs):
    """Raises RuntimeError if a call of a PyTorch function mutates an argument (`out=`, or a name
    that ends in a single underscore)."""
    name = getattr(target, "_opname", None)
    if name is None:
        if _home(target) is None:
            return
        name = torch_name(target)[1]
    out = kwargs.get("out") is not None
    if out or name.endswith("_") and not name.endswith("__"):
        raise RuntimeError(f"Tried to trace mutable operation aten::{name}{'.out' if out else ''}. FX only supports functional code, so operations "
                           "that mutate operands in-place (e.g. via `out` arguments) are not supported")


def _signature(fn):
    """Returns the signature of a function without its `out` parameter. None if there is no
    signature or it has `*args` or `**kwargs`."""
    if isinstance(fn, (OpOverload, OpOverloadPacket)):
        schema = getattr(fn, "_schema", None)
        if schema is not None and schema.arguments:
            return inspect.Signature([inspect.Parameter("input" if a.name == "self" else a.name,
                                                        inspect.Parameter.KEYWORD_ONLY if a.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                                                        default=a.default_value if a.has_default else inspect.Parameter.empty) for a in schema.arguments])
        fn = getattr(fn, "fn", None)
    try:
        found = inspect.signature(fn)
    except (TypeError, ValueError):
        return None
    kept = [p for p in found.parameters.values() if p.name != "out"]
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in kept):
        return None
    return found.replace(parameters=kept)


def get_signature_for_torch_op(op, return_schemas=False):
    """Returns [inspect.Signature] for a PyTorch function and None for any other function.

    The one signature covers all overloads. With `return_schemas` the result is a pair whose second
    element is None, because functions have no schemas here.
    """
    known = isinstance(op, (OpOverload, OpOverloadPacket)) or _home(op) is not None
    found = _signature(op) if known else None
    found = None if found is None else [found]
    return (found, None) if return_schemas else found


def create_type_hint(x):
    """Returns list[T] or tuple[T, ...] for a list or tuple of types.

    T is the common base class if the sequence contains it, else Any. Any other `x` is returned
    unchanged.
    """
    if not isinstance(x, (list, tuple)):
        return x
    made = (lambda t: list[t]) if isinstance(x, list) else (lambda t: tuple[t, ...])
    if not x:
        return made(Any)
    base = x[0]
    for t in x:
        if isinstance(t, type) and isinstance(base, type) and issubclass(base, t):
            base = t
        elif not (isinstance(t, type) and isinstance(base, type) and issubclass(t, base)):
            return made(Any)
    return made(base)


def type_matches(signature_type, argument_type):
    """True if an argument of type `argument_type` can be passed where `signature_type` is declared.
    """
    if signature_type is argument_type or signature_type in (Any, inspect.Parameter.empty):
        return True
    origin, inner = typing.get_origin(signature_type), typing.get_args(signature_type)
    if origin is typing.Union:
        return any(type_matches(t, argument_type) for t in inner)
    if origin in (list, tuple):
        if argument_type is int and origin is list and inner[:1] == (int,):
            return True  # (an int is broadcast to a list of ints)
        if typing.get_origin(argument_type) not in (list, tuple):
            return False
        return all(type_matches(inner[0], t) for t in typing.get_args(argument_type) if t is not ...)
    if isinstance(signature_type, type) and isinstance(argument_type, type):
        return issubclass(argument_type, signature_type) or signature_type is float and issubclass(argument_type, int)
    return False


def _normalized(signature, args, kwargs, only_kwargs):
    """Binds the arguments: positional ones stay positional, all others are passed by name."""
    if signature is None:
        return None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    named = dict(bound.arguments)
    if only_kwargs:
        return ArgsKwargsPair((), named)
    for name in list(named)[:len(args)]:
        del named[name]
    return ArgsKwargsPair(tuple(args), named)


def normalize_function(target, args, kwargs=None, arg_types=None, kwarg_types=None, normalize_to_only_use_kwargs=False):
    """Normalizes the arguments of a call of a PyTorch function and fills in its defaults.

    Arguments that were not passed by position are passed by name. Returns None for any other
    function.
    """
    if not isinstance(target, (OpOverload, OpOverloadPacket)) and _home(target) is None:
        return None
    return _normalized(_signature(target), args, kwargs or {}, normalize_to_only_use_kwargs)


def normalize_module(root, target, args, kwargs=None, normalize_to_only_use_kwargs=False):
    """Like `normalize_function`, for the call of a submodule of `root` from torch.nn."""
    try:
        module = root.get_submodule(target)
    except AttributeError as e:
        raise RuntimeError(f"Tried to normalize arguments to node with target {target} but root did not have that target!") from e
    if not type(module).__module__.startswith(("torch.nn", "mindtorch.torch.nn")) or is_tensor(module):
        return None
    return _normalized(_signature(module.forward), args, kwargs or {}, normalize_to_only_use_kwargs)
