"""Convolutions, pools, padding and resampling against PyTorch."""
import itertools

import numpy as np
import pytest
from _parity import In, check, few, mine, real, values
from hypothesis import given
from hypothesis import strategies as st

F32 = "float32"


def fn(name):
    return lambda T: getattr(T.nn.functional, name)


def x_of(seed, shape, dtype=F32, low=-2.0, high=2.0):
    return In(values(seed, shape, dtype, low, high), dtype, grad=True)


# ------------------------------------------------------------------ convolutions
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("dtype", [F32, "float64"])
@few
@given(st.data())
def test_small_convolution(dims, dtype, data):
    """Covers axes with different parameters, rows shorter and longer than a vector, images of
    several tiles, and non-contiguous operands."""
    def each(low, high):
        return data.draw(st.tuples(*[st.integers(low, high)] * dims))
    groups, kernel, stride, dilation, padding = data.draw(st.integers(1, 3)), each(1, 3), each(1, 3), each(1, 2), each(0, 3)
    size = tuple([max(n, d * (k - 1) + 1 - 2 * p) for n, d, k, p in zip(each(1, 19 if dims < 3 else 7), dilation, kernel, padding)])
    c, o = groups * data.draw(st.integers(1, 3)), groups * data.draw(st.integers(1, 6))
    turned = data.draw(st.booleans())

    def f(T, x, w, *b):
        if turned:
            x, w = x.transpose(0, 1).contiguous().transpose(0, 1), w.transpose(0, 1).contiguous().transpose(0, 1)
        return getattr(T.nn.functional, f"conv{dims}d")(x, w, *b, stride=stride, padding=padding, dilation=dilation, groups=groups)
    bias = [x_of(3, (o,), dtype)] if data.draw(st.booleans()) else []
    check(f, x_of(1, (data.draw(st.integers(1, 3)), c, *size), dtype), x_of(2, (o, c // groups, *kernel), dtype), *bias, rtol=1e-4, grad_rtol=1e-4)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [F32, "float64"])
@few
@given(st.data())
def test_convolution_that_is_one_matrix_product(dims, transposed, dtype, data):
    """Covers convolutions that reduce to one matrix product, contiguous or channels-last, and cases
    that only resemble them."""
    kernel = data.draw(st.tuples(*[st.integers(1, 4)] * dims))
    n, c, o, dilation = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 2))
    size = kernel if not transposed else (1,) * dims
    last = data.draw(st.booleans())

    def f(T, x, w, *b):
        if last:
            x = x.movedim(1, -1).contiguous().movedim(-1, 1)
        return fn(f"conv{'_transpose' * transposed}{dims}d")(T)(x, w, *b, dilation=dilation)
    bias = [x_of(3, (o,), dtype)] if data.draw(st.booleans()) else []
    check(f, x_of(1, (n, c, *size), dtype), x_of(2, (c, o, *kernel) if transposed else (o, c, *kernel), dtype), *bias, rtol=1e-4, grad_rtol=1e-4)


@pytest.mark.parametrize("shape, weight, kw", [
    ((2, 32, 16, 16), (32, 3, 4, 4), {"stride": 2, "padding": 1}), ((1, 16, 40, 33), (16, 1, 3, 3), {}), ((4, 24, 12, 12), (24, 4, 5, 5), {"padding": 2}),
    ((3, 16, 40), (16, 2, 7), {"stride": 3}), ((1, 8, 6, 7, 8), (8, 3, 3, 3, 3), {"stride": 2})])
def test_transposed_convolution_to_few_channels(shape, weight, kw):
    check(lambda T, x, w, b: fn(f"conv_transpose{len(shape) - 2}d")(T)(x, w, b, **kw), x_of(1, shape), x_of(2, weight), x_of(3, weight[1:2]),
          rtol=2e-4, atol=1e-3, grad_rtol=1e-3)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@few
@given(st.data())
def test_convolution(dims, transposed, data):
    groups = data.draw(st.sampled_from([1, 1, 2, 4]))
    kernel = data.draw(st.integers(1, 3))
    dtype = data.draw(st.sampled_from([F32, F32, "float64", "complex64"]))
    stride, dilation = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    size = data.draw(st.tuples(*[st.integers(5, 8)] * dims))
    channels, out = 4, data.draw(st.sampled_from([4, 8]))
    x = x_of(1, data.draw(st.sampled_from([(2, channels), (channels,)])) + size, dtype)
    bias = [x_of(3, (out,), dtype)] if data.draw(st.booleans()) else []
    if transposed:
        extra = data.draw(st.integers(0, max(stride, dilation) - 1))
        w = x_of(2, (channels, out // groups) + (kernel,) * dims, dtype)
        kw = {"stride": stride, "padding": data.draw(st.integers(0, 1)), "output_padding": extra, "groups": groups, "dilation": dilation}
        name = f"conv_transpose{dims}d"
    else:
        w = x_of(2, (out, channels // groups) + (kernel,) * dims, dtype)
        padding = data.draw(st.sampled_from([0, 1, "valid", "same"]))
        kw = {"stride": 1 if padding == "same" else stride, "padding": padding, "dilation": dilation, "groups": groups}
        name = f"conv{dims}d"
    check(lambda T, *t: fn(name)(T)(*t, **kw), x, w, *bias, rtol=1e-4, atol=2e-4, grad_rtol=1e-3,
          second=data.draw(st.booleans()) and not bias)


@pytest.mark.parametrize("shape, weight, kw", [
    ((2, 32, 4, 4), (40, 32, 3, 3), {"padding": 1}), ((2, 32, 5, 4), (40, 32, 3, 3), {"padding": 1, "stride": 2}),
    ((2, 32, 9, 7), (20, 32, 3, 3), {"padding": 1}), ((2, 32, 9, 7), (20, 32, 3, 3), {"padding": "same", "dilation": 2}),
    ((2, 20, 6, 6), (30, 20, 1, 1), {}), ((2, 8, 6, 6), (8, 1, 3, 3), {"groups": 8, "padding": 1}), ((2, 1, 12, 12), (6, 1, 5, 5), {"padding": 2}),
    ((0, 3, 8, 8), (4, 3, 3, 3), {})])
def test_all_convolution_algorithms(shape, weight, kw):
    check(lambda T, x, w, b: T.conv2d(x, w, b, **kw), x_of(1, shape), x_of(2, weight), x_of(3, weight[:1]), rtol=2e-4, atol=1e-3, grad_rtol=1e-3)


def test_integer_and_half_convolutions():
    check(lambda T, x, w: T.conv2d(x, w), x_of(1, (2, 3, 6, 6), "int64"), x_of(2, (4, 3, 3, 3), "int64"))
    check(lambda T, x, w: T.conv2d(x, w), x_of(1, (2, 3, 6, 6), "float16"), x_of(2, (4, 3, 3, 3), "float16"), rtol=2e-2, atol=1e-2, grad_rtol=5e-2)
    check(lambda T, x, w: T.conv2d(x, w), x_of(1, (2, 3, 6, 6), "bool"), x_of(2, (4, 3, 3, 3), "bool"))


X, W = (1, 3, 8, 8), (4, 3, 3, 3)


@pytest.mark.parametrize("x, w, b, kw", [
    (X, (4, 2, 3, 3), None, {}), ((8, 8), W, None, {}), ((1, 1, 3, 8, 8), W, None, {}), (X, W, (3,), {}), (X, W, (4, 1), {}),
    ((1, 3, 2, 8), W, None, {}), (X, W, None, {"stride": 0}), (X, W, None, {"padding": -1}), (X, W, None, {"dilation": 0}),
    (X, W, None, {"groups": 0}), ((1, 4, 8, 8), (3, 2, 3, 3), None, {"groups": 2}), (X, W, None, {"stride": 2, "padding": "same"}),
    (X, W, None, {"padding": "full"}), (X, W, None, {"padding": (1, 1, 1)}), (X, W, None, {"stride": (1, 1, 1)}), (X, (0, 3, 3, 3), None, {})])
def test_invalid_convolutions_raise(x, w, b, kw):
    check(lambda T, *t: T.conv2d(*t, **kw), *[x_of(1, s) for s in (x, w, b) if s is not None])


def test_mixed_dtypes_are_refused():
    check(lambda T, x, w: T.conv2d(x, w), x_of(1, X), x_of(2, W, "float64"))
    check(lambda T, x, w, b: T.conv2d(x, w, b), x_of(1, X), x_of(2, W), x_of(3, (4,), "float64"))
    for T in (real, mine):
        with pytest.raises(TypeError):
            T.conv2d("a", T.ones(W))
        with pytest.raises(TypeError):
            T.conv2d(T.ones(X), T.ones(W), stride="a")


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 3, 8, 8), (0, 3, 8, 8)])
def test_unfold_and_fold(shape):
    for kw in ({"kernel_size": 3, "padding": 1, "stride": 2}, {"kernel_size": (2, 3), "dilation": 2}):
        check(lambda T, x: T.nn.functional.unfold(x, **kw), x_of(1, shape), second=True)
    if shape[0]:
        check(lambda T, x: T.nn.functional.fold(x, (8, 8), 3, padding=1, stride=2), x_of(1, shape[:-3] + (27, 16)), second=True)


@pytest.mark.parametrize("shape, kw", [((2, 28, 36), {}), ((2, 27, 35), {}), ((27,), {})])
def test_invalid_folds_raise(shape, kw):
    check(lambda T, x: T.nn.functional.fold(x, (8, 8), 3, **kw), x_of(1, shape))


# ------------------------------------------------------------------ pools
WINDOWS = [(2, None, 0, 1), (3, 2, 1, 1), (3, 1, 1, 1), (2, 1, 0, 2), (3, 2, 1, 2), (2, 3, 1, 1), (3, 3, 0, 1)]
SIZES = {1: (11,), 2: (9, 8), 3: (7, 6, 5)}


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("ceil", [False, True])
def test_pools(dims, window, ceil):
    k, s, p, d = window
    x = x_of(1, (2, 3) + SIZES[dims])
    tied = In(np.round(x.values), F32, grad=True)
    for indices, y in ((False, x), (True, tied)):
        check(lambda T, a: fn(f"max_pool{dims}d")(T)(a, k, s, p, d, ceil, indices), y, second=True)
    check(lambda T, a: fn(f"max_pool{dims}d")(T)(a, k, s, p, d, ceil), In(x.values[0], "float64", grad=True))
    if d == 1:
        for inside in (True, False):
            check(lambda T, a: fn(f"avg_pool{dims}d")(T)(a, k, s, p, ceil, inside), x, rtol=1e-4, atol=1e-5, second=True)
        if dims > 1:
            check(lambda T, a: fn(f"avg_pool{dims}d")(T)(a, k, s, p, ceil, True, 3), x, rtol=1e-4, atol=1e-5)
        if not p:
            positive = In(np.abs(x.values) + 0.1, F32, grad=True)
            check(lambda T, a: fn(f"lp_pool{dims}d")(T)(a, 2, k, s, ceil), positive, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("out", [1, 2, 3, 5])
def test_adaptive_pools(dims, out):
    x = x_of(1, (2, 3) + SIZES[dims])
    check(lambda T, a: fn(f"adaptive_avg_pool{dims}d")(T)(a, out), x, rtol=1e-4, atol=1e-5, second=True)
    check(lambda T, a: fn(f"adaptive_max_pool{dims}d")(T)(a, out, True), x, second=True)
    check(lambda T, a: fn(f"adaptive_max_pool{dims}d")(T)(a[0], out), x)


def test_pools_of_nan_infinity_and_integers():
    v = values(1, (2, 3, 8, 8), F32)
    v[0, 0], v[1, 1, 0, 3] = -np.inf, np.nan
    check(lambda T, a: T.nn.functional.max_pool2d(a, 3, 2, 1, return_indices=True), In(v))
    for d, name in itertools.product(("int64", "bool", "complex64", "float16"), ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d")):
        check(lambda T, a: fn(name)(T)(a, 2), x_of(1, (2, 3, 8, 8), d, -9, 9), rtol=5e-3)


@pytest.mark.parametrize("shape", [(8, 8), (3, 8, 8), (0, 3, 8, 8), (8,)], ids=str)
@pytest.mark.parametrize("name", ["max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool2d",
                                  "adaptive_max_pool2d"])
def test_pools_of_other_shapes(name, shape):
    check(lambda T, a: fn(name)(T)(a, 2), x_of(1, shape))


@pytest.mark.parametrize("kw", [{"kernel_size": 2, "padding": 2}, {"kernel_size": (2, 2, 2)}, {"kernel_size": 9}, {"kernel_size": 0},
                                {"kernel_size": 2, "stride": 0}, {"kernel_size": 2, "dilation": 0}], ids=str)
def test_invalid_pools_raise(kw):
    check(lambda T, a: T.nn.functional.max_pool2d(a, **kw), x_of(1, (1, 3, 8, 8)))


@pytest.mark.parametrize("dims, kernel, out", [(2, 2, 3), (2, (3, 2), (5, 4)), (3, 2, 3)])
def test_fractional_pools(dims, kernel, out):
    samples = np.random.RandomState(0).rand(2, 3, dims).astype(np.float32)
    check(lambda T, a, r: fn(f"fractional_max_pool{dims}d")(T)(a, kernel, output_size=out, return_indices=True, _random_samples=r),
          x_of(1, (2, 3) + SIZES[dims]), In(samples))


@pytest.mark.parametrize("dims, size", [(1, (8,)), (2, (8, 6)), (3, (4, 6, 4))])
def test_unpooling(dims, size):
    x = values(1, (2, 3) + size, F32)
    y, i = (t.numpy() for t in fn(f"max_pool{dims}d")(real)(real.from_numpy(x), 2, return_indices=True))
    for kw in ({}, {"output_size": tuple(s + 1 for s in size)}, {"output_size": tuple(s + 9 for s in size)}):
        check(lambda T, a, b: fn(f"max_unpool{dims}d")(T)(a, b, 2, **kw), In(y, grad=True), In(i), second=True)
    check(lambda T, a, b: fn(f"max_unpool{dims}d")(T)(a, b * 100, 2), In(y), In(i))


# ------------------------------------------------------------------ padding
@pytest.mark.parametrize("dtype", [F32, "int64", "complex64", "bool", "bfloat16"])
@pytest.mark.parametrize("pad", [(1, 2), (1, 2, 3, 4), (0, 1, 0, 0, 2, 2), (-1, 2), (-2, -1, 1, -1), ()], ids=str)
def test_constant_padding(dtype, pad):
    check(lambda T, a: T.nn.functional.pad(a, pad, value=1), x_of(1, (2, 3, 5, 6), dtype), second=dtype == F32)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("shape, pad", [((5, 6), (1, 2)), ((3, 5, 6), (1, 2)), ((2, 3, 5, 6), (2, 1, 3, 4)), ((3, 5, 6), (2, 1, 3, 4)),
                                        ((2, 3, 5, 6), (-1, 2, 1, -1)), ((2, 3, 4, 5, 6), (1, 0, 1, 1, 2, 1)), ((3, 5, 6), (7, 0)),
                                        ((3, 5, 6), (-6, 0)), ((6,), (1, 1)), ((2, 3, 4, 5), (1, 1)), ((1, 0, 3), (1, 1))], ids=str)
def test_reflect_replicate_and_circular_padding(mode, shape, pad):
    for d in (F32, "int64", "bool"):
        check(lambda T, a: T.nn.functional.pad(a, pad, mode), x_of(1, shape, d), second=d == F32)


@pytest.mark.parametrize("shape, args", [((2, 3), ((1,),)), ((2, 3), ((1,) * 6,)), ((2, 3), ((1, 1), "foo")), ((2, 3), ((1, 1), "reflect", 1.0)),
                                         ((1, 2, 3), ((-4, 0),)), ((), ((1, 1),))], ids=str)
def test_invalid_padding_raises(shape, args):
    check(lambda T, a: T.nn.functional.pad(a, *args), x_of(1, shape))


# ------------------------------------------------------------------ resampling
MODES = {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}
SPACE = {1: (7,), 2: (5, 7), 3: (3, 5, 4)}


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("how", [{"size": 1}, {"size": 3}, {"size": 9}, {"scale_factor": 2}, {"scale_factor": 0.6}, {"scale_factor": 2.7},
                                 {"scale_factor": 2.7, "recompute_scale_factor": True}], ids=str)
def test_interpolation(dims, how):
    for d in (F32, "float64"):
        x = x_of(1, (2, 3) + SPACE[dims], d)
        for mode, align in [(m, None) for m in ("nearest", "nearest-exact", "area")] + [(m, a) for m in MODES[dims] for a in (False, True)]:
            if mode == "area" and "recompute_scale_factor" in how:
                continue
            check(lambda T, a: T.nn.functional.interpolate(a, mode=mode, align_corners=align, **how), x, rtol=1e-4, atol=1e-5, second=d == F32)


@pytest.mark.parametrize("how", [{"size": (3, 4)}, {"size": (10, 14)}, {"scale_factor": 0.45}], ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased_interpolation(mode, how):
    check(lambda T, a: T.nn.functional.interpolate(a, mode=mode, antialias=True, **how), x_of(1, (2, 3, 5, 7)), rtol=1e-4, atol=1e-5, second=True)


def test_interpolation_of_bytes():
    v = np.random.RandomState(0).randint(0, 256, (2, 3, 16, 12)).astype(np.uint8)
    for mode, kw in (("nearest", {}), ("bilinear", {}), ("bilinear", {"antialias": True})):
        check(lambda T, a: T.nn.functional.interpolate(a, size=(9, 20), mode=mode, **kw), In(v))


@pytest.mark.parametrize("shape, kw", [((1, 3, 4, 4), {}), ((1, 3, 4, 4), {"size": 2, "scale_factor": 2}), ((1, 3, 4, 4), {"size": (2, 2, 2)}),
                                       ((1, 3, 4, 4), {"scale_factor": (2, 2, 2)}), ((1, 3, 4, 4), {"size": 2, "mode": "foo"}),
                                       ((1, 3, 4, 4), {"size": 2, "mode": "linear"}), ((1, 3), {"size": 2}), ((1, 3, 4, 4), {"size": 0}),
                                       ((1, 3, 4, 4), {"size": 2, "align_corners": True}), ((1, 3, 4, 4), {"size": 2, "antialias": True}),
                                       ((1, 0, 4, 4), {"size": 2}), ((0, 3, 4, 4), {"size": 2})], ids=str)
def test_invalid_interpolation_raises(shape, kw):
    check(lambda T, a: T.nn.functional.interpolate(a, **kw), x_of(1, shape))
    check(lambda T, a: T.nn.functional.interpolate(a, 2), x_of(1, (1, 3, 4, 4), "int64"))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_grid_sample(mode, padding, align):
    x, g = x_of(1, (2, 3, 5, 6), "float64"), x_of(2, (2, 4, 3, 2), "float64", -1.3, 1.3)
    check(lambda T, a, b: T.nn.functional.grid_sample(a, b, mode, padding, align), x, g, rtol=1e-6, atol=1e-7, grad_rtol=1e-5, second=True)
    if mode != "bicubic":
        x, g = x_of(1, (2, 2, 4, 5, 3)), x_of(2, (2, 2, 3, 2, 3), F32, -1.3, 1.3)
        check(lambda T, a, b: T.nn.functional.grid_sample(a, b, mode, padding, align), x, g, rtol=1e-3, atol=1e-4, grad_rtol=5e-3)


@pytest.mark.parametrize("x, g, kw", [((1, 3, 4, 4), (1, 2, 2, 3), {}), ((1, 3, 4, 4), (2, 2, 2, 2), {}), ((1, 3, 4, 4), (1, 2, 2, 2), {"mode": "foo"}),
                                      ((1, 3, 4, 4), (1, 2, 2, 2), {"padding_mode": "foo"}), ((3, 4, 4), (1, 2, 2, 2), {}),
                                      ((1, 3, 0, 4), (1, 2, 2, 2), {})], ids=str)
def test_invalid_grids_raise(x, g, kw):
    check(lambda T, a, b: T.nn.functional.grid_sample(a, b, align_corners=False, **kw), x_of(1, x), x_of(2, g))


@pytest.mark.parametrize("align", [False, True])
def test_affine_grid(align):
    check(lambda T, a: T.nn.functional.affine_grid(a, (2, 3, 4, 5), align), x_of(1, (2, 2, 3)), rtol=1e-4, atol=1e-5, second=True)
    check(lambda T, a: T.nn.functional.affine_grid(a, (2, 3, 4, 5, 1), align), x_of(1, (2, 3, 4)), rtol=1e-4, atol=1e-5)
    check(lambda T, a: T.nn.functional.affine_grid(a, (2, 3, 4), align), x_of(1, (2, 2, 3)))


def test_shuffles():
    check(lambda T, a: T.nn.functional.pixel_shuffle(a, 2), x_of(1, (2, 8, 3, 4)), second=True)
    check(lambda T, a: T.nn.functional.pixel_unshuffle(a, 2), x_of(1, (2, 3, 4, 6)), second=True)
    check(lambda T, a: T.nn.functional.channel_shuffle(a, 2), x_of(1, (2, 6, 4, 6)), second=True)
    for shape, k in (((2, 3), 2), ((3, 2, 2), 2), ((4, 2, 2), 0), ((4, 3, 2), 2)):
        for name in ("pixel_shuffle", "pixel_unshuffle", "channel_shuffle"):
            check(lambda T, a: fn(name)(T)(a, k), x_of(1, shape))
