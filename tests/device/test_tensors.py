"""Tensors on the npu device: their location, and that their values can be read back."""
import numpy as np
import pytest

import mindtorch.torch as mt

pytestmark = pytest.mark.smoke


def test_values_round_trip_through_the_device(npu):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = mt.from_numpy(a).to(npu)
    assert x.device == npu and x.is_contiguous()
    np.testing.assert_array_equal((x + 1).cpu().numpy(), a + 1)
    np.testing.assert_array_equal(x.t().cpu().numpy(), a.T)


def test_moved_module_keeps_its_parameters(npu):
    model = mt.nn.Sequential(mt.nn.Linear(3, 2), mt.nn.Linear(2, 3))
    model[1].weight = mt.nn.Parameter(mt.ones(3, 2))
    first, optimizer = model[0].weight, mt.optim.SGD(model.parameters(), lr=1.)
    model.to(npu)
    assert model[0].weight is first and first.device == npu
    model(mt.ones(1, 3, device=npu)).sum().backward()
    before = first.detach().cpu().clone()
    optimizer.step()
    assert not mt.equal(first.detach().cpu(), before)


def test_cached_kernel_calls_match_the_host(npu):
    for dtype in (mt.float32, mt.bool, mt.int64, mt.float16, mt.bfloat16, mt.float64):
        a, b = mt.tensor([[1, 0], [2, 1]]).to(dtype), mt.tensor([[1, 1], [0, 3]]).to(dtype)
        p, q = a.to("npu"), b.to("npu")
        for _ in range(3):
            for f in (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a + b[0], lambda a, b: a + b.t(), lambda a, b: a[:, :1] * b, lambda a, b: a + 1,
                      lambda a, b: a == b):
                want, got = f(a, b), f(p, q)
                assert got.dtype == want.dtype and got.stride() == want.stride() and mt.equal(got.cpu(), want)
    x = mt.ones(3, device="npu", requires_grad=True)
    for _ in range(3):
        y = x + x
        assert y.requires_grad and y.grad_fn is not None
        with mt.no_grad():
            assert not (x + x).requires_grad
        with mt.inference_mode():
            assert (x + x).is_inference()
        with pytest.raises(RuntimeError, match="same device"):
            x + mt.ones(3)
    kept = [x + x for _ in range(200)]
    assert len({t.data_ptr() for t in kept}) == 200


REFUSED = {
    "of both": lambda c, b, f: c > c, "with a number": lambda c, b, f: c > 1, "with a number first": lambda c, b, f: 1 & f, "a shift": lambda c, b, f: 2 << f,
    "pow": lambda c, b, f: mt.pow(True, b), "lerp": lambda c, b, f: mt.lerp(b, b, 0.5), "addcmul": lambda c, b, f: mt.addcmul(b, b, b), "unary": lambda c, b, f: c.round(),
    "special": lambda c, b, f: mt.special.zeta(2, c), "reduction": lambda c, b, f: c.max(), "masked": lambda c, b, f: mt.masked.cumsum(f, 0, dtype=mt.bool),
    "arange": lambda c, b, f: mt.arange(3, dtype=mt.bool, device=c.device), "product": lambda c, b, f: b @ b, "activation": lambda c, b, f: mt.relu(c),
    "norm": lambda c, b, f: mt.log_softmax(b, 0), "index": lambda c, b, f: c.index_reduce(0, mt.tensor([0], device=c.device), c[:1], "amax"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_dtype_errors_name_the_tensors_device(case, npu):
    for device in ("cpu", npu):
        given = [mt.ones(3, dtype=d, device=device) for d in (mt.complex64, mt.bool, mt.float32)]
        with pytest.raises(NotImplementedError, match=f"on device {device}"):
            REFUSED[case](*given)
