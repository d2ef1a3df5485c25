"""Large operands with different memory orders against PyTorch: values, strides and gradients of
elementwise ops, and in-place ops."""
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mindtorch.torch as mt
from _parity import few
from mindtorch.backend.cpu import copies, threads

pytestmark = pytest.mark.host_only("how its arrays lie in memory")
DTYPES = ["float32", "float64", "int64", "float16", "complex64", "bool"]
OPS = {
    "add": lambda t, a, b: a + b, "sub scaled": lambda t, a, b: torch_sub(t, a, b), "mul": lambda t, a, b: a * b, "eq": lambda t, a, b: a == b,
    "where": lambda t, a, b: t.where(a == a, a, b), "maximum": lambda t, a, b: t.maximum(a, b), "atan2": lambda t, a, b: t.atan2(a, b),
    "lerp": lambda t, a, b: t.lerp(a, b, 0.25), "addcmul": lambda t, a, b: t.addcmul(a, a, b), "add_": lambda t, a, b: a.clone().add_(b),
    "mul_": lambda t, a, b: a.clone().mul_(b), "add_ of itself": lambda t, a, b: _itself(a),
}


def torch_sub(t, a, b):
    return t.sub(a, b, alpha=2)


def _itself(a):
    """Adds a transposed view of the same memory in place: both sides must raise, or both return the
    same."""
    c = a.clone(memory_format=mt.preserve_format if isinstance(a, mt.Tensor) and not isinstance(a, torch.Tensor) else torch.preserve_format)
    return c.add_(c.transpose(-1, -2)) if c.shape[-1] == c.shape[-2] else c


def outcome(t, op, a, b, orders, dtype, grad):
    """Returns [(value, strides) of the result and of the gradients], or the type of the error."""
    xs, leaves = [], []
    for x, order in zip((a, b), orders):
        leaf = t.from_numpy(x).to(getattr(t, dtype)).permute(order).contiguous().requires_grad_(grad)
        leaves.append(leaf)
        xs.append(leaf.permute(np.argsort(order).tolist()))
    try:
        y = op(t, *xs)
    except (RuntimeError, NotImplementedError) as e:
        return type(e)
    if grad and y.requires_grad:
        (y * y.conj()).real.sum().backward()
    return [(z.detach().numpy(), z.stride()) for z in (y, *[x.grad for x in leaves if x.grad is not None])]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPS)
@few
@given(st.data())
def test_operands_of_mixed_memory_orders(name, dtype, count, data):
    shape = data.draw(st.sampled_from([(96, 96), (128, 80), (3, 64, 64), (4, 9, 257), (2, 3, 40, 41), (400, 1, 400)]))
    orders = [data.draw(st.permutations(range(len(shape)))) for _ in range(2)]
    rs = np.random.RandomState(1)
    a, b = ((rs.randn(*shape) * 3).astype(np.float32) for _ in range(2))
    grad = dtype in ("float32", "float64", "complex64")
    before = threads._pool.count
    try:
        threads._pool.count = count
        mine = outcome(mt, OPS[name], a, b, orders, dtype, grad)
    finally:
        threads._pool.count = before
    real = outcome(torch, OPS[name], a, b, orders, dtype, grad)
    if isinstance(real, type):
        assert mine is real
        return
    assert len(mine) == len(real)
    for i, ((x, s), (y, r)) in enumerate(zip(mine, real)):
        # (A gradient's stride in a dim of size 1 may differ from PyTorch's.)
        assert x.dtype == y.dtype and [n for n, m in zip(s, x.shape) if not i or m > 1] == [n for n, m in zip(r, y.shape) if not i or m > 1]
        np.testing.assert_allclose(x, y, rtol=2e-3 if dtype == "float16" else 1e-5, atol=1e-5)


def test_detection_of_transposed_arrays():
    a = np.zeros((100, 120), np.float32)
    assert copies.crosses(a.T) and not copies.crosses(a) and not copies.crosses(a[:, ::2]) and not copies.crosses(a[:10].T)
    assert not copies.crosses(np.broadcast_to(a[:, :1], (100, 120)))
    for shape in itertools.permutations((1, 100, 120)):
        assert not copies.crosses(np.zeros(shape, np.float32))


def test_meta_tensors_are_not_copied():
    a, b = mt.empty(1 << 12, 1 << 12, device="meta"), mt.empty(1 << 12, 1 << 12, device="meta").t()
    host = mt.zeros(64, 256) + mt.ones(256, 64).t()
    assert (a + b).shape == (1 << 12, 1 << 12) and (mt.empty(64, 256, device="meta") + mt.empty(256, 64, device="meta").t()).stride() == host.stride()
