"""Arithmetic, comparison, logical and bitwise ops, where, clamp, lerp and the operators against
PyTorch."""
import operator

import numpy as np
import pytest
from _parity import In, check, few, mine, real, values
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.smoke

REAL = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"]
ALL = [*REAL, "complex64"]
# PyTorch rejects floats and bool here
WHOLE = ["int64", "int32", "uint8", "bool", "int64", "float32"]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
LAYOUTS = ["plain", "plain", "transposed", "strided"]
SHAPES = [((), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((2, 3), ()), ((), (4,)), ((0, 3), (1, 3)),
          ((4, 1, 2), (3, 1)), ((5,), (2, 5)), ((2, 3), (2, 4))]
seeds = st.integers(0, 10**6)


def two(data, dtypes, low=-3.0, high=3.0, grad=True):
    shapes, s = data.draw(st.sampled_from(SHAPES)), data.draw(seeds)
    d, e = data.draw(st.sampled_from(dtypes)), data.draw(st.sampled_from(dtypes))
    # PyTorch's formulas compute some mixed-dtype gradients in the lower precision
    grad = grad and d == e
    if {d, e} == {"float16", "complex64"}:
        e = d                   # complex half is not supported
    return [In(values(s + i, shape, t, low, high), t, data.draw(st.sampled_from(LAYOUTS)), grad)
            for i, (shape, t) in enumerate(zip(shapes, (d, e)))]


BINARY = ["add", "sub", "mul", "div", "true_divide", "rsub", "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign",
          "nextafter", "ldexp", "gcd", "lcm", "logaddexp", "logaddexp2", "xlogy", "heaviside", "float_power", "eq", "ne", "lt", "le",
          "gt", "ge", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"]


@pytest.mark.parametrize("name", BINARY)
@few
@given(st.data())
def test_two_tensors(name, data):
    low = 0.25 if name in ("xlogy", "float_power") else -3.0
    x, y = two(data, WHOLE if name in ("gcd", "lcm") or name.startswith("bitwise") else ALL, low)
    if name in ("heaviside", "nextafter", "copysign", "ldexp"):
        y = In(y.values, x.dtype, y.layout, x.grad) if not np.iscomplexobj(y.values) else x
    if name == "float_power" and "complex64" in (x.dtype, y.dtype):
        x.grad = y.grad = False
    check(lambda T, a, b: getattr(T, name)(a, b), x, y, grad_rtol=1e-4)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "pow"])
@few
@given(st.data())
def test_division_and_powers(name, data):
    x, y = two(data, REAL, 1.0 if name == "pow" else -3.0)
    # Near a multiple of the divisor the result depends on rounding; in half precision that holds
    # everywhere.
    if any("float16" in t.dtype for t in (x, y)):
        return
    check(lambda T, a, b: getattr(T, name)(a, b), x, y, grad_rtol=1e-4)


@pytest.mark.parametrize("mode", ["trunc", "floor", None])
@few
@given(st.data())
def test_rounding_modes(mode, data):
    x, y = two(data, ["float32", "int64", "int32", "uint8"], 0.3)
    check(lambda T, a, b: T.div(a, b, rounding_mode=mode), x, y)


OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge"]
NUMBERS = [2, 3, -1, 0.5, 2.5, -1.5, True, 1 + 2j, np.float32(1.5), np.int64(2), 0]


@pytest.mark.parametrize("name", OPERATORS)
@few
@given(st.data())
def test_numbers(name, data):
    """Covers tensor op scalar and scalar op tensor, including dtypes."""
    d = data.draw(st.sampled_from(ALL))
    n = data.draw(st.sampled_from(NUMBERS))
    if (d in ("float16", "bfloat16") and (isinstance(n, complex) or name in ("floordiv", "mod"))) or isinstance(n, np.generic):
        d = "float32"
    x = In(values(data.draw(seeds), data.draw(st.sampled_from([(), (3,), (2, 2), (0,)])), d, 0.3), d, grad=True)
    f = getattr(operator, name)
    # (PyTorch's own gradient of a power by True raises an internal error.)
    check(lambda T, a: f(a, n), x, grad_rtol=1e-4, no_gradient=name == "pow" and n is True)
    if not isinstance(n, np.generic):
        check(lambda T, a: f(n, a), x, grad_rtol=1e-4, no_gradient=name == "pow" and n is True)


@pytest.mark.parametrize("name", ["and_", "or_", "xor", "lshift", "rshift"])
@few
@given(st.data())
def test_bit_operators(name, data):
    x, y = two(data, ["int64", "int32", "uint8", "int8", "bool"], 0, 6)
    f = getattr(operator, name)
    check(lambda T, a, b: f(a, b), x, y)
    check(lambda T, a: f(a, 2), x)
    check(lambda T, a: f(5, a), x)


def test_excessive_shifts():
    x = In(np.array([1, -1, 7, -8]), "int64")
    for by in (63, 64, 100, -1):
        check(lambda T, a, by=by: (a << by, a >> by), x)


IN_PLACE = ["add_", "sub_", "mul_", "div_", "pow_", "remainder_", "fmod_", "floor_divide_", "eq_", "lt_", "logical_and_",
            "bitwise_or_", "copysign_", "atan2_", "xlogy_", "gcd_"]


@pytest.mark.parametrize("name", IN_PLACE)
@few
@given(st.data())
def test_in_place(name, data):
    shape = data.draw(st.sampled_from([((3,), (3,)), ((2, 3), (3,)), ((2, 3), ()), ((3,), (2, 3))]))
    # PyTorch accepts only integers
    whole = name in ("bitwise_or_", "gcd_") and data.draw(st.integers(0, 3))
    d, e = (data.draw(st.sampled_from(["int64", "int32"] if whole else ["float32", "float64", "int64", "int32", "bool", "complex64"])) for _ in range(2))
    s = data.draw(seeds)
    grad = not name.startswith(("eq", "lt", "logical"))  # PyTorch's gradients are wrong or rejected
    x = In(values(s, shape[0], d, 0.5), d, data.draw(st.sampled_from(LAYOUTS)), grad)
    y = In(values(s + 1, shape[1], e, 0.5), e, "plain", grad)

    def f(T, a, b):
        c = a * 1 if d != "bool" else a.clone()
        r = getattr(c, name)(b)
        assert r is c
        return c
    # (PyTorch's gradient fails there)
    check(f, x, y, grad_rtol=1e-4, no_gradient=name == "pow_" and "bool" in (d, e))


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"])
def test_in_place_operators(name):
    f = getattr(operator, name)
    for d in ("float32", "int64", "bool"):
        for n in (2, 1.5, True):
            def g(T, a, n=n):
                c = a.clone()
                r = f(c, n)
                assert r is c
                return c
            check(g, In(values(3, (2, 3), d, 1.0), d))


def test_in_place_through_views():
    def f(T, a, b):
        c = a * 1
        c[0] += b
        c[:, 1].mul_(2)
        c.t().sub_(1)
        return c
    check(f, In(values(0, (2, 3), "float32"), grad=True), In(values(1, (3,), "float32"), grad=True))


@given(st.data())
def test_where(data):
    shapes = data.draw(st.sampled_from([((2, 3), (2, 3), (3,)), ((3,), (), (2, 3)), ((), (2,), (2,)), ((0,), (1,), ())]))
    s = data.draw(seeds)
    d, e = (data.draw(st.sampled_from(ALL)) for _ in range(2))
    if {d, e} == {"float16", "complex64"}:
        return              # complex half is not supported
    c = In(values(s, shapes[0], "bool"))
    x, y = In(values(s + 1, shapes[1], d), d, grad=True), In(values(s + 2, shapes[2], e), e, grad=True)
    check(lambda T, c, a, b: T.where(c, a, b), c, x, y, no_gradient=(d == "complex64") != (e == "complex64"))
    n = data.draw(st.sampled_from([0, 2.5, True, -1]))
    check(lambda T, c, a: T.where(c, a, n), c, x)
    check(lambda T, c, a: a.where(c, n), c, x)
    check(lambda T, c: T.where(c, n, 1), c)
    check(lambda T, c: T.where(c), c)


def test_where_passes_no_gradient_to_the_other_side():
    def f(T, a):
        return T.where(a > 0, a.sqrt(), a * 3)
    check(f, In([4.0, 1.0, -9.0, 2.0], "float32", grad=True), second=True)


LIMITS = [(0, 1), (None, 1), (-1, None), (0.5, 1.5), (1, 0), (float("nan"), 1), (-float("inf"), 2)]


@given(st.data())
def test_clamp(data):
    d = data.draw(st.sampled_from(REAL))
    x = In(values(data.draw(seeds), (2, 3), d), d, data.draw(st.sampled_from(LAYOUTS)), True)
    low, high = data.draw(st.sampled_from(LIMITS))
    if d in ("int64", "int32", "uint8") and low is not None and low != low:
        return
    check(lambda T, a: T.clamp(a, low, high), x)
    if low is not None:
        check(lambda T, a: (a.clamp_min(low), a.clip(min=low)), x)
    lo, hi = In(values(1, (3,), d, -2, 0), d, grad=True), In(values(2, (2, 1), d, 0, 2), d, grad=True)
    check(lambda T, a, b, c: T.clamp(a, b, c), x, lo, hi)
    check(lambda T, a, b: (a.clamp_max(b), a.clamp(min=b)), x, lo)


@pytest.mark.parametrize("low, high", [(0, "t"), ("t", 2.5), (-1, "i"), ("d", 1), (0, "v"), ("g", 1), (0, "z"), (None, "d")])
def test_clamp_between_a_number_and_a_tensor(low, high):
    def limit(T, x):
        return {"t": lambda: T.tensor(0.75), "i": lambda: T.tensor(1), "d": lambda: T.tensor(0.5, dtype=T.float64), "v": lambda: T.ones(3), "z": lambda: T.tensor(1 + 1j),
                "g": lambda: T.tensor(0.5, requires_grad=True)}[x]() if isinstance(x, str) else x

    for d in ("float32", "int64"):
        check(lambda T, a: T.clamp(a, limit(T, low), limit(T, high)), In(values(3, (2, 3), d), d, grad=True))


@given(st.data())
def test_three_operands(data):
    shapes = data.draw(st.sampled_from([((2, 3), (2, 3), (3,)), ((3,), (), (2, 3)), ((), (), ()), ((0, 3), (3,), (1, 3))]))
    d = data.draw(st.sampled_from([*FLOATS, "complex64", "int64"]))
    s = data.draw(seeds)
    x, y, z = (In(values(s + i, n, d, 0.5), d, data.draw(st.sampled_from(LAYOUTS)), True) for i, n in enumerate(shapes))
    v = data.draw(st.sampled_from([1, 2, 0.5, -1.25]))
    check(lambda T, a, b, c: T.addcmul(a, b, c, value=v), x, y, z)
    check(lambda T, a, b, c: T.addcdiv(a, b, c, value=v), x, y, z)
    check(lambda T, a, b: T.lerp(a, b, v), x, y)
    check(lambda T, a, b, c: T.lerp(a, b, c), x, y, z)
    check(lambda T, a, b: T.add(a, b, alpha=v), x, y)
    check(lambda T, a, b: a.sub(b, alpha=v), x, y)
    check(lambda T, a, b: T.rsub(a, b, alpha=v), x, y)


@given(st.data())
def test_closeness(data):
    d = data.draw(st.sampled_from(["float32", "float64", "int64", "complex64", "bfloat16"]))
    a = values(data.draw(seeds), (2, 3), d)
    b = a + data.draw(st.sampled_from([0, 1e-9, 1e-6, 1]))
    if d.startswith("float"):
        a[0, 0] = b[0, 0] = np.nan
        a[1, 1] = np.inf
    kw = data.draw(st.sampled_from([{}, {"rtol": 1e-3}, {"atol": 0.5}, {"equal_nan": True}, {"rtol": 0, "atol": 0}, {"rtol": -1}]))
    x, y = In(a, d), In(b, d)
    check(lambda T, p, q: (T.isclose(p, q, **kw), T.allclose(p, q, **kw), T.equal(p, q), T.equal(p, p)), x, y)


@pytest.mark.parametrize("name", ["mul", "div", "pow", "atan2", "hypot", "logaddexp", "xlogy", "maximum", "fmax"])
def test_second_gradients(name):
    x, y = (In(values(i, (2, 3), "float64", 0.5), "float64", grad=True) for i in (1, 2))
    check(lambda T, a, b: getattr(T, name)(a, b), x, y, second=True)


@pytest.mark.parametrize("p", [2, 3, 1, 0, 0.5, -1, -2, -0.5, 1.7, 4])
def test_exponents(p):
    x = In(values(5, (2, 3), "float64", 0.4), "float64", grad=True)
    check(lambda T, a: a ** p, x, second=True)
    check(lambda T, a: p ** a, In(values(5, (2, 3), "float64", 0.4), "float64", grad=p > 0))
    for d in ("int64", "float16", "bfloat16", "complex64", "uint8"):
        check(lambda T, a: a ** p, In(values(5, (2, 3), d, 1.0), d))


def test_gradients_at_the_corners():
    """Covers ties, zeros and infinities, where the plain formula gives nan."""
    zero = In([0.0, 0.0, 1.0, -1.0], "float64", grad=True)
    other = In([0.0, 2.0, 1.0, 1.0], "float64", grad=True)
    for name in ("maximum", "minimum", "fmax", "fmin", "copysign", "xlogy", "pow", "mul"):
        if name in ("xlogy", "pow"):
            check(lambda T, a, b, n=name: getattr(T, n)(a, b), In([0.0, 0.0, 1.0, 2.0], "float64", grad=True), other)
        else:
            check(lambda T, a, b, n=name: getattr(T, n)(a, b), zero, other)
    check(lambda T, a: a ** 2, zero)
    check(lambda T, a: a ** 0, zero)
    check(lambda T, a: T.clamp(a, 0, 1), zero)


def test_special_values():
    inf, nan = float("inf"), float("nan")
    x = In([inf, -inf, nan, 0.0, -0.0, 1.0, inf, 3.0], "float32")
    y = In([1.0, 2.0, 1.0, 0.0, 3.0, nan, inf, -inf], "float32")
    for name in ("add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "logaddexp", "pow", "remainder",
                 "fmod", "floor_divide", "heaviside", "xlogy", "copysign", "nextafter", "eq", "lt", "ge"):
        check(lambda T, a, b, n=name: getattr(T, n)(a, b), x, y)
        check(lambda T, a, b, n=name: getattr(T, n)(b, a), x, y)


def test_integer_limits():
    big = In(np.array([2**62, -2**63, 2**63 - 1]), "int64")
    check(lambda T, a: (a + a, a * 3, -a, a - 1, a > 2**62, abs(a)), big)
    small = In(np.array([0, 1, 200, 255]), "uint8")
    check(lambda T, a: (a + 300, a - 1, a * 2, a > -1, a < 300, -a, a // 7, 3 - a), small)
    check(lambda T, a: (a + 2**40, a < 2**40), In(np.array([1, -5]), "int32"))
    check(lambda T, a: a + 2**70, big)


@pytest.mark.parametrize("f", [
    lambda T, a: (a * 1e300, a + 1e39, a > 1e300, a / 1e300, a == 1e300, a.half() * 1e6, a.half() > 1e6, a.bfloat16() + 1e39),
    lambda T, a: T.where(a > 0, a, -1e300), lambda T, a: a.clamp(-1e300, 1e300), lambda T, a: a.half().clamp(max=1e6),
    lambda T, a: a.lerp(a, 1e300), lambda T, a: a.addcmul(a, a, value=1e300), lambda T, a: a.int().clamp(max=2**40),
    lambda T, a: a.byte().clamp(max=300), lambda T, a: a.byte().clamp(min=-1), lambda T, a: a.int() > 2**40])
def test_numbers_out_of_a_dtypes_range(f):
    check(f, In([1.0, 2.0], "float32"))


def test_operands_of_other_types():
    t = mine.ones(2)
    assert (t == None) is False and (t != "a") is True  # noqa: E711
    for f in (operator.add, operator.mul, operator.lt, operator.pow, operator.truediv):
        for other in (None, "a", [1, 2], object()):
            with pytest.raises(TypeError):
                f(t, other)
            with pytest.raises(TypeError):
                f(other, t)


@pytest.mark.host_only("an array is host memory")
def test_array_operands():
    assert (mine.ones(2) + np.ones(2)).dtype is mine.float64


class Radd:
    def __radd__(self, other):
        return "mine"


def test_reflected_operators_of_other_types_are_called():
    assert mine.ones(2) + Radd() == "mine"


ERRORS = [
    lambda T: T.ones(2, 3) + T.ones(2, 4),
    lambda T: T.ones(2).add_(T.ones(3, 2)),
    lambda T: T.tensor([1]).add_(1.5),
    lambda T: T.tensor([1]).div_(2),
    lambda T: T.add(T.tensor([1]), 1, alpha=0.5),
    lambda T: T.add(T.tensor([1]), 1, alpha=True),
    lambda T: T.tensor([True]) - T.tensor([True]),
    lambda T: T.tensor([True]) - 1,
    lambda T: 1 - T.tensor([True]),
    lambda T: -T.tensor([True]),
    lambda T: T.tensor([5]) // 0,
    lambda T: T.tensor([5]) % T.tensor([0]),
    lambda T: T.fmod(T.tensor([5]), 0),
    lambda T: T.tensor([2]) ** -1,
    lambda T: T.pow(2, 3),
    lambda T: T.div(T.ones(1), 2, rounding_mode="up"),
    lambda T: T.maximum(T.ones(1), 2),
    lambda T: T.maximum(T.tensor([1j]), T.tensor([1j])),
    lambda T: T.tensor([1j]) < T.tensor([1j]),
    lambda T: T.bitwise_and(T.ones(1), 1),
    lambda T: ~T.ones(1),
    lambda T: T.ones(1) << 1,
    lambda T: T.logical_and(T.ones(1), 1),
    lambda T: T.where(T.tensor([1]), 1, 2),
    lambda T: T.where(T.tensor([True]), None, 2),
    lambda T: T.clamp(T.ones(1)),
    lambda T: T.clamp(T.ones(1), T.ones(1), 2),
    lambda T: T.clamp(T.tensor([1j]), 0, 1),
    lambda T: T.lerp(T.tensor([1]), T.tensor([2]), 0.5),
    lambda T: T.lerp(T.ones(1), T.ones(1).double(), 0.5),
    lambda T: T.addcdiv(T.tensor([1]), T.tensor([2]), T.tensor([3])),
    lambda T: T.isclose(T.tensor([1]), T.tensor([1.0])),
    lambda T: T.isclose(T.ones(1), T.ones(1), rtol=-1),
    lambda T: T.equal(T.ones(1), 1),
    lambda T: T.heaviside(T.ones(1), T.tensor([1])),
    lambda T: T.gcd(T.ones(1), T.ones(1)),
    lambda T: T.eq(T.ones(1), "a"),
    lambda T: T.add(T.ones(2), T.ones(2), out=T.ones(2, dtype=T.int64)),
    lambda T: T.mul(T.ones(2).requires_grad_(), 2, out=T.ones(2)),
    lambda T: T.ones(2, requires_grad=True).add_(1),
    lambda T: T.ones(3).expand(2, 3).mul_(2),
]


@pytest.mark.parametrize("n", range(len(ERRORS)))
def test_errors(n):
    with pytest.raises(Exception) as expected:
        ERRORS[n](real)
    with pytest.raises(type(expected.value)):
        ERRORS[n](mine)


def test_out():
    for T in (real, mine):
        out = T.empty(0)
        assert T.add(T.ones(2), 1, out=out) is out and out.tolist() == [2.0, 2.0]
        out = T.zeros(2, dtype=T.float64)
        T.mul(T.ones(2), 3, out=out)
        assert out.tolist() == [3.0, 3.0]


NODES = {
    "AddBackward0": lambda x, y: x + y, "MulBackward0": lambda x, y: x * 2, "DivBackward0": lambda x, y: x / y,
    "RsubBackward1": lambda x, y: 1 - x, "PowBackward0": lambda x, y: x ** 2, "PowBackward1": lambda x, y: x ** y,
    "PowBackward2": lambda x, y: 2 ** x, "MaximumBackward0": lambda x, y: x.maximum(y), "ClampBackward1": lambda x, y: x.clamp(0, 1),
    "ClampBackward0": lambda x, y: x.clamp(y, y), "LerpBackward0": lambda x, y: x.lerp(y, 0.5),
    "AddcmulBackward0": lambda x, y: x.addcmul(x, y), "RemainderBackward1": lambda x, y: x % y,
    "FmodBackward0": lambda x, y: x.fmod(2), "DivBackward2": lambda x, y: x.div(y, rounding_mode="floor"),
}


@pytest.mark.parametrize("name", NODES)
def test_node_names(name):
    for T in (real, mine):
        x, y = T.ones(2, requires_grad=True), T.ones(2, requires_grad=True)
        assert NODES[name](x, y).grad_fn.name() == name


def test_float_power_in_place_needs_double():
    for lib in (real, mine):
        with pytest.raises(RuntimeError, match="dtype Float but the operation's result requires dtype Double"):
            lib.ones(2).float_power_(2)
        assert lib.full((2,), 3.0, dtype=lib.float64).float_power_(2).tolist() == [9.0, 9.0]


def test_lerp_of_many_elements():
    """Covers large tensors, which are processed in chunks, and layouts that cannot be chunked."""
    arrays = [np.random.RandomState(i).rand(300, 400).astype(np.float32) for i in range(3)]
    for cut in (lambda x: x, lambda x: x[:, ::2], lambda x: x.t()):
        want, got = (T.lerp(*[cut(T.from_numpy(a)) for a in arrays]).numpy() for T in (real, mine))
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
    want, got = (T.lerp(T.from_numpy(arrays[0]), T.from_numpy(arrays[1])[:1], T.from_numpy(arrays[2])[:, :1]).numpy() for T in (real, mine))
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", "add sub mul truediv floordiv mod pow and or xor lshift rshift".split())
def test_operators_return_notimplemented_for_unknown_types(name):
    """In-place operators also return NotImplemented for unknown operands, so that Python tries the
    other operand."""
    class Known:
        def answer(self, other):
            return self, other
    setattr(Known, f"__r{name}__", Known.answer)
    for T in (real, mine):
        for kind in ("", "i", "r"):
            x = T.ones(2, dtype=T.int64)
            assert getattr(x, f"__{kind}{name}__")(object()) is NotImplemented
        x, y = T.ones(2, dtype=T.int64), Known()
        assert getattr(operator, f"i{name}")(x, y) == (y, x)
        assert x._version == 0


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "reciprocal", "rsqrt", "add_", "sub_"])
@pytest.mark.host_only("the host's complex arithmetic")
def test_complex_arithmetic_with_infinities(name, dtype):
    """Either part may be infinite, a signed zero or nan."""
    parts = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan]
    z = np.array([complex(a, b) for a in parts for b in parts], dtype)

    def run(T):
        x, y = T.tensor(np.tile(z, len(z))), T.tensor(np.repeat(z, len(z)))
        r = getattr(x, name)(y) if name not in ("reciprocal", "rsqrt") else getattr(T, name)(y)
        return T.view_as_real(r)
    a, b = run(real).numpy(), run(mine).numpy()
    np.testing.assert_array_equal(b, a)
    number = ~np.isnan(a)
    np.testing.assert_array_equal(np.signbit(b)[number], np.signbit(a)[number])
