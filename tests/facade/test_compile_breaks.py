"""torch.compile: code that is not replayed, and that none of its effects is lost."""
import contextvars
import datetime
import functools
import itertools
import logging
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as torch
from mindtorch.backend import errors

pytestmark = pytest.mark.usefixtures("forgotten_variants")
D = torch._dynamo
nn, F = torch.nn, torch.nn.functional


COUNT = 0
TABLE = {"n": 0}
LOG = []


class Tracker:
    def __init__(self):
        self.total, self.rows = 0, []


TRACKER = Tracker()


def prints(x):
    print("here")
    return x + 1


def appends(x):
    LOG.append(x.shape[0])
    return x + 1


def counts_global(x):
    global COUNT
    COUNT += 1
    return x + 1


def counts_in_dict(x):
    TABLE["n"] += 1
    return x + 1


def counts_in_object(x):
    TRACKER.total += 1
    return x + 1


def keeps_rows(x):
    TRACKER.rows.append(x)
    return x + 1


def through_helper(x):
    return counts_in_dict(x) * 2


def setattr_by_name(x):
    setattr(TRACKER, "total", TRACKER.total + 1)      # noqa: B010
    return x + 1


def python_random(x):
    return x * random.random()


def numpy_random(x):
    return x * float(np.random.rand())


def reads_clock(x):
    return x + time.time() * 0


def item(x):
    return x * x.sum().item()


def branches(x):
    return x + 1 if x.sum() > 0 else x - 1


def to_numpy(x):
    return torch.from_numpy(np.sin(x.numpy()))


def float_of(x):
    return x * float(x[0])


def loops(x):
    out = 0
    for _ in range(int(x[0].abs()) + 1):
        out = out + x
    return out


def indexes_list(x):
    return x + [1, 2, 3][x[0].long().abs() % 3]


def masks(x):
    return x[x > 0]


def nonzero(x):
    return x.nonzero()


def gradient_inside(x):
    y = x.detach().requires_grad_()
    return torch.autograd.grad((y ** 2).sum(), y)[0]


def seeds(x):
    torch.manual_seed(0)
    return x + torch.rand(2)


def broken_by_hand(x):
    D.graph_break()
    return x + 1


@torch.compiler.disable
def disabled(x):
    return x * 3


def calls_disabled(x):
    return disabled(x) + 1


def stamps_tensor(x):
    x.stamp = 1
    return x + 1


def logs(x):
    logging.getLogger("some").info("x")
    return x + 1


def hooks_inside(x):
    w = torch.ones(2, requires_grad=True)
    y = w * x
    y.register_hook(lambda g: g)
    return y


def reads_array(x):
    return x + float(ARRAY[0])


ARRAY = np.ones(1)


def maps_print(x):
    list(map(print, x.shape))
    return x + 1


def partial_print(x):
    SHOW(x.shape)
    return x + 1


def reads_date(x):
    return x + datetime.datetime.now().year * 0


def numpy_generator(x):
    return x * RNG.normal()


def draws_bytes(x):
    return x + len(os.urandom(2))


def python_rng(x):
    return x * R.random()


def counts_iterator(x):
    return x * next(COUNTER)


def identity_of(x):
    return x + (id(x) > 0)


def is_leaf(x):
    return x + (1 if x.is_leaf else 2)


def reads_data_grad(x):
    return x + (1 if x.grad is None else 2)


SHOW = functools.partial(print, "here")
RNG, R, COUNTER = np.random.default_rng(0), random.Random(0), itertools.count()

BREAKING = [prints, appends, counts_global, counts_in_dict, counts_in_object, keeps_rows, through_helper, setattr_by_name, python_random,
            numpy_random, reads_clock, item, branches, to_numpy, float_of, loops, indexes_list, masks, nonzero, gradient_inside, seeds,
            broken_by_hand, calls_disabled, stamps_tensor, logs, hooks_inside, reads_array, maps_print,
            partial_print, reads_date, draws_bytes, identity_of, is_leaf, reads_data_grad]
DRAWING = [numpy_generator, python_rng, counts_iterator]


@pytest.mark.parametrize("fn", BREAKING, ids=lambda f: f.__name__)
def test_breaking_functions_run_eagerly_with_a_reason(fn):
    f = torch.compile(fn)
    for i in range(5):
        x = torch.tensor([1.5, -0.5]) * (1 if i % 2 else -1)
        random.seed(i), np.random.seed(i), torch.manual_seed(i)
        got = f(x.clone())
        random.seed(i), np.random.seed(i), torch.manual_seed(i)
        want = fn(x.clone())
        assert got.tolist() == want.tolist()
    c = f._torchdynamo_compiled
    assert c.replayed_calls == 0 and c.reasons and not c.entries, c.reasons
    D.reset()
    with pytest.raises(D.exc.Unsupported, match="fullgraph=True"):
        torch.compile(fn, fullgraph=True)(torch.tensor([1.5, -0.5]))


@pytest.mark.parametrize("fn", DRAWING, ids=lambda f: f.__name__)
def test_external_random_numbers_are_not_frozen(fn):
    f = torch.compile(fn)
    assert len({f(torch.ones(1)).item() for _ in range(5)}) == 5
    assert f._torchdynamo_compiled.replayed_calls == 0


@pytest.mark.parametrize("fn", [prints, appends, counts_global, counts_in_dict, counts_in_object, keeps_rows, through_helper,
                                setattr_by_name], ids=lambda f: f.__name__)
def test_side_effects_happen_once_per_call(fn, capsys):
    def state():
        return COUNT, TABLE["n"], TRACKER.total, len(TRACKER.rows), len(LOG)
    f = torch.compile(fn)
    for _ in range(6):
        before = state()
        f(torch.ones(2))
        after = state()
        printed = capsys.readouterr().out.count("here")
        assert sum(after) - sum(before) + printed == 1


def test_counter_in_forward():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.calls = nn.Linear(2, 2), 0

        def forward(self, x):
            self.calls += 1
            return self.fc(x)
    net = Net()
    m = torch.compile(net)
    for i in range(7):
        m(torch.ones(1, 2))
        assert net.calls == i + 1
    assert "calls" in m._compiled.given_up


def test_changes_of_defaults_slots_and_namespaces():
    class Slotted:
        __slots__ = ("v",)
    space, slotted = types.SimpleNamespace(inner=types.SimpleNamespace(k=1)), Slotted()
    slotted.v = 1

    def f(x, a=[1]):      # noqa: B006
        return x * a[0] + space.inner.k * 10 + slotted.v * 100 + part(x).sum()
    part = functools.partial(torch.mul, other=0)
    g = torch.compile(f)

    def value():
        r = g(torch.ones(1)).item()
        assert r == g(torch.ones(1)).item() == f(torch.ones(1)).item()
        return r
    assert value() == 111
    f.__defaults__[0][0] = 2
    assert value() == 112
    f.__defaults__ = ([3],)
    assert value() == 113
    space.inner.k = 2
    assert value() == 123
    space.inner = types.SimpleNamespace(k=4)
    assert value() == 143
    slotted.v = 5
    assert value() == 543
    part = functools.partial(torch.mul, other=1)
    assert value() == 544
    assert g._torchdynamo_compiled.replayed_calls >= 7


def test_context_variables_and_imports_in_the_function():
    var = contextvars.ContextVar("var", default=1)

    def f(x):
        import math
        from collections import OrderedDict
        torch._assert(x.dim() == 1, f"not {x.shape}")
        return x * var.get() + math.pi * len(OrderedDict())
    g = torch.compile(f, fullgraph=True)
    assert [g(torch.ones(1)).item() for _ in range(3)] == [1, 1, 1]
    token = var.set(5)
    assert [g(torch.ones(1)).item() for _ in range(2)] == [5, 5]
    var.reset(token)
    assert g(torch.ones(1)).item() == 1
    assert g._torchdynamo_compiled.replayed_calls >= 3


def test_threads_replay_concurrently():
    net = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3)).eval()
    m = torch.compile(net)
    xs = [torch.randn(3 + k % 2, 2, 6, 6) for k in range(4)]
    want, wrong = [net(x).detach().numpy() for x in xs], []

    def run(k):
        for _ in range(15):
            if not np.allclose(m(xs[k]).detach().numpy(), want[k], atol=1e-5):
                wrong.append(k)
    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong and m._compiled.given_up is None and m._compiled.replayed_calls > 40


def test_nonlocal_and_cell_changes():
    n = 0

    @torch.compile
    def f(x):
        nonlocal n
        n += 1
        return x + n
    assert [f(torch.zeros(1)).item() for _ in range(5)] == [1, 2, 3, 4, 5]


def test_cache_filled_once_does_not_prevent_capture():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = {}

        def forward(self, x):
            if x.shape[1] not in self.cache:
                self.cache[x.shape[1]] = torch.arange(x.shape[1])
            return x + self.cache[x.shape[1]]
    net = Net()
    m = torch.compile(net)
    for n in (3, 3, 3, 4, 4, 4, 3, 3, 4):
        assert m(torch.zeros(1, n)).tolist() == [list(range(n))]
    assert m._compiled.replayed_calls >= 3 and sorted(net.cache) == [3, 4]


def test_shapes_and_sizes_are_constants_of_a_variant():
    def f(x):
        n = x.shape[0] * 2 + len(x) + x.size(1) + x.numel() + x.dim()
        if x.is_contiguous() and x.dtype is torch.float32 and x.stride(0) > 1:
            n += 1000
        return [row + n for row in x], x.new_zeros(n), x.type(torch.float64)
    g = torch.compile(f, fullgraph=True)
    for shape in ((2, 3), (2, 3), (3, 3), (2, 3), (3, 3)):
        for x in (torch.randn(*shape), torch.randn(*shape).t()):
            a, b = f(x), g(x)
            assert [t.tolist() for t in a[0]] == [t.tolist() for t in b[0]]
            assert a[1].shape == b[1].shape and b[2].dtype is torch.float64


@pytest.mark.parametrize("what", ["layout", "device", "dtype", "ndim", "itemsize", "is_sparse", "shape", "T", "requires_grad", "is_meta", "get_device()"])
def test_reading_metadata_does_not_break_the_graph(what):
    namespace = {}
    exec(f"def g(x):\n    return (x.{what}, x * 2)[1]", namespace)
    e = D.explain(namespace["g"])(torch.ones(2, 3))
    assert (e.graph_break_count, e.graph_count) == (0, 1), e


def test_is_compiling_and_explain():
    seen = []

    def f(x):
        return x + (1 if torch.compiler.is_compiling() else 2)
    assert not torch.compiler.is_compiling() and f(torch.zeros(1)).item() == 2
    g = torch.compile(f)
    assert [g(torch.zeros(1)).item() for _ in range(3)] == [1, 1, 1] and not seen
    e = D.explain(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))(torch.ones(1, 2))
    assert (e.graph_count, e.graph_break_count, e.op_count) == (1, 0, 2) and e.ops_per_graph == [["linear", "relu"]]
    assert "Graph Count: 1" in str(e) and "Ops per Graph" in str(e)
    e = D.explain(branches)(torch.ones(2))
    assert (e.graph_count, e.graph_break_count) == (0, 1) and "__bool__" in e.break_reasons[0] and "__bool__" in str(e)
    assert "print" in str(D.explain(prints)(torch.ones(2)))


def test_reasons_are_logged_and_counted(caplog):
    with caplog.at_level(logging.DEBUG, "torch._dynamo"):
        f = torch.compile(item)
        f(torch.ones(2)), f(torch.ones(2))
        g = torch.compile(torch.sin)
        g(torch.ones(2)), g(torch.ones(3))
    text = caplog.text
    assert text.count("runs eagerly") == 1 and "item()" in text and "Recompiling" in text
    counters = D.utils.counters
    assert sum(counters["graph_break"].values()) == 1 and counters["frames"]["total"] == 3 and counters["stats"]["unique_graphs"] == 2


def test_logs_from_the_environment():
    code = """
        import mindtorch.torch as torch
        f = torch.compile(lambda x: x * x.sum().item())
        f(torch.ones(2))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, "TORCH_LOGS": "graph_breaks"},
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "runs eagerly: it takes values out of a tensor: item()" in done.stderr, done.stderr


def test_disable_stances_and_config():
    calls = []

    def f(x):
        return x + K["k"]
    K = {"k": 1}
    g = torch.compile(f)
    c = g._torchdynamo_compiled
    with torch.compiler.set_stance("force_eager"):
        g(torch.ones(1)), g(torch.ones(1))
    assert not c.entries
    g(torch.ones(1)), g(torch.ones(1))
    assert len(c.entries) == 1 and c.replayed_calls == 1
    with torch.compiler.set_stance("eager_on_recompile"):
        g(torch.ones(2))
    assert len(c.entries) == 1
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(D.exc.RecompileError):
        g(torch.ones(2))
    with pytest.raises(RuntimeError, match="stance"):
        torch.compiler.set_stance("sideways")
    with D.config.patch(disable=True):
        g(torch.ones(4))
    assert len(c.entries) == 1 and not calls
    h = torch.compiler.disable(torch.compile(f))
    h(torch.ones(5))
    assert len(c.entries) == 1
    # recomputed each time, which is always correct
    assert torch.compiler.assume_constant_result(f) is f
    with pytest.raises(NotImplementedError):
        torch.compiler.wrap_numpy(f)


def test_allow_in_graph_and_custom_functions_are_one_op():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x ** 3

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * 3 * x ** 2 + 100

    def odd(x):
        return x * (2 if x.sum().item() > 0 else 3)
    torch.compiler.allow_in_graph(odd)
    f = torch.compile(lambda x: Cube.apply(odd(x)) + 1, fullgraph=True)
    for v in (1.0, -1.0, 2.0):
        x = torch.full((2,), v, requires_grad=True)
        y = f(x)
        y.sum().backward()
        k = 2 if v > 0 else 3
        assert y.tolist() == [(k * v) ** 3 + 1] * 2 and x.grad.tolist() == [k * (3 * (k * v) ** 2 + 100)] * 2
    assert f._torchdynamo_compiled.replayed_calls == 2


def test_errors_reach_the_caller_and_restore_modes():
    @torch.compile
    def f(i):
        with torch.no_grad():
            return F.embedding(i, W)
    assert f(torch.tensor([1])).tolist() == [[0, 0]] == f(torch.tensor([0])).tolist()
    with pytest.raises(IndexError):
        f(torch.tensor([7]))
    assert torch.is_grad_enabled()
    g = torch.compile(lambda x: x @ torch.ones(3, 3))
    with pytest.raises(RuntimeError):
        g(torch.ones(2, 2))
    with pytest.raises(RuntimeError):
        g(torch.ones(2, 2))
    assert g(torch.ones(2, 3)).shape == (2, 3)


W = torch.zeros(3, 2)


def test_subclasses_modes_and_profilers_run_eagerly():
    class Mine(torch.Tensor):
        pass
    f = torch.compile(lambda x: x + 1)
    t = torch.ones(2).as_subclass(Mine)
    assert type(f(t)) is Mine and type(f(t)) is Mine and f._torchdynamo_compiled.replayed_calls == 0
    sys.setprofile(lambda *a: None)
    try:
        f(torch.ones(2))
    finally:
        sys.setprofile(None)
    assert not f._torchdynamo_compiled.entries


def test_version_tags_or_comparison(monkeypatch):
    """If an interpreter does not provide version tags of dicts, contents are compared at every
    call."""
    from mindtorch.torch._dynamo import _guards
    monkeypatch.setattr(_guards, "tags_work", lambda: False)
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    m = torch.compile(net)
    x = torch.ones(1, 2)
    m(x), m(x)
    net.eval()
    assert m(x).tolist() == net(x).tolist() == m(x).tolist()
    net[0].weight = nn.Parameter(torch.ones(2, 2))
    assert m(x).tolist() == net(x).tolist() == m(x).tolist()
    assert m._compiled.replayed_calls >= 3


# ------------------------------------------------------------------ random programs
_UNARY = ["relu", "tanh", "sigmoid", "exp", "neg", "abs", "square", "softmax", "T", "contiguous", "gelu", "silu", "norm", "sum_keep",
          "chunk", "stack", "dropout0", "clone_", "linear", "mm", "max", "layer_norm", "half", "view", "detach", "flip", "cumsum", "where"]
_BINARY = ["add", "sub", "mul", "div", "maximum", "matmul", "cat"]


def _one(op, a, w):
    return {
        "relu": lambda: F.relu(a), "tanh": lambda: a.tanh(), "sigmoid": lambda: a.sigmoid(), "exp": lambda: (a * 0.1).exp(),
        "neg": lambda: -a, "abs": lambda: abs(a), "square": lambda: (a / 4) ** 2, "softmax": lambda: a.softmax(-1), "T": lambda: a.T,
        "contiguous": lambda: a.t().contiguous(), "gelu": lambda: F.gelu(a), "silu": lambda: F.silu(a),
        "norm": lambda: a / (1 + a.norm()), "sum_keep": lambda: a + a.sum(dim=0, keepdim=True) / 4,
        "chunk": lambda: torch.cat(a.chunk(2, dim=1)[::-1], dim=1), "stack": lambda: torch.stack([a, a * 2]).mean(0),
        "dropout0": lambda: F.dropout(a, 0.3), "clone_": lambda: a.clone().mul_(0.5).add_(1), "linear": lambda: F.linear(a, w, w[0]),
        "mm": lambda: a @ w / 4, "max": lambda: a - a.max(dim=1, keepdim=True).values, "layer_norm": lambda: F.layer_norm(a, (4,), w[1]),
        "half": lambda: a.to(torch.bfloat16).float(), "view": lambda: a.reshape(2, 8).view(4, 4), "detach": lambda: a + a.detach(),
        "flip": lambda: a.flip(0), "cumsum": lambda: a.cumsum(0) / 4, "where": lambda: torch.where(a > 0, a, w),
    }[op]()


def _two(op, a, b):
    return {"add": lambda: a + b, "sub": lambda: a - b * 2, "mul": lambda: a * b / 2, "div": lambda: a / (1 + b.abs()),
            "maximum": lambda: torch.maximum(a, b), "matmul": lambda: a @ b / 4, "cat": lambda: torch.cat([a, b])[2:6]}[op]()


@settings(max_examples=60)
@given(st.lists(st.one_of(st.tuples(st.sampled_from(_UNARY), st.integers(0, 9), st.just(0)),
       st.tuples(st.sampled_from(_BINARY), st.integers(0, 9), st.integers(0, 9))), min_size=1, max_size=9),
       st.booleans())
def test_random_programs(program, grad):
    def f(x, w):
        vals = [x, w]
        for op, i, j in program:
            a, b = vals[i % len(vals)], vals[j % len(vals)]
            vals.append(_one(op, a, w) if op in _UNARY else _two(op, a, b))
        return vals[-1], vals[len(vals) // 2]
    g = torch.compile(f)
    for step in range(3):
        torch.manual_seed(step)
        x0, w0 = torch.randn(4, 4), torch.randn(4, 4)
        results = []
        for run in (f, g):
            torch.manual_seed(step + 10)
            x, w = x0.clone().requires_grad_(grad), w0.clone().requires_grad_()
            y, z = run(x, w)
            if y.requires_grad:
                (y * torch.arange(y.numel()).reshape(y.shape)).sum().backward()
            results.append([t.detach().numpy() for t in (y, z)] + [np.zeros(1) if t.grad is None else t.grad.numpy() for t in (x, w)])
        for a, b in zip(*results):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    c = g._torchdynamo_compiled
    assert c.given_up is None and c.replayed_calls == 2, c.reasons


def test_torch_functions_are_captured_despite_subclasses():
    """A user's subclass makes functions check for __torch_function__. Compiled functions are still
    captured."""
    class Mine(torch.Tensor):
        pass

    Mine([1.0])
    f = torch.compile(torch.sin)
    for _ in range(3):
        np.testing.assert_array_equal(f(torch.ones(2)).numpy(), np.sin(np.ones(2, np.float32)))


def test_earlier_meta_tensors_do_not_prevent_replay():
    torch.ones(2, device="meta")
    net = torch.compile(torch.nn.Linear(2, 2))
    for _ in range(4):
        net(torch.ones(1, 2))
    assert net._compiled.replayed_calls == 3, net._compiled.reasons


def test_errors_form_one_hierarchy_without_catching_each_other():
    kinds = [getattr(errors, name) for name in (
        "BackendCompileError", "CompileError", "FullGraphError", "GraphBreak", "GuardFailed", "LoweringError", "RuntimeGuardFailed", "ShapeMismatch",
        "SpecializationError", "TraceError")]
    assert all([issubclass(k, errors.CompileError) for k in [*kinds, D.exc.TorchDynamoException, D.exc.Break]])
    nested = {(a, b) for a in kinds for b in kinds if a is not b and b is not errors.CompileError and issubclass(a, b)}
    assert nested == {(errors.ShapeMismatch, errors.GuardFailed), (errors.RuntimeGuardFailed, errors.GuardFailed)}
    assert {k for k in kinds if issubclass(k, NotImplementedError)} == {errors.TraceError, errors.SpecializationError, errors.LoweringError}
    assert issubclass(D.exc.Unsupported, RuntimeError)
