"""Checks of libraries for optimizers, schedules of the learning rate, moving averages of
parameters."""
from library_checks.registry import check, place


def _descends(make, steps=25):
    """Checks that an optimizer reduces a quadratic loss."""
    import torch
    torch.manual_seed(0)
    net, x = torch.nn.Linear(4, 3), torch.randn(16, 4)
    y = x @ torch.randn(4, 3)
    opt = make(net.parameters())
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses


@check("lion-pytorch")
def lion_pytorch():
    """Lion steps"""
    import torch
    from lion_pytorch import Lion
    m = torch.nn.Linear(3, 1)
    opt = Lion(m.parameters(), lr=1e-2)
    before = m.weight.detach().clone()
    m(torch.ones(2, 3)).sum().backward()
    opt.step()
    assert torch.allclose((m.weight - before).abs(), torch.full_like(before, 1e-2), atol=1e-6)


@check("schedulefree")
def schedulefree():
    """AdamWScheduleFree, train and eval weights"""
    import schedulefree
    import torch
    m = torch.nn.Linear(3, 1)
    opt = schedulefree.AdamWScheduleFree(m.parameters(), lr=0.1)
    opt.train()
    for _ in range(3):
        opt.zero_grad()
        m(torch.ones(2, 3)).pow(2).sum().backward()
        opt.step()
    opt.eval()
    assert torch.isfinite(m.weight).all()


@check("torch-optimizer", "pytorch_ranger")
def torch_optimizer():
    """several optimizers' steps"""
    import torch
    import torch_optimizer
    nets = []
    for name in ("RAdam", "DiffGrad", "Lamb", "AdaBound", "Yogi"):
        m = torch.nn.Linear(3, 1)
        nets.append(m)
        opt = torch_optimizer.get(name)(m.parameters(), lr=1e-2)
        m(torch.ones(2, 3)).sum().backward()
        opt.step()
        assert torch.isfinite(m.weight).all(), name


@check("pytorch-optimizer")
def pytorch_optimizer():
    """AdaBelief, Adan, Lion, Shampoo, SAM: each reduces the loss"""
    import pytorch_optimizer as po
    import torch
    for name in ("AdaBelief", "Adan", "Lion", "Shampoo"):
        _descends(lambda parameters, name=name: getattr(po, name)(parameters, lr=2e-2), 30)
    net = torch.nn.Linear(4, 1)
    sam, x = po.SAM(net.parameters(), base_optimizer=torch.optim.SGD, lr=0.1), torch.randn(3, 4)

    def closure():
        loss = net(x).pow(2).mean()
        loss.backward()
        return loss
    first = closure().item()
    sam.step(closure)
    assert net(x).pow(2).mean().item() < first


@check("prodigyopt")
def prodigyopt():
    """Prodigy finds its step size"""
    from prodigyopt import Prodigy
    _descends(lambda parameters: Prodigy(parameters, lr=1.0), 40)


@check("adabelief-pytorch", "colorama", "tabulate")
def adabelief_pytorch():
    """AdaBelief with rectification"""
    from adabelief_pytorch import AdaBelief
    _descends(lambda parameters: AdaBelief(parameters, lr=1e-2, eps=1e-12, print_change_log=False))


@check("pytorch-warmup")
def pytorch_warmup():
    """linear and RAdam warm-up around a scheduler"""
    import pytorch_warmup as warmup
    import torch
    p = torch.nn.Parameter(torch.zeros(2))
    opt = torch.optim.AdamW([p], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=10)
    rising = warmup.LinearWarmup(opt, warmup_period=4)
    rates = []
    for _ in range(5):
        rates.append(opt.param_groups[0]["lr"])
        opt.step()
        with rising.dampening():
            schedule.step()
    assert rates[0] < rates[1] < rates[2] < rates[3]
    assert isinstance(warmup.RAdamWarmup(torch.optim.Adam([p])), warmup.BaseWarmup)


@check("torch-lr-finder")
def torch_lr_finder():
    """a range test of learning rates, state restored afterwards"""
    import torch
    from torch_lr_finder import LRFinder
    net = torch.nn.Linear(4, 1)
    before = net.weight.detach().clone()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=4)
    finder = LRFinder(net, torch.optim.SGD(net.parameters(), 1e-4), torch.nn.MSELoss(), device=place())
    finder.range_test(data, end_lr=1, num_iter=8)
    assert len(finder.history["loss"]) >= 5
    finder.reset()
    assert torch.equal(net.weight, before)


@check("torch-ema")
def torch_ema():
    """a moving average of parameters, swapped in temporarily"""
    import torch
    from torch_ema import ExponentialMovingAverage
    net = torch.nn.Linear(2, 1)
    ema = ExponentialMovingAverage(net.parameters(), decay=0.5, use_num_updates=False)
    before = net.weight.detach().clone()
    with torch.no_grad():
        net.weight.add_(1)
    ema.update()
    with ema.average_parameters():
        assert torch.allclose(net.weight, before + 0.5)
    assert torch.allclose(net.weight, before + 1)
