"""torch.distributed.pipelining on two processes, local_map and implicit_replication, compared with
PyTorch and the full model in one process."""
import numpy as np
import pytest
import torch as real
from _ranks import ranks

import mindtorch.torch as mt
from mindtorch.torch.distributed.pipelining import SplitPoint, pipe_split, pipeline
from mindtorch.torch.distributed.pipelining.microbatch import TensorChunkSpec, merge_chunks, split_args_kwargs_into_chunks
from mindtorch.torch.distributed.pipelining.schedules import ScheduleGPipe, get_schedule_class

MODEL = '''
class Model(nn.Module):
    """Residual blocks, and a parameter of the last stage."""
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.inner = nn.Linear(6, 8)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)])
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = first = self.inner(x)
        for block in self.blocks:
            x = block(x) + x
        return self.head(x * self.scale + first)

def batch(n=8):
    rs = np.random.RandomState(n)
    return torch.tensor(rs.randn(n, 6).astype("float32")), torch.tensor(rs.randint(0, 3, n))
'''


def scope(T):
    found = {"torch": T, "nn": T.nn, "np": np}
    exec(MODEL, found)
    return found


PAIR = MODEL + '''
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, SplitPoint, pipeline
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.experimental import implicit_replication, local_map
out = {}

def named(module, prefix=""):
    return {prefix + k: p.grad for k, p in module.named_parameters()}

class Half(nn.Module):
    """A part of the model, by hand: two results between the stages."""
    def __init__(self, m):
        super().__init__()
        if RANK == 0:
            self.inner, self.blocks = m.inner, m.blocks[:2]
        else:
            self.blocks, self.scale, self.head = m.blocks[2:], m.scale, m.head
    def forward(self, x, first=None):
        if RANK == 0:
            x = first = self.inner(x)
        for block in self.blocks:
            x = block(x) + x
        return (x, first) if RANK == 0 else self.head(x * self.scale + first)

for name, make, parts in (("gpipe", ScheduleGPipe, 4), ("1f1b", Schedule1F1B, 4), ("uneven", Schedule1F1B, 3)):
    stage = PipelineStage(Half(Model()), RANK, WORLD, torch.device("cpu"))
    x, y = batch()
    schedule = make(stage, n_microbatches=parts, loss_fn=F.cross_entropy)
    losses = []
    result = schedule.step(x) if RANK == 0 else schedule.step(target=y, losses=losses)
    out[name] = {"result": result, "losses": losses, "grads": named(stage.submod)}
    if name == "gpipe":
        with torch.no_grad():
            out["eval"] = schedule.eval(x) if RANK == 0 else schedule.eval(target=y, losses=losses)

pipe = pipeline(Model(), (batch(2)[0],), split_spec={"blocks.2": SplitPoint.BEGINNING})
stage = pipe.build_stage(RANK, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 2, loss_fn=lambda a, b: F.cross_entropy(a, b, reduction="sum"), scale_grads=False)
result = schedule.step(batch()[0]) if RANK == 0 else schedule.step(target=batch()[1])
out["traced"] = {"result": result, "grads": named(stage.submod), "names": [k for k, _ in stage.submod.named_parameters()]}

mesh = init_device_mesh("cpu", (WORLD,))
w, v = torch.arange(12.).view(3, 4).requires_grad_(), torch.arange(8.).view(4, 2)
columns, rows = distribute_tensor(w, mesh, [Shard(1)]), distribute_tensor(v, mesh, [Shard(0)])
columns.retain_grad()
product = local_map(lambda a, b, k: ((a @ b) * k, k), ([Partial()], None), ([Shard(1)], [Shard(0)], None))
made, k = product(columns, rows, 2)
made.full_tensor().square().sum().backward()
out["local_map"] = [made.full_tensor(), k, columns.grad.full_tensor(), local_map(lambda a: a + 1, [Replicate()])(v)]
moved = local_map(lambda a: a * 2, [Shard(0)], ([Shard(0)],), redistribute_inputs=True)(distribute_tensor(v, mesh, [Replicate()]))
out["moved"] = moved.full_tensor()
errors = []
for fn in (lambda: product(rows, rows, 2), lambda: product(columns, rows), lambda: local_map(lambda a: (a, a), [Shard(0)])(rows), lambda: local_map(lambda a: 1, ([Shard(0)],))(rows)):
    try:
        fn()
        errors.append("none")
    except Exception as e:
        errors.append(type(e).__name__)
with implicit_replication():
    out["replicated"] = (rows * 2 + v).full_tensor()
try:
    rows + v
    errors.append("none")
except RuntimeError:
    errors.append("RuntimeError")
out["errors"] = errors
give(**out)
'''


@pytest.fixture(scope="module")
def given():
    return ranks(PAIR, timeout=100)


def whole(parts=8, reduction="mean"):
    """Returns (result, loss of each part, gradients by name) of the model in one process."""
    known = scope(real)
    model, (x, y) = known["Model"](), known["batch"]()
    out = model(x)
    pieces = zip(real.tensor_split(out, parts), real.tensor_split(y, parts))
    losses = [real.nn.functional.cross_entropy(a, b, reduction=reduction) for a, b in pieces]
    (sum(losses) / (parts if reduction == "mean" else 1)).backward()
    return out.detach().numpy(), [v.item() for v in losses], {k: p.grad.numpy() for k, p in model.named_parameters()}


@pytest.mark.dist
@pytest.mark.parametrize("name, parts", [("gpipe", 4), ("1f1b", 4), ("uneven", 3)])
def test_stages_match_the_full_models_results_and_gradients(given, name, parts):
    result, losses, grads = whole(parts)
    first, last = given[0][name], given[1][name]
    assert first["result"] is None and first["losses"] == []
    np.testing.assert_allclose(last["result"], result, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last["losses"], losses, rtol=1e-5)
    found = {**first["grads"], **{k if k[:7] != "blocks." else f"blocks.{int(k[7]) + 2}{k[8:]}": v for k, v in last["grads"].items()}}
    assert found.keys() == grads.keys()
    for k, g in grads.items():
        np.testing.assert_allclose(found[k], g, rtol=1e-4, atol=1e-6, err_msg=k)


@pytest.mark.dist
def test_traced_pipeline_keeps_parameter_names(given):
    result, _, grads = whole(2, "sum")
    np.testing.assert_allclose(given[1]["traced"]["result"], result, rtol=1e-5, atol=1e-6)
    assert set(given[0]["traced"]["names"]) | set(given[1]["traced"]["names"]) == set(grads) and "blocks.2.0.weight" in given[1]["traced"]["names"]
    for k, g in grads.items():
        np.testing.assert_allclose({**given[0]["traced"]["grads"], **given[1]["traced"]["grads"]}[k], g, rtol=1e-4, atol=1e-5, err_msg=k)
    np.testing.assert_allclose(given[1]["eval"], result, rtol=1e-5, atol=1e-6)


@pytest.mark.dist
def test_local_map_and_implicit_replication(given):
    w, v = np.arange(12.).reshape(3, 4), np.arange(8.).reshape(4, 2)
    for r in given:
        made, k, grad, plain = r["local_map"]
        np.testing.assert_allclose(made, 2 * w @ v)
        np.testing.assert_allclose(grad, 4 * np.array(made) @ v.T)
        np.testing.assert_allclose(plain, v + 1)
        np.testing.assert_allclose(r["moved"], v * 2)
        np.testing.assert_allclose(r["replicated"], v * 3)
        assert k == 2 and r["errors"] == ["ValueError", "AssertionError", "AssertionError", "AssertionError", "RuntimeError"]


def test_microbatch_split_and_merge_match_torch():
    import torch.distributed.pipelining.microbatch as theirs
    found = []
    for T, M in ((real, theirs), (mt, mt.distributed.pipelining.microbatch)):
        x = T.arange(24.).reshape(6, 4)
        parts = [M.split_args_kwargs_into_chunks((x, 3, [x.t()]), {"k": x}, 4), M.split_args_kwargs_into_chunks((x,), None, 2, (M.TensorChunkSpec(1),)),
                 M.split_args_kwargs_into_chunks((x[:3],), {}, 5)]
        merged = M.merge_chunks(list(T.tensor_split(x, 4)), None), M.merge_chunks([(a, 1) for a in T.tensor_split(x, 2, 1)], (M.TensorChunkSpec(1), None))
        found.append(real.utils._pytree.tree_map(lambda a: a.tolist() if isinstance(a, (real.Tensor, mt.Tensor)) else a, [parts, *merged]))
    assert found[0] == found[1]
    assert TensorChunkSpec.from_tuple((0, 1))[1].split_dim == 1 and str(TensorChunkSpec(2)) == "TensorChunkSpec(2)"
    assert merge_chunks([3, 3], None) == 3 and split_args_kwargs_into_chunks((), {}, 2)[0] == [(), ()]


def test_pipes():
    known = scope(mt)
    model, (x, _) = known["Model"](), known["batch"]()
    for spec in ({"blocks.1": SplitPoint.BEGINNING, "blocks.3": SplitPoint.END}, {"inner": SplitPoint.END}):
        pipe = pipeline(model, (x,), split_spec=spec)
        assert pipe.num_stages == pipe.info().num_stages == len(spec) + 1
        np.testing.assert_allclose(pipe(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-6)
        names = [k for i in range(pipe.num_stages) for k, _ in pipe.get_stage_module(i).named_parameters()]
        assert sorted(names) == sorted([k for k, _ in model.named_parameters()])

    class Marked(mt.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = mt.nn.Linear(2, 2), mt.nn.Linear(2, 2)

        def forward(self, x):
            y = self.a(x)
            pipe_split()
            return self.b(y).relu()
    marked = Marked()
    assert pipeline(marked, (mt.ones(1, 2),)).num_stages == 2 and mt.equal(pipeline(marked, (mt.ones(1, 2),))(mt.ones(1, 2)), marked(mt.ones(1, 2)))

    class Shared(Marked):
        def forward(self, x):
            return self.a(self.b(self.a(x)))
    with pytest.raises(NotImplementedError, match="shared submodules"):
        pipeline(Shared(), (x,), split_spec={"b": SplitPoint.BEGINNING})
    with pytest.raises(ValueError, match="Cannot specify both"):
        pipeline(model, (x,), split_spec={}, split_policy=len)
    with pytest.raises(ValueError, match="no split point"):
        pipeline(model, (x,), split_spec={})


def test_names():
    assert get_schedule_class("gpipe") is get_schedule_class("GPipe") is ScheduleGPipe
    with pytest.raises(ValueError, match="Unknown schedule name"):
        get_schedule_class("none")
    with pytest.raises(NotImplementedError, match="ScheduleInterleaved1F1B"):
        mt.distributed.pipelining.ScheduleInterleaved1F1B([], 2)
