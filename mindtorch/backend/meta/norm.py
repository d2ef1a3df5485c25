"""Normalizations: the result has the shape of the input; statistics are per row, channel or group.
"""
import math

import numpy as np

from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array

_F32 = np.dtype(np.float32)


def _same(a):
    return meta_array(a.shape, a.dtype, a)


def _statistic(n, a):
    return meta_array((n,), _F32 if a.itemsize == 2 else a.dtype)


@kernel("native_layer_norm")
def _layer_norm(fwd, arrays, kw):
    a = arrays[0]
    rows = math.prod(a.shape[:a.ndim - kw["dims"]])
    return _same(a), _statistic(rows, a), _statistic(rows, a), None, None


@kernel("rms_norm")
def _rms_norm(fwd, arrays, kw):
    a = arrays[0]
    return _same(a), _statistic(math.prod(a.shape[:a.ndim - kw["dims"]]), a)


@kernel("native_batch_norm_train")
def _batch_norm(fwd, arrays, kw):
    a = arrays[0]
    return (_same(a), *[_statistic(a.shape[1], a) for _ in range(3)], None)


@kernel("native_batch_norm_eval channel_window_sum")
def _like_input(fwd, arrays, kw):
    return _same(arrays[0])


@kernel("native_group_norm native_instance_norm")
def _group_norm(fwd, arrays, kw):
    a = arrays[0]
    n = a.shape[0] * kw["groups"]
    return _same(a), _statistic(n, a), _statistic(n, a), None


@kernel("running_statistics")
def _running(fwd, arrays, kw):
    return tuple(None if a is None else _same(a) for a in arrays[2:])


@kernel("instance_statistics")
def _instance_statistics(fwd, arrays, kw):
    a = arrays[0]
    return _statistic(a.shape[1], a), _statistic(a.shape[1], a)


@kernel("native_layer_norm_backward rms_norm_backward native_batch_norm_train_backward native_batch_norm_eval_backward native_group_norm_backward")
def _grads(fwd, arrays, kw):
    g, x, w = arrays[:3]
    shape = kw.get("shape", x.shape[1:2])
    grads = [meta_array(x.shape, g.dtype, x), None if w is None else meta_array(w.shape, g.dtype), meta_array(shape or (), g.dtype)]
    needs = kw["needs"]
    return tuple(a if need else None for a, need in zip(grads, needs)) + (None,) * (len(needs) - 3)
