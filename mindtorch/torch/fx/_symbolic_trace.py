"""torch.fx._symbolic_trace."""
from mindtorch.torch.fx import Tracer, symbolic_trace, wrap  # noqa: F401


def is_fx_tracing():
    """False: nothing is traced."""
    return False


is_fx_symbolic_tracing = is_fx_tracing
