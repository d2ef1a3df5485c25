"""Elementwise ops as one C loop (csrc/elementwise.c), against real PyTorch and against their
NumPy fallbacks."""
import numpy as np
import pytest
import torch

import mindtorch.torch as mt
from mindtorch.backend.cpu import _numpy_private, pointwise
from mindtorch.backend.c_kernels import build, elementwise
from mindtorch.core.dispatch.primitives import HOST

needs_c = pytest.mark.skipif(build.compiler() is None or elementwise.lib() is None, reason="no C compiler")
DTYPES = ("float32", "float64", "float16", "bfloat16")
ODD = [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 20.5, -20.5, 88.7, -88.7, -104.5, 1e-8, -1e-8]

#: name -> (number of operands, function of torch and the operands, tolerance in ulps)
OPS = {
    "add": (2, lambda t, a, b: a + b, 0), "sub": (2, lambda t, a, b: a - b, 0), "mul": (2, lambda t, a, b: a * b, 0), "div": (2, lambda t, a, b: a / b, 0),
    "rsub": (2, lambda t, a, b: t.rsub(a, b), 0), "maximum": (2, lambda t, a, b: t.maximum(a, b), 0), "minimum": (2, lambda t, a, b: t.minimum(a, b), 0),
    "add alpha": (2, lambda t, a, b: t.add(a, b, alpha=0.3), 0), "sub alpha": (2, lambda t, a, b: t.sub(a, b, alpha=0.3), 0),
    "lerp": (3, lambda t, a, b, c: t.lerp(a, b, c), 0), "lerp near": (2, lambda t, a, b: t.lerp(a, b, 0.3), 0), "lerp far": (2, lambda t, a, b: t.lerp(a, b, 0.7), 0),
    "addcmul": (3, lambda t, a, b, c: t.addcmul(a, b, c, value=0.5), 0), "addcdiv": (3, lambda t, a, b, c: t.addcdiv(a, b, c, value=0.5), 0),
    "add number": (1, lambda t, a: a + 1.7, 0), "div number": (1, lambda t, a: 1.7 / a, 1), "neg": (1, lambda t, a: -a, 0), "abs": (1, lambda t, a: t.abs(a), 0), "square": (1, lambda t, a: t.square(a), 0), "sqrt": (1, lambda t, a: t.sqrt(a), 2),
    "sign": (1, lambda t, a: t.sign(a), 0), "rsqrt": (1, lambda t, a: t.rsqrt(a), 0), "reciprocal": (1, lambda t, a: t.reciprocal(a), 0),
    "sigmoid": (1, lambda t, a: t.sigmoid(a), 3), "clamp": (1, lambda t, a: t.clamp(a, -0.5, 0.5), 0), "clamp min": (1, lambda t, a: t.clamp(a, min=-0.5), 0),
    "clamp crossed": (1, lambda t, a: t.clamp(a, 1, -1), 0), "clamp nan": (1, lambda t, a: t.clamp(a, float("nan"), 1), 0),
    "relu": (1, lambda t, a: t.relu(a), 0), "leaky_relu": (1, lambda t, a: t.nn.functional.leaky_relu(a, 0.1), 0),
    "leaky_relu down": (1, lambda t, a: t.nn.functional.leaky_relu(a, -2.0), 0), "hardtanh": (1, lambda t, a: t.nn.functional.hardtanh(a), 0),
    "threshold": (1, lambda t, a: t.nn.functional.threshold(a, 0.1, 7.0), 0), "hardshrink": (1, lambda t, a: t.nn.functional.hardshrink(a), 0),
    "softshrink": (1, lambda t, a: t.nn.functional.softshrink(a), 0), "hardsigmoid": (1, lambda t, a: t.nn.functional.hardsigmoid(a), 1),
    "hardswish": (1, lambda t, a: t.nn.functional.hardswish(a), 1), "elu": (1, lambda t, a: t.nn.functional.elu(a, 0.7), 3),
    "celu": (1, lambda t, a: t.nn.functional.celu(a, 1.5), 3), "selu": (1, lambda t, a: t.selu(a), 3), "silu": (1, lambda t, a: t.nn.functional.silu(a), 3),
    "bce": (2, lambda t, a, b: t.nn.functional.binary_cross_entropy(t.sigmoid(t.nan_to_num(a).clamp(-4, 4)), t.nan_to_num(b).clamp(0, 1), reduction="none"), 400),
    "bce with logits": (2, lambda t, a, b: t.nn.functional.binary_cross_entropy_with_logits(a, b.clamp(0, 1), reduction="none"), 400),
    "mse_loss": (2, lambda t, a, b: t.nn.functional.mse_loss(a, b, reduction="none"), 0),
    "smooth_l1_loss": (2, lambda t, a, b: t.nn.functional.smooth_l1_loss(a, b, reduction="none", beta=0.7), 3),
    "huber_loss": (2, lambda t, a, b: t.nn.functional.huber_loss(a, b, reduction="none", delta=0.7), 3),
    "remainder": (2, lambda t, a, b: t.remainder(a, b + 0.5), None), "floor_divide": (2, lambda t, a, b: t.floor_divide(a, b + 0.5), None),
    "erf": (1, lambda t, a: t.erf(t.where(t.abs(a) < 1e-6, a * 0, a)), 6), "gelu": (1, lambda t, a: t.nn.functional.gelu(a.clamp(-1, 60)), 64),
    "gelu tanh": (1, lambda t, a: t.nn.functional.gelu(a.clamp(-1, 60), approximate="tanh"), 64),
    "softplus": (1, lambda t, a: t.nn.functional.softplus(a, 1.5, 15), 5), "logsigmoid": (1, lambda t, a: t.nn.functional.logsigmoid(a), 4),
}
#: PyTorch computes these float64 gradients with a float32 constant, or rounds nearly vanishing ones
#: differently.
ROUGH = {"hardsigmoid", "celu", "silu", "sigmoid", "lerp", "addcdiv", "addcmul", "sqrt", "rsqrt", "div", "softplus", "logsigmoid", "smooth_l1_loss", "huber_loss", "elu", "selu", "reciprocal", "erf", "gelu", "gelu tanh"}


def _values(rs, shape, dtype):
    x = np.asarray(rs.standard_normal(shape) * 3)
    flat = x.reshape(-1)
    at = rs.permutation(flat.size)[:len(ODD)]
    flat[at] = ODD[:len(at)]
    return torch.from_numpy(x).to(getattr(torch, dtype))


def _ours(x):
    return mt.from_numpy((x if x.dtype == torch.float64 else x.float()).detach().numpy().copy()).to(getattr(mt, str(x.dtype)[6:]))


#: ops for which the sign of a zero is compared too
SIGNED = {"add", "sub", "mul", "div", "neg", "abs", "leaky_relu", "lerp", "add alpha", "addcmul"}


def _same(theirs, ours, dtype, units, what, absolute=0.0):
    """Checks equality within `units` ulps, or within `absolute` ulps of one; nan equals nan."""
    assert tuple(ours.shape) == tuple(theirs.shape) and str(ours.dtype)[6:] == dtype, what
    a, b = theirs.detach().double().numpy(), ours.detach().double().numpy()
    info = torch.finfo(getattr(torch, dtype))
    if elementwise.lib() is None:  # NumPy fuses nothing
        units, absolute = max(units, 5), max(absolute, 100)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=what)
    np.testing.assert_allclose(b, a, rtol=units * info.eps, atol=max(units * info.tiny, absolute * info.eps), err_msg=what)
    if what.split(" float")[0] in SIGNED:
        # other values carry their sign; where terms cancel, rounding decides it
        zero = (a == 0) & (b == 0)
        np.testing.assert_array_equal(np.signbit(a)[zero], np.signbit(b)[zero], err_msg=what)


@pytest.mark.parametrize("name", OPS)
def test_values_match_torch(name):
    """Checks small arrays (vectors and a tail) and large ones, with non-finite values."""
    count, fn, units = OPS[name]
    rs = np.random.RandomState(len(name))
    if units is None:
        return _against_numpy(name)
    for dtype in DTYPES:
        for shape in ((45,), (3, 1371), (70003,)) if dtype == "float32" else ((45,), (3, 1371)):
            xs = [_values(rs, shape, dtype) for _ in range(count)]
            half = dtype in ("float16", "bfloat16")
            # In half precision PyTorch fuses only some elements; the rounding error of an unfused
            # factor scales with the terms.
            _same(fn(torch, *xs), fn(mt, *map(_ours, xs)), dtype, max(units, 2 * half), f"{name} {dtype} {shape}", 100 * half * ("add" in name or "alpha" in name) + 8 * ("bce" in name))


#: NumPy's names of functions that PyTorch names differently
ARCS = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "pow": "power", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}


def _anything(rs, n):
    """Returns floats of all bit patterns, of the usual argument ranges, and those of ODD."""
    bits = rs.randint(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([bits, *[rs.uniform(-k, k, n).astype(np.float32) for k in (1, 4, 150)], np.array(ODD + [3.4e38, -3.4e38, 89.2, 1e9, 2e9], np.float32)])


@needs_c
@pytest.mark.parametrize("name", [n for n in pointwise.FUNCTIONS if n != "pow_number"])
def test_functions_are_accurate_to_a_few_ulps(name):
    """Checks the C functions against float64 within 2.5 ulps, including signs, zeros, infinities
    and nan.

    Also compares every implementation with PyTorch.
    """
    rs = np.random.RandomState(8)
    x = _anything(rs, 200_000)
    operands = (x, rs.permutation(x)) if name in ("atan2", "pow") else (x,)
    if len(operands) == 2:
        odd = np.array(ODD, np.float32)
        operands = np.concatenate([operands[0], np.repeat(odd, len(odd))]), np.concatenate([operands[1], np.tile(odd, len(odd))])
    got = pointwise.Loop(name)(*operands)
    with np.errstate(all="ignore"):
        exact = getattr(np, ARCS.get(name, name))(*[a.astype(np.float64) for a in operands])
        want = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    known = ~np.isnan(want)
    got, want, exact = got[known], want[known], exact[known]
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    finite = np.isfinite(want)
    assert np.isfinite(got[finite]).all()
    unit = np.spacing(np.maximum(np.abs(want[finite]), np.finfo(np.float32).tiny)).astype(np.float64)
    assert (np.abs(got[finite] - exact[finite]) / unit).max() < 2.5
    for dtype in DTYPES:
        for n in (45, 3000):
            xs = [_values(rs, (n,), dtype) for _ in operands]
            _same(getattr(torch, name)(*xs), getattr(mt, name)(*map(_ours, xs)), dtype, 4, f"{name} {dtype} {n}")


@needs_c
@pytest.mark.parametrize("p", [1.5, -2.5, 4, 0.25, -3, 0, 1e-3, float("inf"), -float("inf")])
def test_power_with_scalar_exponent(p):
    """Checks that a scalar exponent gives the result of an exponent tensor, and PyTorch's."""
    rs = np.random.RandomState(9)
    x = _anything(rs, 3000)
    np.testing.assert_array_equal(pointwise.Loop("pow_number").unary_call(x, (p, 0.0, 0.0)), pointwise.Loop("pow")(x, np.full_like(x, p)))
    for dtype in DTYPES:
        for n in (45, 3000):
            a = _values(rs, (n,), dtype)
            _same(a ** p, _ours(a) ** p, dtype, 4, f"{dtype} {n}")


def _against_numpy(name):
    """Compares quotients of all magnitudes, with zero, infinite and denormal divisors, bitwise with
    NumPy.

    These ops have Python's semantics. PyTorch itself differs at denormals and zeros.
    """
    rs = np.random.RandomState(4)
    for n in (1, 255, 700, 66000):
        x, y = ((rs.standard_normal(n) * 10.0 ** rs.randint(-3, k, n)).astype(np.float32) for k in (9, 3))
        for a in (x, y):
            a[rs.randint(0, n, n // 50)] = rs.choice(np.array(ODD, np.float32), n // 50)
        y[::7] = np.round(y[::7]) + np.float32(1)
        with np.errstate(all="ignore"):
            want = getattr(np, name)(x, y)
        if name == "remainder":
            # in PyTorch a zero remainder has the dividend's sign
            want = np.where(want == 0, np.copysign(want, x), want)
        got = getattr(mt, name)(mt.from_numpy(x), mt.from_numpy(y)).numpy()
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got)[got == got], np.signbit(want)[want == want])
        with np.errstate(over="ignore"):
            common = np.isfinite(x) & np.isfinite(y) & (np.abs(y) > 1e-3) & (np.abs(x / np.where(y == 0, 1, y)) < 1e5)
        theirs = getattr(torch, name)(torch.from_numpy(x[common]), torch.from_numpy(y[common])).numpy()
        np.testing.assert_array_equal(got[common], theirs)


@pytest.mark.parametrize("name", OPS)
def test_gradients_match_torch(name):
    count, fn, units = OPS[name]
    rs = np.random.RandomState(len(name))
    if units is None:
        return
    for dtype in ("float32", "float64"):
        xs = [torch.from_numpy(rs.standard_normal((37, 53)) * 3 + 0.01).to(getattr(torch, dtype)) for _ in range(count)]
        if name in ("sqrt", "rsqrt", "reciprocal", "div", "addcdiv"):
            xs = [x.abs() + 0.1 for x in xs]
        g = torch.from_numpy(rs.standard_normal((37, 53))).to(getattr(torch, dtype))
        theirs, ours = [x.clone().requires_grad_() for x in xs], [_ours(x).requires_grad_() for x in xs]
        fn(torch, *theirs).backward(g)
        fn(mt, *ours).backward(_ours(g))
        for a, b in zip(theirs, ours):
            at = (1e-5 if dtype == "float32" else 1e-7) if name in ROUGH else 1e-6 if dtype == "float32" else 1e-14
            np.testing.assert_allclose(b.grad.numpy(), a.grad.numpy(), rtol=at, atol=at, err_msg=f"{name} {dtype}")


SHAPES = [((300, 65), (65,)), ((300, 65), (300, 1)), ((64, 33), (33,)), ((64, 33), (64, 1)), ((64, 33), (1, 1)), ((33,), (64, 33)), ((64, 1), (1, 33)), ((64, 1), (64, 33)), ((5, 7, 4, 31), (7, 1, 1)),
          ((5, 7, 4, 31), (5, 1, 4, 31)), ((2, 3, 2, 3, 2, 3, 2, 3, 2, 18), (3, 1, 3, 1, 3, 1, 3, 1, 18)), ((1, 70001), (70001,)), ((3, 5000), (3, 1)), ((2100, 3), (3,)),
          ((0, 5), (5,)), ((40, 40), ()), ((1,), ()), ((1, 1), (1,)), ((300, 5), (300, 1))]


@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_broadcast(dtype):
    """Broadcasts rows, columns, channels and single elements on either side, also where they must
    be transposed or have too many dimensions."""
    rs = np.random.RandomState(7)
    for a, b in SHAPES:
        x, y = _values(rs, a, dtype), _values(rs, b, dtype)
        z = _values(rs, a[-1:], dtype)
        for name in ("add", "div", "maximum", "lerp near"):
            _same(OPS[name][1](torch, x, y), OPS[name][1](mt, _ours(x), _ours(y)), dtype, 1, f"{name} {a} {b}", 40)
        _same(torch.lerp(x, y, z), mt.lerp(_ours(x), _ours(y), _ours(z)), dtype, 1, f"lerp {a} {b}", 40)


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_operands(dtype):
    """Checks that slices of rows, steps, transposes, reversed views and repeated elements give the
    results of their copies."""
    rs = np.random.RandomState(3)
    big = _values(rs, (60, 80), dtype)
    mine = _ours(big)
    views = [lambda x: x[:, 5:45], lambda x: x[3:43:2, ::2], lambda x: x[:40, :40].t(), lambda x: x[::3, 1:41], lambda x: x[:1, :40].expand(20, 40),
             lambda x: x[:40, :1].expand(40, 30), lambda x: x[7], lambda x: x[:, 7], lambda x: x.view(6, 10, 80)[:, 2:5, 30:70]]
    for i, view in enumerate(views):
        a, b = view(big), view(mine)
        for fn in (lambda t, x: t.lerp(x, x + 1, x), lambda t, x: t.nn.functional.leaky_relu(x, 0.2), lambda t, x: x * x[..., :1], lambda t, x: t.sign(x)):
            r, q = fn(torch, a), fn(mt, b)
            _same(r, q, dtype, 1, f"view {i}", 40)
            assert q.stride() == r.stride()


def test_written_in_place():
    """Writes into rows of a larger tensor, with row and column operands, and with the operand as
    result."""
    rs = np.random.RandomState(5)
    for dtype in ("float32", "float64"):
        big, row, column = _values(rs, (50, 90), dtype), _values(rs, (60,), dtype), _values(rs, (50, 1), dtype)
        mine, r, c = _ours(big), _ours(row), _ours(column)
        for t, m in ((big[:, 10:70], mine[:, 10:70]),):
            for do in (lambda x, a, b: x.add_(a), lambda x, a, b: x.mul_(b), lambda x, a, b: x.sub_(b), lambda x, a, b: x.div_(a), lambda x, a, b: x.add_(x),
                       lambda x, a, b: x.add_(a, alpha=0.5), lambda x, a, b: x.lerp_(x.clone(), 0.25), lambda x, a, b: x.clamp_(-2, 2)):
                do(t, row, column), do(m, r, c)
        _same(big, mine, dtype, 0, "in place")


@needs_c
def test_results_do_not_depend_on_threads(on_threads):
    rs = np.random.RandomState(9)
    x, y, column = (_ours(_values(rs, s, "float32")) for s in ((700, 301), (700, 301), (700, 1)))
    h = x.to(mt.bfloat16)

    def results():
        return [r.float().numpy().tobytes() for r in (mt.lerp(x, y, column), x * column, mt.nn.functional.silu(x), mt.nn.functional.elu(y), h + h, h * 3.0)]
    one, two, three = on_threads(results)
    assert one == two == three


#: kernels with a C loop -> constants
CONSTANTS = {"pow_number": {"p": 1.7}, "leaky_relu": {"slope": 0.1}, "leaky_relu_backward": {"slope": 0.1}, "clamp_numbers": {"low": -1.0, "high": 2.0}, "hardtanh": {"low": -1.0, "high": 2.0},
             "hardtanh_backward": {"low": -1.0, "high": 2.0}, "threshold": {"threshold": 0.5, "value": 3.0}, "threshold_backward": {"threshold": 0.5},
             "hardshrink": {"lambd": 0.5}, "shrink_backward": {"lambd": 0.5}, "softshrink": {"lambd": 0.5}, "softplus": {"beta": 1.5, "threshold": 10.0},
             "softplus_backward": {"beta": 1.5, "threshold": 10.0}, "add_scaled": {"alpha": 0.3}, "sub_scaled": {"alpha": 0.3}, "lerp_number": {"weight": 0.3},
             "glu": {"dim": 1}, "glu_backward": {"dim": 1}, **dict.fromkeys(("elu", "celu", "elu_backward", "celu_backward"),
                                                                            {"alpha": 1.5, "scale": 1.1, "input_scale": 0.9})}


@needs_c
def test_numpy_fallbacks_match_the_c_loops():
    """Checks that the NumPy fallback of every C loop matches it up to rounding, and that the loop
    really runs."""
    from mindtorch.core.dispatch.primitives import PRIMITIVES
    rs, seen = np.random.RandomState(1), set()
    for name, fn in HOST.items():
        in_c = pointwise.HALF.get(fn)
        # loops for half precision only: tests/ops/test_half_scalars.py
        if in_c is None or not hasattr(fn, "__wrapped__") or getattr(in_c, "__name__", "") == "in_half":
            continue
        count = len(PRIMITIVES[name].prim.inputs)
        kw = CONSTANTS.get(name, {})
        xs = [rs.standard_normal((40, 60)).astype(np.float32) for _ in range(count)]
        if name in ("addcmul", "addcdiv"):
            xs[3] = np.array(0.5, np.float32)
        elif name == "glu_backward":
            xs[0] = xs[0][:, :30].copy()
        elif name == "relu_backward":
            xs[1] = np.maximum(xs[1], 0)
        quick, slow = in_c(*xs, **kw), fn.__wrapped__(*xs, **kw)
        assert quick is not None, name
        np.testing.assert_allclose(quick, slow, rtol=2e-6, atol=1e-6, equal_nan=True, err_msg=name)
        seen.add(name)
    assert len(seen) >= 35, seen


def test_other_dtypes_use_numpy_kernels():
    """Checks that integers, complex numbers and bool use NumPy's kernels; mixed operands are
    promoted first."""
    for dtype in ("int64", "int32", "uint8", "complex64"):
        x = torch.arange(3000).reshape(50, 60).to(getattr(torch, dtype))
        m = mt.from_numpy(x.numpy().copy())
        for fn in (lambda t, v: v + v[0], lambda t, v: v * v[:, :1], lambda t, v: t.add(v, v, alpha=2), lambda t, v: t.sgn(v)):
            np.testing.assert_array_equal(fn(mt, m).numpy(), fn(torch, x).numpy())
    a, b = torch.randn(40, 50), torch.randn(50).double()
    np.testing.assert_array_equal((_ours(a) + _ours(b)).numpy(), (a + b).numpy())


def test_mismatched_shapes_raise_torch_errors():
    for fn in (lambda t: t.lerp(t.ones(40, 50), t.ones(40, 50), t.ones(7)), lambda t: t.ones(40, 50) + t.ones(49),
               lambda t: t.ones(600, dtype=t.float16) * t.ones(599, dtype=t.float16)):
        with pytest.raises(RuntimeError) as theirs:
            fn(torch)
        with pytest.raises(RuntimeError) as ours:
            fn(mt)
        assert str(ours.value) == str(theirs.value)


def test_log1p_is_accurate_for_all_bit_patterns():
    """Checks log1p within one ulp of the true value (NumPy's vector code: two) for all bit
    patterns.

    Signs of zero, infinities and nan are PyTorch's.
    """
    rs = np.random.RandomState(0)
    a = np.concatenate([rs.randint(0, 1 << 32, 200000, dtype=np.uint64).astype(np.uint32).view(np.float32), rs.uniform(-1, 3, 50000).astype(np.float32),
                        np.float32([0, -0.0, np.inf, -np.inf, np.nan, -1, -2, 1e-45, -1e-45, 3.4e38, -0.99999994])])
    ours, theirs = mt.from_numpy(a).log1p().numpy(), torch.from_numpy(a).log1p().numpy()
    with np.errstate(all="ignore"):
        true = np.log1p(a.astype(np.float64))
    plain = np.isfinite(true)
    np.testing.assert_array_equal(ours[~plain], theirs[~plain])
    np.testing.assert_array_equal(np.signbit(ours[a == 0]), np.signbit(a[a == 0]))
    units = 2 if _numpy_private.VECTORS else 1
    assert (abs(ours[plain] - true[plain]) <= units * np.spacing(np.maximum(abs(true[plain]), 1e-45).astype(np.float32))).all()
