"""Flow 5: a YAML file, command-line overrides, and an environment that is set up from them.

    python examples/flows/flow5_config.py --lr 0.1 --context_mode graph --optimizer.momentum 0.8
"""
import pathlib

from mindtorch.tools import init_env, mstorch_enable, read_config  # noqa: F401
import mindspore as ms
import torch

from common import Log, Net, tensors

log = Log(others=True)
config = read_config(pathlib.Path(__file__).with_name("config.yaml"), log.rest)
init_env(config)
print(f"device {config.device_target}, rank {config.rank_id} of {config.device_num}, mode {ms.get_context('mode')}, lr {config.lr}")
log.keep(mode=ms.get_context("mode"), lr=config.lr, momentum=config.optimizer.momentum)

net = Net()  # config.seed determines the weights
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=config.lr, momentum=config.optimizer.momentum, weight_decay=config.optimizer.weight_decay)
for i in range(5):
    x, y = tensors(i)
    loss = criterion(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log.step(i, loss, net)
log.close()
