"""Several ranks on the CANN simulator: collectives of npu tensors use HCCL across processes, and
distributed training matches the losses of a single process."""
import json
import subprocess
import sys
import tempfile

import pytest

from _dist_run import ROOT, free_port

pytestmark = [pytest.mark.ascend, pytest.mark.timeout(300)]

HEAD = """
import datetime, faulthandler, json, os, sys
faulthandler.dump_traceback_later(100, exit=True)
import mindspore as ms
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ms.set_device("Ascend", RANK)
import numpy as np
import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.torch import nn
from mindtorch.core.device.device_dispatch import FALLBACKS

def give(**found):
    with open(os.environ["GIVE"], "w") as f:
        json.dump(found, f)

dist.init_process_group("hccl", timeout=datetime.timedelta(seconds=60))
"""
TAIL = """
dist.barrier()
dist.destroy_process_group()
"""


class Ranks:
    def __init__(self, standin):
        self.standin = standin

    def start(self, code, world, tail=TAIL, **env):
        """Returns (exit status, reported result or None, its collectives in the log, its output) of
        each rank."""
        port, running = free_port(), []
        with tempfile.TemporaryDirectory() as folder:
            for r in range(world):
                e = self.standin.environment(RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                                             MASTER_PORT=str(port), OMP_NUM_THREADS="1", GIVE=f"{folder}/{r}.json", **env)
                out = open(f"{folder}/{r}.out", "w+")
                running.append((subprocess.Popen([sys.executable, "-c", HEAD + code + tail], env=e, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT), out, e))
            found = []
            for r, (process, out, e) in enumerate(running):
                try:
                    status = process.wait(110)
                except subprocess.TimeoutExpired:
                    process.kill()
                    status = process.wait()
                out.seek(0)
                text = out.read()
                out.close()
                with open(e["MINDTORCH_STANDIN_LOG"]) as log:
                    said = [d for d in map(json.loads, log) if "hccl" in d]
                try:
                    with open(f"{folder}/{r}.json") as f:
                        given = json.load(f)
                except OSError:
                    given = None
                found.append((status, given, said, text))
        return found

    def run(self, code, world, **env):
        """Returns the reported result of each rank, and the names of its collectives."""
        found = self.start(code, world, **env)
        assert not any(status for status, *_ in found), "\n".join(f"rank {r}: {status}\n{text[-2500:]}" for r, (status, _, _, text) in enumerate(found))
        for r, (_, _, said, _) in enumerate(found):
            assert all(d["rank"] < d["ranks"] <= world for d in said) and any((d["rank"], d["ranks"]) == (r, world) for d in said)
        return [given for _, given, _, _ in found], [[d["hccl"] for d in said if not d["hccl"].startswith("Comm")] for _, _, said, _ in found]


@pytest.fixture(scope="module")
def ranks(standin):
    return Ranks(standin)


COLLECTIVES = """
R, W, found = RANK, WORLD, {}
LARGE = 300_001          # more than what one round carries

def numbers(rank, n, dtype, k=0):
    return (np.random.RandomState(64 * k + rank).randint(0, 5, n) - (0 if dtype in ("uint8", "bool") else 2)).astype("float32" if dtype == "bfloat16" else dtype)

def on(rank, n, dtype="float32", k=0):
    return torch.from_numpy(numbers(rank, n, dtype, k)).to(getattr(torch, dtype)).to("npu")

def same(name, t, expected):
    got = t.cpu().float().numpy()
    assert t.device.type == "npu" and np.array_equal(got.ravel(), np.asarray(expected, np.float32).ravel()), (name, got[:8], expected[:8])
    found[name] = found.get(name, 0) + 1

FOLD = {"SUM": np.add, "PRODUCT": np.multiply, "MAX": np.maximum, "MIN": np.minimum}
OF_BOOL = {"SUM": np.logical_or, "PRODUCT": np.logical_and, "MAX": np.logical_or, "MIN": np.logical_and}
for dtype in "float32 float16 bfloat16 int8 int16 int32 int64 bool".split():
    for op, fold in (OF_BOOL if dtype == "bool" else FOLD).items():
        t = on(R, 7, dtype)
        dist.all_reduce(t, getattr(dist.ReduceOp, op))
        same("all_reduce", t, fold.reduce([numbers(r, 7, dtype) for r in range(W)]))
t = on(R, LARGE)
dist.all_reduce(t)
same("large", t, sum(numbers(r, LARGE, "float32") for r in range(W)))
t = on(R, 7)
dist.all_reduce(t, dist.ReduceOp.AVG)
same("mean", t, sum(numbers(r, 7, "float32") for r in range(W)) / W)
wide = on(R, 12).reshape(6, 2)
t = wide[::2, 1]
dist.all_reduce(t)
same("strided", t, sum(numbers(r, 12, "float32").reshape(6, 2)[::2, 1] for r in range(W)))
same("beside", wide[:, 0], numbers(R, 12, "float32").reshape(6, 2)[:, 0])
work = dist.all_reduce(t := on(R, 7), async_op=True)
assert work.wait() and work.is_completed() and work.is_success() and work.exception() is None
same("async", t, sum(numbers(r, 7, "float32") for r in range(W)))
for dtype in "float32 bfloat16 float64 uint8 int64 bool".split():
    t = on(R, 5, dtype)
    outs = [torch.zeros_like(t) for _ in range(W)]
    dist.all_gather(outs, t)
    for r in range(W):
        same("all_gather", outs[r], numbers(r, 5, dtype))
    t = on(R, 5, dtype)
    dist.broadcast(t, W - 1)
    same("broadcast", t, numbers(W - 1, 5, dtype))
    p = on(R, 5, dtype)
    if R == 0:
        dist.send(p, W - 1)
    if R == W - 1:
        dist.recv(p, 0)
        same("send", p, numbers(0, 5, dtype))
out = torch.zeros(W, LARGE, device="npu")
dist.all_gather_into_tensor(out, on(R, LARGE))
same("gather_into", out, [numbers(r, LARGE, "float32") for r in range(W)])
ins = [on(R, 5, k=k) for k in range(W)]
total = sum(numbers(r, 5, "float32", R) for r in range(W))
out = torch.zeros(5, device="npu")
dist.reduce_scatter(out, ins)
same("reduce_scatter", out, total)
dist.reduce_scatter_tensor(out.zero_(), torch.cat(ins))
same("reduce_scatter_tensor", out, total)
dist.reduce(t := on(R, 5), 1)
same("reduce", t, sum(numbers(r, 5, "float32") for r in range(W)) if R == 1 else t.cpu().numpy())
outs = [torch.zeros(5, device="npu") for _ in range(W)]
dist.gather(on(R, 5), outs if R == 1 else None, 1)
for r in range(W):
    same("gather", outs[r], numbers(r, 5, "float32") if R == 1 else np.zeros(5))
dist.scatter(out, ins if R == 1 else None, 1)
same("scatter", out, numbers(1, 5, "float32", R))
outs = [torch.zeros(1 + r, device="npu") for r in range(W)]
dist.all_to_all(outs, [on(R, 1 + R, k=k) for k in range(W)])
for r in range(W):
    same("all_to_all", outs[r], numbers(r, 1 + r, "float32", R))
whole = torch.zeros(sum(range(1, W + 1)), 2, device="npu")
dist.all_to_all_single(whole, on(R, 2 * W * (1 + R)).reshape(-1, 2), [1 + r for r in range(W)], [1 + R] * W)
same("all_to_all_single", whole, np.concatenate([numbers(r, 2 * W * (1 + r), "float32").reshape(W, -1, 2)[R] for r in range(W)]))
got = torch.zeros(LARGE, device="npu")
for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, on(R, LARGE), (R + 1) % W), dist.P2POp(dist.irecv, got, (R - 1) % W)]):
    w.wait()
same("batch", got, numbers((R - 1) % W, LARGE, "float32"))
groups = [dist.new_group(list(range(k, W, 2))) for k in range(2)]
dist.all_reduce(t := on(R, 5), group=groups[R % 2])
same("group", t, sum(numbers(r, 5, "float32") for r in range(R % 2, W, 2)))
objects = [None] * W
dist.all_gather_object(objects, {"rank": R})
assert objects == [{"rank": r} for r in range(W)]
assert not FALLBACKS, FALLBACKS
# What HCCL does not reduce goes by way of the host, and says so.
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for dtype, op in (("float64", "SUM"), ("uint8", "MAX"), ("int32", "BOR")):
        t = on(R, 5, dtype)
        dist.all_reduce(t, getattr(dist.ReduceOp, op))
        fold = {"SUM": np.add, "MAX": np.maximum, "BOR": np.bitwise_or}[op]
        same("host", t, fold.reduce([numbers(r, 5, dtype) for r in range(W)]))
assert len(told) == 3 and sum(FALLBACKS.values()) == 3, (told, FALLBACKS)
give(**found)
"""


@pytest.mark.parametrize("world", [2, 4])
def test_collectives(ranks, world):
    given, said = ranks.run(COLLECTIVES, world)
    assert given[0]["all_reduce"] == 32 and given[0]["gather"] == world
    for names in said:
        assert {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Scatter", "AlltoAllV", "BatchSendRecv"} <= set(names)


TRAINING = """
def model(kind):
    torch.manual_seed(0)
    if kind == "norm":
        return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))
    return nn.Sequential(nn.Linear(32, 24), nn.GELU(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 3))

def batches(kind, steps=4, n=8):
    rs = np.random.RandomState(1)
    for _ in range(steps):
        x, y = rs.randn(n, 32).astype("float32"), rs.randint(0, 3, n)
        yield torch.from_numpy(x.reshape(n, 2, 4, 4) if kind == "norm" else x), torch.from_numpy(y)

def train(kind, net, parameters=None, part=slice(None), world=1, opt=None):
    opt = opt or torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    losses = []
    for x, y in batches(kind):
        loss = nn.functional.cross_entropy(net(x[part].to("npu")), y[part].to("npu"))
        opt.zero_grad()
        loss.backward()
        opt.step()
        whole = loss.detach().clone()
        if world > 1:
            dist.all_reduce(whole)
        losses.append(whole.item() / world)
    return losses

part = slice(RANK * 8 // WORLD, (RANK + 1) * 8 // WORLD)
LOG = os.environ["MINDTORCH_STANDIN_LOG"]
def copied(f):
    ms.runtime.synchronize()
    at = os.path.getsize(LOG)
    r = f()
    ms.runtime.synchronize()
    with open(LOG) as log:
        log.seek(at)
        said = [json.loads(line) for line in log]
    return r, sum(d.get("copy") == "D2H" and d["bytes"] > 0 for d in said), [d["hccl"] for d in said if "hccl" in d]

def statistics(norm):
    return [t.cpu().numpy().tolist() for t in (norm.running_mean, norm.running_var)]

found = {"alone": train("mlp", model("mlp").to("npu"))}
net = model("norm").to("npu")
found["norm alone"], found["statistics alone"] = train("norm", net), statistics(net[1])
net = nn.parallel.DistributedDataParallel(model("mlp").to("npu"))
found["ddp"], found["ddp down"], found["ddp said"] = copied(lambda: train("mlp", net, part=part, world=WORLD))
found["ddp weight"] = net.module[0].weight.detach().cpu().numpy().view("int32").ravel().tolist()
net = nn.parallel.DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model("norm")).to("npu"))
found["norm"], found["norm down"], _ = copied(lambda: train("norm", net, part=part, world=WORLD))
found["statistics"] = statistics(net.module[1])
from mindtorch.torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
net = model("mlp").to("npu")
for layer in (net[0], net[2]):
    fully_shard(layer)
fully_shard(net)
found["fully_shard"], found["shard down"], found["shard said"] = copied(lambda: train("mlp", net, part=part, world=WORLD))
net = FullyShardedDataParallel(model("mlp").to("npu"))
found["fsdp"] = train("mlp", net, part=part, world=WORLD)
from mindtorch.torch.distributed.tensor import DTensor, Shard, distribute_tensor
from mindtorch.torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("npu", (WORLD,))
whole = torch.arange(float(8 * WORLD)).reshape(2 * WORLD, 4).to("npu")
d = distribute_tensor(whole, mesh, [Shard(0)])
found["dtensor"] = [list(d.to_local().shape), d.to_local().device.type, (d * 2).full_tensor().cpu().numpy().tolist() == (2 * whole).cpu().numpy().tolist()]
found["fallbacks"] = {str(k): v for k, v in FALLBACKS.items()}
give(**found)
"""


@pytest.mark.parametrize("world", [2, 4])
def test_distributed_training_matches_one_process(ranks, world):
    """DDP, both FSDP variants and SyncBatchNorm match the losses of one process with the full
    batch. Gradients do not pass through the host."""
    given, said = ranks.run(TRAINING, world)
    for g in given:
        assert g["alone"] == given[0]["alone"] and not g["fallbacks"]
        for name in ("ddp", "fully_shard", "fsdp"):
            assert g[name] == pytest.approx(g["alone"], abs=1e-5), name
        assert g["norm"] == pytest.approx(g["norm alone"], abs=1e-5)
        for have, want in zip(g["statistics"], g["statistics alone"]):
            assert have == pytest.approx(want, rel=1e-5)
        # bitwise equal
        assert g["statistics"] == given[0]["statistics"] and g["ddp weight"] == given[0]["ddp weight"]
        # only the losses are copied (with three rows, one of four ranks has an empty shard)
        assert g["ddp down"] == g["norm down"] == 4 and g["shard down"] <= (4 if world < 3 else 6)
        assert g["ddp said"].count("AllReduce") == 8 and {"AllGather", "ReduceScatter"} <= set(g["shard said"])
        assert g["dtensor"] == [[2, 4], "npu", True]
    assert "AllGather" in said[0]


DYING = """
t = torch.ones(3).to("npu")
dist.all_reduce(t)
assert t.tolist() == [WORLD] * 3
if RANK == WORLD - 1:
    os._exit(3)
try:
    {call}
except Exception as e:
    give(kind=type(e).__name__, text=str(e))
os._exit(0)
"""


def test_rank_death_raises_in_the_others(ranks):
    found = ranks.start(DYING.format(call="dist.all_reduce(t); print(t)"), 3)
    assert [status for status, *_ in found] == [0, 0, 3], found
    for _, given, _, _ in found[:2]:
        assert given["kind"] == "DistBackendError" and ("rank 2" in given["text"] or "has left" in given["text"]), given


def test_missing_rank_times_out(ranks):
    code = "t = torch.ones(3).to('npu')\ndist.all_reduce(t)\nt.tolist()\n" + """
if RANK == 0:
    import time
    while not os.path.exists(os.environ["GIVE"].replace("0.json", "1.json")):
        time.sleep(0.1)
else:
    os.environ["MINDTORCH_STANDIN_TIMEOUT"] = "3"       # from here on: a busy machine may start the ranks further apart
    try:
        dist.all_reduce(t)
    except Exception as e:
        give(kind=type(e).__name__, text=str(e))
os._exit(0)
"""
    found = ranks.start(code, 2)
    given = found[1][1]
    assert given and given["kind"] == "DistBackendError" and "rank 0 did not come within 3 s" in given["text"], found


def test_mismatched_collectives_raise(ranks):
    code = """
try:
    dist.all_reduce(torch.ones(3 + RANK).to("npu"))
except Exception as e:
    give(kind=type(e).__name__, text=str(e))
os._exit(0)
"""
    for _, given, _, text in ranks.start(code, 2):
        assert given and given["kind"] == "DistBackendError" and "AllReduce of 3 f32, sum" in given["text"] and "AllReduce of 4 f32" in given["text"], (given, text)
