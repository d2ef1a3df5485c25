"""x.add_(y, alpha=) and x.sub_(y, alpha=) against PyTorch: bitwise values, views, shared memory,
versions, errors; no temporary holds the sum."""
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import mindtorch.torch as mt
from mindtorch.backend.c_kernels import build, elementwise

DTYPES = "float32", "float64", "float16", "bfloat16", "int64", "complex64"
#: The written views of a (6, 8) tensor, and the kinds of added operands.
PLACES = [lambda t: t, lambda t: t[1:, ::2], lambda t: t.t(), lambda t: t[:, 3], lambda t: t[2:5].view(-1), lambda t: t.view(2, 3, 8)[:, 1:, 2:5]]
OTHERS = ["same shape", "row", "number", "itself", "own memory", "strided"]


def program(T, dtype, place, other, alpha, name, seed):
    rng = np.random.RandomState(seed)

    def made(*shape):
        return T.tensor(np.round(rng.randn(*shape) * 8).tolist()).mul(0.37 if dtype[0] in "fbc" else 1).to(getattr(T, dtype))
    base = made(6, 8)
    seen = base.view(-1)
    x = PLACES[place](base)
    shape = tuple(x.shape)
    y = {"same shape": lambda: made(*shape), "row": lambda: made(shape[-1]), "number": lambda: made(), "itself": lambda: x,
         "own memory": lambda: base.view(-1)[:x.numel()].view(shape).detach(), "strided": lambda: made(*shape[::-1]).permute(*reversed(range(len(shape))))}[other]()
    try:
        r = getattr(x, name)(y, alpha=alpha)
    except Exception as e:
        return type(e).__name__
    return r is x, x._version, base._version, seen._version, str(base.dtype), base.to(T.complex128).tolist()


@given(dtype=st.sampled_from(DTYPES), place=st.integers(0, len(PLACES) - 1), other=st.sampled_from(OTHERS), name=st.sampled_from(["add_", "sub_"]),
       alpha=st.sampled_from([2, -3, 0, 0.5, -1e-3, 1.0, float("inf"), True, 1j]), seed=st.integers(0, 50))
def test_writes(dtype, place, other, name, alpha, seed):
    assert repr(program(torch, dtype, place, other, alpha, name, seed)) == repr(program(mt, dtype, place, other, alpha, name, seed))


def test_lazy_clone_is_not_modified():
    for T in (torch, mt):
        x = T.ones(4, 5)
        c = x._lazy_clone()
        x.add_(T.ones(5), alpha=2.0)
        assert x.tolist() == [[3.0] * 5] * 4 and c.tolist() == [[1.0] * 5] * 4


def test_modified_saved_tensor_raises_in_backward():
    for T in (torch, mt):
        x, w = T.ones(3), T.ones(3, requires_grad=True)
        y = x * w
        x.add_(T.ones(3), alpha=0.5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_expanded_target_raises():
    for T in (torch, mt):
        with pytest.raises(RuntimeError, match="more than one element"):
            T.ones(3, 1).expand(3, 4).add_(T.ones(3, 4), alpha=2.0)


def test_tangents_are_propagated():
    found = []
    for T in (torch, mt):
        with T.autograd.forward_ad.dual_level():
            x, y = (T.autograd.forward_ad.make_dual(T.full((3,), a), T.full((3,), b)) for a, b in ((1.0, 2.0), (3.0, 5.0)))
            z = T.autograd.forward_ad.unpack_dual(x.clone().add_(y, alpha=0.5))
            found.append((z.primal.tolist(), z.tangent.tolist()))
    assert found[0] == found[1] == ([2.5] * 3, [4.5] * 3)


@pytest.mark.skipif(build.compiler() is None or elementwise.lib() is None, reason="no C compiler")
@pytest.mark.parametrize("shape", [(512, 512), (511, 3, 77)])
def test_sum_allocates_no_temporary(shape):
    x, y = mt.ones(shape, device="cpu"), mt.ones(shape[-1], device="cpu")
    x.add_(y, alpha=0.5)
    tracemalloc.start()
    try:
        x.add_(y, alpha=0.5)
        assert tracemalloc.get_traced_memory()[1] < x.numel()
    finally:
        tracemalloc.stop()
