"""A traced computation as data: what `core/tracing.py` records, and what the lowerings read.

A `Graph` is a list of nodes in the order in which they ran.  A node is one op of the table under its own name with its own
arguments (`nn.functional.conv2d`, stride and all), so that a lowering sees what the user wrote.  Nothing here knows of
tensors: this module is plain Python, below everything.
"""
import dataclasses
import inspect
from collections import OrderedDict
from typing import Any


@dataclasses.dataclass(frozen=True)
class Sym:
    """A size that is not fixed: `scale` times size `axis` of input `input`, plus `offset`.  `example` is what it was."""

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

    kind     "input", "parameter" (a trainable one or a persistent buffer), "constant", "node"
    shape    sizes (ints or Sym)
    dtype    NumPy's name of the dtype ("bfloat16" too)
    array    its values during the trace
    tensor   the tensor itself, for parameters: what a later run must read anew
    """

    kind: str
    shape: tuple
    dtype: str
    array: Any
    name: str = ""
    node: Any = None
    index: int = 0
    tensor: Any = None
    dynamic: bool = True        # depends on an input or a parameter

    def __repr__(self):
        return f"<{self.kind} {self.name or ''}{list(self.shape)} {self.dtype}>"


@dataclasses.dataclass(eq=False, slots=True)
class Node:
    """One op: `args` maps the names of its signature to values, numbers, or nests of them.

    opaque   no lowering knows this op; `inside` says through which ops the trace got here
    """

    op: str
    args: dict
    outputs: list
    fn: Any = None
    signature: Any = None
    inside: tuple = ()
    opaque: bool = False

    def bound(self, resolve, size=None):
        """(args, kwargs) for calling `fn`, with resolve(value) in the place of every Value and size(sym) of every Sym."""
        if self.opaque:
            raise NotImplementedError(f"the graph cannot compute {self.title}: the op was not recorded")
        values = OrderedDict((k, mapped(v, resolve, size)) for k, v in self.args.items())
        b = inspect.BoundArguments(self.signature, values)
        return b.args, b.kwargs

    @property
    def title(self):
        """The op's name as a user knows it."""
        by = next((n for n in self.inside if not n.startswith(("prim.", "Tensor.__"))), None)
        return f"'{by}' (its part '{self.op}')" if by and by != self.op else f"'{self.op}'"

    def values(self):
        """All Values among the arguments."""
        found = []
        mapped(self.args, found.append)
        return found

    def __repr__(self):
        return f"{', '.join(map(repr, self.outputs))} = {self.op}({', '.join(f'{k}={v!r}' for k, v in self.args.items())})"


def mapped(x, fn, size=None):
    """A nested argument with fn(value) in the place of every Value, and size(sym) (if given) in that of every Sym."""
    cls = x.__class__
    if cls is Value:
        return fn(x)
    if cls is Sym:
        return x if size is None else size(x)
    if cls is tuple or cls is list:
        return cls(mapped(v, fn, size) for v in x)
    if cls is slice:
        return slice(mapped(x.start, fn, size), mapped(x.stop, fn, size), mapped(x.step, fn, size))
    if isinstance(x, dict):
        return cls((k, mapped(v, fn, size)) for k, v in x.items()) if cls in (dict, OrderedDict) else {
            k: mapped(v, fn, size) for k, v in x.items()}
    if isinstance(x, tuple):
        return like(x, [mapped(v, fn, size) for v in x])
    return x


def like(x, items):
    """A tuple of the same class as `x` (named or not) with other items."""
    return x._make(items) if hasattr(x, "_make") else type(x)(items)


@dataclasses.dataclass(eq=False)
class Graph:
    """inputs -> outputs.

    result      the nest that the traced function returned, with Values in the place of tensors
    mutations   names of parameters and buffers that the function wrote to (running statistics): they are not part of the graph
    escapes     ops by which values became Python numbers, so that the graph holds for such values only
    """

    inputs: list
    parameters: list
    nodes: list
    result: Any
    mutations: list = dataclasses.field(default_factory=list)
    escapes: list = dataclasses.field(default_factory=list)

    @property
    def outputs(self):
        """The Values of the result, in order."""
        found = []
        mapped(self.result, found.append)
        return found

    @property
    def ops(self):
        """Names of the ops, each once."""
        return list(dict.fromkeys(n.op for n in self.nodes))

    def run(self, *inputs):
        """Computes the result with the facade's own ops: `inputs` are tensors; parameters are read as they are now."""
        env = {id(v): t for v, t in zip(self.inputs, inputs, strict=True)}

        def get(v):
            t = env.get(id(v))
            if t is None:
                t = env[id(v)] = v.tensor
            return t

        def size(s):
            return s.scale * inputs[s.input]._a.shape[s.axis] + s.offset
        for n in self.nodes:
            args, kwargs = n.bound(get, size)
            for v, t in zip(n.outputs, flat_tensors(n.fn(*args, **kwargs)), strict=True):
                if v is not None:
                    env[id(v)] = t
        return mapped(self.result, get)

    def prune(self):
        """Drops nodes that no output needs, and computes those that depend on constants alone."""
        needed = {id(v) for v in self.outputs}
        kept = []
        for n in reversed(self.nodes):
            if any(v is not None and id(v) in needed for v in n.outputs):
                if not any(v.dynamic for v in n.outputs if v is not None) and not any(
                        isinstance(s, Sym) for v in n.outputs if v is not None for s in v.shape):
                    for v in n.outputs:
                        if v is not None:
                            v.kind, v.node = "constant", None
                    continue
                kept.append(n)
                needed.update(id(v) for v in n.values())
        self.nodes = kept[::-1]
        self.parameters = [p for p in self.parameters if id(p) in needed]
        return self

    def __repr__(self):
        lines = [f"inputs {self.inputs}", f"parameters {self.parameters}", *map(repr, self.nodes), f"return {self.result!r}"]
        return "\n".join(lines)


def flat_tensors(x):
    """Tensors of an op's result in order; other parts are left out."""
    if hasattr(x, "_a"):
        return [x]
    if isinstance(x, (tuple, list)):
        return [t for v in x for t in flat_tensors(v)]
    if isinstance(x, dict):
        return [t for v in x.values() for t in flat_tensors(v)]
    return []


class Differs(NotImplementedError):
    """Two traces for two sizes are not one graph."""


def unify(base, other, input, axis, name, verify=False):
    """Marks in `base` what depends on size `axis` of input `input`, by comparison with a trace for another such size.

    verify   what depends on it has been marked: only look whether it is so for this trace as well
    """
    a, b = base.inputs[input].shape[axis], other.inputs[input].shape[axis]
    a = a.example if isinstance(a, Sym) else a
    if [n.op for n in base.nodes] != [n.op for n in other.nodes]:
        raise Differs(f"the computation itself depends on size {axis} of input {input}: other ops run for {b} than for {a}")

    def size(x, y, what):
        if isinstance(x, Sym):
            if x.name == name and x.scale * b + x.offset != y:
                raise Differs(f"{what} is {x.example} for size {a} and {y} for size {b} of axis {axis}: not a linear function")
            if x.name != name and x.example != y:
                raise Differs(f"{what} depends on more than one free size")
            return x
        if isinstance(x, bool) or x == y:
            return x
        scale, rest = divmod(y - x, b - a)
        if rest or verify:
            raise Differs(f"{what} is {x} for size {a} and {y} for size {b} of axis {axis}: not a linear function")
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
            raise Differs(f"which elements of a tensor {what} writes depends on the size {axis} of input {input}")
        if hasattr(x, "_a") and hasattr(y, "_a") and x._a.item() != y._a.item():
            raise Differs(f"a number of {what} is {x._a.item()} for size {a} and {y._a.item()} for size {b} of axis {axis}")
        if type(x) is not type(y) or isinstance(x, float) and x != y and x == x:
            raise Differs(f"{what} is {x!r} for size {a} and {y!r} for size {b} of axis {axis}")
        return x

    done = set()

    def shapes(x, y, what):
        if id(x) in done:
            return
        done.add(id(x))
        if x.kind != y.kind or len(x.shape) != len(y.shape):
            raise Differs(f"a tensor of {what} differs in kind or number of dimensions between size {a} and {b}")
        if x.kind == "constant" and (x.array.shape != y.array.shape or x.array.tobytes() != y.array.tobytes()):
            raise Differs(f"a constant of {what} depends on size {axis} of input {input}: it was computed outside the recorded ops")
        x.shape = tuple(size(p, q, what) for p, q in zip(x.shape, y.shape))

    for v, w in zip(base.inputs, other.inputs):
        shapes(v, w, "the inputs")
    for n, m in zip(base.nodes, other.nodes):
        n.args = same(n.args, m.args, n.op)
        for v, w in zip(n.outputs, m.outputs):
            if v is not None and w is not None:
                shapes(v, w, n.op)
    return base
