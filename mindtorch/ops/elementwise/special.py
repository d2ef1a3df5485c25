"""torch.special: functions that are not aliases of ops in the main namespace."""
import math

from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.dispatch.type_promotion import promote_int_to_float
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.ops._checks import check_tensor, not_implemented
from mindtorch.ops.elementwise._gamma import bessel_backward, i1_
from mindtorch.ops._operands import promote_to_float_pair, derivative_not_implemented, scalar
from mindtorch.ops.basic import add_, mask_grad, mul_, neg_, sub_
from mindtorch.ops.elementwise.binary import _log, div_
from mindtorch.ops.elementwise.unary import exp_, sgn_


def _node(name):
    return "Special" + "".join(p.capitalize() for p in name.split("_")) + "Backward0"


#: functions whose argument PyTorch calls x
_OF_X = ("airy_ai", "spherical_bessel_j0", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1")


# ------------------------------------------------------------------ functions of one variable
def _special(name, rule, doc, low=True, prim=None, composite=False):
    """Declares an op of torch.special on real tensors.

    low: also on float16 and bfloat16. composite: PyTorch composes it from other operators.
    """
    prim = prim or primitive(name, "a", *([rule] if rule else []), node=_node(name))

    def f(input):
        check_tensor(f"special_{name}", input)
        d = input._np_dtype
        if d.kind == "c" or (not low and d.itemsize == 2 and d.kind in "fV"):
            raise not_implemented(f"special.{name}", input)
        return prim(promote_int_to_float(input))

    def of_x(x):
        return f(x)

    public = of_x if name in _OF_X else f
    public.__name__ = name
    public.__doc__ = doc
    register_op(public, ns="special", out=True, aten=None if composite else f"special_{name}.default")
    return prim


_special("i1", None, "Modified Bessel function of the first kind, order 1.", prim=i1_)
i0e_ = _special("i0e", lambda ctx, grad: mul_(grad, sub_(i1e_(ctx.a), mul_(sgn_(ctx.a), ctx.out))), "exp(-|x|) i0(x).")
i1e_ = _special("i1e", lambda ctx, grad: mul_(grad, bessel_backward(sub_(i0e_(ctx.a), mul_(sgn_(ctx.a), ctx.out)), ctx.out, ctx.a)),
                "exp(-|x|) i1(x).")
erfcx_ = _special("erfcx", lambda ctx, grad: mul_(grad, sub_(
    mul_(mul_(ctx.a, scalar(2, ctx.a)), ctx.out), scalar(2 / math.sqrt(math.pi), ctx.a))), "exp(x^2) erfc(x).")
_special("ndtr", lambda ctx, grad: mul_(grad, mul_(exp_(mul_(mul_(ctx.a, ctx.a), scalar(-0.5, ctx.a))), scalar(1 / math.sqrt(2 * math.pi), ctx.a))),
         "Area under the standard normal density left of x.", composite=True)
_special("ndtri", lambda ctx, grad: mul_(grad, mul_(exp_(mul_(mul_(ctx.out, ctx.out), scalar(0.5, ctx.out))), scalar(math.sqrt(2 * math.pi), ctx.out))),
         "Inverse of ndtr.", low=False)
_special("log_ndtr", lambda ctx, grad: div_(mul_(grad, scalar(math.sqrt(2 / math.pi), grad)), erfcx_(mul_(ctx.a, scalar(-math.sqrt(0.5), ctx.a)))),
         "log(ndtr(x)).", low=False)


_special("entr", lambda ctx, grad: neg_(mul_(grad, add_(_log(ctx.a), scalar(1, ctx.a)))), "-x log(x); 0 at zero, "
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
    if not (a.__class__ is Tensor or is_tensor(a)) and not (b.__class__ is Tensor or is_tensor(b)):
        raise TypeError(f"special_{name}() received an invalid combination of arguments - got ({type_name(a)}, "
                        f"{type_name(b)}): one of them must be a Tensor")
    a, b = promote_to_float_pair(a, b)
    if a._np_dtype.kind == "c":
        raise not_implemented(f"special.{name}", a, b)
    return a, b


_xlog1py_is_differentiable = primitive("xlog1py_is_differentiable", "a, b")
xlog1py_ = primitive("special_xlog1py", "a, b", lambda ctx, grad: mask_grad(xlog1py_(grad, ctx.b), _xlog1py_is_differentiable(ctx.a, ctx.b)),
                     lambda ctx, grad: div_(mul_(grad, ctx.a), add_(ctx.b, scalar(1, ctx.b))), node="SpecialXlog1PyBackward0")


@register_op(ns="special", out=True, aten="special_xlog1py.default")
def xlog1py(input, other):
    """input * log1p(other), 0 where input is 0; either can be a scalar."""
    return xlog1py_(*_real_pair("xlog1py", input, other))


zeta_ = primitive("special_zeta", "x, q", derivative_not_implemented("zeta"),
                  lambda ctx, grad: neg_(mul_(grad, mul_(ctx.x, zeta_(add_(ctx.x, scalar(1, ctx.x)), ctx.q)))))


@register_op(ns="special", out=True, aten="special_zeta.default")
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
        if a._np_dtype.itemsize == 2:
            raise not_implemented(f"special.{name}", a, b)
        return prim(a, b)
    polynomial.__name__ = name
    polynomial.__doc__ = doc
    register_op(polynomial, ns="special", out=True)


for _kind, _word in (("t", "first"), ("u", "second"), ("v", "third"), ("w", "fourth")):
    _polynomial(f"chebyshev_polynomial_{_kind}", f"Chebyshev polynomial of the {_word} kind.")
    _polynomial(f"shifted_chebyshev_polynomial_{_kind}", f"Chebyshev polynomial of the {_word} kind at 2 x - 1.")
_polynomial("hermite_polynomial_h", "Physicist's Hermite polynomial.")
_polynomial("hermite_polynomial_he", "Probabilist's Hermite polynomial.")
_polynomial("laguerre_polynomial_l", "Laguerre polynomial.")
_polynomial("legendre_polynomial_p", "Legendre polynomial.")
