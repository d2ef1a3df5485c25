"""Flow 9: graph mode. Functions under @mindspore.jit in GRAPH_MODE that call PyTorch-style modules.

On the npu device they are recorded and compiled. With tensors on the cpu they run eagerly, with one
warning and the same results. A network can also be compiled from a trace.

    python examples/flows/flow9_graph_mode.py
"""
import time

from mindtorch.tools import mstorch_enable  # noqa: F401
import mindspore as ms
import torch
from mindtorch.torch._graph import capture, graph_cell

from common import Log, make_net, tensors

log = Log()
criterion = torch.nn.CrossEntropyLoss()
for prefix, mode in (("pynative ", ms.PYNATIVE_MODE), ("graph ", ms.GRAPH_MODE)):
    ms.set_context(mode=mode)
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    grad_fn = ms.value_and_grad(lambda x, y, net=net: criterion(net(x), y), None, optimizer.parameters)

    @ms.jit
    def train_step(x, y, grad_fn=grad_fn, optimizer=optimizer):
        loss, grads = grad_fn(x, y)
        optimizer(grads)
        return loss, grads

    for i in range(5):
        loss, grads = train_step(*tensors(i))
        log.step(i, loss, net, grads, prefix)

ms.set_context(mode=ms.PYNATIVE_MODE)
x, _ = tensors(9)
# consists of MindSpore's own operations, so it compiles
cell = graph_cell(capture(net.eval(), (x,)))
compiled = ms.jit(cell.construct)
y = compiled(ms.Tensor(x.cpu().numpy()))
start = time.perf_counter()
for _ in range(20):
    y = compiled(ms.Tensor(x.cpu().numpy()))
print(f"compiled forward: {(time.perf_counter() - start) / 20 * 1000:.2f} ms")
with torch.no_grad():
    log.keep(compiled=y.asnumpy(), eager=net(x).cpu().numpy())
log.close()
