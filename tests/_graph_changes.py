"""Random changes between the calls of a training step, runs of a plan (tests/_graph_programs.py),
and random plans.

A change is a function of the `World` and of its own random generator, so its effect does not depend
on earlier changes. `run` runs a plan with a compiling function and returns everything observable;
two runs of a plan, one of them eager, must return the same. `smaller` reduces a failing plan.
"""
import dataclasses
import random

import numpy as np

import _smaller
import mindtorch.torch as torch
from _compile_programs import array
from _graph_programs import GLOBAL, OPTIMIZERS, OUTS, WIDTH, WORDS, Deliberate, Plan, World

nn = torch.nn
CHANGES = {}


def change(f):
    CHANGES[f.__name__.strip("_").replace("_", " ")] = f
    return f


def _groups(**values):
    def set_(w, r):
        for g in w.optimizer.param_groups:
            for k, options in values.items():
                if k in g:
                    g[k] = r.choice([v for v in options if v != g[k]])
    return set_


CHANGES["lr"] = _groups(lr=(0.3, 0.03, 0.5, 0.15))
CHANGES["momentum"] = _groups(momentum=(0.3, 0.7, 0.0), betas=((0.5, 0.9), (0.8, 0.99)))
CHANGES["weight decay"] = _groups(weight_decay=(0.3, 0.1, 0.0))
CHANGES["eps"] = _groups(eps=(0.1, 0.05))
CHANGES["maximize"] = _groups(maximize=(True, False))


def _linear(w, r):
    return r.choice([m for m in w.net.modules() if isinstance(m, nn.Linear)])


@change
def one_lr(w, r):
    w.optimizer.param_groups[-1]["lr"] *= 1.5


@change
def lr_as_tensor(w, r):
    for g in w.optimizer.param_groups:
        g["lr"] = torch.tensor(r.choice([0.2, 0.4]))


@change
def save(w, r):
    w.saved = ({k: v.clone() for k, v in w.net.state_dict().items()}, w.optimizer.state_dict())


@change
def load(w, r):
    if w.saved is not None:
        w.net.load_state_dict(w.saved[0], assign=r.random() < 0.3)
        w.optimizer.load_state_dict(w.saved[1])


@change
def step_counts(w, r):
    d = w.optimizer.state_dict()
    for s in d["state"].values():
        if "step" in s:
            s["step"] = s["step"] + 7 if not isinstance(s["step"], torch.Tensor) else s["step"] + torch.tensor(7.0)
        for k in ("momentum_buffer", "exp_avg"):
            if s.get(k) is not None:
                s[k] = s[k] * 2 + 0.01
    w.optimizer.load_state_dict(d)


@change
def optimizer_state_in_place(w, r):
    for s in w.optimizer.state.values():
        for v in s.values():
            if isinstance(v, torch.Tensor) and v.dim():
                v.mul_(0.5).add_(0.01)


@change
def optimizer_forgets(w, r):
    w.optimizer.state.clear()


@change
def optimizer_anew(w, r):
    w.optimizer = OPTIMIZERS[r.choice([k for k in OPTIMIZERS if k != w.plan.optimizer])]([*w.net.parameters(), w.shift])


@change
def train(w, r):
    w.net.train(not w.net.training)


@change
def train_a_part(w, r):
    m = r.choice(list(w.net.modules()))
    m.train(not m.training)


@change
def dropout_p(w, r):
    for m in w.net.modules():
        if isinstance(m, nn.Dropout):
            m.p = r.choice([v for v in (0.0, 0.6, 0.3) if v != m.p])


@change
def norm_settings(w, r):
    for m in w.net.modules():
        if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d)):
            m.momentum, m.eps = r.choice([0.5, 0.3]), 1e-2
        elif isinstance(m, nn.LayerNorm):
            m.eps = 0.1


@change
def requires_grad(w, r):
    p = r.choice([*w.net.parameters(), w.shift])
    p.requires_grad_(not p.requires_grad)


@change
def freeze(w, r):
    for p in w.net.parameters():
        p.requires_grad_(not p.requires_grad)


@change
def new_parameter(w, r):
    m = _linear(w, r)
    m.weight = nn.Parameter(m.weight.detach() * 1.2 + 0.05)


@change
def new_trained_parameter(w, r):
    m = _linear(w, r)
    old, m.weight = m.weight, nn.Parameter(m.weight.detach() * 1.2 + 0.05)
    for g in w.optimizer.param_groups:
        g["params"] = [m.weight if p is old else p for p in g["params"]]
    if old in w.optimizer.state:
        w.optimizer.state[m.weight] = w.optimizer.state.pop(old)


@change
def shared_parameter(w, r):
    linears = [m for m in w.net.modules() if isinstance(m, nn.Linear)]
    a = r.choice(linears)
    same = [m for m in linears if m is not a and m.weight.shape == a.weight.shape]
    if same:
        same[0].weight = a.weight


@change
def write_parameter(w, r):
    with torch.no_grad():
        r.choice(list(w.net.parameters())).mul_(0.7).add_(0.02)


@change
def write_part_of_parameter(w, r):
    with torch.no_grad():
        _linear(w, r).weight[:, 0].fill_(0.2)


@change
def write_data(w, r):
    r.choice(list(w.net.parameters())).data.add_(0.1)


@change
def new_data(w, r):
    p = r.choice(list(w.net.parameters()))
    p.data = p.data * 0.5 + 0.1


@change
def strided_data(w, r):
    p = _linear(w, r).weight
    p.data = (p.data * 0.5).t().contiguous().t()


@change
def swapped_data(w, r):
    new = torch.full((WIDTH,), 0.3, dtype=w.shift.dtype).to(w.device)
    w.state, w.shift.data = w.shift.data, new


@change
def write_buffer(w, r):
    for b in w.net.buffers():
        if b.dtype.is_floating_point:
            b.mul_(0.5).add_(0.3)
    w.state.add_(1)


@change
def new_buffer(w, r):
    for m in w.net.modules():
        for k, b in list(m._buffers.items()):
            if b is not None and b.dtype.is_floating_point:
                m._buffers[k] = b * 0.5 + 0.2
    w.state = w.state - 1


@change
def global_number(w, r):
    GLOBAL["scale"] = r.choice([v for v in (1.0, 1.3, 0.6, 2) if v != GLOBAL["scale"]])


@change
def closure_number(w, r):
    w.turn(r.choice([0.6, -0.4]))
    w.closed["value"] += 0.2


@change
def attribute_number(w, r):
    w.number = r.choice([v for v in (0.25, -0.5, 1.5, 1) if v != w.number])


@change
def attribute_tensor(w, r):
    w.note = None if w.note is not None and r.random() < 0.3 else torch.full((WIDTH,), r.choice([0.2, -0.3])).to(w.device)


@change
def list_of_numbers(w, r):
    w.numbers.append(r.random()) if len(w.numbers) < 4 else w.numbers.clear()


@change
def one_of_the_list(w, r):
    w.numbers[:1] = [r.random() + 2]


@change
def backward_outside(w, r):
    """Toggles a backward pass from the outputs after each call."""
    w.backward_outside = not w.backward_outside


@change
def raise_next(w, r):
    w.raise_at = w.count + 1


@change
def batch(w, r):
    w.batch = r.choice([n for n in (2, 3, 5, 7) if n != w.batch])


@change
def dtype(w, r):
    w.dtype = r.choice([d for d in (torch.float32, torch.float64, torch.float16, torch.int64) if d != w.dtype])


@change
def layout(w, r):
    w.layout = r.choice([k for k in ("plain", "transposed", "slice", "expanded") if k != w.layout])


@change
def share(w, r):
    w.share = r.choice([k for k in ("none", "views", "same", "input", "parameter", "state", "itself", "output") if k != w.share])


@change
def input_grad(w, r):
    w.needs_grad = not w.needs_grad


@change
def same_data(w, r):
    w.same_data = not w.same_data


@change
def write_data_of_input(w, r):
    w.same_data = True
    if w.data is not None and 0 not in w.data[0].stride():
        with torch.no_grad():
            w.data[0].mul_(2)


@change
def grads_to_none(w, r):
    for p in w.optimizer.param_groups[0]["params"]:
        p.grad = None


@change
def grads_to_zero(w, r):
    w.optimizer.zero_grad(set_to_none=False)


@change
def grads_by_hand(w, r):
    for p in [*w.net.parameters(), w.shift]:
        p.grad = torch.full_like(p, 0.1)


@change
def write_grads(w, r):
    for p in [*w.net.parameters(), w.shift]:
        if p.grad is not None:
            p.grad.mul_(3)


@change
def forward_hook(w, r):
    k = r.choice([0.5, 1.5])
    w.hooks.append(r.choice(list(w.net.modules())).register_forward_hook(lambda m, args, out: out * k if isinstance(out, torch.Tensor) else None))


@change
def pre_hook(w, r):
    w.hooks.append(w.net.register_forward_pre_hook(lambda m, args: (args[0] * w.number,)))


@change
def backward_hook(w, r):
    w.hooks.append(_linear(w, r).register_full_backward_hook(lambda m, before, after: tuple(None if g is None else g * 2 for g in before)))


@change
def tensor_hook(w, r):
    if w.shift.requires_grad:
        w.hooks.append(w.shift.register_hook(lambda g: g * w.number + 0.01))


def _halve(p):
    p.grad.mul_(0.5)


@change
def grad_hook(w, r):
    p = r.choice([p for p in w.net.parameters()])
    if p.requires_grad:
        w.hooks.append(p.register_post_accumulate_grad_hook(_halve))


@change
def unhook(w, r):
    if w.hooks:
        w.hooks.pop().remove()


@change
def grad_mode(w, r):
    w.grad_mode = not w.grad_mode


@change
def autocast_around(w, r):
    w.autocast = not w.autocast


@change
def seed(w, r):
    torch.manual_seed(r.randint(0, 99))


@change
def default_dtype_of_torch(w, r):
    torch.set_default_dtype(torch.float64 if torch.get_default_dtype() is torch.float32 else torch.float32)


@change
def scale_of_scaler(w, r):
    if w.scaler._scale is not None:
        w.scaler.update(r.choice([4.0, 64.0, 1e38]))


@change
def double(w, r):
    for p in [*w.net.parameters(), w.shift]:
        p.grad = None
        p.data = p.data.double()
    for b in w.net.buffers():
        if b.dtype.is_floating_point:
            b.data = b.data.double()
    w.optimizer.state.clear()
    w.shadow = [p.detach().clone() for p in w.net.parameters()]


@change
def frozen_module(w, r):
    m = _linear(w, r)
    m.forward = (lambda f: lambda x: f(x) * 0.5)(m.forward)


@change
def new_activation(w, r):
    for m in w.net.modules():
        for k, child in list(m._modules.items()):
            if isinstance(child, (nn.ReLU, nn.Tanh)):
                m._modules[k] = nn.Sigmoid()


# ------------------------------------------------------------------ runs
def flatten(out):
    """Returns the leaves of an output: tensors, floats, and the text of anything else."""
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, dict):
        return [x for k in out for x in [f"key {k}", *flatten(out[k])]]
    if isinstance(out, (list, tuple)):
        return [f"{type(out).__name__} {len(out)}", *(x for o in out for x in flatten(o))]
    return [out if isinstance(out, float) else repr(out)]


def seen(leaf):
    """Returns the observable properties of a leaf: metadata and values."""
    if isinstance(leaf, torch.Tensor):
        nature = f"{leaf.dtype} {tuple(leaf.shape)} {leaf.stride()} {leaf.requires_grad} {leaf.is_leaf} {leaf.grad_fn is None}"
        return [nature, array(leaf.float() if leaf.dtype in (torch.bfloat16, torch.float16) else leaf)]
    return [np.asarray(leaf)] if isinstance(leaf, float) else [leaf]


def outside(leaves):
    """Runs backward twice from the outputs that have a history."""
    tensors = [x for x in leaves if isinstance(x, torch.Tensor) and x.grad_fn is not None]
    if tensors:
        total = sum((x.float() * 0.5).sum() for x in tensors)
        total.backward(retain_graph=True)
        total.backward()


def identity(f):
    return f


def run(plan, device, compiling=identity, without=None, world=None, jitter=0.0):
    """Returns everything observable of a run of a plan.

        compiling  compiles a function or module
        without    index of the change in `plan.changes` to leave out
        world      an existing `World` of this plan
        jitter     relative perturbation of inputs and parameters, to see the effect of rounding alone
    """
    w = world or World(plan, device, compiling, jitter)
    out, late = [], []
    try:
        for i in range(plan.calls):
            for k, (at, name, seed_) in enumerate(plan.changes):
                if at == i and k != without:
                    try:
                        CHANGES[name](w, random.Random(seed_))
                    except Exception as e:
                        out.append(f"{name}: {type(e).__name__}")
            out.append(f"call {i}")
            try:
                with torch.set_grad_enabled(w.grad_mode):
                    leaves = flatten(w.step(w, *w.inputs(i)))
                    if w.backward_outside:
                        outside(leaves)
                w.last = next((x.detach().reshape(-1)[:WIDTH] for x in leaves if isinstance(x, torch.Tensor) and x.numel() >= WIDTH and x.is_floating_point()), None)
            except Deliberate:
                leaves = ["deliberate"]
            except Exception as e:
                leaves = [type(e).__name__]
                w.errors.append(f"{i}: {e}")
            how = plan.read if plan.read != "mixed" else ("now", "late", "dropped", "soon")[random.Random(plan.seed * 100 + i).randrange(4)]
            if how == "now":
                out += [s for leaf in leaves for s in seen(leaf)]
            elif how in ("late", "soon"):
                late.append((i + 2 if how == "soon" else plan.calls, leaves))
            for due, leaves in [x for x in late if x[0] <= i]:
                out += [s for leaf in leaves for s in seen(leaf)]
            late = [x for x in late if x[0] > i]
            if how == "now":
                out += [s for t in w.tensors() for s in seen(t)]
        out += ["late"] + [s for _, leaves in late for leaf in leaves for s in seen(leaf)]
        out += ["state"] + [s for t in w.tensors() for s in seen(t)]
        out += ["random", array(torch.rand(2, device=device)), *w.printed]
    finally:
        torch.set_default_dtype(torch.float32)
    return out


def smaller(plan, fails):
    """Returns a smaller plan (fewer words, changes, calls) that still fails."""
    def tries(p):
        for k in range(len(p.changes)):
            yield dataclasses.replace(p, changes=p.changes[:k] + p.changes[k + 1:])
        for k in range(len(p.words)):
            yield dataclasses.replace(p, words=p.words[:k] + p.words[k + 1:])
        for k in range(len(p.out)):
            yield dataclasses.replace(p, out=p.out[:k] + p.out[k + 1:])
        if p.calls > 1:
            yield dataclasses.replace(p, calls=p.calls // 2)
            yield dataclasses.replace(p, calls=p.calls - 1)
        for field, simple in (("backward", "plain"), ("update", "plain"), ("zero", "none"), ("read", "now"), ("optimizer", "plain"), ("net", "mlp"), ("entry", "step")):
            if getattr(p, field) != simple:
                yield dataclasses.replace(p, **{field: simple})
    return _smaller.smaller(plan, tries, fails, 60)


def random_plan(seed):
    """Returns the random plan of a seed."""
    r = random.Random(seed)
    calls = r.randint(9, 13)
    words = r.sample(list(WORDS), r.randint(2, 5))
    changes, at = [], 2
    while at < calls:  # some consecutive calls are unchanged, so compiled code also runs
        for _ in range(r.choice([1, 1, 1, 2])):
            changes.append((at, r.choice(list(CHANGES)), r.randint(0, 999)))
        at += r.choice([1, 2, 2, 3, 4])
    return Plan(seed, net=r.choice(["linear", "linear", "mlp", "norm", "norm", "conv", "words", "attention", "recurrent", "tied"]), optimizer=r.choice(list(OPTIMIZERS)),
                words=tuple(words), changes=tuple(changes), calls=calls,
                entry=r.choice(["step"] * 6 + ["model", "loss", "update", "both"]),
                zero=r.choice(["none", "none", "zero", "not"]),
                backward=r.choice(["plain", "plain", "plain", "scaler", "twice", "double", "grad", "accumulate", "none"]),
                update=r.choice(["plain", "plain", "clip", "clip value", "by hand", "each second", "scheduler", "shadow", "data", "set to none", "closure"]),
                out=tuple(r.sample(list(OUTS), r.randint(1, 3))), read=r.choice(["now", "late", "mixed", "mixed"]))
