"""Three steps of each mindtorch optimizer on the device: `python _ascend_optimizers.py FILE` writes
the parameters to FILE. PyTorch computes the reference with the same function `stepped`."""
import sys

import numpy as np

STEPS = {
    "SGD": ("SGD", {"lr": 0.1}), "SGD, momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}), "SGD, nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "SGD, dampening": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}), "SGD, maximize": ("SGD", {"lr": 0.1, "maximize": True}),
    "Adam": ("Adam", {}), "Adam, decay": ("Adam", {"weight_decay": 0.1, "maximize": True}), "Adam, amsgrad": ("Adam", {"amsgrad": True}), "AdamW": ("AdamW", {}),
    "AdamW, amsgrad": ("AdamW", {"amsgrad": True, "lr": 0.01}), "Adamax": ("Adamax", {"weight_decay": 0.1}),
    "NAdam": ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}), "RAdam": ("RAdam", {"weight_decay": 0.1}), "RMSprop": ("RMSprop", {}),
    "RMSprop, centered": ("RMSprop", {"momentum": 0.9, "centered": True}), "Rprop": ("Rprop", {}), "Adagrad": ("Adagrad", {"weight_decay": 0.1}),
    "Adadelta": ("Adadelta", {"lr": 0.5}), "ASGD": ("ASGD", {"t0": 2}), "Adafactor": ("Adafactor", {}), "Muon": ("Muon", {}), "SparseAdam": ("SparseAdam", {}),
    "LBFGS": ("LBFGS", {"lr": 0.1, "max_iter": 5}),
}


def stepped(torch, name, settings, device):
    """Returns the parameters after three steps."""
    rs = np.random.RandomState(0)
    shapes = ((5, 3), (4, 6)) if name in ("Muon", "SparseAdam") else ((5, 3), (7,), (), (2, 3, 4))

    def made():
        return [torch.from_numpy(np.asarray(rs.randn(*s), np.float32)).to(device) for s in shapes]
    params, targets = [p.requires_grad_() for p in made()], made()
    optimizer = getattr(torch.optim, name)(params, **settings)

    def closure():
        optimizer.zero_grad()
        loss = sum(((p - t) ** 2 * (p + t).cos()).sum() for p, t in zip(params, targets))
        loss.backward()
        if name == "SparseAdam":
            for p in params:
                p.grad = p.grad.to_sparse()
        return loss
    for _ in range(3):
        optimizer.step(closure)
    return [p.detach().cpu().numpy() for p in params]


if __name__ == "__main__":
    import torch
    found = {}
    for title, (name, settings) in STEPS.items():
        found.update({f"{title}/{k}": v for k, v in enumerate(stepped(torch, name, settings, "npu"))})
    np.savez(sys.argv[1], **found)
