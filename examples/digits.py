"""Handwritten digits: an ordinary PyTorch script.

Trains a small LeNet on the 8x8 digits that scikit-learn bundles (1797 images) and prints the loss
of every epoch and the test accuracy. The script has no code for MindSpore:

    python -m mindtorch run examples/digits.py          # on MindSpore
    python examples/digits.py                           # on PyTorch, the same numbers
"""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.drop = nn.Dropout(0.25)
        self.fc1 = nn.Linear(32 * 2 * 2, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.norm(self.conv2(x))), 2)
        x = self.drop(torch.flatten(x, 1))
        return self.fc2(F.relu(self.fc1(x)))


def loaders(batch_size):
    digits = load_digits()
    x = (digits.images / 16.0).astype(np.float32)[:, None]
    y = digits.target.astype(np.int64)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, random_state=0, stratify=y)
    mean, std = x_train.mean(), x_train.std()

    def dataset(a, b):
        return TensorDataset((torch.from_numpy(a) - mean) / std, torch.from_numpy(b))

    return (DataLoader(dataset(x_train, y_train), batch_size=batch_size, shuffle=True),
            DataLoader(dataset(x_test, y_test), batch_size=256))


@torch.no_grad()
def accuracy(net, loader, device):
    net.eval()
    hits = total = 0
    for x, y in loader:
        predicted = net(x.to(device)).argmax(dim=1)
        hits += (predicted == y.to(device)).sum().item()
        total += len(y)
    return hits / total


def main():
    parser = argparse.ArgumentParser(description="LeNet on scikit-learn's handwritten digits")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu, cuda, npu")
    parser.add_argument("--save", metavar="FILE", help="write the trained weights to this file")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    train, test = loaders(args.batch_size)
    net = LeNet().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    start = time.perf_counter()
    for epoch in range(args.epochs):
        net.train()
        total = 0.0
        for x, y in tqdm(train, desc=f"epoch {epoch + 1}", leave=False, disable=args.no_progress):
            x, y = x.to(device), y.to(device)
            loss = criterion(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
        scheduler.step()
        print(f"epoch {epoch + 1:2d}  loss {total / len(train.dataset):.4f}  "
              f"test accuracy {100 * accuracy(net, test, device):.2f}%")
    print(f"final test accuracy {100 * accuracy(net, test, device):.2f}% in {time.perf_counter() - start:.1f} s")
    if args.save:
        torch.save(net.state_dict(), args.save)


if __name__ == "__main__":
    main()
