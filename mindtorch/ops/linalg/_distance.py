"""Distances between rows: cdist, pdist."""

from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Float, Int
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.ops._operands import derivative_not_implemented
from mindtorch.ops.nn._fused import composite_backward, check_floating, check_tensor_arg, scalar_type_name

_no_second = derivative_not_implemented("_cdist_backward")
#: gradient of the distances with respect to a, or with `second` to b
_cdist_grad = primitive("cdist_backward", "g, a, b, dist, *, p, second", _no_second, _no_second, _no_second, _no_second)


def _cdist_rule(ctx, grad, second):
    # PyTorch computes Euclidean distances by a matrix product with differentiable ops. All others
    # use a kernel whose gradient is not differentiable.
    if mode.on and ctx.mm and ctx.p == 2:
        return composite_backward(_euclidean, (ctx.a, ctx.b), grad)[second]
    return _cdist_grad(grad, ctx.a, ctx.b, ctx.out, p=ctx.p, second=second)


def _euclidean(a, b):
    """Computes Euclidean distances with differentiable ops; the gradient at distance 0 is 0."""
    d = a.unsqueeze(-2) - b.unsqueeze(-3)
    s = (d * d).sum(-1)
    zero = s == 0
    return s.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)


cdist_ = primitive("cdist", "a, b, *, p, mm", lambda ctx, grad: _cdist_rule(ctx, grad, False), lambda ctx, grad: _cdist_rule(ctx, grad, True),
                   saves=("a", "b", "out"))


@register_op(method=False, autocast="float32")
def cdist(x1, x2, p: Float = 2.0, compute_mode: Int = "use_mm_for_euclid_dist_if_necessary"):
    """p-norm distances between all rows: (*, P, M), (*, R, M) -> (*, P, R)."""
    check_tensor_arg("cdist", "x1", x1)
    check_tensor_arg("cdist", "x2", x2, 2)
    for n, x in (("X1", x1), ("X2", x2)):
        if x.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {n} got: {x.ndim}D")
    if x1._sizes[-1] != x2._sizes[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1._sizes[-1]} X2: {x2._sizes[-1]}")
    for n, x in (("X1", x1), ("X2", x2)):
        if x._np_dtype.kind != "f":
            raise RuntimeError(f"cdist only supports floating-point dtypes, {n} got: {scalar_type_name(x)}") if x._np_dtype.kind != "V" else \
                NotImplementedError(f"\"cdist\" not implemented for 'BFloat16' on device {x.device}")
    if x1._np_dtype != x2._np_dtype:
        raise RuntimeError(f"expected scalar type {scalar_type_name(x1)} but found {scalar_type_name(x2)}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    modes = {"use_mm_for_euclid_dist_if_necessary": None, "use_mm_for_euclid_dist": True, "donot_use_mm_for_euclid_dist": False,
             None: None, 0: None, 1: True, 2: False}
    if compute_mode not in modes:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    mm = modes[compute_mode]
    if mm is None:
        mm = x1._sizes[-2] > 25 or x2._sizes[-2] > 25
    return cdist_(x1, x2, p=float(p), mm=mm)


@register_op(method=False, aliases="nn.functional.pdist")
def pdist(input, p: Float = 2):
    """Distances between all pairs of rows i < j of a matrix, as a vector."""
    check_tensor_arg("pdist", "input", input)
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if input._np_dtype.kind != "f":
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    check_floating("pdist", input)
    return pdist_(input, p=float(p))


_no_second_of_pairs = derivative_not_implemented("_pdist_backward")
_pdist_grad = primitive("pdist_backward", "g, a, dist, *, p", _no_second_of_pairs, _no_second_of_pairs, _no_second_of_pairs)
pdist_ = primitive("pdist", "a, *, p", lambda ctx, grad: _pdist_grad(grad, ctx.a, ctx.out, p=ctx.p))
