"""What ops mean for sparse COO tensors.

A sparse tensor's history is its values', so each of these is written with dense ops on values and coordinates, and is
differentiable for that reason.  Anything not here raises NotImplementedError (see mindtorch.core.sparse).
"""
import math

from mindtorch.core import alias, device as _device, dtypes
from mindtorch.core.dtypes import I64, NUMBER_TYPES, as_np, of_np
from mindtorch.core.grad_mode import mode
from mindtorch.core.promote import result_dtype
from mindtorch.core.sparse import SparseTensor, SparseUse, dispatch, sparse_of
from mindtorch.core.table import TABLE, op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor, detached, taken
from mindtorch.core.values import values as host_values
from mindtorch.ops._checks import need_tensor, wrap_dim, wrap_dims
from mindtorch.core.numbers import NUMBER
from mindtorch.ops.basic import cast, clone, move
from mindtorch.ops.creation._from_data import CPU, empty_, zeros_

# On coordinates, int64 tensors (sparse dims, elements), and positions in the flattened sparse dims.
_keys = primitive("coo_keys", "idx, *, sizes", raw=True)
_merged = primitive("coo_merged", "idx, *, sizes", raw=True)
_rows = primitive("coo_rows", "idx, *, dims", raw=True)
_at = primitive("coo_at", "idx, *, dim, index", raw=True)
_unique = primitive("coo_unique", "keys", raw=True)
_common = primitive("coo_common", "a, b", raw=True)
_paired = primitive("coo_paired", "a, b", raw=True)
_extents = primitive("coo_extents", "idx", raw=True)
_indices_in = primitive("coo_indices", "idx, *, size", raw=True)
_nonzero = primitive("coo_nonzero", "a, *, sparse_dim", raw=True)
_any = primitive("coo_any", "a, at, *, count", raw=True)
_group_max = primitive("coo_group_max", "a, group, *, count")
_matched = primitive("coo_matmul", "a, b", raw=True)


def is_sparse(x):
    return isinstance(x, SparseTensor)


def _method(fn, name=None):
    setattr(SparseTensor, name or fn.__name__, fn)
    return fn


def _meaning(*names):
    """Decorator: the function is what these ops do with sparse operands; also a method of sparse tensors."""
    def deco(fn):
        for n in names:
            dispatch[n] = fn
            setattr(SparseTensor, n, fn)
        return fn
    return deco


def _refuse(name, x):
    raise SparseUse(f"{name} is not implemented for a sparse tensor of dtype {x.dtype} on device {x.device} (layout torch.sparse_coo)")


# ------------------------------------------------------------------ parts
def _same_pattern(s, values, coalesced=None):
    """The sparse tensor of other values at the same places."""
    return sparse_of(move(s._coo_idx, values._dev), values, (*s._coo_size[:s._coo_idx._sizes[0]], *values._sizes[1:]),
                     s._coo_unique if coalesced is None else coalesced)


def _split(s):
    """(sizes of the sparse dims, sizes of the dense dims)."""
    n = s._coo_idx._sizes[0]
    size = tuple(s._coo_size)
    return size[:n], size[n:]


def _gather(values, at):
    """Rows of `values` at a tensor of positions."""
    return values.index_select(0, at)


def _add_up(values, at, count):
    """Rows of `values` added up by position: (count, dense dims...)."""
    if values._stype.kind == "b":
        return _any(values, at, count=count)
    return zeros_(size=(count, *values._sizes[1:]), stride=None, stype=values._stype, device=values._dev).index_add(0, at, values)


# ------------------------------------------------------------------ construction
def _size_of(size):
    return tuple(int(n) for n in size)


def _of_nothing(size, sparse_dim, d):
    dense = size[sparse_dim:]
    return sparse_of(empty_(size=(sparse_dim, 0), stride=None, stype=I64, device=CPU), zeros_(size=(0, *dense), stride=None, stype=d, device=CPU),
                     size, True)


@op(method=False)
def sparse_coo_tensor(indices, values=None, size=None, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False,
                      check_invariants=None, is_coalesced=None):
    """Sparse tensor of values (nnz, dense dims...) at indices (sparse dims, nnz); of a size alone, an empty one.

    RuntimeError if the parts do not fit each other or an index lies outside the size.
    """
    d = None if dtype is None else as_np(dtype)
    if values is None:
        size = indices if size is None else size
        t = _of_nothing(_size_of(size), len(size), dtypes.default_np() if d is None else d)
        if device is not None or _device.get_default() is not CPU:
            t = t.to(_device.check(device))
        t._coo_values.requires_grad = requires_grad
        return t
    tensor = TABLE["tensor"].fn
    i = indices if (indices.__class__ is Tensor or taken(indices)) else tensor(indices, dtype=of_np(I64))
    v = values if (values.__class__ is Tensor or taken(values)) else tensor(values)
    if device is not None or i._dev is not v._dev:
        on = v._dev if device is None else _device.check(device)
        i, v = move(i, on), move(v, on)
    if i._stype.kind == "b" or i._stype.kind == "c":
        raise RuntimeError(f"indices must be an int64 tensor, got {i.dtype}")
    if i.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(i._sizes)}")
    sparse_dim, nnz = i._sizes
    if not v.ndim:
        v = v.expand(nnz)
    if v._sizes[0] != nnz:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {nnz}, nnz from values: "
                           f"{v._sizes[0]}")
    dense = v._sizes[1:]
    if size is None:
        if not nnz and sparse_dim:
            size = (0,) * sparse_dim + dense
        else:
            size = tuple(host_values(_extents(i)).tolist()) + dense
    size = _size_of(size)
    if len(size) != sparse_dim + len(dense):
        raise RuntimeError(f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {sparse_dim}, "
                           f"dense_dim = {len(dense)}")
    if size[sparse_dim:] != tuple(dense):
        raise RuntimeError(f"values has incorrect size, expected {[nnz, *size[sparse_dim:]]}, got {list(v._sizes)}")
    idx = _indices_in(i, size=size)
    v = v if d is None else cast(v, d)
    if requires_grad:
        v = v.detach().clone()
        v.requires_grad = True
    return sparse_of(idx, v, size, nnz < 2 if is_coalesced is None else bool(is_coalesced))


def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """The tensor's non-zero elements as a sparse tensor of `sparse_dim` sparse dims (default: all)."""
    if layout is not None and str(layout) != "torch.sparse_coo":
        raise NotImplementedError(f"to_sparse: layout {layout} is not supported for dtype {self.dtype} on device {self.device}")
    ndim = self.ndim
    n = ndim if sparse_dim is None else int(sparse_dim)
    if not 0 <= n <= ndim or not n and ndim:
        raise RuntimeError(f"sparse_dim argument must be in >0 range when self.dim()={ndim}, got {n}" if n <= 0 else
                           f"sparse_dim argument for to_sparse must not be greater than the number of dimensions {ndim}, got {n}")
    idx = _nonzero(self, sparse_dim=n)
    size, dense = self._sizes[:n], self._sizes[n:]
    values = _gather(self.reshape(math.prod(size), *dense), _keys(idx, sizes=size))
    return sparse_of(idx, values, self._sizes, True)


Tensor.to_sparse = to_sparse


def to_sparse_coo(self):
    """The tensor's non-zero elements as a sparse tensor."""
    return to_sparse(self)


Tensor.to_sparse_coo = to_sparse_coo
_method(lambda self, sparse_dim=None, **kw: self, "to_sparse")
_method(lambda self: self, "to_sparse_coo")


@_method
def to_dense(self, dtype=None, *, masked_grad=None):
    """The strided tensor of the same elements."""
    sizes, dense = _split(self)
    v = self._coo_values if dtype is None else cast(self._coo_values, as_np(dtype))
    return _add_up(v, _keys(self._coo_idx, sizes=sizes), math.prod(sizes)).reshape(self._coo_size)


@_method
def coalesce(self):
    """The tensor with each place once, in order."""
    if self._coo_unique:
        return self
    sizes, _ = _split(self)
    idx, at = _merged(self._coo_idx, sizes=sizes)
    return sparse_of(idx, _add_up(self._coo_values, at, idx._sizes[1]), self._coo_size, True)


def sparse_mask(self, mask):
    """The elements of a dense tensor at the places of the sparse tensor `mask`."""
    if not is_sparse(mask):
        raise RuntimeError("sparse_mask(): mask must be a sparse tensor")
    if tuple(self.shape) != tuple(mask.shape):
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size "
                           f"{list(mask.shape)}")
    mask = coalesce(mask)
    sizes, dense = _split(mask)
    return _same_pattern(mask, _gather(self.reshape(math.prod(sizes), *dense), _keys(mask._coo_idx, sizes=sizes)))


Tensor.sparse_mask = sparse_mask


# ------------------------------------------------------------------ parts, for users
@_method
def _indices(self):
    return detached(self._coo_idx)


@_method
def _values(self):
    return detached(self._coo_values)


@_method
def indices(self):
    """Coordinates (sparse dims, nnz); RuntimeError if not coalesced."""
    if not self._coo_unique:
        raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
    return detached(self._coo_idx)


@_method
def values(self):
    """Values (nnz, dense dims...); RuntimeError if not coalesced."""
    if not self._coo_unique:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    return self._coo_values


_method(lambda self: self._coo_unique, "is_coalesced")
_method(lambda self: self._coo_idx._sizes[1], "_nnz")
_method(lambda self: self._coo_idx._sizes[0], "sparse_dim")
_method(lambda self: len(self._coo_size) - self._coo_idx._sizes[0], "dense_dim")
SparseTensor._dimI, SparseTensor._dimV = SparseTensor.sparse_dim, SparseTensor.dense_dim


@_method
def _coalesced_(self, coalesced):
    self._coo_unique = bool(coalesced)
    return self


@_method
def size(self, dim=None):
    """Shape, or the extent of one dimension."""
    return self._coo_size if dim is None else self._coo_size[wrap_dim("size", dim, len(self._coo_size))]


_method(lambda self: len(self._coo_size), "dim")
SparseTensor.ndimension = SparseTensor.dim
_method(lambda self: math.prod(self._coo_size), "numel")
SparseTensor.nelement = SparseTensor.numel
_method(lambda self: self._coo_values._stype.itemsize, "element_size")
_method(lambda self: self._coo_values._stype.kind in "fV", "is_floating_point")
_method(lambda self: self._coo_values._stype.kind == "c", "is_complex")
_method(lambda self: self._coo_size[0], "__len__")
_method(lambda self, memory_format=None: False, "is_contiguous")
_method(lambda self: self._coo_values.get_device(), "get_device")


@_meaning("is_same_size")
def _is_same_size(input, other):
    return tuple(input.shape) == tuple(other.shape)


@_method
def numpy(self, *, force=False):
    raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")


@_method
def __repr__(self, *, tensor_contents=None):
    """As torch prints it."""
    def shifted(t, by):
        return repr(t).replace("\n", "\n" + " " * by)
    idx, v = self._coo_idx, self._coo_values.detach()
    shown = _without_dtype(shifted(v, 14)) if v.numel() else f"tensor([], size={tuple(v.shape)})"
    parts = [f"indices={_without_dtype(shifted(idx, 15))}", f"values={shown}", f"size={tuple(self._coo_size)}"]
    text = "tensor(" + ",\n       ".join(parts)
    more = [f"nnz={self._nnz()}"]
    if v.dtype not in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool_) or v.dtype == dtypes.int64 and not v.numel():
        more.append(f"dtype={v.dtype}")
    more.append("layout=torch.sparse_coo")
    if self._coo_values._gnode is not None:
        more.append(f"grad_fn=<{type(self._coo_values._gnode).__name__}>")
    elif self._coo_values._rg:
        more.append("requires_grad=True")
    width = len(parts[-1]) + 8
    for m in more:
        # A new line where the old one would pass 80 characters.
        fits = width + len(m) + 2 <= 80
        text += (", " if fits else ",\n       ") + m
        width = (width if fits else 5) + len(m) + 2
    return text + ")"


def _without_dtype(text):
    head, sep, _ = text.rpartition(", dtype=")
    return head + ")" if sep else text


SparseTensor.__str__ = SparseTensor.__repr__
SparseTensor.__format__ = lambda self, spec: object.__format__(self, spec)
SparseTensor.__hash__ = Tensor.__hash__


# ------------------------------------------------------------------ history, copies, dtypes
@_method
def detach(self):
    """The same parts without history."""
    return _same_pattern(self, self._coo_values.detach())


def _set_data(self, value):
    if not is_sparse(value):
        raise RuntimeError("attempting to assign a dense tensor to .data of a sparse one")
    if value._coo_values._stype != self._coo_values._stype and self._coo_values._g is not None:
        raise RuntimeError("attempting to assign a tensor of another dtype to .data of a tensor with a gradient")
    rg = self._coo_values._rg
    self._coo_idx, self._coo_values, self._coo_size, self._coo_unique = (value._coo_idx, value._coo_values.detach(), value._coo_size,
                                                                         value._coo_unique)
    self._coo_values.requires_grad = rg


SparseTensor.data = property(detach, _set_data)


@_method
def detach_(self):
    self._coo_values = self._coo_values.detach()
    return self


@_method
def requires_grad_(self, requires_grad=True):
    self._coo_values.requires_grad_(requires_grad)
    return self


@_meaning("clone")
def _clone(self, *, memory_format=None):
    r = _same_pattern(self, self._coo_values.clone())
    r._coo_idx = clone(self._coo_idx)
    return r


@_method
def __deepcopy__(self, memo):
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.")
    r = _clone(self.detach())
    r.requires_grad_(self.requires_grad)
    memo[id(self)] = r
    return r


@_meaning("to")
def _to(self, *args, **kwargs):
    v = self._coo_values.to(*args, **kwargs)
    return self if v is self._coo_values else _same_pattern(self, v)


def _through_values(name):
    def method(self, *args, **kwargs):
        v = getattr(self._coo_values, name)(*args, **kwargs)
        return self if v is self._coo_values else _same_pattern(self, v)
    method.__name__ = name
    _method(method)


for _name in "float double half bfloat16 int long short char byte bool cfloat cdouble cpu cuda npu type_as".split():
    _through_values(_name)


# ------------------------------------------------------------------ elementwise
def _linear(name):
    """Ops that may be applied to values before they are added up."""
    def fn(input):
        return _same_pattern(input, getattr(input._coo_values, name)())
    fn.__name__ = name
    return fn


def _of_sums(name):
    """Ops that keep zero and need each element's sum."""
    def fn(input):
        s = coalesce(input)
        return _same_pattern(s, getattr(s._coo_values, name)())
    fn.__name__ = name
    return fn


for _name in ("neg", "negative"):
    _meaning(_name)(_linear(_name))
for _name in "abs absolute sqrt sin sinh asin tan tanh atan asinh atanh relu sign sgn floor ceil round trunc expm1 log1p erf deg2rad rad2deg square".split():
    _meaning(_name)(_of_sums(_name))
SparseTensor.__neg__, SparseTensor.__abs__ = SparseTensor.neg, SparseTensor.abs


@_meaning("pow")
def _pow(input, exponent):
    if not is_sparse(input) or (exponent.__class__ is Tensor or taken(exponent)):
        _refuse("pow with a tensor as exponent", input if is_sparse(input) else exponent)
    if exponent <= 0:
        _refuse(f"pow with exponent {exponent}, which makes zeros something else,", input)
    s = coalesce(input)
    return _same_pattern(s, s._coo_values.pow(exponent))


SparseTensor.__pow__ = _pow


def _number(x):
    """A number, or None for what is none."""
    if isinstance(x, SparseTensor):
        return None
    if x.__class__ is Tensor or taken(x):
        return x if not x.ndim else None
    return x if isinstance(x, NUMBER) else None


def _dense_plus(dense, s, alpha):
    """dense + alpha * s."""
    if tuple(dense.shape) != tuple(s.shape):
        raise RuntimeError(f"add: expected 'self' and 'other' to have same size, but self has size {list(dense.shape)} while other has size "
                           f"{list(s.shape)} (FYI: op2-sparse addition does not currently support broadcasting)")
    d = result_dtype(dense, s._coo_values)
    sizes, rest = _split(s)
    v = cast(s._coo_values, d) * alpha if alpha != 1 else cast(s._coo_values, d)
    flat = cast(dense, d).reshape(math.prod(sizes), *rest)
    return flat.index_add(0, _keys(s._coo_idx, sizes=sizes), v).reshape(s._coo_size)


def _joined(a, b):
    """The sum of two tensors, one's elements behind the other's."""
    cat = TABLE["cat"].fn
    r = sparse_of(cat([a._coo_idx, b._coo_idx], 1), cat([a._coo_values, b._coo_values], 0), a._coo_size)
    return coalesce(r)._coalesced_(False) if r._nnz() > math.prod(a._coo_size) else r       # (so that it does not grow without end)


def _gradient_sum(h, g):
    """g + h of two sparse gradients: their elements stay apart unless both are in order (lookups give them out of order)."""
    return _add(g, h) if g._coo_unique and h._coo_unique or g.dtype != h.dtype else _joined(g, h)


dispatch["gradient_sum"] = _gradient_sum
dispatch["gradient_sum_"] = lambda old, g: _replace(old, _gradient_sum(g, old))


@_meaning("add")
def _add(input, other, *, alpha=1):
    """Sum of two tensors of one shape: of two sparse ones sparse, of a dense and a sparse one dense."""
    if not is_sparse(input):
        if not (input.__class__ is Tensor or taken(input)):
            _refuse("add of a number", other)
        return _dense_plus(input, other, alpha)
    if not is_sparse(other):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(f"add: expected sizes of 'self' and 'other' to match, but {list(input.shape)} != {list(other.shape)}")
    if input.sparse_dim() != other.sparse_dim():
        _refuse("add of tensors with different numbers of sparse dims", input)
    mine, v = input._coo_values, other._coo_values
    d = result_dtype(mine, v)
    mine, v = cast(mine, d), cast(v, d)
    v = v * alpha if alpha != 1 else v
    if not other._nnz():
        return sparse_of(input._coo_idx, mine.clone(), input._coo_size, input._coo_unique)
    if not input._nnz():
        return sparse_of(other._coo_idx, v.clone(), input._coo_size, other._coo_unique)
    if not (input._coo_values.is_contiguous() and other._coo_values.is_contiguous()):
        return _joined(sparse_of(input._coo_idx, mine, input._coo_size), sparse_of(other._coo_idx, v, input._coo_size))
    cat = TABLE["cat"].fn
    idx, v = cat([input._coo_idx, other._coo_idx], 1), cat([mine, v], 0)
    if input._coo_unique and other._coo_unique:
        return coalesce(sparse_of(idx, v, input._coo_size))
    # Of what is not in order only those places become one that meet while both are walked through: cheap, and the sum stays what it is.
    sizes, _ = _split(input)
    first, at = _paired(_keys(input._coo_idx, sizes=sizes), _keys(other._coo_idx, sizes=sizes))
    return sparse_of(idx.index_select(1, first), _add_up(v, at, first._numel), input._coo_size)


@_meaning("sub")
def _sub(input, other, *, alpha=1):
    if not is_sparse(other):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    return _add(input, other, alpha=-alpha)


def _common_places(a, b):
    """Two coalesced tensors: (places that both have, where they are in a, in b)."""
    sizes, _ = _split(a)
    return _common(_keys(a._coo_idx, sizes=sizes), _keys(b._coo_idx, sizes=sizes))


@_meaning("mul")
def _mul(input, other):
    """Elementwise product; zero where the sparse operand has no value."""
    s, x = (input, other) if is_sparse(input) else (other, input)
    n = _number(x)
    if n is not None:
        return _same_pattern(s, s._coo_values * n)
    if not (x.__class__ is Tensor or taken(x)):
        return NotImplemented
    if tuple(s.shape) != tuple(x.shape):
        _refuse("mul of tensors of different shapes", s)
    if not is_sparse(x):
        sizes, rest = _split(s)
        return _same_pattern(s, s._coo_values * _gather(x.reshape(math.prod(sizes), *rest), _keys(s._coo_idx, sizes=sizes)))
    if s.sparse_dim() != x.sparse_dim():
        _refuse("mul of tensors with different numbers of sparse dims", s)
    a, b = coalesce(input), coalesce(other)
    i, j = _common_places(a, b)
    return sparse_of(a._coo_idx.index_select(1, i), _gather(a._coo_values, i) * _gather(b._coo_values, j), a._coo_size, True)


@_meaning("div", "true_divide")
def _div(input, other, *, rounding_mode=None):
    n = _number(other)
    if n is None or not is_sparse(input):
        _refuse("div by a tensor", input if is_sparse(input) else other)
    s = input if rounding_mode is None else coalesce(input)
    return _same_pattern(s, s._coo_values.div(n, rounding_mode=rounding_mode))


def _operators():
    def number_or_tensor(fn):
        def operator(self, other):
            return fn(self, other) if (other.__class__ is Tensor or taken(other)) or _number(other) is not None else NotImplemented
        return operator
    S = SparseTensor
    S.__add__ = number_or_tensor(_add)
    S.__radd__ = number_or_tensor(lambda self, other: _add(other, self))
    S.__sub__ = number_or_tensor(_sub)
    S.__rsub__ = number_or_tensor(lambda self, other: _sub(other, self) if (other.__class__ is Tensor or taken(other)) else _refuse("number - sparse", self))
    S.__mul__ = S.__rmul__ = number_or_tensor(_mul)
    S.__truediv__ = number_or_tensor(_div)
    S.__matmul__ = lambda self, other: _matmul(self, other)
    S.__rmatmul__ = lambda self, other: _matmul(other, self)


# ------------------------------------------------------------------ in place
def _replace(self, r):
    """Makes `self` what `r` is."""
    if mode.on and self._coo_values._rg and self.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if tuple(r._coo_size) != tuple(self._coo_size):
        raise RuntimeError(f"output with shape {list(self._coo_size)} doesn't match the broadcast shape {list(r._coo_size)}")
    self._coo_idx, self._coo_values, self._coo_unique = r._coo_idx, cast(r._coo_values, self._coo_values._stype), r._coo_unique
    return self


def _in_place(name, fn):
    def method(self, *args, **kwargs):
        r = fn(self, *args, **kwargs)
        alias.check_cast(r._coo_values._stype, self._coo_values._stype)
        return _replace(self, r)
    method.__name__ = name + "_"
    _method(method)


def _in_place_on_values(name, fn):
    """Where no history is recorded the values are written in place, so that whoever shares them (`.data`, `detach()`) sees it."""
    def method(self, *args, **kwargs):
        r = fn(self, *args, **kwargs)
        v = self._coo_values
        alias.check_cast(r._coo_values._stype, v._stype)
        if mode.on and v._rg or r._coo_idx is not self._coo_idx:
            return _replace(self, r)
        v.detach().copy_(r._coo_values)
        return self
    method.__name__ = name + "_"
    _method(method)


for _name, _fn in (("div", _div), ("neg", SparseTensor.neg)):
    _in_place_on_values(_name, _fn)
for _name, _fn in (("add", _add), ("sub", _sub), ("mul", _mul), ("abs", SparseTensor.abs),
                   ("sqrt", SparseTensor.sqrt), ("pow", _pow), ("relu", SparseTensor.relu)):
    _in_place(_name, _fn)
SparseTensor.__iadd__, SparseTensor.__isub__, SparseTensor.__imul__, SparseTensor.__itruediv__ = (
    SparseTensor.add_, SparseTensor.sub_, SparseTensor.mul_, SparseTensor.div_)


@_method
def zero_(self):
    """Takes all values away."""
    n = self.sparse_dim()
    return _replace(self, _of_nothing(self._coo_size, n, self._coo_values._stype))


@_method
def copy_(self, src, non_blocking=False):
    """Becomes what the sparse tensor `src` is."""
    if not is_sparse(src):
        raise RuntimeError("copy_() between dense and sparse Tensors is not implemented! Found self type = torch.sparse.FloatTensor and "
                           "src type = torch.FloatTensor")
    return _replace(self, _clone(src))


def _dense_in_place(name, sign):
    """Tensor.add_ and sub_ of a sparse operand: written straight into the memory where no gradient is recorded."""
    def method(self, other, *, alpha=1):
        if is_sparse(self):
            return getattr(SparseTensor, name + "_")(self, other, alpha=alpha)
        if mode.on and (self._rg or other._rg):
            # The dense values of the operand have its history.
            return getattr(self, name + "_")(to_dense(other), alpha=alpha)
        if tuple(self.shape) != tuple(other.shape):
            return _dense_plus(self, other, alpha)      # raises
        alias.check_cast(result_dtype(self, other._coo_values), self._stype)
        s = coalesce(other.detach())
        v = cast(s._coo_values, self._stype)
        alias.fill_by(self, "coo_add_", {"alpha": alpha}, s._coo_idx, v if sign > 0 else v.neg())
        return self
    return method


dispatch["add_"], dispatch["sub_"] = _dense_in_place("add", 1), _dense_in_place("sub", -1)


def _multiply_in_place(self, other):
    """Tensor.mul_ of a sparse operand: zero where that has no value."""
    return SparseTensor.mul_(self, other) if is_sparse(self) else self.mul_(to_dense(other))


dispatch["mul_"] = _multiply_in_place


# ------------------------------------------------------------------ products
def _matrix(name, x, arg):
    if x.dim() != 2:
        raise RuntimeError(f"{name}: {arg} must be a matrix, got {x.dim()}-D tensor")
    if is_sparse(x) and x.dense_dim():
        _refuse(f"{name} of a matrix with dense dims", x)


@_meaning("mm")
def _mm(input, mat2):
    """Matrix product: sparse with dense (dense result), dense with sparse (dense), sparse with sparse (sparse)."""
    _matrix("mm", input, "self")
    _matrix("mm", mat2, "mat2")
    (n, k), (k2, m) = input.shape, mat2.shape
    if k != k2:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {k2}x{m})")
    if input.dtype != mat2.dtype:
        raise RuntimeError(f"expected mat1 and mat2 to have the same dtype, but got: {input.dtype} != {mat2.dtype}")
    if not is_sparse(mat2):
        row, col = input._coo_idx.select(0, 0), input._coo_idx.select(0, 1)
        return _add_up(input._coo_values.unsqueeze(1) * _gather(mat2, col), row, n)
    if not is_sparse(input):
        return _mm(_t(mat2), input.t()).t()
    a, b = input, coalesce(mat2)
    i, j, idx = _matched(a._coo_idx, b._coo_idx)
    return coalesce(sparse_of(idx, _gather(a._coo_values, i) * _gather(b._coo_values, j), (n, m)))


@_meaning("matmul")
def _matmul(input, other):
    """@ with matrices and vectors."""
    need_tensor("matmul", input)
    need_tensor("matmul", other, "other", 2)
    if input.dim() == 2 and other.dim() == 1 and not is_sparse(other):
        return _mm(input, other.unsqueeze(1)).squeeze(1)
    if input.dim() == 1 and other.dim() == 2 and not is_sparse(input):
        return _mm(input.unsqueeze(0), other).squeeze(0)
    if input.dim() != 2 or other.dim() != 2:
        _refuse(f"matmul of a {input.dim()}-D and a {other.dim()}-D tensor", input if is_sparse(input) else other)
    return _mm(input, other)


_method(lambda self, vec: _matmul(self, vec), "mv")


@_meaning("addmm")
def _addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta * input + alpha * mat1 @ mat2."""
    product = _mm(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    start = input if beta == 1 else input * beta
    return start + product


# ------------------------------------------------------------------ shapes
@_meaning("transpose")
def _transpose(input, dim0, dim1):
    """Two sparse or two dense dims exchanged."""
    n, ndim = input.sparse_dim(), input.dim()
    i, j = wrap_dim("transpose", dim0, ndim), wrap_dim("transpose", dim1, ndim)
    if (i < n) != (j < n):
        _refuse("transpose of a sparse with a dense dim", input)
    size = list(input._coo_size)
    size[i], size[j] = size[j], size[i]
    if i >= n:
        return sparse_of(input._coo_idx, input._coo_values.transpose(i - n + 1, j - n + 1), size, input._coo_unique)
    order = list(range(n))
    order[i], order[j] = order[j], order[i]
    return sparse_of(_rows(input._coo_idx, dims=tuple(order)), input._coo_values, size, input._coo_unique and i == j)


@_meaning("t")
def _t(input):
    """Transpose of a matrix."""
    if input.dim() > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.dim()}D")
    return _transpose(input, 0, 1) if input.dim() == 2 else input


SparseTensor.T = property(_t)
SparseTensor.mT = property(_t)
SparseTensor.swapaxes = SparseTensor.swapdims = SparseTensor.transpose


@_method
def select(self, dim, index):
    """The tensor without dimension `dim`, at one index of it."""
    i, n = wrap_dim("select", dim, self.dim()), self.sparse_dim()
    extent = self._coo_size[i]
    if not -extent <= index < extent:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(self._coo_size)} at dimension {i}")
    index %= extent
    size = self._coo_size[:i] + self._coo_size[i + 1:]
    if i >= n:
        return sparse_of(self._coo_idx, self._coo_values.select(i - n + 1, index), size, self._coo_unique)
    at = _at(self._coo_idx, dim=i, index=index)
    values = _gather(self._coo_values, at)
    if n == 1:
        return values.sum(0)
    return sparse_of(_rows(self._coo_idx, dims=tuple(d for d in range(n) if d != i)).index_select(1, at), values, size, self._coo_unique)


@_method
def __getitem__(self, key):
    keys = key if isinstance(key, tuple) else (key,)
    r, d = self, 0
    for k in keys:
        if isinstance(k, slice) and k == slice(None):
            d += 1
        elif isinstance(k, (int, NUMBER_TYPES[0])) and hasattr(k, "__index__") and not isinstance(k, bool):
            r = r.select(d, int(k))
        else:
            _refuse("indexing with anything but integers and :", self)
    return r


# ------------------------------------------------------------------ reductions
def sum_of(input, dim=None, dtype=None):
    """Sum over dimensions: sparse while sparse dims are left, else dense."""
    s = input if dtype is None else _same_pattern(input, cast(input._coo_values, as_np(dtype)))
    axes = wrap_dims("sum", dim, s.dim())
    if axes is None:
        return s._coo_values.sum()
    n = s.sparse_dim()
    dense = [a - n + 1 for a in axes if a >= n]
    v = s._coo_values.sum(dense) if dense else s._coo_values
    gone = [a for a in axes if a < n]
    if not gone:
        return _same_pattern(s, v)
    if len(gone) == n:
        return v.sum(0)
    left = [i for i in range(n) if i not in gone]
    size = [s._coo_size[i] for i in left] + list(v._sizes[1:])
    return coalesce(sparse_of(_rows(s._coo_idx, dims=tuple(left)), v, size))


@_meaning("sum")
def _sum(input, dim=None, keepdim=False, *, dtype=None):
    """Sum of all elements, or over dimensions."""
    if keepdim:
        _refuse("sum with keepdim", input)
    return sum_of(input, dim, dtype)


@_method
def norm(self, p="fro", dim=None, keepdim=False, dtype=None):
    """Norm of all elements."""
    if dim is not None:
        _refuse("norm over dimensions", self)
    v = coalesce(self)._coo_values
    return TABLE["norm"].fn(v.reshape(-1), 2 if p == "fro" else p, dtype=dtype)


def softmax_of(input, dim, dtype, log):
    """Softmax along `dim` over the elements that are there."""
    s = coalesce(input if dtype is None else _same_pattern(input, cast(input._coo_values, as_np(dtype))))
    if s._coo_values._stype.kind not in "fV":
        raise NotImplementedError(f"'sparse softmax' is not implemented for dtype {s.dtype} on device {s.device}")
    axis, n = wrap_dim("softmax", dim, s.dim()), s.sparse_dim()
    v = s._coo_values
    if axis >= n:
        return _same_pattern(s, (v.log_softmax if log else v.softmax)(axis - n + 1))
    sizes, _ = _split(s)
    others = [i for i in range(n) if i != axis]
    found, group = _unique(_keys(_rows(s._coo_idx, dims=tuple(others)), sizes=tuple([sizes[i] for i in others])))
    count = found._numel
    shifted = v - _group_max(v, group, count=count)
    total = _gather(_add_up(shifted.exp(), group, count), group)
    return _same_pattern(s, shifted - total.log() if log else shifted.exp() / total)


_operators()
