"""Kernels by device: the tables behind the records of primitives.

A kernel has the name of its primitive.  On `cpu` it is a function over NumPy arrays; what another device's kernels take is that device's
own affair (core/devices.py).  The meta device's give shapes, dtypes and strides only.
"""
from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from mindtorch.backend.interface import Kernel

#: device type -> {name of a primitive: kernel}
TABLES: dict[str, dict[str, Kernel]] = {}


def registrar(device: str) -> Callable[..., Any]:
    """The function `kernel(names, fn)` that puts a kernel of a device into its table under one or several names; without `fn` a decorator."""
    own = TABLES.setdefault(device, {})

    def kernel(name, fn=None):
        if fn is None:
            return lambda f: kernel(name, f)
        for n in name.split():
            if n in own:
                raise ValueError(f"device {device} has a kernel {n!r} already")
            own[n] = fn
        return fn
    return kernel


def load(package: ModuleType) -> None:
    """Imports every module of a package, so that its kernels stand in their table."""
    for m in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{m.name}")
