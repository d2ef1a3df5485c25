"""Checks of libraries for probability: Gaussian processes, variational inference, normalizing
flows."""
from library_checks.registry import check, place, train


@check("gpytorch", "linear_operator", "jaxtyping")
def gpytorch():
    """exact GP: marginal likelihood, its gradient, prediction"""
    import gpytorch
    import torch
    x = torch.linspace(0, 1, 10)
    y = torch.sin(x * 6)

    class GP(gpytorch.models.ExactGP):
        def __init__(self, lik):
            super().__init__(x, y, lik)
            self.mean, self.cov = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.cov(x))
    lik = gpytorch.likelihoods.GaussianLikelihood()
    gp = GP(lik)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(lik, gp)
    opt = torch.optim.Adam(gp.parameters(), 0.1)
    for _ in range(3):
        opt.zero_grad()
        loss = -mll(gp(x), y)
        loss.backward()
        opt.step()
    gp.eval()
    lik.eval()
    with torch.no_grad():
        foretold = lik(gp(torch.tensor([0.5])))
        mean, variance = foretold.mean, foretold.variance
    assert torch.isfinite(mean).all() and (variance > 0).all()


@check("botorch", "gpytorch", "linear_operator", placed=True)
def botorch():
    """SingleTaskGP, expected improvement optimised"""
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    x = torch.rand(6, 1, dtype=torch.float64, device=place())
    gp = SingleTaskGP(x, (x * 6).sin())
    ei = LogExpectedImprovement(gp, best_f=0.5)
    point, _ = optimize_acqf(ei, torch.tensor([[0.0], [1.0]], dtype=torch.float64, device=place()), q=1, num_restarts=2, raw_samples=4)
    assert point.shape == (1, 1)


@check("pyro-ppl", "pyro-api")
def pyro_ppl():
    """SVI with an automatic guide, importance of samples"""
    import pyro
    import pyro.distributions as dist
    import torch
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoNormal
    data = torch.randn(20) + 3

    def model():
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
        with pyro.plate("d", 20):
            pyro.sample("x", dist.Normal(mu, 1.0), obs=data)
    svi = SVI(model, AutoNormal(model), pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [svi.step() for _ in range(30)]
    assert losses[-1] < losses[0]


@check("zuko")
def zuko():
    """a masked autoregressive and a spline flow: training steps, samples"""
    import torch
    import zuko as library
    x = torch.randn(32, 3)
    for flow in (library.flows.MAF(3, transforms=2, hidden_features=(16,)), library.flows.NSF(3, transforms=1, hidden_features=(16,))):
        opt = torch.optim.Adam(flow.parameters(), 1e-2)
        losses = []
        for _ in range(8):
            opt.zero_grad()
            loss = -flow().log_prob(x).mean()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        sampled = flow().sample((5,))
        assert losses[-1] < losses[0] and sampled.shape == (5, 3)


@check("nflows")
def nflows():
    """a coupling flow: training steps, the transform and its inverse"""
    import torch
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.transforms import CompositeTransform, MaskedAffineAutoregressiveTransform, ReversePermutation
    flow = Flow(CompositeTransform([ReversePermutation(2), MaskedAffineAutoregressiveTransform(2, hidden_features=8)]), StandardNormal([2]))
    x = torch.randn(16, 2)
    z, forth = flow._transform(x)
    back, away = flow._transform.inverse(z)
    assert torch.allclose(back, x, atol=1e-4) and torch.allclose(forth, -away, atol=1e-4)
    train(flow._transform, (x,), loss=lambda o: o[0].pow(2).mean() - o[1].mean())
    sampled = flow.sample(4)
    assert sampled.shape == (4, 2)
