"""Multivariate normal distribution."""
import math

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.distribution import Distribution
from mindtorch.torch.distributions.utils import _standard_normal, lazy_property

__all__ = ["MultivariateNormal"]


def times_vector(mat, vec):
    """Multiplies batches of matrices and vectors."""
    return torch.matmul(mat, vec.unsqueeze(-1)).squeeze(-1)


def mahalanobis(tril, x):
    """Returns the squared length of L^-1 x, for lower-triangular L and vectors x, broadcast against
    each other."""
    n = tril.shape[-1]
    shape = torch.broadcast_shapes(tril.shape[:-2], x.shape[:-1])
    lower, v = tril.expand(shape + (n, n)), x.expand(shape + (n,))
    return torch.linalg.solve_triangular(lower, v.unsqueeze(-1), upper=False).squeeze(-1).pow(2).sum(-1)


def tril_of_precision(precision):
    """Returns the Cholesky factor of the inverse of a positive definite matrix, without forming the
    inverse."""
    # With J the reversal of the order, P = J C C' J. Then J C' J is a factor of P, and its inverse
    # is a factor of P^-1.
    factor = torch.linalg.cholesky(torch.flip(precision, (-2, -1)))
    upper = torch.flip(factor, (-2, -1)).mT
    eye = torch.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return torch.linalg.solve_triangular(upper, eye, upper=False)


def tril_of(name, matrix):
    """Returns the Cholesky factor of the covariance matrix for the parameter `name`."""
    if name == "scale_tril":
        return matrix
    return torch.linalg.cholesky(matrix) if name == "covariance_matrix" else tril_of_precision(matrix)


def half_log_det(tril):
    """Returns the log of the determinant of a lower-triangular matrix."""
    return tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class MultivariateNormal(Distribution):
    """Multivariate normal distribution with mean `loc`, and its covariance, precision or Cholesky
    factor."""

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {n: m for n, m in given.items() if m is not None}
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            raise ValueError(f"{name} matrix must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape = torch.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.__dict__[name] = matrix.expand(batch_shape + (-1, -1))
        self.loc = loc.expand(batch_shape + (-1,))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = tril_of(name, matrix)

    def expand(self, batch_shape, _instance=None):
        new = self._expand_parameters(MultivariateNormal, batch_shape, _instance)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return new

    def _expanded(self, matrix):
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self):
        return self._expanded(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        return self._expanded(torch.matmul(self._unbroadcasted_scale_tril, self._unbroadcasted_scale_tril.mT))

    @lazy_property
    def precision_matrix(self):
        return self._expanded(torch.cholesky_inverse(self._unbroadcasted_scale_tril))

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(self._batch_shape + self._event_shape))

    def rsample(self, sample_shape=Size()):
        eps = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + times_vector(self._unbroadcasted_scale_tril, eps)

    def log_prob(self, value):
        self._validate_value(value)
        distance = mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - half_log_det(self._unbroadcasted_scale_tril)

    def entropy(self):
        h = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + half_log_det(self._unbroadcasted_scale_tril)
        return h if len(self._batch_shape) == 0 else h.expand(self._batch_shape)
