"""Checks of libraries for differential equations, and spiking neurons."""
from library_checks.registry import check, train


@check("torchdiffeq")
def torchdiffeq():
    """odeint with dopri5 and rk4, the adjoint method's gradients"""
    import torch
    from torchdiffeq import odeint, odeint_adjoint
    t = torch.linspace(0, 1, 5, dtype=torch.float64)  # (in float32 rounding decides the step size)
    for method in ("dopri5", "rk4"):
        y = odeint(lambda t, y: -y, torch.ones(1, dtype=torch.float64), t, method=method)
        assert torch.allclose(y[-1], torch.exp(-torch.ones(1, dtype=torch.float64)), atol=1e-3)

    class F(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(2, 2)

        def forward(self, t, y):
            return self.lin(y)
    f = F()
    odeint_adjoint(f.double(), torch.ones(3, 2, dtype=torch.float64), t)[-1].sum().backward()
    assert f.lin.weight.grad is not None


@check("torchsde", "trampoline")
def torchsde():
    """sdeint, gradients"""
    import torch
    import torchsde

    class S(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.ones(1))

        def f(self, t, y):
            return -self.a * y

        def g(self, t, y):
            return 0.1 * torch.ones_like(y)
    s = S()
    ys = torchsde.sdeint(s, torch.ones(3, 2), torch.linspace(0, 1, 4), method="euler", dt=0.1)
    ys.sum().backward()
    assert ys.shape == (4, 3, 2) and s.a.grad is not None


@check("torchcde", "torchdiffeq")
def torchcde():
    """a controlled differential equation along a cubic spline, with gradients"""
    import torch
    import torchcde as library

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 6)

        def forward(self, t, z):
            return self.linear(z).reshape(*z.shape[:-1], 2, 3).tanh()
    x = torch.randn(4, 6, 3)
    path, field = library.CubicSpline(library.hermite_cubic_coefficients_with_backward_differences(x)), Field()
    assert torch.allclose(path.evaluate(path.grid_points[2]), x[:, 2], atol=1e-5)
    z = library.cdeint(X=path, func=field, z0=torch.zeros(4, 2), t=path.interval, method="rk4", options={"step_size": 0.5})
    z[:, -1].pow(2).sum().backward()
    assert field.linear.weight.grad.abs().sum() > 0


@check("snntorch")
def snntorch():
    """spiking neurons over time: training step through a surrogate gradient"""
    import snntorch as library
    import torch
    from snntorch import surrogate

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.cell, self.b = torch.nn.Linear(4, 8), library.Leaky(beta=0.9, spike_grad=surrogate.fast_sigmoid()), torch.nn.Linear(8, 2)

        def forward(self, x):
            mem, total = self.cell.init_leaky(), 0
            for step in x:
                spikes, mem = self.cell(self.a(step), mem)
                total = total + self.b(spikes)
            return total
    train(Net(), (torch.rand(5, 3, 4) * 3,))
