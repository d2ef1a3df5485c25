"""torch.autograd.profiler: the time taken by each torch function
(https://pytorch.org/docs/stable/autograd.html#profiler).

While a profiler is active, every torch function and method (those that __torch_function__ sees) is
timed from call to return; on a CPU its result is available on return. Blocks labelled by
`record_function` and the complete backward pass are timed too. Within backward, so is every graph
node (`AddBackward0`), nested in the engine's work for it, `autograd::engine::evaluate_function:
AddBackward0`. `sequence_nr` links a node to the call that created it. The time of a nested call
counts in the total time of the outer call, but not in its "self" time. Without an active profiler
nothing is recorded and there is no overhead.
"""
import contextlib
import copy
import itertools
import json
import os
import threading
import time

from mindtorch.core.autograd import graph as autograd_graph
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.core.tensor.storage_impl import owns_memory
from mindtorch.torch import _function_protocol as _protocol

__all__ = ["record_function", "profile", "EventList", "FunctionEvent", "FunctionEventAvg", "emit_nvtx", "emit_itt", "Kernel", "Interval",
           "load_nvprof", "KinetoStepTracker", "enforce_unique"]


class _State(threading.local):
    stack = ()


_state = _State()
_ids = itertools.count(1)
_active = []  # active recorders


class Interval:
    """Time interval in microseconds."""

    def __init__(self, start, end):
        self.start, self.end = start, end

    def elapsed_us(self):
        return self.end - self.start


class FunctionEvent:
    """One call: its name, time in microseconds and (if requested) the shapes of its inputs."""

    def __init__(self, id, name, thread, start_us, end_us, overload_name=None, fwd_thread=None, input_shapes=None, stack=None, scope=0,
                 use_device=None, cpu_memory_usage=0, device_memory_usage=0, is_async=False, is_remote=False, sequence_nr=-1, node_id=-1,
                 device_type="cpu", device_index=-1, device_resource_id=None, is_legacy=False, flops=None, trace_name=None,
                 is_user_annotation=False):
        self.id, self.name, self.thread, self.key, self.trace_name = id, name, thread, name, trace_name or name
        self.overload_name, self.fwd_thread, self.scope, self.use_device, self.flops = overload_name, fwd_thread, scope, use_device, flops
        self.time_range = Interval(start_us, end_us)
        self.input_shapes, self.stack, self.sequence_nr = input_shapes, stack or [], sequence_nr
        self.cpu_memory_usage = self.self_cpu_memory_usage = cpu_memory_usage
        self.device_memory_usage = self.self_device_memory_usage = device_memory_usage
        self.cpu_parent, self.cpu_children, self.count = None, [], 1
        self.is_async, self.is_remote, self.is_legacy, self.is_user_annotation = is_async, is_remote, is_legacy, is_user_annotation
        self.device_type, self.device_index, self.node_id = device_type, device_index, node_id
        self.device_resource_id = thread if device_resource_id is None else device_resource_id

    @property
    def kind(self):
        return "user" if self.is_user_annotation else "op"

    def append_cpu_child(self, child):
        """Adds a call that ran inside this one."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent):
        """Sets the call inside which this one ran."""
        self.cpu_parent = parent

    @property
    def cpu_time_total(self):
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self):
        return self.cpu_time_total - sum(c.cpu_time_total for c in self.cpu_children)

    cpu_time = cpu_time_total
    device_time = device_time_total = self_device_time_total = 0

    def __repr__(self):
        return f"<FunctionEvent id={self.id} cpu_time={self.cpu_time_total:.3f}us name={self.name} thread={self.thread}>"


class FunctionEventAvg:
    """Statistics of all calls with one name (and one list of input shapes, if grouped by shape)."""

    device_time = device_time_total = self_device_time_total = device_memory_usage = self_device_memory_usage = 0
    flops = 0

    def __init__(self, event=None, shapes=None, stack=None):
        self.key, self.input_shapes, self.stack = None if event is None else event.name, shapes, stack or []
        self.count = self.cpu_time_total = self.self_cpu_time_total = self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.is_user_annotation = event is not None and event.is_user_annotation

    def add(self, event):
        """Adds an event or another average to the statistics."""
        if self.key is None:
            self.key, self.is_user_annotation = event.key, event.is_user_annotation
        if isinstance(event, FunctionEventAvg):
            for n in ("count", "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage"):
                setattr(self, n, getattr(self, n) + getattr(event, n))
            return self
        self.count += 1
        inside, p = False, event.cpu_parent
        while p is not None:
            inside, p = inside or p.name == event.name, p.cpu_parent
        if not inside:  # a recursive call is already included in the outer call's total
            self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total
        self.cpu_memory_usage += event.cpu_memory_usage
        self.self_cpu_memory_usage += event.self_cpu_memory_usage
        return self

    @property
    def cpu_time(self):
        return self.cpu_time_total / self.count if self.count else 0

    def __repr__(self):
        return f"<FunctionEventAvg key={self.key} self_cpu_time={_text(self.self_cpu_time_total)} cpu_time={_text(self.cpu_time)} count={self.count}>"


def _text(us):
    return f"{us / 1e6:.3f}s" if us >= 1e6 else f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


def _bytes(n):
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} B"


class EventList(list):
    """List of events or of their averages."""

    def __init__(self, events=(), use_device=None, profile_memory=False, with_flops=False):
        super().__init__(events)
        self._profile_memory = profile_memory

    def _populate_cpu_children(self):
        """Finds by their times the events of a thread that ran inside others. An event that only
        overlaps another is not its child."""
        threads = {}
        for e in self:
            if not e.is_async and e.device_type == "cpu":
                threads.setdefault((e.thread, e.node_id), []).append(e)
        for events in threads.values():
            open_ = []
            for e in sorted(events, key=lambda e: (e.time_range.start, -e.time_range.end)):
                while open_ and (e.time_range.start >= open_[-1].time_range.end or e.time_range.end > open_[-1].time_range.end):
                    open_.pop()
                if open_:
                    open_[-1].append_cpu_child(e)
                    e.set_cpu_parent(open_[-1])
                open_.append(e)

    @property
    def self_cpu_time_total(self):
        """Total self time of all calls in microseconds."""
        return sum(e.self_cpu_time_total for e in self)

    def key_averages(self, group_by_input_shapes=False, group_by_stack_n=0, group_by_overload_name=False):
        """Groups the events by name (optionally by shapes and the innermost lines of the stack) and
        returns their averages."""
        found = {}
        for e in self:
            shapes = json.dumps(e.input_shapes) if group_by_input_shapes else ""
            stack = tuple(e.stack[:group_by_stack_n])
            key = e.name, shapes, stack
            if key not in found:
                found[key] = FunctionEventAvg(e, e.input_shapes if group_by_input_shapes else None, list(stack))
            found[key].add(e)
        return EventList(found.values(), profile_memory=self._profile_memory)

    def total_average(self):
        """Returns the sum of all events as one average."""
        total = FunctionEventAvg(FunctionEvent(0, "Total", 0, 0, 0))
        for e in self:
            total.count += e.count
            total.cpu_time_total += e.self_cpu_time_total
            total.self_cpu_time_total += e.self_cpu_time_total
        return total

    def table(self, sort_by=None, row_limit=100, max_src_column_width=75, max_name_column_width=55, max_shapes_column_width=80, header=None,
              top_level_events_only=False, time_unit=None):
        """Formats the events as a table, sorted by an attribute such as "cpu_time_total" or
        "self_cpu_time_total"."""
        rows = list(self)
        if top_level_events_only:
            rows = [e for e in rows if getattr(e, "cpu_parent", None) is None]
        if sort_by is not None:
            key = sort_by.replace("cuda", "device")
            rows.sort(key=lambda e: getattr(e, key), reverse=True)
        total = sum(e.self_cpu_time_total for e in self)
        columns = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
        shapes, memory = any(e.input_shapes for e in rows), self._profile_memory
        columns += (["CPU Mem"] if memory else []) + ["# of Calls"] + (["Input Shapes"] if shapes else [])
        lines = []
        for e in rows[:None if row_limit < 0 else row_limit]:
            share = 100 / total if total else 0
            line = [e.key[:max_name_column_width], f"{e.self_cpu_time_total * share:.2f}%", _text(e.self_cpu_time_total),
                    f"{e.cpu_time_total * share:.2f}%", _text(e.cpu_time_total), _text(e.cpu_time)]
            line += ([_bytes(e.cpu_memory_usage)] if memory else []) + [str(e.count)]
            lines.append(line + ([str(e.input_shapes or [])[:max_shapes_column_width]] if shapes else []))
        width = [max(len(r[i]) for r in [columns, *lines]) for i in range(len(columns))]
        rule = "  ".join("-" * w for w in width)

        def row(r):
            return "  ".join(c.rjust(w) for c, w in zip(r, width))
        out = ([header] if header else []) + [rule, row(columns), rule, *map(row, lines), rule, f"Self CPU time total: {_text(total)}", ""]
        return "\n".join(out)

    def __str__(self):
        return self.table()

    def export_chrome_trace(self, path):
        """Writes the events as a Chrome trace (chrome://tracing, Perfetto)."""
        _write_trace(path, self)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Writes stacks with times in the format of flame graph tools."""
        with open(path, "w") as f:
            for e in self.key_averages(group_by_stack_n=64):
                if e.stack and (value := int(getattr(e, metric))):
                    f.write(";".join(s.translate(str.maketrans(" ;\t\n", "____")) for s in reversed(e.stack)) + f" {value}\n")


def _write_trace(path, events, extra=()):
    import gzip
    rows = [{"ph": "X", "cat": "user_annotation" if e.kind == "user" else "cpu_op", "name": e.name, "pid": os.getpid(), "tid": e.thread,
            "ts": e.time_range.start, "dur": e.cpu_time_total, "args": {"Input Dims": e.input_shapes} if e.input_shapes else {}} for e in events]
    with (gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w")) as f:
        json.dump({"schemaVersion": 1, "traceEvents": rows + list(extra)}, f)


# ------------------------------------------------------------------ recording
class Recorder:
    """Records the events between `start` and `stop`."""

    def __init__(self, shapes=False, stacks=False, memory=False, enabled=True):
        self.shapes, self.stacks, self.memory, self.enabled = shapes, stacks, memory, enabled
        self.events, self._on = EventList(profile_memory=memory), False

    def start(self):
        if self.enabled and not self._on:
            self._on = True
            _active.append(self)
            if len(_active) == 1:
                _protocol.observe(_observed)
                hooks.node_observer = _node

    def stop(self):
        if self._on:
            self._on = False
            _active.remove(self)
            if not _active:
                _protocol.observe(None)
                hooks.node_observer = None
                _made_by.clear()


def _shapes_of(args):
    return [list(a._sizes) if is_tensor(a) else [list(x._sizes) for x in a if is_tensor(x)] if isinstance(a, (list, tuple)) else []
            for a in args]


def _stack():
    import traceback
    lines = [f"{f.filename}({f.lineno}): {f.name}" for f in traceback.extract_stack() if f"{os.sep}mindtorch{os.sep}" not in f.filename]
    return lines[::-1]


# sequence number -> thread of the call that created the node (or would have created it)
_made_by = {}


@contextlib.contextmanager
def _event(name, kind, args=(), number=-1, fwd_thread=0):
    recorders = list(_active)
    if not recorders:
        yield None
        return
    r = recorders[-1]
    e = FunctionEvent(next(_ids), name, threading.get_ident(), 0, 0, is_user_annotation=kind == "user",
                      input_shapes=_shapes_of(args) if any(x.shapes for x in recorders) else None,
                      stack=_stack() if any(x.stacks for x in recorders) else None, sequence_nr=number, fwd_thread=fwd_thread)
    before = _state.stack
    if before:
        e.cpu_parent = before[-1]
        before[-1].cpu_children.append(e)
    _state.stack = (*before, e)
    for r in recorders:
        r.events.append(e)
    e.time_range.start = time.perf_counter_ns() / 1000
    try:
        yield e
    finally:
        e.time_range.end = time.perf_counter_ns() / 1000
        _state.stack = before


def _observed(func, original, args, kwargs):
    """Runs a torch function and records its time."""
    name = getattr(func, "__name__", "op")
    if name.startswith("__") and name.endswith("__"):
        plain = name[2:-2]
        name = {"truediv": "div", "iadd": "add_", "isub": "sub_", "imul": "mul_", "itruediv": "div_", "getitem": "index"}.get(plain, plain)
    label = "autograd::backward" if name == "backward" else f"aten::{name}"
    if _state.stack and _state.stack[-1].name == label:
        return original(*args, **kwargs)  # the function's inner call of the same name
    number = -1
    if mode.on and label != "autograd::backward" and any([is_tensor(a) and not a._inference for a in args]):
        # sequence number of the node that this call may create
        number = next(copy.copy(autograd_graph.sequence))
        _made_by[number] = threading.get_ident()
    with _event(label, "op", args, number) as e:
        r = original(*args, **kwargs)
    if e is not None and is_tensor(r):
        e.cpu_memory_usage = e.self_cpu_memory_usage = r._nbytes if owns_memory(r) else 0
    return r


def _node(n, number):
    """Records the time of a node in backward; see `hooks.node_observer`."""
    name, thread = n.name(), _made_by.get(number, 0)
    with _event("autograd::engine::evaluate_function: " + name, "op", (), number, thread):
        with _event(name, "op", (), number, thread) as e:
            if e is not None:
                e.scope = 1  # scope of backward
            yield
        yield


class record_function(contextlib.ContextDecorator):
    """Labels a block of code for profilers. Does nothing without an active profiler."""

    def __init__(self, name, args=None):
        self.name, self.args, self._open = name, args, None

    def __enter__(self):
        if _active:
            self._open = _event(self.name, "user")
            self._open.__enter__()
        return self

    def __exit__(self, *exc):
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None
        return False

    def _recreate_cm(self):
        return record_function(self.name, self.args)


class profile:
    """Context manager that records all calls inside it.

    `with profile() as p: ...; print(p.key_averages().table())`
    """

    def __init__(self, enabled=True, *, use_cuda=False, use_device=None, record_shapes=False, with_flops=False, profile_memory=False,
                 with_stack=False, with_modules=False, use_kineto=False, use_cpu=True, **options):
        if use_cuda or use_device not in (None, "cpu"):
            raise NotImplementedError(f"torch.autograd.profiler.profile is not supported for device {use_device or 'cuda'}; use mindspore.profiler")
        self.enabled, self._recorder = enabled, Recorder(record_shapes, with_stack, profile_memory, enabled)

    def __enter__(self):
        self._recorder.start()
        return self

    def __exit__(self, *exc):
        self._recorder.stop()
        return False

    @property
    def function_events(self):
        return self._recorder.events

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False):
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self):
        return self.function_events.total_average()

    def table(self, *args, **kwargs):
        return self.function_events.table(*args, **kwargs)

    def export_chrome_trace(self, path):
        self.function_events.export_chrome_trace(path)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        self.function_events.export_stacks(path, metric)

    @property
    def self_cpu_time_total(self):
        return self.function_events.self_cpu_time_total

    def __str__(self):
        return str(self.function_events)


def _profiler_enabled():
    """True if a profiler is active."""
    return bool(_active)


def kineto_available():
    """Returns False: this profiler is not based on Kineto."""
    return False


class KinetoStepTracker:
    """Counts the steps of several requesters."""

    _current_step, _steps = 0, {}

    @classmethod
    def init_step_count(cls, requester):
        cls._steps[requester] = cls._current_step

    @classmethod
    def erase_step_count(cls, requester):
        return cls._steps.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester):
        cls._steps[requester] = cls._steps.get(requester, cls._current_step) + 1
        cls._current_step = max(cls._steps.values())
        return cls._current_step

    @classmethod
    def current_step(cls):
        return cls._current_step


from mindtorch.torch._refusing import refuse  # noqa: E402

refuse(globals(), "it needs a profiling tool of another accelerator", "load_nvprof enforce_unique", "emit_nvtx emit_itt Kernel")
