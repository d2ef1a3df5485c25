"""torch.cpu: the host as a device, for device-independent code."""
import contextlib
import functools

from mindtorch.torch.cpu import amp  # noqa: F401

__all__ = ["is_available", "is_initialized", "synchronize", "current_device", "current_stream", "stream", "set_device",
           "device_count", "Stream", "StreamContext", "Event"]


def is_available():
    """Returns True."""
    return True


def is_initialized():
    """Returns True."""
    return True


def synchronize(device=None):
    """Does nothing: there is no pending work."""


def current_device():
    return "cpu"


def set_device(device):
    """Does nothing: there is only one CPU device."""


def device_count():
    return 1


class Stream:
    """The host's only stream."""

    def __init__(self, priority=-1):
        self.priority = priority

    def wait_stream(self, stream):
        """Does nothing: there is no pending work."""

    def record_event(self):
        return Event()

    def wait_event(self, event):
        """Does nothing: there is no pending work."""


class Event:
    """Event of the host's stream; always completed."""

    def query(self):
        return True

    def record(self, stream=None):
        """Does nothing: there is no pending work."""

    def synchronize(self):
        """Does nothing: there is no pending work."""

    def wait(self, stream=None):
        """Does nothing: there is no pending work."""


_stream = Stream()


def current_stream(device=None):
    return _stream


class StreamContext(contextlib.AbstractContextManager):
    """Context manager that sets the current stream."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        global _stream
        self._before = _stream
        if self.stream is not None:
            _stream = self.stream

    def __exit__(self, *exc):
        global _stream
        _stream = self._before


def stream(stream):
    return StreamContext(stream)


@functools.cache
def _flags():
    """Returns the CPU's feature flags."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
            return frozenset(word for line in f if line.startswith(("flags", "Features")) for word in line.split(":", 1)[1].split())
    except OSError:
        return frozenset()


def _is_avx2_supported():
    """True if the CPU supports AVX2. The functions below check other extensions."""
    return "avx2" in _flags()


def _is_avx512_supported():
    return {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= _flags()


def _is_avx512_bf16_supported():
    return "avx512_bf16" in _flags()


def _is_vnni_supported():
    return "avx512_vnni" in _flags()


def _is_amx_tile_supported():
    return "amx_tile" in _flags()


def _is_amx_fp16_supported():
    return _is_amx_tile_supported() and "amx_fp16" in _flags()
