"""With only manual_seed, ten training steps print the same losses as PyTorch."""
import numpy as np
import pytest
import torch

import mindtorch.torch as mt

pytestmark = pytest.mark.smoke


def mlp(T):
    nn = T.nn
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 32), nn.GELU(), nn.Dropout(0.1),
                         nn.Linear(32, 5)), (16, 20), 5


def cnn(T):
    nn = T.nn
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.2),
                         nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.5),
                         nn.Linear(64, 4)), (8, 3, 12, 12), 4


def train(T, build, optimizer):
    T.manual_seed(1234)
    net, shape, classes = build(T)
    opt = optimizer(T, net.parameters())
    losses = []
    for _ in range(10):
        x, y = T.randn(*shape), T.randint(0, classes, (shape[0],))
        loss = T.nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("build", [mlp, cnn])
@pytest.mark.parametrize("optimizer", [lambda T, p: T.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
                                       lambda T, p: T.optim.Adam(p, lr=0.01)], ids=["sgd", "adam"])
def test_ten_steps_from_the_seed(build, optimizer):
    np.testing.assert_allclose(train(mt, build, optimizer), train(torch, build, optimizer), rtol=1e-3)
