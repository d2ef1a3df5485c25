"""torch._C: the few names that Python code outside torch reaches for.  There is no native module behind it."""
from mindtorch.core import device as _device
from mindtorch.core.device import device  # noqa: F401
from mindtorch.core.dtypes import dtype  # noqa: F401
from mindtorch.core.grad_mode import is_grad_enabled, mode
from mindtorch.core.tensor import Size, Tensor  # noqa: F401
from mindtorch.ops.linalg.solve import LinAlgError as _LinAlgError  # noqa: F401

TensorBase = _TensorBase = Tensor


def _get_accelerator(check=None):
    """torch.device of the accelerator's type; of the cpu, or (check=True) RuntimeError, where there is none."""
    names = _device.accelerator()
    if not names and check:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return device(names[0] if names else "cpu")


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


def _jit_set_texpr_fuser_enabled(value):
    """Accepted: there is no fuser."""


def _jit_texpr_fuser_enabled():
    return False


_is_grad_enabled = is_grad_enabled
_has_mps = _has_cuda = _has_xpu = _has_mtia = _has_cudnn = _has_magma = _has_mkldnn = _has_kleidiai = False
has_openmp = True


def _are_functorch_transforms_active():
    return False


def _get_privateuse1_backend_name():
    return "npu"


_MORE = frozenset("""DispatchKey DispatchKeySet DisableTorchFunctionSubclass DisableTorchFunction _disabled_torch_function_impl
 _ExcludeDispatchKeyGuard _AutoDispatchBelowAutograd Graph Value Node Block ScriptModule ScriptFunction ScriptObject FunctionSchema
 Future PyTorchFileReader PyTorchFileWriter _CudaStreamBase _CudaEventBase TensorType OptionalType ListType""".split())


def __getattr__(name):
    if name in _MORE:
        from mindtorch.torch._C import _more
        return getattr(_more, name)
    if name == "_nn":
        import importlib
        return importlib.import_module("mindtorch.torch._C._nn")
    if name == "_TensorMeta":
        return type(Tensor)
    if name == "Generator":
        from mindtorch.torch.random import Generator
        return Generator
    raise AttributeError(f"module 'torch._C' has no attribute '{name}': mindtorch has no native torch module")
