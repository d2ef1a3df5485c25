"""Compiled against eager: real torch eager, mindtorch eager and mindtorch compiled, alternating, one process each.

    python benchmarks/compiled.py [--models mlp,lenet,...] [--rounds 5] [--steps 8] [--sides torch,eager,compiled]

Medians of wall time per training step (SGD with momentum), ratios of medians within each round (their median), losses
compared.  What is compiled is the model; loss, backward and optimizer are called as in any script.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def _models(torch):
    sys.path.insert(0, HERE)
    import models
    from models import _arrays, _fill, _step
    nn, F = torch.nn, torch.nn.functional
    ce = nn.CrossEntropyLoss()

    def classify(net, x, y):
        return ce(net(x), y)

    class Residual(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.relu = nn.ReLU(inplace=True)
            self.down = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride != 1 or i != o else None

        def forward(self, x):
            keep = x if self.down is None else self.down(x)
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            y += keep
            return self.relu(y)

    class Attention(nn.Module):
        def __init__(self, width, heads, causal):
            super().__init__()
            self.qkv, self.out, self.heads, self.causal = nn.Linear(width, 3 * width), nn.Linear(width, width), heads, causal

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(x).split(c, dim=2)
            q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return self.out(y.transpose(1, 2).contiguous().view(b, t, c))

    class Block(nn.Module):
        def __init__(self, width, heads, causal):
            super().__init__()
            self.n1, self.att, self.n2 = nn.LayerNorm(width), Attention(width, heads, causal), nn.LayerNorm(width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            x = x + self.att(self.n1(x))
            return x + self.mlp(self.n2(x))

    class Transformer(nn.Module):
        def __init__(self, causal, vocabulary=1000, width=128, length=64):
            super().__init__()
            self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block(width, 4, causal) for _ in range(4)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary if causal else 2, bias=False)
            self.causal = causal

        def forward(self, i):
            x = self.token(i) + self.place(torch.arange(i.shape[1]))
            for b in self.blocks:
                x = b(x)
            x = self.norm(x)
            return self.head(x).flatten(0, 1) if self.causal else self.head(x[:, 0])

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(64, 128, 2, batch_first=True), nn.Linear(128, 10)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])

    def resnet18():
        layers, i = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
        for o, s in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
            layers.append(Residual(i, o, s))
            i = o
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100))

    def gan():
        def up(i, o, *a):
            return [nn.ConvTranspose2d(i, o, *a, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
        return nn.Sequential(nn.Unflatten(1, (32, 1, 1)), *up(32, 128, 4, 1, 0), *up(128, 64, 4, 2, 1), *up(64, 32, 4, 2, 1),
                             nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())

    made = {
        "mlp": lambda: (nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)),
                        (((64, 784), None), ((64,), 10)), classify),
        "lenet": lambda: (nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                                        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                                        nn.Linear(84, 10)), (((64, 1, 28, 28), None), ((64,), 10)), classify),
        "small_resnet": lambda: (nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
                                               Residual(32, 32, 1), Residual(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                               nn.Linear(64, 10)), (((16, 3, 32, 32), None), ((16,), 10)), classify),
        "resnet18": lambda: (resnet18(), (((4, 3, 64, 64), None), ((4,), 100)), classify),
        "gpt2": lambda: (Transformer(True), (((4, 64), 1000), ((256,), 1000)), classify),
        "bert": lambda: (Transformer(False), (((4, 64), 1000), ((4,), 2)), classify),
        "lstm": lambda: (Lstm(), (((16, 20, 64), None), ((16,), 10)), classify),
        "gan": lambda: (gan(), (((16, 32), None), ((16, 3, 32, 32), None)), lambda n, z, y: F.mse_loss(n(z), torch.tanh(y))),
    }
    del models
    return made, _arrays, _fill, _step


def build(side, model):
    """step() of one model for one side."""
    if side != "torch":
        sys.path.insert(0, os.path.dirname(HERE))
        import mindtorch.torch as torch
    else:
        import torch
    made, arrays, fill, step = _models(torch)
    net, specs, loss = made[model]()
    fill(torch, net)
    with torch.no_grad():
        for m in net.modules():
            if isinstance(m, (torch.nn.BatchNorm2d, torch.nn.LayerNorm)):
                m.weight.fill_(1)
    data = [torch.from_numpy(a) for a in arrays(0, *specs)]
    params = net
    if side == "compiled":
        net = torch.compile(net)
    f = step(torch, params, lambda _, *d: loss(net, *d), data)
    return f


def worker(side, model):
    """Answers each line 'n' on stdin with the wall times of n steps."""
    step = build(side, model)
    print(json.dumps({"losses": [step() for _ in range(5)]}), flush=True)
    for line in sys.stdin:
        walls = []
        for _ in range(int(line)):
            w = time.perf_counter()
            step()
            walls.append(time.perf_counter() - w)
        print(json.dumps({"wall": walls}), flush=True)


def _answer(p):
    while True:
        line = p.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended early (status {p.wait()})")
        if line.startswith("{"):
            return json.loads(line)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--models", default="mlp,lenet,small_resnet,resnet18,gpt2,bert,lstm,gan")
    ap.add_argument("--sides", default="torch,eager,compiled")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--steps", type=int, default=8)
    ap.add_argument("--worker", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.worker:
        return worker(a.worker, a.models)
    sides = a.sides.split(",")
    print(f"{'model':13s}" + "".join(f"{s:>10s}" for s in sides) + "   ms;  " + ", ".join(f"{s}/{sides[0]}" for s in sides[1:]))
    for model in a.models.split(","):
        procs, walls, losses = {}, {s: [] for s in sides}, {}
        for s in sides:
            procs[s] = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", s, "--models", model],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            losses[s] = _answer(procs[s])["losses"]
        for _ in range(a.rounds):
            for s, p in procs.items():
                p.stdin.write(f"{a.steps}\n")
                p.stdin.flush()
                walls[s].append(statistics.median(_answer(p)["wall"]))
        for p in procs.values():
            p.stdin.close()
            p.wait()
        ratios = [statistics.median(x / y for x, y in zip(walls[s], walls[sides[0]])) for s in sides[1:]]
        same = all(math.isclose(x, y, rel_tol=2e-3, abs_tol=1e-4) for s in sides for x, y in zip(losses[s], losses[sides[0]]))
        print(f"{model:13s}" + "".join(f"{1e3 * statistics.median(walls[s]):10.2f}" for s in sides) + "      "
              + "  ".join(f"{r:5.2f}" for r in ratios) + ("" if same else f"   losses differ: {losses}"), flush=True)


if __name__ == "__main__":
    sys.exit(main())
