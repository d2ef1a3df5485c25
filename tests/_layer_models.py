"""Models for the layer tools, clean and with faults planted on one side. The processes of both
libraries load this file."""
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(12, 32), nn.Linear(32, 32), nn.Linear(32, 4)
        self.norm, self.act1, self.act2 = nn.BatchNorm1d(32), nn.ReLU(), nn.Tanh()
        self.detach = False

    def forward(self, x):
        side = F.softplus(x).sum(1, keepdim=True)
        h = self.act2(self.fc2(self.act1(self.norm(self.fc1(x)))))
        if self.detach:
            h = h.detach()
        return self.fc3(h) + side


class Residual(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n)
        self.conv2, self.bn2 = nn.Conv2d(n, n, 3, padding=1), nn.BatchNorm2d(n)
        self.relu = nn.ReLU(inplace=True)
        self.detach = False

    def forward(self, x):
        h = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu((h.detach() if self.detach else h) + x)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.block1, self.block2 = Residual(8), Residual(8)
        self.pool, self.drop, self.head = nn.MaxPool2d(2), nn.Dropout(0.3), nn.Linear(8, 5)

    def forward(self, x):
        x = self.block2(self.pool(self.block1(self.stem(x))))
        return self.head(self.drop(F.adaptive_avg_pool2d(x, 1).flatten(1)))


class Basic(nn.Module):
    """ResNet's basic block."""

    def __init__(self, n_in, n, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n_in, n, 3, stride, 1, bias=False), nn.BatchNorm2d(n)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(n, n, 3, 1, 1, bias=False), nn.BatchNorm2d(n)
        self.downsample, self.detach = None, False
        if stride != 1 or n_in != n:
            self.downsample = nn.Sequential(nn.Conv2d(n_in, n, 1, stride, bias=False), nn.BatchNorm2d(n))

    def forward(self, x):
        h = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        skip = x if self.downsample is None else self.downsample(x)
        return self.relu(h + (skip.detach() if self.detach else skip))


class ResNet18(nn.Module):
    """ResNet-18: its stem, its four stages of two blocks, its names. `width` is 64 in the paper."""

    def __init__(self, width=64, classes=10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        before = width
        for i in range(4):
            n = width << i
            setattr(self, f"layer{i + 1}", nn.Sequential(Basic(before, n, 2 if i else 1), Basic(n, n, 1)))
            before = n
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(before, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Center(nn.Module):
    """Subtracts the running mean, which it stores in a buffer."""

    def __init__(self, n):
        super().__init__()
        self.register_buffer("mean", torch.zeros(n))
        self.update = True

    def forward(self, x):
        out = x - self.mean
        if self.training and self.update:
            self.mean += 0.1 * (x.detach().mean(dim=tuple(range(x.dim() - 1))) - self.mean)
        return out


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(30, 16), nn.LSTM(16, 24, num_layers=2, batch_first=True)
        self.norm, self.center, self.act, self.head = nn.LayerNorm(24), Center(24), nn.SiLU(), nn.Linear(24, 30)
        self.detach = False

    def forward(self, tokens):
        e = self.embed(tokens)
        h, _ = self.lstm(e.detach() if self.detach else e)
        return self.head(self.act(self.center(self.norm(h))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.center = nn.Embedding(30, 16), Center(16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 30)
        self.register_buffer("scale", torch.tensor(4.0))
        self.detach = False

    def forward(self, tokens):
        e = self.center(self.embed(tokens) * self.scale)
        return self.head(self.encoder(e) + (e.detach() if self.detach else e))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.bn = nn.Linear(6, 6), nn.BatchNorm1d(6)

    def forward(self, x):
        return self.bn(self.fc(x))


class Calls(nn.Module):
    """A module whose forward takes another path if `how` is set."""

    def __init__(self):
        super().__init__()
        self.fc1, self.act1, self.act2, self.fc2, self.extra = nn.Linear(4, 4), nn.ReLU(), nn.ReLU(), nn.Linear(4, 2), nn.Identity()
        self.block, self.how = nn.Sequential(nn.Tanh()), ""

    def forward(self, x):
        x = self.fc1(x)
        first, second = (self.act2, self.act1) if self.how == "order" else (self.act1, self.act2)
        x = first(x)
        if self.how != "missing":
            x = second(x)
        if self.how in ("times", "wrong_before"):
            x = second(x)
        x = (self.block[0] if self.how == "nesting" else self.block)(x)
        if self.how == "extra":
            x = self.extra(x)
        x = torch.sin(x) if self.how == "function" else torch.cos(x)
        x = self.fc2(x)
        if self.how == "last":
            x = self.extra(x)
        return (x, x) if self.how == "outputs" else {"a": x} if self.how == "mapping" else x


def calls():
    return Calls(), [torch.randn(3, 4)]


def mlp():
    return Mlp(), [torch.randn(16, 12)]


def cnn():
    return Cnn(), [torch.randn(6, 3, 10, 10)]


def resnet():
    return ResNet18(width=16), [torch.randn(4, 3, 64, 64)]


def half():
    return Mlp().bfloat16(), [torch.randn(16, 12).bfloat16()]


def double():
    return Mlp().double(), [torch.randn(16, 12).double()]


def resnet_eval():
    model = ResNet18(width=16)
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.2)
            m.running_var.uniform_(0.5, 2)
    return model.eval(), [torch.randn(2, 3, 64, 64)]


def lstm():
    return Lstm(), [torch.randint(0, 30, (4, 9))]


def transformer():
    return Transformer(), [torch.randint(0, 30, (4, 7))]


def no_module():
    return 3


def broken():
    raise OSError("the data set is not there")


def random_each_time():
    import os
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(x) + int.from_bytes(os.urandom(2), "big")
    return Net(), [torch.ones(2, 3)]


def two_shapes():
    facade = "mindspore" in __import__("sys").modules
    return nn.Linear(3, 4 if facade else 5), [torch.ones(2, 3)]


def two_names():
    facade = "mindspore" in __import__("sys").modules
    return nn.Sequential(OrderedDict({"a": nn.Linear(3, 3, bias=facade)})), [torch.ones(2, 3)]


def torch_cannot():
    if "mindspore" not in __import__("sys").modules:
        raise RuntimeError("only mindtorch builds this")
    return nn.Linear(3, 3), [torch.ones(2, 3)]


def facade_cannot():
    class Net(nn.Linear):
        def forward(self, x):
            return super().forward(x.to_mkldnn().to_dense())
    return Net(3, 3), [torch.ones(2, 3)]


def cross_entropy(out, target):
    return F.cross_entropy(out, target)


def rate(model):
    """Returns an optimizer with different momentum settings for one layer, in one of the two
    libraries only."""
    facade = "mindspore" in __import__("sys").modules
    rest = [p for n, p in model.named_parameters() if not n.startswith("fc3")]
    return torch.optim.SGD([{"params": rest}, {"params": model.fc3.parameters(), "dampening": 0.05 if facade else 0.0}],
                           lr=0.01, momentum=0.9)


# ------------------------------------------------------------------ faults, on one side only
def add(parameter, value):
    with torch.no_grad():
        parameter.add_(value)


def transpose(weight):
    with torch.no_grad():
        weight.copy_(weight.transpose(0, 1).clone())


def mlp_eps(m):
    m.norm.eps = 1e-3


def mlp_bias(m):
    add(m.fc2.bias, 1e-3)


def mlp_activation(m):
    m.act2 = nn.Hardtanh()


def mlp_transposed(m):
    transpose(m.fc2.weight)


def mlp_detached(m):
    m.detach = True


def mlp_buffer(m):
    m.norm.momentum = 0.0


def half_bias(m):
    add(m.fc2.bias, 0.3)


def double_bias(m):
    add(m.fc2.bias, 1e-9)


def cnn_eps(m):
    m.block1.bn1.eps = 1e-3


def cnn_bias(m):
    add(m.block2.conv2.bias[2:3], 1e-3)


def cnn_buffer(m):
    bn = m.block1.bn2

    def forget(*_):
        bn.running_mean.zero_()
    bn.register_forward_hook(forget)


def resnet_eps(m):
    m.layer2[0].bn2.eps = 1e-3


def resnet_eval_eps(m):
    m.layer3[0].downsample[1].eps = 1e-3


def resnet_bias(m):
    add(m.layer3[1].bn1.bias, 1e-3)


def resnet_activation(m):
    m.layer3[0].relu = nn.ELU(inplace=True)


def resnet_transposed(m):
    transpose(m.layer2[1].conv1.weight)


def resnet_detached(m):
    m.layer3[0].detach = True


def resnet_buffer(m):
    m.layer4[1].bn1.momentum = 0.0


def lstm_eps(m):
    m.norm.eps = 1e-3


def lstm_bias(m):
    add(m.lstm.bias_hh_l1, 1e-3)


def lstm_activation(m):
    m.act = nn.GELU()


def lstm_transposed(m):
    transpose(m.lstm.weight_hh_l0[:24])


def lstm_detached(m):
    m.detach = True


def lstm_buffer(m):
    m.center.update = False


def transformer_eps(m):
    m.encoder.layers[0].norm1.eps = 1e-3


def transformer_bias(m):
    add(m.encoder.layers[1].linear2.bias, 1e-3)


def transformer_activation(m):
    m.encoder.layers[1].activation = F.gelu


def transformer_transposed(m):
    transpose(m.encoder.layers[1].self_attn.out_proj.weight)


def transformer_detached(m):
    m.detach = True


def transformer_buffer(m):
    m.center.update = False


def transformer_scale(m):
    m.scale.mul_(1.01)


def _another_way(how):
    def fault(m):
        m.how = how
    return fault


for _how in ("order", "missing", "times", "nesting", "extra", "last", "function", "outputs", "mapping"):
    globals()[f"calls_{_how}"] = _another_way(_how)


def calls_shared(m):
    m.act2 = m.act1


def calls_wrong_before(m):
    add(m.fc1.bias, 1e-3)
    m.how = "wrong_before"
