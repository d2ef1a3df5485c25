"""Training and single ops over most kernels that have several implementations (C, oneDNN, NumPy),
for machines that lack some: `figures(torch)`.

    python tests/_machines.py FILE.npz        # writes mindtorch's values to a file
"""
import sys

import numpy as np


def networks(T):
    """Yields (name, network, input, loss of its output)."""
    nn, F = T.nn, T.nn.functional

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.gru, self.head = nn.LSTM(6, 16, 2, bidirectional=True), nn.GRU(32, 16), nn.Linear(16, 3)

        def forward(self, x):
            return self.head(self.gru(self.lstm(x)[0])[0][-1])

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.bag = nn.Embedding(40, 32), nn.EmbeddingBag(40, 32)
            self.layer, self.head = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), nn.Linear(32, 40)

        def forward(self, x):
            return self.head(self.layer(self.embed(x)) + self.bag(x)[:, None]).flatten(0, 1)

    def classes(n):
        return lambda y: F.cross_entropy(y, T.arange(len(y)) % n)

    yield "mlp", nn.Sequential(nn.Linear(40, 300), nn.GELU(), nn.LayerNorm(300), nn.Dropout(0.2), nn.Linear(300, 300), nn.SiLU(), nn.Linear(300, 5)), T.randn(64, 40), classes(5)
    yield "convolutions", nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, stride=2, groups=2), nn.GroupNorm(4, 32),
                                        nn.LeakyReLU(0.1), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 4)), T.randn(8, 3, 32, 32), classes(4)
    yield "transposed", nn.Sequential(nn.ConvTranspose2d(8, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.Softplus(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh()), T.randn(4, 8, 8, 8), \
        lambda y: F.smooth_l1_loss(y, T.zeros_like(y) + 0.3)
    yield "recurrent", Recurrent(), T.randn(12, 8, 6), classes(3)
    yield "language", Language(), T.randint(0, 40, (4, 12)), classes(40)


def single(T):
    """Yields (name, result) of single ops, with sizes below and above the thresholds for C kernels
    and threads."""
    F = T.nn.functional
    for n in (7, 150, 700):
        x, y, row = T.randn(n, n), T.randn(n, n), T.randn(n)
        at = T.randint(0, n, (n, n))
        yield f"product {n}", x @ y
        yield f"elementwise {n}", T.lerp(x, y, 0.3) + T.sigmoid(x * row) - F.hardswish(y) / (row[:, None].abs() + 1) + F.elu(x.clamp(-1, 1))
        yield f"half {n}", (x.half() * y.half() + row.half()).float()
        yield f"bfloat16 {n}", (x.bfloat16() * y.bfloat16() - row.bfloat16()).float()
        yield f"rows {n}", T.stack([x.sum(1), x.mean(0), x.abs().amax(1), x.var(0), (x / 4 + 1).prod(1), T.logsumexp(x, 1), x.norm(dim=0)])
        yield f"softmax {n}", F.softmax(x, 1) + F.log_softmax(y, 0)
        yield f"scans {n}", T.stack([x.cumsum(1), y.cummax(0)[0], F.pad(x[None], (3, 2, 1, 1), mode="reflect")[0, 1:-1, 3:-2].flip(1)])
        yield f"moves {n}", T.stack([x.gather(1, at), T.zeros(n, n).scatter_add(0, at, y), x.tril(-1), x.sort(1)[0]])
        yield f"top {n}", T.cat([x.topk(5, 1)[0].flatten(), y.median(0)[0], y.kthvalue(3, 1)[0]])
    image = T.randn(2, 5, 17, 23)
    yield "grid", F.grid_sample(image, T.rand(2, 9, 11, 2) * 2.4 - 1.2, mode="bicubic", padding_mode="border", align_corners=False)
    yield "resized", F.interpolate(image, size=(31, 40), mode="bilinear", antialias=True)
    yield "pooled", F.avg_pool2d(image, 3, 2, 1) + F.max_pool2d(image, 3, 2, 1)
    yield "random", T.cat([T.randn(1000), T.rand(1000), T.randperm(500).float(), T.bernoulli(T.full((500,), 0.3))])


def figures(T):
    """Returns {name: array}: losses and weights of three steps of every network, and the results of
    single ops."""
    out = {}
    for name, *_ in networks(T):
        T.manual_seed(3)
        _, net, x, loss = next(c for c in networks(T) if c[0] == name)
        optimizer = T.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            value = loss(net(x))
            value.backward()
            optimizer.step()
            losses.append(value.item())
        out[f"losses of {name}"] = np.array(losses)
        out[f"weights of {name}"] = np.concatenate([p.detach().numpy().ravel() for p in net.parameters()])
    T.manual_seed(4)
    for name, result in single(T):
        out[name] = result.numpy()
    return out


def agree(ours, theirs):
    """Checks that two sets of values are equal up to rounding."""
    assert list(ours) == list(theirs)
    for name, a in theirs.items():
        # the product may or may not be rounded before the sum
        coarse = name.startswith(("half", "bfloat16"))
        np.testing.assert_allclose(ours[name], a, rtol=2e-2 if coarse else 2e-4, atol=3e-2 if coarse else 3e-5 * max(1, np.abs(a).max()), err_msg=name)
    assert any(a.size > 400_000 for a in theirs.values())


if __name__ == "__main__":
    import mindtorch.torch
    np.savez(sys.argv[1], **figures(mindtorch.torch))
