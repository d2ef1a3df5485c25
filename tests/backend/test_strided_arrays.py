"""MindSpore tensors on the memory of NumPy arrays with any strides: values, shared memory and its
lifetime, references released with the tensor."""
import gc
import sys
import weakref

import numpy as np
import pytest
from hypothesis import given, strategies as st

import mindtorch.torch  # noqa: F401
from mindtorch.backend.mindspore import private

DTYPES = "float32", "float64", "float16", "int64", "int32", "uint8", "bool", "complex64"
VIEWS = {"transposed": lambda x: x.transpose(2, 0, 1), "columns": lambda x: x[:, :, 3:70], "steps": lambda x: x[1::2, ::3, 5::2], "one": lambda x: x[1, :, 7],
         "broadcast": lambda x: np.broadcast_to(x[:, :1, 2:], (4, 40, 78)), "view of a view": lambda x: x[1:].transpose(0, 2, 1)[:, 3:, 1:]}


@given(dtype=st.sampled_from(DTYPES), view=st.sampled_from(list(VIEWS)), rows=st.integers(3, 40))
def test_values(dtype, view, rows):
    x = (np.arange(4 * rows * 80).reshape(4, rows, 80) % 251).astype(dtype)
    a = VIEWS[view](x)
    t = private.from_array(a)
    assert t.shape == a.shape and np.array_equal(t.asnumpy(), a)
    assert np.array_equal((t + 0 if dtype != "bool" else t).asnumpy(), a)


@pytest.mark.parametrize("side", [8, 200])  # via DLPack, and via `set_`
def test_memory_is_shared_and_stays_alive(side):
    x = np.arange(side * side, dtype=np.float32).reshape(side, side)
    t = private.from_array(x.T[2:])
    x[0, 2] = -5.0
    want, gone = x.T[2:].copy(), weakref.ref(x)
    assert t.asnumpy()[0, 0] == -5.0
    del x
    gc.collect()
    rest = [np.zeros((side, side), np.float32) for _ in range(50)]
    assert np.array_equal(t.asnumpy(), want) and len(rest) == 50
    del t
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("side", [8, 200])
def test_references_are_released(side):
    x = np.ones((side, side), np.float32)
    before = sys.getrefcount(x)
    for _ in range(100):
        private.from_array(x.T)
    gc.collect()
    assert sys.getrefcount(x) == before


@given(side=st.sampled_from([40, 80]), starts=st.lists(st.integers(0, 9), min_size=2, max_size=4))
def test_slices_of_equal_geometry_keep_their_offset(side, starts):
    x = np.arange(side * side, dtype=np.float32).reshape(side, side)
    whole = x.T, np.broadcast_to(x[:1], x.shape), np.broadcast_to(x[side - 1:], x.shape)
    for a in (*[x[i:i + side - 10, i:i + side - 10] for i in starts], *[x[i:, 1:2].T for i in starts], *whole):
        assert np.array_equal(private.from_array(a).asnumpy(), a)
