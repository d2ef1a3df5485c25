"""Lowerings of the layers and activations of torch.nn.functional, matrix products and attention
(see rules.py)."""
import math

import numpy as np

from mindtorch.backend.errors import LoweringError
from mindtorch.backend.graph import Sym
from mindtorch.backend.export.rules import LOWERINGS, axis, kind_of, known, lowering, number_of, product, size
from mindtorch.backend.export.ops import out_type
from mindtorch.backend.export.reduce import variance


# ------------------------------------------------------------------ products
def linear(k, x, w, b=None):
    """Computes x W^T + b of Ls."""
    y = k.matmul(k.reshape(x, (1, x.shape[0])) if x.ndim == 1 else x, k.swap(w, 0, 1))
    if x.ndim == 1:
        y = k.reshape(y, (w.shape[0],))
    return y if b is None else k.add(y, b)


@lowering("nn.functional.linear", "prim.linear")
def _linear(k, x, w, b=None):
    if w.ndim == 1:
        raise LoweringError("a weight of one dimension")
    return linear(k, x, w, b)


@lowering("matmul", "mm", "bmm", "mv", "dot", "prim.mm", "prim.bmm", "prim.mv", "prim.dot", "vdot", "prim.matmul_rows")
def _matmul(k, a, b):
    if kind_of(a.dtype) != "f":
        raise LoweringError(f"dtype {a.dtype}")
    shape = k.out[0].shape
    x = k.reshape(a, (1, a.shape[0])) if a.ndim == 1 else a
    y = k.reshape(b, (b.shape[0], 1)) if b.ndim == 1 else b
    return k.reshape(k.matmul(x, y), shape)


def _plus_product(k, x, a, b, beta=1, alpha=1):
    y = k.matmul(a, b)
    alpha, beta = number_of(alpha), number_of(beta)
    y = y if alpha == 1 else k.mul(y, alpha)
    return y if beta == 0 else k.add(y, x if beta == 1 else k.mul(x, beta))


LOWERINGS["addmm"] = LOWERINGS["baddbmm"] = _plus_product


@lowering("outer")
def _outer(k, a, b):
    return k.mul(k.reshape(a, (a.shape[0], 1)), b)


@lowering("einsum")
def _einsum(k, args):
    """Lowers einsum (letters only): operands are contracted pairwise from left to right, by matrix
    products."""
    spec, xs = args[0], args[1:]
    xs = list(xs[0]) if len(xs) == 1 and isinstance(xs[0], (list, tuple)) else list(xs)
    if not isinstance(spec, str) or "." in spec:
        raise LoweringError("other than letters")
    left, arrow, right = spec.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        letters = "".join(terms)
        right = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if any(len(set(t)) != len(t) for t in terms):
        raise LoweringError("a letter twice in one operand")
    y, term = xs[0], terms[0]
    for i, (x, t) in enumerate(zip(xs[1:], terms[1:]), 1):
        later = set(right).union(*terms[i + 1:])
        y, term = _contract(k, y, term, x, t, later)
    extra = [i for i, c in enumerate(term) if c not in right]
    y = k.reduce("sum", y, extra)
    term = "".join(c for c in term if c in right)
    return k.transpose(y, [term.index(c) for c in right])


def _contract(k, a, s, b, t, later):
    """Contracts two operands by one matrix product. Shared letters that are needed later are batch
    dimensions, other shared letters are summed over; the remaining letters belong to one operand.
    """
    for c in [c for c in s if c not in t and c not in later]:
        a, s = k.reduce("sum", a, [s.index(c)]), s.replace(c, "")
    for c in [c for c in t if c not in s and c not in later]:
        b, t = k.reduce("sum", b, [t.index(c)]), t.replace(c, "")
    batch = [c for c in s if c in t and c in later]
    inner = [c for c in s if c in t and c not in later]
    m, n = [c for c in s if c not in t], [c for c in t if c not in s]
    sizes = {**dict(zip(s, a.shape)), **dict(zip(t, b.shape))}

    def count(letters):
        return product([sizes[c] for c in letters])
    a = k.reshape(k.transpose(a, [s.index(c) for c in batch + m + inner]), (count(batch), count(m), count(inner)))
    b = k.reshape(k.transpose(b, [t.index(c) for c in batch + inner + n]), (count(batch), count(inner), count(n)))
    y = k.matmul(a, b)
    return k.reshape(y, [sizes[c] for c in batch + m + n]), "".join(batch + m + n)


# ------------------------------------------------------------------ activations
LOWERINGS["prim.relu"] = lambda k, x: k.unary("relu", x)


def _soft(log=False, minus=False, facade=False):
    def f(k, x, dim=None, *rest):
        x = k.cast(x, out_type(k))
        if dim is None:
            dim = 0 if x.ndim in (0, 1, 3) else 1
        return k.softmax(k.unary("neg", x) if minus else x, dim, log)
    return f


for _ns in ("", "nn.functional.", "special."):
    LOWERINGS[_ns + "softmax"], LOWERINGS[_ns + "log_softmax"] = _soft(), _soft(True)
LOWERINGS["nn.functional.softmin"] = _soft(minus=True)
LOWERINGS["prim.softmax"], LOWERINGS["prim.log_softmax"] = _soft(), _soft(True)


@lowering("nn.functional.gelu", "prim.gelu")
def _gelu(k, x, approximate="none"):
    if approximate in ("tanh", True):
        u = k.mul(k.add(x, k.mul(k.mul(k.mul(x, x), x), 0.044715)), math.sqrt(2 / math.pi))
        return k.mul(k.mul(x, 0.5), k.add(k.unary("tanh", u), 1.0))
    return k.mul(k.mul(x, 0.5), k.add(k.unary("erf", k.mul(x, math.sqrt(0.5))), 1.0))


@lowering("nn.functional.silu", "prim.silu")
def _silu(k, x, inplace=False):
    return k.mul(x, k.unary("sigmoid", x))


def softplus(k, x, beta=1.0, threshold=20.0):
    """Computes log(1 + exp(beta x)) / beta without overflow."""
    z = x if beta == 1 else k.mul(x, float(beta))
    tail = _log1p_exp(k, k.unary("neg", k.unary("abs", z)))
    y = k.add(k.unary("relu", z), tail)
    y = y if beta == 1 else k.div(y, float(beta))
    return k.where(k.compare("gt", z, float(threshold)), x, y)


def _log1p_exp(k, z):
    return LOWERINGS["log1p"](k, k.unary("exp", z))


@lowering("nn.functional.softplus")
def _softplus(k, x, beta=1, threshold=20):
    return softplus(k, x, beta, threshold)


@lowering("nn.functional.logsigmoid")
def _logsigmoid(k, x):
    return k.unary("neg", softplus(k, k.unary("neg", x)))


@lowering("nn.functional.mish")
def _mish(k, x, inplace=False):
    return k.mul(x, k.unary("tanh", softplus(k, x)))


def clamp(k, x, low, high):
    return k.binary("minimum", k.binary("maximum", x, low), high)


@lowering("nn.functional.hardtanh")
def _hardtanh(k, x, min_val=-1.0, max_val=1.0, inplace=False):
    return clamp(k, x, min_val, max_val)


@lowering("nn.functional.relu6")
def _relu6(k, x, inplace=False):
    return clamp(k, x, 0.0, 6.0)


@lowering("nn.functional.hardsigmoid")
def _hardsigmoid(k, x, inplace=False):
    return k.div(clamp(k, k.add(x, 3.0), 0.0, 6.0), 6.0)


@lowering("nn.functional.hardswish")
def _hardswish(k, x, inplace=False):
    return k.mul(x, _hardsigmoid(k, x))


@lowering("nn.functional.leaky_relu")
def _leaky_relu(k, x, negative_slope=0.01, inplace=False):
    return k.where(k.compare("gt", x, 0), x, k.mul(x, negative_slope))


@lowering("nn.functional.elu")
def _elu(k, x, alpha=1.0, inplace=False):
    return k.where(k.compare("gt", x, 0), x, k.mul(k.sub(k.unary("exp", k.binary("minimum", x, 0)), 1.0), alpha))


LOWERINGS["nn.functional.celu"] = lambda k, x, alpha=1.0, inplace=False: k.where(
    k.compare("gt", x, 0), x, k.mul(k.sub(k.unary("exp", k.div(k.binary("minimum", x, 0), alpha)), 1.0), alpha))
LOWERINGS["celu"] = LOWERINGS["nn.functional.celu"]


@lowering("nn.functional.selu", "selu")
def _selu(k, x, inplace=False):
    return k.mul(_elu(k, x, 1.6732632423543772), 1.0507009873554805)


@lowering("prelu")
def _prelu(k, x, w):
    if x.ndim > 1 and w.shape[0] != 1:
        w = k.reshape(w, (1, w.shape[0]) + (1,) * (x.ndim - 2))
    return k.where(k.compare("gt", x, 0), x, k.mul(x, w))


@lowering("nn.functional.threshold", "threshold")
def _threshold(k, x, threshold, value, inplace=False):
    return k.where(k.compare("gt", x, threshold), x, k.const(value, x.dtype))


@lowering("nn.functional.glu")
def _glu(k, x, dim=-1):
    n = size(x.shape[dim]) // 2
    return k.mul(k.slice(x, dim, 0, n), k.unary("sigmoid", k.slice(x, dim, n, 2 * n)))


@lowering("nn.functional.softsign")
def _softsign(k, x):
    return k.div(x, k.add(k.unary("abs", x), 1.0))


@lowering("nn.functional.tanhshrink")
def _tanhshrink(k, x):
    return k.sub(x, k.unary("tanh", x))


@lowering("hardshrink")
def _hardshrink(k, x, lambd=0.5):
    return k.where(k.compare("gt", k.unary("abs", x), lambd), x, k.const(0, x.dtype))


@lowering("nn.functional.softshrink")
def _softshrink(k, x, lambd=0.5):
    return k.sub(x, clamp(k, x, -float(lambd), float(lambd)))


@lowering("nn.functional.dropout", "nn.functional.dropout1d", "nn.functional.dropout2d", "nn.functional.dropout3d",
       "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "dropout")
def _dropout(k, x, p=0.5, training=True, inplace=False):
    if training and p:
        raise LoweringError("random numbers: call eval() first")
    return x


# ------------------------------------------------------------------ normalisation
@lowering("nn.functional.batch_norm")
def _batch_norm(k, x, mean, var, w=None, b=None, training=False, momentum=0.1, eps=1e-05):
    if training or mean is None:
        dims = [0, *range(2, x.ndim)]
        v, m = variance(k, x, dims, True, 0)
        return affine(k, k.mul(k.sub(x, m), k.unary("rsqrt", k.add(v, eps))), w, b)
    c = size(x.shape[1])
    w = k.const(np.ones(c), x.dtype) if w is None else w
    b = k.const(np.zeros(c), x.dtype) if b is None else b
    return k.batch_norm(x, w, b, mean, var, eps)


LOWERINGS["batch_norm"] = lambda k, x, w, b, mean, var, training, momentum, eps, *r: _batch_norm(k, x, mean, var, w, b, training, momentum, eps)


def affine(k, y, w, b):
    """Computes y * w + b for vectors over dimension 1."""
    y = y if w is None else k.channels("mul", y, w)
    return y if b is None else k.channels("add", y, b)


@lowering("nn.functional.layer_norm", "layer_norm")
def _layer_norm(k, x, shape, w=None, b=None, eps=1e-05, *rest):
    n = 1 if isinstance(shape, int) else len(shape)
    dims = range(x.ndim - n, x.ndim)
    v, m = variance(k, x, dims, True, 0)
    y = k.mul(k.sub(x, m), k.unary("rsqrt", k.add(v, eps)))
    y = y if w is None else k.mul(y, w)
    return y if b is None else k.add(y, b)


@lowering("rms_norm")
def _rms_norm(k, x, shape, w=None, eps=None):
    n = 1 if isinstance(shape, int) else len(shape)
    v = k.reduce("mean", k.mul(x, x), range(x.ndim - n, x.ndim), True)
    y = k.mul(x, k.unary("rsqrt", k.add(v, float(np.finfo(x.dtype).eps if eps is None else eps))))
    return y if w is None else k.mul(y, w)


@lowering("nn.functional.group_norm", "group_norm")
def _group_norm(k, x, groups, w=None, b=None, eps=1e-05, *rest):
    y = k.reshape(x, (x.shape[0], groups, product(x.shape[1:]) // groups))
    v, m = variance(k, y, [2], True, 0)
    y = k.mul(k.sub(y, m), k.unary("rsqrt", k.add(v, eps)))
    return affine(k, k.reshape(y, x.shape), w, b)


@lowering("nn.functional.instance_norm")
def _instance_norm(k, x, mean=None, var=None, w=None, b=None, use_input_stats=True, momentum=0.1, eps=1e-05):
    if not use_input_stats:
        return _batch_norm(k, x, mean, var, w, b, False, momentum, eps)
    v, m = variance(k, x, range(2, x.ndim), True, 0)
    return affine(k, k.mul(k.sub(x, m), k.unary("rsqrt", k.add(v, eps))), w, b)


@lowering("nn.functional.normalize")
def _normalize(k, x, p=2.0, dim=1, eps=1e-12, out=None):
    n = LOWERINGS["linalg.vector_norm"](k, x, p, dim, True)
    return k.div(x, k.binary("maximum", n, eps))


@lowering("cosine_similarity")
def _cosine(k, a, b, dim=1, eps=1e-08):
    def length(x):
        return k.binary("maximum", k.unary("sqrt", k.reduce("sum", k.mul(x, x), [dim])), eps)
    return k.div(k.reduce("sum", k.mul(a, b), [dim]), k.mul(length(a), length(b)))


@lowering("nn.functional.local_response_norm")
def _local_response_norm(k, x, n, alpha=0.0001, beta=0.75, c=1.0):
    s = k.pad(k.mul(x, x), [(0, 0), (n // 2, (n - 1) // 2)] + [(0, 0)] * (x.ndim - 2))
    total = None
    for i in range(n):
        part = k.slice(s, 1, i, i + size(x.shape[1]))
        total = part if total is None else k.add(total, part)
    return k.div(x, k.binary("pow", k.add(k.mul(total, alpha / n), c), beta))


# ------------------------------------------------------------------ convolutions
def _tuple(v, n):
    v = tuple(v) if isinstance(v, (tuple, list)) else (v,)
    return v * n if len(v) == 1 else v


def _batched(n):
    """Decorator: the lowering also accepts inputs without a batch dimension."""
    def deco(fn):
        def f(k, x, *rest):
            if x.ndim == n + 1:
                y = fn(k, k.reshape(x, (1, *x.shape)), *rest)
                return k.reshape(y, y.shape[1:])
            return fn(k, x, *rest)
        return f
    return deco


def _convolution(n):
    @_batched(n)
    def f(k, x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
        stride, dilation = _tuple(stride, n), _tuple(dilation, n)
        if padding == "valid":
            padding = 0
        if padding == "same":
            total = [d * (m - 1) for d, m in zip(dilation, w.shape[2:])]
            pads = [(t // 2, t - t // 2) for t in total]
            if any(a != c for a, c in pads):
                x, pads = k.pad(x, [(0, 0), (0, 0), *pads]), [(0, 0)] * n
        else:
            pads = [(p, p) for p in _tuple(padding, n)]
        return k.conv(x, w, b, stride, pads, dilation, groups)
    return f


def _transposed(n):
    @_batched(n)
    def f(k, x, w, b=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        return k.conv_transpose(x, w, b, *(_tuple(v, n) for v in (stride, padding, output_padding, dilation)), groups)
    return f


for _n in (1, 2, 3):
    LOWERINGS[f"conv{_n}d"] = _convolution(_n)
    LOWERINGS[f"conv_transpose{_n}d"] = _transposed(_n)


# ------------------------------------------------------------------ pooling
def _ceil_pads(x, n, kernel, stride, padding, ceil_mode):
    """Returns (before, after) padding of each axis: `padding`, extended at the end so that the
    extra windows of ceil_mode fit."""
    out = []
    for m, ks, s, p in zip(x.shape[-n:], kernel, stride, padding):
        m = size(m)
        count = (m + 2 * p - ks) // s + 1
        if ceil_mode and (m + 2 * p - ks) % s and count * s < m + p:
            count += 1
        out.append((p, p + max(0, (count - 1) * s + ks - m - 2 * p)))
    return out


def _max_pool(n):
    @_batched(n)
    def f(k, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        kernel = _tuple(kernel_size, n)
        stride = _tuple(stride if stride not in (None, (), []) else kernel, n)
        dilation = _tuple(dilation, n)
        if return_indices:
            raise LoweringError("return_indices")
        if any(d != 1 for d in dilation):
            raise LoweringError("dilation")
        pads = _ceil_pads(x, n, kernel, stride, _tuple(padding, n), ceil_mode)
        return k.max_pool(k.pad(x, [(0, 0), (0, 0), *pads], float(np.finfo(x.dtype).min)), kernel, stride)
    return f


def _avg_pool(n):
    @_batched(n)
    def f(k, x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        kernel = _tuple(kernel_size, n)
        stride = _tuple(stride if stride not in (None, (), []) else kernel, n)
        padding = _tuple(padding, n)
        pads = _ceil_pads(x, n, kernel, stride, padding, ceil_mode)
        y = k.avg_pool(k.pad(x, [(0, 0), (0, 0), *pads]), kernel, stride)
        full = math.prod(kernel)
        if divisor_override:
            return k.mul(y, full / divisor_override)
        # Number of elements counted in each window: those of the input, with count_include_pad also
        # those of `padding`.
        factor = np.ones(())
        for i, (m, p, q, ks, s) in enumerate(zip(x.shape[2:], padding, pads, kernel, stride)):
            m = size(m)
            starts = np.arange(y.shape[2 + i]) * s - q[0]
            low, high = (-p, m + p) if count_include_pad else (0, m)
            counts = np.minimum(starts + ks, high) - np.maximum(starts, low)
            factor = factor[..., None] * (ks / counts)
        return y if (factor == 1).all() else k.mul(y, k.const(factor[None, None], x.dtype))
    return f


def _weights_per_axis(k, x, dim, matrix):
    """Multiplies every row of x along `dim` by a constant matrix (out, in)."""
    last = x.ndim - 1
    y = k.matmul(k.swap(x, dim, last), k.const(np.ascontiguousarray(matrix.T), x.dtype))
    return k.swap(y, dim, last)


def _bins(m, n):
    return [(i * m // n, -(-(i + 1) * m // n)) for i in range(n)]


def _targets(x, n, output_size):
    out = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * n
    return [size(m) if o is None else o for m, o in zip(x.shape[-n:], out)]


def _adaptive_avg(n):
    @_batched(n)
    def f(k, x, output_size):
        out = _targets(x, n, output_size)
        if all(o == 1 for o in out):
            return k.reduce("mean", x, range(2, 2 + n), True)
        for i, (m, o) in enumerate(zip(known(x.shape[2:]), out)):
            if m != o:
                matrix = np.zeros((o, m))
                for r, (a, b) in enumerate(_bins(m, o)):
                    matrix[r, a:b] = 1 / (b - a)
                x = _weights_per_axis(k, x, 2 + i, matrix)
        return x
    return f


def _adaptive_max(n):
    @_batched(n)
    def f(k, x, output_size, return_indices=False):
        if return_indices:
            raise LoweringError("return_indices")
        for i, (m, o) in enumerate(zip(known(x.shape[2:]), _targets(x, n, output_size))):
            if m != o:
                x = k.concat([k.reduce("max", k.slice(x, 2 + i, a, b), [2 + i], True) for a, b in _bins(m, o)], 2 + i)
        return x
    return f


for _n in (1, 2, 3):
    LOWERINGS[f"max_pool{_n}d"] = LOWERINGS[f"nn.functional.max_pool{_n}d"] = _max_pool(_n)
    # (In 1D these ops are the same as torch.avg_pool1d, ...)
    _home = "nn.functional." if _n > 1 else ""
    LOWERINGS[f"{_home}avg_pool{_n}d"] = _avg_pool(_n)
    LOWERINGS[f"{_home}adaptive_avg_pool{_n}d"] = _adaptive_avg(_n)
    LOWERINGS[f"nn.functional.adaptive_max_pool{_n}d"] = _adaptive_max(_n)


# ------------------------------------------------------------------ padding and resizing
@lowering("nn.functional.pad", "constant_pad_nd")
def _pad(k, x, pad, mode="constant", value=None):
    if not isinstance(mode, str):
        mode, value = "constant", mode
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    by_dim = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    for d, (a, b) in enumerate(by_dim):
        if a < 0 or b < 0:
            n = size(x.shape[d])
            x = k.slice(x, d, max(0, -a), n - max(0, -b))
    by_dim = [(max(0, a), max(0, b)) for a, b in by_dim]
    if mode == "constant":
        return k.pad(x, by_dim, number_of(value) or 0)
    how = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    for d, p in enumerate(by_dim):
        if p != (0, 0):
            x = k.gather(x, k.const(np.pad(np.arange(size(x.shape[d])), p, how), "int64"), d)
    return x


def _scales(scale_factor, n):
    return list(scale_factor) if isinstance(scale_factor, (tuple, list)) else [scale_factor] * n


@lowering("nn.functional.interpolate", "nn.functional.upsample")
def _interpolate(k, x, size_=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
                 antialias=False):
    if antialias:
        raise LoweringError("antialias")
    n = x.ndim - 2
    out = known(k.out[0].shape[2:])
    scales = [None] * n if scale_factor is None or recompute_scale_factor else _scales(scale_factor, n)
    if mode == "area":
        return _adaptive_avg(n)(k, x, out)
    for i, (m, o, s) in enumerate(zip(known(x.shape[2:]), out, scales)):
        step = m / o if s is None else 1 / s
        if mode in ("nearest", "nearest-exact"):
            if m == o and step == 1:
                continue
            at = np.float32(np.arange(o) + (0.5 if mode == "nearest-exact" else 0)) * np.float32(step)
            x = k.gather(x, k.const(np.minimum(np.floor(at).astype(np.int64), m - 1), "int64"), 2 + i)
        elif mode in ("linear", "bilinear", "trilinear", "bicubic"):
            if m != o or step != 1:
                x = _weights_per_axis(k, x, 2 + i, _resampling(m, o, step, mode == "bicubic", bool(align_corners)))
        else:
            raise LoweringError(f"mode {mode}")
    return x


def _resampling(m, o, step, cubic, align):
    """Returns the (o, m) matrix of weights for linear or cubic interpolation (a = -0.75)."""
    i = np.arange(o, dtype=np.float64)
    at = i * ((m - 1) / (o - 1) if o > 1 else 0) if align else (i + 0.5) * step - 0.5
    if not cubic and not align:
        at = np.maximum(at, 0)
    low = np.floor(at).astype(np.int64)
    t = at - low
    if cubic:
        a = -0.75

        def near(d):
            return ((a + 2) * d - (a + 3)) * d * d + 1

        def far(d):
            return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        taps = [(-1, far(t + 1)), (0, near(t)), (1, near(1 - t)), (2, far(2 - t))]
    else:
        taps = [(0, 1 - t), (1, t)]
    w = np.zeros((o, m))
    for shift, weight in taps:
        np.add.at(w, (np.arange(o), np.clip(low + shift, 0, m - 1)), weight)
    return w


@lowering("pixel_shuffle")
def _pixel_shuffle(k, x, r):
    *batch, c, h, w = x.shape
    y = k.reshape(x, (*batch, size(c) // (r * r), r, r, h, w))
    b = len(batch)
    y = k.transpose(y, [*range(b), b, b + 3, b + 1, b + 4, b + 2])
    return k.reshape(y, k.out[0].shape)


@lowering("pixel_unshuffle")
def _pixel_unshuffle(k, x, r):
    *batch, c, h, w = x.shape
    y = k.reshape(x, (*batch, c, size(h) // r, r, size(w) // r, r))
    b = len(batch)
    y = k.transpose(y, [*range(b), b, b + 2, b + 4, b + 1, b + 3])
    return k.reshape(y, k.out[0].shape)


@lowering("channel_shuffle")
def _channel_shuffle(k, x, groups):
    y = k.reshape(x, (x.shape[0], groups, size(x.shape[1]) // groups, *x.shape[2:]))
    return k.reshape(k.swap(y, 1, 2), x.shape)


@lowering("nn.functional.unfold")
def _unfold(k, x, kernel_size, dilation=1, padding=0, stride=1):
    kernel, dilation, padding, stride = (_tuple(v, 2) for v in (kernel_size, dilation, padding, stride))
    x = k.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    n = [(size(m) - d * (q - 1) - 1) // s + 1 for m, d, q, s in zip(x.shape[2:], dilation, kernel, stride)]
    rows, cols = ((np.arange(q)[:, None] * d + np.arange(c) * s) for q, d, c, s in zip(kernel, dilation, n, stride))
    at = rows[:, None, :, None] * size(x.shape[3]) + cols[None, :, None, :]
    y = k.gather(k.reshape(x, (*x.shape[:2], product(x.shape[2:]))), k.const(at.reshape(-1), "int64"), 2)
    return k.reshape(y, k.out[0].shape)


# ------------------------------------------------------------------ attention
@lowering("nn.functional.scaled_dot_product_attention")
def attention(k, q, key, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """Computes softmax(q k^T * scale + mask) v of Ls."""
    if dropout_p:
        raise LoweringError("dropout: call eval() first")
    if enable_gqa and key.shape[-3] != q.shape[-3]:
        n = size(q.shape[-3]) // size(key.shape[-3])
        key, v = (_repeat_heads(k, t, n) for t in (key, v))
    return _weighted(k, q, key, v, attn_mask, is_causal, scale)[0]


def _repeat_heads(k, x, n):
    y = k.reshape(x, (*x.shape[:-2], 1, *x.shape[-2:]))
    y = k.expand(y, (*x.shape[:-2], n, *x.shape[-2:]))
    return k.reshape(y, (*x.shape[:-3], x.shape[-3] * n, *x.shape[-2:]))


def _weighted(k, q, key, v, mask, is_causal, scale):
    """Returns (attention result, attention weights)."""
    scale = 1 / math.sqrt(size(q.shape[-1])) if scale is None else scale
    s = k.matmul(k.mul(q, float(scale)), k.swap(key, -1, -2))
    if is_causal and mask is None:
        n, m = size(q.shape[-2]), size(key.shape[-2])
        mask = k.const(np.tril(np.ones((n, m), bool)))
    if mask is not None:
        if mask.dtype == "bool":
            s = k.where(mask, s, k.const(-math.inf, s.dtype))
        else:
            s = k.add(s, k.cast(mask, s.dtype))
    w = k.softmax(s, -1)
    return k.matmul(w, v), w


def _additive(k, mask, dtype):
    """Returns a mask as values to add: -inf where a bool mask is True."""
    if mask is None or mask.dtype != "bool":
        return mask
    return k.where(mask, k.const(-math.inf, dtype), k.const(0, dtype))


@lowering("nn.functional.multi_head_attention_forward")
def _multi_head(k, q, key, v, embed_dim, heads, w, b, bias_k, bias_v, add_zero_attn, dropout_p, w_out, b_out, training=True,
                key_padding_mask=None, need_weights=True, attn_mask=None, separate=False, w_q=None, w_k=None, w_v=None,
                static_k=None, static_v=None, average=True, is_causal=False):
    if training and dropout_p:
        raise LoweringError("dropout: call eval() first")
    if bias_k is not None or add_zero_attn or static_k is not None or static_v is not None:
        raise LoweringError("bias_k, add_zero_attn, static_k")
    batched = q.ndim == 3
    if not batched:
        q, key, v = (k.reshape(t, (t.shape[0], 1, t.shape[1])) for t in (q, key, v))
        if key_padding_mask is not None:
            key_padding_mask = k.reshape(key_padding_mask, (1, *key_padding_mask.shape))
    n, batch, e = q.shape
    m, d = key.shape[0], embed_dim // heads

    def part(t, i):
        weight = (w_q, w_k, w_v)[i] if separate else k.slice(w, 0, i * embed_dim, (i + 1) * embed_dim)
        bias = None if b is None else k.slice(b, 0, i * embed_dim, (i + 1) * embed_dim)
        y = linear(k, t, weight, bias)
        return k.transpose(k.reshape(y, (t.shape[0], batch, heads, d)), (1, 2, 0, 3))       # (N, H, L, D)
    q, key, v = part(q, 0), part(key, 1), part(v, 2)
    mask = _additive(k, attn_mask, q.dtype)
    if mask is not None and mask.ndim == 3:
        mask = k.reshape(mask, (batch, heads, n, m))
    pad = _additive(k, key_padding_mask, q.dtype)
    if pad is not None:
        pad = k.reshape(pad, (batch, 1, 1, m))
        mask = pad if mask is None else k.add(mask, pad)
    y, weights = _weighted(k, q, key, v, mask, is_causal, None)
    y = k.reshape(k.transpose(y, (2, 0, 1, 3)), (n, batch, embed_dim))
    y = linear(k, y, w_out, b_out)
    if not batched:
        y = k.reshape(y, (n, embed_dim))
    if len(k.out) == 1:
        return y
    if average:
        weights = k.reduce("mean", weights, [1])
    return [y, weights if batched else k.reshape(weights, weights.shape[1:])]


# ------------------------------------------------------------------ losses
def _elementwise_loss(fn):
    def f(k, x, y, size_average=None, reduce=None, reduction="mean", weight=None):
        if weight is not None or size_average is not None or reduce is not None:
            raise LoweringError("weight, size_average, reduce")
        r = fn(k, k.sub(x, y))
        return r if reduction == "none" else k.reduce(reduction, r, range(r.ndim))
    return f


LOWERINGS["nn.functional.mse_loss"] = _elementwise_loss(lambda k, d: k.mul(d, d))
LOWERINGS["nn.functional.l1_loss"] = _elementwise_loss(lambda k, d: k.unary("abs", d))


@lowering("nn.functional.cross_entropy")
def _cross_entropy(k, x, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    if weight is not None or size_average is not None or reduce is not None or label_smoothing:
        raise LoweringError("weight, label_smoothing, size_average, reduce")
    if kind_of(target.dtype) == "f":
        logp = k.softmax(x, 1 if x.ndim > 1 else 0, True)
        r = k.unary("neg", k.reduce("sum", k.mul(logp, target), [1 if x.ndim > 1 else 0]))
        return r if reduction == "none" else k.reduce(reduction, r, range(r.ndim))
    if x.ndim != 2:
        raise LoweringError("other than (N, C) logits")
    logp = k.softmax(x, 1, True)
    hit = k.compare("eq", k.reshape(target, (target.shape[0], 1)), k.const(np.arange(size(x.shape[1])), target.dtype))
    counted = k.cast(k.compare("ne", target, ignore_index), x.dtype)
    r = k.mul(k.unary("neg", k.reduce("sum", k.mul(logp, k.cast(hit, x.dtype)), [1])), counted)
    if reduction == "none":
        return r
    total = k.reduce("sum", r, [0])
    if reduction == "sum":
        return total
    return k.div(total, k.reduce("sum", counted, [0]))


__all__ = ["axis", "Sym"]
