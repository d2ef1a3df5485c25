"""Sparse tensors: indices and values instead of dense memory, as coordinates (COO) or compressed by
rows or columns (CSR, CSC, BSR, BSC).

Their autograd history is that of their values, so gradients flow through everything computed from
them. Attributes that dense code reads from a tensor (`_array`, `_grad_fn_`, ...) raise SparseUse, so a
sparse tensor cannot be mistaken for a dense one. When an op raises it, the dispatcher looks for a
sparse implementation of the op (`answer`).
"""
from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.cpython import module_lock
from mindtorch.backend.interface import Sizes
from mindtorch.core.dispatch.dispatcher import SparseUse as SparseUse
from mindtorch.core.tensor.dtypes import dtype as DType, of_np
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_schema import OPS
from mindtorch.core.tensor.tensor import Parameter, Size, Tensor, attributes, bump_version, native_parameter, wrap_array

#: how torch.compile treats the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "safe"

#: op name -> implementation for sparse operands; filled by the ops layer
dispatch: dict[str, Callable[..., Any]] = {}
#: op name -> implementation for compressed operands
compressed: dict[str, Callable[..., Any]] = {}
#: registers the implementations; run when the first sparse tensor is created
at_first: list[Callable[[], Any]] = []


class _Invariants:
    """Flag `checked`: True if components of new tensors are also checked for order
    (torch.sparse.check_sparse_tensor_invariants)."""

    checked = False


invariants = _Invariants()
_lock = module_lock(globals(), "_lock", threading.RLock)


def _op_in_frames(frame):
    """Returns the name of the running op, as far as the stack shows it."""
    for _ in range(20):  # active dispatcher layers are on the stack in between
        if frame is None:
            break
        for name in (frame.f_code.co_name, frame.f_locals.get("name")):
            if isinstance(name, str) and (name in OPS or name.rstrip("_") in OPS):
                return name
        frame = frame.f_back
    return "this operation"


class _DenseUse(SparseUse):
    """Access to the dense memory of a sparse tensor.

    The message is built only when it is read, since most of these errors are caught (1 us vs 16
    us).
    """

    def __init__(self, x):
        super().__init__(x.dtype, x.device, x._kind)
        self._message = None

    def finish_message(self):
        """Builds the message from the frames of the traceback, before those are removed."""
        if self._message is None:
            self._message = str(self)

    def __str__(self):
        if self._message is not None:
            return self._message
        at = self.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        dtype, device, kind = self.args
        return (f"'{_op_in_frames(at and at.tb_frame.f_back)}' is not implemented for a sparse tensor of dtype {dtype} on device {device} (layout "
                f"torch.sparse_{kind}): use to_dense(), or work on its values()")


def _dense_world(attribute):
    def get(self):
        raise _DenseUse(self)
    return property(get, doc=f"A sparse tensor has no {attribute} of its own.")


class Sparse(Tensor):
    """Common base of the layouts: a tensor of values, and a size."""

    _sp_values: Tensor
    _array = _dense_world("memory")
    _grad_fn_ = _dense_world("grad_fn")
    _output_nr = _dense_world("output number")
    _version_counter = _dense_world("version")
    _base = None
    _creation_meta = None
    _cut = 0
    _kind = "coo"
    # gradient of an embedding lookup, whose elements stay uncoalesced when such gradients are
    # summed
    _lookup = False
    _cached_grad: Sparse | None = None  # value of `.grad` at its last access

    @property
    def _requires_grad_(self):
        return self._sp_values._requires_grad_

    # ---- properties
    @property
    def shape(self) -> Size:
        return self._sp_size

    @property
    def dtype(self) -> DType:
        return of_np(self._sp_values._array.dtype)

    @property
    def device(self) -> Any:
        return self._sp_values._device

    @property
    def ndim(self) -> int:
        return len(self._sp_size)

    @property
    def requires_grad(self) -> bool:
        return self._sp_values._requires_grad_

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value and not self._sp_values._requires_grad_:
            # other users of the values tensor do not require grad
            self._sp_values = self._sp_values.detach()
        self._sp_values.requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> Sparse:
        self.requires_grad = bool(requires_grad)
        return self

    def detach_(self) -> Sparse:
        self._sp_values = self._sp_values.detach()
        return self

    def _update_grad(self) -> Sparse | None:
        g = self._sp_values._grad_
        if g is not None:
            # The gradient that backward accumulated on the values moves to this tensor, with its
            # current indices.
            self._sp_values._grad_ = None
            cached, new = self._cached_grad, self._gradient(g)
            if cached is None or new._requires_grad_ or cached._requires_grad_:
                attributes(self)["_cached_grad"] = new if cached is None else OPS["add"].fn(cached, new)
            else:
                cached.add_(new)
        return self._cached_grad

    @property
    def grad(self) -> Tensor | None:
        return self._update_grad()

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Sparse) or value._kind != self._kind or value.dtype != self.dtype or value.device != self.device:
                raise RuntimeError("attempting to assign a gradient to a sparse tensor: expected a sparse tensor of layout "
                                   f"torch.sparse_{self._kind}, dtype {self.dtype}, on device {self.device}")
            if value.shape != self.shape:
                raise RuntimeError(f"assigned grad has data of a different size: {tuple(value.shape)} instead of {tuple(self.shape)}")
        self._sp_values._grad_ = None
        attributes(self)["_cached_grad"] = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    _grad_ = grad

    def _gradient(self, g: Tensor) -> Sparse:
        """Returns the gradient of the tensor from the gradient of its values."""
        return self._with_values(g)

    def _of_gradient(self, g: Any) -> Any:
        """Returns the gradient of the values from a hook's result for the tensor."""
        return g._sp_values if isinstance(g, Sparse) else g

    def _put_values(self, values):
        """Replaces the values, with their history where one is recorded.

        RuntimeError for a leaf while gradients are recorded. The caller changes the indices
        afterwards. Where gradients are not recorded, a tensor that requires grad keeps its place in
        the graph: its values tensor gets new memory.
        """
        mine = self._sp_values
        if not mine._requires_grad_ or mode.on:
            if mine._requires_grad_ and mine._grad_fn_ is None:
                raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
            self._sp_values = values
            return
        self._put_data(values)
        bump_version(mine)

    def _put_data(self, values):
        """Moves the values tensor to other memory; the gradient keeps its current indices."""
        self._update_grad()
        self._sp_values.data = values.detach()

    @property
    def is_leaf(self) -> bool:
        return self._sp_values._grad_fn_ is None

    @property
    def grad_fn(self) -> Any:
        return self._sp_values._grad_fn_

    @property
    def _version(self):
        return self._sp_values._version

    def _with_values(self, values):
        raise NotImplementedError

    def _as_parameter(self, requires_grad: bool) -> Tensor:
        """Returns a Parameter of the same layout that shares the indices and values."""
        t = self._with_values(self._sp_values.detach())
        p = native_parameter(np.zeros(0, np.float32))
        p.__class__ = CompressedParameter if isinstance(self, CompressedTensor) else SparseParameter
        d = attributes(p)
        d.pop("_array", None)
        d.update(attributes(t))
        p.requires_grad = bool(requires_grad)
        return p

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Calls hook(gradient) when the gradient of the values is computed.

        The gradient is sparse like the tensor. The hook may return another one with the same
        indices.
        """
        def of_values(g):
            return self._of_gradient(hook(self._gradient(g)))
        return self._sp_values.register_hook(of_values)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], None]) -> Any:
        """Calls hook(tensor) after backward has accumulated into the .grad of this leaf."""
        return self._sp_values.register_post_accumulate_grad_hook(lambda values: hook(self))

    def retain_grad(self) -> None:
        """Makes a non-leaf tensor retain its gradient in .grad."""
        self._sp_values.retain_grad()


class SparseTensor(Sparse):
    """Sparse COO tensor: indices (sparse dims, nnz) and values (nnz, dense dims...).

    Values with equal indices are summed; `coalesce` makes the indices unique and sorted.
    """

    is_sparse = True

    def _with_values(self, values):
        return sparse_of(self._coo_idx, values, self._sp_size, self._coo_unique)

    def _gradient(self, g: Tensor) -> Sparse:
        return self._with_values(g) if self._coo_unique else dispatch["gradient at unique places"](self, g)

    def _of_gradient(self, g: Any) -> Any:
        return super()._of_gradient(g) if self._coo_unique or not isinstance(g, Sparse) else g.to_dense().sparse_mask(self.detach())._sp_values


class CompressedTensor(Sparse):
    """Compressed sparse matrices, batched: by rows (CSR, BSR) or columns (CSC, BSC).

    They have row pointers (batch..., rows + 1), the columns of the elements (batch..., nnz), and
    values (batch..., nnz, block..., dense dims...).
    """

    is_sparse_csr = property(lambda self: self._kind == "csr")

    def _with_values(self, values):
        return compressed_of(self._kind, self._sp_ptr, self._sp_ind, values, self._sp_size)


class SparseParameter(SparseTensor, Parameter):
    """A COO tensor registered as a parameter of a Module."""

    requires_grad = Sparse.requires_grad


class CompressedParameter(CompressedTensor, Parameter):
    """A compressed tensor registered as a parameter of a Module."""

    requires_grad = Sparse.requires_grad


SparseParameter.__name__ = SparseParameter.__qualname__ = CompressedParameter.__name__ = CompressedParameter.__qualname__ = "Parameter"


def _new_sparse(cls, values, size):
    if at_first:
        with _lock:
            while at_first:
                at_first[0]()
                del at_first[0]
    if values._requires_grad_ and values._grad_fn_ is None:
        # The values are another leaf: the gradient belongs to that leaf.
        values = values.view_as(values) if mode.on else values.detach()
    t = wrap_array(np.zeros(0, values._array.dtype))
    t.__class__ = cls
    d = attributes(t)
    del d["_array"]
    d["_sp_values"], d["_sp_size"] = values, Size(tuple(size))
    return t, d


def sparse_of(indices: Tensor, values: Tensor, size: Sizes, coalesced: bool = False) -> SparseTensor:
    """Returns a sparse COO tensor from validated parts.

    indices: int64 Tensor (sparse dims, nnz); values: Tensor; size: the shape.
    """
    t, d = _new_sparse(SparseTensor, values, size)
    d["_coo_idx"], d["_coo_unique"] = indices, coalesced
    return t


def compressed_of(kind: str, ptr: Tensor, ind: Tensor, values: Tensor, size: Sizes) -> CompressedTensor:
    """Returns a compressed tensor from validated parts; kind: "csr", "csc", "bsr" or "bsc"."""
    t, d = _new_sparse(CompressedTensor, values, size)
    d["_kind"], d["_sp_ptr"], d["_sp_ind"] = kind, ptr, ind
    return t


# ------------------------------------------------------------------ op dispatch
def _any_compressed(args):
    for a in args:
        if isinstance(a, CompressedTensor) or a.__class__ in (list, tuple) and _any_compressed(a):
            return True
    return False


def meaning(name: str, fn: Callable[..., Any]) -> None:
    """Registers `fn` as op `name` for sparse operands, none of them compressed."""
    @functools.wraps(fn)
    def by_layout(*args, **kwargs):
        if _any_compressed(args) or kwargs and _any_compressed(kwargs.values()):
            if name not in compressed:
                raise refusal(name, (*args, *kwargs.values()))
            return compressed[name](*args, **kwargs)
        return fn(*args, **kwargs)
    dispatch[name] = by_layout


def refusal(name: str, args: Any) -> SparseUse:
    """Returns the error for an op without an implementation for its sparse operands."""
    flat = [b for a in args for b in (a if a.__class__ in (list, tuple) else (a,))]
    x = next((a for a in flat if isinstance(a, CompressedTensor)), None) or next(a for a in flat if isinstance(a, Sparse))
    return SparseUse(f"'{name}' is not implemented for a sparse tensor of dtype {x.dtype} on device {x.device} (layout torch.sparse_{x._kind})")


def answer(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs an op on sparse operands after its dense body has raised SparseUse.

    Raises that error again if there is no sparse implementation.
    """
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
    """Returns a sparse tensor of a size and layout without elements."""
    t = dispatch["zeros of a layout"](tuple(size), dtype, repr(layout).removeprefix("torch.sparse_"), device)
    t.requires_grad = requires_grad
    return t
