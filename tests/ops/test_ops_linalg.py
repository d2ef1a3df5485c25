"""Linear algebra against PyTorch: values, shapes, dtypes, gradients of first and second order,
errors."""
import re

import numpy as np
import pytest
from _parity import In, check, few, mine, plain, real, values
from hypothesis import given
from hypothesis import strategies as st

INF = float("inf")
DOUBLES, SINGLES = ("float64", "complex128"), ("float32", "complex64")
SQUARE = [(3, 3), (2, 4, 4), (0, 0), (2, 0, 0), (0, 3, 3), (1, 1)]
RECT = [(3, 3), (2, 4, 3), (2, 3, 4), (5, 2), (2, 5), (0, 3), (3, 0), (0, 2, 3), (2, 0, 3)]
FULL = [s for s in RECT if 0 not in s]
VECTORS = [(3,), (2, 4)]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Limits PyTorch to one thread: more threads do not help for matrices this small."""
    n = real.get_num_threads()
    real.set_num_threads(1)
    yield
    real.set_num_threads(n)


def herm(x):
    return x + x.mH


def psd(T, x):
    return x @ x.mH + T.eye(x.shape[-1], dtype=x.dtype)


def size2(x):
    """Returns squared absolute values, which do not depend on the phases of singular vectors and
    eigenvectors."""
    return (x * x.conj()).real if x.is_complex() else x * x


def pivots(T, x, reverse=False):
    n = min(x.shape[-2:])
    p = np.full(n, n, np.int32) if reverse else np.arange(1, n + 1, dtype=np.int32)
    return T.tensor(np.broadcast_to(p, tuple(x.shape[:-2]) + (n,)).copy())


def svd_parts(u, s, vh):
    return size2(u[..., :s.shape[-1]]), s, size2(vh[..., :s.shape[-1], :])


def eigh_parts(w, v):
    return w, size2(v), v * w[..., None, :] @ v.mH


def eig_parts(T, w, v):
    return w.sum(-1), (size2(v) * w[..., None, :].abs()).sum(-1), (v * w[..., None, :]) @ T.linalg.inv(v)


OPS = {
    "inv": (lambda T, x: T.linalg.inv(x), SQUARE),
    "inverse": (lambda T, x: x.inverse(), SQUARE),
    "inv_ex": (lambda T, x: T.linalg.inv_ex(x), SQUARE),
    "det": (lambda T, x: T.linalg.det(x), SQUARE),
    "slogdet": (lambda T, x: T.linalg.slogdet(x), SQUARE),
    "Tensor.slogdet": (lambda T, x: x.slogdet(), SQUARE),
    "logdet": (lambda T, x: T.logdet(psd(T, x)), SQUARE),
    "solve": (lambda T, x: T.linalg.solve(x, x.mT + 1), SQUARE),
    "solve right": (lambda T, x: T.linalg.solve(x, x.mT + 1, left=False), SQUARE),
    "solve vector": (lambda T, x: T.linalg.solve(x, x[..., 0]), [(3, 3), (2, 4, 4), (0, 3, 3)]),
    "solve_ex": (lambda T, x: T.linalg.solve_ex(x, x.mT + 1), SQUARE),
    "solve_triangular": (lambda T, x: T.linalg.solve_triangular(x, x.mT + 1, upper=True), SQUARE),
    "solve_triangular right": (lambda T, x: T.linalg.solve_triangular(x, x.mT + 1, upper=False, left=False), SQUARE),
    "solve_triangular unit": (lambda T, x: T.linalg.solve_triangular(x, x.mT + 1, upper=False, unitriangular=True),
                              SQUARE),
    "triangular_solve": (lambda T, x: T.triangular_solve(x.mT + 1, x), SQUARE),
    "triangular_solve T": (lambda T, x: T.triangular_solve(x.mT + 1, x, transpose=True), SQUARE),
    "triangular_solve unit": (lambda T, x: T.triangular_solve(x.mT + 1, x, False, True, True), SQUARE),
    "cholesky": (lambda T, x: T.linalg.cholesky(psd(T, x)), SQUARE),
    "cholesky upper": (lambda T, x: T.linalg.cholesky(psd(T, x), upper=True), SQUARE),
    "cholesky_ex": (lambda T, x: T.linalg.cholesky_ex(psd(T, x)), SQUARE),
    "torch.cholesky": (lambda T, x: T.cholesky(psd(T, x), True), SQUARE),
    "cholesky_inverse": (lambda T, x: T.cholesky_inverse(T.linalg.cholesky(psd(T, x))), SQUARE),
    "cholesky_inverse upper": (lambda T, x: T.cholesky_inverse(T.linalg.cholesky(psd(T, x), upper=True), True), SQUARE),
    "cholesky_solve": (lambda T, x: T.cholesky_solve(x * 2 + 1, x), SQUARE),
    "cholesky_solve upper": (lambda T, x: T.cholesky_solve(x * 2 + 1, x, True), SQUARE),
    "qr": (lambda T, x: T.linalg.qr(x), RECT),
    "qr complete": (lambda T, x: T.linalg.qr(x, "complete"), [(3, 3), (2, 3, 4), (2, 5)]),
    "torch.qr": (lambda T, x: T.qr(x), FULL),
    "lu": (lambda T, x: T.linalg.lu(x), RECT),
    "lu_factor": (lambda T, x: T.linalg.lu_factor(x), RECT),
    "lu_factor_ex": (lambda T, x: T.linalg.lu_factor_ex(x), RECT),
    "torch.lu": (lambda T, x: T.lu(x, get_infos=True), FULL),
    "lu_unpack": (lambda T, x: T.lu_unpack(x, pivots(T, x)), RECT),
    "lu_unpack data": (lambda T, x: T.lu_unpack(x, pivots(T, x, True), unpack_pivots=False), FULL),
    "lu_unpack pivots": (lambda T, x: T.lu_unpack(x, pivots(T, x, True), unpack_data=False)[0], FULL),
    "lu_solve": (lambda T, x: T.linalg.lu_solve(x, pivots(T, x, True), x + 1), SQUARE),
    "lu_solve adjoint": (lambda T, x: T.linalg.lu_solve(*T.linalg.lu_factor(x), x + 1, adjoint=True), SQUARE),
    "lu_solve right": (lambda T, x: T.linalg.lu_solve(*T.linalg.lu_factor(x), x + 1, left=False), SQUARE),
    "lu_solve right adjoint": (lambda T, x: T.linalg.lu_solve(*T.linalg.lu_factor(x), x + 1, left=False, adjoint=True),
                               SQUARE),
    "torch.lu_solve": (lambda T, x: T.lu_solve(x + 1, *T.linalg.lu_factor(x)), SQUARE),
    "svdvals": (lambda T, x: T.linalg.svdvals(x), RECT),
    "svd": (lambda T, x: svd_parts(*T.linalg.svd(x)), RECT),
    "svd reduced": (lambda T, x: svd_parts(*T.linalg.svd(x, full_matrices=False)), RECT),
    "svd U": (lambda T, x: size2(T.linalg.svd(x, full_matrices=False)[0]), RECT),
    "svd pairs": (lambda T, x: (lambda u, s, vh: u[..., :1, :] * vh[..., :, :1].mT)(*T.linalg.svd(x, False)), FULL),
    "torch.svd": (lambda T, x: (lambda u, s, v: (size2(u), s, size2(v)))(*T.svd(x)), RECT),
    "torch.svd values": (lambda T, x: T.svd(x, compute_uv=False), RECT),
    "eigh": (lambda T, x: eigh_parts(*T.linalg.eigh(herm(x))), SQUARE),
    "eigh upper": (lambda T, x: eigh_parts(*T.linalg.eigh(herm(x), "U")), SQUARE),
    "eigvalsh": (lambda T, x: T.linalg.eigvalsh(herm(x)), SQUARE),
    "eig": (lambda T, x: eig_parts(T, *T.linalg.eig(x)), SQUARE),
    "eigvals": (lambda T, x: (T.linalg.eigvals(x) ** 2).sum(-1), SQUARE),
    "pinv": (lambda T, x: T.linalg.pinv(x), RECT),
    "pinv hermitian": (lambda T, x: T.linalg.pinv(herm(x), hermitian=True), SQUARE),
    "pinverse": (lambda T, x: x.pinverse(), RECT),
    "matrix_rank": (lambda T, x: T.linalg.matrix_rank(x), RECT),
    "matrix_rank hermitian": (lambda T, x: T.linalg.matrix_rank(herm(x), hermitian=True), SQUARE),
    "lstsq": (lambda T, x: T.linalg.lstsq(x, x * x + 1), RECT),
    "lstsq gels": (lambda T, x: T.linalg.lstsq(x, x * x + 1, driver="gels"), FULL),
    "lstsq gelsd": (lambda T, x: T.linalg.lstsq(x, x * x + 1, driver="gelsd"), FULL),
    "lstsq vector": (lambda T, x: T.linalg.lstsq(x, (x * x + 1)[..., 0], driver="gelss"), FULL),
    "matrix_exp": (lambda T, x: T.linalg.matrix_exp(x), SQUARE),
    "matrix_exp small": (lambda T, x: T.matrix_exp(x * 0.01), SQUARE),
    "matrix_power 3": (lambda T, x: T.linalg.matrix_power(x, 3), SQUARE),
    "matrix_power -2": (lambda T, x: x.matrix_power(-2), SQUARE),
    "matrix_power 0": (lambda T, x: T.matrix_power(x, 0), SQUARE),
    "householder_product": (lambda T, x: T.linalg.householder_product(x, x[..., 0, :]),
                            [(3, 3), (2, 4, 3), (5, 2), (0, 2, 2)]),
    "householder_product 1": (lambda T, x: T.orgqr(x, x[..., 0, :1]), [(3, 3), (2, 4, 3)]),
    "householder_product 0": (lambda T, x: T.linalg.householder_product(x, x[..., 0, :0]), [(3, 3), (2, 4, 3)]),
    "ormqr": (lambda T, x: T.ormqr(x, x[..., 0, :], x @ x.mT), [(3, 3), (2, 4, 3)]),
    "ormqr T": (lambda T, x: T.ormqr(x, x[..., 0, :], x @ x.mT, True, True), [(3, 3), (2, 4, 3)]),
    "ormqr right": (lambda T, x: x.ormqr(x[..., 0, :], x @ x.mT, False), [(3, 3), (2, 4, 3)]),
    "ormqr right T": (lambda T, x: T.ormqr(x, x[..., 0, :], x @ x.mT, False, True), [(3, 3), (2, 4, 3)]),
    "geqrf": (lambda T, x: T.geqrf(x.detach()), RECT),
    "ldl_factor": (lambda T, x: T.linalg.ldl_factor((x + x.mT).detach()), SQUARE),
    "ldl_factor hermitian": (lambda T, x: T.linalg.ldl_factor_ex(herm(x).detach(), hermitian=True), SQUARE),
    "ldl_solve": (lambda T, x: T.linalg.ldl_solve(*T.linalg.ldl_factor((x + x.mT).detach()), x.detach() + 1), SQUARE),
    "ldl_solve hermitian": (lambda T, x: T.linalg.ldl_solve(
        *T.linalg.ldl_factor(herm(x).detach(), hermitian=True), x.detach(), hermitian=True), SQUARE),
    "vander": (lambda T, x: T.linalg.vander(x, N=4), [(3,), (2, 3), (0,)]),
    "vecdot": (lambda T, x: T.linalg.vecdot(x, x[..., :1] + x), RECT[:7]),
    "vecdot dim": (lambda T, x: T.linalg.vecdot(x, x * x, dim=0), RECT[:7]),
    "cross": (lambda T, x: T.linalg.cross(x, x * x + 1), [(3,), (2, 3), (4, 2, 3)]),
    "multi_dot": (lambda T, x: T.linalg.multi_dot([x, x.mT, x]), [(3, 3), (2, 5)]),
    "multi_dot vectors": (lambda T, x: T.linalg.multi_dot([x[0], x.mT, x, x[0]]), [(3, 3), (2, 5)]),
    "tensorinv": (lambda T, x: T.linalg.tensorinv(x.reshape(2, 3, 6)), [(6, 6)]),
    "tensorsolve": (lambda T, x: T.linalg.tensorsolve(x.reshape(2, 3, 6), x[0].reshape(2, 3)), [(6, 6)]),
    "tensorsolve dims": (lambda T, x: T.linalg.tensorsolve(x.reshape(2, 3, 6).movedim(2, 0), x[0].reshape(2, 3),
                                                           dims=(0,)), [(6, 6)]),
    "diagonal": (lambda T, x: T.linalg.diagonal(x, offset=1), RECT),
    "cond": (lambda T, x: T.linalg.cond(x), RECT[:5]),
    "norm": (lambda T, x: (T.linalg.norm(x), T.linalg.norm(x, dim=0)), RECT[:5]),
    "nuclear_norm": (lambda T, x: T.nuclear_norm(x), FULL),
    "frobenius_norm": (lambda T, x: T.frobenius_norm(x, (0, 1)), FULL),
    "svd_lowrank": (lambda T, x: T.svd_lowrank(x.detach(), q=5)[1], FULL),
    "pca_lowrank": (lambda T, x: T.pca_lowrank(x.detach(), q=2)[1], [(5, 2), (3, 3)]),
}
for _p in ("fro", "nuc", 1, -1, 2, -2, INF, -INF):
    OPS[f"matrix_norm {_p}"] = (lambda T, x, p=_p: T.linalg.matrix_norm(x, p), RECT[:5])
    OPS[f"matrix_norm {_p} dim"] = (lambda T, x, p=_p: T.linalg.matrix_norm(x, p, dim=(2, 0), keepdim=True),
                                    [(2, 4, 3), (3, 1, 2)])
    OPS[f"norm {_p}"] = (lambda T, x, p=_p: T.linalg.norm(x, p), [(3, 3), (5, 2)])
for _p in (0, 1, 2, 3, -1, -2, INF, -INF, 0.5, 2.5):
    OPS[f"vector_norm {_p}"] = (lambda T, x, p=_p: (
        T.linalg.vector_norm(x, p), T.linalg.vector_norm(x, p, dim=0), T.linalg.vector_norm(x, p, dim=-1, keepdim=True),
        T.linalg.norm(x, p, dim=0)), VECTORS)


def matrix(seed, shape, dtype, layout="plain", grad=True):
    return In(values(seed, shape, dtype, -1.0, 1.0), dtype, layout, grad)


@pytest.mark.parametrize("name", OPS)
def test_double_precision(name):
    """Compares values and gradients, and second-order gradients for most ops."""
    f, shapes = OPS[name]
    for n, shape in enumerate(shapes):
        for dtype in DOUBLES if n < 4 else DOUBLES[:1]:
            check(f, matrix(n + 1, shape, dtype), rtol=1e-7, atol=1e-8, grad_rtol=1e-5, second=True)


@pytest.mark.parametrize("name", OPS)
def test_single_precision(name):
    f, shapes = OPS[name]
    for n, shape in enumerate(shapes[:3]):
        for dtype in SINGLES:
            check(f, matrix(n + 20, shape, dtype, ["plain", "transposed", "strided"][n % 3]), rtol=2e-3, atol=1e-3,
                  grad_rtol=2e-2)


# ------------------------------------------------------------------ batches
BATCHES = [(), (1,), (2,), (3, 1), (1, 2), (0,)]


@pytest.mark.parametrize("f", [
    lambda T, x, y: T.linalg.solve(x, y), lambda T, x, y: T.linalg.solve(x, y.mT, left=False),
    lambda T, x, y: T.linalg.solve_ex(x, y), lambda T, x, y: T.linalg.solve_triangular(x, y, upper=True),
    lambda T, x, y: T.cholesky_solve(y, x), lambda T, x, y: T.triangular_solve(y, x),
    lambda T, x, y: T.linalg.lu_solve(*T.linalg.lu_factor(x), y), lambda T, x, y: T.linalg.solve(x, y[..., 0]),
    lambda T, x, y: T.linalg.cross(x, y @ y.mT), lambda T, x, y: T.linalg.vecdot(x, y @ y.mT, dim=-2)])
@few
@given(st.data())
def test_batches_broadcast(f, data):
    a, b = data.draw(st.sampled_from(BATCHES)), data.draw(st.sampled_from(BATCHES))
    d = data.draw(st.sampled_from(DOUBLES))
    x, y = matrix(data.draw(st.integers(0, 99)), a + (3, 3), d), matrix(5, b + (3, 2), d)
    check(f, x, y, rtol=1e-7, atol=1e-8, grad_rtol=1e-6)


@given(st.data())
def test_least_squares(data):
    m, n = data.draw(st.sampled_from([(4, 3), (3, 3), (2, 3)]))
    batch = data.draw(st.sampled_from([(), (2,), (1,)]))
    other = data.draw(st.sampled_from([(2,), (), (1,), (3,)]))
    d = data.draw(st.sampled_from(DOUBLES))
    y = data.draw(st.sampled_from([batch + (m, 2), other + (m, 2), batch + (m,), (m,), batch + (m, 0)]))
    driver = data.draw(st.sampled_from(["gels", "gelsy", "gelsd", "gelss", None, "gelsx"]))
    if y[-1] == 0 and driver in ("gelsd", "gelss"):
        return  # PyTorch's LAPACK fails for zero right-hand sides
    rcond = data.draw(st.sampled_from([None, None, 0.3])) if driver in ("gelsd", "gelss") else None
    check(lambda T, a, b: T.linalg.lstsq(a, b, rcond, driver=driver), matrix(1, batch + (m, n), d), matrix(2, y, d),
          rtol=1e-7,
          atol=1e-8, grad_rtol=1e-6)


@pytest.mark.parametrize("a,b", [((1, 4, 3), (4, 2)), ((1, 2, 3), (2, 2)), ((2, 2, 3), (2, 2)), ((1, 1, 2, 3), (1, 2, 2)), ((2, 1, 2, 3), (2, 2, 2)), ((1, 4, 3), (5, 4, 2)),
                                 ((2, 4, 3), (4, 2)), ((2, 4, 3), (3, 4, 2)), ((2, 3, 4, 3), (3, 2, 4, 1)), ((2, 5, 4, 3), (3, 4, 2)), ((2, 4, 3), (3, 4)), ((0, 4, 3), (4, 2))])
def test_least_squares_with_broadcast_right_hand_sides(a, b):
    """Covers right-hand sides with fewer dimensions than the matrices, batches that broadcast, and
    PyTorch's error message for those that do not."""
    x, y = matrix(1, a, "float64"), matrix(2, b, "float64")
    try:
        real.linalg.lstsq(real.tensor(x), real.tensor(y))
    except RuntimeError as e:
        with pytest.raises(RuntimeError, match=re.escape(str(e).splitlines()[0])):
            mine.linalg.lstsq(mine.tensor(x), mine.tensor(y))
        return
    check(lambda T, x, y: T.linalg.lstsq(x, y), x, y, rtol=1e-7, atol=1e-8, grad_rtol=1e-6)


# ------------------------------------------------------------------ singular and invalid matrices
SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])
ASKED = {
    "inv": lambda T, x: T.linalg.inv(x), "inv_ex": lambda T, x: T.linalg.inv_ex(x),
    "inv_ex checked": lambda T, x: T.linalg.inv_ex(x, check_errors=True), "inverse": lambda T, x: T.inverse(x),
    "solve": lambda T, x: T.linalg.solve(x, x), "solve_ex": lambda T, x: T.linalg.solve_ex(x, x + 1)[1],
    "solve_ex checked": lambda T, x: T.linalg.solve_ex(x, x, check_errors=True),
    "cholesky": lambda T, x: T.linalg.cholesky(x), "cholesky_ex": lambda T, x: T.linalg.cholesky_ex(x),
    "cholesky_ex checked": lambda T, x: T.linalg.cholesky_ex(x, check_errors=True),
    "torch.cholesky": lambda T, x: T.cholesky(x), "lu_factor": lambda T, x: T.linalg.lu_factor(x),
    "lu_factor_ex": lambda T, x: T.linalg.lu_factor_ex(x),
    "lu_factor_ex checked": lambda T, x: T.linalg.lu_factor_ex(x, check_errors=True),
    "torch.lu": lambda T, x: T.lu(x, get_infos=True), "det": lambda T, x: T.linalg.det(x).abs(),
    "slogdet": lambda T, x: T.linalg.slogdet(x)[1], "logdet": lambda T, x: T.logdet(x),
    "pinv": lambda T, x: T.linalg.pinv(x), "matrix_rank": lambda T, x: T.linalg.matrix_rank(x),
    "svdvals": lambda T, x: T.linalg.svdvals(x), "matrix_power": lambda T, x: T.linalg.matrix_power(x, -1),
    "ldl_factor_ex": lambda T, x: T.linalg.ldl_factor_ex(x), "cholesky_inverse": lambda T, x: T.cholesky_inverse(x),
    "lstsq gels": lambda T, x: T.linalg.lstsq(x, x, driver="gels")[0].shape, "cond 1": lambda T, x: T.linalg.cond(x, 1),
    "cond fro": lambda T, x: T.linalg.cond(x, "fro"), "cond -inf": lambda T, x: T.linalg.cond(x, -INF),
}


@pytest.mark.host_only("a device gives nan for singular values of nan, without a wait", cases=("nan-svdvals",))
@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("kind", ["singular", "zero", "batch", "nan"])
def test_singular_and_invalid_matrices(name, kind):
    a = {"singular": SINGULAR, "zero": np.zeros((3, 3)), "batch": np.stack([np.eye(2), SINGULAR, np.zeros((2, 2))]),
         "nan": np.full((2, 2), np.nan)}[kind]
    if (name, kind) in {("lstsq gels", "nan"), ("lstsq gels", "singular"), ("lstsq gels", "batch"),
                        ("ldl_factor_ex", "nan"), ("lu_factor_ex", "nan"), ("torch.lu", "nan"), ("lu_factor", "nan")}:
        pytest.skip("rounding, or pivots of nan, differ between LAPACKs")
    x = In(a)

    def call(T, x):
        try:
            return ASKED[name](T, x)
        except T.linalg.LinAlgError:
            return "LinAlgError"
    check(call, x, rtol=1e-6, atol=1e-7)
    texts = []
    for T in (real, mine):
        try:
            ASKED[name](T, x.on(T)[0])
        except Exception as e:
            texts.append((type(e).__name__, isinstance(e, T.linalg.LinAlgError), str(e)))
    if len(texts) == 2 and "INTERNAL ASSERT" not in texts[0][2]:
        assert texts[0] == texts[1]


def test_gradient_of_a_singular_determinant():
    # PyTorch returns zeros for an exactly singular matrix; the correct derivative is the cofactor
    # matrix.
    x = mine.tensor(np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 5.0, 7.0]]), requires_grad=True)
    mine.linalg.det(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), [[-2, -8, 6], [1, 4, -3], [0, 0, 0]], atol=1e-9)


def test_half_precision_exponential():
    # PyTorch's float16 result is (-20896, ...): its coefficients overflow.
    np.testing.assert_allclose(mine.linalg.matrix_exp(mine.eye(2).half()).float().numpy(), np.eye(2) * np.e, rtol=1e-3)


def test_singular_ldl():
    for T in (real, mine):
        with pytest.raises(RuntimeError):
            T.linalg.ldl_factor(T.tensor(SINGULAR))


def test_linalg_error():
    assert issubclass(mine.linalg.LinAlgError, RuntimeError)
    with pytest.raises(mine.linalg.LinAlgError, match=r"\(Batch element 1\): The diagonal element 2 is zero"):
        mine.linalg.inv(mine.tensor(np.stack([np.eye(2), SINGULAR])))


# ------------------------------------------------------------------ gauge (phase) dependence
@pytest.mark.parametrize("f", [lambda T, x: T.linalg.svd(x)[0], lambda T, x: T.linalg.svd(x, False)[2],
                               lambda T, x: T.linalg.eigh(herm(x))[1], lambda T, x: T.linalg.eig(x)[1]])
def test_losses_depending_on_phases_raise(f):
    for T in (real, mine):
        x = T.tensor(values(3, (3, 3), "complex128"), requires_grad=True)
        w = T.arange(9.0, dtype=T.float64).reshape(3, 3)
        with pytest.raises(RuntimeError, match="specified up to multiplication"):
            (f(T, x) * (w + 1j * w.mT)).sum().abs().backward()


@pytest.mark.parametrize("f, message", [
    (lambda T, x: T.linalg.qr(x, "r")[1], "depends on Q"),
    (lambda T, x: T.linalg.qr(x, "complete")[1], "mode='complete' and nrows > ncols"),
    (lambda T, x: T.geqrf(x)[0], "derivative for 'geqrf' is not implemented"),
    (lambda T, x: T.linalg.ldl_factor(x.mT @ x)[0], "linalg_ldl_factor_ex is not implemented")])
def test_non_differentiable_ops_raise_in_backward(f, message):
    for T in (real, mine):
        x = T.tensor(values(3, (4, 3), "float64"), requires_grad=True)
        with pytest.raises(RuntimeError, match=message):
            f(T, x).sum().backward()


# ------------------------------------------------------------------ arguments
E = np.eye(2, dtype="float32")
CALLS = [
    *[lambda T, x, n=n: getattr(T.linalg, n)(T.tensor([[2, 1], [1, 2]])) for n in (
        "inv", "det", "slogdet", "cholesky", "qr", "svd", "svdvals", "eig", "eigvals", "eigh", "eigvalsh", "lu",
        "lu_factor", "ldl_factor",
        "pinv", "matrix_rank", "matrix_norm", "vector_norm", "norm", "cond", "matrix_exp", "vander", "inv_ex")],
    *[lambda T, x, n=n: getattr(T.linalg, n)(x.half()) for n in (
        "inv", "det", "slogdet", "cholesky", "qr", "svd", "eig", "eigh", "lu", "ldl_factor", "pinv", "matrix_rank",
        "cond", "vander")],
    *[lambda T, x, n=n: getattr(T.linalg, n)(x[0]) for n in (
        "inv", "det", "slogdet", "cholesky", "qr", "svd", "eig", "eigvals", "eigh", "lu", "lu_factor", "ldl_factor",
        "pinv", "matrix_rank",
        "matrix_norm", "cond", "matrix_exp")],
    *[lambda T, x, n=n: getattr(T.linalg, n)(T.ones(2, 3)) for n in (
        "inv", "det", "slogdet", "cholesky", "eig", "eigvals", "eigh", "ldl_factor", "matrix_exp")],
    *[lambda T, x, n=n: getattr(T.linalg, n)([[1.0]]) for n in (
        "inv", "det", "qr", "svd", "eigh", "norm", "vector_norm", "pinv")],
    lambda T, x: T.linalg.solve(x, T.ones(3)), lambda T, x: T.linalg.solve(x, T.ones(3, 2)),
    lambda T, x: T.linalg.solve(x, x.double()), lambda T, x: T.linalg.solve(x, T.tensor(1.0)),
    lambda T, x: T.linalg.solve(x, T.ones(2), left=False),
    lambda T, x: T.linalg.solve(x.expand(2, 2, 2), T.ones(3, 2, 2)), lambda T, x: T.linalg.solve(x.long(), x.long()),
    lambda T, x: T.linalg.solve_triangular(x, x), lambda T, x: T.linalg.solve_triangular(x, x[0], upper=True),
    lambda T, x: T.linalg.solve_triangular(x, T.ones(3, 3), upper=True, left=False),
    lambda T, x: T.linalg.solve_triangular(x.long(), x.long(), upper=True), lambda T, x: T.triangular_solve(x[0], x),
    lambda T, x: T.triangular_solve(T.ones(3, 3), x), lambda T, x: T.triangular_solve(x.double(), x),
    lambda T, x: T.cholesky_solve(x[0], x), lambda T, x: T.cholesky_solve(x, x.double()),
    lambda T, x: T.cholesky_solve(x, T.ones(2, 3)), lambda T, x: T.cholesky_solve(T.ones(3, 3), x),
    lambda T, x: T.linalg.lu_solve(x, T.tensor([1, 2]), x),
    lambda T, x: T.linalg.lu_solve(x, T.tensor([1], dtype=T.int32), x),
    lambda T, x: T.linalg.lu_solve(x, T.tensor([1, 7], dtype=T.int32), x),
    lambda T, x: T.linalg.lu_solve(x, pivots(T, x), x.double()),
    lambda T, x: T.linalg.lu_solve(x, pivots(T, x), T.ones(3, 3)),
    lambda T, x: T.linalg.lu_solve(x.expand(2, 2, 2), pivots(T, x), x), lambda T, x: T.linalg.lu(x, pivot=False),
    lambda T, x: T.lu_unpack(x, T.tensor([1, 2])), lambda T, x: T.lu_unpack(x[0], pivots(T, x)),
    lambda T, x: T.lu_unpack(x, T.tensor([7, 1], dtype=T.int32)), lambda T, x: T.linalg.qr(x, "economic"),
    lambda T, x: T.linalg.eigh(x, "X"), lambda T, x: T.linalg.eigvalsh(x, "lower"),
    lambda T, x: T.linalg.svd(x, driver="gesvd"), lambda T, x: T.linalg.svd(x * float("nan")),
    lambda T, x: T.linalg.eig(x * float("nan")), lambda T, x: T.linalg.eigh(x * float("nan")),
    lambda T, x: T.linalg.pinv(T.ones(2, 3), hermitian=True),
    lambda T, x: T.linalg.matrix_rank(T.ones(2, 3), hermitian=True), lambda T, x: T.linalg.pinv(x, atol=T.tensor(1j)),
    lambda T, x: T.linalg.matrix_rank(x.expand(3, 2, 2), atol=T.ones(2)), lambda T, x: T.linalg.lstsq(x, x.double()),
    lambda T, x: T.linalg.lstsq(x, T.ones(3, 2)), lambda T, x: T.linalg.lstsq(x.long(), x.long()),
    lambda T, x: T.linalg.lstsq(x[0], x), lambda T, x: T.linalg.lstsq(x, T.tensor(1.0)),
    lambda T, x: T.linalg.lstsq(x, x.expand(2, 2, 2)), lambda T, x: T.linalg.matrix_norm(x, 3),
    lambda T, x: T.linalg.matrix_norm(x, "x"), lambda T, x: T.linalg.matrix_norm(x, None),
    lambda T, x: T.linalg.matrix_norm(x, dim=(0, 0)), lambda T, x: T.linalg.matrix_norm(x, dim=(0,)),
    lambda T, x: T.linalg.matrix_norm(x, dim=0), lambda T, x: T.linalg.matrix_norm(x, dim=(0, 5)),
    lambda T, x: T.linalg.matrix_norm(x, dtype=T.float16), lambda T, x: T.linalg.matrix_norm(x, dtype=T.complex64),
    lambda T, x: T.linalg.matrix_norm(x, 2, dtype=T.float64), lambda T, x: T.linalg.matrix_norm(x, 1, dtype=T.float64),
    lambda T, x: T.linalg.matrix_norm(T.ones(0, 0), -1), lambda T, x: T.linalg.matrix_norm(T.ones(0, 3), -2),
    lambda T, x: T.linalg.matrix_norm(T.ones(2, 0, 3), "nuc"), lambda T, x: T.linalg.matrix_norm(x.half(), 2),
    lambda T, x: T.linalg.matrix_norm(x.half(), 1), lambda T, x: T.linalg.matrix_norm(x.bfloat16()),
    lambda T, x: T.linalg.vector_norm(x, "fro"), lambda T, x: T.linalg.vector_norm(x, 1j),
    lambda T, x: T.linalg.vector_norm(x, dim=(0, 0)), lambda T, x: T.linalg.vector_norm(x, dtype=T.float16),
    lambda T, x: T.linalg.vector_norm(x, dtype=T.complex64), lambda T, x: T.linalg.vector_norm(x + 0j, dtype=T.float64),
    lambda T, x: T.linalg.vector_norm(x + 0j, dtype=T.complex128), lambda T, x: T.linalg.vector_norm(x, dtype=T.int64),
    lambda T, x: T.linalg.vector_norm(x, T.tensor(1.0)), lambda T, x: T.linalg.vector_norm(T.ones(0, 3), INF),
    lambda T, x: T.linalg.vector_norm(T.ones(0, 3), -1, dim=0),
    lambda T, x: T.linalg.vector_norm(T.ones(0, 3), -1, dim=1), lambda T, x: T.linalg.vector_norm(x, dim=()),
    lambda T, x: T.linalg.vector_norm(x.half(), 3), lambda T, x: T.linalg.vector_norm(x, dim=5),
    lambda T, x: T.linalg.norm(x, dim=(0, 1, 0)), lambda T, x: T.linalg.norm(x.expand(2, 2, 2), 2),
    lambda T, x: T.linalg.norm(x[0], "fro"), lambda T, x: T.linalg.norm(x, "fro", dim=0),
    lambda T, x: T.linalg.norm(x, "x"), lambda T, x: T.linalg.norm(T.tensor(-2.0)),
    lambda T, x: T.linalg.norm(T.tensor(-2.0), 1), lambda T, x: T.linalg.norm(x, dim=()),
    lambda T, x: T.linalg.norm(x, 0, dim=1), lambda T, x: T.linalg.norm(x, dtype=T.float64),
    lambda T, x: T.linalg.norm(x.expand(2, 2, 2), 2, dim=(0, -1), keepdim=True), lambda T, x: T.linalg.cond(x, 3),
    lambda T, x: T.linalg.cond(x, "x"), lambda T, x: T.linalg.cond(T.ones(2, 3), 1),
    lambda T, x: T.linalg.cond(T.ones(0, 0), 1), lambda T, x: T.linalg.cond(T.ones(2, 0, 0)),
    lambda T, x: T.linalg.cond(x, -INF), lambda T, x: T.linalg.multi_dot([x]), lambda T, x: T.linalg.multi_dot([]),
    lambda T, x: T.linalg.multi_dot(x), lambda T, x: T.linalg.multi_dot([x, x[0], x]),
    lambda T, x: T.linalg.multi_dot([x, T.ones(3, 3)]), lambda T, x: T.linalg.multi_dot([x, x.double()]),
    lambda T, x: T.linalg.multi_dot([x.expand(2, 2, 2), x]), lambda T, x: T.linalg.cross(x, x),
    lambda T, x: T.linalg.cross(T.ones(3), T.ones(2, 3)), lambda T, x: T.linalg.cross(T.ones(3), T.ones(3).long()),
    lambda T, x: T.linalg.cross(T.ones(3), T.ones(3), dim=4), lambda T, x: T.linalg.cross(T.tensor(1.0), T.tensor(1.0)),
    lambda T, x: T.linalg.vecdot(x.long(), x.long()), lambda T, x: T.linalg.vecdot(x, x.double()),
    lambda T, x: T.linalg.vecdot(x, x, dim=3), lambda T, x: T.linalg.vecdot(x[0], T.ones(3)),
    lambda T, x: T.linalg.vecdot(T.tensor(2.0), T.tensor(3.0)), lambda T, x: T.linalg.vander(T.tensor([1, 2, 3])),
    lambda T, x: T.linalg.vander(T.tensor([1, 2], dtype=T.uint8), N=3), lambda T, x: T.linalg.vander(x[0], N=1),
    lambda T, x: T.linalg.vander(x > 0), lambda T, x: T.linalg.vander(x[0], 3),
    lambda T, x: T.linalg.matrix_power(x, 2.0), lambda T, x: T.linalg.matrix_power(x.long(), 2),
    lambda T, x: T.linalg.matrix_power(x.long(), -1), lambda T, x: T.linalg.matrix_power(T.ones(2, 3), 2),
    lambda T, x: T.linalg.matrix_power(x.long(), 0), lambda T, x: T.linalg.tensorinv(x, ind=0),
    lambda T, x: T.linalg.tensorinv(x), lambda T, x: T.linalg.tensorinv(x, ind=9),
    lambda T, x: T.linalg.tensorsolve(x, T.ones(3)), lambda T, x: T.linalg.diagonal(x, 1),
    lambda T, x: T.linalg.diagonal(x[0]), lambda T, x: T.linalg.householder_product(x, T.ones(3)),
    lambda T, x: T.linalg.householder_product(T.ones(2, 3), T.ones(2)), lambda T, x: T.linalg.householder_product(x, x),
    lambda T, x: T.linalg.householder_product(x, T.ones(2).double()),
    lambda T, x: T.linalg.householder_product(x.long(), T.ones(2).long()),
    lambda T, x: T.ormqr(x, T.ones(2), T.ones(3, 3)), lambda T, x: T.ormqr(x, T.ones(1), x),
    lambda T, x: T.ormqr(x, T.ones(2), T.ones(2)), lambda T, x: T.ormqr(x, T.ones(2), x.double()),
    lambda T, x: T.geqrf(x.long()), lambda T, x: T.geqrf(x[0]), lambda T, x: T.svd(x[0]),
    lambda T, x: T.cholesky(x.long()), lambda T, x: T.cholesky(x[0]), lambda T, x: T.cholesky_inverse(x.long()),
    lambda T, x: T.cholesky_inverse(T.ones(2, 3)), lambda T, x: T.linalg.ldl_solve(x, T.tensor([1, 2]), x[0]),
    lambda T, x: T.linalg.ldl_solve(x, T.tensor([1]), x), lambda T, x: T.linalg.ldl_solve(x, T.tensor([1.0, 2.0]), x),
    lambda T, x: T.linalg.ldl_solve(x, T.tensor([1, 2]), T.ones(3, 3)), lambda T, x: T.symeig(x), lambda T, x: T.eig(x),
    lambda T, x: T.solve(x, x), lambda T, x: T.lstsq(x, x), lambda T, x: T.matrix_rank(x),
    lambda T, x: T.pca_lowrank(T.ones(8, 7), q=9), lambda T, x: T.pca_lowrank(T.ones(8, 7), niter=-1),
    lambda T, x: T.svd_lowrank(x[0]), lambda T, x: T.lobpcg(T.eye(4), k=2), lambda T, x: T.lobpcg(T.ones(4, 3)),
    lambda T, x: T.linalg.matrix_exp(T.full((2, 2), float("nan"))),
]


@pytest.mark.host_only("a device gives nan for singular values of nan, without a wait", cases=("103",))
@pytest.mark.parametrize("n", range(len(CALLS)))
def test_arguments(n):
    """Compares results or kinds of errors; PyTorch's LinAlgError is a different class from
    mindtorch's."""
    def call(T, x):
        try:
            return CALLS[n](T, x)
        except T.linalg.LinAlgError as e:
            return "LinAlgError", str(e)
    check(call, In(E), rtol=1e-3)


def test_messages():
    same = 0
    for call in CALLS:
        texts = []
        for T in (real, mine):
            try:
                call(T, T.tensor(E))
            except RuntimeError as e:
                texts.append(str(e).split("\n")[0])
            except (TypeError, ValueError, IndexError, AssertionError):
                pass
        if len(texts) == 2:
            same += texts[1].startswith(texts[0]) or texts[0] in texts[1]
            assert len({t.partition("(")[0].partition(":")[0][:25] for t in texts}) == 1
    assert same > 100


TOLERANCES = [{}, {"tol": 0.5}, {"atol": 1.0}, {"rtol": 0.5}, {"atol": 1.0, "rtol": 0.9}, {"atol": 0.0},
              {"hermitian": True}]


@pytest.mark.parametrize("kw", TOLERANCES)
def test_tolerances(kw):
    a = np.array([[2.0, 1.0], [1.0, 3.0]])
    for x in (In(a), In(np.stack([a, a * 2, a + 1]))):
        check(lambda T, x: T.linalg.matrix_rank(x, **kw), x)
        renamed = {"rcond" if k == "tol" else k: v for k, v in kw.items()}
        check(lambda T, x, kw=renamed: T.linalg.pinv(x, **kw), x)
        check(lambda T, x: T.linalg.matrix_rank(x, **{k: v if v is True else T.tensor(v) for k, v in kw.items()}), x)
    check(lambda T, x: T.linalg.pinv(x, atol=T.tensor([1.0, 5.0])), In(a))
    check(lambda T, x: T.linalg.matrix_rank(x, atol=T.tensor([1.0, 5.0])), In(a))


# ------------------------------------------------------------------ results
def test_names_of_results():
    calls = {
        "inv_ex": (), "slogdet": (), "cholesky_ex": (), "qr": (), "svd": (), "eig": (), "eigh": (), "lu": (),
        "lu_factor": (), "lu_factor_ex": (),
        "ldl_factor": (), "ldl_factor_ex": (), "lstsq": (E,), "solve_ex": (E,)}
    for name, more in calls.items():
        a, b = (getattr(T.linalg, name)(T.tensor(E), *map(T.tensor, more)) for T in (real, mine))
        assert type(a).__name__ == type(b).__name__ and a._fields == b._fields if hasattr(a, "_fields") else True
        for f in type(b).fields:
            assert plain(getattr(a, f))[0] == plain(getattr(b, f))[0]


def test_grad_fn_names():
    ops = {"inv": lambda T, x: T.linalg.inv(x), "det": lambda T, x: T.linalg.det(x), "slogdet": lambda T,
           x: T.linalg.slogdet(x)[1],
           "svd": lambda T, x: T.linalg.svd(x)[1], "svdvals": lambda T, x: T.linalg.svdvals(x), "eig": lambda T,
           x: T.linalg.eig(x)[0],
           "eigvalsh": lambda T, x: T.linalg.eigvalsh(x), "qr": lambda T, x: T.linalg.qr(x)[0], "lu": lambda T,
           x: T.linalg.lu(x)[1],
           "lu_factor": lambda T, x: T.linalg.lu_factor(x)[0], "cholesky": lambda T, x: T.linalg.cholesky(x),
           "pinv": lambda T, x: T.linalg.pinv(x),
           "solve": lambda T, x: T.linalg.solve(x, x), "lstsq": lambda T, x: T.linalg.lstsq(x, x)[0],
           "vector_norm": lambda T, x: T.linalg.vector_norm(x),
           "matrix_exp": lambda T, x: T.linalg.matrix_exp(x), "ormqr": lambda T, x: T.ormqr(x, x[0], x)}
    for name, f in ops.items():
        names = [f(T, T.eye(3, requires_grad=True)).grad_fn.name() for T in (real, mine)]
        assert names[0] == names[1], name


def test_out():
    for T in (real, mine):
        a = T.tensor([[2.0, 1.0], [1.0, 3.0]])
        out = T.empty(2, 2)
        assert T.linalg.inv(a, out=out) is out
        np.testing.assert_allclose((out @ a).numpy(), np.eye(2), atol=1e-6)
        u, s, v = T.empty(0), T.empty(0), T.empty(0)
        r = T.linalg.svd(a, out=(u, s, v))
        assert r[1] is s and s.shape == (2,)
        n = T.empty(())
        T.linalg.vector_norm(a, out=n)
        assert abs(n.item() - 15 ** 0.5) < 1e-6


def test_inputs_are_not_modified():
    a = values(0, (4, 4), "float64") + 4 * np.eye(4)
    for name, (f, shapes) in OPS.items():
        if (3, 3) in shapes:
            x = mine.tensor(a[:3, :3].copy())
            f(mine, x)
            np.testing.assert_array_equal(x.numpy(), a[:3, :3], err_msg=name)


def test_lobpcg():
    a = values(1, (9, 9), "float64").astype("float64")
    a = a @ a.T
    b = np.diag(np.arange(1.0, 10.0))
    for kw in ({"k": 2}, {"k": 2, "largest": False}, {"k": 1}):
        for second in (None, b):
            w, v = mine.lobpcg(mine.tensor(a), B=None if second is None else mine.tensor(second), **kw)
            right = v.numpy() if second is None else second @ v.numpy()
            np.testing.assert_allclose(a @ v.numpy(), right * w.numpy(), atol=1e-8)
            e = real.lobpcg(real.tensor(a), B=None if second is None else real.tensor(second), niter=200, **kw)[0]
            np.testing.assert_allclose(w.numpy(), e.numpy(), rtol=1e-4, atol=1e-4)
    with pytest.raises(NotImplementedError, match="tracker"):
        mine.lobpcg(mine.tensor(a), tracker=print)


def test_low_rank_follows_the_generator():
    a = values(2, (7, 5), "float64").astype("float64")
    for shape in ((7, 5), (5, 7)):
        x = a.reshape(shape)
        outs = []
        for T in (real, mine):
            T.manual_seed(3)
            u, s, v = T.svd_lowrank(T.tensor(x), q=2, niter=1)
            outs.append((s.numpy(), (u * s @ v.mT).numpy(), T.rand(1).item()))
        np.testing.assert_allclose(outs[1][0], outs[0][0], rtol=1e-6)
        np.testing.assert_allclose(outs[1][1], outs[0][1], atol=1e-8)
        assert outs[0][2] == outs[1][2]


def test_every_linalg_function_exists():
    for n in real.linalg.__dict__:
        if not n.startswith("_") and callable(getattr(real.linalg, n)):
            assert callable(getattr(mine.linalg, n)), n


LARGE = {
    "inv": lambda T, x: T.linalg.inv(x), "solve": lambda T, x: T.linalg.solve(x, x.mT[..., :3]),
    "solve right": lambda T, x: T.linalg.solve(x, x[..., :2, :], left=False), "solve vector": lambda T,
    x: T.linalg.solve(x, x[..., 0]),
    "cholesky": lambda T, x: T.linalg.cholesky(psd(T, x)), "qr": lambda T, x: T.linalg.qr(x), "qr r": lambda T,
    x: T.linalg.qr(x, "r")[1].abs(),
    "qr complete": lambda T, x: T.linalg.qr(x.detach()[..., :65], "complete"), "det": lambda T, x: T.linalg.det(x / 4),
    "slogdet": lambda T, x: T.linalg.slogdet(x), "svd": lambda T, x: T.linalg.svd(x)[1], "svd of tall": lambda T,
    x: T.linalg.svd(x[..., :64])[1],
    "svdvals": lambda T, x: T.linalg.svdvals(x.detach()), "eigh": lambda T, x: T.linalg.eigh(herm(x))[0],
    "eigvalsh": lambda T, x: T.linalg.eigvalsh(herm(x).detach(), "U"), "eigvals": lambda T,
    x: (T.linalg.eigvals(x.detach()) ** 2).sum(-1),
    "eig": lambda T, x: (T.linalg.eig(x)[0] ** 2).sum(-1), "matrix_exp": lambda T, x: T.linalg.matrix_exp(x / 10),
    "pinv": lambda T, x: T.linalg.pinv(x[..., :64, :])}


@pytest.mark.parametrize("name", LARGE)
def test_large_matrices(name):
    """Matrices with 64 or more rows use other kernels."""
    for shape in ((70, 70), (2, 70, 70)):
        for dtype in DOUBLES:
            a = matrix(1, shape, dtype, grad=name != "qr r")
            check(lambda T, x, n=shape[-1]: LARGE[name](T, x + 2 * T.eye(n, dtype=x.dtype)), a, rtol=1e-6, atol=1e-7,
                  grad_rtol=1e-5)


def test_large_singular_matrices():
    a = values(1, (3, 70, 70), "float64").astype("float64")
    a[1, :, 5] = 0
    x = mine.tensor(a)
    for f in (lambda: mine.linalg.inv(x), lambda: mine.linalg.solve(x, x)):
        with pytest.raises(mine.linalg.LinAlgError, match=r"\(Batch element 1\)"):
            f()
    with pytest.raises(mine.linalg.LinAlgError, match=r"\(Batch element 1\): .* order 6 "):
        mine.linalg.cholesky(x.mT @ x)
    assert mine.linalg.det(x)[1].item() == 0 and mine.linalg.slogdet(x).logabsdet[1].item() == -INF
    assert mine.linalg.inv_ex(x).info[1].item() > 0
    nan = mine.full((70, 70), float("nan"))
    with pytest.raises(mine.linalg.LinAlgError, match="linalg.eigh: .*failed to converge"):
        mine.linalg.eigvalsh(nan)
    # (a device kernel returns nan without a synchronization)
    with pytest.raises(mine.linalg.LinAlgError, match="non-finite"):
        mine.linalg.svdvals(nan.cpu())


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "float16", "int64"])
@pytest.mark.parametrize("name, order", [("norm", None), ("vector_norm", 2), *[(f, p) for f in ("norm", "matrix_norm") for p in ("fro", "nuc", 2, -2, 1, -1, INF)],
                                         ("vector_norm", 3), ("vector_norm", 0), ("vector_norm", INF)])
def test_dtype_of_norms(name, order, dtype):
    """The norm is computed in the requested dtype, for every order, over all dims and over some."""
    x = In(np.linspace(-2, 3, 12).reshape(2, 2, 3), "float32", grad=True)
    for options in ({}, {"dim": (0, 2)}, {"dim": (-1, 1), "keepdim": True}):
        def fn(T, x, options=options):
            return getattr(T.linalg, name)(x if options else x[0], *([] if order is None else [order]), dtype=getattr(T, dtype), **options)
        check(fn, x, rtol=1e-5)
