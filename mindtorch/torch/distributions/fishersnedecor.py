"""Fisher-Snedecor (F) distribution."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.distribution import Distribution
from mindtorch.torch.distributions.gamma import Gamma
from mindtorch.torch.distributions.utils import broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """Ratio of two chi-squared variables, each divided by its degrees of freedom, df1 and df2."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1, df2, validate_args=None):
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1, self._gamma2 = Gamma(self.df1 * 0.5, self.df1), Gamma(self.df2 * 0.5, self.df2)
        super().__init__(self.df1.size(), validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._expand_parameters(FisherSnedecor, batch_shape, _instance)
        new._gamma1, new._gamma2 = self._gamma1.expand(batch_shape), self._gamma2.expand(batch_shape)
        return new

    @property
    def mean(self):
        return torch.where(self.df2 <= 2, torch.nan, self.df2 / (self.df2 - 2))

    @property
    def mode(self):
        m = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return torch.where(self.df1 <= 2, torch.nan, m)

    @property
    def variance(self):
        d = torch.where(self.df2 <= 4, torch.nan, self.df2)
        return 2 * d.pow(2) * (self.df1 + d - 2) / (self.df1 * (d - 2).pow(2) * (d - 4))

    def rsample(self, sample_shape=Size()):
        shape = self._extended_shape(sample_shape)
        top, bottom = self._gamma1.rsample(sample_shape).view(shape), self._gamma2.rsample(sample_shape).view(shape)
        tiny = torch.finfo(bottom.dtype).tiny
        bottom.clamp_(min=tiny)
        r = top / bottom
        r.clamp_(min=tiny)
        return r

    def log_prob(self, value):
        self._validate_value(value)
        half1, half2, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        constant = (half1 + half2).lgamma() - half1.lgamma() - half2.lgamma()
        return constant + half1 * ratio.log() + (half1 - 1) * torch.log(value) - (half1 + half2) * torch.log1p(ratio * value)
