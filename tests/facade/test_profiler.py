"""torch.profiler and torch.autograd.profiler."""
import json
import pickle

import pytest

import mindtorch.torch as mt
from mindtorch.torch.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler


def work(n=3):
    x = mt.randn(8, 8, requires_grad=True)
    for _ in range(n):
        with record_function("block"):
            y = mt.matmul(x, x).relu()
    (y + 1).sum().backward()


def test_calls_are_counted_and_timed():
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as p:
        work()
    avg = {e.key: e for e in p.key_averages()}
    assert avg["aten::matmul"].count == avg["aten::relu"].count == avg["block"].count == 3
    assert avg["block"].cpu_time_total >= avg["aten::matmul"].cpu_time_total > 0
    assert avg["block"].self_cpu_time_total < avg["block"].cpu_time_total and avg["aten::add"].count == 1
    assert avg["autograd::backward"].count == 1
    assert any(e.input_shapes == [[8, 8], [8, 8]] for e in p.key_averages(group_by_input_shape=True) if e.key == "aten::matmul")
    table = p.key_averages().table(sort_by="cpu_time_total", row_limit=10)
    assert "aten::matmul" in table and "Self CPU" in table and "CPU Mem" in table
    rows = p.key_averages().table(sort_by="self_cpu_time_total", row_limit=2).splitlines()
    assert len(rows) == 3 + 2 + 2


def test_profiler_records_nothing_outside_its_context():
    with profile() as p:
        work(1)
    n = len(p.events())
    code = mt.matmul.__code__
    work()
    assert len(p.events()) == n and n > 3
    with profile():
        pass
    assert mt.matmul.__code__ is code
    with record_function("free"):
        pass


def test_schedule_and_traces(tmp_path):
    s = schedule(wait=1, warmup=1, active=2, repeat=1)
    assert [s(i) for i in range(5)] == [ProfilerAction.NONE, ProfilerAction.WARMUP, ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE, ProfilerAction.NONE]
    seen = []
    with profile(schedule=s, on_trace_ready=lambda p: seen.append([e.name for e in p.events() if e.kind == "user"])) as p:
        for _ in range(5):
            mt.ones(3).exp()
            p.step()
    assert seen == [["ProfilerStep#2", "ProfilerStep#3"]]
    assert sum(e.name == "aten::exp" for e in p.events()) == 2
    import torch
    numbers = [[], []]
    for found, kit, ones in zip(numbers, (torch.profiler, mt.profiler), (torch.ones, mt.ones)):
        with kit.profile(schedule=kit.schedule(wait=1, warmup=1, active=1, repeat=2), on_trace_ready=lambda p: found.append(p.step_num)) as q:
            for _ in range(7):
                ones(3).exp()
                q.step()
    assert numbers[0] == numbers[1] and numbers[0]
    with profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path)), with_stack=True) as p:
        work(1)
    file, = tmp_path.iterdir()
    events = json.loads(file.read_text())["traceEvents"]
    assert {"aten::matmul", "block"} <= {e["name"] for e in events} and all(e["dur"] >= 0 for e in events)
    p.export_stacks(str(tmp_path / "stacks.txt"))
    assert "test_profiler" in (tmp_path / "stacks.txt").read_text()


def test_autograd_profiler():
    with mt.autograd.profiler.profile() as p:
        with mt.autograd.profiler.record_function("a"):
            mt.zeros(2).add_(1)
    assert {"a", "aten::add_"} <= {e.key for e in p.key_averages()}
    assert p.self_cpu_time_total == pytest.approx(sum(e.self_cpu_time_total for e in p.function_events))

    @record_function("decorated")
    def f():
        return mt.ones(1)
    with mt.autograd.profiler.profile() as p:
        f()
        f()
    assert [e.count for e in p.key_averages() if e.key == "decorated"] == [2]
    with pytest.raises(NotImplementedError):
        mt.autograd.profiler.profile(use_device="cuda")
    with mt.autograd.profiler.profile(enabled=False) as p:
        f()
    assert not p.function_events


def test_errors_propagate_and_subclasses_are_preserved():
    with profile() as p, pytest.raises(RuntimeError):
        mt.ones(2, 3) @ mt.ones(2, 3)
    assert p.events() and mt.ones(2).sum().item() == 2
    assert pickle.loads(pickle.dumps(mt.nn.ReLU()))(mt.ones(1)).item() == 1
    with profile() as p:
        y = mt.nn.functional.relu(mt.nn.Parameter(mt.ones(2)))
    assert y.requires_grad


def test_events_made_by_hand():
    """The nesting of events and their averages match PyTorch's."""
    from torch.autograd import profiler_util as theirs

    def run(m):
        spans = [(1, 0, 1), (1, 1, 2), (0, 0, 2), (0, 1, 2), (0, 1, 3), (2, 0, 9), (2, 1, 4), (2, 2, 3), (2, 5, 9), (2, 9, 11)]
        events = m.EventList([m.FunctionEvent(id=i, node_id=0, name=f"n{i % 3}", thread=t, start_us=a, end_us=b) for i, (t, a, b) in enumerate(spans)])
        events._populate_cpu_children()
        whole, twice = m.FunctionEventAvg(), m.FunctionEventAvg()
        for e in events[::3]:
            whole.add(e)
        twice.add(whole)
        twice.add(whole)
        return ([[c.id for c in e.cpu_children] for e in events], [e.cpu_parent and e.cpu_parent.id for e in events],
                [e.self_cpu_time_total for e in events], (twice.key, twice.count, twice.cpu_time_total, twice.cpu_time),
                m._format_time(1234.5), m._format_memory(4096))
    ours, real = run(mt.autograd.profiler_util), run(theirs)
    assert ours == real
    assert mt.autograd.kineto_available() is False
