"""Every creation function with every dtype on Ascend. The host computes what the chip has no kernel
for. Also `torch.cat` with empty operands.

test_ascend_creation.py runs this script.
"""
import os
import warnings

import torch
import torch as T

warnings.simplefilter("ignore")
DTYPES = ("bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128").split()
RANDOM = ("rand", "randn", "randint", "randperm", "normal", "rand_like", "randn_like", "randint_like")
CREATORS = {
    "zeros": lambda **k: T.zeros(2, 3, **k), "ones": lambda **k: T.ones(2, 3, **k), "full": lambda **k: T.full((2, 3), 1, **k),
    "full3": lambda **k: T.full((2,), 3, **k),
    "empty": lambda **k: T.empty(2, **k).zero_(), "eye": lambda **k: T.eye(3, 2, **k), "arange": lambda **k: T.arange(4, **k),
    "arange f": lambda **k: T.arange(0., 2., .5, **k),
    "linspace": lambda **k: T.linspace(0, 4, 5, **k), "logspace": lambda **k: T.logspace(0, 2, 3, **k),
    "scalar_tensor": lambda **k: T.scalar_tensor(1, **k), "tensor": lambda **k: T.tensor([0, 1, 2], **k),
    "as_tensor": lambda **k: T.as_tensor([0, 1], **k), "asarray": lambda **k: T.asarray([0, 1], **k),
    "empty_strided": lambda **k: T.empty_strided((2, 2), (1, 2), **k).zero_(),
    "empty_permuted": lambda **k: T.empty_permuted((2, 3), (1, 0), **k).zero_(), "full strided": lambda **k: T.zeros(2, 2, **k).t().contiguous(),
    "tril_indices": lambda **k: T.tril_indices(3, 3, **k), "triu_indices": lambda **k: T.triu_indices(3, 3, **k),
    "range": lambda **k: T.range(0, 3, **k),
    "hann": lambda **k: T.hann_window(4, **k), "kaiser": lambda **k: T.kaiser_window(4, **k), "bartlett": lambda **k: T.bartlett_window(4, **k),
    "hamming": lambda **k: T.hamming_window(4, **k), "blackman": lambda **k: T.blackman_window(4, **k), "fftfreq": lambda **k: T.fft.fftfreq(4, **k),
    "rfftfreq": lambda **k: T.fft.rfftfreq(4, **k),
    "gaussian": lambda **k: T.signal.windows.gaussian(4, **k),
    "rand": lambda **k: T.rand(3, **k), "randn": lambda **k: T.randn(3, **k), "randint": lambda **k: T.randint(2, (3,), **k),
    "randperm": lambda **k: T.randperm(5, **k), "normal": lambda **k: T.normal(0., 1., (3,), **k),
    "vander": lambda dtype, device: T.vander(T.tensor([1, 2], dtype=dtype, device=device)), "zeros0": lambda **k: T.zeros(0, 3, **k),
    "ones0": lambda **k: T.ones(0, **k), "eye0": lambda **k: T.eye(0, **k), "arange0": lambda **k: T.arange(0, **k),
    "full0": lambda **k: T.full((0,), 1, **k), "linspace0": lambda **k: T.linspace(0, 1, 0, **k),"linspace1": lambda **k: T.linspace(1, 1, 1, **k),
    "zeros_like": lambda dtype, device: T.zeros_like(T.empty(2, device=device), dtype=dtype),
    "ones_like": lambda dtype, device: T.ones_like(T.empty(2, device=device), dtype=dtype),
    "full_like": lambda dtype, device: T.full_like(T.empty(2, device=device), 1, dtype=dtype),
    "empty_like": lambda dtype, device: T.empty_like(T.empty(2, device=device), dtype=dtype).zero_(),
    "rand_like": lambda dtype, device: T.rand_like(T.empty(2, device=device), dtype=dtype),
    "randn_like": lambda dtype, device: T.randn_like(T.empty(2, device=device), dtype=dtype),
    "randint_like": lambda dtype, device: T.randint_like(T.empty(2, device=device), 2, dtype=dtype),
    "zeros_like same": lambda dtype, device: T.zeros_like(T.empty(2, device=device, dtype=dtype)),
    "ones_like same": lambda dtype, device: T.ones_like(T.empty(2, device=device, dtype=dtype)),
    "new_zeros": lambda dtype, device: T.empty(2, dtype=dtype, device=device).new_zeros(2),
    "new_ones": lambda dtype, device: T.empty(2, dtype=dtype, device=device).new_ones(2),
    "new_full": lambda dtype, device: T.empty(2, dtype=dtype, device=device).new_full((2,), 1),
    "new_tensor": lambda dtype, device: T.empty(2, dtype=dtype, device=device).new_tensor([0, 1]),
    "eye out": lambda dtype, device: T.eye(2, out=T.empty(2, 2, dtype=dtype, device=device)),
    "arange out": lambda dtype, device: T.arange(3, out=T.empty(3, dtype=dtype, device=device)),
    "ones out": lambda dtype, device: T.ones(2, out=T.empty(2, dtype=dtype, device=device)), "full -0": lambda **k: T.full((2,), -0., **k),
    "full complex": lambda **k: T.full((2,), 1 + 2j, **k),
    "complex": lambda dtype, device: T.complex(T.ones(2, dtype=dtype, device=device), T.zeros(2, dtype=dtype, device=device)),
    "polar": lambda dtype, device: T.polar(T.ones(2, dtype=dtype, device=device), T.zeros(2, dtype=dtype, device=device)),
    "diag_embed": lambda dtype, device: T.diag_embed(T.ones(2, dtype=dtype, device=device)),
    "diag": lambda dtype, device: T.diag(T.ones(2, dtype=dtype, device=device)),
    "block_diag": lambda dtype, device: T.block_diag(T.ones(2, 2, dtype=dtype, device=device), T.ones(1, 1, dtype=dtype, device=device)),

    "cartesian_prod": lambda dtype, device: T.cartesian_prod(T.ones(2, dtype=dtype, device=device), T.ones(1, dtype=dtype, device=device)),
    "meshgrid": lambda dtype, device: T.meshgrid(T.ones(2, dtype=dtype, device=device), T.ones(1, dtype=dtype, device=device), indexing="ij")[0],
}


def end(creator, make, name, dev):
    """Returns (None, a description of the result), or (the error's name, its text)."""
    try:
        T.manual_seed(1)
        r = make(dtype=getattr(T, name), device=dev)
        # The device draws its own random numbers.
        return None, (str(r.dtype), tuple(r.shape), None if creator in RANDOM else repr(r.cpu().tolist()))
    except Exception as e:
        return type(e).__name__, str(e)


bad = count = 0
for creator, make in CREATORS.items():
    for name in DTYPES:
        host, there = end(creator, make, name, "cpu"), end(creator, make, name, "npu")
        count += 1
        if host != there and not (host[0] and host[0] == there[0]):
            bad += 1
            print("differs", creator, name, host, there)
print("created", count, bad)

log = os.environ["MINDTORCH_STANDIN_LOG"]
some, none, flat = torch.randn(2, 2, 3, 4, device="npu"), torch.randn(2, 2, 0, 4, device="npu"), torch.tensor([], device="npu")
parts = [([flat, some], -2), ([some, flat], 0), ([none, some, none], 2), ([flat, flat], 0), ([none, none], 2), ([some], 1), ([none], 0), ([flat, none], 2)]
wanted = [torch.cat([t.cpu() for t in ts], dim) for ts, dim in parts]
torch.npu.synchronize()
begin = os.path.getsize(log)
found = [torch.cat(ts, dim) for ts, dim in parts]
torch.npu.synchronize()
copies = sum('"copy"' in line for line in open(log).read()[begin:].splitlines())
print("joined", all(a.shape == b.shape and a.dtype == b.dtype and a.tolist() == b.tolist() for a, b in zip(found, wanted)), copies)
a = some.detach().requires_grad_()
torch.cat([flat, a * 2], -2).sum().backward()
print("gradient", (a.grad == 2).all().item())
