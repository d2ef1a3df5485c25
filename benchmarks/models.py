"""Training steps written once in PyTorch, which run under PyTorch and under mindtorch (see run.py).

Each builder returns a `Task`. `training_step` of sides.py makes step() of it: one forward, backward
and optimizer step on fixed data, which returns the loss as a float.
"""
import numpy as np


def arrays(seed, *specs):
    """Returns random arrays.

    They are float32 and normal for (shape, None), and int64 below `high` for (shape, high).
    """
    rs = np.random.RandomState(seed)
    return [rs.randn(*s).astype(np.float32) if hi is None else rs.randint(0, hi, s).astype(np.int64) for s, hi in specs]


def weight(rs, shape, one, scale=1.0):
    """Returns the initial value of one parameter.

    Every implementation draws these values in the order of its parameters.
    """
    if len(shape) > 1:
        return np.asarray(rs.randn(*shape) * scale / np.sqrt(np.prod(shape[1:])), np.float32)
    return np.asarray(rs.randn(*shape) * 0.01 + one, np.float32)


def _fill(torch, net, seed=1):
    """Initializes the weights by NumPy, so that every implementation starts from the same values.
    """
    rs = np.random.RandomState(seed)
    norms = {id(m.weight) for m in net.modules() if "Norm" in type(m).__name__}
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.from_numpy(weight(rs, tuple(p.shape), float(id(p) in norms))))
    return net


class Task:
    """A network, its data, loss(net, *data) and an optimizer."""

    def __init__(self, net, data, loss, optimizer):
        self.net, self.data, self.loss, self.optimizer = net, data, loss, optimizer

    def nets(self):
        """Returns the networks that `tensor_step` accepts."""
        return (self.net,)

    def tensor_step(self, torch, net):
        """Returns the whole step as a function: zero_grad, forward, backward and optimizer.

        The function returns the loss as a tensor.
        """
        def step():
            self.optimizer.zero_grad()
            loss = self.loss(net, *self.data)
            loss.backward()
            self.optimizer.step()
            return loss.detach()
        return step

    def step(self, torch, compiled):
        """Returns the step as a function. With `compiled`, its networks are compiled."""
        step = self.tensor_step(torch, *[torch.compile(n) if compiled else n for n in self.nets()])
        return lambda: step().item()

    def whole_step(self, torch, **options):
        """Returns the step as a function that is compiled as a whole."""
        step = torch.compile(self.tensor_step(torch, *self.nets()), **options)
        return lambda: step().item()


def moved(task, device):
    """Moves the networks and the data of a task to a device.

    Tensors that a step creates are on the default device.
    """
    for name in ("net", "g", "d"):
        if hasattr(task, name):
            getattr(task, name).to(device)
    task.data = tuple([t.to(device) for t in task.data])
    return task


def _sgd(torch, net):
    return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)


def _adam(torch, net):
    return torch.optim.Adam(net.parameters(), lr=1e-3)


def _classifier(torch, net, x, y):
    ce = torch.nn.CrossEntropyLoss()
    return Task(_fill(torch, net), (torch.from_numpy(x), torch.from_numpy(y)), lambda n, a, b: ce(n(a), b), _sgd(torch, net))


def mlp(torch):
    """784-512-512-10, batch 64."""
    nn = torch.nn
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return _classifier(torch, net, *arrays(0, ((64, 784), None), ((64,), 10)))


def lenet(torch):
    """LeNet-5 on 28x28, batch 64."""
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                        nn.Linear(84, 10))
    return _classifier(torch, net, *arrays(0, ((64, 1, 28, 28), None), ((64,), 10)))


def small_cnn(torch):
    """Three 3x3 convolutions with batch norm on 32x32, batch 16."""
    nn = torch.nn

    def block(i, o, stride=1):
        return [nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
    net = nn.Sequential(*block(3, 32), *block(32, 32), *block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(64, 10))
    return _classifier(torch, net, *arrays(0, ((16, 3, 32, 32), None), ((16,), 10)))


# ------------------------------------------------------------------ residual networks
def _residual(torch, widths, blocks, large_stem):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(o)
            self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(o)
            self.short = None
            if stride != 1 or i != o:
                self.short = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

        def forward(self, x):
            y = F.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            return F.relu(y + (x if self.short is None else self.short(x)))
    w = widths[0]
    if large_stem:
        layers = [nn.Conv2d(3, w, 7, 2, 3, bias=False), nn.BatchNorm2d(w), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    else:
        layers = [nn.Conv2d(3, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(inplace=True)]
    i = w
    for stage, o in enumerate(widths):
        for k in range(blocks):
            layers.append(Block(i, o, 2 if stage and not k else 1))
            i = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 10))


def small_resnet(torch):
    """ResNet of 13 convolutions (16, 32, 64 channels) on 32x32, batch 16."""
    return _classifier(torch, _residual(torch, (16, 32, 64), 2, False), *arrays(0, ((16, 3, 32, 32), None), ((16,), 10)))


def resnet18(torch):
    """ResNet-18 on 64x64, batch 4."""
    net = _residual(torch, (64, 128, 256, 512), 2, True)
    return _classifier(torch, net, *arrays(0, ((4, 3, 64, 64), None), ((4,), 10)))


# ------------------------------------------------------------------ transformers
LAYERS, WIDTH, HEADS, VOCAB, TOKENS = 4, 128, 4, 1000, (4, 64)


def gpt2(torch):
    """GPT-2-like: a causal transformer with a tied head; Adam.

    It has 4 pre-norm layers of width 128, 4 heads, 4x64 tokens and a vocabulary of 1000.
    """
    nn, F = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(x).split(WIDTH, dim=2)
            q, k, v = (a.view(b, t, HEADS, c // HEADS).transpose(1, 2) for a in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.proj(y.transpose(1, 2).contiguous().view(b, t, c))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.attn, self.ln2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            x = x + self.attn(self.ln1(x))
            return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos = nn.Embedding(VOCAB, WIDTH), nn.Embedding(TOKENS[1], WIDTH)
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
            self.ln = nn.LayerNorm(WIDTH)

        def forward(self, ids):
            x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
            for layer in self.layers:
                x = layer(x)
            return F.linear(self.ln(x), self.tok.weight)
    net = _fill(torch, GPT())
    ids, target = (torch.from_numpy(a) for a in arrays(0, (TOKENS, VOCAB), (TOKENS, VOCAB)))

    def loss(n, a, b):
        return F.cross_entropy(n(a).view(-1, VOCAB), b.view(-1))
    return Task(net, (ids, target), loss, _adam(torch, net))


def bert(torch):
    """BERT-like: nn.TransformerEncoder with masked words as targets; Adam.

    It has 4 post-norm layers of width 128, 4 heads, 4x64 tokens and a vocabulary of 1000.
    """
    nn, F = torch.nn, torch.nn.functional

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos, self.typ = nn.Embedding(VOCAB, WIDTH), nn.Embedding(TOKENS[1], WIDTH), nn.Embedding(2, WIDTH)
            self.ln = nn.LayerNorm(WIDTH)
            layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
            self.head = nn.Linear(WIDTH, VOCAB)

        def forward(self, ids, kinds):
            x = self.tok(ids) + self.pos(torch.arange(ids.shape[1])) + self.typ(kinds)
            return self.head(self.encoder(self.ln(x)))
    net = _fill(torch, Bert())
    ids, kinds, target, at = arrays(0, (TOKENS, VOCAB), (TOKENS, 2), (TOKENS, VOCAB), (TOKENS, 7))
    target[at > 0] = -100  # one word in seven is a target
    data = tuple(torch.from_numpy(a) for a in (ids, kinds, target))

    def loss(n, a, k, b):
        return F.cross_entropy(n(a, k).view(-1, VOCAB), b.view(-1), ignore_index=-100)
    return Task(net, data, loss, _adam(torch, net))


# ------------------------------------------------------------------ recurrent, adversarial
def lstm(torch):
    """Two LSTM layers of 128 over 32 steps of 16 x 128, then a linear layer on the last output."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(128, 128, 2, batch_first=True), nn.Linear(128, 10)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])
    return _classifier(torch, Net(), *arrays(0, ((16, 32, 128), None), ((16,), 10)))


class _Gan(Task):
    def __init__(self, torch, g, d, data, opt_g, opt_d):
        self.g, self.d, self.data, self.opt_g, self.opt_d = g, d, data, opt_g, opt_d

    def nets(self):
        return self.g, self.d

    def tensor_step(self, torch, g, d):
        z, real = self.data
        bce = torch.nn.BCEWithLogitsLoss()
        ones, zeros = torch.ones(len(z)), torch.zeros(len(z))

        def step():
            fake = g(z)
            self.opt_d.zero_grad()
            loss_d = bce(d(real).view(-1), ones) + bce(d(fake.detach()).view(-1), zeros)
            loss_d.backward()
            self.opt_d.step()
            self.opt_g.zero_grad()
            loss_g = bce(d(fake).view(-1), ones)
            loss_g.backward()
            self.opt_g.step()
            return loss_d.detach() + loss_g.detach()
        return step


def gan(torch):
    """DCGAN on 3x32x32, batch 16: four transposed convolutions against four convolutions; Adam.

    A step updates both networks.
    """
    nn = torch.nn
    up = [nn.ConvTranspose2d(64, 128, 4, 1, 0, bias=False), nn.BatchNorm2d(128), nn.ReLU(True)]
    for i, o in ((128, 64), (64, 32)):
        up += [nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
    g = nn.Sequential(*up, nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh())
    down = [nn.Conv2d(3, 32, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    for i, o in ((32, 64), (64, 128)):
        down += [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, inplace=True)]
    d = nn.Sequential(*down, nn.Conv2d(128, 1, 4, 1, 0, bias=False))
    z, real = arrays(0, ((16, 64, 1, 1), None), ((16, 3, 32, 32), None))
    _fill(torch, g, 1), _fill(torch, d, 2)

    def adam(net):
        return torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999))
    return _Gan(torch, g, d, (torch.from_numpy(z), torch.from_numpy(np.tanh(real))), adam(g), adam(d))


MODELS = {"mlp": mlp, "lenet": lenet, "small_cnn": small_cnn, "small_resnet": small_resnet, "resnet18": resnet18,
          "gpt2": gpt2, "bert": bert, "lstm": lstm, "gan": gan}
