"""torchvision's operators on regions and deformable convolution: values and gradients are compared
with the formulas written in plain ops of real PyTorch."""
import functools
import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as mt
from mindtorch.backend.c_kernels import roi

ops = mt.ops.torchvision
TOLERANCE = {"float64": 1e-10, "float32": 2e-4, "float16": 2e-2, "bfloat16": 0.15}


@pytest.fixture(params=["C", "NumPy"], scope="module")
def way(request):
    """Runs a test with the C kernels (skipped without a compiler) and with the NumPy kernels."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "NumPy":
            patch.setattr(roi, "ready", lambda dtype: False)
        elif not roi.ready(np.dtype(np.float32)):
            pytest.skip("no C compiler")
        yield request.param


# ------------------------------------------------------------------ the formulas
def axis(start, bin, bins, samples, size):
    """Returns a matrix [bins, size] that averages bilinear samples; samples more than one pixel
    outside are zero."""
    r = torch.zeros(bins, size, dtype=torch.float64)
    for i in range(bins):
        for s in range(samples):
            at = start + i * bin + (s + 0.5) * bin / samples
            if -1 <= at <= size:
                at = min(max(at, 0), size - 1)
                p = min(int(at), size - 1)
                r[i, p] += (1 - (at - p)) / samples
                r[i, min(p + 1, size - 1)] += (at - p) / samples
    return r


def plain_bins(x, rois, scale, size, samples, kind):
    out = []
    for b, *box in rois.tolist():
        box = [v * scale for v in box]
        if kind == "ps_pool":
            box = [math.copysign(math.floor(abs(v) + 0.5), v) for v in box]
        elif kind != "legacy":
            box = [v - 0.5 for v in box]
        w, h = box[2] - box[0], box[3] - box[1]
        if kind in ("legacy", "ps_pool"):
            w, h = max(w, 1), max(h, 1)
        weights = []
        for start, extent, bins, n in ((box[1], h, size[0], x.shape[2]), (box[0], w, size[1], x.shape[3])):
            if kind == "ps_pool":
                m = torch.zeros(bins, n, dtype=torch.float64)
                for i in range(bins):
                    low, high = (min(max(v, 0), n) for v in (math.floor(i * extent / bins + start), math.ceil((i + 1) * extent / bins + start)))
                    m[i, low:high] = 1 / max(high - low, 1)
            else:
                m = axis(start, extent / bins, bins, samples if samples > 0 else max(math.ceil(extent / bins), 0), n)
            weights.append(m)
        if kind.startswith("ps"):
            out.append(torch.einsum("iy,jx,cijyx->cij", *weights, x[int(b)].unflatten(0, (-1, *size))))
        else:
            out.append(torch.einsum("iy,jx,cyx->cij", *weights, x[int(b)]))
    return torch.stack(out) if out else x.new_zeros(0, x.shape[1] // (size[0] * size[1] if kind.startswith("ps") else 1), *size)


def plain_deform(x, weight, offset, mask, bias, stride, pad, dilation, groups, offset_groups):
    n, c, h, w = x.shape
    o, _, kh, kw = weight.shape
    oh, ow = offset.shape[-2:]
    moved = offset.reshape(n, offset_groups, kh * kw, 2, oh, ow)
    planes = x.reshape(n, offset_groups, c // offset_groups, h * w)
    columns = []
    for t in range(kh * kw):
        y = moved[:, :, t, 0] + torch.arange(oh, dtype=x.dtype)[:, None] * stride[0] - pad[0] + t // kw * dilation[0]
        z = moved[:, :, t, 1] + torch.arange(ow, dtype=x.dtype) * stride[1] - pad[1] + t % kw * dilation[1]
        y0, z0 = y.detach().floor(), z.detach().floor()
        total = 0
        for a in (0, 1):
            for b in (0, 1):
                inside = (y0 + a >= 0) & (y0 + a < h) & (z0 + b >= 0) & (z0 + b < w)
                place = torch.where(inside, (y0 + a) * w + z0 + b, 0).long().reshape(n, offset_groups, 1, -1).expand(-1, -1, planes.shape[2], -1)
                part = (y - y0 if a else 1 - y + y0) * (z - z0 if b else 1 - z + z0) * inside
                total = total + planes.gather(3, place) * part.reshape(n, offset_groups, 1, -1)
        if mask is not None:
            total = total * mask.reshape(n, offset_groups, kh * kw, oh, ow)[:, :, t].reshape(n, offset_groups, 1, -1)
        columns.append(total.reshape(n, c, oh, ow))
    columns = torch.stack(columns, 2).reshape(n, groups, c // groups * kh * kw, oh * ow)
    return (weight.reshape(groups, o // groups, -1) @ columns).reshape(n, o, oh, ow) + bias[:, None, None]


# ------------------------------------------------------------------ regions
def regions(draw, rng, count, n, h, w, scale):
    """Returns boxes in and around the image; some are degenerate, some inverted, some far away."""
    box = rng.uniform(-3, max(h, w) + 3, (count, 4)) / scale
    for b in box:
        if draw(st.booleans()):
            b[2:] = b[:2] + rng.uniform(0, 6, 2) / scale
        if draw(st.integers(0, 5)) == 0:
            b[:] = np.round(b)
    return np.concatenate([rng.randint(0, n, (count, 1)), box], 1)


@st.composite
def cases(draw):
    rng = np.random.RandomState(draw(st.integers(0, 2 ** 31 - 1)))
    n, h, w = draw(st.integers(1, 2)), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    size = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["align", "legacy", "ps_align", "ps_pool"]))
    c = draw(st.sampled_from([1, 3, 70])) if kind in ("align", "legacy") else draw(st.integers(1, 2)) * size[0] * size[1]
    scale = draw(st.sampled_from([1.0, 0.5, 0.25]))
    dtype = draw(st.sampled_from(["float64", "float64", "float32", "float16", "bfloat16"]))
    return rng.randn(n, c, h, w), regions(draw, rng, draw(st.integers(0, 4)), n, h, w, scale), scale, size, draw(st.sampled_from([-1, 0, 1, 2])), kind, dtype


def ours(kind, x, rois, scale, size, samples):
    if kind == "ps_pool":
        return ops.ps_roi_pool(x, rois, scale, *size)
    if kind == "ps_align":
        return ops.ps_roi_align(x, rois, scale, *size, samples)
    return ops.roi_align(x, rois, scale, *size, samples, kind == "align"), None


def _of(a, dtype):
    return mt.tensor(a, dtype=getattr(mt, dtype))


@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_roi_bins_match_the_formulas(way, case):
    a, boxes, scale, size, samples, kind, dtype = case
    if dtype != "float64":
        # (exact in half precision, and no sample falls on the one-pixel margin)
        boxes = np.round(boxes * 8) / 8 + 0.03125
        samples = max(samples, 0) or 2
    x = _of(a, dtype).requires_grad_()
    got, channels = ours(kind, x, _of(boxes, dtype), scale, size, samples)
    exact = torch.tensor(x.detach().double().numpy()).requires_grad_()
    rois = torch.tensor(_of(boxes, dtype).double().numpy()).reshape(-1, 5)
    want = plain_bins(exact, rois, scale, size, samples, kind)
    tolerance = TOLERANCE[dtype]
    assert got.dtype == x.dtype and tuple(got.shape) == tuple(want.shape)
    assert np.allclose(got.detach().double().numpy(), want.detach().numpy(), atol=tolerance, rtol=tolerance)
    if channels is not None:
        assert channels.dtype == mt.int32 and np.array_equal(channels.numpy(), np.broadcast_to(np.arange(a.shape[1]).reshape(want.shape[1:]), want.shape))
    g = np.random.RandomState(0).randn(*want.shape)
    got.backward(_of(g, dtype))
    if len(boxes):
        want.backward(torch.tensor(_of(g, dtype).double().numpy()))
        assert x.grad.dtype == x.dtype and np.allclose(x.grad.double().numpy(), exact.grad.numpy(), atol=tolerance * 4, rtol=tolerance * 4)
    else:
        assert not x.grad.any()


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "expanded", "transposed"])
def test_layouts_and_large_images(way, layout):
    # (Many regions on a small image and few on a large one take different code paths.)
    for n, h, count in ((1, 6, 40), (2, 40, 2)):
        base = torch.randn(n, 5, h, h)
        x = {"contiguous": base, "channels_last": base.to(memory_format=torch.channels_last), "expanded": base[:1].expand(n, -1, -1, -1),
             "transposed": base.transpose(2, 3)}[layout]
        m = mt.from_numpy(base.numpy())
        m = {"contiguous": m, "channels_last": m.to(memory_format=mt.channels_last), "expanded": m[:1].expand(n, -1, -1, -1), "transposed": m.transpose(2, 3)}[layout]
        rois = np.concatenate([np.random.randint(0, n, (count, 1)), np.random.uniform(0, h, (count, 4))], 1).astype(np.float32)
        want = plain_bins(x.double(), torch.tensor(rois), 1.0, (2, 3), 2, "align").float()
        assert np.allclose(ops.roi_align(m, mt.from_numpy(rois), 1.0, 2, 3, 2, True).numpy(), want.numpy(), atol=1e-4)


def test_roi_bins_double_backward_and_backward_ops(way):
    x, rois = mt.randn(2, 4, 6, 5, dtype=mt.float64, requires_grad=True), mt.tensor([[0, 0.5, 1, 4, 5], [1, 1, 0, 3, 4.0]], dtype=mt.float64)
    assert mt.autograd.gradgradcheck(lambda v: ops.roi_align(v, rois[:1], 1.0, 1, 2, 2, True) ** 2, x.detach()[:1, :1].clone().requires_grad_())
    for run, back, more in ((lambda v: ops.roi_align(v, rois, 1.0, 2, 2, 2, False), ops._roi_align_backward, (2, False)),
                            (lambda v: ops.roi_pool(v, rois, 1.0, 2, 2), ops._roi_pool_backward, ()),
                            (lambda v: ops.ps_roi_pool(v, rois, 1.0, 2, 2), ops._ps_roi_pool_backward, ()),
                            (lambda v: ops.ps_roi_align(v, rois, 1.0, 2, 2, 2), ops._ps_roi_align_backward, (2,))):
        out = run(x)
        out, *rest = out if isinstance(out, tuple) else (out,)
        g = mt.randn_like(out)
        want, = mt.autograd.grad(out, x, g)
        sizes = (*more, 2, 4, 6, 5) if back is ops._ps_roi_align_backward else (2, 4, 6, 5, *more)
        assert mt.allclose(back(g, rois, *rest, 1.0, 2, 2, *sizes), want)


def test_roi_bins_errors():
    x = mt.zeros(2, 4, 5, 5)
    with pytest.raises(RuntimeError, match="batch index 2"):
        ops.roi_align(x, mt.tensor([[2.0, 0, 0, 3, 3]]), 1.0, 2, 2, 2, True)
    with pytest.raises(RuntimeError, match="batch index -1"):
        ops.roi_pool(x, mt.tensor([[-1.0, 0, 0, 3, 3]]), 1.0, 2, 2)
    with pytest.raises(RuntimeError, match="Tensor.K, 5."):
        ops.roi_align(x, mt.zeros(1, 4), 1.0, 2, 2, 2, True)
    with pytest.raises(RuntimeError, match="same type"):
        ops.roi_align(x, mt.zeros(1, 5, dtype=mt.float64), 1.0, 2, 2, 2, True)
    with pytest.raises(RuntimeError, match="multiple of pooling"):
        ops.ps_roi_pool(x, mt.zeros(1, 5), 1.0, 2, 3)
    nowhere = ops.roi_align(mt.ones(1, 1, 4, 4), mt.tensor([[0, math.nan, 0, 3, 3], [0, 0, 0, math.inf, 3]]), 1.0, 2, 2, -1, True)
    assert not nowhere[0].any()


def _refusals():
    x, rois, g = mt.zeros(1, 4, 5, 5), mt.zeros(1, 5), mt.zeros(1, 4, 2, 2)
    deform = [mt.zeros(s) for s in ((1, 2, 4, 4), (3, 2, 1, 1), (1, 2, 4, 4), (1, 1, 4, 4), (3,))]
    for other in (1, 2, 3, 4):  # (each tensor would be read with the input's dtype)
        yield RuntimeError, lambda other=other: ops.deform_conv2d(*[t.double() if i != other else t for i, t in enumerate(deform)], 1, 1, 0, 0, 1, 1, 1, 1, True)
    yield RuntimeError, lambda: ops.deform_conv2d(deform[0][0], *deform[1:], 1, 1, 0, 0, 1, 1, 1, 1, True)
    yield RuntimeError, lambda: ops.deform_conv2d(*deform, 0, 1, 0, 0, 1, 1, 1, 1, True)
    # (another dtype, fewer bins, more regions, more channels, more bins)
    for back in (g.double(), g[:, :, :1], mt.zeros(2, 4, 2, 2), mt.zeros(1, 5, 2, 2), mt.zeros(1, 4, 2, 3)):
        yield RuntimeError, lambda back=back: ops._roi_align_backward(back, rois, 1.0, 2, 2, 1, 4, 5, 5, 2, True)
        yield RuntimeError, lambda back=back: ops._ps_roi_pool_backward(back[:, :1], rois, g, 1.0, 2, 2, 1, 3 if back.shape[1] == 5 else 5, 5, 5)
        yield RuntimeError, lambda back=back: ops._roi_pool_backward(back, rois, mt.zeros_like(back, dtype=mt.int32), 1.0, 2, 2, 1, 4, 5, 5)
    for run in (lambda v, r: ops.roi_align(v, r, 1.0, 2, 2, 2, True), lambda v, r: ops.roi_pool(v, r, 1.0, 2, 2), lambda v, r: ops.ps_roi_pool(v, r, 1.0, 2, 2)):
        yield NotImplementedError, lambda run=run: run(x.long(), rois.long())
        yield RuntimeError, lambda run=run: run(x[0], rois)
        yield RuntimeError, lambda run=run: run(x, mt.tensor([[math.nan, 0, 0, 3, 3]]))
        yield RuntimeError, lambda run=run: run(x, mt.tensor([[3e9, 0, 0, 3, 3]]))
    yield RuntimeError, lambda: ops.roi_align(x, rois, 1.0, -1, 2, 2, True)
    yield RuntimeError, lambda: ops.ps_roi_align(x, rois, 1.0, 0, 2, 2)
    yield RuntimeError, lambda: ops.nms(mt.zeros(2, 4), mt.zeros(2, dtype=mt.float64), 0.5)
    yield NotImplementedError, lambda: ops.nms(mt.zeros(2, 4, dtype=mt.int64), mt.zeros(2, dtype=mt.int64), 0.5)


def test_out_of_bounds_reads_are_rejected(way):
    for error, run in _refusals():
        with pytest.raises(error):
            run()


def test_roi_ops_on_empty_images(way):
    rois = mt.tensor([[0, 0, 0, 3, 3.0]])
    for size in ((1, 4, 0, 5), (1, 4, 5, 0), (1, 0, 5, 5)):
        for run in (lambda v: ops.roi_align(v, rois, 1.0, 2, 2, 2, True), lambda v: ops.ps_roi_align(v, rois, 1.0, 2, 2, 2)[0],
                    lambda v: ops.ps_roi_pool(v, rois, 1.0, 2, 2)[0], lambda v: ops.roi_pool(v, rois, 1.0, 2, 2)[0]):
            x = mt.zeros(size, requires_grad=True)
            got = run(x)
            got.sum().backward()
            assert not got.any() and x.grad.shape == x.shape
    x, o = mt.zeros(0, 2, 4, 4, requires_grad=True), mt.zeros(0, 8, 3, 3, requires_grad=True)
    got = ops.deform_conv2d(x, mt.ones(3, 2, 2, 2), o, mt.zeros(0, 4, 3, 3), mt.zeros(3), 1, 1, 0, 0, 1, 1, 1, 1, True)
    got.sum().backward()
    assert got.shape == (0, 3, 3, 3) and x.grad.shape == x.shape and o.grad.shape == o.shape


def test_roi_align_with_a_huge_sample_count():
    # (Samples outside the image are not computed: a bin of 2e9 pixels takes no longer than one of
    # ten thousand.)
    x = mt.rand(1, 1, 8, 8, dtype=mt.float64)
    near = ops.roi_align(x, mt.tensor([[0, -5000, -5000, 5000, 5000.0]], dtype=mt.float64), 1.0, 1, 1, -1, True)
    assert np.allclose(near.item() * 1e8, plain_bins(torch.from_numpy(x.numpy()), torch.tensor([[0, -5000, -5000, 5000, 5000.0]]).double(),
                                                     1.0, (1, 1), -1, "align").item() * 1e8)
    if roi.ready(np.dtype(np.float64)):
        for dtype in (mt.float32, mt.float64):
            far = ops.roi_align(mt.ones(1, 1, 8, 8, dtype=dtype), mt.tensor([[0, 0, 0, 2e9, 3e9], [0, 0, 0, 1e30, 1e30]], dtype=dtype), 1.0, 1, 1, -1, True)
            assert 0 <= far[1].item() < 1e-15 and abs(far[0].item() * 6e18 / 72.25 - 1) < 0.2
    best = ops.nms(mt.tensor([[0, 0, 2, 2], [5, 5, 7, 7], [8, 8, 9, 9.0]]), mt.tensor([2.0, math.nan, 3.0]), 0.5)
    assert best.tolist() == [1, 2, 0]  # (nan sorts as the largest value)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_roi_pool(way, dtype):
    x = mt.randn(2, 3, 7, 8).to(getattr(mt, dtype)).requires_grad_()
    boxes = np.array([[0, 1, 2, 7, 6], [1, 0, 0, 2, 2], [1, 5, 5, 5, 5], [0, -9, -9, -6, -6], [0, 4, 4, 20, 20], [1, 0.5, 1.5, 2.5, 3.4]])
    got, where = ops.roi_pool(x, _of(boxes, dtype), 1.0, 3, 2)
    real = torch.tensor(x.detach().double().numpy()).requires_grad_()
    parts = []
    for b, *box in boxes.tolist():
        x1, y1, x2, y2 = (math.copysign(math.floor(abs(v) + 0.5), v) for v in box)
        # (a bin's size is computed in the regions' dtype)
        t = np.float64 if dtype == "float64" else np.float32
        h, w = t(max(y2 - y1 + 1, 1)) / t(3), t(max(x2 - x1 + 1, 1)) / t(2)
        for i in range(3):
            for j in range(2):
                top, bottom = (int(min(max(v, 0), 7)) for v in (math.floor(t(i) * h) + y1, math.ceil(t(i + 1) * h) + y1))
                left, right = (int(min(max(v, 0), 8)) for v in (math.floor(t(j) * w) + x1, math.ceil(t(j + 1) * w) + x1))
                part = real[int(b), :, top:bottom, left:right].reshape(3, -1)
                parts.append(part.max(1).values if part.shape[1] else real.new_zeros(3))
    want = torch.stack(parts).reshape(len(boxes), 3, 2, 3).permute(0, 3, 1, 2)
    assert got.dtype == x.dtype and where.dtype == mt.int32 and np.array_equal(got.detach().double().numpy(), want.detach().numpy())
    empty = where == -1
    assert empty.any() and not got[empty].any()
    flat = x.detach()[mt.tensor(boxes[:, 0]).long()].reshape(len(boxes), 3, -1)
    assert mt.equal(flat.gather(2, where.clamp(0).long().reshape(len(boxes), 3, -1)).reshape(got.shape).where(~empty, 0), got.detach())
    got.sum().backward()
    want.sum().backward()
    assert np.array_equal(x.grad.double().numpy(), real.grad.numpy())


@pytest.mark.parametrize("count", [0, 1, 300])
def test_nms(way, count):
    rng = np.random.RandomState(count)
    boxes = rng.rand(count, 4) * 30
    boxes[:, 2:] += boxes[:, :2]
    scores = np.round(rng.rand(count), 2)       # (with ties)
    for dtype, limit in (("float32", 0.3), ("float64", 0.6), ("float16", 0.5)):
        b, s = _of(boxes, dtype).reshape(count, 4), _of(scores, dtype)
        kept, seen = [], b.double().numpy() if dtype != "float32" else b.numpy()
        area = (seen[:, 2] - seen[:, 0]) * (seen[:, 3] - seen[:, 1])
        for i in np.argsort(-s.double().numpy(), kind="stable"):
            if kept:
                k = np.array(kept)
                w = np.minimum(seen[i, 2], seen[k, 2]) - np.maximum(seen[i, 0], seen[k, 0])
                h = np.minimum(seen[i, 3], seen[k, 3]) - np.maximum(seen[i, 1], seen[k, 1])
                both = np.maximum(w, 0) * np.maximum(h, 0)
                if (both / (area[i] + area[k] - both) > limit).any():
                    continue
            kept.append(int(i))
        got = ops.nms(b, s, limit)
        assert got.dtype == mt.int64 and got.tolist() == kept


# ------------------------------------------------------------------ deformable convolution
@st.composite
def convolutions(draw):
    rng = np.random.RandomState(draw(st.integers(0, 2 ** 31 - 1)))
    two = st.tuples(st.integers(1, 2), st.integers(1, 2))
    kernel, stride, dilation, pad = draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), draw(two), draw(two), draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    groups, offset_groups, n = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    c, o = 4 if groups * offset_groups > 1 else draw(st.integers(1, 20)), 2 * groups
    h, w = (dilation[i] * (kernel[i] - 1) + draw(st.integers(1, 4)) for i in (0, 1))
    oh, ow = ((e + 2 * pad[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i, e in ((0, h), (1, w)))
    offset = rng.randn(n, 2 * offset_groups * kernel[0] * kernel[1], oh, ow) * 2
    if draw(st.booleans()):
        # at integer positions, where the derivative is the right-hand one
        offset = np.round(offset)
    mask = rng.rand(n, offset_groups * kernel[0] * kernel[1], oh, ow) if draw(st.booleans()) else None
    tensors = rng.randn(n, c, h, w), rng.randn(o, c // groups, *kernel), offset, mask, rng.randn(o)
    return tensors, stride, pad, dilation, groups, offset_groups, draw(st.sampled_from(["float64", "float32"]))


@settings(max_examples=30, deadline=None)
@given(case=convolutions())
def test_deform_conv2d(way, case):
    tensors, stride, pad, dilation, groups, offset_groups, dtype = case
    given = [None if a is None else _of(a, dtype).requires_grad_() for a in tensors]
    real = [None if a is None else torch.tensor(a.detach().numpy(), requires_grad=True) for a in given]
    used = given[3] is not None
    got = ops.deform_conv2d(*given[:3], given[3] if used else mt.zeros(given[0].shape[0], 1, dtype=given[0].dtype), given[4],
                            *stride, *pad, *dilation, groups, offset_groups, used)
    want = plain_deform(*real, stride, pad, dilation, groups, offset_groups)
    tolerance = TOLERANCE[dtype] * 4
    assert got.dtype == given[0].dtype and np.allclose(got.detach().numpy(), want.detach().numpy(), atol=tolerance, rtol=tolerance)
    g = np.random.RandomState(1).randn(*want.shape)
    got.backward(_of(g, dtype))
    want.backward(torch.tensor(g).to(want.dtype))
    for a, b in zip(given, real):
        assert a is None or np.allclose(a.grad.numpy(), b.grad.numpy(), atol=tolerance, rtol=tolerance)


def test_deform_conv2d_double_backward_half_and_errors(way):
    x, w, o, m, b = (mt.randn(s, dtype=mt.float64, requires_grad=True) for s in ((1, 1, 3, 3), (1, 1, 2, 2), (1, 8, 2, 2), (1, 4, 2, 2), (1,)))

    def run(x, w, o, m, b):
        return ops.deform_conv2d(x, w, o, m, b, 1, 1, 0, 0, 1, 1, 1, 1, True)
    assert mt.autograd.gradgradcheck(run, (x, w, o, m, b))
    # (Offsets that depend on the image, as in networks.)
    assert mt.autograd.gradgradcheck(lambda x: run(x, w.detach(), x.mean() * o.detach(), m.detach(), b.detach()), x)
    half = run(*[t.detach().half() for t in (x, w, o, m, b)])
    assert half.dtype == mt.float16 and mt.allclose(half.double(), run(*[t.detach().half().double() for t in (x, w, o, m, b)]), atol=0.05)
    with pytest.raises(RuntimeError, match="offset.shape.1. is not valid: got: 6 expected: 8"):
        run(x, w, o[:, :6], m, b)
    with pytest.raises(RuntimeError, match="mask.shape.1. is not valid"):
        run(x, w, o, m[:, :3], b)
    with pytest.raises(RuntimeError, match="offset output dims"):
        run(x, w, o[:, :, :1], m, b)


# ------------------------------------------------------------------ devices
def test_meta():
    x, rois = mt.empty(2, 8, 9, 10, device="meta"), mt.empty(3, 5, device="meta")
    assert ops.roi_align(x, rois, 1.0, 2, 3, -1, True).shape == (3, 8, 2, 3)
    assert ops.ps_roi_align(x, rois, 1.0, 2, 2, 2)[0].shape == (3, 2, 2, 2) and ops.ps_roi_pool(x, rois, 1.0, 2, 2)[0].shape == (3, 2, 2, 2)
    got, where = ops.roi_pool(x, rois, 1.0, 2, 3)
    assert got.shape == where.shape == (3, 8, 2, 3) and where.is_meta and where.dtype == mt.int32
    wanted = mt.empty(2, 8, 9, 10, device="meta", requires_grad=True)
    ops.roi_align(wanted, rois, 1.0, 2, 3, -1, True).sum().backward()
    assert wanted.grad.is_meta and wanted.grad.shape == wanted.shape
    conv = ops.deform_conv2d(x, mt.empty(4, 8, 3, 3, device="meta"), mt.empty(2, 18, 9, 10, device="meta"), mt.empty(2, 9, 9, 10, device="meta"),
                             mt.empty(4, device="meta"), 1, 1, 1, 1, 1, 1, 1, 1, True)
    assert conv.is_meta and conv.shape == (2, 4, 9, 10)


# ------------------------------------------------------------------ a small detector
@functools.cache
def _once(*numbers):
    return axis(*numbers).float()


class _Pooled(torch.autograd.Function):
    """roi_align with two samples per bin on real PyTorch, region by region; it records its own CPU
    time."""
    spent = 0.0

    @staticmethod
    def forward(ctx, x, rois, scale, size):
        start, ctx.kept, ctx.shape = time.process_time(), [], x.shape
        out = x.new_empty(len(rois), x.shape[1], size, size)
        for k, (b, *box) in enumerate(rois.tolist()):
            x1, y1, x2, y2 = (v * scale - 0.5 for v in box)
            wy, wx = (_once(a, (z - a) / size, size, 2, n) for a, z, n in ((y1, y2, x.shape[2]), (x1, x2, x.shape[3])))
            ctx.kept.append((int(b), wy, wx))
            out[k] = wy @ (x[int(b)] @ wx.T)
        _Pooled.spent += time.process_time() - start
        return out

    @staticmethod
    def backward(ctx, g):
        start, r = time.process_time(), g.new_zeros(ctx.shape)
        for (b, wy, wx), of in zip(ctx.kept, g):
            r[b] += wy.T @ (of @ wx)
        _Pooled.spent += time.process_time() - start
        return r, None, None, None


def _detector(T, pooled, boxes):
    """Returns (a function that computes the losses of one step, parameters by name): a backbone,
    and box-class and mask heads over pooled regions."""
    nn = T.nn
    down = [layer for i, o in ((3, 32), (32, 64), (64, 128), (128, 128)) for layer in (nn.Conv2d(i, o, 3, 2 if o > 32 else 1, 1), nn.BatchNorm2d(o), nn.ReLU())]
    parts = nn.ModuleDict({"backbone": nn.Sequential(*down), "box": nn.Sequential(nn.Flatten(), nn.Linear(128 * 49, 256), nn.ReLU(), nn.Linear(256, 5)),
                          "mask": nn.Sequential(nn.Conv2d(128, 64, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(64, 32, 2, 2), nn.ReLU(), nn.Conv2d(32, 1, 1))})

    def losses(image, classes, masks):
        seen = parts["backbone"](image)
        found = nn.functional.cross_entropy(parts["box"](pooled(seen, boxes, 0.125, 7)), classes)
        return found, nn.functional.binary_cross_entropy_with_logits(parts["mask"](pooled(seen, boxes[:32], 0.125, 14))[:, 0], masks)
    return losses, parts


@pytest.mark.slow
def test_detector_trains_as_on_torch():
    rng = np.random.RandomState(0)
    corner = rng.uniform(0, 90, (256, 2))
    boxes = np.concatenate([rng.randint(0, 2, (256, 1)), corner, corner + rng.uniform(4, 60, (256, 2))], 1).astype(np.float32)
    image, classes, masks = rng.rand(2, 3, 128, 128).astype(np.float32), rng.randint(0, 5, 256), (rng.rand(32, 28, 28) > 0.5).astype(np.float32)
    results, state = [], None
    for T, pooled in ((torch, _Pooled.apply), (mt, lambda x, rois, scale, size: ops.roi_align(x, rois, scale, size, size, 2, True))):
        losses, parts = _detector(T, pooled, T.from_numpy(boxes))
        if state is None:
            state = {k: v.numpy().copy() for k, v in parts.state_dict().items()}
        parts.load_state_dict({k: T.from_numpy(v) for k, v in state.items()})
        opt, got, cost = T.optim.SGD(parts.parameters(), 0.01, momentum=0.9), [], []
        for _ in range(4):
            start, _Pooled.spent = time.process_time(), 0.0
            opt.zero_grad()
            both = losses(*map(T.from_numpy, (image, classes, masks)))
            sum(both).backward()
            opt.step()
            cost.append(time.process_time() - start - _Pooled.spent)
            got.append([v.item() for v in both])
        results.append((np.array(got), min(cost)))
    (want, theirs), (got, own) = results
    assert np.isfinite(got).all() and got[-1].sum() < got[0].sum()
    assert np.allclose(got, want, rtol=2e-3)
    # (PyTorch's time excludes its region ops: it covers only convolutions, norms, heads and the
    # optimizer.)
    assert own < 3 * theirs, f"a step takes {own:.3f} s of CPU time, torch's without regions {theirs:.3f} s"
