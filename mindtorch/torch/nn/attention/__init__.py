"""Kernel selection for scaled_dot_product_attention
(https://pytorch.org/docs/stable/nn.attention.html)."""
import contextlib
import enum

from mindtorch.torch._refusing import refuse

__all__ = ["SDPBackend", "sdpa_kernel", "WARN_FOR_UNFUSED_KERNELS"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """PyTorch's attention backends. mindtorch has a single kernel, which every name selects."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __repr__(self):
        return f"<SDPBackend.{self.name}: {self.value}>"

    __str__ = enum.Enum.__str__


_allowed = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION,
            SDPBackend.OVERRIDEABLE]


def _cur_sdpa_kernel_backends(with_priority=False):
    """Returns the currently allowed backends."""
    return list(_allowed)


@contextlib.contextmanager
def sdpa_kernel(backends, set_priority=False):
    """Restricts scaled_dot_product_attention to these backends within the block (all are the same
    kernel here)."""
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(f"Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
                             f"{type(backends).__name__}")
    backends = [backends] if isinstance(backends, SDPBackend) else list(dict.fromkeys(backends))
    global _allowed
    before, _allowed = _allowed, backends
    try:
        yield {}
    finally:
        _allowed = before


def list_flash_attention_impls():
    """Returns the alternative implementations of flash attention: none."""
    return []


def current_flash_attention_impl():
    """Returns the active alternative implementation: None."""
    return None


refuse(globals(), "the attention kernel cannot be replaced", "activate_flash_attention_impl register_flash_attention_impl restore_flash_attention_impl")
