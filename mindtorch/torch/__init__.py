"""The facade: PyTorch's interface on MindSpore. Under mindtorch's import hook, `import torch`
returns this module."""
import importlib as _importlib
import math as _math

from mindtorch.core.dispatch.codegen import save_cache as _keep, gc_paused as _uncollected

with _uncollected():
    from mindtorch.core.tensor import dtypes as _dtypes
    from mindtorch.core.device.device import device, get_default as get_default_device, set_default as set_default_device  # noqa: F401
    from mindtorch.core.tensor.dtypes import (dtype, finfo, get_default_dtype, iinfo, set_default_dtype)  # noqa: F401
    from mindtorch.core.autograd.grad_mode import (enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled,  # noqa: F401
                                          no_grad, set_grad_enabled)
    from mindtorch.core.tensor.printing import set_printoptions  # noqa: F401
    from mindtorch.core.tensor.tensor import Size, Tensor  # noqa: F401
    import mindtorch.ops  # noqa: F401  (fills the op table and Tensor)
    from mindtorch.torch import _tensor, _tensor_to, _types, version  # noqa: F401
    from mindtorch.torch import _inherited as _inherited
    from mindtorch.torch import _namespace as _namespace_
    from mindtorch.torch._types import layout, memory_format, qscheme  # noqa: F401
    __version__ = version.TorchVersion(version.__version__)

    pi, e, inf, nan, newaxis = _math.pi, _math.e, _math.inf, _math.nan, None

    for _n, _d in _dtypes.NAMES.items():
        globals()[_n] = _d
    globals().update(_types.NAMES)
    globals().update(_types.TYPED)
    _namespace_.fill(globals(), "")
    _namespace_.inplace_functions(globals())

    # ------------------------------------------------------------------ submodules
    from mindtorch.torch import _C, autograd, random  # noqa: F401
    from mindtorch.torch.random import (Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed,  # noqa: F401
                                        set_rng_state)
    from mindtorch.torch import nn, optim  # noqa: F401
    from mindtorch.torch import serialization, storage  # noqa: F401
    from mindtorch.torch.serialization import load, save  # noqa: F401
    from mindtorch.torch.storage import TypedStorage, UntypedStorage  # noqa: F401

    globals().update(storage.CLASSES)
    from mindtorch.torch import amp, backends, compiler, cuda, jit, npu, utils  # noqa: F401
    from mindtorch.torch.amp import GradScaler, autocast  # noqa: F401
    from mindtorch.torch._compile import compile  # noqa: F401
    from mindtorch.torch.utils import data as _data  # noqa: F401

    _inherited.close()
    from mindtorch.torch import _functions

    from mindtorch.torch import _control_flow, _refused, _symbolic

    from mindtorch.torch import sparse  # noqa: F401
    from mindtorch.torch.func import vmap  # noqa: F401

    from mindtorch.torch.cuda import OutOfMemoryError  # noqa: F401
    from mindtorch.torch import _graph  # noqa: F401  (mindspore.export of modules)
    from mindtorch.torch import _function_protocol
    from mindtorch.torch import _bootstrap  # noqa: F401

torch = _importlib.import_module(__name__)      # torch.torch is torch

for _m in (_functions, _control_flow, _symbolic):
    globals().update({_n: getattr(_m, _n) for _n in _m.__all__})
_storage_classes = {UntypedStorage, TypedStorage, *storage.CLASSES.values()}
for _n, _f in (*sparse.FUNCTIONS.items(), *_refused.FUNCTIONS.items()):
    globals().setdefault(_n, _f)


_ASSERTS = frozenset("""_assert _assert_async _check _check_is_size _check_index _check_value _check_type _check_not_implemented
 _check_with _check_tensor_all _check_tensor_all_with _shape_as_tensor ScriptModule PyTorchFileReader PyTorchFileWriter Stream Event TensorType""".split())


def __getattr__(name):
    if name == "Future":
        return _importlib.import_module("mindtorch.torch.futures").Future
    if name == "Storage":
        return storage.CLASS_OF[_dtypes.get_default_dtype()]
    if name in ("cast_to_adapter_tensor", "cast_to_ms_tensor"):  # names of mindtorch 0.4
        return getattr(_importlib.import_module("mindtorch.torch.tensor"), name)
    if name in _ASSERTS:
        return getattr(_importlib.import_module("mindtorch.torch._asserts"), name)
    if not name.startswith("__") or name in ("__config__", "__future__"):
        # PyTorch imports many submodules eagerly; here they are imported on first access.
        try:
            return _importlib.import_module(f"mindtorch.torch.{name}")
        except ModuleNotFoundError as err:
            if err.name != f"mindtorch.torch.{name}":
                raise
    raise AttributeError(f"module 'torch' has no attribute '{name}'")


with _uncollected():
    _function_protocol.install()
_keep()
