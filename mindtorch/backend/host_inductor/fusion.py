"""Fuses consecutive elementwise events into one C loop (csrc/fused.h), generated and compiled
for a program: intermediate values are never stored.

A loop contains float32 events over one shape. Its operands have that shape, are rows or columns of
it, or single values. An event joins the loop of its operands as long as no other event has read
their results. The loop runs at the first such read, so no value is read before it is computed or
after it is overwritten. Functions that are equal in several loops, or in other programs, are
compiled once.
"""
from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from mindtorch.backend.cpu._numpy_private import header
from mindtorch.backend.interface import Kernel
from mindtorch.backend.host_inductor.recording_device import Event, Value
from mindtorch.backend.c_kernels import build, thread_pool

_F32 = np.dtype(np.float32)
#: minimum number of elements for a loop (below, a program reproduces its events bitwise); number of
#: events that a loop stays open for the next one
_LEAST, _WAIT = 4096, 12
#: maximum number of events in one loop (more exceed the registers)
_MOST = 32
_PIECE = 4096           # (csrc/fused.h)


def _inner(v: Value, shape: tuple[int, ...]) -> tuple[str, int | None] | None:
    """Classifies the layout of an operand in a shape: ("full" or "number", None), ("row" or
    "column", elements per row); None: any other layout."""
    if v.dtype != _F32 or not v.plain:
        return None
    if v.size == math.prod(shape):
        return "full", None
    if v.size == 1:
        return "number", None
    have = (1,) * (len(shape) - len(v.shape)) + v.shape
    first = next(i for i, n in enumerate(have) if n != 1)
    if have[first:] == shape[first:]:
        return "row", v.size
    last = next(i for i in reversed(range(len(have))) if have[i] != 1) + 1
    if have[:last] == shape[:last]:
        return "column", math.prod(shape[last:])
    return None


class _Group:
    """Events of one loop. row: elements per row, if an operand is a row or has one value per row;
    else None."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.row: int | None = None
        self.events: list[tuple[int, Event]] = []
        self.made: set[int] = set()
        self.last = 0

    def rows_with(self, e: Event, others: Iterable[_Group] = ()) -> int | None | bool:
        """Returns the elements per row of this loop with an event (and other loops) added; False if
        they do not fit together."""
        row = self.row
        for n in [g.row for g in others] + [_inner(v, self.shape)[1] for v in e.ins if v is not None]:       # type: ignore[index]
            if n is not None:
                if row is not None and row != n:
                    return False
                row = n
        return row


def _takes(e: Event) -> bool:
    """True if an event can be part of a loop."""
    if e.kind != "call" or e.loop is None or e.several or e.wraps or e.outs[0] is None or not e.ins or len(e.ins) > 3:
        return False
    out = e.outs[0]
    return out.dtype == _F32 and out.plain and out.size >= _LEAST and all([v is not None and _inner(v, out.shape) is not None for v in e.ins])


def sums(events: Sequence[Event], places: int, add: Kernel) -> tuple[list[Event], int, dict[int, Value]]:
    """Rewrites in-place gradient accumulation as out-of-place calls of `add`. Returns (events, next
    free value id, {id of the accumulated value: Value of the sum})."""
    homes: dict[int, int] = {}
    for e in events:
        for v in e.outs:
            if v is not None:
                homes[v.home] = homes.get(v.home, 0) + 1
    now: dict[int, Value] = {}
    out: list[Event] = []
    for e in events:
        ins = tuple([v if v is None else now.get(v.place, v) for v in e.ins]) if now else e.ins
        to = e.ins[0] if e.name == "gradient_accumulate" else None
        # (memory that no other value shares)
        if to is not None and to.plain and to.home == to.place and homes.get(to.home) == 1:
            r = to.elsewhere(places)
            places += 1
            now[to.place] = r
            out.append(Event("call", "gradient_sum", ins, (r,), {}, add, loop=("add", (0.0, 0.0, 0.0))))
        else:
            out.append(e if ins is e.ins else e.on(ins))
    return out, places, now


def recomputed(before: Sequence[Event], after: Sequence[Event], given: Collection[int], written: Collection[int], places: int
               ) -> tuple[list[Event], list[Event]]:
    """Moves the computation of values into the backward pass if a loop can recompute them from
    values that it reads anyway, so they need not be saved. Returns (forward, backward) events.

        given    homes of the input arrays; those that the backward pass did not read stay unread,
                 except for copies of small ones
        written  homes of memory that some event writes to
        places   the next free value id
    """
    made = {e.outs[0].place: e for e in before if _takes(e) and not any([v.home in written for v in (*e.ins, *e.outs)])}    # type: ignore[union-attr]
    constants = {e.outs[0].place for e in before if e.kind == "constant"}               # type: ignore[union-attr]
    own = {v.place for e in after for v in e.outs if v is not None}
    used = {v.place: v for e in after for v in e.ins if v is not None and v.place not in own}
    homes = {v.home for v in used.values()}
    there: dict[int, bool] = {}
    copies: dict[int, Value] = {}
    forward = list(before)

    def have(v, size):
        """True if the backward pass can obtain a value without an extra saved tensor for it."""
        found = there.get(v.place)
        if found is None:
            there[v.place] = False
            e = made.get(v.place)
            found = v.place in constants or e is not None and all([have(i, v.size) for i in e.ins]) or v.place in used
            if not found and v.home in given:
                found = v.home in homes
                if not found and v.plain and v.home not in written and v.size * 8 <= size:
                    nonlocal places
                    copies[v.place] = v.elsewhere(places)
                    forward.insert(0, Event("call", "copies", (v,), (copies[v.place],), {}, np.ndarray.copy))
                    places += 1
                    found = True
            there[v.place] = found
        return found

    backward: list[Event] = []
    done: set[int] = set()

    def make(v):
        e = made.get(v.place)
        if v.place in done or e is None or not all([have(i, v.size) for i in e.ins]):
            return
        done.add(v.place)
        for i in e.ins:
            make(i)
        backward.append(e.on(tuple([copies.get(i.place, i) for i in e.ins])))

    for e in after:
        for v in e.ins:
            if v is not None and v.place in used:
                make(v)
        backward.append(e)
    return forward, backward


class Fusion:
    """Builds the loops of one program: call `events` for each of its functions, then `compiled`
    once."""

    def __init__(self) -> None:
        self.bodies: dict[str, str] = {}  # source of a function without its name -> name
        self.loops: list[Loop] = []

    def events(self, events: Sequence[Event], kept: Collection[int], written: Collection[int], numbers: dict[int, float]) -> list[Event]:
        """Returns the events with fused loops.

            kept     ids of the values needed afterwards
            written  homes of memory that some event writes to
            numbers  id of a 0-dim constant -> its value
        """
        uses: dict[int, int] = {}
        for e in events:
            for v in e.ins:
                if v is not None:
                    uses[v.place] = uses.get(v.place, 0) + 1
        out: list[Event] = []
        groups: dict[int, _Group] = {}  # id of a value computed by an open loop -> that loop
        still: list[_Group] = []

        def close(g):
            still.remove(g)
            for place in g.made:
                del groups[place]
            out.extend(self._closed(g, uses, kept, numbers))

        for j, e in enumerate(events):
            for g in [g for g in still if j - g.last > _WAIT]:
                close(g)
            before = list({id(groups[v.place]): groups[v.place] for v in e.ins if v is not None and v.place in groups}.values())
            if not _takes(e):
                hold = e.writes or any([v is not None and v.home in written for v in (*e.ins, *e.outs)])
                for g in list(still) if hold else before:
                    close(g)
                out.append(e)
                continue
            shape = e.outs[0].shape       # type: ignore[union-attr]
            row: Any = False
            if before and all([g.shape == shape for g in before]) and sum([len(g.events) for g in before]) < _MOST:
                row = before[0].rows_with(e, before[1:])
            if row is False:
                for g in before:
                    close(g)
                g = _Group(shape)
                row = g.rows_with(e)
                if row is False:
                    out.append(e)
                    continue
                still.append(g)
            else:
                g = before[0]
                for other in before[1:]:
                    still.remove(other)
                    g.events += other.events
                    g.made |= other.made
                    groups.update(dict.fromkeys(other.made, g))
            g.row, g.last = row, j
            g.events.append((j, e))
            place = e.outs[0].place       # type: ignore[union-attr]
            g.made.add(place)
            groups[place] = g
        for g in list(still):
            close(g)
        return out

    def _closed(self, g, uses, kept, numbers):
        events = [e for _, e in sorted(g.events, key=lambda x: x[0])]
        if len(events) < 2:
            return events
        inside: dict[int, int] = {}
        for e in events:
            for v in e.ins:
                inside[v.place] = inside.get(v.place, 0) + 1
        outs = [e.outs[0] for e in events if e.outs[0].place in kept or uses.get(e.outs[0].place, 0) > inside.get(e.outs[0].place, 0)]
        ins = list({v.place: v for e in events for v in e.ins if v.place not in g.made and not (v.size == 1 and v.place in numbers)}.values())
        loop = Loop(self._name(_body(events, ins, outs, g.shape, numbers)), math.prod(g.shape), g.row, len(outs) + len(ins))
        self.loops.append(loop)
        return [Event("loop", "+".join([e.name for e in events]), tuple(ins), tuple(outs), {}, loop)]

    def _name(self, body):
        return self.bodies.setdefault(body, f"loop_{len(self.bodies)}")

    def compiled(self) -> bool:
        """Compiles the loops and binds their functions; False if that fails."""
        if not self.loops:
            return True
        threads = thread_pool.lib()
        if threads is None:
            return False
        try:
            # (GCC could hoist parts of functions out of a loop, such as those of a log of an exp;
            # it then no longer vectorizes the loop.)
            lib = build.generated("\n".join(['#pragma GCC optimize ("no-tree-pre")', '#include "fused.h"',
                                             *[body.replace("NAMED", name) for body, name in self.bodies.items()]]), build.NO_CONTRACTION)
        except RuntimeError as e:
            build.log.warning("loops of compiled calls are not fused: %s", e)
            return False
        lib.mt_use(threads.mt_share)
        for loop in self.loops:
            loop.bind(lib)
        return True


class Loop:
    """A callable loop: loop(arrays of the results, then of the operands)."""

    __slots__ = ("name", "sizes", "arrays", "function")

    def __init__(self, name: str, size: int, row: int | None, arrays: int) -> None:
        n = row or _PIECE
        self.name, self.sizes, self.arrays = name, (-(-size // n), n, size), arrays
        self.function: Any = None

    def bind(self, lib: Any) -> None:
        """Binds the loop to its function in the library."""
        self.function = getattr(lib, self.name)
        self.function.argtypes, self.function.restype = [ctypes.c_long] * 3 + [ctypes.c_void_p] * self.arrays, None

    def __call__(self, *arrays: Any) -> None:
        thread_pool.ready()
        self.function(*self.sizes, *map(header, arrays))


def _literal(x: float) -> str:
    if x != x:
        return "(f32)NAN"
    return f"(f32){x.hex()}" if x - x == 0 else "(f32)INFINITY" if x > 0 else "(f32)-INFINITY"


def _body(events, ins, outs, shape, numbers):
    """Returns the source of a loop's function NAMED(rows, elements per row, total elements,
    results..., operands...)."""
    how = [_inner(v, shape)[0] for v in ins]
    name, head, lines = {}, [], []
    for k, (v, kind) in enumerate(zip(ins, how)):
        if kind == "full":
            head.append(f"const f32 *a{k} = k->a[{k}] + at;")
            name[v.place] = f"a{k}[i]"
        elif kind == "row":
            head.append(f"const f32 *a{k} = k->a[{k}];")
            name[v.place] = f"a{k}[i]"
        else:
            head.append(f"const f32 a{k} = k->a[{k}][{'b' if kind == 'column' else '0'}];")
            name[v.place] = f"a{k}"
    for k in range(len(outs)):
        head.append(f"f32 *o{k} = k->o[{k}] + at;")
    for j, e in enumerate(events):
        args = [name.get(v.place) or _literal(numbers[v.place]) for v in e.ins]
        args += ["0"] * (3 - len(args)) + [_literal(float(x)) for x in e.loop[1]]
        lines.append(f"const f32 v{j} = op_{e.loop[0]}({', '.join(args)});")
        name[e.outs[0].place] = f"v{j}"
    lines += [f"o{k}[i] = {name[v.place]};" for k, v in enumerate(outs)]
    o, a = len(outs), max(len(ins), 1)
    params = [*[f"struct array *o{k}" for k in range(o)], *[f"const struct array *a{k}" for k in range(len(ins))]]
    given = f"{{{', '.join(f'(void *)o{k}->data' for k in range(o))}}}, {{{', '.join(f'(void *)a{k}->data' for k in range(len(ins))) or '0'}}}"
    return f"""
struct NAMED {{ long n, all; f32 *o[{o}]; const f32 *a[{a}]; }};
static void NAMED_piece(void *ctx, long start, long stop, int who) {{
    const struct NAMED *k = ctx;
    (void)who;
    for (long b = start; b < stop; b++) {{
        const long at = b * k->n, m = k->all - at < k->n ? k->all - at : k->n;
        {' '.join(head)}
        _Pragma("omp simd") for (long i = 0; i < m; i++) {{
            {' '.join(lines)}
        }}
    }}
}}
void NAMED(long rows, long n, long all, {', '.join(params)}) {{
    struct NAMED k = {{n, all, {given}}};
    shared(rows, all, NAMED_piece, &k);
}}
"""


__all__ = ["Fusion", "Loop", "recomputed"]
