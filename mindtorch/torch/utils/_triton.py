"""torch.utils._triton: availability of Triton; its kernels cannot run here."""
import importlib.util


def has_triton_package():
    """True if the package triton can be imported."""
    return importlib.util.find_spec("triton") is not None


def has_triton():
    """Returns False: no device here runs Triton kernels."""
    return False


has_triton_tma = has_triton_tma_device = has_triton_stable_tma_api = has_triton_experimental_host_tma = has_triton_tensor_descriptor_host_tma = has_triton
has_datacenter_blackwell_tma_device = has_triton
