"""Latency of single ops in microseconds: PyTorch against mindtorch, on small and large tensors.

Only the forward pass is measured. Each library runs in its own process. Rounds alternate between
the libraries, and the minimum over all rounds counts.
"""
import json
import sys
import time

import numpy as np


def cases(torch, size):
    """Returns {name: function} for the tensors of one size class."""
    F = torch.nn.functional
    rs = np.random.RandomState(0)

    def t(*shape):
        return torch.from_numpy(rs.rand(*shape).astype(np.float32) + 0.5)
    if size == "small":
        x, y, w, b = t(16, 16), t(16, 16), t(16, 16), t(16)
        img, ker = t(1, 4, 8, 8), t(4, 4, 3, 3)
        q = t(1, 2, 8, 8)
    else:
        x, y, w, b = t(1024, 1024), t(1024, 1024), t(1024, 1024), t(1024)
        img, ker = t(16, 32, 32, 32), t(32, 32, 3, 3)
        q = t(4, 8, 128, 64)
    idx = torch.from_numpy(rs.randint(0, x.shape[0], x.shape[0]))
    mask = x > 1
    n = x.shape[0]
    return {
        "add": lambda: x + y,
        "mul scalar": lambda: x * 2.0,
        "exp": lambda: torch.exp(x),
        "tanh": lambda: torch.tanh(x),
        "relu": lambda: torch.relu(x),
        "gelu": lambda: F.gelu(x),
        "where": lambda: torch.where(mask, x, y),
        "sum": lambda: x.sum(),
        "sum dim": lambda: x.sum(0),
        "mean": lambda: x.mean(),
        "var": lambda: x.var(),
        "max dim": lambda: x.max(1),
        "argmax": lambda: x.argmax(1),
        "topk": lambda: x.topk(5),
        "sort": lambda: x.sort(),
        "cumsum": lambda: x.cumsum(1),
        "softmax": lambda: torch.softmax(x, 1),
        "cross entropy": lambda: F.cross_entropy(x, idx),
        "layer norm": lambda: F.layer_norm(x, (n,)),
        "matmul": lambda: x @ y,
        "linear": lambda: F.linear(x, w, b),
        "conv2d": lambda: F.conv2d(img, ker, padding=1),
        "max pool": lambda: F.max_pool2d(img, 2),
        "attention": lambda: F.scaled_dot_product_attention(q, q, q),
        "transpose copy": lambda: x.t().contiguous(),
        "cat": lambda: torch.cat((x, y)),
        "index rows": lambda: x[idx],
        "embedding": lambda: F.embedding(idx, x),
        "view": lambda: x.view(-1),
        "randn": lambda: torch.randn(n, n),
        "zeros": lambda: torch.zeros(n, n),
        "clone": lambda: x.clone(),
        "add_": lambda: x.add_(0.0),
        "item": lambda: b[0].item(),
    }


def measure(f, least):
    """Returns the seconds per call, averaged over as many calls as fill `least` seconds."""
    f()
    t = time.perf_counter()
    f()
    once = max(1e-7, time.perf_counter() - t)
    n = max(1, min(2000, int(least / once)))
    t = time.perf_counter()
    for _ in range(n):
        f()
    return (time.perf_counter() - t) / n


def worker(side, size):
    """Answers each line on stdin, a duration in seconds, with {op: microseconds} of one round."""
    if side == "torch":
        import torch
    else:
        import mindtorch.torch as torch
    with torch.no_grad():
        todo = cases(torch, size)
        print(json.dumps({"ops": list(todo)}), flush=True)
        for line in sys.stdin:
            print(json.dumps({k: measure(f, float(line)) * 1e6 for k, f in todo.items()}), flush=True)
