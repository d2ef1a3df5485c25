"""torch._dynamo.testing: backends that count and keep what they are given."""
from mindtorch.torch._dynamo.backends.registry import lookup_backend

__all__ = ["CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs"]


def _calls(gm):
    return sum("call" in n.op for n in gm.graph.nodes)


class CompileCounter:
    """A backend that runs graphs as they are: `frame_count` graphs so far, `op_count` calls in them."""

    def __init__(self):
        self.clear()

    def __call__(self, gm, example_inputs):
        self.frame_count += 1
        self.op_count += _calls(gm)
        return gm.forward

    def clear(self):
        """Counts from the start."""
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend:
    """The same before another backend, `graphs` kept."""

    def __init__(self, backend):
        self.backend = backend
        self.clear()

    def __call__(self, gm, example_inputs):
        self.frame_count += 1
        self.op_count += _calls(gm)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, example_inputs)

    def clear(self):
        """Counts from the start."""
        self.frame_count = self.op_count = 0
        self.graphs = []


class EagerAndRecordGraphs:
    """A backend that keeps `graphs` and runs them as they are."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        return gm.forward
