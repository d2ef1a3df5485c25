"""torch.cpu: the host seen as a device, for code that is written for any device."""
import contextlib
import functools

from mindtorch.torch.cpu import amp  # noqa: F401

__all__ = ["is_available", "is_initialized", "synchronize", "current_device", "current_stream", "stream", "set_device",
           "device_count", "Stream", "StreamContext", "Event"]


def is_available():
    """True."""
    return True


def is_initialized():
    """True."""
    return True


def synchronize(device=None):
    """Nothing to wait for."""


def current_device():
    return "cpu"


def set_device(device):
    """There is one CPU device."""


def device_count():
    return 1


class Stream:
    """The host's only queue."""

    def __init__(self, priority=-1):
        self.priority = priority

    def wait_stream(self, stream):
        """Nothing to wait for."""

    def record_event(self):
        return Event()

    def wait_event(self, event):
        """Nothing to wait for."""


class Event:
    """A mark in the host's queue, always reached."""

    def query(self):
        return True

    def record(self, stream=None):
        """Nothing to wait for."""

    def synchronize(self):
        """Nothing to wait for."""

    def wait(self, stream=None):
        """Nothing to wait for."""


_stream = Stream()


def current_stream(device=None):
    return _stream


class StreamContext(contextlib.AbstractContextManager):
    """Context manager that makes a stream the current one."""

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
    """What the processor says it can do."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
            return frozenset(word for line in f if line.startswith(("flags", "Features")) for word in line.split(":", 1)[1].split())
    except OSError:
        return frozenset()


def _is_avx2_supported():
    """Whether the processor has AVX2; the same of its other extensions below."""
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
