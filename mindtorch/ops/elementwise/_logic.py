"""Comparison, logical and bitwise ops, and where."""
from mindtorch.core.alias import title
from mindtorch.core.dtypes import BOOL, F32, U8
from mindtorch.core.foreign import type_name
from mindtorch.core.numbers import NUMBER, rounded
from mindtorch.core.promote import pair, result_dtype
from mindtorch.core.table import TABLE, op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Const, Tensor, taken
from mindtorch.core.values import asked, values
from mindtorch.ops._checks import need_tensor, not_tensor, unsupported
from mindtorch.ops._operands import exact, tensors
from mindtorch.ops.basic import and_, eq_, ge_, gt_, keep, le_, lt_, ne_, not_, or_


# ------------------------------------------------------------------ comparison
def _compare(prim, aliases, ordered):
    name = prim.prim.name

    def compare(input, other):
        a, b = cmp_pair(input, other)
        if ordered and a._stype.kind == "c":
            raise unsupported(name, a, b)
        return prim(a, b)

    compare.__name__ = name
    compare.__doc__ = f"Elementwise input {_SIGN[name]} other, as a bool tensor; `other` can be a scalar."
    return op(compare, inplace=True, out=True, aliases=aliases, placement="elementwise")


def cmp_pair(a, b):
    """Like `pair`, but rounds a scalar to the precision of the tensor, as PyTorch's comparisons do.
    """
    if not (a.__class__ is Tensor or taken(a)):
        raise not_tensor("comparison", "input", 1, a)
    a, b = pair(a, b)
    if b.__class__ is Const and a._stype.itemsize == 2 and a._stype.kind in "fV":
        b = rounded(b, a._stype)
    return a, b


_SIGN = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
eq, ne = _compare(eq_, "", False), _compare(ne_, "not_equal", False)
lt, le, gt, ge = _compare(lt_, "less", True), _compare(le_, "less_equal", True), _compare(gt_, "greater", True), _compare(ge_, "greater_equal", True)


@op(capture="values")
def equal(input, other):
    """True if both tensors have the same shape and elements."""
    tensors("equal", input, other)
    return input._sizes == other._sizes and _same(input, other)


_same = asked("equal")
_isclose = primitive("isclose", "a, b, *, rtol, atol, equal_nan")
_allclose = primitive("allclose", "a, b, *, rtol, atol, equal_nan")


def _closeness(prim, input, other, rtol, atol, equal_nan):
    tensors("isclose", input, other)
    if input._stype != other._stype:
        raise RuntimeError(f"{title(input._stype)} did not match {title(other._stype)}")
    for n, v in (("rtol", rtol), ("atol", atol)):
        if not v >= 0:
            raise RuntimeError(f"{n} must be greater than or equal to zero, but got {v}")
    return prim(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


@op
def isclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Elementwise |input - other| <= atol + rtol * |other|; both tensors of one dtype."""
    return _closeness(_isclose, input, other, rtol, atol, equal_nan)


@op(capture="values")
def allclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    """True if all elements are close (see isclose)."""
    return bool(values(_closeness(_allclose, input, other, rtol, atol, equal_nan)))


# ------------------------------------------------------------------ logic and bits
def _logical(prim):
    name = prim.prim.name

    def logical(input, other):
        tensors(name, input, other)
        return prim(input, other)

    logical.__name__ = name
    logical.__doc__ = f"Elementwise {name[8:].upper()} of the truth values, as a bool tensor."
    return op(logical, inplace=True, out=True, placement="elementwise")


logical_and = _logical(and_)
logical_or = _logical(or_)
logical_xor = _logical(primitive("logical_xor", "a, b"))


@op(inplace=True, out=True, placement="elementwise")
def logical_not(input):
    """Elementwise NOT of the truth values, as a bool tensor."""
    need_tensor("logical_not", input)
    return not_(input)


def _integers(name, input, other):
    if not (input.__class__ is Tensor or taken(input)) and not (other.__class__ is Tensor or taken(other)):
        raise TypeError(f"{name}() received an invalid combination of arguments - got "
                        f"({type_name(input)}, {type_name(other)}): one of them must be a Tensor")
    a, b = pair(input, other)
    if a._stype.kind not in "biu":
        raise unsupported(name, a, b)
    return a, b


def _bitwise(name):
    prim = primitive(name, "a, b")

    def bitwise(input, other):
        return prim(*_integers(name, input, other))

    bitwise.__name__ = name
    bitwise.__doc__ = f"Bitwise {name[8:].upper()} of integers or bools; either operand can be a scalar."
    return op(bitwise, inplace=True, out=True, placement="elementwise")


bitwise_and = _bitwise("bitwise_and")
bitwise_or = _bitwise("bitwise_or")
bitwise_xor = _bitwise("bitwise_xor")
_bitwise_not = primitive("bitwise_not", "a")


@op(inplace=True, out="same", placement="elementwise")
def bitwise_not(input):
    """Bitwise NOT of integers, logical NOT of bools."""
    need_tensor("bitwise_not", input)
    if input._stype.kind not in "biu":
        raise unsupported("bitwise_not", input)
    return _bitwise_not(input)


def _shift(name, word):
    prim = primitive(name, "a, b")

    def shift(input, other):
        a, b = _integers(name, input, other)
        if a._stype.kind == "b":
            raise unsupported(name, a, b)
        return prim(a, b)

    shift.__name__ = name
    shift.__doc__ = f"Shifts the bits of integers to the {word}; either operand can be a scalar."
    return op(shift, inplace=True, out=True, placement="elementwise")


bitwise_left_shift = _shift("bitwise_left_shift", "left")
bitwise_right_shift = _shift("bitwise_right_shift", "right")


def _divisors(name):
    prim = primitive(name, "a, b")

    def divisor(input, other):
        tensors(name, input, other)
        a, b = pair(input, other)
        if a._stype.kind not in "iu":
            raise unsupported(name, a, b)
        return prim(a, b)

    divisor.__name__ = name
    what = "greatest common divisor" if name == "gcd" else "least common multiple"
    divisor.__doc__ = f"Elementwise {what} of integers."
    return op(divisor, inplace=True, out=True, placement="elementwise")


gcd = _divisors("gcd")
lcm = _divisors("lcm")


# ------------------------------------------------------------------ where
where_ = primitive("where", "condition, a, b", None, lambda c, g: keep(g, c.condition), lambda c, g: keep(g, not_(c.condition)), raw=True)


@op(out=True, method=False, placement="elementwise", capture="sizes if alone")
def where(condition, input=None, other=None):
    """Selects input where condition is True, else other. With the condition alone, returns the
    indices of its True elements."""
    try:
        # Fast path: two tensors of one dtype, or a float32 tensor and a scalar that it can
        # represent.
        d = input._stype
        if condition._stype is BOOL:
            if (other.__class__ is float or other.__class__ is int) and d is F32 and -3e38 < other < 3e38:
                return where_(condition, input, Const(other, d))
            if other._stype is d:
                return where_(condition, input, other)
    except AttributeError:
        pass
    need_tensor("where", condition, "condition", 1)
    if input is None and other is None:
        return TABLE["nonzero"].fn(condition, as_tuple=True)
    d = condition._stype
    if d.kind != "b":
        if d != U8:
            raise RuntimeError("where expected condition to be a boolean tensor, but got a tensor with dtype "
                               f"{title(d)}")
        import warnings
        warnings.warn("where received a uint8 condition tensor. This behavior is deprecated and will be removed in a "
                      "future "
                      "version of PyTorch. Use a boolean condition instead.", stacklevel=2)
        condition = ne_(condition, Const(0, U8))
    for n, (arg, x) in enumerate((("input", input), ("other", other))):
        if not isinstance(x, (Tensor, *NUMBER)):
            raise not_tensor("where", arg, n + 2, x)
    d = result_dtype(input, other)
    return where_(condition, exact(input, d), exact(other, d))


def _where_method(self, condition, other):
    """Selects self where condition is True, else other."""
    return where(condition, self, other)


Tensor.where = _where_method
