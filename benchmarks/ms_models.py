"""Training steps of models.py, hand-written in idiomatic MindSpore.

`tuned` uses MatMul(transpose_b) with a broadcast add instead of nn.Dense, whose BiasAdd is slow on
CPU, and the cheaper of two kernels where a model has a choice. `jit` (settings of ms.jit, or None)
puts the whole step (forward, gradient, optimizer) of the tuned model in one `ms.jit` function; the
functions of the model are therefore no lambdas. The caller makes the runtime settings (oneDNN ISA
limit, blocking launches).
"""
import math

import numpy as np

from models import HEADS, LAYERS, TOKENS, VOCAB, WIDTH, arrays, weight


def _load(ms, params, seed=1):
    """Sets the weights of models.py, drawn in the order of its parameters.

    `params` lists (parameter, whether it is the weight of a norm).
    """
    rs = np.random.RandomState(seed)
    for p, one in params:
        shape = tuple(p.shape)
        a = weight(rs, shape, float(one))
        p.set_data(ms.Tensor(a))


def _in_order(net):
    return [(p, p.name.endswith("gamma")) for p in net.trainable_params()]


class _Kit:
    """Layers of the plain or the tuned variant."""

    def __init__(self, ms, tuned):
        nn, P = ms.nn, ms.ops.operations
        self.ms, self.nn, self.P, self.tuned = ms, nn, P, tuned

        class Linear(nn.Cell):
            def __init__(self, i, o):
                super().__init__()
                self.weight = ms.Parameter(ms.ops.zeros((o, i), ms.float32), name="weight")
                self.bias = ms.Parameter(ms.ops.zeros((o,), ms.float32), name="bias")
                self.matmul, self.add, self.i, self.o = P.MatMul(transpose_b=True), P.Add(), i, o

            def construct(self, x):
                if x.ndim == 2:
                    return self.add(self.matmul(x, self.weight), self.bias)
                y = self.add(self.matmul(x.reshape((-1, self.i)), self.weight), self.bias)
                return y.reshape(x.shape[:-1] + (self.o,))

        class Mean(nn.Cell):
            """Global average pooling by ReduceSum: ReduceMean takes 50 times longer on CPU."""

            def __init__(self):
                super().__init__()
                self.sum = P.ReduceSum()

            def construct(self, x):
                return self.sum(x, (2, 3)) / float(x.shape[2] * x.shape[3])
        self.Linear = Linear if tuned else (lambda i, o: nn.Dense(i, o))
        self.Mean = Mean

    def conv(self, i, o, k, stride=1, padding=0, bias=False):
        return self.nn.Conv2d(i, o, k, stride, pad_mode="pad", padding=padding, has_bias=bias)

    def norm(self, n):
        return self.nn.BatchNorm2d(n, momentum=0.9)

    def layer_norm(self):
        return self.nn.LayerNorm((WIDTH,), epsilon=1e-5)


def _stepper(ms, forward, params, opt, data, jit):
    grad = ms.value_and_grad(forward, None, params)

    def train(*args):
        loss, g = grad(*args)
        opt(g)
        return loss
    run = train if jit is None else ms.jit(train, **jit)

    def step():
        return float(run(*data).asnumpy())
    return step


def _classifier(ms, net, x, y, jit, params=None):
    x, y = ms.Tensor(x), ms.Tensor(y.astype(np.int32))
    _load(ms, _in_order(net) if params is None else params)
    loss_fn = ms.nn.CrossEntropyLoss()
    opt = ms.nn.Momentum(net.trainable_params(), 0.01, 0.9)
    net.set_train()

    def forward(a, b):
        return loss_fn(net(a), b)
    return _stepper(ms, forward, opt.parameters, opt, (x, y), jit)


def mlp(ms, tuned, jit):
    dense = _Kit(ms, tuned).Linear
    net = ms.nn.SequentialCell(dense(784, 512), ms.nn.ReLU(), dense(512, 512), ms.nn.ReLU(), dense(512, 10))
    return _classifier(ms, net, *arrays(0, ((64, 784), None), ((64,), 10)), jit)


def lenet(ms, tuned, jit):
    kit, nn = _Kit(ms, tuned), ms.nn
    net = nn.SequentialCell(kit.conv(1, 6, 5, 1, 2, True), nn.ReLU(), nn.MaxPool2d(2, 2), kit.conv(6, 16, 5, 1, 0, True), nn.ReLU(),
                            nn.MaxPool2d(2, 2), nn.Flatten(), kit.Linear(400, 120), nn.ReLU(), kit.Linear(120, 84), nn.ReLU(),
                            kit.Linear(84, 10))
    return _classifier(ms, net, *arrays(0, ((64, 1, 28, 28), None), ((64,), 10)), jit)


def small_cnn(ms, tuned, jit):
    kit = _Kit(ms, tuned)

    def block(i, o, stride=1):
        return [kit.conv(i, o, 3, stride, 1), kit.norm(o), ms.nn.ReLU()]
    net = ms.nn.SequentialCell(*block(3, 32), *block(32, 32), *block(32, 64, 2), kit.Mean(), kit.Linear(64, 10))
    return _classifier(ms, net, *arrays(0, ((16, 3, 32, 32), None), ((16,), 10)), jit)


# ------------------------------------------------------------------ residual networks
def _residual(ms, tuned, widths, blocks, large_stem):
    kit, nn = _Kit(ms, tuned), ms.nn

    class Block(nn.Cell):
        def __init__(self, i, o, stride):
            super().__init__()
            self.conv1, self.bn1 = kit.conv(i, o, 3, stride, 1), kit.norm(o)
            self.conv2, self.bn2 = kit.conv(o, o, 3, 1, 1), kit.norm(o)
            self.plain = stride == 1 and i == o
            self.short = nn.SequentialCell() if self.plain else nn.SequentialCell(kit.conv(i, o, 1, stride), kit.norm(o))
            self.relu = nn.ReLU()

        def construct(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            if self.plain:
                return self.relu(y + x)
            return self.relu(y + self.short(x))
    w = widths[0]
    if large_stem:
        layers = [kit.conv(3, w, 7, 2, 3), kit.norm(w), nn.ReLU(), nn.MaxPool2d(3, 2, pad_mode="pad", padding=1)]
    else:
        layers = [kit.conv(3, w, 3, 1, 1), kit.norm(w), nn.ReLU()]
    i = w
    for stage, o in enumerate(widths):
        for k in range(blocks):
            layers.append(Block(i, o, 2 if stage and not k else 1))
            i = o
    return nn.SequentialCell(*layers, kit.Mean(), kit.Linear(i, 10))


def small_resnet(ms, tuned, jit):
    net = _residual(ms, tuned, (16, 32, 64), 2, False)
    return _classifier(ms, net, *arrays(0, ((16, 3, 32, 32), None), ((16,), 10)), jit)


def resnet18(ms, tuned, jit):
    net = _residual(ms, tuned, (64, 128, 256, 512), 2, True)
    return _classifier(ms, net, *arrays(0, ((4, 3, 64, 64), None), ((4,), 10)), jit)


# ------------------------------------------------------------------ transformers
def _attention(kit, causal):
    ms, nn, P = kit.ms, kit.nn, kit.P

    class Attention(nn.Cell):
        def __init__(self):
            super().__init__()
            self.qkv, self.proj = kit.Linear(WIDTH, 3 * WIDTH), kit.Linear(WIDTH, WIDTH)
            self.softmax = P.Softmax(-1)
            self.scores, self.mix = P.BatchMatMul(transpose_b=True), P.BatchMatMul()
            t = TOKENS[1]
            self.scale = (WIDTH // HEADS) ** -0.5
            self.mask = ms.Tensor(np.triu(np.full((t, t), -1e9, np.float32), 1)[None, None]) if causal else None

        def construct(self, x):
            b, t, c = x.shape
            # One transpose produces (3, B, heads, T, head width).
            qkv = self.qkv(x).reshape((b, t, 3, HEADS, c // HEADS)).transpose((2, 0, 3, 1, 4))
            s = self.scores(qkv[0] * self.scale, qkv[1])
            if self.mask is not None:
                s = s + self.mask
            y = self.mix(self.softmax(s), qkv[2])
            return self.proj(y.transpose((0, 2, 1, 3)).reshape((b, t, c)))
    return Attention()


def _adam_step(ms, net, forward, data, jit):
    opt = ms.nn.Adam(net.trainable_params(), learning_rate=1e-3)
    net.set_train()
    return _stepper(ms, forward, opt.parameters, opt, data, jit)


def gpt2(ms, tuned, jit):
    kit, nn, P = _Kit(ms, tuned), ms.nn, ms.ops.operations

    class Layer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.ln1, self.attn, self.ln2 = kit.layer_norm(), _attention(kit, True), kit.layer_norm()
            self.up, self.down, self.gelu = kit.Linear(WIDTH, 4 * WIDTH), kit.Linear(4 * WIDTH, WIDTH), P.GeLU()

        def construct(self, x):
            x = x + self.attn(self.ln1(x))
            return x + self.down(self.gelu(self.up(self.ln2(x))))

    class GPT(nn.Cell):
        def __init__(self):
            super().__init__()
            self.tok = ms.Parameter(ms.ops.zeros((VOCAB, WIDTH), ms.float32), name="tok")
            self.pos = ms.Parameter(ms.ops.zeros((TOKENS[1], WIDTH), ms.float32), name="pos")
            self.layers = nn.SequentialCell(*[Layer() for _ in range(LAYERS)])
            self.ln, self.gather, self.matmul = kit.layer_norm(), P.Gather(), P.MatMul(transpose_b=True)

        def construct(self, ids):
            x = self.gather(self.tok, ids, 0) + self.pos
            x = self.ln(self.layers(x))
            return self.matmul(x.reshape((-1, WIDTH)), self.tok)
    net = GPT()
    _load(ms, _in_order(net))
    ids, target = (ms.Tensor(a.astype(np.int32)) for a in arrays(0, (TOKENS, VOCAB), (TOKENS, VOCAB)))
    ce = nn.CrossEntropyLoss()

    def forward(a, b):
        return ce(net(a), b.reshape((-1,)))
    return _adam_step(ms, net, forward, (ids, target), jit)


def bert(ms, tuned, jit):
    kit, nn, P = _Kit(ms, tuned), ms.nn, ms.ops.operations

    class Layer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.attn = _attention(kit, False)
            self.up, self.down = kit.Linear(WIDTH, 4 * WIDTH), kit.Linear(4 * WIDTH, WIDTH)
            self.ln1, self.ln2 = kit.layer_norm(), kit.layer_norm()
            # The exact GELU: P.GeLU is the tanh approximation.
            self.erf, self.half = P.Erf(), math.sqrt(0.5)

        def construct(self, x):
            x = self.ln1(x + self.attn(x))
            u = self.up(x)
            u = u * (self.erf(u * self.half) + 1.0) * 0.5
            return self.ln2(x + self.down(u))

    class Bert(nn.Cell):
        def __init__(self):
            super().__init__()
            self.tok = ms.Parameter(ms.ops.zeros((VOCAB, WIDTH), ms.float32), name="tok")
            self.pos = ms.Parameter(ms.ops.zeros((TOKENS[1], WIDTH), ms.float32), name="pos")
            self.typ = ms.Parameter(ms.ops.zeros((2, WIDTH), ms.float32), name="typ")
            self.ln, self.gather = kit.layer_norm(), P.Gather()
            self.layers = nn.SequentialCell(*[Layer() for _ in range(LAYERS)])
            self.head = kit.Linear(WIDTH, VOCAB)

        def construct(self, ids, kinds):
            x = self.gather(self.tok, ids, 0) + self.pos + self.gather(self.typ, kinds, 0)
            return self.head(self.layers(self.ln(x)).reshape((-1, WIDTH)))
    net = Bert()
    params = [(net.tok, False), (net.pos, False), (net.typ, False), (net.ln.gamma, True), (net.ln.beta, False)]
    for layer in net.layers:
        # nn.MultiheadAttention of models.py owns weight and bias of the joint projection, so the
        # parameters are listed layer by layer.
        params += _in_order(layer.attn) + _in_order(layer.up) + _in_order(layer.down) + _in_order(layer.ln1) + _in_order(layer.ln2)
    _load(ms, params + _in_order(net.head))
    ids, kinds, target, at = arrays(0, (TOKENS, VOCAB), (TOKENS, 2), (TOKENS, VOCAB), (TOKENS, 7))
    target[at > 0] = -100
    data = tuple(ms.Tensor(a.astype(np.int32)) for a in (ids, kinds, target))
    ce = nn.CrossEntropyLoss(ignore_index=-100)

    def forward(a, k, b):
        return ce(net(a, k), b.reshape((-1,)))
    return _adam_step(ms, net, forward, data, jit)


# ------------------------------------------------------------------ recurrent, adversarial
def lstm(ms, tuned, jit):
    kit, nn = _Kit(ms, tuned), ms.nn

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(128, 128, 2, batch_first=True), kit.Linear(128, 10)

        def construct(self, x):
            return self.head(self.rnn(x)[0][:, -1])
    net = Net()
    r = net.rnn
    params = []
    for i in range(2):
        params += [(r.w_ih_list[i], False), (r.w_hh_list[i], False), (r.b_ih_list[i], False), (r.b_hh_list[i], False)]
    return _classifier(ms, net, *arrays(0, ((16, 32, 128), None), ((16,), 10)), jit, params + _in_order(net.head))


def gan(ms, tuned, jit):
    kit, nn = _Kit(ms, tuned), ms.nn

    def transposed(i, o, stride, padding):
        return nn.Conv2dTranspose(i, o, 4, stride, pad_mode="pad" if padding else "valid", padding=padding)
    up = [transposed(64, 128, 1, 0), kit.norm(128), nn.ReLU()]
    for i, o in ((128, 64), (64, 32)):
        up += [transposed(i, o, 2, 1), kit.norm(o), nn.ReLU()]
    g = nn.SequentialCell(*up, transposed(32, 3, 2, 1), nn.Tanh())
    down = [kit.conv(3, 32, 4, 2, 1), nn.LeakyReLU(0.2)]
    for i, o in ((32, 64), (64, 128)):
        down += [kit.conv(i, o, 4, 2, 1), kit.norm(o), nn.LeakyReLU(0.2)]
    d = nn.SequentialCell(*down, kit.conv(128, 1, 4))
    z, real = arrays(0, ((16, 64, 1, 1), None), ((16, 3, 32, 32), None))
    _load(ms, _in_order(g), 1), _load(ms, _in_order(d), 2)
    g.set_train(), d.set_train()
    # Parameters of the two networks must not share names in one graph.
    g.update_parameters_name("g."), d.update_parameters_name("d.")
    opt_g, opt_d = (nn.Adam(n.trainable_params(), learning_rate=2e-4, beta1=0.5) for n in (g, d))
    own = {p.name for n in (g, d) for p in n.get_parameters()}
    for i, opt in enumerate((opt_g, opt_d)):
        for p in opt.get_parameters():
            if p.name not in own:
                p.name = f"opt{i}.{p.name}"
    bce = nn.BCEWithLogitsLoss()
    ones, zeros = ms.Tensor(np.ones(16, np.float32)), ms.Tensor(np.zeros(16, np.float32))

    def loss_d(fake, real):
        return bce(d(real).reshape((-1,)), ones) + bce(d(fake).reshape((-1,)), zeros)

    def loss_g(z):
        return bce(d(g(z)).reshape((-1,)), ones)
    grad_d = ms.value_and_grad(loss_d, None, opt_d.parameters)
    grad_g = ms.value_and_grad(loss_g, None, opt_g.parameters)

    def train(z, real):
        # The generator runs twice: value_and_grad cannot resume from an earlier forward pass.
        ld, gd = grad_d(ms.ops.stop_gradient(g(z)), real)
        opt_d(gd)
        lg, gg = grad_g(z)
        opt_g(gg)
        return ld + lg
    run = train if jit is None else ms.jit(train, **jit)
    data = ms.Tensor(z), ms.Tensor(np.tanh(real))
    return lambda: float(run(*data).asnumpy())


MODELS = {"mlp": mlp, "lenet": lenet, "small_cnn": small_cnn, "small_resnet": small_resnet, "resnet18": resnet18,
          "gpt2": gpt2, "bert": bert, "lstm": lstm, "gan": gan}
