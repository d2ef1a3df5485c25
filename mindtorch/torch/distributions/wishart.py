"""Wishart distribution."""
import math
import warnings
from numbers import Number

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.chi2 import Chi2
from mindtorch.torch.distributions.exp_family import ExponentialFamily
from mindtorch.torch.distributions.multivariate_normal import half_log_det, tril_of
from mindtorch.torch.distributions.utils import lazy_property

__all__ = ["Wishart"]


def _multidigamma(x, p):
    """Returns the derivative of the multivariate log-gamma function."""
    return (x.unsqueeze(-1) - torch.arange(p, dtype=x.dtype, device=x.device).div(2).expand(x.shape + (-1,))).digamma().sum(-1)


class Wishart(ExponentialFamily):
    """Positive definite matrices: sums of the outer products x x' of `df` normal vectors x with a
    given covariance."""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self):
        return {"covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
                "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self.event_shape[-1] - 1)}

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {n: m for n, m in given.items() if m is not None}
        if len(given) != 1:
            raise AssertionError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        if isinstance(df, Number):
            batch_shape, self.df = matrix.shape[:-2], torch.tensor(df, dtype=matrix.dtype, device=matrix.device)
        else:
            batch_shape = torch.broadcast_shapes(matrix.shape[:-2], df.shape)
            self.df = df.expand(batch_shape)
        event_shape = matrix.shape[-2:]
        if self.df.le(event_shape[-1] - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {event_shape[-1] - 1}.")
        self.__dict__[name] = matrix.expand(batch_shape + (-1, -1))
        if self.df.lt(event_shape[-1]).any():
            warnings.warn("Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.", stacklevel=2)
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._batch_dims = [-(i + 1) for i in range(len(self._batch_shape))]
        self._unbroadcasted_scale_tril = tril_of(name, matrix)
        # Distribution of the squared diagonal of Bartlett's lower-triangular factor.
        self._chi2 = self._diagonal(self._batch_shape)

    def _diagonal(self, batch_shape):
        p = self._event_shape[-1]
        step = torch.arange(p, dtype=self._unbroadcasted_scale_tril.dtype, device=self._unbroadcasted_scale_tril.device)
        return Chi2(df=self.df.unsqueeze(-1) - step.expand(batch_shape + (-1,)))

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Wishart, _instance)
        batch_shape = Size(tuple(batch_shape))
        shape = batch_shape + self.event_shape
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril.expand(shape)
        new.df = self.df.expand(batch_shape)
        new._batch_dims = [-(i + 1) for i in range(len(batch_shape))]
        for name in ("covariance_matrix", "scale_tril", "precision_matrix"):
            if name in self.__dict__:
                new.__dict__[name] = self.__dict__[name].expand(shape)
        new._event_shape = self._event_shape
        new._chi2 = new._diagonal(batch_shape)
        super(Wishart, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _expanded(self, matrix):
        return matrix.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self):
        return self._expanded(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        return self._expanded(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self):
        eye = torch.eye(self._event_shape[-1], dtype=self._unbroadcasted_scale_tril.dtype, device=self._unbroadcasted_scale_tril.device)
        return self._expanded(torch.cholesky_solve(eye, self._unbroadcasted_scale_tril))

    @property
    def mean(self):
        return self.df.view(self._batch_shape + (1, 1)) * self.covariance_matrix

    @property
    def mode(self):
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        factor = torch.where(factor <= 0, torch.nan, factor)
        return factor.view(self._batch_shape + (1, 1)) * self.covariance_matrix

    @property
    def variance(self):
        v = self.covariance_matrix
        d = v.diagonal(dim1=-2, dim2=-1)
        return self.df.view(self._batch_shape + (1, 1)) * (v.pow(2) + torch.einsum("...i,...j->...ij", d, d))

    def _bartlett_sampling(self, sample_shape=Size()):
        p = self._event_shape[-1]
        noise = self._chi2.rsample(sample_shape).sqrt().diag_embed(dim1=-2, dim2=-1)
        i, j = torch.tril_indices(p, p, offset=-1, device=noise.device)
        noise[..., i, j] = torch.randn(Size(tuple(sample_shape)) + self._batch_shape + (p * (p - 1) // 2,), dtype=noise.dtype,
                                       device=noise.device)
        chol = self._unbroadcasted_scale_tril @ noise
        return chol @ chol.mT

    def rsample(self, sample_shape=Size(), max_try_correction=None):
        """Returns samples. Singular ones are sampled again, up to `max_try_correction` times."""
        tries = (3 if self._event_shape[-1] > 0 else 10) if max_try_correction is None else max_try_correction
        sample_shape = Size(tuple(sample_shape))
        sample = self._bartlett_sampling(sample_shape)
        # PyTorch inverts the check of the first sample and so replaces the matrices that are not
        # singular. To produce the same values for a seed, do this here too. Matrices that are
        # singular after that are sampled again.
        sample = self._replaced(sample, self._any_of_batch(self.support.check(sample)))
        for _ in range(tries):
            singular = self._any_of_batch(self.support.check(sample).logical_not())
            if not singular.any():
                return sample
            warnings.warn("Singular sample detected.", stacklevel=2)
            sample = self._replaced(sample, singular)
        return sample

    def _any_of_batch(self, flags):
        return flags.amax(self._batch_dims) if self._batch_shape else flags

    def _replaced(self, sample, where):
        """Replaces the flagged samples by new ones."""
        if not where.any():
            return sample
        sample = sample.clone()
        sample[where] = self._bartlett_sampling(where[where].shape)
        return sample

    def log_prob(self, value):
        self._validate_value(value)
        n, p, tril = self.df, self._event_shape[-1], self._unbroadcasted_scale_tril
        return (-n * (p * math.log(2) / 2 + half_log_det(tril)) - torch.mvlgamma(n / 2, p=p)
                + (n - p - 1) / 2 * torch.linalg.slogdet(value).logabsdet
                - torch.cholesky_solve(value, tril).diagonal(dim1=-2, dim2=-1).sum(dim=-1) / 2)

    def entropy(self):
        n, p = self.df, self._event_shape[-1]
        return ((p + 1) * (p * math.log(2) / 2 + half_log_det(self._unbroadcasted_scale_tril)) + torch.mvlgamma(n / 2, p=p)
                - (n - p - 1) / 2 * _multidigamma(n / 2, p=p) + n * p / 2)

    @property
    def _natural_params(self):
        n, p = self.df, self._event_shape[-1]
        return -self.precision_matrix / 2, (n - p - 1) / 2

    def _log_normalizer(self, x, y):
        p = self._event_shape[-1]
        return (y + (p + 1) / 2) * (-torch.linalg.slogdet(-2 * x).logabsdet + math.log(2) * p) + torch.mvlgamma(y + (p + 1) / 2, p=p)
