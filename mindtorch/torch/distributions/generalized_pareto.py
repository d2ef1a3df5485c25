"""Generalised Pareto distribution."""
import math

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.distribution import Distribution
from mindtorch.torch.distributions.utils import broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Excesses over a threshold `loc`, with scale `scale` and tail index `concentration` (0:
    exponential)."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc, scale, concentration, validate_args=None):
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.size(), validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return self._expand_parameters(GeneralizedPareto, batch_shape, _instance)

    def _exponential(self):
        """Returns (mask of zero concentrations, the concentration with these entries replaced by
        1)."""
        zero = torch.isclose(self.concentration, torch.zeros_like(self.concentration))
        return zero, torch.where(zero, torch.ones_like(self.concentration), self.concentration)

    def _z(self, x):
        return (x - self.loc) / self.scale

    def rsample(self, sample_shape=Size()):
        return self.icdf(torch.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value):
        self._validate_value(value)
        z = self._z(value)
        zero, c = self._exponential()
        power = 1 / c + torch.ones_like(z)
        return -self.scale.log() - torch.where(zero, z, power * torch.log1p(z * c))

    def log_survival_function(self, value):
        """Returns log(1 - cdf(value))."""
        self._validate_value(value)
        z = self._z(value)
        zero, c = self._exponential()
        return torch.where(zero, -z, -torch.log1p(c * z) / c)

    def log_cdf(self, value):
        """Returns log(cdf(value))."""
        return torch.log1p(-torch.exp(self.log_survival_function(value)))

    def cdf(self, value):
        return torch.exp(self.log_cdf(value))

    def icdf(self, value):
        zero, c = self._exponential()
        log_rest = torch.log1p(-value)
        return self.loc + self.scale * torch.where(zero, -log_rest, torch.expm1(-c * log_rest) / c)

    @property
    def mean(self):
        m = self.loc + self.scale / (1 - self.concentration)
        return torch.where(self.concentration < 1, m, math.nan)

    @property
    def variance(self):
        c = self.concentration
        v = self.scale ** 2 / ((1 - c) ** 2 * (1 - 2 * c))
        return torch.where(c < 0.5, v, math.nan)

    def entropy(self):
        return (self.scale.log() + self.concentration + 1).expand(self._batch_shape)

    @property
    def mode(self):
        return self.loc

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        upper = torch.where(self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
        return constraints.interval(self.loc, upper)
