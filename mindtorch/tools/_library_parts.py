"""What the programs on libraries are made of (_library_checks.py): their table, and a few steps of training."""

CHECKS = {}


def check(package, *also):
    """Notes a check for a package (that needs other packages as well)."""
    def deco(fn):
        CHECKS[package] = (fn, also)
        return fn
    return deco


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
