"""Lowerings of elementwise ops, shape ops and indexing (see rules.py)."""
import math

import numpy as np

from mindtorch.backend.errors import LoweringError
from mindtorch.backend.graph import Sym
from mindtorch.backend.export.rules import (OnnxTensor, LOWERINGS, axis, broadcast, kind_of, known, lowering, number_of, product, size)


def out_type(k):
    return k.out[0].dtype


# ------------------------------------------------------------------ elementwise, unary
def _float_unary(kind):
    def f(k, x, *rest):
        return k.unary(kind, k.cast(x, out_type(k)))
    return f


for _n in """exp log sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid""".split():
    LOWERINGS[_n] = LOWERINGS["prim." + _n] = _float_unary(_n)
for _n in ("sigmoid", "tanh"):
    LOWERINGS["nn.functional." + _n] = _float_unary(_n)


def _unary_lowering(kind):
    def f(k, x, *rest):
        if kind_of(x.dtype) != "f" and kind in ("floor", "ceil", "round"):
            return x
        return k.unary(kind, x)
    return f


for _n in "abs neg floor ceil sign".split():
    LOWERINGS[_n] = LOWERINGS["prim." + _n] = _unary_lowering(_n)


@lowering("round")
def _round(k, x, decimals=0):
    if decimals:
        p = float(10 ** decimals)
        return k.div(k.unary("round", k.mul(x, p)), p)
    return _unary_lowering("round")(k, x)


@lowering("relu", "nn.functional.relu")
def _relu(k, x, inplace=False):
    return k.unary("relu", x) if kind_of(x.dtype) == "f" else k.binary("maximum", x, 0)


@lowering("trunc")
def _trunc(k, x):
    return x if kind_of(x.dtype) != "f" else k.mul(k.unary("sign", x), k.unary("floor", k.unary("abs", x)))


@lowering("frac")
def _frac(k, x):
    return k.sub(x, _trunc(k, x))


@lowering("reciprocal", "prim.reciprocal")
def _reciprocal(k, x):
    return k.unary("reciprocal", k.cast(x, out_type(k)))


@lowering("square")
def _square(k, x):
    return k.mul(x, x)


@lowering("expm1")
def _expm1(k, x):
    # sinh(x/2) exp(x/2) * 2 preserves the precision near zero that exp(x) - 1 loses.
    h = k.mul(k.cast(x, out_type(k)), 0.5)
    return k.mul(k.mul(k.unary("sinh", h), k.unary("exp", h)), 2.0)


@lowering("log1p")
def _log1p(k, x):
    # 2 atanh(x / (x + 2)), for the same reason
    x = k.cast(x, out_type(k))
    return k.mul(k.unary("atanh", k.div(x, k.add(x, 2.0))), 2.0)


@lowering("log2")
def _log2(k, x):
    return k.mul(k.unary("log", k.cast(x, out_type(k))), 1 / math.log(2))


@lowering("log10")
def _log10(k, x):
    return k.mul(k.unary("log", k.cast(x, out_type(k))), 1 / math.log(10))


@lowering("exp2")
def _exp2(k, x):
    return k.unary("exp", k.mul(k.cast(x, out_type(k)), math.log(2)))


@lowering("logical_not")
def _logical_not(k, x):
    return k.unary("not", k.cast(x, "bool"))


@lowering("bitwise_not")
def _bitwise_not(k, x):
    return k.unary("not", x) if x.dtype == "bool" else k.sub(k.unary("neg", x), 1)


@lowering("isnan")
def _isnan(k, x):
    return k.unary("isnan", x, "bool")


@lowering("isinf")
def _isinf(k, x):
    return k.compare("eq", k.unary("abs", x), math.inf)


@lowering("isfinite")
def _isfinite(k, x):
    return k.compare("lt", k.unary("abs", x), math.inf)


@lowering("nan_to_num")
def _nan_to_num(k, x, nan=None, posinf=None, neginf=None):
    f = np.finfo(x.dtype)
    x = k.where(k.unary("isnan", x, "bool"), k.const(nan or 0.0, x.dtype), x)
    x = k.binary("minimum", x, float(f.max if posinf is None else posinf))
    return k.binary("maximum", x, float(f.min if neginf is None else neginf))


# ------------------------------------------------------------------ elementwise, binary
def _pair(k, a, b):
    a, b = k.together(a, b)
    return k.cast(a, out_type(k)), k.cast(b, out_type(k))


def _arithmetic(kind):
    def f(k, a, b, alpha=1):
        a, b = _pair(k, a, b)
        if a.dtype == "bool":
            return k.binary({"add": "or", "mul": "and"}[kind], a, b)
        scale = number_of(alpha)
        if scale is not None and scale != 1:
            b = k.mul(b, scale)
        return k.binary(kind, a, b)
    return f


for _n, _names in (("add", "add prim.add prim.add_scaled"), ("sub", "sub prim.sub prim.sub_scaled"), ("mul", "mul prim.mul")):
    for _m in _names.split():
        LOWERINGS[_m] = _arithmetic(_n)


@lowering("rsub", "prim.rsub")
def _rsub(k, a, b, alpha=1):
    a, b = _pair(k, a, b)
    scale = number_of(alpha)
    return k.sub(b, a if scale in (None, 1) else k.mul(a, scale))


@lowering("div", "true_divide", "prim.div")
def _div(k, a, b, rounding_mode=None):
    if rounding_mode is None:
        return k.div(*_pair(k, a, b))
    if rounding_mode == "floor":
        return _floor_divide(k, a, b)
    if kind_of(out_type(k)) != "f":
        raise LoweringError("rounding_mode 'trunc' of integers")
    return _trunc(k, k.div(*_pair(k, a, b)))


@lowering("floor_divide")
def _floor_divide(k, a, b):
    a, b = _pair(k, a, b)
    return k.unary("floor", k.div(a, b)) if kind_of(a.dtype) == "f" else k.binary("intdiv", a, b)


@lowering("remainder")
def _remainder(k, a, b):
    a, b = _pair(k, a, b)
    q = k.unary("floor", k.div(a, b)) if kind_of(a.dtype) == "f" else k.binary("intdiv", a, b)
    return k.sub(a, k.mul(q, b))


@lowering("fmod")
def _fmod(k, a, b):
    a, b = _pair(k, a, b)
    if kind_of(a.dtype) != "f":
        raise LoweringError("integers")
    return k.sub(a, k.mul(_trunc(k, k.div(a, b)), b))


@lowering("pow", "float_power", "prim.pow", "prim.pow_base")
def _pow(k, a, b):
    n = number_of(b)
    if n is not None and not isinstance(a, (int, float)):
        return _power(k, k.cast(a, out_type(k)), n)
    return k.binary("pow", *_pair(k, a, b))


@lowering("prim.pow_number")
def _pow_number(k, a, p):
    return _power(k, k.cast(a, out_type(k)), p)


def _power(k, x, p):
    if p == 2:
        return k.mul(x, x)
    if p == 1:
        return x if isinstance(x, OnnxTensor) else k.tensor(x)
    if kind_of(x.dtype) == "f":
        if p == 0.5:
            return k.unary("sqrt", x)
        if p == -1:
            return k.unary("reciprocal", x)
        if p == -0.5:
            return k.unary("rsqrt", x)
        if p == 3:
            return k.mul(k.mul(x, x), x)
    return k.binary("pow", x, p)


@lowering("maximum", "fmax", "prim.maximum")
def _maximum(k, a, b):
    return k.binary("maximum", *_pair(k, a, b))


@lowering("minimum", "fmin", "prim.minimum")
def _minimum(k, a, b):
    return k.binary("minimum", *_pair(k, a, b))


@lowering("atan2")
def _atan2(k, a, b):
    return k.binary("atan2", *_pair(k, a, b))


def _comparison(kind):
    def f(k, a, b):
        a, b = k.together(a, b)
        if a.dtype == "bool":
            a, b = k.cast(a, "int32"), k.cast(b, "int32")
        return k.compare(kind, a, b)
    return f


for _n in "eq ne lt le gt ge".split():
    LOWERINGS[_n] = LOWERINGS["prim." + _n] = _comparison(_n)


def _logical(kind):
    def f(k, a, b):
        a, b = k.cast(k.tensor(a), "bool"), k.cast(k.tensor(b), "bool")
        return k.binary("ne", k.cast(a, "int32"), k.cast(b, "int32"), "bool") if kind == "xor" else k.binary(kind, a, b)
    return f


for _n in ("and", "or", "xor"):
    LOWERINGS["logical_" + _n] = _logical(_n)


def _bitwise(kind):
    def f(k, a, b):
        if out_type(k) != "bool":
            raise LoweringError("bits of integers")
        return _logical(kind)(k, a, b)
    return f


for _n in ("and", "or", "xor"):
    LOWERINGS["bitwise_" + _n] = LOWERINGS["prim.bitwise_" + _n] = _bitwise(_n)


@lowering("where")
def _where(k, c, a=None, b=None):
    if a is None:
        raise LoweringError("one argument: how many results there are depends on the values")
    a, b = k.together(a, b)
    return k.where(k.cast(c, "bool"), k.cast(a, out_type(k)), k.cast(b, out_type(k)))


@lowering("masked_fill")
def _masked_fill(k, x, mask, value):
    v = k.tensor(value, x.dtype)
    y = k.where(mask, v, x)
    return y


@lowering("clamp", "clamp_min")
def _clamp(k, x, min=None, max=None):
    return _bounds(k, x, min, max)


LOWERINGS["clamp_max"] = lambda k, x, max: _bounds(k, x, None, max)


def _bounds(k, x, low, high):
    x = k.cast(x, out_type(k))
    if low is not None:
        x = k.binary("maximum", x, k.tensor(low, x.dtype))
    return x if high is None else k.binary("minimum", x, k.tensor(high, x.dtype))


@lowering("lerp")
def _lerp(k, a, b, w):
    return k.add(a, k.mul(k.tensor(w, a.dtype), k.sub(b, a)))


@lowering("addcmul")
def _addcmul(k, x, a, b, value=1):
    return k.add(x, k.mul(k.mul(a, b), number_of(value)))


@lowering("addcdiv")
def _addcdiv(k, x, a, b, value=1):
    return k.add(x, k.mul(k.div(a, b), number_of(value)))


# ------------------------------------------------------------------ dtype and identity
@lowering("prim.to_copy", "prim.to_copy_format", "type_as_written")
def _cast(k, x, *rest):
    return k.cast(x, out_type(k))


@lowering("clone", "contiguous", "Tensor.detach", "positive", "alias", "prim.clone", "prim.clone_format", "resolve_conj", "resolve_neg", "real")
def _identity(k, x, *rest):
    return x


@lowering("copy_")
def _copy(k, x, src, non_blocking=False):
    return k.expand(k.cast(src, x.dtype), x.shape)


@lowering("fill_")
def _fill(k, x, value):
    return k.expand(k.reshape(k.tensor(value, x.dtype), (1,) * x.ndim), x.shape)


@lowering("zero_")
def _zero(k, x):
    return _fill(k, x, 0)


def _filled(k, value):
    v = k.out[0]
    if any(isinstance(n, Sym) for n in v.shape):
        return k.expand(k.const(np.full((1,) * len(v.shape), value, v.dtype)), v.shape)
    return k.const(np.full(v.shape, value, v.dtype))


@lowering("zeros", "zeros_like", "new_zeros")
def _zeros(k, *rest):
    return _filled(k, 0)


@lowering("ones", "ones_like", "new_ones")
def _ones(k, *rest):
    return _filled(k, 1)


@lowering("new_full")
def _new_full(k, x, shape, value, *rest):
    return _full(k, x, value)


@lowering("full_like", "full")
def _full(k, x, value, *rest):
    n = number_of(value)
    if n is None:
        return k.expand(k.cast(value, out_type(k)), k.out[0].shape)
    return _filled(k, n)


# ------------------------------------------------------------------ shapes
@lowering("reshape", "view", "view_as", "reshape_as", "flatten", "unflatten", "squeeze", "unsqueeze",
       "prim.view", "prim.unsafe_view", "prim.squeeze", "prim.unsqueeze", "prim.unsqueeze_ends", "prim.subscript_unsqueeze",
       "prim.squeeze_batch", "prim.unsqueeze_batch", "ravel")
def _reshape(k, x, *rest):
    if k.out[0].dtype != x.dtype:
        raise LoweringError("a view in another dtype")
    return k.reshape(x, k.out[0].shape)


@lowering("permute", "prim.permute")
def _permute(k, x, *dims):
    return k.transpose(x, [axis(d, x.ndim) for d in _ints(dims)])


def _ints(x):
    """Returns the integers of nested arguments as a list: permute((0, 1)) and permute(0, 1) are
    bound differently."""
    return [x] if isinstance(x, int) else [i for v in x or () for i in _ints(v)]


@lowering("transpose", "swapaxes", "swapdims", "prim.transpose", "prim.unsafe_transpose")
def _transpose(k, x, a, b):
    return k.swap(x, a, b)


@lowering("t", "prim.t")
def _t(k, x):
    return x if x.ndim < 2 else k.swap(x, 0, 1)


@lowering("movedim", "moveaxis")
def _movedim(k, x, source, destination):
    s = [axis(d, x.ndim) for d in ([source] if isinstance(source, int) else source)]
    t = [axis(d, x.ndim) for d in ([destination] if isinstance(destination, int) else destination)]
    perm, rest = [None] * x.ndim, [d for d in range(x.ndim) if d not in s]
    for a, b in zip(s, t):
        perm[b] = a
    return k.transpose(x, [rest.pop(0) if p is None else p for p in perm])


@lowering("expand", "expand_as", "broadcast_to", "prim.expand", "prim.expand_reduced")
def _expand(k, x, *rest):
    return k.expand(x, k.out[0].shape)


@lowering("repeat", "tile")
def _repeat(k, x, *rest):
    shape = k.out[0].shape
    x = k.reshape(x, (1,) * (len(shape) - x.ndim) + x.shape)
    for d, (n, m) in enumerate(zip(x.shape, shape)):
        if n != m:
            if n == 1:
                x = k.expand(x, (*x.shape[:d], m, *x.shape[d + 1:]))
            else:
                x = k.concat([x] * (size(m) // size(n)), d)
    return x


@lowering("repeat_interleave")
def _repeat_interleave(k, x, repeats=None, dim=None, output_size=None):
    if not isinstance(repeats, int):
        raise LoweringError("a tensor of repeats")
    if dim is None:
        x, dim = k.reshape(x, (product(x.shape),)), 0
    dim = axis(dim, x.ndim)
    y = k.reshape(x, (*x.shape[:dim + 1], 1, *x.shape[dim + 1:]))
    return k.reshape(k.expand(y, (*x.shape[:dim + 1], repeats, *x.shape[dim + 1:])), k.out[0].shape)


@lowering("cat", "prim.cat")
def _cat(k, xs, dim=0):
    xs = [k.cast(x, out_type(k)) for x in xs if not (x.ndim == 1 and x.shape[0] == 0 and len(k.out[0].shape) != 1)]
    return k.concat(xs, dim)


@lowering("stack", "prim.stack")
def _stack(k, xs, dim=0, *rest):
    d = axis(dim, xs[0].ndim + 1)
    return k.concat([k.reshape(k.cast(x, out_type(k)), (*x.shape[:d], 1, *x.shape[d:])) for x in xs], d)


@lowering("hstack")
def _hstack(k, xs):
    return k.concat([k.cast(x if x.ndim else k.reshape(x, (1,)), out_type(k)) for x in xs], 1 if xs[0].ndim > 1 else 0)


@lowering("vstack")
def _vstack(k, xs):
    return k.concat([k.cast(x if x.ndim > 1 else k.reshape(x, (1, product(x.shape))), out_type(k)) for x in xs], 0)


@lowering("split", "chunk", "tensor_split", "split_with_sizes", "unsafe_split", "unsafe_chunk")
def _split(k, x, how=None, dim=0, *rest):
    dim = axis(dim, x.ndim)
    out, start = [], 0
    for v in k.out:
        stop = start + size(v.shape[dim]) if not isinstance(v.shape[dim], Sym) else v.shape[dim]
        out.append(k.slice(x, dim, start, stop))
        start = stop
    return out


@lowering("unbind", "prim.unbind")
def _unbind(k, x, dim=0):
    dim = axis(dim, x.ndim)
    return [k.reshape(k.slice(x, dim, i, i + 1), v.shape) for i, v in enumerate(k.out)]


@lowering("narrow")
def _narrow(k, x, dim, start, length):
    start = axis(start, x.shape[dim])
    return k.slice(x, dim, start, start + length)


@lowering("select", "prim.select")
def _select(k, x, dim, index):
    i = axis(index, size(x.shape[dim])) if isinstance(index, int) and index < 0 else index
    return k.reshape(k.gather(x, k.const(np.array([i]), "int64"), dim), k.out[0].shape)


@lowering("flip")
def _flip(k, x, *dims):
    for d in _ints(dims):
        x = k.gather(x, k.const(np.arange(size(x.shape[d]))[::-1].copy(), "int64"), d)
    return x


@lowering("roll")
def _roll(k, x, shifts, dims=None):
    if dims is None or dims == ():
        flat = k.reshape(x, (product(x.shape),))
        return k.reshape(_roll(k, flat, shifts, 0), x.shape)
    shifts, dims = _ints(shifts), _ints(dims)
    for s, d in zip(shifts, dims):
        n = size(x.shape[d])
        s %= max(n, 1)
        if s:
            x = k.concat([k.slice(x, d, n - s, n), k.slice(x, d, 0, n - s)], d)
    return x


# ------------------------------------------------------------------ indexing
@lowering("index_select")
def _index_select(k, x, dim, index):
    return k.gather(x, index, dim)


@lowering("nn.functional.embedding")
def _embedding(k, index, weight, padding_idx=None, max_norm=None, *rest):
    if max_norm is not None:
        raise LoweringError("max_norm")
    return k.gather(weight, index, 0)


@lowering("embedding")
def _embedding_of_weight(k, weight, index, *rest):
    return k.gather(weight, index, 0)


@lowering("gather", "take_along_dim")
def _gather(k, x, dim, index, sparse_grad=False):
    """Lowers to a gather from the flattened tensor; computes the linear index of every element."""
    if isinstance(dim, OnnxTensor):
        dim, index = index, dim             # take_along_dim(input, indices, dim)
        if dim is None:
            raise LoweringError("no dim")
    dim = axis(dim, x.ndim)
    shape, strides = known(x.shape), [math.prod(x.shape[i + 1:]) for i in range(x.ndim)]
    grid = np.zeros((1,) * x.ndim, np.int64)
    for d in range(x.ndim):
        if d != dim:
            n = size(index.shape[d])
            grid = grid + (np.arange(n) * strides[d]).reshape([n if i == d else 1 for i in range(x.ndim)])
    linear_index = k.add(k.mul(k.cast(index, "int64"), strides[dim]), k.const(grid, "int64"))
    return k.reshape(k.gather(k.reshape(x, (math.prod(shape),)), k.reshape(linear_index, (math.prod(known(index.shape)),)), 0), index.shape)


def _index_parts(x, index):
    """Returns the index as a list with one entry per dimension of x, or of the result (None)."""
    index = list(index) if isinstance(index, tuple) else [index]
    used = sum(1 if not (isinstance(i, OnnxTensor) and i.dtype == "bool") else i.ndim for i in index if i is not None and i is not Ellipsis
               and not isinstance(i, bool))
    if any(i is Ellipsis for i in index):
        at = next(j for j, i in enumerate(index) if i is Ellipsis)
        index[at:at + 1] = [slice(None)] * (x.ndim - used)
    else:
        index += [slice(None)] * (x.ndim - used)
    return index


@lowering("Tensor.__getitem__")
def _getitem(k, x, index):
    parts, dim, arrays = _index_parts(x, index), 0, []
    for p in parts:
        if p is None:
            x = k.reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]))
            dim += 1
        elif isinstance(p, slice):
            n = x.shape[dim]
            if not (p.start in (None, 0) and p.stop in (None, n) and p.step in (None, 1)):
                parts_ = [q if q is None or isinstance(q, int) else size(q) for q in (p.start, p.stop, p.step)]
                start, stop, step = slice(*parts_).indices(size(n))
                x = k.slice(x, dim, start, max(start, stop), step)
            dim += 1
        elif isinstance(p, bool) or (isinstance(p, OnnxTensor) and p.dtype == "bool"):
            raise LoweringError("a mask as index: the size of the result depends on its values")
        elif isinstance(p, int):
            i = p + size(x.shape[dim]) if p < 0 else p
            y = k.slice(x, dim, i, i + 1) if not isinstance(x.shape[dim], Sym) else k.gather(x, k.const([i], "int64"), dim)
            x = k.reshape(y, (*x.shape[:dim], *x.shape[dim + 1:]))
        elif isinstance(p, Sym):
            raise LoweringError("an index that depends on a free size")
        else:
            i = k.const(np.asarray(p), "int64") if isinstance(p, (list, range)) else p
            arrays.append((dim, i))
            dim += 1
    if not arrays:
        return x
    if len(arrays) == 1:
        dim, i = arrays[0]
        return k.gather(x, _wrapped(k, i, x.shape[dim]), dim)
    dims = [d for d, _ in arrays]
    if dims != list(range(dims[0], dims[0] + len(dims))):
        raise LoweringError("non-adjacent index tensors")
    # Adjacent index tensors are combined into one linear index.
    shape = broadcast(*(i.shape for _, i in arrays))
    flat = None
    for d, i in arrays:
        i = k.expand(_wrapped(k, i, x.shape[d]), shape)
        flat = i if flat is None else k.add(k.mul(flat, size(x.shape[d])), i)
    a, b = dims[0], dims[-1] + 1
    x = k.reshape(x, (*x.shape[:a], product(x.shape[a:b]), *x.shape[b:]))
    return k.gather(x, flat, a)


def _wrapped(k, i, n):
    """Returns indices in which negative ones are converted to count from the start."""
    i = k.cast(i, "int64")
    if i.const is not None:
        return k.const(np.where(i.const < 0, i.const + size(n), i.const), "int64") if (i.const < 0).any() else i
    if isinstance(n, Sym):
        return i
    return k.where(k.compare("lt", i, 0), k.add(i, n), i)


@lowering("setitem")
def _setitem(k, x, index, value):
    """Lowers a write as a gather from the flattened tensor and value: the positions are known,
    because the index contains no computed tensors."""
    parts = index if isinstance(index, tuple) else (index,)
    if len(parts) == 1 and isinstance(parts[0], OnnxTensor) and parts[0].dtype == "bool" and parts[0].shape == x.shape:
        return k.where(parts[0], k.expand(k.tensor(value, x.dtype), x.shape), x)
    plain = []
    for p in parts:
        if isinstance(p, OnnxTensor):
            if p.const is None:
                raise LoweringError("a write at computed indices")
            p = p.const
        plain.append(p)
    shape = known(x.shape)
    indices = np.arange(math.prod(shape)).reshape(shape)
    region = indices[tuple(plain)]
    n = math.prod(shape)
    v = k.tensor(value, x.dtype)
    while v.ndim > region.ndim:
        v = k.reshape(v, v.shape[1:])
    v = k.reshape(k.expand(v, region.shape), (region.size,)) if region.ndim else k.reshape(v, (1,))
    source = np.arange(n)
    source[region.reshape(-1)] = n + np.arange(region.size)
    both = k.concat([k.reshape(x, (n,)), v], 0)
    return k.reshape(k.gather(both, k.const(source, "int64"), 0), x.shape)


@lowering("written_through")
def _written_through(k, old, new, indices):
    """Returns a tensor after a write to another one that shares its memory (see core/compile/tracing.py).
    """
    both = k.concat([k.reshape(old, (math.prod(known(old.shape)),)), k.reshape(new, (math.prod(known(new.shape)),))], 0)
    return k.reshape(k.gather(both, k.const(indices, "int64"), 0), old.shape)


def _part(which):
    def f(k, x, diagonal=0):
        mask = which(np.ones(known(x.shape[-2:]), bool), diagonal)
        return k.where(k.const(mask), x, k.const(0, x.dtype))
    return f


LOWERINGS["tril"], LOWERINGS["triu"] = _part(np.tril), _part(np.triu)


@lowering("diagonal")
def _diagonal(k, x, offset=0, dim1=0, dim2=1):
    if x.ndim != 2:
        raise LoweringError("more than two dimensions")
    n, m = known(x.shape)
    return k.gather(k.reshape(x, (n * m,)), k.const(np.diagonal(np.arange(n * m).reshape(n, m), offset, dim1, dim2).copy(), "int64"), 0)
