"""Training steps written once in PyTorch; they run under real torch and under mindtorch (see run.py).

Each builder returns step(): one forward, backward and optimizer step on fixed data, giving the loss as a float.
"""
import numpy as np


def _arrays(seed, *specs):
    rs = np.random.RandomState(seed)
    return [rs.randn(*s).astype(np.float32) if hi is None else rs.randint(0, hi, s).astype(np.int64) for s, hi in specs]


def _fill(torch, net, seed=1):
    """Weights by NumPy, so that every implementation starts from the same point."""
    rs = np.random.RandomState(seed)
    with torch.no_grad():
        for p in net.parameters():
            shape = tuple(p.shape)
            fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
            a = rs.randn(*shape) / np.sqrt(fan) if len(shape) > 1 else rs.randn(*shape) * 0.01
            p.copy_(torch.from_numpy(np.asarray(a, np.float32)))
    return net


def _step(torch, net, loss_fn, data, lr=0.01):
    opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)

    def step():
        opt.zero_grad()
        loss = loss_fn(net, *data)
        loss.backward()
        opt.step()
        return loss.item()
    return step


def mlp(torch):
    """784-512-512-10, batch 64."""
    nn = torch.nn
    net = _fill(torch, nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)))
    x, y = _arrays(0, ((64, 784), None), ((64,), 10))
    ce = nn.CrossEntropyLoss()
    return _step(torch, net, lambda n, a, b: ce(n(a), b), (torch.from_numpy(x), torch.from_numpy(y)))


def lenet(torch):
    """LeNet-5 on 28x28, batch 64."""
    nn = torch.nn
    net = _fill(torch, nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                                     nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                                     nn.Linear(84, 10)))
    x, y = _arrays(0, ((64, 1, 28, 28), None), ((64,), 10))
    ce = nn.CrossEntropyLoss()
    return _step(torch, net, lambda n, a, b: ce(n(a), b), (torch.from_numpy(x), torch.from_numpy(y)))


def small_cnn(torch):
    """Three 3x3 convolutions with batch norm on 32x32, batch 16."""
    nn = torch.nn

    def block(i, o, stride=1):
        return [nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
    net = _fill(torch, nn.Sequential(*block(3, 32), *block(32, 32), *block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                     nn.Linear(64, 10)))
    x, y = _arrays(0, ((16, 3, 32, 32), None), ((16,), 10))
    ce = nn.CrossEntropyLoss()
    return _step(torch, net, lambda n, a, b: ce(n(a), b), (torch.from_numpy(x), torch.from_numpy(y)))


MODELS = {"mlp": mlp, "lenet": lenet, "small_cnn": small_cnn}
