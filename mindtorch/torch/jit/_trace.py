"""torch.jit._trace: the private module from which libraries import tracing classes."""
from mindtorch.torch.jit import TracedModule, is_tracing, script_if_tracing  # noqa: F401
from mindtorch.torch.jit._traced import TopLevelTracedModule, TracerWarning, TracingCheckError, trace, trace_module  # noqa: F401
