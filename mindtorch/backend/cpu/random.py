"""Random numbers, bit-equal to those of PyTorch's CPU generator.

C (c_kernels/random.py) generates float32, integers, masks and permutations if a compiler is
available. NumPy generates everything else, and all of it without a compiler.

`Generator` is the engine of torch.Generator (a 32-bit Mersenne Twister plus one cached normal). Its
state bytes are interchangeable with those of PyTorch. The functions below draw from a generator and
return new C-contiguous arrays. A `dtype` is a dtype name or a NumPy dtype. NumPy has no bfloat16 of
its own: for the name "bfloat16" the result is a float32 array of bfloat16 values, for an extension
dtype of that name it has that dtype.

Order matters as much as the values. PyTorch fills a tensor element by element in memory order, so
each function consumes as many 32-bit words from the stream as PyTorch's kernel, in the same order.
Calls of any kind can follow each other and stay in step with PyTorch.

Bit-equal to PyTorch on x86 with AVX2: all uniforms, integers, masks, permutations and indices;
float32, float16 and bfloat16 normals. Where PyTorch calls the C library's float64 log, cos or tan,
NumPy's own vector code may differ in the last bit. That shows only in float64 results (a few
1e-16), for arrays of more than a handful of elements. A PyTorch built with MKL draws
`bernoulli_(p)` and `exponential_` (so dropout and multinomial) from MKL's generator on Intel
processors; the values here are those of all other processors.
"""

import math

import numpy as np

from mindtorch.backend.cpu import large
from mindtorch.backend.cpu.box_muller import (
    add_to_float32,
    block_normals,
    block_normals64,
    directions,
    multiply_add,
    radii,
    scaled,
)
from mindtorch.backend.cpu._rng_dtypes import (
    KINDS,
    PARTS,
    UNSIGNED,
    as_kind,
    from_int,
    kind_of,
    need_float,
    numel,
    unsupported,
    upcast,
)
from mindtorch.backend.cpu._rng_integers import MANY, check_bound, inner_bounds, shuffled
from mindtorch.backend.cpu.mt19937 import Generator, uniform_floats
from mindtorch.backend.strides import drawing_order, strides_of

_LOW21 = np.uint32((1 << 21) - 1)
_LOW24 = np.uint32((1 << 24) - 1)

default_generator = Generator()
default_generator.seed()


def set_default_generator(generator):
    """Sets the generator that is used where none is passed."""
    global default_generator
    default_generator = generator


def in_memory_order(a):
    """Returns a view of strided array `a` whose C order is its memory order, in which PyTorch fills
    tensors."""
    return a.transpose(sorted(range(a.ndim), key=lambda axis: -abs(a.strides[axis])))


# ------------------------------------------------------------------------------------------------ uniform


def _check_uniform(low, high, kind):
    for name, bound in (("from", low), ("to", high)):
        if not kind.low <= bound <= kind.high:
            raise RuntimeError(f"{name} is out of bounds for {kind.ctype}")
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
    if high - low > kind.high:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{kind.label}>::max(), but found to={high:g} and "
            f"from={low:g} which result in to-from to exceed the limit"
        )


def uniform(shape, dtype="float32", low=0.0, high=1.0, generator=None, out=None):
    """Draws uniform samples from [low, high) in a float or complex dtype; bit-equal to PyTorch.

    Implements `Tensor.uniform_` and `torch.rand`. out: a C-contiguous array of that shape and dtype
    that may become the result.
    """
    generator = generator or default_generator
    kind = kind_of(dtype)
    if kind.digits == 24 and low == 0.0 and high == 1.0 and (x := large.random().uniforms(generator, shape, out)) is not None:
        return x
    if kind.name in PARTS:
        part = PARTS[kind.name]
        n = numel(shape)
        return uniform(2 * n, part, low, high, generator).view(kind.np).reshape(shape)
    if not kind.digits:
        raise unsupported("check_uniform_bounds", kind)
    low, high = float(low), float(high)
    plain = low == 0.0 and high == 1.0
    if not plain:
        _check_uniform(low, high, kind)
    n = numel(shape)
    if kind.digits == 53:
        x = generator._doubles(n)
        if not plain:
            x = x * (high - low) if low == 0.0 else multiply_add(x, high - low, low)
            _keep_below(x, high, low)
        return x.reshape(shape)
    if plain:
        x = generator._floats(n)
    else:
        # The kernel computes x * (high - low) + low fused. The product of two 24-bit values is
        # exact in float64.
        first = np.float32(low)
        width = float(np.float32(high) - first)
        if kind.digits == 24 and (x := large.random().between(generator, shape, low, width, high, out)) is not None:
            return x
        x = (generator._words(n) & _LOW24).astype(np.float64)
        x *= width * 2.0**-24
        x = add_to_float32(x, float(first), width, None if out is None or kind.digits != 24 else out.reshape(-1))
    if kind.digits == 24 and plain:
        return x.reshape(shape)
    # float32 instead of an extension dtype, which may not support comparison
    rounding = KINDS[kind.name]
    x = as_kind(x, rounding, shape)
    first, last = as_kind(np.array([low, high], np.float32), rounding, 2)
    _keep_below(x, last, first)
    return x.astype(kind.np, copy=False)


def _keep_below(x, high, low):
    """Replaces the upper bound, which rounding may reach but the range excludes, by the lower
    bound, as in PyTorch."""
    hit = x == high
    if hit.any():
        x[hit] = low


# ------------------------------------------------------------------------------------------------ normal


def _pair_normals(generator, n):
    """Draws n float64 standard normals as Box-Muller pairs.

    The generator caches the unused second value of a pair for the next call.
    """
    cached = generator._cached_normal
    new = n if cached is None else n - 1
    if n == 0:
        return np.empty(0)
    u = generator._doubles(new + (new & 1))
    if new <= 32:
        # math's functions are the C library's, like PyTorch's, and faster than NumPy's on so few
        # elements.
        x = [] if cached is None else [cached]
        u = u.tolist()
        for i in range(0, len(u), 2):
            angle = 2.0 * math.pi * u[i]
            radius = math.sqrt(-2.0 * math.log1p(-u[i + 1]))
            x.append(radius * math.cos(angle))
            x.append(radius * math.sin(angle))
        generator._cached_normal = x.pop() if new & 1 else None
        return np.array(x)
    x = np.empty(n + (new & 1))
    if cached is not None:
        x[0] = cached
    angle = 2.0 * np.pi * u[0::2]
    radius = np.sqrt(-2.0 * np.log1p(-u[1::2]))
    first = n - new
    np.multiply(radius, np.cos(angle), out=x[first::2])
    np.multiply(radius, np.sin(angle), out=x[first + 1 :: 2])
    generator._cached_normal = float(x[-1]) if new & 1 else None
    return x[:n]


def _check_std(std):
    if not std >= 0.0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")


def normal(shape, dtype="float32", mean=0.0, std=1.0, generator=None, contiguous=True, out=None):
    """Draws normal samples in a float or complex dtype.

    Implements `Tensor.normal_`, `torch.randn`, and `torch.normal` with two floats. A complex sample
    has variance std**2, half of it in each part. PyTorch uses another algorithm if the target
    tensor is not contiguous: pass `contiguous=False` for it, and write the result through
    `in_memory_order`. out: a C-contiguous array of that shape and dtype that may become the result.
    """
    generator = generator or default_generator
    if not std >= 0.0:
        _check_std(std)
    kind = kind_of(dtype)
    if kind.digits == 24 and contiguous and (x := large.random().normals(generator, shape, mean, std, True, out)) is not None:
        return x
    if kind.name in PARTS:
        return _complex_normal(shape, kind, mean, std, generator, contiguous)
    need_float("normal_kernel_cpu", kind)
    mean, std = float(mean), float(std)
    n = numel(shape)
    if kind.digits < 24 and contiguous and (x := large.random().normals(generator, shape, mean, std, False)) is not None:
        return as_kind(x, kind, shape)
    if n < 16 or not contiguous:
        x = _pair_normals(generator, n)
        if std != 1.0 or mean != 0.0:
            x = x * std if mean == 0.0 else multiply_add(x, std, mean)
        return as_kind(x, kind, shape)
    tail = n % 16
    if kind.digits == 53:
        x = block_normals64(generator._doubles(n)[: n - tail], mean, std)
        if tail:  # the last sixteen are redrawn
            x = np.concatenate((x[: n - 16], block_normals64(generator._doubles(16), mean, std)))
        return x.reshape(shape)
    mean, std = float(np.float32(mean)), np.float32(std)
    if n <= _FEW:
        return as_kind(scaled(_few_normals(generator, n, tail, kind.digits == 24), mean, std), kind, shape)
    if not tail:
        return as_kind(block_normals(generator._floats(n), mean, std), kind, shape)
    # The last sixteen are redrawn. The 16-bit kernels do not even draw the elements after the last
    # complete block.
    u = generator._floats(n if kind.digits == 24 else n - tail)
    blocks = block_normals(np.concatenate((u[: n - tail], generator._floats(16))), mean, std)
    x = blocks[:n].copy()
    x[n - 16 :] = blocks[n - tail :]
    return as_kind(x, kind, shape)


# maximum count for which radii and directions are computed for all buffered words at once
_FEW = 512


def _few_normals(generator, n, tail, draws_all):
    """Draws n standard normals in blocks of sixteen, as `normal` does.

    Sixteen normals cost 45 us and a thousand hardly more. Radii and directions are therefore
    computed at once for all words in the generator's buffer and cached until they are used up:
    sixteen take 5 us on average, three hundred 25 us.
    """
    full = n - tail
    more = n if draws_all else full
    generator._ready(more + 16 if tail else more)
    buf, pos = generator._buf, generator._pos
    redraw = pos + more
    end = redraw + 16 if tail else redraw
    parts = generator._parts
    if parts is None or parts[0] is not buf or parts[1] > pos:
        u = uniform_floats(buf[pos:])
        parts = generator._parts = buf, pos, radii(u), directions(u)
    _, start, radius, both = parts
    x = np.empty(n, np.float32)
    pos -= start
    if full:
        r = radius[pos : pos + full].reshape(-1, 16)
        c = both[:, pos : pos + full].reshape(2, -1, 16)
        np.multiply(c[:, :, 8:].transpose(1, 0, 2), r[:, None, :8], out=x[:full].reshape(-1, 2, 8))
    if tail:  # the last sixteen are redrawn
        redraw -= start
        np.multiply(both[:, redraw + 8 : redraw + 16], radius[redraw : redraw + 8], out=x[n - 16 :].reshape(2, 8))
    generator._pos = end
    return x


def _complex_normal(shape, kind, mean, std, generator, contiguous):
    # PyTorch adds the mean to the imaginary part as well
    parts = normal(2 * numel(shape), PARTS[kind.name], mean, std / math.sqrt(2.0), generator, contiguous)
    return parts.view(kind.np).reshape(shape)


def normal_like(mean, std, generator=None, dtype=None):
    """Draws normals with elementwise mean and standard deviation; either may be a float.

    Implements `torch.normal` with a tensor. The shape is the broadcast one. `dtype` defaults to
    that of `mean`, or of `std` if `mean` is a float.
    """
    mean_array, std_array = isinstance(mean, np.ndarray), isinstance(std, np.ndarray)
    if std_array:
        if std.dtype.kind == "c":
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if std.size and not (std.astype(np.float64) >= 0).all():
            raise RuntimeError("normal expects all elements of std >= 0.0")
    else:
        _check_std(std)
    if dtype is None:
        dtype = mean.dtype if mean_array else std.dtype
    kind = kind_of(dtype)
    shape = np.broadcast_shapes(*(a.shape for a in (mean, std) if isinstance(a, np.ndarray)))
    # The kernel applies a float std itself; everything else is an op in the dtype of the result.
    x = normal(shape, dtype, 0.0, 1.0 if std_array else std, generator)
    for op, other in (((np.multiply, std),) if std_array else ()) + ((np.add, mean),):
        if kind.digits and kind.digits < 24:
            x = as_kind(op(upcast(x, kind), np.asarray(other).astype(np.float32)), kind, shape)
        else:
            op(x, other, out=x, casting="unsafe")
    return x


# ------------------------------------------------------------------------------------------------ integers


def _modulo(n, width, generator):
    """Draws n integers modulo `width` (up to 2**64): one word each below 2**28, else two."""
    if width < 1 << 28:
        words = generator._words(n)
        return words % np.uint32(width)
    longs = generator._longs(n)
    return longs if width == 1 << 64 else longs % np.uint64(width)


def random(shape, dtype="int64", generator=None):
    """Draws the integers of `Tensor.random_()`: from 0 to the largest that `dtype` holds exactly
    (floats: 2**digits)."""
    generator = generator or default_generator
    kind = kind_of(dtype)
    n = numel(shape)
    if kind.name == "bool":
        return (generator._words(n) & np.uint32(1)).astype(bool).reshape(shape)
    if kind.name in PARTS or kind.name in UNSIGNED:
        raise unsupported("random_kernel_cpu", kind)
    width = 2**kind.digits + 1 if kind.digits else kind.high + 1
    if width > 1 << 32:
        return from_int((generator._longs(n) % np.uint64(width)).view(np.int64), kind, shape)
    return from_int((generator._words(n) % np.uint32(width)).astype(np.int64), kind, shape)


def randint(low, high, shape, dtype="int64", generator=None):
    """Draws integers from [low, high) in any dtype except complex ones.

    Implements `torch.randint` and `Tensor.random_(low, high)`. `high=None` means the largest
    integer that `dtype` holds (`Tensor.random_(low, None)`). Raises RuntimeError if the range is
    empty or does not fit.
    """
    generator = generator or default_generator
    kind = kind_of(dtype)
    for bound in (low, high):
        if bound is not None and not -(2**63) <= bound < 2**63:
            raise ValueError("Overflow when unpacking long long")
    if high is not None and low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if kind.name in PARTS:
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    if high is None and low == -(2**63):
        return _any_long(shape, kind, generator)
    if high is None:
        last = 2**kind.digits if kind.digits else int(kind.high)
        if kind.name == "uint64":
            raise RuntimeError(f"to - 1 is out of bounds for {kind.ctype}")
        if kind.digits:
            low, _ = inner_bounds(low, None, kind)
            if low > last:
                raise RuntimeError(
                    "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype, "
                    f"but got from={low} > to_inc={last}"
                )
    else:
        if kind.digits:
            low, high = inner_bounds(low, high, kind)
            if low >= high:
                raise RuntimeError(
                    "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, "
                    f"but got from={low} >= to={high}"
                )
        last = high - 1
    check_bound("from", low, kind)
    check_bound("to - 1", last, kind)
    width = last - low + 1
    if width < 1 << 28 and (x := large.random().integers(generator, shape, low, width)) is not None:
        return x if x.dtype is kind.np else from_int(x, kind, shape)
    x = _modulo(numel(shape), width, generator)
    if x.dtype == np.uint64:
        x = (x + np.uint64(low % 2**64)).view(np.int64)
    else:
        x = x.astype(np.int64)
        if low:
            x += low
    return from_int(x, kind, shape)


def _any_long(shape, kind, generator):
    if kind.name not in ("int64", "float64", "float32", "bfloat16"):
        if kind.name in ("float16", "bool") or kind.name in UNSIGNED:
            raise unsupported("random_full_64_bits_range_kernel_cpu", kind)
        raise RuntimeError("random_full_64_bits_range_kernel_cpu handles only int64, double, float and bfloat16")
    return from_int(generator._longs(numel(shape)).view(np.int64), kind, shape)


def randperm(n, dtype="int64", generator=None):
    """Returns a random permutation of 0..n-1 (`torch.randperm`), for float and signed integer
    dtypes and uint8."""
    generator = generator or default_generator
    kind = kind_of(dtype)
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    if not kind.digits and kind.name not in ("uint8", "int8", "int16", "int32", "int64"):
        raise unsupported("randperm", kind)
    if not kind.digits and n - 1 > kind.high:
        raise RuntimeError(f"value cannot be converted to type {kind.name}_t without overflow")
    if kind.digits > 8 and n > 2**kind.digits + 1:  # PyTorch does not check bfloat16
        raise RuntimeError(f"n cannot be greater than {2**kind.digits + 1} for {kind.label} type.")
    if n < 1 << 32 and (x := large.random().order(generator, n)) is not None:
        return x if x.dtype is kind.np else from_int(x, kind, n)
    words = generator._words(max(n - 1, 0))
    steps = words % np.arange(n, 1, -1, dtype=np.uint32)
    if n > MANY:
        return from_int(shuffled(steps), kind, n)
    items = list(range(n))
    for i, j in enumerate((steps + np.arange(steps.size, dtype=np.uint32)).tolist()):
        items[i], items[j] = items[j], items[i]
    return from_int(np.array(items, np.int64), kind, n)


# ------------------------------------------------------------------------------------------------ masks


def bernoulli_mask(shape, p, generator=None):
    """Draws bools that are True with probability `p`.

    Implements `Tensor.bernoulli_(p)` of any dtype; a dropout mask has p = 1 - rate.
    """
    generator = generator or default_generator
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    # A 53-bit uniform is below p if its integer is below p * 2**53: compare the halves, without
    # creating doubles.
    bound = math.ceil(math.ldexp(p, 53))
    if (mask := large.random().mask(generator, shape, bound)) is not None:
        return mask
    words = generator._words(2 * numel(shape))
    high, low = divmod(bound, 1 << 32)
    upper = words[0::2] & _LOW21
    mask = upper < np.uint32(high)
    ties = np.flatnonzero(upper == np.uint32(high))
    mask[ties] = words[1::2][ties] < np.uint32(low)
    return mask.reshape(shape)


def bernoulli(p, generator=None):
    """Draws bools, each True with its probability in float array `p`.

    Implements `torch.bernoulli(p)` and `Tensor.bernoulli_(p)`.
    """
    generator = generator or default_generator
    kind = kind_of(p.dtype)
    need_float("bernoulli_tensor_cpu_p_", kind)
    p = upcast(p, kind)
    if p.size and not ((p >= 0) & (p <= 1)).all():
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    u = generator._doubles(p.size) if kind.digits == 53 else generator._floats(p.size)
    return u.reshape(p.shape) < p


def rrelu_noise(x, low, high, generator=None, dtype=None):
    """Returns the slopes of `F.rrelu` in training.

    They are uniform in [low, high) where float array `x` is <= 0, and 1, without a draw, elsewhere.
    """
    generator = generator or default_generator
    kind = kind_of(dtype or x.dtype)
    noise = np.ones(x.shape)
    negative = upcast(x, kind) <= 0
    # a 53-bit uniform, scaled with two roundings; the bounds are in the precision of the
    # computation
    first, last = np.array([low, high], np.float64 if kind.digits == 53 else np.float32).astype(np.float64)
    noise[negative] = generator._doubles(np.count_nonzero(negative)) * (last - first) + first
    return as_kind(noise, kind, x.shape)


# ------------------------------------------------------------------------------------------------ continuous


def exponential(shape, dtype="float32", lambd=1.0, generator=None):
    """Draws exponential samples of rate `lambd` (`Tensor.exponential_`)."""
    generator = generator or default_generator
    kind = kind_of(dtype)
    if not lambd > 0.0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    if not kind.digits:
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a floating point but "
            f"you specified {kind.label}"
        )
    x = np.negative(generator._doubles(numel(shape)))
    np.log1p(x, out=x)
    x *= -1.0 / lambd
    return as_kind(x, kind, shape)


def geometric(shape, dtype="float32", p=0.5, generator=None):
    """Draws the number of trials of probability `p` up to the first success, at least 1
    (`Tensor.geometric_`)."""
    generator = generator or default_generator
    kind = kind_of(dtype)
    if not 0.0 < p < 1.0:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    if kind.name == "bool" or kind.name in PARTS or kind.name in UNSIGNED:
        raise unsupported("geometric_cpu", kind)
    with np.errstate(divide="ignore"):
        x = np.ceil(np.log(generator._doubles(numel(shape))) / math.log1p(-p))
    return as_kind(x, kind, shape) if kind.digits else from_int(x.astype(np.int64), kind, shape)


def log_normal(shape, dtype="float32", mean=1.0, std=2.0, generator=None):
    """Returns exp of normals with the given mean and standard deviation (`Tensor.log_normal_`)."""
    generator = generator or default_generator
    if not std > 0.0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    kind = kind_of(dtype)
    need_float("log_normal_cpu", kind)
    with np.errstate(over="ignore"):
        x = multiply_add(_pair_normals(generator, numel(shape)), float(std), float(mean))
        return as_kind(np.exp(x), kind, shape)


def cauchy(shape, dtype="float32", median=0.0, sigma=1.0, generator=None):
    """Draws Cauchy samples (`Tensor.cauchy_`)."""
    generator = generator or default_generator
    if not sigma > 0.0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    kind = kind_of(dtype)
    if not kind.digits:
        raise RuntimeError(
            "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you "
            f"specified {kind.ctype}"
        )
    x = np.tan(np.pi * (generator._doubles(numel(shape)) - 0.5))
    with np.errstate(over="ignore"):
        return as_kind(multiply_add(x, float(sigma), float(median)), kind, shape)


def standard_gamma(alpha, generator=None):
    """Draws gamma samples of shape `alpha` and scale 1, in the dtype of `alpha`, float32 or float64
    (`_standard_gamma`)."""
    generator = generator or default_generator
    kind = kind_of(alpha.dtype)
    if kind.digits < 24:
        raise unsupported("gamma_cpu", kind)
    x = np.array(_gammas(alpha.ravel(), generator))
    return np.maximum(as_kind(x, kind, alpha.shape), np.finfo(kind.np).tiny)


def _gammas(alpha, generator):
    """Draws standard gammas for a 1-d array `alpha`, by Marsaglia and Tsang's rejection. Returns a
    list of float64."""
    # Terms that depend on alpha alone are computed in its dtype, with single-precision constants.
    one = alpha.dtype.type(1)
    small = alpha < one
    with np.errstate(divide="ignore"):
        powers = (one / alpha).tolist()
    ds = (np.where(small, alpha + one, alpha) - alpha.dtype.type(np.float32(1.0 / 3.0))).tolist()
    uniform = generator._each_double().__next__
    log, sqrt = math.log, math.sqrt
    out = []
    for shape, power, d in zip(alpha.tolist(), powers, ds, strict=True):
        if not shape > 0.0:
            out.append(math.nan if shape else 0.0)
            continue
        scale = (1.0 - uniform()) ** power if shape < 1.0 else 1.0
        c = 1.0 / sqrt(9.0 * d)
        while True:
            x = generator._cached_normal
            if x is None:
                angle = 2.0 * math.pi * uniform()
                radius = sqrt(-2.0 * math.log1p(-uniform()))
                x = radius * math.cos(angle)
                generator._cached_normal = radius * math.sin(angle)
            else:
                generator._cached_normal = None
            y = 1.0 + c * x
            if y <= 0.0:
                continue
            v = y * y * y
            u = 1.0 - uniform()
            xx = x * x
            if u < 1.0 - 0.0331 * xx * xx or log(u) < 0.5 * xx + d * (1.0 - v + log(v)):
                out.append(scale * d * v)
                break
    return out


def standard_dirichlet(alpha, generator=None):
    """Draws Dirichlet samples along the last axis, with concentrations `alpha` in float32 or
    float64.

    Implements `torch._sample_dirichlet`.
    """
    generator = generator or default_generator
    kind = kind_of(alpha.dtype)
    if kind.digits < 24:
        raise unsupported("dirichlet", kind)
    x = np.array(_gammas(alpha.ravel().astype(np.float64), generator)).reshape(alpha.shape)
    x = np.maximum(x, np.finfo(np.float64).tiny)
    x /= x.sum(axis=-1, keepdims=True)
    x = as_kind(x, kind, alpha.shape)
    one = kind.np.type(1)
    return np.clip(x, np.finfo(kind.np).tiny, np.nextafter(one, kind.np.type(0)))


# ------------------------------------------------------------------------------------------------ counts


def poisson(rate, generator=None, dtype=None):
    """Draws Poisson counts in `dtype`, by default that of float array `rate` (`torch.poisson`)."""
    generator = generator or default_generator
    kind = kind_of(dtype or rate.dtype)
    need_float("poisson_cpu", kind)
    rate = upcast(rate, kind)
    if rate.size and not (rate >= 0).all():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    uniform = generator._each_double().__next__
    known = {}
    out = []
    for lam in rate.ravel().astype(np.float64).tolist():
        if lam >= 10.0:
            out.append(_poisson_by_rejection(lam, known, uniform))
        elif lam == 0.0:
            out.append(0)
        else:  # count the uniforms whose product stays above exp(-rate)
            bound = math.exp(-lam)
            count, product = 0, uniform()
            while product > bound:
                count += 1
                product *= uniform()
            out.append(count)
    return as_kind(np.array(out, np.float64), kind, rate.shape)


def _poisson_by_rejection(lam, known, uniform):
    """Draws one Poisson count by Hörmann's transformed rejection with squeeze (PTRS, 1993)."""
    if lam not in known:
        b = 0.931 + 2.53 * math.sqrt(lam)
        a = -0.059 + 0.02483 * b
        known[lam] = math.log(lam), b, a, 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2.0)
    log_lam, b, a, inverse_alpha, squeeze = known[lam]
    while True:
        u = uniform() - 0.5
        v = uniform()
        us = 0.5 - abs(u)
        k = math.floor((2.0 * a / us + b) * u + lam + 0.43)
        if us >= 0.07 and v <= squeeze:
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        if math.log(v) + math.log(inverse_alpha) - math.log(a / (us * us) + b) <= (
            -lam + k * log_lam - math.lgamma(k + 1)
        ):
            return k


def binomial(count, prob, generator=None):
    """Draws binomial counts of `count` trials with probability `prob`, float32 or float64 arrays
    (`torch.binomial`)."""
    generator = generator or default_generator
    kind = kind_of(count.dtype)
    if not kind.digits:
        raise ValueError(f"binomial only supports floating-point dtypes for count, got: {kind.label}")
    if kind.digits < 24:
        raise unsupported("binomial_cpu", kind)
    count, prob = np.broadcast_arrays(count, prob)
    uniform = generator._each_double().__next__
    out = []
    one = kind.np.type(1)
    # NumPy scalars, with a `one` of their dtype: the kernel rounds terms of n and p alone to that
    # dtype.
    for n, p in zip(count.ravel(), prob.astype(kind.np, copy=False).ravel(), strict=True):
        if math.isnan(n) or math.isnan(p) and n > 0:
            out.append(math.nan)
        elif n <= 0.0 or p <= 0.0:
            out.append(0.0)
        elif p >= 1.0:
            out.append(n)
        elif p <= 0.5:
            out.append(_binomial(n, p, one, uniform))
        else:
            out.append(n - _binomial(n, one - p, one, uniform))
    return as_kind(np.array(out, np.float64), kind, count.shape)


def _binomial(n, p, one, uniform):
    mean = float(n * p)
    if mean < 10.0:  # add up geometric waiting times until they exceed n
        log_q = float(np.log1p(-p))
        n = float(n)
        passed, successes = 0.0, 0
        while True:
            wait = math.log(uniform()) / log_q
            if wait > n:  # the wait may be infinite
                return successes
            passed += math.ceil(wait)
            if passed > n:
                return successes
            successes += 1
    # Hörmann's transformed rejection with squeeze (BTRS, 1993).
    stddev = math.sqrt(n * p * (one - p))
    m = math.floor((n + one) * p)
    r = float(p / (one - p))
    n, p = float(n), float(p)
    b = 1.15 + 2.53 * stddev
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = mean + 0.5
    squeeze = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * stddev
    while True:
        u = uniform() - 0.5
        v = uniform()
        us = 0.5 - abs(u)
        k = math.floor((2.0 * a / us + b) * u + c)
        if us >= 0.07 and v <= squeeze:
            return k
        if k < 0 or k > n:
            continue
        bound = (
            (m + 0.5) * math.log((m + 1.0) / (r * (n - m + 1.0)))
            + (n + 1.0) * math.log((n - m + 1.0) / (n - k + 1.0))
            + (k + 0.5) * math.log(r * (n - k + 1.0) / (k + 1.0))
            + _stirling_rest(m)
            + _stirling_rest(n - m)
            - _stirling_rest(k)
            - _stirling_rest(n - k)
        )
        if math.log(v * alpha / (a / (us * us) + b)) <= bound:
            return k


def _stirling_rest(k):
    """Returns log k! minus Stirling's formula for it."""
    if k <= 9:
        return math.lgamma(k + 1.0) - ((k + 0.5) * math.log(k + 1.0) - (k + 1.0) + 0.5 * math.log(2.0 * math.pi))
    s = (k + 1.0) ** 2
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / s) / s) / (k + 1.0)


def multinomial(probs, num_samples, replacement=False, generator=None, dtype=None):
    """Draws category indices (int64) by the weights in a 1-d or 2-d float array
    (`torch.multinomial`).

    Shape: probs (n,) or (m, n) -> (num_samples,) or (m, num_samples). `dtype` is the weights' dtype
    if it differs from the array's. Without replacement, categories whose keys are equal (likely in
    16 bits, and all those of weight zero) are taken in index order; PyTorch's order among them is
    undefined.
    """
    generator = generator or default_generator
    kind = kind_of(dtype or probs.dtype)
    if probs.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not kind.digits:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {kind.label}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > probs.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    shape = probs.shape[:-1] + (num_samples,)
    if not probs.size:
        return np.empty(shape, np.int64)
    p = upcast(probs, kind)
    if not (np.isfinite(p) & (p >= 0)).all():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if (p.max(axis=-1) <= 0).any():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if replacement and num_samples > 1:
        rows = p.reshape(-1, p.shape[-1])
        total = np.cumsum(rows, axis=1, dtype=p.dtype)
        total /= total[:, -1:]
        u = generator._doubles(len(rows) * num_samples).reshape(len(rows), num_samples)
        return np.stack([np.searchsorted(t.astype(np.float64), v) for t, v in zip(total, u, strict=True)]).reshape(
            shape
        )
    # A race: each category waits an exponential time divided by its weight, and the earliest are
    # drawn.
    order = drawing_order(probs.shape, strides_of(probs))
    q = exponential(tuple([p.shape[d] for d in order]), kind.name, 1.0, generator).transpose(np.argsort(order))
    with np.errstate(divide="ignore", over="ignore"):
        q = as_kind(np.divide(p, q), kind._replace(np=p.dtype), p.shape)
    if num_samples == 1:
        return q.argmax(axis=-1, keepdims=True)
    return np.argsort(-q, axis=-1, kind="stable")[..., :num_samples].copy()
