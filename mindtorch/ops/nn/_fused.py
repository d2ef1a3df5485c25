"""Helpers shared by the nn ops: gradients of fused kernels, `inplace=` flags, reductions, argument
checks."""
from mindtorch.core.tensor import inplace as alias
from mindtorch.core.autograd import engine
from mindtorch.core.tensor.dtypes import F32, LOW, cpp_names
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.autograd.grad_mode import enable_grad, mode
from mindtorch.core.dispatch.op_registry import any_grad
from mindtorch.core.dispatch.primitives import sequence, primitive
from mindtorch.core.tensor.tensor import Tensor, ScalarOperand, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops.basic import cast, mul_, new_full
from mindtorch.ops.indexing._basic_index import pick_alias


def _proxy(x):
    """Returns (tensor equal to x, its autograd node, that node's edges). The node has no edges
    until the caller restores them."""
    t = pick_alias(x, key=...)
    n = t._grad_fn_
    edges, n._next_edges = n._next_edges, [None]
    return t, n, edges


def composite_backward(compose, inputs, gs):
    """Returns the gradients of `compose(*inputs)` as differentiable tensors. `compose` consists of
    differentiable ops.

    Fused kernels have a fused backward kernel. When the backward pass itself is recorded
    (create_graph=True), the gradient is computed through this composition instead, which can be
    differentiated any number of times.
    """
    with enable_grad():
        proxies, nodes, arguments = [], [], []
        for x in inputs:
            if x is not None and x._requires_grad_:
                t, n, edges = _proxy(x)
                proxies.append(t)
                nodes.append((n, edges))
                arguments.append(t)
            else:
                arguments.append(x)
        outs = compose(*arguments)
        if outs.__class__ is Tensor or is_tensor(outs):
            outs, gs = (outs,), (gs,)
        roots = [(o, g) for o, g in zip(outs, gs) if o is not None and g is not None and o._requires_grad_]
        found = engine.run_backward([o for o, _ in roots], [g for _, g in roots], True, True, proxies, True)
        for n, edges in nodes:
            n._next_edges = edges
    found = iter(found)
    return tuple(next(found) if x is not None and x._requires_grad_ else None for x in inputs)


def composite_backward_upcast(compose, inputs, gs):
    """Like `composite_backward`, for kernels that compute half precision in float32.

    The composition runs in float32 too, and its results and gradients are rounded once, like those
    of the kernel. Rounding after each op produces gradients that differ from the kernel's, and
    intermediate sums and powers overflow to infinity where the gradient is finite.
    """
    if not any([x is not None and x._np_dtype in LOW for x in inputs]):
        return composite_backward(compose, inputs, gs)
    kinds = [None if g is None else g._np_dtype for g in (gs if gs.__class__ in (tuple, list) else (gs,))]

    def upcast(*given):
        outs = compose(*[cast(x, F32) if x is not None and x._np_dtype in LOW else x for x in given])
        if outs.__class__ is Tensor or is_tensor(outs):
            return cast(outs, kinds[0])
        return tuple([o if o is None or k is None else cast(o, k) for o, k in zip(outs, kinds)])
    return composite_backward(upcast, inputs, gs)


def inplace(x, fn, *args):
    """Overwrites `x` with fn(x, *args). Implements `inplace=True`."""
    grad = mode.on and (x._requires_grad_ or any_grad(args))
    alias.check_inplace(x, grad)
    since = next(sequence) if grad else 0
    return alias.assign(x, alias.computed(x, fn, *args), since, args)


# ------------------------------------------------------------------ arguments
def check_tensor_arg(name, arg, x, position=1):
    """Raises TypeError with PyTorch's message unless x is a tensor."""
    if not (x.__class__ is Tensor or is_tensor(x)):
        raise TypeError(f"{name}(): argument '{arg}' (position {position}) must be Tensor, not {type_name(x)}")


def expand_param(x, n, name, what="kernel_size"):
    """Returns an int or a sequence of ints as a tuple of n ints. A single int is repeated n times.
    """
    if x.__class__ is int:
        return (x,) * n
    if x.__class__ is tuple and len(x) == n:
        for i in x:
            if i.__class__ is not int:
                return tuple([_int(i, name, what) for i in x])
        return x
    try:
        x = tuple(x) if not (x.__class__ is Tensor or is_tensor(x)) else tuple(to_host(x).reshape(-1).tolist())
    except TypeError:
        return (_int(x, name, what),) * n
    if len(x) == 1:
        return (_int(x[0], name, what),) * n
    if len(x) != n:
        raise RuntimeError(f"{name}: expected {what} to be a single integer value or a list of {n} values to match the "
                           f"dimensions, but got {what}={list(x)}")
    return tuple(_int(i, name, what) for i in x)


def _int(x, name, what):
    try:
        return x.__index__()
    except (AttributeError, TypeError):
        if (x.__class__ is Tensor or is_tensor(x)) and x._numel == 1 and x._np_dtype.kind in "iub":
            return int(to_host(x).reshape(()))
        raise TypeError(f"{name}(): argument '{what}' must be tuple of ints, not {type(x).__name__}") from None


def dim_of(dim, ndim):
    """Returns a non-negative dim. IndexError if dim is out of range."""
    lo = max(ndim, 1)
    if not -lo <= dim < lo:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-lo}, {lo - 1}], but got {dim})")
    return dim + lo if dim < 0 else dim


def scalar_type_name(x):
    """Returns PyTorch's C++ scalar type name of a tensor's dtype ("Long")."""
    d = getattr(x, "_np_dtype", x)
    d = getattr(d, "dtype", d)
    return cpp_names(d).scalar


def c_type_name(x):
    """Returns PyTorch's C type name of a tensor's dtype ("float")."""
    return cpp_names(x._np_dtype).type


def check_floating(name, x, complex_ok=False):
    """Raises NotImplementedError unless x is floating point (or complex, if `complex_ok`)."""
    k = x._np_dtype.kind
    if k not in "fV" and not (complex_ok and k == "c"):
        raise NotImplementedError(f"\"{name}\" not implemented for '{scalar_type_name(x)}' on device {x.device}")


# ------------------------------------------------------------------ reductions of losses
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2, 0: 0, 1: 1, 2: 2}


def reduction_of(reduction, size_average=None, reduce=None):
    """Returns the reduction as "none", "mean" or "sum". Handles the two legacy flags."""
    if size_average is not None or reduce is not None:
        import warnings
        size_average = True if size_average is None else size_average
        reduce = True if reduce is None else reduce
        r = "none" if not reduce else "mean" if size_average else "sum"
        warnings.warn(f"size_average and reduce args will be deprecated, please use reduction='{r}' instead.", stacklevel=4)
        return r
    try:
        return ("none", "mean", "sum")[_REDUCTIONS[reduction]]
    except (KeyError, TypeError):
        raise ValueError(f"{reduction} is not a valid value for reduction") from None


# Sum or mean over all elements in one kernel. The gradient is expanded by one more kernel.
_mean_all = primitive("mean_elements", "a, *, mean", lambda ctx, grad: _expand_elements(grad, shape=ctx.shapes[0], mean=ctx.mean), node="MeanBackward0")
_sum_all = primitive("sum_elements", "a, *, mean", lambda ctx, grad: _expand_elements(grad, shape=ctx.shapes[0], mean=ctx.mean), node="SumBackward0")
_expand_elements = primitive("expand_elements", "g, *, shape, mean", lambda ctx, grad: (_mean_all if ctx.mean else _sum_all)(grad, mean=ctx.mean),
                             node="ExpandBackward0")


def reduced(x, reduction):
    """Returns x, its mean or its sum."""
    if reduction == "none":
        return x
    return _mean_all(x, mean=True) if reduction == "mean" else _sum_all(x, mean=False)


def full_like(x, value):
    """Returns a tensor of x's shape and dtype, filled with `value`."""
    return new_full(x, size=x._sizes, value=value, np_dtype=x._np_dtype)


def times(g, k):
    """Returns g * k for a Python scalar k."""
    return mul_(g, ScalarOperand(k, F32 if g._np_dtype.itemsize == 2 else g._np_dtype))
