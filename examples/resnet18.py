"""ResNet-18 for a layer-by-layer comparison of PyTorch and mindtorch.

    python -m mindtorch diff examples/resnet18.py:build_model                       # the two agree
    python -m mindtorch diff examples/resnet18.py:build_model --fault wrong_eps     # finds the faulty BatchNorm

`build_model` returns the model and its inputs. `wrong_eps` is applied only on mindtorch's side.
"""
import torch
from torch import nn


class Block(nn.Module):
    """Two 3x3 convolutions with a skip connection."""

    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or before != channels:
            self.downsample = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        around = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + around)


class ResNet18(nn.Module):
    """Four stages of two blocks, 64 to 512 channels."""

    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def build_model():
    """Returns the model in training mode and one small batch."""
    return ResNet18(), torch.randn(4, 3, 64, 64)


def wrong_eps(model):
    """Injects the fault: one of the twenty BatchNorms gets a different eps."""
    model.layer2[0].bn2.eps = 1e-3
