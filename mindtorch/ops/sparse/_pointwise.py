"""Sparse COO tensors: elementwise and in-place ops."""
import math

from mindtorch.core.tensor import inplace
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.scalars import NUMBER
from mindtorch.core.dispatch.type_promotion import result_dtype
from mindtorch.core.tensor.sparse import Sparse, SparseTensor, dispatch, meaning, sparse_of
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import Tensor, attributes, is_tensor
from mindtorch.ops.basic import cast
from mindtorch.ops.sparse import (_add_up, _common, _gather, _keys, _implements, _merged, _method, _nonzero, _empty_coo, _paired, _raise_unsupported, _rows,
                                  _same_pattern, _split, coalesce, is_sparse, to_dense)
from mindtorch.ops.sparse._coo import _clone


# ------------------------------------------------------------------ elementwise
def _linear(name):
    """Defines an op that may be applied to values before duplicates are summed."""
    def fn(input):
        return _same_pattern(input, getattr(input._sp_values, name)())
    fn.__name__ = name
    return fn


def _of_sums(name, fn):
    """Defines an op that preserves zero and needs the sum of each element's duplicates."""
    def of_sums(input, *args, **kwargs):
        s = coalesce(input)
        return _same_pattern(s, fn(s._sp_values, *args, **kwargs))
    of_sums.__name__ = name
    return of_sums


#: ops that preserve zero and have to be applied to coalesced values
KEEPING = """abs absolute sqrt sin sinh asin arcsin asinh arcsinh tan tanh arctan atan atanh arctanh relu sign sgn floor ceil round trunc expm1 log1p
 erf erfinv deg2rad rad2deg square frac isnan isinf isposinf isneginf signbit nan_to_num""".split()
LINEAR = ("neg", "negative", "conj", "positive")

for _name in LINEAR:
    _implements(_name)(_linear(_name))
for _name in KEEPING:
    _implements(_name)(_of_sums(_name, OPS[_name].fn if _name in OPS else getattr(Tensor, _name)))
for _name in ("nn.functional.relu", "special.expm1", "special.log1p", "special.erf", "special.erfinv"):
    meaning(_name, getattr(SparseTensor, _name.rpartition(".")[2]))
SparseTensor.__neg__, SparseTensor.__abs__, SparseTensor.__pos__ = SparseTensor.neg, SparseTensor.abs, lambda self: self
SparseTensor.real = property(lambda self: _same_pattern(self, self._sp_values.real))
SparseTensor.imag = property(lambda self: _same_pattern(self, self._sp_values.imag))
meaning("real", lambda input: input.real)
meaning("imag", lambda input: input.imag)
_round = SparseTensor.round


@_implements("round")
def _rounded(input, *, decimals=0):
    if decimals:
        _raise_unsupported("round with decimals", input)
    return _round(input)


@_implements("pow")
def _pow(input, exponent):
    if not is_sparse(input) or (exponent.__class__ is Tensor or is_tensor(exponent)) and exponent.ndim:
        _raise_unsupported("pow with a tensor as exponent", input if is_sparse(input) else exponent)
    if exponent == 0:
        raise RuntimeError("pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor dense")
    s = coalesce(input)
    return _same_pattern(s, s._sp_values.pow(exponent))


SparseTensor.__pow__ = _pow


@_implements("nn.functional.dropout")
def _dropout(input, p=0.5, training=True, inplace=False):
    """Returns the input. Dropout in training with p > 0 is not implemented."""
    if training and p:
        _raise_unsupported("dropout in training", input)
    return input


def _number(x):
    """Returns x if it is a Python scalar or a 0-dim dense tensor, else None."""
    if isinstance(x, Sparse):
        return None
    if x.__class__ is Tensor or is_tensor(x):
        return x if not x.ndim else None
    return x if isinstance(x, NUMBER) else None


def _dense_plus(dense, s, alpha):
    """Computes dense + alpha * s."""
    if tuple(dense.shape) != tuple(s.shape):
        raise RuntimeError(f"add: expected 'self' and 'other' to have same size, but self has size {list(dense.shape)} while other has size "
                           f"{list(s.shape)} (FYI: op2-sparse addition does not currently support broadcasting)")
    d = result_dtype(dense, s._sp_values)
    sizes, rest = _split(s)
    v = cast(s._sp_values, d) * alpha if alpha != 1 else cast(s._sp_values, d)
    flat = cast(dense, d).reshape(math.prod(sizes), *rest)
    return flat.index_add(0, _keys(s._coo_idx, sizes=sizes), v).reshape(s._sp_size)


def _joined(a, b):
    """Adds two tensors by concatenating their elements."""
    cat = OPS["cat"].fn
    r = sparse_of(cat([a._coo_idx, b._coo_idx], 1), cat([a._sp_values, b._sp_values], 0), a._sp_size)
    # keeps repeated sums from growing without bound
    return coalesce(r)._coalesced_(False) if r._nnz() > math.prod(a._sp_size) else r


def _gradient_sum(a, b):
    """Computes a + b of two sparse gradients.

    Gradients of lookups are concatenated unless both are coalesced. PyTorch merges elements only if
    their values are contiguous; the values of a sum's gradient are not contiguous in PyTorch, but
    are materialized here.
    """
    if a._coo_unique and b._coo_unique or a.dtype != b.dtype or not (a._lookup and b._lookup):
        return _add(a, b)
    r = _joined(a, b)
    attributes(r)["_lookup"] = True
    return r


def _gradient_at_unique_indices(s, g):
    """Returns the gradient of a tensor with duplicate indices from the gradient of its values.
    Duplicates have the same gradient."""
    idx, at = _merged(s._coo_idx, sizes=_split(s)[0])
    return sparse_of(idx, OPS["zeros"].fn((idx._sizes[1], *g._sizes[1:]), dtype=g.dtype, device=g.device).index_copy(0, at, g), s._sp_size, True)


dispatch["gradient at unique places"] = _gradient_at_unique_indices
# In the engine's buffers an arriving gradient is the left operand, for .grad the right operand.
# This determines the order of the elements.
def _into(name, out, r):
    """Implements `out=` of sparse tensors: replaces the contents of `out` with the result."""
    if not (is_sparse(out) and is_sparse(r)):
        raise RuntimeError(f"{name}: expected `out` to have layout {r.layout}, but got {out.layout}")
    if mode.on and (out._requires_grad_ or r._requires_grad_):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.")
    inplace.check_cast(r._sp_values._np_dtype, out._sp_values._np_dtype)
    out._coo_idx, out._sp_values, out._sp_size, out._coo_unique = r._coo_idx, cast(r._sp_values, out._sp_values._np_dtype), r._sp_size, r._coo_unique
    return out


dispatch["out="] = _into
dispatch["gradient_sum"] = _gradient_sum
dispatch["gradient_sum_"] = lambda old, g: _set_contents(old, _gradient_sum(old, g))


@_implements("add")
def _add(input, other, *, alpha=1):
    """Adds two tensors of one shape. Two sparse tensors return a sparse one; a dense and a sparse
    tensor return a dense one."""
    if not is_sparse(input):
        if not (input.__class__ is Tensor or is_tensor(input)):
            _raise_unsupported("add of a number", other)
        return _dense_plus(input, other, alpha)
    if not is_sparse(other):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(f"add: expected sizes of 'self' and 'other' to match, but {list(input.shape)} != {list(other.shape)}")
    if input.sparse_dim() != other.sparse_dim():
        _raise_unsupported("add of tensors with different numbers of sparse dims", input)
    mine, v = input._sp_values, other._sp_values
    d = result_dtype(mine, v)
    mine, v = cast(mine, d), cast(v, d)
    v = v * alpha if alpha != 1 else v
    if not other._nnz():
        return sparse_of(input._coo_idx, mine.clone(), input._sp_size, input._coo_unique)
    if not input._nnz():
        return sparse_of(other._coo_idx, v.clone(), input._sp_size, other._coo_unique)
    if not (input._sp_values.is_contiguous() and other._sp_values.is_contiguous()):
        return _joined(sparse_of(input._coo_idx, mine, input._sp_size), sparse_of(other._coo_idx, v, input._sp_size))
    cat = OPS["cat"].fn
    idx, v = cat([input._coo_idx, other._coo_idx], 1), cat([mine, v], 0)
    if input._coo_unique and other._coo_unique:
        return coalesce(sparse_of(idx, v, input._sp_size))
    # If an operand is not coalesced, one pass over both merges only the equal indices that meet.
    # This is cheap and does not change the sum.
    sizes, _ = _split(input)
    first, at = _paired(_keys(input._coo_idx, sizes=sizes), _keys(other._coo_idx, sizes=sizes))
    return sparse_of(idx.index_select(1, first), _add_up(v, at, first._numel), input._sp_size)


@_implements("sub")
def _sub(input, other, *, alpha=1):
    if not is_sparse(other):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    return _add(input, other, alpha=-alpha)


def _common_indices(a, b):
    """Returns the positions, in a and in b, of the indices that two coalesced tensors share."""
    sizes, _ = _split(a)
    return _common(_keys(a._coo_idx, sizes=sizes), _keys(b._coo_idx, sizes=sizes))


def _broadcast_mul(s, x):
    """Multiplies a sparse tensor and a dense one of another shape."""
    nd, size = s.dim(), tuple(s.shape)
    shape = (1,) * (nd - x.dim()) + tuple(x.shape)
    if len(shape) == nd and all([k in (1, n) for k, n in zip(shape, size)]):
        # Each element is multiplied by the dense value at its coordinates, in the dims that the
        # dense tensor does not broadcast.
        n = s.sparse_dim()
        x = x.reshape(shape)
        if len(shape[n:]):
            x = x.expand(*shape[:n], *[k if n_ == k else 1 for k, n_ in zip(shape[n:], size[n:])])
        dims = [i for i in range(n) if shape[i] != 1]
        rest = x.shape[n:]
        if not dims:
            return _same_pattern(s, s._sp_values * x.reshape(1, *rest))
        keys = _keys(_rows(s._coo_idx, dims=tuple(dims)), sizes=tuple([shape[i] for i in dims]))
        return _same_pattern(s, s._sp_values * _gather(x.reshape(math.prod([shape[i] for i in dims]), *rest), keys))
    # The result has more sparse elements: one at each new index along the broadcast dims.
    if s.dense_dim():
        _raise_unsupported("mul of a tensor with dense dims and one of more dimensions", s)
    full_size = _broadcast(size, tuple(x.shape))
    product = to_dense(s).expand(*full_size) * x
    return _at_nonzeros_of(product, to_dense(_same_pattern(s, OPS["ones_like"].fn(s._sp_values.detach()))).expand(*full_size))


def _broadcast(a, b):
    n = max(len(a), len(b))
    pairs = list(zip((1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b))
    if any([x != y and 1 not in (x, y) for x, y in pairs]):
        raise RuntimeError(f"The size of tensor a {list(a)} must match the size of tensor b {list(b)}")
    return tuple([y if x == 1 else x for x, y in pairs])


def _at_nonzeros_of(dense, pattern):
    """Returns the elements of a dense tensor where another one is nonzero."""
    idx = _nonzero(pattern, sparse_dim=pattern.ndim)
    return sparse_of(idx, _gather(dense.reshape(-1), _keys(idx, sizes=tuple(dense.shape))), dense.shape, True)


@_implements("mul", "multiply")
def _mul(input, other):
    """Computes the elementwise product. It is zero where the sparse operand has no element."""
    s, x = (input, other) if is_sparse(input) else (other, input)
    n = _number(x)
    if n is not None:
        return _same_pattern(s, s._sp_values * n)
    if not (x.__class__ is Tensor or is_tensor(x)):
        return NotImplemented
    if not is_sparse(x):
        if tuple(s.shape) != tuple(x.shape):
            return _broadcast_mul(s, x)
        sizes, rest = _split(s)
        return _same_pattern(s, s._sp_values * _gather(x.reshape(math.prod(sizes), *rest), _keys(s._coo_idx, sizes=sizes)))
    if s.dim() != x.dim() or s.sparse_dim() != x.sparse_dim() or tuple(s.shape) != tuple(x.shape):
        raise RuntimeError(f"sparse_binary_op_intersection_{s.device.type}(): expects sparse inputs with equal dimensionality, number of sparse "
                           f"dimensions, and shape of sparse dimensions, but {list(input.shape)} and {list(other.shape)} were given")
    a, b = coalesce(input), coalesce(other)
    i, j = _common_indices(a, b)
    return sparse_of(a._coo_idx.index_select(1, i), _gather(a._sp_values, i) * _gather(b._sp_values, j), a._sp_size, True)


@_implements("div", "divide", "true_divide")
def _div(input, other, *, rounding_mode=None):
    n = _number(other)
    if n is None or not is_sparse(input):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor" +
                           (f" (got shape {list(other.shape)} for divisor)" if is_tensor(other) else ""))
    s = input if rounding_mode is None else coalesce(input)
    return _same_pattern(s, s._sp_values.div(n, rounding_mode=rounding_mode))


@_implements("floor_divide")
def _floor_divide(input, other):
    return _div(input, other, rounding_mode="floor")


SparseTensor.__floordiv__ = _floor_divide


def _operators():
    def number_or_tensor(fn):
        def operator(self, other):
            return fn(self, other) if (other.__class__ is Tensor or is_tensor(other)) or _number(other) is not None else NotImplemented
        return operator
    S = SparseTensor
    S.__add__ = number_or_tensor(_add)
    S.__radd__ = number_or_tensor(lambda self, other: _add(other, self))
    S.__sub__ = number_or_tensor(_sub)
    S.__rsub__ = number_or_tensor(
        lambda self, other: _sub(other, self) if (other.__class__ is Tensor or is_tensor(other)) else _raise_unsupported("number - sparse", self))
    S.__mul__ = S.__rmul__ = number_or_tensor(_mul)
    S.__truediv__ = number_or_tensor(_div)


# ------------------------------------------------------------------ in place
def _set_contents(self, r):
    """Replaces the contents of `self` with those of `r`."""
    if tuple(r._sp_size) != tuple(self._sp_size):
        raise RuntimeError(f"output with shape {list(self._sp_size)} doesn't match the broadcast shape {list(r._sp_size)}")
    self._put_values(cast(r._sp_values, self._sp_values._np_dtype))
    self._coo_idx, self._coo_unique = r._coo_idx, r._coo_unique
    return self


def _in_place(name, fn):
    def method(self, *args, **kwargs):
        r = fn(self, *args, **kwargs)
        inplace.check_cast(r._sp_values._np_dtype, self._sp_values._np_dtype)
        return _set_contents(self, r)
    method.__name__ = name + "_"
    _method(method)


def _in_place_on_values(name, fn):
    """Defines an in-place op.

    If no gradient is recorded, the values are modified in place. The change is then visible to
    tensors that share them (`.data`, `detach()`).
    """
    def method(self, *args, **kwargs):
        r = fn(self, *args, **kwargs)
        v = self._sp_values
        inplace.check_cast(r._sp_values._np_dtype, v._np_dtype)
        if mode.on and v._requires_grad_ or r._coo_idx is not self._coo_idx:
            return _set_contents(self, r)
        v.detach().copy_(r._sp_values)
        return self
    method.__name__ = name + "_"
    _method(method)


def _in_place_of_sums(name, fn):
    def method(self, *args, **kwargs):
        if not self._coo_unique and self._nnz():
            raise RuntimeError(f"{name}_ requires coalesced input")
        r = fn(self, *args, **kwargs)
        inplace.check_cast(r._sp_values._np_dtype, self._sp_values._np_dtype)
        return _set_contents(self, r)
    method.__name__ = name + "_"
    _implements(name + "_")(method)


for _name, _fn in (("div", _div), ("true_divide", _div), ("neg", SparseTensor.neg), ("negative", SparseTensor.neg)):
    _in_place_on_values(_name, _fn)
for _name, _fn in (("add", _add), ("sub", _sub), ("mul", _mul), ("pow", _pow), ("floor_divide", _floor_divide)):
    _in_place(_name, _fn)
for _name in KEEPING:
    if _name not in ("isnan", "isinf", "isposinf", "isneginf", "signbit", "square"):
        _in_place_of_sums(_name, getattr(SparseTensor, _name))
SparseTensor.__iadd__, SparseTensor.__isub__, SparseTensor.__imul__, SparseTensor.__itruediv__ = (
    SparseTensor.add_, SparseTensor.sub_, SparseTensor.mul_, SparseTensor.div_)


@_method
def zero_(self):
    """Removes all elements."""
    n = self.sparse_dim()
    return _set_contents(self, _empty_coo(self._sp_size, n, self._sp_values._np_dtype))


@_method
def copy_(self, src, non_blocking=False):
    """Copies the sparse tensor `src`."""
    if not is_sparse(src):
        raise RuntimeError("copy_() between dense and sparse Tensors is not implemented! Found self type = torch.sparse.FloatTensor and "
                           "src type = torch.FloatTensor")
    return _set_contents(self, _clone(src))


def _dense_in_place(name, sign):
    """Implements Tensor.add_ and sub_ with a sparse operand. If no gradient is recorded, it writes
    directly to the memory."""
    def method(self, other, *, alpha=1):
        if is_sparse(self):
            return getattr(SparseTensor, name + "_")(self, other, alpha=alpha)
        if mode.on and (self._requires_grad_ or other._requires_grad_):
            # The dense values of the operand keep its autograd graph.
            return getattr(self, name + "_")(to_dense(other), alpha=alpha)
        if tuple(self.shape) != tuple(other.shape):
            return _dense_plus(self, other, alpha)      # raises
        inplace.check_cast(result_dtype(self, other._sp_values), self._np_dtype)
        # PyTorch adds the duplicates of an index one after another to contiguous memory, and their
        # sum to other memory.
        s = other if self._np_dtype.kind in "fiu" and self.is_contiguous() else coalesce(other)
        v = cast(s._sp_values, self._np_dtype)
        inplace.fill_by(self, "coo_add_", {"alpha": alpha, "once": s._coo_unique}, s._coo_idx, v if sign > 0 else v.neg())
        return self
    return method


meaning("add_", _dense_in_place("add", 1))
meaning("sub_", _dense_in_place("sub", -1))


def _multiply_in_place(self, other):
    """Implements Tensor.mul_ with a sparse operand. The result is zero where the operand has no
    element."""
    return SparseTensor.mul_(self, other) if is_sparse(self) else self.mul_(to_dense(other))


meaning("mul_", _multiply_in_place)


_operators()
