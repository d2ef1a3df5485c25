"""torch.special: functions that are not aliases of ops in the main namespace."""
import math

from mindtorch.core.foreign import type_name
from mindtorch.core.promote import as_float
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor, taken
from mindtorch.ops._checks import need_tensor, unsupported
from mindtorch.ops.elementwise._gamma import bessel_slope, i1_
from mindtorch.ops._operands import float_pair, unwritten_derivative, number
from mindtorch.ops.basic import add_, keep, mul_, neg_, sub_
from mindtorch.ops.elementwise.binary import _log, div_
from mindtorch.ops.elementwise.unary import exp_, sgn_


def _node(name):
    return "Special" + "".join(p.capitalize() for p in name.split("_")) + "Backward0"


#: functions whose argument PyTorch calls x
_OF_X = ("airy_ai", "spherical_bessel_j0", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1")


# ------------------------------------------------------------------ functions of one variable
def _special(name, rule, doc, low=True, prim=None):
    """Declares an op of torch.special on real tensors; `low`: also on float16 and bfloat16."""
    prim = prim or primitive(name, "a", *([rule] if rule else []), node=_node(name))

    def f(input):
        need_tensor(f"special_{name}", input)
        d = input._stype
        if d.kind == "c" or (not low and d.itemsize == 2 and d.kind in "fV"):
            raise unsupported(f"special.{name}", input)
        return prim(as_float(input))

    def of_x(x):
        return f(x)

    public = of_x if name in _OF_X else f
    public.__name__ = name
    public.__doc__ = doc
    op(public, ns="special", out=True)
    return prim


_special("i1", None, "Modified Bessel function of the first kind, order 1.", prim=i1_)
i0e_ = _special("i0e", lambda c, g: mul_(g, sub_(i1e_(c.a), mul_(sgn_(c.a), c.out))), "exp(-|x|) i0(x).")
i1e_ = _special("i1e", lambda c, g: mul_(g, bessel_slope(sub_(i0e_(c.a), mul_(sgn_(c.a), c.out)), c.out, c.a)),
                "exp(-|x|) i1(x).")
erfcx_ = _special("erfcx", lambda c, g: mul_(g, sub_(
    mul_(mul_(c.a, number(2, c.a)), c.out), number(2 / math.sqrt(math.pi), c.a))), "exp(x^2) erfc(x).")
_special("ndtr", lambda c, g: mul_(g, mul_(exp_(mul_(mul_(c.a, c.a), number(-0.5, c.a))), number(1 / math.sqrt(2 * math.pi), c.a))),
         "Area under the standard normal density left of x.")
_special("ndtri", lambda c, g: mul_(g, mul_(exp_(mul_(mul_(c.out, c.out), number(0.5, c.out))), number(math.sqrt(2 * math.pi), c.out))),
         "Inverse of ndtr.", low=False)
_special("log_ndtr", lambda c, g: div_(mul_(g, number(math.sqrt(2 / math.pi), g)), erfcx_(mul_(c.a, number(-math.sqrt(0.5), c.a)))),
         "log(ndtr(x)).", low=False)


_special("entr", lambda c, g: neg_(mul_(g, add_(_log(c.a), number(1, c.a)))), "-x log(x); 0 at zero, "
         "-inf below.")

for _name, _doc in (
        ("bessel_j0", "Bessel function of the first kind, order 0."),
        ("bessel_j1", "Bessel function of the first kind, order 1."),
        ("bessel_y0", "Bessel function of the second kind, order 0."),
        ("bessel_y1", "Bessel function of the second kind, order 1."),
        ("modified_bessel_i0", "Modified Bessel function of the first kind, order 0."),
        ("modified_bessel_i1", "Modified Bessel function of the first kind, order 1."),
        ("modified_bessel_k0", "Modified Bessel function of the second kind, order 0."),
        ("modified_bessel_k1", "Modified Bessel function of the second kind, order 1."),
        ("scaled_modified_bessel_k0", "exp(x) times the modified Bessel function of the second kind, order 0."),
        ("scaled_modified_bessel_k1", "exp(x) times the modified Bessel function of the second kind, order 1.")):
    _special(_name, None, _doc, low=False)
_special("airy_ai", None, "Airy function Ai.", low=False)
_special("spherical_bessel_j0", None, "sin(x) / x.", low=False)


# ------------------------------------------------------------------ functions of two variables
def _real_pair(name, a, b):
    if not (a.__class__ is Tensor or taken(a)) and not (b.__class__ is Tensor or taken(b)):
        raise TypeError(f"special_{name}() received an invalid combination of arguments - got ({type_name(a)}, "
                        f"{type_name(b)}): one of them must be a Tensor")
    a, b = float_pair(a, b)
    if a._stype.kind == "c":
        raise unsupported(f"special.{name}", a, b)
    return a, b


_xlog1py_has_slope = primitive("xlog1py_has_slope", "a, b")
xlog1py_ = primitive("special_xlog1py", "a, b", lambda c, g: keep(xlog1py_(g, c.b), _xlog1py_has_slope(c.a, c.b)),
                     lambda c, g: div_(mul_(g, c.a), add_(c.b, number(1, c.b))), node="SpecialXlog1PyBackward0")


@op(ns="special", out=True)
def xlog1py(input, other):
    """input * log1p(other), 0 where input is 0; either can be a scalar."""
    return xlog1py_(*_real_pair("xlog1py", input, other))


zeta_ = primitive("special_zeta", "x, q", unwritten_derivative("zeta"),
                  lambda c, g: neg_(mul_(g, mul_(c.x, zeta_(add_(c.x, number(1, c.x)), c.q)))))


@op(ns="special", out=True)
def zeta(input, other):
    """Hurwitz zeta function, differentiable with respect to `other`. Either operand can be a
    scalar."""
    return zeta_(*_real_pair("zeta", input, other))


# ------------------------------------------------------------------ orthogonal polynomials
def _polynomial(name, doc):
    """Declares P_n(x) with integer order n. Not differentiable, as in PyTorch."""
    prim = primitive(name, "x, n")

    def polynomial(x, n):
        a, b = _real_pair(name, x, n)
        if a._stype.itemsize == 2:
            raise unsupported(f"special.{name}", a, b)
        return prim(a, b)
    polynomial.__name__ = name
    polynomial.__doc__ = doc
    op(polynomial, ns="special", out=True)


for _kind, _word in (("t", "first"), ("u", "second"), ("v", "third"), ("w", "fourth")):
    _polynomial(f"chebyshev_polynomial_{_kind}", f"Chebyshev polynomial of the {_word} kind.")
    _polynomial(f"shifted_chebyshev_polynomial_{_kind}", f"Chebyshev polynomial of the {_word} kind at 2 x - 1.")
_polynomial("hermite_polynomial_h", "Physicist's Hermite polynomial.")
_polynomial("hermite_polynomial_he", "Probabilist's Hermite polynomial.")
_polynomial("laguerre_polynomial_l", "Laguerre polynomial.")
_polynomial("legendre_polynomial_p", "Legendre polynomial.")
