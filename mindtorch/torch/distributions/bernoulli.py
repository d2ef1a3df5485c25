"""Bernoulli distribution."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.exp_family import ExponentialFamily
from mindtorch.torch.distributions.utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits
from mindtorch.torch.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Bernoulli"]


def one_of_probs_and_logits(probs, logits):
    """Raises ValueError unless exactly one of `probs` and `logits` is given."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class BinaryParameters:
    """Mixin of distributions with one probability. Computes the missing one of `probs` and `logits`
    lazily."""

    def _take(self, probs, logits, *others):
        """Stores the given one of `probs` and `logits`, broadcast with `others`. Returns the
        broadcast `others`."""
        one_of_probs_and_logits(probs, logits)
        name, value = ("probs", probs) if probs is not None else ("logits", logits)
        value, *others = broadcast_all(value, *others)
        self.__dict__[name] = value
        self._param = value
        return others

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self):
        return self._param.size()

    def _new(self, *args, **kwargs):
        return self._param.new(*args, **kwargs)

    def _reset_param(self):
        self._param = self.__dict__["probs" if "probs" in self.__dict__ else "logits"]
        return self


class Bernoulli(BinaryParameters, ExponentialFamily):
    """1 with probability `probs`, else 0."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._take(probs, logits)
        super().__init__(self._param.size(), validate_args=validate_args)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    @property
    def mode(self):
        mode = (self.probs >= 0.5).to(self.probs)
        mode[self.probs == 0.5] = torch.nan
        return mode

    def expand(self, batch_shape, _instance=None):
        return self._expand_parameters(Bernoulli, batch_shape, _instance)._reset_param()

    def sample(self, sample_shape=Size()):
        with torch.no_grad():
            return torch.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        self._validate_value(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand=True):
        values = torch.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + self._batch_shape) if expand else values

    @property
    def _natural_params(self):
        return (torch.logit(self.probs),)

    def _log_normalizer(self, x):
        return torch.log1p(torch.exp(x))
