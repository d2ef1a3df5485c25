"""torch._jit_internal: TorchScript markers, which have no effect here."""
from typing import Any, Dict, Final, List, Optional, Tuple, Union, get_args, get_origin  # noqa: F401

from mindtorch.torch.jit import (FunctionModifiers, _overload, _overload_method, annotate, export, ignore, is_scripting, unused)  # noqa: F401
from mindtorch.torch.jit.annotations import (BroadcastingList1, BroadcastingList2, BroadcastingList3)  # noqa: F401


def _copy_to_script_wrapper(fn):
    """Marks a method that scripting keeps, and returns it."""
    fn._torchscript_modifier = FunctionModifiers.COPY_TO_SCRIPT_WRAPPER
    return fn


def get_torchscript_modifier(fn):
    """Returns the marker of a function or method, or FunctionModifiers.DEFAULT. None if it is not
    callable."""
    if not callable(fn):
        return None
    return getattr(getattr(fn, "__func__", fn), "_torchscript_modifier", FunctionModifiers.DEFAULT)


def is_ignored_fn(fn):
    """True if a function is marked by `ignore` or `unused`."""
    return get_torchscript_modifier(fn) in (FunctionModifiers.UNUSED, FunctionModifiers.IGNORE, FunctionModifiers._DROP)


def should_drop(fn):
    """True if a function is marked by `unused`."""
    return get_torchscript_modifier(fn) == FunctionModifiers.UNUSED


def module_has_exports(mod):
    """True if a module has a method marked by `export`."""
    return any([get_torchscript_modifier(getattr(type(mod), n, None)) == FunctionModifiers.EXPORT for n in dir(type(mod))])


def is_tuple(ann):
    """True if an annotation is a Tuple[...]."""
    return get_origin(ann) is tuple


def is_list(ann):
    """True if an annotation is a List[...]."""
    return get_origin(ann) is list


def is_dict(ann):
    """True if an annotation is a Dict[...]."""
    return get_origin(ann) is dict


def is_optional(ann):
    """True if an annotation is an Optional[...]."""
    return get_origin(ann) is Union and len(get_args(ann)) == 2 and type(None) in get_args(ann)


def boolean_dispatch(arg_name, arg_index, default, if_true, if_false, module_name, func_name):
    """Returns a function that calls one of two functions, depending on the value of an argument."""
    def fn(*args, **kwargs):
        flag = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if flag else if_false)(*args, **kwargs)
    fn.__name__, fn.__doc__ = func_name, if_true.__doc__
    return fn
