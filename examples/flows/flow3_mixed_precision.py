"""Flow 3: mixed precision in PyTorch's style (autocast, GradScaler) and in MindSpore's.

MindSpore's style uses auto_mixed_precision.

    python examples/flows/flow3_mixed_precision.py
"""
from mindtorch.tools import cast_to_adapter_tensor, mstorch_enable  # noqa: F401
import mindspore as ms
import torch
from mindspore.amp import auto_mixed_precision

from common import Log, make_net, tensors

log = Log()
criterion = torch.nn.CrossEntropyLoss()

for prefix, dtype in (("bfloat16 ", torch.bfloat16), ("float16 ", torch.float16)):
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler(torch.get_default_device().type, init_scale=2.0 ** 10, growth_interval=2)
    for i in range(5):
        x, y = tensors(i)
        optimizer.zero_grad()
        with torch.autocast(torch.get_default_device().type, dtype):
            loss = criterion(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        log.step(i, loss, net, prefix=prefix)
    print(f"{prefix}scale {scaler.get_scale()}")
    log.keep(**{prefix + "scale": scaler.get_scale()})

for level in ("O2", "O3"):
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler(torch.get_default_device().type, init_scale=2.0 ** 10)
    model = auto_mixed_precision(net.train(), level)

    def forward_fn(data, target, model=model, scaler=scaler):
        logits = cast_to_adapter_tensor(model(data))
        return scaler.scale(criterion(logits.float(), target))

    grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters)
    for i in range(5):
        loss, grads = grad_fn(*tensors(i))
        loss = loss / scaler.get_scale()
        grads = scaler.unscale_(optimizer, grads) or grads
        grads = ms.ops.clip_by_global_norm(grads, 1.0)
        scaler.step(optimizer, grads)
        scaler.update()
        log.step(i, loss, net, grads, level + " ")
log.close()
