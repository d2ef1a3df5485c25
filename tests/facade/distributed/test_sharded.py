"""Sharded tensors, parameters and checkpoints: DTensor, fully_shard, FullyShardedDataParallel,
resharding.

References are NumPy, one process on the full batch, and PyTorch running the same program. Tests
without a mark share one run of two processes.
"""
import numpy as np
import pytest
import torch as real
import torch.distributed.checkpoint as real_dcp
from _ranks import ranks

import mindtorch.torch as mt
import mindtorch.torch.distributed.checkpoint as dcp

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore::FutureWarning")

COMMON = '''
import itertools
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Sequential(nn.Linear(7, 5), nn.LayerNorm(5)), nn.Linear(5, 3))

def batch(i):
    rs = np.random.RandomState(i)
    return torch.from_numpy(rs.randn(8, 6).astype(np.float32)), torch.from_numpy(rs.randint(0, 3, 8))

def train(net, opt, steps, rank=0, world=1):
    losses = []
    for i in steps:
        x, y = batch(i)
        opt.zero_grad()
        loss = F.cross_entropy(net(x[rank::world]), y[rank::world])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
    return losses

def attempt(fn):
    try:
        fn()
    except BaseException as e:
        return f"{type(e).__name__}: {e}"
    return "nothing raised"

def whole(state):
    return {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in state.items()}
'''


def alone(steps=5, lr=0.01):
    scope = {"torch": real, "nn": real.nn, "F": real.nn.functional, "np": np}
    exec(COMMON[COMMON.index("def build"):COMMON.index("def attempt")], scope)
    net = scope["build"]()
    opt = real.optim.AdamW(net.parameters(), lr=lr)
    losses = scope["train"](net, opt, range(steps))
    return losses, {k: v.numpy() for k, v in net.state_dict().items()}


def assert_state(given, state, atol=1e-5):
    assert list(given) == list(state)
    for k, v in state.items():
        np.testing.assert_allclose(np.array(given[k]), v, atol=atol, err_msg=k)


# ------------------------------------------------------------------ two processes, run once
PAIR = COMMON + '''
out = {}
mesh = init_device_mesh("cpu", (WORLD,))
w = torch.arange(21.).view(7, 3)
d = distribute_tensor(w + RANK, mesh, [Shard(0)])           # the first rank's values
out["part"] = [d.to_local(), d.redistribute(placements=[Shard(-1)]).to_local(), list(d.shape), d.numel(), d.full_tensor()]
r = distribute_tensor(torch.ones(3, 2), mesh, [Replicate()])
product = d @ r
out["ops"] = [(d * 2 + 1).full_tensor(), product.full_tensor(), d.sum().item(), torch.relu(-d).to_local(), d.t().full_tensor(),
              torch.cat([d, d]).full_tensor(), (d > 4).to_local().tolist(), torch.where(d > 4, d, -d).full_tensor()]
out["partial"] = DTensor.from_local(torch.full((2, 2), 1. + RANK), mesh, [Partial()]).redistribute(placements=[Shard(0)]).to_local()
leaf = nn.Parameter(distribute_tensor(w, mesh, [Shard(0)]))
weights = distribute_tensor(w.flip(0).contiguous(), mesh, [Shard(1)])
(leaf * weights).sum().backward()
(leaf.redistribute(placements=[Shard(1)]) * weights).sum().backward()
out["grad"] = [leaf.grad.full_tensor(), leaf.grad.to_local()]
with torch.no_grad():
    leaf -= 0.5 * leaf.grad
    out["written"] = leaf.full_tensor()
out["mixed"] = attempt(lambda: d + torch.ones(7, 3))
out["placements"] = [str(d.placements), str(product.placements)] if not REAL else []
if not REAL:
    import io
    out["pickle"] = attempt(lambda: torch.save(d, io.BytesIO()))
    out["drawn"] = attempt(lambda: torch.nn.functional.dropout(d))

# ---- fully_shard, and the wrapper
net = build()
fully_shard(net[2], mesh=mesh)
fully_shard(net, mesh=mesh)
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
train(net, opt, range(5), RANK, WORLD)
out["fully"] = whole(net.state_dict())
out["kept"] = [sum(p.to_local().numel() for p in net.parameters()), sum(s["exp_avg"].to_local().numel() for s in opt.state.values())]
model, optim = get_state_dict(net, opt, options=StateDictOptions(full_state_dict=True))
out["full"] = {"names": list(optim["state"]), "sizes": [list(s["exp_avg"].shape) for s in optim["state"].values()]}

# gradients of several backwards
net = build()
fully_shard(net, mesh=mesh)
for i in range(3):
    net.set_requires_gradient_sync(i == 2)
    x, y = batch(i)
    F.cross_entropy(net(x[RANK::WORLD]), y[RANK::WORLD]).backward()
out["accumulated"] = [p.grad.full_tensor() for p in net.parameters()]

if not REAL:
    f = FSDP(build(), auto_wrap_policy=lambda module, recurse, nonwrapped_numel: recurse or isinstance(module, nn.Linear))
    opt = torch.optim.AdamW(f.parameters(), lr=0.01)
    losses = train(f, opt, range(3), RANK, WORLD)
    before = f.state_dict()
    osd = FSDP.optim_state_dict(f, opt)
    g = FSDP(build())
    opt2 = torch.optim.AdamW(g.parameters(), lr=0.01)
    with torch.no_grad():
        for p in g.parameters():
            p.zero_()
    g.load_state_dict(before)
    opt2.load_state_dict(FSDP.optim_state_dict_to_load(g, opt2, osd))
    train(g, opt2, range(3, 5), RANK, WORLD)
    out["wrapped"] = g.state_dict()
    with FSDP.state_dict_type(g, StateDictType.SHARDED_STATE_DICT):
        out["sharded"] = [type(v).__name__ for v in g.state_dict().values()]
    with FSDP.state_dict_type(g, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)):
        out["rank0"] = len(g.state_dict())
    with FSDP.summon_full_params(g):
        out["summoned"] = [list(p.shape) for p in g.parameters()]

# ---- tensor parallelism
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
torch.manual_seed(4)
net = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4))
parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
x = torch.arange(18.).view(3, 6).div(9).requires_grad_()
y = net(x)
y.pow(2).sum().backward()
out["parallel"] = {"y": y, "dx": x.grad, "inner": list(net[0](x).shape),
                   "grads": [p.grad.full_tensor() for p in net.parameters()], "kept": [p.to_local().numel() for p in net.parameters()]}
if not REAL:
    out["both"] = [attempt(lambda: fully_shard(net, mesh=mesh)), attempt(lambda: nn.parallel.DistributedDataParallel(net))]

# ---- checkpoints
import tempfile
where = [tempfile.mkdtemp() if RANK == 0 else None]
dist.broadcast_object_list(where, src=0)
where = where[0]
dcp.save({"w": d, "own": {f"rank{RANK}": torch.full((3,), float(RANK))}, "all": torch.arange(4.), "step": 5}, checkpoint_id=where)
back = {"w": distribute_tensor(torch.zeros(7, 3), mesh, [Shard(1)]), "all": torch.zeros(4), "step": 0}
dcp.load(back, checkpoint_id=where)
out["back"] = [back["w"].full_tensor(), back["all"], back["step"]]
out["files"] = sorted(os.listdir(where))
def only_here():
    dcp.load({"w": torch.zeros(7, 3)} if RANK == 0 else {"nowhere": torch.zeros(1)}, checkpoint_id=where)
out["error"] = attempt(only_here)
future = dcp.async_save({"w": d}, checkpoint_id=os.path.join(where, "async"))
dist.all_reduce(torch.ones(1))                    # meanwhile the training goes on talking
future.result()
back = {"w": distribute_tensor(torch.zeros(7, 3), mesh, [Shard(0)])}
dcp.load(back, checkpoint_id=os.path.join(where, "async"))
out["async"] = back["w"].full_tensor()
give(**out)
'''


@pytest.fixture(scope="module")
def pair():
    return ranks(PAIR, timeout=100)


W = np.arange(21.0).reshape(7, 3)


def test_placements(pair):
    for r, (rows, columns) in zip(pair, ((W[:4], W[:, :2]), (W[4:], W[:, 2:]))):
        part, other, shape, numel, full = r["part"]
        np.testing.assert_array_equal(part, rows)
        np.testing.assert_array_equal(other, columns)
        assert shape == [7, 3] and numel == 21
        np.testing.assert_array_equal(full, W)
        assert r["partial"] == [[3, 3]]


def test_operations(pair):
    for r, mine in zip(pair, (W[:4], W[4:])):
        twice, product, total, relu, transposed, joined, larger, chosen = r["ops"]
        np.testing.assert_array_equal(twice, W * 2 + 1)
        np.testing.assert_array_equal(product, W @ np.ones((3, 2)))
        assert total == 210
        np.testing.assert_array_equal(relu, np.maximum(-mine, 0))
        np.testing.assert_array_equal(transposed, W.T)
        np.testing.assert_array_equal(joined, np.concatenate([W, W]))
        np.testing.assert_array_equal(larger, mine > 4)
        np.testing.assert_array_equal(chosen, np.where(W > 4, W, -W))
        np.testing.assert_array_equal(r["grad"][0], 2 * W[::-1])
        np.testing.assert_array_equal(r["grad"][1], (2 * W[::-1])[:4] if len(mine) == 4 else (2 * W[::-1])[4:])
        np.testing.assert_array_equal(r["written"], W - W[::-1])
        assert r["placements"] == ["(Shard(dim=0),)", "(Replicate(),)"]


def test_refusals(pair):
    for r in pair:
        assert r["mixed"].startswith("RuntimeError") and "got mixed torch.Tensor and DTensor" in r["mixed"]
        assert r["pickle"].startswith("NotImplementedError: pickling a DTensor")
        assert r["drawn"].startswith("NotImplementedError: dropout of a DTensor")


def test_fully_shard(pair):
    _, state = alone()
    sizes = {k: v.size for k, v in state.items()}
    for r in pair:
        assert_state(r["fully"], state)
        assert r["full"]["names"] == list(state)
        assert r["full"]["sizes"] == [list(v.shape) for v in state.values()]
    # Parameters and optimizer state are stored once, apart from uneven rows.
    assert sum(r["kept"][0] for r in pair) == sum(sizes.values()) == sum(r["kept"][1] for r in pair)
    assert max(r["kept"][0] for r in pair) < 0.65 * sum(sizes.values())


def test_accumulated_gradients(pair):
    scope = {"torch": real, "nn": real.nn, "F": real.nn.functional, "np": np}
    exec(COMMON[COMMON.index("def build"):COMMON.index("def attempt")], scope)
    net = scope["build"]()
    for i in range(3):
        x, y = scope["batch"](i)
        real.nn.functional.cross_entropy(net(x), y).backward()
    for r in pair:
        for p, g in zip(net.parameters(), r["accumulated"]):
            np.testing.assert_allclose(g, p.grad.numpy(), atol=1e-6)


def test_fsdp_wrapper_resumes_in_another_wrapping(pair):
    """Saves the full state after three steps, loads it into another wrapping and continues."""
    _, state = alone()
    for i, r in enumerate(pair):
        assert_state(r["wrapped"], state)
        assert set(r["sharded"]) == {"DTensor"} or set(r["sharded"]) == {"DTensor", "_DTensorParameter"}
        assert r["rank0"] == (0 if i else len(state))
        assert r["summoned"] == [list(v.shape) for v in state.values()]


def test_tensor_parallelism(pair):
    real.manual_seed(4)
    net = real.nn.Sequential(real.nn.Linear(6, 9), real.nn.Tanh(), real.nn.Linear(9, 4))
    x = real.arange(18.0).view(3, 6).div(9).requires_grad_()
    y = net(x)
    y.pow(2).sum().backward()
    for i, r in enumerate(pair):
        p = r["parallel"]
        np.testing.assert_allclose(p["y"], y.detach().numpy(), atol=1e-6)
        np.testing.assert_allclose(p["dx"], x.grad.numpy(), atol=1e-6)
        for g, q in zip(p["grads"], net.parameters()):
            np.testing.assert_allclose(g, q.grad.numpy(), atol=1e-5)
        assert p["inner"] == [3, 4 + (i == 0)] and p["kept"] == [[30, 5, 20, 4], [24, 4, 16, 4]][i]
        assert all(e.startswith("NotImplementedError") for e in r["both"]), r["both"]


def test_checkpoints_of_two_ranks(pair):
    for r in pair:
        np.testing.assert_array_equal(r["back"][0], W)
        assert r["back"][1:] == [[0, 1, 2, 3], 5]
        assert r["files"] == [".metadata", "__0_0.distcp", "__1_0.distcp"]
        assert r["error"].startswith("CheckpointException") and "RANK 1" in r["error"] and "nowhere" in r["error"]
        np.testing.assert_array_equal(r["async"], W)


# ------------------------------------------------------------------ four processes
@pytest.mark.dist
def test_every_placement_redistribution():
    results = ranks(COMMON + '''
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
bad, n = [], 0
for shape in ((5, 3), (1, 4), (2, 2)):
    w = torch.arange(float(np.prod(shape))).view(shape)
    each = [Shard(0), Shard(1), Replicate()]
    for source in itertools.product(each, each):
        d = distribute_tensor(w, mesh, list(source))
        for target in itertools.product(each, each):
            n += 1
            e = d.redistribute(placements=list(target))
            same = distribute_tensor(w, mesh, list(target)).to_local()
            if not torch.equal(e.to_local(), same) or not torch.equal(e.full_tensor(), w):
                bad.append((shape, str(source), str(target)))
    for source in itertools.product([Partial(), *each], [Partial(), *each]):
        if not any(p.is_partial() for p in source) or len({p for p in source}) == 1 and source[0].is_shard():
            continue
        n += 1
        rest = [Replicate() if p.is_partial() else p for p in source]
        local = distribute_tensor(w, mesh, rest).to_local() * (RANK + 1)
        d = DTensor.from_local(local, mesh, list(source), shape=w.shape)
        got = d.full_tensor()
        if all(p.is_partial() for p in source):
            if not torch.equal(got, w * 10):
                bad.append((shape, str(source)))
give(bad=bad, n=n)
''', world=4, timeout=110)
    for r in results:
        assert r["bad"] == [] and r["n"] > 200


@pytest.mark.dist
def test_resharding_four_two_one(tmp_path):
    """Training starts on four ranks and continues on two, then on one, in mindtorch and in PyTorch,
    along one loss curve."""
    step = COMMON + f'''
where = {str(tmp_path)!r}
mesh = init_device_mesh("cpu", (WORLD,))
net = build()
if WORLD > 1:
    fully_shard(net, mesh=mesh)
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
'''
    first = ranks(step + '''
train(net, opt, range(3), RANK, WORLD)
model, optim = get_state_dict(net, opt)
dcp.save({"model": model, "optim": optim, "done": 3}, checkpoint_id=os.path.join(where, "four"))
give(state=whole(net.state_dict()))
''', world=4, timeout=80)
    second = ranks(step + '''
model, optim = get_state_dict(net, opt)
state = {"model": model, "optim": optim, "done": 0}
dcp.load(state, checkpoint_id=os.path.join(where, "four"))
set_state_dict(net, opt, model_state_dict=state["model"], optim_state_dict=state["optim"])
train(net, opt, range(state["done"], 5), RANK, WORLD)
model, optim = get_state_dict(net, opt)
dcp.save({"model": model, "optim": optim, "done": 5}, checkpoint_id=os.path.join(where, "two"))
give(state=whole(net.state_dict()))
''', world=2, timeout=80)
    assert_state(first[0]["state"], alone(3)[1])
    assert_state(second[0]["state"], alone(5)[1])

    losses, state = alone(7)
    for t, d in ((mt, dcp), (real, real_dcp)):
        sd = __import__(f"{t.__name__}.distributed.checkpoint.state_dict", fromlist=["x"])
        scope = {"torch": t, "nn": t.nn, "F": t.nn.functional, "np": np}
        exec(COMMON[COMMON.index("def build"):COMMON.index("def attempt")], scope)
        net = scope["build"]()
        opt = t.optim.AdamW(net.parameters(), lr=0.5)  # the checkpoint restores the learning rate
        model, optim = sd.get_state_dict(net, opt)
        found = {"model": model, "optim": optim, "done": 0}
        d.load(found, checkpoint_id=tmp_path / "two", no_dist=True)
        sd.set_state_dict(net, opt, model_state_dict=found["model"], optim_state_dict=found["optim"])
        assert found["done"] == 5
        more = scope["train"](net, opt, range(5, 7))
        np.testing.assert_allclose(more, losses[5:], atol=1e-5)
        assert_state({k: v.numpy() for k, v in net.state_dict().items()}, state)


@pytest.mark.dist
def test_shards_are_interchangeable_with_torch(tmp_path):
    """Two PyTorch ranks load what four mindtorch ranks wrote, and vice versa."""
    write = COMMON + f'''
where = {str(tmp_path)!r}
mesh = init_device_mesh("cpu", (WORLD,))
w = torch.arange(35.).view(7, 5)
dcp.save({{"rows": distribute_tensor(w, mesh, [Shard(0)]), "columns": distribute_tensor(w, mesh, [Shard(1)])}},
         checkpoint_id=os.path.join(where, "real" if REAL else "ours"))
give(x=1)
'''
    read = COMMON + f'''
where = {str(tmp_path)!r}
mesh = init_device_mesh("cpu", (WORLD,))
state = {{"rows": distribute_tensor(torch.zeros(7, 5), mesh, [Shard(1)]), "columns": torch.zeros(7, 5)}}
dcp.load(state, checkpoint_id=os.path.join(where, "ours" if REAL else "real"))
give(rows=state["rows"].full_tensor(), columns=state["columns"])
'''
    ranks(write, world=4, timeout=80)
    ranks(write, world=2, real=True, timeout=80)
    for real_side, world in ((True, 2), (False, 3)):
        for r in ranks(read, world=world, real=real_side, timeout=80):
            np.testing.assert_array_equal(r["rows"], np.arange(35.0).reshape(7, 5))
            np.testing.assert_array_equal(r["columns"], np.arange(35.0).reshape(7, 5))
