"""oneDNN's convolutions in pieces on the threads of pool.py.

What a call does (addresses put into memory objects, reorderings, kernels, sums of partial results) is written down once for its
shapes, piece by piece, and then run in C: Python's lock is out of the way, and a call costs one of ctypes instead of a dozen.
Both cores, us, with Python's threads / like this: 16x16x32x32 -> 16 3x3 330 / 215, its gradients 400 / 220 and 350 / 230.
"""
import collections
import ctypes
import threading
from typing import Any

import numpy as np

from mindtorch.backend.cpu import onednn
from mindtorch.backend.native import pool
from mindtorch.backend.cpython import at_fork
from mindtorch.backend.cpu.host import address

_P, _L = ctypes.c_void_p, ctypes.c_long
_KEPT = 256
_ALIGN = 64


class _Step(ctypes.Structure):
    _fields_ = [("kind", _L), ("what", _P), ("operand", _L), ("offset", _L), ("args", _P), ("other", _L), ("n", _L)]


class _Steps(ctypes.Structure):
    _fields_ = [("count", _L), ("room", _L), ("at", ctypes.POINTER(_Step))]


_PUT, _EXECUTE, _ADD = 0, 1, 2
_ROOM = -1
_X, _W, _Y, _B, _PARTIAL = range(5)


class _Room:
    """Where in a piece's own memory the buffers of its blocks lie: one place a slot, as large as its largest use."""

    def __init__(self):
        self.sizes = {}

    def need(self, slot, size):
        self.sizes[slot] = max(size, self.sizes.get(slot, 0))

    def places(self):
        at, out = 0, {}
        for slot, size in self.sizes.items():
            out[slot] = at
            at += size + -size % _ALIGN
        return out, at


class _Piece:
    """The steps of one thread."""

    def __init__(self, kind, geometry):
        self.kind, self.geometry = kind, geometry
        self.plans, self.rooms, self.steps, self.loaded = {}, _Room(), [], {}

    def block(self, views, offsets, into):
        """One call of oneDNN.  views: x, w, y, bias; offsets: theirs in bytes; into: operand that takes the result."""
        x, w, y, b = views
        key = tuple((v.shape, v.strides) for v in (x, w, y))
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans[key] = onednn.new_plan(self.kind, x, w, y, b, **self.geometry)
        sources = {"y": (_X, _W), "x": (_Y, _W), "w": (_X, _Y)}[self.kind]
        for slot, (o, operand) in enumerate(zip(plan.ins, sources)):
            if self.loaded.get(slot) == (id(plan), offsets[operand]):
                continue            # the same weights as for the block before
            self.loaded[slot] = id(plan), offsets[operand]
            self._put(o.outer, operand, offsets[operand])
            if o.inner is not None:
                self._put_room(o.inner, slot)
                self._execute(o.reorder, 2, o.moves)
        o, (target, offset, add) = plan.out, into
        if add:
            self.rooms.need("sum", o.outer.size)
            self._put_room(o.outer, "sum")
        else:
            self._put(o.outer, target, offset)
        if o.inner is not None:
            self._put_room(o.inner, "out")
        if plan.scratch.size:
            self._put_room(plan.scratch, "scratch")
        if b is not None:
            self._put(plan.bias, _B, offsets[_B])
        self._execute(plan.kernel, plan.count, plan.args)
        if o.inner is not None:
            self._execute(o.reorder, 2, o.moves)
        if add:
            self.steps.append((_ADD, None, target, 0, _ROOM, "sum", o.outer.size // 4))

    def _put(self, memory, operand, offset):
        self.steps.append((_PUT, memory.p.value, operand, offset, None, 0, 0))

    def _put_room(self, memory, slot):
        self.rooms.need(slot, memory.size)
        self.steps.append((_PUT, memory.p.value, _ROOM, slot, None, 0, 0))

    def _execute(self, kernel, count, args):
        self.steps.append((_EXECUTE, kernel.p.value, _ROOM, 0, ctypes.addressof(args), 0, count))

    def written(self):
        """(array of steps, bytes of room)."""
        places, size = self.rooms.places()
        out = []
        for kind, what, operand, offset, args, other, n in self.steps:
            if kind == _PUT and operand == _ROOM:
                offset = places[offset]
            if kind == _ADD:
                other = places[other]
            out.append(_Step(kind, what, operand, offset, args, other, n))
        return (_Step * len(out))(*out), size


class _Call:
    """All pieces of a call for given shapes."""

    def __init__(self, kind, arrays, pieces, geometry):
        """pieces: for each thread a list of blocks, tuples of index expressions for x, w, y and the bias."""
        self.lock = threading.Lock()
        self.pieces, self.arrays = [], []
        self.partial = 0
        start = [0 if a is None else address(a) for a in arrays]
        for i, blocks in enumerate(pieces):
            piece, first = _Piece(kind, geometry), True
            for at in blocks:
                views = [None if a is None else a[at[j]] for j, a in enumerate(arrays)]
                offsets = [0 if v is None else address(v) - s for v, s in zip(views, start)]
                if kind == "w":
                    split = at[_W] == ()        # images, not channels: results are to be added up
                    into = (_W if not i or not split else _PARTIAL + i - 1), offsets[_W], not first and split
                else:
                    j = _Y if kind == "y" else _X
                    into = j, offsets[j], False
                piece.block(views, offsets, into)
                first = False
            self.pieces.append(piece)
            self.arrays.append(piece.written())
        if kind == "w" and pieces[0][0][_W] == ():
            self.partial = len(pieces) - 1
        self.count = len(pieces)
        self.steps = (_Steps * self.count)(*(_Steps(len(a), size, a) for a, size in self.arrays))
        self.kept = [onednn.Stream() for _ in pieces]
        self.streams = (_P * self.count)(*(s.p for s in self.kept))
        self.room = _P * (_PARTIAL + self.partial)

    def run(self, team, arrays):
        sums = [np.empty_like(arrays[_W]) for _ in range(self.partial)]      # (in its strides: C adds them up as flat memory)
        at = self.room(*(None if a is None else address(a) for a in arrays),
                       *(address(a) for a in sums))
        put, execute = onednn.functions()
        onednn.check(team.mt_plan(put, execute, self.count, self.steps, at, self.streams))
        for s in sums:      # in a fixed order: the rounding must not depend on which thread was first
            arrays[_W][...] += s


_calls: collections.OrderedDict[Any, Any] = collections.OrderedDict()
at_fork("plans of oneDNN calls", after_in_child=_calls.clear)        # a lock may be held by a thread that is not there any more


def run(kind, x, w, y, b, cut, pieces, geometry):
    """Fills y, x or w (`kind`) of a convolution x * w (+ b) = y; False where the threads are missing or busy.

    cut: what tells calls with equal shapes and other pieces apart; pieces(): see `_Call`.  `Unsupported` if oneDNN has no kernel."""
    team = pool.ready() if onednn.own() else None
    if team is None:
        return False
    key = (kind, x.shape, w.shape, y.shape, x.strides, w.strides, y.strides, b is not None, cut, *geometry.values())
    call = _calls.get(key)
    arrays = (x, w, y, b)
    if call is None:
        call = _Call(kind, arrays, pieces(), geometry)
        _calls[key] = call
        while len(_calls) > _KEPT:
            _calls.popitem(last=False)
    if not call.lock.acquire(False):
        return False
    try:
        call.run(team, arrays)
    finally:
        call.lock.release()
    return True
