"""torch.masked: reductions and normalizations that skip the elements whose mask is False.

Each is the plain op over the input, with masked-out elements replaced by the identity of the op: 0
for a sum, 1 for a product, -inf for a maximum. If all elements are masked out, that value is the
result.
"""
import math

from mindtorch.core.tensor import dtypes
from mindtorch.core.tensor.dtypes import F64, I64, as_np, of_np
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, ScalarOperand, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops.reduction import reduce
from mindtorch.ops._checks import check_tensor, not_implemented, wrap_dim
from mindtorch.ops.elementwise._logic import where_
from mindtorch.ops._operands import cast_exact, scalar
from mindtorch.ops.reduction._order_stats import nanmedian
from mindtorch.ops.nn.activation import log_softmax as _plain_log_softmax, softmax as _plain_softmax
from mindtorch.ops.basic import cast, conj, mul_, ne_, new_full, sub_
from mindtorch.ops.elementwise._ternary import clamp_numbers
from mindtorch.ops.elementwise.binary import div_, logaddexp as _plain_logaddexp, maximum
from mindtorch.ops.reduction.scan import cumprod as _plain_cumprod, cumsum as _plain_cumsum
from mindtorch.ops.elementwise.unary import neg, sqrt



# ------------------------------------------------------------------ masks and fill values
def _mask_of(input, mask):
    """Returns the mask as a bool tensor that broadcasts to the input; raises IndexError or
    RuntimeError if it does not."""
    if not (mask.__class__ is Tensor or is_tensor(mask)):
        raise TypeError(f"masked operations need a Tensor as mask, not {type_name(mask)}")
    m, a = mask._sizes, input._sizes
    if len(m) > len(a):
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    for back in range(1, len(m) + 1):
        if m[-back] not in (1, a[-back]):
            raise RuntimeError(f"The expanded size of the tensor ({a[-back]}) must match the existing size ({m[-back]}) "
                               f"at non-singleton dimension {len(a) - back}.  Target sizes: {list(a)}.  Tensor sizes: "
                               f"{list(m)}")
    return mask if mask._np_dtype.kind == "b" else ne_(mask, scalar(0, mask))


def _extreme_value(name, d, largest):
    """Returns the largest or smallest value of a dtype."""
    if d.kind in "fV":
        return math.inf if largest else -math.inf
    if d.kind in "iu":
        info = dtypes.iinfo(of_np(d))
        return info.max if largest else info.min
    if d.kind == "c":
        raise TypeError(f"masked.{name} does not support complex dtypes: complex numbers have no order")
    raise NotImplementedError(f"identity of {name} on {of_np(d)} input is not supported on device cpu")


def _filled(name, input, mask, value):
    """Returns input where mask is True, else `value` ("low", "high": the dtype's smallest and
    largest value)."""
    if mask is None:
        return input
    m, d = _mask_of(input, mask), input._np_dtype
    if value == "low" or value == "high":
        value = _extreme_value(name, d, value == "high")
    return where_(m, input, cast_exact(value, d))


def _dims(dim, ndim):
    """Returns an ascending tuple of the dimensions; None, () and [] mean all of them."""
    if dim is None or (dim.__class__ is tuple or dim.__class__ is list) and not dim:
        return tuple(range(ndim))
    if dim.__class__ is int:
        return (wrap_dim("masked", dim, ndim),) if ndim else _scalar_dims(dim)
    seen = []
    for d in dim:
        axis = wrap_dim("masked", d, ndim)
        if axis in seen:
            raise RuntimeError(f"dim={axis} appears multiple times in the list of dims")
        seen.append(axis)
    return tuple(sorted(seen)) if ndim else ()


def _scalar_dims(dim):
    wrap_dim("masked", dim, 0)
    return ()


def _cast_result(r, dtype):
    return r if dtype is None else cast(r, as_np(dtype))


def _input_in_dtype(name, input, dtype):
    """Returns the input in the requested dtype."""
    check_tensor(f"masked.{name}", input)
    return input if dtype is None else cast(input, as_np(dtype))


# ------------------------------------------------------------------ sum, prod, extremes
@register_op(ns="masked", name="sum")
def sum_(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Sum of the unmasked elements over `dim` (one, several or all). Integers give int64; an empty
    sum is 0."""
    x = _input_in_dtype("sum", input, dtype)
    axes = _dims(dim, x.ndim)
    return _cast_result(reduce.sum_op(_filled("sum", x, mask, 0), axes, keepdim), dtype)


@register_op(ns="masked")
def prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Product of the unmasked elements over `dim` (one, several or all). Integers give int64; an
    empty product is 1."""
    x = _input_in_dtype("prod", input, dtype)
    axes = _dims(dim, x.ndim)
    r = _filled("prod", x, mask, 1)
    if dim.__class__ is list and not dim:
        # For prod only, PyTorch takes an empty list, but not an empty tuple, as no dimension at
        # all.
        return _cast_result(r, dtype)
    if not axes:
        return _cast_result(reduce.prod(r), dtype)
    for d in reversed(axes):
        r = reduce.prod(r, d, keepdim)
    return _cast_result(r, dtype)


@register_op(ns="masked")
def amax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Largest unmasked element over `dim` (one, several or all); where there is none, the dtype's
    smallest value."""
    check_tensor("masked.amax", input)
    axes = _dims(dim, input.ndim)
    return _cast_result(reduce.amax(_filled("amax", input, mask, "low"), axes, keepdim), dtype)


@register_op(ns="masked")
def amin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Smallest unmasked element over `dim` (one, several or all); where there is none, the dtype's
    largest value."""
    check_tensor("masked.amin", input)
    axes = _dims(dim, input.ndim)
    return _cast_result(reduce.amin(_filled("amin", input, mask, "high"), axes, keepdim), dtype)


def _index_of(name, plain, input, dim, keepdim, dtype, mask, value):
    check_tensor(f"masked.{name}", input)
    if isinstance(dim, (tuple, list)):
        raise TypeError(f"{name}(): argument 'dim' (position 2) must be int, not {type(dim).__name__}")
    r = plain(_filled(name, input, mask, value), dim, bool(keepdim))
    # PyTorch returns the index in the dtype of the input.
    return cast(r, input._np_dtype if dtype is None else as_np(dtype))


@register_op(ns="masked")
def argmax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Index of the largest unmasked element of all (flattened) or along `dim`, in the dtype of the
    input."""
    return _index_of("argmax", reduce.argmax, input, dim, keepdim, dtype, mask, "low")


@register_op(ns="masked")
def argmin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Index of the smallest unmasked element of all (flattened) or along `dim`, in the dtype of the
    input."""
    return _index_of("argmin", reduce.argmin, input, dim, keepdim, dtype, mask, "high")


# ------------------------------------------------------------------ moments
def _count(x, mask, axes, keepdim):
    """Returns the number of unmasked elements: an int64 tensor that broadcasts to the result of a
    reduction of x."""
    if mask is None:
        return new_full(x, size=(), value=math.prod([x._sizes[d] for d in axes]), np_dtype=I64)
    return _count_true(_mask_of(x, mask), shape=x._sizes, axes=axes, keepdim=bool(keepdim))


_count_true = primitive("masked_count", "mask, *, shape, axes, keepdim", raw=True)


def _divide_by_count(x, n):
    """Returns x / n for a tensor of counts."""
    return div_(x, cast(n, x._np_dtype))


@register_op(ns="masked")
def mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Mean of the unmasked elements over `dim` (one, several or all); NaN where there is none.
    Raises ValueError for integers."""
    check_tensor("masked.mean", input)
    d, which = (input._np_dtype, "Input") if dtype is None else (as_np(dtype), "Optional")
    if d.kind not in "fcV":
        raise ValueError(f"mean(): Could not infer output dtype. {which} dtype must be either a floating point or complex dtype. "
                         f"Got: {of_np(d)}")
    x = _input_in_dtype("mean", input, dtype)
    axes = _dims(dim, x.ndim)
    return _divide_by_count(reduce.sum_op(_filled("mean", x, mask, 0), axes, keepdim), _count(x, mask, axes, keepdim))


def _moment(name, input, dim, unbiased, correction, keepdim, dtype, mask):
    """Returns the variance of the unmasked elements, before its cast to `dtype`."""
    check_tensor(f"masked.{name}", input)
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    if correction is None:
        correction = 0.0 if unbiased is False else 1.0
    d = input._np_dtype
    if d.kind == "b":
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
                           "use the `~` or `logical_not()` operator instead.")
    if d.kind == "c" and dtype is not None and as_np(dtype).kind != "c":
        raise NotImplementedError(f"masked.{name} of a {of_np(d)} tensor with dtype={dtype} is not supported on device {input.device}")
    x = cast(input, as_np(dtype)) if dtype is not None else input if d.kind in "fcV" else cast(input, dtypes.default_np())
    if x._np_dtype.kind not in "fcV":
        x = cast(x, dtypes.default_np())
    axes = _dims(dim, x.ndim)
    centre = _divide_by_count(reduce.sum_op(_filled(name, x, mask, 0), axes, True), _count(x, mask, axes, True))
    away = sub_(x, centre)
    square = _filled(name, mul_(away, conj(away)), mask, 0)
    n = clamp_numbers(sub_(cast(_count(x, mask, axes, keepdim), F64), ScalarOperand(correction, F64)), low=0, high=None)
    return _divide_by_count(reduce.sum_op(square, axes, keepdim), n)


@register_op(ns="masked")
def var(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """Variance of the unmasked elements over `dim` (one, several or all); integers give the default
    dtype."""
    return _cast_result(_moment("var", input, dim, unbiased, correction, keepdim, dtype, mask), dtype)


@register_op(ns="masked")
def std(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """Standard deviation of the unmasked elements over `dim` (one, several or all); integers give
    the default dtype."""
    return _cast_result(sqrt(_moment("std", input, dim, unbiased, correction, keepdim, dtype, mask)), dtype)


@register_op(ns="masked")
def median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    """Lower median of the unmasked elements along `dim`, ignoring NaN. As in PyTorch, `dtype`
    applies to integer inputs only."""
    check_tensor("masked.median", input)
    d, ndim = input._np_dtype, input.ndim
    if d.kind == "c":
        raise not_implemented("masked.median", input)
    if isinstance(dim, (tuple, list)):
        axes = _dims(tuple(dim), ndim)
        if len(axes) != 1:
            raise NotImplementedError(f"masked.median over several dims {tuple(dim)} is not supported on device {input.device}")
        dim = axes[0]
    if d.kind in "fV":
        return nanmedian(_filled("median", input, mask, math.nan), dim, keepdim)[0]
    if mask is not None and not to_host(_count(input, mask, (wrap_dim("median", dim, ndim),) if ndim else (), False).all()):
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    r = nanmedian(_filled("median", cast(input, F64), mask, math.nan), dim, keepdim)[0]
    return cast(r, d if dtype is None else as_np(dtype))


# ------------------------------------------------------------------ norms
def _norm(name, input, ord, dim, keepdim, dtype, mask):
    if isinstance(ord, str) or ord is None:
        raise TypeError(f"linalg_vector_norm(): argument 'ord' (position 2) must be Number, not {type(ord).__name__}")
    check_tensor(f"masked.{name}", input)
    axes = _dims(dim, input.ndim)
    x = input
    if mask is not None:
        if ord == -math.inf and x._np_dtype.kind not in "fV":
            raise AssertionError(f"input must be floating point, got {x.dtype}")
        x = _filled(name, x, mask, math.inf if ord == -math.inf else 0)
    if x._np_dtype.kind not in "fcV":
        dtype = None  # vector_norm raises PyTorch's error for integer inputs in any case
    return reduce.vector_norm(x, ord, axes, bool(keepdim), dtype)


@register_op(ns="masked")
def norm(input, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None):
    """`ord`-norm of the unmasked elements over `dim` (one, several or all)."""
    check_tensor("masked.norm", input)
    return _norm("norm", input, ord, dim, keepdim, dtype, mask)


@register_op(ns="masked")
def normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    """input divided by the `ord`-norm (at least `eps`) of its unmasked elements over `dim`; 0 where
    masked out."""
    check_tensor("masked.normalize", input)
    length = _norm("normalize", input, ord, dim, True, dtype, mask)
    d = length._np_dtype
    least = maximum(length, new_full(length, size=(), value=eps, np_dtype=d))
    x = _filled("normalize", input if dtype is None else cast(input, as_np(dtype)), mask, 0)
    return div_(x, least if x._np_dtype == d else cast(least, x._np_dtype))


# ------------------------------------------------------------------ along one dim
def _soft(name, plain, input, dim, dtype, mask, value, sign=None):
    check_tensor(f"masked.{name}", input)
    wrap_dim(name, dim, input.ndim)
    x = _cast_result(_filled("amin" if value == "high" else "amax", input, mask, value), dtype)
    return plain(x if sign is None else neg(x), dim)


@register_op(ns="masked")
def softmax(input, dim, *, dtype=None, mask=None):
    """Softmax of the unmasked elements along `dim`; 0 where masked out, NaN if all elements are."""
    return _soft("softmax", _plain_softmax, input, dim, dtype, mask, "low")


@register_op(ns="masked")
def log_softmax(input, dim, *, dtype=None, mask=None):
    """log of masked.softmax along `dim`."""
    return _soft("log_softmax", _plain_log_softmax, input, dim, dtype, mask, "low")


@register_op(ns="masked")
def softmin(input, dim, *, dtype=None, mask=None):
    """masked.softmax of -input along `dim`."""
    return _soft("softmin", _plain_softmax, input, dim, dtype, mask, "high", sign=-1)


def _running(name, plain, input, dim, dtype, mask, value):
    check_tensor(f"masked.{name}", input)
    d = input._np_dtype if dtype is None else as_np(dtype)
    if d.kind == "b":
        raise not_implemented(f"masked.{name}", input, dtype=d)
    # Unlike cumsum and cumprod, these keep an integer dtype.
    return plain(_filled(name, cast(input, d), mask, value), dim, dtype=of_np(d))


@register_op(ns="masked")
def cumsum(input, dim, *, dtype=None, mask=None):
    """Running sums of the unmasked elements along `dim`, in the dtype of the input."""
    return _running("cumsum", _plain_cumsum, input, dim, dtype, mask, 0)


@register_op(ns="masked")
def cumprod(input, dim, *, dtype=None, mask=None):
    """Running products of the unmasked elements along `dim`, in the dtype of the input."""
    return _running("cumprod", _plain_cumprod, input, dim, dtype, mask, 1)


# ------------------------------------------------------------------ sums of exponentials
@register_op(ns="masked")
def logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """log(sum(exp)) of the unmasked elements over `dim` (one, several or all), in the dtype of the
    input."""
    check_tensor("masked.logsumexp", input)
    d = input._np_dtype
    value = -math.inf if d.kind == "c" else "low"
    axes = _dims(dim, input.ndim)
    x = _filled("logsumexp", input, mask, value)
    return cast(reduce.logsumexp(x, axes, keepdim), d if dtype is None else as_np(dtype))


@register_op(ns="masked")
def logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    """log(exp(input) + exp(other)) in the dtype of input; a masked-out operand counts as exp(-inf).
    """
    check_tensor("masked.logaddexp", input)
    check_tensor("masked.logaddexp", other, "other", 2)
    r = _plain_logaddexp(_filled("logaddexp", input, input_mask, "low"), _filled("logaddexp", other, other_mask, "low"))
    return cast(r, input._np_dtype if dtype is None else as_np(dtype))


# ------------------------------------------------------------------ fill values
_FILLINGS = {"sum": 0, "cumsum": 0, "prod": 1, "cumprod": 1, "amax": "low", "argmax": "low", "logsumexp": "low", "logaddexp": "low", "amin": "high",
             "argmin": "high", "median": math.nan, "norm": 0, "linalg_vector_norm": 0, "mean": None, "var": None, "std": None}


def identity_of(op_name, input, *args):
    """Returns the identity element of the reduction `op_name` ("sum", "masked.sum") for tensors
    like input, as a 0-dim tensor.

    Returns None for moments, which have none. args: for "norm", the order. Raises
    NotImplementedError for other ops and for dtypes without an identity.
    """
    name = op_name.rpartition(".")[2]
    if name not in _FILLINGS:
        raise NotImplementedError(f"identity of {name} on {input.dtype} input")
    value, d = _FILLINGS[name], input._np_dtype
    if value is None:
        return None
    if name.endswith("norm") and args and args[0] == -math.inf:
        value = "high" if d.kind in "fV" else _no_least(input)
    if value == "low" and name.startswith("log") and d.kind == "c":
        value = -math.inf
    if value.__class__ is str:
        value = _extreme_value(name, d, value == "high")
    elif value != value and d.kind not in "fV":
        d = dtypes.default_np()
    return new_full(input, size=(), value=value, np_dtype=d)


def _no_least(input):
    raise AssertionError(f"input must be floating point, got {input.dtype}")
