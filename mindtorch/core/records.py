"""The rows of the op table (core/table.py fills it)."""
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

#: qualified name ("add", "nn.functional.relu", "linalg.inv") -> Op
TABLE: dict[str, Op] = {}


class Op:
    """One row of the table: all that is known of an op."""

    __slots__ = ("name", "ns", "body", "fn", "public", "method", "inplace", "out", "aliases", "autocast", "overlap", "placement", "capture",
                 "writes", "main")
    name: str
    ns: str
    body: Callable[..., Any]                 # what the declaration says
    fn: Callable[..., Any]                   # what ops call
    public: Callable[..., Any] | None        # torch.<qualname>
    method: bool
    inplace: bool
    out: Any                                 # False, True, "asked" or core/table.py's `Same`
    aliases: tuple[str, ...]
    autocast: str | Callable[..., str | None] | None
    overlap: str | None
    placement: str | None
    capture: str | None
    writes: tuple[str, object] | None
    main: Op                                 # the op that this is another name of, or itself

    def __repr__(self) -> str:
        return f"<op {self.qualname}>"

    @property
    def qualname(self) -> str:
        return f"{self.ns}.{self.name}" if self.ns else self.name

    @property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.body)

    @property
    def lowering(self) -> Callable[..., Any] | None:
        """How the op is said in graphs of other formats (backend/export); None: by its parts."""
        from mindtorch.backend.export.lowering import LOWERINGS
        return LOWERINGS.get(self.main.qualname)
