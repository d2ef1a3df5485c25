"""Ops on the Ascend target compared with the CPU device: values, sizes, dtypes, stride order,
gradients. test_ascend.py runs it in a separate process."""
import math
import sys

import mindtorch.torch as mt

F = mt.nn.functional
NAN, INF = math.nan, math.inf


def randn(*size):
    return mt.randn(*size)


def ints(high, *size):
    return mt.randint(0, high, size)


def tensor(*values):
    return mt.tensor(values)


def cases():
    x, one, none = randn(3, 4, 5), randn(()), mt.tensor([NAN, 1.0, NAN, -INF, 1.0, 2.0])
    i = ints(4, 3, 2, 5)
    for dim in (0, -1):
        yield "dims of no tensor", [one], lambda a: [a.max(dim), a.min(dim), a.argmax(dim), a.sort(dim), a.topk(1, dim), a.median(dim), a.cummax(dim), a.softmax(dim),
                                                     a.log_softmax(dim), a.kthvalue(1, dim), a.cumsum(dim), a.prod(dim), a.detach().unique()]
    yield "argmax of all", [x], lambda a: [a.argmax(), a.argmin(keepdim=True), a.argmax(1), a.max(1, keepdim=True), a.min(0)]
    yield "moments", [x], lambda a: [a.var(), a.std(1), a.var(1, correction=1.5), a.std((0, 2), correction=0), a.var((0, 2), keepdim=True)]
    for a in (x, mt.where(x > 1, 0.0, x), tensor(0.0, 2.0, 3.0), tensor(0.0, 0.0, 3.0), tensor(1.0, -2.0, INF), tensor(-1.0, 2.0)):
        yield "prod", [a], lambda a: [a.prod(), a.prod(0), a.prod(-1, keepdim=True)]
    for how in ("sum", "prod", "mean", "amax", "amin"):
        for own in (True, False):
            yield f"scatter_reduce {how}", [randn(3, 4, 5), randn(3, 3, 6)], lambda a, b: a.scatter_reduce(1, i.to(a.device), b, how, include_self=own)
            yield f"scatter_reduce {how} of whole", [ints(9, 3, 4, 5), ints(9, 3, 2, 5)], lambda a, b: a.scatter_reduce(1, i.to(a.device), b, how, include_self=own)
    for how in ("amax", "amin"):
        yield f"{how} with nan", [none, none + 1], lambda a, b: a.scatter_reduce(0, tensor(0, 0, 1, 2, 3, 3).to(a.device), b, how)
    yield "scatter of none", [one, randn(())], lambda a, b: [a.scatter(0, ints(1).to(a.device), b), a.scatter_add(0, ints(1).to(a.device), b),
                                                             a.gather(0, ints(1).to(a.device)), a.index_add(0, ints(1, 1).to(a.device), b)]
    mask = x > 0
    yield "masks", [x, randn(60)], lambda a, b: [a.masked_scatter(mask.to(a.device), b), a.masked_select(mask.to(a.device)),
                                                 a.masked_scatter((mask[0] > 0).to(a.device), b)]
    yield "nonzero", [mask], lambda a: [a.nonzero(), mt.nonzero_static(a, size=3), mt.nonzero_static(a, size=80), a[0, 0, 0].nonzero()]
    yield "clone", [x.permute(2, 0, 1), x[:, ::2]], lambda a, b: [a.clone(), b.clone(), a.contiguous(), a.clone(memory_format=mt.contiguous_format), a.double().sum()]
    for p in (0.0, 1.0, 2.0, 3.0, INF):
        yield f"cdist {p}", [randn(2, 3, 4), randn(2, 5, 4)], lambda a, b: mt.cdist(a, b, p)
    yield "cdist stretched", [randn(2, 3, 4), randn(6, 1, 5, 4)], mt.cdist
    yield "unique", [ints(3, 4, 2)], lambda a: [mt.unique(a, dim=0, return_inverse=True, return_counts=True), mt.unique_consecutive(a[0, 0], return_counts=True)]
    yield "repeats", [x], lambda a: [a.repeat_interleave(tensor(2, 0, 3, 1).to(a.device), 1)]
    yield "isin", [ints(9, 4, 3), ints(9, 3)], lambda a, b: [mt.isin(a, b), mt.isin(a, b, invert=True)]
    yield "mode", [mt.round(x), ints(3, 5, 7)], lambda a, b: [a.mode(), b.mode(0), b.mode(1, True), a.mode(1)]
    yield "nan among", [mt.where(x > 1, NAN, x), none], lambda a, b: [a.nanmedian(), a.nanmedian(1)[0], a.nanquantile(0.3, 1), a.quantile(0.3, 2), b.nanmedian(),
                                                                      a.nanquantile(tensor(0.0, 1.0).to(a.device), 0, interpolation="nearest")]
    yield "diff", [x], lambda a: [a.diff(), a.diff(4, 1), a[:, :1].diff(dim=1)]

    # ---- scans, triangular systems, gamma functions
    holes = mt.where(x > 0.5, 0.0, x)
    for dim in (0, 1, -1):
        yield "running", [x, holes, one], lambda a, b, c: [a.cumprod(dim), b.cumprod(dim), c.cumprod(0), a.logcumsumexp(dim), c.logcumsumexp(0),
                                                           mt.where(a > 1, -INF, a).logcumsumexp(dim)]
    yield "gradient", [x], lambda a: [mt.stack(mt.gradient(a, spacing=0.7)), mt.stack(mt.gradient(a, edge_order=2)), mt.sinc(a), mt.sinc(a * 1e-4)]
    far = mt.cat([randn(200) * 3, mt.linspace(-8, 8, 161), tensor(0.0, -0.0, -1.0, -2.0, INF, -INF, NAN, 1e-30, -1e-30, 1e38, 1 + 1e-7, 2 - 1e-7, 0.5, 1.4616321)])
    yield "gamma", [far], lambda a: [mt.lgamma(a.detach()), mt.digamma(a.detach())]
    yield "gamma's gradient", [mt.rand(20) * 9 - 4, mt.rand(9) * 4 + 1.2], lambda a, b: [mt.lgamma(a), mt.mvlgamma(b, 3)]
    yield "gamma's second", [mt.rand(20) * 6 + 0.1], lambda a: [mt.digamma(a), mt.polygamma(1, a.detach())]
    for p in (0.0, 1.0, 1.5, 2.0, 3.0, INF):
        yield f"pdist {p}", [mt.cat([randn(4, 3), mt.zeros(2, 3)])], lambda a: F.pdist(a, p)
    for upper in (False, True):
        for unit in (False, True):
            yield "triangular", [randn(2, 1, 3, 3) + 3 * mt.eye(3), randn(4, 3, 2)], lambda a, b: [
                mt.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit), mt.linalg.solve_triangular(a, b.mT, upper=upper, left=False, unitriangular=unit),
                mt.triangular_solve(b, a, upper, unit, unit)[0], mt.cholesky_solve(b, a.triu() if upper else a.tril(), upper)]
    yield "qr", [randn(2, 4, 3)], lambda a: (lambda q, r: [q @ r, r.abs(), mt.linalg.qr(a.detach(), "r")[1].abs()])(*mt.linalg.qr(a))

    # ---- networks
    weight, bias = randn(4).abs(), randn(4)
    yield "norms", [randn(3, 4, 5), weight, bias], lambda a, w, b: [F.instance_norm(a), F.instance_norm(a, weight=w, bias=b), F.rms_norm(a, (4, 5)), F.group_norm(a, 2, w, b),
                                                                    F.rms_norm(a.mT, (4,), w, 1e-3), F.local_response_norm(a, 3), F.local_response_norm(a, 2)]
    yield "running", [randn(3, 4, 5)], lambda a: [(lambda m, v: (F.instance_norm(a, m, v), m, v))(mt.zeros(4, device=a.device), mt.ones(4, device=a.device))]
    for how in ("none", "mean", "sum"):
        p, q = randn(4, 5), mt.rand(4, 5)
        yield f"losses {how}", [p, q], lambda a, b: [F.l1_loss(a, b, reduction=how), F.huber_loss(a, b, reduction=how, delta=0.5), F.smooth_l1_loss(a, b, reduction=how),
                                                     F.binary_cross_entropy_with_logits(a, b, reduction=how), F.binary_cross_entropy(a.sigmoid(), b, reduction=how)]
        for w in (None, mt.rand(5)):
            at = (tensor(1, -100, 4, 0), -100), (tensor(1, 2, 2, 0), 2), (tensor(1, 2, 2, 0), -100)
            yield f"nll {how}", [p.log_softmax(1)], lambda a: [F.nll_loss(a, t.to(a.device), None if w is None else w.to(a.device), reduction=how, ignore_index=k)
                                                               for t, k in at]
            yield f"nll2 {how}", [randn(4, 5, 3).log_softmax(1)], lambda a: F.nll_loss(a, (mt.arange(12).reshape(4, 3) % 5).to(a.device),
                                                                                       None if w is None else w.to(a.device), reduction=how)
    yield "convolutions", [randn(2, 4, 9), randn(6, 2, 3), randn(6), randn(2, 4, 5, 6, 4), randn(4, 3, 2, 3, 1)], lambda a, w, b, c, v: [
        F.conv1d(a, w, b, 2, 1, 2, 2), F.conv1d(a[0], w, None, 1, 0, 1, 2), F.conv_transpose1d(a, mt.cat((w[:4], w[:4]), 1)), F.conv_transpose3d(c, v, b[:3], 2, 1, 1),
        F.conv3d(c, v.transpose(0, 1).contiguous(), b[:3], (1, 2, 1), 1)]
    for far in (1, 2, 3):
        operands = [randn(*size) for size in ((2, 4, 9), (6, 2, 4), (6,), (2, 4, 5, 7), (2, 4, 2, 4), (1, 2, 4, 5, 6), (2, 2, 2, 4, 3))]
        yield "same", operands, lambda a, w, b, c, v, d, u: [
            F.conv1d(a, w, b, padding="same", dilation=far, groups=2), F.conv2d(c, v, padding="same", dilation=far), F.conv2d(c[0], v, padding="same", dilation=far),
            F.conv3d(d, u, padding="same", dilation=far)]
    for dim in (0, 1, -1):
        yield "wide softmax", [randn(3, 4), one], lambda a, b: [
            F.softmax(a, dim, dtype=mt.float64), F.log_softmax(a, dim, dtype=mt.float64), F.softmax(b, min(dim, 0), dtype=mt.float64)]
    for shape in ((), (1,), (3,), (2, 3)):
        for dtype in (mt.float32, mt.float64):
            yield "complex", [randn(shape).to(dtype), randn(shape).to(dtype)], lambda a, b: [t for z in [mt.complex(a, b)] for v in (
                z, z.conj(), z.conj().resolve_conj() * z, z.sum(), z * 2j, z + 2j, 2j - z, 2j / z, z / 2j, -z, mt.polar(b.detach().abs(), a.detach())) for t in (v.real, v.imag)]
    spoken = mt.randint(1, 5, (3, 4))
    for how in ("none", "mean", "sum"):
        yield f"ctc {how}", [randn(12, 3, 5)], lambda a: [
            F.ctc_loss(a.log_softmax(2), spoken.to(a.device), (12, 10, 3), (4, 2, 3), reduction=how, zero_infinity=True),
            F.ctc_loss(a.log_softmax(2), mt.cat([spoken[0], spoken[1, :2], spoken[2, :3]]).to(a.device), (12, 10, 9), (4, 2, 3), reduction=how)]
    labels, several = tensor(1, 0, 4, 2), tensor([1, 3, -1, 0, 2], [-1, 0, 1, 2, 3])
    yield "targets", [randn(4, 5), randn(2, 5)], lambda a, b: [
        F.multi_margin_loss(a, labels.to(a.device)), F.multilabel_margin_loss(b, several.to(b.device), reduction="none"), F.gaussian_nll_loss(a, a + 1, a.square()),
        F.one_hot(labels.to(a.device)), F.one_hot(labels.to(a.device), 7)]
    yield "similar", [randn(3, 4), randn(3, 4)], lambda a, b: [F.cosine_similarity(a, b), F.cosine_similarity(a * 0, b)]
    line, image, volume = randn(2, 3, 11), randn(2, 3, 7, 9), randn(2, 3, 5, 6, 7)
    low = mt.full((1, 1, 4), -INF)
    for ceil in (False, True):
        yield "pools", [line, image, volume], lambda a, b, c: [
            F.avg_pool1d(a, 3, 2, 1, ceil), F.avg_pool1d(a[0], 3, 2, 1, ceil, False), F.avg_pool3d(c, 2, 2, 1, ceil), F.avg_pool3d(c[0], 2, 2, 1, ceil, False, 5),
            F.max_pool1d(a, 3, 2, 1, 1, ceil, True), F.max_pool2d(b, 2, 2, 1, 2, ceil, True), F.max_pool3d(c, 2, 2, 1, 1, ceil, True), F.max_pool2d(b, 3, 2, 1, 1, ceil)]
    yield "lowest", [low], lambda a: F.max_pool1d(a, 3, 1, 1, return_indices=True)
    yield "adaptive", [line, image, volume], lambda a, b, c: [F.adaptive_avg_pool1d(a, 4), F.adaptive_avg_pool3d(c, (2, 4, 5)), F.adaptive_max_pool1d(a, 4, True),
                                                              F.adaptive_max_pool2d(b, (3, 5), True), F.adaptive_max_pool3d(c, (2, 4, 5), True)]
    yield "unpool", [image[:, :, :6, :8]], lambda a: F.max_unpool2d(*F.max_pool2d(a, 2, return_indices=True), 2)
    for mode, a in (("linear", line), ("bilinear", image), ("bicubic", image), ("trilinear", volume)):
        for align in (False, True):
            yield mode, [a], lambda a: [F.interpolate(a, scale_factor=2.0, mode=mode, align_corners=align), F.interpolate(a, size=(5, 6, 4)[:a.ndim - 2], mode=mode, align_corners=align)]
        yield mode + " by scale", [a], lambda a: F.interpolate(a, scale_factor=1.5, mode=mode)
    for mode in ("nearest", "nearest-exact", "area"):
        yield mode, [line, image, volume], lambda *xs: [F.interpolate(a, mode=mode, **by) for a in xs for by in ({"scale_factor": 2.0}, {"scale_factor": 1.3}, {"size": 4})]
    for mode in ("reflect", "replicate", "circular", "constant"):
        yield f"pad {mode}", [line, image, volume], lambda a, b, c: [F.pad(a, (2, 1), mode), F.pad(b, (2, 1, 0, 3), mode), F.pad(c, (2, 1, 0, 3, 1, 1), mode), F.pad(a[0], (1, 3), mode)]
    yield "pad negative", [image], lambda a: [F.pad(a, (-1, 2, 0, -2), value=3.0), F.pad(a, (-1, -2)), F.pad(a, (-1, 2, 1, 0), "replicate")]
    grid = mt.rand(2, 4, 5, 2) * 2.4 - 1.2
    for mode in ("bilinear", "nearest"):
        for pad in ("zeros", "border", "reflection"):
            yield f"grid {mode} {pad}", [image, grid, volume, mt.rand(2, 2, 3, 4, 3) * 2 - 1], lambda a, g, c, h: [
                F.grid_sample(a, g, mode, pad, False), F.grid_sample(a, g, mode, pad, True), F.grid_sample(c, h, mode, pad, False)]
    yield "shuffles", [randn(2, 8, 3, 4)], lambda a: [F.pixel_shuffle(a, 2), F.pixel_unshuffle(F.pixel_shuffle(a, 2), 2), F.channel_shuffle(a, 4)]
    yield "windows", [image], lambda a: [F.unfold(a, (2, 3), 1, 1, 2), F.fold(F.unfold(a, (2, 3), 1, 1, 2), (7, 9), (2, 3), 1, 1, 2)]
    yield "overlap", [randn(4, 5)], lambda a: [a.as_strided((3, 4), (2, 1), 1), a.as_strided((2, 2, 2), (1, 1, 5)), a.as_strided((3,), (0,), 2), a.unfold(1, 3, 1)]
    bag, starts = tensor(1, 5, 5, 7, 0, 2, 2, 2), tensor(0, 2, 2, 5, 6)
    for mode in ("sum", "mean", "max"):
        for last in (False, True):
            for padding in (None, 2, 5):
                yield f"bags {mode} {last} {padding}", [randn(10, 4)], lambda a: [
                    F.embedding_bag(bag.to(a.device), a, starts.to(a.device), mode=mode, include_last_offset=last, padding_idx=padding),
                    F.embedding_bag(bag.reshape(2, 4).to(a.device), a, mode=mode, padding_idx=padding)]
        yield f"bags {mode}", [randn(10, 4)], lambda a: [F.embedding_bag(ints(10, 3, 4).clamp(2, 2).to(a.device), a, mode=mode),
                                                         F.embedding_bag(tensor(1, 5, 5, 7, 0).to(a.device), a, tensor(0, 2, 2).to(a.device), mode=mode)]


def leaves(r):
    return [r] if isinstance(r, mt.Tensor) else [t for v in r for t in leaves(v)]


def outcome(f, operands, device):
    xs = [x.detach().to(device).requires_grad_(x.is_floating_point()) for x in operands]
    got = leaves(f(*xs))
    loss = sum([(t * (mt.arange(t.numel(), dtype=t.dtype).reshape(t.shape) * 0.1 + 1).to(device)).sum() for t in got if t.requires_grad], 0)
    if got and any([t.requires_grad for t in got]):
        loss.backward()
    return [t.detach() for t in got] + [x.grad for x in xs if x.grad is not None]


def main():
    mt.manual_seed(0)
    bad, n = [], 0
    for name, operands, f in cases():
        want = outcome(f, operands, "cpu")
        try:
            got = outcome(f, operands, "npu")
        except Exception as e:
            bad.append(f"{name}: {type(e).__name__}: {str(e)[:300]}")
            continue
        n += 1
        for k, (a, b) in enumerate(zip(want, got, strict=True)):
            b = b.cpu()
            if a.shape != b.shape or a.dtype != b.dtype or not mt.allclose(a, b, 1e-4, 1e-5, equal_nan=True):
                bad.append(f"{name}: result {k}: {a.dtype} {tuple(a.shape)} {a.reshape(-1)[:6].tolist()}, npu {b.dtype} {tuple(b.shape)} {b.reshape(-1)[:6].tolist()}")
    print("\n".join(bad))
    print(f"AGREE {n}, {len(bad)} differ")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
