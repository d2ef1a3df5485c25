"""ResNet-18 and ResNet-50 (He et al., 2015) with torchvision's parameter names."""
import torch
from torch import nn


def conv(cin, cout, size, stride=1):
    return nn.Conv2d(cin, cout, size, stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, cin, width, stride, downsample):
        super().__init__()
        self.conv1, self.bn1 = conv(cin, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)
        self.relu, self.downsample = nn.ReLU(inplace=True), downsample

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, cin, width, stride, downsample):
        super().__init__()
        self.conv1, self.bn1 = conv(cin, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.relu, self.downsample = nn.ReLU(inplace=True), downsample

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    """Residual network. `width` is the number of channels of the first stage (64 in the paper)."""

    def __init__(self, block, layers, num_classes=1000, width=64):
        super().__init__()
        self.conv1, self.bn1 = conv(3, width, 7, 2), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        cin = width
        for i, n in enumerate(layers):
            blocks = []
            for j in range(n):
                stride, out = (2 if i and not j else 1), width * 2 ** i
                shortcut = None
                if stride != 1 or cin != out * block.expansion:
                    shortcut = nn.Sequential(conv(cin, out * block.expansion, 1, stride), nn.BatchNorm2d(out * block.expansion))
                blocks.append(block(cin, out, stride, shortcut))
                cin = out * block.expansion
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(cin, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


ARCHITECTURES = {"resnet18": (BasicBlock, [2, 2, 2, 2]), "resnet50": (Bottleneck, [3, 4, 6, 3])}


def build(arch, num_classes, width=64):
    return ResNet(*ARCHITECTURES[arch], num_classes=num_classes, width=width)
