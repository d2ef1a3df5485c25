"""Flow 1: gradients as values. MindSpore's functional gradients with a PyTorch-style network.

    python examples/flows/flow1_value_and_grad.py
"""
from mindtorch.tools import mstorch_enable  # noqa: F401
import mindspore as ms
import torch

from common import Lion, Log, make_net, tensors

log = Log()
net = make_net()
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)


def forward_fn(data, label):
    logits = net(data)
    return criterion(logits, label), logits


grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)

for i in range(5):
    x, y = tensors(i)
    if i in (0, 4):  # PyTorch style, in the first and last step
        loss, _ = forward_fn(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.step(i, loss, net)
        continue
    (loss, logits), grads = grad_fn(x, y)  # MindSpore style: gradients are values
    if i == 1:
        optimizer(grads)
    elif i == 2:
        optimizer.step(grads)
    else:
        loss = optimizer.step(grads, lambda value=loss: value)
    log.step(i, loss, net, grads)


# A custom optimizer can be written in either style.
class LionOfGrads(Lion):
    @torch.no_grad()
    def step(self, grads, closure=None):
        i = -1
        for group in self.param_groups:
            for p in group["params"]:
                i += 1
                self.update(p, grads[i], group)


for prefix, kind in (("torch style ", Lion), ("grads style ", LionOfGrads)):
    net = make_net(1)
    optimizer = kind(net.parameters(), lr=1e-3)
    grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)
    for i in range(5):
        (loss, _), grads = grad_fn(*tensors(i))
        optimizer(grads)
        log.step(i, loss, net, grads, prefix)
log.close()
