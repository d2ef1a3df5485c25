"""torch.autograd.forward_ad: dual numbers
(https://pytorch.org/docs/stable/autograd.html#forward-mode-automatic-differentiation).

Only one level of this module can be open at a time. torch.func.jvp opens its own levels, which can
be nested.
"""
from collections import namedtuple

from mindtorch.core.autograd import forward_ad
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.autograd.grad_mode import GradMode
from mindtorch.core.tensor.tensor import is_tensor

__all__ = ["UnpackedDualTensor", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual", "dual_level"]

#: the open level's number in this API; -1 if none is open
_current_level = -1
_open = []


def enter_dual_level():
    """Opens the level and returns its number, 0. Raises RuntimeError if it is already open."""
    global _current_level
    if _current_level >= 0:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _open[:] = forward_ad.open_levels()
    _current_level += 1
    return _current_level


def exit_dual_level(*, level=None):
    """Closes the level. This drops the tangents of all tensors."""
    global _current_level
    if level is None:
        level = _current_level
    if level < 0 and level == _current_level:
        raise RuntimeError("Dual level must be a positive number.")
    if level != _current_level:
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not supported.")
    forward_ad.close_levels(_open)
    _open.clear()
    _current_level -= 1


def _level(level):
    """Returns the internal id of an open level. Raises RuntimeError for any other level."""
    if level != 0 or not _open:
        raise RuntimeError(f"Trying to use forward AD at level {level}, which is not open: enter it by enter_dual_level() first")
    return _open[0].id


def make_dual(tensor, tangent, *, level=None):
    """Returns a view of `tensor` with the tangent `tangent` of the same shape and dtype, which is
    propagated by later ops.

    Raises RuntimeError outside a level, for a different shape or dtype, and if either tensor
    already has a tangent; ValueError for integer tensors.
    """
    if level is None:
        level = _current_level
    if level < 0:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first.")
    for x, name in ((tensor, "primal"), (tangent, "tangent")):
        if not is_tensor(x):
            raise TypeError(f"make_dual(): argument '{name}' must be Tensor, not {type_name(x)}")
        if x._np_dtype.kind not in "fcV":
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {x.dtype}")
    return dual_of(tensor, tangent, _level(level))


def dual_of(tensor, tangent, level):
    """Returns a view of `tensor` with a tangent at a level of `core/autograd/forward_ad.py`."""
    if forward_ad.tangent(tensor, level) is not None:
        raise RuntimeError(f"Making a dual Tensor based on a Tensor that already has a forward gradient at the same level {_shown(level)} is not supported.")
    check_tangent(tensor, tangent)
    if level in forward_ad.levels(tangent):
        raise RuntimeError(f"Setting a forward grad that itself has a forward gradient at the same level {_shown(level)} is not supported.")
    t = tensor[...]  # dispatch modes see this as an alias
    forward_ad.attach(t, level, tangent)
    return t


def _shown(level):
    return 0 if _open and level == _open[0].id else level


def check_tangent(tensor, tangent):
    """Raises RuntimeError unless a tangent has the size of its tensor and both are real or both
    complex."""
    if tensor._sizes != tangent._sizes:
        raise RuntimeError("Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. "
                           f"Tensor is of size {list(tensor._sizes)} while the given forward gradient is of size {list(tangent._sizes)}.")
    if tensor._np_dtype != tangent._np_dtype and (tensor._np_dtype.kind == "c") is not (tangent._np_dtype.kind == "c"):
        raise RuntimeError(f"Trying to set a forward gradient of dtype {tangent.dtype} for a tensor of dtype {tensor.dtype}: both have to be real, or complex")


class UnpackedDualTensor(namedtuple("UnpackedDualTensor", ["primal", "tangent"])):
    """Named tuple of a tensor without its tangent and the tangent (None if it has none)."""


def unpack_dual(tensor, *, level=None):
    """Returns UnpackedDualTensor(view of the tensor without its tangent, tangent or None). Outside
    a level: (tensor, None)."""
    if level is None:
        level = _current_level
    if level < 0:
        return UnpackedDualTensor(tensor, None)
    if not is_tensor(tensor):
        raise TypeError(f"unpack_dual(): argument 'tensor' must be Tensor, not {type_name(tensor)}")
    at = _level(level)
    t = forward_ad.tangent(tensor, at)
    return UnpackedDualTensor(forward_ad.unpacked(tensor, at), t)


class dual_level:
    """Context manager that opens the level and returns its number. Several threads may compute
    inside."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *exc):
        exit_dual_level()

    def __new__(cls, orig_func=None):
        self = object.__new__(cls)
        return self if orig_func is None else GradMode.__call__(self, orig_func)

    __call__ = GradMode.__call__

    def _clone(self):
        return type(self)()


def _is_fwd_grad_enabled():
    return forward_ad.state.on


class _set_fwd_grad_enabled:
    """Enables or disables tangent propagation immediately. As a context manager, restores the
    previous state on exit."""

    def __init__(self, mode):
        self._old = forward_ad.state.on
        forward_ad.state.on = bool(mode)

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        forward_ad.state.on = self._old


def tangent_of(tensor):
    """Returns the tangent that repr() shows: the tangent at the innermost open level, or None."""
    if dispatch_state.dual is None:
        return None
    found = forward_ad.levels(tensor)
    return forward_ad.tangent(tensor, max(found)) if found else None
