"""Helpers shared by the linear algebra ops: argument checks with PyTorch's messages, products,
result types."""
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.return_types import struct
from mindtorch.core.dispatch.primitives import Primitive, primitive
from mindtorch.core.tensor.tensor import detached
from mindtorch.core.tensor.sync import of_all
from mindtorch.ops._checks import check_tensor
from mindtorch.ops.nn._fused import composite_backward
from mindtorch.ops.indexing._basic_index import pick
from mindtorch.ops.basic import cast, conj, new_full
from mindtorch.ops.linalg.matmul import bmm_, broadcast_sizes

for _name, _fields in {
        "linalg_inv_ex": "inverse info", "linalg_solve_ex": "result info", "linalg_slogdet": "sign logabsdet",
        "slogdet": "sign logabsdet", "linalg_cholesky_ex": "L info", "linalg_qr": "Q R", "qr": "Q R", "geqrf": "a tau",
        "linalg_svd": "U S Vh", "svd": "U S V", "linalg_eig": "eigenvalues eigenvectors",
        "linalg_eigh": "eigenvalues eigenvectors", "linalg_lu": "P L U", "linalg_lu_factor": "LU pivots",
        "linalg_lu_factor_ex": "LU pivots info", "_lu_with_info": "LU pivots info", "lu_unpack": "P L U",
        "linalg_ldl_factor": "LD pivots", "linalg_ldl_factor_ex": "LD pivots info",
        "linalg_lstsq": "solution residuals rank singular_values",
        "triangular_solve": "solution cloned_coefficient"}.items():
    struct(_name, _fields)


# ------------------------------------------------------------------ checks
def type_name(x):
    """Returns PyTorch's name of a tensor's dtype (Float, ComplexDouble)."""
    return scalar_type_name(x._np_dtype)


def check_matrix(f, x, arg="A"):
    """Raises RuntimeError unless there are at least two dimensions."""
    if x.ndim < 2:
        raise RuntimeError(f"{f}: The input tensor {arg} must have at least 2 dimensions.")


def check_square(f, x, arg="A"):
    """Raises RuntimeError unless the last two dimensions are equal."""
    check_matrix(f, x, arg)
    m, n = x._sizes[-2:]
    if m != n:
        where = f"{f}: " if f else ""
        raise RuntimeError(f"{where}{arg} must be batches of square matrices, but they are {m} by {n} matrices")


def check_floating_dtype(f, x, low=True):
    """Raises RuntimeError unless floating or complex; float16 and bfloat16 only if `low`."""
    d = x._np_dtype
    if d.kind not in "fcV":
        raise RuntimeError(f"{f}: Expected a floating point or complex tensor as input. Got {scalar_type_name(d)}")
    if not low and d.itemsize == 2:
        raise RuntimeError(f"{f}: Low precision dtypes not supported. Got {scalar_type_name(d)}")


def check_kernel(kernel, x):
    """Raises NotImplementedError for dtypes that LAPACK does not support."""
    d = x._np_dtype
    if d.kind not in "fc" or d.itemsize == 2:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type_name(d)}' on device {x.device}")


def square_floating(name, f, x, arg="A", low=False, kernel=None):
    """Runs the checks that most functions of one square matrix share."""
    check_tensor(name, x, arg)
    if x._np_dtype.kind not in "fc" or x._np_dtype.itemsize == 2:
        check_floating_dtype(f, x, low or kernel is not None)
        if kernel is not None:
            check_kernel(kernel, x)
    check_square(f, x, arg if arg == "A" else "A")


def broadcast_batches(b, a):
    """Returns the common batch shape of two operands. If there is none, raises PyTorch's error,
    which names `b` first."""
    if a == b:
        return a
    for i in range(1, min(len(a), len(b)) + 1):
        if a[-i] != b[-i] and a[-i] != 1 and b[-i] != 1:
            raise RuntimeError(f"The size of tensor a ({b[-i]}) must match the size of tensor b ({a[-i]}) at "
                               f"non-singleton dimension {max(len(a), len(b)) - i}")
    return broadcast_sizes(a, b)


def check_info(info, error, name, shape):
    """Raises error(name, shape, codes) if any code is nonzero. Reading the codes synchronizes."""
    codes = of_all(info)
    if codes.any():
        raise error(name, shape, codes)


# ------------------------------------------------------------------ products used by gradient rules
def mm(a, b):
    """a @ b"""
    return bmm_(a, b, ta=False, tb=False)


def hm(a, b):
    """a^H @ b"""
    return bmm_(conj(a), b, ta=True, tb=False)


def mh(a, b):
    """a @ b^H"""
    return bmm_(a, conj(b), ta=False, tb=True)


#: ct(a): a^H as a copy (on MindSpore, a strided view of complex memory costs more than copying a
#: matrix)
ct = primitive("adjoint", "a", lambda ctx, grad: ct(grad))


def column(x):
    """Returns a vector (or a batch of them) as a matrix of one column."""
    return pick(x, key=(..., None))


def row(x):
    """Returns a vector (or a batch of them) as a matrix of one row."""
    return pick(x, key=(..., None, slice(None)))


def cast_like(x, other):
    """Casts a real tensor to the dtype of the other operand."""
    return cast(x, other._np_dtype)


#: eye_like(a, m=, n=): identity of m rows and n columns in a's dtype, as a constant
eye_like = primitive("eye_like", "a, *, m, n")


def new_constant(x, size, value=0, np_dtype=None):
    """Returns a constant tensor of one value on x's device, in its dtype or `np_dtype`."""
    return new_full(x, size=size, value=value, np_dtype=x._np_dtype if np_dtype is None else np_dtype)


# ------------------------------------------------------------------ gradients
class _Partial(Primitive):
    """Primitive whose gradient rules receive None, not zeros, for outputs that no gradient reached.
    """

    def backward(self, node, gs):
        g = gs[0] if len(node._input_metadata) == 1 else list(gs)
        if self.joint:
            return self.grads[0](node, g)
        return [None if e is None or rule is None else rule(node, g) for e, rule in zip(node._next_edges, self.grads)]


def partial(prim):
    """Makes the gradient rules of a primitive with several outputs distinguish an unused output
    from one with zero gradient."""
    prim.prim.__class__ = _Partial
    return prim


def total(*terms):
    """Returns the sum of the gradients that are not None, or None."""
    r = None
    for t in terms:
        if t is not None:
            r = t if r is None else r + t
    return r


def composite_grads(compose, inputs, g):
    """Differentiates a kernel through the same function composed of tensor ops. Returns None for
    inputs that need no gradient."""
    gs = composite_backward(compose, inputs, g)
    if mode.on:
        return gs
    return tuple(None if x is None else detached(x) for x in gs)
