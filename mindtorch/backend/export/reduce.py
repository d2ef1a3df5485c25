"""Lowerings of reductions and searches (see rules.py)."""
import math

import numpy as np

from mindtorch.backend.errors import LoweringError
from mindtorch.backend.export.rules import LOWERINGS, axis, lowering, number_of, product, size
from mindtorch.backend.export.ops import _pair, out_type


def _dims(dim, ndim):
    if dim is None or dim == () or dim == []:
        return tuple(range(ndim))
    return tuple(axis(d, ndim) for d in ([dim] if isinstance(dim, int) else dim))


def _reduction(kind):
    def f(k, x, dim=None, keepdim=False, dtype=None):
        return k.reduce(kind, k.cast(x, out_type(k)), _dims(dim, x.ndim), keepdim)
    return f


LOWERINGS["sum"], LOWERINGS["mean"] = _reduction("sum"), _reduction("mean")
for _kind in ("sum", "mean"):
    for _n in ("_all", "_dims"):
        LOWERINGS[f"prim.{_kind}{_n}"] = _reduction(_kind)
LOWERINGS["prim.mean_upcast"] = LOWERINGS["prim.mean_dims"]
LOWERINGS["prim.sum_elements"] = lambda k, x, mean=None: k.reduce("sum", x, range(x.ndim))
LOWERINGS["prim.mean_elements"] = lambda k, x, mean=None: k.reduce("mean", x, range(x.ndim))


@lowering("prod")
def _prod(k, x, dim=None, keepdim=False, dtype=None):
    return k.reduce("prod", k.cast(x, out_type(k)), _dims(dim, x.ndim), keepdim)


LOWERINGS["amax"] = lambda k, x, dim=(), keepdim=False: k.reduce("max", x, _dims(dim, x.ndim), keepdim)
LOWERINGS["amin"] = lambda k, x, dim=(), keepdim=False: k.reduce("min", x, _dims(dim, x.ndim), keepdim)


def _extreme(kind):
    def f(k, x, dim=None, keepdim=False, other=None):
        dim = other if other is not None else dim
        if dim is None:
            return k.reduce(kind, x, range(x.ndim))
        if not isinstance(dim, int):
            return k.binary(kind + "imum", *_pair(k, x, dim))
        if x.ndim == 0:
            raise LoweringError("a tensor without dimensions")
        return [k.reduce(kind, x, [dim], keepdim), k.arg("arg" + kind, x, dim, keepdim)]
    return f


LOWERINGS["max"], LOWERINGS["min"] = _extreme("max"), _extreme("min")


def _argument(kind):
    def f(k, x, dim=None, keepdim=False):
        if dim is None:
            y = k.arg(kind, k.reshape(x, (product(x.shape),)), 0)
            return k.reshape(y, k.out[0].shape)
        return k.arg(kind, x, dim, keepdim)
    return f


LOWERINGS["argmax"], LOWERINGS["argmin"] = _argument("argmax"), _argument("argmin")


@lowering("any")
def _any(k, x, dim=None, keepdim=False):
    return k.cast(k.reduce("max", k.cast(k.cast(x, "bool"), "int32"), _dims(dim, x.ndim), keepdim), "bool")


@lowering("all")
def _all(k, x, dim=None, keepdim=False):
    return k.cast(k.reduce("min", k.cast(k.cast(x, "bool"), "int32"), _dims(dim, x.ndim), keepdim), "bool")


def variance(k, x, dims, keepdim, correction):
    """Returns (variance, mean); the mean keeps the reduced dimensions."""
    n = product([x.shape[d] for d in dims])
    m = k.reduce("mean", x, dims, True)
    d = k.sub(x, m)
    v = k.reduce("mean", k.mul(d, d), dims, keepdim)
    if correction:
        v = k.mul(v, size(n) / max(size(n) - correction, 0))
    return v, m


def _correction(unbiased, correction):
    c = number_of(correction)
    return (1 if unbiased is None or unbiased is True else 0) if c is None else c


def _variance_lowering(root):
    def f(k, x, dim=None, unbiased=None, keepdim=False, correction=None):
        v, _ = variance(k, x, _dims(dim, x.ndim), keepdim, _correction(unbiased, correction))
        return k.unary("sqrt", v) if root else v
    return f


LOWERINGS["var"], LOWERINGS["std"] = _variance_lowering(False), _variance_lowering(True)


@lowering("norm", "linalg.vector_norm", "linalg.norm")
def _norm(k, x, p=2, dim=None, keepdim=False, *rest):
    p = 2 if p in (None, "fro") else p
    dims = _dims(dim, x.ndim)
    x = k.cast(x, out_type(k))
    if p == 2:
        return k.unary("sqrt", k.reduce("sum", k.mul(x, x), dims, keepdim))
    if p == 1:
        return k.reduce("sum", k.unary("abs", x), dims, keepdim)
    if p == math.inf:
        return k.reduce("max", k.unary("abs", x), dims, keepdim)
    raise LoweringError(f"ord {p!r}")


@lowering("logsumexp")
def _logsumexp(k, x, dim, keepdim=False):
    dims = _dims(dim, x.ndim)
    m = k.reduce("max", x, dims, True)
    y = k.add(k.unary("log", k.reduce("sum", k.unary("exp", k.sub(x, m)), dims, True)), m)
    return k.reshape(y, k.out[0].shape)


@lowering("cumsum")
def _cumsum(k, x, dim, dtype=None):
    return k.cumsum(k.cast(x, out_type(k)), dim)


@lowering("topk")
def _topk(k, x, n, dim=-1, largest=True, sorted=True):
    y = x if largest else k.unary("neg", x)
    moved = axis(dim, x.ndim) != x.ndim - 1
    values, index = k.topk(k.swap(y, dim, -1) if moved else y, n)
    if moved:
        values, index = k.swap(values, dim, -1), k.swap(index, dim, -1)
    return [values if largest else k.unary("neg", values), index]


@lowering("nn.functional.one_hot")
def _one_hot(k, x, num_classes=-1):
    n = k.out[0].shape[-1]
    if num_classes == -1:
        raise LoweringError("num_classes of -1: the number of classes depends on the values")
    y = k.compare("eq", k.reshape(x, (*x.shape, 1)), k.const(np.arange(size(n)), x.dtype))
    return k.cast(y, "int64")
