"""Top-1 and top-5 accuracy of a network that train.py saved.

    python -m mindtorch run examples/resnet/eval.py resnet.pth --image-size 64
"""
import argparse
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from data import add_options, loader  # noqa: E402
from model import build  # noqa: E402


@torch.no_grad()
def evaluate(net, batches, device):
    """Returns the (top-1, top-5) accuracy in percent."""
    net.eval()
    first = five = total = 0
    for x, y in batches:
        hits = net(x.to(device, torch.get_default_dtype())).topk(min(5, net.fc.out_features), dim=1).indices == y.to(device)[:, None]
        first += hits[:, 0].sum().item()
        five += hits.any(dim=1).sum().item()
        total += len(y)
    return 100 * first / total, 100 * five / total


def main():
    parser = argparse.ArgumentParser(description="ResNet evaluation")
    parser.add_argument("checkpoint")
    add_options(parser)
    args = parser.parse_args()
    torch.set_default_dtype(torch.float64 if args.double else torch.float32)
    saved = torch.load(args.checkpoint, map_location=args.device)
    net = build(saved["arch"], saved["classes"], saved["width"]).to(args.device)
    net.load_state_dict(saved["state_dict"])
    batches, _ = loader(args, train=False)
    top1, top5 = evaluate(net, batches, args.device)
    print(f"{saved['arch']}  top-1 {top1:.2f}%  top-5 {top5:.2f}%")


if __name__ == "__main__":
    main()
