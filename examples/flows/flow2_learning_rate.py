"""Flow 2: the learning rate.

In PyTorch style it is a float. In graph mode it is a MindSpore Parameter that
`mindspore.ops.assign` changes.

    python examples/flows/flow2_learning_rate.py
"""
from mindtorch.tools import mstorch_enable  # noqa: F401
import mindspore as ms
import torch

from common import Log, make_net, tensors


class WarmUp:
    """A custom scheduler for graph mode: the warm-up of the Transformer."""

    def __init__(self, optimizer, d_model, warmup_steps):
        self.optimizer, self.d_model, self.warmup_steps, self.n_steps = optimizer, d_model, warmup_steps, 0

    def step(self):
        self.n_steps += 1
        lr = self.d_model ** -0.5 * min(self.n_steps ** -0.5, self.n_steps * self.warmup_steps ** -1.5)
        for group in self.optimizer.param_groups:
            ms.ops.assign(group["lr"], lr)


log = Log()
criterion = torch.nn.CrossEntropyLoss()

# Eager mode, as in PyTorch.
net = make_net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
print("lr is {}".format(optimizer.param_groups[0]["lr"]))
for i in range(5):
    optimizer.param_groups[0]["lr"] = 0.01 * (i + 1)
    x, y = tensors(i)
    loss = criterion(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log.step(i, loss, net, prefix="eager ")

# Graph mode, with a compiled training step.
ms.set_context(mode=ms.GRAPH_MODE)
net = make_net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
scheduler = WarmUp(optimizer, 64, 3)
grad_fn = ms.value_and_grad(lambda x, y: criterion(net(x), y), None, optimizer.parameters)


@ms.jit
def train_step(x, y):
    loss, grads = grad_fn(x, y)
    optimizer(grads)
    return loss, grads


for i in range(5):
    scheduler.step()
    print("lr is {}".format(float(optimizer.param_groups[0]["lr"])))
    loss, grads = train_step(*tensors(i))
    log.step(i, loss, net, grads, "graph ")
log.close()
