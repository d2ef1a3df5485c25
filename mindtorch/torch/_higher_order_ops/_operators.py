"""The operators of torch.ops.higher_order: what the functions of this package ask where a mode takes such operators."""
import importlib

from mindtorch.torch._C._more import DispatchKey
from mindtorch.torch._higher_order import HigherOrderOperator

#: name -> operator
OPERATORS = {}


def operator(name):
    """Decorator: an operator under this name that is computed by the function on any device."""
    def register(fn):
        cls = type("".join([p.capitalize() for p in name.split("_")]) + "Op", (HigherOrderOperator,), {"__doc__": fn.__doc__, "__module__": fn.__module__})
        made = OPERATORS[name] = cls(name)
        made.py_impl(DispatchKey.CompositeExplicitAutograd)(fn)
        return made
    return register


def find(name):
    """The operator of that name; None if there is none."""
    if not OPERATORS:
        importlib.import_module("mindtorch.torch._higher_order_ops")
    return OPERATORS.get(name)
