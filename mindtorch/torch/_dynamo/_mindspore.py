"""torch.compile(backend="mindspore"): runs the kernels of a call on the npu device as MindSpore
graphs (`mindtorch/core/compile/replay.py`)."""
import logging

from mindtorch.backend.errors import FullGraphError
from mindtorch.backend.graph import leaves
from mindtorch.core.compile import replay
from mindtorch.core.device.device_dispatch import USED
from mindtorch.core.dispatch.primitives import sequence
from mindtorch.torch._dynamo import config
from mindtorch.torch._dynamo.exc import Unsupported
from mindtorch.torch._dynamo.utils import counters

log = logging.getLogger("torch._dynamo")
graph_breaks = logging.getLogger("torch._dynamo.graph_breaks")
recompiles = logging.getLogger("torch._dynamo.recompiles")

#: PyTorch's modes -> MindSpore's optimization level (jit_level)
LEVELS = {None: "O0", "default": "O0", "reduce-overhead": "O0", "max-autotune-no-cudagraphs": "O1", "max-autotune": "O1"}


def level_of(options):
    """Returns the jit_level for the options of torch.compile."""
    return options["options"].get("jit_level") or LEVELS[options["mode"]]


counters["mindspore"] = replay.counters


class Lazily:
    """Traces of a compiled callable on the npu device; calls it there."""

    def __init__(self, title, options):
        self.options = options
        level = level_of(options)
        self.trace = replay.Trace(title, level, bool(options["fullgraph"]))
        self.backward = replay.Trace(f"{title} (backward)", level)
        self.reasons, self.notes = [], []
        self.calls = 0

    def __call__(self, fn, args, kwargs):
        """Runs fn(*args, **kwargs) in a session."""
        if replay.current.session is not None:
            return fn(*args, **kwargs)
        counters["mindspore"] = replay.counters
        self.calls += 1
        dynamic = self.options["dynamic"]
        if dynamic is None and not config.automatic_dynamic_shapes:
            dynamic = "marked"
        self.trace.dynamic = self.backward.dynamic = dynamic
        if len(self.trace.notes) + len(self.backward.notes) != len(self.notes):
            self.tell()
        if self.full(self.trace):
            return fn(*args, **kwargs)
        first = next(sequence)
        try:
            with replay.session(self.trace) as session:
                r = fn(*args, **kwargs)
        except FullGraphError as e:
            raise Unsupported(f"{self.trace.label} cannot be compiled as one graph (fullgraph=True): {e}") from None
        if session is not None:
            for reason in session.reasons:
                self.note(reason)
        if any([getattr(t, "_grad_fn_", None) is not None for t in leaves(r)]) and not self.full(self.backward):
            replay.backward.follows(self.backward, first, next(sequence))
        return r

    def note(self, reason):
        """Logs a graph break, once per reason."""
        counters["graph_break"][reason] += 1
        if reason not in self.reasons:
            self.reasons.append(reason)
            graph_breaks.info("%s is split: %s", self.trace.label, reason)

    def tell(self):
        """Logs why sizes have their own graphs, once per reason."""
        before, self.notes = self.notes, [*self.trace.notes, *self.backward.notes]
        for note in self.notes:
            if note not in before:
                counters["recompiles"][self.trace.label] += 1
                recompiles.debug("Recompiling %s", note)

    def full(self, trace):
        """True if calls have taken so many different paths that further calls run eagerly."""
        if len(trace.branches) <= 4 * config.limit():
            return False
        if "recompile_limit" not in self.reasons:
            self.note("recompile_limit")
            log.warning("torch._dynamo hit config.recompile_limit (%d): %s takes a different path at nearly every call; further calls run eagerly",
                        config.limit(), trace.label)
        return True

    @property
    def idle(self):
        """True if nothing of it has run on the device."""
        return not self.trace.start.children and not self.trace.used


def lazily(compiled, args, kwargs):
    """Calls a compiled callable in a process that uses the npu device."""
    run = compiled.lazily
    if run is None:
        run = compiled.lazily = Lazily(compiled.title, compiled.options)
    r = run(compiled.fn, args, kwargs)
    if run.idle and replay.current.session is None:
        compiled.lazily = False  # only host tensors: the host path is used unchanged
    return r


__all__ = ["Lazily", "lazily", "USED"]
