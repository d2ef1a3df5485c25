"""Order of saving and computing: operands are packed before the kernel runs. Profilers record the
nodes of a backward pass."""
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import mindtorch.torch as mt
from mindtorch.core.hooks import hooks
from mindtorch.torch.utils._python_dispatch import TorchDispatchMode as OurDispatchMode
from mindtorch.torch.utils.checkpoint import checkpoint as our_checkpoint, set_checkpoint_early_stop as our_early_stop

SIDES = ((torch, TorchDispatchMode, checkpoint, set_checkpoint_early_stop), (mt, OurDispatchMode, our_checkpoint, our_early_stop))


def beside(fn):
    """Runs `fn` under PyTorch and mindtorch, asserts equal results and returns ours."""
    real, ours = [fn(*side) for side in SIDES]
    assert ours == real
    return ours


def _calls(Mode, log):
    class Log(Mode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            log.append(str(func))
            return func(*args, **(kwargs or {}))
    return Log()


CASES = {
    "sin": lambda T, a, b: a.sin(),
    "mul": lambda T, a, b: a * b,
    "one operand": lambda T, a, b: a.detach() * b,
    "exp": lambda T, a, b: a.exp(),  # saves its result
    "pow": lambda T, a, b: a ** 3,
    "mm": lambda T, a, b: a @ b,
    "chain": lambda T, a, b: (a.sin() * b).cos(),
    "no grad": lambda T, a, b: a.detach().sin(),
}


@pytest.mark.parametrize("name", CASES)
def test_operands_are_packed_before_the_kernel(name):
    def run(T, Mode, *rest):
        log = []
        a, b = (T.ones(2, 2, requires_grad=True) for _ in range(2))

        def pack(x):
            log.append("pack")
            return x
        with T.autograd.graph.saved_tensors_hooks(pack, lambda x: x), _calls(Mode, log):
            r = CASES[name](T, a, b)
        if r.requires_grad:
            r.sum().backward()
        return [w for w in log if w == "pack" or "sin" in w or "mm" in w or "exp" in w or "pow" in w], None if a.grad is None else [round(g, 4) for g in a.grad.flatten().tolist()]
    log, _ = beside(run)
    assert ("pack" in log) == (name != "no grad")


def test_raising_pack_hook_prevents_kernel_call():
    def run(T, Mode, *rest):
        log, a = [], T.ones(2, requires_grad=True)

        def pack(x):
            raise ValueError("enough")
        with T.autograd.graph.saved_tensors_hooks(pack, lambda x: x), _calls(Mode, log):
            with pytest.raises(ValueError, match="enough"):
                a.sin()
        y = a.sin()  # the failed call left nothing behind
        y.sum().backward()
        return log, [round(g, 5) for g in a.grad.tolist()]
    assert beside(run)[0] == []


@pytest.mark.parametrize("early", [True, False])
def test_early_stop_skips_unneeded_recomputation(early):
    def run(T, Mode, recompute, early_stop):
        log, a = [], T.tensor(1., requires_grad=True)
        with _calls(Mode, log), early_stop(early):
            recompute(lambda x: x.sin(), a, use_reentrant=False).backward()
        return log.count("aten.sin.default"), round(a.grad.item(), 5)
    assert beside(run)[0] == 2 - early


IN_PLACE = {
    "sin_": lambda T, t, b: t.sin_(), "mul_": lambda T, t, b: t.mul_(b), "pow_": lambda T, t, b: t.pow_(3), "div_": lambda T, t, b: t.div_(b),
    "atan2_": lambda T, t, b: t.atan2_(b), "exp_": lambda T, t, b: t.exp_(), "relu_": lambda T, t, b: t.relu_(), "clamp_": lambda T, t, b: t.clamp_(0, 1.5),
    "silu": lambda T, t, b: T.nn.functional.silu(t, inplace=True), "a part": lambda T, t, b: t[:1].log_(), "addcmul_": lambda T, t, b: t.addcmul_(b, b),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_inplace_ops_pack_the_value_before_the_write(name):
    """Hooks that keep the very tensor must not find what the op has written to it."""
    def run(T, *rest):
        a, b = T.tensor([0.5, 1.25], requires_grad=True), T.tensor([3., 0.5], requires_grad=True)
        with T.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            t = a * 2
            IN_PLACE[name](T, t, b)
        t.sum().backward()
        return [None if x.grad is None else [round(g, 4) for g in x.grad.tolist()] for x in (a, b)]
    beside(run)


def test_saved_tensor_hooks_are_thread_local():
    import threading
    seen, ready, done = [], threading.Event(), threading.Event()

    def other():
        ready.wait(10)
        x = mt.ones(2, requires_grad=True)
        x.sin().sum().backward()
        done.set()
    t = threading.Thread(target=other)
    t.start()
    with mt.autograd.graph.saved_tensors_hooks(lambda x: seen.append(x) or x, lambda x: x):
        ready.set()
        assert done.wait(10)
    t.join()
    assert not seen


# ------------------------------------------------------------------ profilers
def _model(T, x):
    with T.no_grad():
        x * 2
    return ((x + 1).relu() * 3).sum()


def test_profilers_record_backward_nodes():
    def run(T, *rest):
        with T.autograd.profiler.profile() as p:
            _model(T, T.ones(3, requires_grad=True)).backward()
        events = [e for e in p.function_events if "Backward" in e.name or "Accumulate" in e.name]
        made = {e.sequence_nr: e.name for e in p.function_events if e.name in ("aten::add", "aten::relu", "aten::mul", "aten::sum") and e.sequence_nr >= 0}
        return [(e.name, e.scope, e.cpu_parent.name if e.scope else None, made.get(e.sequence_nr), bool(e.fwd_thread), e.count) for e in events]
    rows = beside(run)
    assert ("SumBackward0", 1, "autograd::engine::evaluate_function: SumBackward0", "aten::sum", True, 1) in rows and len(rows) == 10


def test_profiler_table_counts_backward_nodes():
    def run(T, *rest):
        x = T.ones(3, requires_grad=True)
        with T.profiler.profile(activities=[T.profiler.ProfilerActivity.CPU]) as p:
            for _ in range(3):
                _model(T, x).backward()
        counts = {e.key: e.count for e in p.key_averages() if "Backward" in e.key or "Accumulate" in e.key}
        assert all(e.cpu_time_total > 0 for e in p.key_averages() if "Backward" in e.key)
        return counts
    assert beside(run)["ReluBackward0"] == 3
    assert hooks.node_observer is None


def test_raising_backward_ends_its_profiler_events():
    class Broken(mt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("broken")
    x = mt.ones(2, requires_grad=True)
    with mt.autograd.profiler.profile() as p:
        with pytest.raises(ValueError, match="broken"):
            Broken.apply(x).sum().backward()
        with mt.autograd.profiler.record_function("after"):
            x.exp()
    after = next(e for e in p.function_events if e.name == "after")
    assert after.cpu_parent is None and all(e.time_range.end >= e.time_range.start > 0 for e in p.function_events)


def test_uniform_fills_strided_and_low_precision_tensors():
    for shape, d in (((3, 5), "float32"), ((4, 6), "float64"), ((7,), "bfloat16"), ((7,), "complex64"), ((0, 3), "float32")):
        def run(T, *rest):
            T.manual_seed(3)
            t = T.empty(shape, dtype=getattr(T, d)).uniform_(-0.5, 0.25)
            return t.tolist(), T.empty(6, 4)[::2].uniform_(-1, 1).tolist(), T.empty(3, 5).t().uniform_(-1, 1).tolist()
        beside(run)
