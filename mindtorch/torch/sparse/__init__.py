"""torch.sparse: COO tensors (https://pytorch.org/docs/stable/sparse.html).

What sparse tensors can do is written in mindtorch/ops/sparse.py; the compressed layouts (CSR, CSC, BSR, BSC) and
semi-structured sparsity raise NotImplementedError.
"""
import numpy as np

from mindtorch.core.foreign import type_name
from mindtorch.core.sparse import SparseTensor
from mindtorch.core.table import TABLE
from mindtorch.core.tensor import Tensor, wrap, taken
from mindtorch.ops import sparse as _ops
from mindtorch.torch import _types

__all__ = ["addmm", "mm", "sum", "softmax", "log_softmax", "sampled_addmm", "spdiags", "spsolve", "as_sparse_gradcheck",
           "check_sparse_tensor_invariants", "SparseSemiStructuredTensor", "to_sparse_semi_structured"]

SparseTensor.layout = property(lambda self: _types.NAMES["sparse_coo"])
SparseTensor.__module__ = "mindtorch.torch.sparse"


def _reduce_ex(self, proto):
    from mindtorch.torch._utils import _rebuild_sparse_tensor
    return _rebuild_sparse_tensor, (self.layout, (self._indices(), self._values().detach(), self.size(), self.is_coalesced()))


SparseTensor.__reduce_ex__ = _reduce_ex


# ------------------------------------------------------------------ what dense tensors answer
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
Tensor.sparse_dim = lambda self: 0
Tensor.dense_dim = lambda self: self.ndim


# ------------------------------------------------------------------ functions
def _need_sparse(name, x):
    if not taken(x):
        raise TypeError(f"{name}(): argument must be Tensor, not {type_name(x)}")
    if not isinstance(x, SparseTensor):
        raise NotImplementedError(f"torch.sparse.{name} needs a sparse tensor, not a strided one of dtype {x.dtype} on device {x.device}")


def mm(mat1, mat2, reduce="sum"):
    """Product of two matrices, of which one at least is sparse."""
    if reduce != "sum":
        raise NotImplementedError(f"torch.sparse.mm with reduce={reduce!r} is not supported for dtype {mat1.dtype} on device {mat1.device}")
    if not isinstance(mat1, SparseTensor) and not isinstance(mat2, SparseTensor):
        _need_sparse("mm", mat1)
    return TABLE["mm"].fn(mat1, mat2)


def addmm(mat, mat1, mat2, *, beta=1.0, alpha=1.0):
    """beta * mat + alpha * mat1 @ mat2, with a sparse mat1."""
    _need_sparse("addmm", mat1)
    return TABLE["addmm"].fn(mat, mat1, mat2, beta=beta, alpha=alpha)


def sum(input, dim=None, dtype=None):
    """Sum of all elements, or over `dim` (one or several): sparse while sparse dims are left."""
    _need_sparse("sum", input)
    return _ops.sum_of(input, dim, dtype)


def softmax(input, dim, *, dtype=None):
    """Softmax along `dim` over the elements that are there; what is not counts as -inf."""
    _need_sparse("softmax", input)
    return _ops.softmax_of(input, dim, dtype, False)


def log_softmax(input, dim, *, dtype=None):
    """log of softmax along `dim`."""
    _need_sparse("log_softmax", input)
    return _ops.softmax_of(input, dim, dtype, True)


def spdiags(diagonals, offsets, shape, layout=None):
    """Sparse matrix with the rows of `diagonals` on its diagonals `offsets` (distinct; positive ones above the main)."""
    if layout is not None and layout is not _types.NAMES["sparse_coo"]:
        raise NotImplementedError(f"spdiags: layout {layout} is not supported for dtype {diagonals.dtype} on device {diagonals.device}")
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
    values = d.reshape(-1).index_select(0, wrap(np.concatenate(at)).to(d.device))
    return TABLE["sparse_coo_tensor"].fn(wrap(np.concatenate(idx, axis=1)), values, (rows, cols))


def _refused(name):
    def fn(*args, **kwargs):
        given = next((a for a in args if taken(a)), None)
        where = f" (dtype {given.dtype}, device {given.device})" if given is not None else " on device cpu"
        raise NotImplementedError(f"torch.sparse.{name} is not supported{where}")
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"Not supported: {name} raises NotImplementedError."
    return fn


sampled_addmm, spsolve, as_sparse_gradcheck = _refused("sampled_addmm"), _refused("spsolve"), _refused("as_sparse_gradcheck")
to_sparse_semi_structured = _refused("to_sparse_semi_structured")


class SparseSemiStructuredTensor:
    """2:4 sparsity, which is not supported: making one raises NotImplementedError."""

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError("torch.sparse.SparseSemiStructuredTensor is not supported on device cpu")


class check_sparse_tensor_invariants:
    """Context manager, and switch: the parts of a new sparse tensor are always checked here, so it changes nothing."""

    _enabled = False

    def __init__(self, enable=True):
        self._wanted, self._before = enable, None

    @classmethod
    def is_enabled(cls):
        """What was last asked for."""
        return cls._enabled

    @classmethod
    def enable(cls):
        check_sparse_tensor_invariants._enabled = True

    @classmethod
    def disable(cls):
        check_sparse_tensor_invariants._enabled = False

    def __enter__(self):
        self._before = check_sparse_tensor_invariants._enabled
        check_sparse_tensor_invariants._enabled = self._wanted

    def __exit__(self, *exc):
        check_sparse_tensor_invariants._enabled = self._before

    def __call__(self, func):
        import functools

        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            with self:
                return func(*args, **kwargs)
        return wrapper


def _matrix_product(name):
    def fn(input, mat2):
        return TABLE["mm"].fn(input, mat2)
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = "Product of two matrices, of which one may be sparse."
    return fn


#: Functions of the torch namespace that are about sparse tensors.
FUNCTIONS = {n: _matrix_product(n) for n in ("spmm", "dsmm", "hsmm")}
FUNCTIONS.update({n: _refused(n) for n in ("smm", "hspmm", "saddmm", "sspaddmm", "resize_as_sparse_", "indices_copy", "values_copy")})


def __getattr__(name):
    if name.endswith("Tensor"):
        from mindtorch.torch import _types
        if name in _types.TYPED:
            # Typed classes of old: torch.sparse.FloatTensor(indices, values, size).
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
