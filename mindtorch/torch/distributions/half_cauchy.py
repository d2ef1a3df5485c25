"""Half-Cauchy distribution."""
import math

import mindtorch.torch as torch
from mindtorch.torch.distributions._folded import _Folded
from mindtorch.torch.distributions.cauchy import Cauchy

__all__ = ["HalfCauchy"]


class HalfCauchy(_Folded):
    """Distribution of |x| for a Cauchy variable x with median 0."""

    _whole = Cauchy

    def expand(self, batch_shape, _instance=None):
        return super().expand(batch_shape, _instance=self._get_checked_instance(HalfCauchy, _instance))

    mean = property(lambda self: torch.full(self._extended_shape(), math.inf, dtype=self.scale.dtype, device=self.scale.device))
    variance = property(lambda self: self.base_dist.variance)

    def _as_value(self, value):
        return torch.as_tensor(value, dtype=self.base_dist.scale.dtype, device=self.base_dist.scale.device)
