"""Student's t distribution."""
import math

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.chi2 import Chi2
from mindtorch.torch.distributions.distribution import Distribution
from mindtorch.torch.distributions.utils import _standard_normal, broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """Student's t distribution with `df` degrees of freedom, shifted by `loc` and scaled by
    `scale`."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.size(), validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._expand_parameters(StudentT, batch_shape, _instance)
        new._chi2 = self._chi2.expand(batch_shape)
        return new

    mode = property(lambda self: self.loc)

    @property
    def mean(self):
        return torch.where(self.df <= 1, torch.nan, self.loc)

    @property
    def variance(self):
        v = torch.where(self.df > 2, self.scale.pow(2) * self.df / (self.df - 2), torch.inf)
        return torch.where(self.df <= 1, torch.nan, v)

    def rsample(self, sample_shape=Size()):
        x = _standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        return self.loc + self.scale * (x * torch.rsqrt(self._chi2.rsample(sample_shape) / self.df))

    def _log_normaliser(self):
        return (self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + torch.lgamma(0.5 * self.df)
                - torch.lgamma(0.5 * (self.df + 1.0)))

    def log_prob(self, value):
        self._validate_value(value)
        y = (value - self.loc) / self.scale
        return -0.5 * (self.df + 1.0) * torch.log1p(y ** 2.0 / self.df) - self._log_normaliser()

    def entropy(self):
        half = 0.5 * self.df
        beta = torch.lgamma(half) + math.lgamma(0.5) - torch.lgamma(0.5 * (self.df + 1))
        return self.scale.log() + 0.5 * (self.df + 1) * (torch.digamma(0.5 * (self.df + 1)) - torch.digamma(half)) + 0.5 * self.df.log() + beta
