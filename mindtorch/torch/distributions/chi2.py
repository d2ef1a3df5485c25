"""Chi-squared distribution."""
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.gamma import Gamma

__all__ = ["Chi2"]


class Chi2(Gamma):
    """Distribution of the sum of `df` squared standard normal variables."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df, validate_args=None):
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return super().expand(batch_shape, self._get_checked_instance(Chi2, _instance))

    @property
    def df(self):
        return self.concentration * 2
