"""Steps of fused optimizers (fused=True) in float16 and bfloat16.

PyTorch's fused kernels convert parameter, gradient and state to float32, compute the entire step in
float32, and round the values that they store. Unfused optimizers use tensor ops, which round after
each op. (PyTorch 2.13's SGD kernel does not store full vectors of half-precision results; this one
does.)
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.half import downcast, upcast
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.interface import Array, NpDtype

_F32 = np.dtype(np.float32)
#: A step over flat float32 arrays: (options, float32 scalars, gradient, parameter, *states) -> new
#: parameter and states.
Step = Callable[..., Sequence[Array]]


def _fused(a: Any, b: Any, c: Any) -> Array:
    """Computes a * b + c in float32, rounded once. (The product of two float32 values is exact in
    float64.)"""
    return (np.multiply(a, b, dtype=np.float64) + c).astype(_F32)


def _direction(g: Array, p: Array, wd: Any, maximize: bool, decay: bool) -> Array:
    if maximize:
        g = -g
    return _fused(p, wd, g) if decay else g


def _sgd(options: Any, scalars: Any, g: Array, p: Array, b: Array | None = None) -> Sequence[Array]:
    maximize, decay, momentum, nesterov, first = options
    lr, wd, mu, damp = scalars
    d = _direction(g, p, wd, maximize, decay)
    if b is None:
        return _fused(d, -lr, p),
    if momentum:
        b = d if first else _fused(b, mu, d * damp)
        d = _fused(b, mu, d) if nesterov else b
    return _fused(d, -lr, p), b


def _adam(options: Any, scalars: Any, g: Array, p: Array, m: Array, v: Array, largest: Array | None = None) -> Sequence[Array]:
    maximize, decay, decoupled, amsgrad = options
    size, root, eps, wd, w1, b2, w2 = scalars
    if decay and decoupled:
        p = p * wd
    d = _direction(g, p, wd, maximize, decay and not decoupled)
    m = _fused(w1, d - m, m) if abs(w1) < 0.5 else _fused(w1 - 1, d - m, d)
    v = _fused(w2 * d, d, v * b2)
    top = v if largest is None else np.maximum(largest, v)
    p = p + -size * m / (np.sqrt(top) / root + eps)
    return (p, m, v) if largest is None else (p, m, v, top)


#: Elements that PyTorch's Adagrad kernel processes at a time, with the scalars rounded to half
#: precision. It processes the remaining elements with the unrounded scalars.
_VECTOR = 16


def _adagrad(options: Any, scalars: Any, g: Array, p: Array, total: Array, *, half: NpDtype) -> Sequence[Array]:
    maximize, decay = options
    vector_end = p.size - p.size % _VECTOR if half != _F32 else 0
    in_half = [upcast(downcast(np.array([x], _F32), half))[0] if half != _F32 else x for x in scalars]
    new = np.empty_like(p), np.empty_like(total)
    for part, (size, _, wd) in ((slice(0, vector_end), in_half), (slice(vector_end, None), scalars)):
        d, x = _direction(g[part], p[part], wd, maximize, decay), p[part]
        new[1][part] = _fused(d, d, total[part])
        new[0][part] = x - size * d / (np.sqrt(new[1][part]) + scalars[1])
    return new


def _over(step: Step) -> Callable[..., None]:
    @quiet
    def run(_: Any, columns: Sequence[Sequence[Array]], consts: Sequence[Any]) -> None:
        *written, grads = columns
        for row, (options, scalars) in enumerate(consts):
            arrays = [column[row] for column in written]
            upcasts = [(upcast(a) if a.dtype != _F32 else a).reshape(-1) for a in (grads[row], *arrays)]
            attrs = {"half": arrays[0].dtype} if step is _adagrad else {}
            for a, r in zip(arrays, step(options, [_F32.type(x) for x in scalars], *upcasts, **attrs)):
                a[...] = (r if a.dtype == _F32 else downcast(r, a.dtype)).reshape(a.shape)
    return run


for _name, _step in (("sgd", _sgd), ("adam", _adam), ("adagrad", _adagrad)):
    kernel(f"{_name}_step_half", _over(_step))
