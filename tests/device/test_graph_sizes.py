"""Compiled calls on the npu device whose sizes change from call to call: a few graphs serve all
sizes, with the values of the eager run."""
import json
import logging
import random

import pytest

import mindtorch.torch as torch
from mindtorch.core.compile import replay
from mindtorch.torch._dynamo.utils import counters

pytestmark = pytest.mark.usefixtures("forgotten_variants")
nn, F = torch.nn, torch.nn.functional


@pytest.fixture
def count(npu):
    """Returns a function that counts session events since the test began."""
    before = replay.counters.copy()
    return lambda name: replay.counters[name] - before[name]


def model(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.BatchNorm1d(8), nn.LayerNorm(8), nn.Linear(8, 3)).to(device)


def training(device, sizes, compiled, make=lambda p: torch.optim.AdamW(p, lr=0.01), **options):
    """Returns the losses of steps with batches of these sizes, and the final parameters and
    buffers."""
    m = model(device)
    opt, crit = make(m.parameters()), nn.CrossEntropyLoss()

    def step(x, y):
        opt.zero_grad()
        loss = crit(m(x), y)
        loss.backward()
        opt.step()
        return loss
    step = torch.compile(step, **options) if compiled else step
    torch.manual_seed(1)
    g = torch.Generator().manual_seed(2)
    losses = []
    for n in sizes:
        x, y = torch.randn(n, 6, generator=g).to(device), torch.randint(0, 3, (n,), generator=g).to(device)
        losses.append(step(x, y).item())
    return losses, [t.detach().cpu() for t in (*m.parameters(), *m.buffers())]


def close(a, b, tolerance=1e-5):
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            close(x, y, tolerance)
    elif isinstance(a, torch.Tensor):
        assert a.shape == b.shape and a.dtype == b.dtype
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        assert abs(a - b) <= tolerance * (1 + abs(a))


def same_training(device, sizes, **options):
    want = training(device, sizes, False, **{k: v for k, v in options.items() if k == "make"})
    close(want, training(device, sizes, True, **options))


@pytest.mark.parametrize("make", [lambda p: torch.optim.AdamW(p, lr=0.01), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01)])
def test_training(npu, count, make):
    same_training(npu, [4, 4, 4, 4, 7, 7, 7, 4, 12, 12, 12, 5, 5, 5, 12, 4, 7, 5], make=make)
    assert count("graphs") <= 3 and count("shared") >= 2
    assert count("graph_runs") >= 8


def test_a_hundred_lengths_share_few_graphs(npu, count, caplog):
    weight = torch.randn(6, 6).to(npu)

    def f(x):
        h = (x @ weight).softmax(0)
        return h - h.mean(0), x[1:].cumsum(0)
    compiled = torch.compile(f)
    g = torch.Generator().manual_seed(0)
    with caplog.at_level(logging.WARNING):
        for n in [*range(3, 103), *range(3, 103), *range(102, 2, -7)]:
            x = torch.randn(n, 6, generator=g).to(npu)
            close(f(x), compiled(x))
    assert not caplog.records
    assert count("graphs") <= 6 and count("graph_runs") >= 14
    trace = compiled_trace(compiled)
    assert len(trace.branches) <= 8


def test_new_size_uses_the_shared_graph_from_its_second_call(npu, count):
    """Once a graph for all sizes exists, it serves each new size from the second call on."""
    layer, rate = nn.Linear(4, 4).to(npu), [0.1]
    opt = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)

    def f(x):
        opt.zero_grad()
        opt.param_groups[0]["lr"] = rate[0]
        loss = F.dropout(layer(x), 0.2).square().mean() * rate[0]
        loss.backward()
        opt.step()
        return loss
    compiled = torch.compile(f)
    want, have = [], []
    sizes = [3, 3, 3, 3, 5, 5, 5, 8, 8, 9, 7, 9, 7]
    start = [p.detach().clone() for p in layer.parameters()]
    for call, found in (f, want), (compiled, have):
        opt.state.clear()
        g = torch.Generator().manual_seed(0)
        torch.manual_seed(0)
        with torch.no_grad():
            for p, s in zip(layer.parameters(), start):
                p.copy_(s)
        for i, n in enumerate(sizes):
            rate[0] = 0.1 / (i + 1)
            before = count("graph_runs")
            found.append(call(torch.randn(n, 4, generator=g).to(npu)).item())
            if call is compiled and i in (8, 11, 12):
                assert count("graph_runs") == before + 1, i
    close(want, have, 1e-6)


def compiled_trace(f):
    from mindtorch.torch._dynamo import eval_frame
    return next(c for c in eval_frame.everyone if c.lazily and c.fn is eval_frame.innermost_fn(f)).lazily.trace


def test_two_free_dimensions(npu, count):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True, dropout=0.1).to(npu)
    table = torch.randn(40, 6).to(npu)

    def f(x):
        t = x.shape[1]
        mask = torch.full((t, t), float("-inf"), device=npu).triu(1)
        y = layer(x + table[:t], src_mask=mask)
        grads = torch.autograd.grad(y.square().mean(), list(layer.parameters()))
        return y.detach(), grads
    compiled = torch.compile(f)
    g = torch.Generator().manual_seed(0)
    for b, t in [(2, 5), (2, 5), (2, 5), (2, 9), (2, 9), (2, 9), (3, 9), (3, 9), (3, 9), (4, 7), (4, 7), (4, 7), (5, 11), (5, 11), (5, 11), (2, 5), (4, 7)]:
        x = torch.randn(b, t, 6, generator=g).to(npu)
        torch.manual_seed(t)
        want = f(x)
        torch.manual_seed(t)
        close(want, compiled(x))
    assert count("graphs") <= 4 and count("shared") >= 2


def test_images(npu, count):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(4, 2)).to(npu)

    def f(x):
        y = net(x)
        return y.detach(), torch.autograd.grad(y.square().sum(), list(net.parameters()))
    compiled = torch.compile(f)
    g = torch.Generator().manual_seed(0)
    for n in [12, 12, 12, 16, 16, 16, 15, 15, 15, 20, 20, 20, 13, 13, 13, 12, 16]:
        x = torch.randn(2, 3, n, n + 2, generator=g).to(npu)
        state = [b.clone() for b in net.buffers()]
        want = f(x)
        for b, s in zip(net.buffers(), state):
            b.copy_(s)
        close(want, compiled(x))


def test_one_persistent_tensor_per_size(npu, count):
    """Tensors that are the same object in several calls are state of the first graph, but arguments
    of the graph for all sizes."""
    xs = {n: torch.randn(n, 4).to(npu) for n in (3, 5, 8, 9)}

    def f(x):
        x += 1
        return x * 2
    compiled = torch.compile(f)
    for n in [3, 3, 3, 5, 5, 5, 8, 8, 8, 9, 9, 9, 3, 5, 8, 9]:
        before = xs[n].cpu()
        r = compiled(xs[n])
        close([before + 1, (before + 1) * 2], [xs[n], r], 0)


def test_state_with_the_batch_size(npu):
    """A tensor with the size of the batch persists across calls."""
    hidden = {n: torch.zeros(n, 4).to(npu) for n in (3, 5, 8)}
    wanted = {n: torch.zeros(n, 4) for n in hidden}

    def f(x, h):
        h.mul_(0.5).add_(x)
        return h.sum(0)
    compiled = torch.compile(f)
    g = torch.Generator().manual_seed(0)
    for n in [3, 3, 3, 3, 5, 5, 5, 5, 8, 8, 8, 8, 3, 5, 8]:
        x = torch.randn(n, 4, generator=g)
        close(f(x, wanted[n]), compiled(x.to(npu), hidden[n]))
        close(wanted[n], hidden[n])


def test_values_read_between_graphs(npu, count):
    def f(x):
        y = x.exp()
        if y.sum().item() > 20:
            y = y * 0.5
        return y.cumsum(0)
    compiled = torch.compile(f)
    g = torch.Generator().manual_seed(0)
    for n in [3, 3, 3, 5, 5, 5, 8, 8, 8, 4, 4, 4, 3, 5, 8, 4]:
        x = torch.randn(n, 3, generator=g).to(npu)
        close(f(x), compiled(x))


def test_size_dependent_python_code(npu, count):
    """Python code that depends on a size is checked in each call."""
    def f(x):
        n = x.shape[0]
        y = x[: min(n, 6)] * (2 if n % 2 else 3)
        return y.sum(0) / n, len(y)
    compiled = torch.compile(f)
    g = torch.Generator().manual_seed(0)
    for n in [4, 4, 4, 6, 6, 6, 9, 9, 9, 11, 11, 11, 5, 5, 5, 2, 2, 2, 1, 1, 1, 12, 12, 12, 4, 9]:
        x = torch.randn(n, 3, generator=g).to(npu)
        close(f(x), compiled(x))


def test_dynamic_false_compiles_each_size(npu, count):
    def f(x):
        return x.exp().sum(0)
    static = torch.compile(f, dynamic=False)
    for n in [3, 3, 3, 5, 5, 5, 8, 8, 8]:
        x = torch.randn(n, 3).to(npu)
        close(f(x), static(x))
    assert count("graphs") == 3 and count("shared") == 0


@pytest.mark.parametrize("dim, graphs", [(0, 4), (1, 2)])
def test_mark_static_dimensions(npu, count, dim, graphs):
    def f(x):
        return x.exp().sum(1) * 2
    compiled = torch.compile(f)
    for n in [3, 3, 5, 5, 8, 8, 9, 9]:
        x = torch.randn(n, 3).to(npu)
        torch._dynamo.mark_static(x, dim)
        close(f(x), compiled(x))
    assert count("graphs") == graphs


def test_automatic_dynamic_shapes_can_be_disabled(npu, count):
    def f(x):
        return x.exp().sum(0)
    compiled, marked = torch.compile(f), torch.compile(f)
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        for n in [3, 3, 5, 5, 8, 8]:
            close(f(x := torch.randn(n, 3).to(npu)), compiled(x))
        assert count("graphs") == 3
        for n in [3, 3, 5, 5, 8, 8]:
            x = torch.randn(n, 3).to(npu)
            torch._dynamo.mark_dynamic(x, 0)
            close(f(x), marked(x))
        assert count("graphs") == 5


def test_uncompilable_shared_graph_falls_back_to_each_size(npu, count, monkeypatch):
    """If MindSpore does not compile the graph for all sizes, each size gets its own graph."""
    from mindtorch.backend.mindspore.graph._dynamic import DynamicGraphTemplate
    written = DynamicGraphTemplate.written

    def broken(self):
        lines, more = written(self)
        lines[0].operands[:] = [*lines[0].operands, *lines[0].operands, "'no'"]
        return lines, more
    monkeypatch.setattr(DynamicGraphTemplate, "written", broken)

    def f(x):
        return (x.exp() + 1).sum(0)
    compiled = torch.compile(f)
    for n in [3, 3, 3, 5, 5, 5, 5, 8, 8, 8, 8, 5, 3]:
        x = torch.randn(n, 3).to(npu)
        close(f(x), compiled(x))
    assert count("graph_runs") >= 5


def test_a_constant_that_equals_a_size(npu, count):
    """5 as a bound and as a count is one constant of the recording for 6 rows, and two constants
    for 8 rows."""
    def f(x):
        return x.exp().clamp(max=5) / (1 + x.var(0, keepdim=True)), x + 6, x.reshape(-1, 3).mean(0)
    compiled = torch.compile(f)
    g = torch.Generator().manual_seed(0)
    for n in [6, 6, 6, 5, 5, 5, 3, 3, 3, 8, 8, 8, 2, 2, 2, 12, 12, 12, 6, 8]:
        x = torch.randn(n, 3, generator=g).to(npu)
        close(f(x), compiled(x))


def test_recompile_reason_is_logged(npu, monkeypatch, caplog):
    from mindtorch.backend.mindspore.graph._dynamic import SpecializationError, DynamicGraphTemplate

    def served(self, sheet):
        raise SpecializationError("the weather")
    monkeypatch.setattr(DynamicGraphTemplate, "served", served)

    def f(x):
        return x.exp().sum(0)
    compiled = torch.compile(f)
    counters["recompiles"].clear()
    with caplog.at_level(logging.DEBUG, "torch._dynamo.recompiles"):
        for n in [4, 4, 6, 6, 8, 8, 4, 6, 8]:
            x = torch.randn(n, 3).to(npu)
            close(f(x), compiled(x))
    assert any(["the weather" in r.getMessage() for r in caplog.records]) and counters["recompiles"]
    assert any(["the weather" in text for text in torch._dynamo.explain(compiled)(x).out_guards])


def test_too_many_size_dependent_variants_hit_the_limit(npu, count, caplog):
    """Sizes whose code differs for each count as branches."""
    def f(x):
        for i in range(x.shape[0]):
            x = x.exp().clamp(max=2)
        return x
    compiled = torch.compile(f)
    with caplog.at_level(logging.WARNING):
        for n in [*range(1, 45)]:
            x = torch.randn(n, 3).to(npu)
            close(f(x), compiled(x))
    assert any(["recompile_limit" in r.getMessage() for r in caplog.records])


def test_replaced_module_reuses_known_sizes(npu):
    """Another module with the same layers, for which the sizes of the first module are known."""
    def f(m, x):
        return m(x)
    compiled = torch.compile(f)
    g = torch.Generator().manual_seed(0)
    for seed in range(3):
        torch.manual_seed(seed)
        m = nn.Linear(3, 2).to(npu)
        for n in [3, 3, 3, 5, 5, 5, 8, 8, 8, 3, 5]:
            x = torch.randn(n, 3, generator=g).to(npu)
            with torch.no_grad():
                m.weight.add_(0.1)
                close(f(m, x), compiled(m, x))


# ------------------------------------------------------------------ random programs
W, TABLE = None, None
STEPS = [
    lambda x: x.exp().clamp(max=5), lambda x: x - x.mean(0), lambda x: x - x.mean(), lambda x: x / (1 + x.var(1, keepdim=True)), lambda x: x.softmax(1), lambda x: x @ W,
    lambda x: (x @ x.transpose(1, 2)).softmax(-1) @ x, lambda x: x[:, 1:] if x.shape[1] > 2 else x, lambda x: x[:, ::2], lambda x: x[:, :max(1, x.shape[1] // 2)] * 2,
    lambda x: torch.cat([x, x * 2], 1), lambda x: x.flip(1), lambda x: x.roll(1, 1), lambda x: x.transpose(0, 1).contiguous().transpose(0, 1), lambda x: x.cumsum(1) * 0.3,
    lambda x: x.sort(1)[0], lambda x: torch.where(x > 0, x, x * 0.1), lambda x: x + TABLE[:x.shape[1]] if x.shape[1] <= 64 else x,
    lambda x: x + torch.arange(x.shape[1], device=x.device)[:, None] * 0.1, lambda x: F.layer_norm(x, (4,)), lambda x: F.dropout(x, 0.3), lambda x: x + 0.1 * torch.randn_like(x),
    lambda x: x.reshape(-1, 2, 2).transpose(1, 2).reshape(x.shape), lambda x: x * (1.0 / x.shape[0]), lambda x: x / x.shape[1], lambda x: x.logsumexp(1, keepdim=True) + x,
    lambda x: x * x.amax(1, keepdim=True).sigmoid(), lambda x: F.pad(x, (0, 0, 1, 0)), lambda x: put(x.clone(), 1), lambda x: put(x.clone(), 2),
    lambda x: x.gather(1, x.argsort(1)), lambda x: F.avg_pool1d(x.transpose(1, 2), 3, 1, 1).transpose(1, 2), lambda x: F.conv1d(x.transpose(1, 2), W[:, :, None]).transpose(1, 2),
    lambda x: x.masked_fill(torch.ones(x.shape[1], dtype=torch.bool, device=x.device).tril(0)[None, :, None] if False else x > 1, 0.5), lambda x: x.norm(dim=1, keepdim=True) + x,
    lambda x: x.repeat(1, 2, 1)[:, :x.shape[1] + 1], lambda x: x.expand(2, *x.shape)[1] * 1.5, lambda x: x.unsqueeze(2).expand(-1, -1, 2, -1).sum(2),
]


def put(x, k):
    if k == 1:
        x[:, :1].mul_(2)
    else:
        x[:, ::2, 1:3] = 0.25
    return x


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(npu, seed, count):
    global W, TABLE
    rng = random.Random(seed)
    torch.manual_seed(seed)
    W, TABLE = torch.randn(4, 4).to(npu) * 0.5, torch.randn(64, 4).to(npu)
    program = [rng.choice(STEPS) for _ in range(rng.randint(2, 6))]
    train = rng.random() < 0.6
    several = rng.random() < 0.5

    def f(x):
        y = x
        for s in program:
            y = s(y)
        if not train:
            return y
        loss = y.square().mean()
        return y.detach(), torch.autograd.grad(loss, [x])[0]
    compiled = torch.compile(f)
    known = [(rng.randint(1, 5) if several else 2, rng.randint(1, 12)) for _ in range(5)]
    sizes = [s for s in known for _ in range(3)] + [rng.choice(known) for _ in range(10)]
    rng.shuffle(sizes)
    g = torch.Generator().manual_seed(seed)
    for i, (b, t) in enumerate(sizes):
        x = torch.randn(b, t, 4, generator=g).to(npu).requires_grad_(train)
        torch.manual_seed(i)
        want = f(x)
        torch.manual_seed(i)
        close(want, compiled(x), 2e-5)


# ------------------------------------------------------------------ Ascend
PROGRAM = """
import json, os, sys
import mindspore as ms
ms.set_device("Ascend")
sys.path.insert(0, "benchmarks")
import mindtorch.torch as torch
from mindtorch.core.compile import replay
import ascend_launches as models
log, nn = models.Log(os.environ["MINDTORCH_STANDIN_LOG"]), torch.nn

def trained(compiled):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3)).to("npu")
    opt, crit, losses, done = torch.optim.AdamW(m.parameters(), lr=0.01), nn.CrossEntropyLoss(), [], []
    def step(x, y):
        opt.zero_grad()
        loss = crit(m(x), y)
        loss.backward()
        opt.step()
        return loss
    step = torch.compile(step) if compiled else step
    for n in [4, 4, 4, 4, 7, 7, 7, 12, 12, 12, 5, 5, 5, 4, 7, 12, 5]:
        x, y = torch.randn(n, 6).to("npu"), torch.randint(0, 3, (n,)).to("npu")
        ms.runtime.synchronize()
        before = log.here()
        loss = step(x, y)
        ms.runtime.synchronize()
        done.append([sum(part.values()) for part in log.between(before, log.here())])
        losses.append(loss.item())
    return losses, done[-4:]
found = trained(False), trained(True)
print("FOUND", json.dumps([*found, replay.counters["graphs"], replay.counters["shared"]]))
"""


@pytest.mark.ascend
def test_on_ascend(standin, tmp_path):
    """One graph serves all batch sizes except the first. There are no more launches than in eager
    mode, and no copies."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    (losses, launches), (compiled, fewer), graphs, shared = json.loads(standin.run(path, hook=False).said("FOUND"))
    close(losses, compiled)
    assert graphs == 2 and shared == 2
    assert all([b[0] <= a[0] and not b[1] and not b[2] for a, b in zip(launches, fewer)]), (launches, fewer)
