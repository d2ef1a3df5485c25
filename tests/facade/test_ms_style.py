"""MindSpore's APIs for training, saving and compiling torch-style code, with results compared with
PyTorch."""
import copy
import types
import warnings

import mindspore as ms
import numpy as np
import pytest
import torch as real

import mindtorch.torch as mt
from mindtorch.tools import _convert_files, cast_to_adapter_tensor, init_env, read_config


pytestmark = pytest.mark.usefixtures("eager_mode")


def draw(seed, *shape):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def close(a, b, rtol=1e-4, atol=1e-5):
    a = a.asnumpy() if isinstance(a, ms.Tensor) else a.detach().numpy()
    np.testing.assert_allclose(a, b.detach().numpy(), rtol=rtol, atol=atol)


def net(T, seed=0):
    m = T.nn.Sequential(T.nn.Conv2d(1, 3, 3, padding=1), T.nn.BatchNorm2d(3), T.nn.ReLU(), T.nn.Flatten(),
                        T.nn.Linear(48, 4))
    rs = np.random.RandomState(seed)
    m.load_state_dict({k: T.tensor(0 if not v.shape else (rs.rand(*v.shape) + 0.5 if v.ndim == 1 else
                                                          rs.randn(*v.shape) * 0.3).astype(np.float32))
                       for k, v in m.state_dict().items()})
    return m


X = [draw(i, 6, 1, 4, 4) for i in range(6)]
Y = [np.random.RandomState(i).randint(0, 4, 6) for i in range(6)]


# ------------------------------------------------------------------ gradients
def chain(T, w, x):
    y = T.mul(w, x)
    y.mul_(2).add_(w)
    return (y * y).sum()


def slices(T, w, x):
    y = T.mul(w, x)
    y[0] = T.mul(w, 3)[1]
    v = y[:, 1:]
    z = y.view(-1)
    v.sin_()
    y[1, 0] = 5.
    v.mul_(v.detach() + T.mul(w, 1)[:, :1])
    return (z * z).sum() + v.sum()


def into_a_buffer(T, w, x):
    buf = T.zeros(3, 2)
    buf[1:] = T.mul(w, 2)[1:]
    buf += w
    return (buf * x).sum()


def overwritten(T, w, x):
    y = T.mul(w, x)
    y.copy_(T.mul(x, 3))
    y += w
    u = T.mul(w, 1)
    u.zero_()
    return (y * y).sum() + u.sum()


@pytest.mark.parametrize("fn", [chain, slices, into_a_buffer, overwritten], ids=lambda f: f.__name__)
@pytest.mark.parametrize("how", ["parameter", "facade inputs", "mindspore inputs", "input and parameter"])
def test_inplace_writes_inside_value_and_grad(fn, how):
    w0, x0 = draw(1, 3, 2), draw(2, 3, 2)
    w, x = real.tensor(w0, requires_grad=True), real.tensor(x0, requires_grad=True)
    expect = fn(real, w, x)
    expect.backward()
    if "parameter" in how:
        p, x_ = mt.nn.Parameter(mt.tensor(w0)), mt.tensor(x0)
        position = 0 if "input" in how else None
        value, g = ms.value_and_grad(lambda a: fn(mt, p, a), position, [p])(x_)
        if position is None:
            g, refs = [g[0] if isinstance(g, (tuple, list)) else g], [w.grad]
        else:
            g, refs = [g[0], g[1][0] if isinstance(g[1], (tuple, list)) else g[1]], [x.grad, w.grad]
        assert p.requires_grad and p.grad is None
    else:
        make = mt.tensor if how == "facade inputs" else ms.Tensor
        x_, w_ = make(x0), make(w0)
        value, g = ms.value_and_grad(lambda a, b: fn(mt, a, b), (0, 1))(w_, x_)
        refs = [w.grad, x.grad]
        assert not w_.requires_grad
    assert not x_.requires_grad and x_.grad_fn is None
    close(value, expect)
    for a, b in zip(g, refs):
        close(a, b)


def test_only_differentiated_inputs_are_leaves():
    """The batch may be modified in place, because no gradient of it was requested."""
    p = mt.nn.Parameter(mt.tensor(draw(1, 3)))

    def fn(x):
        assert not x.requires_grad
        x.mul_(2)
        return (p * x).sum()

    _, g = ms.value_and_grad(fn, None, [p])(mt.ones(3))
    close(g[0] if isinstance(g, (tuple, list)) else g, real.full((3,), 2.))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        ms.value_and_grad(lambda x: x.mul_(2).sum())(mt.ones(3))


def test_has_aux_and_mixed_training_steps():
    a, b = net(mt), net(real)
    oa = mt.optim.SGD(a.parameters(), lr=0.1, momentum=0.9)
    ob = real.optim.SGD(b.parameters(), lr=0.1, momentum=0.9)

    def forward(x, y):
        logits = a(x)
        return mt.nn.functional.cross_entropy(logits, y), logits, y

    fn = ms.value_and_grad(forward, None, oa.parameters, has_aux=True)
    for i in range(5):
        x, y = mt.tensor(X[i]), mt.tensor(Y[i])
        if i == 2:
            oa.zero_grad()
            forward(x, y)[0].backward()
            oa.step()
        else:
            (loss, logits, same), grads = fn(x, y)
            assert same is y or mt.equal(same, y)
            (oa if i % 2 else oa.step)(grads)
        ob.zero_grad()
        out = b(real.tensor(X[i]))
        expect = real.nn.functional.cross_entropy(out, real.tensor(Y[i]))
        expect.backward()
        if i != 2:
            close(loss, expect)
            close(logits, out)
            for p, g in zip(b.parameters(), grads):
                close(g, p.grad)
        ob.step()
        for u, v in zip(a.state_dict().values(), b.state_dict().values()):
            close(u, v)


def test_an_error_inside_ends_the_recording():
    p, m = mt.nn.Parameter(mt.ones(2)), net(mt)

    def fails(*args):
        mt.mul(p, 2)
        raise KeyError("mine")

    for fn in (fails, type("Fails", (mt.nn.Module,), {"forward": lambda self, *args: fails()})()):
        with pytest.raises(KeyError, match="mine"):
            ms.value_and_grad(fn, None, [p])()
        assert not mt.mul(p, 2)._requires_grad
    _, grads = ms.value_and_grad(lambda x: m(x).sum(), None, list(m.parameters()))(mt.tensor(X[0]))
    m(mt.tensor(X[0])).sum().backward()
    for g, q in zip(grads, m.parameters()):
        close(g, q.grad)


def test_mark_dirty_function_raises_in_value_and_grad():
    class Double(mt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    p = mt.nn.Parameter(mt.ones(2))
    with pytest.raises(NotImplementedError, match="mark_dirty"):
        ms.value_and_grad(lambda: Double.apply(p * 1).sum(), None, [p])()


# ------------------------------------------------------------------ Model and checkpoints
def test_model_train_eval_and_checkpoint(tmp_path):
    a, b = net(mt), net(real)
    batches = ms.dataset.NumpySlicesDataset({"x": np.concatenate(X), "y": np.concatenate(Y).astype(np.int32)}, shuffle=False)
    batches = batches.batch(6)
    opt = real.optim.SGD(b.parameters(), lr=0.1, momentum=0.9)
    for i in range(6):
        opt.zero_grad()
        real.nn.functional.cross_entropy(b(real.tensor(X[i])), real.tensor(Y[i])).backward()
        opt.step()
    model = ms.Model(a, mt.nn.CrossEntropyLoss(), ms.nn.Momentum(a.trainable_params(), 0.1, 0.9), metrics={"acc"})
    saver = ms.ModelCheckpoint("m", str(tmp_path), ms.CheckpointConfig(save_checkpoint_steps=6))
    model.train(1, batches, callbacks=[saver], dataset_sink_mode=False)
    for u, v in zip(a.state_dict().values(), b.state_dict().values()):
        close(u, v, 1e-3, 1e-4)
    # a new net loads the weights and BatchNorm's statistics from the file
    fresh = net(mt, 9)
    ms.load_checkpoint(str(tmp_path / "m-1_6.ckpt"), fresh)
    for (k, u), v in zip(fresh.state_dict().items(), a.state_dict().values()):
        assert mt.equal(u, v), k
    b.eval()
    hits = sum((b(real.tensor(x)).argmax(1).numpy() == y).sum() for x, y in zip(X, Y))
    acc = ms.Model(fresh, mt.nn.CrossEntropyLoss(), metrics={"acc"}).eval(batches, dataset_sink_mode=False)["acc"]
    assert acc == pytest.approx(hits / 36)


def test_int32_targets_only_from_mindspore():
    logits = mt.tensor(draw(3, 6, 4))
    y = Y[0].astype(np.int32)
    close(mt.nn.functional.cross_entropy(logits, ms.Tensor(y)),
          real.nn.functional.cross_entropy(real.tensor(draw(3, 6, 4)), real.tensor(Y[0])))
    with pytest.raises(RuntimeError, match="expected target dtype to be Long or Byte"):
        mt.nn.functional.cross_entropy(logits, mt.tensor(y))


@pytest.mark.parametrize("what", ["module", "list", "dict", "state_dict"])
def test_save_and_load_checkpoint(tmp_path, what):
    a, path = net(mt), str(tmp_path / "a.ckpt")
    state = a.state_dict()
    ms.save_checkpoint({"module": a, "list": [{"name": k, "data": v} for k, v in state.items()], "state_dict": state,
                        "dict": dict(a.named_parameters())}[what], path)
    loaded = ms.load_checkpoint(path)
    assert set(loaded) == (set(dict(a.named_parameters())) if what == "dict" else set(state))
    for k, v in loaded.items():
        assert v.asnumpy().dtype == state[k].numpy().dtype
        np.testing.assert_array_equal(v.asnumpy(), state[k].numpy())
    b = net(mt, 5)
    ms.load_param_into_net(b, ms.load_checkpoint(path))
    for k, v in loaded.items():
        assert mt.equal(b.state_dict()[k], state[k])


def test_convert_files(tmp_path):
    state = {**net(real).state_dict(), "half": real.ones(3, dtype=real.bfloat16), "flag": real.tensor([True, False]),
             "double": real.arange(4, dtype=real.float64).reshape(2, 2).t()}
    first = tmp_path / "a.pth"
    real.save(state, first)
    chain_of_files = [first, tmp_path / "b.ckpt", tmp_path / "c.safetensors", tmp_path / "d.pt", tmp_path / "e.safetensors",
                      tmp_path / "f.ckpt", tmp_path / "g.pth"]
    for a, b in zip(chain_of_files, chain_of_files[1:]):
        assert _convert_files.convert(a, b) == []
    from safetensors.torch import load_file
    for loaded in (real.load(tmp_path / "d.pt"), real.load(tmp_path / "g.pth"), load_file(tmp_path / "c.safetensors"),
                   load_file(tmp_path / "e.safetensors")):
        assert set(loaded) == set(state)
        for k, v in state.items():
            assert loaded[k].dtype == v.dtype and real.equal(loaded[k], v), k


def test_convert_rejects_unsupported_files(tmp_path):
    nested, odd = tmp_path / "nested.pth", tmp_path / "odd.pth"
    real.save({"epoch": 3, "state_dict": {"w": real.ones(2)}}, nested)
    real.save({"w": real.ones(2, dtype=real.complex128), "n": 3}, odd)
    out = tmp_path / "out.ckpt"
    with pytest.raises(_convert_files.Refused, match="--key: state_dict"):
        _convert_files.convert(nested, out)
    with pytest.raises(_convert_files.Refused, match="n is no tensor"):
        _convert_files.convert(odd, out)
    for target in (out, tmp_path / "out.safetensors"):
        with pytest.raises(_convert_files.Refused, match="w has dtype torch.complex128"):
            _convert_files.convert(odd, target, tensors_only=True)
        assert not target.exists()
    with pytest.raises(_convert_files.Refused, match=r"unknown file extension '\.h5'"):
        _convert_files.convert(nested, tmp_path / "out.h5")
    _convert_files.convert(nested, out, key="state_dict")
    assert list(ms.load_checkpoint(str(out))) == ["w"]


# ------------------------------------------------------------------ environment
def test_init_env():
    cfg = types.SimpleNamespace(seed=3, device_target="None", context_mode="graph", device_num=1)
    init_env(cfg)
    assert in_mode() == ms.GRAPH_MODE and (cfg.device_target, cfg.device_num, cfg.rank_id) == ("CPU", 1, 0)
    first = mt.rand(4)
    cfg.context_mode = "pynative"
    init_env(cfg)
    assert in_mode() == ms.PYNATIVE_MODE and mt.equal(first, mt.rand(4))
    real.manual_seed(3)
    close(first, real.rand(4), 0, 0)
    for name, value, words in (("device_target", "TPU", "'None', 'Ascend', 'GPU', 'CPU'"),
                               ("context_mode", "eager", "'graph', 'pynative'")):
        with pytest.raises(ValueError, match=words):
            init_env(types.SimpleNamespace(**{**vars(cfg), name: value}))


def test_init_env_with_an_unavailable_rank(monkeypatch):
    """device_num on a CPU: one process, with a warning. The settings reflect what the device
    supports."""
    cfg = types.SimpleNamespace(seed=3, device_target="CPU", context_mode="pynative", device_num=4, device_id=2)
    with pytest.warns(UserWarning, match="device_num=4 is ignored"):
        init_env(cfg)
    assert (cfg.device_num, cfg.rank_id, cfg.device_id, cfg.device_target) == (1, 0, 0, "CPU")


def test_read_config(tmp_path):
    pytest.importorskip("jsonargparse")
    path = tmp_path / "c.yaml"
    path.write_text("seed: 1\ndevice_target: 'None'\ncontext_mode: graph\ndevice_num: 1\nlr: 1e-2\namp: false\nname: null\n"
                    "layers: [2, 2]\noptimizer:\n  momentum: 0.9\n")
    c = read_config(path, [])
    assert (c.seed, c.device_target, c.lr, c.amp, c.name, c.layers, c.optimizer.momentum) == (1, "None", 0.01, False, None, [2, 2], 0.9)
    c = read_config(path, ["--lr", "1e-3", "--amp", "true", "--layers", "[3,4]", "--optimizer.momentum=0.5", "--name", "x", "--context_mode",
                           "pynative"])
    assert (c.lr, c.amp, c.layers, c.optimizer.momentum, c.name) == (0.001, True, [3, 4], 0.5, "x")
    init_env(c)
    assert in_mode() == ms.PYNATIVE_MODE and (c.device_target, c.rank_id) == ("CPU", 0)
    other = tmp_path / "d.yaml"
    other.write_text("lr: 0.5\n")
    assert read_config(path, ["--config_path", str(other)], seed=7).seed == 7
    for wrong in (["--unknown", "1"], ["--seed", "abc"]):
        with pytest.raises(SystemExit):
            read_config(path, wrong)
    other.write_text("- 1\n")
    with pytest.raises(ValueError, match="must contain a mapping, not a list"):
        read_config(other, [])


def in_mode():
    return ms.get_context("mode")


# ------------------------------------------------------------------ mixed precision
@pytest.mark.parametrize("level", ["O1", "O2", "O3", "auto"])
@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16])
def test_auto_mixed_precision(level, dtype):
    a, b = net(mt), net(real)
    a.eval(), b.eval()
    m = ms.amp.auto_mixed_precision(a, level, dtype)
    seen = {}
    a[4].register_forward_hook(lambda mod, args, out: seen.update(linear=out.dtype))
    a[0].register_forward_hook(lambda mod, args, out: seen.update(conv=out.dtype))
    out = m(mt.tensor(X[0]))
    low = mt.float16 if dtype == ms.float16 else mt.bfloat16
    assert seen == {"linear": low, "conv": low}
    assert isinstance(out, mt.Tensor) and out.dtype == (low if level == "auto" else mt.float32)
    expect = b(real.tensor(X[0])).detach().numpy()
    difference = np.abs(out.float().detach().numpy() - expect).max()
    assert 0 < difference < (0.02 if dtype == ms.float16 else 0.15)
    assert all(p.dtype == mt.float32 for p in a.parameters())
    # a copy computes in the same precision
    again = copy.deepcopy(a)
    close(again(mt.tensor(X[0])).float(), a(mt.tensor(X[0])).float(), 0, 0)
    assert again(mt.tensor(X[0])).dtype == a(mt.tensor(X[0])).dtype


def test_to_float_of_a_submodule_and_gradients():
    a = net(mt)
    a.to_float(ms.float16)
    a[4].to_float(ms.float32)
    out = a(mt.tensor(X[0]))
    assert out.dtype == mt.float32
    out.sum().backward()
    assert all(p.grad.dtype == mt.float32 for p in a.parameters())
    _, grads = ms.value_and_grad(lambda x: a(x).sum(), None, list(a.parameters()))(mt.tensor(X[0]))
    for g, p in zip(grads, a.parameters()):
        close(g, p.grad, 1e-2, 1e-2)


def rnn(T):
    return T.nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True), [draw(1, 3, 5, 4)]


def gru(T):
    return T.nn.GRU(4, 6), [draw(2, 5, 3, 4)]


def attention(T):
    class SelfAttention(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = T.nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            return self.a(x, x, x)
    return SelfAttention(), [draw(3, 2, 5, 8)]


def transformer(T):
    return T.nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True), [draw(4, 2, 5, 8), draw(5, 2, 3, 8)]


@pytest.mark.parametrize("make", [rnn, gru, attention, transformer], ids=lambda f: f.__name__)
@pytest.mark.parametrize("level", ["O2", "O3"])
def test_sequence_models_in_mixed_precision(make, level):
    """Results, gradients through value_and_grad and backward(), and five steps match full precision
    within float16's accuracy."""
    (a, xs), (b, _) = make(mt), make(real)
    rs = np.random.RandomState(0)
    state = {k: (rs.randn(*v.shape) * 0.3).astype(np.float32) for k, v in a.state_dict().items()}
    a.load_state_dict({k: mt.tensor(v) for k, v in state.items()}), b.load_state_dict({k: real.tensor(v) for k, v in state.items()})
    oa, ob = mt.optim.SGD(a.parameters(), lr=0.05, momentum=0.9), real.optim.SGD(b.parameters(), lr=0.05, momentum=0.9)
    m = ms.amp.auto_mixed_precision(a, level)

    def first(out):
        return out[0] if isinstance(out, tuple) else out

    def forward(*args):
        out = first(m(*args))
        return (out.float() ** 2).mean(), out

    fn = ms.value_and_grad(forward, None, oa.parameters, has_aux=True)
    inputs, reals = [mt.tensor(x) for x in xs], [real.tensor(x) for x in xs]
    losses = []
    for i in range(5):
        (loss, out), grads = fn(*inputs)
        out = cast_to_adapter_tensor(out)
        expect = first(b(*reals))
        ob.zero_grad()
        (expect ** 2).mean().backward()
        if i == 0:
            difference = np.abs(out.float().detach().numpy() - expect.detach().numpy()).max()
            assert 0 < difference < 2e-2
            forward(*inputs)[0].backward()
            for p, g in zip(a.parameters(), grads):
                assert g.asnumpy().dtype == np.float32
                close(g, p.grad, 1e-2, 1e-4)
            oa.zero_grad()
        scale = max(float(p.grad.abs().max()) for p in b.parameters())
        for g, p in zip(grads, b.parameters()):
            close(g, p.grad, 3e-2, 2e-2 * scale)
        oa(grads)
        ob.step()
        losses.append(float(loss))
        assert losses[-1] == pytest.approx((expect ** 2).mean().item(), rel=2e-2)
        if i in (0, 4):
            for u, v in zip(a.parameters(), b.parameters()):
                assert u.dtype == mt.float32
                close(u, v, 1e-2, 5e-3)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"])
def test_recurrent_layers_under_autocast(kind):
    """The dtypes match PyTorch's CPU autocast for inputs of either dtype."""
    for given in ("float32", "bfloat16"):
        seen = []
        for T in (mt, real):
            m = getattr(T.nn, kind)(4, 6)
            m.load_state_dict({k: T.tensor((np.random.RandomState(i).randn(*v.shape) * 0.4).astype(np.float32))
                               for i, (k, v) in enumerate(m.state_dict().items())})
            x = T.tensor(draw(1, 3, 4) if "Cell" in kind else draw(1, 5, 3, 4)).to(getattr(T, given))
            try:
                with T.autocast("cpu", T.bfloat16):
                    out = m(x)
            except RuntimeError as e:
                if T is real and "could not create a primitive" in str(e):
                    pytest.skip("real torch has no LSTM of bfloat16 on this processor")
                raise
            out = out[0] if isinstance(out, tuple) else out
            out.float().sum().backward()
            seen.append((str(out.dtype), out.float().detach().numpy(), m.weight_ih.grad if "Cell" in kind else m.weight_ih_l0.grad))
        assert seen[0][0] == seen[1][0], given
        np.testing.assert_allclose(seen[0][1], seen[1][1], rtol=3e-2, atol=2e-2)
        assert seen[0][2].dtype == mt.float32
        close(seen[0][2], seen[1][2], 5e-2, 5e-2)


def test_custom_lists_raise_on_modules():
    with pytest.raises(NotImplementedError, match="custom_mixed_precision"):
        ms.amp.custom_mixed_precision(net(mt), white_list=[ms.nn.Conv2d])


# ------------------------------------------------------------------ graph mode
def test_native_functions_are_compiled_as_before():
    @ms.jit
    def fn(x):
        return ms.ops.relu(x).sum() * 2

    x = ms.Tensor(draw(1, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert float(fn(x)) == pytest.approx(np.maximum(draw(1, 3), 0).sum() * 2, rel=1e-5)
    assert not fn.__wrapped__._mindtorch_jit.met


@pytest.mark.parametrize("how", ["ast", "bytecode", "trace"])
def test_every_capture_mode_runs_torch_style_code_eagerly(how):
    m, x = mt.nn.Linear(3, 2), mt.ones(4, 3)

    @ms.jit(capture_mode=how)
    def fn(x):
        return m(x).sum() * 2

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(3):
            assert float(fn(x)) == pytest.approx(float(m(x).sum() * 2), rel=1e-5)
            with mt.no_grad():
                m.weight.add_(1)
    assert [w.filename for w in found if w.category is RuntimeWarning] == [__file__]


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
@pytest.mark.parametrize("native_batch", [False, True])
def test_jitted_train_step(mode, native_batch):
    b = net(real)
    ob = real.optim.SGD(b.parameters(), lr=0.1, momentum=0.9)
    ms.set_context(mode=mode)
    a = net(mt)
    oa = mt.optim.SGD(a.parameters(), lr=0.1, momentum=0.9)
    crit = mt.nn.CrossEntropyLoss()
    fn = ms.value_and_grad(lambda x, y: crit(a(x), y), None, oa.parameters)

    @ms.jit
    def step(x, y):
        loss, grads = fn(x, y)
        oa(grads)
        return loss

    make = ms.Tensor if native_batch else mt.tensor
    with pytest.warns(RuntimeWarning, match="step .* runs eagerly instead of as a compiled graph"):
        losses = [float(step(make(X[0]), make(Y[0])))]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        losses += [float(step(make(X[i]), make(Y[i]))) for i in range(1, 5)]
    assert in_mode() == mode
    for i in range(5):
        ob.zero_grad()
        loss = real.nn.functional.cross_entropy(b(real.tensor(X[i])), real.tensor(Y[i]))
        loss.backward()
        ob.step()
        assert losses[i] == pytest.approx(loss.item(), rel=1e-4)
    for u, v in zip(a.state_dict().values(), b.state_dict().values()):
        close(u, v, 1e-3, 1e-4)


def test_gradient_through_an_uncompilable_jitted_function():
    a, b = net(mt), net(real)

    @ms.jit
    def inner(x):
        return a(x)

    x = ms.Tensor(X[0])
    with pytest.warns(RuntimeWarning, match="runs eagerly"):
        _, grads = ms.value_and_grad(lambda x: ms.ops.sum(inner(x * 2) ** 2), None, list(a.parameters()))(x)
    (b(real.tensor(X[0]) * 2) ** 2).sum().backward()
    for g, p in zip(grads, b.parameters()):
        close(g, p.grad, 1e-3, 1e-3)


def test_cells_around_modules_in_graph_mode():
    class Outer(ms.nn.Cell):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def construct(self, x):
            return self.inner(x) * 2

    class Native(ms.nn.Cell):
        def construct(self, x):
            return ms.ops.relu(x) * 2

    a = net(mt).eval()
    expect = net(real).eval()(real.tensor(X[0])) * 2
    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.warns(RuntimeWarning, match="Outer .* runs eagerly"):
        close(Outer(a)(ms.Tensor(X[0])), expect)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        cell = Native()
        close(cell(ms.Tensor(X[1])), real.relu(real.tensor(X[1])) * 2)
    assert not cell._mindtorch_eager


def test_learning_rate_in_graph_mode():
    p, q = mt.nn.Parameter(mt.tensor([2.0, 3.0])), real.nn.Parameter(real.tensor([2.0, 3.0]))
    assert type(mt.optim.SGD([p], lr=0.5).param_groups[0]["lr"]) is float
    ms.set_context(mode=ms.GRAPH_MODE)
    for name in ("SGD", "Adam", "AdamW"):
        a, b = getattr(mt.optim, name)([p], lr=0.5), getattr(real.optim, name)([q], lr=0.5)
        lr = a.param_groups[0]["lr"]
        assert isinstance(lr, ms.Parameter) and f"{lr}" == str(lr) == "0.5" and f"{lr:.2f}" == "0.50"
        for value in (0.25, 0.125):
            ms.ops.assign(lr, value)
            b.param_groups[0]["lr"] = value
            a.step((mt.tensor([1.0, -2.0]),))
            q.grad = real.tensor([1.0, -2.0])
            b.step()
            close(p, q)
        assert a.state_dict()["param_groups"][0]["lr"] == 0.125
        a.load_state_dict(a.state_dict())
        assert isinstance(a.param_groups[0]["lr"], ms.Parameter)
        scheduler = mt.optim.lr_scheduler.StepLR(a, 1, 0.5)
        a.step((mt.tensor([0.0, 0.0]),))
        scheduler.step()
        assert isinstance(a.param_groups[0]["lr"], ms.Parameter) and float(a.param_groups[0]["lr"]) == 0.0625
        b.param_groups[0]["lr"] = 0.125
        q.grad = real.zeros(2)
        b.step()
        close(p, q)


# ------------------------------------------------------------------ export
def test_export_of_a_native_cell_is_unchanged(tmp_path):
    x = ms.Tensor(draw(1, 3, 4))
    dense = ms.nn.Dense(4, 2)
    ms.export(dense, x, file_name=str(tmp_path / "b"), file_format="MINDIR")
    again = ms.nn.GraphCell(ms.load(str(tmp_path / "b.mindir")))
    np.testing.assert_allclose(again(x).asnumpy(), dense(x).asnumpy(), rtol=1e-5, atol=1e-6)
