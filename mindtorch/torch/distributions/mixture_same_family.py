"""Mixtures of distributions of the same family."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.categorical import Categorical
from mindtorch.torch.distributions.distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """Mixture whose component is chosen by a Categorical. The last batch dimension of
    `component_distribution` indexes the components."""

    arg_constraints = {}
    has_rsample = False

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of torch.distributions.Distribution")
        of_mixture, of_component = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        for a, b in zip(reversed(of_mixture), reversed(of_component)):
            if a != 1 and b != 1 and a != b:
                raise ValueError(f"`mixture_distribution.batch_shape` ({of_mixture}) is not compatible with "
                                 f"`component_distribution.batch_shape`({of_component})")
        k, kc = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if k != kc:
            raise ValueError(f"`mixture_distribution component` ({k}) does not equal `component_distribution.batch_shape[-1]` ({kc})")
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        self._num_component, self._event_ndims = k, len(component_distribution.event_shape)
        super().__init__(of_component, component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        batch_shape = Size(tuple(batch_shape))
        new._component_distribution = self._component_distribution.expand(batch_shape + (self._num_component,))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        super(MixtureSameFamily, new).__init__(batch_shape, new._component_distribution.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property
    def support(self):
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    def _weighted(self, values):
        """Returns the weighted mean of the components' values of shape (..., K, event)."""
        weights = self._weights(self.mixture_distribution.probs)
        return torch.sum(weights * values, dim=-1 - self._event_ndims)

    def _weights(self, x):
        """Reshapes (batch, K) to add the event dimensions."""
        return x.reshape(x.shape + (1,) * self._event_ndims)

    @property
    def mean(self):
        return self._weighted(self.component_distribution.mean)

    @property
    def variance(self):
        # Mean of the variances plus variance of the means.
        away = self.component_distribution.mean - self.mean.unsqueeze(-1 - self._event_ndims)
        return self._weighted(self.component_distribution.variance) + self._weighted(away.pow(2))

    def cdf(self, x):
        return torch.sum(self.component_distribution.cdf(self._pad(x)) * self.mixture_distribution.probs, dim=-1)

    def log_prob(self, x):
        if self._validate_args:
            self._validate_sample(x)
        log_prob = self.component_distribution.log_prob(self._pad(x))
        log_mix = torch.log_softmax(self.mixture_distribution.logits, dim=-1)
        return torch.logsumexp(log_prob + log_mix, dim=-1)

    def sample(self, sample_shape=Size()):
        with torch.no_grad():
            sample_shape = Size(tuple(sample_shape))
            dim = len(sample_shape) + len(self.batch_shape)
            chosen = self.mixture_distribution.sample(sample_shape)
            samples = self.component_distribution.sample(sample_shape)
            index = chosen.reshape(chosen.shape + (1,) * (self._event_ndims + 1))
            index = index.expand(chosen.shape + (1,) + self.event_shape)
            return torch.gather(samples, dim, index).squeeze(dim)

    def _pad(self, x):
        return x.unsqueeze(-1 - self._event_ndims)

    def __repr__(self):
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
