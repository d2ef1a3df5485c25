"""Deterministic mode: what torch.use_deterministic_algorithms has asked for, looked at where memory is left unwritten and by the ops that alert."""
from __future__ import annotations

import warnings

import numpy as np

from mindtorch.backend.interface import Array, Stype
from mindtorch.core.dtypes import of_np, iinfo
from mindtorch.core.tensor import Const


class _Mode:
    """on, warn_only: as the user said; fill: whether unwritten memory is wanted filled; filling: whether it is (on and fill)."""

    __slots__ = ("on", "warn_only", "fill", "filling")

    def __init__(self) -> None:
        self.on = self.warn_only = self.filling = False
        self.fill = True


MODE = _Mode()


def switch(on: bool | None = None, warn_only: bool | None = None, fill: bool | None = None) -> None:
    """Changes what is given of the mode."""
    if on is not None:
        MODE.on = on
    if warn_only is not None:
        MODE.warn_only = warn_only
    if fill is not None:
        MODE.fill = fill
    MODE.filling = MODE.on and MODE.fill


def alert(name: str) -> None:
    """RuntimeError (or a warning) for an op that has no deterministic implementation, if one is wanted."""
    if not MODE.on:
        return
    if MODE.warn_only:
        warnings.warn(f"{name} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True, warn_only=True)'.",
                      stacklevel=3)
        return
    raise RuntimeError(f"{name} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'. Turn the mode off around "
                       "this operation, or pass 'warn_only=True' to it, if that will do.")


def filler(stype: Stype) -> Const:
    """What unwritten memory of an element type is filled with: nan, the largest integer, True."""
    kind = stype.kind
    return Const(True if kind == "b" else iinfo(of_np(stype)).max if kind in "iu" else np.nan, stype)


def fill_array(a: Array) -> None:
    """Fills (a part of) an array that nobody has written to."""
    a[...] = filler(a.dtype)._a
