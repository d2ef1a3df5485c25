"""Sorting and searching: sort, topk, unique, searchsorted, isin."""
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import I32, I64
from mindtorch.core.tensor.stride_rules import like
from mindtorch.core.dispatch.type_promotion import number_dtype
from mindtorch.core.tensor.return_types import made, struct
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Int, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, ScalarOperand, is_tensor
from mindtorch.ops.reduction._along import put_at
from mindtorch.ops._checks import check_tensor, not_implemented, wrap_dim
from mindtorch.ops._operands import derivative_not_implemented
from mindtorch.ops.shapes._sizes import int_of


# ------------------------------------------------------------------ sort
def _put_along(g, at, axis, shape):
    return put_at(g, at, axis=axis, keepdim=True, shape=shape, repeated=False)


_sort = primitive("sort", "a, *, axis, descending", lambda ctx, grad: _put_along(grad[0], ctx.out1, ctx.axis, ctx.shapes[0]), nondiff=(1,), layout=like,
                  aten="sort.default")
_argsort = primitive("argsort", "a, *, axis, descending", raw=True)
_Sort, _Topk = struct("sort", "values indices"), struct("topk", "values indices")


def _sortable(name, input):
    check_tensor(name, input)
    if input._np_dtype.kind == "c":
        raise RuntimeError(f"{name.capitalize()} does not support complex dtypes on CPU")


@register_op(out="same")
def sort(input, dim: Int = -1, descending: Bool = False, *, stable: Bool = False):
    """Returns (values, indices) sorted along `dim`. Equal elements keep their order, and NaN counts
    as the maximum."""
    _sortable("sort", input)
    return made(_Sort, _sort(input, axis=wrap_dim("sort", dim, input.ndim), descending=bool(descending)))


@register_op(out=True)
def argsort(input, dim: Int = -1, descending: Bool = False, *, stable: Bool = False):
    """Returns the indices that sort along `dim`."""
    _sortable("sort", input)
    return _argsort(input, axis=wrap_dim("argsort", dim, input.ndim), descending=descending)


@register_op(out="same")
def msort(input):
    """Sorts along the first dim."""
    return sort(input, 0)[0]


_topk = primitive("topk", "a, *, k, axis, largest, in_order", lambda ctx, grad: _put_along(grad[0], ctx.out1, ctx.axis, ctx.shapes[0]), nondiff=(1,),
                  aten="topk.default")


@register_op(out="same")
def topk(input, k: SymInt, dim: Int = -1, largest: Bool = True, sorted: Bool = True):
    """Returns (values, indices) of the k largest (or smallest) elements along `dim`."""
    check_tensor("topk", input)
    kind = input._np_dtype.kind
    if kind in "bc":
        raise RuntimeError(f"topk does not support {'bool' if kind == 'b' else 'complex'} dtypes on CPU")
    axis = wrap_dim("topk", dim, input.ndim)
    k = int_of("topk", k, "k")
    if not 0 <= k <= (input._sizes[axis] if input.ndim else 1):
        raise RuntimeError("selected index k out of range")
    return made(_Topk, _topk(input, k=k, axis=axis, largest=bool(largest), in_order=bool(sorted)))


# ------------------------------------------------------------------ unique
_unique = primitive("unique", "a, *, inverse, counts", derivative_not_implemented("_unique2"), raw=True, nondiff=(1, 2), node="NotImplemented")
_unique_dim = primitive("unique_dim", "a, *, axis, inverse, counts", derivative_not_implemented("unique_dim"), raw=True, nondiff=(1, 2), node="NotImplemented")
_unique_consecutive = primitive("unique_consecutive", "a, *, axis, inverse, counts", derivative_not_implemented("unique_consecutive"), raw=True,
                                nondiff=(1, 2), node="NotImplemented")


def _real(name, x):
    """Returns x. Raises an error unless x is a real tensor."""
    check_tensor(name, x)
    if x._np_dtype.kind == "c":
        raise not_implemented(name, x)
    return x


def _drop_none(results):
    out = tuple([x for x in results if x is not None])
    return out[0] if len(out) == 1 else out


@register_op(tags="dynamic_output_shape")
def unique(input, sorted: Bool = True, return_inverse: Bool = False, return_counts: Bool = False, dim: Int = None):
    """Returns the distinct elements in sorted order, or the distinct slices along `dim`. Optionally
    also inverse indices and counts."""
    _real("unique", input)
    inverse, counts = bool(return_inverse), bool(return_counts)
    if dim is None or input.ndim == 0:
        return _drop_none(_unique(input, inverse=inverse, counts=counts))
    axis = wrap_dim("unique", dim, input.ndim)
    _check_other_dims(input._sizes, axis)
    return _drop_none(_unique_dim(input, axis=axis, inverse=inverse, counts=counts))


def _check_other_dims(shape, axis):
    """Raises RuntimeError if the slices along an axis have no elements to compare."""
    if shape.count(0) > 1:
        raise RuntimeError("Number of zero sized dimensions is more than one, so unique cannot be applied ")
    if 0 in shape[:axis] + shape[axis + 1:]:
        raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")


@register_op(tags="dynamic_output_shape", aten="unique_consecutive.default")
def unique_consecutive(input, return_inverse: Bool = False, return_counts: Bool = False, dim: Int = None):
    """Returns the first of each run of equal elements, or of equal slices along `dim`."""
    _real("unique_consecutive", input)
    axis = None
    if dim is not None:
        axis = wrap_dim("unique_consecutive", dim, input.ndim)
        _check_other_dims(input._sizes, axis)
    return _drop_none(_unique_consecutive(input, axis=axis, inverse=bool(return_inverse), counts=bool(return_counts)))


# ------------------------------------------------------------------ search
_searchsorted = primitive("searchsorted", "sequence, x, sorter=None, *, right, np_dtype, op", raw=True)
_isin = primitive("isin", "a, among, *, invert", raw=True)


def _search(name, sequence, x, out_int32, right, side, sorter):
    if side is not None:
        if side not in ("left", "right"):
            raise RuntimeError(f"torch.{name}(): side can only be 'left' or 'right' but got {side}")
        if side == "left" and right:
            raise RuntimeError(f"torch.{name}(): side and right can't be set to opposites, got side of left while "
                               f"right was True")
    right = right or side == "right"
    if sorter is not None:
        if sorter._sizes != sequence._sizes:
            raise RuntimeError(f"torch.{name}(): boundary and sorter must have the same size, but got boundary tensor "
                               f"{list(sequence._sizes)} and got sorter tensor {list(sorter._sizes)}")
        if sorter._np_dtype != I64:
            raise RuntimeError(f"torch.{name}(): sorter must be a tensor of long dtype but got dtype "
                               f"{scalar_type_name(sorter._np_dtype)}")
    return _searchsorted(sequence, x, sorter, right=bool(right or side == "right"), np_dtype=I32 if out_int32 else I64, op=name)


def _numbers(name, x):
    return _real(name, x) if (x.__class__ is Tensor or is_tensor(x)) else ScalarOperand(x, number_dtype(x))


@register_op(method=False, out="same")
def searchsorted(sorted_sequence, input, *, out_int32: Bool = False, right: Bool = False, side=None, sorter=None):
    """Returns the insertion indices of the values of `input` in a sequence that is sorted along its
    last dim."""
    s = _real("searchsorted", sorted_sequence)
    x = _numbers("searchsorted", input)
    if s.ndim != 1:
        if x.ndim == 0:
            raise RuntimeError("torch.searchsorted(): input value can be a scalar only when boundaries tensor "
                               "dimension is 1, but "
                               f"we got boundaries tensor dim({s.ndim}) and input value's dim(0) numel(1)")
        if x._sizes[:-1] != s._sizes[:-1]:
            raise RuntimeError("torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
                               "dimensions of "
                               "boundaries tensor and input value tensor must match, but we got boundaries tensor "
                               f"{list(s._sizes)} and input value tensor {list(x._sizes)}")
    return _search("searchsorted", s, x, out_int32, right, side,
                   None if sorter is None else _real("searchsorted", sorter))


@register_op(method=False, out="same")
def bucketize(input, boundaries, *, out_int32: Bool = False, right: Bool = False):
    """Returns, for each value, the index of its bucket among the sorted 1-d boundaries."""
    b = _real("bucketize", boundaries)
    if b.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({b.ndim})")
    return _search("bucketize", b, _numbers("bucketize", input), out_int32, right, None, None)


@register_op(method=False, out="same")
def isin(elements, test_elements, *, assume_unique: Bool = False, invert: Bool = False):
    """True where an element is among the test elements. Either argument may be a Python scalar."""
    if not (elements.__class__ is Tensor or is_tensor(elements)) and not (test_elements.__class__ is Tensor or is_tensor(test_elements)):
        raise TypeError("isin(): elements or test_elements must be a Tensor")
    for x in (elements, test_elements):
        if (x.__class__ is Tensor or is_tensor(x)) and x._np_dtype.kind in "bc":
            raise not_implemented("isin", x)
    return _isin(_numbers("isin", elements), _numbers("isin", test_elements), invert=bool(invert))
