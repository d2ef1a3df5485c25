"""Collectives and DistributedDataParallel on npu tensors, each compared with the same program on
CPU tensors.

Tests share one run of two processes where possible: a process takes 2 s to start.
"""
import numpy as np
import pytest
from _ranks import ranks

NPU = {"MINDTORCH_NPU": "cpu", "PYTHONWARNINGS": "ignore"}

COLLECTIVES = '''
def own(dtype="float32", n=4, at=0):
    return (torch.arange(n) + 10 * RANK + at).to(getattr(torch, dtype))

def reductions(dev, async_op):
    out = []
    for dtype in ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"):
        for op in ("SUM", "MAX", "MIN", "PRODUCT"):
            t = own(dtype).to(dev)
            w = dist.all_reduce(t, getattr(dist.ReduceOp, op), async_op=async_op)
            if async_op:
                assert w.wait() and w.is_completed() and w.result()[0] is t
            out.append(t)
    t = torch.zeros(3, 4, device=dev)
    t += RANK + 1
    a, b = t[:, 1], t.t()[2:]                  # views: written in place in the whole's memory
    dist.all_reduce(a)
    dist.all_reduce(b, dist.ReduceOp.AVG)
    out += [t, torch.tensor(float(RANK), device=dev)]
    dist.all_reduce(out[-1])
    u = own().to(dev)
    dist.reduce(u, 1)
    out.append(u if RANK == 1 else u.new_zeros(4))
    ts = [own(n=2).to(dev), own(n=3).to(dev)]
    dist.all_reduce_coalesced(ts)
    s = own(n=4).to(dev)
    r = torch.empty(2, device=dev)
    dist.reduce_scatter_tensor(r, s)
    q = torch.empty(2, device=dev)
    dist.reduce_scatter(q, [s[:2], s[2:]], dist.ReduceOp.MAX)
    e = torch.zeros(0, device=dev)
    dist.all_reduce(e)
    return out + ts + [r, q, e]

def moves(dev, async_op):
    out = []
    for dtype in ("float32", "bfloat16", "int64", "bool", "complex64"):
        t = own(dtype).to(dev)
        works = [dist.broadcast(t, 1, async_op=async_op)]
        parts = [torch.zeros(4, dtype=t.dtype, device=dev) for _ in range(WORLD)]
        mine = own(dtype, at=1).to(dev)
        works.append(dist.all_gather(parts, mine, async_op=async_op))
        whole = torch.zeros(8, dtype=t.dtype, device=dev)
        works.append(dist.all_gather_into_tensor(whole, mine, async_op=async_op))
        got = torch.zeros(4, dtype=t.dtype, device=dev)
        works.append(dist.scatter(got, parts and [own(dtype, at=5).to(dev), own(dtype, at=7).to(dev)] if RANK == 0 else None, async_op=async_op))
        gathered = [torch.zeros(4, dtype=t.dtype, device=dev) for _ in range(WORLD)]
        works.append(dist.gather(mine, gathered if RANK == 0 else None, async_op=async_op))
        a2a = [torch.zeros(2, dtype=t.dtype, device=dev) for _ in range(WORLD)]
        works.append(dist.all_to_all(a2a, list(mine.view(2, 2)), async_op=async_op))
        single = torch.zeros(3 if RANK == 0 else 5, dtype=t.dtype, device=dev)
        works.append(dist.all_to_all_single(single, mine, [2, 1] if RANK == 0 else [2, 3], [2, 2] if RANK == 0 else [1, 3], async_op=async_op))
        for w in works:
            if async_op:
                w.wait()
        out += [t, *parts, whole, got, *gathered, *a2a, single]
    t = own().to(dev)
    there = torch.zeros(2, 2, device=dev)
    if RANK == 0:
        dist.send(t, 1)
        assert dist.recv(there.t(), 1) == 1 if there.t().is_contiguous() else dist.recv(there[:, 0], 1) == 1
    else:
        dist.recv(t, 0)
        dist.send(t[:2], 0)
    ops = [dist.P2POp(dist.isend, own(at=3).to(dev), 1 - RANK), dist.P2POp(dist.irecv, got := torch.zeros(4, device=dev), 1 - RANK)]
    for w in dist.batch_isend_irecv(ops):
        w.wait()
    seen = []
    dist.all_reduce(late := own().to(dev), async_op=True).get_future().then(lambda f: seen.append(f.value()[0] * 2)).wait()
    return out + [t, there, got, *seen]

def objects(dev):
    t = own().to(dev)
    everybody, sent, mine = [None] * WORLD, [t, "x"] if RANK == 0 else [None, None], [None]
    dist.all_gather_object(everybody, {"t": t})
    dist.broadcast_object_list(sent, 0)
    dist.scatter_object_list(mine, [t, t + 1] if RANK == 0 else None)
    for x in (everybody[1]["t"], sent[0], mine[0]):
        assert x.device == t.device, x.device
    return [everybody[0]["t"], everybody[1]["t"], sent[0], mine[0]]

found = {}
for dev in ("cpu", "npu"):
    for async_op in (False, True):
        for fn in (reductions, moves):
            found[dev, fn.__name__, async_op] = [t.cpu().double() if not t.is_complex() else torch.view_as_real(t.cpu()) for t in fn(dev, async_op)]
            kinds = {str(t.device) for t in fn(dev, async_op)}
            assert kinds == ({"cpu"} if dev == "cpu" else {"npu:0"}), kinds
    found[dev, "objects", False] = objects(dev)
same = []
for (dev, *what), have in found.items():
    want = found[("cpu", *what)]
    assert len(have) == len(want)
    same += [(i, what, a.tolist(), b.tolist()) for i, (a, b) in enumerate(zip(have, want)) if not torch.equal(a.cpu(), b)]
before = dist.traffic()["sent"]
give(wrong=[str(s) for s in same], n=sum(len(v) for v in found.values()), config=dist.get_backend_config(), backend=dist.get_backend(),
     device=str(dist.distributed_c10d._get_pg_default_device()))
'''


def test_collectives_write_to_device_memory():
    for r in ranks(COLLECTIVES, env=NPU):
        assert r["wrong"] == [] and r["n"] > 300
        assert (r["config"], r["backend"], r["device"]) == ("cpu:gloo,npu:gloo,cuda:gloo", "gloo", "cpu")


TRAINING = '''
from torch.nn.parallel import DistributedDataParallel as DDP
LOCAL = int(os.environ["LOCAL_RANK"])

class Net(nn.Module):
    def __init__(self, sparse=False):
        super().__init__()
        self.embed = nn.Embedding(11, 6, sparse=sparse)
        self.conv = nn.Conv1d(6, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm1d(8)
        self.fc, self.unused = nn.Linear(8, 5), nn.Linear(2, 2)
        self.wide = nn.Linear(5, 3).double()

    def forward(self, x, scale=None):
        y = F.relu(self.norm(self.conv(self.embed(x).transpose(1, 2)))).mean(2)
        y = self.fc(y) if scale is None else self.fc(y) * scale["by"][0]
        return {"out": [self.wide(y.double())]}

def make(dev, unused=True, sparse=False, sync=True, **options):
    torch.manual_seed(3)
    net = Net(sparse)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(RANK)                # construction must undo this
    if not unused:
        del net.unused
    if sync:
        net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    return DDP(net.to(dev), **options)

def data(step, n=4):
    rs = np.random.RandomState(10 * step + RANK)
    return torch.from_numpy(rs.randint(0, 11, (n, 7))), torch.from_numpy(rs.randn(n, 3))

def train(dev, steps=4, none=True, opt=None, hook=None, accumulate=False, inputs=None, **options):
    net = make(dev, **options)
    if hook:
        net.register_comm_hook(None, hook)
    opt = (opt or (lambda net: torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.5)))(net)
    losses = []
    for i in range(steps):
        opt.zero_grad(set_to_none=none)
        if accumulate:
            x, y = data(100 + i)
            with net.no_sync():
                (net(x.to(dev))["out"][0] - y.to(dev)).pow(2).mean().backward()
        x, y = data(i)
        given = (x.to(dev),) if inputs is None else (x, {"by": (inputs,)})        # (what is not there yet DDP moves to device_ids)
        loss = (net(*given)["out"][0] - y.to(dev)).pow(2).mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    if options.get("gradient_as_bucket_view"):
        places = [p.grad.untyped_storage().data_ptr() for p in net.parameters() if p.grad is not None]
        assert len(set(places)) < len(places), places
    assert all(p.grad is None or p.grad.device == p.device for p in net.parameters())
    return {"losses": losses, **{k: v.cpu().float() for k, v in net.module.state_dict().items()}}

def joined(dev):
    from torch.distributed.algorithms.join import Join
    net = make(dev, unused=False, sync=False)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with net.join(divide_by_initial_world_size=False):
        for i in range(2 + 2 * RANK):
            x, y = data(i)
            opt.zero_grad()
            (net(x.to(dev))["out"][0] - y.to(dev)).pow(2).mean().backward()
            opt.step()
    return {k: v.cpu().float() for k, v in net.module.state_dict().items()}

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
from torch.distributed.optim import ZeroRedundancyOptimizer

def mean(state, bucket):
    assert bucket.buffer().device == bucket.parameters()[0].device
    return dist.all_reduce(bucket.buffer().div_(WORLD), async_op=True).get_future().then(lambda f: f.value()[0])

small = {"bucket_cap_mb": 0.0001}
WAYS = {
    "unused": dict(find_unused_parameters=True),
    "views": dict(unused=False, gradient_as_bucket_view=True, none=False, **small),
    "views, to none": dict(unused=False, gradient_as_bucket_view=True),
    "static": dict(static_graph=True, **small),
    "no_sync": dict(unused=False, accumulate=True, gradient_as_bucket_view=True),
    "no_sync, plain": dict(unused=False, accumulate=True, sync=False, **small),
    "sparse": dict(unused=False, sparse=True, opt=lambda net: torch.optim.SGD(net.parameters(), lr=0.1)),
    "hook": dict(unused=False, hook=mean, **small),
    "half": dict(unused=False, hook=lambda s, b: hooks.fp16_compress_hook(dist.group.WORLD, b)),
    "zero": dict(unused=False, opt=lambda net: ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)),
}
found = {}
torch.npu.set_device(LOCAL)
assert torch.npu.current_device() == LOCAL and torch.npu.device_count() == WORLD
for dev in ("cpu", f"npu:{LOCAL}"):
    for name, way in WAYS.items():
        found[name, dev[:3]] = train(dev, **way)
    found["ids", dev[:3]] = train(dev, unused=False, inputs=torch.full((1,), 1.5), **({} if dev == "cpu" else {"device_ids": [LOCAL], "output_device": LOCAL}))
    found["join", dev[:3]] = joined(dev)
'''

REST = '''
import tempfile
import torch.distributed.checkpoint as dcp
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
place = [tempfile.mkdtemp() if RANK == 0 else None]
dist.broadcast_object_list(place, 0)
torch.npu.set_device(int(os.environ["LOCAL_RANK"]))

def loop(dev):
    torch.manual_seed(5)
    rows = TensorDataset(torch.arange(40.0).view(10, 4) / 40, torch.arange(10) % 3)
    sampler = DistributedSampler(rows, seed=2)
    net = nn.parallel.DistributedDataParallel(nn.Linear(4, 3).to(dev))
    opt = torch.optim.Adam(net.parameters(), lr=0.1)
    losses = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(rows, 2, sampler=sampler, pin_memory=True):
            loss = F.cross_entropy(net(x.to(dev, non_blocking=True)), y.to(dev, non_blocking=True))
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
    dcp.save({"net": net.state_dict(), "opt": opt.state_dict()}, checkpoint_id=os.path.join(place[0], dev[:3]))
    other = nn.parallel.DistributedDataParallel(nn.Linear(4, 3).to(dev))
    state = {"net": other.state_dict()}
    dcp.load(state, checkpoint_id=os.path.join(place[0], dev[:3]))
    other.load_state_dict(state["net"])
    assert other.module.weight.device == net.module.weight.device
    if RANK == 0:
        torch.save(net.module.state_dict(), os.path.join(place[0], dev[:3] + ".pt"))
    dist.barrier()
    back = torch.load(os.path.join(place[0], dev[:3] + ".pt"), map_location=dev)
    assert {v.device for v in back.values()} == {net.module.weight.device}
    return {"losses": losses, "w": net.module.weight.cpu(), "dcp": other.module.weight.cpu(), "file": back["weight"].cpu()}

def reducer(dev):
    own = [torch.full((3,), float(RANK + 1), device=dev), None, torch.full((2, 2), RANK + 3.0, dtype=torch.float16, device=dev)]
    r = nn.DistributedGradReducer(own, mean=True)(own)
    assert r[1] is None and r[0].device == own[0].device and r[2].dtype == torch.float16
    return {"r": [r[0].cpu(), r[2].cpu()]}

def mesh(dev):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    m = init_device_mesh(dev[:3], (WORLD,), mesh_dim_names=("dp",))
    assert m.device_type == dev[:3] and m["dp"].size() == WORLD
    torch.manual_seed(1)
    whole = torch.randn(6, 4)
    d = distribute_tensor(whole.to(dev), m, [Shard(0)])
    assert d.to_local().device == torch.device(dev) and d.device.type == dev[:3], (d.to_local().device, d.device)
    e = distribute_tensor(whole.to(dev).t().contiguous(), m, [Replicate()])
    p = (d @ e).redistribute(m, [Shard(1)])
    host = distribute_tensor(whole, m, [Shard(0)])
    assert host.to_local().device == torch.device(dev), host.to_local().device
    return {"p": p.full_tensor().cpu(), "local": p.to_local().cpu(), "sum": (d * 2).sum().full_tensor().cpu()}

def sharded(dev):
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(dev)
    from torch.distributed.device_mesh import init_device_mesh
    fully_shard(net, mesh=init_device_mesh(dev[:3], (WORLD,)))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for i in range(3):
        x = torch.linspace(-1, 1, 8).view(2, 4).to(dev) * (RANK + 1)
        loss = net(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return {"losses": losses, "w": [p.full_tensor().cpu() for p in net.parameters()]}

found = {}
for dev in ("cpu", "npu:" + os.environ["LOCAL_RANK"]):
    for fn in (loop, reducer, mesh, sharded):
        found[fn.__name__, dev[:3]] = fn(dev)
'''

REPORT = '''
give(**{f"{a}/{b}": v for (a, b), v in found.items()})
'''


def near(a, b, what, rtol=1e-4, atol=1e-5):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for k in a:
            near(a[k], b[k], f"{what} {k}", rtol, atol)
    elif isinstance(a, list) and a and isinstance(a[0], list) and len({len(x) if isinstance(x, list) else 0 for x in a}) > 1:
        for x, y in zip(a, b, strict=True):
            near(x, y, what, rtol, atol)
    else:
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=what)


def _beside(code):
    found = ranks(code + REPORT, env=NPU, timeout=100)
    names = {k.rpartition("/")[0] for k in found[0]}
    for r in found:
        for n in sorted(names):
            near(r[f"{n}/npu"], r[f"{n}/cpu"], n, *((1e-2, 1e-3) if n == "half" else ()))
    return found, names


@pytest.mark.dist
def test_ddp_matches_cpu_training():
    found, names = _beside(TRAINING)
    assert len(names) == 12
    for n in sorted(names):
        a, b = [r[f"{n}/npu"] for r in found]
        for k in a:
            if k != "losses" and not ("running" in k and n == "no_sync, plain"):
                assert a[k] == b[k], (n, k)


@pytest.mark.dist
def test_loaders_checkpoints_and_meshes_on_the_npu():
    found, _ = _beside(REST)
    assert found[0]["loop/npu"]["w"] == found[0]["loop/npu"]["dcp"] == found[1]["loop/npu"]["file"]
