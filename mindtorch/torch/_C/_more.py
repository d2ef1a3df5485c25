"""Classes of torch._C that libraries reference at import time."""
import contextlib
import enum
import threading

from mindtorch.torch import _function_protocol, _ops
from mindtorch.torch._refusing import refuse
from mindtorch.torch.futures import Future  # noqa: F401

_KEYS = """Undefined CPU CUDA HIP XLA MTIA MPS IPU XPU HPU VE Lazy Meta PrivateUse1 PrivateUse2 PrivateUse3 QuantizedCPU SparseCPU
 BackendSelect Python Fake FuncTorchDynamicLayerBackMode Functionalize Named Conjugate Negative ZeroTensor ADInplaceOrView
 AutogradOther AutogradFunctionality AutogradCPU AutogradCUDA AutogradXLA AutogradMPS AutogradXPU AutogradMeta
 AutogradNestedTensor AutogradPrivateUse1 Tracer AutocastCPU AutocastCUDA AutocastXPU AutocastMPS AutocastPrivateUse1
 FuncTorchBatched BatchedNestedTensor FuncTorchVmapMode Batched VmapMode FuncTorchGradWrapper DeferredInit
 PythonTLSSnapshot FuncTorchDynamicLayerFrontMode TESTING_ONLY_GenericWrapper TESTING_ONLY_GenericMode PreDispatch
 PythonDispatcher EndOfRuntimeBackendKeys Autograd CompositeImplicitAutograd CompositeImplicitAutogradNestedTensor
 CompositeExplicitAutograd CompositeExplicitAutogradNonFunctional""".split()

DispatchKey = enum.IntEnum("DispatchKey", {k: i for i, k in enumerate(_KEYS)}, module="mindtorch.torch._C")


class DispatchKeySet:
    """A set of dispatch keys."""

    def __init__(self, keys=()):
        self._keys = frozenset([keys] if isinstance(keys, DispatchKey) else keys)

    def has(self, key):
        return key in self._keys

    def add(self, key):
        return DispatchKeySet(self._keys | {key})

    def remove(self, key):
        return DispatchKeySet(self._keys - {key})

    def __or__(self, other):
        return DispatchKeySet(self._keys | other._keys)

    def __and__(self, other):
        return DispatchKeySet(self._keys & other._keys)

    def __sub__(self, other):
        return DispatchKeySet(self._keys - other._keys)

    def __eq__(self, other):
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self):
        return hash(self._keys)


class _Excluded(threading.local):
    keys = DispatchKeySet()


_excluded = _Excluded()


def _dispatch_tls_local_exclude_set():
    """Returns the dispatch keys that this thread has excluded."""
    return _excluded.keys


class _ExcludeDispatchKeyGuard(contextlib.AbstractContextManager):
    """Context manager: if an autograd key is excluded, operators skip their autograd kernels
    inside. Other keys are recorded but have no effect."""

    def __init__(self, keys):
        self._keys = keys
        self._guard = _ops.below_autograd() if any("Autograd" in k.name for k in keys._keys) else contextlib.nullcontext()

    def __enter__(self):
        self._guard.__enter__()
        self._before, _excluded.keys = _excluded.keys, _excluded.keys | self._keys
        return self

    def __exit__(self, *exc):
        _excluded.keys = self._before
        return self._guard.__exit__(*exc)


_AutoDispatchBelowAutograd = _ops.below_autograd
DisableTorchFunctionSubclass = DisableTorchFunction = _function_protocol.Disabled
_disabled_torch_function_impl = _function_protocol.disabled_impl


def _disabled_torch_dispatch_impl(func, types, args=(), kwargs=None):
    """`__torch_dispatch__` implementation that computes the operator as for a plain tensor."""
    from mindtorch.torch._dispatch_protocol import disabled_impl
    return disabled_impl(func, types, args, kwargs)


def _DisableTorchDispatch():
    """Returns a context manager inside which neither dispatch modes nor classes with
    `__torch_dispatch__` intercept operators."""
    from mindtorch.torch._dispatch_protocol import disabled
    return disabled()


refuse(globals(), "there is no native torch module", "",
       "Graph Value Node Block ScriptModule ScriptFunction ScriptObject FunctionSchema PyTorchFileReader PyTorchFileWriter "
       "_CudaStreamBase _CudaEventBase TensorType OptionalType ListType")
refuse(globals(), "\"cuda\" is an alias of the npu device here and CUDA kernels cannot run: use the library's CPU path, or disable its CUDA kernels",
       "_cuda_getCurrentRawStream")
