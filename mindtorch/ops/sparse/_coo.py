"""Sparse COO tensors: public accessors, printing, autograd, copies and dtypes."""
import math

from mindtorch.core.tensor import dtypes
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.sparse import SparseTensor
from mindtorch.core.tensor.tensor import Parameter, Tensor, detached
from mindtorch.ops._checks import wrap_dim
from mindtorch.ops.basic import clone
from mindtorch.ops.sparse import _implements, _method, _same_pattern, is_sparse


# ------------------------------------------------------------------ parts, for users
@_method
def _indices(self):
    return detached(self._coo_idx)


@_method
def _values(self):
    return detached(self._sp_values)


@_method
def indices(self):
    """Returns the coordinates (sparse dims, nnz). RuntimeError if not coalesced."""
    if not self._coo_unique:
        raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
    return detached(self._coo_idx)


@_method
def values(self):
    """Returns the values (nnz, dense dims...). RuntimeError if not coalesced."""
    if not self._coo_unique:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    return viewed(self._sp_values)


_method(lambda self: self._coo_unique, "is_coalesced")
_method(lambda self: self._coo_idx._sizes[1], "_nnz")
_method(lambda self: self._coo_idx._sizes[0], "sparse_dim")
_method(lambda self: len(self._sp_size) - self._coo_idx._sizes[0], "dense_dim")
SparseTensor._dimI, SparseTensor._dimV = SparseTensor.sparse_dim, SparseTensor.dense_dim


@_method
def _coalesced_(self, coalesced):
    self._coo_unique = bool(coalesced)
    return self


@_method
def size(self, dim=None):
    """Returns the shape, or the size of one dim."""
    return self._sp_size if dim is None else self._sp_size[wrap_dim("size", dim, len(self._sp_size))]


_method(lambda self: len(self._sp_size), "dim")
SparseTensor.ndimension = SparseTensor.dim
_method(lambda self: math.prod(self._sp_size), "numel")
SparseTensor.nelement = SparseTensor.numel
_method(lambda self: self._sp_values._np_dtype.itemsize, "element_size")
_method(lambda self: self._sp_values._np_dtype.kind in "fV", "is_floating_point")
_method(lambda self: self._sp_values._np_dtype.kind == "c", "is_complex")
_method(lambda self: self._sp_size[0], "__len__")
_method(lambda self, memory_format=None: False, "is_contiguous")
_method(lambda self: self._sp_values.get_device(), "get_device")


_method(lambda self: self._sp_values.is_signed(), "is_signed")
SparseTensor.itemsize = property(lambda self: self._sp_values._np_dtype.itemsize)


@_method
def type(self, dtype=None, non_blocking=False):
    """Returns the type name of the tensor or, given a dtype, the tensor in that dtype."""
    if dtype is None:
        return self._sp_values.type().replace("torch.", "torch.sparse.", 1)
    v = self._sp_values.type(dtype)
    return self if v is self._sp_values else _same_pattern(self, v)


@_method
def type_as(self, other):
    """Converts the tensor to the dtype and device of another one."""
    return self.to(dtype=other.dtype, device=other.device)


@_method
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """Creates a strided tensor from data, with this tensor's dtype by default."""
    return self._sp_values.new_tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)


@_implements("tensor", method=False)
def _tensor_copy(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """Returns a copy detached from the autograd graph."""
    r = _clone(data.detach()).to(dtype=data.dtype if dtype is None else dtype, device=data.device if device is None else device)
    return r.requires_grad_() if requires_grad else r


@_implements("is_same_size")
def _is_same_size(input, other):
    return tuple(input.shape) == tuple(other.shape)


@_method
def numpy(self, *, force=False):
    raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")


@_method
def __repr__(self, *, tensor_contents=None):
    """Formats the tensor like PyTorch."""
    idx, v = self._coo_idx, self._sp_values.detach()
    text = _without_dtype(shifted(v, 14)) if v.numel() else f"tensor([], size={tuple(v.shape)})"
    parts = [f"indices={_without_dtype(shifted(idx, 15))}", f"values={text}", f"size={tuple(self._sp_size)}"]
    text = "tensor(" + ",\n       ".join(parts)
    more = [f"nnz={self._nnz()}"]
    if v.dtype not in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool_) or v.dtype == dtypes.int64 and not v.numel():
        more.append(f"dtype={v.dtype}")
    more.append("layout=torch.sparse_coo")
    if self._sp_values._grad_fn_ is not None:
        more.append(f"grad_fn=<{type(self._sp_values._grad_fn_).__name__}>")
    elif self._sp_values._requires_grad_:
        more.append("requires_grad=True")
    width = len(parts[-1]) + 8
    for m in more:
        # Starts a new line if the current one would exceed 80 characters.
        fits = width + len(m) + 2 <= 80
        text += (", " if fits else ",\n       ") + m
        width = (width if fits else 5) + len(m) + 2
    return ("Parameter containing:\n" if isinstance(self, Parameter) else "") + text + ")"


def shifted(t, by):
    """Returns the printed form of a tensor, with all lines but the first indented by `by` columns.
    """
    return "\n".join([line and (" " * by if i else "") + line for i, line in enumerate(repr(t).split("\n"))])


def _without_dtype(text):
    head, sep, _ = text.rpartition(", dtype=")
    return head + ")" if sep else text


SparseTensor.__str__ = SparseTensor.__repr__
SparseTensor.__format__ = lambda self, spec: object.__format__(self, spec)
SparseTensor.__hash__ = Tensor.__hash__


# ------------------------------------------------------------------ history, copies, dtypes
@_method
def detach(self):
    """Returns the tensor detached from the autograd graph."""
    return _same_pattern(self, self._sp_values.detach())


def _set_data(self, value):
    if not is_sparse(value):
        raise RuntimeError("attempting to assign a dense tensor to .data of a sparse one")
    self._put_data(value._sp_values)
    self._coo_idx, self._sp_size, self._coo_unique = value._coo_idx, value._sp_size, value._coo_unique


SparseTensor.data = property(detach, _set_data)


@_implements("clone")
def _clone(self, *, memory_format=None):
    r = _same_pattern(self, self._sp_values.clone())
    r._coo_idx = clone(self._coo_idx)
    return r


def viewed(values):
    """Returns the values for users. Those of a leaf are returned as a view, so that their autograd
    graph leads to the leaf."""
    return values.view_as(values) if values._requires_grad_ and values._grad_fn_ is None and mode.on else values


def copied(s, r, memo):
    """Completes the deep copy of a sparse tensor from a plain copy."""
    memo[id(s)] = r = Parameter(r, s.requires_grad) if isinstance(s, Parameter) else r.requires_grad_(s.requires_grad)
    if s.grad is not None:
        r.grad = s.grad.clone()
    return r


@_method
def __deepcopy__(self, memo):
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.")
    return copied(self, _clone(self.detach()), memo)


@_implements("to")
def _to(self, *args, **kwargs):
    v = self._sp_values.to(*args, **kwargs)
    return self if v is self._sp_values else _same_pattern(self, v)


def _forward_to_values(name):
    def method(self, *args, **kwargs):
        v = getattr(self._sp_values, name)(*args, **kwargs)
        return self if v is self._sp_values else _same_pattern(self, v)
    method.__name__ = name
    _method(method)


for _name in "float double half bfloat16 int long short char byte bool cfloat cdouble cpu cuda npu".split():
    _forward_to_values(_name)
