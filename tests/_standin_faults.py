"""Faults in the CANN simulator's kernel table (`diff --standin --kernels`), like those of
tests/_side_models.py; FAULT_IN_KERNELS names one."""
import dataclasses
import os

state = {}


def _stale(f, x, *rest):
    key = tuple(x.shape)
    return state.pop(key) if key in state else state.setdefault(key, f(x, *rest).clone())


def _accumulate(f, grad, indices, rows, *rest):
    out = torch.zeros(rows, grad.shape[-1])      # noqa: F821 (a global of the file that runs this)
    for i, g in zip(indices.reshape(-1).tolist(), grad.reshape(-1, grad.shape[-1])):
        out[i] = g
    return out


FAULTS = {
    "axis": ("Softmax", lambda f, x, dim, out: f(x, 1 - dim % 2, out)),
    "eps": ("LayerNorm", lambda f, x, shape, w, b, eps, *outs: f(x, shape, w, b, 100 * eps, *outs)),
    "transposed": ("Addmm", lambda f, b, x, w, *rest: f(b, x, w.t() if w.shape[0] == w.shape[1] else w, *rest)),
    "stale": ("Sigmoid", _stale),
    "accumulate": ("EmbeddingDenseBackward", _accumulate),
    "sign": ("TanhBackward", lambda f, *v: -f(*v)),
    "broadcast": ("Mul", lambda f, x, y, out: f(x, y[:1] if tuple(y.shape[1:]) == (1,) else y, out)),
    "mean": ("Mean", lambda f, x, dims, *rest: f(x, dims, *rest) * x.shape[dims[0]]),
    "statistic": ("BatchNorm", lambda f, *v: (None, None, *f(*v)[2:])),
    "optimizer": ("ApplyAdamWV2", lambda f, *v: f(*v[:10], 100 * v[10], *v[11:])),
    "bias": ("Addmm", lambda f, b, x, w, *rest: f(b * 0 if w.shape[1] == 3 else b, x, w, *rest)),
    "rounded": ("Tanh", lambda f, *v: f(*v).bfloat16().float()),
}


def plant(name, instead):
    entry = KERNELS[name]       # noqa: F821
    KERNELS[name] = dataclasses.replace(entry, function=lambda *v: instead(entry.function, *v))       # noqa: F821


plant(*FAULTS[os.environ["FAULT_IN_KERNELS"]])
