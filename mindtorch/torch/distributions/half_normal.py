"""Half-normal distribution."""
import math

from mindtorch.torch.distributions._folded import _Folded
from mindtorch.torch.distributions.normal import Normal

__all__ = ["HalfNormal"]


class HalfNormal(_Folded):
    """Distribution of |x| for a normal variable x with mean 0."""

    _whole = Normal

    def expand(self, batch_shape, _instance=None):
        return super().expand(batch_shape, _instance=self._get_checked_instance(HalfNormal, _instance))

    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale.pow(2) * (1 - 2 / math.pi))
