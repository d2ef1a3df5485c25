"""Warnings issued once per process, like most of PyTorch's; with set_warn_always they are issued
each time."""
from __future__ import annotations

import warnings


class _Said:
    __slots__ = ("always", "done")

    def __init__(self) -> None:
        self.always = False
        self.done: set[str] = set()


SAID = _Said()


def once(text: str, stacklevel: int = 2) -> None:
    """Issues a UserWarning unless it has been issued before.

    stacklevel counts from the caller, as in warnings.warn.
    """
    if text not in SAID.done or SAID.always:
        SAID.done.add(text)
        warnings.warn(text, stacklevel=stacklevel + 1)
