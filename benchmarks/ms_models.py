"""The same training steps written by hand in MindSpore, as somebody who knows it would write them.

`tuned` uses MatMul(transpose_b) with a broadcast add instead of nn.Dense (whose BiasAdd is slow on CPU); the runtime
settings (oneDNN ISA cap, blocking launch) are the caller's.
"""
import numpy as np

from models import _arrays


def _weights(shapes, seed=1):
    rs = np.random.RandomState(seed)
    out = []
    for s in shapes:
        fan = int(np.prod(s[1:])) if len(s) > 1 else 1
        out.append(np.asarray(rs.randn(*s) / np.sqrt(fan) if len(s) > 1 else rs.randn(*s) * 0.01, np.float32))
    return out


def _load(net, order):
    arrays = _weights([tuple(p.shape) for p in order])
    import mindspore as ms
    for p, a in zip(order, arrays):
        p.set_data(ms.Tensor(a))


def _dense(ms, tuned):
    nn, P = ms.nn, ms.ops.operations

    class Linear(nn.Cell):
        def __init__(self, i, o):
            super().__init__()
            self.weight = ms.Parameter(ms.ops.zeros((o, i), ms.float32), name="weight")
            self.bias = ms.Parameter(ms.ops.zeros((o,), ms.float32), name="bias")
            self.matmul, self.add = P.MatMul(transpose_b=True), P.Add()

        def construct(self, x):
            return self.add(self.matmul(x, self.weight), self.bias)
    return Linear if tuned else (lambda i, o: nn.Dense(i, o))


def _step(ms, net, x, y, lr=0.01):
    x, y = ms.Tensor(x), ms.Tensor(y.astype(np.int32))
    loss_fn = ms.nn.CrossEntropyLoss()
    opt = ms.nn.Momentum(net.trainable_params(), lr, 0.9)
    grad = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, opt.parameters)
    net.set_train()

    def step():
        loss, g = grad(x, y)
        opt(g)
        return float(loss.asnumpy())
    return step


def mlp(ms, tuned):
    dense = _dense(ms, tuned)
    net = ms.nn.SequentialCell(dense(784, 512), ms.nn.ReLU(), dense(512, 512), ms.nn.ReLU(), dense(512, 10))
    _load(net, net.trainable_params())
    return _step(ms, net, *_arrays(0, ((64, 784), None), ((64,), 10)))


def lenet(ms, tuned):
    nn, dense = ms.nn, _dense(ms, tuned)
    net = nn.SequentialCell(nn.Conv2d(1, 6, 5, pad_mode="pad", padding=2, has_bias=True), nn.ReLU(), nn.MaxPool2d(2, 2),
                            nn.Conv2d(6, 16, 5, pad_mode="valid", has_bias=True), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(),
                            dense(400, 120), nn.ReLU(), dense(120, 84), nn.ReLU(), dense(84, 10))
    _load(net, net.trainable_params())
    return _step(ms, net, *_arrays(0, ((64, 1, 28, 28), None), ((64,), 10)))


def small_cnn(ms, tuned):
    nn, dense = ms.nn, _dense(ms, tuned)

    def block(i, o, stride=1):
        return [nn.Conv2d(i, o, 3, stride, pad_mode="pad", padding=1), nn.BatchNorm2d(o, momentum=0.9), nn.ReLU()]

    class Mean(nn.Cell):
        def construct(self, x):
            return ms.ops.ReduceSum()(x, (2, 3)) / float(x.shape[2] * x.shape[3])
    net = nn.SequentialCell(*block(3, 32), *block(32, 32), *block(32, 64, 2), Mean(), dense(64, 10))
    _load(net, net.trainable_params())
    return _step(ms, net, *_arrays(0, ((16, 3, 32, 32), None), ((16,), 10)))


MODELS = {"mlp": mlp, "lenet": lenet, "small_cnn": small_cnn}
