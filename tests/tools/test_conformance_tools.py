"""The comparison code of the op database: planted faults are found in every op, and samples that
cannot be compared do not pass."""
import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine
from mindtorch.tools import _comparators, _opinfo_runner as C

OPS = dict(C.ops())
#: Ops with several valid results or random values, and ops that work on uninitialized memory.
FREE = """svd linalg.svd linalg.eig linalg.eigh linalg.qr qr geqrf linalg.householder_product ormqr svd_lowrank pca_lowrank linalg.eigvals
linalg.ldl_factor linalg.ldl_factor_ex linalg.lu linalg.lu_factor linalg.lu_factor_ex lu sort argsort topk msort median mode kthvalue nanmedian
resize_ resize_as_ nn.functional.rrelu cauchy exponential geometric log_normal normal uniform nn.functional.scaled_dot_product_attention
nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d""".split()


def judged(monkeypatch, op, plant, dtype="float32", limit=10):
    """Returns {check: outcomes} where plant(tensor) replaces every tensor that mindtorch's op
    returns."""
    made = C.facade_op(op, real, mine)

    def planted(x):
        if isinstance(x, mine.Tensor):
            return plant(x)
        if isinstance(x, (tuple, list)):
            return type(x)(*map(planted, x)) if hasattr(x, "_fields") else type(x)(map(planted, x))
        return x
    monkeypatch.setattr(C, "facade_op", lambda *a: lambda *args, **kwargs: planted(made(*args, **kwargs)))
    out = {}
    for check, outcome, _ in C.judge(op, dtype, limit=limit):
        out.setdefault(check, set()).add(outcome)
    return out


def off(x):
    """Returns other values of the same shape and dtype."""
    return ~x if x.dtype is mine.bool else x + 1 if x.dtype.is_floating_point or x.dtype.is_complex else x + 3


@pytest.mark.parametrize("name", FREE)
def test_a_wrong_value_is_found(monkeypatch, name):
    assert "wrong" in judged(monkeypatch, OPS[name], off)["forward"]


@pytest.mark.parametrize("name", [n for n in FREE if OPS[n].supports_autograd])
def test_a_wrong_gradient_is_found(monkeypatch, name):
    def steeper(x):  # same values, twice the gradient
        return x * 2 - x.detach() if x.requires_grad else x
    found = judged(monkeypatch, OPS[name], steeper)
    if found.get("grad") and name != "normal":        # its gradient is zero
        assert "wrong" in found["grad"], found
    else:
        assert name in ("geqrf", "resize_", "resize_as_", "normal", "cauchy", "exponential", "geometric", "log_normal", "uniform")


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_a_wrong_value_is_found_in_every_op(monkeypatch, name):
    op = OPS[name]
    dtype = next((d for d in C.DTYPES if op.supports_dtype(getattr(real, d), "cpu")), None)
    if dtype is None:
        pytest.skip(f"{name} has none of {C.DTYPES}")
    outcomes = judged(monkeypatch, op, off, dtype, limit=6)["forward"]
    if outcomes == {"pass"}:  # the first samples may be empty, or hash empty tensors
        outcomes = judged(monkeypatch, op, off, dtype, limit=60)["forward"]
    # These return no tensors, or sparse ones, which `off` cannot change.
    texts = name in ("tensor_split", "equal", "allclose", "item", "is_complex", "broadcast_shapes", "to_sparse")
    assert outcomes & ({"shape only"} if op.name in _comparators.SHAPE_ONLY else {"wrong", "refused"}) or texts, outcomes


def test_only_uninitialized_results_are_compared_by_shape():
    assert all("empty" in name for name in _comparators.SHAPE_ONLY)
    assert not set(_comparators.SHAPE_ONLY) & set(_comparators.COMPARATORS) and set(_comparators.COMPARATORS) <= {o.name for o in OPS.values()}


@pytest.mark.parametrize("name", ["empty_like", "new_empty_strided", "empty_permuted"])
def test_strides_of_uninitialized_results_are_compared(monkeypatch, name):
    def turned(x):
        return x.new_empty(x.shape[::-1]).permute(*reversed(range(x.dim())))
    assert judged(monkeypatch, OPS[name], lambda x: x, limit=8)["forward"] == {"shape only"}
    assert "wrong" in judged(monkeypatch, OPS[name], turned, limit=8)["forward"]


# -------------------------------------------------------------- comparisons where values may differ
def arrays(x):
    return C._arrays(x)


def verdict(name, want, got, *args, **kwargs):
    return _comparators.COMPARATORS[name][1](arrays(want), got, (arrays(list(args)), kwargs))


def matrix(*shape, dtype=np.float64):
    rng = np.random.RandomState(3)
    a = rng.randn(*shape)
    return real.tensor(a + 1j * rng.randn(*shape) if dtype is complex else a)


def test_choices_among_equal_values():
    x = real.tensor([[3, 1, 3, 1], [2, 2, 2, 0]])
    other = np.array([[0, 2, 3, 1], [2, 1, 0, 3]])
    want = real.sort(x, descending=True, stable=True)
    values = want[0].numpy()
    assert verdict("sort", want, [values, other], x) is None and verdict("argsort", want[1], other, x) is None
    assert "stable" in verdict("sort", want, [values, other], x, stable=True) and "stable" in verdict("argsort", want[1], other, x, stable=True)
    for wrong, why in ((np.array([[0, 0, 3, 1], [2, 1, 0, 3]]), "twice"), (np.array([[0, 1, 3, 2], [2, 1, 0, 3]]), "other values"),
                       (np.array([[0, 2, 3, 4], [2, 1, 0, 3]]), "range"), (np.array([[0, 2, 3, -1], [2, 1, 0, 3]]), "range"), (other[:1], "shape")):
        assert why in verdict("sort", want, [values, wrong], x) and why in verdict("argsort", want[1], wrong, x)
    assert "values" in verdict("sort", want, [values + 1, other], x)
    assert verdict("topk", x.topk(2), [values[:, :2], other[:, :2]], x, 2) is None
    assert verdict("topk", x.topk(2, 0), [x.topk(2, 0)[0].numpy(), x.topk(2, 0)[1].numpy()[::-1]], x, 2, 0) is not None
    for name, args in (("kthvalue", (3,)), ("mode", ()), ("median", (1,))):
        want = getattr(x, name)(*args)
        for i in range(4):
            right = x[:, i].equal(want[0])
            found = verdict(name, want, [want[0].numpy(), np.full(2, i)], x, *args)
            assert (found is None) is right, (name, i, found)
    nan = real.tensor([float("nan"), 1.0, float("nan")])
    assert verdict("mode", (nan[0], real.tensor(0)), [nan[2].numpy(), np.array(2)], nan) is None
    assert verdict("mode", (nan[0], real.tensor(0)), [nan[2].numpy(), np.array(1)], nan) is not None


@pytest.mark.parametrize("dtype", [float, complex])
def test_factors_up_to_signs_and_phases(dtype):
    a = matrix(2, 5, 3, dtype=dtype)
    turn = np.exp(1j * np.array([1.0, 2.0, 3.0])) if dtype is complex else np.array([1.0, -1.0, -1.0])

    def tried(name, want, right, *wrong):
        assert verdict(name, want, right, a) is None
        for w in wrong:
            assert verdict(name, want, w, a) is not None
    u, s, vh = map(np.array, real.linalg.svd(a, full_matrices=False))
    uu, vv = u * turn, turn.conj()[:, None] * vh
    tried("linalg.svd", (u, s, vh), [uu, s, vv], [uu, s, vh], [uu, s[..., ::-1], vv], [uu * 2, s, vv / 2], [uu[..., ::-1], s, vv])
    h = lambda x: x.swapaxes(-1, -2).conj()         # noqa: E731
    for name in ("svd", "svd_lowrank", "pca_lowrank"):
        tried(name, (u, s, h(vh)), [uu, s, h(vv)], [u, s, h(vv)], [uu, s + 1, h(vv)])
    for name, mode in (("qr", "reduced"), ("linalg.qr", "complete")):
        q, r = map(np.array, real.linalg.qr(a, mode))
        t = np.concatenate([turn, np.ones(q.shape[-1] - 3)])
        tried(name, (q, r), [q * t, t.conj()[:, None] * r], [q * t, r], [q * 2, r / 2], [q, r + np.tril(np.ones(r.shape), -1)])


def test_lu_with_other_pivots():
    a = np.array([[2.0, 1.0], [-2.0, 3.0]])  # either row may be the pivot
    p, lo, u = np.eye(2), np.array([[1.0, 0.0], [-1.0, 1.0]]), np.array([[2.0, 1.0], [0.0, 4.0]])
    p2, lo2, u2 = np.eye(2)[::-1], lo, np.array([[-2.0, 3.0], [0.0, 4.0]])
    np.testing.assert_array_equal(p @ lo @ u, a)
    np.testing.assert_array_equal(p2 @ lo2 @ u2, a)
    assert verdict("linalg.lu", (p, lo, u), [p2, lo2, u2], a) is None
    assert verdict("linalg.lu", (p, lo, u), [p2, lo2, u], a) is not None
    assert "|L|" in verdict("linalg.lu", (p, lo, u), [p, lo * [[1, 1], [2, 1]], np.array([[2.0, 1.0], [2.0, 5.0]])], a)
    packed, packed2 = lo - np.eye(2) + u, lo2 - np.eye(2) + u2
    for name in ("lu", "linalg.lu_factor"):
        assert verdict(name, (packed, np.array([1, 2])), [packed2, np.array([2, 2])], a) is None
        assert verdict(name, (packed, np.array([1, 2])), [packed2, np.array([1, 2])], a) is not None
    assert verdict("linalg.lu_factor_ex", (packed, np.array([1, 2]), np.array(0)), [packed2, np.array([2, 2]), np.array(1)], a) is not None
    for given in (matrix(2, 4, 3), matrix(3, 4), matrix(3, 3)):
        lu, pivots = map(np.array, real.linalg.lu_factor(given))
        np.testing.assert_allclose(_comparators._unpacked(lu, pivots), given.numpy(), atol=1e-12)


def test_eigenvalues_in_another_order():
    a = matrix(2, 4, 4)
    w, v = map(np.array, real.linalg.eig(a))
    turn, order = np.exp(1j * np.arange(4.0)), [2, 0, 3, 1]
    assert verdict("linalg.eigvals", w, w[..., order], a) is None and verdict("linalg.eigvals", w, w[..., [0, 0, 1, 2]], a) is not None
    assert verdict("linalg.eig", (w, v), [w[..., order], (v * turn)[..., order]], a) is None
    for wrong in ([w, v[..., order]], [w, v * 2], [w[..., [0] * 4], v[..., [0] * 4]], [w + 1, v]):
        assert verdict("linalg.eig", (w, v), wrong, a) is not None
    for kind in (float, complex):
        b = matrix(4, 4, dtype=kind)
        for uplo in "LU":
            w, v = map(np.array, real.linalg.eigh(b, uplo))
            assert verdict("linalg.eigh", (w, v), [w, -v], b, UPLO=uplo) is None
            assert verdict("linalg.eigh", (w, v), [w, -v], b, UPLO="LU"[uplo == "L"]) is not None
            assert verdict("linalg.eigh", (w, v), [w, v[:, order]], b, UPLO=uplo) is not None


# ------------------------------------------------------------------ nothing passes unchecked
class Fake:
    """The part of OpInfo's interface that `judge` uses."""

    name, supports_autograd, method_variant, inplace_variant = "add", False, None, None

    def __init__(self, samples, op=real.add):
        self.samples, self.op = samples, op

    def supported_backward_dtypes(self, device):
        return ()

    def sample_inputs(self, *args, **kwargs):
        return self.samples


class Sample:
    def __init__(self, input, *args, **kwargs):
        self.input, self.args, self.kwargs = input, args, kwargs


def test_samples_without_comparison_do_not_pass():
    assert list(C.judge(Fake([]), "float32")) == [("forward", "unchecked", "no sample")]
    refused = list(C.judge(Fake([Sample(real.ones(2), real.ones(3))]), "float32"))
    assert [r[:2] for r in refused] == [("forward", "unchecked")] and "RuntimeError" in refused[0][2]
    sparse = list(C.judge(Fake([Sample(real.eye(2).to_sparse(), real.eye(2).to_sparse())]), "float32"))
    assert [r[:2] for r in sparse] == [("forward", "unchecked")] and "strided" in sparse[0][2]
    assert [r[:2] for r in C.judge(Fake([Sample(real.ones(2), 1)]), "float32")] == [("forward", "pass")]


@pytest.mark.parametrize("x", [real.ones(3, 1).expand(3, 4), real.arange(24.0).reshape(2, 3, 4).transpose(0, 2)[:, 1:], real.arange(9.0)[1::2],
                               real.arange(16.0).as_strided((3, 3), (2, 1), 4), real.zeros(2, 3).to(real.bfloat16).t(), real.zeros(0, 3).t(),
                               real.ones(2, 3, dtype=real.complex64).t().conj()], ids=str)
def test_carrier_preserves_strides(x):
    m = C.Carrier(real, mine)(x)
    assert C.difference(real, mine, x, m) is None
    assert not x.numel() or (m.stride(), m.storage_offset()) == (x.resolve_conj().stride(), x.storage_offset())


def test_carrier_preserves_module_settings():
    m = C.Carrier(real, mine)(real.nn.PairwiseDistance(3.0, 0.5, True).eval())
    assert type(m) is mine.nn.PairwiseDistance and (m.norm, m.eps, m.keepdim, m.training) == (3.0, 0.5, True, False)
    with pytest.raises(C.Skip, match="Linear"):
        C.Carrier(real, mine)(real.nn.Linear(1, 1))
    assert {o for _, o, _ in C.judge(OPS["nn.functional.triplet_margin_with_distance_loss"], "float32", limit=2)} == {"pass"}


def test_error_in_the_carrier_is_reported_as_an_error(monkeypatch):
    def broken(self, *args):
        raise ValueError("as_strided is broken")
    monkeypatch.setattr(mine.Tensor, "as_strided", broken)
    monkeypatch.setattr(mine.Tensor, "permute", broken)
    found = list(C.judge(Fake([Sample(real.ones(2, 3).t(), 1)]), "float32"))
    assert [f[:2] for f in found] == [("forward", "error")] and "broken" in found[0][2]


class Unknown:
    def __str__(self):
        return "unknown"


@pytest.mark.parametrize("want, got, same", [
    (1 + 2j, 1 + 2j, True), (1 + 2j, 1 - 2j, False), (1.0, 1, False), (1, 1.0, False), (True, 1, False), (2, 2, True), (2, 3, False),
    (float("nan"), float("nan"), True), (float("inf"), 1e30, False), (1.0, 1.0 + 1e-9, True), ({"a": 1}, {"a": 1}, True), ({"a": 1}, {"a": 2}, False),
    ({"a": 1}, {"b": 1}, False), (Unknown(), Unknown(), False), (np.float32(1), Unknown(), False), (real.float32, mine.float32, True),
    (real.float32, mine.float64, False), (None, None, True), (None, 0, False), ((1, 2), [1, 2], True), ((1, 2), (1,), False), ("a", "b", False)], ids=str)
def test_values_of_any_type_are_compared(want, got, same):
    assert (C.difference(real, mine, want, got) is None) is same
