"""Kernel launches and host copies of a training step on MindSpore's Ascend target.

    python -m mindtorch standin run --engine torch benchmarks/ascend_launches.py [--log FILE] [--steps N] [--kernels] [--json FILE] [model ...]

Reads the log of the CANN simulator, which has one JSON object per line: {"launch": kernel},
{"aclop": kernel} (MindSpore's old path, compiled online) or {"copy": "H2D" or "D2H", "bytes": n}.
`--log` (default: $MINDTORCH_STANDIN_LOG) is that file.

The figures of each model are shown next to those of the same model hand-written with mindspore.mint
(ascend_by_hand.py), with the same initial weights. The losses of both are compared with the losses
on the cpu device. The exit status is 1 if losses differ by more than 1e-4 (relative to the larger
of 1 and the loss), if a step raises, or if it takes more launches than the hand-written step.
"""
import argparse
import collections
import contextlib
import json
import os
import sys
import traceback
import warnings

# ------------------------------------------------------------------ models: name -> (torch, nn, F) -> model, batch(i), loss(model, batch), optimizer
def mlp(torch, nn, F):
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    return model, _images(torch, 32, 784), _classes(F), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def lenet(torch, nn, F):
    model = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return model, _images(torch, 8, 1, 28, 28), _classes(F), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def _cnn(torch, nn):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1, bias=False),
                         nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))


def cnn_adam(torch, nn, F):
    model = _cnn(torch, nn)
    return model, _images(torch, 4, 3, 16, 16), _classes(F), torch.optim.Adam(model.parameters(), lr=1e-3)


def cnn_adamw(torch, nn, F):
    model = _cnn(torch, nn)
    return model, _images(torch, 4, 3, 16, 16), _classes(F), torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)


def resnet(torch, nn, F):
    class Block(nn.Module):
        def __init__(self, n, m, stride):
            super().__init__()
            self.a, self.na = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m)
            self.b, self.nb = nn.Conv2d(m, m, 3, 1, 1, bias=False), nn.BatchNorm2d(m)
            self.short = nn.Sequential(nn.Conv2d(n, m, 1, stride, bias=False), nn.BatchNorm2d(m)) if stride > 1 or n != m else None

        def forward(self, x):
            y = self.nb(self.b(F.relu(self.na(self.a(x)))))
            return F.relu(y + (x if self.short is None else self.short(x)))

    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
                          Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return model, _images(torch, 4, 3, 16, 16), _classes(F), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def transformer(torch, nn, F):
    class Layer(nn.Module):
        def __init__(self, act):
            super().__init__()
            self.n1, self.qkv, self.proj = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
            self.n2, self.f1, self.f2, self.act = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32), act

        def forward(self, x):
            q, k, v = [a.reshape(4, 12, 4, 8).transpose(1, 2) for a in self.qkv(self.n1(x)).split(32, -1)]
            a = torch.softmax(q @ k.transpose(-1, -2) * 8 ** -.5, -1) @ v
            x = x + self.proj(a.transpose(1, 2).reshape(4, 12, 32))
            return x + self.f2(self.act(self.f1(self.n2(x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.pos = nn.Embedding(50, 32), nn.Parameter(torch.randn(12, 32) * .1)
            self.layers, self.norm, self.out = nn.Sequential(Layer(F.gelu), Layer(F.silu)), nn.LayerNorm(32), nn.Linear(32, 50)

        def forward(self, t):
            return self.out(self.norm(self.layers(self.emb(t) + self.pos))).reshape(48, 50)

    model = Net()
    return model, _tokens(torch, 4, 12, 50, True), _classes(F), torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)


def gpt(torch, nn, F):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.qkv, self.proj, self.n2 = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)
            self.mlp = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))

        def forward(self, x):
            b, t, c = x.size()
            q, k, v = [a.view(b, t, 4, c // 4).transpose(1, 2) for a in self.qkv(self.n1(x)).split(c, dim=2)]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).contiguous().view(b, t, c)
            x = x + self.proj(y)
            return x + self.mlp(self.n2(x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos = nn.Embedding(50, 32), nn.Embedding(16, 32)
            self.blocks, self.norm, self.head = nn.ModuleList([Block() for _ in range(2)]), nn.LayerNorm(32), nn.Linear(32, 50, bias=False)
            self.head.weight = self.tok.weight

        def forward(self, t):
            x = self.tok(t) + self.pos(torch.arange(t.shape[1], device=t.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)).view(-1, 50)

    model = Net()

    def loss(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1])
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    return model, _tokens(torch, 4, 12, 50, True), loss, _clipped(torch, model, opt)


def bert(torch, nn, F):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.pos, self.kind = nn.Embedding(50, 32, padding_idx=0), nn.Embedding(16, 32), nn.Embedding(2, 32)
            self.norm = nn.LayerNorm(32)
            layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0., activation="gelu", batch_first=True)
            self.encoder, self.pool, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 32), nn.Linear(32, 2)

        def forward(self, t):
            at = torch.arange(t.shape[1], device=t.device)
            x = self.norm(self.word(t) + self.pos(at) + self.kind(torch.zeros_like(t)))
            x = self.encoder(x, src_key_padding_mask=t == 0)
            return self.out(torch.tanh(self.pool(x[:, 0])))

    model = Net()

    def batch(i):
        r = torch.Generator().manual_seed(i)
        t = torch.randint(1, 50, (4, 12), generator=r)
        t[1, 8:], t[3, 5:] = 0, 0
        return t, torch.randint(0, 2, (4,), generator=r)
    return model, batch, _classes(F), torch.optim.AdamW(model.parameters(), lr=1e-3)


def unet(torch, nn, F):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1, self.n1, self.c2, self.n2 = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.Conv2d(8, 16, 3, 2, 1), nn.GroupNorm(4, 16)
            self.up, self.c3, self.c4 = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(8, 3, 1)

        def forward(self, x):
            a = F.leaky_relu(self.n1(self.c1(x)), 0.1)
            u = torch.cat((self.up(F.gelu(self.n2(self.c2(a)))), a), 1)
            return self.c4(F.leaky_relu(self.c3(u), 0.1))

    model = Net()

    def batch(i):
        r = torch.Generator().manual_seed(i)
        return torch.randn(2, 3, 16, 16, generator=r), torch.randn(2, 3, 16, 16, generator=r)

    def loss(model, batch):
        u = model(batch[0])
        return F.smooth_l1_loss(u, batch[1]) + F.mse_loss(u, batch[1])
    return model, batch, loss, torch.optim.Adam(model.parameters(), lr=2e-3)


MODELS = {f.__name__: f for f in (mlp, lenet, cnn_adam, cnn_adamw, resnet, transformer, gpt, bert, unet)}


def _images(torch, n, *size):
    def batch(i):
        r = torch.Generator().manual_seed(i)
        return torch.randn(n, *size, generator=r), torch.randint(0, 10, (n,), generator=r)
    return batch


def _tokens(torch, n, length, words, flat):
    def batch(i):
        r = torch.Generator().manual_seed(i)
        return torch.randint(0, words, (n, length), generator=r), torch.randint(0, words, (n * length,) if flat else (n,), generator=r)
    return batch


def _classes(F):
    return lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])


def _clipped(torch, model, opt):
    """Makes `opt` clip the gradients by their norm before each step, and returns it."""
    step = opt.step

    def clipped():
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step()
    opt.step = clipped
    return opt


# ------------------------------------------------------------------ steps
def train(torch, name, device, steps, mark=lambda: None, compiled=False):
    """Returns the losses of `steps` training steps on a device.

    mark() is called right before and after each step. With `compiled`, each step runs as one graph.
    """
    torch.manual_seed(1)
    model, batch, loss, opt = MODELS[name](torch, torch.nn, torch.nn.functional)
    model.to(device)
    out = []

    def step(*data):
        opt.zero_grad()
        value = loss(model, data)
        value.backward()
        opt.step()
        return value
    if compiled:
        step = torch.compile(step, backend="mindspore")
    for i in range(steps):
        data = [b.to(device) for b in batch(i)]
        mark()
        value = step(*data)
        mark()
        out.append(value)
    return [float(v.detach()) for v in out]


def initial(torch, name):
    """Returns the initial state of train(): (weights, buffers), as arrays by name."""
    torch.manual_seed(1)
    model = MODELS[name](torch, torch.nn, torch.nn.functional)[0]
    return {k: v.detach().numpy() for k, v in model.named_parameters()}, {k: v.numpy() for k, v in model.named_buffers() if v.is_floating_point()}


def batches(torch, name, steps):
    batch = MODELS[name](torch, torch.nn, torch.nn.functional)[1]
    return [[b.numpy() for b in batch(i)] for i in range(steps)]


class Log:
    """Access to the entries of a log between two offsets."""

    def __init__(self, path):
        self.path = path
        open(path, "a").close()

    def here(self):
        return os.path.getsize(self.path)

    def between(self, a, z):
        """Returns Counters of (launches by kernel, aclops by kernel, copies by direction)."""
        launches, aclops, copies = collections.Counter(), collections.Counter(), collections.Counter()
        with open(self.path) as f:
            f.seek(a)
            for line in f.read(z - a).splitlines():
                said = json.loads(line)
                if "launch" in said:
                    launches[said["launch"].removeprefix("aclnn")] += 1
                elif "aclop" in said:
                    aclops[said["aclop"]] += 1
                elif "copy" in said:
                    copies[said["copy"]] += 1
        return launches, aclops, copies


def measure(torch, ms, name, log, steps):
    """Returns one model's figures: its last step, the last hand-written step, and the losses."""
    places = []

    def mark():
        ms.runtime.synchronize()
        places.append(log.here())
    found = {"model": name}
    with _said_of_fallbacks() as fallbacks:
        try:
            losses = train(torch, name, "npu", steps, mark)
            ours = log.between(*places[-2:])
            import ascend_by_hand
            by_hand = ascend_by_hand.train(name, *initial(torch, name), batches(torch, name, steps), mark)
            hand = log.between(*places[-2:])
        except Exception as e:  # an exception of a step is a result of the measurement
            traceback.print_exc(limit=-6)
            return {**found, "error": f"{type(e).__name__}: {str(e).splitlines()[0][:200]}", "fallbacks": fallbacks()}
    want = train(torch, name, "cpu", steps)

    def apart(losses):
        return max(abs(a - b) / max(1, abs(b)) for a, b in zip(losses, want))

    def figures(launches, aclops, copies):
        return {"launches": sum(launches.values()), "aclop": sum(aclops.values()), "H2D": copies["H2D"], "D2H": copies["D2H"],
                "kernels": dict(launches.most_common()), "aclops": dict(aclops)}
    return {**found, **figures(*ours), "apart": apart(losses), "losses": losses, "fallbacks": fallbacks(),
            "by_hand": {**figures(*hand), "apart": apart(by_hand), "losses": by_hand}, "more": dict((ours[0] - hand[0]).most_common()),
            "less": dict((hand[0] - ours[0]).most_common())}


@contextlib.contextmanager
def _said_of_fallbacks():
    from mindtorch.core.device import device_dispatch
    before = dict(device_dispatch.FALLBACKS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield lambda: {k[1]: n - before.get(k, 0) for k, n in device_dispatch.FALLBACKS.items() if n > before.get(k, 0)}


def _row(counts):
    return ", ".join([f"{k} {n}" for k, n in counts.items()])


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("models", nargs="*", choices=[[], *MODELS], default=[])
    p.add_argument("--log", default=os.environ.get("MINDTORCH_STANDIN_LOG"))
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--kernels", action="store_true", help="also print the launches by kernel")
    p.add_argument("--json")
    args = p.parse_args()
    if not args.log:
        p.error("--log FILE is required: the log of the CANN simulator")
    import mindspore as ms
    ms.set_device("Ascend")
    import mindtorch.torch as torch
    log, rows = Log(args.log), []
    print(f"{'model':<14}{'launches':>9}{'by hand':>9}{'ratio':>7}{'aclop':>7}{'H2D':>5}{'D2H':>5}  loss difference, by hand")
    for name in args.models or MODELS:
        r = measure(torch, ms, name, log, args.steps)
        rows.append(r)
        if "error" in r:
            print(f"{name:<14} {r['error']}")
        else:
            h = r["by_hand"]
            hand = h["launches"] + h["aclop"]
            print(f"{name:<14}{r['launches']:>9}{hand:>9}{(r['launches'] + r['aclop']) / hand:>7.2f}{r['aclop']:>7}{r['H2D']:>5}{r['D2H']:>5}"
                  f"  {r['apart']:.1e} {h['apart']:.1e}")
            if r["aclops"]:
                print("    aclop:", _row(r["aclops"]))
            if args.kernels:
                print("    kernels:", _row(r["kernels"]))
                print("    more than by hand:", _row(r["more"]))
                print("    fewer than by hand:", _row(r["less"]))
                print("    aclop by hand:", _row(h["aclops"]))
        if r["fallbacks"]:
            print("    host fallbacks:", _row(dict(sorted(r["fallbacks"].items(), key=lambda i: -i[1]))))
        sys.stdout.flush()
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)
    return int(any([_missed(r) for r in rows]))


def _missed(r):
    if "error" in r or r["launches"] + r["aclop"] > r["by_hand"]["launches"] + r["by_hand"]["aclop"]:
        return True
    return not (r["apart"] <= 1e-4 and r["by_hand"]["apart"] <= 1e-4)


if __name__ == "__main__":
    sys.exit(main())
