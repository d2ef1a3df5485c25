"""Exponential families, whose entropy is computed from their log normaliser."""
import mindtorch.torch as torch
from mindtorch.torch.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Distributions with density exp(<t(x), eta> - F(eta) + k(x)), natural parameters eta and log
    normaliser F."""

    @property
    def _natural_params(self):
        """Tuple of the natural parameters."""
        raise NotImplementedError

    def _log_normalizer(self, *natural_params):
        """Returns F at these natural parameters."""
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self):
        """Mean of k(x)."""
        raise NotImplementedError

    def entropy(self):
        """Computes F(eta) - <eta, grad F(eta)> minus the mean carrier measure."""
        params = [p.detach().requires_grad_() for p in self._natural_params]
        normaliser = self._log_normalizer(*params)
        slopes = torch.autograd.grad(normaliser.sum(), params, create_graph=True)
        result = normaliser - self._mean_carrier_measure
        for p, s in zip(params, slopes):
            result = result - (p * s).reshape(self._batch_shape + (-1,)).sum(-1)
        return result
