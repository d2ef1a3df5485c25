"""Kullback-Leibler divergences
(https://pytorch.org/docs/stable/distributions.html#module-torch.distributions.kl).

This module registers pairs of the same family. `_kl_pairs.py` registers pairs of different
families.
"""
import math
import warnings

import mindtorch.torch as torch
from mindtorch.torch.distributions.bernoulli import Bernoulli
from mindtorch.torch.distributions.beta import Beta
from mindtorch.torch.distributions.binomial import Binomial
from mindtorch.torch.distributions.categorical import Categorical
from mindtorch.torch.distributions.cauchy import Cauchy
from mindtorch.torch.distributions.continuous_bernoulli import ContinuousBernoulli
from mindtorch.torch.distributions.dirichlet import Dirichlet
from mindtorch.torch.distributions.exp_family import ExponentialFamily
from mindtorch.torch.distributions.exponential import Exponential
from mindtorch.torch.distributions.gamma import Gamma
from mindtorch.torch.distributions.geometric import Geometric
from mindtorch.torch.distributions.gumbel import Gumbel
from mindtorch.torch.distributions.half_normal import HalfNormal
from mindtorch.torch.distributions.independent import Independent
from mindtorch.torch.distributions.laplace import Laplace
from mindtorch.torch.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal, distance, log_det
from mindtorch.torch.distributions.multivariate_normal import MultivariateNormal, half_log_det, mahalanobis
from mindtorch.torch.distributions.normal import Normal
from mindtorch.torch.distributions.one_hot_categorical import OneHotCategorical
from mindtorch.torch.distributions.pareto import Pareto
from mindtorch.torch.distributions.poisson import Poisson
from mindtorch.torch.distributions.transformed_distribution import TransformedDistribution
from mindtorch.torch.distributions.uniform import Uniform
from mindtorch.torch.distributions.utils import _sum_rightmost, euler_constant
from mindtorch.torch.nn.functional import softplus

__all__ = ["register_kl", "kl_divergence"]

_KL_REGISTRY = {}
_KL_MEMOIZE = {}


def register_kl(type_p, type_q):
    """Decorator: registers a function for KL(p || q) of these classes, and of subclasses without a
    closer match."""
    for t in (type_p, type_q):
        # any base class is allowed: pyro's distributions are not subclasses of PyTorch's
        if not isinstance(t, type):
            raise TypeError(f"Expected {'type_p' if t is type_p else 'type_q'} to be a Distribution subclass but got {t}")

    def deco(fun):
        _KL_REGISTRY[type_p, type_q] = fun
        _KL_MEMOIZE.clear()
        return fun
    return deco


def _nearest(matches, first):
    """Returns the most specific pair, compared by its member `first` (0 or 1) and then by the other
    member."""
    def depth(pair, i):
        return len(pair[i].__mro__)
    return max(matches, key=lambda pair: (depth(pair, first), depth(pair, 1 - first)))


def _find(type_p, type_q):
    found = _KL_MEMOIZE.get((type_p, type_q))
    if found is None:
        matches = [(p, q) for p, q in _KL_REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
        if not matches:
            return None
        left, right = _nearest(matches, 0), _nearest(matches, 1)
        found = _KL_REGISTRY[left]
        if found is not _KL_REGISTRY[right]:
            warnings.warn(f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl({left[0].__name__}, "
                          f"{right[1].__name__})", RuntimeWarning, stacklevel=3)
        _KL_MEMOIZE[type_p, type_q] = found
    return found


def kl_divergence(p, q):
    """Returns KL(p || q), the mean of log p - log q under p. NotImplementedError if the pair has no
    formula."""
    fun = _find(type(p), type(q))
    if fun is None:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {p.__class__.__name__} and q type {q.__class__.__name__}")
    return fun(p, q)


def infinite(like):
    """Returns a tensor of inf with the shape of `like`."""
    return torch.full_like(like, math.inf)


def where_infinite(condition, value):
    """Returns `value`, with inf where the condition holds."""
    return torch.where(condition, math.inf, value)


def x_log_x(x):
    """Returns x log x, with 0 at x = 0."""
    return torch.special.xlogy(x, x)


# ------------------------------------------------------------------ pairs of one family
@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    one = torch.where(p.probs == 0, 0.0, where_infinite(q.probs == 0, one))
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    zero = torch.where(p.probs == 1, 0.0, where_infinite(q.probs == 1, zero))
    return one + zero


@register_kl(Beta, Beta)
def _beta(p, q):
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0

    def log_beta(x, y):
        return x.lgamma() + y.lgamma() - (x + y).lgamma()
    return (log_beta(c, d) - log_beta(a, b) + (a - c) * torch.digamma(a) + (b - d) * torch.digamma(b)
            + (c + d - a - b) * torch.digamma(a + b))


@register_kl(Binomial, Binomial)
def _binomial(p, q):
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return where_infinite(p.total_count > q.total_count, kl)


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    t = where_infinite(q.probs == 0, p.probs * (p.logits - q.logits))
    return torch.where(p.probs == 0, 0.0, t).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p, q):
    return _categorical(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p, q):
    return (p.mean * (p.logits - q.logits) + p._cont_bern_log_norm() + torch.log1p(-p.probs) - q._cont_bern_log_norm()
            - torch.log1p(-q.probs))


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p, q):
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    return (total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
            + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1))


@register_kl(Exponential, Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p, q):
    if type(p) is not type(q):
        raise NotImplementedError("The cross KL-divergence between different exponential families cannot be computed using Bregman "
                                  "divergences")
    of_p = [x.detach().requires_grad_() for x in p._natural_params]
    of_q = q._natural_params
    normaliser = p._log_normalizer(*of_p)
    slopes = torch.autograd.grad(normaliser.sum(), of_p, create_graph=True)
    result = q._log_normalizer(*of_q) - normaliser
    for x, y, s in zip(of_p, of_q, slopes):
        result = result - _sum_rightmost((y - x) * s, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma(p, q):
    a, b = p.concentration, q.concentration
    return (b * (p.rate / q.rate).log() + torch.lgamma(b) - torch.lgamma(a) + (a - b) * torch.digamma(a)
            + (q.rate - p.rate) * (a / p.rate))


@register_kl(Gumbel, Gumbel)
def _gumbel(p, q):
    ratio, shift = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return -ratio.log() - shift + ratio * euler_constant + torch.exp(shift + (1 + ratio).lgamma()) - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _geometric(p, q):
    return -p.entropy() - torch.log1p(-q.probs) / p.probs - q.logits


@register_kl(Normal, Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p, q):
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p, q):
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * torch.exp(-away / p.scale) - 1


@register_kl(Pareto, Pareto)
def _pareto(p, q):
    ratio = q.alpha / p.alpha
    kl = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return where_infinite(p.support.lower_bound < q.support.lower_bound, kl)


@register_kl(Poisson, Poisson)
def _poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Cauchy, Cauchy)
def _cauchy(p, q):
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    kl = ((q.high - q.low) / (p.high - p.low)).log()
    return where_infinite((q.low > p.low) | (q.high < p.high), kl)


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), len(p.event_shape) - len(p.base_dist.event_shape))


# ------------------------------------------------------------------ multivariate normal
def _need_one_shape(p, q):
    if p.event_shape != q.event_shape:
        raise ValueError(f"KL-divergence between two {'Low Rank ' if 'Low' in type(q).__name__ else ''}Multivariate Normals with "
                         "different event shapes cannot be computed")


def _trace(half, factor):
    """Returns the trace of (L L')^-1 F F', computed as the sum of squares of L^-1 F for
    lower-triangular L."""
    n, m = half.size(-1), factor.size(-1)
    shape = torch.broadcast_shapes(half.shape[:-2], factor.shape[:-2])
    solved = torch.linalg.solve_triangular(half.expand(shape + (n, n)), factor.expand(shape + (n, m)), upper=False)
    return solved.pow(2).sum((-2, -1))


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p, q):
    _need_one_shape(p, q)
    a, b = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    m = mahalanobis(b, q.loc - p.loc)
    return half_log_det(b) - half_log_det(a) + 0.5 * (_trace(b, a) + m - p.event_shape[0])


def _low_rank_terms(q, loc):
    """Returns (log determinant of q's covariance, squared Mahalanobis distance of `loc` from q's
    mean)."""
    factor, diagonal = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag
    return (log_det(factor, diagonal, q._capacitance_tril), distance(factor, diagonal, q.loc - loc, q._capacitance_tril))


def _low_rank_trace(q, squares, factors):
    """Returns the trace of (W W' + D)^-1 S. `squares` is the diagonal of S, and S is the sum of F
    F' over `factors`."""
    inner = q._unbroadcasted_cov_factor.mT / q._unbroadcasted_cov_diag.unsqueeze(-2)
    small = torch.linalg.solve_triangular(q._capacitance_tril, inner, upper=False)
    t = (squares / q._unbroadcasted_cov_diag).sum(-1)
    for f in factors:
        t = t - torch.matmul(small, f).pow(2).sum((-2, -1))
    return t


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p, q):
    _need_one_shape(p, q)
    det_q, m = _low_rank_terms(q, p.loc)
    w, d = p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag
    trace = _low_rank_trace(q, w.pow(2).sum(-1) + d, [w, torch.diag_embed(d.sqrt())])
    return 0.5 * (det_q - p._log_det() + trace + m - p.event_shape[0])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _full_and_low_rank(p, q):
    _need_one_shape(p, q)
    det_q, m = _low_rank_terms(q, p.loc)
    tril = p._unbroadcasted_scale_tril
    trace = _low_rank_trace(q, tril.pow(2).sum(-1), [tril])
    return 0.5 * (det_q - 2 * half_log_det(tril) + trace + m - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_and_full(p, q):
    _need_one_shape(p, q)
    tril = q._unbroadcasted_scale_tril
    m = mahalanobis(tril, q.loc - p.loc)
    w, d = p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag
    trace = _trace(tril, w) + _trace(tril, torch.diag_embed(d.sqrt()))
    return 0.5 * (2 * half_log_det(tril) - p._log_det() + trace + m - p.event_shape[0])
