"""torch.masked against PyTorch."""
import math

import numpy as np
import pytest
from _expressions import compare as same_outcomes
from _parity import In, check, mine, values
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = ["float32", "float64", "bfloat16", "int64", "int32", "bool", "complex64"]
SHAPES = [(), (3,), (2, 3), (2, 3, 4), (0, 3), (1, 4)]


def case(data, dtypes=DTYPES, shapes=SHAPES):
    """Returns an input and a mask that broadcasts to it (or None)."""
    shape, d = data.draw(st.sampled_from(shapes)), data.draw(st.sampled_from(dtypes))
    seed = data.draw(st.integers(0, 10**6))
    x = In(values(seed, shape, d), d, grad=True)
    kind = data.draw(st.sampled_from(["none", "full", "row", "ones", "wrong"]))
    if kind == "none":
        return x, None
    mshape = {"full": shape, "row": shape[-1:], "ones": (1,) * len(shape), "wrong": (2, *shape)}[kind]
    return x, In(values(seed + 1, mshape, "bool"))


def compare(name, x, mask, *args, **kw):
    if mask is None:
        check(lambda T, a: getattr(T.masked, name)(a, *args, **kw), x, rtol=1e-4, grad_rtol=1e-3)
    else:
        check(lambda T, a, m: getattr(T.masked, name)(a, *args, mask=m, **kw), x, mask, rtol=1e-4, grad_rtol=1e-3)


def twice_wrong(x, mask, dim):
    """True for bool or complex64, which some ops reject, combined with a wrong mask or dim: the
    order of errors is not compared."""
    n = max(x.values.ndim, 1)
    return x.dtype in ("bool", "complex64") and (dim == n or mask is not None and mask.values.ndim > x.values.ndim)


def dims(data, ndim):
    n = max(ndim, 1)
    one = st.integers(-n, n - 1)
    return data.draw(st.one_of(st.none(), one, st.just(()), st.just(n),
                               st.lists(one, min_size=1, max_size=2, unique_by=lambda d: d % n).map(tuple)))


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin", "var", "std", "logsumexp"])
@settings(max_examples=25)
@given(st.data())
def test_reductions(name, data):
    # torch's complex moments divide by complex counts, and an integer logsumexp is a cast that may
    # overflow.
    kinds = [d for d in DTYPES if not (d == "complex64" and name in ("var", "std", "logsumexp", "prod"))]
    x, mask = case(data, kinds)
    dim = dims(data, x.values.ndim)
    if name == "logsumexp" and x.dtype.startswith("int") or twice_wrong(x, mask, dim):
        return
    if name in ("var", "std", "mean"):
        x.grad = x.grad and mask is None
    compare(name, x, mask, dim, keepdim=data.draw(st.booleans()))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@settings(max_examples=25)
@given(st.data())
def test_index_of_extremes(name, data):
    x, mask = case(data)
    if x.dtype == "bool" or x.dtype == "bfloat16" and x.values.size > 99:
        return
    x.values = np.random.RandomState(data.draw(st.integers(0, 99))).permutation(x.values.size).reshape(x.values.shape)
    dim = dims(data, x.values.ndim)
    if not isinstance(dim, tuple) and not twice_wrong(x, mask, dim):
        compare(name, x, mask, dim, keepdim=data.draw(st.booleans()))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin", "cumsum", "cumprod"])
@settings(max_examples=25)
@given(st.data())
def test_along_one_dim(name, data):
    x, mask = case(data, [d for d in DTYPES if d != "bfloat16"])
    n = max(x.values.ndim, 1)
    dim = data.draw(st.integers(-n, n))
    if name in ("cumsum", "cumprod") and x.dtype == "bool" or x.dtype in ("int64", "int32", "bool") and not x.values.size:
        # mindtorch rejects these; PyTorch accepts some of them if there is nothing to compute
        return
    if not twice_wrong(x, mask, dim):
        compare(name, x, mask, dim)


@settings(max_examples=25)
@given(st.data())
def test_norms(data):
    x, mask = case(data, ["float32", "float64", "complex64"], [(3,), (2, 3), (2, 3, 4)])
    ord = data.draw(st.sampled_from([0.0, 1.0, 2.0, 3.0, 2, math.inf, -math.inf]))
    x.grad = ord in (1.0, 2.0, 3.0) and mask is None
    dim, keepdim, along = dims(data, x.values.ndim), data.draw(st.booleans()), data.draw(st.integers(-1, x.values.ndim))
    if not twice_wrong(x, mask, dim):
        compare("norm", x, mask, ord, dim, keepdim=keepdim)
    if not twice_wrong(x, mask, along):
        compare("normalize", x, mask, ord, along)


def test_norms_reject_invalid_arguments():
    x, i, m = In(values(0, (2, 3), "float32")), In(values(0, (2, 3), "int64")), In([True, False, True])
    for ord in (None, "fro"):
        check(lambda T, a, m, ord=ord: T.masked.norm(a, ord, 1, mask=m), x, m)
    for f in (lambda T, a, m: T.masked.norm(a, 2, mask=m), lambda T, a, m: T.masked.normalize(a, 2.0, 1, mask=m),
              lambda T, a, m: T.masked.norm(a, -math.inf, mask=m), lambda T, a, m: T.masked.norm(a, dtype=T.float32)):
        check(f, i, m)


@settings(max_examples=25)
@given(st.data())
def test_median(data):
    x, mask = case(data, ["float32", "float64", "int64", "int32"], [(3,), (2, 3), (2, 3, 4)])
    compare("median", x, mask, data.draw(st.integers(-1, x.values.ndim - 1)), keepdim=data.draw(st.booleans()))


@settings(max_examples=25)
@given(st.data())
def test_logaddexp(data):
    x, mask = case(data, ["float32", "float64", "int64", "bool"], [(3,), (2, 3)])
    y = In(values(7, x.values.shape, x.dtype), x.dtype, grad=True)
    check(lambda T, a, b: T.masked.logaddexp(a, b), x, y)
    if mask is not None:
        x.grad = y.grad = False
        check(lambda T, a, b, m: T.masked.logaddexp(a, b, input_mask=m), x, y, mask)
        # (computed and rounded in the operands' dtype)
        check(lambda T, a, b, m: T.masked.logaddexp(a, b, input_mask=m, other_mask=m, dtype=T.float64), x, y, mask, rtol=1e-6)


@pytest.mark.parametrize("to", ["float64", "float32", "int64"])
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "std", "var", "argmin", "median", "cumsum", "softmax"])
@pytest.mark.parametrize("d", ["float32", "int64"])
def test_result_dtype(name, to, d):
    if name in ("std", "var") and to == "int64":
        return
    x, mask = In(values(3, (3, 4), d), d), In([[True, False, True, True], [False, True, True, False], [True, True, True, True]])
    check(lambda T, a, m: getattr(T.masked, name)(a, 1, mask=m, dtype=getattr(T, to)), x, mask, rtol=1e-5)


def test_gradient_is_zero_at_masked_elements():
    mask = In([[True, False, True], [True, True, False]])
    x = In([[1.0, 5.0, 2.0], [3.0, -1.0, 9.0]], "float64", grad=True)
    for name in ("sum", "mean", "amax", "prod", "var", "std", "logsumexp"):
        check(lambda T, a, m, name=name: getattr(T.masked, name)(a, 1, mask=m), x, mask, second=True)


@pytest.mark.parametrize("correction", [0, 2, 0.5])
def test_correction(correction):
    x, mask = In(values(1, (2, 4), "float64"), "float64"), In([[True, False, True, True], [True, True, True, True]])
    check(lambda T, a, m: T.masked.var(a, 1, correction=correction, mask=m), x, mask)
    check(lambda T, a, m: T.masked.std(a, 1, correction=correction, unbiased=True, mask=m), x, mask)
    check(lambda T, a, m: T.masked.std(a, unbiased=False, mask=m), x, mask)


def test_masked_tensor_raises():
    x = mine.ones(2)
    for make in (mine.masked.masked_tensor, mine.masked.as_masked_tensor, mine.masked.MaskedTensor):
        with pytest.raises(NotImplementedError, match="mask="):
            make(x, x > 0)
    assert not mine.masked.is_masked_tensor(x)


@pytest.mark.parametrize("d", ["float32", "float64", "float16", "bfloat16", "complex64", "complex128"])
def test_normalize_divides_by_at_least_eps(d):
    """Where the norm is below eps, the divisor is eps in the norm's own dtype."""
    x, mask = In(np.array([[0.01, -0.02, 0.03], [3.0, -4.0, 1.0]]), d), In([[True, True, False], [True, True, False]])
    for eps in (0.1, 1e-12, 7):
        check(lambda T, a, m, eps=eps: T.masked.normalize(a, 2.0, 1, eps=eps, mask=m), x, mask)


def test_empty_dim_reduces_like_torch():
    ops = ["sum", "prod", "mean", "amax", "amin", "norm", "var", "std"]
    same_outcomes([f"torch.masked.{op}(torch.ones(2, 3) * 2, {'2, ' if op == 'norm' else ''}dim={dim}, keepdim={keep}, mask={mask})" for op in ops
                   for dim in ("[]", "()", "None") for keep in (True, False) for mask in ("None", "L([True, False, True])")])


def test_reduction_identities():
    same_outcomes([f"torch.masked._reduction_identity({op}, torch.ones(2, dtype=torch.{d}){more})" for d in ("float32", "float16", "int16", "uint8", "bool", "complex64")
                   for op, more in [*[(repr(n), "") for n in ("sum", "masked.prod", "amax", "amin", "argmax", "mean", "std", "median", "logsumexp", "cumprod", "softmax")],
                                    ("'norm'", ", 2.0"), ("'norm'", ", float('-inf')")]])
