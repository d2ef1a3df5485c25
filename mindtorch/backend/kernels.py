"""Kernel tables, one per device, which primitives look up by name.

A kernel has the name of its primitive. On `cpu` it is a function over NumPy arrays; the operand
type of other devices' kernels is up to the device (core/device/device_dispatch.py). Kernels of the meta device
compute shapes, dtypes and strides only.
"""
from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mindtorch.backend.interface import Kernel, NpDtype


@dataclass(frozen=True, slots=True)
class KernelFlags:
    """The operands that a kernel supports.

        scalars  True: scalar operands are passed as Python numbers (default: as 0-dim tensors)
        half     True: accepts float16 and bfloat16 on a device that computes those in float32
                 (`upcasts_half`)
        empty    True: accepts operands without elements (default: the host computes these, because
                 many kernels cannot)
        only     element types that all operands must have; None: any
        alike    faster kernel for two C-contiguous operands of equal sizes and integer or floating
                 element type; None: none
        varying  constants whose values a graph may get as arguments (`recorder_api.Number`)
        numbers  True: numbers are passed to MindSpore's primitives unchanged, so that a graph on
                 Ascend may get them as arguments
        dynamic_shape  dynamic_shape(handles, constants) -> whether the shapes of the results depend
                 on values of operands; None: they never do
    """

    scalars: bool = False
    half: bool = False
    empty: bool = False
    only: frozenset[NpDtype] | None = None
    alike: Kernel | None = None
    varying: frozenset[str] = frozenset()
    numbers: bool = False
    dynamic_shape: Callable[[Sequence[Any], dict[str, Any]], bool] | None = None

    def accepts_number(self, constant: str) -> bool:
        """True if a graph may pass this constant as an argument."""
        return self.scalars or constant in self.varying


_DEFAULT = KernelFlags()


def set_flags(fn: Any, flags: KernelFlags) -> None:
    """Sets the flags of a kernel. Copies and wrappers of the function (`functools.wraps`) have them
    as well."""
    fn.kernel_flags = flags


def flags_of(fn: Any) -> KernelFlags:
    """Returns the flags of a kernel; the defaults if none are set."""
    try:
        return fn.kernel_flags
    except AttributeError:
        return _DEFAULT


#: device type -> {primitive name: kernel}
TABLES: dict[str, dict[str, Kernel]] = {}


def registrar(device: str) -> Callable[..., Any]:
    """Returns `kernel(names, fn)`, which registers a kernel of a device under one or several names;
    without `fn` it is a decorator."""
    table = TABLES.setdefault(device, {})

    def kernel(name, fn=None):
        if fn is None:
            return lambda f: kernel(name, f)
        for n in name.split():
            if n in table:
                raise ValueError(f"device {device} has a kernel {n!r} already")
            table[n] = fn
        return fn
    return kernel


def load(package: ModuleType) -> None:
    """Imports every module of a package, which registers its kernels."""
    for m in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{m.name}")
