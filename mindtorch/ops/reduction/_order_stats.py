"""Order statistics: median, k-th value, mode, quantiles."""
import numpy as np

from mindtorch.backend.cpu import selection
from mindtorch.core.dtypes import I64
from mindtorch.core.return_types import struct
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor, wrap
from mindtorch.ops.reduction._along import put_at, take, take_at
from mindtorch.ops._checks import need_tensor, unsupported, wrap_dim
from mindtorch.ops._operands import number, plain
from mindtorch.ops.elementwise._blend import lerp_
from mindtorch.ops.basic import add_, mul_, sub_
from mindtorch.ops.reduction.reduce import _extreme_grad, need_elements



def _values(a, at, axis, keepdim):
    v = take(a, at, axis)
    return (v, at) if keepdim else (v.squeeze(axis), at.squeeze(axis))


def _selecting(name, kernel, node=None):
    """Primitive that picks one element per slice: (values, indices); the gradient goes to the picked element."""
    return primitive(name, kernel, lambda c, g: put_at(
        g[0], index=c.out1._a, axis=c.axis, keepdim=c.keepdim, shape=c.shapes[0], repeated=False), nondiff=(1,),
        node=node)


def _along(name, input, dim):
    need_tensor(name, input)
    a = input._a
    if a.dtype.kind == "c":
        raise unsupported(name, a.dtype)
    axis = wrap_dim(name, dim, a.ndim)
    if a.ndim:
        need_elements(name, a, axis)
    return axis


# ------------------------------------------------------------------ median
def _median_all(a, *, skip):
    x = a.reshape(-1)
    missing = x != x
    if missing.any():
        if not skip or missing.all():
            return np.array(np.nan, a.dtype)
        x = x[~missing]
    elif not x.size:
        return np.array(np.nan, a.dtype) if a.dtype.kind == "f" else np.array(np.iinfo(a.dtype).min, a.dtype)
    k = (x.size - 1) // 2
    return np.asarray(np.partition(x, k)[k])


def _median_dim(a, *, axis, keepdim, skip):
    if a.ndim == 0:
        return a.copy(), np.zeros((), I64)
    n = a.shape[axis]
    missing = (a != a) if a.dtype.kind == "f" else np.zeros((), bool)
    if not missing.any():
        k = (n - 1) // 2
        at = np.argpartition(a, k, axis=axis).take([k], axis=axis)
        v = np.take_along_axis(a, at, axis)
        equal = a == v
        if np.count_nonzero(equal) > at.size:
            # The one that a stable sort would put there, as torch's comparison by value and index does.
            nth = k - (a < v).sum(axis=axis, keepdims=True)
            at = (np.cumsum(equal, axis=axis) > nth).argmax(axis=axis)
            at = np.expand_dims(at, axis)
    else:
        # nan sorts last, so the lower median of the others is at (number of others - 1) // 2.
        order = np.argsort(a, axis=axis, kind="stable")
        there = n - missing.sum(axis=axis, keepdims=True)
        if skip:
            k = np.maximum((there - 1) // 2, 0)
        else:
            # The first nan, if there is one.
            k = np.where(there < n, np.minimum(there, n - 1), (n - 1) // 2)
        at = np.take_along_axis(order, k, axis=axis)
        if skip:
            # Of nothing but nan, among which no order holds, what the search leaves in the first place.
            at = selection.settle(a, at, axis, (there == 0).squeeze(axis), lambda x: selection.nth([0] * x.size, 0))
    return _values(a, at, axis, keepdim)


def _median(name, skip):
    full = primitive(name, lambda a: _median_all(a, skip=skip), lambda c, g: _extreme_grad(g, c.a, c.out, None, False),
                     inputs="a")
    along = _selecting(name, lambda a, *, axis, keepdim: _median_dim(a, axis=axis, keepdim=keepdim, skip=skip),
                       name.capitalize() + "Backward1")
    result = struct(name, "values indices")

    def median(input, dim=None, keepdim=False):
        need_tensor(name, input)
        if dim is None:
            if input._stype.kind in "bc":
                raise unsupported(name, input._stype)
            return full(input)
        return result(*along(input, axis=_along(name, input, dim), keepdim=keepdim))
    median.__name__ = name
    skipping = ", nan left out" if skip else ""
    median.__doc__ = f"Lower median of all elements{skipping}; over `dim` as (values, indices)."
    return op(median, out=True)


median = _median("median", False)
nanmedian = _median("nanmedian", True)


# ------------------------------------------------------------------ kthvalue, mode
def _kth(a, *, k, axis, keepdim):
    if a.ndim == 0:
        return a.copy(), np.zeros((), I64)
    at = np.argpartition(a, k - 1, axis=axis).take([k - 1], axis=axis)
    v = np.take_along_axis(a, at, axis)
    unsure = ((a == v).sum(axis=axis) != 1)         # none: nan
    at = selection.settle(a, at, axis, unsure, lambda x: selection.quick_select(selection.ranks(x).tolist(), k - 1))
    return _values(a, at, axis, keepdim)


_kthvalue = _selecting("kthvalue", _kth)
_Kthvalue, _Mode = struct("kthvalue", "values indices"), struct("mode", "values indices")


@op(out=True)
def kthvalue(input, k, dim=-1, keepdim=False):
    """(values, indices) of the k-th smallest elements along `dim`, k counting from 1."""
    axis = _along("kthvalue", input, dim)
    n = input._sizes[axis] if input.ndim else 1
    if not 1 <= k <= n:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {axis}")
    return _Kthvalue(*_kthvalue(input, k=k, axis=axis, keepdim=keepdim))


def _mode_kernel(a, *, axis, keepdim):
    if a.ndim == 0:
        return a.copy(), np.zeros((), I64)
    order = np.argsort(a, axis=axis, kind="stable")
    s = np.moveaxis(np.take_along_axis(a, order, axis), axis, -1)
    n = s.shape[-1]
    place = np.arange(n)
    fresh_run = np.ones(s.shape, bool)
    fresh_run[..., 1:] = s[..., 1:] != s[..., :-1]
    length = place - np.maximum.accumulate(np.where(fresh_run, place, 0), axis=-1)
    # The first place where the longest run is complete: the smallest of the most frequent values, its last occurrence.
    k = np.moveaxis(length.argmax(-1)[..., None], -1, axis)
    at = np.take_along_axis(order, k, axis)
    # Up to 16 elements std::sort is stable, so long as there is no nan, which it takes for equal to everything.
    unsure = length.max(-1) > 0 if n > 16 else np.zeros(s.shape[:-1], bool)
    if s.dtype.kind == "f":
        unsure = unsure | (s != s).any(-1)
    return _values(a, selection.settle(a, at, axis, unsure, lambda x: selection.mode(x.tolist())), axis, keepdim)


_mode = _selecting("mode", _mode_kernel)


@op(out=True)
def mode(input, dim=-1, keepdim=False):
    """(values, indices) of the most frequent elements along `dim`, the smallest of them at ties."""
    return _Mode(*_mode(input, axis=_along("mode", input, dim), keepdim=keepdim))


# ------------------------------------------------------------------ quantiles
def _sorted(a, *, axis):
    order = np.argsort(a, axis=axis, kind="stable")
    return np.take_along_axis(a, order, axis), order


_sort = primitive("sort", _sorted, lambda c, g: put_at(
    g[0], index=c.out1._a, axis=c.axis, keepdim=True, shape=c.shapes[0], repeated=False), nondiff=(1,))
_KINDS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(name, input, q, dim, keepdim, interpolation, skip):
    need_tensor(name, input)
    a = input._a
    if a.dtype.kind != "f" or a.itemsize < 4:
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if a.size == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if isinstance(q, Tensor):
        if q.ndim > 1:
            raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
        if q._stype != a.dtype:
            raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
        if ((plain(q) < 0) | (plain(q) > 1)).any():
            raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    else:
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q:g}")
        q = wrap(np.array(q, a.dtype))
    if interpolation not in _KINDS:
        raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
                           f"{interpolation}")
    axis = None if dim is None else wrap_dim(name, dim, a.ndim)
    x = input.reshape(-1) if axis is None or not a.ndim else input
    d = 0 if axis is None else axis
    s, _ = _sort(x, axis=d)

    # Ranks: one per q and slice, with the axis of the q's in the place of `d`.
    v = s._a
    n = v.shape[d]
    missing = (v != v).sum(axis=d, keepdims=True)
    qs = q._a.reshape([-1 if i == d else 1 for i in range(v.ndim)])
    last = (np.maximum(n - missing - 1, 0) if skip else np.full_like(missing, n - 1)).astype(v.dtype)
    rank = qs * last
    if not skip:
        rank = np.where(missing > 0, last, rank)
    if interpolation == "lower":
        rank = np.floor(rank)
    elif interpolation == "higher":
        rank = np.ceil(rank)
    elif interpolation == "nearest":
        rank = np.rint(rank)
    low = rank.astype(I64)
    at = {"axis": d, "keepdim": True, "shape": v.shape, "repeated": True}
    r = take_at(s, index=low, **at)
    if interpolation in ("linear", "midpoint"):
        high = take_at(s, index=np.ceil(rank).astype(I64), **at)
        if interpolation == "midpoint":
            w = number(0.5, s)
        elif q._rg:
            w = sub_(mul_(q.reshape(qs.shape), wrap(last)), wrap(low.astype(v.dtype)))
        else:
            w = wrap(rank - low.astype(v.dtype))
        # From the nearer end: nothing is added to it where it is hit, be the other end infinite.
        if interpolation == "linear" and not w._rg:
            r = lerp_(r, high, w)
        else:
            r = add_(r, mul_(sub_(high, r), w)) if interpolation == "linear" else sub_(high, mul_(sub_(high, r), w))

    # (.., q, ..) -> (q, .., 1, ..) with the reduced dimension kept, then dropped where it is not wanted.
    r = r.unsqueeze(0).transpose(0, d + 1)
    if axis is None:
        r = r.reshape((qs.size,) + (1,) * (a.ndim if keepdim else 0))
    elif not keepdim or not a.ndim:
        r = r.squeeze(d + 1)
    return r if q.ndim else r.squeeze(0)


@op(out=True)
def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """q-th quantiles (q a number or a 1-d tensor) over `dim` or of the flattened tensor; nan wins."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@op(out=True)
def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """q-th quantiles over `dim` or of the flattened tensor, nan left out."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)


