"""Kumaraswamy distribution."""
import mindtorch.torch as torch
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.transformed_distribution import TransformedDistribution
from mindtorch.torch.distributions.transforms import AffineTransform, PowerTransform
from mindtorch.torch.distributions.uniform import Uniform
from mindtorch.torch.distributions.utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


def _moment(a, b, n):
    """Returns the n-th moment, b B(1 + n / a, b)."""
    first = 1 + n / a
    return torch.exp(b.log() + torch.lgamma(first) + torch.lgamma(b) - torch.lgamma(first + b))


class Kumaraswamy(TransformedDistribution):
    """Distribution on (0, 1) with the cdf 1 - (1 - x^concentration1)^concentration0."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(torch.full_like(self.concentration0, 0), torch.full_like(self.concentration0, 1), validate_args=validate_args)
        steps = [PowerTransform(exponent=self.concentration0.reciprocal()), AffineTransform(loc=1.0, scale=-1.0),
                 PowerTransform(exponent=self.concentration1.reciprocal())]
        super().__init__(base, steps, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Kumaraswamy, _instance)
        new.concentration1, new.concentration0 = self.concentration1.expand(batch_shape), self.concentration0.expand(batch_shape)
        return super().expand(batch_shape, _instance=new)

    mean = property(lambda self: _moment(self.concentration1, self.concentration0, 1))
    variance = property(lambda self: _moment(self.concentration1, self.concentration0, 2) - self.mean.pow(2))

    @property
    def mode(self):
        a, b = self.concentration1, self.concentration0
        log = a.reciprocal() * (-b).log1p() - (-a * b).log1p()
        log = torch.where((a < 1) | (b < 1), torch.nan, log)
        return log.exp()

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        harmonic = torch.digamma(b + 1) + euler_constant
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - torch.log(a) - torch.log(b)
