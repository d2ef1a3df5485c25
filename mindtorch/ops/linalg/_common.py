"""What the linear algebra ops share: argument checks with torch's messages, products, result types, the error class."""
from mindtorch.core.alias import title
from mindtorch.core.grad_mode import mode
from mindtorch.core.return_types import struct
from mindtorch.core.tape import Primitive, primitive
from mindtorch.core.tensor import Tensor, detached, taken
from mindtorch.core.values import of_all
from mindtorch.ops._checks import need_tensor
from mindtorch.ops.nn._fused import again
from mindtorch.ops.indexing._region import pick
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
    """torch's name of a tensor's dtype (Float, ComplexDouble)."""
    return title(x._stype)


def need_matrix(f, x, arg="A"):
    """RuntimeError unless there are at least two dimensions."""
    if x.ndim < 2:
        raise RuntimeError(f"{f}: The input tensor {arg} must have at least 2 dimensions.")


def need_square(f, x, arg="A"):
    """RuntimeError unless the last two dimensions are equal."""
    need_matrix(f, x, arg)
    m, n = x._sizes[-2:]
    if m != n:
        where = f"{f}: " if f else ""
        raise RuntimeError(f"{where}{arg} must be batches of square matrices, but they are {m} by {n} matrices")


def need_floating(f, x, low=True):
    """RuntimeError unless floating or complex; float16 and bfloat16 only if `low`."""
    d = x._stype
    if d.kind not in "fcV":
        raise RuntimeError(f"{f}: Expected a floating point or complex tensor as input. Got {title(d)}")
    if not low and d.itemsize == 2:
        raise RuntimeError(f"{f}: Low precision dtypes not supported. Got {title(d)}")


def need_kernel(kernel, x):
    """NotImplementedError for the dtypes that LAPACK has no routine for."""
    d = x._stype
    if d.kind not in "fc" or d.itemsize == 2:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{title(d)}' on device {x.device}")


def square_floating(name, f, x, arg="A", low=False, kernel=None):
    """The checks of most functions of one square matrix."""
    need_tensor(name, x, arg)
    if x._stype.kind not in "fc" or x._stype.itemsize == 2:
        need_floating(f, x, low or kernel is not None)
        if kernel is not None:
            need_kernel(kernel, x)
    need_square(f, x, arg if arg == "A" else "A")


def broadcast_batches(b, a):
    """The common batch shape of two operands; torch's error, naming `b` first, where there is none."""
    if a == b:
        return a
    for i in range(1, min(len(a), len(b)) + 1):
        if a[-i] != b[-i] and a[-i] != 1 and b[-i] != 1:
            raise RuntimeError(f"The size of tensor a ({b[-i]}) must match the size of tensor b ({a[-i]}) at "
                               f"non-singleton dimension {max(len(a), len(b)) - i}")
    return broadcast_sizes(a, b)


def check_info(info, error, name, shape):
    """Raises error(name, shape, codes) if one of the codes is not zero: here values are waited for."""
    codes = of_all(info)
    if codes.any():
        raise error(name, shape, codes)


# ------------------------------------------------------------------ products that gradients are made of
def mm(a, b):
    """a @ b"""
    return bmm_(a, b, ta=False, tb=False)


def hm(a, b):
    """a^H @ b"""
    return bmm_(conj(a), b, ta=True, tb=False)


def mh(a, b):
    """a @ b^H"""
    return bmm_(a, conj(b), ta=False, tb=True)


#: ct(a): a^H, a copy (a view of complex memory with strides costs MindSpore more than copying a matrix does).
ct = primitive("adjoint", "a", lambda c, g: ct(g))


def column(x):
    """A vector (or batch of them) as a matrix of one column."""
    return pick(x, key=(..., None))


def row(x):
    """A vector (or batch of them) as a matrix of one row."""
    return pick(x, key=(..., None, slice(None)))


def like(x, other):
    """A real tensor in the dtype of `other`, beside which it stands."""
    return cast(x, other._stype)


#: eye_like(a, m=, n=): identity of m rows and n columns in a's dtype, as a constant.
eye_like = primitive("eye_like", "a, *, m, n")


def filled(x, size, value=0, stype=None):
    """A constant tensor of one value beside x, in its dtype or another."""
    return new_full(x, size=size, value=value, stype=x._stype if stype is None else stype)


# ------------------------------------------------------------------ gradients
class _Partial(Primitive):
    """Its rules get None, not zeros, for outputs that no gradient reached."""

    def backward(self, node, gs):
        g = gs[0] if len(node.meta) == 1 else list(gs)
        if self.joint:
            return self.grads[0](node, g)
        return [None if e is None or rule is None else rule(node, g) for e, rule in zip(node.edges, self.grads)]


def partial(prim):
    """Makes the rules of a primitive with several outputs tell an output not used from one with gradient zero."""
    prim.prim.__class__ = _Partial
    return prim


def total(*terms):
    """Sum of the gradients that are there; None if none is."""
    r = None
    for t in terms:
        if t is not None:
            r = t if r is None else r + t
    return r


def through(compose, inputs, g):
    """Gradients of a kernel by those of the same function composed of tensor ops; None where an input needs none."""
    gs = again(compose, inputs, g)
    if mode.on:
        return gs
    return tuple(None if x is None else detached(x) for x in gs)


def is_tensor(x):
    return (x.__class__ is Tensor or taken(x))
