"""torch.distributions (https://pytorch.org/docs/stable/distributions.html).

Samples use the same generator in the same order as PyTorch, so a seed gives the same samples as in
PyTorch.
"""
from mindtorch.torch.distributions import constraints, transforms  # noqa: F401
from mindtorch.torch.distributions.bernoulli import Bernoulli
from mindtorch.torch.distributions.beta import Beta
from mindtorch.torch.distributions.binomial import Binomial
from mindtorch.torch.distributions.categorical import Categorical
from mindtorch.torch.distributions.cauchy import Cauchy
from mindtorch.torch.distributions.chi2 import Chi2
from mindtorch.torch.distributions.constraint_registry import biject_to, transform_to
from mindtorch.torch.distributions.continuous_bernoulli import ContinuousBernoulli
from mindtorch.torch.distributions.dirichlet import Dirichlet
from mindtorch.torch.distributions.distribution import Distribution
from mindtorch.torch.distributions.exp_family import ExponentialFamily
from mindtorch.torch.distributions.exponential import Exponential
from mindtorch.torch.distributions.fishersnedecor import FisherSnedecor
from mindtorch.torch.distributions.gamma import Gamma
from mindtorch.torch.distributions.generalized_pareto import GeneralizedPareto
from mindtorch.torch.distributions.geometric import Geometric
from mindtorch.torch.distributions.gumbel import Gumbel
from mindtorch.torch.distributions.half_cauchy import HalfCauchy
from mindtorch.torch.distributions.half_normal import HalfNormal
from mindtorch.torch.distributions.independent import Independent
from mindtorch.torch.distributions.inverse_gamma import InverseGamma
from mindtorch.torch.distributions.kl import kl_divergence, register_kl
from mindtorch.torch.distributions.kumaraswamy import Kumaraswamy
from mindtorch.torch.distributions.laplace import Laplace
from mindtorch.torch.distributions.lkj_cholesky import LKJCholesky
from mindtorch.torch.distributions.log_normal import LogNormal
from mindtorch.torch.distributions.logistic_normal import LogisticNormal
from mindtorch.torch.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from mindtorch.torch.distributions.mixture_same_family import MixtureSameFamily
from mindtorch.torch.distributions.multinomial import Multinomial
from mindtorch.torch.distributions.multivariate_normal import MultivariateNormal
from mindtorch.torch.distributions.negative_binomial import NegativeBinomial
from mindtorch.torch.distributions.normal import Normal
from mindtorch.torch.distributions.one_hot_categorical import OneHotCategorical, OneHotCategoricalStraightThrough
from mindtorch.torch.distributions.pareto import Pareto
from mindtorch.torch.distributions.poisson import Poisson
from mindtorch.torch.distributions.relaxed_bernoulli import RelaxedBernoulli
from mindtorch.torch.distributions.relaxed_categorical import RelaxedOneHotCategorical
from mindtorch.torch.distributions.studentT import StudentT
from mindtorch.torch.distributions.transformed_distribution import TransformedDistribution
from mindtorch.torch.distributions.transforms import *  # noqa: F403
from mindtorch.torch.distributions.uniform import Uniform
from mindtorch.torch.distributions.von_mises import VonMises
from mindtorch.torch.distributions.weibull import Weibull
from mindtorch.torch.distributions.wishart import Wishart
from mindtorch.torch.distributions import _kl_pairs  # noqa: F401  (registers the pairs of different families)

__all__ = ["Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet", "Distribution",
           "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric", "Gumbel", "HalfCauchy",
           "HalfNormal", "Independent", "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal",
           "LowRankMultivariateNormal", "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal",
           "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto", "RelaxedBernoulli", "RelaxedOneHotCategorical", "StudentT",
           "Poisson", "Uniform", "VonMises", "Weibull", "Wishart", "TransformedDistribution", "biject_to", "kl_divergence",
           "register_kl", "transform_to"]
__all__ += transforms.__all__
