"""torch.distributed.checkpoint compared with PyTorch: each reads the other's files, and errors
agree."""
import os
import warnings

import numpy as np
import pytest
import torch as real
import torch.distributed.checkpoint as real_dcp
import torch.distributed.checkpoint.state_dict as real_sd
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.checkpoint._nested_dict import flatten_state_dict as real_flatten
from torch.distributed.checkpoint._nested_dict import unflatten_state_dict as real_unflatten

import mindtorch.torch as mt
import mindtorch.torch.distributed.checkpoint as dcp
import mindtorch.torch.distributed.checkpoint.state_dict as sd
from mindtorch.torch.distributed.checkpoint._nested_dict import flatten_state_dict, unflatten_state_dict
from mindtorch.torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from mindtorch.torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from mindtorch.torch.distributed.checkpoint.state_dict_loader import _load_state_dict

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:Detected an existing checkpoint",
                                        "ignore:`submodules` ", "ignore::FutureWarning")
SIDES = {"ours": (mt, dcp), "real": (real, real_dcp)}


class Counter:
    """A stateful object."""

    def __init__(self, n):
        self.n = n

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state):
        self.n = state["n"]


def example(t):
    return {"a": t.arange(6.0).reshape(2, 3).t(), "step": 17, "half": t.ones(3, dtype=t.bfloat16) / 3, "z": t.zeros(0, 3),
            "nested": {"list": [1, t.full((2,), 5.0)], "dict": {"x": (1, "two")}, "3": "three"}, "scalar": t.tensor(3),
            "complex": t.ones(2, dtype=t.complex64) * 1j, "bool": t.tensor([True, False]), "none": None, "own": Counter(4)}


def blank(t):
    s = example(t)
    for k in ("a", "half", "scalar", "complex", "bool"):
        s[k] = t.zeros_like(s[k])
    s["nested"] = {"list": [0, t.zeros(2)], "dict": {"x": None}, "3": None}
    s.update(step=0, none=1, own=Counter(0))
    return s


def plain(x):
    if isinstance(x, (mt.Tensor, real.Tensor)):
        name = str(x.dtype)
        return name, np.array((x.float() if "bfloat16" in name else x).numpy()).tolist()
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, Counter):
        return x.n
    return [plain(v) for v in x] if isinstance(x, list) else x


@pytest.mark.parametrize("writer", SIDES)
@pytest.mark.parametrize("reader", SIDES)
def test_files_go_both_ways(tmp_path, writer, reader):
    t, d = SIDES[writer]
    d.save(example(t), checkpoint_id=str(tmp_path / "c"), no_dist=True)
    assert sorted(os.listdir(tmp_path / "c")) == [".metadata", "__0_0.distcp"]
    t, d = SIDES[reader]
    state = blank(t)
    d.load(state, checkpoint_id=tmp_path / "c", no_dist=True)
    assert plain(state) == plain(example(t))


def test_metadata_matches_torch(tmp_path):
    for name, (t, d) in SIDES.items():
        d.save(example(t), checkpoint_id=tmp_path / name, no_dist=True)
    a, b = (real_dcp.FileSystemReader(tmp_path / name).read_metadata() for name in SIDES)
    assert a.state_dict_metadata == b.state_dict_metadata
    assert a.planner_data == b.planner_data
    assert list(a.storage_data) == list(b.storage_data)
    assert a.version == b.version
    assert b"mindtorch" not in (tmp_path / "ours" / ".metadata").read_bytes()


leaves = st.sampled_from(["T", 1, (1, 2), None, "s"])
trees = st.recursive(leaves, lambda s: st.lists(s, max_size=3) | st.dictionaries(st.sampled_from("abc") | st.integers(0, 2), s, max_size=3), max_leaves=8)


@given(st.dictionaries(st.sampled_from("xyz"), trees, max_size=3))
def test_flattening(tree):
    def build(t, x):
        if isinstance(x, dict):
            return {k: build(t, v) for k, v in x.items()}
        return [build(t, v) for v in x] if isinstance(x, list) else t.ones(2) if x == "T" else x
    try:
        flat, paths = real_flatten(build(real, tree))
    except ValueError as e:
        with pytest.raises(ValueError, match=str(e)):
            flatten_state_dict(build(mt, tree))
        return
    ours, our_paths = flatten_state_dict(build(mt, tree))
    assert plain(ours) == {k: (v[0], v[1]) if isinstance(v, tuple) and k else v for k, v in plain(flat).items()}
    assert our_paths == paths
    # not always the original tree: empty dicts in lists are lost
    assert plain(unflatten_state_dict(ours, our_paths)) == plain(real_unflatten(flat, paths))


def failure(d, fn):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(d.CheckpointException) as e:
            fn()
    (exc, _), = e.value.failures.values()
    return type(exc), str(exc).splitlines()[0]


@pytest.mark.parametrize("case", [lambda t: {"gone": t.ones(2)}, lambda t: {"a": t.ones(3, 3)}, lambda t: {"nested": {"new": 1}}])
def test_what_does_not_fit(tmp_path, case):
    dcp.save(example(mt), checkpoint_id=tmp_path)
    errors = [failure(d, lambda d=d, t=t: d.load(case(t), checkpoint_id=tmp_path, no_dist=True)) for t, d in SIDES.values()]
    assert errors[0] == errors[1]
    assert any(name in errors[0][1] for name in ("gone", "for a", "nested.new"))


def test_other_errors(tmp_path):
    with pytest.raises(RuntimeError, match="`checkpoint_id` must be specified"):
        dcp.save({})
    with pytest.raises(dcp.CheckpointException, match="nowhere"):
        dcp.load({"a": mt.ones(1)}, checkpoint_id=tmp_path / "nowhere")
    dcp.save({"a": mt.ones(1)}, checkpoint_id=tmp_path / "c")
    with pytest.raises(dcp.CheckpointException, match="Checkpoint already exists"):
        dcp.save({"a": mt.zeros(1)}, storage_writer=dcp.FileSystemWriter(tmp_path / "c", overwrite=False))
    state = {"a": mt.zeros(1)}
    dcp.load(state, checkpoint_id=tmp_path / "c")
    assert state["a"].item() == 1
    with open(tmp_path / "c" / "__0_0.distcp", "r+b") as f:
        f.truncate(100)
    with pytest.raises(dcp.CheckpointException, match="'a' needs"):
        dcp.load(state, checkpoint_id=tmp_path / "c")
    with pytest.raises(NotImplementedError, match="SAFETENSORS"):
        from mindtorch.torch.distributed.checkpoint.filesystem import SerializationFormat
        dcp.FileSystemWriter(tmp_path, serialization_format=SerializationFormat.SAFETENSORS)


def test_interrupted_overwrite_leaves_no_mixed_checkpoint(tmp_path):
    dcp.save({"a": mt.ones(4)}, checkpoint_id=tmp_path)

    class Breaks(dcp.DefaultSavePlanner):
        def resolve_data(self, item):
            raise OSError("the disk is full")

    with pytest.raises(dcp.CheckpointException, match="the disk is full"):
        dcp.save({"a": mt.zeros(4)}, checkpoint_id=tmp_path, planner=Breaks())
    with pytest.raises(dcp.CheckpointException, match="metadata"):
        dcp.load({"a": mt.zeros(4)}, checkpoint_id=tmp_path)


def test_partial_and_full_loading(tmp_path):
    dcp.save(example(mt), checkpoint_id=tmp_path)
    state = {"step": 0, "new": "kept"}
    dcp.load(state, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert state == {"step": 17, "new": "kept"}
    whole = {}
    _load_state_dict(whole, dcp.FileSystemReader(tmp_path), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    assert whole["nested"]["list"][0] == 1 and whole["own"] == {"n": 4} and whole["nested"]["3"] == "three"
    part = {}
    _load_state_dict(part, dcp.FileSystemReader(tmp_path), planner=_EmptyStateDictLoadPlanner(keys={"nested"}), no_dist=True)
    assert list(part) == ["nested"]


def test_integer_keys(tmp_path):
    """Files store them as text, and loading finds them again. (PyTorch adds a second key, "7".)"""
    dcp.save({"state": {7: {"exp": mt.ones(2), "step": 5}}}, checkpoint_id=tmp_path)
    state = {"state": {7: {"exp": mt.zeros(2), "step": 0}}}
    dcp.load(state, checkpoint_id=tmp_path)
    assert plain(state) == {"state": {7: {"exp": ("torch.float32", [1, 1]), "step": 5}}}


def test_loads_in_place(tmp_path):
    dcp.save({"w": mt.arange(6.0).view(2, 3)}, checkpoint_id=tmp_path)
    base = mt.zeros(3, 4)
    state = {"w": base[:2, 1:]}  # strided view
    dcp.load(state, checkpoint_id=tmp_path)
    assert base.tolist() == [[0, 0, 1, 2], [0, 3, 4, 5], [0, 0, 0, 0]]


@pytest.mark.parametrize("options", [dict(single_file_per_rank=False), dict(thread_count=2), dict(sync_files=False),
                                     dict(single_file_per_rank=False, thread_count=3)])
def test_writer_options(tmp_path, options):
    dcp.save(example(mt), storage_writer=dcp.FileSystemWriter(tmp_path, **options))
    state = blank(real)
    real_dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
    assert plain(state) == plain(example(real))


def test_async_save(tmp_path):
    w = mt.ones(1000)
    future = dcp.async_save({"w": w, "c": Counter(3)}, checkpoint_id=tmp_path / "a")
    w.fill_(9)  # after the copy: the checkpoint contains ones
    future.result()
    state = {"w": mt.zeros(1000), "c": Counter(0)}
    dcp.load(state, checkpoint_id=tmp_path / "a")
    assert state["w"].sum().item() == 1000 and state["c"].n == 3

    class Breaks(dcp.DefaultSavePlanner):
        def resolve_data(self, item):
            raise OSError("the disk is full")

    future = dcp.async_save({"w": w}, checkpoint_id=tmp_path / "b", planner=Breaks())
    with pytest.raises(dcp.CheckpointException, match="the disk is full"):
        future.result()
    from mindtorch.torch.distributed.checkpoint.staging import DefaultStager
    from mindtorch.torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
    stager = DefaultStager()
    response = dcp.async_save({"w": w}, checkpoint_id=tmp_path / "c", async_stager=stager)
    response.staging_completion.result()
    response.upload_completion.result()
    stager.close()
    with pytest.raises(NotImplementedError, match="PROCESS"):
        dcp.async_save({"w": w}, checkpoint_id=tmp_path / "d", async_checkpointer_type=AsyncCheckpointerType.PROCESS)


def test_formats(tmp_path):
    state = {"model": {"w": real.arange(4.0)}, "epoch": 3}
    real.save(state, tmp_path / "whole.pt")
    torch_save_to_dcp(tmp_path / "whole.pt", tmp_path / "parts")
    back = {"model": {"w": real.zeros(4)}, "epoch": 0}
    real_dcp.load(back, checkpoint_id=tmp_path / "parts", no_dist=True)
    assert plain(back) == plain(state)
    dcp_to_torch_save(tmp_path / "parts", tmp_path / "again.pt")
    assert plain(real.load(tmp_path / "again.pt")) == plain(state)
    from mindtorch.torch.distributed.checkpoint.format_utils import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner
    into = {"model": {"w": mt.zeros(4)}}
    dcp.load(into, storage_reader=BroadcastingTorchSaveReader(), planner=DynamicMetaLoadPlanner(), checkpoint_id=tmp_path / "whole.pt")
    assert into["model"]["w"].tolist() == [0, 1, 2, 3]


# ------------------------------------------------------------------ state_dicts by name
def setup(t):
    t.manual_seed(0)
    net = t.nn.Sequential(t.nn.Linear(2, 3), t.nn.Linear(3, 1))
    net[1].weight.requires_grad_(False)
    opt = t.optim.Adam([{"params": net[0].parameters(), "lr": 0.1}, {"params": [net[1].bias]}], lr=0.2)
    return net, opt


def steps(t, net, opt, n=2):
    for _ in range(n):
        opt.zero_grad()
        net(t.ones(4, 2)).pow(2).sum().backward()
        opt.step()
    opt.zero_grad()


@pytest.mark.parametrize("options", [{}, dict(flatten_optimizer_state_dict=True), dict(ignore_frozen_params=True),
                                     dict(full_state_dict=True, cpu_offload=True)])
@pytest.mark.parametrize("trained", [False, True])
def test_state_dicts(options, trained):
    found = []
    for t, m in ((mt, sd), (real, real_sd)):
        net, opt = setup(t)
        if trained:
            steps(t, net, opt)
        a, b = m.get_state_dict(net, opt, options=m.StateDictOptions(**options))
        found.append((a, b))
        assert all(p.grad is None for p in net.parameters())
    (a, b), (c, d) = found
    assert list(a) == list(c)
    assert_close(b, d)
    assert_close(a, c)


def assert_close(a, b, where=""):
    if isinstance(b, dict):
        assert list(a) == list(b), where
        for k in b:
            assert_close(a[k], b[k], f"{where}/{k}")
    elif isinstance(b, list):
        assert len(a) == len(b)
        for i, (x, y) in enumerate(zip(a, b)):
            assert_close(x, y, f"{where}/{i}")
    elif isinstance(b, real.Tensor):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-7, err_msg=where)
    else:
        assert a == b, where


@pytest.mark.parametrize("flat", [False, True])
def test_state_dicts_resume(tmp_path, flat):
    """mindtorch saves, PyTorch loads into a model with another parameter order; and back."""
    options = dict(flatten_optimizer_state_dict=flat)
    net, opt = setup(mt)
    steps(mt, net, opt)
    a, b = sd.get_state_dict(net, opt, options=sd.StateDictOptions(**options))
    dcp.save({"model": a, "optim": b}, checkpoint_id=tmp_path)
    other, _ = setup(real)
    again = real.optim.Adam([{"params": [other[1].bias]}, {"params": list(other[0].parameters())[::-1], "lr": 0.1}], lr=0.2)
    model, optim = real_sd.get_state_dict(other, again, options=real_sd.StateDictOptions(**options))
    state = {"model": model, "optim": optim}
    if not flat:
        state["optim"]["param_groups"] = state["optim"]["param_groups"][::-1]
    real_dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
    real_sd.set_state_dict(other, again, model_state_dict=state["model"], optim_state_dict=state["optim"], options=real_sd.StateDictOptions(**options))
    steps(real, other, again)
    steps(mt, net, opt)
    for p, q in zip(net.parameters(), other.parameters()):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-6)

    # The other direction: training continues from PyTorch's checkpoint.
    model, optim = real_sd.get_state_dict(other, again, options=real_sd.StateDictOptions(**options))
    real_dcp.save({"model": model, "optim": optim}, checkpoint_id=tmp_path / "back", no_dist=True)
    third, _ = setup(mt)
    opt3 = mt.optim.Adam([{"params": [third[1].bias]}, {"params": list(third[0].parameters())[::-1], "lr": 0.1}], lr=0.2)
    model, optim = sd.get_state_dict(third, opt3, options=sd.StateDictOptions(**options))
    dcp.load({"model": model, "optim": optim}, checkpoint_id=tmp_path / "back")
    sd.set_state_dict(third, opt3, model_state_dict=model, optim_state_dict=optim, options=sd.StateDictOptions(**options))
    steps(mt, third, opt3)
    steps(real, other, again)
    for p, q in zip(third.parameters(), other.parameters()):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_state_dict_errors():
    net, opt = setup(mt)
    whole = sd.get_optimizer_state_dict(net, opt)
    del whole["state"]["0.bias"]
    with pytest.raises(RuntimeError, match="Missing optimizer state for parameter '0.bias' in checkpoint"):
        sd.set_optimizer_state_dict(net, opt, whole)
    with pytest.raises(RuntimeError, match="Missing key"):
        sd.set_model_state_dict(net, {"0.weight": mt.ones(3, 2)})
    keys = sd.set_model_state_dict(net, {"0.weight": mt.ones(3, 2)}, options=sd.StateDictOptions(strict=False))
    assert keys.missing_keys == ["0.bias", "1.weight", "1.bias"]
    with pytest.raises(ValueError, match="full_state_dict must be True"):
        sd.get_model_state_dict(net, options=sd.StateDictOptions(broadcast_from_rank0=True))
    assert list(sd.get_model_state_dict(net, submodules={net[1]})) == ["1.weight", "1.bias"]
    assert list(sd.get_model_state_dict(net, submodules={net[1]}, options=sd.StateDictOptions(keep_submodule_prefixes=False))) == ["weight", "bias"]
