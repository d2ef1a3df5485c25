"""Factorizations, Fourier transforms and recurrent layers on the npu device: values, dtypes and
gradients match the CPU, without host fallbacks."""
import contextlib

import numpy as np
import pytest

import mindtorch.torch as mt
from mindtorch.core.device import device_dispatch

REAL, ALL = (mt.float32, mt.float64), (mt.float32, mt.float64, mt.complex64, mt.complex128)


@contextlib.contextmanager
def alone():
    before = dict(device_dispatch.FALLBACKS)
    yield
    assert {k for k, n in device_dispatch.FALLBACKS.items() if n != before.get(k)} == set()


def random(shape, dtype, seed=0):
    rs = np.random.RandomState(seed)
    a = rs.randn(*shape)
    return mt.tensor(a + 1j * rs.randn(*shape) if dtype.is_complex else a, dtype=dtype)


def outs(r):
    return [x for x in (r if isinstance(r, tuple) else (r,)) if isinstance(x, mt.Tensor)]


def compare(f, args, npu, grad=True):
    """Compares `f` on both devices: values, dtypes, shapes, and the gradients of a weighted sum."""
    found = []
    for dev in ("cpu", npu):
        ins = [a.detach().to(dev).requires_grad_(grad) for a in args]
        rs = outs(f(*ins))
        grads = []
        if grad:
            total = 0
            for k, r in enumerate(rs):
                if r.requires_grad:
                    v = mt.view_as_real(r) if r.is_complex() else r
                    total = total + (v * mt.tensor(np.random.RandomState(k).rand(*v.shape), dtype=v.dtype, device=dev)).sum()
            grads = mt.autograd.grad(total, ins, allow_unused=True, materialize_grads=True)
        found.append([*rs, *grads])
    for a, b in zip(*found):
        assert b.device.type == "npu" and a.dtype == b.dtype and a.shape == b.shape
        tol = 2e-3 if a.dtype in (mt.float32, mt.complex64) else 2e-2 if a.dtype in (mt.float16, mt.bfloat16) else 1e-8
        x, y = (t.detach().cpu().to(mt.float32 if t.dtype == mt.bfloat16 else t.dtype).numpy() for t in (a, b))
        np.testing.assert_allclose(y, x, rtol=tol, atol=tol * max(1, np.abs(x).max() if x.size else 1))


def spd(a):
    return a @ a.mH + 2 * mt.eye(a.shape[-1], dtype=a.dtype, device=a.device)


# ------------------------------------------------------------------ Fourier transforms
@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("norm", ["backward", "forward", "ortho"])
def test_transforms(npu, dtype, norm):
    x = random((2, 3, 6), dtype)
    fs = [lambda t: mt.fft.fft(t, norm=norm), lambda t: mt.fft.ifft(t, 5, 1, norm), lambda t: mt.fft.fftn(t, dim=(2, 0), norm=norm),
          lambda t: mt.fft.ifft2(t, norm=norm), lambda t: mt.fft.irfft(t, norm=norm), lambda t: mt.fft.irfftn(t, (4, 7), (0, 2), norm),
          lambda t: mt.fft.hfft(t, 7, norm=norm)]
    if not dtype.is_complex:
        fs += [lambda t: mt.fft.rfft(t, norm=norm), lambda t: mt.fft.rfftn(t, (5, 4), (1, 0), norm), lambda t: mt.fft.ihfft(t, norm=norm)]
    with alone():
        for f in fs:
            compare(f, [x], npu)
        compare(lambda t: mt.fft.fft(t.transpose(0, 2)), [x], npu)


def test_spectrograms(npu):
    with alone():
        compare(lambda t: mt.stft(t, 16, 4, window=mt.hann_window(16, device=t.device), return_complex=True), [random((2, 64), mt.float32)], npu)


# ------------------------------------------------------------------ systems, inverses, factors
@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4), (2, 1, 5, 5)])
def test_solve_and_inverse(npu, dtype, shape):
    n = shape[-1]
    a, b = random(shape, dtype) + 2 * mt.eye(n, dtype=dtype), random((*shape[:-2], n, 3), dtype, 1)
    low = a.tril() + 3 * mt.eye(n, dtype=dtype)
    with alone():
        compare(mt.linalg.inv, [a], npu)
        compare(mt.linalg.inv, [a.mT], npu)
        compare(lambda x: mt.linalg.inv_ex(x), [a], npu)
        compare(mt.linalg.solve, [a, b], npu)
        compare(mt.linalg.solve, [a, b[..., 0, :, :] if len(shape) > 3 else b], npu)
        compare(lambda x, y: mt.linalg.solve(x, y, left=False), [a, b.mT.contiguous()], npu)
        compare(lambda x, y: mt.linalg.solve(x, y), [a[(0,) * (len(shape) - 2)], b[(0,) * (len(shape) - 2)][:, 0]], npu)
        compare(mt.linalg.det, [a], npu)
        for upper in (False, True):
            t = low.mT.contiguous() if upper else low
            for unit in (False, True):
                for left in (False, True):
                    compare(lambda x, y: mt.linalg.solve_triangular(x, y, upper=upper, unitriangular=unit, left=left), [t, b if left else b.mT], npu)
            compare(lambda y, x: mt.triangular_solve(y, x, upper=upper, transpose=upper), [b, t], npu)
            compare(lambda y, x: mt.cholesky_solve(y, x, upper=upper), [b, t], npu)
            compare(lambda x: mt.cholesky_inverse(x, upper=upper), [t], npu)
        compare(lambda x: mt.linalg.matrix_power(x, 3), [a], npu)
        compare(lambda x: mt.linalg.matrix_power(x, -2), [a], npu)
        compare(lambda x: mt.linalg.matrix_power(x, 0), [a], npu, grad=False)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4), (70, 70)])
def test_real_factorizations(npu, dtype, shape):
    a = random(shape, dtype)
    with alone():
        compare(mt.linalg.slogdet, [a], npu)
        for upper in (False, True):
            compare(lambda x: mt.linalg.cholesky(spd(x), upper=upper), [a], npu)
        compare(lambda x: mt.linalg.cholesky_ex(x), [spd(a)], npu)
        compare(lambda x: mt.linalg.cholesky(x), [spd(a).tril() + random(shape, dtype, 3).triu(1)], npu, grad=False)
        compare(mt.geqrf, [a], npu, grad=False)
        compare(mt.logdet, [spd(a)], npu)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 5, 3), (3, 5)])
def test_orthogonal_factorizations(npu, dtype, shape):
    a = random(shape, dtype)
    k = min(shape[-2:])
    with alone():
        compare(lambda x: mt.linalg.qr(x), [a], npu, grad=shape[-2] >= shape[-1])
        compare(lambda x: mt.linalg.qr(x, "complete"), [a], npu, grad=False)
        compare(lambda x: mt.linalg.qr(x, "r"), [a], npu, grad=False)
        if shape[-2] >= shape[-1]:
            tau = random((*shape[:-2], k), dtype, 2)
            compare(mt.linalg.householder_product, [a, tau], npu, grad=False)
            for left in (True, False):
                c = random((*shape[:-2], *((shape[-2], 2) if left else (2, shape[-2]))), dtype, 4)
                for transpose in (False, True):
                    compare(lambda x, t, y: mt.ormqr(x, t, y, left, transpose), [a, tau, c], npu, grad=False)


def test_singular_matrices_raise_as_on_the_host(npu):
    one, nan = mt.tensor([[1., 2.], [2., 4.]]), mt.tensor([[1., float("nan")], [2., 4.]])
    stack = mt.stack([mt.eye(2), one])
    for f in (mt.linalg.inv, lambda x: mt.linalg.solve(x, mt.ones(2, 1, device=x.device)), mt.linalg.cholesky, lambda x: mt.cholesky_inverse(x * 0)):
        for a in (one, stack):
            with pytest.raises(mt.linalg.LinAlgError) as there:
                f(a)
            with pytest.raises(mt.linalg.LinAlgError) as here:
                f(a.to(npu))
            assert str(here.value) == str(there.value)
    for f in (mt.linalg.inv_ex, mt.linalg.cholesky_ex, lambda x: mt.linalg.solve_ex(x, mt.ones(2, 1, device=x.device)), mt.linalg.det,
              lambda x: mt.linalg.slogdet(x)[1]):
        for a in (one, nan, stack):
            for x, y in zip(outs(f(a)), outs(f(a.to(npu)))):
                np.testing.assert_array_equal(y.cpu().numpy(), x.numpy())
    np.testing.assert_array_equal(mt.linalg.inv(nan.to(npu)).cpu().numpy(), mt.linalg.inv(nan).numpy())


# ------------------------------------------------------------------ recurrent layers
@pytest.mark.parametrize("kind,options", [("GRU", {}), ("GRU", {"bias": False, "bidirectional": True, "num_layers": 2}), ("RNN", {}),
                                          ("RNN", {"nonlinearity": "relu", "bidirectional": True}), ("RNN", {"bias": False})])
def test_recurrent_layers(npu, kind, options):
    for dtype in (mt.float32, mt.float64):
        mt.manual_seed(0)
        layer = getattr(mt.nn, kind)(3, 4, **options).to(dtype)
        found = []
        for dev in ("cpu", npu):
            m, x = layer.to(dev), random((5, 2, 3), dtype).to(dev).requires_grad_()
            h = random(((1 + m.bidirectional) * m.num_layers, 2, 4), dtype, 1).to(dev).requires_grad_()
            with alone():
                y, last = m(x, h)
                grads = mt.autograd.grad((y * y).sum() + last.sin().sum(), [x, h, *m.parameters()])
                with mt.no_grad():
                    again = m(x, h)[0]
            found.append([t.detach().cpu().numpy() for t in (y, last, again, *grads)])
        for a, b in zip(*found):
            np.testing.assert_allclose(b, a, rtol=1e-4 if dtype is mt.float32 else 1e-9, atol=1e-5 if dtype is mt.float32 else 1e-10)


@pytest.mark.parametrize("kind", ["GRU", "RNN"])
def test_recurrent_cells_and_packed_sequences(npu, kind):
    cell, x, h = getattr(mt.nn, kind + "Cell")(3, 4), random((2, 3), mt.float32), random((2, 4), mt.float32, 1)
    for dtype in (mt.float32, mt.bfloat16, mt.float16):
        there, here = cell.to("cpu", dtype)(x.to(dtype), h.to(dtype)).detach(), cell.to(npu, dtype)(x.to(npu, dtype), h.to(npu, dtype)).detach()
        assert here.dtype == dtype
        np.testing.assert_allclose(here.cpu().float().numpy(), there.float().numpy(), atol=1e-5 if dtype is mt.float32 else 1e-2)
    layer, packed = getattr(mt.nn, kind)(3, 4), [random((n, 3), mt.float32, n) for n in (4, 2, 1)]
    there = layer(mt.nn.utils.rnn.pack_sequence(packed))[1].detach().numpy()
    here = layer.to(npu)(mt.nn.utils.rnn.pack_sequence([p.to(npu) for p in packed]))[1].detach().cpu().numpy()
    np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------ margins, triangles
def test_margin_and_gaussian_losses(npu):
    x, t = random((4, 5), mt.float32), mt.tensor([0, 4, 2, 2])
    many = mt.tensor([[0, 3, -1, 1, 1], [-1, 0, 0, 0, 0], [4, 3, 2, 1, 0], [2, 2, -1, -1, 3]])
    F = mt.nn.functional
    with alone():
        for p in (1, 2):
            compare(lambda v: F.multi_margin_loss(v, t.to(v.device), p=p), [x], npu)
        compare(lambda v: F.multilabel_margin_loss(v, many.to(v.device), reduction="none"), [x], npu)
        compare(lambda v: F.multilabel_margin_loss(v[0], many[0].to(v.device)), [x], npu)
        for dtype in (mt.float32, mt.float64, mt.bfloat16, mt.float16):
            v = mt.tensor([[0.0, 1e-9, 2.0, 3.0, 1.0]] * 4, dtype=dtype)
            compare(lambda a, b: F.gaussian_nll_loss(a, mt.zeros_like(a), b, eps=1e-2), [x.to(dtype), v], npu)
    for dev in ("cpu", npu):
        with pytest.raises(RuntimeError, match="target out of range"):
            F.multi_margin_loss(x.to(dev), mt.tensor([0, 1, 5, 2], device=dev))
        with pytest.raises(RuntimeError, match="target out of range"):
            F.multilabel_margin_loss(x.to(dev), (many + 1).to(dev))
        with pytest.raises(ValueError, match="negative"):
            F.gaussian_nll_loss(x.to(dev), x.to(dev), -x.to(dev).abs())


@pytest.mark.parametrize("dtype", [mt.complex64, mt.complex128, mt.bool, mt.bfloat16, mt.float16, mt.float64, mt.uint8, mt.int64])
def test_padding_and_triangles_of_every_dtype(npu, dtype):
    x = (random((2, 3, 4), mt.complex128 if dtype.is_complex else mt.float64) * 3).to(dtype)
    with alone():
        for pads in ([1, 2], [0, 0, 1, 1], [-1, 2, 0, 1, 1, 0], [-1, -1]):
            for value in ([0] if dtype.is_complex else [0, 1, 2.5] if dtype.is_floating_point else [0, 1]):
                compare(lambda v: mt.nn.functional.pad(v, pads, value=value), [x], npu, grad=False)
        for k in (-1, 0, 2):
            compare(lambda v: mt.tril(v, k), [x], npu, grad=False)
            compare(lambda v: mt.triu(v, k), [x], npu, grad=False)


def test_integer_max_pool_indices(npu):
    x = mt.arange(2 * 36).reshape(1, 2, 6, 6) % 7
    for n, kernel in ((2, 2), (2, 3)):
        there = mt.nn.functional.max_pool2d(x, kernel, stride=2, return_indices=True)
        here = mt.nn.functional.max_pool2d(x.to(npu), kernel, stride=2, return_indices=True)
        for a, b in zip(there, here):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(b.cpu().numpy(), a.numpy())
    compare(lambda v: mt.nn.functional.max_pool2d(v, 3, 2, return_indices=True), [random((1, 2, 7, 7), mt.float32)], npu)
