"""torch.backends: settings of libraries that are not present, stored without effect."""
import contextlib
import sys
import types

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "cpu", "opt_einsum", "quantized", "nnpack", "xnnpack"]


class _Flags(types.ModuleType):
    """Module of plain flags with `is_available()`."""

    def __init__(self, name, available=False, **flags):
        super().__init__(f"{__name__}.{name}")
        self.is_available = lambda: available
        self.is_built = lambda: available
        self.__dict__.update(flags)
        self.__path__ = []
        sys.modules[self.__name__] = self


class _Matmul:
    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True


def _flags(self):
    @contextlib.contextmanager
    def flags(enabled=False, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True, fp32_precision="none"):
        old = self.enabled, self.benchmark, self.deterministic, self.allow_tf32
        self.enabled, self.benchmark, self.deterministic, self.allow_tf32 = enabled, benchmark, deterministic, allow_tf32
        try:
            yield
        finally:
            self.enabled, self.benchmark, self.deterministic, self.allow_tf32 = old
    return flags


def _sdp():
    state = {"flash": True, "math": True, "mem_efficient": True, "cudnn": True}

    def pair(key):
        return (lambda enabled: state.__setitem__(key, bool(enabled))), (lambda: state[key])
    out = {}
    for key in state:
        on, get = pair(key)
        out[f"enable_{key}_sdp"], out[f"{key}_sdp_enabled"] = on, get
    return out


@contextlib.contextmanager
def _sdp_kernel(enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
    """Context manager that sets which kernels attention may use (deprecated:
    torch.nn.attention.sdpa_kernel)."""
    wanted = {"flash": enable_flash, "math": enable_math, "mem_efficient": enable_mem_efficient, "cudnn": enable_cudnn}
    before = {k: getattr(cuda, f"{k}_sdp_enabled")() for k in wanted}
    for k, v in wanted.items():
        getattr(cuda, f"enable_{k}_sdp")(v)
    try:
        yield {}
    finally:
        for k, v in before.items():
            getattr(cuda, f"enable_{k}_sdp")(v)


def _mkldnn_flags():
    def set_flags(_enabled=None, _deterministic=None, _allow_tf32=None, _fp32_precision="none"):
        """Sets the flags that are not None and returns the previous values."""
        old = mkldnn.enabled, mkldnn.deterministic, mkldnn.allow_tf32, mkldnn.fp32_precision
        for name, value in (("enabled", _enabled), ("deterministic", _deterministic), ("allow_tf32", _allow_tf32), ("fp32_precision", _fp32_precision)):
            if value is not None:
                setattr(mkldnn, name, value)
        return old

    @contextlib.contextmanager
    def flags(enabled=False, deterministic=False, allow_tf32=True, fp32_precision="none"):
        """Context manager that sets these flags. (They do not change the kernels.)"""
        old = set_flags(enabled, deterministic, allow_tf32, fp32_precision)
        try:
            yield
        finally:
            set_flags(*old)
    return {"set_flags": set_flags, "flags": flags}


cudnn = _Flags("cudnn", enabled=True, benchmark=False, deterministic=False, allow_tf32=True, benchmark_limit=10)
cudnn.version = lambda: None
cudnn.is_acceptable = lambda tensor: False
cudnn.flags = _flags(cudnn)
cuda = _Flags("cuda", matmul=_Matmul(), cufft_plan_cache={}, preferred_linalg_library=lambda backend=None: "default", sdp_kernel=_sdp_kernel, **_sdp())
mkl = _Flags("mkl")
mkldnn = _Flags("mkldnn", True, enabled=True, deterministic=False, allow_tf32=None, fp32_precision="none", **_mkldnn_flags())
mps = _Flags("mps")
openmp = _Flags("openmp", True)
cpu = _Flags("cpu", get_cpu_capability=lambda: "DEFAULT")
opt_einsum = _Flags("opt_einsum", enabled=False, strategy=None)
quantized = _Flags("quantized", engine="none", supported_engines=["none"])
nnpack = _Flags("nnpack")
xnnpack = _Flags("xnnpack", enabled=False)
