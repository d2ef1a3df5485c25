"""Neural-network primitives on the npu device compared with the CPU: values, dtypes, shapes and
gradients."""
import numpy as np
import pytest

import mindtorch.torch as mt
from mindtorch.core.device import device_dispatch

F = mt.nn.functional
INF, NAN = float("inf"), float("nan")


def R(*sizes):
    return mt.from_numpy(np.random.default_rng(sum(sizes) + 7).standard_normal(sizes).astype(np.float32))


def P(*sizes):
    """Random probabilities."""
    return mt.from_numpy(np.random.default_rng(5).uniform(0.05, 0.95, sizes).astype(np.float32))


def classes(count, *sizes):
    return mt.from_numpy(np.random.default_rng(3).integers(0, count, sizes))


def ran(fn, operands, device):
    """Returns (results, gradients) of `fn` on copies of the operands on a device."""
    ins = [t.to(device).detach() if isinstance(t, mt.Tensor) else t for t in operands]
    leaves = [t.requires_grad_(True) for t in ins if isinstance(t, mt.Tensor) and t.dtype.is_floating_point]
    y = fn(*ins)
    outs = list(y) if isinstance(y, (tuple, list)) else [y]
    roots = [t for t in outs if t.requires_grad]
    grads = []
    if roots and leaves:
        weights = [R(*t.shape).to(t.dtype).to(device) if t.ndim else mt.ones([], dtype=t.dtype).to(device) for t in roots]
        grads = mt.autograd.grad(roots, leaves, weights, allow_unused=True)
    return outs + list(grads)


def same(npu, fn, *operands, tol=2e-5, kernels=()):
    """Compares the two devices. `kernels` names primitives that must not fall back to the host."""
    before = dict(device_dispatch.FALLBACKS)
    got, want = ran(fn, operands, npu), ran(fn, operands, "cpu")
    for name in kernels:
        assert device_dispatch.FALLBACKS.get(("npu", name)) == before.get(("npu", name)), name
    assert len(got) == len(want)
    for g, w in zip(got, want):
        if w is None:
            assert g is None
            continue
        assert g.device.type == "npu" and g.dtype == w.dtype and g.shape == w.shape
        g, w = (t.detach().cpu() for t in (g, w))
        if w.dtype in (mt.float16, mt.bfloat16):
            g, w = g.float(), w.float()
        g, w = g.numpy(), w.numpy()
        most = np.abs(w[np.isfinite(w)]).max(initial=1)
        np.testing.assert_allclose(g, w, rtol=tol, atol=tol * most)


CONVOLUTIONS = [
    ("conv2d", (2, 4, 9, 8), (6, 4, 3, 3), {"stride": 2, "padding": 1}), ("conv2d", (2, 4, 9, 8), (6, 2, 3, 2), {"groups": 2, "dilation": (1, 2)}),
    ("conv2d", (2, 4, 9, 8), (6, 4, 2, 3), {"padding": "same"}), ("conv2d", (4, 9, 8), (6, 4, 1, 1), {}), ("conv2d", (2, 4, 9, 8), (8, 1, 3, 3), {"groups": 4}),
    ("conv1d", (2, 4, 9), (6, 4, 3), {"padding": 2, "dilation": 2}), ("conv1d", (2, 4, 9), (6, 4, 2), {"padding": "same"}),
    ("conv3d", (2, 4, 5, 6, 7), (6, 2, 3, 2, 3), {"groups": 2, "padding": 1}), ("conv3d", (1, 2, 5, 6, 7), (3, 2, 3, 2, 3), {"stride": (1, 2, 2)}),
    ("conv_transpose2d", (2, 4, 5, 6), (4, 6, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}), ("conv_transpose2d", (2, 4, 5, 6), (4, 3, 3, 3), {"groups": 2}),
    ("conv_transpose2d", (2, 4, 5, 6), (4, 6, 3, 3), {"dilation": 2, "output_padding": 1}), ("conv_transpose1d", (2, 4, 5), (4, 6, 3), {"stride": 2}),
    ("conv_transpose3d", (2, 4, 3, 3, 4), (4, 6, 3, 3, 2), {"stride": 2, "output_padding": 1}),
]


@pytest.mark.parametrize("name, x, w, kw", CONVOLUTIONS)
def test_convolutions(npu, name, x, w, kw):
    out = w[1] * kw.get("groups", 1) if "transpose" in name else w[0]
    # MindSpore does not support this output size: the host computes it
    odd = kw.get("dilation", 1) == 2 and "output_padding" in kw
    kernels = () if odd else ("convolution", "convolution_transposed", "convolution_weight", "channel_sum")
    same(npu, lambda x, w, b: getattr(F, name)(x, w, b, **kw), R(*x), R(*w), R(out), tol=1e-4, kernels=kernels)


def test_convolution_of_other_dtypes_and_strides(npu):
    x, w, b = R(2, 4, 9, 8), R(6, 4, 3, 3), R(6)
    same(npu, lambda x, w: F.conv2d(x.transpose(2, 3), w.transpose(2, 3)), x, w, tol=1e-4)
    same(npu, F.conv2d, x.half(), w.half(), b.half(), tol=1e-2)
    same(npu, F.conv2d, x.bfloat16(), w.bfloat16(), b.bfloat16(), tol=3e-2)
    same(npu, F.conv2d, x.double(), w.double(), b.double(), tol=1e-10)


def test_unfold_and_fold(npu):
    same(npu, lambda x: F.unfold(x, (2, 3), 2, (1, 0), (1, 2)), R(2, 3, 9, 8), kernels=("im2col", "col2im"))
    same(npu, lambda x: F.fold(x, (6, 7), (2, 3), 1, (1, 0), (1, 2)), R(2, 18, 21))


@pytest.mark.parametrize("eps", [1e-5, 1e-2])
@pytest.mark.parametrize("size", [(8, 6), (4, 6, 5), (4, 6, 5, 7), (2, 6, 3, 4, 5)])
def test_batch_and_group_norm(npu, size, eps):
    x, w, b = R(*size), R(6), R(6)
    names = ("native_batch_norm_train", "native_batch_norm_train_backward", "native_batch_norm_eval", "native_batch_norm_eval_backward", "native_group_norm",
             "native_group_norm_backward", "running_statistics")
    same(npu, lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, eps), x, w, b, tol=1e-4, kernels=names)
    same(npu, lambda x: F.batch_norm(x, None, None, None, None, True, 0.1, eps), x, tol=1e-4)
    same(npu, lambda x, w, b: F.batch_norm(x, (w * 0 + 0.3).detach(), (w * 0 + 2).detach(), w, b, False, 0.1, eps), x, w, b, tol=1e-4, kernels=names)
    same(npu, lambda x, w, b: F.group_norm(x, 3, w, b, eps), x, w, b, tol=1e-4, kernels=names)


def test_running_statistics(npu):
    def run(norm):
        def f(x):
            m, v = (mt.zeros(6) + 0.5).to(x.device), mt.ones(6).to(x.device)
            return norm(x, m, v), m, v
        return f
    x = R(4, 6, 5, 7)
    same(npu, run(lambda x, m, v: F.batch_norm(x, m, v, None, None, True, 0.1)), x, tol=1e-4, kernels=("native_batch_norm_moving",))
    for momentum in (0.0, 1.0, 1.5, 1 / 3):
        same(npu, run(lambda x, m, v: F.batch_norm(x, m, v, None, None, True, momentum)), x, tol=1e-4)
        same(npu, run(lambda x, m, v: F.batch_norm(x, m.bfloat16(), v.bfloat16(), None, None, True, momentum)), x.bfloat16(), tol=3e-2)
        same(npu, run(lambda x, m, v: F.batch_norm(x, m.double(), v.double(), None, None, True, momentum)), x.double(), tol=1e-12)
    same(npu, run(lambda x, m, v: F.batch_norm(x, m, v, None, None, True, 0.1)), x.half(), tol=1e-2)
    same(npu, run(lambda x, m, v: F.instance_norm(x, m, v)), x, tol=1e-4, kernels=("running_statistics", "instance_statistics"))


def test_running_statistics_in_strided_views(npu):
    def f(x):
        base = (mt.arange(48.0) / 7).reshape(4, 12).to(x.device)
        m, v = base[1, ::2], base[2, 1:7]
        y = F.batch_norm(x, m, v, None, None, True, 0.1)
        assert m._version == 2
        return y, base
    same(npu, f, R(4, 6, 5, 7), tol=1e-4)


def test_cumulative_average_of_batch_norm(npu):
    norm = mt.nn.BatchNorm1d(3, momentum=None).to("npu")
    x = R(8, 3)
    for _ in range(40):
        norm(x.to("npu"))
    assert mt.allclose(norm.running_mean.cpu(), x.mean(0), atol=1e-5) and mt.allclose(norm.running_var.cpu(), x.var(0), atol=1e-5)


def test_relu_with_nan(npu):
    for n in (6, 3000):
        x = mt.tensor([float("nan"), -0.0, 0.0, float("inf"), -float("inf"), 2.0] * (n // 6), device="npu", requires_grad=True)
        y = mt.relu(x)
        y.backward(mt.full((n,), float("inf"), device="npu"))
        assert [str(v) for v in x.grad[:6].tolist()] == ["inf", "0.0", "0.0", "inf", "0.0", "inf"]
        assert y[0].isnan() and y[3:6].tolist() == [float("inf"), 0.0, 2.0]


@pytest.mark.parametrize("eps", [1e-5, 1e-2])
def test_layer_norm(npu, eps):
    kernels = ("native_layer_norm", "native_layer_norm_backward", "rms_norm", "rms_norm_backward")
    for size, shape in (((4, 6, 7), (7,)), ((4, 6, 7), (6, 7)), ((6, 7), (6, 7)), ((5, 1, 7), (7,))):
        x, w, b = R(*size), R(*shape), R(*shape)
        same(npu, lambda x, w, b: F.layer_norm(x, shape, w, b, eps), x, w, b, tol=1e-4, kernels=kernels)
        same(npu, lambda x: F.layer_norm(x, shape, None, None, eps), x, tol=1e-4, kernels=kernels)
        same(npu, lambda x, w: F.rms_norm(x, shape, w, eps), x, w, tol=1e-4, kernels=kernels)
    x, w, b = R(4, 6, 7).bfloat16(), R(7).bfloat16(), R(7).bfloat16()
    same(npu, lambda x, w, b: F.layer_norm(x, (7,), w, b, eps), x, w, b, tol=3e-2)
    same(npu, lambda x, w, b: mt.native_layer_norm(x, (7,), w, b, eps), R(4, 6, 7), R(7), R(7), tol=1e-4)
    same(npu, lambda x: F.local_response_norm(x, 3), R(4, 6, 5, 7), tol=1e-4, kernels=("channel_window_sum",))


NORMS = {
    "layer_norm": lambda x, w, b, eps: F.layer_norm(x, (6,), w, b, eps),
    "group_norm": lambda x, w, b, eps: F.group_norm(x.reshape(4, 6, 8), 3, w, b, eps),
    "batch_norm": lambda x, w, b, eps: F.batch_norm(x, None, None, w, b, True, 0.1, eps),
    "rms_norm": lambda x, w, b, eps: F.rms_norm(x, (6,), w, eps) + b,
}


@pytest.mark.parametrize("eps", [1e-12, 1e-7, 1e-6, 1e-5])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("name", NORMS)
def test_norm_gradients_are_as_accurate_as_the_host(npu, name, scale, eps):
    """Compared with float64, which reveals what is added to a small variance."""
    fn = NORMS[name]
    operands = [(R(6, 32).t() + 3) * scale, R(6), R(7)[1:]]
    exact = ran(lambda *t: fn(*t, eps), [t.double() for t in operands], "cpu")
    host, device = [ran(lambda *t: fn(*t, eps), operands, d) for d in ("cpu", "npu")]
    for e, h, d in zip(exact, host, device):
        e, h, d = [t.detach().cpu().double().numpy() for t in (e, h, d)]
        most = np.abs(e).max()
        assert np.abs(d - e).max() <= np.abs(h - e).max() + 40 * 1.2e-7 * most


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(npu, name):
    f, kernels = getattr(F, name), (name, name + "_backward")
    for dim in (0, 1, -1):
        same(npu, lambda x: f(x, dim), R(5, 6, 7), kernels=kernels)
        same(npu, lambda x: f(x.transpose(0, 2), dim), R(5, 6, 7), kernels=kernels)
        same(npu, lambda x: f(x, dim), R(5, 6, 7).double(), tol=1e-10)
        same(npu, lambda x: f(x, dim), R(5, 6, 7).half(), tol=1e-2)
    same(npu, lambda x: f(x, 0), R())
    same(npu, lambda x: f(x, -1), mt.tensor([[1.0, -INF, 2], [NAN, 1, 2], [1e4, -1e4, 0], [INF, 1, 2], [-INF, -INF, -INF]]))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [-100, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_class_index_losses(npu, reduction, ignored, smoothing):
    kernels = ("cross_entropy_loss", "cross_entropy_backward", "nll_loss", "nll_loss_backward", "sample_weights", "nll_of_samples")
    for weight in (None, R(7).abs()):
        def f(x, t, w):
            return F.cross_entropy(x, t, w, ignore_index=ignored, reduction=reduction, label_smoothing=smoothing)
        t = classes(7, 9)
        t[3] = ignored
        same(npu, f, R(9, 7), t, weight, kernels=kernels)
        same(npu, f, R(9, 7), mt.full_like(t, ignored), weight, kernels=kernels)
        t = classes(7, 4, 5)
        t[3, 1] = ignored
        same(npu, f, R(4, 7, 5), t, weight, kernels=kernels)
        same(npu, lambda x, t, w: F.nll_loss(x, t, w, ignore_index=ignored, reduction=reduction), R(4, 7, 5), t, weight, kernels=kernels)
    same(npu, f, R(9, 7).half(), classes(7, 9), R(7).abs().half(), tol=1e-2)


def test_cross_entropy_of_infinities_and_double_backward(npu):
    x = mt.tensor([[1.0, -INF, 2], [NAN, 1, 2], [1e4, -1e4, 0]])
    same(npu, lambda x, t: F.cross_entropy(x, t, reduction="none"), x, mt.tensor([0, 1, 2]))

    def slope(x, t):
        g, = mt.autograd.grad(F.cross_entropy(x, t, ignore_index=2), x, create_graph=True)
        return (g * g).sum()
    same(npu, slope, R(9, 7), classes(7, 9))


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_pairwise_losses(npu, name, reduction):
    a, b, kernels = R(9, 7), R(9, 7) * 2, (name, name + "_backward")

    def f(x, t):
        return getattr(F, name)(x, t, reduction=reduction)
    same(npu, f, a, b, kernels=kernels)
    same(npu, f, R(), R() + 0.1, kernels=kernels)
    same(npu, lambda x, t: f(x.t(), t.t()), a, b, kernels=kernels)
    same(npu, f, mt.tensor([NAN, INF, -INF, 1e30, 0, 0]), mt.tensor([1.0, 2, 3, 0, NAN, 0]), kernels=kernels)
    same(npu, f, a.half(), b.half(), tol=1e-2)
    same(npu, f, a.double(), b.double(), tol=1e-10)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_binary_cross_entropy(npu, reduction):
    same(npu, lambda x, t: F.binary_cross_entropy(x, t, reduction=reduction), P(9, 7), P(9, 7))


@pytest.mark.parametrize("pad", [(1, 2), (1, 2, 3, 0), (-1, 2), (-1, -1), (0, 0), (0, 0, -2, 3), (0, 0, 0, 0, 1, 0)])
def test_constant_padding(npu, pad):
    same(npu, lambda x: F.pad(x, pad, value=2), R(4, 5, 6), kernels=("constant_pad_nd",))
    same(npu, lambda x: F.pad(x.transpose(0, 2), pad), R(4, 5, 6))
    for x in (classes(9, 4, 5, 6), classes(2, 4, 5, 6).bool(), R(4, 5, 6).half(), R(4, 5, 6).bfloat16(), R(4, 5, 6).double()):
        same(npu, lambda x: F.pad(x, pad, value=2), x)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_nonconstant_padding(npu, mode):
    for pad, size in (((1, 2), (4, 5, 6)), ((1, 2, 3, 0), (2, 3, 5, 6)), ((-1, 2), (2, 5, 6)), ((1, 2, 3, 0, 1, 1), (2, 3, 5, 6, 4)), ((1, 2), (5, 6))):
        same(npu, lambda x: F.pad(x, pad, mode=mode), R(*size), kernels=("pad_by_index", "pad_by_index_backward"))
    same(npu, lambda x: F.pad(x, (1, 2), mode=mode), R(4, 5, 6).half(), tol=1e-2)


def holed(*sizes):
    r = np.random.default_rng(1)
    return mt.from_numpy(np.where(r.random(sizes) < 0.1, np.nan, r.standard_normal(sizes)).astype(np.float32))


SPACES = {1: (2, 3, 11), 2: (2, 3, 11, 13), 3: (2, 3, 7, 8, 9)}
WINDOWS = [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
           {"kernel_size": 2, "stride": 3, "ceil_mode": True}, {"kernel_size": 3, "stride": 1, "padding": 1}]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("window", WINDOWS)
def test_pools(npu, dims, window):
    largest, mean = getattr(F, f"max_pool{dims}d"), getattr(F, f"avg_pool{dims}d")
    x = R(*SPACES[dims])
    kernels = (f"max_pool{dims}d", "max_pool_backward", "max_pool_index", f"avg_pool{dims}d")
    for dilation in (1, 2):
        same(npu, lambda x: largest(x, dilation=dilation, **window), x, kernels=kernels)
        same(npu, lambda x: largest(x, dilation=dilation, return_indices=True, **window), x, kernels=kernels)
    kernels += (f"avg_pool{dims}d_backward",)
    for more in ({}, {"count_include_pad": False}, *([{"divisor_override": 5}, {"divisor_override": -5, "count_include_pad": False}] if dims > 1 else [])):
        same(npu, lambda x: mean(x, **window, **more), x, kernels=kernels)
    same(npu, lambda x: largest(x, **window), x[0])
    same(npu, lambda x: mean(x, **window), x[0])


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("out", [1, 2, 5])
def test_adaptive_pools(npu, dims, out):
    x = R(*SPACES[dims])
    mean, largest = f"adaptive_avg_pool{dims}d", f"adaptive_max_pool{dims}d"
    same(npu, lambda x: getattr(F, mean)(x, out), x, kernels=(mean, mean + "_backward"))
    same(npu, lambda x: getattr(F, largest)(x, out, return_indices=True), x, kernels=(largest, "scatter_flat"))
    same(npu, lambda x: getattr(F, mean)(x, out), x[0])
    same(npu, lambda x: getattr(F, largest)(x, out), x[0])


def test_pooling_of_nan_and_other_dtypes(npu):
    # If a window contains several NaNs, MindSpore's pool returns the index of the first one, the
    # host and PyTorch the last one.
    same(npu, lambda x: F.max_pool2d(x.detach(), 3, 2, 1), holed(2, 3, 12, 12))
    few = R(2, 3, 12, 12).detach()
    few[:, :, 1::5, 2::5] = np.nan
    same(npu, lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), few)
    same(npu, lambda x: F.adaptive_max_pool2d(x.detach(), 5), holed(2, 3, 12, 12))
    same(npu, lambda x: F.adaptive_max_pool2d(x, 5), few.clone().requires_grad_())
    same(npu, lambda x: F.avg_pool2d(x, 2), holed(2, 3, 12, 12))
    same(npu, lambda x: F.max_pool2d(x, 2), mt.full((1, 1, 4, 4), -INF))
    x = R(*SPACES[2])
    for y in (x.half(), x.double(), (x * 9).long()):
        same(npu, lambda x: F.max_pool2d(x, 2), y)
    same(npu, lambda x: F.max_pool2d(x.transpose(2, 3), 2), x)
    same(npu, lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), R(2, 3, 8, 8))

    def slope(x):
        g, = mt.autograd.grad((F.max_pool2d(x, 3, 2) ** 2).sum(), x, create_graph=True)
        return (g * g).sum()
    same(npu, slope, x)


@pytest.mark.parametrize("mode, dims", [("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 2), ("linear", 1), ("bilinear", 2), ("trilinear", 3),
                                        ("bicubic", 2)])
def test_interpolation(npu, mode, dims):
    x = R(*SPACES[dims])
    for kw in ({"scale_factor": 2}, {"scale_factor": 1.7}, {"scale_factor": 0.6}, {"size": (5,) * dims}, {"size": SPACES[dims][2:]}):
        for align in (None,) if "near" in mode else (False, True):
            same(npu, lambda x: F.interpolate(x, mode=mode, align_corners=align, **kw), x)
    assert not [k for k in device_dispatch.FALLBACKS if k[1] == "upsample_backward"]


def test_interpolation_of_nan_and_antialiased(npu):
    same(npu, lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest"), holed(2, 3, 12, 12))
    same(npu, lambda x: F.interpolate(x, (7, 20), mode="bilinear"), mt.where(holed(2, 3, 12, 12).isnan(), INF, R(2, 3, 12, 12)).detach())
    for mode in ("bilinear", "bicubic"):
        for size in ((5, 6), (20, 30)):
            same(npu, lambda x: F.interpolate(x, size, mode=mode, antialias=True), R(*SPACES[2]))


def test_shuffles(npu):
    for x in (R(2, 8, 4, 6), R(2, 8, 4, 6).bfloat16(), (R(2, 8, 4, 6) * 9).long(), R(8, 4, 6), R(4, 2, 2)):
        for factor in (1, 2):
            same(npu, lambda x: F.pixel_shuffle(x, factor), x, kernels=("pixel_shuffle",))
            same(npu, lambda x: F.pixel_unshuffle(x, factor), x, kernels=("pixel_unshuffle",))
    same(npu, lambda x: F.pixel_unshuffle(x.transpose(2, 3), 2), R(2, 8, 4, 6))
    for groups in (1, 3):
        same(npu, lambda x: F.channel_shuffle(x, groups), R(2, 6, 3, 4), kernels=("native_channel_shuffle",))


def test_results_do_not_share_memory(npu):
    for f in (lambda x: F.pixel_shuffle(x, 1), lambda x: F.channel_shuffle(x, 1), lambda x: F.pixel_unshuffle(x, 1), lambda x: F.pad(x, (0, 0)),
              lambda x: F.interpolate(x, (1, 1), mode="bilinear"), lambda x: F.adaptive_avg_pool2d(x, 1)):
        x = mt.ones(1, 2, 1, 1).to(npu)
        y = f(x)
        y += 1
        assert x.cpu().flatten().tolist() == [1, 1]


@pytest.mark.parametrize("kind", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_grid_sample(npu, kind, padding, align):
    kernels = ("grid_sampler_2d", "grid_sampler_3d", "grid_sampler_backward") if kind != "bicubic" else ()
    for x, grid in (((2, 3, 6, 7), (2, 5, 4, 2)), ((2, 3, 6, 7), (2, 30, 20, 2)), ((2, 3, 1, 1), (2, 5, 4, 2)), ((2, 3, 4, 6, 7), (2, 5, 4, 2, 3))):
        if kind != "bicubic" or len(x) == 4:
            same(npu, lambda x, g: F.grid_sample(x, g, kind, padding, align), R(*x), R(*grid) * 1.5, tol=1e-4, kernels=kernels)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling(npu, dims):
    pool, unpool = getattr(F, f"max_pool{dims}d"), getattr(F, f"max_unpool{dims}d")
    for window in ((2, 2), (3, 1)):
        same(npu, lambda x: unpool(*pool(x, *window, return_indices=True), *window), R(2, 3, *(8, 8, 6)[:dims]), kernels=("max_unpool",))
    for index in (-1, 2 ** dims):
        with pytest.raises(RuntimeError):
            unpool(mt.ones(1, 2, *(1,) * dims).to(npu), mt.full((1, 2, *(1,) * dims), index).to(npu), 2).cpu()


def test_leaky_relu_on_many_elements(npu):
    x = R(60, 60)
    x.view(-1)[:2] = mt.tensor([float("nan"), -0.0])
    for slope in (0.0, 0.2, 1.0, 1.5, -0.5):
        same(npu, lambda x: F.leaky_relu(x, slope), x, kernels=("leaky_relu", "leaky_relu_backward"))


@pytest.mark.parametrize("name", ["gelu", "softmax", "log_softmax", "linear", "relu"])
def test_large_tensors_use_correct_kernels(npu, name):
    """Sizes above the threshold where kernels switch to other methods."""
    x = R(3, 160, 200)
    x[0, 0, 0], x[0, 1], x[0, 2, 3], x[0, 3, 4], x[0, 4, :7] = NAN, -INF, NAN, INF, -INF
    fn = {"gelu": lambda x: F.gelu(x, approximate="tanh"), "softmax": lambda x: F.softmax(x, -1), "log_softmax": lambda x: F.log_softmax(x, -1),
          "linear": lambda x, w, b: F.linear(x, w, b), "relu": F.relu}[name]
    for operands in ([x], [R(3, 160, 200)]):
        same(npu, fn, *operands, *([R(48, 200), R(48)] if name == "linear" else []), tol=1e-5)
