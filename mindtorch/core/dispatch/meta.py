"""The meta device: tensors with a shape, strides and a dtype, but no values.

The `_array` of a meta tensor is an ordinary ndarray on address space that is reserved once and never
touched. NumPy's own rules compute shapes, strides and views, and no memory is used, whatever the
size. The arrays are read-only, so that they cannot be modified by mistake. `running` stops kernels
from reading them: inside it the dispatcher computes only the shape and dtype of every primitive's
result. A view uses its own kernel; other primitives use a shape rule, or else their kernel on zeros
with the values discarded.
"""
from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from mindtorch.backend import kernels, meta as _meta
from mindtorch.backend.interface import Array, NpDtype
from mindtorch.backend.meta.elementwise import elementwise
from mindtorch.backend.meta.arrays import meta_array, is_meta_array
from mindtorch.backend.mindspore.private import from_contiguous
from mindtorch.core.device import device as _device
from mindtorch.core.dispatch import dispatcher
from mindtorch.core.tensor import tensor as _tensor
from mindtorch.core.tensor.dtypes import LOW
from mindtorch.core.tensor.tensor import Tensor

DEVICE = _device.meta
_F32 = np.dtype(np.float32)


class _State(threading.local):
    on = 0  # nesting depth of `running` in this thread


state = _State()
kernels.load(_meta)
META = kernels.TABLES["meta"]
_live: set[weakref.ref[Tensor]] = set()  # weak references to the live meta tensors
_watchers: list[Callable[[], object]] = []


def alive() -> bool:
    """True if there are meta tensors."""
    return bool(_live)


def watch(fn: Callable[[], object]) -> None:
    """Registers `fn` to be called whenever a meta tensor is created while there are none."""
    _watchers.append(fn)


# ------------------------------------------------------------------ tensors
_EMPTY = np.empty(0, np.float32)


def _forget(ref):
    _live.discard(ref)


def _enrol(t):
    t._device = DEVICE
    first = not _live
    _live.add(weakref.ref(t, _forget))
    dispatcher.dispatch_state.meta = True
    if first:
        for fn in _watchers:
            fn()


def wake() -> None:
    """Calls the watchers, before meta tensors are created."""
    for fn in _watchers:
        fn()


def make(shape: Sequence[int], dtype: NpDtype, requires_grad: bool = False) -> Tensor:
    """Returns a new meta tensor."""
    return on(meta_array(shape, dtype), requires_grad)


def on(a: Array, requires_grad: bool = False) -> Tensor:
    """Returns a meta tensor with the shape, strides and dtype of an array."""
    t = from_contiguous(_EMPTY)
    t.__class__ = Tensor
    t._array = a if is_meta_array(a) else meta_array(a.shape, a.dtype, a)
    _enrol(t)
    if requires_grad:
        _tensor.set_requires_grad(t, True)
    return t


def strided(shape: Sequence[int], strides: Sequence[int], span: int, dtype: NpDtype) -> Tensor:
    """Returns a meta tensor with any strides (in elements), on a storage of `span` elements."""
    flat = meta_array((span,), dtype)
    return on(np.ndarray(shape, dtype, flat, 0, [s * dtype.itemsize for s in strides]) if span else meta_array(shape, dtype))


def of(t: Tensor, requires_grad: bool = False) -> Tensor:
    """Returns a meta tensor with the shape, strides and dtype of `t`."""
    return on(t._array, requires_grad)


def turn(t: Tensor) -> Tensor:
    """Turns a tensor that was created inside `running` into a meta tensor, keeping its history."""
    if t._device is not DEVICE:
        a = t._array
        if not is_meta_array(a):
            t._array = meta_array(a.shape, a.dtype, a)
        _enrol(t)
    return t


class running:
    """Context manager in which primitives compute shapes only."""

    def __enter__(self):
        dispatcher.dispatch_state.meta = True
        dispatcher.enable_layer("primitives", "meta")
        state.on += 1

    def __exit__(self, *exc):
        state.on -= 1
        dispatcher.disable_layer("primitives", "meta")
        return False


class computing:
    """Context manager that suspends `running`, for values that are needed inside it."""

    def __enter__(self):
        self._before = state.on
        state.on = 0

    def __exit__(self, *exc):
        state.on = self._before
        return False


# ------------------------------------------------------------------ primitives
@dispatcher.register_layer("primitives", "meta")
def _shapes(prim, args, kw, below):
    """Dispatcher layer: computes the result of a primitive inside `running`."""
    if not state.on:
        return below(prim, args, kw)
    return prim.run_with(prim.fwd if prim.view else _shape_kernel(prim), _low_kernel, args, kw)


def _shape_kernel(prim):
    fwd = prim.shapes
    if fwd is None:
        rule = META.get(prim.name) or (elementwise if prim.elementwise else None)
        fwd = prim.shapes = _by_rule(prim.fwd, rule)
    return fwd


def _by_rule(fwd, rule):
    def kernel(*arrays, **kw):
        if rule is not None:
            r = rule(fwd, arrays, kw)
            if r is not None:
                return r
        r = fwd(*arrays, **kw)
        if r.__class__ is tuple:
            return tuple(_blanked(x) for x in r)
        return _blanked(r)
    return kernel


def _blanked(r):
    if r is None:
        return None
    if r.__class__ is not np.ndarray:
        r = np.asarray(r)
    return meta_array(r.shape, r.dtype, r)


def _low_kernel(fwd, arrays, kw):
    to = next((x.dtype for x in reversed(arrays) if x is not None and x.dtype in LOW), None)
    if to is None:
        return fwd(*arrays, **kw)
    r = fwd(*[meta_array(x.shape, _F32, x) if x is not None and x.dtype in LOW else x for x in arrays], **kw)
    if r.__class__ is tuple:
        return tuple(meta_array(x.shape, to, x) if x is not None and x.dtype == _F32 else x for x in r)
    return meta_array(r.shape, to, r) if r.dtype == _F32 else r
