"""torch.sparse: coordinate (COO) and compressed layouts (CSR, CSC, BSR, BSC):
https://pytorch.org/docs/stable/sparse.html.

The ops of sparse tensors are implemented in mindtorch/ops/sparse. Semi-structured sparsity raises
NotImplementedError.
"""
import collections
import functools
import importlib

import numpy as np

from mindtorch.core.tensor import sparse as core
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.tensor.sparse import CompressedTensor, Sparse, SparseTensor, refusal
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import Parameter, Tensor, wrap_array, is_tensor
from mindtorch.torch import _types

__all__ = ["addmm", "mm", "sum", "softmax", "log_softmax", "sampled_addmm", "spdiags", "spsolve", "as_sparse_gradcheck",
           "check_sparse_tensor_invariants", "SparseSemiStructuredTensor", "to_sparse_semi_structured"]

Sparse.layout = property(lambda self: _types.NAMES["sparse_" + self._kind])
SparseTensor.__module__ = CompressedTensor.__module__ = "mindtorch.torch.sparse"


def _reduce_ex(self, proto):
    from mindtorch.torch._utils import _rebuild_parameter, _rebuild_sparse_tensor
    if isinstance(self, Parameter):
        return _rebuild_parameter, (self.detach(), self.requires_grad, collections.OrderedDict())
    if isinstance(self, CompressedTensor):
        return _rebuild_sparse_tensor, (self.layout, (self._sp_ptr.detach(), self._sp_ind.detach(), self._values().detach(), self.size()))
    return _rebuild_sparse_tensor, (self.layout, (self._indices(), self._values().detach(), self.size(), self.is_coalesced()))


Sparse.__reduce_ex__ = _reduce_ex


# ------------------------------------------------------------------ sparse methods on dense tensors
def _only_sparse(name, kind="sparse coordinate tensor"):
    def method(self):
        raise RuntimeError(f"{name} expected {kind} layout but got Strided")
    method.__name__ = name
    setattr(Tensor, name, method)


for _name in ("coalesce", "indices", "is_coalesced"):
    _only_sparse(_name)
_only_sparse("values", "sparse tensor")
for _name in ("_nnz", "_values", "_indices", "_dimI", "_dimV", "_coalesced_"):
    def _no(self, *args, _name=_name):
        raise NotImplementedError(f"Tensor.{_name} needs a sparse tensor, not a strided one of dtype {self.dtype} on device {self.device}")
    setattr(Tensor, _name, _no)
for _name in ("crow_indices", "col_indices"):
    _only_sparse(_name, "sparse row compressed tensor")
for _name in ("ccol_indices", "row_indices"):
    _only_sparse(_name, "sparse column compressed tensor")
Tensor.sparse_dim = lambda self: 0
Tensor.dense_dim = lambda self: self.ndim


# ------------------------------------------------------------------ functions
def _need_sparse(name, x):
    if not is_tensor(x):
        raise TypeError(f"{name}(): argument must be Tensor, not {type_name(x)}")
    if isinstance(x, CompressedTensor):
        raise refusal(f"torch.sparse.{name}", (x,))
    if not isinstance(x, SparseTensor):
        raise NotImplementedError(f"torch.sparse.{name} needs a sparse tensor, not a strided one of dtype {x.dtype} on device {x.device}")


def mm(mat1, mat2, reduce=None):
    """Multiplies two matrices, at least one of which is sparse.

    `reduce` is "mean", "amax" or "amin" instead of the sum, for a CSR matrix times a dense matrix.
    """
    if not isinstance(mat1, Sparse) and not isinstance(mat2, Sparse):
        _need_sparse("mm", mat1)
    if reduce is not None:
        if not isinstance(mat1, Sparse):
            raise NotImplementedError(f"torch.sparse.mm with reduce={reduce!r} is not supported for layout torch.strided, dtype {mat1.dtype}, device {mat1.device}")
        return _compressed("_ops").reduced_mm(mat1, mat2, reduce)
    return OPS["mm"].fn(mat1, mat2)


def _compressed(more=""):
    return importlib.import_module("mindtorch.ops.sparse._compressed" + more)


def addmm(mat, mat1, mat2, *, beta=1.0, alpha=1.0):
    """Computes beta * mat + alpha * mat1 @ mat2 for a sparse mat1."""
    if not isinstance(mat1, CompressedTensor):
        _need_sparse("addmm", mat1)
    return OPS["addmm"].fn(mat, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0, out=None):
    """Computes beta * input + alpha * mat1 @ mat2 only at the stored elements of the CSR tensor
    `input`.

    Shapes: input (batch..., n, m), mat1 (batch..., n, k), mat2 (batch..., k, m). Raises
    RuntimeError for other sparse layouts and mismatched sizes, NotImplementedError for COO and
    `out=`.
    """
    if out is not None:
        raise NotImplementedError(f"torch.sparse.sampled_addmm with out= is not supported (dtype {input.dtype}, device {input.device})")
    return _compressed("_ops").sampled_addmm(input, mat1, mat2, beta, alpha)


def _reductions():
    return importlib.import_module("mindtorch.ops.sparse._reductions")


def sum(input, dim=None, dtype=None):
    """Sums all elements, or over `dim` (one or several); the result is sparse while sparse dims
    remain."""
    _need_sparse("sum", input)
    return _reductions().sum_of(input, dim, dtype)


def softmax(input, dim, dtype=None):
    """Computes softmax along `dim` over the stored elements; elements that are not stored count as
    -inf."""
    _need_sparse("softmax", input)
    return _reductions().softmax_of(input, dim, dtype, False)


def log_softmax(input, dim, dtype=None):
    """Computes the logarithm of softmax along `dim` over the stored elements."""
    _need_sparse("log_softmax", input)
    return _reductions().softmax_of(input, dim, dtype, True)


def spdiags(diagonals, offsets, shape, layout=None):
    """Returns a sparse matrix with the rows of `diagonals` on the diagonals `offsets`.

    Offsets must be distinct; positive offsets are above the main diagonal.
    """
    kind = "sparse_coo" if layout is None else repr(layout).removeprefix("torch.")
    if kind not in ("sparse_coo", "sparse_csr", "sparse_csc"):
        raise RuntimeError(f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {layout}")
    d = diagonals.unsqueeze(0) if diagonals.dim() == 1 else diagonals
    off = [int(o) for o in offsets.reshape(-1).tolist()]
    rows, cols = (int(n) for n in shape)
    if d.dim() != 2:
        raise RuntimeError("Diagonals must be vector or matrix")
    if len(off) != d.shape[0]:
        raise RuntimeError(f"Number of diagonals ({d.shape[0]}) does not match the number of offsets ({len(off)})")
    if len(set(off)) != len(off):
        raise RuntimeError("Offset tensor contains duplicate values")
    idx, at = [], []
    for k, o in enumerate(off):
        col = np.arange(max(o, 0), min(cols, rows + o, d.shape[1]))
        idx.append(np.stack((col - o, col)))
        at.append(k * d.shape[1] + col)
    values = d.reshape(-1).index_select(0, wrap_array(np.concatenate(at)).to(d.device))
    r = OPS["sparse_coo_tensor"].fn(wrap_array(np.concatenate(idx, axis=1)), values, (rows, cols))
    return r if kind == "sparse_coo" else r.to_sparse(layout=layout)


def _refused(name):
    def fn(*args, **kwargs):
        given = next((a for a in args if is_tensor(a)), None)
        where = f" (dtype {given.dtype}, device {given.device})" if given is not None else " on device cpu"
        raise NotImplementedError(f"torch.sparse.{name} is not supported{where}")
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"Not supported: {name} raises NotImplementedError."
    return fn


spsolve = _refused("spsolve")


def as_sparse_gradcheck(gradcheck):
    """Wraps a gradcheck to support functions of sparse tensors and the option `masked`; it checks
    the stored elements."""
    @functools.wraps(gradcheck)
    def gradcheck_with_sparse_support(func, inputs, **kwargs):
        """Checks gradients with respect to the stored elements of sparse inputs; sparse outputs are
        converted to dense."""
        masked = kwargs.pop("masked", False)
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        where = [i for i, x in enumerate(inputs) if isinstance(x, Sparse) and x.requires_grad]
        if not masked:
            for i in where:
                x = inputs[i]
                if x._nnz() * (1 if not isinstance(x, CompressedTensor) else int(np.prod(_compressed().blocks(x), dtype=int))) < np.prod(x.shape[-2:], dtype=int):
                    # Not masked: store all elements, so that unstored elements are checked as
                    # explicit zeros.
                    full = OPS["ones_like"].fn(x.detach().to_dense())
                    inputs[i] = _filled(x, full).requires_grad_()
        likes = {i: inputs[i] for i in where}
        flat = [x._values().detach().clone().requires_grad_() if i in likes else x for i, x in enumerate(inputs)]

        def of_values(*args):
            r = func(*[likes[i]._with_values(a) if i in likes else a for i, a in enumerate(args)])
            dense = [x.to_dense() if isinstance(x, Sparse) else x for x in (r if isinstance(r, (list, tuple)) else (r,))]
            return tuple(dense) if isinstance(r, (list, tuple)) else dense[0]
        return gradcheck(of_values, flat, **kwargs)
    return gradcheck_with_sparse_support


def _filled(x, full):
    """Returns the sparse tensor with all elements stored explicitly."""
    if isinstance(x, CompressedTensor):
        places = full.to_sparse(layout=x.layout, blocksize=_compressed().blocks(x) or None, dense_dim=x.dense_dim() or None)
    else:
        places = full.to_sparse(x.sparse_dim())
    return x.detach().to_dense().sparse_mask(places)


to_sparse_semi_structured = _refused("to_sparse_semi_structured")


class SparseSemiStructuredTensor:
    """2:4 sparsity, which is not supported: the constructor raises NotImplementedError."""

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError("torch.sparse.SparseSemiStructuredTensor is not supported on device cpu")


class check_sparse_tensor_invariants:
    """Context manager and global switch for the invariant checks of sparse tensors.

    If enabled, the indices of new compressed tensors, and of COO tensors declared as coalesced,
    must be sorted and unique. Index bounds are always checked.
    """

    def __init__(self, enable=True):
        self._wanted, self._before = enable, None

    @classmethod
    def is_enabled(cls):
        """Returns the current setting."""
        return core.invariants.checked

    @classmethod
    def enable(cls):
        core.invariants.checked = True

    @classmethod
    def disable(cls):
        core.invariants.checked = False

    def __enter__(self):
        self._before = core.invariants.checked
        core.invariants.checked = self._wanted

    def __exit__(self, *exc):
        core.invariants.checked = self._before

    def __call__(self, func):
        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            with self:
                return func(*args, **kwargs)
        return wrapper


def _matrix_product(name):
    def fn(input, mat2):
        return OPS["mm"].fn(input, mat2)
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = "Multiplies two matrices, one of which may be sparse."
    return fn


def _construct(kind, ptr, ind, values, size, dtype, layout, device, requires_grad, check):
    name = f"sparse_{kind}_tensor"
    if layout is not None and repr(layout) != f"torch.sparse_{kind}":
        raise RuntimeError(f"{name}: layout {layout} is not torch.sparse_{kind}")
    check = core.invariants.checked if check is None else check
    return _compressed().construct(kind, name, ptr, ind, values, size, dtype, device, requires_grad, check)


def _compressed_constructor(kind):
    if kind in ("csr", "bsr"):
        def fn(crow_indices, col_indices, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, check_invariants=None):
            return _construct(kind, crow_indices, col_indices, values, size, dtype, layout, device, requires_grad, check_invariants)
    else:
        def fn(ccol_indices, row_indices, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, check_invariants=None):
            return _construct(kind, ccol_indices, row_indices, values, size, dtype, layout, device, requires_grad, check_invariants)
    fn.__name__ = fn.__qualname__ = f"sparse_{kind}_tensor"
    fn.__doc__ = (f"Returns a {kind.upper()} tensor from {'column' if kind in ('csc', 'bsc') else 'row'}{' block' if kind[0] == 'b' else ''} pointers (batch..., n + 1), "
                  f"indices of the other dimension (batch..., nnz) and values (batch..., nnz, {'block..., ' if kind[0] == 'b' else ''}dense...).\n\n"
                  f"    Raises RuntimeError if the parts do not match each other.\n    https://pytorch.org/docs/stable/generated/torch.sparse_{kind}_tensor.html")
    return fn


def sparse_compressed_tensor(compressed_indices, plain_indices, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False,
                             check_invariants=None):
    """Returns a sparse tensor in the compressed layout `layout`.

    Raises RuntimeError if the parts do not match each other, or if `layout` is missing.
    https://pytorch.org/docs/stable/generated/torch.sparse_compressed_tensor.html
    """
    if layout is None:
        raise RuntimeError("sparse_compressed_tensor expected sparse compressed tensor layout but got none")
    kind = repr(layout).removeprefix("torch.sparse_")
    if kind not in ("csr", "csc", "bsr", "bsc"):
        raise RuntimeError(f"sparse_compressed_tensor expected sparse compressed tensor layout but got {layout}")
    return FUNCTIONS[f"sparse_{kind}_tensor"](compressed_indices, plain_indices, values, size, dtype=dtype, device=device, pin_memory=pin_memory,
                                              requires_grad=requires_grad, check_invariants=check_invariants)


def _sparse_only(name, *parameters):
    """Creates a function (also used as a method) that supports only sparse operands."""
    def fn(*args, **kwargs):
        found = next((a for a in (*args, *kwargs.values()) if isinstance(a, Sparse)), None)
        if found is None:
            given = next((a for a in (*args, *kwargs.values()) if is_tensor(a)), None)
            raise NotImplementedError(f"torch.{name} needs a sparse tensor" + (f", not a strided one of dtype {given.dtype} on device {given.device}"
                                                                               if given is not None else " (device cpu)"))
        return _meaning(name, args, kwargs)
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"{name}({', '.join(parameters)}) for sparse tensors.\n\n    Raises NotImplementedError for strided tensors."
    return fn


def _meaning(name, args, kwargs):
    from mindtorch.core.tensor.sparse import answer
    return answer(name, args, kwargs)


def _copied(name):
    def fn(input):
        return getattr(input, name)().detach().clone()
    fn.__name__ = fn.__qualname__ = name + "_copy"
    fn.__doc__ = f"Returns a copy of a sparse tensor's {name}()."
    return fn


#: Functions of the torch namespace for sparse tensors.
FUNCTIONS = {n: _matrix_product(n) for n in ("spmm", "dsmm", "hsmm")}
FUNCTIONS.update({n: _sparse_only(n, *p) for n, p in {"smm": ("input", "mat2"), "hspmm": ("mat1", "mat2"), "sspaddmm": ("input", "mat1", "mat2")}.items()})
FUNCTIONS.update({n: _refused(n) for n in ("saddmm", "indices_copy", "values_copy")})
FUNCTIONS.update({f"{n}_copy": _copied(n) for n in ("crow_indices", "col_indices", "ccol_indices", "row_indices")})
FUNCTIONS.update({f"sparse_{k}_tensor": _compressed_constructor(k) for k in ("csr", "csc", "bsr", "bsc")})
FUNCTIONS["sparse_compressed_tensor"] = sparse_compressed_tensor
FUNCTIONS["resize_as_sparse_"] = _sparse_only("resize_as_sparse_", "input", "the_template")
for _name in ("smm", "sspaddmm", "resize_as_sparse_", "sparse_resize_", "sparse_resize_and_clear_"):
    setattr(Tensor, _name, FUNCTIONS.get(_name) or _sparse_only(_name, "self", "size", "sparse_dim", "dense_dim"))


def __getattr__(name):
    if name.endswith("Tensor"):
        from mindtorch.torch import _types
        if name in _types.TYPED:
            # Legacy typed classes: torch.sparse.FloatTensor(indices, values, size).
            return _typed(name, _types.TYPED[name].dtype)
    raise AttributeError(f"module 'torch.sparse' has no attribute '{name}'")


_classes = {}


def _typed(name, dtype):
    if name not in _classes:
        def __new__(cls, *args, **kwargs):
            from mindtorch import torch
            return torch.sparse_coo_tensor(*args, dtype=dtype, **kwargs)
        _classes[name] = type(name, (), {"__new__": __new__, "__module__": "torch.sparse", "dtype": dtype, "layout": _types.NAMES["sparse_coo"],
                                         "__doc__": f"Sparse COO tensors of {dtype}: {name}(indices, values, size)."})
    return _classes[name]
