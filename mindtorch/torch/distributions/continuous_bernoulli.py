"""Continuous Bernoulli distribution."""
import math

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.bernoulli import BinaryParameters
from mindtorch.torch.distributions.exp_family import ExponentialFamily
from mindtorch.torch.distributions.utils import broadcast_all, clamp_probs
from mindtorch.torch.nn.functional import binary_cross_entropy_with_logits

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(BinaryParameters, ExponentialFamily):
    """Values in [0, 1] with a density proportional to probs^x (1 - probs)^(1 - x).

    Near probs = 1/2 (within `lims`) the formulas become 0/0, so Taylor series replace them.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        self._take(probs, logits)
        if probs is not None:
            if validate_args is not None and not self.arg_constraints["probs"].check(self.probs).all():
                raise ValueError("The parameter probs has invalid values")
            self.probs = self._param = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(self._param.size(), validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._expand_parameters(ContinuousBernoulli, batch_shape, _instance)
        new._lims = self._lims
        return new._reset_param()

    def _far(self):
        """True where `probs` is far enough from 1/2 for the formulas."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _safe_probs(self):
        return torch.where(self._far(), self.probs, self._lims[0] * torch.ones_like(self.probs))

    def _cont_bern_log_norm(self):
        """Returns log(2 artanh(1 - 2 p) / (1 - 2 p))."""
        p = self._safe_probs()
        below = torch.where(p <= 0.5, p, torch.zeros_like(p))
        above = torch.where(p >= 0.5, p, torch.ones_like(p))
        log_norm = torch.log(torch.abs(torch.log1p(-p) - torch.log(p))) - torch.where(
            p <= 0.5, torch.log1p(-2.0 * below), torch.log(2.0 * above - 1.0))
        x = torch.pow(self.probs - 0.5, 2)
        series = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return torch.where(self._far(), log_norm, series)

    @property
    def mean(self):
        p = self._safe_probs()
        mean = p / (2.0 * p - 1.0) + 1.0 / (torch.log1p(-p) - torch.log(p))
        x = self.probs - 0.5
        series = 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * torch.pow(x, 2)) * x
        return torch.where(self._far(), mean, series)

    @property
    def stddev(self):
        return torch.sqrt(self.variance)

    @property
    def variance(self):
        p = self._safe_probs()
        v = p * (p - 1.0) / torch.pow(1.0 - 2.0 * p, 2) + 1.0 / torch.pow(torch.log1p(-p) - torch.log(p), 2)
        x = torch.pow(self.probs - 0.5, 2)
        series = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x
        return torch.where(self._far(), v, series)

    def _uniform(self, sample_shape):
        return torch.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device)

    def sample(self, sample_shape=Size()):
        u = self._uniform(sample_shape)
        with torch.no_grad():
            return self.icdf(u)

    def rsample(self, sample_shape=Size()):
        return self.icdf(self._uniform(sample_shape))

    def log_prob(self, value):
        self._validate_value(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none") + self._cont_bern_log_norm()

    def cdf(self, value):
        self._validate_value(value)
        p = self._safe_probs()
        c = (torch.pow(p, value) * torch.pow(1.0 - p, 1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        c = torch.where(self._far(), c, value)
        return torch.where(torch.le(value, 0.0), torch.zeros_like(value), torch.where(torch.ge(value, 1.0), torch.ones_like(value), c))

    def icdf(self, value):
        p = self._safe_probs()
        x = (torch.log1p(-p + value * (2.0 * p - 1.0)) - torch.log1p(-p)) / (torch.log(p) - torch.log1p(-p))
        return torch.where(self._far(), x, value)

    def entropy(self):
        log0, log1 = torch.log1p(-self.probs), torch.log(self.probs)
        return self.mean * (log0 - log1) - self._cont_bern_log_norm() - log0

    @property
    def _natural_params(self):
        return (self.logits,)

    def _log_normalizer(self, x):
        """Returns log((exp(x) - 1) / x), from its Taylor series near 0."""
        far = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        safe = torch.where(far, x, (self._lims[0] - 0.5) * torch.ones_like(x))
        log_norm = torch.log(torch.abs(torch.special.expm1(safe))) - torch.log(torch.abs(safe))
        return torch.where(far, log_norm, 0.5 * x + torch.pow(x, 2) / 24.0 - torch.pow(x, 4) / 2880.0)
