"""Deterministic mode (torch.use_deterministic_algorithms).

Its state, its alert, and the filling of uninitialized memory.
"""
from __future__ import annotations

import warnings

import numpy as np

from mindtorch.backend.interface import Array, NpDtype
from mindtorch.core.tensor.dtypes import of_np, iinfo
from mindtorch.core.tensor.tensor import ScalarOperand


class _DeterministicMode:
    """State of the mode.

        on, warn_only  as set by the user
        fill           whether uninitialized memory is to be filled in deterministic mode
        filling        on and fill
    """

    __slots__ = ("on", "warn_only", "fill", "filling")

    def __init__(self) -> None:
        self.on = self.warn_only = self.filling = False
        self.fill = True


MODE = _DeterministicMode()


def switch(on: bool | None = None, warn_only: bool | None = None, fill: bool | None = None) -> None:
    """Changes the settings that are not None."""
    if on is not None:
        MODE.on = on
    if warn_only is not None:
        MODE.warn_only = warn_only
    if fill is not None:
        MODE.fill = fill
    MODE.filling = MODE.on and MODE.fill


def alert(name: str) -> None:
    """Raises RuntimeError, or warns, in deterministic mode.

    Called by ops without a deterministic implementation.
    """
    if not MODE.on:
        return
    if MODE.warn_only:
        warnings.warn(f"{name} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True, warn_only=True)'.",
                      stacklevel=3)
        return
    raise RuntimeError(f"{name} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'. Turn the mode off around "
                       "this operation, or pass 'warn_only=True' to it, if that will do.")


def filler(np_dtype: NpDtype) -> ScalarOperand:
    """Returns the fill value of uninitialized memory: NaN, the maximum integer, or True."""
    kind = np_dtype.kind
    return ScalarOperand(True if kind == "b" else iinfo(of_np(np_dtype)).max if kind in "iu" else np.nan, np_dtype)


def fill_array(a: Array) -> None:
    """Fills an uninitialized array or a part of one."""
    a[...] = filler(a.dtype)._array
