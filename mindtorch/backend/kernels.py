"""Kernel tables, one per device, which primitives look up by name.

A kernel has the name of its primitive. On `cpu` it is a function over NumPy arrays; the operand
type of other devices' kernels is up to the device (core/device/device_dispatch.py). Kernels of the meta device
compute shapes, dtypes and strides only.
"""
from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from mindtorch.backend.interface import Kernel

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
