"""Scans, sorting, searching and counting on the npu device: values, dtypes, shapes and gradients
match the CPU device, without host fallbacks."""
import numpy as np
import pytest
import torch

import mindtorch.torch as mt
from _device_pairs import BF16, BOOL, ELSEWHERE, F16, F32, F64, I32, I64, both

REAL = (F32, F64, I64, I32, mt.uint8, F16, BF16)
OTHERS = ELSEWHERE | {"conj", "exp", "ones_like", "lerp", "sub", "isnan", "conj_physical"}

SCANS = {
    "cumsum": (lambda d, x: mt.cumsum(x, 1), [(3, 5)]),
    "cumsum first": (lambda d, x: mt.cumsum(x, 0), [(3, 5)]),
    "cumsum scalar": (lambda d, x: mt.cumsum(x, 0), [()]),
    "cumprod": (lambda d, x: mt.cumprod(x, 1), [(3, 5)]),
    "cummax": (lambda d, x: mt.cummax(x, 1), [(3, 5)]),
    "cummin": (lambda d, x: mt.cummin(x, 0), [(3, 5)]),
    "diff": (lambda d, x: mt.diff(x, dim=1), [(3, 5)]),
}


@pytest.mark.parametrize("name", SCANS)
def test_scans(npu, name):
    f, shapes = SCANS[name]
    for dtype in REAL + ((BOOL,) if name in ("cumsum", "diff") else ()):
        if name != "cumprod" or dtype is not BF16:  # the host rounds its products at every step
            both(npu, f, shapes, dtype, exact=False, allowed=OTHERS)


def test_logcumsumexp_and_cumulative_trapezoid(npu):
    for dtype in (F32, F64):
        both(npu, lambda d, x: mt.logcumsumexp(x, 1), [(3, 5)], dtype, exact=False, allowed=OTHERS)
        both(npu, lambda d, x: mt.cumulative_trapezoid(x), [(3, 5)], dtype, exact=False, allowed=OTHERS)


ORDERS = {
    "sort": lambda d, x: mt.sort(x, 0),
    "sort down": lambda d, x: mt.sort(x, 1, True),
    "argsort": lambda d, x: mt.argsort(x, 1),
    "topk": lambda d, x: mt.topk(x, 2, 1),
    "topk least": lambda d, x: mt.topk(x, 2, 0, False),
    "kthvalue": lambda d, x: mt.kthvalue(x, 2, 1),
    "median": lambda d, x: (mt.median(x), *mt.median(x, 1)),
    "unique": lambda d, x: mt.unique(x.detach(), return_inverse=True, return_counts=True),
    "unique along": lambda d, x: mt.unique(x.detach()[:, :2], return_inverse=True, return_counts=True, dim=0),
    "unique consecutive": lambda d, x: mt.unique_consecutive(x.detach() > 0, return_inverse=True, return_counts=True),
    "isin": lambda d, x: mt.isin(x.detach(), x.detach()[0]),
    "searchsorted": lambda d, x: mt.searchsorted(mt.sort(x.detach())[0], x.detach(), right=True),
    "mode": lambda d, x: mt.mode(x, 1),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders(npu, name):
    for dtype in REAL:
        if name in ("topk", "topk least", "kthvalue") and not dtype.is_floating_point:
            continue  # the order of equal elements is up to the device
        if dtype is BF16 and name in ("unique", "unique along", "isin") or name == "searchsorted" and dtype in (mt.uint8, F16, BF16):
            continue
        both(npu, ORDERS[name], [(4, 7)], dtype, allowed=OTHERS | {"gt", "greater"})


@pytest.mark.parametrize("dtype", [F32, F64, F16])
def test_nan_is_the_largest(npu, dtype):
    x = mt.tensor([[3, 1, np.nan, 1, 3, -np.inf, np.inf, -np.nan, 0., -0.]], dtype=dtype)
    for down in (False, True):
        for mine, theirs in zip(mt.sort(x.to(npu), 1, down), mt.sort(x, 1, down)):
            np.testing.assert_array_equal(mine.cpu().float().numpy(), theirs.float().numpy())
    np.testing.assert_array_equal(mt.topk(x.to(npu), 3)[0].cpu().float().numpy(), mt.topk(x, 3)[0].float().numpy())


def test_long_rows_on_the_npu(npu):
    x = mt.from_numpy(np.random.RandomState(0).permutation(20000).astype(np.float32).reshape(2, 10000))
    for largest in (True, False):
        for mine, theirs in zip(mt.topk(x.to(npu), 5, 1, largest), mt.topk(x, 5, 1, largest)):
            np.testing.assert_array_equal(mine.cpu().numpy(), theirs.numpy())


def test_quantiles(npu):
    for how in ("linear", "lower", "higher", "midpoint", "nearest"):
        for dtype in (F32, F64):
            both(npu, lambda d, x: mt.quantile(x, d(mt.tensor([0.1, 0.5, 1.0], dtype=x.dtype)), 1, interpolation=how), [(3, 5)], dtype, exact=False, allowed=OTHERS)


def test_counts(npu):
    i = mt.tensor([0, 3, 3, 1])
    assert mt.bincount(i.to(npu), minlength=6).cpu().tolist() == [1, 1, 0, 2, 0, 0]
    w = mt.tensor([.5, 1, 2, 3])
    r = mt.bincount(i.to(npu), w.to(npu))
    assert r.dtype == F32 and r.cpu().tolist() == [.5, 3, 0, 3]
    both(npu, lambda d, x: mt.histc(x.detach(), 5), [(30,)], F32, allowed=OTHERS)
    both(npu, lambda d, x: mt.histc(x.detach(), 4, -3, 3), [(30,)], F64, allowed=OTHERS)


@pytest.mark.parametrize("dtype", [mt.int32, mt.int64, mt.uint8])
def test_integer_histc_is_supported_on_the_npu_only(npu, dtype):
    x = mt.tensor([3, 0, 7, 7, 1, 49, 9, 30], dtype=dtype)
    for bins, low, high in ((8, 0, 7), (50, 0, 49), (5, 0, 0), (7, 3, 30), (49, 0, 49), (3, 9, 9), (2, 60, 70)):
        r = mt.histc(x.to(npu), bins, low, high)
        expected = torch.histc(torch.tensor(x.tolist(), dtype=torch.float64), bins, low, high)
        assert r.dtype == dtype and r.device.type == "npu" and r.tolist() == expected.tolist()
    assert mt.histc(mt.full((4,), 9, dtype=dtype, device=npu), 2).tolist() == torch.histc(torch.full((4,), 9.0), 2).tolist()
    with pytest.raises(RuntimeError, match="max must be larger"):
        mt.histc(x.to(npu), 3, 2, 1)
    with pytest.raises(NotImplementedError, match="histc"):
        mt.histc(x, 3)
