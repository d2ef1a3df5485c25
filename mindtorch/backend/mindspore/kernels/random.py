"""Random numbers on the device, determined by a generator's (seed, offset) only, not by what ran
before.

Ascend's kernels accept both numbers. The kernels of MindSpore's CPU target keep their state in the
kernel or have the seed compiled in: a new seed per call costs 660 us and 42 KB that is never freed.
There, up to a few million values are computed as the difference modulo 1 of two slices of fixed
tables of uniform numbers, at offsets that follow from seed and offset. The tables are created once
by UniformReal. Larger tensors use a new seed.
"""
import math
from typing import Any

import numpy as np

from mindtorch.backend.device import UnsupportedByKernel
from mindtorch.backend.mindspore import npu
from mindtorch.backend.mindspore.kernels import ASCEND, TARGET
from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import mint, DTYPES, G, P, cast, dtype_of, full, kernel, ms, number, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels.reduction import copied, sums
from mindtorch.backend.mindspore.private import from_contiguous
from mindtorch.backend.mindspore.recorder_api import new_buffer, next_rng

_DEVICE = npu.Npu(TARGET)
_F32, _F64, _I64 = ms.float32, ms.float64, ms.int64
_HALF = (ms.float16, ms.bfloat16)
_FLOATS = (_F32, _F64, *_HALF)
_MASK = (1 << 64) - 1


def hashed(seed, offset):
    """Returns a 64-bit hash of (seed, offset) (splitmix64)."""
    x = (seed * 0xD1342543DE82EF95 + offset * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & _MASK
    for shift, by in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> shift) * by & _MASK
    return x ^ x >> 31


def drawn(generator):
    """Returns the (seed, offset) of a draw. Raises `UnsupportedByKernel` if the numbers have to come from the
    host."""
    if generator.on_host:
        raise UnsupportedByKernel
    return next_rng(generator)


# ------------------------------------------------------------------ uniform numbers (CPU target)
# maximum size that a pair of tables serves; each table is twice as long
_CLASSES = (1 << 18, 1 << 20, 1 << 22)
_tables: dict[int, tuple[Any, Any]] = {}


def _seeded(n, which):
    """Returns n float32 numbers in [0, 1), multiples of 2**-24, for a seed."""
    u = P.UniformReal(which >> 32 & 0x7FFFFFFF or 1, which & 0x7FFFFFFF or 1)((n,))
    grain = number(float(1 << 24), _F32)
    # Below 1/2, UniformReal's numbers have a finer resolution. Rounding them down keeps all later
    # steps exact and the values below 1.
    return op(P.RealDiv)(op(P.Floor)(op(P.Mul)(u, grain)), grain)


def _pair(k):
    found = _tables.get(k)
    if found is None:
        n = 2 * _CLASSES[k]
        found = _tables[k] = _seeded(n, hashed(k, 1)), _seeded(n, hashed(k, 2))
    return found


def _ends(at, n, plus, part):
    """Returns the two table slices whose difference gives the numbers, or the numbers themselves if
    n exceeds the tables."""
    seed, offset = at
    bits, bits2 = hashed(seed + plus, offset + 2 * part), hashed(~seed - plus & _MASK, offset + 2 * part + 1)
    for k, most in enumerate(_CLASSES):
        if n <= most:
            a, b = _pair(k)
            span = 2 * most - n + 1
            return tuple([_DEVICE.view(h, (n,), (1,), i % span, np.dtype(np.float32)) for h, i in ((a, bits), (b, bits2))])
    return _seeded(n, bits)


def _stretch(n, at, plus, part):
    """Returns n uniform float32 numbers."""
    r = new_buffer(_ends, at, n, plus, part)
    if r.__class__ is not tuple:
        return r
    d = op(P.Sub)(*r)
    return op(P.Sub)(d, op(P.Floor)(d))


def rng_state(at, part):
    """Returns seed and offset in the form that Ascend's kernels expect."""
    return tuple([from_contiguous(np.array(v, np.int64)) for v in ((at[0] & _MASK >> 1), at[1] + part)])


def uniform(shape, at, dtype=_F32, part=0):
    """Returns uniform numbers in [0, 1), float32 or float64. `part` selects one of several
    independent tensors of a draw."""
    n = math.prod(shape)
    if ASCEND:
        return op(G.RandExt)(tuple(shape), *new_buffer(rng_state, at, part), dtype, None)
    u = _stretch(n, at, 0, part).view(tuple(shape))
    if dtype == _F64:
        low = _stretch(n, at, 1, part).view(tuple(shape))
        u = op(P.Add)(op(P.Cast)(u, _F64), op(P.Mul)(op(P.Cast)(low, _F64), number(2.0 ** -24, _F64)))
    return u


def log_uniform(shape, at, dtype=_F32):
    """Returns logarithms of uniform numbers in (0, 1]. Uses Log1p, because the last digit of Log
    depends on how its threads split the work."""
    return op(P.Log1p)(op(P.Neg)(uniform(shape, at, dtype)))


def normal(shape, at, dtype=_F32):
    """Returns standard normal numbers (Box-Muller)."""
    if ASCEND:
        return op(G.Randn)(tuple(shape), *new_buffer(rng_state, at, 0), dtype, None)
    n = math.prod(shape)
    k = -(-n // 2)
    r = op(P.Sqrt)(op(P.Mul)(log_uniform((k,), at, dtype), number(-2.0, dtype)))
    turn = op(P.Mul)(uniform((k,), at, dtype, 1), number(2 * math.pi, dtype))
    z = op(P.Concat, 0)((op(P.Mul)(r, op(P.Cos)(turn)), op(P.Mul)(r, op(P.Sin)(turn))))
    return (z if 2 * k == n else copied(_DEVICE.view(z, (n,), (1,), 0, np.dtype(np.float32 if dtype == _F32 else np.float64)))).view(tuple(shape))


def keep_mask(shape, keep, generator, dtype=_F32):
    """Returns 1 with probability `keep`, else 0."""
    if generator.on_host:
        return _DEVICE.upload(_host_mask(tuple(shape), keep, generator.for_host()).astype(npu.STYPES[dtype]))
    # also if keep is 0 or 1: the number of draws of a kernel must not depend on its arguments
    at = next_rng(generator)
    if keep in (0, 1):
        return full(shape, keep, dtype)
    if ASCEND:
        return op(P.Cast)(op(P.Less)(uniform(shape, at), number(keep, _F32)), dtype)
    # Floor takes 14 us, a comparison and a cast from bool 400 us.
    return cast(op(P.Floor)(op(P.Add)(uniform(shape, at), number(min(keep, 1 - 2.0 ** -23), _F32))), dtype)


def _host_mask(shape, keep, generator):
    from mindtorch.backend.cpu.random import bernoulli_mask
    return bernoulli_mask(shape, keep, generator)


# ------------------------------------------------------------------ by dtype
def _upcast_dtype(dtype):
    """Returns the dtype in which random numbers of a dtype are computed."""
    return dtype if dtype in (_F32, _F64) else _F32


def _uniform(shape, dtype, low, high, generator):
    if dtype not in _FLOATS:
        raise UnsupportedByKernel
    d = _upcast_dtype(dtype)
    u = uniform(shape, drawn(generator), d)
    if (low, high) != (0.0, 1.0):
        # Rounding must not reach `high`.
        u = op(P.Add)(op(P.Mul)(u, number(high - low, d)), number(low, d))
        if high > low:
            u = op(P.Minimum)(u, number(float(np.nextafter(npu.STYPES[d].type(high), npu.STYPES[d].type(low))), d))
    if dtype in _HALF:
        # Values just below `high` would be rounded to it. PyTorch draws as many binary digits as
        # the dtype has.
        digits = number(float(1 << (11 if dtype is ms.float16 else 8)), d)
        if (low, high) == (0.0, 1.0):
            u = o.quotient(op(P.Floor)(op(P.Mul)(u, digits)), digits)
    return cast(u, dtype)


def _normal(shape, dtype, mean, std, generator):
    if dtype not in _FLOATS:
        raise UnsupportedByKernel
    if not std >= 0:
        raise UnsupportedByKernel  # the host kernel raises the error
    d = _upcast_dtype(dtype)
    z = normal(shape, drawn(generator), d)
    if std != 1:
        z = op(P.Mul)(z, number(std, d))
    return cast(op(P.Add)(z, number(mean, d)) if mean else z, dtype)


def _randint(shape, dtype, low, high, generator):
    if high is None or not 0 < high - low <= 1 << 40 or dtype is ms.bool_ or dtype not in DTYPES.values():
        raise UnsupportedByKernel
    if dtype not in _FLOATS:
        if npu.STYPES[dtype].kind == "c":
            raise UnsupportedByKernel  # the host kernel raises the error
        most = np.iinfo(npu.STYPES[dtype])
        if low < most.min or high - 1 > most.max:
            raise UnsupportedByKernel
    elif max(abs(low), abs(high)) > 1 << (24 if dtype == _F32 else 53 if dtype == _F64 else 8):
        raise UnsupportedByKernel
    if ASCEND:
        r = op(G.Empty)(tuple(shape), dtype, "Ascend")
        op(G.InplaceRandom)(r, low, high, *new_buffer(rng_state, drawn(generator), 0))
        return r
    u = op(P.Floor)(op(P.Mul)(uniform(shape, drawn(generator), _F64), number(float(high - low), _F64)))
    r = op(P.Add)(op(P.Cast)(u, _I64), number(low, _I64)) if low else op(P.Cast)(u, _I64)
    return cast(r, dtype)


def _laid(size, stride, make):
    """Calls `make` with the sizes in memory order and returns the result with these dense strides.
    """
    if stride is None:
        return make(tuple(size))
    order = sorted(range(len(size)), key=lambda d: -stride[d])
    base = make(tuple([size[d] for d in order]))
    return op(P.Transpose)(base, tuple([order.index(d) for d in range(len(size))])) if order != list(range(len(size))) else base


def _need(size):
    if 0 in size:
        raise UnsupportedByKernel


@kernel("uniform")
def _new_uniform(*, size, stride, np_dtype, generator, device):
    _need(size)
    return _laid(size, stride, lambda s: _uniform(s, DTYPES.get(np_dtype), 0.0, 1.0, generator))


@kernel("normal")
def _new_normal(*, size, stride, mean, std, np_dtype, generator, device):
    _need(size)
    return _laid(size, stride, lambda s: _normal(s, DTYPES.get(np_dtype), mean, std, generator))


@kernel("randint")
def _new_randint(*, size, stride, low, high, np_dtype, generator, device):
    _need(size)
    return _laid(size, stride, lambda s: _randint(s, DTYPES.get(np_dtype), low, high, generator))


@kernel("randperm")
def _randperm(*, n, np_dtype, generator, device):
    """Returns the argsort of uniform numbers."""
    if not 0 < n <= 1 << 20 or DTYPES.get(np_dtype) not in (ms.int64, ms.int32):
        raise UnsupportedByKernel
    if ASCEND:
        return op(G.RandpermExt)(n, *new_buffer(rng_state, drawn(generator), 0), DTYPES[np_dtype])
    at = op(P.Sort, 0, False)(uniform((n,), drawn(generator)))[1]
    return cast(at, DTYPES[np_dtype]) if dtype_of(at) != DTYPES[np_dtype] else at


# ------------------------------------------------------------------ parameters as tensors
@kernel("normal_by")
def _normal_by(mean, std, *, loc, scale, generator):
    """Returns standard normal numbers times a standard deviation, plus a mean. The caller has
    checked that no deviation is negative."""
    d = dtype_of(std if mean is None else mean)
    if d not in (_F32, _F64) or scale is not None and not scale >= 0 or mean is not None and std is not None and dtype_of(mean) is not dtype_of(std):
        raise UnsupportedByKernel
    z = normal(_both(mean, std), drawn(generator), d)
    z = op(P.Mul)(z, number(scale, d) if std is None else std)
    return op(P.Add)(z, number(loc, d) if mean is None else mean)


def _both(a, b):
    if a is None or b is None:
        return shape_of(a if b is None else b)
    return np.broadcast_shapes(shape_of(a), shape_of(b))


@kernel("bernoulli")
def _bernoulli(a, *, generator):
    """The caller has checked that all values are probabilities."""
    d = dtype_of(a)
    if d not in _FLOATS:
        raise UnsupportedByKernel
    w = _upcast_dtype(d)
    hit = op(P.Less)(uniform(shape_of(a), drawn(generator), w), cast(a, w))
    return cast(op(P.Mul)(hit, number(1.0, w)), d)


@kernel("multinomial")
def _multinomial(a, *, num_samples, replacement, generator):
    """Without replacement: divides the weights by exponential samples and takes the largest
    (exponential race). With replacement: searches the cumulative sums. The caller has checked the
    weights."""
    shape, n = shape_of(a), shape_of(a)[-1]
    if num_samples <= 0 or not replacement and num_samples > n or dtype_of(a) not in _FLOATS:
        raise UnsupportedByKernel
    at, last = drawn(generator), len(shape) - 1
    if replacement and num_samples > 1:
        total = op(P.CumSum)(cast(a, _F64), last) if not ASCEND else op(G.CumsumExt)(cast(a, _F64), last, None)
        u = op(P.Mul)(uniform((*shape[:-1], num_samples), at, _F64), _DEVICE.view(total, (*shape[:-1], 1), (*[n] * last, 1), n - 1, np.dtype(np.float64)))
        below = op(P.LessEqual)(reshape(total, (*shape[:-1], 1, n)), reshape(u, (*shape[:-1], num_samples, 1)))
        return sums(below, (last + 1,))
    waits = op(P.Maximum)(op(P.Neg)(log_uniform(shape, at)), number(1e-9, _F32))
    r = o.quotient(cast(a, _F32), waits)
    if num_samples == 1:
        return op(P.ArgMaxWithValue, last, True)(r)[0] if not ASCEND else mint.argmax(r, last, True)
    return cast(op(P.TopK, True)(r, num_samples)[1] if not ASCEND else mint.topk(r, num_samples)[1], _I64)


@kernel("bernoulli_p")
def _bernoulli_p(a, *, p, generator):
    if not 0 <= p <= 1 or dtype_of(a) not in DTYPES.values() or dtype_of(a) is ms.bool_:
        raise UnsupportedByKernel
    drawn_ = keep_mask(shape_of(a), p, generator)
    return cast(drawn_, dtype_of(a))


# ------------------------------------------------------------------ in-place random ops
def _filled(h, value):
    _DEVICE.write(h, value if dtype_of(value) is dtype_of(h) else op(P.Cast)(value, dtype_of(h)))


@kernel("uniform_")
def _uniform_(h, *, low, high, generator):
    if not -3e38 <= low <= high <= 3e38 or high - low > 3e38:
        raise UnsupportedByKernel
    _filled(h, _uniform(shape_of(h), dtype_of(h), low, high, generator))


@kernel("normal_")
def _normal_(h, *, mean, std, generator):
    _filled(h, _normal(shape_of(h), dtype_of(h), mean, std, generator))


@kernel("randint_")
def _randint_(h, *, low, high, generator):
    _filled(h, _randint(shape_of(h), dtype_of(h), low, high, generator))


@kernel("bernoulli_")
def _bernoulli_(h, *, p, generator):
    if not 0 <= p <= 1 or generator.on_host:
        raise UnsupportedByKernel
    _filled(h, keep_mask(shape_of(h), p, generator))


@kernel("bernoulli_by_", target="Ascend")
def _bernoulli_by_(h, p, *, generator):
    """The caller has checked that all values are probabilities."""
    if dtype_of(p) not in _FLOATS:
        raise UnsupportedByKernel
    w = _upcast_dtype(dtype_of(p))
    _filled(h, op(P.Less)(uniform(shape_of(h), drawn(generator), w), cast(p, w)))


@kernel("random_", target="Ascend", only="float32")
def _random_(h, *, generator):
    """Fills with integers from 0 to 2**24, the range in which float32 represents every integer."""
    u = op(P.Floor)(op(P.Mul)(uniform(shape_of(h), drawn(generator), _F64), number(float((1 << 24) + 1), _F64)))
    _filled(h, cast(u, _F32))


@kernel("rrelu_noise", target="Ascend", only="float32")
def _rrelu_noise(x, *, low, high, generator):
    """Returns random slopes where x <= 0, else 1."""
    return o.where(o.le(x, 0.0), o.add(o.mul(uniform(shape_of(x), drawn(generator)), high - low), low), 1.0)


def _times(x, k, d):
    return op(P.Mul)(x, number(k, d))


def _by_inverse(name, rule, check):
    """Registers a kernel that samples by the inverse distribution function: rule(dtype, shape, at,
    ...)."""
    @kernel(name)
    def fill(h, *, generator, **constants):
        d = dtype_of(h)
        if d not in _FLOATS or not check(**constants):
            raise UnsupportedByKernel
        _filled(h, rule(_upcast_dtype(d), shape_of(h), drawn(generator), **constants))


def _exponential(d, shape, at, lambd):
    return _times(log_uniform(shape, at, d), -1 / lambd, d)


_fw_grad = mint.tan if ASCEND else P.Tan()


def _cauchy(d, shape, at, median, sigma):
    t = _fw_grad(_times(op(P.Add)(uniform(shape, at, d), number(-0.5, d)), math.pi, d))
    return op(P.Add)(_times(t, sigma, d), number(median, d))


def _geometric(d, shape, at, p):
    return op(P.Add)(op(P.Floor)(_times(log_uniform(shape, at, d), 1 / math.log1p(-p), d)), number(1.0, d))


_by_inverse("exponential_", _exponential, lambda lambd: lambd > 0)
_by_inverse("cauchy_", _cauchy, lambda median, sigma: sigma > 0)
_by_inverse("geometric_", _geometric, lambda p: 0 < p < 1)


@kernel("log_normal_")
def _log_normal_(h, *, mean, std, generator):
    d = dtype_of(h)
    if d not in _FLOATS or not std > 0:
        raise UnsupportedByKernel
    z = normal(shape_of(h), drawn(generator), _upcast_dtype(d))
    _filled(h, op(P.Exp)(op(P.Add)(_times(z, std, _upcast_dtype(d)), number(mean, _upcast_dtype(d)))))
