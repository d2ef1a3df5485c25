"""Training of ResNet-18 or ResNet-50.

Uses SGD with momentum, label smoothing, and a cosine schedule with warm-up. Norms and biases have
no weight decay. This is an ordinary PyTorch script without code for MindSpore:

    python -m mindtorch run examples/resnet/train.py --arch resnet18 --image-size 64 --epochs 2      # on MindSpore
    python examples/resnet/train.py --arch resnet18 --image-size 64 --epochs 2                       # on PyTorch, the same numbers
    python -m mindtorch run examples/resnet/train.py --data /path/to/images --epochs 90 --lr 0.1     # an image folder
"""
import argparse
import math
import os
import sys

import numpy as np
import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from data import add_options, loader  # noqa: E402
from model import build  # noqa: E402


def parameter_groups(net, weight_decay):
    """Returns two groups: weights of convolutions and of the last layer decay, others do not."""
    decayed = [p for p in net.parameters() if p.ndim > 1]
    rest = [p for p in net.parameters() if p.ndim <= 1]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def warm_up_cosine(optimizer, warm_up, total):
    def factor(step):
        if step < warm_up:
            return (step + 1) / warm_up
        return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, total - warm_up)))
    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def main():
    parser = argparse.ArgumentParser(description="ResNet training")
    add_options(parser)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--label-smoothing", type=float, default=0.1)
    parser.add_argument("--warm-up", type=float, default=0.1, help="fraction of all steps")
    parser.add_argument("--save", metavar="FILE", default="resnet.pth")
    parser.add_argument("--record", metavar="FILE", help="write losses, learning rates, gradients and weights to this file (.npz)")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    torch.set_default_dtype(torch.float64 if args.double else torch.float32)
    batches, classes = loader(args, train=True)
    device = torch.device(args.device)
    net = build(args.arch, classes, args.width).to(device)
    optimizer = torch.optim.SGD(parameter_groups(net, args.weight_decay), lr=args.lr, momentum=args.momentum)
    total = args.epochs * len(batches)
    scheduler = warm_up_cosine(optimizer, max(1, int(args.warm_up * total)), total)
    criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing)
    record, step = {}, 0
    for epoch in range(args.epochs):
        net.train()
        for x, y in batches:
            loss = criterion(net(x.to(device, torch.get_default_dtype())), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            lr = optimizer.param_groups[0]["lr"]
            if args.record and step in (0, 4):
                record.update({f"{step}/grad/{n}": p.grad.cpu().numpy().copy() for n, p in net.named_parameters()})
            optimizer.step()
            scheduler.step()
            record[f"{step}/loss"], record[f"{step}/lr"] = loss.item(), float(lr)
            if args.record and step in (0, 4):
                record.update({f"{step}/weight/{n}": v.cpu().numpy().copy() for n, v in net.state_dict().items()})
            step += 1
            print(f"epoch {epoch + 1}  step {step}/{total}  lr {float(lr):.4f}  loss {loss.item():.4f}", flush=True)
    torch.save({"arch": args.arch, "width": args.width, "classes": classes, "state_dict": net.state_dict()}, args.save)
    if args.record:
        np.savez(args.record, **record)


if __name__ == "__main__":
    main()
