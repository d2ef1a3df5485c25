"""Von Mises distribution (the normal distribution of angles)."""
import math

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.distribution import Distribution
from mindtorch.torch.distributions.utils import broadcast_all, lazy_property

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles around `loc` with a density proportional to exp(concentration cos(x - loc)).

    Samples are computed in float64 by rejection from a wrapped Cauchy distribution (Best and
    Fisher, 1979).
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    def __init__(self, loc, concentration, validate_args=None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, Size(), validate_args)

    def expand(self, batch_shape, _instance=None):
        validate_args = self.__dict__.get("_validate_args")
        return type(self)(self.loc.expand(batch_shape), self.concentration.expand(batch_shape), validate_args=validate_args)

    def log_prob(self, value):
        self._validate_value(value)
        k = self.concentration
        # log I0(k) = log(exp(-k) I0(k)) + k does not overflow.
        return k * torch.cos(value - self.loc) - math.log(2 * math.pi) - torch.special.i0e(k).log() - k

    @lazy_property
    def _loc(self):
        return self.loc.to(torch.double)

    @lazy_property
    def _concentration(self):
        return self.concentration.to(torch.double)

    @lazy_property
    def _proposal_r(self):
        k = self._concentration
        tau = 1 + (1 + 4 * k ** 2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        r = (1 + rho ** 2) / (2 * rho)
        # For tiny concentrations the formula suffers from cancellation. Its series is 1 / k + k.
        return torch.where(k < 1e-5, 1 / k + k, r)

    def sample(self, sample_shape=Size()):
        with torch.no_grad():
            shape = self._extended_shape(sample_shape)
            loc, k, r = self._loc.expand(shape), self._concentration.expand(shape), self._proposal_r.expand(shape)
            x = torch.empty(shape, dtype=self._loc.dtype, device=self.loc.device)
            done = torch.zeros(shape, dtype=torch.bool, device=self.loc.device)
            while not done.all():
                u1, u2, u3 = torch.rand((3,) + x.shape, dtype=loc.dtype, device=loc.device).unbind()
                z = torch.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                accept = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
                if accept.any():
                    x = torch.where(accept, (u3 - 0.5).sign() * f.acos(), x)
                    done = done | accept
            return ((x + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)

    @lazy_property
    def variance(self):
        """Circular variance: 1 - I1 / I0."""
        return 1 - torch.special.i1e(self.concentration) / torch.special.i0e(self.concentration)
