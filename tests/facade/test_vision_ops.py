"""The operators of torchvision compared with plain formulas (torchvision itself is not needed)."""
import math

import numpy as np
import pytest

import mindtorch.torch as mt

ops = mt.ops.torchvision
RNG = np.random.RandomState(0)


def bilinear(image, y, x):
    """Interpolates image[H, W] at a real-valued position: zero more than one pixel outside, clamped
    within that margin."""
    h, w = image.shape
    if y < -1 or y > h or x < -1 or x > w:
        return 0.0
    y, x = max(y, 0), max(x, 0)
    y0, x0 = min(int(y), h - 1), min(int(x), w - 1)
    y1, x1 = min(y0 + 1, h - 1), min(x0 + 1, w - 1)
    y, x = (y0 if y0 == h - 1 else y), (x0 if x0 == w - 1 else x)
    ly, lx = y - y0, x - x0
    return (image[y0, x0] * (1 - ly) * (1 - lx) + image[y0, x1] * (1 - ly) * lx + image[y1, x0] * ly * (1 - lx) + image[y1, x1] * ly * lx)


def plain_nms(boxes, scores, limit):
    keep = []
    for i in np.argsort(-scores, kind="stable"):
        for j in keep:
            a, b = boxes[i], boxes[j]
            w, h = max(0, min(a[2], b[2]) - max(a[0], b[0])), max(0, min(a[3], b[3]) - max(a[1], b[1]))
            area = [(q[2] - q[0]) * (q[3] - q[1]) for q in (a, b)]
            if w * h / (sum(area) - w * h) > limit:
                break
        else:
            keep.append(int(i))
    return keep


def test_nms():
    boxes = RNG.rand(60, 4).astype(np.float32) * 20
    boxes[:, 2:] += boxes[:, :2]
    scores = RNG.rand(60).astype(np.float32)
    for limit in (0.2, 0.5, 0.8):
        assert ops.nms(mt.from_numpy(boxes), mt.from_numpy(scores), limit).tolist() == plain_nms(boxes, scores, limit)
    assert ops.nms(mt.zeros(0, 4), mt.zeros(0), 0.5).shape == (0,)
    with pytest.raises(RuntimeError, match="4 elements"):
        ops.nms(mt.zeros(2, 3), mt.zeros(2), 0.5)


ROIS = np.array([[0, 1.2, 2.3, 7.9, 8.1], [1, 0, 0, 3, 3], [0, 5, 5, 5.5, 20], [1, -3, -2, 4, 4]])


@pytest.mark.parametrize("ratio, aligned, scale", [(2, False, 1.0), (2, True, 0.5), (0, True, 1.0), (3, False, 0.5)])
def test_roi_align(ratio, aligned, scale):
    a = RNG.randn(2, 3, 9, 10)
    x = mt.from_numpy(a.copy()).requires_grad_()
    got = ops.roi_align(x, mt.from_numpy(ROIS), scale, 3, 2, ratio, aligned)
    want = np.zeros((4, 3, 3, 2))
    for k, (b, x1, y1, x2, y2) in enumerate(ROIS):
        shift = 0.5 if aligned else 0
        x1, y1, x2, y2 = (v * scale - shift for v in (x1, y1, x2, y2))
        w, h = (x2 - x1, y2 - y1) if aligned else (max(x2 - x1, 1), max(y2 - y1, 1))
        bh, bw = h / 3, w / 2
        ny, nx = (ratio, ratio) if ratio else (math.ceil(bh), math.ceil(bw))
        for c in range(3):
            for i in range(3):
                for j in range(2):
                    want[k, c, i, j] = np.mean([bilinear(a[int(b), c], y1 + i * bh + (p + .5) * bh / ny, x1 + j * bw + (q + .5) * bw / nx)
                                                for p in range(ny) for q in range(nx)])
    assert np.allclose(got.detach().numpy(), want)
    assert mt.autograd.gradcheck(lambda v: ops.roi_align(v, mt.from_numpy(ROIS[:2]), scale, 2, 2, ratio, aligned), (x[:, :1].detach().contiguous().requires_grad_(),))


def test_roi_pool():
    a = RNG.randn(2, 3, 9, 10)
    x = mt.from_numpy(a.copy()).requires_grad_()
    rois = np.array([[0, 1, 2, 7, 8], [1, 0, 0, 3, 3.0]])
    got, where = ops.roi_pool(x, mt.from_numpy(rois), 1.0, 2, 2)
    for k, (b, x1, y1, x2, y2) in enumerate(rois.astype(int)):
        bh, bw = (y2 - y1 + 1) / 2, (x2 - x1 + 1) / 2
        for i in range(2):
            for j in range(2):
                part = a[b, :, y1 + math.floor(i * bh):y1 + math.ceil((i + 1) * bh), x1 + math.floor(j * bw):x1 + math.ceil((j + 1) * bw)]
                assert np.allclose(got[k, :, i, j].detach().numpy(), part.reshape(3, -1).max(1))
    assert np.allclose(a[0].reshape(3, -1)[np.arange(3), where[0, :, 1, 1].numpy()], got[0, :, 1, 1].detach().numpy())
    got.sum().backward()
    assert x.grad.sum().item() == got.numel()


def test_position_sensitive():
    a = RNG.randn(1, 8, 8, 8)
    x = mt.from_numpy(a.copy()).requires_grad_()
    rois = mt.tensor([[0, 1.0, 1.0, 6.0, 7.0]], dtype=mt.float64)
    got, channel = ops.ps_roi_align(x, rois, 1.0, 2, 2, 2)
    full = ops.roi_align(x, rois, 1.0, 2, 2, 2, True)
    for c in range(2):
        for i in range(2):
            for j in range(2):
                k = c * 4 + i * 2 + j
                assert channel[0, c, i, j] == k and abs((got[0, c, i, j] - full[0, k, i, j]).item()) < 1e-12
    pooled, _ = ops.ps_roi_pool(x, rois, 1.0, 2, 2)
    assert abs(pooled[0, 1, 1, 0].item() - a[0, 6, 4:7, 1:4].mean()) < 1e-12
    (got.sum() + pooled.sum()).backward()
    assert x.grad.abs().sum() > 0


@pytest.mark.parametrize("groups, offset_groups, masked", [(1, 1, False), (2, 1, True), (1, 2, True)])
def test_deform_conv2d(groups, offset_groups, masked):
    n, c, h, w, o, kh, kw, stride, pad, dil = 2, 4, 6, 5, 4, 3, 2, 2, 1, 1
    oh, ow = (h + 2 * pad - dil * (kh - 1) - 1) // stride + 1, (w + 2 * pad - dil * (kw - 1) - 1) // stride + 1
    a, k, bias = RNG.randn(n, c, h, w), RNG.randn(o, c // groups, kh, kw), RNG.randn(o)
    off = RNG.randn(n, 2 * offset_groups * kh * kw, oh, ow)
    m = RNG.rand(n, offset_groups * kh * kw, oh, ow) if masked else np.ones((n, offset_groups * kh * kw, oh, ow))
    tensors = [mt.from_numpy(v.copy()).requires_grad_() for v in (a, k, off, m, bias)]

    def run(*t):
        return ops.deform_conv2d(*t, stride, stride, pad, pad, dil, dil, groups, offset_groups, masked)

    def value(image, y, x):  # zero outside, as in deformable convolution
        y0, x0 = math.floor(y), math.floor(x)
        return sum(image[p, q] * (1 - abs(y - p)) * (1 - abs(x - q)) for p in (y0, y0 + 1) for q in (x0, x0 + 1) if 0 <= p < h and 0 <= q < w)
    want = np.zeros((n, o, oh, ow))
    for b in range(n):
        for f in range(o):
            g = f // (o // groups)
            for i in range(oh):
                for j in range(ow):
                    s = bias[f]
                    for ci in range(c // groups):
                        ch = g * (c // groups) + ci
                        og = ch // (c // offset_groups)
                        for p in range(kh):
                            for q in range(kw):
                                t = og * kh * kw + p * kw + q
                                y = i * stride - pad + p * dil + off[b, 2 * t, i, j]
                                x = j * stride - pad + q * dil + off[b, 2 * t + 1, i, j]
                                s += k[f, ci, p, q] * m[b, t, i, j] * value(a[b, ch], y, x)
                    want[b, f, i, j] = s
    got = run(*tensors)
    assert np.allclose(got.detach().numpy(), want)
    weight = mt.from_numpy(RNG.randn(*want.shape))
    grads = mt.autograd.grad((got * weight).sum(), tensors, allow_unused=True)
    for t, g in zip(tensors, grads):
        if t is tensors[3] and not masked:
            continue
        flat, at = t.detach().clone(), tuple(RNG.randint(0, s) for s in t.shape)
        step = []
        for e in (1e-6, -1e-6):
            moved = flat.clone()
            moved[at] += e
            step.append((run(*[moved if u is t else u.detach() for u in tensors]) * weight).sum().item())
        assert abs((step[0] - step[1]) / 2e-6 - g[at].item()) < 1e-4


def test_pictures(tmp_path):
    pytest.importorskip("PIL", reason="Pillow is not installed")
    x = mt.from_numpy(RNG.randint(0, 256, (3, 7, 9)).astype(np.uint8))
    image = mt.ops.image
    data = image.encode_png(x, 6)
    assert mt.equal(image.decode_png(data, 0), x) and image.decode_image(data, 1).shape == (1, 7, 9)
    image.write_file(str(tmp_path / "a.png"), data)
    assert mt.equal(image.read_file(str(tmp_path / "a.png")), data)
    back = image.decode_jpeg(image.encode_jpeg(mt.full((3, 16, 16), 100, dtype=mt.uint8), 95), 3)
    assert back.shape == (3, 16, 16) and (back.int() - 100).abs().max() <= 3
    with pytest.raises(RuntimeError, match="not an image"):
        image.decode_png(mt.zeros(10, dtype=mt.uint8), 0)
    with pytest.raises(NotImplementedError, match="qnms"):
        mt.ops.torchvision.qnms(mt.zeros(1, 4), mt.zeros(1), 0.5)
