"""Generates one Python function over arrays from recorded events (recording_device.py): a
sequence of kernel calls that releases values after their last use."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mindtorch.backend.errors import GraphBreak, ShapeMismatch
from mindtorch.backend.cpu.basic import cast_array
from mindtorch.backend.cpu.copies import into
from mindtorch.backend.cpu.memory import offset_of, on_storage, strided
from mindtorch.backend.host_inductor.recording_device import Event, Value


def _cast_into(to, v):
    to[...] = cast_array(v, to.dtype)


class CodeWriter:
    """Generates functions from events; constants and kernels are variables in their global scope.
    """

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {"ndarray": np.ndarray, "asarray": np.asarray, "empty": np.empty, "strided": strided, "on_storage": on_storage,
                                      "offset_of": offset_of, "cast_into": _cast_into, "ShapeMismatch": ShapeMismatch, "into": into}
        self.names: dict[int, str] = {}
        self.held: list[Any] = []  # (keeps the named objects alive, so that their ids stay unique)

    def constant(self, x: Any) -> str:
        """Returns the source of a non-tensor value."""
        t = x.__class__
        if x is None or t is bool or t is int or t is str or t is float and x - x == 0:
            return repr(x)
        if t is tuple:
            return f"({''.join(self.constant(i) + ', ' for i in x)})"
        name = self.names.get(id(x))
        if name is None:
            name = self.names[id(x)] = f"c{len(self.scope)}"
            self.scope[name] = x
            self.held.append(x)
        return name

    def function(self, name: str, events: Sequence[Event], given: Sequence[Value], results: Sequence[Value | None], *, row: bool = False
                 ) -> tuple[Callable[..., Any], str]:
        """Returns (function, source). The function accepts the arrays of `given` (row: as a list,
        which it empties) and returns a tuple of the arrays of `results`."""
        kept = {v.place for v in results if v is not None}
        events = _needed(events, kept)
        last: dict[int, int] = {}
        for j, e in enumerate(events):
            for v in (*e.ins, *e.outs):
                if v is not None:
                    last[v.place] = j
        self._free(events, last, kept, {v.place for v in given})
        ends: dict[int, list[str]] = {}
        for place, j in last.items():
            if place not in kept:
                ends.setdefault(j, []).append(f"x{place}")
        head = [f"x{v.place}" for v in given]
        lines = []
        if row:
            lines += [f"{', '.join(head)}{',' if len(head) == 1 else ''} = row", "row.clear()"] if head else []
            unused = [n for v, n in zip(given, head) if v.place not in last and v.place not in kept]
            lines += [f"{n} = None" for n in unused]
        for j, e in enumerate(events):
            if self._in_place(events[j:j + 2], j + 1, last, kept):
                lines += self._lines(e, into=True)
            elif j and self._in_place(events[j - 1:j + 1], j, last, kept):
                to, made = [f"x{v.place}" for v in e.ins if v is not None]
                lines.append(f"if {made} is not {to}: {to}[...] = {made}")
            else:
                lines += self._lines(e)
            if j in ends:
                lines.append(" = ".join(sorted(ends[j])) + " = None")
        lines.append(f"return ({''.join('None, ' if v is None else f'x{v.place}, ' for v in results)})")
        source = f"def {name}({'row' if row else ', '.join(head)}):\n" + "".join(f"    {x}\n" for x in lines)
        exec(compile(source, f"<{name} of a compiled call>", "exec"), self.scope)
        return self.scope[name], source

    def _free(self, events, last, kept, given):
        """Finds values whose memory the results of a loop can reuse, because no later event reads
        it."""
        self.free: dict[int, list[Value]] = {}
        lying: dict[int, int] = {}
        for e in events:
            for v in e.outs:
                if v is not None:
                    lying[v.home] = lying.get(v.home, 0) + 1
        for j, e in enumerate(events):
            if e.kind == "loop":
                self.free[id(e)] = [v for v in e.ins if v is not None and last[v.place] == j and v.plain and v.home == v.place and lying.get(v.home) == 1
                                    and v.place not in kept and v.place not in given]

    def _in_place(self, pair, end, last, kept):
        """True if the two events are a kernel and the copy of its result into its first operand,
        and the kernel can write there directly: no other operand shares that memory, and the result
        is not used afterwards."""
        if len(pair) < 2 or pair[1].kind != "write" or pair[0].kind != "call" or pair[0].several or not hasattr(pair[0].fn, "owns"):
            return False
        e, (to, v) = pair[0], pair[1].ins
        a, r = e.ins[0], e.outs[0]
        return r is not None and v.place == r.place and to.place == a.place and a.plain and a.dtype == r.dtype and a.shape == r.shape \
            and r.place not in kept and last[r.place] == end and all([x is None or x.home != a.home for x in e.ins[1:]])

    def _made(self, e, v, out):
        for i, x in enumerate(self.free[id(e)]):
            if x.shape == v.shape and x.dtype == v.dtype:
                del self.free[id(e)][i]
                return f"{out} = x{x.place}"
        return f"{out} = empty({self.constant(v.shape)}, {self.constant(v.dtype)})"

    def _lines(self, e, into=False):
        ins = ["None" if v is None else f"x{v.place}" for v in e.ins]
        outs = [None if v is None else f"x{v.place}" for v in e.outs]
        if e.kind == "constant":
            return [f"{outs[0]} = {self.constant(e.kw['array'])}"]
        if e.kind == "write":
            to, v = e.ins
            if v.dtype != to.dtype:
                return [f"cast_into({ins[0]}, {ins[1]})"]
            return [f"{ins[0]}[...] = {ins[1]}"]
        if e.kind == "view":
            return [f"{outs[0]} = {self._view(e.ins[0], e.outs[0], e.kw['offset'], ins[0])}"]
        if e.kind == "loop":
            return [*[self._made(e, v, o) for o, v in zip(outs, e.outs)], f"{self.constant(e.fn)}({', '.join([*outs, *ins])})"]
        if e.compute is None:
            args = f"{', '.join([*ins, *[f'{k}={self.constant(v)}' for k, v in e.kw.items()]])}"
        else:
            args = f"({''.join(i + ', ' for i in ins)}), {self.constant(dict(e.kw))}"
        fn = self.constant(e.fn if e.compute is None else e.compute)
        call = f"into({ins[0]}, {fn}, {args})" if into else f"{fn}({args})"
        if not e.several:
            if outs[0] is None:
                return [call]
            lines = [f"{outs[0]} = asarray({call})" if e.wraps else f"{outs[0]} = {call}"]
        else:
            lines = [f"{''.join(f'{o or chr(95)}, ' for o in outs)} = {call}"]
            if e.wraps:
                lines += [f"{o} = asarray({o})" for o in outs if o]
        return lines if e.sure else lines + [f"if {o}.shape != {self.constant(v.shape)}: raise ShapeMismatch" for o, v in zip(outs, e.outs) if o]

    def _view(self, a, v, offset, name):
        """Returns the source of the view `v` of the value `a`."""
        sizes, dtype = self.constant(v.shape), self.constant(v.dtype)
        if not v.size:
            return f"empty({sizes}, {dtype})"
        if v.dtype == a.dtype and not offset:
            if v.shape == a.shape and v.strides == a.strides:
                return name
            if v.size == a.size and v.plain and a.plain:
                return f"{name}.reshape({sizes})"
            order = _order(a, v)
            if order is not None:
                return f"{name}.transpose({order})"
        strides = self.constant(v.strides)
        k = v.dtype.itemsize
        if a.plain and offset >= 0 and offset + k + sum([(n - 1) * s for n, s in zip(v.shape, v.strides)]) <= a.size * a.dtype.itemsize and a.dtype.kind != "V":
            # (within the array's bounds, and a dtype that supports the buffer protocol)
            return f"ndarray({sizes}, {dtype}, {name}, {offset}, {strides})"
        if v.dtype == a.dtype:
            return f"strided({name}, {sizes}, {strides}, {offset})"
        return f"on_storage({name}, {sizes}, {strides}, offset_of({name}) + {offset}, {dtype})"


def _order(a: Value, v: Value) -> tuple[int, ...] | None:
    """Returns the permutation that transposes `a` to `v`, or None."""
    if len(a.shape) != len(v.shape):
        return None
    left, order = list(range(len(a.shape))), []
    for n, s in zip(v.shape, v.strides):
        i = next((i for i in left if a.shape[i] == n and a.strides[i] == s), None)
        if i is None:
            return None
        left.remove(i)
        order.append(i)
    return tuple(order)


def _needed(events: Sequence[Event], kept: Iterable[int]) -> list[Event]:
    """Returns the events without unused views and constants. Calls are kept, because they may draw
    random numbers or write."""
    used, out = set(kept), []
    for e in reversed(events):
        if e.kind in ("view", "constant") and e.outs[0] is not None and e.outs[0].place not in used:
            continue
        used.update([v.place for v in e.ins if v is not None])
        out.append(e)
    return out[::-1]


def check_writes(events: Sequence[Event]) -> None:
    """Raises `GraphBreak` if an event writes to memory that is the same in every run."""
    constants = {e.outs[0].home for e in events if e.kind == "constant" and e.outs[0] is not None}
    for e in events:
        if e.writes and e.ins[0] is not None and e.ins[0].home in constants:
            raise GraphBreak("a constant is modified in place")


__all__ = ["CodeWriter", "check_writes"]
