"""torch.profiler: a schedule of steps, and the time of labelled blocks; kernels are profiled by mindspore.profiler."""
import contextlib
import enum
import json
import os
import socket
import time

from mindtorch.torch.autograd.profiler import record_function  # noqa: F401

__all__ = ["profile", "schedule", "supported_activities", "tensorboard_trace_handler", "ProfilerAction", "ProfilerActivity",
           "kineto_available", "DeviceType", "record_function", "ExecutionTraceObserver"]


class ProfilerActivity(enum.Enum):
    """What is observed."""

    CPU, CUDA, XPU, MTIA, HPU, PrivateUse1 = range(6)


class ProfilerAction(enum.Enum):
    """What happens at a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


class DeviceType(enum.Enum):
    """Kinds of devices."""

    CPU, CUDA = range(2)


def kineto_available():
    """False: the profiler is MindSpore's."""
    return False


def supported_activities():
    return {ProfilerActivity.CPU}


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """Function of the step's number: wait, warm up, record, again and again."""
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
    """An on_trace_ready that writes a Chrome trace into a folder."""
    def handler(prof):
        os.makedirs(dir_name, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(os.path.join(dir_name, f"{name}.{time.time_ns()}.pt.trace.json"))
    return handler


class profile(contextlib.AbstractContextManager):
    """Times the steps of a program by a schedule; operators are not listed (use mindspore.profiler for them)."""

    def __init__(self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False,
                 with_stack=False, with_flops=False, with_modules=False, experimental_config=None,
                 execution_trace_observer=None, acc_events=False, use_cuda=None, custom_trace_id_callback=None):
        self.activities = set(activities) if activities else supported_activities()
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready = on_trace_ready
        self.step_num, self.current_action, self._steps, self._start = 0, ProfilerAction.NONE, [], None

    def start(self):
        self.current_action = self.schedule(self.step_num)
        self._start = time.perf_counter_ns()

    def stop(self):
        self._close()
        if self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE) and self.on_trace_ready:
            self.on_trace_ready(self)
        self.current_action = ProfilerAction.NONE

    def _close(self):
        if self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._steps.append((self.step_num, self._start, time.perf_counter_ns()))

    def step(self):
        """Ends a step and begins the next."""
        self._close()
        if self.current_action is ProfilerAction.RECORD_AND_SAVE and self.on_trace_ready:
            self.on_trace_ready(self)
            self._steps = []
        self.step_num += 1
        self.start()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.stop()
        return False

    def export_chrome_trace(self, path):
        """Writes the steps as a Chrome trace."""
        events = [{"name": f"ProfilerStep#{n}", "ph": "X", "ts": a / 1000, "dur": (b - a) / 1000, "pid": os.getpid(), "tid": 0}
                  for n, a, b in self._steps]
        with open(path, "w") as f:
            json.dump({"traceEvents": events}, f)

    def add_metadata(self, key, value):
        """Accepted: traces have no room for it."""

    add_metadata_json = add_metadata

    def _refuse(self, name):
        raise NotImplementedError(f"torch.profiler.profile.{name} is not supported: operators are not listed; use "
                                  "mindspore.profiler.profile")

    def key_averages(self, *args, **kwargs):
        self._refuse("key_averages")

    def events(self):
        self._refuse("events")

    def export_stacks(self, path, metric="self_cpu_time_total"):
        self._refuse("export_stacks")

    def export_memory_timeline(self, path, device=None):
        self._refuse("export_memory_timeline")


_KinetoProfile = profile


class ExecutionTraceObserver:
    """Not supported: operators are not recorded."""

    def __init__(self):
        raise NotImplementedError("torch.profiler.ExecutionTraceObserver is not supported: operators are not recorded")
