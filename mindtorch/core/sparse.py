"""Sparse tensors: Tensors that hold places and values instead of memory, as coordinates (COO) or compressed by rows or columns (CSR, CSC, BSR, BSC).

Their history is that of their values, so gradients flow through whatever is computed from them.  All that the dense world
reads of a tensor (`_a`, `_gnode`, ...) raises SparseUse here: a sparse tensor can not be taken for a dense one.  Where an op
raises that, the dispatcher asks here whether the op has a meaning for sparse operands (`answer`).
"""
from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.interface import Sizes
from mindtorch.core import dispatch as _dispatch
from mindtorch.core.dispatch import SparseUse as SparseUse
from mindtorch.core.dtypes import dtype as DType, of_np
from mindtorch.core.records import TABLE
from mindtorch.core.tensor import Size, Tensor, attributes, wrap

#: how torch.compile takes the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "safe"

#: op's name -> what it does when an operand is sparse; filled by the ops floor.
dispatch: dict[str, Callable[..., Any]] = {}
#: the same where an operand is compressed
compressed: dict[str, Callable[..., Any]] = {}
#: what makes the meanings known, run when there is a sparse tensor
at_first: list[Callable[[], Any]] = []
#: whether parts of new tensors are checked for order as well (torch.sparse.check_sparse_tensor_invariants)
check_invariants = False
_lock = threading.RLock()


def _op_in_frames(frame):
    """Name of the op that is being computed, as far as the stack tells."""
    for _ in range(20):          # (layers of the dispatcher that are on stand in between)
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
                        f"torch.sparse_{self._kind}): use to_dense(), or work on its values()")
    return property(get, doc=f"A sparse tensor has no {attribute} of its own.")


class Sparse(Tensor):
    """What the layouts have in common: a tensor of values, a size."""

    _sp_values: Tensor
    _a = _dense_world("memory")
    _gnode = _dense_world("grad_fn")
    _oi = _dense_world("output number")
    _ver = _dense_world("version")
    _base = None
    _fragile = None
    _cut = 0
    _kind = "coo"
    _lookup = False         # whether it is the gradient of a lookup, whose elements stay apart when such are added up

    @property
    def _rg(self):
        return self._sp_values._rg

    # ---- what it is
    @property
    def shape(self) -> Size:
        return self._sp_size

    @property
    def dtype(self) -> DType:
        return of_np(self._sp_values._a.dtype)

    @property
    def device(self) -> Any:
        return self._sp_values._dev

    @property
    def ndim(self) -> int:
        return len(self._sp_size)

    @property
    def requires_grad(self) -> bool:
        return self._sp_values._rg

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._sp_values.requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> Sparse:
        self._sp_values.requires_grad_(requires_grad)
        return self

    def detach_(self) -> Sparse:
        self._sp_values = self._sp_values.detach()
        return self

    @property
    def grad(self) -> Tensor | None:
        g = self._sp_values._g
        return None if g is None else self._with_values(g)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        values = self._sp_values
        if value is None:
            values._g = None
            return
        if value.__class__ is not self.__class__ or value._kind != self._kind or value.shape != self.shape or value.dtype != self.dtype:
            raise RuntimeError("attempting to assign a gradient to a sparse tensor that is no sparse tensor of its layout, shape and dtype")
        if not isinstance(self, SparseTensor) or value.device != self.device or not dispatch["same_places"](self, value):
            raise SparseUse("assigning a .grad that has other places than the sparse tensor is not supported")
        values._g = value._sp_values

    @property
    def is_leaf(self) -> bool:
        return self._sp_values._gnode is None

    @property
    def grad_fn(self) -> Any:
        return self._sp_values._gnode

    @property
    def _version(self):
        return self._sp_values._version

    def _with_values(self, values):
        raise NotImplementedError

    def _as_parameter(self, requires_grad: bool) -> Tensor:
        raise SparseUse(f"torch.nn.Parameter of a sparse tensor is not implemented (dtype {self.dtype}, device {self.device}, layout {self.layout}): "
                        "make a Parameter of its values()")

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Calls hook(gradient), sparse as the tensor is, where the gradient of the values is computed; it may return another one of the same places."""
        def of_values(g):
            r = hook(self._with_values(g))
            return r._sp_values if isinstance(r, Sparse) else r
        return self._sp_values.register_hook(of_values)

    def retain_grad(self) -> None:
        """Has .grad hold the gradient of a tensor that is no leaf."""
        self._sp_values.retain_grad()


class SparseTensor(Sparse):
    """Coordinates (sparse dims, nnz) and values (nnz, dense dims...) of what is not zero.

    Values at the same place add up; `coalesce` makes the places unique and sorted.
    """

    is_sparse = True

    def _with_values(self, values):
        return sparse_of(self._coo_idx, values, self._sp_size, self._coo_unique)


class CompressedTensor(Sparse):
    """A batch of matrices by rows (CSR, BSR) or columns (CSC, BSC): where each row's elements begin (batch..., rows + 1), the columns of the elements
    (batch..., nnz), and values (batch..., nnz, block..., dense dims...)."""

    is_sparse_csr = property(lambda self: self._kind == "csr")

    def _with_values(self, values):
        return compressed_of(self._kind, self._sp_ptr, self._sp_ind, values, self._sp_size)


def _blank(cls, values, size):
    if at_first:
        with _lock:
            while at_first:
                at_first[0]()
                del at_first[0]
    t = wrap(np.zeros(0, values._a.dtype))
    t.__class__ = cls
    d = attributes(t)
    del d["_a"]
    d["_sp_values"], d["_sp_size"] = values, Size(tuple(size))
    return t, d


def sparse_of(indices: Tensor, values: Tensor, size: Sizes, coalesced: bool = False) -> SparseTensor:
    """Sparse tensor of checked parts: an int64 Tensor (sparse dims, nnz), one of values, a shape."""
    t, d = _blank(SparseTensor, values, size)
    d["_coo_idx"], d["_coo_unique"] = indices, coalesced
    return t


def compressed_of(kind: str, ptr: Tensor, ind: Tensor, values: Tensor, size: Sizes) -> CompressedTensor:
    """Compressed tensor of checked parts; kind: "csr", "csc", "bsr" or "bsc"."""
    t, d = _blank(CompressedTensor, values, size)
    d["_kind"], d["_sp_ptr"], d["_sp_ind"] = kind, ptr, ind
    return t


# ------------------------------------------------------------------ what ops do with them
def _any_compressed(args):
    for a in args:
        if isinstance(a, CompressedTensor) or a.__class__ in (list, tuple) and _any_compressed(a):
            return True
    return False


def meaning(name: str, fn: Callable[..., Any]) -> None:
    """Op `name` is `fn` where an operand is sparse, and none is compressed."""
    @functools.wraps(fn)
    def by_layout(*args, **kwargs):
        if _any_compressed(args) or kwargs and _any_compressed(kwargs.values()):
            if name not in compressed:
                raise refusal(name, (*args, *kwargs.values()))
            return compressed[name](*args, **kwargs)
        return fn(*args, **kwargs)
    dispatch[name] = by_layout


def refusal(name: str, args: Any) -> SparseUse:
    """The error that says that an op is not there for sparse operands."""
    flat = [b for a in args for b in (a if a.__class__ in (list, tuple) else (a,))]
    x = next((a for a in flat if isinstance(a, CompressedTensor)), None) or next(a for a in flat if isinstance(a, Sparse))
    return SparseUse(f"'{name}' is not implemented for a sparse tensor of dtype {x.dtype} on device {x.device} (layout torch.sparse_{x._kind})")


def answer(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an op does with sparse operands, after its body for dense ones has refused them; that error if it is not known."""
    error = sys.exc_info()[1]
    found = compressed if _any_compressed(args) or kwargs and _any_compressed(kwargs.values()) else dispatch
    name = name.removeprefix("Tensor.")
    fn = found.get(name)
    if fn is None:
        raise error if error is not None else refusal(name, (*args, *kwargs.values()))
    out = kwargs.pop("out", None)
    r = fn(*args, **kwargs)
    if out is None:
        return r
    if isinstance(out, Sparse) or isinstance(r, Sparse):
        return dispatch["out="](name, out, r)
    return dispatch["store_out"](name, out, r)


def without_elements(size: Sizes, dtype: DType | None, layout: object, device: Any, requires_grad: bool) -> Tensor:
    """A sparse tensor of a size and layout that has no element."""
    t = dispatch["zeros of a layout"](tuple(size), dtype, repr(layout).removeprefix("torch.sparse_"), device)
    t.requires_grad = requires_grad
    return t


_dispatch.sparse_answer = answer
