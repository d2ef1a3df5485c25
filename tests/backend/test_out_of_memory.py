"""A failed allocation raises torch.OutOfMemoryError, a RuntimeError, in every op."""
import pickle
import subprocess
import sys

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
def test_size_overflow_raises(name):
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


def test_out_of_memory_error_has_a_cuda_alias():
    assert mt.cuda.OutOfMemoryError is mt.OutOfMemoryError and issubclass(mt.OutOfMemoryError, RuntimeError)


def test_batch_halving_loop_recovers():
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


def test_numpy_memory_error_is_unchanged():
    """Checks that NumPy code without tensors still gets NumPy's own MemoryError, which can be
    pickled."""
    with pytest.raises(MemoryError) as e:
        np.empty(B)
    assert e.value.shape == (B,) and e.value.dtype == np.float64
    again = pickle.loads(pickle.dumps(e.value))
    assert type(again) is type(e.value) and str(again) == str(e.value)


_EXHAUSTED = """
import resource, sys
import mindtorch.torch as torch
x = torch.ones(1 << 14)
PROGRAMS = {"ones": lambda: torch.ones(1 << 14), "exp": lambda: x.exp(), "views": lambda: [x[i:] for i in range(1000)], "grad": lambda: (x.clone().requires_grad_() * 2).exp(),
            "small": lambda: [torch.ones(4) + 1 for _ in range(1000)], "parameter": lambda: torch.nn.Parameter(torch.ones(1 << 15))}
make = PROGRAMS[sys.argv[1]]
make(), make()
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, ((int(open("/proc/self/statm").read().split()[0]) << 12) + (48 << 20), before[1]))
kept = [None] * (1 << 20)
try:
    for i in range(len(kept)):
        kept[i] = make()
except RuntimeError as e:
    del kept
    resource.setrlimit(resource.RLIMIT_AS, before)
    print(type(e).__name__, isinstance(e, torch.OutOfMemoryError), (torch.ones(3) + 1).tolist())
"""


@pytest.mark.parametrize("program", ["ones", "exp", "grad", "parameter"])
def test_exhausted_address_space_raises_and_recovers(program, tmp_path):
    """Uses up the address space step by step, not with one oversized array: raises RuntimeError,
    and works again once memory is free."""
    p = subprocess.run([sys.executable, "-c", _EXHAUSTED, program], capture_output=True, text=True, timeout=100)
    assert p.returncode == 0 and p.stdout.split()[:1] == ["RuntimeError"] and p.stdout.strip().endswith("[2.0, 2.0, 2.0]"), p.stdout + p.stderr[-2000:]


def test_error_is_displayed_like_torch():
    """Checks that the error is displayed under PyTorch's name; handlers for MemoryError or
    torch.OutOfMemoryError catch it too."""
    for T in (real, mt):
        with pytest.raises(RuntimeError) as e:
            T.ones(B)
        assert type(e.value).__name__ == "RuntimeError"
    assert isinstance(e.value, MemoryError) and isinstance(e.value, mt.OutOfMemoryError)
    again = pickle.loads(pickle.dumps(e.value))
    assert type(again) is type(e.value) and str(again) == str(e.value)
