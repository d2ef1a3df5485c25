"""torch._dynamo.utils: counters of what torch.compile did."""
import collections
import functools
import warnings

from mindtorch.core import lazy
from mindtorch.torch._refusing import refuse

#: "frames" (total, ok), "stats" (unique_graphs, calls_captured), "graph_break" (reason -> times), "recompiles" (function -> times),
#: "mindspore" (graphs, graph_runs, eager kernels, breaks of steps on the npu device)
counters = collections.defaultdict(collections.Counter, mindspore=lazy.counters)


def is_compile_supported(device_type):
    """True for the device there is."""
    return str(device_type).partition(":")[0] == "cpu"


@functools.lru_cache(None)
def warn_once(msg, stacklevel=1):
    """A UserWarning the first time that it is asked for."""
    warnings.warn(msg, UserWarning, stacklevel=stacklevel + 1)


refuse(globals(), "what torch.compile did stands in torch._dynamo.utils.counters", "compile_times counters_summary same")
