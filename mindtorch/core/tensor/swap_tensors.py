"""Swaps the contents of two tensors, but not their identity (torch.utils.swap_tensors)."""
from __future__ import annotations

import copyreg
import weakref

from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import tensor_wrappers
from mindtorch.core.tensor.tensor import Parameter, Tensor, attributes, set_device, swap_impl

#: how torch.compile treats the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "safe"
_MISSING = object()


def swap(a: Tensor, b: Tensor) -> None:
    """Swaps memory, class, history, gradient, hooks and attributes.

    RuntimeError if there are weak references to one of the tensors.
    """
    for which, t in ("t1", a), ("t2", b):
        # mindtorch itself holds a weak reference to every meta tensor
        if weakref.getweakrefcount(t) > (t._device.type == "meta") + hooks.count_weakrefs(t):
            raise RuntimeError(f"Cannot swap {which} because it has weakref associated with it")
    slots: list[str] = copyreg._slotnames(type(a))          # type: ignore[attr-defined]
    if set(slots) != set(copyreg._slotnames(type(b))):          # type: ignore[attr-defined]
        raise RuntimeError("Cannot swap t1 and t2 if they have different slots")
    kinds, meta = (type(a), type(b)), (a._device.type == "meta", b._device.type == "meta")
    if kinds[0] is not kinds[1]:
        a.__class__, b.__class__ = kinds[1], kinds[0]
    mine, other = attributes(a), attributes(b)
    saved = dict(mine)
    mine.clear()
    mine.update(other)
    other.clear()
    other.update(saved)
    for name in slots:
        values = [getattr(t, name, _MISSING) for t in (b, a)]
        for t, value in zip((a, b), values):
            if value is not _MISSING:
                setattr(t, name, value)
            elif hasattr(t, name):
                delattr(t, name)
    swap_impl(a, b)
    for t in (a, b):
        if kinds[0] is not kinds[1] and hooks.subclass_made is not None and type(t) not in (Tensor, Parameter):
            hooks.subclass_made(type(t), t)
    if tensor_wrappers.is_wrapped(a) or tensor_wrappers.is_wrapped(b):
        for t in (a, b):
            if tensor_wrappers.is_wrapped(t):
                t._handle = tensor_wrappers.SubclassHandle(t)
            hooks.wrapper_changed(t)
    if meta[0] is not meta[1]:
        set_device(a if meta[1] else b, (a if meta[1] else b)._device)
    for t in (a, b):
        node = t._grad_accumulator() if isinstance(t._grad_accumulator, weakref.ref) else t._grad_accumulator
        if node is not None:
            node.variable = t
        for ref in t._views or ():
            view = ref()
            if view is not None:
                view._base = t
