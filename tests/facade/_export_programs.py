"""Random modules for torch.export and callable backends. The torch package is an argument."""
import random

UNARY = ["relu", "sigmoid", "tanh", "exp", "abs", "neg", "square", "sin"]
BINARY = ["__add__", "__sub__", "__mul__", "maximum"]


def plan(seed):
    """Returns a list of steps, each of which uses earlier values (of shape (n, 6))."""
    r = random.Random(seed)
    steps, count = [], 1
    for _ in range(r.randint(3, 9)):
        a, b = r.randrange(count), r.randrange(count)
        steps.append(r.choice([
            ("unary", r.choice(UNARY), a), ("binary", r.choice(BINARY), a, b), ("number", r.choice(["__add__", "__mul__", "__rsub__", "__pow__"]), a, r.choice([2, 3])),
            ("layer", a), ("norm", a), ("softmax", a), ("inplace", r.choice(["add_", "mul_"]), a, r.choice([2, 0.5])), ("index", a, r.randrange(6)),
            ("cat", a, b), ("transpose", a), ("nograd", a), ("where", a, b), ("view", a), ("buffer", a), ("sum", a, r.choice([True, False])),
            ("batchnorm", a), ("setitem", a, b), ("sizes", a)]))
        count += 1
    return steps, r.randrange(1, 4)


def module(t, seed):
    """Returns the module of a seed."""
    steps, outputs = plan(seed)

    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = t.nn.ModuleList([t.nn.Linear(6, 6) for s in steps if s[0] == "layer"])
            self.norm, self.bn = t.nn.LayerNorm(6), t.nn.BatchNorm1d(6)
            self.register_buffer("k", t.ones(6))

        def forward(self, x):
            values, layers, n = [x], iter(self.layers), t.nn.functional
            for kind, *s in steps:
                v = values[s[1] if kind in ("unary", "binary", "number", "inplace") else s[0]]
                if kind == "unary":
                    v = getattr(t, s[0])(v.clamp(-3, 3))
                elif kind == "binary":
                    v = getattr(v, s[0])(values[s[2]])
                elif kind == "number":
                    v = getattr(v.clamp(-2, 2), s[0])(s[2])
                elif kind == "layer":
                    v = next(layers)(v)
                elif kind == "norm":
                    v = self.norm(v)
                elif kind == "softmax":
                    v = n.softmax(v, dim=-1)
                elif kind == "inplace":
                    v = getattr(v * 1, s[0])(s[2])
                elif kind == "index":
                    v = v[:, s[1]:s[1] + 1].expand(-1, 6)
                elif kind == "cat":
                    v = t.cat([v, values[s[1]]], dim=1)[:, ::2]
                elif kind == "transpose":
                    v = v.t().contiguous().permute(1, 0) * 1
                elif kind == "nograd":
                    with t.no_grad():
                        v = v * 2
                elif kind == "where":
                    v = t.where(v > 0, v, values[s[1]])
                elif kind == "view":
                    v = v.reshape(v.shape[0], 2, 3).flatten(1) + v.view(-1, 6)
                elif kind == "buffer":
                    self.k.add_(1)
                    v = v / self.k.clone()
                elif kind == "sum":
                    v = v - v.sum(dim=1, keepdim=True) if s[1] else v - v.mean(0)
                elif kind == "batchnorm":
                    v = self.bn(v)
                elif kind == "setitem":
                    v = v * 1
                    v[:, 1] = values[s[1]][:, 0]
                elif kind == "sizes":
                    v = v + t.arange(v.shape[0] * 2)[: v.shape[0], None] * 0.1
                values.append(v)
            return values[-outputs:], values[-1].sum()
    return Net()


def filled(m, t):
    """Returns the module with the same weights for both packages."""
    with t.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(t.sin(t.arange(p.numel()) * (0.37 + i)).reshape(p.shape))
    return m
