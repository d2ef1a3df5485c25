"""The npu device on MindSpore's Ascend target, with the CANN simulator instead of an NPU."""
import collections
import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def test_each_ascend_kernel_is_registered_once():
    """Each Ascend kernel is registered once. A duplicate would otherwise fail only at the start of
    a process with that target."""
    places = collections.defaultdict(list)
    for path in sorted((ROOT / "mindtorch/backend/mindspore/kernels").glob("*.py")):
        text = path.read_text()
        for found in re.finditer(r'@?kernel\(\s*"([^"]+)"[^\n]*target="Ascend"|@?ascend\(\s*"([^"]+)"', text):
            for name in (found[1] or found[2]).split():
                places[name].append(path.name)
    assert not {n: p for n, p in places.items() if len(p) > 1}


@pytest.mark.ascend
def test_models_train(standin, tmp_path):
    """Losses match the CPU device. There are no legacy (aclop) ops, no copies, no primitives on the
    host, and no more launches than in a handwritten version."""
    r = standin.run("benchmarks/ascend_launches.py", "--json", tmp_path / "found.json", status=None)
    assert r.returncode == 0 and not r.found.failed, r.stdout + r.stderr[-3000:]
    for row in json.loads((tmp_path / "found.json").read_text()):
        assert "error" not in row and not row["fallbacks"], row
        assert row["aclop"] == row["H2D"] == row["D2H"] == 0, row
        hand = row["by_hand"]
        assert row["launches"] <= hand["launches"] + hand["aclop"], (row["model"], row["more"], row["less"])


WRITES = """
import json, os
import mindspore as ms
import mindtorch.torch as mt
LOG = os.environ["MINDTORCH_STANDIN_LOG"]

def launches(f):
    ms.runtime.synchronize()
    at = os.path.getsize(LOG)
    f()
    ms.runtime.synchronize()
    with open(LOG) as log:
        log.seek(at)
        lines = [json.loads(s) for s in log]
    return [d.get("launch") or d.get("aclop") or d["copy"] for d in lines if d.keys() & {"launch", "aclop", "copy"}]

x, y, i = mt.ones(4, 6).to("npu"), mt.full((4, 6), 2.).to("npu"), mt.arange(24).reshape(4, 6).to("npu")
h = x.bfloat16()
assert h.dtype == mt.bfloat16 and (h * 0.5).dtype == mt.bfloat16
said = {}
for name, f in {"view": lambda: x[1:, ::2].t(), "number": lambda: x + 1.5, "again": lambda: x + 2.5, "half": lambda: h * 0.3, "add_": lambda: x.add_(y),
                "strided add_": lambda: x[1:3, ::2].add_(1), "mul_": lambda: x.t().mul_(0.5), "copy_": lambda: x[:, 1].copy_(y[0, :4]), "cast": lambda: x.copy_(i),
                "fill_": lambda: x.fill_(3), "zero_": lambda: x.zero_(), "item": lambda: y.sum().item(), "retyped": lambda: x.view(mt.int32)[0]}.items():
    said[name] = launches(f)
print("SAID", json.dumps(said))
values = [x.sum().item(), mt.zeros(0, 3).to("npu").cpu().shape, mt.tensor(2.).to("npu").item(), h.cpu().float().sum().item()]
print("VALUES", json.dumps(values))
"""


def program(standin, folder, text):
    """Runs a program in the simulator and returns its output and launches."""
    path = folder / "program.py"
    path.write_text(text)
    return standin.run(path)


@pytest.mark.ascend
def test_views_and_writes(standin, tmp_path):
    r = program(standin, tmp_path, WRITES)
    said = json.loads(r.said("SAID"))
    assert said == {"view": [], "number": ["aclnnAdds"], "again": ["aclnnAdds"], "half": ["aclnnMuls"], "add_": ["aclnnInplaceAdd"],
                    "strided add_": ["aclnnInplaceAdds"], "mul_": ["aclnnInplaceMuls"], "copy_": ["aclnnInplaceCopy"], "cast": ["aclnnInplaceCopy"],
                    "fill_": ["aclnnInplaceFillScalar"], "zero_": ["aclnnInplaceZero"], "item": ["aclnnReduceSum", "D2H"], "retyped": []}
    assert json.loads(r.said("VALUES")) == [0.0, [0, 3], 2.0, 24.0]


HEADS = """
import mindtorch.torch as mt
from mindtorch.core.device import device_dispatch

def both(make, *inputs, **kw):
    mt.manual_seed(0)
    module = make()
    module.train(False)
    found = []
    for where in "cpu", "npu":
        m = module.to(where)
        m.zero_grad()
        xs = [x.detach().to(where).requires_grad_(x.is_floating_point()) for x in inputs]
        y = m(*xs, **{k: v.to(where) if isinstance(v, mt.Tensor) else v for k, v in kw.items()})
        y = y[0] if isinstance(y, tuple) else y
        (y * y).sum().backward()
        found.append([t.detach().cpu() for t in (y, *[x.grad for x in xs if x.requires_grad], *[p.grad for p in m.parameters()])])
    for a, b in zip(*found):
        assert a.shape == b.shape and mt.allclose(a, b, atol=1e-4, rtol=1e-4), (a - b).abs().max()

def attend(first, *same, **kw):
    class Net(mt.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = mt.nn.MultiheadAttention(8, 2, batch_first=first, **kw)

        def forward(self, *xs, **more):
            xs = [xs[i] for i in same]
            return self.a(*xs, need_weights=False, **more)
    return Net

x, y, lone = mt.randn(3, 5, 8), mt.randn(3, 4, 8), mt.randn(1, 5, 8)
pad = mt.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1], [0] * 5]).bool()
causal = mt.ones(5, 5).tril().logical_not()
for first in True, False:
    a, b, p = (x, y, pad) if first else (x.transpose(0, 1).contiguous(), y.transpose(0, 1).contiguous(), pad)
    both(attend(first, 0, 0, 0), a)
    both(attend(first, 0, 0, 0, bias=False), a, key_padding_mask=p)
    both(attend(first, 0, 0, 0), a, key_padding_mask=p, attn_mask=causal)
    both(attend(first, 0, 1, 1), b, a, key_padding_mask=p)
    both(attend(first, 0, 1, 2), b, a, a * 2)
    both(attend(first, 0, 1, 1, kdim=8, vdim=8), a, b)
    both(attend(first, 0, 0, 0), lone, attn_mask=causal if first else None)
    both(attend(first, 0, 0, 0), a, attn_mask=mt.randn(6, 5, 5).to(a.dtype), key_padding_mask=mt.zeros(3, 5).masked_fill(p, -mt.inf))
both(attend(True, 0, 0, 0), x[0], attn_mask=causal)
both(lambda: mt.nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True), x, y, tgt_is_causal=True, tgt_mask=causal.float().masked_fill(causal, -mt.inf))
assert not device_dispatch.FALLBACKS, device_dispatch.FALLBACKS
"""


@pytest.mark.ascend
def test_attention_heads_through_views(standin, tmp_path):
    program(standin, tmp_path, HEADS)


CONVOLUTIONS = """
import mindtorch.torch as mt
from mindtorch.core.device import device_dispatch
F = mt.nn.functional

def both(f, *inputs, needs):
    found = []
    for where in "cpu", "npu":
        xs = [x.detach().to(where).requires_grad_(n) for x, n in zip(inputs, needs)]
        y = f(*xs)
        g = mt.autograd.grad((y * y).sum(), [x for x in xs if x.requires_grad])
        found.append([t.detach().cpu() for t in (y, *g)])
    for a, b in zip(*found):
        assert a.shape == b.shape and mt.allclose(a, b, atol=1e-3, rtol=1e-4), (a - b).abs().max()

mt.manual_seed(0)
x, w, b = mt.randn(2, 4, 7, 8), mt.randn(6, 2, 3, 3), mt.randn(6)
t, c = mt.randn(4, 3, 3, 2), mt.randn(6)
for needs in (1, 1, 1), (0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 0, 1), (1, 0, 0):
    needs = [bool(n) for n in needs]
    both(lambda x, w, b: F.conv2d(x, w, b, 2, 1, 1, 2), x, w, b, needs=needs)
    both(lambda x, w, b: F.conv2d(x, w, b, (1, 2), (2, 0), (1, 2), 2), x, w, b, needs=needs)
    both(lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2), x, t, c, needs=needs)
    both(lambda x, w, b: F.conv_transpose2d(x, w, b, (3, 2), 0, (1, 0), 2), x, t, c, needs=needs)
assert not device_dispatch.FALLBACKS, device_dispatch.FALLBACKS
"""


@pytest.mark.ascend
def test_convolutions(standin, tmp_path):
    """One launch computes all gradients."""
    program(standin, tmp_path, CONVOLUTIONS)


@pytest.mark.ascend
def test_ascend_ops_match_cpu(standin):
    """Values and gradients of the ops with Ascend kernels match the CPU device, without host
    fallbacks."""
    r = standin.run(ROOT / "tests" / "device" / "_ascend_ops.py", MINDTORCH_NPU_FALLBACK="0", status=None)
    assert ", 0 differ" in r.stdout and not r.returncode and not r.found.failed, r.stdout[-3000:] + r.stderr[-3000:]
