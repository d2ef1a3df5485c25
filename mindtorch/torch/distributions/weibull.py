"""Weibull distribution."""
import mindtorch.torch as torch
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.exponential import Exponential
from mindtorch.torch.distributions.transformed_distribution import TransformedDistribution
from mindtorch.torch.distributions.transforms import AffineTransform, PowerTransform
from mindtorch.torch.distributions.utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """Weibull distribution with scale `scale` and shape `concentration`."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale, concentration, validate_args=None):
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(torch.ones_like(self.scale), validate_args=validate_args)
        super().__init__(base, self._steps(), validate_args=validate_args)

    def _steps(self):
        return [PowerTransform(exponent=self.concentration_reciprocal), AffineTransform(loc=0, scale=self.scale)]

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Weibull, _instance)
        new.scale, new.concentration = self.scale.expand(batch_shape), self.concentration.expand(batch_shape)
        new.concentration_reciprocal = new.concentration.reciprocal()
        super(Weibull, new).__init__(self.base_dist.expand(batch_shape), new._steps(), validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _gamma(self, n):
        """Returns Gamma(1 + n / concentration)."""
        return torch.exp(torch.lgamma(1 + n * self.concentration_reciprocal))

    mean = property(lambda self: self.scale * self._gamma(1))
    variance = property(lambda self: self.scale.pow(2) * (self._gamma(2) - self._gamma(1).pow(2)))
    mode = property(lambda self: self.scale * ((self.concentration - 1) / self.concentration) ** self.concentration.reciprocal())

    def entropy(self):
        return euler_constant * (1 - self.concentration_reciprocal) + torch.log(self.scale * self.concentration_reciprocal) + 1
