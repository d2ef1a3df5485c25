"""torch.special: what is not an op of the main namespace under another name."""
import math

import numpy as np

from mindtorch.backend.cpu.pointwise import elementwise, scipy_special
from mindtorch.core.dtypes import F64
from mindtorch.core.foreign import type_name
from mindtorch.core.promote import as_float
from mindtorch.core.table import fresh, op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor
from mindtorch.ops._checks import need_tensor, unsupported
from mindtorch.ops.elementwise._gamma import half_at_zero, i1_
from mindtorch.ops._operands import float_pair, no_derivative, number, plain
from mindtorch.ops.basic import add_, keep, mul_, neg_, sub_
from mindtorch.ops.elementwise.binary import _log, div_
from mindtorch.ops.elementwise.unary import exp_, sgn_



def _node(name):
    return "Special" + "".join(p.capitalize() for p in name.split("_")) + "Backward0"


#: Functions whose argument torch calls x.
_OF_X = ("airy_ai", "spherical_bessel_j0", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1")


# ------------------------------------------------------------------ functions of one variable
def _special(name, kernel, rule, doc, low=True):
    """An op of torch.special on real tensors; `low`: also on float16 and bfloat16."""
    prim = kernel if hasattr(kernel, "prim") else primitive(name, elementwise(kernel), *([rule] if rule else []),
                                                            inputs="a",
                                                            node=_node(name))

    def f(input):
        need_tensor(f"special_{name}", input)
        d = input._stype
        if d.kind == "c" or (not low and d.itemsize == 2 and d.kind in "fV"):
            raise unsupported(f"special.{name}", d)
        return prim(as_float(input))

    def of_x(x):
        return f(x)

    public = of_x if name in _OF_X else f
    public.__name__ = name
    public.__doc__ = doc
    op(public, ns="special", out=True)
    return prim


def _scipy(name):
    return lambda a: scipy_special(name)(a)


_special("i1", i1_, None, "Modified Bessel function of the first kind, order 1.")
i0e_ = _special("i0e", _scipy("i0e"), lambda c, g: mul_(g, sub_(i1e_(c.a), mul_(sgn_(c.a), c.out))), "exp(-|x|) i0(x).")
i1e_ = _special("i1e", _scipy("i1e"),
                lambda c, g: mul_(g, half_at_zero(c.a, lambda x: sub_(sub_(i0e_(c.a), mul_(sgn_(c.a), c.out)), div_(c.out, x)))),
                "exp(-|x|) i1(x).")
erfcx_ = _special("erfcx", _scipy("erfcx"), lambda c, g: mul_(g, sub_(
    mul_(mul_(c.a, number(2, c.a)), c.out), number(2 / math.sqrt(math.pi), c.a))), "exp(x^2) erfc(x).")
ndtr_ = _special("ndtr", _scipy("ndtr"), lambda c, g: mul_(g, mul_(exp_(mul_(mul_(c.a, c.a), number(-0.5, c.a))),
                                                                  number(1 / math.sqrt(2 * math.pi), c.a))),
                 "Area under the standard normal density left of x.")
ndtri_ = _special("ndtri", _scipy("ndtri"),
                  lambda c, g: mul_(g, mul_(exp_(mul_(mul_(c.out, c.out), number(0.5, c.out))),
                                                                     number(math.sqrt(2 * math.pi), c.out))),
                  "Inverse of ndtr.", low=False)
log_ndtr_ = _special("log_ndtr", _scipy("log_ndtr"), lambda c, g: div_(
    mul_(g, number(math.sqrt(2 / math.pi), g)), erfcx_(mul_(c.a, number(-math.sqrt(0.5), c.a)))), "log(ndtr(x)).",
    low=False)


def _entr_kernel(a):
    r = -a * np.log(a)
    return np.where(a > 0, r, np.where(a == 0, a, np.where(a < 0, a.dtype.type(-np.inf), a)))


_special("entr", _entr_kernel, lambda c, g: neg_(mul_(g, add_(_log(c.a), number(1, c.a)))), "-x log(x); 0 at zero, "
         "-inf below.")

for _name, _scipy_name, _doc in (
        ("bessel_j0", "j0", "Bessel function of the first kind, order 0."),
        ("bessel_j1", "j1", "Bessel function of the first kind, order 1."),
        ("bessel_y0", "y0", "Bessel function of the second kind, order 0."),
        ("bessel_y1", "y1", "Bessel function of the second kind, order 1."),
        ("modified_bessel_i0", "i0", "Modified Bessel function of the first kind, order 0."),
        ("modified_bessel_i1", "i1", "Modified Bessel function of the first kind, order 1."),
        ("modified_bessel_k0", "k0", "Modified Bessel function of the second kind, order 0."),
        ("modified_bessel_k1", "k1", "Modified Bessel function of the second kind, order 1."),
        ("scaled_modified_bessel_k0", "k0e", "exp(x) times the modified Bessel function of the second kind, order 0."),
        ("scaled_modified_bessel_k1", "k1e", "exp(x) times the modified Bessel function of the second kind, order 1.")):
    _special(_name, _scipy(_scipy_name), None, _doc, low=False)
_special("airy_ai", lambda a: np.where((a > 200) & (a < np.inf), a.dtype.type(0), scipy_special("airy")(a)[0]), None, "Airy function Ai.", low=False)
_special("spherical_bessel_j0",
         lambda a: np.where(a == 0, a.dtype.type(1), np.where(np.isinf(a), a.dtype.type(0), np.sin(a) / a)),
         None, "sin(x) / x.", low=False)


# ------------------------------------------------------------------ functions of two variables
def _real_pair(name, a, b):
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        raise TypeError(f"special_{name}() received an invalid combination of arguments - got ({type_name(a)}, "
                        f"{type_name(b)}): one of them must be a Tensor")
    a, b = float_pair(a, b)
    if a._stype.kind == "c":
        raise unsupported(f"special.{name}", a._stype)
    return a, b


@elementwise
def _xlog1py(a, b):
    return np.where((a == 0) & (b == b), np.zeros((), np.result_type(a, b)), a * np.log1p(b))


xlog1py_ = primitive("special_xlog1py", _xlog1py,
                     lambda c, g: keep(xlog1py_(g, c.b), fresh(~((plain(c.a) == 0) & (plain(c.b) <= -1)))),
                     lambda c, g: div_(mul_(g, c.a), add_(c.b, number(1, c.b))), node="SpecialXlog1PyBackward0")


@op(ns="special", out=True)
def xlog1py(input, other):
    """input * log1p(other), 0 where input is 0; either may be a number."""
    return xlog1py_(*_real_pair("xlog1py", input, other))


@elementwise
def _zeta(x, q):
    d = x.dtype
    x, q = np.broadcast_arrays(x.astype(F64), q.astype(F64))
    # torch sums on to infinity and multiplies it by nought.
    return np.where((q == np.inf) & (x > 1), np.nan, scipy_special("zeta")(x, q)).astype(d)


zeta_ = primitive("special_zeta", _zeta, no_derivative("special_zeta"),
                  lambda c, g: neg_(mul_(g, mul_(c.x, zeta_(add_(c.x, number(1, c.x)), c.q)))))


@op(ns="special", out=True)
def zeta(input, other):
    """Hurwitz zeta function; differentiable in `other`. Either may be a number."""
    return zeta_(*_real_pair("zeta", input, other))


# ------------------------------------------------------------------ orthogonal polynomials
def _polynomial(name, kernel, doc, limit=None):
    """P_n(x) with integer order n (fractions are cut off); 0 for negative orders.  No gradient, as in torch."""
    @elementwise
    def run(x, n):
        d = x.dtype
        x, n = np.broadcast_arrays(x.astype(F64), n)
        order = n.astype(np.int64)
        r = kernel(x, np.maximum(order, 0))
        r = np.where(order < 0, 0.0, np.where((x != x) & (order > 0), x, r))
        if limit is not None:
            # Beyond this order torch gives up.
            r = np.where(order > (limit[0] if d != F64 else limit[1]), np.nan, r)
        return r.astype(d)
    prim = primitive(name, run)

    def polynomial(x, n):
        a, b = _real_pair(name, x, n)
        if a._stype.itemsize == 2:
            raise unsupported(f"special.{name}", a._stype)
        return prim(a, b)
    polynomial.__name__ = name
    polynomial.__doc__ = doc
    op(polynomial, ns="special", out=True)


def _recurrence(first, step):
    """Polynomials by p[k+1] = step(k, x, p[k], p[k-1]) from p[0] = 1 and p[1] = first(x)."""
    def kernel(x, n):
        before, now = np.ones_like(x), first(x)
        r = np.where(n == 0, before, now)
        for k in range(1, int(n.max(initial=0))):
            before, now = now, step(k, x, now, before)
            r = np.where(n == k + 1, now, r)
        return r
    return kernel


def _chebyshev(first):
    return _recurrence(first, lambda k, x, p, q: 2 * x * p - q)


_KINDS = {"t": (lambda x: x, "first"), "u": (lambda x: 2 * x, "second"), "v": (lambda x: 2 * x - 1, "third"),
          "w": (lambda x: 2 * x + 1, "fourth")}


def _shifted(polynomial):
    return lambda x, n: polynomial(2 * x - 1, n)


for _kind, (_first, _word) in _KINDS.items():
    _polynomial(f"chebyshev_polynomial_{_kind}", _chebyshev(_first), f"Chebyshev polynomial of the {_word} kind.")
    _polynomial(f"shifted_chebyshev_polynomial_{_kind}", _shifted(_chebyshev(_first)),
                f"Chebyshev polynomial of the {_word} kind at 2 x - 1.")
_polynomial("hermite_polynomial_h", _recurrence(lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - 2 * k * q),
            "Physicist's Hermite polynomial.", (128, 512))
_polynomial("hermite_polynomial_he", _recurrence(lambda x: x, lambda k, x, p, q: x * p - k * q),
            "Probabilist's Hermite polynomial.", (128, 512))
_polynomial("laguerre_polynomial_l",
            _recurrence(lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)),
            "Laguerre polynomial.")
_polynomial("legendre_polynomial_p",
            _recurrence(lambda x: x, lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)),
            "Legendre polynomial.")
