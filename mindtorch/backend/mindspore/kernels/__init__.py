"""Kernels of the npu device: primitives as calls of MindSpore's.

    @kernel("exp")                           for every target
    @kernel("conv2d", target="Ascend")       where the targets differ: goes before the one for all
    @kernel("mul", numbers=True)             see backend/device.py (Way) for numbers, half, empty, only, alike

A kernel gets handles (plain MindSpore tensors) in the order of its primitive's signature, and the constants by keyword; it returns one or a tuple
of new ones.  It never returns one that shares memory with an operand, and raises `Lacking` for what it cannot do.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from mindtorch.backend.device import Lacking  # noqa: F401
from mindtorch.backend.kernels import TABLES
from mindtorch.backend.mindspore import runtime
from mindtorch.backend.mindspore.private import bfloat16_np

TARGET = runtime.target()
ASCEND = TARGET == "Ascend"
_found: dict[str, dict[str | None, Any]] = {}

FLOATS = "float32 float64"


def stypes(names: str) -> frozenset[np.dtype]:
    """Element types out of their names."""
    return frozenset([bfloat16_np if n == "bfloat16" else np.dtype(n) for n in names.split()])


def kernel(names: str, fn: Any = None, *, target: str | None = None, numbers: bool = False, half: bool = False, empty: bool = False,
           only: str | None = None, alike: Any = None) -> Any:
    """Puts a kernel under one or several names; without `fn` a decorator."""
    if fn is None:
        return lambda f: kernel(names, f, target=target, numbers=numbers, half=half, empty=empty, only=only, alike=alike)
    if target in (None, TARGET):
        fn.numbers, fn.half, fn.empty, fn.only, fn.alike = numbers, half, empty, None if only is None else stypes(only), alike
        for name in names.split():
            ways = _found.setdefault(name, {})
            if target in ways:
                raise ValueError(f"device npu has a kernel {name!r} for {target or 'every target'} already")
            ways[target] = fn
    return fn


def settle() -> None:
    """Fills the table, when all kernels have been declared."""
    table = TABLES.setdefault("npu", {})
    for name, ways in _found.items():
        table[name] = ways.get(TARGET) or ways[None]
    if ASCEND:
        from mindtorch.backend.mindspore.kernels import ascend_dtypes
        ascend_dtypes.restrict(table)
