"""torch._C: the few names that Python code outside PyTorch uses. No native module is behind it."""
from mindtorch.backend.cpu.host import address as _address
from mindtorch.core.dispatch import deterministic as _determinism
from mindtorch.core.device import device as _device
from mindtorch.core.autograd import forward_ad
from mindtorch.core.tensor import storage_impl as _memory
from mindtorch.core.transforms import functorch_levels
from mindtorch.core.device.device import device  # noqa: F401
from mindtorch.core.tensor.dtypes import dtype  # noqa: F401
from mindtorch.core.autograd.grad_mode import is_grad_enabled, mode
from mindtorch.core.tensor.tensor import Size, Tensor  # noqa: F401
from mindtorch.ops.linalg.solve import LinAlgError as _LinAlgError  # noqa: F401

TensorBase = _TensorBase = Tensor


def _get_accelerator(check=None):
    """Returns the accelerator's torch.device, or cpu if there is none.

    RuntimeError if check=True and there is no accelerator.
    """
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


def _set_fwd_grad_enabled(value):
    forward_ad.state.on = bool(value)


def _is_fwd_grad_enabled():
    return forward_ad.state.on


def _log_api_usage_once(name):
    """Accepted for compatibility: API usage is not counted."""


def _jit_set_profiling_executor(value):
    return False


def _jit_set_profiling_mode(value):
    return False


class _Jit:
    """TorchScript settings that can be read and written but have no effect."""

    autocast = True


def _jit_set_autocast_mode(value):
    """Sets TorchScript's autocast flag and returns the previous one.

    The flag has no effect: scripted functions run as Python, which always honors autocast.
    """
    before, _Jit.autocast = _Jit.autocast, bool(value)
    return before


def _get_default_device():
    """Returns the type of the default device."""
    return _device.get_default().type


def _jit_override_can_fuse_on_cpu(value):
    return None


def _jit_override_can_fuse_on_gpu(value):
    return None


def _jit_set_texpr_fuser_enabled(value):
    """Accepted for compatibility: there is no fuser."""


def _jit_texpr_fuser_enabled():
    return False


def _storage_address(tensor):
    """Returns a unique id of the storage under a tensor, which stays the same when its memory
    moves."""
    return tensor.untyped_storage()._cdata


def _data_address(tensor):
    """Returns the address of the first byte of the storage under a tensor, for reading.

    A copy-on-write storage is not materialized.
    """
    if tensor._handle is not None or tensor._device.type == "meta":
        return tensor.untyped_storage().data_ptr()
    return _address(_memory.bytes_of(_memory.storage_root(tensor._array)))


def _get_deterministic_fill_uninitialized_memory():
    return _determinism.MODE.fill


def _set_deterministic_fill_uninitialized_memory(fill):
    if not isinstance(fill, bool):
        raise RuntimeError(f"expected a bool, but got {type(fill).__name__}")
    _determinism.switch(fill=fill)


def _get_deterministic_algorithms():
    return _determinism.MODE.on


def _get_deterministic_algorithms_warn_only():
    return _determinism.MODE.warn_only


_is_cow_tensor = _memory.is_cow


def _has_storage(tensor):
    """True if a tensor has a storage: all tensors except sparse ones."""
    return not tensor.is_sparse


_is_grad_enabled = is_grad_enabled
_has_mps = _has_cuda = _has_xpu = _has_mtia = _has_cudnn = _has_magma = _has_mkldnn = _has_kleidiai = False
has_openmp = True


def _are_functorch_transforms_active():
    """True if this thread is inside a torch.func transform."""
    return bool(functorch_levels.levels())


def _get_privateuse1_backend_name():
    return "npu"


_MORE = frozenset("""DispatchKey DispatchKeySet DisableTorchFunctionSubclass DisableTorchFunction _disabled_torch_function_impl _disabled_torch_dispatch_impl _DisableTorchDispatch
 _ExcludeDispatchKeyGuard _dispatch_tls_local_exclude_set _AutoDispatchBelowAutograd Graph Value Node Block ScriptModule ScriptFunction ScriptObject FunctionSchema
 Future PyTorchFileReader PyTorchFileWriter _CudaStreamBase _CudaEventBase TensorType OptionalType ListType
 _cuda_getCurrentRawStream""".split())


_PASSES = frozenset("""_current_graph_task_id _current_autograd_node _will_engine_execute_node _current_graph_task_execution_order _stash_obj_in_tls
 _get_obj_in_tls _is_key_in_tls _WeakTensorRef""".split())
_MODULES = frozenset(("_nn", "_functions", "_autograd", "_functorch"))


def __getattr__(name):
    if name in _PASSES:
        from mindtorch.torch._C import _passes
        return getattr(_passes, name)
    if name in _MORE:
        from mindtorch.torch._C import _more
        return getattr(_more, name)
    if name == "StorageBase":
        from mindtorch.torch._untyped_storage import StorageBase
        return StorageBase
    if name in _MODULES:
        import importlib
        return importlib.import_module("mindtorch.torch._C." + name)
    if name == "_TensorMeta":
        return type(Tensor)
    if name == "Generator":
        from mindtorch.torch.random import Generator
        return Generator
    raise AttributeError(f"module 'torch._C' has no attribute '{name}': mindtorch has no native torch module")
