"""MindSpore ops, functions and optimizers inside a compiled step: deferred like kernels.

backend/mindspore/native_ops.py lists the supported ones. Only calls through which no gradient flows
are deferred. Their results are tensors whose values are deferred as well (differentiate.Later).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch.backend.hooks import NO
from mindtorch.backend.mindspore import interop as native, jit_fallback, native_ops
from mindtorch.backend.mindspore.private import attributes, MSParameter, MSTensor
from mindtorch.core.device import device_dispatch
from mindtorch.core.compile import graph_mode, replay
from mindtorch.core.hooks import hooks
from mindtorch.core.mindspore import autograd as mindspore_autograd
from mindtorch.core.mindspore.functional_grad import to_mindspore
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.sparse import SparseTensor
from mindtorch.core.tensor.tensor import Tensor

#: dtypes of a host tensor that may be passed as a Python number
_SCALAR_DTYPES = frozenset("float32 float64 int32 int64 bool".split())


class _Operands:
    """Collects the operands of a call.

    differentiable: whether gradients of MindSpore Parameters may be requested.
    """

    def __init__(self, dev: Any, differentiable: bool) -> None:
        self.dev, self.differentiable, self.home = dev, differentiable, None
        self.handles: list[Any] = []
        self.natives: list[Any] = []  # tensors created by MindSpore
        # a PyTorch tensor whose graph was already traversed by a backward pass and freed
        self.dead: Any = None

    def __call__(self, x: Any) -> Any:
        """Adds a tensor operand.

        Returns the dtype of a host tensor that is passed as a Python number, else None.
        """
        if type(x) is hooks.lazy_tensor_class:
            attrs = attributes(x)
            return self._on_device(attrs["_handle"], attrs["_device"], attrs["_array"])
        if Tensor in type(x).__mro__:
            if isinstance(x, SparseTensor) or mode.on and x._requires_grad_ and not self._done(x):
                raise native_ops.Unknown
            if x._handle is not None:
                return self._on_device(x._handle, x._device, x._array)
            if x._device.type != "cpu" or x._array.ndim or x._array.dtype.name not in _SCALAR_DTYPES:
                raise native_ops.Unknown
            self.handles.append(x._array.item())
            return x._array.dtype
        self.natives.append(x)
        if isinstance(x, MSParameter):
            if mode.on and self.differentiable and x.requires_grad:
                raise native_ops.Unknown
        elif type(x) is not MSTensor or mode.on and native.needs_grad(x):
            raise native_ops.Unknown
        if not all(x.shape) or not x.is_contiguous():
            raise native_ops.Unknown
        self.handles.append(native_ops.handle_of(x))
        return None

    def _done(self, x):
        """True if the gradient of a tensor that requires one can be ignored."""
        if self.differentiable or isinstance(x, MSParameter):
            return not self.differentiable
        if x._grad_fn_ is None or not x._grad_fn_._released:
            return False
        self.dead = x
        return True

    def _on_device(self, h, dev, a):
        if not a.size or dev.type != self.dev:
            raise native_ops.Unknown
        self.home = dev
        self.handles.append(h)


def _operands(differentiable):
    return _Operands(replay.current.session.device.type, differentiable)


def computed(*handles: Any, form: Any) -> Any:
    """Runs the call."""
    with replay.aside(replay.current.session), jit_fallback.pynative():
        native.depth.native += 1
        try:
            return native_ops.compute(form, handles)
        finally:
            native.depth.native -= 1


@device_dispatch.device_lock
def _put_off(form, found):
    s = replay.current.session
    r = s.call(f"MindSpore's {form.name}", computed, found.handles, {"form": form})
    for x in found.natives:
        attributes(x)["_mindtorch_token"] = s.cursor.token
    log = s.cursor.log
    at = log[-1][0] if log and log[-1][0].fn is computed else None
    result = form.result
    if result is None:
        assert at is not None
        result = at.kw["form"].result
    elif form.refused is not None and at is not None:
        at.eager = form.refused
    handles = iter(r or ())
    return native_ops.put_together(result, map(lambda h: _given(h, found), handles))


def _given(h, found):
    t = device_dispatch.tensor(found.home, h)
    if found.dead is None:
        to_mindspore(t)
    elif t._np_dtype.kind in "fV":  # as for PyTorch's own op on it
        t._requires_grad_, t._grad_fn_, t._output_nr = True, found.dead._grad_fn_, found.dead._output_nr
    return t


def op(op: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
    """Returns the deferred result of an op, or `NO`."""
    if name == "ToDtype" and len(args) == 2 and type(args[0]) is hooks.lazy_tensor_class \
            and native_ops.is_dtype_of(args[1], attributes(args[0])["_array"].dtype):
        return args[0]
    found = _operands(True)
    form = native_ops.op_form(op, name, args, kwargs, found)
    return NO if form is None or found.home is None else _put_off(form, found)


def function(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Returns the deferred result of a function under MindSpore's jit, or `NO`."""
    found = _operands(False)
    form = native_ops.function_form(fn, args, kwargs, found)
    return NO if form is None or found.home is None else _put_off(form, found)


def layer(cell: Any, args: Any) -> Any:
    """Returns the deferred result of a layer, or `NO`."""
    found = _operands(True)
    form = native_ops.layer_form(cell, args, found)
    return NO if form is None or found.home is None else _put_off(form, found)


def step(opt: Any, args: Any) -> Any:
    """Returns the deferred result of a step of a MindSpore optimizer, or `NO`."""
    state = native_ops.optimizer_state(opt)
    if state is None or len(args) != 1:
        return NO
    before, mode.on = mode.on, False
    try:
        found = _operands(False)
        form = native_ops.optimizer_form(opt, state, args[0], found, replay.current.session.device)
        if form is None or found.home is None:
            return NO
        for p in state[1]:
            if Tensor in type(p).__mro__ and p._handle is None:
                return NO
            if Tensor in type(p).__mro__ and (p._array.shape != MSTensor.shape.__get__(p) or p._native_stype != p._array.dtype or getattr(p._handle, "viewed",
                                                                                                                                          False)):
                return NO
            if found(p) is not None:
                return NO
        for t in state[2]:
            if found(t) is not None:
                return NO
        for p in state[1]:
            mindspore_autograd.wrote(p)
        return _put_off(form, found)
    except native_ops.Unknown:
        return NO
    finally:
        mode.on = before


def put_off(p: Any) -> bool:
    """True if a deferred call reads or writes the MindSpore tensor `p`.

    The call has to be computed before other code uses `p`.
    """
    s = replay.current.session
    return s is not None and attributes(p).get("_mindtorch_token") is s.cursor.token and graph_mode.active()
