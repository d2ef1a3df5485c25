"""`scan` compared with the names that scripts really use: the scripts run, every looked-up name is
recorded, and the scan must list all of them."""
import json
import pathlib

import pytest

import _names_used
from mindtorch.tools._api_scan import Facts, Found, scan

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Written for this test; each script accesses names in other ways.
SCRIPTS = {
    "aliases": """
        import torch as t, torch.nn as N
        import torch.nn.functional as F
        from torch import nn, optim as O
        from torch.nn.functional import softmax as sm, relu
        lin = N.Linear(3, 4)
        opt = O.SGD(lin.parameters(), lr=0.1)
        y = sm(relu(lin(t.ones(2, 3))), dim=-1)
        F.cross_entropy(y, t.tensor([0, 1])).backward()
        opt.step()
        act = t.tanh
        print(act(y).sum().item(), t.nn.functional.gelu(y).shape)
    """,
    "chains": """
        import torch
        nn = getattr(torch, "nn")
        print(getattr(torch.nn, "GELU")()(torch.zeros(2)))
        make = torch.nn.init.xavier_uniform_
        w = make(torch.empty(3, 3))
        print(torch.linalg.norm(w), torch.fft.fft(w).abs().max(), torch.special.erf(w).mean())
        print((torch
               .arange(6)
               .view(2, 3)
               .float()
               .mean(dim=1)))
        cell = torch.nn.LSTMCell
        print(cell(2, 3)(torch.ones(1, 2))[0].shape, hasattr(torch, "no_such_thing"))
    """,
    "stars": """
        from torch.nn import *
        from torch.optim.lr_scheduler import *
        import torch
        model = Sequential(Linear(2, 2), ReLU(), Dropout(0.1))
        opt = torch.optim.Adam(model.parameters())
        sched = StepLR(opt, 1)
        model(torch.ones(1, 2)).sum().backward(); opt.step(); sched.step()
    """,
    "fallbacks": """
        import torch
        try:
            from torch import something_newer
        except ImportError:
            something_newer = None
        try:
            torch.not_yet_there(3)
        except AttributeError:
            pass
        if torch.cuda.is_available():
            device = torch.device("cuda")
        elif hasattr(torch.backends, "mps") and torch.backends.mps.is_available():
            device = torch.device("mps")
        else:
            device = torch.device("cpu")
        print(torch.zeros(2, device=device), torch.__version__)
    """,
    "methods": """
        import torch
        x = torch.randn(4, 5, requires_grad=True)
        y = (x * 2).clamp(min=0).permute(1, 0).contiguous().view(-1, 2)
        z = x.softmax(1).log().neg().sum()
        z.backward(retain_graph=True)
        print(x.grad.abs().max().item(), y.t().shape, x.detach().numpy().sum(), x.is_leaf, z.grad_fn)
        for row in x.unbind(0):
            row.add_(1) if False else row.norm()
        values, indices = x.topk(2)
        print(values.masked_fill(indices > 2, 0.0).tolist())
    """,
    "training": """
        import math
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split
        from torch.nn.utils import clip_grad_norm_
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

        class Net(nn.Module):
            def __init__(self):
                super(Net, self).__init__()
                self.rnn = nn.GRU(3, 4, batch_first=True)
                self.out = nn.Linear(4, 2)
                self.register_buffer("scale", torch.ones(1))

            def forward(self, x, lengths):
                packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
                h, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
                return self.out(h[:, -1] * self.scale)

        data = TensorDataset(pad_sequence([torch.ones(2, 3), torch.ones(4, 3)], batch_first=True), torch.tensor([0, 1]))
        net = Net()
        opt = torch.optim.AdamW(net.parameters(), lr=1e-2, betas=(0.9, 0.99))
        plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=2)
        for epoch in range(2):
            for x, y in DataLoader(data, batch_size=2):
                with torch.autograd.set_detect_anomaly(False):
                    loss = nn.CrossEntropyLoss()(net(x, torch.tensor([2, 4])), y)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                clip_grad_norm_(net.parameters(), 1.0)
                opt.step()
            plan.step()
        net.eval()
        with torch.no_grad(), torch.inference_mode():
            print(net(x, torch.tensor([2, 4])).argmax(-1))
        torch.save(net.state_dict(), "weights.pt")
        net.load_state_dict(torch.load("weights.pt", map_location="cpu", weights_only=True))
    """,
    "own_function": """
        import torch
        from torch.autograd import Function

        class Double(Function):
            @staticmethod
            def forward(ctx, x: torch.Tensor) -> torch.Tensor:
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return torch.full_like(x, 2.0) * g

        @torch.no_grad()
        def show(x):
            return x.mean()
        x = torch.ones(3, requires_grad=True)
        Double.apply(x).sum().backward()
        print(show(x.grad), torch.autograd.grad(Double.apply(x).sum(), x))
        print(torch.finfo(torch.float32).eps, isinstance(x, torch.Tensor), torch.jit.is_scripting())
    """,
    "own_files": """
        import torch
        from own_parts import *
        from own_parts import functional as G, torch as t

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.part = Part(3)

            def forward(self, x):
                return G.relu(t.neg(nn.functional.silu(self.part(x))))
        print(Net()(torch.ones(2, 3)).sum().item())
    """,
    # ---- names that mindtorch does not have
    "missing_function": "import torch\nx = torch.ones(2)\nprint(torch.median_of_means(x))\n",
    "missing_module": "import torch\nx = 1\nfrom torch.no_such_module import thing\n",
    "missing_method": "import torch\nx = torch.ones(2)\ny = x + 1\nprint(y.median_of_means())\n",
    "refused_method": "import torch\nfrom torch import nn\n\n\nclass N(nn.Module):\n    def forward(self, x):\n"
                      "        return x.to_mkldnn()\n\n\nN()(torch.ones(2, 2))\n",
    "refused_somewhere": "import torch\n\n\ndef f(a):\n    return a.refine_names('N')\n\n\nf(torch.ones(2))\n",
    "refused_by_another_name": "import torch\nname = torch.ops.mindtorch_has_no.such_op\nname(3)\n",
}
PARTS = """
    import torch
    import torch.nn as nn
    from torch.nn import functional

    class Part(nn.Linear):
        def __init__(self, n):
            super().__init__(n, n)
"""
REFUSED = {"missing_function": 3, "missing_module": 3, "missing_method": 4, "refused_method": 7, "refused_somewhere": 5,
           "refused_by_another_name": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Returns {name: (path, names that the run used)}, all in one process under mindtorch."""
    from conftest import Process
    process = Process(tmp_path_factory.mktemp("scripts"))
    paths = {n: process.file(f"{n}/{n}.py", t) for n, t in SCRIPTS.items()}
    process.file("own_files/own_parts.py", PARTS)
    words = [w for p in paths.values() for w in (p, "--")]
    done = process.run(pathlib.Path(_names_used.__file__), "out.json", *words[:-1])
    assert done.returncode == 0, done.stderr[-3000:]
    reports = json.loads((process.folder / "out.json").read_text())
    return {n: (p, reports[str(p)]) for n, p in paths.items()}


@pytest.fixture(scope="module")
def facts():
    return Facts()


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_name_is_missed(name, runs, facts):
    path, report = runs[name]
    found, failed = scan([str(path.parent)], facts)
    assert not failed and _names_used.missed(report, found) == []
    lines = {place[1] for place in (*report["missing"], *report["refused"])}
    if name in REFUSED:
        assert REFUSED[name] in lines and report["refused"]
        assert any(f.line == REFUSED[name] and f.verdict != "supported" for f in found)
    else:
        assert not report["refused"] and len(report["used"]) >= 5
        # Names that worked are not reported as unsupported.
        ran = {(u[1], u[2]) for u in report["used"]}
        assert not [f for f in found if f.verdict == "unsupported" and (f.line, f.name.rpartition(".")[2]) in ran]


def test_missed_name_is_detected(runs):
    path, report = runs["aliases"]
    assert len(_names_used.missed(report, [])) > 8
    path, report = runs["missing_function"]
    said = _names_used.missed(report, [Found(str(path), 2, 1, "torch.ones", "supported")])
    assert any(x.startswith("not announced") and "median_of_means" in x for x in said)
    assert any(x.startswith("refused") for x in said)


@pytest.mark.slow
def test_the_examples(process, facts):
    pytest.importorskip("sklearn")
    out, examples = process.folder / "out.json", ROOT / "examples"
    use = process.file("use/use.py", f"""
        import sys
        sys.path.insert(0, {str(examples)!r})
        import torch, resnet18
        net, x = resnet18.build_model()
        resnet18.wrong_eps(net)
        net(x).sum().backward()
    """)
    done = process.run(pathlib.Path(_names_used.__file__), out, examples / "digits.py", "--epochs", "1", "--", use)
    assert done.returncode == 0, done.stderr[-3000:]
    (digits, report), _ = json.loads(out.read_text()).items()
    found, failed = scan([str(examples)], facts)
    assert not failed and not [f for f in found if f.verdict == "unsupported"]
    assert _names_used.missed(report, found) == [] and len(report["used"]) > 30


def test_enabling_import_is_resolved_without_running_it(process):
    """Where PyTorch is loaded, enabling would be an error; elsewhere it would change what this
    process imports."""
    script = process.file("some.py", """
        from mindtorch.tools import mstorch_enable
        import mindtorch.tools.mstorch_disable
        import torch
    """)
    process.ok(f"""
        import sys
        from mindtorch.tools._api_scan import Facts, scan
        found, failed = scan([{str(script)!r}], Facts())
        assert not failed and not [f for f in found if f.verdict == "unsupported"], found
        assert "mindtorch.tools.mstorch_enable" not in sys.modules and "torch" not in sys.modules
    """)
