"""Every reduction, and the ops built on reductions, on equal, tiny and huge values, against
PyTorch.

An element is correct if it equals PyTorch's, is near it, or is near the exact result. "Near" allows
for PyTorch's own error, measured against a float64 computation by PyTorch from the same inputs.
Where PyTorch is exact, as in the deviation of equal values, no error is allowed.
"""
import math
import warnings

import numpy as np
import pytest
import torch
from _parity import few
from hypothesis import given
from hypothesis import strategies as st

import mindtorch.torch as mt

DIM = "sum mean nansum nanmean amax amin std var std_mean var_mean logsumexp softmax log_softmax cumsum cumprod prod trapezoid cumulative_trapezoid".split()
WHOLE = "sum mean prod norm amax std_mean var_mean".split()
ORDERS = (0, 0.5, 1, 1.5, 2, 3, math.inf, -math.inf)
#: For each dtype: values that fill or scale a tensor; the squares of many of them overflow or
#: underflow.
SIZES = {"float32": (0.1, -5.1, 1 / 3, 1e-7, 1e-25, 1e-30, 1e20, 2e22), "float64": (0.1, -5.1, 1 / 3, 1e-150, 1e-200, 1e160, 1e200),
         "float16": (0.1, -5.1, 1e-4, 300.0, 60000.0), "bfloat16": (0.1, -5.1, 1e-25, 1e-30, 1e20)}
NEAR = {"float32": 1e-5, "float64": 1e-10, "float16": 3e-3, "bfloat16": 2e-2}


def _clipped(t, x, dim):
    p = t.nn.Parameter(t.zeros_like(x))
    p.grad = x.detach().clone()
    return t.nn.utils.clip_grad_norm_(p, 1.0), p.grad


def _looked_up(t, x, dim):
    w = x.detach().clone()
    return t.nn.functional.embedding(t.tensor([0]), w, max_norm=0.5), w


def _normed(t, x, dim):
    m = t.nn.BatchNorm1d(x.shape[1]).to(x.dtype)
    return (m.running_mean, m.running_var) if x.shape[0] < 2 else (m(x), m.running_mean, m.running_var)


OPS = {
    **{n: (lambda t, x, dim, n=n: getattr(t, n)(x, dim=dim)) for n in DIM},
    **{f"{n} of all": (lambda t, x, dim, n=n: getattr(t, n)(x)) for n in WHOLE},
    **{f"std {k}": (lambda t, x, dim, k=k: t.std(x, dim, keepdim=True, correction=k)) for k in (0, 1.5)},
    **{f"norm {p}": (lambda t, x, dim, p=p: t.linalg.vector_norm(x, p, dim=dim)) for p in ORDERS},
    **{f"norm of all {p}": (lambda t, x, dim, p=p: x.norm(p)) for p in ORDERS},
    **{f"normalize {p}": (lambda t, x, dim, p=p: t.nn.functional.normalize(x.detach(), p, dim=dim)) for p in (1, 2, math.inf)},
    **{f"pairwise_distance {p}": (lambda t, x, dim, p=p: t.nn.functional.pairwise_distance(x, x.detach() * 0, p, eps=0.0)) for p in (1, 2, math.inf)},
    **{f"dist {p}": (lambda t, x, dim, p=p: t.dist(x, x.detach() * 0, p)) for p in (1, 2, math.inf)},
    **{f"renorm {p}": (lambda t, x, dim, p=p: t.renorm(x.detach(), p, 0, 0.5)) for p in (1, 2, 3)},
    "std over both": lambda t, x, dim: t.std(x[:, None].expand(-1, 4, -1), (0, 1)),
    "frobenius": lambda t, x, dim: t.linalg.matrix_norm(x),
    "cosine_similarity": lambda t, x, dim: t.cosine_similarity(x.detach(), x.detach() * 1.5, dim),
    "clip_grad_norm_": _clipped,
    "embedding": _looked_up,
    "batch_norm": lambda t, x, dim: tuple([y.detach() for y in _normed(t, x, dim)][-2:]),
    "avg_pool": lambda t, x, dim: t.nn.functional.avg_pool1d(x[None], x.shape[1]),
    "lp_pool": lambda t, x, dim: t.nn.functional.lp_pool1d(x[None], 2, x.shape[1]),
    "mse_loss": lambda t, x, dim: t.nn.functional.mse_loss(x, x.detach() * 0.5),
    "local_response_norm": lambda t, x, dim: t.nn.functional.local_response_norm(x[None], 2),
}
#: Ops that PyTorch lacks in 16-bit dtypes, or that round to them between steps.
WIDE = ("clip_grad_norm_", "trapezoid", "cumulative_trapezoid")


def _outcome(t, f, values, dtype, dim, grad):
    x = t.from_numpy(values.copy()).to(getattr(t, dtype)).requires_grad_(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if t is torch else "error")
        r = f(t, x, dim)
        r = list(r) if isinstance(r, tuple) else [r]
        if grad and r[0].requires_grad:
            g, = t.autograd.grad(sum([y.sum() for y in r if y.requires_grad]), x, allow_unused=True)
            r.append(t.zeros_like(x) if g is None else g)
    return [y.detach().to(t.float64).numpy() for y in r]


def agree(name, values, dtype, dim):
    f = OPS[name]
    same = torch.from_numpy(values).to(getattr(torch, dtype)).double().numpy()
    grad = dtype == "float32"
    expected, exact, got = (_outcome(t, f, v, d, dim, grad) for t, v, d in ((torch, values, dtype), (torch, same, "float64"), (mt, values, dtype)))
    assert len(got) == len(expected)
    for k, (e, x, r) in enumerate(zip(expected, exact, got)):
        assert r.shape == e.shape, (name, k)
        with np.errstate(all="ignore"):
            # (the smallest nonzero value and its rounding error; for float64 there is no reference
            # more exact than PyTorch)
            least = 6e-8 if dtype == "float16" else 3e-45 if dtype != "float64" else 1e-14 * max(np.abs(values).max(), np.abs(e).max())
            near = np.isfinite(r) & ((np.abs(r - e) <= NEAR[dtype] * np.abs(e) + 8 * np.abs(e - x) + least) | (np.abs(r - x) <= NEAR[dtype] * np.abs(x) + least))
        bad = ~(near | (r == e) | np.isnan(r) & np.isnan(e))
        assert not bad.any(), f"{name}, result {k}: {r[bad][:3]}, torch {e[bad][:3]}, exact {x[bad][:3]}"


@st.composite
def numbers(draw, dtype, most):
    shape = draw(st.sampled_from([(1, 1), (3, 1), (1, 3), (4, 3), (most, 3), (3, most)]))
    size = draw(st.sampled_from(SIZES[dtype]))
    if draw(st.booleans()):
        return np.full(shape, size)
    scattered = np.random.RandomState(draw(st.integers(0, 1000))).rand(*shape)
    return scattered * (size if size != 60000.0 else 5000.0) + size * draw(st.sampled_from([0, 0, 1, 1000 if dtype == "float32" and size < 1 else 0]))


@pytest.mark.host_only("MindSpore takes numbers below the normal ones for 0", cases=("cumprod", "norm 1.5", "cosine_similarity", "log_softmax"))
@pytest.mark.parametrize("name", OPS)
@few
@given(st.data())
def test_equal_tiny_and_huge_numbers(name, data):
    dtype = data.draw(st.sampled_from(["float32", "float32", "float32", "float64", "float16", "bfloat16"]))
    if name in WIDE and dtype in ("float16", "bfloat16"):
        dtype = "float32"
    agree(name, data.draw(numbers(dtype, 70)), dtype, data.draw(st.sampled_from([0, 1])))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape,dims", [((50000, 3), [0, (0, 1), 1]), ((3, 50000), [1, 0]), ((20, 3, 40, 40), [(0, 2, 3), (2, 3), (1, 3)]), ((70000, 2, 2), [0, (0, 2)]),
                                        ((300, 1500), [0, 1]), ((9, 9, 9), [(0, 2)])])
def test_equal_values_have_zero_deviation(shape, dims, dtype):
    for value in (0.1, 1 / 3, 5.1, 1e-30, 2e22):
        x = mt.full(shape, value, dtype=getattr(mt, dtype))
        for dim in dims:
            std, mean = mt.std_mean(x, dim)
            assert (std == 0).all() and (mean == x.flatten()[0]).all(), (value, dim)
            assert (x.var(dim) == 0).all() and (x.transpose(0, -1).std([d if d != 0 else -1 for d in (dim if isinstance(dim, tuple) else (dim,)) if d]
                                                                       or -1) == 0).all()


@pytest.mark.host_only("MindSpore's CPU kernels add one element after another")
@pytest.mark.parametrize("name", ["sum", "mean", "nansum", "nanmean", "logsumexp", "norm", "cumsum", "std"])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_sums_are_accurate_in_every_layout(name, dtype):
    """Rounding errors of many additions do not accumulate in any memory layout."""
    # (equal values, so that every step rounds in the same direction)
    x = np.repeat((np.random.RandomState(0).rand(1, 10) + 0.1).astype(dtype), 1000, 0)
    for view in (lambda t: t, lambda t: t.T, lambda t: t.T[:2], lambda t: t[::2], lambda t: t[:, ::3], lambda t: t[3:, 1:].T, lambda t: t.reshape(10, 10, -1)[:, :, ::4]):
        for dim in range(view(x).ndim):
            try:
                want = getattr(view(torch.from_numpy(x).to(torch.complex128 if dtype == "complex64" else torch.float64)), name)(dim=dim)
            except RuntimeError:
                return  # (not defined for complex dtypes)
            got = getattr(view(mt.from_numpy(x)), name)(dim=dim)
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1.5e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_far_from_zero(dtype):
    x = np.random.RandomState(0).rand(20000, 2) + (1e6 if dtype == "float32" else 1e12)
    x = x.astype(dtype)
    exact = x.astype(np.longdouble).var(0, ddof=1).astype(np.float64)
    for y, dim in ((mt.from_numpy(x), 0), (mt.from_numpy(np.ascontiguousarray(x.T)), 1), (mt.from_numpy(x).t(), 1)):
        np.testing.assert_allclose(y.var(dim).double().numpy(), exact, rtol=2e-7 if dtype == "float32" else 1e-4)


@pytest.mark.parametrize("y,kw", [([2**24 + 1, 2**24 + 3, 3], {}), ([2**24 + 1, 2**24 + 3, 2**24 + 5, 5], {"x": [0, 1, 3, 4]}), ([2**40 + 1, 7, -2**40], {}),
                                  ([2**24 + 1, 2**24 + 3, 5], {"dx": 0.3})])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_trapezoid_of_integers(y, kw, dtype):
    def on(t):
        a, k = t.tensor(y).to(getattr(t, dtype)), {n: t.tensor(v) if isinstance(v, list) else v for n, v in kw.items()}
        return t.trapezoid(a, **k), t.cumulative_trapezoid(a, **k)
    for e, r in zip(on(torch), on(mt)):
        assert str(e.dtype) == str(r.dtype) and e.tolist() == r.tolist()


def test_lp_pool_of_zeros_has_zero_gradient():
    for p in (1, 2, 3):
        x = mt.zeros(1, 1, 4, requires_grad=True)
        mt.nn.functional.lp_pool1d(x, p, 2).sum().backward()
        assert x.grad.tolist() == [[[0.0] * 4]]


@pytest.mark.host_only("MindSpore takes numbers below the normal ones for 0")
def test_gradient_of_a_subnormal_norm():
    for t in (torch, mt):
        x = t.tensor([[3e-39], [0.0], [-2e22]], requires_grad=True)
        g, = t.autograd.grad(x.norm(dim=1).sum(), x)
        assert g.tolist() == [[1.0], [0.0], [-1.0]]
