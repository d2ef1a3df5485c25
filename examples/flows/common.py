"""Shared code of the flow examples: a small network, its data, and a log of the training steps."""
import argparse

import numpy as np
import torch
from torch import nn

CLASSES = 5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(96, 32)
        self.norm = nn.LayerNorm(32)
        self.fc2 = nn.Linear(32, CLASSES)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn(self.conv(x))))
        x = nn.functional.gelu(self.norm(self.fc1(torch.flatten(x, 1))))
        return self.fc2(x)


class Lion(torch.optim.Optimizer):
    """A custom optimizer in PyTorch's style: the sign of a running mean of the gradients."""

    def __init__(self, params, lr=1e-3, beta=0.9):
        super().__init__(params, dict(lr=lr, beta=beta))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.update(p, p.grad, group)

    def update(self, p, grad, group):
        state = self.state[p]
        mean = state.setdefault("mean", torch.zeros_like(p))
        mean.mul_(group["beta"]).add_(grad, alpha=1 - group["beta"])
        p.add_(torch.sign(mean), alpha=-float(group["lr"]))


def make_net(seed=0):
    torch.manual_seed(seed)
    return Net()


def batch(i, size=16):
    """Returns the images and labels of step i as NumPy arrays."""
    rs = np.random.RandomState(100 + i)
    y = rs.randint(0, CLASSES, size)
    x = rs.randn(size, 1, 8, 8).astype(np.float32)
    x[np.arange(size), 0, y] += 2  # a pattern to learn
    return x, y.astype(np.int64)


def tensors(i, size=16):
    return [torch.from_numpy(a).to(torch.get_default_device()) for a in batch(i, size)]


class Log:
    """Log of a flow.

    Prints the losses. With --record FILE it also writes losses, gradients and weights of every step
    to an .npz file. --device selects the device of the flow. With `others`, unknown arguments are
    stored in `rest`; otherwise they are errors.
    """

    def __init__(self, others=False):
        parser = argparse.ArgumentParser()
        parser.add_argument("--device", help="device of networks and tensors: cpu, npu, cuda; default: PyTorch's default device")
        parser.add_argument("--record", metavar="FILE", help="write losses, gradients and weights to this file (.npz)")
        self.args, self.rest = parser.parse_known_args() if others else (parser.parse_args(), [])
        if self.args.device:
            torch.set_default_device(self.args.device)
        self.numbers = {}

    def step(self, i, loss, net, grads=None, prefix=""):
        loss = float(loss)
        print(f"{prefix}step {i}  loss {loss:.6f}", flush=True)
        self.numbers[f"{prefix}{i}/loss"] = loss
        named = list(net.named_parameters())
        for (name, _), g in zip(named, grads if grads is not None else [p.grad for _, p in named]):
            if g is not None:
                self.numbers[f"{prefix}{i}/grad/{name}"] = np.array(g.detach().cpu().numpy() if hasattr(g, "detach") else g.asnumpy())
        for name, v in net.state_dict().items():
            self.numbers[f"{prefix}{i}/weight/{name}"] = np.array(v.detach().cpu().numpy())

    def keep(self, **numbers):
        self.numbers.update({k.replace("__", "/"): np.array(v) for k, v in numbers.items()})

    def close(self):
        if self.args.record:
            np.savez(self.args.record, **self.numbers)
