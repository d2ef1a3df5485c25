"""torch.compile(backend="mindspore"): a call's kernels on the npu device as MindSpore graphs (core/lazy.py)."""
from mindtorch.core import lazy
from mindtorch.core.devices import USED
from mindtorch.torch._dynamo import config
from mindtorch.torch._dynamo.exc import Unsupported
from mindtorch.torch._dynamo.utils import counters

#: torch's modes -> how far MindSpore compiles (jit_level)
LEVELS = {None: "O0", "default": "O0", "reduce-overhead": "O0", "max-autotune-no-cudagraphs": "O1", "max-autotune": "O1"}


def level_of(options):
    """jit_level for the options of torch.compile."""
    return options["options"].get("jit_level") or LEVELS[options["mode"]]


class Lazily:
    """What a compiled callable has been seen to do on the npu device, and how it is called there."""

    def __init__(self, title, options):
        self.options = options
        self.trace = lazy.Trace(title, level_of(options), bool(options["fullgraph"]))
        self.calls = 0

    def __call__(self, fn, args, kwargs):
        """fn(*args, **kwargs) in a session."""
        counters["mindspore"] = lazy.counters
        self.calls += 1
        if len(self.trace.branches) > 4 * config.limit():
            return fn(*args, **kwargs)
        try:
            with lazy.session(self.trace) as session:
                r = fn(*args, **kwargs)
        except lazy.Broken as e:
            raise Unsupported(f"{self.trace.title} cannot be compiled as one graph (fullgraph=True): {e}") from None
        self.last = session
        return r

    @property
    def idle(self):
        """Whether nothing of it has run on the device."""
        return not self.trace.start.children


def lazily(compiled, args, kwargs):
    """A call of a compiled callable in a process that uses the npu device."""
    run = compiled.lazily
    if run is None:
        run = compiled.lazily = Lazily(compiled.title, compiled.options)
    r = run(compiled.fn, args, kwargs)
    if run.idle and compiled.options["backend"] != "mindspore" and lazy.current.session is None:
        compiled.lazily = False             # (of the host's tensors alone: as ever)
    return r


__all__ = ["Lazily", "lazily", "USED"]
