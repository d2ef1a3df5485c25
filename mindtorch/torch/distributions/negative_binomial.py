"""Negative binomial distribution."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.bernoulli import BinaryParameters
from mindtorch.torch.distributions.distribution import Distribution
from mindtorch.torch.distributions.gamma import Gamma
from mindtorch.torch.distributions.utils import lazy_property
from mindtorch.torch.nn.functional import logsigmoid

__all__ = ["NegativeBinomial"]


class NegativeBinomial(BinaryParameters, Distribution):
    """Number of successes, with success probability `probs`, before `total_count` failures."""

    arg_constraints = {"total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0),
                       "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        (count,) = self._take(probs, logits, total_count)
        self.total_count = count.type_as(self._param)
        super().__init__(self._param.size(), validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return self._expand_parameters(NegativeBinomial, batch_shape, _instance)._reset_param()

    mean = property(lambda self: self.total_count * torch.exp(self.logits))
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0))
    variance = property(lambda self: self.mean / torch.sigmoid(-self.logits))

    @lazy_property
    def _gamma(self):
        # A negative binomial is a Poisson distribution with a gamma-distributed rate. The
        # parameters are already validated.
        return Gamma(concentration=self.total_count, rate=torch.exp(-self.logits), validate_args=False)

    def sample(self, sample_shape=Size()):
        with torch.no_grad():
            return torch.poisson(self._gamma.sample(sample_shape=sample_shape))

    def log_prob(self, value):
        self._validate_value(value)
        n = self.total_count
        weight = n * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        ways = torch.lgamma(n + value) - torch.lgamma(1.0 + value) - torch.lgamma(n)
        # With 0 failures and 0 successes the number of combinations is 1, but lgamma(0) - lgamma(0)
        # is NaN.
        return weight + ways.masked_fill(n + value == 0.0, 0.0)
