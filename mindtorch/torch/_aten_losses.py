"""Losses with aten's signatures, where `reduction` is an integer (0 none, 1 mean, 2 sum) and may be
positional."""
import functools

from mindtorch.core.dispatch.op_registry import OPS

REDUCTIONS = ("none", "mean", "sum")


def _parameters(op):
    """Returns aten's parameters after input and target, with their defaults."""
    given = op.signature.parameters
    return {p: REDUCTIONS.index("mean") if p == "reduction" else given[p].default for p in op.aten_parameters[2:]}


#: aten's name -> (function of nn.functional, aten's parameters with their defaults)
SIGNATURES = {o.aten_name: (o.name, _parameters(o)) for o in OPS.values() if o.main is o and "reduction" in (o.aten_parameters or ())}


@functools.cache
def function(name):
    """Returns the operator as a function of (input, target, ...), or None."""
    known = SIGNATURES.get(name)
    row = None if known is None else OPS.get(f"nn.functional.{known[0]}")
    if row is None:
        return None
    inner, parameters = row.public or row.fn, known[1]

    def loss(input, target, *args, **kwargs):
        if len(args) > len(parameters):
            raise TypeError(f"aten::{name}() takes at most {2 + len(parameters)} arguments")
        given = {**parameters, **dict(zip(parameters, args)), **kwargs}
        if isinstance(given["reduction"], int):
            given["reduction"] = REDUCTIONS[given["reduction"]]
        return inner(input, target, **given)
    loss.__name__ = name
    return loss


def arguments(name, bound):
    """Returns aten's arguments for a call of the nn.functional loss, without trailing defaults.

    None if aten has no equivalent call.
    """
    parameters = SIGNATURES[name][1]
    if bound.get("size_average") is not None or bound.get("reduce") is not None or bound.get("reduction", "mean") not in REDUCTIONS:
        return None
    if any(v is not None for k, v in bound.items() if k not in parameters and k not in ("input", "target", "size_average", "reduce")):
        return None
    values = [REDUCTIONS.index(bound[k]) if k == "reduction" else bound[k] for k in parameters]
    while values and values[-1] == list(parameters.values())[len(values) - 1] and type(values[-1]) in (type(None), int, float):
        values.pop()
    return (bound["input"], bound["target"], *values)
