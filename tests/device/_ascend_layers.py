"""MindSpore's own layers, functions and optimizers on the current MindSpore target: `python
_ascend_layers.py FILE` writes their results and gradients to FILE."""
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

rs = np.random.RandomState(0)


def numbers(*shape):
    return Tensor(rs.randn(*shape).astype(np.float32))


def shares(*shape):
    return Tensor(rs.rand(*shape).astype(np.float32) * 0.8 + 0.1)


def classes(n, *shape):
    return Tensor(rs.randint(0, n, shape).astype(np.int32))


IMAGE, ROWS, LABELS = numbers(2, 4, 8, 8), numbers(3, 6), classes(5, 3)
CASES = {
    "Dense": (lambda: nn.Dense(6, 5, activation="relu"), ROWS), "Conv2d": (lambda: nn.Conv2d(4, 6, 3, has_bias=True), IMAGE),
    "Conv2d, two groups": (lambda: nn.Conv2d(4, 8, 3, 2, pad_mode="pad", padding=1, group=2), IMAGE), "Conv1d": (lambda: nn.Conv1d(4, 6, 3), numbers(2, 4, 9)),
    "Conv3d": (lambda: nn.Conv3d(4, 6, 3), numbers(2, 4, 5, 5, 5)), "Conv2dTranspose": (lambda: nn.Conv2dTranspose(4, 6, 3, 2), IMAGE),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), IMAGE), "BatchNorm1d": (lambda: nn.BatchNorm1d(6), ROWS), "LayerNorm": (lambda: nn.LayerNorm((6,)), ROWS),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), IMAGE), "MaxPool2d": (lambda: nn.MaxPool2d(2, 2), IMAGE), "MaxPool2d, same": (lambda: nn.MaxPool2d(3, 2, "same"), IMAGE),
    "AvgPool2d": (lambda: nn.AvgPool2d(2, 2), IMAGE), "AvgPool2d, same": (lambda: nn.AvgPool2d(3, 2, "same"), IMAGE),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(2), IMAGE), "PReLU": (lambda: nn.PReLU(4), IMAGE), "Embedding": (lambda: nn.Embedding(10, 6), classes(10, 3, 4)),
    "RNN": (lambda: nn.RNN(6, 5, batch_first=True), numbers(3, 4, 6)), "LSTMCell": (lambda: nn.LSTMCell(6, 5), ROWS, (numbers(3, 5), numbers(3, 5))),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(8, 2), *[numbers(4, 3, 8)] * 3), "CrossEntropyLoss": (nn.CrossEntropyLoss, numbers(3, 5), LABELS),
    "SoftmaxCrossEntropyWithLogits": (lambda: nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), numbers(3, 5), LABELS),
    "BCELoss": (nn.BCELoss, shares(3, 5), shares(3, 5)), "NLLLoss": (nn.NLLLoss, numbers(3, 5), LABELS),
    "Dropout in evaluation": (lambda: nn.Dropout(p=0.5).set_train(False), ROWS),
    **{n: (getattr(nn, n), ROWS) for n in "ReLU ReLU6 LeakyReLU ELU CELU SeLU GELU SiLU Sigmoid Tanh HSwish HSigmoid Softmax LogSoftmax Mish FastGelu Softsign".split()},
    **{n: (getattr(nn, n), numbers(3, 5), shares(3, 5)) for n in "MSELoss L1Loss SmoothL1Loss HuberLoss BCEWithLogitsLoss KLDivLoss".split()},
    **{name: (lambda f=f: f, ROWS) for name, f in {
        "softplus": ops.softplus, "addn": lambda x: ops.addn((x, x * 2, x)), "norm": ops.norm, "topk": lambda x: ops.topk(x, 2)[0], "argmax": lambda x: ops.argmax(x, 1),
        "lp_norm": ops.LpNorm(1), "gather": lambda x: ops.gather(x, LABELS % 3, 0), "reduce_sum": lambda x: ops.ReduceSum()(x, 1), "reduce_mean": lambda x: ops.ReduceMean()(x, 1),
        "one_hot": lambda x: ops.one_hot(LABELS, 5, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32)), "pad": lambda x: ops.pad(x, (1, 1)),
        "cumsum": lambda x: ops.cumsum(x, 1), "clip_by_global_norm": lambda x: ops.clip_by_global_norm([x, x], 1.0)[0], "l2_normalize": ops.L2Normalize(axis=1),
        "stack": lambda x: ops.stack((x, x)), "strided_slice": lambda x: ops.strided_slice(x, (0, 1), (3, 5), (1, 2)), "std": lambda x: ops.std(x, 1),
        "tril": ops.tril, "atan2": lambda x: ops.atan2(x, x * 2), "floor_mod": lambda x: ops.floor_mod(x, 2.0), "unfold": lambda x: ops.unfold(IMAGE, 3),
        "interpolate": lambda x: ops.interpolate(IMAGE, size=(4, 4), mode="bilinear", align_corners=False), "all_finite": lambda x: ms.amp.all_finite([x, x]),
        "interpolate, nearest": lambda x: ops.interpolate(IMAGE, size=(4, 4), mode="nearest"), "batch_norm": lambda x: ops.batch_norm(
            IMAGE, IMAGE[0, :, 0, 0], ops.abs(IMAGE[0, :, 0, 1]), IMAGE[0, :, 0, 2], IMAGE[0, :, 0, 3])}.items()},
}
OPTIMIZERS = {"SGD": {}, "Momentum": {"learning_rate": 0.1, "momentum": 0.9}, "Adam": {}, "AdamWeightDecay": {"weight_decay": 0.1}, "Adagrad": {}, "RMSProp": {},
              "FTRL": {}, "LazyAdam": {}, "ProximalAdagrad": {}, "Adadelta": {}, "ASGD": {}, "AdaMax": {}}


def first(r):
    return first(r[0]) if isinstance(r, (tuple, list)) else r


def flat(r):
    return [t for x in r for t in flat(x)] if isinstance(r, (tuple, list)) else [r]


def fixed(layer):
    """Sets the layer's parameters to values that do not depend on the target."""
    own = np.random.RandomState(5)
    for p in layer.get_parameters() if isinstance(layer, nn.Cell) else ():
        if p.dtype == ms.float32:
            p.set_data(Tensor(own.randn(*p.shape).astype(np.float32) * 0.3 if p.requires_grad else own.rand(*p.shape).astype(np.float32) + 0.5))
    return layer


def gradients(layer, inputs):
    """Returns the results, the gradients of the first input and of the parameters, and the
    parameters themselves (running statistics change)."""
    if isinstance(layer, nn.Cell) and not isinstance(layer, nn.Dropout):
        layer.set_train()
    found = [first(layer(*inputs))]
    if found[0].dtype != ms.float32:
        return found
    weights = layer.trainable_params() if isinstance(layer, nn.Cell) else None
    of_input = 0 if inputs[0].is_floating_point() else None
    more = ms.grad(lambda *xs: (first(layer(*xs)) ** 2).sum(), of_input, weights or None)(*inputs) if of_input == 0 or weights else ()
    return [*found, *flat(more), *(layer.get_parameters() if isinstance(layer, nn.Cell) else ())]


def steps(name, settings):
    own, net = np.random.RandomState(3), fixed(nn.Dense(6, 5))
    step = getattr(nn, name)(net.trainable_params(), **settings)
    for _ in range(3):
        step((Tensor(own.randn(5, 6).astype(np.float32)), Tensor(own.randn(5).astype(np.float32))))
    return net.trainable_params()


def main(path):
    found = {}
    for name, (make, *inputs) in CASES.items():
        found.update({f"{name}/{k}": t.asnumpy() for k, t in enumerate(gradients(fixed(make()), inputs))})
    for name, settings in OPTIMIZERS.items():
        found.update({f"step of {name}/{k}": t.asnumpy() for k, t in enumerate(steps(name, settings))})
    masked = ops.dropout(Tensor(np.ones((64, 65), np.float32)), 0.25).asnumpy()
    assert set(np.unique(masked)) == {0, np.float32(1 / 0.75)} and 0.7 < (masked > 0).mean() < 0.8
    np.savez(path, **found)


if __name__ == "__main__":
    main(sys.argv[1])
