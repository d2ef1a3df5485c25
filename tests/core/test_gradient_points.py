"""Values and gradients of every differentiable op of PyTorch's op database at the points where
gradient rules often fail: zeros of both signs, equal values, infinities, nan, denormals, huge
values.

The result must be nan where PyTorch has nan, else PyTorch's value.
"""
import itertools
import math
import warnings
import zlib

import _on_device
import numpy as np
import pytest
from _parity import In, check, mine, real
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

from mindtorch.tools import _opinfo_runner as C

inf, nan = math.inf, math.nan
GRID = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1e-3, -1e-3, 20.0, -20.0, 100.0, -100.0, inf, -inf, nan]
EXTREME = {"float32": [1e-40, -1e-40, 1e38, -1e38], "float64": [5e-320, -5e-320, 1e308, -1e308]}
RTOL, SMALL = {"float32": 2e-4, "float64": 1e-6}, {"float32": 1e-37, "float64": 1e-300}

_FUSED = "torch fuses the product with the sum, or not, by the element's place in a vector register"
_POLYNOMIAL = "recurrences in float64 here; torch's overflow, cancel, or (at nan) return uninitialised memory"
#: op -> why its values at denormal and huge arguments differ from PyTorch's
ORDINARY_ONLY = {
    "add": _FUSED, "sub": _FUSED, "rsub": _FUSED,
    "fmod": "torch's vectorised fmod is nan for huge quotients, its scalar one exact, as here",
    "remainder": "as fmod", "__rmod__": "as fmod",
    "__rdiv__": "torch multiplies by the reciprocal, which overflows first",
    "frexp": "torch takes 2**exponent in float32 for float64 too",
    "special.zeta": "nan of torch's loop for huge arguments", "igamma": "at a denormal order torch gives 0 in float32",
    "igammac": "as igamma", "special.erfcx": "cancellation of the slope", "special.entr": "as special.erfcx",
    "special.i0e": "cancellation", "special.i1e": "cancellation", "ldexp": "order of the factors, seen in overflow alone",
    "special.ndtri": "derivative at a denormal", "mvlgamma": "rounding of huge arguments",
}
#: op -> why it is excluded
NOT_THESE = {
    "special.ndtr": "exact in the tail here; torch's 1 + erf gives 0 there",
    "special.log_ndtr": "derivative exact in the tail here; torch subtracts squares there",
    "logit": "the sign of an infinite derivative at -0 depends on torch's vector register",
    "chalf": "complex32 is refused", "half": "another dtype", "bfloat16": "another dtype",
    **{f"special.{kind}polynomial_{k}": _POLYNOMIAL for kind, ks in
       (("chebyshev_", "tuvw"), ("shifted_chebyshev_", "tuvw"), ("legendre_", "p"), ("laguerre_", "l")) for k in ks},
    "special.hermite_polynomial_h": _POLYNOMIAL, "special.hermite_polynomial_he": _POLYNOMIAL,
}


def _elementwise():
    return [(name, op) for name, op in C.ops() if isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo)) and op.name not in NOT_THESE]


def _same(a, b, rtol, atol):
    with np.errstate(all="ignore"):
        near = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= rtol * np.abs(b) + atol)
    return (a == b) | (a != a) & (b != b) | near


def _numpy(t):
    return t.detach().clone().numpy()


ELEMENTWISE = _elementwise()


@pytest.mark.parametrize("d", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name,op", ELEMENTWISE, ids=[n for n, _ in ELEMENTWISE])
def test_elementwise(name, op, d):
    """Tests one argument on the grid, two on all its pairs; with gradients for cotangents 1 and 0.
    """
    if not op.supports_dtype(getattr(real, d), "cpu"):
        pytest.skip(f"torch has no {d} here")
    fn = C.facade_op(op, real, mine)
    extreme = [] if op.name in ORDINARY_ONLY else EXTREME[d]
    # MindSpore's kernel threads flush denormals to zero, as NPUs and GPUs do.
    grid = np.array(GRID + (extreme if not _on_device.active() else extreme[2:]), d)
    real.manual_seed(0)
    seen, checks = set(), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for s in itertools.islice(op.sample_inputs("cpu", getattr(real, d)), 30):
            binary = isinstance(op, BinaryUfuncInfo) and bool(s.args) and isinstance(s.args[0], real.Tensor)
            key = repr([binary, [x for x in s.args if not isinstance(x, real.Tensor)], s.kwargs])
            if key in seen:
                continue
            seen.add(key)
            values = [x.reshape(-1) for x in np.meshgrid(grid, grid)] if binary else [grid]
            rest, carry = list(s.args[len(values) - 1:]), C.Carrier(real, mine)
            a = [real.tensor(v, requires_grad=True) for v in values]
            b = [mine.tensor(v, requires_grad=True) for v in values]
            try:
                want = op.op(*a, *rest, **s.kwargs)
            except (RuntimeError, TypeError, ValueError):
                continue
            got = fn(*b, *[carry(x) for x in rest], **carry(s.kwargs))
            if isinstance(want, (tuple, list)):
                want, got = want[0], got[0]
            if want.dtype not in (real.float32, real.float64):
                continue
            checks += _compare(f"{name} {key} value", _numpy(got), _numpy(want), values, d)
            if not want.requires_grad:
                continue
            for cotangent in (1.0, 0.0):
                g = np.full(tuple(want.shape), cotangent, str(want.dtype)[6:])
                try:
                    gs = real.autograd.grad(want, a, real.tensor(g), allow_unused=True, retain_graph=True)
                except (RuntimeError, NotImplementedError):
                    break
                for x, y in zip(mine.autograd.grad(got, b, mine.tensor(g), allow_unused=True, retain_graph=True), gs):
                    assert (x is None) == (y is None) or not np.any(_numpy(y if x is None else x)), f"{name} {key}: a gradient on one side only"
                    if x is not None and y is not None:
                        checks += _compare(f"{name} {key} gradient of {cotangent}", _numpy(x), _numpy(y), values, d)
    if not checks:
        pytest.skip("torch computes no real floats here")


def _compare(what, a, b, values, d):
    assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
    # the difference of two nearly equal values
    rtol = 1e-2 if "erfcx" in what and d == "float32" else RTOL[d]
    bad = np.flatnonzero(~_same(a, b, rtol, SMALL[d]).reshape(-1))
    shown = [f"at {[float(v[i]) for v in values]}: {a.flat[i]} instead of {b.flat[i]}" for i in bad[:4]]
    assert not bad.size, f"{what}: {bad.size} differ, " + "; ".join(shown)
    return 1


# ------------------------------------------------------------------ ops on whole tensors
_MILD = [0.0, -0.0, 1.0, 1.0, -1.0, 2.0, 0.5, 0.0, -2.0]
POOLS = {"zeros": [0.0], "ones": [1.0], "mild": _MILD}
WILD = {"one infinity": _MILD + [inf], "infinities": [inf, -inf, 1.0, 0.0], "all": _MILD + [inf, -inf, nan, 3.0], "minus infinity": [-inf]}

_RANDOM = ("empty", "rand", "normal", "dropout", "multinomial", "bernoulli", "exponential", "cauchy", "geometric", "uniform", "rrelu",
           "fractional", "lowrank", "lobpcg")
_FREE = "factors of a singular matrix are not unique"
_CHOICE = "torch's choice among equal elements: compared in test_ops_sort.py"
#: op -> why it is excluded with finite values
NOT_FINITE = {
    "geqrf": _FREE, "ormqr": _FREE, "qr": _FREE, "linalg.qr": _FREE, "svd": _FREE, "linalg.svd": _FREE, "linalg.eigh": _FREE,
    "linalg.eig": _FREE, "linalg.eigvalsh": _FREE, "linalg.eigvals": _FREE, "linalg.svdvals": _FREE, "norm.nuc": _FREE,
    "linalg.norm.subgradients_at_zero": _FREE, "linalg.norm": _FREE, "linalg.matrix_norm": _FREE, "linalg.pinv": _FREE,
    "linalg.pinv.singular": _FREE, "linalg.pinv.hermitian": _FREE, "pinverse": _FREE, "linalg.lstsq": _FREE, "linalg.lstsq.grad_oriented": _FREE,
    "linalg.matrix_rank": _FREE, "linalg.cond": "infinite or its rounding", "logdet": _FREE, "linalg.slogdet": _FREE, "matrix_exp": _FREE,
    "lu_solve": "quotients by zero pivots", "linalg.lu_solve": "as lu_solve", "lu": _FREE, "linalg.householder_product": "torch divides by tau",
    "linalg.det": "torch's gradient of a singular matrix is wrong: these are the cofactors", "det": "as linalg.det",
    "linalg.inv": _FREE, "linalg.inv_ex": _FREE, "linalg.solve": _FREE, "linalg.solve_ex": _FREE, "linalg.solve_triangular": _FREE,
    "triangular_solve": _FREE, "cholesky_solve": _FREE, "cholesky_inverse": _FREE, "linalg.tensorsolve": _FREE, "linalg.tensorinv": _FREE, "linalg.ldl_solve": _FREE,
    "gradient": "sample points that coincide", "as_strided_scatter": "torch's own gradient is wrong",
    "bucketize": "boundaries that are not sorted", "searchsorted": "as bucketize",
    "kthvalue": _CHOICE, "median": _CHOICE, "nanmedian": _CHOICE, "masked.median": _CHOICE, "topk": _CHOICE, "mode": _CHOICE,
    "to_sparse": "another layout", "histogramdd": "another kind of result",
}


def _fill(x, pool, rs, d):
    """Returns the sample with its floats drawn from a pool."""
    if isinstance(x, real.Tensor):
        if x.dtype != getattr(real, d):
            return x
        t = real.tensor(np.array(pool)[rs.randint(len(pool), size=tuple(x.shape))].astype(d))
        if 0 not in x.stride():
            t = real.empty_strided(x.size(), x.stride(), dtype=x.dtype).copy_(t)
        return t.requires_grad_(x.requires_grad)
    if isinstance(x, (tuple, list)) and not hasattr(x, "_fields"):
        return type(x)(_fill(i, pool, rs, d) for i in x)
    return {k: _fill(v, pool, rs, d) for k, v in x.items()} if isinstance(x, dict) else x


def _tensors(T, x):
    if isinstance(x, T.Tensor):
        return [x]
    return [t for i in x for t in _tensors(T, i)] if isinstance(x, (tuple, list)) else []


def _sample(name, op, fn, s, n, pool_name, pool, d):
    """Returns None, or the difference; False if PyTorch rejects the sample."""
    rs = np.random.RandomState(zlib.crc32(f"{name}{n}{pool_name}".encode()) % 2 ** 31)
    args, kwargs = [_fill(s.input, pool, rs, d), *_fill(list(s.args), pool, rs, d)], _fill(s.kwargs, pool, rs, d)
    try:
        want = op.op(*args, **kwargs)
    except (RuntimeError, ValueError, IndexError, TypeError):
        return False
    carry = C.Carrier(real, mine)
    try:
        ours = [carry(x) for x in args]
        kw = carry(kwargs)
    except C.Skip:
        return False
    got = fn(*ours, **kw)
    a, b = _tensors(mine, [got]), _tensors(real, [want])
    if len(a) != len(b):
        return f"{len(a)} results instead of {len(b)}"
    pairs = []
    for k, (x, y) in enumerate(zip(a, b)):
        if y.layout != real.strided or y.is_complex():
            continue
        p, q = _numpy(x), _numpy(y)
        if p.shape != q.shape or p.dtype != q.dtype:
            return f"result {k}: {p.dtype}{p.shape} instead of {q.dtype}{q.shape}"
        ok = _near(p, q, d)
        if not ok.all():
            return f"result {k}: {(~ok).sum()} of {ok.size} differ, e.g. {p[~ok][0]} instead of {q[~ok][0]}"
        if y.requires_grad and q.dtype == np.dtype(d):
            pairs.append((x, y, np.array([1.0, 2.0, 0.5, -1.0])[rs.randint(4, size=q.shape)].astype(d)))
    leaves = [t for t in _tensors(real, [args, list(kwargs.values())]) if t.requires_grad]
    if not pairs or not leaves:
        return None
    try:
        gs = real.autograd.grad([y for _, y, _ in pairs], leaves, [real.tensor(c) for *_, c in pairs], allow_unused=True)
    except (RuntimeError, NotImplementedError):
        return None
    mes = mine.autograd.grad([x for x, *_ in pairs], [carry(t) for t in leaves], [mine.tensor(c) for *_, c in pairs], allow_unused=True)
    for k, (x, y) in enumerate(zip(mes, gs)):
        if x is None or y is None:
            if x is not y and np.any(_numpy(y if x is None else x)):
                return f"gradient {k} on one side only"
            continue
        p, q = _numpy(x), _numpy(y)
        ok = _near(p, q, d)
        if not ok.all():
            return f"gradient {k}: {(~ok).sum()} of {ok.size} differ, e.g. {p[~ok][0]} instead of {q[~ok][0]} at {_numpy(leaves[k])[~ok][0]}"
    return None


def _near(p, q, d):
    if q.dtype.kind != "f":
        return p == q
    finite = np.abs(q[np.isfinite(q)])
    return _same(p, q, RTOL[d], {"float32": 2e-5, "float64": 1e-9}[d] * max(1.0, finite.max(initial=0)))


def _whole(left_out):
    return [(name, op) for name, op in C.ops() if not isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo)) and name not in left_out
            and not any(w in name for w in _RANDOM) and op.supports_autograd and op.supports_dtype(real.float64, "cpu")]


def _run(name, op, pools, limit, d="float64"):
    fn = C.facade_op(op, real, mine)
    real.manual_seed(0)
    done, bad = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n, s in enumerate(itertools.islice(op.sample_inputs("cpu", getattr(real, d), requires_grad=True), limit)):
            if sum(t.numel() for t in _tensors(real, [s.input, list(s.args), list(s.kwargs.values())])) > 1500:
                continue
            for pool_name, pool in pools.items():
                r = _sample(name, op, fn, s, n, pool_name, pool, d)
                done += r is not False
                if r:
                    bad.append(f"{name} sample {n}, {pool_name}: {r}")
    assert not bad, "\n".join(bad)
    if not done:
        pytest.skip("PyTorch accepts no sample")


WHOLE = _whole(NOT_FINITE)


@pytest.mark.slow
@pytest.mark.parametrize("name,op", WHOLE, ids=[n for n, _ in WHOLE])
def test_equal_values_and_zeros(name, op):
    _run(name, op, POOLS, 12)


#: Ops whose values are compared at infinities and nan too.
WITH_INFINITIES = """amax amin aminmax argmax argmin addcdiv addcmul addmm baddbmm cdist clamp cummax cummin cumsum dist dot index_add
 index_reduce.mean isin lerp linalg.vector_norm log_softmax logsumexp masked.logsumexp masked.sum max.reduction_no_dim
 max.reduction_with_dim mean min.reduction_no_dim min.reduction_with_dim nanmean nanquantile nansum nn.functional.cosine_similarity
 nn.functional.gaussian_nll_loss nn.functional.glu nn.functional.hinge_embedding_loss nn.functional.huber_loss nn.functional.kl_div
 nn.functional.l1_loss nn.functional.leaky_relu nn.functional.mse_loss nn.functional.multilabel_margin_loss nn.functional.nll_loss
 nn.functional.normalize nn.functional.pairwise_distance nn.functional.poisson_nll_loss nn.functional.relu nn.functional.smooth_l1_loss
 nn.functional.soft_margin_loss nn.functional.threshold nn.functional.triplet_margin_loss norm norm.fro norm.inf outer prod quantile renorm
 scatter_add softmax std std.unbiased sum trace tril triu unfold var var.unbiased where""".split()
FAR = [(name, op) for name, op in _whole({}) if name in WITH_INFINITIES]


@pytest.mark.slow
@pytest.mark.parametrize("name,op", FAR, ids=[n for n, _ in FAR])
def test_infinities_and_nan(name, op):
    _run(name, op, WILD, 12)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_ignored_samples_may_be_infinite(reduction, weighted):
    """Checks that -inf (a masked logit) contributes nothing if its target is ignored."""
    def f(T, x, w):
        t, kw = T.tensor([1, 2, 0]), {"reduction": reduction, "ignore_index": 0, "weight": w if weighted else None}
        logs = T.cat([T.log_softmax(x, 1), T.tensor([[-inf, 0.0, -1.0]], dtype=T.float64)])
        return (T.nn.functional.nll_loss(logs, t, **kw),
                T.nn.functional.cross_entropy(T.cat([x, T.full((1, 3), -inf, dtype=T.float64)]), t, **kw))
    check(f, In([[0.5, 1.0, -1.0], [2.0, 0.0, 0.25]], "float64", grad=True), In([0.5, 1.0, 2.0], "float64"))


def test_singular_determinants():
    """Checks that the gradient is the matrix of cofactors, even where PyTorch's is not."""
    rs = np.random.RandomState(0)
    for _ in range(20):
        a = np.array(_MILD)[rs.randint(len(_MILD), size=(4, 4))]
        a[3] = a[0] + a[1]
        x = mine.tensor(a, requires_grad=True)
        g, = mine.autograd.grad(mine.linalg.det(x), x)
        minors = [[(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(4)] for i in range(4)]
        np.testing.assert_allclose(_numpy(g), minors, atol=1e-9)


UNWRITTEN = {
    "unique": lambda T, a: T.unique(a), "unique, all": lambda T, a: T.unique(a, return_inverse=True, return_counts=True)[0],
    "unique, dim": lambda T, a: T.unique(a, dim=0), "unique_consecutive": lambda T, a: T.unique_consecutive(a), "igamma": lambda T, a: T.igamma(a, a.detach()),
    "zeta": lambda T, a: T.special.zeta(a + 1, a.detach() + 1), "bincount": lambda T, a: T.bincount(T.tensor([0, 1, 1]), weights=a),
    "ldl_solve": lambda T, a: T.linalg.ldl_solve(T.eye(3), T.tensor([1, 2, 3], dtype=T.int32), a.unsqueeze(1)), "binomial": lambda T, a: T.binomial(a, a.detach() * .1),
}


@pytest.mark.parametrize("name", UNWRITTEN)
def test_ops_without_a_derivative_raise_in_backward(name):
    """Checks that their results require grad, and that backward raises real PyTorch's class of
    error."""
    def run(T):
        y = UNWRITTEN[name](T, T.tensor([1., 2., 3.], requires_grad=True))
        try:
            y.sum().backward()
        except Exception as e:
            return y.requires_grad, type(e)
    assert run(mine) == run(real)
    assert issubclass(run(mine)[1], RuntimeError)
