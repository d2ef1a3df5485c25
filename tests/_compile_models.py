"""Models for the tests of torch.compile: name -> (builder, batches). They use mindtorch under the
name `torch`."""
import collections
import dataclasses
import math

import mindtorch.torch as torch

nn, F = torch.nn, torch.nn.functional


class Residual(nn.Module):
    def __init__(self, i, o, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or i != o:
            self.down = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        keep = x if self.down is None else self.down(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += keep
        return self.relu(y)


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.blocks = nn.Sequential(Residual(8, 8), Residual(8, 16, 2))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 5)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class SelfAttention(nn.Module):
    def __init__(self, width, heads, drop):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.drop = heads, nn.Dropout(drop)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        mask = torch.tril(torch.ones(t, t)).view(1, 1, t, t)
        att = self.drop(F.softmax(att.masked_fill(mask == 0, float("-inf")), dim=-1))
        return self.out((att @ v).transpose(1, 2).contiguous().view(b, t, c))


class Gpt(nn.Module):
    def __init__(self, vocabulary=17, width=16, layers=2, length=8):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList([nn.ModuleDict({
            "norm1": nn.LayerNorm(width), "attention": SelfAttention(width, 2, 0.1), "norm2": nn.LayerNorm(width),
            "mlp": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))})
            for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, i, targets=None):
        x = self.token(i) + self.place(torch.arange(i.size(1)))
        for layer in self.layers:
            x = x + layer["attention"](layer["norm1"](x))
            x = x + layer["mlp"](layer["norm2"](x))
        logits = self.head(self.norm(x))
        if targets is None:
            return logits
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind="LSTM"):
        super().__init__()
        self.rnn, self.head = getattr(nn, kind)(6, 12, 2, batch_first=True), nn.Linear(12, 3)

    def forward(self, x):
        y, _ = self.rnn(x)
        return self.head(y[:, -1])


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.ConvTranspose2d(8, 16, 4), nn.BatchNorm2d(16), nn.ReLU(True), nn.ConvTranspose2d(16, 4, 4, 2, 1),
                                 nn.Tanh())

    def forward(self, z):
        return self.net(z.view(z.size(0), 8, 1, 1))


@dataclasses.dataclass
class Answer:
    loss: object
    parts: dict


Pair = collections.namedtuple("Pair", "mean spread")


class Structured(nn.Module):
    """Outputs of every kind, a buffer that is modified in place, keyword arguments."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x, *, scale=1.0, also=None):
        y = self.fc(x) * scale
        if also is not None:
            y = y + also
        self.seen += x.detach().mean(0)
        top, rest = y.chunk(2, dim=1)
        return Answer((y ** 2).mean(), {"top": top, "pair": Pair(y.mean(), rest.std()), "n": y.shape[0], "all": [y, (rest.t(),)]})


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.logvar = nn.Linear(12, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.dec = nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 12), nn.Sigmoid())

    def forward(self, x):
        h = torch.tanh(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        y = self.dec(z)
        kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return F.mse_loss(y, torch.sigmoid(x), reduction="sum") + kl


def randn(*shape):
    return lambda b: torch.randn(b, *shape)


def classes(n):
    return lambda b: torch.randint(0, n, (b,))


def classify(net, x, y):
    return F.cross_entropy(net(x), y)


def _mlp():
    return nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 4))


def _lenet():
    return nn.Sequential(nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(6 * 9, 10))


def _norms():
    return nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.LeakyReLU(0.1), nn.Unflatten(1, (4, 4)), nn.GroupNorm(2, 4), nn.ELU(),
                         nn.Conv1d(4, 6, 3, padding=1), nn.BatchNorm1d(6), nn.Hardswish(), nn.Flatten(), nn.Linear(24, 4))


def _depthwise():
    return nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6), nn.ReLU6(), nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.BatchNorm2d(6),
                         nn.Hardswish(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6 * 16, 4))


MODELS = {
    "mlp": (_mlp, (randn(10), classes(4)), classify),
    "lenet": (_lenet, (randn(1, 16, 16), classes(10)), classify),
    "resnet": (Resnet, (randn(3, 12, 12), classes(5)), classify),
    "norms": (_norms, (randn(12), classes(4)), classify),
    "depthwise": (_depthwise, (randn(3, 8, 8), classes(4)), classify),
    "gpt": (Gpt, (lambda b: torch.randint(0, 17, (b, 8)), lambda b: torch.randint(0, 17, (b, 8))), lambda n, x, y: n(x, targets=y)[1]),
    "encoder": (Encoder, (randn(5, 16), classes(4)), classify),
    "lstm": (Recurrent, (randn(5, 6), classes(3)), classify),
    "gru": (lambda: Recurrent("GRU"), (randn(5, 6), classes(3)), classify),
    "generator": (Generator, (randn(8), randn(4, 8, 8)), lambda n, z, y: F.mse_loss(n(z), y)),
    "structured": (Structured, (randn(6), randn(6)), lambda n, x, y: n(x, scale=0.5, also=y).loss),
    "autoencoder": (Autoencoder, (randn(12),), lambda n, x: n(x)),
}
