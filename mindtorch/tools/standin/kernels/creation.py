"""Fills, ranges, random numbers, dropout."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import generator, kernel


def _same(self, value):
    """Expands a Python scalar, or a tensor of one element, to self's shape."""
    value = value.reshape(()) if isinstance(value, torch.Tensor) else torch.full((), value, dtype=self.dtype)
    return value.expand(self.shape)


kernel("InplaceZero", "self!")(lambda self: _same(self, 0))
kernel("InplaceOne", "self!")(lambda self: _same(self, 1))
kernel("InplaceFillScalar", "self!, value:scalar")(_same)
kernel("InplaceFillTensor", "self!, value")(_same)
kernel("InplaceFillDiagonal", "self!, value:scalar, wrap:bool")(lambda self, value, wrap: self.clone().fill_diagonal_(value, wrap))
kernel("Arange", "start:scalar, end:scalar, step:scalar, out!")(lambda start, end, step, out: torch.arange(start, end, step, dtype=out.dtype))
kernel("Linspace", "start:scalar, end:scalar, steps:int, out!")(lambda start, end, steps, out: torch.linspace(start, end, steps, dtype=out.dtype))
kernel("Eye", "n:int, m:int, out!")(lambda n, m, out: torch.eye(n, m, dtype=out.dtype))

# Random numbers: drawn in float32 or int64, and cast to the output's dtype.


def _normal(shape, seed, offset):
    return torch.empty(shape).normal_(generator=generator(seed, offset))


def _bernoulli(self, p, seed, offset):
    p = p.float() if isinstance(p, torch.Tensor) else torch.full((), float(p))
    return torch.bernoulli(torch.broadcast_to(p, self.shape).contiguous(), generator=generator(seed, offset))


kernel("InplaceNormal", "self!, mean:float, std:float, seed:int, offset:int")(
    lambda self, mean, std, seed, offset: mean + std * _normal(self.shape, seed, offset))
kernel("InplaceUniform", "self!, low:double, high:double, seed:int, offset:int")(
    lambda self, low, high, seed, offset: torch.empty(self.shape).uniform_(low, high, generator=generator(seed, offset)))
kernel("InplaceRandom", "self!, low:int, high:int, seed:int, offset:int")(
    lambda self, low, high, seed, offset: torch.randint(low, high, tuple(self.shape), generator=generator(seed, offset)))
kernel("InplaceBernoulli", "self!, prob:scalar, seed:int, offset:int")(_bernoulli)
kernel("InplaceBernoulliTensor", "self!, prob, seed:int, offset:int")(_bernoulli)
for _form, _mean, _std in (("FloatFloat", ":float", ":float"), ("TensorTensor", "", ""), ("TensorFloat", "", ":float"), ("FloatTensor", ":float", "")):
    kernel("Normal" + _form, f"mean{_mean}, std{_std}, seed:int, offset:int, out!")(
        lambda mean, std, seed, offset, out: mean + std * _normal(out.shape, seed, offset))
kernel("Randperm", "n:int, seed:int, offset:int, out!")(lambda n, seed, offset, out: torch.randperm(n, generator=generator(seed, offset)))
kernel("Multinomial", "self, num_samples:int, replacement:bool, seed:int, offset:int, out!")(
    lambda self, num_samples, replacement, seed, offset, out: torch.multinomial(self, num_samples, replacement, generator=generator(seed, offset)))

# Dropout: one bit per element, least significant first, padded to multiples of 16 bytes; a bit is
# zero with the given probability.


@kernel("DropoutGenMaskV2", "shape:ints, prob:double, seed:int, offset:int, dtype:int32, out!")
def _mask(shape, prob, seed, offset, dtype, out):
    number = 1
    for n in shape:
        number *= n
    if out.numel() * 8 < number:
        raise ValueError(f"a mask of {out.numel()} bytes for {number} elements")
    bits = torch.zeros(out.numel() * 8, dtype=torch.int32)
    bits[:number] = (torch.rand(number, generator=generator(seed, offset)) >= prob).to(torch.int32)
    return (bits.reshape(-1, 8) << torch.arange(8, dtype=torch.int32)).sum(1)


@kernel("DropoutDoMask", "self, mask, prob:double, out!")
def _dropout(self, mask, prob, out):
    bits = (mask.reshape(-1, 1) >> torch.arange(8, dtype=torch.uint8)) & 1
    retained = bits.reshape(-1)[:self.numel()].reshape(self.shape).bool()
    return torch.where(retained, self / (1 - prob), torch.zeros_like(self)) if prob < 1 else torch.zeros_like(self)
