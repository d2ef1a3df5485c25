"""torch._dynamo.testing: backends that count or record the graphs they receive."""
from mindtorch.torch._dynamo.backends.registry import lookup_backend

__all__ = ["CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs"]


def _calls(gm):
    return sum("call" in n.op for n in gm.graph.nodes)


class CompileCounter:
    """Backend that runs graphs unchanged. `frame_count` counts graphs, `op_count` the calls in
    them."""

    def __init__(self):
        self.clear()

    def __call__(self, gm, example_inputs):
        self.frame_count += 1
        self.op_count += _calls(gm)
        return gm.forward

    def clear(self):
        """Resets the counters."""
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend:
    """Like `CompileCounter` in front of another backend. `graphs` holds the graphs."""

    def __init__(self, backend):
        self.backend = backend
        self.clear()

    def __call__(self, gm, example_inputs):
        self.frame_count += 1
        self.op_count += _calls(gm)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, example_inputs)

    def clear(self):
        """Resets the counters and the recorded graphs."""
        self.frame_count = self.op_count = 0
        self.graphs = []


class EagerAndRecordGraphs:
    """Backend that records graphs in `graphs` and runs them unchanged."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        return gm.forward
