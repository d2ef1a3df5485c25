"""Models for the layer tools, clean and with faults planted on one side. The file is loaded by both libraries' processes."""
import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(12, 32), nn.Linear(32, 32), nn.Linear(32, 4)
        self.act1, self.act2 = nn.ReLU(), nn.Tanh()
        self.detach = False

    def forward(self, x):
        side = F.softplus(x).sum(1, keepdim=True)
        h = self.act2(self.fc2(self.act1(self.fc1(x))))
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


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(30, 16), nn.LSTM(16, 24, num_layers=2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 30)
        self.detach = False

    def forward(self, tokens):
        e = self.embed(tokens)
        h, _ = self.lstm(e.detach() if self.detach else e)
        return self.head(self.norm(h))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 30)
        self.register_buffer("scale", torch.tensor(4.0))

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens) * self.scale))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.bn = nn.Linear(6, 6), nn.BatchNorm1d(6)

    def forward(self, x):
        return self.bn(self.fc(x))


def mlp():
    return Mlp(), [torch.randn(16, 12)]


def cnn():
    return Cnn(), [torch.randn(6, 3, 10, 10)]


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


def cross_entropy(out, target):
    return F.cross_entropy(out, target)


def rate(model):
    """An optimizer with another momentum for one layer, in one of the two libraries only."""
    facade = "mindspore" in __import__("sys").modules
    rest = [p for n, p in model.named_parameters() if not n.startswith("fc3")]
    return torch.optim.SGD([{"params": rest}, {"params": model.fc3.parameters(), "dampening": 0.05 if facade else 0.0}],
                           lr=0.01, momentum=0.9)


# ------------------------------------------------------------------ faults
def add(parameter, value):
    with torch.no_grad():
        parameter.add_(value)


def mlp_bias(m):
    add(m.fc2.bias, 1e-3)


def mlp_activation(m):
    m.act2 = nn.Hardtanh()


def mlp_transposed(m):
    with torch.no_grad():
        m.fc2.weight.copy_(m.fc2.weight.t().clone())


def mlp_detached(m):
    m.detach = True


def cnn_eps(m):
    m.block1.bn1.eps = 1e-3


def cnn_bias(m):
    add(m.block2.conv2.bias[2:3], 1e-3)


def cnn_detached(m):
    m.block2.detach = True


def cnn_buffer(m):
    bn = m.block1.bn2

    def forget(*_):
        bn.running_mean.zero_()
    bn.register_forward_hook(forget)


def cnn_activation(m):
    m.stem[2] = nn.LeakyReLU()


def lstm_bias(m):
    add(m.lstm.bias_hh_l1, 1e-3)


def lstm_eps(m):
    m.norm.eps = 1e-3


def lstm_transposed(m):
    with torch.no_grad():
        m.lstm.weight_hh_l0[:24].copy_(m.lstm.weight_hh_l0[:24].t().clone())


def lstm_detached(m):
    m.detach = True


def transformer_eps(m):
    m.encoder.layers[0].norm1.eps = 1e-3


def transformer_bias(m):
    add(m.encoder.layers[1].linear2.bias, 1e-3)


def transformer_activation(m):
    m.encoder.layers[1].activation = F.gelu


def transformer_scale(m):
    m.scale.mul_(1.01)
