"""What does not fit into memory raises torch.OutOfMemoryError, a RuntimeError, whatever op asked for it."""
import pickle

import numpy as np
import pytest
import torch as real

import mindtorch.torch as mt

B = 1 << 50
PROGRAMS = {
    "empty": lambda T: T.empty(B), "zeros": lambda T: T.zeros(B), "full": lambda T: T.full((B,), 2.), "randn": lambda T: T.randn(B),
    "randint": lambda T: T.randint(0, 5, (B,)), "arange": lambda T: T.arange(B), "eye": lambda T: T.eye(1 << 25, 1 << 25),
    "bfloat16": lambda T: T.zeros(B, dtype=T.bfloat16), "new_zeros": lambda T: T.ones(1).new_zeros(B), "Tensor": lambda T: T.Tensor(B),
    "contiguous": lambda T: T.ones(1).expand(B).contiguous(), "add": lambda T: T.ones(1).expand(B) + 1, "exp": lambda T: T.ones(1).expand(B).exp(),
    "broadcast": lambda T: T.ones(1 << 25, 1) + T.ones(1, 1 << 25), "matmul": lambda T: T.ones(1 << 25, 1) @ T.ones(1, 1 << 25),
    "outer": lambda T: T.outer(T.ones(1 << 25), T.ones(1 << 25)), "einsum": lambda T: T.einsum("i,j->ij", T.ones(1 << 25), T.ones(1 << 25)),
    "cat": lambda T: T.cat([T.ones(1).expand(B)] * 2), "stack": lambda T: T.stack([T.ones(1).expand(B)] * 2), "resize_": lambda T: T.ones(1).resize_(B),
    "repeat": lambda T: T.ones(1).repeat(B), "pad": lambda T: T.nn.functional.pad(T.ones(1, 1), (0, B)), "cast": lambda T: T.ones(1).expand(B).double(),
    "gather": lambda T: T.ones(1).gather(0, T.zeros(1, dtype=T.long).expand(B)), "one_hot": lambda T: T.nn.functional.one_hot(T.tensor([B])),
    "conv": lambda T: T.nn.functional.conv1d(T.ones(1, 1, 1 << 22), T.ones(1, 1, 1).expand(1 << 28, 1, 1)),
    "linear": lambda T: T.nn.functional.linear(T.ones(1 << 25, 1), T.ones(1 << 25, 1)), "Linear": lambda T: T.nn.Linear(1 << 25, 1 << 25),
    "Embedding": lambda T: T.nn.Embedding(B, 4), "softmax": lambda T: T.ones(1).expand(B).softmax(0), "sort": lambda T: T.ones(1).expand(B).sort(),
    "storage": lambda T: T.UntypedStorage(B),
}


H = 1 << 62
NO_SIZE = {
    "empty": lambda T: T.empty(H), "zeros": lambda T: T.zeros(1 << 40, 1 << 40), "ones": lambda T: T.ones(1 << 31, 1 << 31, 1 << 31), "full": lambda T: T.full((H,), 1.),
    "randn": lambda T: T.randn(H), "arange": lambda T: T.arange(H), "eye": lambda T: T.eye(1 << 40), "new_empty": lambda T: T.ones(2).new_empty(H),
    "empty_strided": lambda T: T.empty_strided((1 << 40, 1 << 40), (1 << 40, 1)), "repeat": lambda T: T.ones(2).repeat(H), "expand": lambda T: T.ones(1, 2).expand(H, 2),
    "clone": lambda T: T.tensor(1).expand(H).clone(), "resize_": lambda T: T.ones(4).resize_(H),
}


@pytest.mark.parametrize("name", sorted(NO_SIZE))
def test_what_no_storage_could_hold(name):
    for T in (real, mt):
        with pytest.raises(RuntimeError, match="overflow|represented"):
            NO_SIZE[name](T)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_what_does_not_fit(name):
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        PROGRAMS[name](real)
    with pytest.raises(mt.OutOfMemoryError, match="can't allocate memory.*out of memory") as e:
        PROGRAMS[name](mt)
    assert isinstance(e.value, RuntimeError) and [type(a) for a in e.value.args] == [str]


def test_one_class_under_both_names():
    assert mt.cuda.OutOfMemoryError is mt.OutOfMemoryError and issubclass(mt.OutOfMemoryError, RuntimeError)


def test_a_loop_that_halves_its_batch_until_it_fits():
    tried, size = [], 1 << 45
    while True:
        tried.append(size)
        try:
            x = mt.ones(1, 1 << 10).expand(size, 1 << 10)
            (x if size <= 64 else x.contiguous()).sum()
            break
        except RuntimeError as e:
            assert "out of memory" in str(e) and "DefaultCPUAllocator: can't allocate memory" in e.args[0]
            size = size // 2 if size > 1 << 40 else 64
    assert tried[0] == 1 << 45 and size == 64


def test_numpy_users_see_their_memory_error():
    """The class stays NumPy's own MemoryError for code that knows nothing of tensors, and can be sent to another process."""
    with pytest.raises(MemoryError) as e:
        np.empty(B)
    assert e.value.shape == (B,) and e.value.dtype == np.float64
    again = pickle.loads(pickle.dumps(e.value))
    assert type(again) is type(e.value) and str(again) == str(e.value)
