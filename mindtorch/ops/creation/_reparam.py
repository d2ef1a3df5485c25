"""Gamma and Dirichlet samples that can be differentiated by their concentrations.

A sample x of a distribution with cumulative function F(x; a) moves, while F stays what it is, by dx/da = -(dF/da) / F'(x).
That is the slope of the quantile function in a, taken here by differences of fourth order in float64 (relative error about
1e-9).
"""
import numpy as np

from mindtorch.backend.cpu.pointwise import scipy_special
from mindtorch.backend.cpu.host import quiet
from mindtorch.core import rng
from mindtorch.core.dtypes import F64
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor
from mindtorch.ops._checks import need_tensor, unsupported
from mindtorch.ops._operands import no_derivative
from mindtorch.ops.basic import mul_, sub_
from mindtorch.ops.creation.random import _gen



def _slope(quantile, a):
    """d quantile(a) / da by four neighbours."""
    h = a * 1e-3
    return (8.0 * (quantile(a + h) - quantile(a - h)) - (quantile(a + 2 * h) - quantile(a - 2 * h))) / (12.0 * h)


def _gamma_slope(a, x):
    """dx/da of gamma samples x of concentration a."""
    a, y = a.astype(F64), x.astype(F64)
    below, above = scipy_special("gammainc")(a, y), scipy_special("gammaincc")(a, y)
    lower, upper = scipy_special("gammaincinv"), scipy_special("gammainccinv")
    left = below <= 0.5
    p = np.where(left, below, above)
    r = _slope(lambda b: np.where(left, lower(b, p), upper(b, p)), a)
    # So small a sample that the cumulative function is a pure power: log x = (log p + log gamma(a + 1)) / a.
    tiny = (y < 1e-8) & left
    if tiny.any():
        digamma = scipy_special("digamma")(a + 1.0)
        r = np.where(tiny, y * (digamma - np.log(y)) / a, r)
    return r.astype(x.dtype)


def _beta_slope(x, a, total):
    """dx/da / (1 - x) of beta samples x of concentrations a and total - a."""
    y, a = x.astype(F64), a.astype(F64)
    b = total.astype(F64) - a
    inc, inv = scipy_special("betainc"), scipy_special("betaincinv")
    below, above = inc(a, b, y), inc(b, a, 1.0 - y)
    left = below <= 0.5
    p = np.where(left, below, above)
    r = _slope(lambda c: np.where(left, inv(c, b, p), 1.0 - inv(b, c, p)), a)
    return (r / (1.0 - y)).astype(x.dtype)


_gamma_grad = primitive("standard_gamma_grad", quiet(_gamma_slope), no_derivative("_standard_gamma_grad"),
                        no_derivative("_standard_gamma_grad"), inputs="a x")
_beta_grad = primitive("dirichlet_grad", quiet(_beta_slope), no_derivative("_dirichlet_grad"), no_derivative("_dirichlet_grad"),
                       no_derivative("_dirichlet_grad"), inputs="x a total")


def _dirichlet_rule(g, a, x):
    wide = _beta_grad(x, a, a.sum(-1, True).expand(a._sizes))
    return mul_(wide, sub_(g, mul_(x, g).sum(-1, True)))


_gamma = primitive("standard_gamma", lambda a, *, g: rng.standard_gamma(a, g), lambda c, g: mul_(g, _gamma_grad(c.a, c.out)))
_dirichlet = primitive("dirichlet", lambda a, *, g: rng.standard_dirichlet(a, g), lambda c, g: _dirichlet_rule(g, c.a, c.out))


def _concentration(name, x):
    need_tensor(name, x)
    if x._stype.kind not in "fV":
        raise unsupported(name, x._stype)
    return x


@op(name="_standard_gamma", method=False)
def standard_gamma(input, generator=None):
    """Gamma numbers of scale 1 with the elements of input as concentrations."""
    return _gamma(_concentration("_standard_gamma", input), g=_gen(generator))


@op(name="_sample_dirichlet", method=False)
def sample_dirichlet(input, generator=None):
    """Points of the simplex in the last dimension, with the elements of input as concentrations."""
    return _dirichlet(_concentration("_sample_dirichlet", input), g=_gen(generator))


@op(name="_standard_gamma_grad", method=False)
def standard_gamma_grad(input, output):
    """Slope of gamma samples in their concentrations."""
    return _gamma_grad(_concentration("_standard_gamma_grad", input), output)


@op(name="_dirichlet_grad", method=False)
def dirichlet_grad(x, alpha, total):
    """Slope of beta samples x of concentrations alpha and total - alpha in alpha, over 1 - x."""
    return _beta_grad(_concentration("_dirichlet_grad", x), alpha, total)


Tensor._standard_gamma = standard_gamma
