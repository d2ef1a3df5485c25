"""torch.utils.tensorboard: event files equal PyTorch's record by record, and TensorBoard's own
reader can load them."""
import glob
import os

import numpy as np
import pytest

pytest.importorskip("tensorboard")
matplotlib = pytest.importorskip("matplotlib")
import torch as real
import torch.utils.tensorboard as theirs
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.util import tensor_util

import mindtorch.torch as mine
import mindtorch.torch.utils.tensorboard as ours

matplotlib.use("Agg")


def records(folder):
    """Returns [(path, event or bytes)] of everything a writer left, without timestamps."""
    found = []
    for f in sorted(glob.glob(f"{folder}/**/*", recursive=True)):
        place = os.path.relpath(f, folder)
        if "tfevents" in f:
            for raw in RawEventFileLoader(f).Load():
                e = Event.FromString(raw)
                e.ClearField("wall_time")
                e.ClearField("source_metadata")
                found.append((os.path.dirname(place), e))
        elif os.path.isfile(f):
            found.append((place, open(f, "rb").read()))
    return found


def numbers(T, w):
    w.add_scalar("a", T.tensor(1.5), 3)
    w.add_scalar("b", 2, 4, new_style=True)
    w.add_scalar("b", np.float32(2), 4, new_style=True, double_precision=True)
    w.add_scalars("m/x", {"u": 1, "v": T.tensor([2.0])}, 1)
    w.add_tensor("t", T.arange(6.0).reshape(2, 3), 1)
    for dtype in ("float64", "int8", "int16", "int32", "int64", "complex64", "complex128", "bool"):
        w.add_tensor(dtype, (T.arange(6) - 2).to(getattr(T, dtype)).reshape(2, 3))


def histograms(T, w):
    x = T.linspace(-3, 5, 100)
    for name, kw in {"default": {}, "auto": {"bins": "auto"}, "few": {"max_bins": 50}, "groups": {"bins": 7, "max_bins": 3}}.items():
        w.add_histogram(name, x, 0, **kw)
        w.add_histogram(name, x.to(T.bfloat16), 1, **kw)
    w.add_histogram("zeros", np.zeros(4), 0)
    w.add_histogram_raw("raw", 0, 1, 2, 1, 1, [0, 1], [1, 1], 0)


def pictures(T, w):
    import matplotlib.pyplot as plt
    i = T.arange(60.0).reshape(3, 4, 5) / 60
    w.add_image("chw", i, 0)
    w.add_image("grey", i[:1], 0)
    w.add_image("hw", i[0], 0, dataformats="HW")
    w.add_image("hwc", (i.permute(1, 2, 0) * 255).to(T.uint8), dataformats="HWC")
    w.add_images("page", T.stack([i] * 11), 0)
    w.add_images("grey page", T.stack([i[:1]] * 3), 0)
    w.add_images("nhwc", T.stack([i] * 3).permute(0, 2, 3, 1), 0, dataformats="NHWC")
    w.add_image_with_boxes("boxes", T.ones(3, 40, 50) / 2, T.tensor([[2.0, 3, 20, 30], [5, 5, 30, 35]]), labels=["a", "cat"])
    w.add_image_with_boxes("no labels", T.ones(3, 40, 50) / 2, T.tensor([[2.0, 3, 20, 30]]), labels=["a", "cat"])
    figure = plt.figure(figsize=(1, 1))
    plt.plot([1, 2])
    w.add_figure("figure", figure)
    w.add_figure("figures", [plt.figure(figsize=(1, 1)) for _ in range(2)])
    assert not plt.get_fignums()


def sound_and_text(T, w):
    w.add_audio("in range", T.sin(T.arange(100) / 5.0), sample_rate=8000)
    w.add_audio("cut", 2 * T.sin(T.arange(100) / 5.0)[None])
    w.add_text("t", "hello *x* \u00e4", 2)


def curves(T, w):
    labels, predictions = T.tensor([0, 1, 1, 0, 1]), T.tensor([0.1, 0.9, 0.5, 0.4, 0.2])
    w.add_pr_curve("p", labels, predictions, 0)
    w.add_pr_curve("few", labels, predictions, 0, num_thresholds=10, weights=0.5)
    w.add_pr_curve("none", labels * 0, predictions, 0)
    w.add_pr_curve_raw("raw", *[np.arange(5.0)] * 6, num_thresholds=5)
    w.add_custom_scalars({"T": {"a": ["Multiline", ["x", "y"]], "b": ["Margin", ["x", "y", "z"]]}})
    w.add_custom_scalars_multilinechart(["a", "b"])
    w.add_custom_scalars_marginchart(["a", "b", "c"])
    w.add_mesh("m", T.ones(1, 4, 3), T.ones(1, 4, 3), T.ones(1, 2, 3, dtype=T.int32), {"a": 1})
    w.add_mesh("points", T.ones(1, 4, 3))


def embeddings(T, w):
    points = T.arange(12.0).reshape(4, 3)
    w.add_embedding(points, ["a", "b", "c", "d"], T.full((4, 3, 5, 6), 0.25), 3, "e/x")
    w.add_embedding(points, [("a", 1)] * 4, metadata_header=["n", "m"])


def hyperparameters(T, w):
    w.add_hparams({"lr": 0.1, "size": 3, "name": "x", "flag": True, "t": T.tensor([2.0])}, {"acc": 1.0}, {"size": [3, 4]}, run_name="r")


@pytest.mark.parametrize("write", [numbers, histograms, pictures, sound_and_text, curves, embeddings, hyperparameters], ids=lambda f: f.__name__)
def test_event_files_match_torch(write, tmp_path, capsys):
    for name, T, package in (("theirs", real, theirs), ("ours", mine, ours)):
        with package.SummaryWriter(str(tmp_path / name)) as w:
            write(T, w)
    a, b = records(tmp_path / "theirs"), records(tmp_path / "ours")
    assert len(a) > 2 and [p for p, _ in a] == [p for p, _ in b]
    for (place, x), (_, y) in zip(a, b):
        assert x == y, place


@settings(max_examples=60)
@given(hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=20), elements=st.floats(-1e6, 1e6, width=32)), st.sampled_from(["default", 5, 40]),
       st.one_of(st.none(), st.integers(1, 20)))
def test_histograms(a, bins, most):
    from torch.utils.tensorboard import summary as R

    from mindtorch.torch.utils.tensorboard import summary as M
    from mindtorch.torch.utils.tensorboard.writer import _default_bins
    bins = _default_bins() if bins == "default" else bins
    assert M.histogram("h", mine.tensor(a), bins, most) == R.histogram("h", real.tensor(a), bins, most)


def test_purged_steps_and_reopened_files(tmp_path):
    for name, package in (("theirs", theirs), ("ours", ours)):
        with package.SummaryWriter(str(tmp_path / name)) as w:
            w.add_scalar("a", 1, 1)
        w = package.SummaryWriter(str(tmp_path / name / "again"), purge_step=5, filename_suffix=".x")
        w.add_scalar("a", 1, 6)
        w.close()
        w.close()
        assert all(f.endswith(".x") for f in os.listdir(tmp_path / name / "again"))
    assert records(tmp_path / "theirs") == records(tmp_path / "ours")


def test_tensorboard_reads_what_a_training_loop_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    w = ours.SummaryWriter(comment="_try")
    model = mine.nn.Linear(3, 1)
    opt = mine.optim.SGD(model.parameters(), 0.1)
    losses = []
    for step in range(5):
        opt.zero_grad()
        loss = model(mine.ones(2, 3)).pow(2).mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        w.add_scalar("loss", loss, step)
        for name, p in model.named_parameters():
            w.add_histogram(name, p, step)
    half = mine.tensor([[-2.0, 0.5], [1, 3]])
    for dtype in (mine.float16, mine.bfloat16, mine.uint8):
        w.add_tensor(str(dtype), half.abs().to(dtype) if dtype is mine.uint8 else half.to(dtype))
    w.flush()
    [folder] = glob.glob("runs/*_try")
    read = EventAccumulator(folder, size_guidance={"tensors": 0, "histograms": 0})
    read.Reload()
    assert [e.step for e in read.Scalars("loss")] == list(range(5))
    assert np.allclose([e.value for e in read.Scalars("loss")], losses)
    assert [h.histogram_value.num for h in read.Histograms("weight")] == [3.0] * 5
    # Halves and bytes are written as TensorFlow's format specifies. (PyTorch writes the bits of
    # float32, and for bytes another field, which its reader cannot parse.)
    for dtype in ("float16", "bfloat16", "uint8"):
        [e] = read.Tensors(f"torch.{dtype}")
        want = half.abs().byte() if dtype == "uint8" else half
        if dtype == "bfloat16":  # (NumPy has no bfloat16)
            got = (np.array(e.tensor_proto.half_val, np.uint32) << 16).view(np.float32).reshape(2, 2)
        else:
            got = tensor_util.make_ndarray(e.tensor_proto)
        assert got.astype(float).tolist() == want.tolist()
    w.close()


def test_rescaled_image_has_its_new_size():
    from mindtorch.torch.utils.tensorboard import summary
    [v] = summary.image("i", mine.ones(3, 4, 6), rescale=2, dataformats="CHW").value
    assert (v.image.height, v.image.width) == (8, 12)


def test_video(tmp_path):
    from PIL import Image
    with ours.SummaryWriter(str(tmp_path)) as w:
        w.add_video("v", mine.rand(3, 4, 3, 8, 8), fps=5)
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    [e] = read.Images("v")
    import io
    gif = Image.open(io.BytesIO(e.encoded_image_string))
    assert gif.n_frames == 4 and gif.size == (16, 16) and gif.info["duration"] == 200


class Net(mine.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mine.nn.Sequential(mine.nn.Linear(3, 4), mine.nn.BatchNorm1d(4), mine.nn.Sequential(mine.nn.Linear(4, 2)))

    def forward(self, x, y):
        return self.body(x) + y, {"a": x.chunk(3, 1)[1]}


def test_graph_of_a_module(tmp_path, capsys):
    model = Net()
    with ours.SummaryWriter(str(tmp_path)) as w:
        w.add_graph(model, (mine.randn(2, 3), mine.ones(2)), verbose=True)
    assert "linear" in capsys.readouterr().out
    assert model.training and not model.body._forward_hooks and model.body[1].num_batches_tracked == 0
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    g = read.Graph()
    assert isinstance(g, GraphDef)
    nodes = {n.name: n for n in g.node}
    assert len(nodes) == len(g.node)
    shape = {n: [[d.size for d in s.dim] for s in nodes[n].attr["_output_shapes"].list.shape] for n in nodes}
    norm = nodes["Net/Sequential[body]/BatchNorm1d[1]/batch_norm"]
    assert norm.op == "aten::batch_norm" and norm.input[0] == "Net/Sequential[body]/Linear[0]/linear"
    inner = nodes["Net/Sequential[body]/Sequential[2]/Linear[0]/linear"]
    assert list(inner.input) == [norm.name, "Net/Sequential[body]/Sequential[2]/Linear[0]/weight", "Net/Sequential[body]/Sequential[2]/Linear[0]/bias"]
    assert shape["input/x"] == [[2, 3]] and shape[inner.name] == [[2, 2]] and shape["Net/chunk"] == [[2, 1]] * 3
    assert [list(nodes[f"output/output.{i}"].input) for i in (1, 2)] == [["Net/__add__"], ["Net/chunk:1"]]
    # Every input is a node, and nodes are in topological order.
    seen = set()
    for n in g.node:
        assert {i.partition(":")[0] for i in n.input} <= seen
        seen.add(n.name)


@pytest.mark.parametrize("call", [
    lambda T, w: w.add_scalar("a", T.ones(2)), lambda T, w: w.add_scalar("a", "x y"), lambda T, w: w.add_scalar("a", None), lambda T, w: w.add_histogram("h", T.ones(0)),
    lambda T, w: w.add_histogram_raw("h", 0, 1, 1, 1, 1, [1], [1, 2]), lambda T, w: w.add_image("i", T.ones(3, 4)),
    lambda T, w: w.add_image("i", T.ones(3, 4, 4), dataformats="CCW"), lambda T, w: w.add_image("i", T.ones(3, 4, 4), dataformats="HW"),
    lambda T, w: w.add_embedding(T.ones(3)), lambda T, w: w.add_embedding(T.ones(3, 2), ["a"]), lambda T, w: w.add_hparams([], {}), lambda T, w: w.add_hparams({}, None),
    lambda T, w: w.add_hparams({"a": object()}, {}), lambda T, w: w.add_hparams({"a": 1}, {}, {"a": ["x"]}), lambda T, w: w.add_tensor("b", T.ones(2, dtype=T.uint16)),
    lambda T, w: w.add_custom_scalars_marginchart(["a"]), lambda T, w: w.add_audio("a", T.ones(2, 3)), lambda T, w: w.add_images("i", T.ones(2, 5, 4, 4)),
])
def test_errors(call, tmp_path):
    types = []
    for T, package in ((real, theirs), (mine, ours)):
        with package.SummaryWriter(str(tmp_path / package.__name__)) as w, pytest.raises(Exception) as e:
            call(T, w)
        types.append(type(e.value))
    assert types[0] is types[1], types


def test_unsupported_writer_methods_raise(tmp_path):
    with ours.SummaryWriter(str(tmp_path)) as w, pytest.raises(NotImplementedError, match="add_onnx_graph"):
        w.add_onnx_graph("x.onnx")
