"""Cost of `mindtorch.tools.watch`: paired ratios of steps with and without it, in one process.

    python benchmarks/watch_cost.py [--rounds 60] [--side mindtorch|torch]

`idle` steps are those that watch(every=n) skips; `watched` steps are those that it inspects. A run
with every=n costs idle + (watched - idle) / n. Times are CPU times of all threads, because other
programs on the machine disturb these less than wall time.
"""
import argparse
import statistics
import time


def models(torch):
    """Returns {name: (model, input, target)} for three sizes."""
    nn = torch.nn
    torch.manual_seed(0)

    def block(a, b):
        return [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    return {
        "MLP 784-512-512-10, batch 64": (
            nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)),
            torch.randn(64, 784), torch.randint(0, 10, (64,))),
        "six 3x3 convolutions with batch norm, 16x3x32x32": (
            nn.Sequential(*block(3, 32), *block(32, 32), nn.MaxPool2d(2), *block(32, 64), *block(64, 64), nn.MaxPool2d(2),
                          *block(64, 64), *block(64, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
            torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))),
        "two LSTM layers of 128, 16x20 tokens": (
            Tagger(torch), torch.randint(0, 200, (16, 20)), torch.randint(0, 10, (16,)))}


def Tagger(torch):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.lstm = nn.Embedding(200, 128), nn.LSTM(128, 128, 2, batch_first=True)
            self.head = nn.Linear(128, 10)

        def forward(self, x):
            return self.head(self.lstm(self.embed(x))[0][:, -1])
    return Net()


def measure(torch, model, x, y, rounds):
    """Returns the median paired ratios {idle, watched: ratio to plain} and the plain step in ms."""
    from mindtorch.tools import watch
    opt, loss_fn = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), torch.nn.CrossEntropyLoss()

    def step():
        start = time.process_time()
        opt.zero_grad()
        loss_fn(model(x), y).backward()
        opt.step()
        return time.process_time() - start

    for _ in range(5):
        step()
    watches = {"idle": watch(model, opt, every=10**9), "watched": watch(model, opt, on_finding=None)}
    watches["idle"].step_end()  # skips the first step, the only one that this watch would inspect
    plain, ratios = [], {"idle": [], "watched": []}
    for i in range(rounds):
        # Run the three kinds in turn, with a different one first in each round, so that a slow
        # moment of the machine affects all of them.
        for kind in [("plain", "idle", "watched"), ("idle", "watched", "plain"), ("watched", "plain", "idle")][i % 3]:
            if kind == "plain":
                step()
                plain.append(step())
                continue
            with watches[kind]:
                step()  # not counted: the first step in the context copies the weights
                ratios[kind].append(step())
    return {k: statistics.median(a / b for a, b in zip(v, plain)) for k, v in ratios.items()}, 1e3 * statistics.median(plain)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--side", choices=("mindtorch", "torch"), default="mindtorch")
    args = parser.parse_args()
    if args.side == "torch":
        import torch
    else:
        import mindtorch.torch as torch
    print(f"{'model':50} {'step':>9} {'idle':>8} {'watched':>9}")
    for name, (model, x, y) in models(torch).items():
        cost, base = measure(torch, model, x, y, args.rounds)
        print(f"{name:50} {base:6.2f} ms {100 * (cost['idle'] - 1):+7.1f}% {100 * (cost['watched'] - 1):+8.1f}%")


if __name__ == "__main__":
    main()
