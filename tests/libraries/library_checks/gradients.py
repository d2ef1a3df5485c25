"""Checks of libraries for other gradients: per sample, of second order, through an optimizer, of
several losses."""
from library_checks.registry import check


@check("opacus")
def opacus():
    """per-sample gradients compared with a loop over samples, a private training step"""
    import torch
    from opacus import GradSampleModule, PrivacyEngine
    net, x = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(9, 1)), torch.randn(4, 2, 5)
    whole = GradSampleModule(net, loss_reduction="sum")
    whole(x).sum().backward()
    samples = [p.grad_sample.clone() for p in net.parameters()]
    for i in range(4):
        alone = torch.autograd.grad(net(x[i:i + 1]).sum(), list(net.parameters()))
        assert all(torch.allclose(s[i], g, atol=1e-5) for s, g in zip(samples, alone))
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=4)
    net = torch.nn.Linear(4, 1)
    engine = PrivacyEngine(accountant="rdp")
    net, opt, data = engine.make_private(module=net, optimizer=torch.optim.SGD(net.parameters(), 0.1), data_loader=data, noise_multiplier=1.0,
                                         max_grad_norm=1.0)
    for x, y in data:
        opt.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        opt.step()
    assert engine.get_epsilon(1e-5) > 0 and torch.isfinite(net._module.weight).all()


@check("backpack-for-pytorch", "unfoldnd", "einops")
def backpack_for_pytorch():
    """per-sample gradients, diagonal of the Gauss-Newton matrix"""
    import torch
    from backpack import backpack, extend
    from backpack.extensions import BatchGrad, DiagGGNExact
    net, loss = extend(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 2))), extend(torch.nn.CrossEntropyLoss())
    with backpack(BatchGrad(), DiagGGNExact()):
        loss(net(torch.randn(5, 3)), torch.randint(0, 2, (5,))).backward()
    for p in net.parameters():
        assert torch.allclose(p.grad_batch.sum(0), p.grad, atol=1e-6) and (p.diag_ggn_exact >= 0).all()


@check("higher")
def higher():
    """two steps of an inner optimizer, the gradient through both"""
    import higher as library
    import torch
    net, x = torch.nn.Linear(2, 1), torch.randn(5, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with library.innerloop_ctx(net, opt, copy_initial_weights=False) as (inner, steps):
        for _ in range(2):
            steps.step(inner(x).pow(2).mean())
        last = inner(x).pow(2).mean()
        last.backward()
    assert net.weight.grad.abs().sum() > 0


@check("torchjd")
def torchjd():
    """two losses, their Jacobian's rows aggregated so that neither increases"""
    import torch
    from torchjd.aggregation import ConFIG
    from torchjd.autojac import backward
    net, x = torch.nn.Linear(3, 2), torch.randn(6, 3)
    losses = lambda: [net(x)[:, 0].pow(2).mean(), (net(x)[:, 1] - 1).pow(2).mean()]  # noqa: E731
    before = [v.item() for v in losses()]
    backward(losses())
    for p in net.parameters():
        jacobian = p.jac.reshape(2, -1)
        p.grad = ConFIG()(jacobian).reshape(p.shape)
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.01 * p.grad
    assert all(v.item() < b for v, b in zip(losses(), before))
