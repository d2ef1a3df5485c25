"""Training steps of realistic size, and token generation, written once in PyTorch (see models.py).

ResNet-50, GPT-2 small, a diffusion U-Net, an LSTM language model, DLRM, a two-stage detector with
masks, a graph network and token-by-token generation. `batch` overrides the default batch size. The
detector and the generation are our own programs in the manner of torchvision's Mask R-CNN and of
transformers' `generate`, so neither library is needed.
"""
import numpy as np

from models import Task, _adam, _fill, _sgd, arrays


def _tensors(torch, seed, *specs):
    return tuple(torch.from_numpy(a) for a in arrays(seed, *specs))


# ------------------------------------------------------------------ convolutions
def resnet50(torch, batch=8, side=224, classes=1000, blocks=(3, 4, 6, 3), width=64):
    nn, F = torch.nn, torch.nn.functional

    class Bottleneck(nn.Module):
        def __init__(self, i, w, stride):
            super().__init__()
            o = 4 * w
            self.conv1, self.bn1 = nn.Conv2d(i, w, 1, bias=False), nn.BatchNorm2d(w)
            self.conv2, self.bn2 = nn.Conv2d(w, w, 3, stride, 1, bias=False), nn.BatchNorm2d(w)
            self.conv3, self.bn3 = nn.Conv2d(w, o, 1, bias=False), nn.BatchNorm2d(o)
            self.short = None
            if stride != 1 or i != o:
                self.short = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

        def forward(self, x):
            y = F.relu(self.bn1(self.conv1(x)), inplace=True)
            y = F.relu(self.bn2(self.conv2(y)), inplace=True)
            y = self.bn3(self.conv3(y))
            return F.relu(y + (x if self.short is None else self.short(x)), inplace=True)
    layers, i = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], width
    for stage, count in enumerate(blocks):
        for k in range(count):
            layers.append(Bottleneck(i, width << stage, 2 if stage and not k else 1))
            i = 4 * width << stage
    net = _fill(torch, nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, classes)))
    with torch.no_grad():
        # Each block starts near the identity. Otherwise float32 gradients have less than two
        # correct digits, and losses cannot be compared.
        for m in net:
            if isinstance(m, Bottleneck):
                m.bn3.weight.mul_(0.1)
    return Task(net, _tensors(torch, 0, ((batch, 3, side, side), None), ((batch,), classes)), lambda n, x, y: F.cross_entropy(n(x), y), _sgd(torch, net))


def unet(torch, batch=4, side=32, width=64):
    """Noise prediction: residual blocks with group norm and a time embedding, attention at the lower two of three resolutions; Adam."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, i, o, attention):
            super().__init__()
            self.norm1, self.conv1 = nn.GroupNorm(8, i), nn.Conv2d(i, o, 3, padding=1)
            self.time = nn.Linear(4 * width, o)
            self.norm2, self.conv2 = nn.GroupNorm(8, o), nn.Conv2d(o, o, 3, padding=1)
            self.short = nn.Conv2d(i, o, 1) if i != o else nn.Identity()
            self.norm3, self.qkv, self.out = (nn.GroupNorm(8, o), nn.Conv2d(o, 3 * o, 1), nn.Conv2d(o, o, 1)) if attention else (None, None, None)

        def forward(self, x, t):
            y = self.conv1(F.silu(self.norm1(x))) + self.time(t)[:, :, None, None]
            x = self.short(x) + self.conv2(F.silu(self.norm2(y)))
            if self.qkv is None:
                return x
            b, c, h, w = x.shape
            q, k, v = self.qkv(self.norm3(x)).view(b, 3, 4, c // 4, h * w).transpose(3, 4).unbind(1)
            y = F.scaled_dot_product_attention(q, k, v)
            return x + self.out(y.transpose(2, 3).reshape(b, c, h, w))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
            self.first = nn.Conv2d(3, width, 3, padding=1)
            widths = (width, 2 * width, 4 * width)
            self.down, self.shrink, self.up, self.grow = nn.ModuleList(), nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
            i = width
            for k, o in enumerate(widths):
                self.down.append(Block(i, o, k > 0))
                self.shrink.append(nn.Conv2d(o, o, 3, 2, 1) if k < 2 else nn.Identity())
                i = o
            self.middle = Block(i, i, True)
            for k, o in reversed(list(enumerate(widths))):
                self.up.append(Block(i + o, o, k > 0))
                self.grow.append(nn.Conv2d(o, o, 3, padding=1) if k else nn.Identity())
                i = o
            self.last = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

        def forward(self, x, t):
            rates = torch.exp(torch.arange(width // 2, dtype=torch.float32) * (-9.2 / (width // 2)))
            angles = t.float()[:, None] * rates[None]
            t = F.silu(self.embed(torch.cat((angles.sin(), angles.cos()), 1)))
            x, kept = self.first(x), []
            for block, shrink in zip(self.down, self.shrink):
                x = block(x, t)
                kept.append(x)
                x = shrink(x)
            x = self.middle(x, t)
            for k, (block, grow) in enumerate(zip(self.up, self.grow)):
                x = block(torch.cat((x, kept.pop()), 1), t)
                if k < 2:
                    x = grow(F.interpolate(x, scale_factor=2.0, mode="nearest"))
            return self.last(x)
    net = _fill(torch, UNet())
    data = _tensors(torch, 0, ((batch, 3, side, side), None), ((batch,), 1000), ((batch, 3, side, side), None))
    return Task(net, data, lambda n, x, t, noise: F.mse_loss(n(x, t), noise), _adam(torch, net))


def detector(torch, batch=1, side=256, width=64, rois=64, classes=21):
    """A two-stage detector with masks.

    It has a backbone, a feature pyramid, box proposals, regions pooled bilinearly (by grid_sample),
    and heads for class, box and mask. Proposals are the `rois` anchors with the highest scores. A
    region is positive if it overlaps the one true box of its image by more than 0.3 (intersection
    over union).
    """
    nn, F = torch.nn, torch.nn.functional
    cells = side // 8

    def conv(i, o, stride):
        return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    def overlap(a, b):
        low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
        inner = (high - low).clamp(min=0).prod(-1)
        return inner / ((a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - inner)

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(conv(3, width, 2), conv(width, width, 2))
            self.c3, self.c4, self.c5 = (nn.Sequential(conv(i, o, 2), conv(o, o, 1)) for i, o in
                                         ((width, 2 * width), (2 * width, 4 * width), (4 * width, 4 * width)))
            self.side3, self.side4, self.side5 = (nn.Conv2d(i, width, 1) for i in (2 * width, 4 * width, 4 * width))
            self.rpn, self.score, self.shift = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, 3, 1), nn.Conv2d(width, 12, 1)
            self.fc1, self.fc2 = nn.Linear(width * 49, 512), nn.Linear(512, 512)
            self.kind, self.box = nn.Linear(512, classes), nn.Linear(512, 4)
            self.mask = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                                      nn.ConvTranspose2d(width, width, 2, 2), nn.ReLU(), nn.Conv2d(width, classes, 1))

        def pooled(self, x, boxes, n):
            b, r = boxes.shape[:2]
            at = (torch.arange(n, dtype=torch.float32) + 0.5) / n
            xs = boxes[..., 0:1] + at * (boxes[..., 2:3] - boxes[..., 0:1])
            ys = boxes[..., 1:2] + at * (boxes[..., 3:4] - boxes[..., 1:2])
            grid = torch.stack((xs[:, :, None, :].expand(b, r, n, n), ys[:, :, :, None].expand(b, r, n, n)), -1) * 2 - 1
            y = F.grid_sample(x, grid.view(b, r * n, n, 2), align_corners=False)
            return y.view(b, -1, r, n, n).transpose(1, 2).reshape(b * r, -1, n, n)

        def forward(self, images, anchors, true):
            c3 = self.c3(self.stem(images))
            c4 = self.c4(c3)
            p = self.side5(self.c5(c4))
            p = self.side4(c4) + F.interpolate(p, scale_factor=2.0, mode="nearest")
            p = self.side3(c3) + F.interpolate(p, scale_factor=2.0, mode="nearest")
            y, b = F.relu(self.rpn(p)), images.shape[0]
            score, shift = self.score(y).view(b, -1), self.shift(y).view(b, 3, 4, -1).transpose(2, 3).reshape(b, -1, 4)
            wanted = (overlap(anchors[None], true[:, None]) > 0.3).float()
            with torch.no_grad():
                best = score.topk(rois, dim=1)[1]
                boxes = (anchors[None] + 0.05 * shift.tanh()).gather(1, best[:, :, None].expand(b, rois, 4)).clamp(0, 1)
                boxes = torch.cat((boxes[..., :2], torch.maximum(boxes[..., 2:], boxes[..., :2] + 0.05)), -1)
                boxes = torch.cat((true[:, None], boxes[:, 1:]), 1)
            z = F.relu(self.fc2(F.relu(self.fc1(self.pooled(p, boxes, 7).flatten(1)))))
            return score, shift, wanted, boxes, self.kind(z), self.box(z), self.mask(self.pooled(p, boxes, 14))

    def loss(n, images, anchors, true, kinds, shape):
        score, shift, wanted, boxes, kind, box, mask = n(images, anchors, true)
        rpn = F.binary_cross_entropy_with_logits(score, wanted)
        rpn = rpn + (F.smooth_l1_loss(shift, true[:, None] - anchors[None], reduction="none").mean(-1) * wanted).sum() / (1 + wanted.sum())
        positive = (overlap(boxes, true[:, None]) > 0.3).view(-1)
        target = torch.where(positive, kinds[:, None].expand(-1, rois).reshape(-1), torch.zeros(1, dtype=torch.int64))
        rois_ = F.cross_entropy(kind, target) + (F.smooth_l1_loss(box, (true[:, None] - boxes).view(-1, 4), reduction="none").mean(-1) * positive).mean()
        chosen = mask.gather(1, target.view(-1, 1, 1, 1).expand(-1, 1, 28, 28)).squeeze(1)
        masks = F.binary_cross_entropy_with_logits(chosen, shape[:, None].expand(-1, rois, 28, 28).reshape(-1, 28, 28), reduction="none")
        return rpn + rois_ + (masks.mean((1, 2)) * positive).mean()
    net = _fill(torch, Detector())
    images, = arrays(0, ((batch, 3, side, side), None))
    centre = (np.arange(cells) + 0.5) / cells
    y, x = np.meshgrid(centre, centre, indexing="ij")
    anchors = np.concatenate([np.stack((x - w / 2, y - h / 2, x + w / 2, y + h / 2), -1).reshape(-1, 4)
                              for w, h in ((0.3, 0.3), (0.4, 0.2), (0.2, 0.4))]).astype(np.float32)
    rs = np.random.RandomState(1)
    low = rs.rand(batch, 2) * 0.4
    true = np.concatenate((low, low + 0.25 + rs.rand(batch, 2) * 0.3), 1).astype(np.float32)
    kinds, shape = rs.randint(1, classes, batch), (rs.rand(batch, 28, 28) > 0.5).astype(np.float32)
    return Task(net, tuple(torch.from_numpy(a) for a in (images, anchors, true, kinds, shape)), loss, _sgd(torch, net))


# ------------------------------------------------------------------ sequences
def _gpt(torch, layers, width, heads, vocab, places):
    nn, F = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x, cache, at, seen):
            b, t, c = x.shape
            q, k, v = (a.view(b, t, heads, c // heads).transpose(1, 2) for a in self.qkv(x).split(width, dim=2))
            if cache is not None:  # keys and values of all positions so far, at fixed addresses
                k, v = (kept.index_copy_(2, at, new) for kept, new in zip(cache, (k, v)))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=seen is None)
            return self.proj(y.transpose(1, 2).reshape(b, t, c))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.attn, self.ln2 = nn.LayerNorm(width), Attention(), nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x, cache, at, seen):
            x = x + self.attn(self.ln1(x), cache, at, seen)
            return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(places, width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.ln = nn.LayerNorm(width)

        def forward(self, ids, caches=None, at=None):
            seen = None
            if caches is None:
                at = torch.arange(ids.shape[1])
            else:
                seen = torch.arange(caches[0][0].shape[2])[None] <= at[:, None]
            x = self.tok(ids) + self.pos(at)
            for k, layer in enumerate(self.layers):
                x = layer(x, None if caches is None else caches[k], at, seen)
            x = self.ln(x if caches is None else x[:, -1:])
            return F.linear(x, self.tok.weight)
    return _fill(torch, GPT())


def gpt2_small(torch, batch=2, tokens=256, layers=12, width=768, heads=12, vocab=50257):
    F, net = torch.nn.functional, _gpt(torch, layers, width, heads, vocab, tokens)
    data = _tensors(torch, 0, ((batch, tokens), vocab), ((batch, tokens), vocab))
    return Task(net, data, lambda n, a, b: F.cross_entropy(n(a).view(-1, vocab), b.view(-1)), _adam(torch, net))


class _Generation(Task):
    """Task whose step is the greedy generation of `new` tokens.

    Its "loss" is the mean logit of the chosen tokens.
    """

    def __init__(self, net, prompt, new, cache_shape):
        self.net, self.data, self.new, self.cache_shape = net, (prompt,), new, cache_shape
        self.tokens = new * prompt.shape[0]

    def tensor_step(self, torch, net):
        prompt, = self.data
        length, caches = prompt.shape[1], [(torch.zeros(self.cache_shape), torch.zeros(self.cache_shape)) for _ in self.net.layers]

        def step():
            with torch.no_grad():
                total, ids, at = 0.0, prompt, torch.arange(length)
                for _ in range(self.new):
                    value, ids = net(ids, caches, at)[:, -1].max(-1, keepdim=True)
                    total, at = total + value.mean(), at[-1:] + 1
                return total / self.new
        return step


def generate(torch, batch=1, new=32, prompt=32, layers=12, width=768, heads=12, vocab=50257):
    net = _gpt(torch, layers, width, heads, vocab, prompt + new).eval()
    ids, = _tensors(torch, 0, ((batch, prompt), vocab))
    return _Generation(net, ids, new, (batch, heads, prompt + new, width // heads))


def lstm_lm(torch, batch=20, tokens=35, width=650, vocab=10000):
    """Embedding, two LSTM layers and a linear head; gradients are clipped.

    This is the medium language model of the Penn Treebank, without dropout.
    """
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.rnn, self.head = nn.Embedding(vocab, width), nn.LSTM(width, width, 2), nn.Linear(width, vocab)

        def forward(self, ids):
            return self.head(self.rnn(self.words(ids))[0])

    class Clipped(Task):
        def tensor_step(self, torch, net):
            def step():
                self.optimizer.zero_grad()
                loss = self.loss(net, *self.data)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
                self.optimizer.step()
                return loss.detach()
            return step
    net = _fill(torch, Net())
    data = _tensors(torch, 0, ((tokens, batch), vocab), ((tokens, batch), vocab))
    return Clipped(net, data, lambda n, a, b: F.cross_entropy(n(a).view(-1, vocab), b.view(-1)), _sgd(torch, net))


# ------------------------------------------------------------------ tables and graphs
def dlrm(torch, batch=256, rows=100_000, tables=8, width=64, each=4):
    """Recommendation model: embedding bags with sparse gradients, pairwise products, two MLPs; SGD.
    """
    nn, F = torch.nn, torch.nn.functional

    def perceptron(*widths):
        return nn.Sequential(*[m for i, o in zip(widths, widths[1:]) for m in (nn.Linear(i, o), nn.ReLU())][:-1])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for _ in range(tables))
            pairs = tables * (tables + 1) // 2
            self.bottom, self.top = perceptron(13, 256, 128, width), perceptron(width + pairs, 256, 128, 1)
            i, j = np.tril_indices(tables + 1, -1)
            self.register_buffer("pairs", torch.from_numpy(i * (tables + 1) + j))

        def forward(self, dense, ids):
            x = self.bottom(dense)
            z = torch.stack([x, *(bag(ids[k]) for k, bag in enumerate(self.bags))], 1)
            z = torch.bmm(z, z.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
            return self.top(torch.cat((x, z), 1)).view(-1)
    net = Net()
    rs = np.random.RandomState(1)
    with torch.no_grad():
        for p in net.parameters():
            scale = 0.1 if len(p) == rows else p.shape[-1] ** -0.5
            p.copy_(torch.from_numpy(rs.standard_normal(tuple(p.shape)).astype(np.float32) * np.float32(scale)))
    data = _tensors(torch, 0, ((batch, 13), None), ((tables, batch, each), rows)) + (torch.from_numpy(rs.randint(0, 2, batch).astype(np.float32)),)
    return Task(net, data, lambda n, x, ids, y: F.binary_cross_entropy_with_logits(n(x, ids), y), torch.optim.SGD(net.parameters(), lr=0.01))


def gcn(torch, batch=1, nodes=4096, degree=16, width=256, classes=16):
    """Two graph convolutions with a sparse COO adjacency that is normalised by degrees; Adam.

    `batch` multiplies the number of nodes.
    """
    nn, F = torch.nn, torch.nn.functional
    nodes *= batch
    rs = np.random.RandomState(0)
    keys = np.unique(rs.randint(0, nodes, nodes * degree) * nodes + rs.randint(0, nodes, nodes * degree))
    i, j = keys // nodes, keys % nodes
    weights = (1 / np.sqrt(np.bincount(i, minlength=nodes)[i] * np.maximum(1, np.bincount(j, minlength=nodes)[j]))).astype(np.float32)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.adjacency = torch.sparse_coo_tensor(torch.from_numpy(np.stack((i, j))), torch.from_numpy(weights), (nodes, nodes),
                                                     check_invariants=False).coalesce()
            self.first, self.second = nn.Linear(width, width), nn.Linear(width, classes)

        def forward(self, x):
            x = F.relu(torch.sparse.mm(self.adjacency, self.first(x)))
            return torch.sparse.mm(self.adjacency, self.second(x))
    net = _fill(torch, Net())
    return Task(net, _tensors(torch, 0, ((nodes, width), None), ((nodes,), classes)), lambda n, x, y: F.cross_entropy(n(x), y), _adam(torch, net))


MODELS = {"resnet50": resnet50, "gpt2_small": gpt2_small, "unet": unet, "lstm_lm": lstm_lm, "dlrm": dlrm, "detector": detector, "gcn": gcn,
          "generate": generate}
#: Arguments of small versions, for smoke tests.
TINY = {"resnet50": {"batch": 8, "side": 64, "classes": 10, "blocks": (1, 1, 1, 1), "width": 8},
        "gpt2_small": {"batch": 2, "tokens": 16, "layers": 2, "width": 32, "heads": 2, "vocab": 50},
        "unet": {"batch": 2, "side": 8, "width": 16},
        "lstm_lm": {"batch": 3, "tokens": 5, "width": 16, "vocab": 50},
        "dlrm": {"batch": 8, "rows": 50, "tables": 3, "width": 8},
        "detector": {"batch": 1, "side": 64, "width": 8, "rois": 8, "classes": 5},
        "gcn": {"batch": 1, "nodes": 64, "degree": 4, "width": 16, "classes": 4},
        "generate": {"batch": 2, "new": 4, "prompt": 6, "layers": 2, "width": 32, "heads": 2, "vocab": 50}}
#: Batch sizes for which the growth of a step is reported.
GROWTH = {"resnet50": (2, 8), "gpt2_small": (1, 4), "unet": (1, 4, 16), "lstm_lm": (5, 20, 80), "dlrm": (64, 256, 1024), "detector": (1, 4),
          "gcn": (1, 4), "generate": (1, 8)}


def build(torch, name):
    """Builds the Task of `name`, `name@batch`, `name@tiny` or `name@tiny@batch`."""
    name, *options = name.split("@")
    tiny = TINY[name] if options[:1] == ["tiny"] else {}
    batch = options[bool(tiny):]
    return MODELS[name](torch, **{**tiny, **({"batch": int(batch[0])} if batch else {})})
