"""Functions of the torch namespace that are not ops: predicates, type promotion, global settings.
"""
import importlib
import os

import numpy as np

from mindtorch.backend.cpu import dlpack
from mindtorch.backend.errors import AcceleratorError  # noqa: F401
from mindtorch.core.dispatch import deterministic as _determinism, type_promotion
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import dtypes
from mindtorch.core.device.device import accelerator, device, get_default, set_default
from mindtorch.core.tensor.dtypes import set_default_dtype
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.tensor.tensor import Tensor, wrap_array
from mindtorch.torch import _types, storage
from mindtorch.torch.amp.autocast_mode import (get_autocast_dtype, is_autocast_cache_enabled, is_autocast_enabled,  # noqa: F401
                                               set_autocast_cache_enabled, set_autocast_dtype, set_autocast_enabled)

__all__ = [
    "is_tensor", "is_storage", "is_floating_point", "is_complex", "is_nonzero", "is_inference", "is_conj",
    "is_same_size", "numel", "typename", "result_type", "promote_types", "can_cast", "set_default_tensor_type",
    "get_num_threads", "set_num_threads", "get_num_interop_threads", "set_num_interop_threads",
    "use_deterministic_algorithms", "are_deterministic_algorithms_enabled",
    "is_deterministic_algorithms_warn_only_enabled", "set_deterministic_debug_mode",
    "get_deterministic_debug_mode", "set_float32_matmul_precision", "get_float32_matmul_precision",
    "set_flush_denormal", "set_warn_always", "is_warn_always_enabled", "is_autocast_enabled",
    "is_autocast_cache_enabled", "compiled_with_cxx11_abi", "is_vulkan_available", "get_device_module",
    "is_neg", "is_autocast_cpu_enabled",
    "get_autocast_dtype", "set_autocast_dtype", "set_autocast_enabled", "set_autocast_cache_enabled", "get_autocast_cpu_dtype",
    "get_autocast_gpu_dtype", "is_signed", "get_device", "is_distributed", "detach", "from_dlpack", "to_dlpack",
    "is_anomaly_enabled", "is_anomaly_check_nan_enabled", "set_anomaly_enabled", "init_num_threads", "cudnn_is_acceptable", "get_file_path", "from_file", "AcceleratorError",
    "set_autocast_cpu_dtype", "set_autocast_gpu_dtype", "set_autocast_cpu_enabled", "clear_autocast_cache",
    "autocast_increment_nesting", "autocast_decrement_nesting"]


def is_tensor(obj):
    """True if `obj` is a torch.Tensor."""
    return isinstance(obj, Tensor)


def is_storage(obj):
    """True if `obj` is a storage."""
    return isinstance(obj, (storage.TypedStorage, storage.UntypedStorage))


def is_floating_point(input):
    """True if the tensor's dtype is floating point."""
    return input.is_floating_point()


def is_complex(input):
    """True if the tensor's dtype is complex."""
    return input.is_complex()


def is_nonzero(input):
    """True if the one-element tensor is not zero."""
    return input.is_nonzero()


def is_signed(input):
    """True if the tensor's dtype can represent negative numbers."""
    return input.is_signed()


def is_distributed(input):
    """Always False: no tensor is distributed over machines."""
    return False


def get_device(input):
    """Returns the index of the accelerator that a tensor is on; -1 on the CPU."""
    return input.get_device()


def detach(input):
    """Returns a tensor on the same memory, without autograd history."""
    return input.detach()


def is_inference(input):
    """True for a tensor that was created under inference_mode."""
    return input.is_inference()


def is_conj(input):
    """True for a lazily conjugated tensor."""
    return input.is_conj()


def is_neg(input):
    """True for a lazily negated tensor."""
    return input.is_neg()


def is_same_size(input, other):
    """True if the shapes are equal."""
    return input.shape == other.shape


def numel(input):
    """Returns the number of elements."""
    if not isinstance(input, Tensor):
        raise TypeError(f"numel(): argument 'input' (position 1) must be Tensor, not {type_name(input)}")
    return input.numel()


def typename(obj):
    """Returns the qualified name of an object's type."""
    if isinstance(obj, Tensor):
        return obj.type()
    cls = obj if isinstance(obj, type) else type(obj)
    module = cls.__module__
    return cls.__qualname__ if module in (None, "builtins") else f"{module}.{cls.__qualname__}"


def result_type(tensor1, tensor2):
    """Returns the dtype of an arithmetic operation on the two operands."""
    return dtypes.of_np(type_promotion.result_dtype(tensor1, tensor2))


def promote_types(type1, type2):
    """Returns the smallest dtype that both types promote to."""
    return dtypes.of_np(type_promotion.promote_types(type1.np, type2.np))


def can_cast(from_, to):
    """True if PyTorch's casting rules allow the conversion in an out= or in-place result."""
    order = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}
    return order[from_.np.kind] <= order[to.np.kind]


def set_default_tensor_type(t):
    """Sets the default dtype and device by a tensor type name such as 'torch.DoubleTensor' or
    'torch.cuda.FloatTensor'."""
    where, _, key = (t if isinstance(t, str) else _types.type_name(t)).rpartition(".")
    where = where.removeprefix("torch").removeprefix(".")
    if key not in _types.TYPED:
        raise TypeError(f"invalid type object: {t}")
    from mindtorch.core.dispatch import warn_once
    warn_once.warn_once("torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and "
                        "torch.set_default_device() as alternatives.")
    if where or get_default().type in accelerator():
        set_default(where or None)
    set_default_dtype(_types.TYPED[key].dtype)


_threads = None


def get_num_threads():
    """Returns the number of threads that kernels use.

    This is the value of set_num_threads, else the number of processors of this process, at most
    OMP_NUM_THREADS and 8.
    """
    from mindtorch.backend.cpu import threads
    return _threads or threads.count()


def set_num_threads(n):
    """Sets the number of threads for MindSpore's kernels and NumPy's BLAS."""
    global _threads
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"set_num_threads expects an int, but got {type(n).__name__}")
    if n <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    from mindtorch.backend.cpu import threads
    threads.set_count(n)
    _threads = n


_interop = None


def get_num_interop_threads():
    return _interop or get_num_threads()


def set_num_interop_threads(n):
    """Accepted: operators run one after another here."""
    global _interop
    if n <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    _interop = n


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Makes ops without a deterministic implementation raise (or warn), and fills uninitialized
    memory.

    All kernels are deterministic in any case.

    https://pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html
    """
    for name, value in (("mode' (position 1)", mode), ("warn_only'", warn_only)):
        if not isinstance(value, bool):
            raise TypeError(f"_set_deterministic_algorithms(): argument '{name} must be bool, not {type(value).__name__}")
    _determinism.switch(mode, warn_only)


def are_deterministic_algorithms_enabled():
    return _determinism.MODE.on


def is_deterministic_algorithms_warn_only_enabled():
    return _determinism.MODE.warn_only


_DEBUG_MODES = ("default", "warn", "error")


def set_deterministic_debug_mode(debug_mode):
    """Alternative to use_deterministic_algorithms: "default" or 0, "warn" or 1, "error" or 2."""
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _DEBUG_MODES:
            raise RuntimeError(f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}")
        debug_mode = _DEBUG_MODES.index(debug_mode)
    elif debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    _determinism.switch(debug_mode != 0, debug_mode == 1)


def get_deterministic_debug_mode():
    on = _determinism.MODE
    return 0 if not on.on else 1 if on.warn_only else 2


_precision = "highest"


def set_float32_matmul_precision(precision):
    """Accepted: float32 matrix products are always computed in float32."""
    global _precision
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"{precision} is not one of 'highest', 'high', or 'medium'")
    _precision = precision


def get_float32_matmul_precision():
    return _precision


def set_flush_denormal(mode):
    """Returns False: the setting is not available."""
    return False


def set_warn_always(b):
    """Sets whether warnings that normally appear once per process appear every time."""
    if not isinstance(b, bool):
        raise TypeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    from mindtorch.core.dispatch import warn_once
    warn_once.WARNED.always = b


def is_warn_always_enabled():
    from mindtorch.core.dispatch import warn_once
    return warn_once.WARNED.always


def is_autocast_cpu_enabled():
    """True inside an autocast region for the CPU."""
    return is_autocast_enabled("cpu")


def compiled_with_cxx11_abi():
    return True


def is_vulkan_available():
    return False


def get_device_module(device=None):
    """Returns the module of a device type (torch.cuda, torch.npu)."""
    name = (*accelerator(), "cuda")[0] if device is None else _device_type(device)
    return importlib.import_module("mindtorch.torch." + name)


def _device_type(d):
    return device(d).type


# ------------------------------------------------------------------ other libraries' tensors
def from_dlpack(ext_tensor, *, device=None, copy=None):
    """Returns a tensor on the memory of another library's tensor or of a DLPack capsule. With
    copy=True the data is copied."""
    if not hasattr(ext_tensor, "__dlpack__") and type(ext_tensor).__name__ != "PyCapsule":
        raise RuntimeError(f"from_dlpack received an invalid capsule: {type(ext_tensor).__name__} has no __dlpack__")
    a = dlpack.array_of(ext_tensor)
    t = wrap_array(a.copy() if copy else a)
    return t if device is None else t.to(device)


def to_dlpack(tensor):
    """Returns a DLPack capsule of the tensor's memory."""
    return tensor.__dlpack__()


# ------------------------------------------------------------------ settings of other subsystems
def get_autocast_cpu_dtype():
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype():
    """Returns the dtype of autocast regions for the GPU."""
    return get_autocast_dtype("cuda")


def set_autocast_cpu_dtype(dtype):
    """Sets the dtype of autocast regions for the CPU."""
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype):
    """Sets the dtype of autocast regions for the GPU."""
    set_autocast_dtype("cuda", dtype)


def set_autocast_cpu_enabled(enabled):
    """Switches autocast on the CPU on or off."""
    set_autocast_enabled("cpu", enabled)


def clear_autocast_cache():
    """Accepted: casts of weights are not cached."""


_nesting = 0


def autocast_increment_nesting():
    """Counts an entered autocast region and returns the nesting depth."""
    global _nesting
    _nesting += 1
    return _nesting


def autocast_decrement_nesting():
    """Counts an exited autocast region and returns the nesting depth."""
    global _nesting
    _nesting -= 1
    return _nesting


def set_anomaly_enabled(mode, check_nan=True):
    """Switches anomaly detection on or off."""
    from mindtorch.torch.autograd import anomaly_mode
    anomaly_mode.set_detect_anomaly(mode, check_nan)


def from_file(filename, shared=None, size=0, *, dtype=None, layout=None, device=None, pin_memory=False):
    """Returns a tensor of `size` elements on the memory of a file.

    shared: writes go to the file, which is extended if necessary.
    """
    d = (dtypes.get_default_dtype() if dtype is None else dtype).np
    if shared:
        with open(filename, "ab") as f:
            if f.tell() < size * d.itemsize:
                f.truncate(size * d.itemsize)
    if not size:
        return wrap_array(np.empty(0, d))
    return wrap_array(np.memmap(filename, d, "r+" if shared else "c", shape=(size,)).view(np.ndarray))


def is_anomaly_enabled():
    """True while anomaly detection is on."""
    return hooks.anomaly is not None


def is_anomaly_check_nan_enabled():
    """True while anomaly detection checks for NaN."""
    from mindtorch.torch.autograd import anomaly_mode
    return is_anomaly_enabled() and anomaly_mode._State.check_nan


def init_num_threads():
    """Accepted: threads are set up at start."""


def cudnn_is_acceptable(tensor):
    """Always False: there is no cuDNN."""
    return False


def get_file_path(*path_components):
    """Returns the path of a file of this package."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *path_components)
