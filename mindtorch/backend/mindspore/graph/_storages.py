"""Alias analysis of a recording: the pieces of memory that its tensors are views of."""
from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

from mindtorch.backend.errors import GraphBreak
from mindtorch.backend.interface import Sizes, Strides
from mindtorch.backend.mindspore.graph._ascend import ASCEND
from mindtorch.backend.mindspore.graph._expressions import Expr
from mindtorch.backend.mindspore.npu import shape_of, stride_of, stype_of
from mindtorch.backend.strides import contiguous_strides


class Storage:
    """A piece of memory and its contents."""

    __slots__ = ("start", "nbytes", "np_dtype", "sizes", "name", "own", "kind", "index", "touched", "reads", "keep", "copied")

    def __init__(self, start, nbytes, np_dtype, sizes, name, kind, index=-1, keep=None):
        self.start, self.nbytes, self.np_dtype, self.sizes = start, nbytes, np_dtype, sizes
        self.name, self.kind, self.index, self.keep = name, kind, index, keep
        self.own, self.touched, self.reads = name, False, {}
        # for a view's copy: its source (root, sizes, strides, offset), and the expression of the
        # root's values at that time
        self.copied: Any = None


class StorageTable:
    """The separate pieces of memory (roots) that are known to a recording, by address.

    With `lenient`, unknown contiguous tensors become arguments without a description.
    """

    def __init__(self, lenient: bool) -> None:
        self.lenient = lenient
        self._roots: dict[int, Storage] = {}
        self._starts: list[int] = []
        # Roots of host tensors: a host tensor moves to the device at its first use, and so changes
        # its address.
        self._objects: dict[int, Storage] = {}
        self._keep: list[Any] = []

    def add(self, h: Any, name: str, kind: str, index: int = -1) -> Storage:
        """Registers a tensor's memory as a root: an "argument", "state", a "constant" or a "value".
        """
        start = h._data_ptr()
        sizes = shape_of(h)
        root = Storage(start, h.nbytes, stype_of(h), sizes, Expr(name), kind, index, h)
        self._keep.append(h)
        if ASCEND and kind in ("constant", "argument"):
            self._objects[id(h)] = root
            # Its first use moves it to the device; another tensor may then get its address.
            if h.device == "CPU":
                return root
        if start not in self._roots:
            bisect.insort(self._starts, start)
        self._roots[start] = root
        return root

    @property
    def roots(self) -> list[Storage]:
        """All roots."""
        return [*self._roots.values(), *[r for r in self._objects.values() if self._roots.get(r.start) is not r]]

    def find(self, h: Any) -> Storage | None:
        """Returns the root whose memory contains tensor `h`, or None."""
        if self._objects:
            root = self._objects.get(id(h))
            if root is not None:
                return root
        at = h._data_ptr()
        root = self._roots.get(at)
        if root is None:
            i = bisect.bisect_right(self._starts, at) - 1
            if i < 0:
                return None
            root = self._roots[self._starts[i]]
        return root if at < root.start + root.nbytes else None

    def view_of(self, h: Any) -> tuple[Storage, Sizes, Strides, int]:
        """Returns (root, sizes, strides, offset) of a tensor, in elements; breaks the graph if it
        has none."""
        root = self.find(h)
        if root is None and self.lenient and h.is_contiguous() and h.nbytes:
            root = self.add(h, "x", "argument")
        if root is None:
            raise GraphBreak("it uses a tensor that was not created by a recorded call")
        np_dtype = stype_of(h)
        if np_dtype != root.np_dtype:
            raise GraphBreak(f"it reinterprets {root.np_dtype.name} memory as {np_dtype.name}")
        if 0 in shape_of(h):
            raise GraphBreak("it uses an empty tensor")
        return root, shape_of(h), tuple(stride_of(h)), 0 if self._objects.get(id(h)) is root else (h._data_ptr() - root.start) // np_dtype.itemsize


def in_order(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """True if these strides are those of C order."""
    return all([m == 1 or s == c for m, s, c in zip(sizes, strides, contiguous_strides(sizes))])
