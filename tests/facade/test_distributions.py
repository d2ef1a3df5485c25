"""torch.distributions compared with PyTorch: samples from a seed, densities, moments, gradients,
divergences, transforms."""
import copy
import pickle
import warnings

import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine

SIDES = (real, mine)


@pytest.fixture(autouse=True)
def quiet():
    # PyTorch's torch.compile, used in another test, disables the validation for the whole process
    real.distributions.Distribution.set_default_validate_args(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def P(T, *values, dtype="float64"):
    """A parameter: a tensor of the values that requires grad."""
    return T.tensor(np.array(values[0] if len(values) == 1 else values, dtype)).requires_grad_()


def matrix(T, n=3, seed=0):
    a = np.random.RandomState(seed).randn(n, n)
    return T.tensor(a @ a.T + n * np.eye(n)).requires_grad_()


# name -> function of (T, parameter maker) that returns (distribution, parameters)
def _simple(name, *params):
    def build(T, dtype="float64"):
        ps = [P(T, p, dtype=dtype) for p in params]
        return getattr(T.distributions, name)(*ps), ps
    return build


def _named(name, **params):
    def build(T, dtype="float64"):
        ps = {n: P(T, p, dtype=dtype) if not isinstance(p, int) else p for n, p in params.items()}
        return getattr(T.distributions, name)(**ps), [p for p in ps.values() if not isinstance(p, int)]
    return build


A, B2 = [0.7, 1.5, 2.5], [1.2, 0.6, 3.0]
PROBS = [[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]]

CASES = {
    "Normal": _simple("Normal", [-1.0, 0.5, 2.0], A), "Uniform": _simple("Uniform", [-1.0, 0.5], [0.5, 3.0]),
    "Bernoulli": _named("Bernoulli", probs=[0.2, 0.5, 0.9]), "Bernoulli logits": _named("Bernoulli", logits=[-1.0, 0.0, 2.0]),
    "Beta": _simple("Beta", A, B2), "Binomial": _named("Binomial", total_count=5, probs=[0.2, 0.5, 0.9]),
    "Binomial logits": _named("Binomial", total_count=30, logits=[-1.0, 0.5]),
    "Categorical": _named("Categorical", probs=PROBS), "Categorical logits": _named("Categorical", logits=[1.0, 0.0, -1.0]),
    "Cauchy": _simple("Cauchy", [-1.0, 0.5, 2.0], A), "Chi2": _simple("Chi2", [1.0, 3.0, 8.0]),
    "ContinuousBernoulli": _named("ContinuousBernoulli", probs=[0.2, 0.5, 0.4999, 0.9]),
    "ContinuousBernoulli logits": _named("ContinuousBernoulli", logits=[-1.0, 0.0, 2.0]),
    "Dirichlet": _simple("Dirichlet", [[0.7, 1.5, 2.5], [3.0, 1.0, 0.5]]), "Exponential": _simple("Exponential", A),
    "FisherSnedecor": _simple("FisherSnedecor", [3.0, 5.0, 1.0], [6.0, 3.0, 1.5]), "Gamma": _simple("Gamma", A, B2),
    "GeneralizedPareto": _simple("GeneralizedPareto", [0.5, -1.0, 0.0, 1.0], [1.0, 2.0, 0.5, 1.0], [0.1, 0.7, 0.0, 0.3]),
    "GeneralizedPareto negative": _simple("GeneralizedPareto", [0.5], [1.0], [-0.4]),
    "Geometric": _named("Geometric", probs=[0.2, 0.5, 0.9]), "Geometric logits": _named("Geometric", logits=[-1.0, 0.0]),
    "Gumbel": _simple("Gumbel", [-1.0, 0.5, 2.0], A), "HalfCauchy": _simple("HalfCauchy", A), "HalfNormal": _simple("HalfNormal", A),
    "InverseGamma": _simple("InverseGamma", [0.7, 1.5, 2.5], B2), "Kumaraswamy": _simple("Kumaraswamy", A, B2),
    "Laplace": _simple("Laplace", [-1.0, 0.5, 2.0], A), "LogNormal": _simple("LogNormal", [-1.0, 0.5, 2.0], [0.7, 1.5, 0.5]),
    "LogisticNormal": _simple("LogisticNormal", [-1.0, 0.5, 2.0], A),
    "Multinomial": _named("Multinomial", total_count=6, probs=PROBS), "NegativeBinomial": _named("NegativeBinomial", total_count=4, probs=[0.2, 0.6]),
    "NegativeBinomial logits": _named("NegativeBinomial", total_count=[2.0, 3.5], logits=[-1.0, 0.3]),
    "OneHotCategorical": _named("OneHotCategorical", probs=PROBS),
    "OneHotCategoricalStraightThrough": _named("OneHotCategoricalStraightThrough", logits=[1.0, 0.0, -1.0]),
    "Pareto": _simple("Pareto", A, [0.8, 1.5, 3.5]), "Poisson": _simple("Poisson", [0.3, 4.0, 25.0]),
    "RelaxedBernoulli": _named("RelaxedBernoulli", temperature=0.7, probs=[0.2, 0.5, 0.9]),
    "RelaxedOneHotCategorical": _named("RelaxedOneHotCategorical", temperature=0.7, logits=[1.0, 0.0, -1.0]),
    "StudentT": _simple("StudentT", [0.8, 1.5, 4.0], [-1.0, 0.5, 2.0], A), "VonMises": _simple("VonMises", [-1.0, 0.5, 2.0], [0.5, 1.5, 8.0]),
    "Weibull": _simple("Weibull", A, B2), "LKJCholesky": _named("LKJCholesky", dim=3, concentration=[0.7, 2.0]),
    "scalar Normal": _simple("Normal", 0.5, 2.0), "scalar Gamma": _simple("Gamma", 2.0, 0.5),
}


def _mvn(kind):
    def build(T, dtype="float64"):
        loc, m = P(T, [0.5, -1.0, 2.0], dtype=dtype), matrix(T).to(getattr(T, dtype)).detach()
        m = T.linalg.cholesky(m) if kind == "scale_tril" else m
        m.requires_grad_()
        return T.distributions.MultivariateNormal(loc, **{kind: m}), [loc, m]
    return build


def _composed(make):
    def build(T, dtype="float64"):
        ps = [P(T, p, dtype=dtype) for p in ([0.5, -1.0, 2.0], [0.7, 1.5, 2.5], [0.2, 0.3, 0.5])]
        return make(T.distributions, *ps), ps
    return build


CASES.update({
    "MultivariateNormal covariance": _mvn("covariance_matrix"), "MultivariateNormal precision": _mvn("precision_matrix"),
    "MultivariateNormal tril": _mvn("scale_tril"),
    "LowRankMultivariateNormal": _simple("LowRankMultivariateNormal", [0.5, -1.0, 2.0], [[1.0, 0.5], [-0.3, 2.0], [0.1, 0.2]], A),
    "Independent": _composed(lambda D, a, b, c: D.Independent(D.Normal(a, b), 1)),
    "MixtureSameFamily": _composed(lambda D, a, b, c: D.MixtureSameFamily(D.Categorical(c), D.Normal(a, b))),
    "MixtureSameFamily events": _composed(lambda D, a, b, c: D.MixtureSameFamily(
        D.Categorical(c), D.Independent(D.Normal(a.unsqueeze(-1) + b, b), 1))),
    "TransformedDistribution": _composed(lambda D, a, b, c: D.TransformedDistribution(
        D.Normal(a, b), [D.AffineTransform(c, -b), D.SigmoidTransform()])),
    "Wishart": lambda T, dtype="float64": (lambda df, m: (T.distributions.Wishart(df, covariance_matrix=m), [df, m]))(
        P(T, 5.5, dtype=dtype), matrix(T).to(getattr(T, dtype)).detach().requires_grad_()),
})

# The number of samples drawn depends on the last digits, or PyTorch's approximate derivative is
# compared.
LOOSE_GRADIENT = ("Beta", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT", "scalar Gamma", "Wishart")


def array(x):
    return np.array(x.detach().numpy())


def compare(a, b, what, rtol=1e-6, atol=1e-8):
    assert type(a).__name__ == type(b).__name__ or hasattr(a, "detach") and hasattr(b, "detach"), f"{what}: {b!r} instead of {a!r}"
    if hasattr(a, "detach"):
        assert str(a.dtype) == str(b.dtype) and tuple(a.shape) == tuple(b.shape), f"{what}: {b.dtype} {b.shape} instead of {a.dtype} {a.shape}"
        np.testing.assert_allclose(array(b), array(a), rtol=rtol, atol=atol, err_msg=what)
    else:
        assert a == b, f"{what}: {b!r} instead of {a!r}"


def both(fn, what, **tolerance):
    """Runs `fn(T)` on both sides and asserts the same value, or the same kind of error."""
    got = []
    for T in SIDES:
        try:
            got.append(fn(T))
        except Exception as e:
            got.append(e)
    a, b = got
    if isinstance(a, Exception) or isinstance(b, Exception):
        assert isinstance(a, Exception) and isinstance(b, Exception), f"{what}: {b!r} instead of {a!r}"
        assert isinstance(b, type(a)) or isinstance(a, type(b)), f"{what}: {b!r} instead of {a!r}"
        return None
    if isinstance(a, (tuple, list)) and not isinstance(a, (real.Size,)):
        assert len(a) == len(b)
        for i, (x, y) in enumerate(zip(a, b)):
            compare(x, y, f"{what}[{i}]", **tolerance)
        return got
    compare(a, b, what, **tolerance)
    return got


@pytest.mark.parametrize("name", CASES)
def test_distribution(name):
    build = CASES[name]
    for attribute in ("batch_shape", "event_shape"):
        assert tuple(getattr(build(real)[0], attribute)) == tuple(getattr(build(mine)[0], attribute))
    for attribute in ("has_rsample", "has_enumerate_support"):
        both(lambda T, n=attribute: getattr(build(T)[0], n), attribute)
    both(lambda T: repr(build(T)[0]), "repr")
    both(lambda T: repr(build(T)[0].support), "support")
    for attribute in ("mean", "variance", "stddev", "mode"):
        both(lambda T, n=attribute: getattr(build(T)[0], n), attribute)
    for method in ("entropy", "perplexity", "enumerate_support"):
        both(lambda T, n=method: getattr(build(T)[0], n)(), method)
    both(lambda T: build(T)[0].enumerate_support(expand=False), "enumerate_support")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_samples_match_torch_for_a_seed(name, dtype):
    if name.startswith("GeneralizedPareto") and dtype == "float64":
        return  # PyTorch compares its float64 parameters with a float32 zero, and fails
    build = CASES[name]

    def draw(T):
        d = build(T, dtype)[0]
        T.manual_seed(5)
        out = [d.sample(), d.sample((4,)), d.sample(T.Size([2, 9]))]
        if d.has_rsample:
            out.append(d.rsample((3,)).detach())
        return [*out, T.rand(2)]
    tolerance = {"rtol": 1e-6, "atol": 1e-9} if dtype == "float64" else {"rtol": 2e-5, "atol": 2e-5 if name in ("LKJCholesky", "Wishart") else 1e-6}
    both(draw, "samples", **tolerance)


def single(name):
    """Returns the builder of a case, in float32 where PyTorch's float64 fails."""
    build = CASES[name]
    return (lambda T: build(T, "float32")) if name.startswith("GeneralizedPareto") else build


@pytest.mark.parametrize("name", CASES)
def test_log_prob_cdf_and_gradients(name):
    build = single(name)
    real.manual_seed(3)
    x = build(real)[0].sample((5,)).detach().numpy()

    def density(T):
        d, ps = build(T)
        value = T.tensor(x)
        log_prob = d.log_prob(value)
        wanted = [p for p in ps if p.requires_grad]
        grads = T.autograd.grad(log_prob.sum(), wanted, allow_unused=True)
        return [log_prob, *[T.zeros(1) if g is None else g for g in grads]]
    both(density, "log_prob", rtol=1e-5, atol=1e-6 if x.dtype == np.float32 else 1e-7)
    close = {"rtol": 1e-4, "atol": 1e-6} if x.dtype == np.float32 else {"rtol": 1e-6}
    both(lambda T: build(T)[0].cdf(T.tensor(x)), "cdf", **close)
    u = np.random.RandomState(0).uniform(0.05, 0.95, x.shape).astype(x.dtype)
    both(lambda T: build(T)[0].icdf(T.tensor(u)), "icdf", **close)


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n](real)[0].has_rsample])
def test_gradients_of_samples(name):
    build = single(name)

    def slope(T):
        d, ps = build(T)
        T.manual_seed(7)
        # PyTorch overwrites Wishart samples that its gradient needs.
        s = d._bartlett_sampling(T.Size([20])) if name == "Wishart" else d.rsample((20,))
        grads = T.autograd.grad((s * T.linspace(0.5, 1.5, 20, dtype=s.dtype).reshape((20,) + (1,) * (s.dim() - 1))).sum(), ps, allow_unused=True)
        return [T.zeros(1) if g is None else g for g in grads]
    if name in LOOSE_GRADIENT:
        both(slope, "gradient", rtol=5e-3, atol=5e-3)
    else:
        both(slope, "gradient", rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_expand(name):
    build = single(name)
    shape = (2, *build(real)[0].batch_shape)

    def run(T):
        d = build(T)[0].expand(shape)
        T.manual_seed(1)
        s = d.sample((2,))
        return [s, d.log_prob(s), T.tensor(d.batch_shape), T.tensor(d.event_shape), *([d.mean] if name not in ("LogisticNormal", "RelaxedBernoulli",
                "RelaxedOneHotCategorical", "TransformedDistribution", "LKJCholesky") else [])]
    both(run, "expanded", rtol=1e-6)


# ------------------------------------------------------------------ divergences
PAIRS = sorted((a.__name__, b.__name__) for a, b in real.distributions.kl._KL_REGISTRY)
PARAMETERS = {
    "Bernoulli": [([0.2, 0.6, 0.0, 1.0],), ([0.4, 0.3, 0.5, 0.5],)], "Beta": [(A, B2), (B2, A)], "Categorical": [(PROBS,), ([[0.4, 0.4, 0.2], [0.0, 0.5, 0.5]],)],
    "Cauchy": [(A, B2), (B2, A)], "ContinuousBernoulli": [([0.2, 0.6, 0.5],), ([0.4, 0.3, 0.9],)], "Dirichlet": [([A],), ([B2],)],
    "Exponential": [(A,), (B2,)], "Gamma": [(A, B2), (B2, A)], "Geometric": [([0.2, 0.6, 0.9],), ([0.4, 0.3, 0.5],)],
    "Gumbel": [(A, B2), (B2, A)], "HalfNormal": [(A,), (B2,)], "Laplace": [(A, B2), (B2, A)], "Normal": [(A, B2), (B2, A)],
    "OneHotCategorical": [(PROBS,), ([[0.4, 0.4, 0.2], [0.2, 0.5, 0.3]],)], "Pareto": [(A, [0.8, 1.5, 3.5]), ([0.5, 2.0, 1.0], [1.5, 2.5, 3.0])],
    "Poisson": [(A,), (B2,)], "Uniform": [([0.1, 0.2, 0.5], [0.9, 2.0, 3.0]), ([0.0, 0.5, 0.2], [1.0, 1.5, 4.0])],
}


def one_of(T, name, which):
    D = T.distributions
    if name == "Binomial":
        return D.Binomial(4, P(T, [[0.2, 0.5], [0.4, 0.7]][which]))
    if name == "MultivariateNormal":
        return D.MultivariateNormal(P(T, [[0.5, -1.0, 2.0], [0.0, 1.0, 1.0]][which]), matrix(T, seed=which))
    if name == "LowRankMultivariateNormal":
        w = np.random.RandomState(which).randn(3, 2)
        return D.LowRankMultivariateNormal(P(T, [[0.5, -1.0, 2.0], [0.0, 1.0, 1.0]][which]), P(T, w), P(T, [A, B2][which]))
    if name == "Independent":
        return D.Independent(D.Normal(P(T, A), P(T, [B2, A][which])), 1)
    if name == "TransformedDistribution":
        return D.LogNormal(P(T, A), P(T, [B2, A][which]))
    if name == "ExponentialFamily":
        return D.Exponential(P(T, [A, B2][which]))
    return getattr(D, name)(*[P(T, p) for p in PARAMETERS[name][which]])


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_kl_divergence(pair):
    same_exponential = pair == ("ExponentialFamily", "ExponentialFamily")

    def run(T):
        p, q = one_of(T, pair[0], 0), one_of(T, pair[1], 1)
        if pair == ("ContinuousBernoulli", "Uniform"):
            # Inside the interval, not at its edge, where PyTorch returns inf.
            q = T.distributions.Uniform(P(T, [-1.0, -0.5, 0.5]), P(T, [2.0, 3.0, 4.0]))
        if same_exponential:
            return T.distributions.kl._KL_REGISTRY[T.distributions.ExponentialFamily, T.distributions.ExponentialFamily](p, q)
        if pair[0] in ("Poisson", "Bernoulli") and pair[0] != pair[1] and pair[1] in ("Bernoulli", "Binomial", "Poisson"):
            p, q = (getattr(T.distributions, n)(P(T, v)) if n != "Binomial" else T.distributions.Binomial(3, P(T, v))
                    for n, v in zip(pair, ([0.2, 0.6], [0.4, 0.3])))
        return T.distributions.kl_divergence(p, q)
    both(run, "kl", rtol=1e-6)


def test_kl_registry_and_unknown_pairs():
    D = mine.distributions
    with pytest.raises(NotImplementedError, match="p type VonMises and q type Cauchy"):
        D.kl_divergence(D.VonMises(0.0, 1.0), D.Cauchy(0.0, 1.0))
    assert [len(T.distributions.kl._KL_REGISTRY) for T in SIDES] == [len(real.distributions.kl._KL_REGISTRY)] * 2

    class Mine(D.Normal):
        pass

    @D.register_kl(Mine, Mine)
    def _(p, q):
        return mine.tensor(42.0)
    try:
        assert D.kl_divergence(Mine(0.0, 1.0), Mine(0.0, 1.0)).item() == 42
        assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)).item() == 0
    finally:
        del D.kl._KL_REGISTRY[Mine, Mine]
        D.kl._KL_MEMOIZE.clear()


def test_kl_gradient():
    def run(T):
        loc, scale = P(T, A), P(T, B2)
        T.distributions.kl_divergence(T.distributions.Normal(loc, scale), T.distributions.Normal(T.zeros(3).double(), T.ones(3).double())).sum().backward()
        return [loc.grad, scale.grad]
    both(run, "gradient")


# ------------------------------------------------------------------ transforms and constraints
TRANSFORMS = {
    "abs": (lambda D, T: D.AbsTransform(), "real"), "affine": (lambda D, T: D.AffineTransform(1.5, -2.0), "real"),
    "affine tensors": (lambda D, T: D.AffineTransform(P(T, A), P(T, B2)), "vector"), "affine event": (lambda D, T: D.AffineTransform(1.0, 3.0, event_dim=1), "vector"),
    "exp": (lambda D, T: D.ExpTransform(), "real"), "power": (lambda D, T: D.PowerTransform(T.tensor(2.5)), "positive"),
    "sigmoid": (lambda D, T: D.SigmoidTransform(), "real"), "softplus": (lambda D, T: D.SoftplusTransform(), "real"),
    "tanh": (lambda D, T: D.TanhTransform(), "real"), "softmax": (lambda D, T: D.SoftmaxTransform(), "vector"),
    "stick": (lambda D, T: D.StickBreakingTransform(), "vector"), "corr": (lambda D, T: D.CorrCholeskyTransform(), "vector"),
    "lower": (lambda D, T: D.LowerCholeskyTransform(), "matrix"), "definite": (lambda D, T: D.PositiveDefiniteTransform(), "matrix"),
    "cdf": (lambda D, T: D.CumulativeDistributionTransform(D.Normal(T.tensor(0.3).double(), T.tensor(1.2).double())), "real"),
    "compose": (lambda D, T: D.ComposeTransform([D.AffineTransform(0.5, 2.0), D.SigmoidTransform(), D.AffineTransform(-1.0, -3.0)]), "real"),
    "compose stick": (lambda D, T: D.ComposeTransform([D.AffineTransform(0.5, 2.0), D.StickBreakingTransform()]), "vector"),
    "independent": (lambda D, T: D.IndependentTransform(D.ExpTransform(), 1), "vector"), "reshape": (lambda D, T: D.ReshapeTransform((3,), (3, 1)), "vector"),
    "cat": (lambda D, T: D.CatTransform([D.ExpTransform(), D.AffineTransform(1.0, 2.0)], dim=-1, lengths=[1, 2]), "vector"),
    "stack": (lambda D, T: D.StackTransform([D.ExpTransform(), D.SigmoidTransform(), D.AffineTransform(1.0, 2.0)], dim=-1), "vector"),
    "inverse": (lambda D, T: D.ExpTransform().inv, "positive"), "identity": (lambda D, T: D.identity_transform, "real"),
    "cached": (lambda D, T: D.ExpTransform(cache_size=1), "real"),
}
INPUTS = {"real": np.random.RandomState(1).randn(2, 3), "positive": np.random.RandomState(1).rand(2, 3) + 0.1,
          "vector": np.random.RandomState(2).randn(2, 3), "matrix": np.random.RandomState(3).randn(2, 3, 3)}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    make, kind = TRANSFORMS[name]
    for f in (lambda t, x: t(x), lambda t, x: t.inv(t(x)), lambda t, x: t.log_abs_det_jacobian(x, t(x)),
              lambda t, x: t.inv.log_abs_det_jacobian(t(x), x)):
        both(lambda T, f=f: f(make(T.distributions, T), T.tensor(INPUTS[kind])), name)
    for f in (lambda t, s: t.forward_shape(s), lambda t, s: t.inverse_shape(t.forward_shape(s)), lambda t, s: repr(t), lambda t, s: t.bijective,
              lambda t, s: repr(t.domain), lambda t, s: repr(t.codomain), lambda t, s: t.sign if isinstance(t.sign, int) else "tensor",
              lambda t, s: t.event_dim, lambda t, s: t == t, lambda t, s: t.inv.inv == t):
        both(lambda T, f=f: (lambda r: tuple(r) if isinstance(r, tuple) else r)(f(make(T.distributions, T), T.Size(INPUTS[kind].shape))), name)


def test_cached_transforms_return_the_original_input():
    t = mine.distributions.ExpTransform(cache_size=1)
    x = mine.randn(3)
    assert t.inv(t(x)) is x and t.with_cache(1) is t and t.with_cache(0) is not t
    t = pickle.loads(pickle.dumps(mine.distributions.AffineTransform(1.0, 2.0)))
    assert t(mine.ones(1)).item() == 3


CONSTRAINTS = ["boolean", "one_hot", "nonnegative_integer", "positive_integer", "real", "positive", "nonnegative", "unit_interval", "simplex",
               "lower_triangular", "lower_cholesky", "corr_cholesky", "square", "symmetric", "positive_semidefinite", "positive_definite", "real_vector"]


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints(name):
    eye = np.eye(3)
    values = [np.array([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5], [-1.0, 2.0, np.nan]]), np.stack([eye, -eye, np.tril(np.ones((3, 3))), np.ones((3, 3))]),
              np.array([[3.0, 0.0, 1.0]])]
    for v in values:
        both(lambda T, v=v: getattr(T.distributions.constraints, name).check(T.tensor(v)), name)
    both(lambda T: repr(getattr(T.distributions.constraints, name)), name)
    for registry in ("biject_to", "transform_to"):
        x = np.random.RandomState(0).randn(3, 3)
        both(lambda T, r=registry: repr(getattr(T.distributions, r)(getattr(T.distributions.constraints, name))), registry)
        both(lambda T, r=registry: getattr(T.distributions, r)(getattr(T.distributions.constraints, name))(T.tensor(x)), registry)


def test_constraints_with_bounds():
    v = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0])
    for make in (lambda c: c.greater_than(0.5), lambda c: c.greater_than_eq(0.5), lambda c: c.less_than(0.5), lambda c: c.interval(0.0, 2.0),
                 lambda c: c.half_open_interval(0.0, 2.0), lambda c: c.integer_interval(0, 2), lambda c: c.independent(c.positive, 1), lambda c: c.multinomial(6),
                 lambda c: c.cat([c.real, c.positive], -1, [2, 4]), lambda c: c.stack([c.real, c.positive, c.real, c.real, c.real, c.real], -1)):
        both(lambda T, m=make: m(T.distributions.constraints).check(T.tensor(v)), "check")
        both(lambda T, m=make: repr(m(T.distributions.constraints)), "repr")
        both(lambda T, m=make: m(T.distributions.constraints).event_dim, "event_dim")
        both(lambda T, m=make: m(T.distributions.constraints).is_discrete, "is_discrete")
        both(lambda T, m=make: T.distributions.transform_to(m(T.distributions.constraints))(T.tensor(v)), "transform_to")


# ------------------------------------------------------------------ errors and helpers
ERRORS = [
    lambda T, D: D.Normal(0.0, -1.0), lambda T, D: D.Normal(T.zeros(2), 1.0).log_prob(T.zeros(3)), lambda T, D: D.Uniform(0.0, 1.0).log_prob(T.tensor(2.0)),
    lambda T, D: D.Normal(0.0, 1.0).log_prob(1.0), lambda T, D: D.Bernoulli(), lambda T, D: D.Bernoulli(0.3, 0.2), lambda T, D: D.Categorical(T.tensor(0.3)),
    lambda T, D: D.Categorical(T.ones(2, 3)).log_prob(T.tensor([5, 1])), lambda T, D: D.Uniform(1.0, 0.0), lambda T, D: D.Geometric(0.0),
    lambda T, D: D.Normal("a", 1.0), lambda T, D: D.Bernoulli(0.3).rsample(), lambda T, D: D.MultivariateNormal(T.zeros(2)),
    lambda T, D: D.MultivariateNormal(T.tensor(0.0), T.eye(2)), lambda T, D: D.MultivariateNormal(T.zeros(2), -T.eye(2)),
    lambda T, D: D.Independent(D.Normal(T.zeros(2, 3), 1.0), 3), lambda T, D: D.Multinomial(T.tensor([2]), T.ones(3)), lambda T, D: D.LKJCholesky(1),
    lambda T, D: D.MixtureSameFamily(D.Categorical(T.ones(3)), D.Normal(T.zeros(2), 1.0)), lambda T, D: D.Binomial(T.tensor([1, 2]), T.tensor([0.5, 0.5])).entropy(),
    lambda T, D: D.TransformedDistribution(D.Normal(0.0, 1.0), 3), lambda T, D: D.biject_to(D.constraints.boolean), lambda T, D: D.AffineTransform(0.0, 1.0, cache_size=2),
    lambda T, D: D.constraints.dependent.check(1), lambda T, D: D.Dirichlet(T.tensor(1.0)), lambda T, D: D.Wishart(T.tensor(0.5), T.eye(2)),
]


@pytest.mark.parametrize("n", range(len(ERRORS)))
def test_errors(n):
    messages = []
    for T in SIDES:
        with pytest.raises(Exception) as e:
            ERRORS[n](T, T.distributions)
        messages.append((e.type.__name__, " ".join(str(e.value).split())))
    assert messages[0] == messages[1]


def test_validation_can_be_switched_off():
    D = mine.distributions
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    assert D.Uniform(0.0, 1.0, validate_args=False).log_prob(mine.tensor(2.0)).item() == -np.inf
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)


def test_scalars_adopt_the_tensor_dtype():
    for T in SIDES:
        D = T.distributions
        assert str(D.Normal(T.zeros(2, dtype=T.float64), 1.0).scale.dtype) == "torch.float64"
        assert str(D.Normal(0, 1).loc.dtype) == "torch.float32" and D.Poisson(3).batch_shape == ()
        assert D.Bernoulli(0.3).sample().dtype == T.float32


def test_copies():
    d = mine.distributions.Normal(mine.zeros(2), mine.ones(2))
    for c in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        assert c.log_prob(mine.zeros(2)).tolist() == d.log_prob(mine.zeros(2)).tolist()


@pytest.mark.parametrize("diag", [-2, -1, 0, 1])
def test_tril_matrix_conversions(diag):
    m = np.random.RandomState(0).randn(2, 4, 4)
    both(lambda T: T.distributions.utils.tril_matrix_to_vec(T.tensor(m), diag), "to vec")
    both(lambda T: T.distributions.utils.vec_to_tril_matrix(T.distributions.utils.tril_matrix_to_vec(T.tensor(m), diag), diag), "to matrix")
    both(lambda T: T.distributions.utils.vec_to_tril_matrix(T.ones(2), 0), "wrong length")


def test_public_names():
    for module in ("distributions", "distributions.constraints", "distributions.transforms", "distributions.kl", "distributions.utils"):
        a, b = real, mine
        for part in module.split("."):
            a, b = getattr(a, part), getattr(b, part)
        missing = [n for n in a.__all__ if not hasattr(b, n)]
        assert not missing, f"{module}: {missing}"
