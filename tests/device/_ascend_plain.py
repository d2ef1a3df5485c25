"""Pure MindSpore code whose behavior must not change when mindtorch is imported (argument `with`).
Prints every result."""
import sys

import numpy as np

import mindspore as ms

ms.set_device("Ascend")
if "with" in sys.argv:
    import mindtorch.torch as mt
from mindspore import mint, nn  # noqa: E402


def parameter(name, number=2.0):
    return ms.Parameter(ms.Tensor(np.full((2, 3), number, np.float32)), name=name)


x = ms.Tensor(np.arange(3, dtype=np.float32))
WRITES = {
    "parameter": lambda p: p.add_(x), "computed": lambda p: p.copy_(p * 2), "row": lambda p: p[0].add_(x), "computed row": lambda p: p[1].copy_(p[0] * 2),
    "view": lambda p: p.view(-1).zero_(), "view of a view": lambda p: p[1].view(-1)[1:].fill_(5), "item": lambda p: p.__setitem__(0, x),
    "operator": lambda p: p[0].__imul__(x), "intermediate": lambda p: (p * 2).add_(x),
}

OPTIMIZERS = {"Adam": {}, "AdamW": {}, "SGD": {"lr": 0.1}, "FusedAdamW": {}}


def trained(name):
    weights = ms.ParameterTuple([parameter("w", 0.5), parameter("b", 0.25)])
    optimizer = getattr(mint.optim, name)(weights, **OPTIMIZERS[name])
    step = ms.value_and_grad(lambda data: ((data * weights[0] + weights[1]) ** 2).sum(), None, optimizer.parameters)
    out = []
    for _ in range(2):
        loss, grads = step(x)
        optimizer(grads)
        out.append(float(loss.asnumpy()))
    return out + [w.asnumpy().round(5).tolist() for w in weights]


for _ in range(2):  # the second pass runs after all other tests of the process
    for name, write in WRITES.items():
        p = parameter("p")
        write(p)
        print(name, p.asnumpy().tolist())
    for name in OPTIMIZERS:
        print(name, trained(name))
    loss = nn.Dense(3, 2)(x.reshape((1, 3))).sum()

if "with" in sys.argv:
    # PyTorch-style gradients through the same writes use the values before the write, or the write
    # raises an error.
    for name in "row", "view", "item", "operator":
        p, q = parameter("p"), parameter("q", 3.0)
        WRITES[name](p)
        after = p.asnumpy()
        mt.sum(mint.mul(p, q)).backward()
        assert (p.grad.cpu().numpy() == 3).all() and (q.grad.cpu().numpy() == after).all(), name
        p, q = parameter("p"), parameter("q", 3.0)
        y = mint.mul(p, q)
        WRITES[name](p)
        try:
            mt.sum(y).backward()
        except RuntimeError as e:
            assert "modified by an inplace operation" in str(e), e
        else:
            raise AssertionError(name)
