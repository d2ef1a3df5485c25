"""Multivariate normal distribution whose covariance is a low-rank matrix plus a diagonal."""
import math

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.distribution import Distribution
from mindtorch.torch.distributions.multivariate_normal import half_log_det, mahalanobis, times_vector
from mindtorch.torch.distributions.utils import _standard_normal, lazy_property

__all__ = ["LowRankMultivariateNormal"]


def capacitance(factor, diagonal):
    """Returns the Cholesky factor of I + W' D^-1 W, the small matrix that gives the inverse and
    determinant of W W' + D."""
    rank = factor.size(-1)
    inner = torch.matmul(factor.mT / diagonal.unsqueeze(-2), factor)
    return torch.linalg.cholesky(inner + torch.eye(rank, dtype=factor.dtype, device=factor.device))


def log_det(factor, diagonal, tril):
    """Returns log det(W W' + D), by the matrix determinant lemma."""
    return 2 * half_log_det(tril) + diagonal.log().sum(-1)


def distance(factor, diagonal, x, tril):
    """Returns x' (W W' + D)^-1 x, by the Woodbury identity."""
    inner = times_vector(factor.mT / diagonal.unsqueeze(-2), x)
    return (x.pow(2) / diagonal).sum(-1) - mahalanobis(tril, inner)


class LowRankMultivariateNormal(Distribution):
    """Multivariate normal distribution with covariance cov_factor cov_factor' + diag(cov_diag)."""

    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
                       "cov_diag": constraints.independent(constraints.positive, 1)}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        n = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != n:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {n[0]} x m")
        if cov_diag.shape[-1:] != n:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {n}")
        try:
            batch_shape = torch.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as e:
            raise ValueError(f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}") from e
        self.loc, self.cov_diag = loc.expand(batch_shape + n), cov_diag.expand(batch_shape + n)
        self.cov_factor = cov_factor.expand(batch_shape + cov_factor.shape[-2:])
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = capacitance(cov_factor, cov_diag)
        super().__init__(batch_shape, n, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._expand_parameters(LowRankMultivariateNormal, batch_shape, _instance)
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            new.__dict__[name] = self.__dict__[name]
        return new

    def _expanded(self, matrix):
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)

    @lazy_property
    def variance(self):
        v = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return v.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self):
        # W W' + D = D^1/2 (K K' + I) D^1/2 with K = D^-1/2 W. The middle factor is well
        # conditioned.
        n, root = self._event_shape[0], self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        middle = torch.matmul(scaled, scaled.mT).contiguous()
        middle = middle + torch.eye(n, dtype=middle.dtype, device=middle.device)
        return self._expanded(root * torch.linalg.cholesky(middle))

    @lazy_property
    def covariance_matrix(self):
        w = self._unbroadcasted_cov_factor
        return self._expanded(torch.matmul(w, w.mT) + torch.diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def precision_matrix(self):
        inner = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        a = torch.linalg.solve_triangular(self._capacitance_tril, inner, upper=False)
        return self._expanded(torch.diag_embed(self._unbroadcasted_cov_diag.reciprocal()) - a.mT @ a)

    def rsample(self, sample_shape=Size()):
        shape = self._extended_shape(sample_shape)
        eps_w = _standard_normal(shape[:-1] + self.cov_factor.shape[-1:], self.loc.dtype, self.loc.device)
        eps_d = _standard_normal(shape, self.loc.dtype, self.loc.device)
        return self.loc + times_vector(self._unbroadcasted_cov_factor, eps_w) + self._unbroadcasted_cov_diag.sqrt() * eps_d

    def _log_det(self):
        return log_det(self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, self._capacitance_tril)

    def log_prob(self, value):
        self._validate_value(value)
        m = distance(self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, value - self.loc, self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + m)

    def entropy(self):
        h = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())
        return h if len(self._batch_shape) == 0 else h.expand(self._batch_shape)
