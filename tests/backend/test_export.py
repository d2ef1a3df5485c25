"""Whole models as MindIR, as ONNX and through torch.jit: each is reloaded and compared with
mindtorch and real PyTorch."""
import importlib.util
import warnings

import mindspore as ms
import numpy as np
import pytest
import torch as real

import mindtorch.torch as mt
from mindtorch.backend.errors import SpecializationError
from mindtorch.torch._graph import capture, graph_cell


pytestmark = pytest.mark.usefixtures("eager_mode")


def draw(seed, *shape):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def fill(T, module, seed=0):
    """Sets the same weights in either library."""
    rs = np.random.RandomState(seed)
    state = {}
    for k, v in module.state_dict().items():
        a = rs.rand(*v.shape) + 0.5 if k.endswith("running_var") else rs.randn(*v.shape) * 0.3
        state[k] = T.tensor(0) if not v.shape else T.tensor(a.astype(np.float32))
    module.load_state_dict(state)
    return module


# ------------------------------------------------------------------ models: T is torch or mindtorch
def mlp(T):
    nn = T.nn
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.SiLU(), nn.Dropout(0.5),
                         nn.Linear(16, 3), nn.LogSoftmax(-1)), [draw(1, 4, 6)]


def lenet(T):
    nn = T.nn
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(6, 8, 5),
                         nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 20), nn.ReLU(), nn.Linear(20, 10)), [draw(2, 2, 1, 16, 16)]


def resnet(T):
    nn = T.nn

    class Block(nn.Module):
        def __init__(self, cin, cout, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(cout)
            self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(cout)
            self.down = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)) if stride != 1 else None

        def forward(self, x):
            y = self.bn2(self.conv2(T.relu(self.bn1(self.conv1(x)))))
            y += x if self.down is None else self.down(x)
            return y.relu_()

    return nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(3, 2, 1), Block(8, 8, 1),
                         Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)), [draw(3, 2, 3, 32, 32)]


def transformer(T):
    nn = T.nn

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(11, 8)
            self.place = nn.Parameter(T.zeros(1, 5, 8))
            self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu"), 2,
                                                enable_nested_tensor=False)
            self.head = nn.Linear(8, 3)

        def forward(self, ids):
            mask = T.triu(T.full((ids.shape[1], ids.shape[1]), float("-inf")), diagonal=1)
            h = self.layers(self.embed(ids) + self.place, mask=mask)
            return {"logits": self.head(h[:, 0]), "hidden": h}

    return Encoder(), [np.random.RandomState(4).randint(0, 11, (3, 5))]


def unet(T):
    nn = T.nn

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.LeakyReLU(0.1))
            self.mid = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1, stride=2), nn.InstanceNorm2d(8, affine=True), nn.ELU())
            self.up = nn.ConvTranspose2d(8, 4, 2, 2)
            self.resize = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
            self.mix = nn.Conv2d(16, 2, 1)

        def forward(self, x):
            a = self.down(x)
            b = self.mid(a)
            both = T.cat([a, self.up(b), self.resize(b)], 1)
            return T.sigmoid(self.mix(both)), both.mean((2, 3))

    return UNet(), [draw(5, 2, 2, 8, 8)]


def recurrent(T):
    nn = T.nn

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(3, 4, batch_first=True, bidirectional=True)
            self.gru = nn.GRU(8, 5, batch_first=True)
            self.out = nn.Linear(5, 2)

        def forward(self, x):
            y, (h, c) = self.lstm(x)
            z, last = self.gru(y)
            return self.out(z), h, c, last

    return Tagger(), [draw(6, 2, 3, 3)]


MINDIR = 1e-3, 1e-4  # rtol, atol: in graph mode MindSpore's CPU kernels approximate tanh and others
MODELS = [mlp, lenet, resnet, transformer, unet, recurrent]


def flat(x):
    if isinstance(x, dict):
        x = list(x.values())
    return [t for v in x for t in flat(v)] if isinstance(x, (tuple, list)) else [x]


def numpy(t):
    return t.asnumpy() if hasattr(t, "asnumpy") else np.asarray(t.detach() if hasattr(t, "detach") else t)


def close(got, want, rtol=1e-4, atol=1e-5):
    got, want = flat(got), flat(want)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        np.testing.assert_allclose(numpy(a), numpy(b), rtol=rtol, atol=atol)


def pair(model):
    """Returns (mindtorch model, real outputs, inputs)."""
    a, xs = model(mt)
    b, _ = model(real)
    fill(mt, a), fill(real, b).eval()
    with real.no_grad():
        return a, b(*(real.from_numpy(x) for x in xs)), xs


# ------------------------------------------------------------------ the graph itself
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_graph_matches_the_model(model):
    a, want, xs = pair(model)
    a.eval()
    graph = capture(a, tuple(mt.tensor(x) for x in xs))
    got = graph.run(*(mt.tensor(x) for x in xs))
    close(got, want)
    assert not graph.mutations and not graph.escapes
    names = {n for n, _ in [*a.named_parameters(), *a.named_buffers()]}
    assert {p.name for p in graph.parameters} <= names
    # The graph reads the parameters at each run, so it follows an optimizer.
    with mt.no_grad():
        for p in a.parameters():
            p.mul_(0.5)
    close(graph.run(*(mt.tensor(x) for x in xs)), a(*(mt.tensor(x) for x in xs)), 1e-5, 1e-6)
    # ... and gradients flow through it.
    loss = sum(t.sum() for t in flat(graph.run(*(mt.tensor(x) for x in xs))))
    loss.backward()
    grads = [p.grad.clone() for p in a.parameters() if p.grad is not None]
    a.zero_grad()
    sum(t.sum() for t in flat(a(*(mt.tensor(x) for x in xs)))).backward()
    close(grads, [p.grad for p in a.parameters() if p.grad is not None], 1e-4, 1e-5)


@pytest.mark.parametrize("model", [pytest.param(m, marks=pytest.mark.slow) if m in (mlp, recurrent) else m for m in MODELS], ids=lambda m: m.__name__)
def test_mindir(model, tmp_path):
    a, want, xs = pair(model)
    a.train()
    before = {k: v.clone() for k, v in a.state_dict().items()}
    ms.export(a, *(mt.tensor(x) for x in xs), file_name=str(tmp_path / "net"), file_format="MINDIR")
    assert a.training and all(mt.equal(v, before[k]) for k, v in a.state_dict().items())
    cell = ms.nn.GraphCell(ms.load(str(tmp_path / "net.mindir")))
    close(cell(*(ms.Tensor(x) for x in xs)), want, *MINDIR)
    assert {p.name for p in cell.get_parameters()} == {p.name for p in capture(a.eval(), tuple(mt.tensor(x) for x in xs)).parameters}


def test_cell_compiles_under_jit():
    a, want, xs = pair(resnet)
    a.eval()
    cell = graph_cell(capture(a, tuple(mt.tensor(x) for x in xs)))
    assert not isinstance(cell, mt.nn.Module)
    compiled = ms.jit(cell.construct)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        close(compiled(*(ms.Tensor(x) for x in xs)), want, *MINDIR)
    assert {p.name for p in cell.get_parameters()} >= {n for n, _ in a.named_parameters()}


@pytest.mark.slow
@pytest.mark.parametrize("model", [lenet, transformer, unet], ids=lambda m: m.__name__)
def test_mindir_with_dynamic_batch_size(model, tmp_path):
    a, _, xs = pair(model)
    dtype = ms.float32 if xs[0].dtype == np.float32 else ms.int64
    ms.export(a, ms.Tensor(shape=[None, *xs[0].shape[1:]], dtype=dtype), file_name=str(tmp_path / "net"), file_format="MINDIR")
    cell = ms.nn.GraphCell(ms.load(str(tmp_path / "net.mindir")))
    a.eval()
    for n in (1, 4):
        x = np.concatenate([xs[0]] * 3)[:n]
        close(cell(ms.Tensor(x)), a(mt.tensor(x)), *MINDIR)


def test_mindspore_cell_around_a_module_is_exported(tmp_path):
    class Outer(ms.nn.Cell):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def construct(self, x):
            return self.inner(x) * 2

    a, want, xs = pair(lenet)
    ms.export(Outer(a), ms.Tensor(xs[0]), file_name=str(tmp_path / "net"), file_format="MINDIR")
    close(ms.nn.GraphCell(ms.load(str(tmp_path / "net.mindir")))(ms.Tensor(xs[0])), want * 2, *MINDIR)


# ------------------------------------------------------------------ ONNX
def onnx_run(blob, *xs):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(blob, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: x for i, x in zip(session.get_inputs(), xs)})


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_onnx(model, tmp_path):
    onnx = pytest.importorskip("onnx")
    a, want, xs = pair(model)
    path = tmp_path / "net.onnx"
    program = mt.onnx.export(a, tuple(mt.tensor(x) for x in xs), str(path), verify=True)
    assert a.training and isinstance(program, mt.onnx.ONNXProgram)
    close(onnx_run(path.read_bytes(), *xs), want)
    held = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(str(path)).graph.initializer}
    for n, p in a.named_parameters():
        np.testing.assert_array_equal(held[n], p.detach().numpy())


@pytest.mark.slow
@pytest.mark.parametrize("opset", [13, 15, 18, 21])
def test_onnx_opsets(opset, tmp_path):
    pytest.importorskip("onnx")
    for model in (unet, transformer, lenet):
        a, want, xs = pair(model)
        program = mt.onnx.export(a, tuple(mt.tensor(x) for x in xs), opset_version=opset)
        assert program.model_proto.opset_import[0].version == opset
        close(onnx_run(program.model_proto.SerializeToString(), *xs), want)
    with pytest.raises(ValueError, match="opset_version 9 is not supported, only 13 to 21"):
        mt.onnx.export(a, tuple(mt.tensor(x) for x in xs), opset_version=9)


@pytest.mark.parametrize("model", [mlp, lenet, resnet, transformer, unet], ids=lambda m: m.__name__)
def test_onnx_with_dynamic_axes_and_names(model, tmp_path):
    pytest.importorskip("onnx")
    a, _, xs = pair(model)
    program = mt.onnx.export(a, tuple(mt.tensor(x) for x in xs), input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}, "y": [0]})
    blob = program.model_proto.SerializeToString()
    graph = program.model_proto.graph
    assert [i.name for i in graph.input] == ["x"] and graph.output[0].name == "y"
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch" == graph.output[0].type.tensor_type.shape.dim[0].dim_param
    a.eval()
    for n in (1, 5):
        x = np.concatenate([xs[0]] * 3)[:n]
        close(onnx_run(blob, x), a(mt.tensor(x)))


def test_onnx_with_two_dynamic_sizes():
    pytest.importorskip("onnx")
    net = net_of(lambda x, y: (x.view(x.shape[0], -1), (x.mean(-1) + y).softmax(1), x.transpose(1, 2).reshape(x.shape[0] * x.shape[2], -1)))
    xs = draw(1, 2, 3, 4), draw(2, 2, 3)
    program = mt.onnx.export(net, tuple(map(mt.tensor, xs)), dynamic_shapes={"input_0": {0: "n", 1: "m"}, "input_1": {0: "n", 1: "m"}},
                             input_names=["input_0", "input_1"])
    for n, m in ((1, 3), (4, 7)):
        xs = draw(1, n, m, 4), draw(2, n, m)
        close(onnx_run(program.model_proto.SerializeToString(), *xs), net(*map(mt.tensor, xs)))


def test_mindspore_export_writes_onnx(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    for model in (lenet, transformer):
        a, want, xs = pair(model)
        ms.export(a, *(mt.tensor(x) for x in xs), file_name=str(tmp_path / "net"), file_format="ONNX")
        close(onnx_run((tmp_path / "net.onnx").read_bytes(), *xs), want)
    # Without the package onnx MindSpore's own writer is used, which supports few ops.
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "onnx" else found(name, *rest))
    with pytest.raises(NotImplementedError, match="MindSpore's ONNX writer does not support"):
        ms.export(a, *(mt.tensor(x) for x in xs), file_name=str(tmp_path / "other"), file_format="ONNX")


# ------------------------------------------------------------------ torch.jit
@pytest.mark.parametrize("model", [pytest.param(m, marks=pytest.mark.slow) if m in (resnet, recurrent, unet) else m for m in MODELS], ids=lambda m: m.__name__)
def test_jit_save_and_load(model, tmp_path):
    a, want, xs = pair(model)
    a.eval()
    traced = mt.jit.trace(a, tuple(mt.tensor(x) for x in xs))
    assert isinstance(traced, mt.jit.ScriptModule) and isinstance(traced, type(a))
    close(traced(*(mt.tensor(x) for x in xs)), want)
    assert list(traced.state_dict()) == list(a.state_dict())
    path = tmp_path / "net.pt"
    traced.save(str(path))
    again = mt.jit.load(path, map_location="cpu")
    with mt.no_grad():
        got = again(*(mt.tensor(x) for x in xs))
        close(got, want, *MINDIR)
    assert type(got) is type(a(*(mt.tensor(x) for x in xs))) and all(isinstance(t, mt.Tensor) for t in flat(got))
    assert not again.training and again.original_name == type(a).__name__
    for n, p in again.named_parameters():
        assert mt.equal(p, a.get_parameter(n))
    # change the weights of both the loaded and the traced module
    with mt.no_grad():
        for p in a.parameters():
            p.mul_(0.5)
        again.load_state_dict({k: v for k, v in a.state_dict().items() if k in again.state_dict()})
        close(again(*(mt.tensor(x) for x in xs)), traced(*(mt.tensor(x) for x in xs)), *MINDIR)


def test_jit_traces_functions_for_any_batch_size(tmp_path):
    def fn(x, y=None, *, scale=2.0):
        return {"sum": (x + y) * scale, "more": [x.sum(-1), None, 3]}

    traced = mt.jit.trace(fn, (mt.ones(2, 3), mt.ones(2, 3)))
    assert isinstance(traced, mt.jit.ScriptFunction) and "add" in repr(traced.graph)
    extra = {"note.txt": ""}
    mt.jit.save(traced, tmp_path / "fn.pt", _extra_files={"note.txt": "hello"})
    again = mt.jit.load(str(tmp_path / "fn.pt"), _extra_files=extra)
    assert extra["note.txt"] == b"hello"
    for n in (2, 5):
        x, y = mt.tensor(draw(1, n, 3)), mt.tensor(draw(2, n, 3))
        got, want = again(x, y), fn(x, y)
        assert list(got) == ["sum", "more"] and got["more"][1:] == [None, 3]
        close([got["sum"], got["more"][0]], [want["sum"], want["more"][0]], *MINDIR)
    with pytest.raises(NotImplementedError, match=r"x of shape \[None, 3\], got \[2, 4\]"):
        again(mt.ones(2, 4), mt.ones(2, 4))
    with pytest.raises(NotImplementedError, match="no backward"):
        again(mt.ones(2, 3, requires_grad=True), mt.ones(2, 3))


def test_jit_save_and_load_errors(tmp_path):
    scripted = mt.jit.script(mt.nn.Linear(2, 2))
    assert isinstance(scripted, mt.jit.ScriptModule) and scripted(mt.ones(1, 2)).requires_grad

    def f(x):
        return x
    assert isinstance(mt.jit.script(f), mt.jit.ScriptFunction) and mt.jit.script(f).fn is f
    with pytest.raises(NotImplementedError, match="was not traced"):
        scripted.save(tmp_path / "a.pt")
    training = mt.jit.trace(mt.nn.BatchNorm1d(3), mt.randn(4, 3))
    with pytest.raises(NotImplementedError, match="in training mode the module modifies .*running_mean"):
        training.save(tmp_path / "a.pt")
    real.jit.trace(real.nn.Linear(2, 2), real.ones(1, 2)).save(str(tmp_path / "real.pt"))
    with pytest.raises(NotImplementedError, match="TorchScript format is not supported"):
        mt.jit.load(str(tmp_path / "real.pt"))
    (tmp_path / "junk").write_text("junk")
    with pytest.raises(RuntimeError, match="not a file written by torch.jit.save"):
        mt.jit.load(tmp_path / "junk")
    assert not (tmp_path / "a.pt").exists()


def test_jit_trace_trains():
    """Checks eager semantics: a traced module is the module itself, with train() and eval(),
    gradients and hooks."""
    net = mt.nn.Sequential(mt.nn.Linear(3, 4), mt.nn.BatchNorm1d(4), mt.nn.Dropout(0.5))
    traced = mt.jit.trace(net, mt.randn(5, 3))
    assert traced.train() is traced and net.training
    traced.eval()
    assert not net.training and not net[1].training
    traced.train()
    traced(mt.randn(5, 3)).sum().backward()
    assert net[0].weight.grad is not None and traced[0].weight is net[0].weight


# ------------------------------------------------------------------ errors
def net_of(fn):
    return type("Net", (mt.nn.Module,), {"forward": lambda self, *args: fn(*args)})()


def test_export_error_names_the_unsupported_op(tmp_path):
    with pytest.raises(NotImplementedError, match=r"the op 'special.zeta'.* \(dtype float32, device cpu\) has no MindSpore kernel"):
        ms.export(net_of(lambda x: mt.special.zeta(x + 2, x + 1) + 1), mt.rand(3, 3), file_name=str(tmp_path / "a"), file_format="MINDIR")
    with pytest.raises(NotImplementedError, match=r"export to ONNX: the op 'linalg.svd' .* has no lowering \(dtype float32, device cpu\)"):
        mt.onnx.export(net_of(lambda x: mt.linalg.svd(x)[1] + 1), (mt.randn(3, 3),), tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_mindir_exports_ops_without_onnx_lowering(tmp_path):
    net = net_of(lambda x: (mt.linalg.svd(x)[1] + 1, x.sort(0).values, mt.fft.rfft(x).abs(), x.unfold(0, 2, 1), x.cummax(1)[0]))
    x = mt.tensor(draw(1, 4, 4))
    ms.export(net, x, file_name=str(tmp_path / "a"), file_format="MINDIR")
    close(ms.nn.GraphCell(ms.load(str(tmp_path / "a.mindir")))(ms.Tensor(x.numpy())), net(x), *MINDIR)


@pytest.mark.parametrize("fn", [
    lambda x: x * x.sum().item(), lambda x: x if x.sum() > 0.2 else -x, lambda x: x + mt.from_numpy(x.numpy() * 2), lambda x: x + mt.randn(3),
    lambda x: mt.nn.functional.dropout(x, 0.5, True)], ids=["item", "branch", "numpy", "random", "dropout"])
def test_data_dependent_functions_raise(fn, tmp_path):
    with warnings.catch_warnings(), pytest.raises((RuntimeError, NotImplementedError), match="does not hold for other inputs|random numbers|dropout"):
        ms.export(net_of(fn), mt.tensor([-1.5, 0.2, 0.7]), file_name=str(tmp_path / "a"), file_format="MINDIR")


def test_inplace_writes_through_views():
    def good(x):
        y = x * 2
        y[:, 0] = 3
        y[1] += x[0]
        z = y.reshape(-1).clone()
        z.mul_(2)
        w = y.t()
        w[0].fill_(7)
        y.view(-1)[4:].mul_(x[0, :2])
        return y, z, w

    def bad(x):
        w = x.detach() * 2
        return w.view(mt.int32).fill_(0).sum() + w
    x = mt.tensor(draw(1, 2, 3))
    graph = capture(good, (x,))
    y = mt.tensor(draw(2, 2, 3))
    close(graph.run(y), good(y), 0, 0)
    close(good(y), good_reference(y.numpy()), 0, 0)
    close(graph_cell(graph)(ms.Tensor(x.numpy())), good(x), 1e-6, 1e-7)
    with pytest.raises(NotImplementedError, match="through another view"):
        capture(bad, (x,))


def good_reference(x):
    y = x * 2
    y[:, 0] = 3
    y[1] += x[0]
    z = y.reshape(-1) * 2
    y[:, 0] = 7
    y.reshape(-1)[4:] *= x[0, :2]
    return [mt.tensor(a) for a in (y, z, y.T)]


def test_dynamic_size_that_changes_the_ops_raises():
    def by_size(x):
        return x.sum(0) if x.shape[0] > 3 else x.mean(0)

    with pytest.raises(SpecializationError, match="other ops run for 4 than for 3"):
        capture(by_size, (mt.randn(3, 2),), dynamic={0: {0: "n"}})
    with pytest.raises(SpecializationError, match="a Python scalar of .*add is 3.0 for size 3 and 4.0 for size 4"):
        capture(lambda x: x + x.size(0), (mt.randn(3, 2),), dynamic={0: {0: "n"}})
    with pytest.raises(SpecializationError, match="not a linear function"):
        capture(lambda x: x.repeat(1 + x.shape[0] // 2, 1), (mt.randn(3, 2),), dynamic={0: {0: "n"}})
    graph = capture(lambda x: x.view(x.shape[0] * 2, -1), (mt.tensor(draw(1, 3, 2, 2)),), dynamic={0: {0: "n"}})
    assert "2*n" in repr(graph)
    assert graph.run(mt.ones(5, 2, 2)).shape == (10, 2)


def test_tracing_has_no_side_effects():
    net = mt.nn.Sequential(mt.nn.Linear(3, 3), mt.nn.BatchNorm1d(3), mt.nn.Dropout(0.0))
    state, codes = {k: v.clone() for k, v in net.state_dict().items()}, (mt.relu.__code__, mt.Tensor.add_.__code__)
    mt.manual_seed(3)
    rng = mt.get_rng_state()
    graph = capture(net, (mt.randn(4, 3),), check=False)
    mt.manual_seed(3)
    assert mt.equal(mt.get_rng_state(), rng)
    assert "1.running_mean" in graph.mutations
    assert all(mt.equal(v, state[k]) for k, v in net.state_dict().items())
    assert codes == (mt.relu.__code__, mt.Tensor.add_.__code__)
    with pytest.raises(KeyError):
        capture(lambda x: {}[x], (mt.randn(2),))
    assert codes == (mt.relu.__code__, mt.Tensor.add_.__code__)


def test_mindspore_onnx_writer(tmp_path, monkeypatch):
    """Exports convolutions, norms and pools without the package onnx."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "onnx" else found(name, *rest))
    net = mt.nn.Sequential(mt.nn.Conv2d(1, 4, 3), mt.nn.BatchNorm2d(4), mt.nn.ReLU(), mt.nn.MaxPool2d(2), mt.nn.Flatten(), mt.nn.Linear(4 * 13 * 13, 3)).eval()
    x = draw(1, 1, 1, 28, 28)
    ms.export(net, mt.tensor(x), file_name=str(tmp_path / "net"), file_format="ONNX")
    close(onnx_run((tmp_path / "net.onnx").read_bytes(), x), net(mt.tensor(x)))
