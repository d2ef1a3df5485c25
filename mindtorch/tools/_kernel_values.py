"""Compares the results of the kernels in C with NumPy's, for `doctor`: the machine's own compiler
built them and may have miscompiled.

One process with these kernels and one without run the same programs from the same seed. Results
that differ by more than rounding are listed.
"""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

#: Tolerance relative to the largest element of a result: sums may run in another order, and
#: functions may differ by a few units in the last place.
_CLOSE = 1e-4


def _programs() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yields (what is computed, a function of torch). The programs cover every C library with every
    shape that has its own code path."""
    def on(*sizes, grad=True):
        def deco(f):
            def run(torch):
                xs = [torch.randn(*s).requires_grad_(grad) for s in sizes]
                y = f(torch, *xs)
                if not grad:
                    return y
                # (Neighbouring weights differ. With equal weights the gradient of softmax would be
                # only rounding error.)
                gs = torch.autograd.grad((y * ((torch.arange(y.numel()) % 7 + 1) / 4).view(y.shape)).sum(), xs)
                return (y, *gs)
            return run
        return deco

    def F(torch):
        return torch.nn.functional
    for size in ((7, 5), (130, 67), (300, 517)):
        for name in ("exp", "log1p", "tanh", "sigmoid", "erf", "expm1", "asinh", "atan", "sin"):
            yield f"{name} of {size}", on(size)(lambda t, x, name=name: getattr(t, name)(x.abs()))
        for name in ("gelu", "silu", "mish", "elu", "hardswish", "softplus", "relu6", "leaky_relu", "logsigmoid"):
            yield f"{name} of {size}", on(size)(lambda t, x, name=name: getattr(F(t), name)(x))
        for dim in (0, 1):
            for name in ("softmax", "log_softmax", "sum", "mean", "prod", "amax", "cumsum", "cumprod", "logsumexp", "logcumsumexp", "std", "cummax",
                         "median"):
                def along(t, x, name=name, dim=dim):
                    r = getattr(t, name)(x / 2 if "prod" in name else x, dim)
                    return r[0] if isinstance(r, tuple) else r
                yield f"{name} along {dim} of {size}", on(size)(along)
        yield f"norms of {size}", on(size, size[1:], size[1:])(lambda t, x, w, b: F(t).layer_norm(x, x.shape[1:], w, b) + F(t).rms_norm(x, x.shape[1:], w))
        yield f"a row and a column beside {size}", on(size, (1, size[1]), (size[0], 1))(lambda t, x, r, c: (x + r) * c - x.abs().pow(1.5))
        yield f"cross entropy of {size}", on(size)(lambda t, x: F(t).cross_entropy(x, t.arange(x.shape[0]) % x.shape[1], reduction="none"))
        yield f"orders of {size}", on(size)(lambda t, x: t.cat((x.sort(1)[0], x.topk(3, 1)[0], x.gather(1, x.argsort(1)[:, :2])), 1))
        yield f"indexing of {size}", on(size)(lambda t, x: x.index_add(0, t.arange(5), x[-5:]).scatter_add(1, t.zeros(*x.shape, dtype=t.int64), x))
        yield f"the second and the middle of rows of {size}", on(size)(
            lambda t, x: t.cat((x.kthvalue(2, 1)[0], x.kthvalue(x.shape[1] - 1, 1)[0], x.kthvalue(x.shape[1] // 2, 1)[0])))
        yield f"choices of {size}", on(size)(lambda t, x: t.where(x > 0, x, -2 * x).masked_fill(x < -1, 3.0))
        yield f"losses of {size}", on(size, size)(lambda t, x, y: t.stack([
            loss(a, b) for loss in (F(t).mse_loss, F(t).l1_loss, F(t).smooth_l1_loss, F(t).huber_loss, F(t).binary_cross_entropy_with_logits)
            for a, b in ((x, y), (y, x))]))
        yield f"rows picked of {size}", on(size)(lambda t, x: t.cat((x.index_select(0, t.arange(x.shape[0] * 2) % x.shape[0]), F(t).embedding(t.arange(4), x))))
        yield f"casts of {size}", on(size, grad=False)(lambda t, x: x.double() + (100 * x).long().float() + (x > 0).float() + (7 * x).int().double())
        yield f"turns of {size}", on(size)(lambda t, x: x.flip(0).roll(1, 1))
        yield f"copies of {size}", on(size)(lambda t, x: t.cat((x.t().contiguous().view(-1), x.reshape(-1, 1).expand(-1, 2).reshape(-1))))
        yield f"half precision of {size}", on(size, grad=False)(lambda t, x: (x.bfloat16() * 3 + x.half().bfloat16()).float())
        yield f"matrix products of {size}", on(size, (3, 11, 8), (3, 8, 9))(lambda t, x, a, b: t.cat(((x.t() @ x).view(-1), (a @ b).view(-1))))
    for kernel in ((1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (1, 4)):
        for c, o, size, kw in ((3, 12, (13, 11), {}), (16, 20, (18, 18), {"stride": 2, "padding": 1}), (8, 8, (9, 9), {"groups": 4})):
            if max(kernel) <= min(size):
                what = f"convolution of {c} to {o} channels by {kernel}"
                yield what, on((2, c, *size), (o, c // kw.get("groups", 1), *kernel), (o,))(lambda t, x, w, b, kw=kw: F(t).conv2d(x, w, b, **kw))
                yield f"transposed {what}", on((2, o, 6, 5), (o, c // kw.get("groups", 1), *kernel))(lambda t, x, w, kw=kw: F(t).conv_transpose2d(x, w, **kw))
    for size in ((2, 3, 9, 10), (3, 16, 40, 41)):
        yield f"pools of {size}", on(size)(lambda t, x: F(t).max_pool2d(x, 3, 2, 1) + F(t).avg_pool2d(x, 3, 2, 1))
        yield f"adaptive pools of {size}", on(size)(lambda t, x: F(t).adaptive_avg_pool2d(x, (4, 3)) + F(t).adaptive_max_pool2d(x, (4, 3)))
        yield f"windows of {size}", on(size)(lambda t, x: F(t).unfold(x, 3, padding=1))
        yield f"batch and group norm of {size}", on(size)(lambda t, x: F(t).batch_norm(x, None, None, training=True) + F(t).group_norm(x, 1))
        yield f"resizing of {size}", on(size)(lambda t, x: F(t).interpolate(x, scale_factor=2, mode="bilinear"))
        yield f"sampling of {size}", on(size, (size[0], 5, 6, 2))(lambda t, x, g: F(t).grid_sample(x, g, align_corners=False))
    for queries, keys in ((1, 40), (17, 23), (64, 64)):
        yield f"attention of {queries} to {keys}", on((2, 3, queries, 16), (2, 3, keys, 16), (2, 3, keys, 16))(
            lambda t, q, k, v: F(t).scaled_dot_product_attention(q, k, v))
    for layer in ("LSTM", "GRU", "RNN"):
        def recurrent(t, layer=layer):
            t.manual_seed(1)
            net = getattr(t.nn, layer)(9, 16, 2)
            return net(t.randn(5, 3, 9))[0]
        yield layer, recurrent
    yield "embeddings", on((40, 33))(lambda t, w: t.cat((F(t).embedding(t.arange(50) % 40, w), F(t).embedding_bag((t.arange(50) % 40).view(10, 5), w))))
    for name in ("rand", "randn", "randperm", "randint"):
        def drawn(t, name=name):
            t.manual_seed(2)
            return getattr(t, name)(*((5,) if name == "randint" else ()), *((1000, 90),) if name in ("rand", "randn", "randint") else (5000,)).double()
        yield name, drawn
    for kind in ("SGD", "Adam", "AdamW"):
        def steps(t, kind=kind):
            ps = [t.nn.Parameter(t.randn(*s)) for s in ((3,), (40, 50), (300, 200))]
            optimizer = getattr(t.optim, kind)(ps, lr=0.1, weight_decay=0.01, **({"momentum": 0.9} if kind == "SGD" else {}))
            for _ in range(3):
                for p in ps:
                    p.grad = t.randn(*p.shape)
                optimizer.step()
            return tuple(p.detach() for p in ps)
        yield kind, steps

    def compiled(t):
        net = t.nn.Sequential(t.nn.Conv2d(3, 12, 4, bias=False), t.nn.BatchNorm2d(12), t.nn.ReLU(), t.nn.MaxPool2d(2), t.nn.Flatten(), t.nn.Linear(12 * 36, 32),
                              t.nn.GELU(), t.nn.Linear(32, 8))
        f, x = t.compile(net), t.randn(8, 3, 15, 15)
        for _ in range(2):
            net.zero_grad()
            y = f(x)
            (y * y).sum().backward()
        return (y.detach(), *(p.grad for p in net.parameters()))
    yield "a compiled network and its gradients", compiled


def compute(path: str) -> None:
    """Writes the results of the programs to a file of arrays."""
    import mindtorch.torch as torch
    found = {}
    for name, run in _programs():
        torch.manual_seed(0)
        r = run(torch)
        for i, y in enumerate(r if isinstance(r, tuple) else (r,)):
            found[f"{name} [{i}]"] = y.detach().numpy()
    np.savez(path, **found)


def differing() -> tuple[list[str], int]:
    """Returns (results in which C differs from NumPy, number of results). RuntimeError if a process
    fails."""
    with tempfile.TemporaryDirectory() as folder:
        sides = []
        for enabled in ("1", "0"):
            path = os.path.join(folder, f"{enabled}.npz")
            root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
            code = f"import sys; sys.path.insert(0, {root!r}); from mindtorch.tools._kernel_values import compute; compute({path!r})"
            done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "MINDTORCH_NATIVE": enabled}, capture_output=True, text=True, timeout=600)
            if done.returncode:
                raise RuntimeError(f"the process {'with' if enabled == '1' else 'without'} kernels in C ended with status {done.returncode}: "
                                   + (done.stderr.strip().splitlines() or ["no output"])[-1])
            with np.load(path) as arrays:
                sides.append(dict(arrays))
    return [n for n, a in sides[0].items() if not _alike(a, sides[1][n])], len(sides[0])


def _alike(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and np.allclose(a, b, 0, _CLOSE * max(1e-30, float(np.abs(b).max(initial=0))), equal_nan=True)
