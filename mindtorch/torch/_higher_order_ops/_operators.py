"""Operators of torch.ops.higher_order. The functions of this package call them if an active mode
supports such operators."""
from mindtorch.torch._C._more import DispatchKey
from mindtorch.torch._higher_order import HigherOrderOperator

#: name -> operator
OPERATORS = {}


def operator(name):
    """Decorator that registers a function as an operator of this name, for all devices."""
    def register(fn):
        cls = type("".join([p.capitalize() for p in name.split("_")]) + "Op", (HigherOrderOperator,), {"__doc__": fn.__doc__, "__module__": fn.__module__})
        made = OPERATORS[name] = cls(name)
        made.py_impl(DispatchKey.CompositeExplicitAutograd)(fn)
        return made
    return register
