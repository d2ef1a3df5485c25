"""Replay of a captured call that becomes one program of host kernels
(`mindtorch/core/compile/compiled_graph.py`) after its first replay.

The first replay runs op by op on the autograd graph (_replay.py). Then the call is recorded and
from there on runs as a program. If that is not possible, or the program does not apply to a call
(for example because primitives are observed), the call is replayed op by op. `reason` says why
there is no program.
"""
import logging

from mindtorch.backend.device import UnsupportedByKernel
from mindtorch.backend.errors import GraphBreak, ShapeMismatch
from mindtorch.core.compile import compiled_graph
from mindtorch.core.device.rng import Generator
from mindtorch.ops.compiled import composite_backward
from mindtorch.torch._dynamo import _replay
from mindtorch.torch._dynamo.utils import counters

log = logging.getLogger("torch._dynamo")

#: op-by-op replays before a call is recorded; maximum number of re-recordings for other results
#: with gradients
REPLAYS, OTHERS = 1, 3


class Program:
    """Replay of a captured graph.

    title: name of the callable in messages.
    """

    def __init__(self, graph, entry_modes, title):
        self.host = _replay.Program(graph, entry_modes)
        self.graph, self.modes, self.title = graph, entry_modes, title
        self.parameters = [v.tensor for v in graph.parameters]
        self.joint = self.free = self.reason = None
        self.calls = self.made = 0
        self.written = set()
        if len(graph.nodes) < 2:
            self.reason = "it is a single op"
        elif any([isinstance(x, Generator) for n in graph.nodes for x in (*n.args, *n.kwargs.values())]):
            self.reason = "it uses an explicit random generator"

    @property
    def source(self):
        """The Python source that is executed."""
        return self.host.source if self.joint is None else self.joint.source

    def run(self, *tensors):
        """Returns the result of the captured call for these tensors."""
        given = [*tensors, *self.parameters]
        program = self._ready(given)
        if program is not None:
            try:
                outs = program.run(given)
            except ShapeMismatch:
                self._refused("shapes depend on values")
            else:
                return self.free.result(*given, *outs)
        if self._to_be_recorded() and self.calls < REPLAYS:
            return self._watched(tensors, given)
        return self.host.run(*tensors)

    def _to_be_recorded(self):
        return self.joint is None and self.reason is None and compiled_graph.is_unobserved()

    def _ready(self, given):
        """Returns the program that runs this call, recording it first if it is due; None if the
        call is replayed op by op."""
        program = self.joint
        if program is None:
            if self.calls < REPLAYS or not self._to_be_recorded():
                return None
            program = self._record(given, None)
        elif program.other is not None and compiled_graph.is_unobserved():
            if self.made > OTHERS:
                self._refused("results with gradients change from call to call")
                return None
            program = self._record(given, program.other)
        if program is None:
            return None
        if program.broken:
            self._refused("shapes depend on values")
            return None
        return program if program.holds(given) else None

    def _watched(self, tensors, given):
        """Replays op by op and records which of the tensors are modified in place."""
        before = [t._version for t in given]
        r = self.host.run(*tensors)
        self.written.update([i for i, (t, v) in enumerate(zip(given, before)) if t._version != v])
        self.calls += 1
        return r

    def _record(self, given, present):
        try:
            if not all(map(compiled_graph.is_supported, given)):
                raise GraphBreak("an input is not a plain host tensor")
            if self.free is None:
                self.free = _replay.Free(self.graph, self.modes)
            found = compiled_graph.JointGraphCapture(self.free.run, given, self.written, present)
            if not set(found.written) <= self.written:
                raise GraphBreak("it modifies different tensors from call to call")
            self.joint = compiled_graph.CompiledFunction(found, self.free.run, composite_backward)
        except (GraphBreak, UnsupportedByKernel, NotImplementedError, RuntimeError, ValueError, TypeError, IndexError, AttributeError) as e:
            self._refused(str(e) if isinstance(e, GraphBreak) else f"{type(e).__name__}: {e}")
            return None
        self.made += 1
        counters["inductor"]["joint"] += 1
        return self.joint

    def _refused(self, why):
        self.joint, self.reason = None, why
        counters["inductor"]["op by op"] += 1
        log.info("%s stays op by op: %s", self.title, why)
