"""`torch.compile(step, backend="mindspore")` on MindSpore's Ascend target, with the CANN simulator
instead of an NPU."""
import json

import pytest

PROGRAM = """
import json, os, sys
import mindspore as ms
ms.set_device("Ascend")
sys.path.insert(0, "benchmarks")
import mindtorch.torch as torch
from mindtorch.core.device import device_dispatch
from mindtorch.core.compile import replay
import ascend_launches as models
log = models.Log(os.environ["MINDTORCH_STANDIN_LOG"])
STEPS = 6
found = {}

def trained(name, compiled):
    places = []
    def mark():
        ms.runtime.synchronize()
        places.append((log.here(), replay.counters["eager"]))
    losses = models.train(torch, name, "npu", STEPS, mark, compiled)
    launches, aclops, copies = log.between(places[-2][0], places[-1][0])
    return {"losses": losses, "launches": sum(launches.values()) + sum(aclops.values()), "copies": sum(copies.values()), "alone": places[-1][1] - places[-2][1]}

# (All of them eagerly first: backward passes are compiled where anything has been.)
eager = {name: trained(name, False) for name in sys.argv[1:]}
for name in sys.argv[1:]:
    replay.counters.clear()
    replay.breaks.clear()
    before = sum(device_dispatch.FALLBACKS.values())
    found[name] = {"eager": eager[name], "compiled": trained(name, True), "runs": replay.counters["graph_runs"], "breaks": dict(replay.breaks),
                   "fallbacks": sum(device_dispatch.FALLBACKS.values()) - before}
print("FOUND", json.dumps(found))
"""


@pytest.mark.ascend
@pytest.mark.parametrize("names", [("mlp", "lenet", "unet", "cnn_adam", "cnn_adamw"), ("resnet", "transformer"), ("gpt", "bert")], ids=" ".join)
def test_models(standin, tmp_path, names):
    """Losses match the eager step. The steady state is one graph, with no eager kernel, no copy, no
    fallback, and at most as many launches."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    r = standin.run(path, *names, hook=False)
    for name, found in json.loads(r.said("FOUND")).items():
        eager, compiled = found["eager"], found["compiled"]
        assert max(abs(a - b) / max(1, abs(b)) for a, b in zip(compiled["losses"], eager["losses"])) <= 1e-6, (name, found)
        assert found["runs"] >= 2 and not found["breaks"] and not found["fallbacks"] and not compiled["alone"] and not compiled["copies"], (name, found)
        assert compiled["launches"] <= eager["launches"], (name, compiled["launches"], eager["launches"])


NORMS = """
import json
import mindspore as ms
ms.set_device("Ascend")
import mindtorch.torch as torch
from mindtorch.core.compile import replay
nn = torch.nn

def eval_last(bn, x):
    y = bn(x) + bn(x + 1)
    bn.eval()
    y = y + bn(x * 2)
    bn.train()
    return y

def scaled(bn, x):
    bn.running_mean.mul_(0.5)
    y = bn(x)
    bn.running_var.add_(1.)
    return y + bn(x * 3)

def cloned(bn, x):
    before = bn.running_mean.clone()
    y = bn(x)
    return y + bn.running_mean.clone().sum() + bn(x + 1) * before.sum()

#: (whether it is one graph, what is done with a norm)
USES = {"once": (True, lambda bn, x: bn(x)), "same": (True, lambda bn, x: bn(x) + bn(x) * 2), "two": (True, lambda bn, x: bn(x) + bn(x * 2)),
        "read": (True, lambda bn, x: bn.running_mean.sum() + bn(x) + bn.running_var.sum()), "eval_last": (True, eval_last), "scaled": (False, scaled),
        "cloned": (True, cloned)}

def trained(use, affine, compiled):
    torch.manual_seed(0)
    bn, conv = nn.BatchNorm2d(4, affine=affine).to("npu"), nn.Conv2d(3, 4, 3).to("npu")
    opt = torch.optim.SGD([*bn.parameters(), *conv.parameters()], lr=1e-3, momentum=0.9)
    def step(x):
        opt.zero_grad()
        y = use(bn, conv(x))
        loss = (y * y.tanh()).mean()
        loss.backward()
        opt.step()
        return loss
    if compiled:
        step = torch.compile(step, backend="mindspore")
    g = torch.Generator().manual_seed(3)
    losses = [float(step(torch.randn(2, 3, 6, 6, generator=g).to("npu"))) for i in range(5)]
    return [*losses, *bn.running_mean.tolist(), *bn.running_var.tolist(), *conv.weight.detach().cpu().flatten().tolist()]

found = {}
for name, (whole, use) in USES.items():
    for affine in (True, False):
        want = trained(use, affine, False)
        replay.counters.clear()
        have = trained(use, affine, True)
        found[f"{name} {affine}"] = max(abs(a - b) for a, b in zip(want, have)), replay.counters["graph_runs"], whole, replay.counters["breaks"]
print("FOUND", json.dumps(found))
"""


@pytest.mark.ascend
def test_norms(standin, tmp_path):
    """Running statistics match eager steps when one norm is called several times and other code
    reads or writes the statistics."""
    path = tmp_path / "program.py"
    path.write_text(NORMS)
    for name, (apart, runs, whole, breaks) in json.loads(standin.run(path, hook=False).said("FOUND")).items():
        assert apart <= 1e-5 and whole == (not breaks) and (runs or not whole), (name, apart, runs, breaks)


@pytest.mark.ascend
def test_cat_reads_sources_of_copied_views(standin):
    """A concatenation reads directly from the source of copied views, unless the source was
    modified meanwhile. Kernels that do not support views receive none."""
    found = json.loads(standin.run("tests/device/_ascend_joined.py", hook=False).said("FOUND"))
    assert len(found) == 14 and all(found.values()), found
