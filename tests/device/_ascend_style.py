"""MindSpore's ops and optimizers on mindtorch CPU tensors, in a process whose MindSpore target is
Ascend. Each side sees the other's writes."""
import mindspore as ms
import numpy as np
import torch

t = torch.ones(3)
assert np.allclose(ms.ops.exp(t).asnumpy(), np.e)
t.add_(1)
assert np.allclose(ms.ops.exp(t).asnumpy(), np.exp(2)), "MindSpore does not see a write by the host"
part = torch.arange(6.0).view(2, 3)[:, 1:]
assert ms.mint.sum(part).asnumpy() == 12
part.mul_(2)
assert ms.mint.sum(part).asnumpy() == 24
p = torch.nn.Parameter(torch.ones(2, 3))
ms.ops.assign(p, ms.Tensor(np.full((2, 3), 4, np.float32)))
assert p.tolist() == [[4] * 3] * 2, "the host does not see a write by MindSpore"
for name, kw in {"SGD": {}, "Momentum": {"learning_rate": 0.5, "momentum": 0.9}, "Adam": {}, "AdamWeightDecay": {}}.items():
    found = []
    for device in "cpu", "npu":
        p = torch.nn.Parameter(torch.full((2, 3), 2.0, device=device))
        step = getattr(ms.nn, name)([p], **kw)
        for _ in range(2):
            step((ms.Tensor(np.ones((2, 3), np.float32)),))
            with torch.no_grad():
                p.mul_(2)
        found.append(p.tolist())
    assert np.allclose(*found) and not np.allclose(found[0], 8), (name, found)
for make in (lambda: torch.ones(6, device="npu").view(2, 3), lambda: torch.ones(3, 3, device="npu")[1:]):
    p = torch.nn.Parameter(make())
    try:
        ms.nn.Momentum([p], 0.5, 0.9)((ms.Tensor(np.ones((2, 3), np.float32)),))
    except NotImplementedError as e:
        assert "view" in str(e)
    else:
        assert np.allclose(p.tolist(), 0.5), "a step is lost"
layer = torch.nn.Linear(4, 3)
_, gradients = ms.value_and_grad(lambda x: ms.mint.sum(layer(x) * 2), None, list(layer.parameters()))(torch.ones(2, 4))
assert [g.asnumpy().tolist() for g in gradients] == [[[4] * 4] * 3, [4] * 3], "the autograd history of a result is lost"
print("SAID all")
