"""Kullback-Leibler divergences between distributions of different families.

Each is -entropy(p) minus the mean of log q under p. It is infinite where p has mass outside the
support of q.
"""
import math

import mindtorch.torch as torch
from mindtorch.torch.distributions.bernoulli import Bernoulli
from mindtorch.torch.distributions.beta import Beta
from mindtorch.torch.distributions.binomial import Binomial
from mindtorch.torch.distributions.continuous_bernoulli import ContinuousBernoulli
from mindtorch.torch.distributions.exponential import Exponential
from mindtorch.torch.distributions.gamma import Gamma
from mindtorch.torch.distributions.gumbel import Gumbel
from mindtorch.torch.distributions.kl import infinite, register_kl, where_infinite, x_log_x
from mindtorch.torch.distributions.laplace import Laplace
from mindtorch.torch.distributions.normal import Normal
from mindtorch.torch.distributions.pareto import Pareto
from mindtorch.torch.distributions.poisson import Poisson
from mindtorch.torch.distributions.uniform import Uniform
from mindtorch.torch.distributions.utils import euler_constant

_LOG_2PI = math.log(2 * math.pi)


# ------------------------------------------------------------------ infinite divergences
def _always_infinite(p_type, parameter, *q_types):
    for q_type in q_types:
        register_kl(p_type, q_type)(lambda p, q: infinite(getattr(p, parameter)))


_always_infinite(Beta, "concentration1", Pareto)
_always_infinite(ContinuousBernoulli, "probs", Pareto)
_always_infinite(Exponential, "rate", Beta, ContinuousBernoulli, Pareto, Uniform)
_always_infinite(Gamma, "concentration", Beta, ContinuousBernoulli, Pareto, Uniform)
_always_infinite(Gumbel, "loc", Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_always_infinite(Laplace, "loc", Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_always_infinite(Normal, "loc", Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_always_infinite(Pareto, "scale", Beta, ContinuousBernoulli, Uniform)
_always_infinite(Poisson, "rate", Bernoulli, Binomial)


# ------------------------------------------------------------------ means of log q, from moments of p
def _normal(mean, variance, q):
    """Returns -E[log q] for a normal q, given the mean and variance of p."""
    return 0.5 * _LOG_2PI + q.scale.log() + (variance + (mean - q.loc).pow(2)) / (2 * q.scale.pow(2))


def _exponential(mean, q):
    return q.rate * mean - q.rate.log()


def _gamma(mean, mean_log, q):
    return torch.lgamma(q.concentration) - q.concentration * q.rate.log() - (q.concentration - 1) * mean_log + q.rate * mean


def _continuous_bernoulli(mean, q):
    return -mean * q.logits - torch.log1p(-q.probs) - q._cont_bern_log_norm()


def _gumbel(mean, mean_exp, q):
    """`mean_exp` is the mean of exp(-x / scale) under p."""
    return q.scale.log() + (mean - q.loc) / q.scale + torch.exp(q.loc / q.scale) * mean_exp


def _register_for(q_type, *p_types):
    """Decorator: registers a function for each of `p_types` and `q_type`."""
    def deco(divergence):
        for p_type in p_types:
            register_kl(p_type, q_type)(lambda p, q: divergence(p, q))  # a pair is recognized by its own function
        return divergence
    return deco


@_register_for(Normal, Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Uniform)
def _to_normal(p, q):
    return -p.entropy() + _normal(p.mean, p.variance, q)


@_register_for(Exponential, Beta, ContinuousBernoulli, Gamma)
def _to_exponential(p, q):
    return -p.entropy() + _exponential(p.mean, q)


@_register_for(Uniform, Beta, ContinuousBernoulli)
def _to_uniform(p, q):
    lower, upper = p.support.lower_bound, p.support.upper_bound
    return where_infinite((q.low > lower) | (q.high < upper), -p.entropy() + (q.high - q.low).log())


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p, q):
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


# ------------------------------------------------------------------ beta
@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous_bernoulli(p, q):
    return -p.entropy() + _continuous_bernoulli(p.mean, q)


@register_kl(Beta, Gamma)
def _beta_gamma(p, q):
    a, b = p.concentration1, p.concentration0
    return -p.entropy() + _gamma(p.mean, a.digamma() - (a + b).digamma(), q)


# ------------------------------------------------------------------ exponential
@register_kl(Exponential, Gamma)
def _exponential_gamma(p, q):
    return -p.entropy() + _gamma(p.mean, -euler_constant - p.rate.log(), q)


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p, q):
    product = p.rate * q.scale
    return -p.entropy() + _gumbel(p.mean, product / (product + 1), q)


# ------------------------------------------------------------------ gamma
@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p, q):
    return -p.entropy() + _gumbel(p.mean, (1 + (p.rate * q.scale).reciprocal()).pow(-p.concentration), q)


# ------------------------------------------------------------------ normal
@register_kl(Normal, Gumbel)
def _normal_gumbel(p, q):
    mean_exp = torch.exp(0.5 * (p.scale / q.scale).pow(2) - p.loc / q.scale)
    return -p.entropy() + _gumbel(p.loc, mean_exp, q)


@register_kl(Normal, Laplace)
def _normal_laplace(p, q):
    away = p.loc - q.loc
    t = away / p.scale
    # Mean of |x - q.loc|, which has a folded normal distribution.
    deviation = math.sqrt(2 / math.pi) * p.scale * torch.exp(-0.5 * t.pow(2)) + away * torch.erf(math.sqrt(0.5) * t)
    return -p.entropy() + torch.log(2 * q.scale) + deviation / q.scale


# ------------------------------------------------------------------ Pareto
def _pareto_mean(p):
    return p.alpha * p.scale / (p.alpha - 1)


@register_kl(Pareto, Exponential)
def _pareto_exponential(p, q):
    return where_infinite(p.alpha <= 1, -p.entropy() + _exponential(_pareto_mean(p), q))


@register_kl(Pareto, Gamma)
def _pareto_gamma(p, q):
    kl = -p.entropy() + _gamma(_pareto_mean(p), p.scale.log() + p.alpha.reciprocal(), q)
    return where_infinite(p.alpha <= 1, kl)


@register_kl(Pareto, Normal)
def _pareto_normal(p, q):
    a = p.alpha
    variance = p.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))
    return where_infinite(a <= 2, -p.entropy() + _normal(_pareto_mean(p), variance, q))


# ------------------------------------------------------------------ uniform
def _mean_log(low, high):
    """Returns the mean of log x over [low, high]."""
    return (x_log_x(high) - x_log_x(low)) / (high - low) - 1


@register_kl(Uniform, Beta)
def _uniform_beta(p, q):
    a, b = q.concentration1, q.concentration0
    log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
    kl = -p.entropy() + log_beta - (a - 1) * _mean_log(p.low, p.high) - (b - 1) * _mean_log(1 - p.high, 1 - p.low)
    return where_infinite((p.high > q.support.upper_bound) | (p.low < q.support.lower_bound), kl)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p, q):
    kl = -p.entropy() + _continuous_bernoulli(p.mean, q)
    return where_infinite((p.high > q.support.upper_bound) | (p.low < q.support.lower_bound), kl)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p, q):
    return where_infinite(p.low < q.support.lower_bound, -p.entropy() + _exponential(p.mean, q))


@register_kl(Uniform, Gamma)
def _uniform_gamma(p, q):
    return where_infinite(p.low < q.support.lower_bound, -p.entropy() + _gamma(p.mean, _mean_log(p.low, p.high), q))


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p, q):
    mean_exp = q.scale * (torch.exp(-p.low / q.scale) - torch.exp(-p.high / q.scale)) / (p.high - p.low)
    return -p.entropy() + _gumbel(p.mean, mean_exp, q)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p, q):
    kl = -p.entropy() - q.alpha.log() - q.alpha * q.scale.log() + (q.alpha + 1) * _mean_log(p.low, p.high)
    return where_infinite(p.low < q.support.lower_bound, kl)
