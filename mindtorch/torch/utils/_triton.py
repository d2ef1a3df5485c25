"""torch.utils._triton: whether kernels of Triton can run, which they cannot here."""
import importlib.util


def has_triton_package():
    """Whether the package can be imported."""
    return importlib.util.find_spec("triton") is not None


def has_triton():
    """False: no device here runs kernels of Triton."""
    return False


has_triton_tma = has_triton_tma_device = has_triton_stable_tma_api = has_triton_experimental_host_tma = has_triton_tensor_descriptor_host_tma = has_triton
has_datacenter_blackwell_tma_device = has_triton
