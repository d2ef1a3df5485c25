"""Dynamic sizes of a recorded graph: finds the values that depend on them by comparing traces with
different sizes.

An int of the graph is fitted as a polynomial that is linear in each free size: 2 * n + 1, n * m, n
* m + n. `unify` in `backend/graph.py` does this for one size after another, for lowerings that do
not support products.
"""
import dataclasses
import itertools
import math

from mindtorch.backend.errors import SpecializationError
from mindtorch.backend.graph import Sym, Value


@dataclasses.dataclass(frozen=True)
class Size(Sym):
    """Sum of `coefficient * product of sizes of free dimensions`. terms = ((coefficient,
    (dimension, ...)), ...)."""

    terms: tuple = ()

    def __repr__(self):
        return " + ".join("*".join([str(c), *(f"n{d}" for d in dims)]) for c, dims in self.terms)


@dataclasses.dataclass
class Free:
    """A free dimension: its name, the (input, axis) pairs that have it, its size in the base trace,
    and two other sizes."""

    name: str
    places: list
    base: int
    others: list


def _subsets(n):
    return [c for k in range(n + 1) for c in itertools.combinations(range(n), k)]


def assignments(free):
    """Returns the sizes of all traces needed for the fit: {index of a dimension: size}, the base
    first."""
    found = [{i: free[i].others[0] for i in c} for c in _subsets(len(free))]
    found += [{i: d.others[1]} for i, d in enumerate(free)]
    return found + ([{i: d.others[1] for i, d in enumerate(free)}] if len(free) > 1 else [])


def _fitted(observed, free, sizes, what):
    """Returns the `Size` that has these values in the traces."""
    of = {tuple(sorted(s.items())): v for s, v in zip(sizes, observed)}
    at = {c: of[tuple((i, free[i].others[0]) for i in c)] for c in _subsets(len(free))}
    terms = {}
    for c in at:
        # Joint effect of the sizes in c, without the effects of its proper subsets.
        together = sum((-1) ** (len(c) - len(part)) * at[part] for part in at if set(part) <= set(c))
        step = math.prod(free[i].others[0] - free[i].base for i in c)
        if together % step:
            raise SpecializationError(f"{what} has {observed[0]} for the sizes {_size_text(free)}, but its values for other sizes are not linear with integer coefficients")
        for part in _subsets(len(c)):
            dims = tuple(c[k] for k in part)
            terms[dims] = terms.get(dims, 0) + together // step * math.prod(-free[i].base for i in c if i not in dims)
    nonzero = tuple((n, dims) for dims, n in sorted(terms.items(), key=lambda t: (-len(t[0]), t[0])) if n)
    for s, v in zip(sizes, observed):
        if value(nonzero, [s.get(i, d.base) for i, d in enumerate(free)].__getitem__) != v:
            raise SpecializationError(f"{what} is {observed[0]} for the sizes {_size_text(free)} and {v} for { {free[i].name: n for i, n in s.items()} }: not linear in each")
    return Size(0, 0, 1, 0, observed[0], "size", nonzero)


def _size_text(free):
    return {d.name: d.base for d in free}


def value(terms, size):
    """Evaluates the terms of a `Size` for these sizes of the dimensions."""
    total = 0
    for c, dims in terms:
        for i in dims:
            c *= size(i)
        total += c
    return total


def mark(graphs, free, sizes):
    """Replaces ints in the arguments of graphs[0] by `Size`s where the graphs, traces of these
    sizes, differ. Raises `SpecializationError` if the traces are not the same graph.

    The shapes of values stay unchanged: the graph computes sizes only from its arguments.
    """
    base = graphs[0]
    if any([n.op for n in g.nodes] != [n.op for n in base.nodes] for g in graphs):
        raise SpecializationError(f"the computation itself depends on the sizes {_size_text(free)}: other sizes run different ops")
    done = set()

    def shapes(xs, what):
        x = xs[0]
        if id(x) in done:
            return
        done.add(id(x))
        if any(y.kind != x.kind or y.dtype != x.dtype or len(y.shape) != len(x.shape) for y in xs):
            raise SpecializationError(f"a tensor of {what} differs in kind, dtype or number of dimensions")
        if x.kind == "constant" and any(y.tensor is not x.tensor and not _equal(y.tensor, x.tensor) for y in xs):
            raise SpecializationError(f"a constant of {what} depends on a free size: it was computed outside the recorded ops")

    def same(xs, what):
        x = xs[0]
        if isinstance(x, Value):
            if not all(isinstance(y, Value) for y in xs):
                raise SpecializationError(f"an argument of {what} is a tensor for some sizes only")
            shapes(xs, what)
            return x
        if any(type(y) is not type(x) for y in xs):
            raise SpecializationError(f"an argument of {what} has a different type for other sizes")
        if type(x) is int:
            return x if all(y == x for y in xs) else _fitted(xs, free, sizes, what)
        if isinstance(x, (tuple, list)) and all(len(y) == len(x) for y in xs):
            items = [same([y[i] for y in xs], what) for i in range(len(x))]
            return items if isinstance(x, list) else tuple(items)
        if isinstance(x, dict) and all(list(y) == list(x) for y in xs):
            return {k: same([y[k] for y in xs], what) for k in x}
        if isinstance(x, slice):
            return slice(*(same([getattr(y, n) for y in xs], what) for n in ("start", "stop", "step")))
        if any(not (y is x or y == x or x != x and y != y) for y in xs):
            raise SpecializationError(f"an argument of {what} is {x!r} for the sizes {_size_text(free)}, but has a different value for other sizes")
        return x
    for vs in zip(*(g.inputs for g in graphs)):
        shapes(vs, "the inputs")
    for ns in zip(*(g.nodes for g in graphs)):
        n = ns[0]
        if any(len(m.outputs) != len(n.outputs) or m.paths != n.paths or m.modes != n.modes for m in ns):
            raise SpecializationError(f"{n.op} has different outputs or modes for other sizes")
        n.args, n.kwargs = same([m.args for m in ns], n.op), same([m.kwargs for m in ns], n.op)
        for vs in zip(*(m.outputs for m in ns)):
            shapes(vs, n.op)


def _equal(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and bool((a == b).all())
