"""Kernels for large arrays against real PyTorch: chunked NumPy, oneDNN, with one thread and with
two.

The thresholds are so low that small arrays use the code paths of large ones.
"""
import threading

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mindtorch.torch as mt
from mindtorch.backend.cpu import large, onednn, onednn_eltwise, threads

WAYS = ["numpy", "onednn", "pool"]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3.0, -3.0, 6.0, 1e-30, -1e4, 1e4, 0.5, -0.5, 1.0, -1.0]
quick = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    if request.param != "numpy" and not onednn.has_avx512():
        pytest.skip("oneDNN is not used for passes without AVX-512")
    monkeypatch.setattr(large, "LEAST", 64)
    monkeypatch.setattr(large, "PIECE", 64)
    monkeypatch.setattr(threads, "LARGE", 512)
    monkeypatch.setattr(onednn_eltwise, "_NARROW", 1 << 60 if request.param == "numpy" else 64)
    monkeypatch.setattr(onednn_eltwise, "_SHARED", 64 if request.param == "pool" else 1 << 60)
    monkeypatch.setattr(onednn_eltwise, "_WIDE", 256)
    return request.param


def arrays(seed, *shape, special=False):
    x = (np.random.RandomState(seed).randn(*shape) * 2).astype(np.float32)
    if special and x.size > 2 * len(SPECIAL):
        x.reshape(-1)[: len(SPECIAL)] = SPECIAL
        x.reshape(-1)[-len(SPECIAL):] = SPECIAL
    return x


def run(lib, fn, inputs, grad):
    ts = [lib.from_numpy(a.copy()).requires_grad_(a.dtype.kind == "f") for a in inputs]
    y = fn(lib, *ts)
    if grad is not None:
        y.backward(lib.from_numpy(grad[: y.numel()].reshape(tuple(y.shape)).copy()))
    return [y.detach().numpy()] + ([None if t.grad is None else t.grad.numpy() for t in ts] if grad is not None else [])


def same(fn, *inputs, rtol=2e-5, atol=2e-6, grad=True, exact=False):
    """Checks values and gradients against real PyTorch, and that one and two threads give bitwise
    equal results."""
    g = np.random.RandomState(5).randn(4 * sum(a.size for a in inputs) + 1).astype(np.float32) if grad else None
    want = run(torch, fn, inputs, g)
    before = threads._pool.count
    got = []
    try:
        for n in (1, 2):
            threads._pool.count = n
            got.append(run(mt, fn, inputs, g))
    finally:
        threads._pool.count = before
    for one, two, w in zip(*got, want, strict=True):
        if w is None:
            assert one is None
            continue
        assert one.dtype == w.dtype and one.shape == w.shape
        np.testing.assert_array_equal(one, two)
        if exact:
            np.testing.assert_array_equal(one, w)
        else:
            np.testing.assert_allclose(one, w, rtol=rtol, atol=atol)


F = "nn.functional"
ACTIVATIONS = {
    "relu": lambda t, x: t.relu(x), "leaky_relu": lambda t, x: t.nn.functional.leaky_relu(x, 0.1),
    "leaky_relu steep": lambda t, x: t.nn.functional.leaky_relu(x, 1.5), "relu6": lambda t, x: t.nn.functional.relu6(x),
    "hardtanh": lambda t, x: t.nn.functional.hardtanh(x, -0.5, 2.0), "clamp": lambda t, x: x.clamp(-0.7, 0.9),
    "clamp_min": lambda t, x: x.clamp(min=0.1), "clamp_max": lambda t, x: x.clamp(max=0.1),
    "hardsigmoid": lambda t, x: t.nn.functional.hardsigmoid(x), "hardswish": lambda t, x: t.nn.functional.hardswish(x),
    "elu": lambda t, x: t.nn.functional.elu(x), "selu": lambda t, x: t.nn.functional.selu(x), "silu": lambda t, x: t.nn.functional.silu(x),
    "mish": lambda t, x: t.nn.functional.mish(x), "softplus": lambda t, x: t.nn.functional.softplus(x),
    "logsigmoid": lambda t, x: t.nn.functional.logsigmoid(x), "sigmoid": lambda t, x: t.sigmoid(x),
    "gelu": lambda t, x: t.nn.functional.gelu(x), "gelu tanh": lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
    "softshrink": lambda t, x: t.nn.functional.softshrink(x), "hardshrink": lambda t, x: t.nn.functional.hardshrink(x),
    "threshold": lambda t, x: t.nn.functional.threshold(x, 0.1, 0.2), "abs": lambda t, x: x.abs(), "sign": lambda t, x: t.sign(x * 1),
    "erf": lambda t, x: t.erf(x), "tanh": lambda t, x: t.tanh(x),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@quick
@given(n=st.integers(1, 900), seed=st.integers(0, 99))
def test_activations(way, name, n, seed):
    same(ACTIVATIONS[name], arrays(seed, n))


#: Ops whose kernels without C differ from PyTorch at infinity or nan.
ODD = {"mish", "softplus", "logsigmoid", "gelu", "gelu tanh", "erf", "elu", "selu", "hardswish", "hardsigmoid", "hardtanh", "relu6", "threshold",
       "silu", "sigmoid"}


@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - ODD))
def test_activations_of_special_values(way, name):
    same(ACTIVATIONS[name], arrays(3, 700, special=True), grad=name not in ("hardshrink", "softshrink"))


@pytest.mark.parametrize("shared", [64, 1 << 60])
@pytest.mark.parametrize("name", ["gelu", "gelu tanh", "silu", "sigmoid", "hardswish", "hardsigmoid"])
def test_onednn_activations_of_special_values(monkeypatch, name, shared):
    if not onednn.has_avx512():
        pytest.skip("oneDNN is not used for passes without AVX-512")
    monkeypatch.setattr(onednn_eltwise, "_NARROW", 64)
    monkeypatch.setattr(onednn_eltwise, "_SHARED", shared)
    same(ACTIVATIONS[name], arrays(3, 700, special=True), grad=name not in ("hardsigmoid", "hardswish"))


def test_concurrent_eltwise_calls_are_bitwise_equal(monkeypatch):
    """Checks concurrent calls.

    A oneDNN memory object serves one call at a time; the other calls use another path with bitwise
    equal results.
    """
    if not onednn.has_avx512():
        pytest.skip("oneDNN is not used for passes without AVX-512")
    monkeypatch.setattr(onednn_eltwise, "_SHARED", 64)
    monkeypatch.setattr(threads._pool, "count", 2)
    xs = [arrays(i, 3000 + i) for i in range(4)]
    want = [onednn_eltwise.eltwise("gelu_erf", x) for x in xs]
    wrong = []

    def work(x, r):
        for _ in range(200):
            if (onednn_eltwise.eltwise("gelu_erf", x) != r).any():
                wrong.append(len(x))
    ts = [threading.Thread(target=work, args=pair) for pair in zip(xs, want)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    assert not wrong


def test_exact_gelu_is_bitwise_equal_to_torch():
    if not onednn.has_avx512():
        pytest.skip("oneDNN is not used for passes without AVX-512")
    same(ACTIVATIONS["gelu"], arrays(0, 20000), exact=True)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_glu(way, monkeypatch, dim):
    monkeypatch.setattr("mindtorch.backend.cpu.activation.LEAST", 64)
    same(lambda t, x: t.nn.functional.glu(x, dim), arrays(1, 12, 20, 6))


def test_strided_and_other_dtypes(way):
    x = arrays(1, 40, 60)
    for fn in (ACTIVATIONS["silu"], ACTIVATIONS["gelu"], ACTIVATIONS["clamp"], ACTIVATIONS["sigmoid"]):
        same(lambda t, x, fn=fn: fn(t, x.t()[::2]), x)
        same(fn, x.astype(np.float64))
    for dtype in ("float16", "bfloat16"):
        a, b = (lib.nn.functional.gelu(lib.from_numpy(x).to(getattr(lib, dtype))).float().numpy() for lib in (torch, mt))
        np.testing.assert_allclose(b, a, rtol=1e-2, atol=1e-3)
    i = np.random.RandomState(0).randint(-9, 9, (70, 200))
    same(lambda t, x: x.clamp(-3, 4), i, grad=False, exact=True)


# ------------------------------------------------------------------ rows
ROWS = {
    "softmax": lambda t, x: x.softmax(-1), "log_softmax": lambda t, x: x.log_softmax(-1),
    "cross_entropy": lambda t, x: t.nn.functional.cross_entropy(x, t.arange(x.shape[0]) % x.shape[1]),
    "cross_entropy sum": lambda t, x: t.nn.functional.cross_entropy(x, t.arange(x.shape[0]) % x.shape[1], reduction="sum"),
    "topk": lambda t, x: x.topk(3)[0], "topk smallest": lambda t, x: x.topk(2, largest=False)[0],
    "normalize": lambda t, x: t.nn.functional.normalize(x),
}


@pytest.mark.parametrize("name", ROWS)
@quick
@given(rows=st.integers(1, 40), width=st.sampled_from([3, 7, 16, 17, 33, 64, 130]), seed=st.integers(0, 99))
def test_rows(way, name, rows, width, seed):
    same(ROWS[name], arrays(seed, rows, width), atol=5e-6)


def test_softmax_of_fully_masked_and_nan_rows(way):
    x = arrays(0, 30, 32)
    x[3] = -np.inf
    x[4, 3] = np.nan
    x[5, 5:] = -np.inf
    x[6, 2] = np.inf
    x[7] = 1e30
    x[8] *= 1e4
    for fn in (ROWS["softmax"], ROWS["log_softmax"]):
        same(fn, x, grad=False)


NORMS = {
    "layer": lambda t, x, w, b: t.nn.functional.layer_norm(x, (x.shape[-1],), w, b),
    "layer without": lambda t, x, w, b: t.nn.functional.layer_norm(x, (x.shape[-1],)) + w + b,
    "layer weight": lambda t, x, w, b: t.nn.functional.layer_norm(x, (x.shape[-1],), w) + b,
    "rms": lambda t, x, w, b: t.nn.functional.rms_norm(x, (x.shape[-1],), w) + b,
    "batch of rows": lambda t, x, w, b: t.nn.functional.batch_norm(x, None, None, w, b, True),
}


@pytest.mark.parametrize("name", NORMS)
@quick
@given(rows=st.integers(2, 45), width=st.sampled_from([2, 5, 16, 40, 130]), seed=st.integers(0, 99))
def test_norms_of_rows(way, name, rows, width, seed):
    x = arrays(seed, rows, width) + np.float32(0.5)
    same(NORMS[name], x, arrays(1, width), arrays(2, width), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("name", ["batch", "batch without", "eval", "group", "group without", "instance"])
@quick
@given(n=st.integers(1, 6), c=st.sampled_from([2, 4, 6, 16]), hw=st.sampled_from([(1, 2), (3, 3), (8, 8), (9, 15), (1, 1)]), seed=st.integers(0, 99))
def test_norms_of_images(way, name, n, c, hw, seed):
    if n * hw[0] * hw[1] < 9:
        n += 8  # the variance of few values may be tiny
    f = {
        "batch": lambda t, x, w, b: t.nn.functional.batch_norm(x, t.zeros(c), t.ones(c), w, b, True),
        "batch without": lambda t, x, w, b: t.nn.functional.batch_norm(x, None, None, None, None, True) * w.sum() + b.sum(),
        "eval": lambda t, x, w, b: t.nn.functional.batch_norm(x, t.arange(c) * 0.1, t.ones(c) * 2, w, b, False),
        "group": lambda t, x, w, b: t.nn.functional.group_norm(x, 2, w, b),
        "group without": lambda t, x, w, b: t.nn.functional.group_norm(x, 2) * w.sum() + b.sum(),
        "instance": lambda t, x, w, b: t.nn.functional.instance_norm(x, weight=w, bias=b),
    }[name]
    x = arrays(seed, n, c, *hw) + np.float32(0.3)
    if name == "instance" and hw[1] < 3:
        x = arrays(seed, n, c, 4, 4)
    same(f, x, arrays(1, c), arrays(2, c), rtol=1e-3, atol=1e-3)


def test_batch_norm_updates_running_statistics(way):
    x = arrays(0, 6, 4, 5, 5)
    got = []
    for t in (torch, mt):
        m, v = t.zeros(4), t.ones(4)
        t.nn.functional.batch_norm(t.from_numpy(x), m, v, None, None, True)
        got.append((m.numpy(), v.numpy()))
    np.testing.assert_allclose(got[1], got[0], rtol=1e-5)


# ------------------------------------------------------------------ losses
LOSSES = {
    "mse": lambda t, x, y, **k: t.nn.functional.mse_loss(x, y, **k), "l1": lambda t, x, y, **k: t.nn.functional.l1_loss(x, y, **k),
    "smooth_l1": lambda t, x, y, **k: t.nn.functional.smooth_l1_loss(x, y, beta=0.7, **k),
    "huber": lambda t, x, y, **k: t.nn.functional.huber_loss(x, y, delta=0.7, **k),
    "bce": lambda t, x, y, **k: t.nn.functional.binary_cross_entropy(t.sigmoid(x), t.sigmoid(y), **k),
    "bce_logits": lambda t, x, y, **k: t.nn.functional.binary_cross_entropy_with_logits(x, t.sigmoid(y), **k),
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
@quick
@given(n=st.integers(1, 700), seed=st.integers(0, 99))
def test_losses(way, name, reduction, n, seed):
    same(lambda t, x, y: LOSSES[name](t, x, y, reduction=reduction), arrays(seed, n), arrays(seed + 1, n), rtol=1e-4, atol=1e-5)


def test_l1_gradient_at_nan_is_zero(way):
    same(lambda t, x, y: t.nn.functional.l1_loss(x, y, reduction="sum"), arrays(0, 300, special=True), arrays(1, 300), grad=True)


# ------------------------------------------------------------------ cumulative sums and products
@quick
@given(lines=st.integers(1, 9), n=st.sampled_from([32, 33, 47, 64, 200, 1030]), seed=st.integers(0, 99))
def test_cumsum_and_cumprod(monkeypatch, lines, n, seed):
    monkeypatch.setattr(large, "PIECE", 256)
    x = arrays(seed, max(lines, 4096 // n + 1), n)
    same(lambda t, x: x.cumsum(1), x, exact=True)
    same(lambda t, x: x.cumsum(-1), x.reshape(1, *x.shape), grad=False, exact=True)
    same(lambda t, x: x.cumprod(1), np.abs(x) * 0.1 + 0.9, grad=False, exact=True)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 5, 63, 99])
def test_cumsum_of_non_finite_values(value, at):
    x = arrays(0, 50, 100)
    x[7, at] = value
    same(lambda t, x: x.cumsum(1), x, grad=False, exact=True)


# ------------------------------------------------------------------ top k
@quick
@given(seed=st.integers(0, 99), k=st.integers(1, 10), largest=st.booleans(), width=st.sampled_from([64, 100, 300]),
       kind=st.sampled_from(["float32", "float64", "int64", "int32"]))
def test_topk_of_small_k(seed, k, largest, width, kind):
    x = np.random.RandomState(seed).permutation(40 * width).reshape(40, width).astype(kind)
    got = [t.from_numpy(x).topk(k, largest=largest) for t in (torch, mt)]
    for a, b in zip(*got, strict=True):
        np.testing.assert_array_equal(b.numpy(), a.numpy())


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("fill", [np.nan, np.inf, -np.inf])
def test_topk_among_special_values(largest, fill):
    x = np.full((40, 64), fill, np.float32)
    x[:, 5], x[:, 9] = 1, 2
    x[3] = np.arange(64)
    x[4, 10:14] = np.nan
    got = [t.from_numpy(x).topk(4, largest=largest)[0].numpy() for t in (torch, mt)]
    np.testing.assert_array_equal(*got)


def test_topk_breaks_ties_like_torch():
    x = np.zeros((50, 64), np.float32)
    np.testing.assert_array_equal(mt.from_numpy(x).topk(3)[1].numpy(), torch.from_numpy(x).topk(3)[1].numpy())


# ------------------------------------------------------------------ pools
POOLS = {
    "max": lambda t, x: t.nn.functional.max_pool2d(x, 2), "max overlapping": lambda t, x: t.nn.functional.max_pool2d(x, 3, 2, 1),
    "max dilated": lambda t, x: t.nn.functional.max_pool2d(x, 2, 1, 0, 2), "max uneven": lambda t, x: t.nn.functional.max_pool2d(x, (3, 2), (2, 3), ceil_mode=True),
    "avg": lambda t, x: t.nn.functional.avg_pool2d(x, 2), "avg padded": lambda t, x: t.nn.functional.avg_pool2d(x, 3, 2, 1),
    "avg inside": lambda t, x: t.nn.functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False, ceil_mode=True),
    "avg divided": lambda t, x: t.nn.functional.avg_pool2d(x, 2, divisor_override=3), "max 1d": lambda t, x: t.nn.functional.max_pool1d(x[:, :, 0], 2),
    "avg 3d": lambda t, x: t.nn.functional.avg_pool3d(x, (1, 2, 2)), "adaptive": lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 2),
}


@pytest.mark.parametrize("name", POOLS)
@quick
@given(n=st.integers(1, 5), c=st.integers(1, 7), h=st.integers(5, 9), w=st.integers(5, 12), seed=st.integers(0, 99))
def test_pools(way, name, n, c, h, w, seed):
    same(POOLS[name], arrays(seed, n, c, h, w), rtol=1e-5)
    if name.startswith("max"):
        x = np.round(arrays(seed, n, c, h, w))
        x[0, 0, 1, 1] = np.nan
        same(POOLS[name], x)


def test_max_pool_indices(way):
    x = np.round(arrays(0, 3, 5, 8, 9))
    a, b = (t.nn.functional.max_pool2d(t.from_numpy(x), 3, 2, 1, return_indices=True)[1].numpy() for t in (torch, mt))
    np.testing.assert_array_equal(b, a)


# ------------------------------------------------------------------ masks, remainders, copies
@quick
@given(rows=st.integers(1, 60), width=st.integers(1, 60), seed=st.integers(0, 99), share=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
       kind=st.sampled_from(["float32", "float64", "int64", "uint8", "bool", "complex64", "complex128", "float16"]))
def test_masks(way, rows, width, seed, share, kind):
    r = np.random.RandomState(seed)
    x, mask = (r.randn(rows, width) * 3).astype(kind), r.rand(rows, width) < share

    def assign(t, x):
        y, m = x.clone(), t.from_numpy(mask)
        y[m] = 2
        z = x.t().clone().t()
        z[m] = 1
        return t.cat([y, z, x.masked_fill(m, 3), x.masked_fill(m[:1], 0)])
    a, b = (assign(t, t.from_numpy(x)).numpy() for t in (torch, mt))
    np.testing.assert_array_equal(b, a)
    if kind == "float32":
        x.reshape(-1)[:: 7] = np.nan
        same(lambda t, x: x.masked_fill(t.from_numpy(mask), 3), x, exact=True)

        def write(t, x):
            y = x * 1
            y[t.from_numpy(mask)] = 2.5
            return y
        same(write, x, exact=True)


@quick
@given(seed=st.integers(0, 99), n=st.integers(256, 600), scale=st.sampled_from([0.01, 1.0, 100.0, 1e6]), step=st.booleans(),
       special=st.booleans())
def test_remainders(way, seed, n, scale, step, special):
    r = np.random.RandomState(seed)
    a, b = (r.randn(n) * scale).astype(np.float32), r.randn(n).astype(np.float32)
    if step:
        a, b = r.randint(-60, 60, n).astype(np.float32) * np.float32(0.1), r.randint(1, 9, n).astype(np.float32) * np.float32(-0.1)
    if special:
        a[:3], b[4] = [np.nan, np.inf, -np.inf], 0
    for fn in (lambda t, a, b: a % b, lambda t, a, b: a // b, lambda t, a, b: a % 0.3, lambda t, a, b: a // -0.7):
        x, y = (fn(t, t.from_numpy(a), t.from_numpy(b)).numpy() for t in (torch, mt))
        np.testing.assert_array_equal(y, x)


@quick
@given(shape=st.lists(st.integers(1, 12), min_size=2, max_size=5), seed=st.integers(0, 999), kind=st.sampled_from(["float32", "int32", "int64", "int16"]),
       step=st.integers(1, 2))
def test_transposed_copies(monkeypatch, shape, seed, kind, step):
    from mindtorch.backend.cpu import copies
    monkeypatch.setattr(copies, "_LARGE", 8)
    r = np.random.RandomState(seed)
    x = (r.randn(*shape) * 100).astype(kind)
    if kind == "float32":
        x.view(np.int32).reshape(-1)[0] = 0x7F800001
    order = r.permutation(len(shape)).tolist()
    y = mt.from_numpy(x).permute(order)[::step].contiguous()
    want = np.ascontiguousarray(x.transpose(order)[::step])
    np.testing.assert_array_equal(y.numpy().view(np.uint8), want.view(np.uint8))
    if kind == "float32":
        leaf = mt.zeros(want.shape, requires_grad=True)
        back = np.argsort(order).tolist()
        leaf.permute(back).backward(mt.from_numpy(np.ascontiguousarray(want.transpose(back))))
        assert leaf.grad.is_contiguous()
        np.testing.assert_array_equal(leaf.grad.numpy(), want)


@quick
@given(seed=st.integers(0, 99), dim=st.integers(-3, 2), n=st.integers(1, 9), shrink=st.booleans())
def test_gather_and_scatter(way, seed, dim, n, shrink):
    r = np.random.RandomState(seed)
    x = arrays(seed, 9, 7, 8)
    shape = [9, 7, 8]
    shape[dim] = n
    if shrink:
        shape[(dim + 1) % 3] -= 2
    i = r.randint(0, x.shape[dim], shape)
    same(lambda t, x: x.gather(dim, t.from_numpy(i)), x)
    place = np.argsort(r.rand(*x.shape), axis=dim)
    same(lambda t, x, y: x.scatter(dim, t.from_numpy(place), y), x, arrays(seed + 1, 9, 7, 8))
    same(lambda t, x: x.scatter(dim, t.from_numpy(i), 2.0), x)


@quick
@given(n=st.integers(0, 300), seed=st.integers(0, 99), odd=st.booleans())
def test_nan_to_num(n, seed, odd):
    x = arrays(seed, n, special=odd)
    same(lambda t, x: x.nan_to_num(), x, exact=True)
    same(lambda t, x: x.nan_to_num(1.5, 2.0, -3.0), x, exact=True)
    same(lambda t, x: x.sum().nan_to_num(), x, grad=False)


# ------------------------------------------------------------------ rows added at indices
@quick
@given(seed=st.integers(0, 99), n=st.integers(1, 20), inner=st.sampled_from([1, 64, 384, 500]), dim=st.sampled_from([0, 1]))
def test_index_add_and_embedding_of_rows(seed, n, inner, dim):
    r = np.random.RandomState(seed)
    index = r.randint(0, 6, n)
    x = arrays(seed, *((6, 2, inner) if dim == 0 else (2, 6, inner)))
    s = arrays(seed + 1, *((n, 2, inner) if dim == 0 else (2, n, inner)))
    same(lambda t, x, s: x.index_add(dim, t.from_numpy(index), s, alpha=2), x, s)
    same(lambda t, x: x.index_select(dim, t.from_numpy(index)), x)
    w = arrays(seed, 6, inner)
    same(lambda t, w: t.nn.functional.embedding(t.from_numpy(index), w), w)


# ------------------------------------------------------------------ random numbers
@quick
@given(seed=st.integers(0, 2**31), sizes=st.lists(st.integers(1, 200), min_size=1, max_size=30), dtype=st.sampled_from(["float32", "float16", "bfloat16"]))
def test_small_normal_draws_in_any_order(seed, sizes, dtype):
    drawn = []
    for t in (torch, mt):
        t.manual_seed(seed)
        out = []
        for n in sizes:
            if n % 7 == 0:
                out.append(t.rand(n % 5).numpy())
            out.append(t.empty(n, dtype=getattr(t, dtype)).normal_(0.5 * (n % 3), 0.1 + n % 2).float().numpy())
        state = t.get_rng_state()
        out.append(t.randn(40).numpy())
        t.set_rng_state(state)
        out.append(t.randn(40).numpy())
        out.append(t.get_rng_state().numpy())
        drawn.append(out)
    for a, b in zip(*drawn, strict=True):
        np.testing.assert_array_equal(b, a)


@pytest.mark.parametrize("n", [65536 * 16, 65536 * 16 + 5])
def test_many_normals(n):
    got = []
    for t in (torch, mt):
        t.manual_seed(3)
        got.append(t.randn(n).numpy())
    np.testing.assert_array_equal(*got)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 1499, 1500, 1501, 1502, 5000, 40000])
def test_randperm(n):
    got = []
    for t in (torch, mt):
        t.manual_seed(n)
        got.append((t.randperm(n).numpy(), t.randperm(n, dtype=t.int32).numpy(), t.rand(3).numpy()))
    for a, b in zip(*got, strict=True):
        np.testing.assert_array_equal(b, a)


@quick
@given(seed=st.integers(0, 2**31), n=st.integers(2, 60))
def test_vectorized_shuffle(seed, n):
    from mindtorch.backend.cpu._rng_integers import shuffled
    steps = (np.random.RandomState(seed).randint(0, 2**31, n - 1) % np.arange(n, 1, -1)).astype(np.uint32)
    items = list(range(n))
    for i, k in enumerate(steps.tolist()):
        items[i], items[i + k] = items[i + k], items[i]
    np.testing.assert_array_equal(shuffled(steps), items)


# ------------------------------------------------------------------ unique and histc in chunks
@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool", "int32", "float32", "float64"])
def test_unique_and_histc_in_chunks(dtype):
    """Checks values, counts and inverse indices for more elements than one chunk has."""
    g = np.random.default_rng(3)
    x = (g.integers(0 if dtype in ("uint8", "bool") else -100, 100, 140003) * (g.random(140003) < 0.9)).astype(dtype)
    few = np.arange(-150, 200, 3).astype(np.int64)

    def program(T):
        t, m = T.from_numpy(x.copy()), T.from_numpy(few)
        rows = t[:140000].view(-1, 7)
        seen = [*T.unique(t, return_inverse=True, return_counts=True), T.unique(t), *T.unique(rows.t(), return_inverse=True)]
        for name in ("any", "all", "count_nonzero"):
            f = getattr(T, name)
            seen += [f(t), f(rows, 0), f(rows, 1), f(rows.t(), 1), f(rows[:, 1:3]), f(t * 0), f(t[t != 0]), f(t[:9000].view(1, -1), 0), f(t[::2].reshape(1, -1), 0)]
        if dtype != "bool":
            seen += [T.isin(t, m), T.isin(rows.t(), m, invert=True), *T.sort(rows, stable=True), *T.sort(t, descending=True, stable=True)]
        if dtype in ("uint8", "int32"):
            seen += [T.bincount(t.abs()), T.bincount(t.abs()[::2], minlength=300)]
        return seen
    for real, mine in zip(program(torch), program(mt), strict=True):
        assert str(real.dtype) == str(mine.dtype) and real.shape == mine.shape and np.array_equal(real.numpy(), mine.numpy())
    if dtype.startswith("float"):
        v = g.standard_normal(140003).astype(dtype)
        for args in ((100,), (7, -1, 1)):
            real, mine = torch.histc(torch.from_numpy(v), *args).numpy(), mt.histc(mt.from_numpy(v), *args).numpy()
            # An element on the boundary of two bins may be in either.
            assert real.sum() == mine.sum() and np.abs(real - mine).max() <= 2
    if dtype in ("int8", "int32"):
        with pytest.raises(RuntimeError, match="non-negative"):
            mt.bincount(mt.from_numpy(x))
