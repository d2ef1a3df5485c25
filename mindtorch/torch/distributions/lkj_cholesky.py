"""LKJ distribution of Cholesky factors of correlation matrices."""
import math

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.beta import Beta
from mindtorch.torch.distributions.distribution import Distribution
from mindtorch.torch.distributions.utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors L of dim x dim correlation matrices with density det(L L')^(concentration -
    1).

    Samples row by row (the onion method of Lewandowski, Kurowicka and Joe, 2009): a beta variable
    is the squared length of a row before the diagonal, a point on the sphere its direction.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        row = torch.arange(dim - 1, dtype=self.concentration.dtype, device=self.concentration.device)
        row = torch.cat([row.new_zeros((1,)), row])
        marginal = self.concentration + 0.5 * (dim - 2)
        self._beta = Beta(row + 0.5, marginal.unsqueeze(-1) - 0.5 * row)
        super().__init__(self.concentration.size(), Size((dim, dim)), validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._expand_parameters(LKJCholesky, batch_shape, _instance)
        new.dim = self.dim
        new._beta = self._beta.expand(Size(tuple(batch_shape)) + (self.dim,))
        return new

    def sample(self, sample_shape=Size()):
        length = self._beta.sample(sample_shape).unsqueeze(-1)
        u = torch.randn(self._extended_shape(sample_shape), dtype=length.dtype, device=length.device).tril(-1)
        u = u / u.norm(dim=-1, keepdim=True)
        u[..., 0, :].fill_(0.0)  # the first row has no elements before the diagonal
        w = torch.sqrt(length) * u
        rest = torch.clamp(1 - torch.sum(w ** 2, dim=-1), min=torch.finfo(w.dtype).tiny)
        return w + torch.diag_embed(rest.sqrt())

    def log_prob(self, value):
        self._validate_value(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = torch.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        density = torch.sum(order * diagonal.log(), dim=-1)
        n = self.dim - 1
        alpha = self.concentration + 0.5 * n
        volume = 0.5 * n * math.log(math.pi) + torch.mvlgamma(alpha - 0.5, n) - torch.lgamma(alpha) * n
        return density - volume
