"""DistributedDataParallel and related features: several processes match one process with the full
batch.

The reference is PyTorch in one process. Tests without a mark share one run of two processes.
"""

import numpy as np
import pytest
import torch as real
from _ranks import ranks

MODELS = '''
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 11)

    def forward(self, x):
        return self.head(self.body(self.embed(x))).mean(1)


def build(kind, norm=None):
    torch.manual_seed(7)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 11))
    if kind == "cnn":
        return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2),
                             nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(72, 11))
    return Block()


def batch(kind, step, n=16):
    rs = np.random.RandomState(1000 + step)
    y = torch.from_numpy(rs.randint(0, 11, n))
    if kind == "mlp":
        return torch.from_numpy(rs.randn(n, 12).astype(np.float32)), y
    if kind == "cnn":
        return torch.from_numpy(rs.randn(n, 3, 7, 7).astype(np.float32)), y
    return torch.from_numpy(rs.randint(0, 11, (n, 5))), y
'''

TRAIN = MODELS + '''
from torch.nn.parallel import DistributedDataParallel as DDP

def train(kind, steps=20, wrap=True, make=None, n=16, **options):
    net = build(kind)
    if kind == "cnn":
        net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    if wrap:
        with torch.no_grad():
            for p in net.parameters():
                p.add_(RANK)                # construction must undo this
        net = DDP(net, **options)
    opt = make(net) if make else torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        x, y = batch(kind, step, n)
        opt.zero_grad()
        loss = F.cross_entropy(net(x[RANK::WORLD]), y[RANK::WORLD])
        loss.backward()
        opt.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / WORLD)
    return losses, {k: v.clone() for k, v in net.module.state_dict().items()}, net
'''


def alone(kind, steps=20, n=16, optimizer=None):
    """Returns (losses, state) of one PyTorch process on the full batches."""
    scope = {"torch": real, "nn": real.nn, "np": np}
    exec(MODELS, scope)
    net = scope["build"](kind)
    opt = optimizer(net.parameters()) if optimizer else real.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        x, y = scope["batch"](kind, step, n)
        opt.zero_grad()
        loss = real.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, net.state_dict()


def assert_same(given, losses, state, atol=1e-5):
    assert max(losses) - min(losses) > 1e-3
    np.testing.assert_allclose(given["losses"], losses, atol=atol, rtol=0)
    for k, v in state.items():
        np.testing.assert_allclose(np.array(given["state"][k]), v.numpy(), atol=atol, rtol=1e-4, err_msg=k)


def assert_alike(results, key="state"):
    for other in results[1:]:
        assert other[key] == results[0][key], "the ranks differ"


# ------------------------------------------------------------------ two processes, run once
@pytest.fixture(scope="module")
def pair():
    return ranks(TRAIN + '''
out = {}
for kind in ("mlp", "cnn", "transformer"):
    losses, state, _ = train(kind, 20 if kind == "mlp" else 6, bucket_cap_mb=0.001)
    out[kind] = {"losses": losses, "state": state}

# ---- gradients of several backwards
net = build("mlp")
ddp = DDP(net, gradient_as_bucket_view=True)
opt = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(4):
    opt.zero_grad()
    for micro in range(3):
        x, y = batch("mlp", 10 * step + micro)
        part = F.cross_entropy(ddp(x[RANK::WORLD]), y[RANK::WORLD]) if micro == 2 else None
        if part is None:
            with ddp.no_sync():
                part = F.cross_entropy(ddp(x[RANK::WORLD]), y[RANK::WORLD])
                part.backward()
            before = [p.grad.clone() for p in net.parameters()]
        else:
            part.backward()
    opt.step()
    gathered = [torch.zeros_like(before[0]) for _ in range(WORLD)]
    dist.all_gather(gathered, before[0])
out["accumulated"] = {"state": net.state_dict(), "local": not torch.equal(*gathered)}

# ---- unused parameters
class Forked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, use_b):
        return self.b(self.a(x)) if use_b else self.a(x)

def attempt(fn):
    try:
        fn()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return "nothing raised"

ddp = DDP(Forked())
x = torch.ones(2, 4)
ddp(x, True).sum().backward()
out["unused"] = attempt(lambda: ddp(x, True))
torch.manual_seed(3)
forked = Forked()
ddp = DDP(forked, find_unused_parameters=True)
for _ in range(2):
    ddp(x, RANK == 0).sum().backward()
out["found"] = {n: None if p.grad is None else p.grad for n, p in forked.named_parameters()}

# ---- hooks
from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, default_hooks, register_ddp_comm_hook
def gradients(prepare):
    net = build("mlp")
    ddp = DDP(net)
    prepare(ddp)
    x, y = batch("mlp", 0)
    F.cross_entropy(ddp(x[RANK::WORLD]), y[RANK::WORLD]).backward()
    return [p.grad for p in net.parameters()]
seen = []
def own(state, bucket: dist.GradBucket):
    seen.append((bucket.index(), bucket.is_last(), len(bucket.parameters()), [tuple(g.shape) for g in bucket.gradients()]))
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / (2 * WORLD))
out["hooks"] = {
    "none": gradients(lambda d: None),
    "allreduce": gradients(lambda d: d.register_comm_hook(None, default_hooks.allreduce_hook)),
    "fp16": gradients(lambda d: register_ddp_comm_hook(DDPCommHookType.FP16_COMPRESS, d)),
    "bf16": gradients(lambda d: d.register_comm_hook(None, default_hooks.bf16_compress_hook)),
    "wrapped": gradients(lambda d: d.register_comm_hook(None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook))),
    "noop": gradients(lambda d: register_ddp_comm_hook(DDPCommHookType.NOOP, d)),
    "half": gradients(lambda d: d.register_comm_hook(None, own)),
}
out["buckets"] = seen

# ---- buffers, names, errors
net = nn.BatchNorm1d(3)
ddp = DDP(net)
ddp(torch.randn(8, 3) + RANK)                    # running statistics of each rank's own
own = net.running_mean.clone()
ddp(torch.zeros(8, 3))                           # ... but every forward begins with rank 0's
out["buffers"] = {"mean": net.running_mean, "own": own, "names": list(ddp.state_dict())}
out["errors"] = {
    "frozen": attempt(lambda: DDP(nn.Linear(2, 2).requires_grad_(False))),
    "shapes": attempt(lambda: DDP(nn.Linear(2, 2 + RANK))),
    "count": attempt(lambda: DDP(nn.Sequential(*[nn.Linear(2, 2) for _ in range(1 + RANK)]))),
    "devices": attempt(lambda: DDP(nn.Linear(2, 2), device_ids=[0])),
    "hook": attempt(lambda: DDP(nn.Linear(2, 2)).register_comm_hook(None, 3)),
}

# ---- ranks that run out of inputs
ddp = DDP(build("mlp"))
opt = torch.optim.SGD(ddp.parameters(), lr=0.05)
with ddp.join():
    for step in range(3 + 2 * RANK):
        x, y = batch("mlp", 50 + step)
        opt.zero_grad()
        F.cross_entropy(ddp(x[RANK::WORLD]), y[RANK::WORLD]).backward()
        opt.step()
out["joined"] = {"state": ddp.module.state_dict()}

# ---- optimizer state in parts
from torch.distributed.optim import ZeroRedundancyOptimizer
losses, state, net = train("mlp", 8, make=lambda net: ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01))
out["zero"] = {"losses": losses, "state": state}
opt = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
x, y = batch("mlp", 0)
F.cross_entropy(net(x[RANK::WORLD]), y[RANK::WORLD]).backward()
opt.step()
out["zero"]["held"] = len(opt.optim.state)
opt.consolidate_state_dict(to=1)
if RANK == 1:
    whole = opt.state_dict()
    plain = torch.optim.Adam(net.parameters(), lr=0.01)
    plain.load_state_dict(whole)
    out["zero"]["consolidated"] = len(plain.state)
else:
    out["zero"]["error"] = attempt(opt.state_dict)
box = [whole if RANK == 1 else None]
dist.broadcast_object_list(box, src=1)
opt.load_state_dict(box[0])
out["zero"]["reloaded"] = len(opt.optim.state)
give(**out)
''', timeout=100)


@pytest.mark.parametrize("kind, steps", [("mlp", 20), ("cnn", 6), ("transformer", 6)])
def test_ddp_matches_one_process_on_the_full_batch(pair, kind, steps):
    assert_alike([r[kind] for r in pair])
    assert_same(pair[0][kind], *alone(kind, steps))


def test_no_sync_accumulates(pair):
    scope = {"torch": real, "nn": real.nn, "np": np}
    exec(MODELS, scope)
    net = scope["build"]("mlp")
    opt = real.optim.SGD(net.parameters(), lr=0.1)
    for step in range(4):
        opt.zero_grad()
        for micro in range(3):
            x, y = scope["batch"]("mlp", 10 * step + micro)
            real.nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
    assert pair[0]["accumulated"]["local"], "gradients under no_sync are averaged"
    assert_alike([r["accumulated"] for r in pair])
    for k, v in net.state_dict().items():
        np.testing.assert_allclose(pair[0]["accumulated"]["state"][k], v.numpy(), atol=1e-5, err_msg=k)


def test_unused_parameters(pair):
    for r in pair:
        assert r["unused"].startswith("RuntimeError: Expected to have finished reduction in the prior iteration before starting "
                                      "a new one.")
        assert "Parameter indices which did not receive grad" in r["unused"] and "4 5 (c.weight, c.bias)" in r["unused"]
    assert pair[0]["found"] == pair[1]["found"]
    found = pair[0]["found"]
    assert found["c.weight"] is None and found["c.bias"] is None  # unused on every rank
    # one rank of two, two rows, two backward passes
    np.testing.assert_allclose(found["b.bias"], [2.0] * 4)


def test_communication_hooks(pair):
    for r in pair:
        plain = r["hooks"]["none"]
        for name, tol in (("allreduce", 1e-6), ("fp16", 2e-3), ("bf16", 1e-2), ("wrapped", 2e-3)):
            for a, b in zip(r["hooks"][name], plain):
                np.testing.assert_allclose(a, b, atol=tol, err_msg=name)
        for a, b in zip(r["hooks"]["half"], plain):
            np.testing.assert_allclose(2 * np.array(a), b, atol=1e-6)
        assert r["buckets"] == [[0, True, 6, [[11], [11, 16], [16], [16, 32], [32], [32, 12]]]]
    assert pair[0]["hooks"]["noop"] != pair[1]["hooks"]["noop"]


def test_buffers_and_names(pair):
    assert pair[0]["buffers"]["own"] != pair[1]["buffers"]["own"]
    assert pair[0]["buffers"]["mean"] == pair[1]["buffers"]["mean"]
    np.testing.assert_allclose(pair[0]["buffers"]["mean"], 0.9 * np.array(pair[0]["buffers"]["own"]), rtol=1e-5)
    assert pair[0]["buffers"]["names"] == ["module." + n for n in real.nn.BatchNorm1d(3).state_dict()]


def test_errors(pair):
    for r in pair:
        e = r["errors"]
        assert e["frozen"].startswith("RuntimeError: DistributedDataParallel is not needed when a module doesn't have any")
        assert e["shapes"].startswith("RuntimeError: DDP expects same model across all ranks")
        assert e["count"].startswith("RuntimeError: DDP expects same model across all ranks")
        assert e["devices"].startswith("ValueError: DistributedDataParallel device_ids and output_device arguments")
        assert e["hook"].startswith("TypeError")


def joined(counts, steps_by_rank, lr=0.05, initial=True):
    """Reference computed with PyTorch: each step's gradient is the sum over the ranks that still
    have inputs, divided by the world size (`initial`) or by the number of these ranks."""
    scope = {"torch": real, "nn": real.nn, "np": np}
    exec(MODELS, scope)
    net, world = scope["build"]("mlp"), len(steps_by_rank)
    opt = real.optim.SGD(net.parameters(), lr=lr)
    for step in range(max(steps_by_rank)):
        x, y = scope["batch"]("mlp", counts + step)
        active = [r for r in range(world) if step < steps_by_rank[r]]
        opt.zero_grad()
        for r in active:
            loss = real.nn.functional.cross_entropy(net(x[r::world]), y[r::world])
            (loss / (world if initial else len(active))).backward()
        opt.step()
    return net.state_dict()


def test_join(pair):
    assert_alike([r["joined"] for r in pair])
    for k, v in joined(50, [3, 5]).items():
        np.testing.assert_allclose(pair[0]["joined"]["state"][k], v.numpy(), atol=1e-5, err_msg=k)


def test_zero_redundancy_optimizer(pair):
    assert_alike([r["zero"] for r in pair])
    assert_same(pair[0]["zero"], *alone("mlp", 8, optimizer=lambda p: real.optim.Adam(p, lr=0.01)))
    held = [r["zero"]["held"] for r in pair]
    assert sum(held) == 6 and min(held) > 0
    assert pair[1]["zero"]["consolidated"] == 6 and "has not been consolidated" in pair[0]["zero"]["error"]
    assert [r["zero"]["reloaded"] for r in pair] == held


# ------------------------------------------------------------------ more processes, more steps
@pytest.mark.dist
@pytest.mark.parametrize("world", [2, 4])
def test_twenty_steps_match_one_process(world):
    results = ranks(TRAIN + """
out = {}
for kind in ("mlp", "cnn", "transformer"):
    losses, state, _ = train(kind, 20, bucket_cap_mb=0.002, gradient_as_bucket_view=kind == "cnn", static_graph=kind == "mlp",
                             find_unused_parameters=kind == "transformer")
    out[kind] = {"losses": losses, "state": state}
give(**out)
""", world=world, timeout=110)
    for kind in ("mlp", "cnn", "transformer"):
        assert_alike([r[kind] for r in results])
        assert_same(results[0][kind], *alone(kind, 20))


@pytest.mark.dist
def test_uneven_inputs_on_four_ranks():
    steps = [2, 5, 3, 5]
    results = ranks(TRAIN + f"""
steps = {steps}[RANK]
out = {{}}
for initial in (True, False):
    for find in (False, True):
        ddp = DDP(build("mlp"), find_unused_parameters=find, bucket_cap_mb=0.002)
        opt = torch.optim.SGD(ddp.parameters(), lr=0.05)
        with ddp.join(divide_by_initial_world_size=initial):
            for step in range(steps):
                x, y = batch("mlp", 70 + step)
                opt.zero_grad()
                F.cross_entropy(ddp(x[RANK::WORLD]), y[RANK::WORLD]).backward()
                opt.step()
        out[f"{{initial}} {{find}}"] = ddp.module.state_dict()

# gradients of two backwards: the same batch twice
ddp = DDP(build("mlp"))
opt = torch.optim.SGD(ddp.parameters(), lr=0.025)
with ddp.join():
    for step in range(steps):
        x, y = batch("mlp", 70 + step)
        opt.zero_grad()
        with ddp.no_sync():
            F.cross_entropy(ddp(x[RANK::WORLD]), y[RANK::WORLD]).backward()
        F.cross_entropy(ddp(x[RANK::WORLD]), y[RANK::WORLD]).backward()
        opt.step()
out["twice"] = ddp.module.state_dict()

# two joinables, buffers
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
net = build("cnn")
ddp = DDP(net)
opt = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=0.01)
with Join([ddp, opt]):
    for step in range(steps):
        x, y = batch("cnn", 30 + step)
        opt.zero_grad()
        F.cross_entropy(ddp(x[RANK::WORLD]), y[RANK::WORLD]).backward()
        opt.step()
out["both"] = ddp.module.state_dict()

ddp = DDP(build("mlp"))
made = 0
try:
    with ddp.join(throw_on_early_termination=True):
        for step in range(steps):
            x, y = batch("mlp", 70 + step)
            F.cross_entropy(ddp(x[RANK::WORLD]), y[RANK::WORLD]).backward()
            made += 1
    out["thrown"] = "nothing"
except RuntimeError as e:
    out["thrown"] = str(e)
out["made"] = made
give(**out)
""", world=4, timeout=110)
    for initial in (True, False):
        for find in (False, True):
            key = f"{initial} {find}"
            assert_alike(results, key)
            for k, v in joined(70, steps, initial=initial).items():
                np.testing.assert_allclose(results[0][key][k], v.numpy(), atol=1e-5, err_msg=f"{key}: {k}")
    assert_alike(results, "twice")
    for k, v in joined(70, steps).items():
        np.testing.assert_allclose(results[0]["twice"][k], v.numpy(), atol=1e-5, err_msg=k)
    assert_alike(results, "both")
    assert all(np.isfinite(np.array(v)).all() for v in results[0]["both"].values())
    assert results[0]["thrown"] == "Rank 0 exhausted all inputs."
    for r in results[1:]:
        assert r["thrown"] == "Detected at least one rank that exhausted inputs. Throwing across all ranks."
    assert [r["made"] for r in results] == [2, 2, 2, 2]


@pytest.mark.dist
def test_sparse_reentrant_and_multi_pass_graphs():
    """Sparse gradients, several forward and backward passes, reentrant checkpoints, outputs in
    containers, and a group of some of the ranks."""
    results = ranks(TRAIN + """
from torch.utils.checkpoint import checkpoint
out = {}

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.table, self.out = nn.Embedding(9, 4, sparse=True), nn.Linear(4, 3)
    def forward(self, i):
        return {"logits": [self.out(self.table(i).mean(1))]}

net = Words()
ddp = DDP(net)
ddp(torch.tensor([[RANK, 3], [RANK, 4]]))["logits"][0].sum().backward()
out["sparse"] = [net.table.weight.grad.to_dense(), net.table.weight.grad.is_sparse, net.out.weight.grad]

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        x = checkpoint(self.a, x, use_reentrant=True)
        return self.b(checkpoint(self.a, x, use_reentrant=True))

def run(net, wrapped, rank):
    x = torch.arange(8.).view(2, 4).add(rank).requires_grad_()
    for _ in range(3):
        net.zero_grad()
        wrapped(x).pow(2).sum().backward()
net = Deep()
run(net, DDP(net, static_graph=True), RANK)
out["static"] = [p.grad for p in net.parameters()]
plain = Deep()
grads = []
for r in range(WORLD):
    run(plain, plain, r)
    grads.append([p.grad.clone() for p in plain.parameters()])
out["static expected"] = [sum(g) / WORLD for g in zip(*grads)]

# two forwards, one backward; then one forward, two backwards with half of the parameters each
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        return self.a(x), self.b(x)
net = Two()
ddp = DDP(net, bucket_cap_mb=1e-5)
x = torch.arange(8.).view(2, 4) + RANK
one, two = ddp(x), ddp(x + 1)
(one[0].sum() + one[1].sum() + two[0].sum() * 2).backward()
out["forwards"] = [p.grad.clone() for p in net.parameters()]
net.zero_grad()
a, b = ddp(x)
a.sum().backward()
b.sum().backward()
out["backwards"] = [p.grad.clone() for p in net.parameters()]

some = dist.new_group([1, 2])
if RANK in (1, 2):
    net = nn.Linear(4, 1, bias=False)
    DDP(net, process_group=some)(x).sum().backward()
    out["group"] = net.weight.grad
give(**out)
""", world=3, timeout=110)
    for r in results:
        table = np.zeros((9, 4))
        table_grad, sparse, _ = r["sparse"]
        # rows 0 to 4, from three ranks
        assert sparse and np.count_nonzero(np.abs(table_grad).sum(1)) == 5
        for a, b in zip(r["static"], r["static expected"]):
            np.testing.assert_allclose(a, b, rtol=1e-5)
        mean_x = np.arange(8.).reshape(2, 4) + 1
        row = mean_x.sum(0) + 2 * (mean_x + 1).sum(0)
        np.testing.assert_allclose(r["forwards"][0], np.tile(row, (4, 1)), rtol=1e-6)
        np.testing.assert_allclose(r["backwards"][0], np.tile(mean_x.sum(0), (4, 1)), rtol=1e-6)
        np.testing.assert_allclose(r["backwards"][2], np.tile(mean_x.sum(0), (4, 1)), rtol=1e-6)
    assert_alike(results, "sparse")
    assert_alike(results[1:], "group")
    np.testing.assert_allclose(results[1]["group"], [(np.arange(8.).reshape(2, 4) + 1.5).sum(0)], rtol=1e-6)


@pytest.mark.dist
def test_sync_batch_norm():
    """Mean much larger than the standard deviation, uneven batches across ranks, no affine
    parameters, momentum None, evaluation."""
    results = ranks("""
out = {}
def data():
    rs = np.random.RandomState(0)
    return (rs.randn(9, 4, 3) * 0.1 + 300).astype(np.float32), rs.randn(9, 4, 3).astype(np.float32)
x, g = data()
mine = slice(0, 2) if RANK == 0 else slice(2, 9)
for name, options in (("plain", {}), ("bare", dict(affine=False)), ("cumulative", dict(momentum=None))):
    norm = nn.SyncBatchNorm(4, **options)
    for _ in range(2):
        t = torch.from_numpy(x[mine]).requires_grad_()
        y = norm(t)
    y.backward(torch.from_numpy(g[mine]))
    grads = [p.grad for p in norm.parameters()]
    for q in grads:
        dist.all_reduce(q)
    norm.eval()
    out[name] = {"y": y, "dx": t.grad, "grads": grads, "state": norm.state_dict(), "eval": norm(t)}
give(**out)
""", world=2)
    rs = np.random.RandomState(0)
    x, g = (rs.randn(9, 4, 3) * 0.1 + 300).astype(np.float32), rs.randn(9, 4, 3).astype(np.float32)
    for name, options in (("plain", {}), ("bare", dict(affine=False)), ("cumulative", dict(momentum=None))):
        norm = real.nn.BatchNorm1d(4, **options).double()
        for _ in range(2):
            t = real.from_numpy(x).double().requires_grad_()
            y = norm(t)
        y.backward(real.from_numpy(g).double())

        def whole(key):
            return np.concatenate([np.array(r[name][key]) for r in results])
        # float32 at 300: rounding of 3e-5, standard deviation 0.1
        np.testing.assert_allclose(whole("y"), y.detach().numpy(), atol=2e-3)
        np.testing.assert_allclose(whole("dx"), t.grad.numpy(), atol=2e-2)
        for p, got in zip(norm.parameters(), results[0][name]["grads"]):
            np.testing.assert_allclose(got, p.grad.numpy(), atol=5e-3)
        for k, v in norm.state_dict().items():
            np.testing.assert_allclose(results[0][name]["state"][k], v.numpy(), rtol=1e-3, err_msg=k)
        assert results[0][name]["state"] == results[1][name]["state"]


UNEVEN = TRAIN + """
import random
class Chosen(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.ModuleDict({k: nn.Linear(3, 2) for k in "abc"})
    def forward(self, x, which):
        return sum(self.layers[k](x) for k in which)

def seen(net):
    return {n: None if p.grad is None else p.grad.clone() for n, p in net.named_parameters()}

out, r = {}, random.Random(5)
for case in range(24):
    static, views = case % 6 == 5, r.random() < 0.5
    net = Chosen()
    ddp = DDP(net, find_unused_parameters=not static, static_graph=static, gradient_as_bucket_view=views, bucket_cap_mb=r.choice([25, 0.00002]))
    ways = [r.choice(["a", "b", "c", "ab", "bc", "abc"]) for _ in range(WORLD)]
    local = False
    for i in range(5):
        synced = not local
        ways = ways if static else [r.choice(["a", "b", "c", "ab", "bc"]) for _ in range(WORLD)]
        local, none, zero = i < 4 and r.random() < 0.5 and not (static and i == 0), r.random() < 0.3, r.random() < 0.2 and not views
        if (none or zero) and synced:
            net.zero_grad(set_to_none=none)
        x = torch.linspace(-1, 1, 3)[None] * (RANK + i + 1)
        with ddp.no_sync() if local else contextlib.nullcontext():
            ddp(x, ways[RANK]).sum().backward()
        out[f"{case} {i} {static} {views} {local} {ways}"] = seen(net)

for case in range(6):
    find, views, initial = case % 2 == 1, case % 3 == 0, case % 4 < 2
    net = Chosen()
    ddp = DDP(net, find_unused_parameters=find, gradient_as_bucket_view=views, bucket_cap_mb=0.00002 if case > 3 else 25)
    with ddp.join(divide_by_initial_world_size=initial):
        for i in range(2 + RANK * r.choice([1, 2])):
            x = torch.linspace(-1, 1, 3)[None] * (RANK + i + 1)
            if case % 2 and i == 0:
                with ddp.no_sync():
                    ddp(x, "ab" if find else "abc").sum().backward()
            else:
                ddp(x, "bc" if find else "abc").sum().backward()
            out[f"joining {case} {i}"] = seen(net)
    out[f"joined {case} {find} {views} {initial}"] = seen(net)
give(**out)
""".replace("import random", "import contextlib, random", 1)


@pytest.mark.dist
def test_gradients_of_uneven_passes_match_torch():
    """Parameters used on only some ranks or only under no_sync(), and gradients of ranks that run
    out of inputs."""
    want, have = (ranks(UNEVEN, real=side, timeout=110) for side in (True, False))
    for rank, (a, b) in enumerate(zip(want, have)):
        assert list(a) == list(b)
        for key in a:
            for name, g in a[key].items():
                assert (g is None) == (b[key][name] is None), (rank, key, name)
                if g is not None:
                    np.testing.assert_allclose(b[key][name], g, rtol=1e-5, atol=1e-6, err_msg=f"rank {rank}: {key} {name}")


@pytest.mark.dist
def test_sharded_optimizer_uses_averages_of_active_ranks():
    """The rank without inputs updates its shard of the parameters with the average over the other
    ranks, and keeps its own gradients."""
    results = ranks(TRAIN + """
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
out = {}
for kind in ("whole", "parts"):
    ddp = DDP(build("mlp"))
    sgd = dict(lr=0.05, momentum=0.9)
    opt = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, **sgd) if kind == "parts" else torch.optim.SGD(ddp.parameters(), **sgd)
    with Join([ddp, opt] if kind == "parts" else [ddp]):
        for step in range(2 + 3 * RANK):
            x, y = batch("mlp", 70 + step)
            opt.zero_grad()
            F.cross_entropy(ddp(x[RANK::WORLD]), y[RANK::WORLD]).backward()
            opt.step()
            last = ddp.module[0].weight.grad.clone()
    out[kind] = ddp.module.state_dict()
    assert torch.equal(ddp.module[0].weight.grad, last)
give(**out)
""")
    assert_alike(results, "parts")
    for k, v in results[0]["whole"].items():
        np.testing.assert_allclose(results[0]["parts"][k], v, atol=1e-6, err_msg=k)
