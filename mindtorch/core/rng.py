"""The generators of random numbers, and what draws from the host's without making tensors (backend/cpu/rng.py)."""
from mindtorch.backend.cpu import rng as _host
from mindtorch.backend.cpu.rng import (Generator, bernoulli, bernoulli_mask, binomial, cauchy, exponential, geometric,  # noqa: F401
                                       in_memory_order, log_normal, multinomial, normal, normal_like, poisson, randint, random, randperm,
                                       rrelu_noise, standard_dirichlet, standard_gamma, trunc_normal, uniform)

default_generator = _host.default_generator


def set_default(generator):
    """Makes a generator the one that is drawn from where none is named."""
    global default_generator
    default_generator = _host.default_generator = generator
