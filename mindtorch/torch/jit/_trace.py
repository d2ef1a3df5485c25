"""torch.jit._trace: where libraries look for what tracing makes."""
from mindtorch.torch.jit import TracedModule, is_tracing, script_if_tracing  # noqa: F401
from mindtorch.torch.jit._traced import TopLevelTracedModule, TracerWarning, TracingCheckError, trace, trace_module  # noqa: F401
