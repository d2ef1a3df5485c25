"""Overhead of the facade over the kernel that it calls, per op (microseconds, best of many runs).

`kernel` is the NumPy function that the op ends in, called directly on the arrays. `facade` is
torch.<op>. `recorded` is the same call while a gradient is recorded.
"""
import time

import numpy as np


def best(f, n=300, repeat=40):
    f()
    times = []
    for _ in range(repeat):
        t = time.perf_counter()
        for _ in range(n):
            f()
        times.append((time.perf_counter() - t) / n)
    return min(times) * 1e6


def cases(torch):
    """Returns {name: (kernel call, facade call, facade call with gradients or None)}."""
    rs = np.random.RandomState(0)

    def t(*shape):
        return torch.from_numpy(rs.rand(*shape).astype(np.float32) + 0.5)
    x, y = t(8, 8), t(8, 8)
    xg, yg = t(8, 8).requires_grad_(), t(8, 8).requires_grad_()
    a, b = x.numpy(), y.numpy()
    two = np.array(2.0, np.float32)
    return {
        "add": (lambda: np.add(a, b), lambda: x + y, lambda: xg + yg),
        "mul scalar": (lambda: np.multiply(a, two), lambda: x * 2.0, lambda: xg * 2.0),
        "div": (lambda: np.divide(a, b), lambda: x / y, lambda: xg / yg),
        "exp": (lambda: np.exp(a), lambda: torch.exp(x), lambda: torch.exp(xg)),
        "relu": (lambda: np.maximum(a, 0), lambda: torch.relu(x), lambda: torch.relu(xg)),
        "tanh": (lambda: np.tanh(a), lambda: torch.tanh(x), lambda: torch.tanh(xg)),
        "matmul": (lambda: np.matmul(a, b), lambda: x @ y, lambda: xg @ yg),
        "sum": (lambda: a.sum(), lambda: x.sum(), lambda: xg.sum()),
        "mean dim": (lambda: a.mean(1), lambda: x.mean(1), lambda: xg.mean(1)),
        "transpose": (lambda: a.swapaxes(0, 1), lambda: x.transpose(0, 1), lambda: xg.transpose(0, 1)),
        "view": (lambda: a.reshape(64), lambda: x.view(64), lambda: xg.view(64)),
        "getitem": (lambda: a[1:3], lambda: x[1:3], lambda: xg[1:3]),
        "cat": (lambda: np.concatenate((a, b)), lambda: torch.cat((x, y)), lambda: torch.cat((xg, yg))),
        "add_": (lambda: np.add(a, b, out=a), lambda: x.add_(y), None),
        "lt": (lambda: np.less(a, b), lambda: x < y, None),
    }


def main():
    import mindtorch.torch as torch
    print(f"{'op (8x8)':12s} {'kernel':>8s} {'facade':>8s} {'added':>8s} {'recorded':>9s}")
    worst = 0.0
    for name, (kernel, facade, recorded) in cases(torch).items():
        with torch.no_grad():
            k, f = best(kernel), best(facade)
        r = best(recorded) if recorded else float("nan")
        worst = max(worst, f - k)
        print(f"{name:12s} {k:8.2f} {f:8.2f} {f - k:8.2f} {r:9.2f}")
    print(f"largest overhead {worst:.2f} us")
    return 0


if __name__ == "__main__":
    main()
