"""Order of the reads and writes of a graph's state on Ascend.

State is read as an argument there. It is written as a Parameter on the same memory, after
everything that reads it has run. Otherwise MindSpore copies a Parameter for each read if there is a
view, or a write to another Parameter, in between.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch.backend.errors import GraphBreak
from mindtorch.backend.mindspore.graph._ascend import ASCEND
from mindtorch.backend.mindspore.graph._expressions import Expr, leaves
from mindtorch.backend.mindspore.graph._storages import Storage


class StateOrder:
    """Readers of each piece of state since its last write.

    Pieces of state are identified by the name of their Parameter (`Storage.own`).
    """

    def __init__(self) -> None:
        # name -> the state whose memory it shows
        self._shown: dict[str, set[str]] = {}
        # state -> names of the calls that read it
        self._readers: dict[str, list[str]] = {}
        # modified state -> whether MindSpore is unaware of the write
        self._unknown: dict[str, bool] = {}

    def show(self, name: str, own: str) -> None:
        """Declares that expression `name` reads the memory of a piece of state."""
        self._shown[name] = {own}

    def shows(self, name: str, own: str) -> bool:
        """True if expression `name` reads the memory of a piece of state."""
        return own in self._shown.get(name, ())

    def note(self, kind: str, name: str, operands: Sequence[Any]) -> None:
        """Notes which state a call of a primitive of class `kind` reads."""
        if not self._shown:
            return
        states: set[str] = set()
        for o in leaves(operands[:1] if kind == "Depend" else operands):
            states |= self._shown.get(o.partition("[")[0], frozenset())
        if states and (kind.endswith("View") or kind in ("Depend", "Reshape")):
            self._shown[name] = states
            return
        for state in states:
            self._readers.setdefault(state, []).append(name)

    def take_readers(self, own: str) -> list[str]:
        """Returns the calls that have read a piece of state, and forgets them."""
        return self._readers.pop(own, [])

    def written_by(self, own: str, name: Expr) -> None:
        """Orders later writes of a piece of state after call `name`, which writes it as well."""
        self._readers[own] = [name]

    def check_writes(self, root: Storage, unknown: bool) -> None:
        """Breaks the graph if one piece of state has writes that MindSpore is aware of and others:
        MindSpore would apply one of them to a copy."""
        if ASCEND and root.kind == "state" and self._unknown.setdefault(root.own, unknown) != unknown:
            raise GraphBreak("a batch norm's running statistics are written to by something else as well")
