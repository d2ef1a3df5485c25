"""Sorting and searching against PyTorch."""
import math

import numpy as np
import pytest
from _parity import In, check, mine, real, values
from hypothesis import given
from hypothesis import strategies as st

ALL = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"]
LAYOUTS = ["plain", "plain", "transposed", "strided"]
SHAPES = [(), (5,), (2, 3), (3, 2, 4), (0,), (2, 0), (1, 4)]


def draw(data, dtypes=ALL, shapes=SHAPES, ties=True):
    shape, d = data.draw(st.sampled_from(shapes)), data.draw(st.sampled_from(dtypes))
    v = values(data.draw(st.integers(0, 10**6)), shape, d)
    if ties and v.dtype.kind == "f":
        v = np.round(v)
    n = max(len(shape), 1)
    return In(v, d, data.draw(st.sampled_from(LAYOUTS)), True), data.draw(st.integers(-n, n - 1))


@given(st.data())
def test_sort(data):
    """Indices are compared too: PyTorch's CPU sort is stable."""
    x, dim = draw(data)
    down = data.draw(st.booleans())
    check(lambda T, a: tuple(T.sort(a, dim=dim, descending=down, stable=True)), x)
    check(lambda T, a: tuple(a.sort(stable=True, dim=dim, descending=down)), x)
    check(lambda T, a: a.sort(dim, descending=down).values, x)
    check(lambda T, a: (T.argsort(a, dim=dim, descending=down, stable=True), a.msort()), x)


@given(st.data())
def test_topk(data):
    x, dim = draw(data, ["float32", "float64", "float16", "int64", "uint8"], ties=False)
    n = x.values.shape[dim] if x.values.ndim else 1
    k = data.draw(st.integers(0 if x.values.ndim else 1, n))
    big, order = data.draw(st.booleans()), data.draw(st.booleans())
    if not x.dtype.startswith("float"):
        x.values = np.random.RandomState(0).permutation(x.values.size).reshape(x.values.shape)
    if order:
        check(lambda T, a: tuple(T.topk(a, k, dim, big, True)), x)
    check(lambda T, a: T.topk(a, k, dim=dim, largest=big, sorted=order).values.sort(dim).values, x)


def test_long_rows():
    """Partial sorting is used from 64 elements on, and must agree."""
    a = np.random.RandomState(0).permutation(2000).reshape(2, 1000).astype(np.float32)
    a[0, 10] = np.nan
    for dim, k in ((1, 5), (1, 200), (0, 1), (1, 999)):
        for big in (True, False):
            check(lambda T, x: tuple(x.topk(k, dim, big)), In(a, "float32", grad=True))
    check(lambda T, x: tuple(x.kthvalue(7, 1)), In(a[1:], "float32", grad=True))


def test_nan_sorts_last():
    x = In([math.nan, 1.0, math.inf, -math.inf, math.nan], "float32", grad=True)
    for down in (True, False):
        check(lambda T, a: tuple(a.sort(stable=True, descending=down)), x)
        check(lambda T, a: a.detach().topk(3, largest=down).values, x)


@given(st.data())
def test_unique(data):
    # PyTorch's counts of a 0-dim tensor depend on the overload
    x, dim = draw(data, shapes=SHAPES[1:])
    x.grad = False
    inverse, counts = data.draw(st.booleans()), data.draw(st.booleans())
    check(lambda T, a: T.unique(a, return_inverse=inverse, return_counts=counts), x)
    check(lambda T, a: a.unique(sorted=True, return_inverse=inverse, return_counts=counts), x)
    check(lambda T, a: T.unique_consecutive(a, return_inverse=inverse, return_counts=counts), x)
    if x.values.ndim:
        check(lambda T, a: T.unique(a, dim=dim, return_inverse=inverse, return_counts=counts), x)
        check(lambda T, a: a.unique_consecutive(return_inverse=inverse, return_counts=counts, dim=dim), x)


def test_unique_rows_with_repeats():
    a = np.array([[1, 2, 1, 0], [1, 2, 1, 0], [0, 2, 0, 0], [1, 2, 1, 0]])
    for d in (0, 1):
        check(lambda T, x: T.unique(x, dim=d, return_inverse=True, return_counts=True), In(a))
        check(lambda T, x: T.unique_consecutive(x, dim=d, return_inverse=True, return_counts=True), In(a))
    check(lambda T, x: T.unique(x, return_counts=True), In([math.nan, math.nan, 1.0], "float32"))


@given(st.data())
def test_searchsorted(data):
    lead = data.draw(st.sampled_from([(), (2,), (2, 3)]))
    s = data.draw(st.integers(0, 10**6))
    n, m = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 4))
    d, e = (data.draw(st.sampled_from(["float32", "int64", "float64", "int32"])) for _ in range(2))
    table = np.sort(np.round(values(s, lead + (n,), d)), -1)
    seq, x = In(table, d), In(np.round(values(s + 1, lead + (m,), e)), e)
    if d != e and {d, e} & {"int64", "int32"} and len({d, e}) == 2 and d != e:
        e = d
        x = In(x.values, d)
    kw = data.draw(st.sampled_from([{}, {"right": True}, {"side": "right"}, {"side": "left"}, {"out_int32": True}]))
    check(lambda T, p, q: T.searchsorted(p, q, **kw), seq, x)
    if not lead:
        check(lambda T, p, q: T.bucketize(q, p, right=kw.get("right", False)), seq, x)
        check(lambda T, p: (T.searchsorted(p, 1), T.bucketize(1.5, p)), seq)


def test_sorter_and_nan():
    seq = In([5.0, 1.0, 3.0], "float32")
    check(lambda T, p: T.searchsorted(p, T.tensor([3.0, 0.0, 9.0]), sorter=T.tensor([1, 2, 0])), seq)
    check(lambda T: T.searchsorted(T.tensor([1.0, 3.0, 5.0]), T.tensor([math.nan, math.inf, -math.inf])))


@given(st.data())
def test_isin(data):
    s = data.draw(st.integers(0, 10**6))
    d, e = (data.draw(st.sampled_from(["float32", "int64", "float64", "uint8"])) for _ in range(2))
    x = In(np.round(values(s, data.draw(st.sampled_from([(), (4,), (2, 3), (0,)])), d)), d)
    y = In(np.round(values(s + 1, data.draw(st.sampled_from([(), (3,), (2, 2), (0,)])), e)), e)
    inv = data.draw(st.booleans())
    check(lambda T, a, b: T.isin(a, b, invert=inv), x, y)
    check(lambda T, a: (T.isin(a, 2), T.isin(1.0, a)), x)


def test_second_gradients():
    x = In([[3.0, 1.0, 2.0], [0.5, 2.5, -1.0]], "float64", grad=True)
    for f in (lambda T, a: a.sort(1).values ** 2, lambda T, a: a.topk(2, 0).values ** 3, lambda T, a: a.msort() ** 2):
        check(f, x, second=True)


ERRORS = [
    lambda T: T.ones(2, 3).sort(2), lambda T: T.tensor([1j]).sort(), lambda T: T.ones(3).topk(4), lambda T: T.ones(3).topk(1, 2),
    lambda T: T.tensor([True]).topk(1), lambda T: T.tensor([1j]).unique(), lambda T: T.bucketize(T.ones(1), T.ones(1, 1)),
    lambda T: T.searchsorted(T.ones(3), T.ones(1), side="up"), lambda T: T.searchsorted(T.ones(3), T.ones(1), side="left", right=True),
    lambda T: T.searchsorted(T.ones(2, 3), T.ones(3)), lambda T: T.searchsorted(T.ones(2, 3), T.tensor(1.0)), lambda T: T.isin(1, 2),
    lambda T: T.searchsorted(T.ones(3), T.ones(1), sorter=T.ones(3)), lambda T: T.unique(T.zeros(2, 0), dim=0),
]


@pytest.mark.parametrize("n", range(len(ERRORS)))
def test_errors(n):
    with pytest.raises(Exception) as expected:
        ERRORS[n](real)
    with pytest.raises(type(expected.value)):
        ERRORS[n](mine)


@pytest.mark.host_only("the printed form names the device")
def test_named_results():
    t = mine.tensor([[3.0, 1.0], [2.0, 5.0]])
    for name, args in (("sort", ()), ("topk", (1,)), ("cummax", (0,))):
        assert repr(getattr(t, name)(*args)) == repr(getattr(real.tensor(t.tolist()), name)(*args))
    v, i = t.sort(descending=True)
    assert v.tolist() == [[3.0, 1.0], [5.0, 2.0]] and i.tolist() == [[0, 1], [1, 0]]


@given(st.lists(st.integers(-2, 2), min_size=1, max_size=7), st.integers(0, 6), st.sampled_from(["float32", "float64", "bfloat16"]))
def test_mode_with_trailing_nan(numbers, nans, dtype):
    """Every nan counts as a separate value, so no nan is more frequent than a number."""
    a = np.array([float(n) for n in numbers] + [math.nan] * nans)
    check(lambda T, x: T.mode(x), In(a, dtype))
    check(lambda T, x: T.mode(x, 0), In(np.stack([a, a[::-1].copy() if nans == 0 else a], 1), dtype))


# -------------------------------------------------------- which of several equal elements is chosen
_POOLS = {"numbers": [0.0, -0.0, 1.0, 2.0, math.inf, -math.inf, math.nan, 3.0], "few": [0.0, 1.0, 2.0, 3.0, 4.0], "one": [1.0],
          "many": list(range(300)), "zeros": [0.0, -0.0], "nan": [math.nan, 1.0], "only nan": [math.nan]}
_LENGTHS = st.one_of(st.integers(1, 8), st.integers(9, 70), st.integers(71, 400))


@st.composite
def slices(draw):
    """Draws (In, dim) with ties, both zeros, infinities and nan, below and above the lengths at
    which PyTorch switches algorithms."""
    shape = [draw(_LENGTHS)]
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), draw(st.integers(1, 3)))
    d = draw(st.sampled_from(["float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8"]))
    pool = draw(st.sampled_from(list(_POOLS) if "float" in d else ["few", "one"] if d == "uint8" else ["few", "one", "many"]))
    a = np.array(_POOLS[pool])[np.random.RandomState(draw(st.integers(0, 2 ** 31))).randint(len(_POOLS[pool]), size=shape)]
    a = a.astype("float32" if d == "bfloat16" else d)
    return In(a, d, draw(st.sampled_from(LAYOUTS)), draw(st.booleans())), draw(st.integers(-len(shape), len(shape) - 1))


@pytest.mark.host_only("which of equal elements is taken differs by device")
@given(slices(), st.data())
def test_choice_among_equal_elements(x, data):
    x, dim = x
    n = x.values.shape[dim]
    k, keep = data.draw(st.integers(1, n)), data.draw(st.booleans())
    check(lambda T, a: tuple(T.kthvalue(a, k, dim, keep)), x)
    check(lambda T, a: tuple(T.median(a, dim, keep)), x)
    check(lambda T, a: tuple(T.nanmedian(a, dim, keep)), x)
    check(lambda T, a: (*T.max(a, dim, keep), *T.min(a, dim, keep), T.argmax(a, dim), T.argmin(a), *T.cummax(a, dim), *T.cummin(a, dim)), x)


@pytest.mark.host_only("which of equal elements is taken differs by device")
@given(slices(), st.booleans())
def test_mode_among_equals(x, keep):
    x, dim = x
    check(lambda T, a: tuple(T.mode(a, dim, keep)), x)


@pytest.mark.host_only("which of equal elements is taken differs by device")
@given(slices(), st.data())
def test_topk_among_equals(x, data):
    x, dim = x
    n = x.values.shape[dim]
    k = data.draw(st.one_of(st.integers(1, n), st.integers(1, max(1, n // 64))))
    big, order = data.draw(st.booleans()), data.draw(st.booleans())
    if order or k * 64 <= n:
        check(lambda T, a: tuple(T.topk(a, k, dim, big, order)), x)
    else:  # the same elements, in unspecified order
        check(lambda T, a: (T.topk(a, k, dim, big, False).indices.sort(dim).values, a.topk(k, dim, big, False).values.sort(dim).values), x)


@given(slices(), st.booleans())
def test_stable_sort_of_equals(x, down):
    """Without `stable`, PyTorch's order of equal elements depends on the machine's vector
    instructions; mindtorch's order is always stable."""
    x, dim = x
    check(lambda T, a: tuple(T.sort(a, dim=dim, descending=down, stable=True)), x)
    check(lambda T, a: T.argsort(a, dim=dim, descending=down, stable=True), x)
    stable, plain = (mine.sort(x.on(mine)[1], dim=dim, descending=down, stable=s).indices.tolist() for s in (True, False))
    assert stable == plain


def test_mode_with_nan():
    for a in ([math.nan, 1, -math.inf, math.inf, 0], [1, math.nan, 1, math.nan], [math.nan] * 3, [2, math.nan, 1, 1, math.nan, 2, 2]):
        check(lambda T, x: tuple(x.mode()), In(np.array(a, "float32"), "float32", grad=True))


@pytest.mark.host_only("which of equal elements is taken differs by device")
def test_long_slices_with_ties():
    """Covers slices where the search falls back on a heap, and slices with too many ties to retrace
    the search."""
    n = 3000
    a = np.concatenate([np.arange(n // 2), np.arange(n // 2)])[np.argsort(np.arange(n) % 7, kind="stable")].astype("float64")
    for k in (1, 40, 46, 47, 1500, 2999):
        check(lambda T, x, k=k: (*x.kthvalue(k), *x.topk(k), *x.topk(k, largest=False), *x.median(0), *x.mode()), In(a, "float64"))
    b = np.random.RandomState(0).randint(0, 5, (40, 3000)).astype("float32")
    check(lambda T, x: (x.kthvalue(100).values, x.topk(7).values, *x.median(1), x.mode().values, x.max(1).indices), In(b, "float32"))
