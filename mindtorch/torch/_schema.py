"""Operator schemas: parsing of PyTorch's one-line notation and inference from a function's
annotations."""
import ast
import collections.abc
import inspect
import re
import types
import typing
from dataclasses import dataclass, field

from mindtorch.core.device.device import device
from mindtorch.core.tensor.dtypes import dtype
from mindtorch.core.tensor.tensor import Tensor


@dataclass
class Argument:
    """One parameter of a schema. `is_write` is True if the operator mutates it."""

    name: str
    type: str
    default_value: object = None
    kwarg_only: bool = False
    is_write: bool = False
    has_default: bool = False

    def has_default_value(self):
        return self.has_default


@dataclass
class FunctionSchema:
    """Name, arguments and returns of an operator."""

    name: str
    overload_name: str
    arguments: list = field(default_factory=list)
    returns: list = field(default_factory=list)
    text: str = ""

    def __str__(self):
        return self.text

    @property
    def is_mutable(self):
        return any(a.is_write for a in self.arguments)


def _split(text):
    """Splits text at the commas outside brackets and quotes."""
    parts, depth, quote, start = [], 0, None, 0
    for i, c in enumerate(text):
        if quote:
            quote = None if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last else parts


_WORDS = {"None": None, "True": True, "False": False, "Mean": 1}


def _default(text):
    if text in _WORDS:
        return _WORDS[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a symbolic name such as contiguous_format or cpu: the caller interprets it


def _argument(text, kwarg_only):
    m = re.match(r"(?P<type>[\w.]+(?:\((?P<alias>[^)]*)\))?(?P<bang>!?)(?P<tail>[\[\]\d?]*))\s+(?P<name>\w+)\s*(?:=\s*(?P<default>.*))?$", text)
    if m is None:
        raise RuntimeError(f"cannot read the argument {text!r} of an operator schema")
    given = m["default"] is not None
    return Argument(m["name"], re.sub(r"\([^)]*\)|!", "", m["type"]), _default(m["default"].strip()) if given else None, kwarg_only,
                    "!" in (m["alias"] or "") or bool(m["bang"]), given)


def parse(text):
    """Parses "ns::name.overload(Tensor x, int n=3, *, float? s=None) -> Tensor" into a
    FunctionSchema."""
    m = re.match(r"\s*(?P<name>[\w:]+)(?:\.(?P<overload>\w+))?\s*\((?P<args>.*)\)\s*->\s*(?P<returns>.*?)\s*$", text, re.S)
    if m is None:
        raise RuntimeError(f"cannot read the operator schema {text!r}: expected 'name(Tensor x, ...) -> Tensor'")
    arguments, kwarg_only = [], False
    for part in _split(m["args"]):
        if part == "*":
            kwarg_only = True
        else:
            arguments.append(_argument(part, kwarg_only))
    returns = m["returns"]
    returns = _split(returns[1:-1]) if returns.startswith("(") else [returns]
    return FunctionSchema(m["name"], m["overload"] or "", arguments, [r.split()[0] for r in returns], text.strip())


# ------------------------------------------------------------------ inference from annotations
_TYPES = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", dtype: "ScalarType", device: "Device",
          typing.Union[int, float, bool]: "Scalar"}


def _spell(t):
    if isinstance(t, type) and issubclass(t, Tensor):
        return "Tensor"
    if t in _TYPES:
        return _TYPES[t]
    origin, args = typing.get_origin(t), typing.get_args(t)
    if origin in (typing.Union, types.UnionType) and type(None) in args:
        rest = [a for a in args if a is not type(None)]
        inner = _spell(rest[0] if len(rest) == 1 else typing.Union[tuple(rest)])
        return inner and inner + "?"
    if origin in (list, collections.abc.Sequence) and args:
        inner = _spell(args[0])
        return inner and inner + "[]"
    return None


def _default_text(v):
    if isinstance(v, (dtype, device)):
        return str(v).removeprefix("torch.")
    return f'"{v}"' if isinstance(v, str) else repr(v)


def infer(fn, mutates_args, op_name=None):
    """Returns the schema text of an annotated function. Raises ValueError for an annotation that
    schemas cannot express."""
    hints = typing.get_type_hints(fn)
    signature = inspect.signature(fn)
    if not isinstance(mutates_args, str):
        unknown = set(mutates_args) - set(signature.parameters)
        if unknown:
            raise ValueError(f"infer_schema: {sorted(unknown)} in mutates_args were not found in the function's parameters")
    elif mutates_args != "unknown":
        raise ValueError("mutates_args must either be a sequence of the names of the arguments that are mutated or the "
                         "string 'unknown'. ")
    parts, star = [], False
    for i, p in enumerate(signature.parameters.values()):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise ValueError("infer_schema(func): We do not support positional-only args, varargs, or varkwargs.")
        if p.kind == p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        if p.name not in hints:
            raise ValueError(f"infer_schema(func): Parameter {p.name} must have a type annotation.")
        spelled = _spell(hints[p.name])
        if spelled is None:
            raise ValueError(f"infer_schema(func): Parameter {p.name} has unsupported type {hints[p.name]}.")
        if spelled.startswith("Tensor") and (mutates_args == "unknown" or p.name in mutates_args):
            spelled = spelled.replace("Tensor", f"Tensor(a{i}!)", 1)
        parts.append(f"{spelled} {p.name}" + ("" if p.default is p.empty else f"={_default_text(p.default)}"))
    return f"{op_name or ''}({', '.join(parts)}) -> {_returns(hints.get('return', signature.return_annotation))}"


def _returns(t):
    if t in (None, type(None)):
        return "()"
    if t is inspect.Signature.empty:
        raise ValueError("infer_schema(func): the return type must be annotated")
    if typing.get_origin(t) is tuple:
        inner = [_spell(a) for a in typing.get_args(t)]
        if None not in inner:
            return f"({', '.join(inner)})"
    elif _spell(t) is not None:
        return _spell(t)
    raise ValueError(f"infer_schema(func): Return has unsupported type {t}.")
