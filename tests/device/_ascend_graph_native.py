"""Flows from the MindSpore articles in graph mode on the Ascend target. Each step matches the eager
run, and in the steady state everything runs in graphs. Arguments: flows.

Each flow returns (step, batches, what else to compare). `step(*batch)` returns tensors.
"""
import os
import sys
import tempfile

import mindspore as ms
import numpy as np
import torch
from torch import nn

import _graph_flows
from mindtorch.core.device import device_dispatch
from mindtorch.core.compile import replay
from mindtorch.tools import cast_to_adapter_tensor

N = 8


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * 9, 4)
        r = np.random.RandomState(seed)
        for p in self.parameters():
            p.data.copy_(torch.from_numpy((r.randn(*p.shape) * 0.3 + (p.dim() == 1)).astype(np.float32)))
        self.to("npu")

    def forward(self, x):
        return self.fc(torch.flatten(torch.nn.functional.avg_pool2d(torch.relu(self.bn(self.conv(x))), 2), 1))


def batches(sizes=(8,) * N):
    r = np.random.RandomState(1)
    return [(torch.from_numpy(r.randn(n, 1, 6, 6).astype(np.float32)).to("npu"), torch.from_numpy(r.randint(0, 4, n).astype(np.int64)).to("npu")) for n in sizes]


def jitted(f, compiled):
    return ms.jit(f) if compiled else f


def assigned_rate(compiled):
    """The learning rate is a Parameter that a scheduler assigns to."""
    m, crit = Net(), nn.MSELoss()
    opt = torch.optim.SGD(m.parameters(), lr=0.01)
    fn = ms.value_and_grad(lambda x, y: crit(m(x).sum(1), y.float()), None, opt.parameters)

    def inner(x, y):
        loss, gradients = fn(x, y)
        opt(gradients)
        return loss

    inner, n = jitted(inner, compiled), [0]

    def step(x, y):
        n[0] += 1
        rate = opt.param_groups[0]["lr"]
        if isinstance(rate, ms.Parameter):
            ms.ops.assign(rate, 0.1 / n[0])
        else:
            opt.param_groups[0]["lr"] = 0.1 / n[0]
        return (inner(x, y),)
    return step, batches(), m.parameters


def mixed_precision(compiled):
    """`auto_mixed_precision` with a loss scale and MindSpore's gradient clipping."""
    m, crit, scaler = Net(), nn.CrossEntropyLoss(), torch.amp.GradScaler("npu", init_scale=256.0, growth_interval=1000)
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    half = ms.amp.auto_mixed_precision(m, "O2")
    fn = ms.value_and_grad(lambda x, y: scaler.scale(crit(cast_to_adapter_tensor(half(x)).float(), y)), None, opt.parameters)

    def step(x, y):
        loss, gradients = fn(x, y)
        found = scaler.unscale_(opt, gradients)
        gradients = ms.ops.clip_by_global_norm(gradients if found is None else found, 0.5)
        scaler.step(opt, gradients)
        scaler.update()
        return (loss,)
    return jitted(step, compiled), batches(), m.parameters


def trainer(compiled):
    """Two losses, a static loss scale, `all_finite` and MindSpore's Momentum."""
    m, crit, scaler = Net(), nn.CrossEntropyLoss(), ms.amp.StaticLossScaler(128.0)
    opt = ms.nn.Momentum(m.trainable_params(), 0.1, 0.9)

    def forward(x, y):
        logits = m(x)
        a, b = crit(logits, y), 0.1 * (logits * logits).mean()
        return scaler.scale(a + b), a, b

    fn = ms.value_and_grad(forward, None, weights=opt.parameters, has_aux=True)

    def step(x, y):
        (loss, a, b), gradients = fn(x, y)
        loss, gradients = scaler.unscale(loss), scaler.unscale(gradients)
        if ms.amp.all_finite(gradients):
            opt(gradients)
        return loss, a, b
    return jitted(step, compiled), batches(), m.parameters


def graph_mode(compiled):
    """`value_and_grad` with `has_aux` and a PyTorch optimizer."""
    m, crit = Net(), nn.CrossEntropyLoss()
    opt = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, weight_decay=0.001)
    fn = ms.value_and_grad(lambda x, y: (lambda z: (crit(z, y), z))(m(x)), None, opt.parameters, has_aux=True)

    def step(x, y):
        (loss, logits), gradients = fn(x, y)
        opt(gradients)
        return loss, logits
    return jitted(step, compiled), batches(), m.parameters


def compiled_module(compiled):
    """`torch.compile` of only the module, with other batch sizes in between."""
    m = Net()
    model = torch.compile(m) if compiled else m
    opt = torch.optim.Adam(m.parameters(), lr=0.01)

    def step(x, y):
        model.train()
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        model.eval()
        with torch.no_grad():
            return loss, model(x)
    return step, batches((8, 4) * 7), m.parameters


def exported(compiled):
    """A MindIR export of a module that is also used under `ms.jit`. Loading yields MindSpore's own
    graph."""
    m = Net().eval()
    x = batches()[0][0]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net")
        ms.export(m, x, file_name=path, file_format="MINDIR")
        loaded = ms.nn.GraphCell(ms.load(path + ".mindir"))
    forward = jitted(lambda x: m(x), compiled)

    def step(x, y):
        with torch.no_grad():
            return forward(x), loaded(ms.Tensor(x))
    return step, batches(), m.parameters


def inference(compiled):
    """Logits, probabilities, and top-1 and top-2 counts under `no_grad`."""
    m = Net().eval()

    @torch.no_grad()
    def step(x, y):
        logits = m(x)
        right = logits.topk(2, 1)[1].t().eq(y.view(1, -1).expand(2, -1))
        return logits, torch.softmax(logits, 1), right[:1].reshape(-1).float().sum(0), right.reshape(-1).float().sum(0)
    return jitted(step, compiled), batches(), m.parameters


def groups(compiled):
    """MindSpore's Momentum with parameter groups selected by name."""
    m, crit = Net(), nn.CrossEntropyLoss()
    ps = m.trainable_params()
    plain = [p for p in ps if "bn" in p.name or "bias" in p.name]
    opt = ms.nn.Momentum([{"params": [p for p in ps if all(p is not q for q in plain)], "weight_decay": 0.1}, {"params": plain}, {"order_params": ps}], 0.1, 0.9)
    fn = ms.value_and_grad(lambda x, y: crit(m(x), y), None, opt.parameters)

    def step(x, y):
        loss, gradients = fn(x, y)
        opt(gradients)
        return (loss,)
    return jitted(step, compiled), batches(), m.parameters


#: flow -> (device-to-host, host-to-device) copies per step. Reads of values break the graph and are
#: copied; an assigned learning rate is on the host.
FLOWS = {assigned_rate: (1, 2), mixed_precision: (1, 0), trainer: (1, 0), graph_mode: (0, 0), compiled_module: (0, 0), exported: (0, 0), inference: (0, 0),
         groups: (0, 0)}


def figures():
    """Returns the totals so far: D2H and H2D copies from the log, eager kernel launches, fallbacks.
    """
    ms.runtime.synchronize()
    with open(os.environ["MINDTORCH_STANDIN_LOG"]) as f:
        copies = [line for line in f if '"copy"' in line]
    return sum('"D2H"' in c for c in copies), sum('"H2D"' in c for c in copies), replay.counters["eager"], sum(device_dispatch.FALLBACKS.values())


def run(flow, compiled):
    step, data, rest = flow(compiled)
    out, seen = [], []
    for batch in data:
        before = figures()
        found = step(*batch)
        seen.append([a - b for a, b in zip(figures(), before)])
        out += _graph_flows.numbers(*found)
    return [*out, *_graph_flows.numbers(*rest())], seen


if __name__ == "__main__":
    torch.set_default_device("npu")  # tensors that MindSpore's own ops create have no device
    for flow, copies in FLOWS.items():
        if sys.argv[1:] and flow.__name__ not in sys.argv[1:]:
            continue
        want, _ = run(flow, False)
        replay.counters.clear()
        replay.breaks.clear()
        ms.set_context(mode=ms.GRAPH_MODE)
        have, seen = run(flow, True)
        ms.set_context(mode=ms.PYNATIVE_MODE)
        assert len(have) == len(want)
        for a, b in zip(have, want):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=flow.__name__)
        print("COUNTERS", flow.__name__, dict(replay.counters), dict(replay.breaks), seen)
        assert replay.counters["graphs"] and replay.counters["graph_runs"] >= 3, flow.__name__
        for s in seen[-2:]:
            assert s == [*copies, 0, 0], (flow.__name__, seen, dict(replay.breaks))
    print("SAID", *sys.argv[1:])
