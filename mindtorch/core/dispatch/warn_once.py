"""Warnings issued once per process, like most of PyTorch's; with set_warn_always they are issued
each time."""
from __future__ import annotations

import warnings


class _Warned:
    __slots__ = ("always", "done")

    def __init__(self) -> None:
        self.always = False
        self.done: set[str] = set()


WARNED = _Warned()


def warn_once(text: str, stacklevel: int = 2) -> None:
    """Issues a UserWarning unless it has been issued before.

    stacklevel counts from the caller, as in warnings.warn.
    """
    if text not in WARNED.done or WARNED.always:
        WARNED.done.add(text)
        warnings.warn(text, stacklevel=stacklevel + 1)
