"""Builder of a graph from the calls that kernels make while they run, for `mindtorch/core/compile/replay.py`.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch.backend.errors import GraphBreak
from mindtorch.backend.kernels import flags_of
from mindtorch.backend.mindspore.graph._ascend import ASCEND
from mindtorch.backend.mindspore.graph._compiled import Graph
from mindtorch.backend.mindspore.graph._dynamic import Shared
from mindtorch.backend.mindspore.graph.builder import Recorder
from mindtorch.backend.mindspore.recorder_api import Number
from mindtorch.backend.strides import contiguous_strides
from mindtorch.backend.optimizer_formulas import STEPS


class _Group:
    """Given tensors that share memory: the range that they span, which begins `low` elements after
    the first tensor (`low` may be negative)."""

    __slots__ = ("first", "low", "count", "sizes", "np_dtype", "index")

    def __init__(self, first, low, count, sizes, np_dtype, index):
        self.first, self.low, self.count, self.sizes, self.np_dtype, self.index = first, low, count, sizes, np_dtype, index

    def root(self, given, device):
        """Returns the handle of that range, in C order."""
        h = given[self.first]
        return h if self.sizes is not None else device.view(h, (self.count,), (1,), self.low, self.np_dtype)


class GraphCompiler:
    """One attempt to build a graph. `complete`: all kernels could be recorded so far."""

    def __init__(self, device: Any, level: str) -> None:
        self.device, self.level = device, level
        self.complete = True
        self.recorder = Recorder(device)
        self._groups: list[_Group] = []

    def begin(self, given: Sequence[Any], known: Sequence[dict[str, Any]], persistent: Sequence[bool]) -> None:
        """Declares the tensors that come from outside.

        known: their geometry, the tensor whose memory they share (`first`), and their offset in it
        (`at`, in bytes).
        """
        members: dict[int, list[int]] = {}
        for i, k in enumerate(known):
            members.setdefault(k["first"], []).append(i)
        for first, group in members.items():
            k = known[first]
            if len(group) == 1 and k["strides"] is None:
                sizes, low, count = k["sizes"], 0, 0
            else:
                unit, spans = k["np_dtype"].itemsize, []
                for i in group:
                    m = known[i]
                    if m["np_dtype"] != k["np_dtype"]:
                        self._refuse("given tensors of several element types share memory")
                        return
                    strides = contiguous_strides(m["sizes"]) if m["strides"] is None else m["strides"]
                    at = m["at"] // unit
                    spans.append((at, at + 1 + sum([(n - 1) * s for n, s in zip(m["sizes"], strides)])))
                low = min([a for a, _ in spans])
                sizes, count = None, max([b for _, b in spans]) - low
            g = _Group(first, low, count, sizes, k["np_dtype"], len(self._groups))
            self._groups.append(g)
            self.recorder.given(g.index, g.root(given, self.device), all([persistent[i] for i in group]))

    def enter(self, index: int, h: Any, known: dict[str, Any], persistent: bool) -> bool:
        """Declares one more tensor that comes from outside; False if it shares memory with another.
        """
        if self.recorder.find(h) is not None:
            return False
        sizes, strides, count = known["sizes"], known["strides"], 0
        if strides is not None:
            count, sizes = 1 + sum([(n - 1) * s for n, s in zip(sizes, strides)]), None
        g = _Group(index, 0, count, sizes, known["np_dtype"], len(self._groups))
        self._groups.append(g)
        self.recorder.given(g.index, h if sizes is not None else self.device.view(h, (count,), (1,), 0, g.np_dtype), persistent)
        return True

    @property
    def broken(self) -> str | None:
        """Reason why the kernels that ran last cannot be part of a graph, or None."""
        return self.recorder.broken

    def number(self, key: Any, value: Any, name: str, fn: Any) -> Any:
        """Returns a scalar that may differ in later runs, in the form that the kernel `fn`, called
        `name`, receives."""
        n = Number(value, ("given", key), self.recorder)
        # Ascend's other kernels receive Python scalars.
        return n if not ASCEND or name in STEPS or flags_of(fn).numbers else n._seen()

    def recording(self) -> Recorder:
        """Returns the context in which a kernel runs."""
        return self.recorder

    def _refuse(self, why):
        self.recorder.broken, self.complete = why, False

    def restart(self) -> None:
        """Continues after a graph break, to find further ones."""
        self.complete = False
        self.recorder = Recorder(self.device, lenient=True)

    def shared(self) -> Shared:
        """Returns the state that graphs of one segment for several sizes share."""
        return Shared()

    def served(self, outputs: Sequence[Any], shared: Shared) -> Graph | None:
        """Returns the graph for these outputs if a graph for free sizes already exists, else None.
        """
        try:
            graph = Graph(self.recorder, self._groups, outputs, self.level)
        except GraphBreak:
            return None
        return graph if shared.serve(graph, only=True) is None else None

    def made(self, outputs: Sequence[Any], shared: Shared | None) -> tuple[Graph | None, str]:
        """Returns the graph for these outputs, possibly for free sizes, and the reason why its
        sizes are not free.

        The graph is None after a graph break; `broken` has the reason.
        """
        try:
            graph = Graph(self.recorder, self._groups, outputs, self.level)
        except GraphBreak as e:
            self._refuse(str(e))
            return None, ""
        if shared is not None:
            return graph, shared.serve(graph) or ""
        graph.compile()
        return graph, ""
