"""Kernels that draw random numbers (`rng.py`).

PyTorch fills a tensor in memory order, whatever the order of its dimensions. Kernels whose names
end in `_` fill the array that they receive. The others allocate one with the dense strides
`stride`, in elements (None: C order).
"""
import numpy as np

from mindtorch.backend.cpu import kernel, random
from mindtorch.backend.strides import empty


def _drawn(a, d):
    """Returns a result of `rng` in dtype `d` (`rng` returns bfloat16 values as float32)."""
    return a if a.dtype == d else a.astype(d)


def _order(a):
    """Returns a view of the array in memory order."""
    return a if a.flags.c_contiguous else random.in_memory_order(a)


def _into(v):
    """Returns v if random numbers can be generated directly in its memory, else None."""
    return v if v.flags.c_contiguous and v.flags.aligned and v.flags.writeable else None


# ------------------------------------------------------------------ in-place kernels
@kernel("uniform_")
def _uniform_(a, *, low, high, generator):
    v = _order(a)
    r = random.uniform(v.shape, a.dtype, low, high, generator, _into(v))
    if not np.may_share_memory(r, v):
        v[...] = r


@kernel("normal_")
def _normal_(a, *, mean, std, generator):
    if a.size:
        v = _order(a)
        # PyTorch uses another algorithm if the target is not contiguous.
        r = random.normal(v.shape, a.dtype, mean, std, generator, v is a, _into(v))
        if r is not v:
            v[...] = r
    else:
        random._check_std(std)  # an empty tensor may have any dtype, as in PyTorch


@kernel("randint_")
def _randint_(a, *, low, high, generator):
    v = _order(a)
    v[...] = random.randint(low, high, v.shape, a.dtype, generator)


@kernel("random_")
def _random_(a, *, generator):
    v = _order(a)
    v[...] = random.random(v.shape, a.dtype, generator)


@kernel("bernoulli_")
def _bernoulli_(a, *, p, generator):
    v = _order(a)
    v[...] = random.bernoulli_mask(v.shape, p, generator)


@kernel("bernoulli_by_")
def _bernoulli_by_(a, p, *, generator):
    q = np.broadcast_to(p, a.shape)
    if not a.flags.c_contiguous:
        order = sorted(range(a.ndim), key=lambda ax: -abs(a.strides[ax]))
        a, q = a.transpose(order), q.transpose(order)
    a[...] = random.bernoulli(np.ascontiguousarray(q), generator).reshape(a.shape)


@kernel("exponential_")
def _exponential_(a, *, lambd, generator):
    v = _order(a)
    v[...] = random.exponential(v.shape, a.dtype, lambd, generator)


@kernel("geometric_")
def _geometric_(a, *, p, generator):
    v = _order(a)
    v[...] = random.geometric(v.shape, a.dtype, p, generator)


@kernel("cauchy_")
def _cauchy_(a, *, median, sigma, generator):
    v = _order(a)
    v[...] = random.cauchy(v.shape, a.dtype, median, sigma, generator)


@kernel("log_normal_")
def _log_normal_(a, *, mean, std, generator):
    v = _order(a)
    v[...] = random.log_normal(v.shape, a.dtype, mean, std, generator)


# ------------------------------------------------------------------ new arrays
@kernel("uniform")
def _uniform(size, stride, np_dtype, generator, device):
    if stride is None:
        return _drawn(random.uniform(size, np_dtype, 0.0, 1.0, generator), np_dtype)
    r = empty(size, np_dtype, stride)
    _uniform_(r, low=0.0, high=1.0, generator=generator)
    return r


@kernel("normal")
def _normal(size, stride, mean, std, np_dtype, generator, device):
    if stride is None:
        return _drawn(random.normal(size, np_dtype, mean, std, generator), np_dtype)
    r = empty(size, np_dtype, stride)
    v = _order(r)
    v[...] = random.normal(v.shape, np_dtype, mean, std, generator, v is r)
    return r


@kernel("randint")
def _randint(size, stride, low, high, np_dtype, generator, device):
    if stride is None:
        return _drawn(random.randint(low, high, size, np_dtype, generator), np_dtype)
    r = empty(size, np_dtype, stride)
    _randint_(r, low=low, high=high, generator=generator)
    return r


@kernel("randperm")
def _randperm(n, np_dtype, generator, device):
    return _drawn(random.randperm(n, np_dtype, generator), np_dtype)


# ------------------------------------------------------------------ tensors of parameters
@kernel("normal_by")
def _normal_by(mean, std, *, loc, scale, generator):
    """loc, scale: the mean and the standard deviation, used where no tensor is passed for them."""
    d = (std if mean is None else mean).dtype
    shape = np.broadcast_shapes(*[x.shape for x in (mean, std) if x is not None])
    return _drawn(random.normal_like(loc if mean is None else mean, scale if std is None else std, generator), d).reshape(shape)


@kernel("bernoulli")
def _bernoulli(a, *, generator):
    return random.bernoulli(a, generator).astype(a.dtype)


@kernel("bernoulli_p")
def _bernoulli_p(a, *, p, generator):
    return random.bernoulli_mask(a.shape, p, generator).astype(a.dtype)


@kernel("poisson")
def _poisson(a, *, generator):
    return _drawn(random.poisson(a, generator), a.dtype)


@kernel("binomial")
def _binomial(count, prob, *, generator):
    return random.binomial(count, prob, generator)


@kernel("multinomial")
def _multinomial(a, *, num_samples, replacement, generator):
    return random.multinomial(a, num_samples, replacement, generator)


@kernel("standard_gamma")
def _standard_gamma(a, *, generator):
    return random.standard_gamma(a, generator)


@kernel("dirichlet")
def _dirichlet(a, *, generator):
    return random.standard_dirichlet(a, generator)
