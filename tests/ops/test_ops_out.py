"""out= against PyTorch: accepted dtypes, the dtype of the computation, and shapes and strides of
the written tensor."""
import itertools
import warnings

import numpy as np
import pytest
import torch as real
from _expressions import compare
from hypothesis import given, strategies as st

import mindtorch.torch as mine

#: Calls of ops with `out=o` over x (a matrix of two rows, its dtype drawn), v (a row of it) and i (indices).
CALLS = """
torch.mm(x, x, out=o) torch.matmul(x, v, out=o) torch.addmm(x, x, x, out=o) torch.bmm(x[None], x[None], out=o) torch.dot(v, v, out=o) torch.tril(x, out=o)
torch.neg(x, out=o) torch.floor(x, out=o) torch.trunc(x, out=o) torch.round(x, out=o) torch.sign(x, out=o) torch.sgn(x, out=o) torch.exp(x, out=o)
torch.add(x, x, out=o) torch.mul(x, 2, out=o) torch.eq(x, x, out=o) torch.isposinf(x, out=o) torch.signbit(x, out=o) torch.all(x, out=o) torch.any(x, 0, out=o)
torch.amax(x, 0, out=o) torch.argmax(x, 0, out=o) torch.nonzero(x, out=o) torch.take(x, i, out=o) torch.index_select(x, 0, i, out=o) torch.masked_select(x, x==x, out=o)
torch.gather(x, 1, i[None], out=o) torch.scatter(x, 0, i[None], x, out=o) torch.cat([x,x], out=o) torch.stack([x,x], out=o) torch.diag(x, out=o) torch.cross(x, x, out=o)
torch.sum(x, 0, out=o) torch.sum(x, 0, dtype=torch.float32, out=o) torch.prod(x, 0, out=o) torch.mean(x, 0, out=o) torch.cumsum(x, 0, out=o)
torch.cumprod(x, 0, dtype=torch.float64, out=o) torch.logcumsumexp(x, 0, out=o) torch.softmax(x, 0, out=o) torch.quantile(x, 0.5, out=o) torch.nan_to_num(x, out=o)
torch.linalg.inv(x, out=o) torch.linalg.norm(x, out=o) torch.linalg.vector_norm(x, out=o) torch.norm(x, out=o) torch.linalg.det(x, out=o) torch.tensordot(x, x, out=o)
torch.searchsorted(v, v, out=o) torch.bucketize(v, v, out=o) torch.heaviside(x, x, out=o) torch.float_power(x, 2, out=o) torch.hypot(x, x, out=o)
torch.sort(x, out=(o,j)) torch.max(x, 0, out=(o,j)) torch.max(x, x, out=o) torch.topk(v, 1, out=(o,j)) torch.kthvalue(v, 1, out=(o,j)) torch.median(x, 0, out=(o,j))
torch.mode(x, 0, out=(o,j)) torch.cummax(x, 0, out=(o,j)) torch.fft.irfft(x, out=o) torch.complex(v, v, out=o) torch.polar(v, v, out=o) torch.histc(x, 2, out=o)
""".replace("[x,x]", "[x, x]").split(" torch.")
KINDS = ("float32", "float64", "int64", "int32", "uint8", "bool", "complex64")


def _outcome(T, call, dtype, wanted, places):
    x = T.tensor([[1.75, 0.0, 3.5], [2.0, 5.25, 1.0], [0.0, 1.0, 4.0]]).to(getattr(T, dtype))
    scope = {"torch": T, "x": x, "v": x[0].clone() if dtype != "float64" else x[:, 0].clone(), "i": T.tensor([0, 1, 1]),
             "o": T.empty(0, dtype=getattr(T, wanted)), "j": T.empty(0, dtype=getattr(T, places))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            r = eval(call, scope)
        except Exception:
            return "an error"
    return [(str(t.dtype), tuple(t.shape), np.array(t.resolve_conj().numpy())) for t in (r if isinstance(r, tuple) else (r,))]


@pytest.mark.host_only("histc of integers is a device's alone, as in torch", cases=("torch.histc(x, 2, out=o)",))
@pytest.mark.parametrize("call", [c.strip() if c.strip().startswith("torch.") else "torch." + c.strip() for c in CALLS])
def test_dtypes_of_out(call):
    for dtype, wanted in itertools.product(("float32", "int64"), KINDS):
        for places in ("int64", "int32") if "j" in call else ("int64",):
            a, b = [_outcome(T, call, dtype, wanted, places) for T in (real, mine)]
            assert (a == "an error") is (b == "an error"), (call, dtype, wanted, places, a, b)
            if a != "an error":
                for x, y in zip(a, b, strict=True):
                    assert x[:2] == y[:2], (call, dtype, wanted)
                    np.testing.assert_allclose(y[2], x[2], rtol=1e-5, atol=1e-6, err_msg=f"{call} {dtype} {wanted}")


MAKERS = ["T.arange(0, 4, out=o)", "T.arange(0., 2., 0.5, out=o)", "T.range(1, 4, out=o)", "T.linspace(0, 6, 4, out=o)", "T.logspace(0, 2, 4, out=o)",
          "T.zeros(2, 2, out=o)", "T.ones(4, out=o)", "T.full((2, 2), 3, out=o)", "T.eye(2, out=o)", "T.linspace(0, 6, 7, out=o)", "T.arange(7, out=o)", "T.eye(3, out=o)"]
PLACES = {"new": "T.empty(0, dtype=d)", "alike": "T.full((2, 2), 9, dtype=d)", "narrowed": "base.narrow(1, 1, 2)", "turned": "T.full((2, 2), 9, dtype=d).t()",
          "stepped": "base.reshape(-1)[::2][:4]", "larger": "T.full((3, 5), 9, dtype=d)"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", PLACES)
@given(st.sampled_from(MAKERS), st.sampled_from(["float32", "bfloat16", "float16", "int64", "int32"]))
def test_factories_write_into_out(place, make, dtype):
    def made(T):
        d = getattr(T, dtype)
        scope = {"T": T, "d": d, "base": T.full((2, 5), 9, dtype=d)}
        scope["o"] = eval(PLACES[place], scope)
        try:
            r = eval(make, scope)
        except ValueError as e:  # (an integer dtype truncates the step to 0)
            return str(e)
        assert r is scope["o"]
        return tuple(r.shape), r.stride(), r.tolist(), scope["base"].tolist()
    assert made(mine) == made(real)


def test_factories_with_mismatched_out():
    compare([f"torch.{call}, {more}, out=torch.zeros(4, dtype=torch.int64))" for call, more in itertools.product(
        ["zeros(4", "ones(4", "empty(4", "full((4,), 2", "arange(4", "linspace(0, 3, 4", "logspace(0, 3, 4", "eye(2", "randint(1, (4,)", "randperm(1"],
        ["dtype=torch.float32", "layout=torch.sparse_coo", "device='meta'"])])
    for T in (real, mine):
        for r in (T.zeros(2, out=T.ones(2), requires_grad=True), T.rand(2, out=T.ones(2), requires_grad=True), T.arange(2, out=T.ones(2), requires_grad=True)):
            assert r.requires_grad


@pytest.mark.parametrize("draw", ["rand(5", "randn(5", "normal(0., 1., (5,)"])
def test_random_factories_with_empty_out(draw):
    for dtype in ("bfloat16", "float16", "float32", "float64"):
        o = mine.empty(0, dtype=getattr(mine, dtype))
        assert eval(f"mine.{draw}, out=o)", {"mine": mine, "o": o}) is o and tuple(o.shape) == (5,) and o.isfinite().all()


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 3), st.sampled_from(["bfloat16", "float16", "float32"]))
def test_boolean_masks_with_gaps(mask, step, dtype):
    """NumPy may copy zero-length pieces between the selected positions of a mask."""
    def picked(T):
        x = T.arange(len(mask) * step).to(getattr(T, dtype))[::step]
        m = T.tensor(mask)
        y = x.clone()
        y[m] = y[m] + 1
        return x[m].tolist(), y.tolist(), T.cat([x[:0], x]).tolist(), x.masked_select(~m).tolist(), x[:0].clone().tolist()
    assert picked(mine) == picked(real)
