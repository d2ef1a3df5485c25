"""torch.profiler: times of PyTorch functions per step
(https://pytorch.org/docs/stable/profiler.html)."""
import contextlib
import enum
import json
import os
import socket
import time

from mindtorch.torch.autograd.profiler import Recorder, _write_trace, record_function  # noqa: F401

__all__ = ["profile", "schedule", "supported_activities", "tensorboard_trace_handler", "ProfilerAction", "ProfilerActivity",
           "kineto_available", "DeviceType", "record_function", "ExecutionTraceObserver"]


class ProfilerActivity(enum.Enum):
    """Activities to record."""

    CPU, CUDA, XPU, MTIA, HPU, PrivateUse1 = range(6)


class ProfilerAction(enum.Enum):
    """Actions that a schedule returns for a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


class DeviceType(enum.Enum):
    """Types of devices."""

    CPU, CUDA = range(2)


def kineto_available():
    """Returns False: this profiler is mindtorch's own and does not use Kineto."""
    return False


def supported_activities():
    return {ProfilerActivity.CPU}


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """Returns a schedule, a function of the step number that repeats the phases wait, warm-up and
    record."""
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError("Invalid profiler schedule arguments")

    def action(step):
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait and step < active + warmup:
            step += wait
        length = wait + warmup + active
        if repeat and step // length >= repeat:
            return ProfilerAction.NONE
        at = step % length
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < length - 1 else ProfilerAction.RECORD_AND_SAVE
    return action


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """Returns an on_trace_ready callback that writes a Chrome trace into a folder."""
    def handler(prof):
        os.makedirs(dir_name, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(os.path.join(dir_name, f"{name}.{time.time_ns()}.pt.trace.json"))
    return handler


class profile(contextlib.AbstractContextManager):
    """Profiler that records the calls of PyTorch functions, per step if there is a schedule.

        with profile(schedule=schedule(wait=1, warmup=1, active=2),
                     on_trace_ready=tensorboard_trace_handler("log")) as p:
            for batch in data: ...; p.step()
        print(p.key_averages().table(sort_by="self_cpu_time_total"))
    """

    def __init__(self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False,
                 with_stack=False, with_flops=False, with_modules=False, experimental_config=None,
                 execution_trace_observer=None, acc_events=False, use_cuda=None, custom_trace_id_callback=None):
        self.activities = set(activities) if activities else supported_activities()
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready, self.record_steps = on_trace_ready, schedule is not None
        self.record_shapes, self.with_stack, self.profile_memory, self.acc_events = record_shapes, with_stack, profile_memory, acc_events
        self.step_num, self.current_action, self._step, self._metadata = 0, ProfilerAction.NONE, None, {}
        self._new()

    def _new(self):
        self.profiler = Recorder(self.record_shapes, self.with_stack, self.profile_memory)

    @property
    def _recording(self):
        return self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)

    def start(self):
        """Begins the first step."""
        self._begin()

    def _begin(self):
        before, self.current_action = self.current_action, self.schedule(self.step_num)
        if self._recording:
            if before not in (ProfilerAction.RECORD,) and not self.acc_events:
                self._new()
            self.profiler.start()
            if self.record_steps:
                self._step = record_function(f"ProfilerStep#{self.step_num}")
                self._step.__enter__()

    def _end(self):
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        self.profiler.stop()

    def stop(self):
        """Ends the last step."""
        self._end()
        if self._recording and self.on_trace_ready:
            self.on_trace_ready(self)
        self.current_action = ProfilerAction.NONE

    def step(self):
        """Ends a step and begins the next."""
        self._end()
        # incremented before on_trace_ready, which sees the number of finished steps, as in PyTorch
        self.step_num += 1
        if self.current_action is ProfilerAction.RECORD_AND_SAVE and self.on_trace_ready:
            self.on_trace_ready(self)
        self._begin()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.stop()
        return False

    def events(self):
        """Returns all recorded calls."""
        return self.profiler.events

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False):
        """Returns the recorded calls aggregated by name."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path):
        """Writes the calls as a Chrome trace."""
        _write_trace(path, self.events(), [{"ph": "M", "name": k, "pid": os.getpid(), "args": {"value": v}} for k, v in self._metadata.items()])

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Writes stacks with times (requires with_stack=True)."""
        self.events().export_stacks(path, metric)

    def add_metadata(self, key, value):
        """Adds a metadata entry to the trace."""
        self._metadata[key] = str(value)

    def add_metadata_json(self, key, value):
        """Adds a metadata entry to the trace; `value` is JSON."""
        self._metadata[key] = json.loads(value)

    def preset_metadata_json(self, key, value):
        self.add_metadata_json(key, value)

    def toggle_collection_dynamic(self, enable, activities):
        """Turns recording on or off within a step."""
        self.profiler.start() if enable else self.profiler.stop()

    def export_memory_timeline(self, path, device=None):
        raise NotImplementedError("torch.profiler.profile.export_memory_timeline is not supported: allocations are not tracked")


_KinetoProfile = profile


class ExecutionTraceObserver:
    """Not supported: operators are not recorded."""

    def __init__(self):
        raise NotImplementedError("torch.profiler.ExecutionTraceObserver is not supported: operators are not recorded")
