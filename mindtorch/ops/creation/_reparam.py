"""Gamma and Dirichlet samples, differentiable with respect to their concentrations (derivatives:
`mindtorch/backend/cpu/reparam.py`)."""
from mindtorch.core.tensor.stride_rules import pointwise
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor
from mindtorch.ops._checks import check_tensor, not_implemented
from mindtorch.ops._operands import no_derivative
from mindtorch.ops.basic import mul_, sub_
from mindtorch.ops.creation.random import _gen

_gamma_grad = primitive("standard_gamma_grad", "a, x", no_derivative("_standard_gamma_grad"), no_derivative("_standard_gamma_grad"),
                        layout=pointwise)
_beta_grad = primitive("dirichlet_grad", "x, a, total", no_derivative("_dirichlet_grad"), no_derivative("_dirichlet_grad"),
                       no_derivative("_dirichlet_grad"), layout=pointwise)


def _dirichlet_rule(g, a, x):
    expanded = _beta_grad(x, a, a.sum(-1, True).expand(a._sizes))
    return mul_(expanded, sub_(g, mul_(x, g).sum(-1, True)))


_gamma = primitive("standard_gamma", "a, *, generator", lambda ctx, grad: mul_(grad, _gamma_grad(ctx.a, ctx.out)))
_dirichlet = primitive("dirichlet", "a, *, generator", lambda ctx, grad: _dirichlet_rule(grad, ctx.a, ctx.out))


def _concentration(name, x):
    check_tensor(name, x)
    if x._np_dtype.kind not in "fV":
        raise not_implemented(name, x)
    return x


@register_op(name="_standard_gamma", method=False, tags="nondeterministic_seeded")
def standard_gamma(input, generator=None):
    """Samples gamma distributions of scale 1; the elements of input are the concentrations."""
    return _gamma(_concentration("_standard_gamma", input), generator=_gen(generator, input._device))


@register_op(name="_sample_dirichlet", method=False, tags="nondeterministic_seeded")
def sample_dirichlet(input, generator=None):
    """Samples points of the simplex in the last dimension; the elements of input are the
    concentrations."""
    return _dirichlet(_concentration("_sample_dirichlet", input), generator=_gen(generator, input._device))


@register_op(name="_standard_gamma_grad", method=False)
def standard_gamma_grad(input, output):
    """Computes the derivative of gamma samples with respect to their concentrations."""
    return _gamma_grad(_concentration("_standard_gamma_grad", input), output)


@register_op(name="_dirichlet_grad", method=False)
def dirichlet_grad(x, alpha, total):
    """Computes dx/dalpha / (1 - x) for beta samples x of concentrations alpha and total - alpha."""
    return _beta_grad(_concentration("_dirichlet_grad", x), alpha, total)


Tensor._standard_gamma = standard_gamma
