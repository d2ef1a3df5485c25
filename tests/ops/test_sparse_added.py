"""Adding a sparse tensor to a dense one: values at the same index are added one after another, with
PyTorch's rounding."""
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import mindtorch.torch as mt

DTYPES = ("float32", "float64", "float16", "int64")


def _both(dtype, idx, values, start, alpha, step=1):
    out = []
    for t in (torch, mt):
        a = t.tensor(start).to(getattr(t, dtype))[::step]
        s = t.sparse_coo_tensor(t.tensor(idx), t.tensor(values).to(getattr(t, dtype)), tuple(a.shape), check_invariants=False)
        if alpha is None:
            a.add_(s)
        else:
            a.add_(s, alpha=alpha)
        out.append(a.to(t.float64).numpy())
    return out


@settings(max_examples=60)
@given(st.sampled_from(DTYPES), st.integers(0, 40), st.sampled_from(((3,), (5, 7), (4, 3, 2))), st.integers(1, 2), st.integers(0, 2**31))
def test_values_at_one_index_are_rounded_one_by_one(dtype, count, shape, sparse, seed):
    rs = np.random.RandomState(seed)
    sparse = min(sparse, len(shape))
    idx = np.stack([rs.randint(0, n, count) for n in shape[:sparse]])
    values = (rs.standard_normal((count, *shape[sparse:])) * 3).round(3 if dtype != "int64" else 0)
    theirs, ours = _both(dtype, idx, values, (rs.standard_normal(shape) * 100).round(1 if dtype != "int64" else 0), None)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("step", (1, 2))
@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_half_ulps_vanish_one_by_one_but_not_summed(dtype, step):
    """Adding half a unit in the last place three times to 1.0 changes nothing if done in turn, but
    adds 2 units if summed first, as PyTorch does for non-contiguous memory."""
    half = float(torch.finfo(getattr(torch, dtype)).eps) / 2
    theirs, ours = _both(dtype, [[1, 1, 0, 1]], np.full((4, 4), half), np.ones((3 * step, 4)), None, step)
    np.testing.assert_array_equal(ours, theirs)
    assert (ours[1] == 1).all() == (step == 1)


@pytest.mark.host_only("the bits of one rounding; on npu the terms are scaled first")
@pytest.mark.parametrize("size", ((40, 64), (3000, 33)))
def test_scaled_values_are_added_with_one_rounding(size):
    """An optimizer's step is bitwise equal, with threads and without."""
    rs = np.random.RandomState(0)
    idx, values = rs.randint(0, size[0], (1, 2000)), rs.standard_normal((2000, size[1])).astype(np.float32)
    theirs, ours = _both("float32", idx, values, rs.standard_normal(size).astype(np.float32), -0.01)
    np.testing.assert_array_equal(ours, theirs)


def test_sparse_error_text_computed_late_names_the_op():
    s = mt.eye(3).to_sparse()
    with pytest.raises(NotImplementedError) as caught:
        s.cumsum(0)
    assert "cumsum" in str(caught.value) and "float32" in str(caught.value) and "sparse_coo" in str(caught.value)
