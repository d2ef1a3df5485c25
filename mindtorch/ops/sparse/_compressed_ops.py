"""Computations with compressed sparse tensors."""
import math

from mindtorch.core.tensor import inplace
from mindtorch.core.dispatch.type_promotion import result_dtype
from mindtorch.core.tensor.sparse import CompressedTensor, Sparse, SparseUse, compressed, compressed_of, dispatch
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.ops._checks import wrap_dims
from mindtorch.ops.basic import cast
from mindtorch.ops.sparse import _dots, _compressed_to_coo_indices, _product, _top, coalesce, is_sparse
from mindtorch.ops.sparse._compressed import (_set_contents, _implements, _t, blocks, by_columns, pack, parts, layout_name, to_coo)
from mindtorch.ops.sparse._pointwise import KEEPING, LINEAR, _number
from mindtorch.ops.sparse._products import addmm_by, by_rows, check_pair, linear_by, matmul_by, product_of_rows


def _raise_unsupported(name, x):
    raise SparseUse(f"{name} is not implemented for a sparse tensor of dtype {x.dtype} on device {x.device} (layout torch.sparse_{x._kind})")


# ------------------------------------------------------------------ products
def _check_plain_matrix(name, x):
    if x.dim() != 2 or x.dense_dim():
        _raise_unsupported(f"{name} of a tensor with batch or dense dimensions", x)


def _rows_of(x):
    """Returns a matrix in the form that products use.

    (values, where each row, or column, begins, the other coordinate, True if compressed by columns)
    """
    if blocks(x):
        s = to_coo(x)
        return (*by_rows(s._coo_idx, s._sp_values, x.shape[0]), False)
    return x._sp_values, x._sp_ptr, x._sp_ind, by_columns(x._kind)


@_implements("mm")
def _mm(input, mat2):
    """Computes a matrix product. It is dense if one operand is dense; two compressed operands
    return CSR."""
    for x in (input, mat2):
        if isinstance(x, CompressedTensor) and x.dim() == 2:
            _check_plain_matrix("mm", x)
        elif isinstance(x, Sparse):
            raise RuntimeError(f"addmm: computation on {x.device.type.upper()} is not implemented for {layout_name(input)} @ {layout_name(mat2)}")
    n, m = check_pair("mm", input, mat2)
    if not isinstance(mat2, CompressedTensor):
        v, ptr, ind, columns = _rows_of(input)
        return _product(v, ptr, ind, mat2, rows=n, ta=columns)
    if not isinstance(input, CompressedTensor):
        return _mm(_t(mat2), input.t()).t()
    a, b = [_rows_of(x) if not by_columns(x._kind) else _rows_of(x.to_sparse_csr() if not blocks(x) else x) for x in (input, mat2)]
    v, ptr, ind = product_of_rows(a[:3], b[:3], m)
    return compressed_of("csr", ptr, ind, v, (n, m))


@_implements("matmul", "linalg.matmul")
def _matmul(input, other):
    """Computes @ of matrices and vectors."""
    for x in (input, other):
        if x.dim() > 2 and isinstance(x, Sparse):
            raise RuntimeError(f"expand is unsupported for {layout_name(x)} tensors")
    return matmul_by(_mm, input, other)


@_implements("mv")
def _mv(input, vec):
    """Multiplies a matrix and a vector."""
    if input.dim() != 2 or vec.dim() != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {input.dim()}, {vec.dim()}")
    return _matmul(input, vec)


@_implements("addmm")
def _addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """Computes beta * input + alpha * mat1 @ mat2."""
    if isinstance(mat1, Sparse) and isinstance(mat2, Sparse):
        product = _mm(mat1, mat2)
        if isinstance(input, Sparse) and not isinstance(input, CompressedTensor):
            raise RuntimeError(f"addmm: computation is not implemented for {layout_name(input)} + {layout_name(mat1)} @ {layout_name(mat2)}")
        return _add(input * beta, product, alpha=alpha)
    return addmm_by(_mm, input, mat1, mat2, beta, alpha)


@_implements("addmv")
def _addmv(input, mat, vec, *, beta=1, alpha=1):
    """Computes beta * input + alpha * mat @ vec."""
    product = _mv(mat, vec)
    return product * alpha if beta == 0 else input * beta + product * alpha


compressed["nn.functional.linear"] = lambda input, weight, bias=None: linear_by(_matmul, input, weight, bias)
CompressedTensor.__matmul__ = lambda self, other: OPS["matmul"].fn(self, other)
CompressedTensor.__rmatmul__ = lambda self, other: OPS["matmul"].fn(other, self)


def reduced_mm(mat1, mat2, reduce):
    """Multiplies a CSR matrix and a dense one, with the sum, mean, maximum or minimum of the
    products of each row and column.

    The result is 0 where there are no products.
    """
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if reduce == "prod":
        raise RuntimeError(f"sparse_mm_reduce: reduce type of {reduce} has not been enabled.")
    if isinstance(mat2, Sparse):
        raise RuntimeError(f"Expected tensor to have Strided Layout, but got tensor with {layout_name(mat2)} Layout (while checking arguments for "
                           "sparse_mm_reduce)")
    if mat1._kind != "csr":
        if not isinstance(mat1, CompressedTensor):
            _raise_unsupported(f"torch.sparse.mm with reduce={reduce!r}", mat1)
        raise RuntimeError(f"sparse_mm_reduce: expect self to be SparseCsr, got {layout_name(mat1)}")
    product = _mm(mat1, mat2)
    if reduce == "sum":
        return product
    v, ptr, ind = mat1._sp_values, mat1._sp_ptr, mat1._sp_ind
    if reduce == "mean":
        counts = (ptr[1:] - ptr[:-1]).clamp(min=1)
        return product / cast(counts, product._np_dtype).unsqueeze(1)
    at = _top(v.detach(), ptr, ind, mat2.detach(), largest=reduce == "amax")
    if not v._numel:
        return product
    safe = at.clamp(min=0)
    flat = safe.reshape(-1)
    terms = v.index_select(0, flat).reshape(safe.shape) * mat2.gather(0, ind.long().index_select(0, flat).reshape(safe.shape))
    return OPS["where"].fn(at >= 0, terms, terms.new_zeros(()))


def sampled_addmm(input, mat1, mat2, beta, alpha):
    """Computes beta * input + alpha * mat1 @ mat2 at the elements of the CSR tensor `input`."""
    if not isinstance(input, CompressedTensor):
        if isinstance(input, Sparse):
            _raise_unsupported("sampled_addmm", input)
        raise NotImplementedError(f"sampled_addmm is not implemented for layout torch.strided, dtype {input.dtype}, device {input.device}")
    if input._kind != "csr":
        raise RuntimeError(f"sampled_addmm: Expected result to have sparse csr layout, but got {layout_name(input)}")
    if mat1.dtype != mat2.dtype or mat1.dtype != input.dtype:
        raise RuntimeError(f"sampled_addmm: Expected mat1 and mat2 to have the same dtype, but got {mat1.dtype} and {mat2.dtype} for {input.dtype}")
    for name, m in (("mat1", mat1), ("mat2", mat2)):
        if isinstance(m, Sparse):
            raise RuntimeError(f"sampled_addmm: Expected {name} to have strided layout, but got {layout_name(m)}")
        if m.dim() < 2 or m.dim() != input.dim() or tuple(m.shape[:-2]) != tuple(input.shape[:-2]):
            raise RuntimeError(f"sampled_addmm: Expected {name} to be a matrix with the batch dimensions of input {list(input.shape)}, but got {list(m.shape)}")
    if mat1.shape[-1] != mat2.shape[-2]:
        raise RuntimeError(f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied ({list(mat1.shape[-2:])} and {list(mat2.shape[-2:])})")
    if mat1.shape[-2] != input.shape[-2] or mat2.shape[-1] != input.shape[-1]:
        raise RuntimeError(f"sampled_addmm: the product of sizes {list(mat1.shape)} and {list(mat2.shape)} does not have the size {list(input.shape)} of input")
    batch, (r, c), _ = parts(input)
    n, k = math.prod(batch), mat1.shape[-1]
    a, b = mat1.reshape(n * r, k), mat2.transpose(-1, -2).reshape(n * c, k)
    ptr, ind = input._sp_ptr, input._sp_ind
    if batch:
        # Merges the batch into one tall matrix.
        idx, _ = _compressed_to_coo_indices(ptr, ind, columns=False, block=(1, 1))
        which = OPS["arange"].fn(n, device=input.device).repeat_interleave(ind.shape[-1])
        _, ptr, ind = by_rows(OPS["stack"].fn([idx[-2] + which * r, idx[-1] + which * c]), input._sp_values, n * r)
    v = _dots(a, b, ptr, ind).reshape(input._sp_values.shape)
    v = v if alpha == 1 else v * alpha
    return input._with_values(v if beta == 0 else v + (input._sp_values if beta == 1 else input._sp_values * beta))


# ------------------------------------------------------------------ elementwise
def _of_values(name, fn):
    def of_values(input, *args, **kwargs):
        return input._with_values(fn(input._sp_values, *args, **kwargs))
    of_values.__name__ = name
    _implements(name)(of_values)


for _name in (*KEEPING, *LINEAR, "angle"):
    _of_values(_name, OPS[_name].fn if _name in OPS else getattr(Tensor, _name))
for _name in ("relu", "special.expm1", "special.log1p", "special.erf", "special.erfinv"):
    compressed["nn.functional.relu" if _name == "relu" else _name] = getattr(CompressedTensor, _name.removeprefix("special."))
CompressedTensor.__neg__, CompressedTensor.__abs__, CompressedTensor.__pos__ = CompressedTensor.neg, CompressedTensor.abs, lambda self: self
CompressedTensor.real = property(lambda self: self._with_values(self._sp_values.real))
CompressedTensor.imag = property(lambda self: self._with_values(self._sp_values.imag))
compressed["real"], compressed["imag"] = (lambda input: input.real), (lambda input: input.imag)


@_implements("nn.functional.dropout")
def _dropout(input, p=0.5, training=True, inplace=False):
    """Returns the input. Dropout in training with p > 0 is not implemented."""
    if training and p:
        _raise_unsupported("dropout in training", input)
    return input


def _like_first(x, s):
    """Converts a COO result to the layout of x."""
    return pack(x._kind, s._coo_idx, s._sp_values, tuple(s.shape), 0 if s.sparse_dim() == 2 else s.sparse_dim() - 2, blocks(x))


def _same_indices(a, b):
    return a._kind == b._kind and a._sp_ptr is b._sp_ptr and a._sp_ind is b._sp_ind and a._sp_values.shape == b._sp_values.shape


@_implements("add")
def _add(input, other, *, alpha=1):
    """Adds two tensors of one size. Two compressed tensors of one layout return a compressed one; a
    dense operand returns a dense one."""
    s = input if isinstance(input, CompressedTensor) else other
    if not (is_tensor(input) and is_tensor(other)):
        raise RuntimeError(f"add: expected 'self' and 'other' to have same size, but one is a number and the other has size {list(s.shape)} (FYI: "
                           "op2-sparse addition does not currently support broadcasting)")
    if tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(f"add: expected 'self' and 'other' to have same size, but self has size {list(input.shape)} while other has size "
                           f"{list(other.shape)} (FYI: op2-sparse addition does not currently support broadcasting)")
    if isinstance(input, Sparse) and isinstance(other, Sparse):
        if layout_name(input) != layout_name(other) or blocks(input) != blocks(other):
            raise RuntimeError(f"add: expected two tensors of one layout, but got {layout_name(input)} and {layout_name(other)}")
        if _same_indices(input, other):
            return input._with_values(input._sp_values.add(other._sp_values, alpha=alpha))
        return _like_first(input, coalesce(dispatch["add"](to_coo(input), to_coo(other), alpha=alpha)))
    if isinstance(input, CompressedTensor):
        d = result_dtype(input._sp_values, other)
        return dispatch["add"](cast(other, d) * alpha if alpha != 1 else other, to_coo(input))
    return dispatch["add"](input, to_coo(other), alpha=alpha)


@_implements("sub")
def _sub(input, other, *, alpha=1):
    """Computes input - alpha * other."""
    return _add(input, other, alpha=-alpha)


@_implements("mul", "multiply")
def _mul(input, other):
    """Computes the elementwise product. It is zero where a compressed operand has no element."""
    s, x = (input, other) if isinstance(input, CompressedTensor) else (other, input)
    n = _number(x)
    if n is not None:
        return s._with_values(s._sp_values * n)
    if not (x.__class__ is Tensor or is_tensor(x)):
        return NotImplemented
    if tuple(s.shape) != tuple(x.shape):
        raise RuntimeError(f"mul: operands of a sparse compressed tensor must have its size {list(s.shape)}, but got {list(x.shape)}")
    if isinstance(x, CompressedTensor):
        if _same_indices(s, x):
            return s._with_values(s._sp_values * x._sp_values)
        return _like_first(s, dispatch["mul"](to_coo(s), to_coo(x)))
    if is_sparse(x):
        return _like_first(s, dispatch["mul"](to_coo(s), x))
    return s._with_values(s._sp_values * x.sparse_mask(s)._sp_values)


@_implements("div", "divide", "true_divide")
def _div(input, other, *, rounding_mode=None):
    n = _number(other)
    if n is None or not isinstance(input, CompressedTensor):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor")
    return input._with_values(input._sp_values.div(n, rounding_mode=rounding_mode))


@_implements("pow")
def _pow(input, exponent):
    n = _number(exponent)
    if n is None or not isinstance(input, CompressedTensor):
        _raise_unsupported("pow with a tensor as exponent", input if isinstance(input, CompressedTensor) else exponent)
    if n == 0:
        raise RuntimeError("pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor dense")
    return input._with_values(input._sp_values.pow(n))


def _operators():
    def checked(fn):
        def operator(self, other):
            return fn(self, other) if (other.__class__ is Tensor or is_tensor(other)) or _number(other) is not None else NotImplemented
        return operator
    S = CompressedTensor
    S.__add__, S.__radd__ = checked(_add), checked(lambda self, other: _add(other, self))
    S.__sub__, S.__rsub__ = checked(_sub), checked(lambda self, other: _sub(other, self))
    S.__mul__ = S.__rmul__ = checked(_mul)
    S.__truediv__, S.__pow__ = checked(_div), checked(_pow)


_operators()


def _in_place(name, fn):
    def method(self, *args, **kwargs):
        if not isinstance(self, CompressedTensor):
            return getattr(self, name + "_")(*[a.to_dense() if isinstance(a, CompressedTensor) else a for a in args], **kwargs)
        r = fn(self, *args, **kwargs)
        if not isinstance(r, CompressedTensor):
            raise RuntimeError(f"Sparse {self._kind.upper()} tensors do not have is_contiguous: {name}_ would make the tensor dense")
        inplace.check_cast(r._sp_values._np_dtype, self._sp_values._np_dtype)
        return _set_contents(self, r)
    method.__name__ = name + "_"
    _implements(name + "_")(method)


for _name in (*KEEPING, "neg", "negative"):
    if _name not in ("isnan", "isinf", "isposinf", "isneginf", "signbit"):
        _in_place(_name, getattr(CompressedTensor, _name))
for _name, _fn in (("add", _add), ("sub", _sub), ("mul", _mul), ("div", _div), ("pow", _pow)):
    _in_place(_name, _fn)
CompressedTensor.__iadd__, CompressedTensor.__isub__, CompressedTensor.__imul__, CompressedTensor.__itruediv__ = (
    CompressedTensor.add_, CompressedTensor.sub_, CompressedTensor.mul_, CompressedTensor.div_)


# ------------------------------------------------------------------ sums
@_implements("sum")
def _sum(input, dim=None, keepdim=False, *, dtype=None):
    """Sums all elements, or over dims of a CSR matrix, which are kept with size 1."""
    if dim is None:
        return input._sp_values.sum(dtype=dtype)
    axes = wrap_dims("sum", dim, input.dim())
    if not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    if input._kind != "csr":
        raise RuntimeError(f"Currently the only compressed sparse format supported for sum.dim_IntList is CSR, but got layout {layout_name(input)}")
    _check_plain_matrix("sum", input)
    s = to_coo(input if dtype is None else input.to(dtype))
    r = dispatch["sum"](s, list(range(2)) if axes is None else list(axes), True)
    if not isinstance(r, Sparse):
        r = r.to_sparse()
    return pack("csr", coalesce(r)._coo_idx, coalesce(r)._sp_values, tuple(r.shape), 0)
