"""Kernels of the npu device: primitives implemented by calls of MindSpore's.

    kernel("exp", lambda a: op(P.Exp)(a))    a row: a kernel of one expression
    @kernel("exp")                           for every target
    @kernel("conv2d", target="Ascend")       for one target; takes precedence over the kernel for every target
    @kernel("mul", scalars=True)             see `KernelFlags` in backend/kernels.py for the settings

A kernel receives handles (plain MindSpore tensors) in the order of its primitive's signature, and
the constants by keyword. It returns a new handle or a tuple of new ones. It never returns a handle
that shares memory with an operand, and raises `UnsupportedByKernel` for unsupported operands.
"""
from __future__ import annotations

import dataclasses
import functools
from types import FunctionType
from typing import Any

import numpy as np

from mindtorch.backend.device import RejectedOperands, UnsupportedByKernel
from mindtorch.backend.kernels import TABLES, KernelFlags, flags_of, set_flags
from mindtorch.backend.mindspore import runtime
from mindtorch.backend.mindspore.private import bfloat16_np

TARGET = runtime.target()
ASCEND = TARGET == "Ascend"
_found: dict[str, dict[str | None, Any]] = {}
_refused: dict[str, frozenset[np.dtype]] = {}

FLOATS = "float32 float64"


def np_dtypes(names: str) -> frozenset[np.dtype]:
    """Returns the element types with these names."""
    return frozenset([bfloat16_np if n == "bfloat16" else np.dtype(n) for n in names.split()])


#: all element types of MindSpore tensors
ALL = np_dtypes("float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128")


def _always(handles, constants):
    return True


def kernel(names: str, fn: Any = None, *, target: str | None = None, scalars: bool = False, half: bool = False, empty: bool = False,
           only: str | None = None, alike: Any = None, varying: str = "", numbers: bool = False, dynamic_shape: Any = False) -> Any:
    """Registers a kernel under one or several names; returns a decorator if `fn` is None.

    The settings are `KernelFlags`. dynamic_shape: True means always.
    """
    if fn is None:
        return lambda f: kernel(names, f, target=target, scalars=scalars, half=half, empty=empty, only=only, alike=alike, varying=varying, numbers=numbers,
                                dynamic_shape=dynamic_shape)
    if target in (None, TARGET):
        set_flags(fn, KernelFlags(scalars, half, empty, None if only is None else np_dtypes(only), alike, frozenset(varying.split()), numbers,
                                  _always if dynamic_shape is True else dynamic_shape or None))
        for name in names.split():
            ways = _found.setdefault(name, {})
            if target in ways:
                raise ValueError(f"device npu has a kernel {name!r} for {target or 'every target'} already")
            ways[target] = fn
    return fn


def refuse(names: str, types: str, *, target: str) -> None:
    """Removes element types from those that the kernels of these names support on a target."""
    if target == TARGET:
        for name in names.split():
            _refused[name] = _refused.get(name, frozenset()) | np_dtypes(types)


def _restricted(fn: Any, refused: frozenset[np.dtype]) -> Any:
    """Returns a copy of a kernel that supports fewer element types."""
    if isinstance(fn, FunctionType):
        new: Any = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
        new.__kwdefaults__ = fn.__kwdefaults__
        new.__dict__.update(fn.__dict__)
    else:
        new = functools.partial(fn)
    flags = flags_of(fn)
    set_flags(new, dataclasses.replace(flags, only=(flags.only or ALL) - refused))
    return new


def _raise_translated(error: Exception) -> None:
    """Raises the translation of a TypeError or ValueError that MindSpore raised for operands.
    Returns if the error is not MindSpore's."""
    if error.__class__ is TypeError and str(error).startswith("Select CPU operator["):
        # MindSpore selects a CPU kernel by dtypes before anything runs, and raises this if there is
        # none. On Ascend it raises a RuntimeError.
        raise UnsupportedByKernel from error
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    # Kernels pass operands to NumPy as well, which raises a ValueError for wrong shapes. Methods of
    # MindSpore tensors are C functions, which have no frame.
    if (isinstance(error, ValueError) or str(error).startswith("Failed calling ")
            or trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("mindspore.")):
        raise RejectedOperands(error) from error


def translates_errors(fn: Any) -> Any:
    """Wraps a kernel: MindSpore's errors for operands become `UnsupportedByKernel`. A TypeError of
    the kernel's own code is raised unchanged."""
    @functools.wraps(fn)
    def kernel(*handles: Any, **kw: Any) -> Any:
        try:
            return fn(*handles, **kw)
        except (TypeError, ValueError) as e:
            _raise_translated(e)
            raise
    kernel.__kwdefaults__ = getattr(fn, "__kwdefaults__", None)         # type: ignore[attr-defined]
    return kernel


def fill_table(type: str = "npu") -> None:
    """Fills a device's kernel table, after all kernels have been declared."""
    table = TABLES.setdefault(type, {})
    for name, ways in _found.items():
        fn = ways.get(TARGET) or ways[None]
        table[name] = translates_errors(_restricted(fn, _refused[name]) if name in _refused else fn)
