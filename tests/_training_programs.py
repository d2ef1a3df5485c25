"""Random training programs, run on real PyTorch and on mindtorch; compares losses, gradients,
parameters, buffers and optimizer states.

A `Plan` describes a program completely: the network's blocks (tests/_training_blocks.py), the loss,
optimizer and schedule, the kind of step, and the events between steps. `run(T, plan)` returns the
observations as (label, value) pairs; `difference(want, have, nearby)` returns the first difference.
"""
import contextlib
import copy
import dataclasses
import importlib
import io
import random
import warnings

import numpy as np

import _smaller
from _training_blocks import BATCH, CLASSES, WIDTH, blocks


@dataclasses.dataclass(frozen=True)
class Plan:
    """A program. parts: (name, seed of its details); events: (step before which it happens, name,
    seed)."""

    seed: int
    parts: tuple = (("linear", 0),)
    recomputed: tuple = ()  # (part, use_reentrant) of torch.utils.checkpoint
    loss: str = "cross entropy"
    optimizer: str = "SGD"
    scheduler: str = "none"
    steps: int = 4
    micro: int = 1  # batches per step
    backward: str = "plain"
    clip: str = "none"
    update: str = "plain"
    precision: str = "float32"
    saved: str = "none"  # kind of saved tensor hooks
    input_grad: bool = False
    to_none: bool = True
    events: tuple = ()
    entry: str = "step"  # what a compiled run passes to torch.compile


#: Tolerance between two correct runs, relative to the largest value; 20 times as large where a
#: program amplifies rounding (see `difference`).
TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 2e-2, "float16": 4e-3, "scaled": 4e-3, "scaled float32": 1e-5, "bfloat16 weights": 2e-2}
#: Relative perturbation of the weights in the runs that measure the effect of rounding: about one
#: ulp of the precision.
JITTER = {"float64": 1e-15, "float32": 3e-7, "bfloat16": 4e-3, "float16": 5e-4, "scaled": 5e-4, "scaled float32": 3e-7, "bfloat16 weights": 4e-3}


# ------------------------------------------------------------------ losses, optimizers, schedules
def losses(T):
    F = T.nn.functional

    def rows(y):  # one-hot targets, as float losses need them
        return F.one_hot(y, CLASSES)

    return {
        "cross entropy": lambda o, y: F.cross_entropy(o, y), "smoothed": lambda o, y: F.cross_entropy(o, y, label_smoothing=0.1),
        "weighted": lambda o, y: F.cross_entropy(o, y, weight=T.linspace(0.5, 2, CLASSES, device=o.device, dtype=o.dtype)),
        "ignored": lambda o, y: F.cross_entropy(o, y.masked_fill(y == 0, -100), ignore_index=-100, reduction="sum"),
        "soft targets": lambda o, y: F.cross_entropy(o, F.softmax(rows(y).to(o.dtype), -1)), "nll": lambda o, y: F.nll_loss(F.log_softmax(o, -1), y),
        "mse": lambda o, y: F.mse_loss(o, rows(y).to(o.dtype)), "l1": lambda o, y: F.l1_loss(o, rows(y).to(o.dtype)), "huber": lambda o, y: F.huber_loss(o, rows(y).to(o.dtype)),
        "smooth l1": lambda o, y: F.smooth_l1_loss(o, rows(y).to(o.dtype), beta=0.5), "bce": lambda o, y: F.binary_cross_entropy_with_logits(o, rows(y).to(o.dtype)),
        "positive": lambda o, y: F.binary_cross_entropy_with_logits(o, rows(y).to(o.dtype), pos_weight=T.full((CLASSES,), 2.0, device=o.device, dtype=o.dtype)),
        "kl": lambda o, y: F.kl_div(F.log_softmax(o, -1), F.softmax(rows(y).to(o.dtype), -1), reduction="batchmean"),
        "poisson": lambda o, y: F.poisson_nll_loss(o.clamp(max=4), rows(y).to(o.dtype)), "margin": lambda o, y: F.multi_margin_loss(o.float() if o.dtype in (T.float16, T.bfloat16) else o, y),
        "soft margin": lambda o, y: F.soft_margin_loss(o, (2 * rows(y) - 1).to(o.dtype)), "gaussian": lambda o, y: F.gaussian_nll_loss(o, rows(y).to(o.dtype), o.detach().square() + 0.1),
        "cosine": lambda o, y: F.cosine_embedding_loss(o, o.flip(0) + 1, (2 * (y > 2).long() - 1).to(o.dtype)),
        "triplet": lambda o, y: F.triplet_margin_loss(o, o.roll(1, 0), o.roll(2, 0), margin=2.0), "by hand": lambda o, y: -(o - o.logsumexp(1, keepdim=True))[T.arange(len(y), device=y.device), y].mean(),
        "several": lambda o, y: F.cross_entropy(o, y) + 0.1 * o.square().mean() + 0.01 * o.abs().sum(),
    }


OPTIMIZERS = {
    "SGD": ("SGD", {"lr": 0.1}), "momentum": ("SGD", {"lr": 0.05, "momentum": 0.9}), "nesterov": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "dampened": ("SGD", {"lr": 0.05, "momentum": 0.8, "dampening": 0.2, "maximize": True}), "plain loop": ("SGD", {"lr": 0.1, "momentum": 0.5, "foreach": False}),
    "foreach": ("SGD", {"lr": 0.1, "momentum": 0.5, "foreach": True}), "fused": ("SGD", {"lr": 0.1, "momentum": 0.5, "fused": True}),
    "Adam": ("Adam", {"lr": 0.01}), "Adam amsgrad": ("Adam", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.01}), "Adam foreach": ("Adam", {"lr": 0.01, "foreach": True}),
    "Adam loop": ("Adam", {"lr": 0.01, "foreach": False, "betas": (0.8, 0.95)}), "AdamW": ("AdamW", {"lr": 0.01}), "AdamW amsgrad": ("AdamW", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    "AdamW fused": ("AdamW", {"lr": 0.01, "fused": True}), "NAdam": ("NAdam", {"lr": 0.01, "decoupled_weight_decay": True, "weight_decay": 0.01}), "RAdam": ("RAdam", {"lr": 0.01}),
    "Adamax": ("Adamax", {"lr": 0.01}), "RMSprop": ("RMSprop", {"lr": 0.01, "momentum": 0.5}), "RMSprop centered": ("RMSprop", {"lr": 0.01, "centered": True}),
    "Adagrad": ("Adagrad", {"lr": 0.05, "lr_decay": 0.1}), "Adadelta": ("Adadelta", {"lr": 0.5}), "Rprop": ("Rprop", {"lr": 0.01}), "ASGD": ("ASGD", {"lr": 0.05, "t0": 2}),
    "Adafactor": ("Adafactor", {"lr": 0.01}), "LBFGS": ("LBFGS", {"lr": 0.1, "max_iter": 3, "history_size": 3}),
    "LBFGS search": ("LBFGS", {"max_iter": 3, "line_search_fn": "strong_wolfe"}), "Muon": ("Muon", {"lr": 0.01}), "tensor lr": ("Adam", {"lr": "tensor"}),
}


def optimizer(T, plan, parameters):
    kind, options = OPTIMIZERS[plan.optimizer]
    options = dict(options)
    if options["lr" if "lr" in options else "max_iter"] == "tensor":
        options["lr"] = T.tensor(0.01)
    if plan.precision != "float64" and kind in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta"):
        options["eps"] = 1e-2  # keeps gradients that are only rounding from becoming full steps
    if kind == "Muon":
        parameters = [p for p in parameters if p.dim() == 2]
    elif plan.seed % 3 == 0 and not kind.startswith("LBFGS"):
        half = len(parameters) // 2
        if half:
            parameters = [{"params": parameters[:half], "lr": 0.02}, {"params": parameters[half:], **({"weight_decay": 0.02} if kind not in ("Rprop",) else {})}]
    return getattr(T.optim, kind)(parameters, **options)


def scheduler(T, name, o):
    S = T.optim.lr_scheduler
    return {
        "none": lambda: None, "step": lambda: S.StepLR(o, 2, 0.5), "multi step": lambda: S.MultiStepLR(o, [1, 3], 0.3), "exponential": lambda: S.ExponentialLR(o, 0.8),
        "cosine": lambda: S.CosineAnnealingLR(o, 4, 1e-4), "restarts": lambda: S.CosineAnnealingWarmRestarts(o, 2), "one cycle": lambda: S.OneCycleLR(o, 0.1, total_steps=20),
        "cyclic": lambda: S.CyclicLR(o, 0.001, 0.1, step_size_up=2, cycle_momentum=False), "linear": lambda: S.LinearLR(o, 0.3, total_iters=3), "constant": lambda: S.ConstantLR(o, 0.5, 2),
        "polynomial": lambda: S.PolynomialLR(o, 4, 2.0), "lambda": lambda: S.LambdaLR(o, lambda k: 1 / (k + 1)), "multiplicative": lambda: S.MultiplicativeLR(o, lambda k: 0.9),
        "plateau": lambda: S.ReduceLROnPlateau(o, patience=0, factor=0.5, threshold=0.5),
        "sequential": lambda: S.SequentialLR(o, [S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9)], [2]),
        "chained": lambda: S.ChainedScheduler([S.ConstantLR(o, 0.5, 2), S.ExponentialLR(o, 0.9)]),
        "average": lambda: T.optim.swa_utils.SWALR(o, 0.02, anneal_epochs=3),
    }[name]()


SCHEDULERS = """none step multi_step exponential cosine restarts one_cycle cyclic linear constant polynomial lambda multiplicative plateau sequential chained average""".split()
BACKWARDS = ("plain", "retain", "grad", "two", "inputs", "penalty", "hessian", "scaled sum")
CLIPS = ("none", "norm", "norm inf", "norm 1", "value", "loop", "total")
UPDATES = ("plain", "closure", "by hand", "foreach by hand", "in backward", "two optimizers")


# ------------------------------------------------------------------ the program
class World:
    """The state that persists between steps."""

    def __init__(self, T, plan, device, compiling, jitter):
        self.T, self.plan, self.device, self.compiling = T, plan, device, compiling
        self.low = {"bfloat16": T.bfloat16, "float16": T.float16, "scaled": T.float16}.get(plan.precision)
        self.dtype = {"float64": T.float64, "bfloat16 weights": T.bfloat16}.get(plan.precision, T.float32)
        T.manual_seed(plan.seed)
        self.net, self.loss, self.records, self.hooks, self.average = network(T, plan), losses(T)[plan.loss], [], [], None
        with T.no_grad():
            for p in self.net.parameters():
                p.mul_(1 + jitter * T.linspace(1, 40 + 1e4 * jitter / JITTER[plan.precision], p.numel()).sin().view_as(p))
        self.net.to(device, self.dtype)
        self.scaler = T.amp.GradScaler(T.device(device).type, init_scale=64.0, growth_interval=2, enabled=plan.precision.startswith("scaled"))
        self.optimizers()
        self.entries()

    def optimizers(self):
        p, parameters = self.plan, [q for q in self.net.parameters()]
        if p.update == "two optimizers":
            head = list(self.net.head.parameters())
            kept = {id(q) for q in head}
            self.opts = [optimizer(self.T, p, [q for q in parameters if id(q) not in kept] or head[:1]), self.T.optim.SGD(head, lr=0.1)]
        else:
            self.opts = [optimizer(self.T, p, parameters)]
        self.schedulers = [s for s in (scheduler(self.T, p.scheduler.replace("_", " "), self.opts[0]),) if s is not None]
        for h in self.__dict__.pop("own", ()):
            h.remove()
        if p.update == "in backward":
            small = {id(q): self.T.optim.SGD([q], lr=0.05, momentum=0.5) for q in parameters}

            def apply(q):
                small[id(q)].step()
                q.grad = None
            self.own = [q.register_post_accumulate_grad_hook(apply) for q in parameters if q.requires_grad]

    def entries(self):
        """Sets the entry points, compiled if this is a compiled run."""
        c, entry = self.compiling or (lambda f: f), self.plan.entry
        self.model = c(self.net) if entry == "model" else self.net
        self.objective = c(objective) if entry == "loss" else objective
        self.step = c(step) if entry == "step" else step

    def replace(self, net):
        """Replaces the network by one with equal parameters; new optimizers load the old states."""
        states = [o.state_dict() for o in self.opts], [s.state_dict() for s in self.schedulers]
        self.net, self.hooks = net, []
        self.optimizers()
        for o, s in zip(self.opts, states[0]):
            o.load_state_dict(s)
        for o, s in zip(self.schedulers, states[1]):
            o.load_state_dict(s)
        self.entries()

    def batch(self, i, k):
        r = np.random.RandomState([self.plan.seed, i, k])
        x = self.T.from_numpy(r.randn(BATCH, WIDTH).astype("float32")).to(self.device, self.dtype)
        if self.plan.input_grad or self.plan.backward == "penalty":
            x.requires_grad_()
        return x, self.T.from_numpy(r.randint(0, CLASSES, BATCH)).to(self.device)

    def see(self, label, value):
        if isinstance(value, self.T.Tensor):
            t = value.detach().cpu()
            value = np.array((t.float() if t.dtype in (self.T.bfloat16, self.T.float16) else t).numpy())
            label = f"{label} {str(t.dtype).rpartition('.')[2]}"
        self.records.append((label, value))


def network(T, plan):
    nn, made = T.nn, blocks(T)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.ModuleList(made[name](random.Random(seed)) for name, seed in plan.parts)
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            ways = dict(plan.recomputed)
            for i, part in enumerate(self.body):
                x = T.utils.checkpoint.checkpoint(part, x, use_reentrant=ways[i]) if i in ways and self.training else part(x)
            return self.head(x)
    return Net()


def objective(w, x, y):
    T = w.T
    with T.autocast(T.device(w.device).type, dtype=w.low) if w.low is not None else contextlib.nullcontext():
        out = w.model(x)
        return out, w.loss(out, y)


def backward(w, out, loss, x):
    T, kind = w.T, w.plan.backward
    parameters = [p for p in w.net.parameters() if p.requires_grad]
    if kind == "retain":
        loss.backward(retain_graph=True)
        (0.1 * out.square().mean()).backward()
    elif kind == "grad":
        for p, g in zip(parameters, T.autograd.grad(loss, parameters, allow_unused=True)):
            if g is not None:
                # PyTorch's fused optimizers assume that gradients are as dense as their parameters
                g = g.contiguous()
                p.grad = g if p.grad is None else p.grad + g
    elif kind == "two":
        T.autograd.backward([loss, out], [None, T.full_like(out, 0.05)])
    elif kind == "inputs":
        loss.backward(inputs=parameters[::2])
    elif kind == "penalty":
        g, = T.autograd.grad(loss, x, create_graph=True)
        (loss + g.square().sum()).backward()
    elif kind == "hessian":
        gs = [g for g in T.autograd.grad(loss, parameters, create_graph=True, allow_unused=True) if g is not None]
        (loss + 0.1 * sum(g.square().sum() for g in gs)).backward()
    elif kind == "scaled sum":
        loss.backward(T.full_like(loss, 2.0))
    else:
        loss.backward()


def clip(w):
    """Clips the gradients in place; returns their norm if the method computes one."""
    U, kind, parameters = w.T.nn.utils, w.plan.clip, list(w.net.parameters())
    if kind.startswith("norm"):
        return U.clip_grad_norm_(parameters, 0.5, norm_type={"norm": 2.0, "norm inf": float("inf"), "norm 1": 1.0}[kind], foreach=None if w.plan.seed % 2 else False)
    if kind == "value":
        U.clip_grad_value_(parameters, 0.05)
    elif kind == "loop":
        for p in parameters:
            if p.grad is not None:
                p.grad.clamp_(-0.1, 0.1).mul_(0.9)
    elif kind == "total":
        grads = [p.grad for p in parameters if p.grad is not None]
        norm = U.get_total_norm(grads)
        U.clip_grads_with_norm_(parameters, 0.3, norm)
        return norm
    return None


def step(w, batches):
    """Runs one training step; returns the sum of the losses and the norm of the gradients."""
    T, p, seen = w.T, w.plan, []

    def gradients():
        for o in w.opts:
            o.zero_grad(set_to_none=p.to_none)
        total = 0.0
        for x, y in batches:
            out, loss = w.objective(w, x, y)
            backward(w, out, w.scaler.scale(loss / len(batches)), x)
            total = total + (loss.detach() if loss.dtype == T.float64 else loss.detach().float())
        return total

    if p.update == "closure" or p.optimizer.startswith("LBFGS"):
        for o in w.opts:
            total = o.step(gradients)
        return total, None
    total = gradients()
    for o in w.opts if w.scaler.is_enabled() else ():
        w.scaler.unscale_(o)
    norm = clip(w)
    if p.update == "by hand":
        with T.no_grad():
            for q in w.net.parameters():
                if q.grad is not None:
                    q -= 0.05 * q.grad
    elif p.update == "foreach by hand":
        with T.no_grad():
            ps = [q for q in w.net.parameters() if q.grad is not None]
            T._foreach_add_(ps, T._foreach_mul([q.grad for q in ps], 0.5), alpha=-0.1)
    else:
        for o in w.opts:
            w.scaler.step(o)
    w.scaler.update() if w.scaler.is_enabled() else None
    return total, norm


# ------------------------------------------------------------------ what happens between steps
EVENTS = {}


def event(f):
    EVENTS[f.__name__.strip("_").replace("_", " ")] = f
    return f


def _part(w, r):
    return r.choice(list(w.net.body))


@event
def save_and_load(w, r):
    """Continues the run from a checkpoint file."""
    T, f = w.T, io.BytesIO()
    T.save({"net": w.net.state_dict(), "opts": [o.state_dict() for o in w.opts], "schedulers": [s.state_dict() for s in w.schedulers], "rng": T.get_rng_state(),
            "scaler": w.scaler.state_dict()}, f)
    f.seek(0)
    state = T.load(f, map_location=w.device if r.random() < 0.5 else "cpu", weights_only=False)
    T.manual_seed(r.randint(0, 99))
    net = network(T, w.plan).to(w.device, w.dtype)
    net.train(w.net.training)
    w.see("keys", str(net.load_state_dict(state["net"])))
    w.net, w.hooks = net, []
    w.optimizers()
    for o, s in zip([*w.opts, *w.schedulers, w.scaler], [*state["opts"], *state["schedulers"], state["scaler"]]):
        o.load_state_dict(s)
    T.set_rng_state(state["rng"].cpu())
    w.entries()


@event
def copied(w, r):
    w.replace(copy.deepcopy(w.net))


@event
def strict_off(w, r):
    state = {k: v * 0.9 if v.is_floating_point() else v for k, v in w.net.state_dict().items()}
    state.pop("head.bias")
    state["other"] = w.T.zeros(2)
    w.see("keys", str(w.net.load_state_dict(state, strict=False)))


@event
def assigned(w, r):
    """Replaces the parameters by load_state_dict(assign=True)."""
    w.net.load_state_dict({k: v.clone() for k, v in w.net.state_dict().items()}, assign=True)
    w.replace(w.net)


@event
def freeze(w, r):
    _part(w, r).requires_grad_(False)


@event
def unfreeze(w, r):
    w.net.requires_grad_()


@event
def evaluate(w, r):
    w.net.eval()
    with r.choice([w.T.no_grad, w.T.inference_mode])():
        w.see("evaluated", objective(w, *w.batch(90, 0))[1])
    w.net.train()


@event
def part_in_eval(w, r):
    _part(w, r).eval()


@event
def forward_hook(w, r):
    k = r.choice([0.5, 1.5])
    w.hooks.append(_part(w, r).register_forward_hook(lambda m, args, out: out * k))


@event
def forward_pre_hook(w, r):
    w.hooks.append(_part(w, r).register_forward_pre_hook(lambda m, args, kwargs: ((args[0] + 0.1,), kwargs), with_kwargs=True))


@event
def backward_hook(w, r):
    w.hooks.append(_part(w, r).register_full_backward_hook(lambda m, before, after: tuple(None if g is None else g * 0.5 for g in before)))


@event
def backward_pre_hook(w, r):
    w.hooks.append(_part(w, r).register_full_backward_pre_hook(lambda m, after: tuple(None if g is None else g.clamp(-0.1, 0.1) for g in after)))


@event
def tensor_hook(w, r):
    p = r.choice(list(w.net.parameters()))
    if p.requires_grad:
        w.hooks.append(p.register_hook(lambda g: g * 0.5 + 0.01))


def _halve(p):
    if p.grad is not None:
        p.grad.mul_(0.5)


@event
def grad_hook(w, r):
    p = r.choice(list(w.net.parameters()))
    if p.requires_grad:
        w.hooks.append(p.register_post_accumulate_grad_hook(_halve))


@event
def step_hook(w, r):
    w.hooks.append(w.opts[0].register_step_pre_hook(lambda o, args, kwargs: o.param_groups[0].__setitem__("lr", o.param_groups[0]["lr"] * 0.5)))


@event
def unhook(w, r):
    if w.hooks:
        w.hooks.pop(r.randrange(len(w.hooks))).remove()


@event
def new_group(w, r):
    shift = w.T.nn.Parameter(w.T.linspace(-0.1, 0.1, CLASSES).to(w.device, w.dtype))
    if w.plan.update != "two optimizers" and w.plan.optimizer not in ("Muon",):
        w.net.register_parameter(f"shift{len(w.records)}", shift)
        w.opts[0].add_param_group({"params": [shift]})
        w.hooks.append(w.net.head.register_forward_hook(lambda m, args, out: out + shift))


@event
def learning_rate(w, r):
    for group in w.opts[0].param_groups:
        group["lr"] *= 0.5


@event
def average(w, r):
    """Starts a weight average that later steps update."""
    A = w.T.optim.swa_utils
    w.average = A.AveragedModel(w.net, multi_avg_fn=A.get_ema_multi_avg_fn(0.7)) if r.random() < 0.5 else A.AveragedModel(w.net, use_buffers=r.random() < 0.5)


@event
def written(w, r):
    with w.T.no_grad():
        r.choice(list(w.net.parameters())).mul_(0.8).add_(0.01)


@event
def data(w, r):
    p = r.choice(list(w.net.parameters()))
    p.data = p.data * 0.9


@event
def initialized(w, r):
    init = w.T.nn.init
    r.choice([init.xavier_uniform_, init.kaiming_normal_, init.orthogonal_, init.trunc_normal_, init.normal_])(w.net.head.weight)


@event
def vector(w, r):
    U, ps = w.T.nn.utils, list(w.net.parameters())
    with w.T.no_grad():
        U.vector_to_parameters(U.parameters_to_vector(ps) * 0.95, ps)


@event
def per_sample(w, r):
    """Computes the gradients of each row, by vmap over grad."""
    T = w.T
    x, y = w.batch(91, 0)
    head = {k: v.detach() for k, v in w.net.head.named_parameters()}

    def one(ps, a, b):
        return T.nn.functional.cross_entropy(T.func.functional_call(w.net.head, ps, (a[None],)), b[None])
    for k, g in T.func.vmap(T.func.grad(one), (None, 0, 0))(head, x.detach(), y).items():
        w.see(f"per sample {k}", g)


@event
def adversarial(w, r):
    T = w.T
    x, y = w.batch(92, 0)
    x = x.detach().requires_grad_()
    g, = T.autograd.grad(objective(w, x, y)[1], x)
    w.see("adversarial", objective(w, (x + 0.1 * g.sign()).detach(), y)[1])


@event
def pruned(w, r):
    prune = importlib.import_module(w.T.__name__ + ".nn.utils.prune")
    prune.l1_unstructured(w.net.head, "weight", 0.3)
    prune.remove(w.net.head, "weight")


@event
def seeded(w, r):
    w.T.manual_seed(r.randint(0, 99))


@event
def forked(w, r):
    with w.T.random.fork_rng(devices=[]):
        w.see("drawn", w.T.rand(3))


# ------------------------------------------------------------------ runs
def run(T, plan, device="cpu", compiling=None, jitter=0.0):
    """Returns the observations as (label, array or text) pairs; an exception ends the run and is
    the last pair.

    PyTorch's oneDNN has no LSTM of bfloat16 on processors without AVX-512. Its run is repeated
    without oneDNN there.
    """
    records = _run(T, plan, device, compiling, jitter)
    if T.__name__ == "torch" and records and records[-1][0] == "raised" and "could not create a primitive" in records[-1][1]:
        with T.backends.mkldnn.flags(enabled=False):
            records = _run(T, plan, device, compiling, jitter)
    return records


def _run(T, plan, device, compiling, jitter):
    records, before = [], T.get_default_dtype()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Set first: weights initialized in float32 differ by its rounding.
        if plan.precision == "float64":
            T.set_default_dtype(T.float64)
        try:
            w = World(T, plan, device, compiling, jitter)
            records = w.records
            for i in range(plan.steps):
                for at, name, seed in plan.events:
                    if at == i:
                        EVENTS[name](w, random.Random(seed))
                with saving(w):
                    batches = [w.batch(i, k) for k in range(plan.micro)]
                    total, norm = w.step(w, batches)
                see(w, i, batches, total, norm)
                for s in w.schedulers:
                    s.step(*((i % 2 + 1.0,) if plan.scheduler == "plateau" else ()))
                if w.average is not None:
                    w.average.update_parameters(w.net)
            finish(w)
        except (RuntimeError, ValueError, TypeError, AssertionError, KeyError, ZeroDivisionError) as e:
            records.append(("raised", f"{type(e).__name__}: {e}"))
        finally:
            T.set_default_dtype(before)
    return records


def saving(w):
    G, kind = w.T.autograd.graph, w.plan.saved
    if kind == "clone":
        return G.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t)
    if kind == "cpu":
        return G.save_on_cpu()
    if kind == "numpy":
        return G.saved_tensors_hooks(lambda t: (t.device, t.dtype, t.detach().cpu().double().numpy() if t.is_floating_point() else t.detach().cpu()),
                                     lambda k: w.T.as_tensor(k[2]).to(k[0], k[1]))
    return contextlib.nullcontext()


def see(w, i, batches, total, norm):
    w.see(f"{i} loss", total)
    if norm is not None:
        w.see(f"{i} norm", norm)
    w.see(f"{i} lr", str([f"{float(g['lr']):.6g}" for o in w.opts for g in o.param_groups]))
    for x, _ in batches:
        if x.requires_grad:
            w.see(f"{i} gradient of the input", x.grad if x.grad is not None else "None")
    for k, p in w.net.named_parameters():
        w.see(f"{i} gradient of {k}", p.grad if p.grad is not None else "None")
    for k, v in w.net.state_dict().items():
        w.see(f"{i} {k}", v)
    if w.scaler.is_enabled():
        w.see(f"{i} scale", w.scaler.get_scale())


def finish(w):
    for o in w.opts:
        state = o.state_dict()
        w.see("groups", str([g["params"] for g in state["param_groups"]]))
        for k, s in state["state"].items():
            for name, v in s.items() if plain(s) else ():
                w.see(f"state {k} {name}", v if isinstance(v, w.T.Tensor) else str(type(v).__name__))
    if w.average is not None:
        for k, v in w.average.state_dict().items():
            w.see(f"average {k}", v)
    w.see("next number", w.T.rand(2))


def plain(s):
    # LBFGS stores lists; their elements are the rounding-sensitive values
    return "old_dirs" not in s


def neighbours(T, plan):
    """Runs a plan several times, with initial weights perturbed by about one ulp."""
    return [run(T, plan, jitter=k * JITTER[plan.precision]) for k in (1, -1, 0.5, -2, 3, -0.3)]


def there(plan):
    """Returns the plan without autocast, for a device whose autocast op lists differ from the
    cpu's; loss scaling stays."""
    return dataclasses.replace(plan, precision={"bfloat16": "float32", "float16": "float32", "scaled": "scaled float32"}.get(plan.precision, plan.precision))


def tolerance(plan):
    """Returns the tolerance between two correct runs of a plan, relative to the largest value. Muon
    orthogonalizes in bfloat16."""
    return max(TOLERANCE[plan.precision], 1e-3 if plan.optimizer == "Muon" else 0.0)


def difference(want, have, tolerance=0.0, nearby=()):
    """Returns the first position where two runs differ, or None.

        nearby  runs of real PyTorch with perturbed weights: the tolerance where a program amplifies rounding
    """
    if want and want[-1][0] == "raised" and ("is not implemented" in want[-1][1] or "but got NoneType" in want[-1][1]):
        # PyTorch does not implement a gradient, or a fused step fails because a parameter's first
        # gradient comes later: there is no reference from here on.
        want = want[:-1]
        have = have[:len(want)]
    for i, (a, b) in enumerate(zip(want, have)):
        nears = [n[i][1] for n in nearby if i < len(n) and n[i][0] == a[0]]
        if len(nears) < len(nearby) or isinstance(a[1], np.ndarray) and any(n.shape != a[1].shape for n in nears):
            return None  # rounding changes the control flow
        if a[0] != b[0] or type(a[1]) is not type(b[1]):
            return i, a, b
        x, y = a[1], b[1]
        if not isinstance(x, np.ndarray):
            kinds = (v.partition(":")[0] if a[0] == "raised" else v for v in (x, y))
            if len(set(kinds)) > 1 and all(n == x for n in nears):
                return i, a, b
        elif x.shape != y.shape:
            return i, a, b
        elif x.dtype.kind == "f":
            finite = np.isfinite(x)
            same = [np.array_equal(finite, np.isfinite(n)) for n in nears]
            if not np.array_equal(finite, np.isfinite(y)):
                return (i, a, b) if all(same) else None
            if finite.any():
                magnified = max([float(np.abs(x[finite] - n[finite]).max()) for n, s in zip(nears, same) if s], default=0.0)
                if np.abs(x[finite] - y[finite]).max() > tolerance * max(1.0, float(np.abs(x[finite]).max())) + 20 * magnified:
                    return i, a, b
        elif not np.array_equal(x, y) and all(np.array_equal(x, n) for n in nears):
            return i, a, b
    return None if len(want) == len(have) else (min(len(want), len(have)), ("records", len(want)), ("records", len(have)))


def only_overflowed(T, plan, found):
    """True if real PyTorch overflowed float16 inside an op although the true values are in range.

    PyTorch's float32 run then has finite values there, and the other run, which computes that op in
    float32 internally, is close to them.
    """
    (i, a, b), wide = found, {"float16": "float32", "scaled": "scaled float32"}.get(plan.precision)
    if wide is None or not all(isinstance(v, np.ndarray) and v.dtype.kind == "f" for v in (a[1], b[1])) or a[0] != b[0] or a[1].shape != b[1].shape:
        return False
    if np.isfinite(a[1]).all() or not np.isfinite(b[1]).all():
        return False
    exact = run(T, dataclasses.replace(plan, precision=wide))
    if i >= len(exact) or exact[i][0] != a[0] or exact[i][1].shape != a[1].shape or not np.isfinite(exact[i][1]).all():
        return False
    return float(np.abs(exact[i][1] - b[1]).max()) <= 5 * TOLERANCE[plan.precision] * max(1.0, float(np.abs(exact[i][1]).max()))


def told(found):
    """Formats a difference as text."""
    i, a, b = found
    if isinstance(a[1], np.ndarray) and isinstance(b[1], np.ndarray) and a[1].shape == b[1].shape:
        return f"{a[0]}: largest difference {np.abs(a[1].astype(float) - b[1].astype(float)).max():.3g} of {np.abs(a[1].astype(float)).max(initial=0):.3g}\n{a[1]}\n{b[1]}"[:1500]
    return f"{a[0]}: {str(a[1])[:600]}\n{b[0]}: {str(b[1])[:600]}"


def smaller(plan, fails, budget=50):
    """Returns a smaller plan (fewer parts, events, steps) that still fails."""
    def tries(p):
        if p.steps > 1:
            yield dataclasses.replace(p, steps=p.steps - 1)
        for k in range(len(p.events)):
            yield dataclasses.replace(p, events=p.events[:k] + p.events[k + 1:])
        for k in range(len(p.parts) if len(p.parts) > 1 else 0):
            yield dataclasses.replace(p, parts=p.parts[:k] + p.parts[k + 1:], recomputed=tuple((i - (i > k), way) for i, way in p.recomputed if i != k))
        for k in range(len(p.recomputed)):
            yield dataclasses.replace(p, recomputed=p.recomputed[:k] + p.recomputed[k + 1:])
        for field in dataclasses.fields(Plan):
            if field.name not in ("seed", "parts", "events", "recomputed", "steps", "entry", "precision") and getattr(p, field.name) != field.default:
                yield dataclasses.replace(p, **{field.name: field.default})
    return _smaller.smaller(plan, tries, fails, budget)


def random_plan(T, seed):
    """Returns the random plan of a seed."""
    r = random.Random(seed)
    names, often = list(blocks(T)), lambda simple, others, p: simple if r.random() < p else r.choice(others)
    precision = r.choice(["float64"] * 3 + ["float32"] * 5 + ["bfloat16", "bfloat16", "float16", "scaled", "scaled", "bfloat16 weights"])
    optimizers, functions = list(OPTIMIZERS), list(losses(T))
    if precision in ("float16", "scaled"):
        # PyTorch's oneDNN lacks a float16 LSTM on most processors
        names = [n for n in names if n not in ("recurrent", "packed")]
    if precision not in ("float64", "float32"):
        # rounding decides their result
        functions, names = [k for k in functions if k != "l1"], [n for n in names if n != "extremes"]
        # they turn gradients that are only rounding into full steps
        optimizers = [k for k in optimizers if k not in ("Adafactor", "LBFGS", "LBFGS search")]
    if precision != "float64":
        optimizers.remove("Rprop")
    if precision == "bfloat16 weights":
        optimizers.remove("fused")  # PyTorch's fused optimizer does not update such weights
    backward = often("plain", BACKWARDS, 0.5)
    if backward in ("penalty", "hessian"):
        # PyTorch's second derivative treats the norm as a constant
        names = [n for n in names if n not in ("weight norm", "old weight norm")]
    parts = tuple((r.choice(names), r.randint(0, 999)) for _ in range(r.randint(1, 4)))
    if precision not in ("float64", "float32"):
        # rounding decides the choice of expert
        parts = tuple(("parameter list" if name == "experts" else name, k) for name, k in parts)
    steps, update = r.randint(3, 5), often("plain", UPDATES, 0.6)
    # PyTorch raises if no gradient is left
    clips = [c for c in CLIPS if c != "value" or update != "in backward"]
    recomputed = tuple((i, r.random() < 0.4) for i in range(len(parts)) if r.random() < 0.2)
    loss, kind = r.choice(functions), r.choice(optimizers)
    # a converged line search divides by rounding noise
    kind = "LBFGS" if kind == "LBFGS search" and precision != "float64" else kind
    return Plan(seed, parts, recomputed=recomputed, loss=loss,
                optimizer=kind, scheduler=often("none", SCHEDULERS, 0.4), steps=steps, micro=r.choice([1, 1, 1, 2, 3]),
                backward=backward, clip=often("none", clips, 0.4), update=update, precision=precision,
                saved=often("none", ["clone", "cpu", "numpy"], 0.8), input_grad=r.random() < 0.3, to_none=r.random() < 0.7,
                events=tuple((r.randrange(steps), r.choice(list(EVENTS)), r.randint(0, 999)) for _ in range(r.choice([0, 1, 1, 2, 3]))),
                entry=r.choice(["step", "step", "loss", "model", "model"]))
