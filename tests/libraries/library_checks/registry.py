"""The registry of library checks, and what checks share: the device under test, and a few training
steps."""

CHECKS = {}
#: checks that move their tensors to the device themselves, as users do; for the others it is the
#: default device
PLACED = set()


class _Place:
    name = "cpu"


def check(package, *also, placed=False):
    """Registers a check for a package (which may need other packages as well).

    placed: with another default device than the host, the library mixes host tensors with tensors
    on that device (`torch.Tensor([1.0])`, a host generator, `torch.empty(()).numpy()`). PyTorch
    rejects that too, so the program moves network and inputs to `place()`, as its users do.
    """
    def deco(fn):
        CHECKS[package] = (fn, also)
        if placed:
            PLACED.add(package)
        return fn
    return deco


def place():
    """Returns the name of the device that the check runs on: cpu, npu."""
    return _Place.name


def settle(name, device):
    """Selects the device that the check `name` runs on."""
    _Place.name = device
    if device != "cpu" and name not in PLACED:
        import torch
        torch.set_default_device(device)


def train(module, inputs, target=None, steps=2, loss=None, lr=1e-2):
    """Runs a few steps of SGD. Asserts that no loss is NaN and that every gradient is finite."""
    import torch
    opt = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=lr)
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        out = module(*inputs)
        value = loss(out) if loss else (out if target is None else torch.nn.functional.mse_loss(out, target)).float().pow(2).mean()
        value.backward()
        grads = [p.grad for p in module.parameters() if p.grad is not None]
        assert grads and all(torch.isfinite(g).all() for g in grads)
        opt.step()
        losses.append(value.item())
    assert all(v == v for v in losses), losses
    return losses
