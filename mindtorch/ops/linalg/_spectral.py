"""Singular values, eigenvalues, pseudo-inverse, rank, least squares."""
from mindtorch.core.autograd import forward_ad
from mindtorch.core.tensor.dtypes import F64, I64
from mindtorch.core.tensor.return_types import TYPES
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Float
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, ScalarOperand, detached, is_tensor
from mindtorch.core.tensor.sync import of_all, to_host
from mindtorch.ops._checks import check_tensor
from mindtorch.ops.linalg._common import (broadcast_batches, column, ct, eye_like, new_constant, hm, cast_like, mh, mm, check_floating_dtype, check_kernel,
                                          check_matrix,
                                          check_square, partial, total, type_name)
from mindtorch.ops._operands import scalar
from mindtorch.ops.indexing._basic_index import narrow, pick
from mindtorch.ops.basic import add_, cast, clone, conj, mul_, neg_, sub_
from mindtorch.ops.linalg.solve import solve_ex_
from mindtorch.ops.elementwise.binary import div_
from mindtorch.ops.shapes.shape import diag_embed_
from mindtorch.ops.elementwise.unary import real_part
from mindtorch.ops.shapes.views import diagonal_, expand_


def _diagonal(x):
    return diagonal_(x, offset=0, dim1=-2, dim2=-1)


def _on_diagonal(d):
    return diag_embed_(d, offset=0, dim1=-2, dim2=-1)


def _skew(x):
    return sub_(x, ct(x))


def _gaps(s):
    """Returns the differences x_j - x_i of all pairs, with ones on the diagonal."""
    n = s._sizes[-1]
    return add_(sub_(s[..., None, :], s[..., :, None]), eye_like(s, m=n, n=n))


#: whether a loss depends on the phases of vectors; k, m: the gradients gk, gm in terms of the
#: vectors
_depends_on_phase = primitive("depends_on_phase", "k=None, m=None, gk=None, gm=None, *, divisor")


def _check_gauge(f, quantity, k, gk, m=None, gm=None, divisor=1):
    """Raises RuntimeError if a loss depends on the phases of vectors, which are only determined up
    to a phase."""
    if of_all(_depends_on_phase(k, m, gk, gm, divisor=divisor)).any():
        what = "phase term, making it ill-defined" if f == "svd_backward" else "quantity, so it is ill-defined"
        raise RuntimeError(f"{f}: The {quantity} in the complex case are specified up to multiplication by "
                           f"e^{{i phi}}. The specified loss function depends on this {what}.")


# ------------------------------------------------------------------ singular values
def _svd_grad(g, u, s, vh):
    """Gradient of A = U S V^H.

    With skew(X) = X - X^H and E_ij = s_j^2 - s_i^2, it is U [skew(U^H gU)/E S + S skew(V^H gV)/E +
    diag(gS)] V^H plus the parts of gU and gV outside the ranges of U and V.
    """
    gu, gs, gvh = g
    m, k, n = u._sizes[-2], s._sizes[-1], vh._sizes[-1]
    d = u.ndim
    # The additional columns of a full U and V are not differentiable functions of A.
    if u._sizes[-1] > k:
        u, gu = narrow(u, d - 1, 0, k), None if gu is None else narrow(gu, d - 1, 0, k)
    if vh._sizes[-2] > k:
        vh, gvh = narrow(vh, d - 2, 0, k), None if gvh is None else narrow(gvh, d - 2, 0, k)
    if gu is None and gvh is None:
        return None if gs is None else mm(mul_(u, cast_like(gs, u)[..., None, :]), vh)
    complex_ = u._np_dtype.kind == "c"
    sc = cast_like(s, u)
    columns, rows = sc[..., None, :], sc[..., :, None]
    ku = None if gu is None else _skew(hm(u, gu))
    kv = None if gvh is None else _skew(mh(vh, gvh))
    if complex_:
        _check_gauge("svd_backward", "singular vectors", ku, gu, kv, gvh, divisor=2)
    gaps = cast_like(_gaps(mul_(s, s)), u)
    inner = total(None if ku is None else mul_(div_(ku, gaps), columns),
                  None if kv is None else mul_(div_(kv, gaps), rows))
    if complex_:
        # On the diagonal E is 1; only the difference of the phases of u_i and v_i is determined
        # there.
        phase = total(None if ku is None else _diagonal(ku), None if kv is None else neg_(_diagonal(kv)))
        if ku is not None and kv is not None:
            phase = mul_(phase, scalar(0.5, phase))
        wrong = total(None if ku is None else mul_(_diagonal(ku), sc), None if kv is None else mul_(_diagonal(kv), sc))
        inner = add_(inner, _on_diagonal(sub_(mul_(div_(phase, sc), scalar(0.5, sc)), wrong)))
    if gs is not None:
        inner = add_(inner, _on_diagonal(cast_like(gs, u)))
    ga = mm(mm(u, inner), vh)
    if gu is not None and m > k:
        outside = div_(gu, columns)
        ga = add_(ga, mm(sub_(outside, mm(u, hm(u, outside))), vh))
    if gvh is not None and n > k:
        outside = div_(gvh, rows)
        ga = add_(ga, mm(u, sub_(outside, mm(mh(outside, vh), vh))))
    return ga


svd_ = partial(primitive("linalg_svd", "a, *, full", lambda ctx, grad: _svd_grad(grad, ctx.out0, ctx.out1, ctx.out2)))
_svdvals_only = primitive("linalg_svdvals", "a")


def singular_values(x):
    """Returns the singular values of matrices; computes the vectors only if a gradient needs them.
    """
    return svd_(x, full=False)[1] if forward_ad.is_differentiated(x) else _svdvals_only(x)


def _check_svd(name, A, arg, driver=None):
    check_tensor(name, A, arg)
    check_floating_dtype("linalg.svd", A)
    check_matrix("linalg.svd", A)
    if driver is not None:
        raise RuntimeError("torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with "
                           "cuSOLVER backend.")
    check_kernel("linalg_svd_cpu", A)


@register_op(ns="linalg", out="same", autocast="float32")
def svd(A, full_matrices: Bool = True, *, driver=None):
    """Returns (U, S, Vh) of matrices (*, m, n). U and Vh are square, or (not full_matrices) have
    min(m, n) columns and rows."""
    _check_svd("linalg_svd", A, "A", driver)
    return TYPES["linalg_svd"](*svd_(A, full=bool(full_matrices)))


@register_op(ns="linalg", out="same", autocast="float32")
def svdvals(A, *, driver=None):
    """Singular values of matrices (*, m, n) in descending order."""
    _check_svd("linalg_svdvals", A, "A", driver)
    return singular_values(A)


@register_op(name="svd", out="same", autocast="float32")
def torch_svd(input, some: Bool = True, compute_uv: Bool = True):
    """(U, S, V) with A = U S V^H (V, not V^H); zeros for U and V if not compute_uv."""
    check_tensor("svd", input)
    if input.ndim < 2:
        raise RuntimeError(f"linalg.svd: input should have at least 2 dimensions, but has {input.ndim} dimensions instead")
    _check_svd("svd", input, "input")
    if not compute_uv:
        *batch, m, n = input._sizes
        return TYPES["svd"](new_constant(input, (*batch, m, m)), singular_values(input), new_constant(input, (*batch, n, n)))
    u, s, vh = svd_(input, full=not some)
    return TYPES["svd"](u, s, ct(vh))


# ------------------------------------------------------------------ Hermitian eigenvalues
def _eigh_grad(g, values, v):
    """Returns V [diag(gL) + skew(V^H gV) / (2 E)] V^H with E_ij = l_j - l_i."""
    gl, gv = g
    if gv is None:
        return None if gl is None else mh(mul_(v, cast_like(gl, v)[..., None, :]), v)
    k = hm(v, gv)
    if k._np_dtype.kind == "c" and k._numel:
        _check_gauge("linalg_eigh_backward", "eigenvectors", k, gv)
    k = _skew(k)
    k = div_(mul_(k, scalar(0.5, k)), cast_like(_gaps(values), v))
    if v._np_dtype.kind == "c":
        k = sub_(k, _on_diagonal(_diagonal(k)))
    if gl is not None:
        k = add_(k, _on_diagonal(cast_like(gl, v)))
    return mm(v, mh(k, v))


eigh_ = partial(primitive("linalg_eigh", "a, *, lower", lambda ctx, grad: _eigh_grad(grad, ctx.out0, ctx.out1)))
_eigvalsh_only = primitive("linalg_eigvalsh", "a, *, lower")


def _check_eigh(name, input, UPLO):
    check_tensor(name, input)
    check_square("linalg.eigh", input)
    if not isinstance(UPLO, str):
        raise TypeError(f"{name}(): argument 'UPLO' (position 2) must be str, not {type(UPLO).__name__}")
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    check_kernel("linalg_eigh_cpu", input)
    return UPLO.upper() == "L"


@register_op(ns="linalg", out="same", autocast="float32")
def eigh(input, UPLO="L"):
    """Returns (eigenvalues ascending, eigenvectors) of Hermitian matrices, reading the lower ("U":
    upper) triangle."""
    lower = _check_eigh("linalg_eigh", input, UPLO)
    return TYPES["linalg_eigh"](*eigh_(input, lower=lower))


@register_op(ns="linalg", out="same", autocast="float32")
def eigvalsh(input, UPLO="L"):
    """Eigenvalues of Hermitian matrices in ascending order."""
    lower = _check_eigh("linalg_eigvalsh", input, UPLO)
    return eigh_(input, lower=lower)[0] if forward_ad.is_differentiated(input) else _eigvalsh_only(input, lower=lower)


# ------------------------------------------------------------------ general eigenvalues
def _eig_grad(g, values, v):
    """Returns V^-H [diag(gL) + (V^H gV - V^H V diag(Re(V^H gV))) / conj(E)] V^H with E_ij = l_j -
    l_i, for vectors of unit length."""
    gl, gv = g
    if gv is None:
        if gl is None:
            return None
        inner = _on_diagonal(gl)
    else:
        inner = hm(v, gv)
        d = _diagonal(inner)
        if inner._numel:
            _check_gauge("linalg_eig_backward", "eigenvectors", inner, gv)
        inner = sub_(inner, mul_(hm(v, v), cast_like(real_part(d), v)[..., None, :]))
        inner = div_(inner, conj(_gaps(values)))
        inner = sub_(inner, _on_diagonal(_diagonal(inner)))
        if gl is not None:
            inner = add_(inner, _on_diagonal(gl))
    return solve_ex_(ct(v), mh(inner, v), left=True, vector=False)[0]


eig_ = partial(primitive("linalg_eig", "a", lambda ctx, grad: _eig_grad(grad, ctx.out0, ctx.out1)))
_eigvals_only = primitive("linalg_eigvals", "a")


def _check_eig(name, f, input):
    check_tensor(name, input)
    check_square(f, input)
    if input._np_dtype.kind not in "fcV":
        raise RuntimeError(f"Unknown Complex ScalarType for {type_name(input)}")
    check_kernel("linalg_eig_out_cpu", input)


@register_op(ns="linalg", out=True, autocast="float32", aten="linalg_eig.default")
def eig(input):
    """(eigenvalues, eigenvectors) of square matrices, always complex."""
    _check_eig("linalg_eig", "linalg.eig", input)
    return TYPES["linalg_eig"](*eig_(input))


@register_op(ns="linalg", out=True, autocast="float32")
def eigvals(input):
    """Eigenvalues of square matrices, always complex."""
    _check_eig("linalg_eigvals", "linalg.eigvals", input)
    return eig_(input)[0] if forward_ad.is_differentiated(input) else _eigvals_only(input)


# ------------------------------------------------------------------ tolerances
def _tolerances(f, atol, rtol):
    """Returns [atol, rtol] as operands of a kernel that applies the defaults for None."""
    out = []
    for name, t in (("atol", atol), ("rtol", rtol)):
        if t.__class__ is Tensor or is_tensor(t):
            if t._np_dtype.kind == "c":
                raise RuntimeError(f"{f}: {name} tensor of complex type is not supported. Got {type_name(t)}")
            t = cast(detached(t), F64)
        elif t is not None:
            t = ScalarOperand(float(t), F64)
        out.append(t)
    return out


# ------------------------------------------------------------------ pseudo-inverse
def _pinv_grad(g, a, p):
    """Gradient at constant rank (Golub and Pereyra): -P^H g P^H + (I - A P) g^H P P^H + P^H P g^H
    (I - P A)."""
    gh = ct(g)
    first = neg_(mh(hm(p, g), p))
    right = mm(gh, mh(p, p))
    right = sub_(right, mm(a, mm(p, right)))
    left = mm(hm(p, p), gh)
    left = sub_(left, mm(mm(left, p), a))
    return add_(add_(first, right), left)


pinv_ = primitive("linalg_pinv", "a, atol=None, rtol=None, *, hermitian", lambda ctx, grad: _pinv_grad(grad, ctx.a, ctx.out), None, None)


def _pinv_checked(name, f, input, atol, rtol, hermitian):
    check_tensor(name, input)
    d = input._np_dtype
    if input.ndim < 2 or d.kind not in "fc" or d.itemsize == 2:
        raise RuntimeError(f"linalg.pinv({type_name(input)}{{{list(input._sizes)}}}): expected a tensor with 2 or more "
                           "dimensions of float, double, cfloat or cdouble types")
    if hermitian:
        check_square("linalg.eigh", input)
    return pinv_(input, *_tolerances(f, atol, rtol), hermitian=bool(hermitian))


@register_op(ns="linalg", out=True)
def pinv(input, rcond=None, hermitian: Bool = False, *, atol=None, rtol=None):
    """Moore-Penrose inverse. Singular values up to max(atol, rtol * largest) count as zero (rtol:
    eps * max(m, n))."""
    return _pinv_checked("linalg_pinv", "torch.linalg.pinv", input, atol, rtol if rcond is None else rcond, hermitian)


@register_op(autocast="float32")
def pinverse(input, rcond: Float = 1e-15):
    """Moore-Penrose inverse; singular values up to rcond times the largest count as zero."""
    return _pinv_checked("pinverse", "torch.linalg.pinv", input, 0.0, rcond, False)


_rank_of = primitive("linalg_matrix_rank", "a, atol=None, rtol=None, *, hermitian")


@register_op(ns="linalg", out=True, autocast="float32")
def matrix_rank(input, tol=None, hermitian: Bool = False, *, atol=None, rtol=None):
    """Number of singular values above max(atol, rtol * largest) (rtol: eps * max(m, n)); tol is an
    absolute limit."""
    f = "torch.linalg.matrix_rank"
    check_tensor("linalg_matrix_rank", input)
    if input.ndim < 2:
        raise RuntimeError(f"{f}: The input tensor input must have at least 2 dimensions.")
    if input._np_dtype.kind not in "fc" or input._np_dtype.itemsize == 2:
        raise RuntimeError("This function doesn't handle types other than float and double")
    if hermitian:
        check_square("linalg.eigh", input)
    limits = _tolerances(f, tol if tol is not None else atol, 0.0 if tol is not None else rtol)
    return _rank_of(input, *limits, hermitian=bool(hermitian))


# ------------------------------------------------------------------ least squares
def _lstsq_grads(g, a, b, x, needs):
    """The solution is A^+ B. The residuals are the squared norms of the columns of A X - B,
    stationary in X."""
    gx, gr = g[0], g[1]
    ga = gb = None
    if gx is not None:
        p = pinv_(a, None, None, hermitian=False)
        if needs[0]:
            ga = _pinv_grad(mh(gx, b), a, p)
        if needs[1]:
            gb = hm(p, gx)
    if gr is not None:
        r = sub_(mm(a, x), b)
        r = mul_(mul_(r, scalar(2, r)), cast_like(gr, r)[..., None, :])
        ga, gb = total(ga, mh(r, x)), total(gb, neg_(r))
    return ga if needs[0] else None, gb if needs[1] else None


lstsq_ = partial(primitive("linalg_lstsq", "a, b, *, rcond, driver", lambda ctx, grad: _lstsq_grads(grad, ctx.a, ctx.b, ctx.out0, ctx.needs),
                           nondiff=(2, 3)))
_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@register_op(ns="linalg", out=True, autocast="float32", aten="linalg_lstsq.default")
def lstsq(input, b, rcond: Float = None, *, driver=None):
    """Returns (solution, residuals, rank, singular_values) of min |A X - B|, for A (*, m, n) and B
    (*, m, k) or vectors (*, m).

    If m > n, driver gels returns residuals, and gelsd and gelss do if all matrices have full rank.
    All drivers but gels return the rank, gelsd and gelss the singular values. Other outputs are
    empty. rcond: singular values up to that multiple of the largest count as zero.
    """
    f = "torch.linalg.lstsq"
    check_tensor("linalg_lstsq", input)
    check_tensor("linalg_lstsq", b, "b", 2)
    x, y, d = input._sizes, b._sizes, input._np_dtype
    if d.kind not in "fc" or d.itemsize == 2:
        raise RuntimeError("This function doesn't handle types other than float and double")
    if len(x) < 2:
        raise RuntimeError(f"{f}: input must have at least 2 dimensions.")
    if not y:
        raise RuntimeError(f"{f}: other must have at least 1 dimension.")
    if d != b._np_dtype:
        raise RuntimeError(f"{f}: Expected input and other to have the same dtype, but got input's dtype "
                           f"{type_name(input)} and other's dtype {type_name(b)}")
    if len(x) - len(y) not in (0, 1):
        raise RuntimeError(f"{f}: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) "
                           "<= 1")
    exact = len(y) == 1 or y == x[:-1]
    if driver is not None and driver not in _DRIVERS:
        raise RuntimeError(f"{f}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    if (y[-1] if exact else y[-2]) != x[-2]:
        raise RuntimeError(f"{f}: input.size(-2) should match other.size(-{1 if exact else 2})")
    driver = "gelsy" if driver is None else driver
    # If input has one more dimension than b, and b does not have the sizes of vectors, b holds
    # matrices, and all its sizes but the last are broadcast, as in PyTorch.
    batch = broadcast_batches(x[:-2], y[:-2] if len(x) == len(y) else y[:-1])
    other = column(b) if exact else b if len(x) == len(y) else expand_(b, size=(*batch, *y[-2:]))
    solution, residuals, rank, found = lstsq_(input, other, rcond=None if rcond is None else float(rcond), driver=driver)
    none = new_constant(found, (0,))
    m, n = x[-2:]
    # Whether there are residuals depends on the ranks, so reading them synchronizes.
    if not (m > n and (driver == "gels" or driver != "gelsy" and (to_host(rank) == n).all())):
        residuals = none
    if exact:
        solution = solution[..., 0]
    if rank._sizes != x[:-2]:
        # Rank and singular values belong to a matrix: one result per matrix, however often it is
        # broadcast.
        one = tuple(slice(0, 1) if k == 1 else slice(None) for k in x[:-2])
        one = (0,) * (rank.ndim - len(one)) + one
        rank, found = clone(pick(rank, key=(*one, ...))), clone(pick(found, key=(*one, ...)))
    return TYPES["linalg_lstsq"](solution, residuals, new_constant(found, (0,), np_dtype=I64) if driver == "gels" else rank,
                                 found if driver in ("gelsd", "gelss") else new_constant(found, (0,)))
