"""Gradient accumulation in a backward pass that is not recorded.

Each function has a kernel of its own name. A device without such a kernel sums with `add` and
copies with `clone`.
"""
from __future__ import annotations

from sys import getrefcount

import numpy as np

from mindtorch.backend.device import is_storage_root
from mindtorch.backend.kernels import TABLES
from mindtorch.backend.mindspore.private import STRIDED
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import stride_rules
from mindtorch.core.device import device_dispatch
from mindtorch.core.tensor.conj_neg_bits import ConjNegBits
from mindtorch.core.dispatch.primitives import HOST
from mindtorch.core.tensor.tensor import Tensor, bump_version, wrap_array
from mindtorch.core.tensor.tensor_wrappers import is_wrapped

_sum, _accumulate, _copy = HOST["gradient_sum"], HOST["gradient_accumulate"], HOST["gradient_copy"]


#: Reference count of the array of a tensor that nothing else refers to: the tensor's two references
#: and that of the call.
_fresh = wrap_array(np.empty(1, np.float32))
_REFERENCES = getrefcount(_fresh._array)


def sum_grads(g: Tensor, h: Tensor) -> Tensor:
    """Returns a new tensor: the sum of two gradients of the same shape and dtype."""
    if (g._handle is not None or h._handle is not None) and (g._handle is not None and h._handle is not None or _has_lazy_handle(g) or _has_lazy_handle(h)):
        # a sparse gradient has neither handle nor array, and raises SparseUse below
        fn = None if _has_lazy_handle(g) or _has_lazy_handle(h) else TABLES[g._device.type].get("gradient_sum")
        if fn is None:
            return hooks.add(g, h)
        return _sum_there(fn, g, h)
    return wrap_array(_sum(g._array, h._array))


def _has_lazy_handle(t):
    """True if the tensor's handle is not directly its device memory."""
    return t._handle.__class__ is ConjNegBits or is_wrapped(t)


@device_dispatch.device_lock
def _sum_there(fn, g, h):
    t = device_dispatch.tensor(g._device, fn(g._handle, h._handle))
    errors = device_dispatch.async_errors
    t._enqueue_epoch = next((x._enqueue_epoch for x in (g, h) if x._enqueue_epoch in errors.windows), errors.now)
    return t


def accumulate_into(to: Tensor, g: Tensor) -> None:
    """Adds a gradient to `to` in place; the caller bumps the version."""
    if g._handle.__class__ is ConjNegBits:
        g = hooks.bits_resolved(g)
    if to._handle is None:
        _accumulate(to._array, g._array)
        return
    if g._handle is None and not _has_lazy_handle(to):
        _accumulate(to._array, g._array)
        return
    fn = None if _has_lazy_handle(to) else TABLES[to._device.type].get("gradient_accumulate")
    if fn is None:
        device_dispatch.write(to, hooks.add(to, g))
    else:
        device_dispatch.device_lock(fn)(to._handle, g._handle)


def steal_or_clone(leaf: Tensor, g: Tensor) -> Tensor:
    """Returns a leaf's first gradient.

    This is g itself if its memory is not shared and it has the leaf's strides, else a copy.
    """
    if g._handle is not None:
        return hooks.clone(g) if may_be_shared(g) or g._requires_grad_ else g
    if not STRIDED.on:
        return wrap_array(_copy(g._array, strides=None)) if may_be_shared(g) or g._requires_grad_ else g
    # Use the leaf's strides if they are dense, else C order.
    if leaf._contiguous and not STRIDED.unusual_strides:
        return wrap_array(_copy(g._array, strides=None)) if may_be_shared(g) or g._requires_grad_ or not g._contiguous else g
    a, b = leaf._array, g._array
    plain = stride_rules.contiguous_strides(a.shape)
    strides = stride_rules.strides_of(a)
    if not stride_rules.is_dense(a.shape, strides):
        strides = plain
    if not may_be_shared(g) and not g._requires_grad_ and all(n == 1 or have == want for n, have, want in zip(b.shape, stride_rules.strides_of(b), strides)):
        # The strides of size-1 dimensions address nothing. They indicate the memory format of a
        # convolution weight with one channel or a 1x1 kernel.
        if strides != plain:
            b.strides = [s * b.itemsize for s in strides]
        return g
    return wrap_array(_copy(b, strides=strides))


def may_be_shared(g: Tensor) -> bool:
    """True if this gradient's memory may be shared (it was passed through a node, or is a view)."""
    return g._grad_may_alias or g._base is not None or g._array.base is not None and (g._handle is None or not is_storage_root(g._array))


def is_unaliased(g: Tensor) -> bool:
    """True if nothing but this Tensor refers to its host memory.

    Such a reference can be a tensor, array, storage, capsule or MindSpore code.
    """
    return g.__class__ is Tensor and g._handle is None and not g._escaped_to_mindspore and g._array.flags.writeable and getrefcount(g._array) == _REFERENCES


def accumulate_grad(old: Tensor, g: Tensor) -> None:
    """Adds a gradient to a leaf's current one in place.

    As in PyTorch, references to it and views of it stay valid.
    """
    if old._handle is None and g._handle is None:
        _accumulate(old._array, g._array)
    else:
        accumulate_into(old, g)
    bump_version(old)
