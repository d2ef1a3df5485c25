"""A model for comparisons of devices, and faults for them: kernels of the npu device that compute something else than they should.

The file is loaded by both sides' processes; a fault is planted in the second one's alone.
"""
import functools

import torch
import torch.nn.functional as F
from torch import nn


class Gate(nn.Module):
    """Every row by a number of its own."""

    def forward(self, x):
        return x * torch.linspace(0.5, 1.5, len(x), dtype=x.dtype, device=x.device)[:, None]


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc1, self.act1, self.fc2, self.act2 = nn.Linear(n, 2 * n), nn.Sigmoid(), nn.Linear(2 * n, n), nn.Sigmoid()
        self.norm = nn.LayerNorm(n)

    def forward(self, x):
        return x + self.norm(self.act2(self.fc2(self.act1(self.fc1(x)))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.body = nn.Embedding(7, 12), nn.Sequential(Block(12), Block(12))
        self.soft, self.square, self.bn, self.tanh = nn.Softmax(dim=1), nn.Linear(12, 12), nn.BatchNorm1d(12), nn.Tanh()
        self.gate, self.mean, self.head = Gate(), Mean(), nn.Linear(12, 3)

    def forward(self, tokens):
        x = self.mean(self.embed(tokens))
        x = self.square(x * (1 + self.soft(x)))
        return self.head(self.gate(self.tanh(self.bn(self.body(x)))))


def net():
    return Net(), [torch.randint(0, 7, (12, 5))]


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-4)
