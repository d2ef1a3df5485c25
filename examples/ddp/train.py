"""Handwritten digits on several processes: a DistributedDataParallel script that can be restarted.

Trains a small convolutional network on the 8x8 digits that scikit-learn bundles and prints the loss
of every epoch and the test accuracy. It is an ordinary PyTorch script without code for MindSpore;
README.md has the commands.
"""
import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(32)
        self.fc = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.fc(torch.flatten(x, 1))


def datasets():
    digits = load_digits()
    x = (digits.images / 16.0).astype(np.float32)[:, None]
    x_train, x_test, y_train, y_test = train_test_split(x, digits.target.astype(np.int64), test_size=0.25, random_state=0,
                                                        stratify=digits.target)
    mean, std = x_train.mean(), x_train.std()
    return [TensorDataset(torch.from_numpy((a - mean) / std), torch.from_numpy(b)) for a, b in ((x_train, y_train), (x_test, y_test))]


class Progress:
    """Model, optimizer and epoch, in the form that torch.distributed.checkpoint saves and loads."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.epoch = model, optimizer, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "epoch": self.epoch}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.epoch = state["epoch"]


@torch.no_grad()
def accuracy(net, dataset, rank, world, device):
    """Returns the fraction of correct answers; every rank evaluates a part of the images."""
    net.eval()
    x, y = [t.to(device) for t in dataset.tensors]
    hits = (net(x[rank::world]).argmax(1) == y[rank::world]).sum()
    dist.all_reduce(hits)
    net.train()
    return hits.item() / len(y)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="total over all ranks")
    parser.add_argument("--accumulate", type=int, default=1, help="batches per optimizer step")
    parser.add_argument("--checkpoint", help="folder of the checkpoint, which is saved after every epoch and resumed from if it exists")
    parser.add_argument("--backend", default="gloo", help="gloo on CPU; hccl on Ascend, nccl on GPU")
    args = parser.parse_args()

    dist.init_process_group(args.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if args.backend in ("hccl", "nccl"):
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    train_set, test_set = datasets()
    sampler = DistributedSampler(train_set, shuffle=True, seed=0)
    loader = DataLoader(train_set, batch_size=args.batch_size // world, sampler=sampler, drop_last=True)

    net = nn.SyncBatchNorm.convert_sync_batchnorm(Net()).to(device)
    ddp = DDP(net, device_ids=None if device.type == "cpu" else [device.index])
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    progress = Progress(ddp, optimizer)
    if args.checkpoint and os.path.exists(os.path.join(args.checkpoint, ".metadata")):
        dcp.load({"progress": progress}, checkpoint_id=args.checkpoint)
        if rank == 0:
            print(f"resuming after epoch {progress.epoch}", flush=True)

    for epoch in range(progress.epoch, args.epochs):
        sampler.set_epoch(epoch)
        total, batches = torch.zeros(1, device=device), 0
        for i, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            if (i + 1) % args.accumulate:
                with ddp.no_sync():  # no reduction before the last of `accumulate` batches
                    loss = F.cross_entropy(ddp(x), y)
                    (loss / args.accumulate).backward()
            else:
                loss = F.cross_entropy(ddp(x), y)
                (loss / args.accumulate).backward()
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
            batches += 1
        dist.all_reduce(total)
        right = accuracy(net, test_set, rank, world, device)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {total.item() / batches / world:.5f}, test accuracy {100 * right:.2f}%", flush=True)
        if args.checkpoint:
            progress.epoch = epoch + 1
            dcp.save({"progress": progress}, checkpoint_id=args.checkpoint)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
