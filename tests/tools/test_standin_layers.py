"""Norms, convolutions, pools and resizing of the CANN simulator: both engines compute the same, and
every kernel has a case."""
import numpy as np
import pytest
import torch
from _standin_cases import Outcome, call, out

r = np.random.RandomState(0)
IMAGE, SMALL = (2, 4, 6, 7), (2, 3, 9)


def f(*shape):
    return r.randn(*shape).astype(np.float32)


def p(*shape):
    return (r.rand(*shape) + .5).astype(np.float32)


def half(*shape):
    return f(*shape).astype(np.float16)


def normed(x, dims, eps):
    """Returns the mean and 1/deviation over the dimensions, with keepdims."""
    return x.mean(dims, keepdims=True), (1 / np.sqrt(x.var(dims, keepdims=True) + eps)).astype(np.float32)


def norms():
    x, dims = f(*IMAGE), (0, 2, 3)
    mean, invstd = (v.reshape(-1) for v in normed(x, dims, 1e-3))
    for training in (True, False):
        for w, b in ((f(4), f(4)), (None, None)):
            yield call("BatchNorm", x, w, b, f(4), p(4), training, .1, 1e-3, out(*IMAGE), out(4), out(4))
            yield call("BatchNormBackward", f(*IMAGE), x, w, f(4), p(4), mean, invstd, training, 1e-3, [True, True, w is None], out(*IMAGE), out(4), out(4))
    yield call("BatchNorm", x.astype(np.float16), f(4), f(4), None, None, True, .1, 1e-3, out(*IMAGE, dtype="float16"), out(4), out(4))
    yield call("BatchNormStats", x, 1e-3, out(4), out(4))
    counts = np.array([3, 5], np.float32)
    yield call("BatchNormGatherStatsWithCounts", x, f(2, 4), p(2, 4), f(4), p(4), .1, 1e-3, counts, out(4), out(4))
    yield call("BatchNormElemt", x, f(4), f(4), mean, invstd, 1e-3, out(*IMAGE))
    yield call("BatchNormElemt", x, None, None, mean, invstd, 1e-3, out(*IMAGE))
    yield call("BatchNormReduceBackward", f(*IMAGE), x, mean, invstd, f(4), True, True, False, out(4), out(4), out(4), out(4))
    yield call("BatchNormElemtBackward", f(*IMAGE), x, mean, invstd, f(4), f(4), f(4), counts, out(*IMAGE))
    x = f(2, 3, 8)
    for shape in ([8], [3, 8]):
        kept = tuple(range(3 - len(shape), 3))
        mean, rstd = normed(x, kept, 1e-5)
        held = out(*mean.shape)
        for w, b in ((f(*shape), f(*shape)), (None, None)):
            yield call("LayerNorm", x, shape, w, b, 1e-5, out(2, 3, 8), held, held)
            yield call("LayerNormBackward", f(2, 3, 8), x, shape, mean, rstd, w, b, [True, w is not None, True], out(2, 3, 8), out(*shape), out(*shape))
        yield call("AddLayerNorm", x, f(2, 3, 8), f(*shape), f(*shape), f(8), 1e-5, len(shape) == 1, out(2, 3, 8), held, held, out(2, 3, 8))
        for s in (None, f(2, 3, 8)):
            yield call("AddLayerNormGrad", f(2, 3, 8), x, f(2, 3, 8), rstd, mean, f(*shape), s, out(2, 3, 8), out(*shape), out(*shape))
        rstd = (1 / np.sqrt((x * x).mean(kept, keepdims=True) + 1e-5)).astype(np.float32)
        yield call("RmsNorm", x, f(*shape), 1e-5, out(2, 3, 8), held)
        yield call("RmsNormGrad", f(2, 3, 8), x, rstd, f(*shape), out(2, 3, 8), out(*shape))
        yield call("AddRmsNorm", x, f(2, 3, 8), f(*shape), 1e-5, out(2, 3, 8), held, out(2, 3, 8))
    yield call("RmsNorm", half(2, 3, 8), half(8), 1e-5, out(2, 3, 8, dtype="float16"), out(2, 3, 1))
    small = out(2, 3, 8, dtype="int8")
    yield call("AddRmsNormQuant", x, f(2, 3, 8), f(8), 40 * p(8), None, np.full(8, 3, np.int32), None, -1, 1e-5, False, small, small, out(2, 3, 8))
    yield call("AddRmsNormQuant", x, f(2, 3, 8), f(8), p(8) / 50, p(8) / 90, None, None, -1, 1e-5, True, small, small, out(2, 3, 8))
    x = f(*IMAGE)
    mean, rstd = (v.reshape(2, 2) for v in normed(x.reshape(2, 2, -1), 2, 1e-5))
    for w, b in ((f(4), f(4)), (None, None)):
        yield call("GroupNorm", x, w, b, 2, 4, 42, 2, 1e-5, out(*IMAGE), out(2, 2), out(2, 2))
        yield call("GroupNormBackward", f(*IMAGE), x, mean, rstd, w, 2, 4, 42, 2, [True, True, w is None], out(*IMAGE), out(4), out(4))


def convolutions():
    for rank in (1, 2, 3):
        n, x = [5, 6, 7][:rank], f(2, 4, *[5, 6, 7][:rank])
        ones = [1] * rank
        for w, b, stride, padding, dilation, transposed, more, groups, shape in (
                (f(6, 4, *[3] * rank), f(6), ones, ones, ones, False, [0] * rank, 1, n),
                (f(6, 2, *[3] * rank), None, [2] * rank, [2] * rank, [2] * rank, False, [0] * rank, 2, [(k - 1) // 2 + 1 for k in n]),
                (f(6, 4, *[2] * rank), f(6), ones, [0, 1] * rank, ones, False, [0] * rank, 1, n),
                (f(4, 3, *[3] * rank), f(6), [2] * rank, ones, ones, True, ones, 2, [2 * k for k in n])):
            if transposed:
                shape = [2 * k for k in n]
            yield call("Convolution", x, w, b, stride, padding, dilation, transposed, more, groups, out(2, 6, *shape), 1)
            yield call("ConvolutionBackward", f(2, 6, *shape), x, w, [6] if b is not None else None, stride, padding, dilation, transposed, more, groups,
                       [True, True, b is not None], 1, out(*x.shape), out(*w.shape), out(6))
    yield call("Convolution", half(2, 4, 5, 6), half(6, 4, 1, 1), half(6), [1, 1], [0, 0], [1, 1], False, [0, 0], 1, out(2, 6, 5, 6, dtype="float16"), 1)
    yield call("ConvTbc", f(7, 2, 3), f(3, 3, 5), f(5), 1, out(7, 2, 5), 1)
    yield call("Im2col", f(2, 3, 6, 7), [2, 3], [1, 2], [1, 0], [2, 1], out(2, 18, 12))
    yield call("Im2colBackward", f(2, 18, 12), [6, 7], [2, 3], [1, 2], [1, 0], [2, 1], out(2, 3, 6, 7))


def marks(x, size, stride, padding, dilation, shape):
    """Returns the mask and the indices that a pool writes."""
    n, c, height, width = x.shape
    mask = np.zeros((n, c, size[0] * size[1], (-(-shape[0] * shape[1] // 16) + 1) * 32), np.int8)
    indices = np.zeros((n, c, *shape), np.int64)
    for a, b, i, j in np.ndindex(*indices.shape):
        best = None
        for k, m in np.ndindex(*size):
            y, z = i * stride[0] - padding[0] + k * dilation[0], j * stride[1] - padding[1] + m * dilation[1]
            if 0 <= y < height and 0 <= z < width and (best is None or x[a, b, y, z] > best[0]):
                best = x[a, b, y, z], k * size[1] + m, y * width + z
        mask[a, b, best[1], i * shape[1] + j] = 1
        indices[a, b, i, j] = best[2]
    return mask, indices


POOLS = (([3, 2], [2, 1], [1, 0], [1, 2], False, (3, 5)), ([2], [2], [0], [1], True, (3, 4)), ([3, 3], [], [0, 0], [1, 1], False, (2, 2)))


def pools():
    x = f(*IMAGE)
    for size, stride, padding, dilation, ceil, shape in POOLS:
        mask, indices = marks(x, *(v * 2 if len(v) == 1 else v for v in (size, stride or size, padding, dilation)), shape)
        how, y = (size, stride, padding, dilation, ceil), out(2, 4, *shape)
        yield call("MaxPool2dWithMask", x, *how, y, out(*mask.shape, dtype="int8"))
        yield call("MaxPool2dWithMaskBackward", f(2, 4, *shape), x, mask, *how, out(*IMAGE))
        yield call("MaxPool2dWithIndices", x, *how, y, out(2, 4, *shape, dtype="int32"))
        yield call("MaxPool2dWithIndicesBackward", f(2, 4, *shape), x, indices.astype(np.int32), *how, out(*IMAGE))
    mask, indices = marks(x, [2, 2], [2, 2], [0, 0], [1, 1], (3, 3))
    yield call("MaxUnpool2d", f(2, 4, 3, 3), indices, [6, 7], out(*IMAGE))
    for padded, divisor in ((True, 0), (False, 0), (True, 3)):
        how = [3, 2], [2, 1], [1, 0], False, padded, divisor
        yield call("AvgPool2d", x, *how, 1, out(2, 4, 3, 6))
        yield call("AvgPool2dBackward", f(2, 4, 3, 6), x, *how, 1, out(*IMAGE))
        how = [3, 2, 2], [2, 1, 2], [1, 0, 1], False, padded, divisor
        yield call("AvgPool3d", f(1, 2, 5, 4, 4), *how, out(1, 2, 3, 3, 3))
        yield call("AvgPool3dBackward", f(1, 2, 3, 3, 3), f(1, 2, 5, 4, 4), *how, out(1, 2, 5, 4, 4))
    for size in ([1, 1], [4, 3]):
        yield call("AdaptiveAvgPool2d", x, size, out(2, 4, *size))
        yield call("AdaptiveAvgPool2dBackward", f(2, 4, *size), x, out(*IMAGE))
        yield call("AdaptiveAvgPool3d", f(1, 2, 5, 4, 4), [2, *size], out(1, 2, 2, *size))
        yield call("AdaptiveAvgPool3dBackward", f(1, 2, 2, *size), f(1, 2, 5, 4, 4), out(1, 2, 5, 4, 4))
    yield call("AdaptiveMaxPool2d", x, [3, 3], out(2, 4, 3, 3), out(2, 4, 3, 3, dtype="int64"))
    yield call("AdaptiveMaxPool2dBackward", f(2, 4, 3, 3), x, indices, out(*IMAGE))


def resizing():
    x = {1: f(*SMALL), 2: f(*IMAGE), 3: f(1, 2, 4, 5, 3)}
    for rank in (1, 2, 3):
        shape = list(x[rank].shape)
        for size, scales in (([7] * rank, [0.] * rank), ([5] * rank, [-1.] * rank), ([int(n * 1.7) for n in shape[2:]], [float(np.float32(1.7))] * rank)):
            y = shape[:2] + size
            yield call(f"UpsampleNearest{rank}d", x[rank], size, *(scales if rank == 3 else ()), out(*y))
            yield call(f"UpsampleNearest{rank}dBackward", f(*y), size, shape, *scales, out(*shape))
            for name in {1: ["Linear1d"], 2: ["Bilinear2d", "Bicubic2d"], 3: ["Trilinear3d"]}[rank]:
                for align in (True, False):
                    yield call("Upsample" + name, x[rank], size, align, *scales, out(*y))
                    yield call(f"Upsample{name}Backward" + "V2" * (name == "Bilinear2d"), f(*y), size, shape, align, *scales, out(*shape))
        for kind in ("Reflection", "Replication"):
            for one in (shape, shape[1:]):
                y = one[:-rank] + [n + 3 for n in one[-rank:]]
                yield call(f"{kind}Pad{rank}d", f(*one), [1, 2] * rank, out(*y))
                yield call(f"{kind}Pad{rank}dBackward", f(*y), f(*one), [1, 2] * rank, out(*one))
    for rank in (2, 3):
        for mode in (0, 1, 2)[:5 - rank]:
            for outside, align in ((0, False), (1, True), (2, False)):
                image, grid, y = f(2, 3, *[4, 5, 6][:rank]), f(2, *[3] * rank, rank) * np.float32(.6), [2, 3] + [3] * rank
                yield call(f"GridSampler{rank}D", image, grid, mode, outside, align, out(*y))
                yield call(f"GridSampler{rank}DBackward", f(*y), image, grid, mode, outside, align, [True, align], out(*image.shape), out(*grid.shape))


@pytest.mark.parametrize("cases, module", [(norms, "norms"), (convolutions, "convolution"), (pools, "pooling"), (resizing, "resize")])
def test_engines(cases, module):
    found = Outcome(list(cases()), module, rtol=1e-4, atol=1e-5)
    assert not found.differences
    assert not found.without_case


def test_pool_mask_encodes_the_indices():
    """The mask encodes the positions, and the backward pool rejects an invalid mask."""
    x, (size, stride, padding, dilation, ceil, shape) = f(*IMAGE), POOLS[0]
    mask, indices = marks(x, size, stride, padding, dilation, shape)
    how, g = (size, stride, padding, dilation, ceil), f(2, 4, *shape)
    written, by_mask, by_index, wrong = Outcome([
        call("MaxPool2dWithMask", x, *how, out(2, 4, *shape), out(*mask.shape, dtype="int8")),
        call("MaxPool2dWithMaskBackward", g, x, mask, *how, out(*IMAGE)), call("MaxPool2dWithIndicesBackward", g, x, indices, *how, out(*IMAGE)),
        call("MaxPool2dWithMaskBackward", g, x, np.zeros_like(mask), *how, out(*IMAGE))]).results
    np.testing.assert_array_equal(written[-1], mask)
    np.testing.assert_array_equal(written[-2].reshape(2, 4, -1), np.take_along_axis(x.reshape(2, 4, -1), indices.reshape(2, 4, -1), 2))
    np.testing.assert_allclose(by_mask[-1], by_index[-1], 1e-6)
    assert "ValueError" in wrong


def by_torch(function, seed, *inputs):
    """Returns the function's values and gradients, as arrays."""
    given = [torch.from_numpy(x).requires_grad_() for x in inputs]
    y = function(*given)
    return [v.detach().numpy() for v in (y, *torch.autograd.grad(y, given, torch.from_numpy(seed)))]


def rms(x, w, eps):
    return x * torch.rsqrt((x * x).mean(tuple(range(x.dim() - w.dim(), x.dim())), keepdim=True) + eps) * w


def test_norms_match_torch():
    """Values and gradients of norms equal PyTorch's; statistics gathered from parts of a batch
    equal those of the complete batch."""
    x, g, w, b, eps = f(*IMAGE), f(*IMAGE), f(4), f(4), 1e-3
    dims, empty, four = (0, 2, 3), out(*IMAGE), out(4)
    mean, invstd = (v.reshape(-1) for v in normed(x, dims, eps))
    running = f(4), p(4)
    moved = [torch.from_numpy(v.copy()) for v in running]
    whole = torch.nn.functional.batch_norm(torch.from_numpy(x), *moved, None, None, True, .3, eps).numpy()
    training = by_torch(lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, True, 0, eps), g, x, w, b)
    still = by_torch(lambda x, w, b: torch.nn.functional.batch_norm(x, *(torch.from_numpy(v) for v in running), w, b, False, 0, eps), g, x, w, b)
    parts = [normed(v, dims, eps) for v in (x[:1], x[1:])]
    means, invstds = (np.stack([v[k].reshape(-1) for v in parts]) for k in (0, 1))
    sums, products = g.sum(dims), (g * (x - mean.reshape(1, 4, 1, 1))).sum(dims)
    counts = np.array([42, 42], np.float32)
    wanted = [
        (call("BatchNorm", x, w, b, *running, True, .3, eps, empty, four, four), [*moved, training[0], mean, invstd]),
        (call("BatchNorm", x, None, None, *running, True, .3, eps, empty, four, four), [*moved, whole, mean, invstd]),
        (call("BatchNorm", x, w, b, *running, False, .3, eps, empty, four, four), [*running, still[0], None, None]),
        (call("BatchNormBackward", g, x, w, *running, mean, invstd, True, eps, [True] * 3, empty, four, four), training[1:]),
        (call("BatchNormBackward", g, x, w, *running, mean, invstd, False, eps, [True] * 3, empty, four, four), still[1:]),
        (call("BatchNormStats", x, eps, four, four), [mean, invstd]),
        (call("BatchNormGatherStatsWithCounts", x, means, invstds, *running, .3, eps, counts, four, four), [*moved, None, mean, invstd]),
        (call("BatchNormElemt", x, w, b, mean, invstd, eps, empty), training[:1]),
        (call("BatchNormReduceBackward", g, x, mean, invstd, w, True, True, True, four, four, four, four), [sums, products, training[2], sums]),
        (call("BatchNormElemtBackward", g, x, mean, invstd, w, sums, products, counts, empty), training[1:2])]
    groups = by_torch(lambda x, w, b: torch.nn.functional.group_norm(x, 2, w, b, eps), g, x, w, b)
    mean, rstd = (v.reshape(2, 2) for v in normed(x.reshape(2, 2, -1), 2, eps))
    pair = out(2, 2)
    wanted += [(call("GroupNorm", x, w, b, 2, 4, 42, 2, eps, empty, pair, pair), [groups[0], mean, rstd]),
               (call("GroupNormBackward", g, x, mean, rstd, w, 2, 4, 42, 2, [True] * 3, empty, four, four), groups[1:])]
    w, b, more, empty, inner = f(6, 7), f(6, 7), f(*IMAGE), out(*IMAGE), out(6, 7)
    for addend in (None, more):
        t = x if addend is None else x + addend
        layer = by_torch(lambda x, w, b: torch.nn.functional.layer_norm(x, (6, 7), w, b, eps), g, t, w, b)
        root = by_torch(lambda x, w: rms(x, w, eps), g, t, w)
        mean, rstd = normed(t, (2, 3), eps)
        by_root = 1 / np.sqrt((t * t).mean((2, 3), keepdims=True) + np.float32(eps))
        held = out(*mean.shape)
        if addend is None:
            wanted += [(call("LayerNorm", x, [6, 7], w, b, eps, empty, held, held), [layer[0], mean, rstd]),
                       (call("LayerNormBackward", g, x, [6, 7], mean, rstd, w, b, [True] * 3, empty, inner, inner), layer[1:]),
                       (call("RmsNorm", x, w, eps, empty, held), [root[0], by_root]), (call("RmsNormGrad", g, x, by_root, w, empty, inner), root[1:])]
        else:
            wanted += [(call("AddLayerNorm", x, more, w, b, None, eps, True, empty, held, held, empty), [layer[0], mean, rstd, t]),
                       (call("AddLayerNormGrad", g, x, more, rstd, mean, w, g, empty, inner, inner), [layer[1] + g, *layer[2:]]),
                       (call("AddRmsNorm", x, more, w, eps, empty, held, empty), [root[0], by_root, t])]
    found = Outcome([c for c, _ in wanted]).results
    for (case, values), got in zip(wanted, found):
        places = {"BatchNorm": [3, 4, -3, -2, -1], "BatchNormGatherStatsWithCounts": [3, 4, 7, -2, -1]}.get(case.name, range(-len(values), 0))
        for k, value in zip(places, values):
            if value is not None:
                np.testing.assert_allclose(got[k], value, 1e-4, 1e-4, err_msg=f"{case.name}, {k}")
