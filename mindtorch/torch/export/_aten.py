"""Names recorded calls as PyTorch's exported graphs do: torch.ops.aten.linear.default(x, weight,
bias).

An aten operator is implemented by mindtorch's own function (`torch/_ops.py`), which resolves
overloads itself. The overload is therefore only a name, derived from the arguments for operators
with several overloads. A call without an aten name keeps the function that was called.
"""
from mindtorch.backend.graph import Sym, Value, signature
from mindtorch.core.dispatch.dispatcher import DISPATCH_ENTRIES
from mindtorch.torch import _aten_losses
from mindtorch.torch._aten_calls import BY_SECOND
from mindtorch.torch._ops import find_packet
from mindtorch.torch.fx._recorded import spelled as literally

_BINARY = {"__add__": "add", "__sub__": "sub", "__mul__": "mul", "__truediv__": "div", "__matmul__": "matmul", "__floordiv__": "floor_divide",
           "__mod__": "remainder", "__pow__": "pow", "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
           "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift", "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le",
           "__gt__": "gt", "__ge__": "ge", "__rsub__": "rsub"}
_COMMUTING = {"__radd__": "add", "__rmul__": "mul", "__rand__": "bitwise_and", "__ror__": "bitwise_or", "__rxor__": "bitwise_xor"}
_UNARY = {"__neg__": "neg", "__invert__": "bitwise_not", "__abs__": "abs"}
_OTHER = {"concat": "cat", "concatenate": "cat", "negative": "neg", "multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div",
          "absolute": "abs", "greater": "gt", "less": "lt", "greater_equal": "ge", "less_equal": "le", "not_equal": "ne"}
_SPACES = {"linalg": "linalg_", "special": "special_", "fft": "fft_"}
#: PyTorch converts a Python scalar to a 0-dim tensor for these, so the overload is always Tensor
_TENSOR = frozenset("add sub mul div".split())
_WITH_DIM = {"mean": "dim", "sum": "dim_IntList", "amax": None, "any": "dim", "all": "dim", "prod": "dim_int", "max": "dim", "min": "dim",
             "squeeze": "dim", "logsumexp": None, "norm": "ScalarOpt_dim", "std": "dim", "var": "dim", "median": "dim"}
_ALWAYS = {"softmax": "int", "log_softmax": "int", "transpose": "int", "select": "int", "unbind": "int", "flatten": "using_ints", "split": "Tensor",
           "chunk": "default", "norm": "Scalar", "linalg_vector_norm": "default", "repeat_interleave": "self_int"}
_LISTED = frozenset("view reshape permute expand repeat zeros ones empty rand randn new_zeros new_ones tile flip sum mean".split())
_SIZED = _LISTED - {"sum", "mean"}
_DROPPED = frozenset(["inplace", "_stacklevel", "out", "return_indices"])


def _overload(name, args, kwargs):
    base = name.rstrip("_") if name[-1:] == "_" else name
    second = args[1] if len(args) > 1 else kwargs.get("other")
    if base in _TENSOR:
        return "Tensor" if "rounding_mode" not in kwargs else "Tensor_mode"
    if base == "pow":
        return "Tensor_Tensor" if all(isinstance(a, Value) for a in args[:2]) else "Tensor_Scalar" if isinstance(args[0], Value) else "Scalar"
    if base in BY_SECOND:
        return BY_SECOND[base][not isinstance(second, Value)]
    if base == "where" and len(args) == 3:
        kinds = [isinstance(a, Value) for a in args[1:]]
        return "self" if all(kinds) else "ScalarOther" if kinds[0] else "ScalarSelf" if kinds[1] else "Scalar"
    if base == "to":
        return "dtype" if len(args) == 2 and type(second).__name__ == "dtype" else "device" if len(args) == 2 else "default"
    if base in _WITH_DIM and (second is not None or "dim" in kwargs):
        if isinstance(second, Value):
            return "other"
        return _WITH_DIM[base] or "default"
    if base == "arange":
        return ("default", "default", "start", "start_step")[min(len(args), 3)]
    if base == "split" and not isinstance(second, int):
        return "default"
    return _ALWAYS.get(base, "default")


def _same(a, default):
    """True if an argument equals its default. (1, 1) equals a default of 1."""
    if isinstance(a, Value) or isinstance(default, Value):
        return False
    return type(a) is type(default) and a == default or isinstance(a, (tuple, list)) and type(default) is int and len(a) > 0 and all(
        type(x) is int and x == default for x in a)


def _given(body, args, kwargs, listed=False):
    """Returns (positional, keyword) arguments bound to the function's own signature, without
    trailing defaults. None if they do not fit."""
    try:
        bound = signature(body).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    positional, named = [], {}
    for p in signature(body).parameters.values():
        default = p.default
        value = bound.arguments.get(p.name, default)
        if p.name in _DROPPED:
            if value is not None and value is not False and value is not default:
                return None
        elif p.kind is p.VAR_POSITIONAL:
            value = bound.arguments.get(p.name, ())
            if p.name == "args":
                positional += [(v, p.empty) for v in value]
            elif value:
                positional.append((list(value[0]) if len(value) == 1 and isinstance(value[0], (tuple, list)) else list(value), p.empty))
        elif p.kind is p.VAR_KEYWORD:
            named.update(bound.arguments.get(p.name, {}))
        elif p.kind is p.KEYWORD_ONLY or any(k is p.VAR_POSITIONAL for k in (q.kind for q in signature(body).parameters.values() if q is not p)) and (
                p.name in kwargs):
            if not _same(value, default) and value is not default:
                named[p.name] = value
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            if p.name in ("dtype", "device", "size_average", "reduce") and value is None or value is p.empty:
                continue
            positional.append((value, default))
    while positional and positional[-1][1] is not None and (_same(*positional[-1]) or positional[-1][0] is positional[-1][1]) or (
            positional and positional[-1][0] is None and positional[-1][1] is None):
        positional.pop()
    if listed:
        at = 1 if positional and isinstance(positional[0][0], Value) else 0
        rest = [v for v, _ in positional[at:]]
        if rest and all(type(v) is int or isinstance(v, Sym) for v in rest):
            positional[at:] = [(rest, p.empty)]
    return tuple(list(v) if type(v) is tuple and not any(isinstance(x, Value) for x in v) and not hasattr(v, "_fields") else v
                 for v, _ in positional), named


def _inplace(body, args, kwargs):
    """Returns (args, kwargs) without the call's inplace=True, or None if the call is not in place.
    """
    parameters = list(signature(body).parameters)
    if "inplace" not in parameters:
        return None
    at = parameters.index("inplace")
    if kwargs.get("inplace") is True:
        return args, {k: v for k, v in kwargs.items() if k != "inplace"}
    if len(args) == at + 1 and args[at] is True:
        return args[:at], kwargs
    return None


def _batch_norm(b):
    return "batch_norm", (b["input"], b["weight"], b["bias"], b["running_mean"], b["running_var"], b["training"], b["momentum"], b["eps"], False)


def _instance_norm(b):
    return "instance_norm", (b["input"], b["weight"], b["bias"], b["running_mean"], b["running_var"], b["use_input_stats"], b["momentum"], b["eps"], False)


def _embedding(b):
    if b["max_norm"] is not None:
        return None
    args = (b["weight"], b["input"], -1 if b["padding_idx"] is None else b["padding_idx"], b["scale_grad_by_freq"], b["sparse"])
    while len(args) > 2 and args[-1] == (None, None, -1, False, False)[len(args) - 1]:
        args = args[:-1]
    return "embedding", args


def _dropout(b):
    return None if b["inplace"] else ("dropout", (b["input"], b["p"], b["training"]))


def _loss(name):
    def form(b):
        args = _aten_losses.arguments(name, b)
        return None if args is None else (name, args)
    return form


#: functions whose aten operator takes the arguments in a different order
_FORMS = {**{f"nn.functional.{f}": _loss(n) for n, (f, _) in _aten_losses.SIGNATURES.items()}, "nn.functional.batch_norm": _batch_norm, "nn.functional.instance_norm": _instance_norm, "nn.functional.embedding": _embedding, "nn.functional.dropout": _dropout}


def aten(call):
    """Returns (fx op, target, args, kwargs) of a recorded call under its aten name, or as it was
    called."""
    return _aten(call) or literally(call)


def _aten(call):
    name, args, kwargs = call.op, tuple(call.args), call.kwargs
    space, _, short = name.rpartition(".")
    if name == "Tensor.T.__get__":
        return "call_function", find_packet("aten", "numpy_T").default, args, {}
    body = getattr(DISPATCH_ENTRIES.get(call.func), "op", None)
    body = DISPATCH_ENTRIES[call.func].run if body is None and call.func in DISPATCH_ENTRIES else getattr(body, "body", None)
    if body is None or kwargs.get("out") is not None:
        return None
    if name in _FORMS:
        b = signature(body).bind(*args, **kwargs)
        b.apply_defaults()
        found = _FORMS[name](b.arguments)
        if found is None:
            return None
        short, args = found
        kwargs = {}
    elif space == "Tensor" and short in _BINARY and len(args) == 2 and isinstance(args[0], Value):
        short = _BINARY[short]
    elif space == "Tensor" and short in _COMMUTING and len(args) == 2:
        short = _COMMUTING[short]
    elif space == "Tensor" and short in _UNARY and len(args) == 1:
        short = _UNARY[short]
    elif short[:2] == "__":
        return None
    else:
        written = _inplace(body, args, kwargs)
        if written is not None:
            args, kwargs, short = *written, short + "_"
        given = _given(body, args, kwargs, short in _SIZED)
        if given is None:
            return None
        args, kwargs = given
        short = _SPACES.get(space, "") + _OTHER.get(short, short)
        if short in ("sum", "mean") and len(args) > 1 and isinstance(args[1], int):
            args = (args[0], [args[1]], *args[2:])
    packet = find_packet("aten", short)
    if packet is None:
        return None
    target = getattr(packet, _overload(short, args, kwargs), None)
    return None if target is None else ("call_function", target, args, kwargs)
