"""Kernels that draw random numbers (rng.py) as arrays of the dtype and the strides asked for.

torch fills memory from its beginning on, whatever the order of the dimensions: `stride` are the result's dense strides in elements, None
for C order.
"""
import numpy as np

from mindtorch.backend.cpu import kernel, rng
from mindtorch.backend.strides import empty


def _drawn(a, d):
    """What rng gave as an array of dtype `d` (it has bfloat16 values as float32)."""
    return a if a.dtype == d else a.astype(d)


def _in_memory(draw, size, stride, stype):
    """draw(shape) in the order of memory."""
    if stride is None:
        return _drawn(draw(size), stype)
    r = empty(size, stype, stride)
    v = r if r.flags.c_contiguous else rng.in_memory_order(r)
    v[...] = _drawn(draw(v.shape), stype)
    return r


# ------------------------------------------------------------------ numbers of one distribution
@kernel("uniform")
def _uniform(size, stride, low, high, stype, generator, device):
    return _in_memory(lambda s: rng.uniform(s, stype, low, high, generator), size, stride, stype)


@kernel("normal")
def _normal(size, stride, contiguous, mean, std, stype, generator, device):
    """contiguous: whether the tensor to be filled is; torch goes another way if not."""
    return _in_memory(lambda s: rng.normal(s, stype, mean, std, generator, contiguous), size, stride, stype)


@kernel("randint")
def _randint(size, stride, low, high, stype, generator, device):
    return _in_memory(lambda s: rng.randint(low, high, s, stype, generator), size, stride, stype)


@kernel("random")
def _random(size, stride, stype, generator, device):
    return _in_memory(lambda s: rng.random(s, stype, generator), size, stride, stype)


@kernel("bernoulli_number")
def _bernoulli_number(size, stride, p, stype, generator, device):
    return _in_memory(lambda s: rng.bernoulli_mask(s, p, generator), size, stride, stype)


@kernel("exponential")
def _exponential(size, stride, lambd, stype, generator, device):
    return _in_memory(lambda s: rng.exponential(s, stype, lambd, generator), size, stride, stype)


@kernel("geometric")
def _geometric(size, stride, p, stype, generator, device):
    return _in_memory(lambda s: rng.geometric(s, stype, p, generator), size, stride, stype)


@kernel("cauchy")
def _cauchy(size, stride, median, sigma, stype, generator, device):
    return _in_memory(lambda s: rng.cauchy(s, stype, median, sigma, generator), size, stride, stype)


@kernel("log_normal")
def _log_normal(size, stride, mean, std, stype, generator, device):
    return _in_memory(lambda s: rng.log_normal(s, stype, mean, std, generator), size, stride, stype)


@kernel("randperm")
def _randperm(n, stype, generator, device):
    return _drawn(rng.randperm(n, stype, generator), stype)


# ------------------------------------------------------------------ by tensors of parameters
@kernel("normal_by")
def _normal_by(mean, std, *, at, spread, generator):
    """at, spread: the mean and the standard deviation where no tensor gives it."""
    d = (std if mean is None else mean).dtype
    shape = np.broadcast_shapes(*[x.shape for x in (mean, std) if x is not None])
    return _drawn(rng.normal_like(at if mean is None else mean, spread if std is None else std, generator), d).reshape(shape)


@kernel("bernoulli")
def _bernoulli(a, *, generator):
    return rng.bernoulli(a, generator).astype(a.dtype)


@kernel("bernoulli_p")
def _bernoulli_p(a, *, p, generator):
    return rng.bernoulli_mask(a.shape, p, generator).astype(a.dtype)


@kernel("bernoulli_at")
def _bernoulli_at(p, *, size, stride, stype, generator):
    """For a tensor of this size, and of these strides, whatever they are."""
    q = np.broadcast_to(p, size)
    if stride is None:
        return rng.bernoulli(np.ascontiguousarray(q), generator).reshape(size).astype(stype)
    order = sorted(range(len(size)), key=lambda ax: -abs(stride[ax]))
    r = rng.bernoulli(np.ascontiguousarray(q.transpose(order)), generator).reshape([size[i] for i in order]).astype(stype)
    return r.transpose(sorted(range(len(order)), key=order.__getitem__))


@kernel("poisson")
def _poisson(a, *, generator):
    return _drawn(rng.poisson(a, generator), a.dtype)


@kernel("binomial")
def _binomial(count, prob, *, generator):
    return rng.binomial(count, prob, generator)


@kernel("multinomial")
def _multinomial(a, *, num_samples, replacement, generator):
    return rng.multinomial(a, num_samples, replacement, generator)


@kernel("standard_gamma")
def _standard_gamma(a, *, generator):
    return rng.standard_gamma(a, generator)


@kernel("dirichlet")
def _dirichlet(a, *, generator):
    return rng.standard_dirichlet(a, generator)
