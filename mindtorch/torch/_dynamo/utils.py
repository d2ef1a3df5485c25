"""torch._dynamo.utils: event counters of torch.compile."""
import collections
import functools
import warnings

from mindtorch.core.compile import replay
from mindtorch.torch._refusing import refuse

#: "frames" (total, ok), "stats" (unique_graphs, calls_captured), "graph_break" (reason -> count),
#: "recompiles" (function -> count), "mindspore" (graphs, graph_runs, eager kernels, graph breaks on
#: the npu device)
counters = collections.defaultdict(collections.Counter, mindspore=replay.counters)


def is_compile_supported(device_type):
    """True for the cpu."""
    return str(device_type).partition(":")[0] == "cpu"


@functools.lru_cache(None)
def warn_once(msg, stacklevel=1):
    """Emits a UserWarning, once per message."""
    warnings.warn(msg, UserWarning, stacklevel=stacklevel + 1)


refuse(globals(), "torch._dynamo.utils.counters holds the event counts of torch.compile", "compile_times counters_summary same")
