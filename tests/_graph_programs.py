"""Training steps composed of words, for the tests of compiled steps (tests/_graph_changes.py runs
them and makes changes between the calls).

A `Plan` describes a program completely: network, optimizer, the words of a step, and the changes
before each call. A word is a function of a `Call`, which holds the registers of one step.
"""
import contextlib
import dataclasses

import mindtorch.torch as torch

nn, F = torch.nn, torch.nn.functional
WIDTH, BATCH, CLASSES = 4, 5, 3
GLOBAL = {"scale": 1.0}


class Deliberate(Exception):
    """Raised in the middle of a step."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """A program.

    `words` are names in execution order. `changes` are (index of the call before which it is made,
    name, seed). `entry` says what is compiled.
    """

    seed: int
    net: str = "mlp"
    optimizer: str = "SGD"
    words: tuple = ()
    changes: tuple = ()
    calls: int = 8
    entry: str = "step"
    zero: str = "none"
    backward: str = "plain"
    update: str = "plain"
    out: tuple = ("loss",)
    read: str = "now"


class World:
    """The state that persists between calls."""

    def __init__(self, plan, device, compiling, jitter=0.0):
        torch.manual_seed(plan.seed)
        GLOBAL.update(scale=1.0)
        self.plan, self.device, self.compiling = plan, device, compiling
        self.net, self.jitter = NETS[plan.net](), jitter
        with torch.no_grad():
            for p in self.net.parameters():
                p.mul_(1 + jitter * torch.linspace(-1, 1, p.numel()).sin().view_as(p))
        self.net.to(device)
        self.shift = nn.Parameter(torch.linspace(-0.1, 0.1, WIDTH).to(device))
        self.state = torch.zeros(WIDTH).to(device)
        self.shadow = [p.detach().clone() for p in self.net.parameters()]
        self.optimizer = OPTIMIZERS[plan.optimizer]([*self.net.parameters(), self.shift])
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.7)
        self.scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=16.0, growth_interval=3)
        self.count, self.number, self.numbers, self.note, self.raise_at = 0, 0.5, [1.0, 2.0], None, -1
        self.previous, self.hooks, self.printed, self.saved, self.errors = None, [], [], None, []
        self.batch, self.dtype, self.layout, self.share, self.needs_grad = BATCH, torch.float32, "plain", "none", False
        self.same_data, self.data, self.last, self.backward_outside = False, None, None, False
        self.grad_mode, self.autocast = True, False
        closed = self.closed = {"value": 0.3}
        factor = 0.3

        def turn(value):
            nonlocal factor
            factor = value
        self.turn, self.enclosed = turn, lambda t: t * factor + closed["value"]
        self.inner = compiling(lambda t: torch.sin(t) * self.number + t.mean())
        self.model = compiling(self.net) if plan.entry in ("model", "both") else self.net
        self.forward = compiling(forward) if plan.entry == "loss" else forward
        self.update = compiling(update) if plan.entry == "update" else update
        self.step = compiling(step) if plan.entry in ("step", "both") else step

    def inputs(self, i):
        """Returns x, target, and two more tensors, which may alias each other, the input, a
        parameter or the state."""
        if self.same_data and self.data is not None and len(self.data[0]) == self.batch and self.data[0].dtype == self.dtype:
            return self.data
        g = torch.Generator().manual_seed(1000 * self.plan.seed + i)
        x = torch.randn(self.batch, WIDTH, generator=g) * (1 + self.jitter)
        x = x.to(self.device).to(self.dtype)
        if self.layout == "transposed":
            x = x.t().contiguous().t()
        elif self.layout == "slice":
            whole = torch.zeros(self.batch, 2 * WIDTH + 1, dtype=self.dtype).to(self.device)
            whole[:, 1:2 * WIDTH + 1:2] = x
            x = whole[:, 1:2 * WIDTH + 1:2]
        elif self.layout == "expanded":
            x = x[:1].clone().expand(self.batch, WIDTH)
        if self.needs_grad and self.dtype.is_floating_point:
            x.requires_grad_()
        y = torch.randint(0, CLASSES, (self.batch,), generator=g).to(self.device)
        a, b = (torch.randn(2 * WIDTH, generator=g).to(self.device) for _ in range(2))
        if self.share == "views":
            b = a[2:2 + WIDTH]
        elif self.share == "same":
            b = a
        elif self.share == "input" and self.dtype is torch.float32 and not self.needs_grad and self.layout == "plain":
            a = x[1]
        elif self.share == "parameter":
            b = self.shift.detach()
        elif self.share == "state":
            b = self.state
        elif self.share == "itself":
            b = self.shift
        elif self.share == "output" and self.last is not None:
            b = self.last
        self.data = x, y, a[:WIDTH], b[:WIDTH]
        return self.data

    def tensors(self):
        """Yields every tensor that a step may have modified in place."""
        yield from self.net.state_dict().values()
        yield from (self.shift, self.state)
        yield from self.shadow
        for p in [*self.net.parameters(), self.shift]:
            if p.grad is not None:
                yield p.grad
        for s in self.optimizer.state_dict()["state"].values():
            yield from (v for v in s.values() if isinstance(v, torch.Tensor))
        yield from (t.grad for t in (self.data or ())[:1] if t.grad is not None)
        if self.scaler._scale is not None:
            yield self.scaler._scale


class Call:
    """The registers of one call."""

    def __init__(self, w, x, y, a, b):
        self.w, self.x, self.y, self.a, self.b, self.outs, self.h, self.loss = w, x, y, a, b, {}, None, None


# ------------------------------------------------------------------ networks and optimizers
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(7, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(self.table((x * 3).round().long().clamp(-3, 3) + 3).sum(1).tanh() + x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.TransformerEncoderLayer(WIDTH, 2, 6, dropout=0.2, batch_first=True), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(self.layer(torch.stack([x, x * 0.5], 1)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(2, 3, batch_first=True), nn.Linear(3, CLASSES)

    def forward(self, x):
        return self.head(self.rnn(x.reshape(-1, WIDTH // 2, 2))[0][:, -1])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.b.weight = self.a.weight
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return self.head(self.b(F.gelu(self.a(x))) + x / self.seen)


NETS = {
    "linear": lambda: nn.Sequential(nn.Linear(WIDTH, 6), nn.Tanh(), nn.Linear(6, CLASSES)),
    "mlp": lambda: nn.Sequential(nn.Linear(WIDTH, 6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, CLASSES)),
    "norm": lambda: nn.Sequential(nn.Linear(WIDTH, 6, bias=False), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, CLASSES), nn.LayerNorm(CLASSES)),
    "conv": lambda: nn.Sequential(nn.Linear(WIDTH, 16), nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2),
                                  nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, CLASSES)),
    "words": Words, "attention": Attention, "recurrent": Recurrent, "tied": Tied,
}
#: A large eps: a gradient that should be zero (such as that of a key's bias) is only rounding,
#: which Adam would otherwise scale up to a full step.
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "plain": lambda p: torch.optim.SGD(p, lr=0.1, foreach=False),
    "groups": lambda p: torch.optim.SGD([{"params": p[:1], "lr": 0.3}, {"params": p[1:]}], lr=0.1, momentum=0.5, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.02, eps=1e-2),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.02, eps=1e-2, amsgrad=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.02, eps=1e-2, foreach=False),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.02, eps=1e-2, momentum=0.5),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-2),
}

# ------------------------------------------------------------------ words on the input
WORDS = {}


def word(f):
    WORDS[f.__name__.strip("_").replace("_", " ")] = f
    return f


@word
def compute(c):
    c.x = torch.where(c.x > 0, c.x.exp().clamp(max=3), torch.sigmoid(c.x)) - c.x.softmax(-1)


@word
def joined(c):
    left, right = c.x.chunk(2, dim=1)
    c.x = torch.cat([right, left.flip(0)], 1) + torch.stack([c.x, c.x * 2]).sum(0) * 0.1


@word
def views(c):
    t = c.x.t()
    c.x = t[1:].reshape(3, -1).mean(0).unsqueeze(1) + t.contiguous().view(-1).view(WIDTH, -1).t()


@word
def write_input(c):
    with torch.no_grad():
        (c.x if c.x.is_leaf and not c.x._is_view() and 0 not in c.x.stride() else c.a).mul_(0.9)


@word
def write_shared(c):
    """Writes through `a`, which is visible in `b` if they share memory."""
    with torch.no_grad():
        c.a.add_(0.5)
        c.x = c.x + c.b * 0.1
        c.a[1:3] = c.x.detach()[0, :2]
    c.x = c.x + c.b


@word
def write_other(c):
    with torch.no_grad():
        c.b.mul_(0.8)
    c.x = c.x * (1 + c.a * 0.1)


@word
def write_view(c):
    y = c.x * 1.5
    y.t()[0].add_(1)
    y[1:3, ::2] *= 0.5
    y.view(-1)[2:5].fill_(c.w.number)
    c.x = y


@word
def branch(c):
    c.x = c.x + 1 if c.x.mean() > 0 else c.x * 0.9


@word
def item(c):
    c.x = c.x * (1 + 0.1 * c.x.sum().tanh().item())


@word
def printed(c):
    c.w.printed.append(f"{c.x.detach().mean():.3f} {c.x.detach()[0, 0] > 0}")


@word
def numpy(c):
    c.x = c.x + float(c.x.detach().cpu().numpy().mean())


@word
def to_host(c):
    c.x = c.x + c.x.cpu().tanh().to(c.w.device)


@word
def global_(c):
    c.x = c.x * GLOBAL["scale"]


@word
def closure(c):
    c.x = c.w.enclosed(c.x)


@word
def attribute(c):
    c.x = c.x * c.w.number + (0 if c.w.note is None else c.w.note)


@word
def counted(c):
    c.w.count += 1
    c.x = c.x * (1 + 0.01 * c.w.count)


@word
def each_third(c):
    c.w.count += 1
    c.x = c.x.sin() if c.w.count % 3 == 0 else c.x + 0.2


@word
def loop(c):
    for k in c.w.numbers:
        c.x = c.x * 0.9 + k * 0.1


@word
def uploaded(c):
    c.x = c.x * torch.tensor([c.w.number, 1.0, GLOBAL["scale"], -1.0]).to(c.w.device) + torch.tensor(c.w.number, device=c.w.device)


@word
def made(c):
    c.outs["made"] = torch.ones(2, device=c.w.device) * 2
    c.x = c.x + torch.arange(c.x.shape[0], device=c.w.device).unsqueeze(1) * 0.1 + torch.full((WIDTH,), c.w.number, device=c.w.device).to(c.x.dtype)


@word
def random_numbers(c):
    c.x = c.x + torch.randn_like(c.x) * 0.1 + torch.rand(WIDTH, device=c.w.device).to(c.x.dtype)


@word
def dropout(c):
    c.x = F.dropout(c.x, 0.3, c.w.net.training)


@word
def mask(c):
    c.x = c.x + c.x[c.x > 0.1].sum() * 0.1


@word
def index(c):
    at = torch.tensor([0, len(c.w.numbers) % WIDTH], device=c.w.device)
    c.x = c.x.clone()
    c.x[:, at] = c.x[:, at] * 2 + 1
    c.x = c.x.index_add(0, at[:1], c.x[1:2])


@word
def catch(c):
    try:
        c.x = c.x @ torch.ones(c.x.shape[0], WIDTH, device=c.w.device).to(c.x.dtype)
    except RuntimeError:
        c.x = c.x.tanh()


@word
def raise_(c):
    c.w.count += 1
    with torch.no_grad():
        c.w.state.add_(0.25)
    if c.w.count == c.w.raise_at:
        raise Deliberate
    c.x = c.x + c.w.state.to(c.x.dtype) * 0.1


@word
def state(c):
    with torch.no_grad():
        c.w.state.mul_(0.5).add_(c.x.detach().mean(0).to(c.w.state.dtype))
    c.x = c.x + c.w.state.to(c.x.dtype)


@word
def new_state(c):
    c.w.state = c.w.state * 0.5 + c.x.detach().sum(0).to(c.w.state.dtype) * 0.1
    c.x = c.x - c.w.state.to(c.x.dtype)


@word
def carried(c):
    if c.w.previous is not None:
        c.x = c.x + c.w.previous.to(c.x.dtype) * 0.2
    c.w.previous = c.x.detach().mean(0)


@word
def kept_for_later(c):
    c.outs["kept"] = (c.x.detach() * 2)[1:]


@word
def no_grad(c):
    with torch.no_grad():
        c.x = c.x + c.w.net(c.x.to(c.w.shift.dtype)).mean().to(c.x.dtype) * 0.1


@word
def nested(c):
    c.x = c.w.inner(c.x)


@word
def own_function(c):
    c.x = Scaled.apply(c.x, c.w.number)


@word
def hooked(c):
    if c.x.requires_grad:
        c.x = c.x * 1
        c.x.register_hook(lambda g: g * c.w.number)


@word
def checkpoint(c):
    c.x = torch.utils.checkpoint.checkpoint(lambda t: F.dropout(t.sin() * c.w.number, 0.3, c.w.net.training), c.x, use_reentrant=False)


@word
def autocast(c):
    with torch.autocast(torch.device(c.w.device).type, dtype=torch.float16):
        c.x = c.x + (c.x @ c.x.t().softmax(0) @ c.x).float().tanh()


@word
def default_dtype(c):
    c.outs["dtype"] = torch.ones(1, device=c.w.device)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x.tanh() * k

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * (1 - x.tanh() ** 2) * ctx.k, None


# ------------------------------------------------------------------ the step
def forward(c):
    """Returns the loss of a call."""
    c.x = c.x.to(c.w.shift.dtype)
    for name in c.w.plan.words:
        WORDS[name](c)
    with torch.autocast(torch.device(c.w.device).type, dtype=torch.float16) if c.w.autocast else contextlib.nullcontext():
        c.h = c.w.model((c.x + c.w.shift).to(c.w.shift.dtype))
    c.loss = F.cross_entropy(c.h.float(), c.y)
    return c.loss


def parameters(w):
    return [p for p in [*w.net.parameters(), w.shift] if p.requires_grad]


def backward(c):
    w, how = c.w, c.w.plan.backward
    if not c.loss.requires_grad:
        return
    if how == "plain":
        c.loss.backward()
    elif how == "scaler":
        w.scaler.scale(c.loss).backward()
    elif how == "twice":
        c.loss.backward(retain_graph=True)
        (c.loss * 0.5).backward()
    elif how == "double":
        grads = torch.autograd.grad(c.loss, parameters(w), create_graph=True, allow_unused=True)
        (c.loss + 0.1 * sum((g ** 2).sum() for g in grads if g is not None)).backward()
    elif how == "grad":
        ps = parameters(w)
        for p, g in zip(ps, torch.autograd.grad(c.loss, ps, allow_unused=True)):
            p.grad = g
    elif how == "accumulate":
        (c.loss / 2).backward()
        F.cross_entropy(w.model(c.x.detach() * 0.5 + w.shift), c.y).backward()


def update(c):
    w, how = c.w, c.w.plan.update
    ps = parameters(w)
    if w.plan.backward == "scaler" and c.loss.requires_grad:
        w.scaler.unscale_(w.optimizer)
    if how == "clip":
        c.outs["norm"] = torch.nn.utils.clip_grad_norm_(ps, 0.1)
    elif how == "clip value":
        torch.nn.utils.clip_grad_value_(ps, 0.05)
    elif how == "by hand":
        with torch.no_grad():
            for p in ps:
                if p.grad is not None:
                    p.sub_(p.grad, alpha=w.number * 0.1)
        return
    elif how == "each second":
        w.count += 1
        if w.count % 2:
            return
    if w.plan.backward == "scaler" and c.loss.requires_grad:
        w.scaler.step(w.optimizer)
        w.scaler.update()
    elif how == "closure":
        w.optimizer.step(lambda: again(c))
    else:
        w.optimizer.step()
    if how == "scheduler":
        w.scheduler.step()
    elif how == "shadow":
        with torch.no_grad():
            for s, p in zip(w.shadow, w.net.parameters()):
                s.lerp_(p, 0.3)
    elif how == "data":
        for p in w.net.parameters():
            p.data.mul_(0.99)
            p.data = p.data + 0.001
    elif how == "set to none":
        w.optimizer.zero_grad()


def again(c):
    with torch.enable_grad():
        c.w.optimizer.zero_grad()
        loss = F.cross_entropy(c.w.net(c.x.detach() + c.w.shift), c.y)
        if loss.requires_grad:
            loss.backward()
    return loss


def step(w, x, y, a, b):
    """Runs one step; returns the outputs named by the plan's `out`."""
    c = Call(w, x, y, a, b)
    if w.plan.zero != "not":
        w.optimizer.zero_grad(set_to_none=w.plan.zero == "none")
    w.forward(c)
    backward(c)
    w.update(c)
    for name in w.plan.out:
        OUTS[name](c)
    return c.outs


def _put(name, make):
    def put(c):
        c.outs[name] = make(c)
    OUTS[name] = put


OUTS = {}
_put("loss", lambda c: c.loss.detach())
_put("with history", lambda c: c.loss)
_put("list", lambda c: [c.h.detach(), (c.h.detach().argmax(1), c.w.number)])
_put("view of input", lambda c: c.a[1:])
_put("input", lambda c: c.b)
_put("view of state", lambda c: c.w.state[1:])
_put("parameter", lambda c: c.w.shift)
_put("view of parameter", lambda c: c.w.shift.detach()[::2])
_put("views of one", lambda c: (lambda t: [t[0], t.t(), t[:, 1:], t.expand(2, *t.shape)])(c.h.detach() * 2))
_put("gradients", lambda c: [p.grad for p in parameters(c.w) if p.grad is not None])
_put("copies of gradients", lambda c: [p.grad.clone() for p in parameters(c.w) if p.grad is not None])
_put("strided", lambda c: torch.stack([c.h.detach(), c.h.detach() + 1], 2).transpose(0, 2)[::2])
_put("number", lambda c: c.loss.item())
_put("buffers", lambda c: list(c.w.net.buffers()))
_put("nothing", lambda c: None)
_put("half", lambda c: c.h.detach().half())
