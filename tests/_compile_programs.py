"""Random networks with random graph breaks, and random changes of them between steps, for the tests
of torch.compile.

They use mindtorch under the name `torch`, and create everything on the default device.
"""
import copy
import random

import numpy as np
import mindtorch.torch as torch

D = torch._dynamo
nn, F = torch.nn, torch.nn.functional
WIDTH = 4
GLOBAL = {"scale": 1.0, "list": [1, 2]}


class Node(nn.Module):
    """A module that executes its `program` word by word; `x` and `keep` are its registers."""

    def __init__(self, r, depth):
        super().__init__()
        self.children_ = nn.ModuleList(make(r, depth - 1) for _ in range(r.randint(1, 3)))
        self.program = r.choices(WORDS if depth > 1 else INNER, k=r.randint(2, 7))
        self.register_buffer("state", torch.zeros(WIDTH))
        self.number, self.note, self.extra = 1.0, None, None

    def forward(self, x, side=None):
        keep, n = x, 0
        for word in self.program:
            if word == "child":
                child = self.children_[n % len(self.children_)]
                n += 1
                x = child(x, side=keep) if isinstance(child, Node) else child(x)
            elif word == "twice":
                x = self.children_[0](self.children_[0](x)) * 0.5
            elif word == "item":
                x = x * (1 + 0.01 * np.tanh(x.sum().item()))
            elif word == "branch":
                x = x + 1 if x.mean() > 0 else x * 0.9
            elif word == "break":
                D.graph_break()
            elif word == "hand down":
                for child in self.children_:
                    if isinstance(child, Node):
                        child.note = x.detach().mean(0) if n % 2 else None
                        child.number = self.number + n % 2
            elif word == "count":
                self.number = (self.number + 1) % 3
            elif word == "note":
                x = x if self.note is None else x + self.note
            elif word == "number":
                x = x * (1 + self.number * 0.1)
            elif word == "global":
                x = x * GLOBAL["scale"] + len(GLOBAL["list"]) * 0.01
            elif word == "in place":
                x = x * 1
                x.mul_(0.9)
                x[0] = x[-1]
            elif word == "view":
                x = x.t().contiguous().view(-1).view(WIDTH, -1).t()
            elif word == "keep":
                keep = x
            elif word == "side":
                x = x + (keep if side is None or side.shape != x.shape else side) * 0.3
            elif word == "state":
                with torch.no_grad():
                    self.state.mul_(0.5).add_(x.detach().mean(0) * 0.1)
                x = x + self.state
            elif word == "dropout":
                x = F.dropout(x, 0.3, self.training)
            elif word == "no grad":
                with torch.no_grad():
                    x = x + self.children_[-1](x.detach()).tanh() * 0.1
            elif word == "catch":
                try:
                    x = x @ torch.ones(x.shape[0], WIDTH, device=x.device)
                except RuntimeError:
                    x = x.tanh()
            x = torch.tanh(x) if word in ("side", "in place") else x
        return x


WORDS = ["child"] * 6 + ["twice", "item", "branch", "break", "hand down", "count", "note", "number", "global", "in place", "view", "keep",
                         "side", "state", "dropout", "no grad", "catch"]
INNER = ["child"] * 4 + ["note", "number", "global", "in place", "view", "keep", "side", "state", "dropout", "no grad"]


def make(r, depth):
    """Returns a random module on the default device."""
    if depth <= 0 or r.random() < 0.25:
        return r.choice([lambda: nn.Linear(WIDTH, WIDTH), lambda: nn.Sequential(nn.Linear(WIDTH, 6), nn.Tanh(), nn.Linear(6, WIDTH)),
                         lambda: nn.LayerNorm(WIDTH), lambda: nn.BatchNorm1d(WIDTH),
                         lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.2), nn.ReLU(inplace=True))])()
    return Node(r, depth)


def change(r, net, state):
    """Makes one random change to a network between two steps."""
    modules = list(net.modules())
    m = r.choice(modules)
    what = r.randint(0, 13)
    if what == 0:
        m.train(not m.training)
    elif what == 1:
        for p in m.parameters():
            p.requires_grad_(not p.requires_grad)
    elif what == 2 and isinstance(m, nn.ModuleList) and len(m):
        torch.manual_seed(r.randint(0, 99))
        m[r.randrange(len(m))] = make(r, 1)
    elif what == 3:
        h = m.register_forward_hook(lambda mod, args, out: out * 0.9 if isinstance(out, torch.Tensor) else None)
        state.setdefault("hooks", []).append(h)
    elif what == 4 and state.get("hooks"):
        state["hooks"].pop().remove()
    elif what == 5:
        state["saved"] = (copy.deepcopy(net.state_dict()))
    elif what == 6 and "saved" in state:
        net.load_state_dict(state["saved"], strict=False, assign=r.random() < 0.3)
    elif what == 7 and isinstance(m, Node):
        m.number = r.choice([0.5, 1.0, 2])
    elif what == 8 and isinstance(m, Node):
        m.program = [r.choice(INNER) if r.random() < 0.3 else w for w in m.program]
    elif what == 9:
        GLOBAL["scale"] = r.choice([1.0, 1.1])
        GLOBAL["list"].append(0) if r.random() < 0.5 and len(GLOBAL["list"]) < 4 else GLOBAL["list"].clear()
    elif what == 10 and isinstance(m, nn.Linear):
        m.weight = nn.Parameter(m.weight.detach() * 1.1)
    elif what == 11 and isinstance(m, nn.Linear):
        other = r.choice([k for k in modules if isinstance(k, nn.Linear)])
        if other.weight.shape == m.weight.shape:
            m.weight = other.weight
    elif what == 12 and isinstance(m, nn.Dropout):
        m.p = r.choice([0.0, 0.5])
    elif what == 13 and isinstance(m, nn.ModuleList) and len(m) > 1:
        m[0], m[1] = m[1], m[0]


def array(t):
    """Returns a copy of a tensor's values as a NumPy array."""
    return t.detach().cpu().numpy().copy()


def run(seed, how, steps=14, device="cpu", moved=False, **options):
    """Returns everything observable of a run on a device, and the compiled object.

    `how` says what is compiled: "model", "step" or, for nothing, "eager".

        moved    perturbs the initial weights by one float spacing each, up or down
        options  of torch.compile
    """
    with torch.device(device):
        return _run(seed, how, steps, moved, options)


def _run(seed, how, steps, moved, options):
    r = random.Random(seed)
    torch.manual_seed(seed)
    GLOBAL.update(scale=1.0, list=[1, 2])
    net = Node(r, 3)
    if moved:
        rs = np.random.RandomState(seed)
        with torch.no_grad():
            for p in net.parameters():
                p += torch.from_numpy(np.asarray(np.spacing(array(p)) * rs.choice([-1, 1], tuple(p.shape)), np.float32)).to(p.device)
    model = torch.compile(net, **options) if how == "model" else net
    out, state = [], {}

    def step(x):
        y = model(x)
        loss = (y * torch.linspace(-1, 1, WIDTH)).sum() + y.pow(2).mean()
        if loss.requires_grad:
            loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                if p.grad is not None:
                    p.sub_(p.grad.clamp(-1, 1), alpha=0.05)
                    p.grad = None
        return y
    use = torch.compile(step, **options) if how == "step" else step
    for i in range(steps):
        if i > 2 and r.random() < 0.4:
            change(r, net, state)
        torch.manual_seed(1000 * seed + i)
        x = torch.randn(r.choice([5, 5, 5, 3]), WIDTH, requires_grad=r.random() < 0.3)
        try:
            with torch.set_grad_enabled(r.random() < 0.9):
                out.append(array(use(x)))
        except (RuntimeError, ValueError) as e:
            out.append(type(e).__name__)
        out.append(None if x.grad is None else array(x.grad))
        out += [array(v) for v in net.state_dict().values()] + [array(torch.rand(1))]
    return out, {"model": model, "step": use, "eager": None}[how]


def differ(a, b, tolerance=0.0, nearby=None):
    """Returns the first position where two runs differ, or None.

    Floats differ if by more than `tolerance`, relative to the largest value of their array (at
    least 1).

        nearby  a third run, from weights perturbed by one float spacing. Where it deviates by at least
                a tenth of the difference, the difference counts as amplified rounding.
    """
    for i, (x, y) in enumerate(zip(a, b)):
        if not (x is y or isinstance(x, str) and x == y or isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and same(x, y, tolerance)):
            if nearby is not None:
                if i >= len(nearby) or type(nearby[i]) is not type(x) or isinstance(x, str) and nearby[i] != x:
                    return None  # the perturbed run took another branch: no conclusion from here on
                if isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and x.shape == y.shape == nearby[i].shape and x.dtype == y.dtype and x.dtype.kind == "f":
                    if not np.abs(x - nearby[i]).max() < 0.1 * np.abs(x - y).max():
                        continue
            return i, x, y
    return None if len(a) == len(b) else (min(len(a), len(b)), len(a), len(b))


def same(x, y, tolerance=0.0):
    """True if two arrays have the same shape, dtype and values (nan equals nan).

    Floats may differ by `tolerance` of the largest finite value (at least 1).
    """
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if np.array_equal(x, y, equal_nan=x.dtype.kind in "fc"):
        return True
    if not tolerance or x.dtype.kind not in "fc":
        return False
    finite = np.isfinite(x)
    scale = max(1.0, float(np.abs(x[finite]).max())) if finite.any() else 1.0
    return np.allclose(x, y, rtol=0, atol=tolerance * scale, equal_nan=True)
