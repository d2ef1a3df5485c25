"""Sums, means, extrema, norms, moments, order statistics and histograms against PyTorch."""
import math

import numpy as np
import pytest
from _parity import In, check, few, mine, real, values
from hypothesis import given
from hypothesis import strategies as st

ALL = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64"]
LAYOUTS = ["plain", "plain", "transposed", "strided"]
SHAPES = [(), (3,), (2, 3), (2, 3, 4), (1, 3), (0,), (2, 0), (0, 3)]


def reduction(data, dtypes=ALL, shapes=SHAPES, grad=True, ties=False):
    """Returns an input and arguments for dim and keepdim."""
    shape, d = data.draw(st.sampled_from(shapes)), data.draw(st.sampled_from(dtypes))
    v = values(data.draw(st.integers(0, 10**6)), shape, d)
    if ties and v.dtype.kind == "f":
        v = np.round(v)
    n = len(shape)
    one = st.integers(-max(n, 1), max(n, 1) - 1)
    dim = data.draw(st.one_of(st.none(), one, st.lists(one, min_size=1, max_size=2, unique_by=lambda i: i % max(n, 1)).map(tuple)))
    return In(v, d, data.draw(st.sampled_from(LAYOUTS)), grad), dim, data.draw(st.booleans())


SEVERAL = ["sum", "mean", "nansum", "nanmean", "amax", "amin", "std", "var", "logsumexp"]


@pytest.mark.parametrize("name", SEVERAL)
@few
@given(st.data())
def test_over_several_dims(name, data):
    x, dim, keep = reduction(data, ties=name in ("amax", "amin"))
    if name in ("std", "var"):
        x.grad = x.grad and x.values.size > 1
    if dim is None:
        check(lambda T, a: getattr(T, name)(a), x, rtol=1e-5, grad_rtol=1e-4)
        check(lambda T, a: getattr(a, name)(), x, rtol=1e-5, grad_rtol=1e-4)
    else:
        check(lambda T, a: getattr(T, name)(a, dim, keepdim=keep), x, rtol=1e-5, grad_rtol=1e-4)
        check(lambda T, a: getattr(a, name)(dim=dim, keepdim=keep), x, rtol=1e-5, grad_rtol=1e-4)


@pytest.mark.parametrize("name", ["all", "any", "argmax", "argmin", "prod", "count_nonzero", "aminmax"])
@few
@given(st.data())
def test_other_reductions(name, data):
    x, dim, keep = reduction(data, ties=True)
    if name != "prod" and x.dtype.startswith("complex") and name in ("argmax", "argmin"):
        return
    if isinstance(dim, tuple) and name in ("argmax", "argmin", "prod", "aminmax"):
        dim = dim[0] if dim else None
    kw = {} if dim is None else {"dim": dim}
    if name != "count_nonzero" and (dim is not None or name in ("argmax", "aminmax")):
        kw["keepdim"] = keep
    check(lambda T, a: getattr(T, name)(a, **kw), x, rtol=1e-5, grad_rtol=1e-4)
    check(lambda T, a: getattr(a, name)(**kw), x, rtol=1e-5, grad_rtol=1e-4)


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian", "mode", "kthvalue"])
@few
@given(st.data())
def test_values_and_indices(name, data):
    """The elements are distinct, so that exactly one index is correct."""
    shape = data.draw(st.sampled_from([(4,), (2, 3), (3, 2, 4), ()]))
    d = data.draw(st.sampled_from(["float32", "float64", "int64", "bfloat16", "float16"]))
    v = np.random.RandomState(data.draw(st.integers(0, 10**6))).permutation(math.prod(shape)).reshape(shape) - 3.0
    if name == "mode":
        v = np.round(v / 2)
    dim = data.draw(st.integers(-max(len(shape), 1), max(len(shape), 1) - 1))
    keep = data.draw(st.booleans())
    x = In(v, d, data.draw(st.sampled_from(LAYOUTS)), True)
    k = (2 if shape and v.shape[dim] > 1 else 1,) if name == "kthvalue" else ()
    check(lambda T, a: tuple(getattr(T, name)(a, *k, dim=dim, keepdim=keep)), x)
    check(lambda T, a: getattr(a, name)(*k, dim, keep).values, x)
    if name in ("max", "min", "median", "nanmedian"):
        check(lambda T, a: getattr(a, name)(), x)


def test_nan_in_order_statistics():
    nan = math.nan
    rows = [[1.0, nan, 3.0, 2.0], [4.0, 3.0, 2.0, 1.0]]
    x, y = In(rows, "float64", grad=True), In([*rows, [nan] * 4], "float64")
    for f in (lambda T, a: a.median(1).values, lambda T, a: a.nanmedian(1).values, lambda T, a: tuple(a.max(1)), lambda T, a: tuple(a.min(1)),
              lambda T, a: a.median(), lambda T, a: a.nanmedian(), lambda T, a: a.amax(1), lambda T, a: a.argmax(1), lambda T, a: a.max(),
              lambda T, a: a.quantile(0.4, 1), lambda T, a: a.nanquantile(0.4, 1), lambda T, a: a.nanquantile(0.4),
              lambda T, a: a.nansum(1), lambda T, a: a.nanmean(0), lambda T, a: a.kthvalue(2, 1).values, lambda T, a: a.argmin()):
        check(f, x)
        check(f, y)


def test_ties_share_the_gradient():
    x = In([[1.0, 2.0, 2.0], [2.0, 0.0, 0.0]], "float64", grad=True)
    for f in (lambda T, a: a.max(), lambda T, a: a.min(), lambda T, a: a.amax(1), lambda T, a: a.amin((0, 1)), lambda T, a: a.median(),
              lambda T, a: tuple(a.aminmax(dim=1)), lambda T, a: a.norm(math.inf), lambda T, a: tuple(a.aminmax())):
        check(f, x)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "nansum"])
@few
@given(st.data())
def test_result_dtype(name, data):
    d, to = data.draw(st.sampled_from(ALL)), data.draw(st.sampled_from(["float32", "float64", "int64", "int32"]))
    x = In(values(data.draw(st.integers(0, 10**6)), (2, 3), d), d, grad=to.startswith("float"))
    if d.startswith("complex") and not to.startswith("complex"):
        return
    check(lambda T, a: getattr(T, name)(a, dtype=getattr(T, to)), x, rtol=1e-5, grad_rtol=1e-3)
    check(lambda T, a: getattr(a, name)(1, True, dtype=getattr(T, to)), x, rtol=1e-5, grad_rtol=1e-3)


@given(st.data())
def test_moments(data):
    x, dim, keep = reduction(data, ["float32", "float64", "complex64"], [(5,), (3, 4), (2, 3, 4)])
    correction = data.draw(st.sampled_from([0, 1, 2, 0.5] if x.dtype != "complex64" else [0, 1, 0.5]))
    for name in ("var", "std", "var_mean", "std_mean"):
        check(lambda T, a: getattr(T, name)(a, dim, correction=correction, keepdim=keep), x, rtol=1e-4, grad_rtol=1e-3)
    flag = data.draw(st.booleans())
    check(lambda T, a: (T.var(a, unbiased=flag), T.std(a, flag), a.var(0, flag, keep), a.std(dim=0, unbiased=flag)), x,
          rtol=1e-4, grad_rtol=1e-3)


@pytest.mark.parametrize("p", [None, "fro", 2, 1, 0, 3, 0.5, math.inf, -math.inf, 2.5, -1])
@few
@given(st.data())
def test_norm(p, data):
    x, dim, keep = reduction(data, ["float32", "float64", "complex64", "float16"], [(3,), (2, 3), (2, 3, 4), ()])
    check(lambda T, a: T.norm(a, p=p) if dim is None else T.norm(a, p, dim, keep), x, rtol=1e-4, grad_rtol=1e-3)
    check(lambda T, a: a.norm(p) if dim is None else a.norm(p, dim=dim, keepdim=keep), x, rtol=1e-4, grad_rtol=1e-3)


def test_norm_at_zero():
    x = In([[0.0, 0.0], [0.0, 3.0]], "float64", grad=True)
    for p in (1, 2, 3, 0, math.inf, 1.5):
        check(lambda T, a: a.norm(p, 1), x)
        check(lambda T, a: a.norm(p), x)
    check(lambda T, a, b: T.dist(a, b), x, In([[0.0, 0.0], [1.0, 3.0]], "float64", grad=True))
    check(lambda T, a: T.norm(a, dtype=T.float64), In(values(0, (2, 3), "float32"), grad=True), rtol=1e-6)


@pytest.mark.parametrize("f", [
    lambda T, a: a.sum(1), lambda T, a: a.mean(0), lambda T, a: a.prod(1), lambda T, a: a.prod(), lambda T, a: a.logsumexp(1),
    lambda T, a: a.var(1), lambda T, a: a.std(), lambda T, a: a.norm(3, 1), lambda T, a: a.norm(), lambda T, a: a.amax(1),
    lambda T, a: a.max(1).values, lambda T, a: a.median(1).values, lambda T, a: a.quantile(0.3, 1), lambda T, a: T.renorm(a, 2, 0, 1.0),
    lambda T, a: T.trace(a), lambda T, a: a.nanmean()])
def test_second_gradients(f):
    check(f, In(values(3, (2, 3), "float64", 0.3), "float64", grad=True), second=True, rtol=1e-6)


@pytest.mark.parametrize("a", [[1.0, 0.0, 3.0, 2.0], [0.0, 0.0, 3.0, 2.0], [0.0, 0.0, 0.0, 2.0], [2.0, 0.0, -1.0, 0.0]])
def test_product_with_zeros(a):
    x = In([a, [1.0, 2.0, 3.0, 4.0]], "float64", grad=True)
    check(lambda T, a: a.prod(1), x, second=True)
    check(lambda T, a: a[0].prod(), x, second=True)
    check(lambda T, a: a.prod(), x)


KINDS = ["linear", "lower", "higher", "midpoint", "nearest"]


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@given(st.data())
def test_quantile(name, data):
    shape = data.draw(st.sampled_from([(5,), (3, 4), (2, 3, 4), ()]))
    v = np.random.RandomState(data.draw(st.integers(0, 10**6))).permutation(math.prod(shape)).reshape(shape) / 2.0
    x = In(v, data.draw(st.sampled_from(["float32", "float64"])), data.draw(st.sampled_from(LAYOUTS)), True)
    dim = data.draw(st.one_of(st.none(), st.integers(-max(len(shape), 1), max(len(shape), 1) - 1)))
    keep, kind = data.draw(st.booleans()), data.draw(st.sampled_from(KINDS))
    q = data.draw(st.sampled_from([0, 0.5, 1, 0.3, [0.1, 0.7], [0.0], []]))
    check(lambda T, a: getattr(T, name)(a, T.tensor(q).to(a.dtype) if isinstance(q, list) else q, dim, keep, interpolation=kind), x, rtol=1e-5)


@given(st.data())
def test_histograms(data):
    d = data.draw(st.sampled_from(["float32", "float64"]))
    x = In(values(data.draw(st.integers(0, 10**6)), data.draw(st.sampled_from([(20,), (4, 5), (0,), ()])), d), d)
    bins = data.draw(st.integers(1, 7))
    low, high = data.draw(st.sampled_from([(0, 0), (-1, 2), (5, 6), (1, 1)]))
    check(lambda T, a: T.histc(a, bins, low, high), x)
    r = data.draw(st.sampled_from([None, (-1.0, 2.0), (0.0, 0.5)]))
    if x.values.size:
        check(lambda T, a: tuple(T.histogram(a, bins, range=r)), x)
        check(lambda T, a: tuple(T.histogram(a, bins, range=r, density=True, weight=a.abs())), x, rtol=1e-4)
        check(lambda T, a: tuple(T.histogram(a, T.tensor([-1.0, 0.0, 0.5, 2.0]).to(a.dtype))), x)


def test_histogramdd():
    x = In(values(0, (30, 2), "float32"), "float32")
    check(lambda T, a: tuple(T.histogramdd(a, [3, 4])), x)
    check(lambda T, a: tuple(T.histogramdd(a, 2, range=[-1.0, 1.0, -2.0, 2.0], density=True)), x, rtol=1e-4)
    check(lambda T, a: tuple(T.histogramdd(a, [T.tensor([-1.0, 0.0, 2.0]), T.tensor([0.0, 1.0])])), x)


@pytest.mark.parametrize("of_weight", [False, True])
def test_histograms_have_a_grad_fn_but_no_derivative(of_weight):
    def run(T):
        x = T.tensor([[0.5, 1.0], [2.0, -1.0], [0.0, 3.0]], requires_grad=not of_weight)
        w = T.tensor([1.0, 2.0, 3.0], requires_grad=of_weight)
        edges = [T.tensor([0.0, 1.0, 4.0]), T.tensor([-1.0, 5.0])]
        results = [*T.histogram(x[:, 0], 2, weight=w), *T.histogram(x[:, 0], edges[0], weight=w, density=True)]
        for bins in (2, edges):
            counts, by = T.histogramdd(x, bins, weight=w)
            results += [counts, *by]
        said = []
        for r in results:
            try:
                r.sum().backward()
            except RuntimeError as e:
                said.append("not implemented" in str(e))
        return [r.requires_grad for r in results], said
    expected = run(real)
    assert run(mine) == expected and any(expected[1])


@given(st.data())
def test_bincount(data):
    n = data.draw(st.integers(0, 12))
    a = np.random.RandomState(n).randint(0, 6, n)
    x = In(a, data.draw(st.sampled_from(["int64", "int32", "uint8"])))
    w = In(values(n, (n,), "float32"), data.draw(st.sampled_from(["float32", "float64", "int64"])))
    m = data.draw(st.sampled_from([0, 3, 9]))
    check(lambda T, a: T.bincount(a, minlength=m), x)
    check(lambda T, a, w: T.bincount(a, w, m), x, w, rtol=1e-5)


def test_small_reductions():
    x = In(values(1, (3, 4), "float32"), grad=True)
    for f in (lambda T, a: T.trace(a), lambda T, a: T.dist(a, a * 2, 3), lambda T, a: T.renorm(a, 1, 1, 2.0), lambda T, a: a.renorm(2, 0, 1.0),
              lambda T, a: T.sum(a, axis=1, keepdims=True), lambda T, a: T.max(a, axis=0).values, lambda T, a: T.max(a, other=a * 2),
              lambda T, a: a.max(a * 2), lambda T, a: T.std_mean(a, 1), lambda T, a: T.sum(a, ()), lambda T, a: a.sum([]),
              lambda T, a: a.all(()), lambda T, a: T.hash_tensor(a.detach()), lambda T, a: T.special.logsumexp(a, 0)):
        check(f, x, rtol=1e-5, grad_rtol=1e-4)
    check(lambda T, a: (T.trace(a), T.hash_tensor(a), T.hash_tensor(a, 1), a.sum(), a.prod(1)), In(np.arange(12).reshape(3, 4), "int64"))


@pytest.mark.parametrize("name", ["sum", "mean", "var", "norm"])
def test_float32_accuracy(name):
    """At least as accurate as PyTorch over any axis, on data where naive float32 summation fails.
    """
    a = np.random.RandomState(0).rand(30000, 3).astype(np.float32) + 1000
    exact = getattr(real, name)(real.tensor(a, dtype=real.float64), dim=0).numpy()
    for layout in (a, np.ascontiguousarray(a.T).T):
        t = mine.tensor(np.ascontiguousarray(layout.T)).t() if not layout.flags.c_contiguous else mine.tensor(layout)
        got = np.abs(getattr(mine, name)(t, dim=0).numpy() - exact).max() / np.abs(exact).max()
        theirs = np.abs(getattr(real, name)(real.tensor(a), dim=0).numpy() - exact).max() / np.abs(exact).max()
        assert got <= max(2 * theirs, 5e-7)


def test_half_precision_accumulates_in_float32():
    for d in ("float16", "bfloat16"):
        check(lambda T, a: (a.sum(), a.mean(), a.sum(0), a.var(0)), In(np.full((5000, 2), 0.1), d))


@pytest.mark.host_only("the printed form names the device")
def test_named_results():
    for T in (real, mine):
        x = T.tensor([[3.0, 1.0], [2.0, 5.0]])
        r = x.max(1)
        assert type(r).__name__ == "max" and r.values is r[0] and r.indices is r[1]
        v, i = r
        assert v.tolist() == [3.0, 5.0] and i.tolist() == [0, 1]
        out = (T.empty(0), T.empty(0, dtype=T.int64))
        r = T.max(x, 1, out=out)
        assert r[0] is out[0] and out[1].tolist() == [0, 1]
    t = mine.tensor([[3.0, 1.0], [2.0, 5.0]])
    for name in ("max", "median", "mode", "aminmax"):
        kw = {"dim": 1}
        assert repr(getattr(mine, name)(t, **kw)) == repr(getattr(real, name)(real.tensor(t.tolist()), **kw))


ERRORS = [
    lambda T: T.ones(2, 3).sum(2), lambda T: T.ones(2, 3).sum((0, 0)), lambda T: T.ones(2).sum("a"), lambda T: T.sum([1, 2]),
    lambda T: T.tensor(3.0).sum(1), lambda T: T.tensor([1]).mean(), lambda T: T.zeros(0).max(), lambda T: T.zeros(0).amax(),
    lambda T: T.zeros(2, 0).amax(1), lambda T: T.zeros(2, 0).max(1), lambda T: T.zeros(0).argmax(), lambda T: T.zeros(2, 0).argmax(1),
    lambda T: T.zeros(2, 0).median(1), lambda T: T.zeros(0).norm(math.inf), lambda T: T.tensor([1, 2]).std(), lambda T: T.tensor([1j]).max(),
    lambda T: T.ones(2, 3).prod((0, 1)), lambda T: T.tensor([1, 2]).norm(), lambda T: T.ones(2).norm("foo"), lambda T: T.ones(2).logsumexp(),
    lambda T: T.ones(3).kthvalue(4), lambda T: T.ones(3).kthvalue(0), lambda T: T.ones(3).quantile(1.5), lambda T: T.tensor([1]).quantile(0.5),
    lambda T: T.ones(3).quantile(0.5, interpolation="up"), lambda T: T.ones(1).quantile(T.ones(1).double()), lambda T: T.bincount(T.tensor([-1])),
    lambda T: T.bincount(T.ones(1)), lambda T: T.bincount(T.tensor([1]), minlength=-1), lambda T: T.trace(T.ones(1)),
    lambda T: T.histc(T.tensor([1, 2])), lambda T: T.histc(T.tensor([math.nan, 1.0])), lambda T: T.tensor([True]).argmax(),
    lambda T: T.nanmean(T.tensor([1])), lambda T: T.renorm(T.ones(3), 2, 0, 1.0), lambda T: T.renorm(T.ones(3, 3), 0, 0, 1.0),
    lambda T: T.aminmax(T.zeros(0)), lambda T: T.std(T.ones(3), True, 1), lambda T: T.amax(T.tensor([1j])), lambda T: T.max(T.ones(2), 5),
    lambda T: T.sum(T.ones(2), 0, True, T.float64), lambda T: T.dist(T.ones(2), 1),
]


@pytest.mark.host_only("histc of integers is a device's alone, as in torch", cases=("30",))
@pytest.mark.parametrize("n", range(len(ERRORS)))
def test_errors(n):
    with pytest.raises(Exception) as expected:
        ERRORS[n](real)
    with pytest.raises(type(expected.value)):
        ERRORS[n](mine)


NODES = {"SumBackward0": lambda x: x.sum(), "SumBackward1": lambda x: x.sum(0), "MeanBackward0": lambda x: x.mean(), "MeanBackward1": lambda x: x.mean(0),
         "MaxBackward1": lambda x: x.max(), "MaxBackward0": lambda x: x.max(0)[0], "AmaxBackward0": lambda x: x.amax(0), "ProdBackward0": lambda x: x.prod(),
         "ProdBackward1": lambda x: x.prod(0), "StdBackward0": lambda x: x.std(), "VarBackward0": lambda x: x.var(0),
         "LinalgVectorNormBackward0": lambda x: x.norm(), "LogsumexpBackward0": lambda x: x.logsumexp(0), "MedianBackward0": lambda x: x.median(),
         "MedianBackward1": lambda x: x.median(0)[0], "KthvalueBackward0": lambda x: x.kthvalue(1)[0], "MinBackward1": lambda x: x.min()}


@pytest.mark.parametrize("name", NODES)
def test_node_names(name):
    for T in (real, mine):
        assert NODES[name](T.ones(2, requires_grad=True)).grad_fn.name() == name


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("special", [0.5, -0.0, math.inf, -math.inf, math.nan])
def test_reductions_of_few_elements(dtype, special):
    """Sums, extrema and products of up to 64 contiguous elements use a different NumPy path from
    larger or strided arrays."""
    for shape in ((), (1,), (7,), (64,), (65,), (8, 8), (8, 9)):
        v = np.random.RandomState(0).randn(*shape) * 3
        v = np.asarray(v).astype(dtype)
        v.reshape(-1)[-1] = special
        for turned in (False, True)[:1 + (v.ndim == 2)]:
            x, y = [t.mT if turned else t for t in (real.tensor(v), mine.tensor(v))]
            for f in (lambda t: t.sum(), lambda t: t.max(), lambda t: t.min(), lambda t: t.relu(), lambda t: t.sigmoid(), lambda t: (t * -0.0).sum(),
                      lambda t: t.softmax(-1), *[lambda t: t @ t.mT] * (v.ndim == 2)):
                a, b = f(x), f(y)
                few_digits = {"rtol": 2e-3, "atol": 2e-3} if dtype == "float16" else {"rtol": 1e-5, "atol": 1e-5}
                assert str(a.dtype) == str(b.dtype) and a.shape == b.shape
                np.testing.assert_allclose(b.numpy(), a.numpy(), **few_digits)
            if x.sum() == 0:
                assert np.signbit(x.sum().numpy()) == np.signbit(y.sum().numpy()), shape


@pytest.mark.parametrize("kind", ["bool", "float32", "int32", "complex64", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 4), (70, 1000)])
def test_count_nonzero(kind, shape):
    x = np.random.RandomState(0).randint(-1, 2, shape)

    def counts(T):
        t = T.tensor(x).to(getattr(T, kind))
        return [(c.tolist(), str(c.dtype)) for c in (t.count_nonzero(), t.any(), t.all(), *[t.count_nonzero(d) for d in ((0,), (0, 1), -1)[:3 * bool(shape)]])]
    assert counts(mine) == counts(real)


@pytest.mark.parametrize("name", ["sum", "mean", "norm", "var", "std", "amax", "amin", "max", "min", "argmax", "argmin"])
@few
@given(st.data())
def test_reductions_over_short_rows(name, data):
    """For a few hundred contiguous elements, sums are products with ones and extrema are gathered
    by index: correct for special values, and without warnings."""
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=4)))
    dtype = data.draw(st.sampled_from(["float32", "float32", "float64", "float16", "int64", "int8"]))
    v = np.round(np.random.RandomState(data.draw(st.integers(0, 10**6))).randn(*shape) * 3, 1)
    if dtype.startswith("float"):
        for special in data.draw(st.lists(st.sampled_from([math.inf, -math.inf, math.nan, -0.0, 0.0]), max_size=3)):
            v.reshape(-1)[data.draw(st.integers(0, v.size - 1))] = special
    x, dim, keep = In(v, dtype), data.draw(st.integers(0, len(shape) - 1)), data.draw(st.booleans())
    kw = {} if name not in ("var", "std") else {"correction": data.draw(st.sampled_from([0, 1, 1.5]))}
    close = {"rtol": 1e-4, "atol": 1e-4}
    check(lambda T, a: tuple(r) if isinstance(r := getattr(a, name)(dim=dim, keepdim=keep, **kw), tuple) else r, x, **close)
    check(lambda T, a: getattr(a, name)(**kw), x, **close)
    if name in ("max", "min") and dtype != "float16":
        values, places = getattr(x.on(mine)[1], name)(dim=dim, keepdim=True)
        assert values.numpy().tobytes() == x.on(mine)[1].gather(dim, places).numpy().tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(40, 30), (3, 5), (4, 1, 6)])
def test_ties_and_nan_share_the_gradient(dtype, shape):
    v = np.random.RandomState(3).randint(-2, 3, shape).astype(np.float32)
    for n in range(3):
        for f in (lambda T, a: a.max(), lambda T, a: a.min(), lambda T, a: a.amax(0), lambda T, a: a.amin(-1, True), lambda T, a: a.amax((0, 1))):
            check(f, In(v, dtype, LAYOUTS[n + 1], grad=True))
        v[n, 0] = math.nan
