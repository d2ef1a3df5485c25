"""torch._C: the few names that Python code outside torch reaches for.  There is no native module behind it."""
from mindtorch.core.device import device  # noqa: F401
from mindtorch.core.dtypes import dtype  # noqa: F401
from mindtorch.core.grad_mode import is_grad_enabled, mode
from mindtorch.core.tensor import Size, Tensor  # noqa: F401
from mindtorch.ops.linalg import LinAlgError as _LinAlgError  # noqa: F401

TensorBase = _TensorBase = Tensor


def _get_tracing_state():
    return None


def _is_tracing():
    return False


def _set_grad_enabled(value):
    mode.on = bool(value)


def _log_api_usage_once(name):
    """torch counts API use; nothing is counted here."""


def _jit_set_profiling_executor(value):
    return False


def _jit_set_profiling_mode(value):
    return False


def _jit_override_can_fuse_on_cpu(value):
    return None


def _jit_override_can_fuse_on_gpu(value):
    return None


_is_grad_enabled = is_grad_enabled
_has_mps = _has_cuda = False
has_openmp = True


def __getattr__(name):
    raise AttributeError(f"module 'torch._C' has no attribute '{name}': mindtorch has no native torch module")
