"""A model for device comparisons, and faults for it: npu kernels that compute something wrong.

The processes of both sides load this file; a fault is planted only in the second one.
"""
import functools

import torch
from torch import nn


class Gate(nn.Module):
    """Multiplies every row by its own factor."""

    def forward(self, x):
        return x * torch.linspace(0.5, 1.5, len(x), dtype=x.dtype, device=x.device)[:, None]


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc1, self.act1, self.fc2, self.act2 = nn.Linear(n, 2 * n), nn.Sigmoid(), nn.Linear(2 * n, n), nn.Sigmoid()
        self.norm = nn.LayerNorm(n)

    def forward(self, x):
        return x + self.norm(self.act2(self.fc2(self.act1(self.fc1(x)))))


class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.embed, self.body = nn.Embedding(7, n), nn.Sequential(Block(n), Block(n))
        self.soft, self.square, self.bn, self.tanh = nn.Softmax(dim=1), nn.Linear(n, n), nn.BatchNorm1d(n), nn.Tanh()
        self.gate, self.mean, self.head = Gate(), Mean(), nn.Linear(n, 3)

    def forward(self, tokens):
        x = self.mean(self.embed(tokens))
        x = self.square(x * (1 + self.soft(x)))
        return self.head(self.gate(self.tanh(self.bn(self.body(x)))))


def net(n=12):
    return Net(n), [torch.randint(0, 7, (n, 5))]


def larger_net():
    return net(36)


def large():
    """Returns a model with 190 MB of activations and their gradients."""
    layers = [m for _ in range(6) for m in (nn.Linear(512, 512), nn.Tanh())]
    return nn.Sequential(*layers), [torch.randn(2048, 512)]


class Kept(nn.Module):
    """A module with a tensor that is neither a parameter nor a buffer."""

    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(4, 4), torch.ones(4)

    def forward(self, x):
        return self.fc(x) * self.scale


def kept():
    return Kept(), [torch.randn(3, 4)]


def adam_eps(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-4)


# ------------------------------------------------------------------ faults in npu kernels
def _array(h):
    return h.asnumpy()


def _handle(a):
    import numpy
    from mindtorch.backend.mindspore.private import from_contiguous
    return from_contiguous(numpy.array(a, order="C"))


def _axis(kernel, x, *, dim):
    return kernel(x, dim=1 - dim)


def _eps(kernel, x, w, b, *, n, dims, eps):
    return kernel(x, w, b, n=n, dims=dims, eps=100 * eps)


def _transposed(kernel, x, w, b):
    return kernel(x, _handle(_array(w).T) if w.shape[0] == w.shape[1] else w, b)


_buffers = {}


def _stale(kernel, x):
    """Returns the previous call's result at every second call with the same shape (stale output
    memory)."""
    return _buffers.pop(x.shape) if x.shape in _buffers else _buffers.setdefault(x.shape, kernel(x))


def _accumulate(kernel, g, index, *, padding, by_freq, rows):
    import numpy
    out = numpy.zeros((rows, g.shape[-1]), numpy.float32)
    # keeps the last of equal indices instead of their sum
    out[_array(index).ravel()] = _array(g).reshape(-1, g.shape[-1])
    return _handle(out)


def _sign(kernel, *operands):
    return _handle(-_array(kernel(*operands)))


def _broadcast(kernel, x, y):
    if getattr(y, "shape", ())[1:] == (1,):
        y = _handle(0 * _array(y) + _array(y)[0])
    return kernel(x, y)


def _mean(kernel, x, *, axes, keepdim):
    return _handle(_array(kernel(x, axes=axes, keepdim=keepdim)) * x.shape[axes[0]])


def _statistic(kernel, x, w, b, mean, var, **constants):
    return kernel(x, w, b, _handle(_array(mean)), _handle(_array(var)), **constants)


def _optimizer(kernel, layout, columns, consts):
    return kernel(layout, columns, [(options, (size, root, 100 * eps, *rest)) for options, (size, root, eps, *rest) in consts])


def _bias(kernel, x, w, b):
    return kernel(x, w, None if w.shape[0] == 3 else b)


def _rounded(kernel, x):
    import numpy
    bits = _array(kernel(x)).view(numpy.uint32)
    return _handle((((bits + 0x7fff + (bits >> 16 & 1)) >> 16) << 16).view(numpy.float32))


#: fault -> (npu kernel, faulty replacement)
KERNELS = {"axis": ("softmax", _axis), "eps": ("native_layer_norm", _eps), "transposed": ("linear", _transposed), "stale": ("sigmoid", _stale),
           "accumulate": ("embedding_dense_backward", _accumulate), "sign": ("tanh_backward", _sign), "broadcast": ("mul", _broadcast),
           "mean": ("mean_dims", _mean), "statistic": ("native_batch_norm_moving", _statistic), "optimizer": ("adam_step", _optimizer),
           "bias": ("linear", _bias), "rounded": ("tanh", _rounded)}


def _plant(fault):
    """Returns a function that plants a fault in the npu kernels of this process, replacing an
    earlier one."""
    def plant(model):
        from mindtorch.backend.kernels import TABLES
        from mindtorch.core.device import device_dispatch
        table = TABLES["npu"]
        for name, _ in KERNELS.values():
            table[name] = getattr(table[name], "instead_of", table[name])
        if fault:
            name, instead = KERNELS[fault]
            kernel = functools.update_wrapper(functools.partial(instead, table[name]), table[name])
            kernel.instead_of, table[name] = table[name], kernel
        device_dispatch.KERNEL_CACHE["npu"].clear()  # drop cached kernel lookups
    return plant


for _fault in (*KERNELS, ""):
    globals()[f"kernel_{_fault}"] = _plant(_fault)
