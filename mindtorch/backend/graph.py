"""Recorded computations as data: recorded once, read by every pass.

A `Graph` is a list of nodes in execution order. A node is one call: the op's registered name
(`nn.functional.conv2d`, `Tensor.add_`, `prim.exp`), the function, and its arguments with Values in
place of tensors, so that a pass sees the call as the user wrote it. There are two recorders:

    core/compile/tracing.py            functional: writes become values. For lowerings (backend/export),
                               torch.jit, graph_cell
    torch/_dynamo/_capture.py  as executed: writes and modes are preserved. For replay
                               (_replay.py) and C kernels (_inductor)

This module is plain Python and does not depend on tensors.
"""
from __future__ import annotations

import dataclasses
import functools
import inspect
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from mindtorch.backend.errors import SpecializationError


@dataclasses.dataclass(frozen=True)
class Sym:
    """A dynamic size: `scale` times size `axis` of input `input`, plus `offset`. `example` is its
    value in the recording."""

    input: int
    axis: int
    scale: int
    offset: int
    example: int
    name: str = "n"

    def __repr__(self):
        text = self.name if self.scale == 1 else f"{self.scale}*{self.name}"
        return text + (f"{self.offset:+d}" if self.offset else "")


@dataclasses.dataclass(eq=False, slots=True)
class Value:
    """A tensor of the graph.

        kind     "input"; "parameter" (a tensor that the code reaches by itself and whose values
                 every run reads again: a weight or buffer, in a capture also any other);
                 "constant"; "node" (the result of a call)
        shape    sizes (ints or Sym)
        dtype    NumPy's name of the dtype ("bfloat16" too)
        array    its values during the recording (None in a capture, which keeps nothing alive)
        name     name of an input or parameter; in a capture of every value, and a valid Python
                 identifier
        tensor   the tensor itself, for parameters
    """

    kind: str
    shape: tuple
    dtype: str
    array: Any = None
    name: str = ""
    tensor: Any = None
    dynamic: bool = True        # depends on an input or a parameter

    def __repr__(self):
        return f"<{self.kind} {self.name or ''}{list(self.shape)} {self.dtype}>"


@dataclasses.dataclass(eq=False, slots=True)
class Node:
    """One call, `func(*args, **kwargs)`; tensors among the arguments are Values.

        outputs  Values of the tensors in the result; those that are also arguments were modified in
                 place
        paths    the path of each output in the result (None: they are the result's tensors in
                 order)
        modes    (grad mode, inference mode, autocast dtype) of the call; None: the caller's modes
                 apply
        facts    properties of each argument just before the call: {Value: (shape, dtype, strides,
                 requires grad, is a view)}
        inside   names of the ops that enclose this call in a trace
        opaque   True: the computation of the call was not recorded, so no pass can process it
    """

    op: str
    func: Any
    args: tuple
    kwargs: dict
    outputs: list
    paths: Any = None
    modes: Any = None
    facts: Any = None
    inside: tuple = ()
    opaque: bool = False

    def arguments(self) -> dict[str, Any] | None:
        """Returns the arguments by parameter name, with defaults; None if they do not fit the
        function's signature."""
        try:
            b = signature(self.func).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):
            return None
        b.apply_defaults()
        return b.arguments

    def call(self, resolve: Callable[[Value], Any], size: Callable[[Sym], Any] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns (args, kwargs) for `func`, with resolve(value) in place of every Value and
        size(sym) in place of every Sym."""
        if self.opaque:
            raise NotImplementedError(f"the graph cannot compute {self.label}: the op was not recorded")
        return mapped(self.args, resolve, size), mapped(self.kwargs, resolve, size)

    @property
    def label(self) -> str:
        """The op's name as shown to the user."""
        by = next((n for n in self.inside if not n.startswith(("prim.", "Tensor.__"))), None)
        return f"'{by}' (its part '{self.op}')" if by and by != self.op else f"'{self.op}'"

    @property
    def values(self) -> list[Value]:
        """All Values among the arguments."""
        return [*values_in(self.args), *values_in(self.kwargs)]

    @property
    def written(self) -> set[Value]:
        """The Values among the arguments that the call modifies in place or returns.

        A call without outputs (`x[i] = y`) modifies its first argument.
        """
        if not self.outputs:
            return set(values_in(self.args[:1]))
        known = set(self.values)
        return {v for v in self.outputs if v in known}

    def __repr__(self):
        given = self.arguments()
        text = [f"{k}={v!r}" for k, v in given.items()] if given is not None else [
            *map(repr, self.args), *(f"{k}={v!r}" for k, v in self.kwargs.items())]
        return f"{', '.join(map(repr, self.outputs))} = {self.op}({', '.join(text)})"


class ResultBuilder:
    """A part of a graph's result that is neither a tensor nor a plain value, and how to rebuild it.

        kind    "object": the same object again; "named": cls(*parts); "sequence": cls(parts);
                "dict": cls of the items of parts; "dataclass": an object with these attributes,
                and items if it is also a dict
    """

    __slots__ = ("cls", "kind", "parts")

    def __init__(self, cls, kind, parts):
        self.cls, self.kind, self.parts = cls, kind, parts

    def made(self, parts):
        """Builds the object from the given parts."""
        if self.kind == "named":
            return self.cls(*parts)
        if self.kind == "sequence":
            return self.cls(parts)
        if self.kind == "dict":
            return self.cls(parts.items())
        fields, items = parts
        made = self.cls.__new__(self.cls)
        made.__dict__.update(fields)
        if items is not None:
            put = OrderedDict.__setitem__ if isinstance(made, OrderedDict) else dict.__setitem__
            for k, v in items.items():
                put(made, k, v)
        return made


# ------------------------------------------------------------------ helpers for passes
@functools.cache
def dtype_name(dtype):
    """Returns a Value's name for an array's dtype."""
    return dtype.name if dtype.kind != "V" else "bfloat16"


_signatures: weakref.WeakKeyDictionary[Any, inspect.Signature] = weakref.WeakKeyDictionary()


def signature(f: Callable[..., Any]) -> inspect.Signature:
    """Returns inspect.signature(f), which is slow and therefore cached per function."""
    found = _signatures.get(f)
    if found is None:
        found = _signatures[f] = inspect.signature(f)
    return found


def values_in(x: Any) -> Iterator[Value]:
    """Yields the Values in a nested argument or result, in order."""
    cls = x.__class__
    if cls is Value:
        yield x
    elif cls is slice:
        yield from values_in((x.start, x.stop, x.step))
    elif cls is ResultBuilder:
        if x.kind != "object":
            yield from values_in(x.parts)
    elif isinstance(x, (tuple, list)):
        for v in x:
            yield from values_in(v)
    elif isinstance(x, dict):
        for v in x.values():
            yield from values_in(v)


def mapped(x: Any, fn: Callable[[Value], Any], size: Callable[[Sym], Any] | None = None) -> Any:
    """Returns a nested argument or result with fn(value) in place of every Value, and size(sym) (if
    given) in place of every Sym."""
    cls = x.__class__
    if cls is Value:
        return fn(x)
    if cls is Sym:
        return x if size is None else size(x)
    if cls is tuple or cls is list:
        return cls(mapped(v, fn, size) for v in x)
    if cls is slice:
        return slice(mapped(x.start, fn, size), mapped(x.stop, fn, size), mapped(x.step, fn, size))
    if cls is ResultBuilder:
        return x.parts if x.kind == "object" else x.made(mapped(x.parts, fn, size))
    if isinstance(x, dict):
        return (OrderedDict if cls is OrderedDict else dict)((k, mapped(v, fn, size)) for k, v in x.items())
    if isinstance(x, tuple):
        return like(x, [mapped(v, fn, size) for v in x])
    return x


def like(x, items):
    """Returns a tuple of the same class as `x` (named or not) with other items."""
    return x._make(items) if hasattr(x, "_make") else type(x)(items)


def rebuilt(x, fn):
    """Returns nested tuples, lists and dicts with fn(leaf) in place of every leaf."""
    if isinstance(x, tuple):
        return like(x, [rebuilt(v, fn) for v in x])
    if isinstance(x, list):
        return [rebuilt(v, fn) for v in x]
    if isinstance(x, dict):
        return {k: rebuilt(v, fn) for k, v in x.items()}
    return fn(x)


def leaves(x: Any) -> Iterator[Any]:
    """Yields the leaves of nested tuples, lists and dicts, in order."""
    if isinstance(x, (tuple, list)):
        for v in x:
            yield from leaves(v)
    elif isinstance(x, dict):
        for v in x.values():
            yield from leaves(v)
    else:
        yield x


def flat_tensors(x):
    """Returns the tensors of an op's result in order; other parts are left out."""
    return [t for t in leaves(x) if hasattr(t, "_array")]


def uses(nodes):
    """Returns {Value: indices of the nodes that have it as an argument}."""
    found = {}
    for j, n in enumerate(nodes):
        for v in n.values:
            found.setdefault(v, []).append(j)
    return found


def last_uses(nodes, result=None):
    """Returns {Value: index of the last node that uses it as an argument, else of the node that
    computes it}; len(nodes) if it is in the result."""
    last = {}
    for j, n in enumerate(nodes):
        for v in n.values:
            last[v] = j
        for v in n.outputs:
            last.setdefault(v, j)
    for v in values_in(result):
        last[v] = len(nodes)
    return last


@dataclasses.dataclass(eq=False)
class Graph:
    """A computation from inputs to a result.

        parameters  Values of the tensors that the code reaches by itself
        result      the returned nested structure, with Values in place of tensors
        functional  True: no node modifies an argument; else nodes are the original calls, to be
                    replayed in this order
        mutations   names of parameters and buffers that the function wrote to (running statistics);
                    a functional graph omits the writes
        escapes     ops that converted values to Python numbers, so that the graph is valid for
                    those values only
    """

    inputs: list
    parameters: list
    nodes: list
    result: Any
    functional: bool = True
    mutations: list = dataclasses.field(default_factory=list)
    escapes: list = dataclasses.field(default_factory=list)

    @property
    def outputs(self) -> list[Value]:
        """The Values of the result, in order."""
        return list(values_in(self.result))

    @property
    def ops(self) -> list[str]:
        """Names of the ops, without duplicates."""
        return list(dict.fromkeys(n.op for n in self.nodes))

    def with_nodes(self, nodes: list[Node]) -> Graph:
        """Returns a copy of this graph with other nodes."""
        return dataclasses.replace(self, nodes=nodes)

    def run(self, *inputs: Any) -> Any:
        """Computes the result with the facade's ops: `inputs` are tensors; parameters are read with
        their current values."""
        if not self.functional:
            raise NotImplementedError("a graph with writes is replayed (torch/_dynamo/_replay.py), not run")
        env = dict(zip(self.inputs, inputs, strict=True))

        def get(v):
            t = env.get(v)
            if t is None:
                t = env[v] = v.tensor
            return t

        def size(s):
            return s.scale * inputs[s.input]._array.shape[s.axis] + s.offset
        for n in self.nodes:
            args, kwargs = n.call(get, size)
            env.update(zip(n.outputs, flat_tensors(n.func(*args, **kwargs)), strict=True))
        return mapped(self.result, get)

    def prune(self) -> Graph:
        """Removes nodes that no output needs, and folds those that depend only on constants (of a
        functional graph)."""
        needed = set(self.outputs)
        live = []
        for n in reversed(self.nodes):
            if not needed.isdisjoint(n.outputs):
                if not any(v.dynamic or any(isinstance(s, Sym) for s in v.shape) for v in n.outputs):
                    for v in n.outputs:
                        v.kind = "constant"
                    continue
                live.append(n)
                needed.update(n.values)
        self.nodes = live[::-1]
        self.parameters = [p for p in self.parameters if p in needed]
        return self

    def __repr__(self):
        lines = [f"inputs {self.inputs}", f"parameters {self.parameters}", *map(repr, self.nodes), f"return {self.result!r}"]
        return "\n".join(lines)


def unify_traces(base: Graph, other: Graph, input: int, axis: int, name: str, verify: bool = False) -> Graph:
    """Marks in `base` the sizes that depend on size `axis` of input `input`, by comparison with a
    trace for another such size.

        verify   they are already marked: only check that this trace agrees
    """
    a, b = base.inputs[input].shape[axis], other.inputs[input].shape[axis]
    a = a.example if isinstance(a, Sym) else a
    if [n.op for n in base.nodes] != [n.op for n in other.nodes]:
        raise SpecializationError(f"the computation itself depends on size {axis} of input {input}: other ops run for {b} than for {a}")

    def size(x, y, what):
        if isinstance(x, Sym):
            if x.name == name and x.scale * b + x.offset != y:
                raise SpecializationError(f"{what} is {x.example} for size {a} and {y} for size {b} of axis {axis}: not a linear function")
            if x.name != name and x.example != y:
                raise SpecializationError(f"{what} depends on more than one dynamic size")
            return x
        if isinstance(x, bool) or x == y:
            return x
        scale, rest = divmod(y - x, b - a)
        if rest or verify:
            raise SpecializationError(f"{what} is {x} for size {a} and {y} for size {b} of axis {axis}: not a linear function")
        return Sym(input, axis, scale, x - scale * a, x, name)

    def same(x, y, what):
        if isinstance(x, Value):
            shapes(x, y, what)
            return x
        if isinstance(x, (int, Sym)) and isinstance(y, int):
            return size(x, y, what)
        if isinstance(x, (tuple, list)) and type(x) is type(y) and len(x) == len(y):
            return type(x)(same(p, q, what) for p, q in zip(x, y))
        if isinstance(x, dict):
            return type(x)((k, same(x[k], y[k], what)) for k in x)
        if isinstance(x, slice):
            return slice(same(x.start, y.start, what), same(x.stop, y.stop, what), same(x.step, y.step, what))
        if hasattr(x, "tobytes") and hasattr(y, "tobytes") and (x.shape != y.shape or x.tobytes() != y.tobytes()):
            raise SpecializationError(f"which elements of a tensor {what} writes depends on the size {axis} of input {input}")
        if hasattr(x, "_array") and hasattr(y, "_array") and x._array.item() != y._array.item():
            raise SpecializationError(f"a Python scalar of {what} is {x._array.item()} for size {a} and {y._array.item()} for size {b} of axis {axis}")
        if type(x) is not type(y) or isinstance(x, float) and x != y and x == x:
            raise SpecializationError(f"{what} is {x!r} for size {a} and {y!r} for size {b} of axis {axis}")
        return x

    done = set()

    def shapes(x, y, what):
        if id(x) in done:
            return
        done.add(id(x))
        if x.kind != y.kind or len(x.shape) != len(y.shape):
            raise SpecializationError(f"a tensor of {what} differs in kind or number of dimensions between size {a} and {b}")
        if x.kind == "constant" and (x.array.shape != y.array.shape or x.array.tobytes() != y.array.tobytes()):
            raise SpecializationError(f"a constant of {what} depends on size {axis} of input {input}: it was computed outside the recorded ops")
        x.shape = tuple(size(p, q, what) for p, q in zip(x.shape, y.shape))

    for v, w in zip(base.inputs, other.inputs):
        shapes(v, w, "the inputs")
    for n, m in zip(base.nodes, other.nodes):
        n.args, n.kwargs = same((n.args, n.kwargs), (m.args, m.kwargs), n.op)
        for v, w in zip(n.outputs, m.outputs):
            shapes(v, w, n.op)
    return base
