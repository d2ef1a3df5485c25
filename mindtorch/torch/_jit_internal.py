"""torch._jit_internal: markers of TorchScript, which change nothing here."""
from typing import Any, Dict, Final, List, Optional, Tuple, Union  # noqa: F401

from mindtorch.torch.jit import (_overload, _overload_method, annotate, export, ignore, is_scripting, unused)  # noqa: F401
from mindtorch.torch.jit.annotations import (BroadcastingList1, BroadcastingList2, BroadcastingList3)  # noqa: F401


def _copy_to_script_wrapper(fn):
    """Marks a method that is kept by scripting; gives it back."""
    return fn


def boolean_dispatch(arg_name, arg_index, default, if_true, if_false, module_name, func_name):
    """Function that calls one of two, by the value of one argument."""
    def fn(*args, **kwargs):
        flag = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if flag else if_false)(*args, **kwargs)
    fn.__name__, fn.__doc__ = func_name, if_true.__doc__
    return fn
