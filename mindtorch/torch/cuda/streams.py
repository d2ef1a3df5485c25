"""Streams and events of the accelerator.

On Ascend they are MindSpore's. MindSpore's CPU target has a single queue, which every stream refers
to: work runs in submission order, and recording an event waits for all work and reads the host's
clock.
"""
import contextlib
import functools
import time

from mindtorch.backend.mindspore import errors, runtime
from mindtorch.backend.mindspore.private import executor
from mindtorch.core.device import device as _device, device_dispatch

__all__ = ["Stream", "Event", "StreamContext", "current_stream", "default_stream", "set_stream", "stream", "synchronize"]


def need(name):
    """Raises RuntimeError if there is no accelerator."""
    if not _device.accelerator():
        raise RuntimeError(f"torch.cuda.{name}: Found no NVIDIA driver on your system: MindSpore's device target is "
                           f"{runtime.target()}")


def on_host():
    """True if the accelerator is emulated by MindSpore's CPU target."""
    return runtime.target() == "CPU"


def spot(device, name):
    """Returns the torch.device, with an index, of an accelerator that a user specified (None: the
    current one)."""
    need(name)
    kinds = _device.accelerator()
    if device is None or device.__class__ is int and device < 0:
        return _device.check(kinds[0])
    d = device if isinstance(device, _device.device) else _device.device(device)
    if d.type not in kinds:
        raise ValueError(f"Expected a {kinds[0]} device, but got: {device}")
    return _device.check(d)


def synchronize(device=None):
    """Waits until the accelerator has completed all submitted work."""
    device_dispatch.synchronize(spot(device, "synchronize"))


def _reaching(f):
    """Decorator for methods that access MindSpore's stream or event.

    On a device known to be lost they raise an error without calling MindSpore, whose own threads
    might end the process.
    """
    @functools.wraps(f)
    def method(self, *args, **kwargs):
        if self._own is not None and (device := device_dispatch.DEVICES[self.device.type]).lost:
            raise device.lost_error()
        return f(self, *args, **kwargs)
    return device_dispatch.device_lock(method)


class Stream:
    """Queue of the accelerator's work
    (https://pytorch.org/docs/stable/generated/torch.cuda.Stream.html)."""

    def __init__(self, device=None, priority=0, **kwargs):
        self.device = spot(device, "Stream")
        self.priority = priority
        self._own = kwargs.get("_own") or (None if on_host() else runtime.ms.runtime.Stream(priority=priority))
        if self._own is not None:
            device_dispatch.DEVICES[self.device.type].streams.add(self._own)
        else:
            Stream._made += 1
            self._id = kwargs.get("stream_id", Stream._made)

    _made = 0

    @property
    def stream_id(self):
        """Id of the stream."""
        return self._id if self._own is None else self._own.id

    device_index = property(lambda self: self.device.index)
    device_type = property(lambda self: self.device.type)

    @property
    def cuda_stream(self):
        raise NotImplementedError(f"Stream.cuda_stream is not supported: device {self.device} has no CUDA streams")

    npu_stream = property(lambda self: self.stream_id)

    @_reaching
    def query(self):
        """True if all work is completed."""
        if self._own is not None:
            return self._own.query()
        executor.sync()
        return True

    @_reaching
    def synchronize(self):
        """Waits until all work is completed."""
        if self._own is not None:
            errors.finish(self._own)
        else:
            executor.sync()

    def record_event(self, event=None):
        """Records an event (default: a new one) after the work submitted so far and returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event):
        """Makes later work of this stream wait for the event."""
        event.wait(self)

    @_reaching
    def wait_stream(self, stream):
        """Makes later work of this stream wait for the other stream's work so far."""
        if self._own is not None:
            self._own.wait_stream(stream._own)

    def __enter__(self):
        self._contexts = [*getattr(self, "_contexts", ()), StreamContext(self)]
        self._contexts[-1].__enter__()
        return self

    def __exit__(self, *exc):
        self._contexts.pop().__exit__(*exc)

    def __eq__(self, other):
        return isinstance(other, Stream) and self.device == other.device and self.stream_id == other.stream_id

    def __hash__(self):
        return hash((self.device, self.stream_id))

    def __repr__(self):
        return f"<torch.{self.device.type}.Stream device={self.device} stream_id={self.stream_id}>"


class Event:
    """Marker in a queue (https://pytorch.org/docs/stable/generated/torch.cuda.Event.html).

    On MindSpore's CPU target `elapsed_time` is the host's time between two records, each of which
    waits for all work.
    """

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False, device=None):
        if isinstance(enable_timing, (str, _device.device)):  # torch.Event(device)
            enable_timing, device = False, enable_timing
        self.device = spot(device, "Event")
        if interprocess:
            raise NotImplementedError(f"Event(interprocess=True) is not supported on device {self.device}")
        self.enable_timing, self.blocking = bool(enable_timing), bool(blocking)
        self._own = None if on_host() else runtime.ms.runtime.Event(enable_timing=self.enable_timing, blocking=self.blocking)
        self._at = None
        self._recorded = False

    @_reaching
    def record(self, stream=None):
        """Records the event after the work submitted so far."""
        self._recorded = True
        if self._own is not None:
            self._own.record(None if stream is None else stream._own)
            return
        executor.sync()
        self._at = time.perf_counter()

    @_reaching
    def wait(self, stream=None):
        """Makes later work of the stream (default: the current one) wait for the event."""
        if self._own is not None and self._recorded:
            self._own.wait(None if stream is None else stream._own)

    @_reaching
    def query(self):
        """True if the event is completed."""
        return True if self._own is None or not self._recorded else self._own.query()

    @_reaching
    def synchronize(self):
        """Waits for the event."""
        if self._own is not None and self._recorded:
            self._own.synchronize()

    @_reaching
    def elapsed_time(self, end_event):
        """Returns the milliseconds between this event and a later one. Both need
        enable_timing=True."""
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self._recorded and end_event._recorded):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if self._own is not None:
            return self._own.elapsed_time(end_event._own)
        return (end_event._at - self._at) * 1000.0

    def ipc_handle(self):
        raise NotImplementedError(f"Event.ipc_handle is not supported on device {self.device}")

    def __repr__(self):
        return f"<torch.{self.device.type}.Event {'recorded' if self._recorded else 'uninitialized'}>"


class _Now:
    stream = None  # the current stream if MindSpore has none (on its CPU target)


def default_stream(device=None):
    """Returns the default stream."""
    d = spot(device, "default_stream")
    return Stream(d, stream_id=0) if on_host() else Stream(d, _own=runtime.ms.runtime.default_stream())


def current_stream(device=None):
    """Returns the current stream."""
    d = spot(device, "current_stream")
    if not on_host():
        return Stream(d, _own=runtime.ms.runtime.current_stream())
    return Stream(d, stream_id=0) if _Now.stream is None else _Now.stream


def set_stream(stream):
    """Sets the current stream. None has no effect."""
    if stream is None:
        return
    need("set_stream")
    if not on_host():
        runtime.ms.runtime.set_cur_stream(stream._own)
    else:
        _Now.stream = stream


class StreamContext(contextlib.AbstractContextManager):
    """Context manager that sets the current stream. None has no effect."""

    def __init__(self, stream):
        if stream is not None:
            need("StreamContext")
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self._before = current_stream()
            set_stream(self.stream)

    def __exit__(self, *exc):
        if self.stream is not None:
            set_stream(self._before)


def stream(stream):
    """Returns `StreamContext(stream)`."""
    return StreamContext(stream)
