"""MindSpore-style data parallelism, errors for parallelism that the CPU does not support, and
checkpoints in MindSpore's rank layout."""
import os
import pathlib
import shutil
import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest
import torch as real
from _ranks import ranks

import mindtorch.torch as mt
import mindtorch.torch.distributed.checkpoint as dcp
from mindtorch.tools import read_rank_checkpoints, write_rank_checkpoints

ROOT = pathlib.Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:.*shard", "ignore::UserWarning")


@pytest.fixture
def mode():
    old = ms.get_auto_parallel_context("parallel_mode")
    yield lambda m: ms.set_auto_parallel_context(parallel_mode=m)
    ms.set_auto_parallel_context(parallel_mode=old)


@pytest.mark.parametrize("kind", ["AUTO_PARALLEL", "SEMI_AUTO_PARALLEL"])
def test_automatic_parallelism_raises_on_cpu(mode, kind):
    net = mt.nn.Linear(2, 2)
    mode(getattr(ms.ParallelMode, kind))
    for make in (lambda: mt.optim.SGD(net.parameters(), 0.1), lambda: mt.nn.DistributedGradReducer(net.parameters())):
        with pytest.raises(NotImplementedError, match=f"parallel_mode='{kind.lower()}' is not supported on device CPU"):
            make()
    mode(ms.ParallelMode.STAND_ALONE)
    mt.optim.SGD(net.parameters(), 0.1)


def test_shard_strategies_raise_on_cpu():
    with pytest.raises(NotImplementedError, match="Linear.shard with a strategy is not supported on device CPU"):
        mt.nn.Linear(2, 2).shard(((1, 1),))

    class Own(mt.nn.Module):  # a user's attribute of that name is not affected
        def __init__(self):
            super().__init__()
            self.shard = mt.nn.Linear(2, 3)

        def forward(self, x):
            return self.shard(x)

    assert Own()(mt.ones(1, 2)).shape == (1, 3)


def test_reducer_needs_communication():
    with pytest.raises(RuntimeError, match="needs communication"):
        mt.nn.DistributedGradReducer(mt.nn.Linear(2, 2).parameters())


# ------------------------------------------------------------------ rank checkpoints
def rows(n, *shape):
    return mt.arange(float(n * np.prod(shape, dtype=int))).view(n, *shape)


def saved(tmp_path, ranks_=2):
    """A checkpoint whose first tensor is split into two parts along dimension 1, as two ranks would
    store it."""
    whole = {"a.weight": rows(4, 6), "b.weight": rows(3, 2) + 0.5, "step": 7}
    folder = tmp_path / "first"
    for r in range(ranks_):
        (folder / f"rank_{r}").mkdir(parents=True)
        ms.save_checkpoint([{"name": "a.weight", "data": ms.Tensor(whole["a.weight"].numpy()[:, 3 * r:3 * r + 3])},
                            {"name": "b.weight", "data": ms.Tensor(whole["b.weight"].numpy())}], str(folder / f"rank_{r}" / "x.ckpt"))
    return whole, folder


LAYOUT = """{"parallel_layout_item": {"a.weight": {"dev_matrix": [2], "tensor_map": [-1, 0], "param_split_shape": [4, 3], "field": 0,
 "opt_weight_shard_size": 0, "opt_weight_shard_step": 0}}, "parallel_strategy_item": {}, "current_stage": 0}"""


def test_reading_mindspore_rank_checkpoints(tmp_path):
    whole, folder = saved(tmp_path)
    strategy = tmp_path / "strategy.json"
    strategy.write_text(LAYOUT)
    read_rank_checkpoints(str(folder), str(tmp_path / "dcp"), str(strategy))
    for t, d in ((mt, dcp), (real, __import__("torch.distributed.checkpoint", fromlist=["x"]))):
        state = {"a.weight": t.zeros(4, 6), "b.weight": t.zeros(3, 2)}
        d.load(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
        for k, v in state.items():
            np.testing.assert_array_equal(v.numpy(), whole[k].numpy())
    sizes = [os.path.getsize(tmp_path / "dcp" / f"__{r}_0.distcp") for r in (0, 1)]
    assert min(sizes) > 0
    with pytest.raises(FileNotFoundError, match="rank_0"):
        read_rank_checkpoints(str(tmp_path / "dcp"), str(tmp_path / "other"))


@pytest.mark.parametrize("name", ["strategy.ckpt", "strategy.json"])
def test_writing_mindspore_rank_checkpoints(tmp_path, name):
    """MindSpore's own transform_checkpoints reads the written files and converts them to one full
    checkpoint and to four parts."""
    whole, folder = saved(tmp_path)
    (tmp_path / "given.json").write_text(LAYOUT)
    read_rank_checkpoints(str(folder), str(tmp_path / "dcp"), str(tmp_path / "given.json"))
    source, strategy = tmp_path / "ranks", str(tmp_path / name)
    assert write_rank_checkpoints(str(tmp_path / "dcp"), str(source), 2, strategy_file=strategy) == []
    for r in (0, 1):
        mine = ms.load_checkpoint(str(source / f"rank_{r}" / "checkpoint.ckpt"))
        np.testing.assert_array_equal(mine["a.weight"].asnumpy(), whole["a.weight"].numpy()[:, 3 * r:3 * r + 3])
        np.testing.assert_array_equal(mine["b.weight"].asnumpy(), whole["b.weight"].numpy())
    ms.transform_checkpoints(str(source), str(tmp_path / "one"), "whole", strategy, None)
    one = ms.load_checkpoint(str(next((tmp_path / "one" / "rank_0").glob("*.ckpt"))))
    for k in ("a.weight", "b.weight"):
        np.testing.assert_array_equal(one[k].asnumpy(), whole[k].numpy())

    # Another split: four parts along dimension 0.
    four = str(tmp_path / ("four." + name.split(".")[1]))
    write_rank_checkpoints(str(tmp_path / "dcp"), str(tmp_path / "want"), 4, strategy_file=four, split={"a.weight": 0})
    ms.transform_checkpoints(str(source), str(tmp_path / "got"), "part", strategy, four)
    for r in range(4):
        got = ms.load_checkpoint(str(next((tmp_path / "got" / f"rank_{r}").glob("*.ckpt"))))
        np.testing.assert_array_equal(got["a.weight"].asnumpy(), whole["a.weight"].numpy()[r:r + 1])
    # ... and back from MindSpore's output.
    read_rank_checkpoints(str(tmp_path / "got"), str(tmp_path / "again"), four)
    state = {"a.weight": mt.zeros(4, 6), "b.weight": mt.zeros(3, 2)}
    dcp.load(state, checkpoint_id=tmp_path / "again")
    for k, v in state.items():
        np.testing.assert_array_equal(v.numpy(), whole[k].numpy())


def test_integrated_checkpoints_and_non_tensor_entries(tmp_path):
    net = mt.nn.Linear(3, 2)
    dcp.save({"model": net.state_dict(), "step": 3, "lr": 0.1}, checkpoint_id=tmp_path / "c")
    left = write_rank_checkpoints(str(tmp_path / "c"), str(tmp_path / "all"), 2, integrated=True)
    assert left == ["lr", "step"] and sorted(os.listdir(tmp_path / "all")) == ["rank_0", "rank_1"]
    write_rank_checkpoints(str(tmp_path / "c"), str(tmp_path / "model"), 2, key="model", prefix="net", integrated=True)
    other = mt.nn.Linear(3, 2)
    ms.load_checkpoint(str(tmp_path / "model" / "rank_1" / "net.ckpt"), other)
    assert mt.equal(other.weight, net.weight) and mt.equal(other.bias, net.bias)
    with pytest.raises(KeyError, match="no entries below 'gone'"):
        write_rank_checkpoints(str(tmp_path / "c"), str(tmp_path / "x"), 2, key="gone")
    with pytest.raises(ValueError, match="cannot be split into 4 equal parts"):
        write_rank_checkpoints(str(tmp_path / "c"), str(tmp_path / "x"), 4, key="model", split={"weight": 0})


# ------------------------------------------------------------------ manually reduced gradients
BODY = '''
ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))
rs = np.random.RandomState(0)
x, y = rs.randn(32, 5).astype(np.float32), rs.randint(0, 2, 32)
data_set = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
sampler = DistributedSampler(data_set, shuffle=False)
data = DataLoader(data_set, batch_size=4, drop_last=True, sampler=sampler)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)

def forward_fn(data, label):
    logits = net(data)
    return criterion(logits, label), logits

grad_fn = ms.ops.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)
grad_reducer = nn.DistributedGradReducer(optimizer.parameters)
losses = []
for data_, label in data:
    (loss, _), grads = grad_fn(data_, label)
    grads = grad_reducer(grads)
    optimizer(grads)
    losses.append(float(loss))
'''


def expected(world):
    real.manual_seed(1)
    net = real.nn.Sequential(real.nn.Linear(5, 7), real.nn.Tanh(), real.nn.Linear(7, 2))
    rs = np.random.RandomState(0)
    x, y = real.from_numpy(rs.randn(32, 5).astype(np.float32)), real.from_numpy(rs.randint(0, 2, 32))
    opt = real.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
    for i in range(0, 32, 4 * world):
        opt.zero_grad()
        real.nn.functional.cross_entropy(net(x[i:i + 4 * world]), y[i:i + 4 * world]).backward()
        opt.step()
    return [p.detach().numpy() for p in net.parameters()]


@pytest.mark.dist
def test_gradient_reducer_over_a_torch_group():
    results = ranks('''
import mindspore as ms
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
''' + BODY + '''
summed = nn.DistributedGradReducer(optimizer.parameters, mean=False)((torch.ones(2), None, torch.ones(3, dtype=torch.float64)))
give(weights=list(net.parameters()), losses=losses, summed=[summed[0], summed[1], summed[2], str(summed[2].dtype)])
''', world=2)
    assert results[0]["losses"] != results[1]["losses"]
    for r in results:
        for got, want in zip(r["weights"], expected(2)):
            np.testing.assert_allclose(got, want, atol=1e-5)
        assert r["summed"] == [[2, 2], None, [2, 2, 2], "torch.float64"]


@pytest.mark.dist
@pytest.mark.skipif(shutil.which("msrun", path=os.path.dirname(sys.executable)) is None, reason="msrun is not installed")
def test_training_over_mindspore_communication(tmp_path):
    """The script of the article verbatim: init("mccl") under msrun, without torch.distributed."""
    script = tmp_path / "train.py"
    script.write_text('''
import numpy as np
import mindtorch.torch as torch
import mindtorch.torch.nn as nn
from mindtorch.torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from mindspore.communication import get_rank, init
import mindspore as ms
init("mccl")
''' + BODY + '''
np.savez(f"rank{get_rank()}.npz", *[p.detach().numpy() for p in net.parameters()])
''')
    from _ranks import free_port
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])}
    p = subprocess.run(["msrun", "--worker_num=2", "--local_worker_num=2", f"--master_port={free_port()}", "--log_dir=logs", "--join=True",
                        "train.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110)
    assert p.returncode == 0, p.stdout[-2000:] + p.stderr[-2000:]
    for r in (0, 1):
        with np.load(tmp_path / f"rank{r}.npz") as z:
            for got, want in zip(z.values(), expected(2)):
                np.testing.assert_allclose(got, want, atol=1e-5)
