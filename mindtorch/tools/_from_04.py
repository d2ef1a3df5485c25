"""`mindtorch.utils` of mindtorch 0.4: queries MindSpore's device target and mode."""
from mindtorch.backend.mindspore.runtime import ms

__all__ = ["get_backend", "graph_mode_condition", "is_under_ascend_context", "is_under_cpu_context", "is_under_gpu_context", "pynative_mode_condition",
           "unsupported_attr"]


def get_backend():
    """Returns MindSpore's device target: "CPU", "Ascend" or "GPU"."""
    return ms.get_context("device_target")


def is_under_cpu_context():
    """True if MindSpore computes on the CPU."""
    return get_backend() == "CPU"


def is_under_ascend_context():
    """True if MindSpore computes on Ascend."""
    return get_backend() == "Ascend"


def is_under_gpu_context():
    """True if MindSpore computes on a GPU."""
    return get_backend() == "GPU"


def graph_mode_condition():
    """True if MindSpore is in graph mode."""
    return ms.get_context("mode") == ms.GRAPH_MODE


def pynative_mode_condition():
    """True if MindSpore is in PyNative mode."""
    return ms.get_context("mode") == ms.PYNATIVE_MODE


def unsupported_attr(attr):
    """Marks an argument without effect, as documentation. Does nothing, as in 0.4."""
