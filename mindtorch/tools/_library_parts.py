"""What the programs on libraries are made of (_library_checks.py): their table, the device they are run on, and a few steps of training."""

CHECKS = {}
#: checks that put what they compute on the device themselves, as users do; for the others it is the default device
PLACED = set()


class _Place:
    name = "cpu"


def check(package, *also, placed=False):
    """Notes a check for a package (that needs other packages as well).

    placed: where the default device is not the host, the library mixes tensors of the host with tensors made there (`torch.Tensor([1.0])`, a generator
    of the host, `torch.empty(()).numpy()`). torch refuses that too, so the program puts network and inputs on `place()`, as its users do.
    """
    def deco(fn):
        CHECKS[package] = (fn, also)
        if placed:
            PLACED.add(package)
        return fn
    return deco


def place():
    """The name of the device that the check is run on: cpu, npu."""
    return _Place.name


def settle(name, device):
    """Makes a device the one that the check `name` is run on."""
    _Place.name = device
    if device != "cpu" and name not in PLACED:
        import torch
        torch.set_default_device(device)


def train(module, inputs, target=None, steps=2, loss=None, lr=1e-2):
    """A few steps of SGD; the losses must be numbers, and every gradient that there is too."""
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
