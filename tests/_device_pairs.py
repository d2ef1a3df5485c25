"""Runs one function on the cpu and npu devices: compares values, dtypes, shapes and gradients, and
fails on CPU fallbacks."""
import numpy as np

import mindtorch.torch as mt
from mindtorch.core.device import device_dispatch

F32, F64, I64, I32, BOOL, F16, BF16 = mt.float32, mt.float64, mt.int64, mt.int32, mt.bool, mt.float16, mt.bfloat16
ALL = (F32, F64, I64, I32, mt.uint8, BOOL, F16, BF16)
_HALF = {"rtol": 2e-2, "atol": 1e-3}
NUMBERS = (F32, F64, I64, F16, BF16)


def made(seed, shape, dtype):
    """Returns values with repeats, and negative ones where the dtype has them."""
    r = np.random.RandomState(seed)
    if dtype is BOOL:
        return mt.from_numpy(np.asarray(r.rand(*shape) > 0.5))
    if dtype is mt.uint8:
        return mt.from_numpy(np.asarray(r.randint(0, 200, shape), np.uint8))
    return mt.from_numpy(np.asarray(r.randn(*shape) * 5)).to(dtype)


def places(seed, shape, n, low=0):
    return mt.from_numpy(np.random.RandomState(seed).randint(low, n, shape))


def flat(r):
    return list(r) if isinstance(r, (tuple, list)) else [r]


def both(npu, f, shapes, dtype, *, exact=True, allowed=()):
    """Runs f(mover, *tensors) on both devices and compares results and gradients; mover(t) moves
    `t` to the device."""
    results = []
    before = dict(device_dispatch.FALLBACKS)
    for where in ("cpu", npu):
        xs = [made(k, s, dtype).to(where) for k, s in enumerate(shapes)]
        grads = dtype.is_floating_point
        if grads:
            xs = [x.requires_grad_() for x in xs]
        out = flat(f(lambda t: t.to(where), *xs))
        gs = []
        if grads and any(o.requires_grad for o in out):
            seeds = [made(7 + k, tuple(o.shape), o.dtype).to(where) for k, o in enumerate(out) if o.requires_grad]
            gs = mt.autograd.grad([o for o in out if o.requires_grad], xs, seeds, allow_unused=True)
        results.append((out, gs))
    for mine, theirs in zip(results[1], results[0]):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs):
            if b is None:
                assert a is None
                continue
            assert a.device.type == "npu" and a.dtype == b.dtype and a.shape == b.shape
            a, b = a.detach().cpu(), b.detach()
            if a.dtype in (F16, BF16):
                a, b = a.float(), b.float()
            a, b = a.numpy(), b.numpy()
            if exact:
                np.testing.assert_array_equal(a, b)
            else:
                np.testing.assert_allclose(a, b, **{F16: _HALF, BF16: _HALF, F64: {"rtol": 1e-12, "atol": 1e-12}}.get(dtype, {"rtol": 1e-5, "atol": 1e-5}))
    new = {k for k, v in device_dispatch.FALLBACKS.items() if v != before.get(k, 0)} - {("npu", n) for n in allowed}
    assert not new, new


#: Primitives of other families, which may or may not have kernels.
ELSEWHERE = {"cast", "mul", "sum", "sum_to", "neg", "copies", "clone_format", "to_copy_format", "full", "full_like", "zeros_like", "fill", "new_full", "add",
             "masked_select", "masked_select_backward", "masked_fill", "copy", "empty_like", "sum_to_size", "clone", "to_copy"}
