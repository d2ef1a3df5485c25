"""Sparse COO tensors: a Tensor that holds coordinates and values instead of memory.

Its history is that of its values, so gradients flow through whatever is computed from them.  All that the dense world
reads of a tensor (`_a`, `_gnode`, ...) raises SparseUse here: a sparse tensor can not be taken for a dense one.  Ops that
know what to do with one catch it and call `dispatch`.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.interface import Sizes
from mindtorch.core.dtypes import dtype as DType, of_np
from mindtorch.core.records import TABLE
from mindtorch.core.tensor import Size, Tensor, attributes, wrap

#: how torch.compile takes the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "safe"


class SparseUse(NotImplementedError):
    """A sparse tensor was used where memory is needed."""


#: op's name -> what it does when an operand is sparse; filled by the ops floor.
dispatch: dict[str, Callable[..., Any]] = {}


def _op_in_frames(frame):
    """Name of the op that is being computed, as far as the stack tells."""
    for _ in range(6):
        if frame is None:
            break
        for name in (frame.f_code.co_name, frame.f_locals.get("name")):
            if isinstance(name, str) and (name in TABLE or name.rstrip("_") in TABLE):
                return name
        frame = frame.f_back
    return "this operation"


def _dense_world(attribute):
    def get(self):
        raise SparseUse(f"'{_op_in_frames(sys._getframe(1))}' is not implemented for a sparse tensor of dtype {self.dtype} on device {self.device} (layout "
                        f"torch.sparse_coo): use to_dense(), or work on its values()")
    return property(get, doc=f"A sparse tensor has no {attribute} of its own.")


class SparseTensor(Tensor):
    """Coordinates (sparse dims, nnz) and values (nnz, dense dims...) of what is not zero.

    Values at the same place add up; `coalesce` makes the places unique and sorted.
    """

    _a = _dense_world("memory")
    _gnode = _dense_world("grad_fn")
    _oi = _dense_world("output number")
    _ver = _dense_world("version")
    _base = None
    _fragile = None
    _cut = 0
    is_sparse = True

    @property
    def _rg(self):
        return self._coo_values._rg

    # ---- what it is
    @property
    def shape(self) -> Size:
        return self._coo_size

    @property
    def dtype(self) -> DType:
        return of_np(self._coo_values._a.dtype)

    @property
    def device(self) -> Any:
        return self._coo_values._dev

    @property
    def ndim(self) -> int:
        return len(self._coo_size)

    @property
    def requires_grad(self) -> bool:
        return self._coo_values._rg

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._coo_values.requires_grad = value

    @property
    def grad(self) -> Tensor | None:
        g = self._coo_values._g
        return None if g is None else sparse_of(self._coo_idx, g, self._coo_size, self._coo_unique)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            raise SparseUse("assigning .grad of a sparse tensor is not supported")
        self._coo_values._g = None

    @property
    def is_leaf(self) -> bool:
        return self._coo_values._gnode is None

    @property
    def grad_fn(self) -> Any:
        return self._coo_values._gnode

    @property
    def _version(self):
        return self._coo_values._version


def sparse_of(indices: Tensor, values: Tensor, size: Sizes, coalesced: bool = False) -> SparseTensor:
    """Sparse tensor of checked parts: an int64 Tensor (sparse dims, nnz), one of values, a shape."""
    t = wrap(np.zeros(0, values._a.dtype))
    t.__class__ = SparseTensor
    d = attributes(t)
    del d["_a"]
    d["_coo_idx"], d["_coo_values"], d["_coo_size"], d["_coo_unique"] = indices, values, Size(tuple(size)), coalesced
    return t


def wrap_public(qualname: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function torch.<qualname> with its sparse meaning beside it."""
    if qualname not in FUNCTIONS:
        return fn
    name = qualname

    @functools.wraps(fn)
    def either(*args, **kwargs):
        try:
            return fn(*args, **kwargs)
        except SparseUse:
            if name not in dispatch:
                raise
            return dispatch[name](*args, **kwargs)
    return either


#: Functions of the table that take sparse tensors (methods are overridden); ops on two tensors have it in their own bodies.
FUNCTIONS = frozenset("sum t transpose neg true_divide".split())
