"""Counting: bincount and histograms. They have no gradients: backward raises an error, as in
PyTorch."""
from mindtorch.core.tensor.dtypes import I64
from mindtorch.core.tensor.return_types import struct
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Int, Scalar, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.ops._checks import check_tensor, not_implemented
from mindtorch.ops._operands import no_derivative
from mindtorch.ops.basic import cast
from mindtorch.ops.elementwise.binary import div
from mindtorch.ops.elementwise._logic import where

_bincount = primitive("bincount", "a, weights=None, *, minlength", None, no_derivative("bincount"), raw=True)
_histc = primitive("histc", "a, *, bins, low, high", raw=True)
#: The edges of equal bins; the flat bin index of each point, in a grid extended by one dim; the
#: number of points per flat index.
_equal_edges = primitive("histogram_edges", "x, *, bins, low, high, op, dim")
_bins = primitive("histogram_bins", "x, edges, before=None")
_counts = primitive("histogram_counts", "at, weight=None, *, shape")
_share, _density = primitive("histogram_share", "r"), primitive("histogram_density", "r, edges, *, dim")
#: Attaches counts or edges to the autograd graph of the counted tensor.
_result = primitive("histogram_result", "r, x, weight=None", None, no_derivative("histogram"), no_derivative("histogram"), raw=True,
                    node="NotImplemented")


@register_op(tags="dynamic_output_shape", aten="bincount.default")
def bincount(input, weights=None, minlength: SymInt = 0):
    """Counts the occurrences of each non-negative integer in a 1-d tensor, or sums their weights.
    """
    check_tensor("bincount", input)
    if input._np_dtype.kind not in "iu":
        raise not_implemented("bincount", input)
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if input.ndim != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None:
        check_tensor("bincount", weights, "weights", 2)
    return _bincount(input, weights, minlength=minlength)


@register_op(out="same", aten="histc.default")
def histc(input, bins: Int = 100, min: Scalar = 0, max: Scalar = 0):
    """Computes a histogram with equal bins between min and max. If both are 0, the range of the
    data is used.

    As in PyTorch, integers are supported on devices but not on the host.
    """
    check_tensor("histc", input)
    is_integer = input._np_dtype.kind in "iu" and input._handle is not None
    if input._np_dtype.kind not in "fV" and not is_integer:
        raise not_implemented("histc", input)
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    if is_integer:
        return _histc_integer(input, bins, int(min), int(max))
    return _histc(input, bins=bins, low=min, high=max)


def _histc_integer(input, bins, low, high):
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    x = cast(input.detach().reshape(-1), I64)
    if low == high and x._numel:
        low, high = x.min().item(), x.max().item()
    if low == high:
        low, high = low - 1, high + 1
    at = div((x - low) * bins, high - low, rounding_mode="floor").clamp(max=bins - 1)
    # values outside the range are counted in an extra last bin
    at = where((x >= low).logical_and(x <= high), at, bins)
    return cast(at.new_zeros(bins + 1).index_add(0, at, at.new_ones(at.shape))[:bins].clone(), input._np_dtype)


def _real_float(name, input):
    check_tensor(name, input)
    if input._np_dtype.kind != "f" or input._np_dtype.itemsize < 4:
        raise not_implemented(name, input)


def _edges(name, x, bins, low_high, dim):
    """Returns the bin edges along one axis: the given ones, or those of `bins` equal bins over the
    range (default: the range of the data)."""
    if bins.__class__ is Tensor or is_tensor(bins):
        if bins.ndim != 1:
            raise RuntimeError(f"{name}(): bins tensor should have one dimension, but got {bins.ndim} dimensions")
        if bins._np_dtype != x._np_dtype:
            raise RuntimeError(f"{name}(): input tensor and bins tensors should have the same dtype")
        return bins.detach().clone()
    if bins <= 0:
        raise RuntimeError(f"{name}(): bins must be > 0, but got {bins} for dimension {dim}")
    low, high = (None, None) if low_high is None else low_high
    if low is not None and low > high:
        raise RuntimeError(f"{name}(): min should not exceed max, but got min {low} max {high} for dimension {dim}")
    return _equal_edges(x, bins=bins, low=low, high=high, op=name, dim=dim)


def _histogram(columns, edges, weight, density):
    """Computes counts, or sums of weights, over the grid from the coordinates (n,) and the edges of
    each column."""
    at = None
    for x, e in zip(columns, edges):
        at = _bins(x, e, at)
    r = _counts(at, weight, shape=tuple([e._sizes[0] - 1 for e in edges]))
    if density:
        r = _share(r)
        for d, e in enumerate(edges):
            r = _density(r, e, dim=d)
    return cast(r, columns[0]._np_dtype)


def _weight(name, weight, input, shape):
    if weight is None:
        return None
    check_tensor(name, weight, "weight", 4)
    if weight._np_dtype != input._np_dtype:
        raise RuntimeError(f"{name}(): if weight tensor is provided, input tensor and weight tensor should have the "
                           f"same dtype")
    if weight._sizes != shape:
        raise RuntimeError(f"{name}(): if weight tensor is provided it should have the same shape as the input tensor "
                           f"excluding its innermost dimension")
    return weight


_Histogram, _Histogramdd = struct("histogram", "hist bin_edges"), struct("histogramdd", "hist bin_edges")


@register_op(out="same")
def histogram(input, bins=100, *, range=None, weight=None, density: Bool = False):
    """Returns (hist, bin_edges) with `bins` equal bins over the range, or with the given increasing
    edges."""
    _real_float("histogram", input)
    w = _weight("histogram", weight, input, input._sizes)
    x = input.detach().reshape(-1)
    e = _edges("histogram", x, bins, range, 0)
    return _Histogram(_result(_histogram([x], [e], w, density), input, w), _result(e, input, w))


@register_op(method=True)
def histogramdd(input, bins, range=None, weight=None, density: Bool = False):
    """Returns (hist, bin_edges) of points, whose coordinates are in the last dim of `input`."""
    _real_float("histogramdd", input)
    if input.ndim < 2:
        raise RuntimeError(f"histogramdd(): input tensor should have at least 2 dimensions, but got {input.ndim}")
    d = input._sizes[-1]
    bins = [bins] * d if isinstance(bins, int) else list(bins)
    if len(bins) != d:
        raise RuntimeError(f"histogramdd(): expected {d} bin counts or edges for input with {d} columns, but got "
                           f"{len(bins)}")
    w = _weight("histogramdd", weight, input, input._sizes[:-1])
    given = [b.__class__ is Tensor or is_tensor(b) for b in bins]
    pairs = [None] * d if range is None else list(zip(range[::2], range[1::2]))
    if len(pairs) != d:
        raise RuntimeError(f"histogramdd(): for a {d}-dimensional histogram range should have {2 * d} elements")
    columns = input.detach().reshape(-1, d).unbind(1)
    edges = [_edges("histogramdd", x, b, r, i) for i, (x, b, r) in enumerate(zip(columns, bins, pairs))]
    r = _result(_histogram(columns, edges, w, density), input, w)
    return _Histogramdd(r, tuple(e if is_given else _result(e, input, w) for is_given, e in zip(given, edges)))
