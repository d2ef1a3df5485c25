"""The C kernels of torch.compile against eager code: values, gradients, odd shapes, special values;
and torch.compile without a compiler."""
import os
import pathlib
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as torch
from mindtorch.backend.c_kernels import conv_norm_lstm, build
from mindtorch.backend.cpu import threads

pytestmark = pytest.mark.usefixtures("forgotten_variants")
D = torch._dynamo
nn, F = torch.nn, torch.nn.functional

needs_compiler = pytest.mark.skipif(conv_norm_lstm.lib() is None, reason="no C compiler on this machine")


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Uses the C kernels everywhere, even where they are slower on this machine."""
    monkeypatch.setattr(conv_norm_lstm, "conv_choice", lambda *a: (True, True, True))
    monkeypatch.setattr(conv_norm_lstm, "WORTH_CONV", 0)
    monkeypatch.setattr(conv_norm_lstm, "WORTH_NORM", 0)


def kernels():
    return D.utils.counters["inductor"]["c_kernels"]


def both(f, *inputs, steps=2, rtol=1e-4, atol=1e-4):
    """Compares results and gradients of f, eager and compiled, over several calls."""
    g = torch.compile(f, fullgraph=True)
    leaves = [t for t in inputs if t.requires_grad]
    for _ in range(steps):
        out = []
        for run in (f, g):
            for t in leaves:
                t.grad = None
            y = run(*inputs)
            ys = y if isinstance(y, tuple) else (y,)
            torch.manual_seed(0)
            loss = sum((t * torch.randn(t.shape)).sum() for t in ys if t.requires_grad)
            if leaves:
                loss.backward()
            out.append([t.detach().numpy().copy() for t in ys] + [t.grad.numpy().copy() for t in leaves])
        for a, b in zip(*out):
            assert a.shape == b.shape and a.dtype == b.dtype
            scale = max(1.0, float(np.abs(a[np.isfinite(a)]).max(initial=0)))
            np.testing.assert_allclose(b / scale, a / scale, rtol=rtol, atol=atol)
    return g


def t(*shape, seed=0, grad=True):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape).astype(np.float32)).requires_grad_(grad)


@needs_compiler
@settings(max_examples=60)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 19), st.integers(3, 13), st.integers(3, 13), st.integers(1, 5), st.integers(1, 5),
       st.integers(1, 3), st.integers(0, 3), st.integers(1, 2), st.booleans(), st.booleans())
def test_convolution(n, c, o, h, w, kh, kw, stride, padding, dilation, bias, transposed):
    x, b = t(n, c, h, w), t(o, seed=2) if bias else None
    if transposed:
        wt = t(c, o, kh, kw, seed=1)
        size = [(m - 1) * stride - 2 * padding + dilation * (k - 1) + 1 for m, k in ((h, kh), (w, kw))]
        if min(size) < 1:
            return
        both(lambda x, wt, *b: F.conv_transpose2d(x, wt, *b, stride=stride, padding=padding, dilation=dilation), x, wt, *([b] if bias else []))
        return
    if h + 2 * padding < dilation * (kh - 1) + 1 or w + 2 * padding < dilation * (kw - 1) + 1:
        return
    both(lambda x, wt, *b: F.conv2d(x, wt, *b, stride=stride, padding=padding, dilation=dilation), x, t(o, c, kh, kw, seed=1),
         *([b] if bias else []))


@needs_compiler
@pytest.mark.parametrize("args", [dict(padding="same"), dict(padding=(2, 0)), dict(stride=4, padding=1), dict(stride=3), {}])
@pytest.mark.parametrize("shape", [(2, 3, 17, 14, 40), (5, 17, 9, 21, 33), (40, 2, 8, 8, 16)])
def test_convolution_shapes(shape, args):
    n, c, h, w, o = shape
    before = kernels()
    both(lambda x, wt, b: F.conv2d(x, wt, b, **args), t(n, c, h, w), t(o, c, 3, 3, seed=1), t(o, seed=2))
    assert kernels() > before or args.get("stride", 1) > 2
    both(lambda x, wt: F.conv2d(x, wt, **args), t(n, c, h, w, grad=False), t(o, c, 3, 3, seed=1))
    both(lambda x, wt: F.conv2d(x, wt, **args), t(n, c, h, w), t(o, c, 3, 3, seed=1, grad=False))
    both(lambda x, wt: F.conv2d(x.transpose(2, 3), wt.flip(2), **args), t(n, c, w, h), t(o, c, 3, 3, seed=1))


@needs_compiler
@pytest.mark.parametrize("act", ["none", "relu", "relu_", "leaky", "leaky_", "add", "add_relu", "add_relu_", "iadd_relu_", "add_twice", "kept"])
@pytest.mark.parametrize("shape", [(4, 3, 5, 6), (2, 17, 3, 3), (33, 4)])
def test_batch_norm_with_following_ops(act, shape):
    bn = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(shape[1])
    ref = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(shape[1])
    for m in (bn, ref):
        with torch.no_grad():
            m.weight.copy_(t(shape[1], seed=3, grad=False)), m.bias.copy_(t(shape[1], seed=4, grad=False))

    def tail(y, r):
        if act == "none":
            return y
        if act == "relu":
            return F.relu(y)
        if act == "relu_":
            return F.relu(y, inplace=True)
        if act.startswith("leaky"):
            return F.leaky_relu(y, 0.2, inplace=act == "leaky_")
        if act == "add":
            return y + r
        if act == "add_relu":
            return F.relu(r + y)
        if act == "add_relu_":
            return F.relu(y + r, inplace=True)
        if act == "iadd_relu_":
            y += r
            return F.relu(y, inplace=True)
        if act == "add_twice":
            return F.relu(y + y)
        z = y + r  # z is returned, so fusion must not drop it
        return F.relu(z), z, y
    f = torch.compile(lambda m, x, r: tail(m(x * 1), r), fullgraph=True)
    grads = []
    for i in range(3):
        for m, run in ((ref, lambda m, x, r: tail(m(x * 1), r)), (bn, f)):
            x, r = t(*shape, seed=10 + i), t(*shape, seed=20 + i)
            m.zero_grad()
            y = run(m, x, r)
            ys = y if isinstance(y, tuple) else (y,)
            sum((v * t(*shape, seed=30 + k, grad=False)).sum() for k, v in enumerate(ys)).backward()
            grads.append([v.detach().numpy() for v in ys] + [v.numpy() for v in (x.grad, m.weight.grad, m.bias.grad, m.running_mean,
                                                                                 m.running_var)]
                         + ([r.grad.numpy()] if r.grad is not None else []))
        a, b = grads[-2:]
        assert len(a) == len(b)
        for u, v in zip(a, b):
            np.testing.assert_allclose(v, u, rtol=1e-4, atol=1e-4)
    assert int(bn.num_batches_tracked) == 3
    assert kernels() >= 1


@needs_compiler
def test_batch_norm_without_weights_or_statistics():
    x = t(6, 3, 4, 4)
    both(lambda x: F.relu(F.batch_norm(x, None, None, training=True)), x)
    both(lambda x, w: F.batch_norm(x, None, None, w, training=True), x, t(3, seed=1))
    m = nn.BatchNorm2d(3, affine=False, momentum=0.3)
    both(lambda x: m(x), x)


@needs_compiler
@pytest.mark.parametrize("args", [(2,), (3, 2, 1), ((2, 3), (1, 2)), (3, 1, 1), ((3, 2), 3, (1, 0))])
@pytest.mark.parametrize("relu", ["no", "before", "inplace", "kept"])
def test_max_pooling(args, relu):
    def f(x):
        x = x * 1
        if relu == "no":
            return F.max_pool2d(x, *args)
        y = F.relu(x, inplace=relu == "inplace")
        return (F.max_pool2d(y, *args), y) if relu == "kept" else F.max_pool2d(y, *args)
    both(f, t(3, 5, 11, 9))
    ties = torch.from_numpy(np.random.RandomState(0).randint(-2, 3, (2, 2, 8, 8)).astype(np.float32)).requires_grad_()
    both(f, ties)
    odd = t(2, 2, 8, 8, grad=False)
    odd[0, 0, 1, 1], odd[0, 1], odd[1, 0, 3, 3] = float("nan"), float("-inf"), float("inf")
    g = torch.compile(f)
    for _ in range(2):
        a, b = f(odd), g(odd)
        for u, v in zip(*((a, b) if isinstance(a, tuple) else ((a,), (b,)))):
            np.testing.assert_array_equal(u.numpy(), v.numpy())


@needs_compiler
@pytest.mark.parametrize("hidden,batch,bidirectional,layers,bias", [(16, 5, False, 2, True), (32, 9, True, 1, True), (48, 1, True, 2, False),
                                                                    (16, 17, False, 1, True), (5, 3, True, 2, True)])
def test_lstm(hidden, batch, bidirectional, layers, bias):
    torch.manual_seed(0)
    m = nn.LSTM(7, hidden, layers, bias=bias, bidirectional=bidirectional, batch_first=True)
    k = layers * (2 if bidirectional else 1)
    x, h, c = t(batch, 6, 7), t(k, batch, hidden, seed=1), t(k, batch, hidden, seed=2)

    def f(x, h, c, *w):
        y, (h, c) = m(x, (h, c))
        return y, h, c
    both(f, x, h, c, *m.parameters())
    both(lambda x, *w: m(x)[0], x, *m.parameters())
    both(lambda x: m(x)[1][0], t(batch, 6, 7, grad=False), *())
    big = (t(batch, 6, 7, grad=False) * 200)
    both(lambda x: m(x)[0], big)
    if hidden % 16 == 0:
        assert kernels() >= 1


@needs_compiler
@settings(max_examples=25)
@given(st.integers(1, 70), st.integers(1, 90), st.integers(1, 120), st.booleans())
def test_products(m, k, n, relu):
    a, b, g, bias = (t(*s, seed=i, grad=False).numpy() for i, s in enumerate([(m, k), (n, k), (m, n), (n,)]))
    want = a.astype(np.float64) @ b.T + bias
    np.testing.assert_allclose(conv_norm_lstm.gemm_nt(a, b, bias, relu), np.maximum(want, 0) if relu else want, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(conv_norm_lstm.gemm_nn(g, b), g.astype(np.float64) @ b, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(conv_norm_lstm.gemm_tn(g, a), g.T.astype(np.float64) @ a, rtol=1e-4, atol=1e-3)


@needs_compiler
@pytest.mark.parametrize("faster", [True, False])
@pytest.mark.parametrize("act", ["none", "relu", "relu_", "kept", "gelu"])
def test_linear(act, faster, monkeypatch):
    monkeypatch.setattr(conv_norm_lstm, "product_choice", lambda *a, **k: faster)

    def f(x, w, b):
        y = F.linear(x, w, b)
        return {"none": lambda: y, "relu": lambda: F.relu(y), "relu_": lambda: F.relu(y, inplace=True), "gelu": lambda: F.gelu(y),
                "kept": lambda: (F.relu(y), y)}[act]()
    both(f, t(9, 3, 20), t(33, 20, seed=1), t(33, seed=2))
    both(lambda x, w: f(x.transpose(0, 1), w, None), t(9, 3, 20), t(33, 20, seed=1))
    both(lambda x, w, b: f(x, w.t(), b), t(9, 20, grad=False), t(20, 33, seed=1), t(33, seed=2))
    x = t(9, 20)
    g = torch.compile(lambda x, w: F.linear(x, w).relu(), fullgraph=True)
    w = t(33, 20, seed=1)
    for _ in range(2):
        grads = []
        for run in (lambda x, w: F.linear(x, w).relu(), g):
            d, = torch.autograd.grad(run(x, w).pow(2).sum(), x, create_graph=True)
            grads.append(torch.autograd.grad(d.sum(), w)[0].numpy())
        np.testing.assert_allclose(grads[1], grads[0], rtol=1e-3, atol=1e-3)


@needs_compiler
def test_kernel_choices_are_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("MINDTORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "build", lambda source: tmp_path / "kernels-x.so")
    runs = []
    first, again = build.Choices(), build.Choices()
    assert first.ask("k", lambda: runs.append(1), lambda: [None] * 200000) is True
    n = len(runs)
    assert n and first.ask("k", runs.clear, runs.clear) is True and again.ask("k", runs.clear, runs.clear) is True and len(runs) == n


def test_kernel_with_wrong_results_is_rejected(tmp_path, monkeypatch, caplog):
    """Checks that C code whose values differ from eager code is rejected however fast it is:
    compilers have bugs too."""
    monkeypatch.setenv("MINDTORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "build", lambda source: tmp_path / "kernels-x.so")
    right = np.arange(200000, dtype=np.float32)
    choices, slow = build.Choices(), lambda: right * 3 / 3
    for name, made in (("wrong", lambda: right[::-1]), ("other shape", lambda: right[:5]), ("nan", lambda: right * np.nan)):
        assert choices.ask(name, made, slow) is False and f"{name}: the C kernel" in caplog.text
    assert choices.ask("right", lambda: right, slow) is True


@needs_compiler
@pytest.mark.parametrize("channels, outputs", [(40, 32), (3, 16), (40, 7), (33, 48)])
def test_conv_weight_gradient_for_all_kernel_sizes(channels, outputs):
    """Guards against a gcc 12 bug.

    With 16 or more outputs it called the function for 5 taps with 4 taps, which wrote far out of
    bounds.
    """
    rs = np.random.RandomState(0)
    for kernel in [(i, j) for i in range(1, 6) for j in range(1, 6)]:
        for stride in (1, 2):
            size = (9, 10)
            out = tuple((n - k) // stride + 1 for n, k in zip(size, kernel))
            x, g = rs.randn(2, channels, *size).astype(np.float32), rs.randn(2, outputs, *out).astype(np.float32)
            got = conv_norm_lstm.conv_weight(g, x, kernel, (stride, stride), ((0, 0), (0, 0)), (1, 1))[0]
            windows = np.lib.stride_tricks.sliding_window_view(x, kernel, (2, 3))[:, :, ::stride, ::stride]
            np.testing.assert_allclose(got, np.einsum("nohw,nchwij->ocij", g.astype(float), windows[:, :, :out[0], :out[1]]), rtol=1e-3, atol=1e-3)


@needs_compiler
def test_double_backward_through_kernels():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.LeakyReLU(0.1), nn.ConvTranspose2d(3, 2, 2, 2),
                        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Tanh())
    m = torch.compile(net, fullgraph=True)
    for _ in range(2):
        out = []
        for f in (net, m):
            x = t(3, 2, 6, 6)
            g, = torch.autograd.grad(f(x).sum(), x, create_graph=True)
            net.zero_grad()
            (g ** 2).sum().backward()
            out.append([g.detach().numpy(), x.grad.numpy()] + [p.grad.numpy() for p in net.parameters() if p.grad is not None])
        for a, b in zip(*out):
            np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4)
    assert kernels() >= 3


@needs_compiler
def test_threads_and_forks_agree():
    x, w = t(9, 16, 20, 20, grad=False), t(24, 16, 3, 3, seed=1)
    n = threads.count()
    results = []
    try:
        for k in (1, 2, 3, 5):
            threads.set_count(k)
            f = torch.compile(lambda x, w: F.conv2d(x, w, padding=1))
            w.grad = None
            f(x, w).sum().backward()
            w.grad = None
            y = f(x, w)
            y.sum().backward()
            results.append((y.detach().numpy(), w.grad.numpy()))
    finally:
        threads.set_count(n)
    for y, g in results[1:]:
        np.testing.assert_array_equal(y, results[0][0])
        np.testing.assert_allclose(g, results[0][1], rtol=1e-4, atol=1e-3)


@needs_compiler
def test_unsupported_ops_use_no_c_kernels():
    before = kernels()
    x, w = t(2, 4, 8, 8), t(4, 2, 3, 3, seed=1)
    both(lambda x, w: F.conv2d(x, w, groups=2), x, w)
    both(lambda x, w: F.conv2d(x.double(), w.double()), t(2, 4, 8, 8), t(4, 4, 3, 3, seed=1))
    both(lambda x: F.max_pool2d(x, 3, ceil_mode=True), x)
    both(lambda x: F.max_pool2d(x, 2, return_indices=True)[0], x)
    m = nn.BatchNorm2d(4).eval()
    both(lambda x: F.relu(m(x)), x)
    torch.compile(lambda x, w: F.conv2d(x, w), backend="eager")(x, t(4, 4, 3, 3))
    assert kernels() == before
    with torch.autocast("cpu", torch.bfloat16):
        f = torch.compile(lambda x, w: F.conv2d(x, w))
        assert f(x, t(4, 4, 3, 3)).dtype is torch.bfloat16 is f(x, t(4, 4, 3, 3)).dtype


CASES = [({"CC": "/nowhere/cc"}, "no C compiler was found"), ({"MINDTORCH_NATIVE": "0"}, "MINDTORCH_NATIVE=0"), ({"CC": "false"}, "failed"),
         ({"MINDTORCH_CACHE": "/proc/none"}, "cannot be used")]


@pytest.mark.parametrize("env,text", [CASES[0], *(pytest.param(*c, marks=pytest.mark.slow) for c in CASES[1:])])
def test_without_a_compiler(env, text, process):
    out = process.ok("""
        import logging, sys
        logging.basicConfig(stream=sys.stdout, level=logging.INFO)
        import mindtorch.torch as torch
        nn = torch.nn
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2))
        m, x = torch.compile(net), torch.randn(2, 1, 8, 8)
        for _ in range(3):
            m(x).sum().backward()
        print("replayed", m._compiled.replayed_calls, torch._dynamo.utils.counters["inductor"]["c_kernels"])
    """, env=env)
    assert out.count("C kernels") == 1 and text in out and "replayed 2 0" in out, out


@needs_compiler
@pytest.mark.slow
def test_library_is_built_once_and_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("MINDTORCH_CACHE", str(tmp_path / "a"))
    source = build.CONV_NORM_LSTM
    first = build.build(source)
    stamp = os.stat(first).st_mtime_ns
    assert build.build(source) == first and os.stat(first).st_mtime_ns == stamp
    assert [p.name for p in (tmp_path / "a").iterdir()] == [first.name]
    other = build.build(source, ["-O1"])
    assert other != first
    assert first.read_bytes()[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe")


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("flags", [["-mno-avx512f"], ["-mno-avx512f", "-mno-avx2", "-mno-avx", "-mno-fma"]])
def test_narrower_vectors(flags, process, monkeypatch):
    """Runs the same source as built for processors with shorter vectors."""
    probe = build.compiler()
    if os.uname().machine != "x86_64" or probe is None:
        pytest.skip("flags of x86-64")
    told = [subprocess.run([*probe, *build.FLAGS[:2], *more, "-dM", "-E", "-x", "c", os.devnull], capture_output=True, check=True).stdout for more in ([], flags)]
    if told[0] == told[1]:
        pytest.skip("the flags disable nothing on this processor: the other tests cover it")
    code = f"""
        import sys
        from mindtorch.backend.c_kernels import build
        build.FLAGS = (*build.FLAGS, *{flags!r})
        import pytest
        sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", {str(pathlib.Path(__file__))!r}, "-k",
                              "convolution or pooling or norm or lstm or double"]))
    """
    done = process.code(code)
    assert done.returncode == 0, done.stdout[-3000:]
