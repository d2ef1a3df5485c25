"""Matrix products, contractions and distances against PyTorch."""
import math

import _both_sides
import numpy as np
import pytest
from _parity import In, check, few, mine, real, values
from hypothesis import given
from hypothesis import strategies as st

DTYPES = ["float32", "float64", "complex64", "int64", "float16", "bfloat16"]
LAYOUTS = ["plain", "plain", "transposed", "strided"]
LOOSE = {"float16": 1e-2, "bfloat16": 5e-2}


def inputs(data, *shapes, dtypes=DTYPES, low=-2.0, high=2.0):
    """Returns inputs of one dtype; each draws its own layout."""
    d = data.draw(st.sampled_from(dtypes))
    seed = data.draw(st.integers(0, 10**6))
    return [In(values(seed + i, s, d, low, high), d, data.draw(st.sampled_from(LAYOUTS)), True) for i, s in enumerate(shapes)]


def tolerance(*xs):
    return LOOSE.get(xs[0].dtype, 1e-4)


def same(fn, *xs, second=False):
    r = tolerance(*xs)
    # The error of a sum of rounded half-precision terms scales with the terms, not with the result.
    check(fn, *xs, rtol=r, atol=r if xs[0].dtype in LOOSE else 1e-5, grad_rtol=r, second=second)


def refused(*case):
    """A case in which PyTorch raises for every example."""
    return pytest.param(*case, marks=pytest.mark.refused)


MATMUL = [((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)),
          ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((3, 4), (2, 4, 5)), ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((20, 70), (70, 80)),
          ((1, 3, 4), (4, 1)), *[refused(x) for x in (((2, 3, 4), (5, 4)), ((3, 4), (5, 4)), ((2, 3, 4), (3, 4, 5)), ((3,), (2,)), ((3,), (2, 3)), ((), (3,)))]]


@pytest.mark.parametrize("shapes", MATMUL, ids=str)
@few
@given(st.data())
def test_matmul(shapes, data):
    a, b = inputs(data, *shapes)
    if "transposed" in (a.layout, b.layout) and (len(shapes[0]) != 2 or len(shapes[1]) != 2):
        a.layout = b.layout = "plain"
    if a.layout == "transposed":
        a.values = np.ascontiguousarray(a.values.T)
    same(lambda T, x, y: T.matmul(x, y), a, b, second=a.dtype == "float64")
    same(lambda T, x, y: x @ y, a, b)


@pytest.mark.parametrize("name, shapes", [
    ("mm", ((3, 4), (4, 5))), refused("mm", ((3, 4), (3, 5))), refused("mm", ((3, 4, 1), (4, 5))), ("bmm", ((2, 3, 4), (2, 4, 5))),
    refused("bmm", ((2, 3, 4), (3, 4, 5))), ("mv", ((3, 4), (4,))), refused("mv", ((3, 4), (3,))), ("dot", ((5,), (5,))), refused("dot", ((5,), (4,))),
    ("vdot", ((5,), (5,))), ("outer", ((5,), (4,))), ("ger", ((5,), (4,))), refused("outer", ((5, 1), (4,))), ("inner", ((2, 5), (3, 5))),
    ("inner", ((5,), (5,))), refused("inner", ((2, 5), (2, 4))), ("inner", ((2, 3, 5), (5,))), ("inner", ((5,), (2, 5))), ("inner", ((2, 3, 5), (4, 1, 5))),
    ("inner", ((), (2, 3))), ("kron", ((3, 2), (2, 4))), ("kron", ((3,), (2, 4)))])
@few
@given(st.data())
def test_matrix_and_vector_products(name, shapes, data):
    xs = inputs(data, *shapes)
    for x in xs:
        x.layout = "plain" if x.layout == "transposed" else x.layout
    same(lambda T, x, y: getattr(T, name)(x, y), *xs)
    same(lambda T, x, y: getattr(x, name)(y), *xs)


@pytest.mark.parametrize("name, shapes", [("addmm", ((3, 4), (4, 5))), ("baddbmm", ((2, 3, 4), (2, 4, 5))),
                                          ("addbmm", ((2, 3, 4), (2, 4, 5))), ("addmv", ((3, 4), (4,))), ("addr", ((3,), (5,)))])
@few
@given(st.data())
def test_products_with_addition(name, shapes, data):
    start = data.draw(st.sampled_from([(3, 5), (5,), (1,), (), (3, 1), (4,)] if name != "addmv" else [(3,), (1,), (), (2,)]))
    c, a, b = inputs(data, start, *shapes)
    for x in (a, b, c):
        x.layout = "plain"
    kw = data.draw(st.sampled_from([{}, {"beta": 2, "alpha": 3}, {"beta": 0}]))
    same(lambda T, x, y, z: getattr(T, name)(x, y, z, **kw), c, a, b)
    if name != "addbmm":
        def in_place(T, x, y, z):
            t = x.clone()
            return getattr(t, name + "_")(y, z, **kw)
        same(in_place, c, a, b)


def test_beta_zero_does_not_read_the_input():
    nan = In(np.full((2, 2), np.nan, np.float32))
    a = In(np.ones((2, 2), np.float32))
    check(lambda T, x, y: T.addmm(x, y, y, beta=0), nan, a)
    check(lambda T, x, y: T.baddbmm(x.unsqueeze(0), y.unsqueeze(0), y.unsqueeze(0), beta=0), nan, a)


@pytest.mark.parametrize("x, w, b", [
    ((3, 4), (5, 4), (5,)), ((2, 3, 4), (5, 4), (5,)), ((4,), (5, 4), (5,)), ((4,), (5, 4), None), ((2, 3, 4), (4,), None),
    ((3, 4), (5, 4), (1,)), refused((3, 4), (5, 3), None), ((0, 4), (5, 4), (5,)), ((3, 0), (5, 0), (5,)), ((7, 30), (80, 30), (80,))])
@few
@given(st.data())
def test_linear(x, w, b, data):
    xs = inputs(data, *[s for s in (x, w, b) if s is not None])
    for i in xs:
        i.layout = "plain" if i.layout == "transposed" else i.layout
    same(lambda T, *t: T.nn.functional.linear(*t), *xs, second=xs[0].dtype == "float64")


EINSUM = [("ij,jk->ik", (3, 4), (4, 5)), ("ij,jk", (3, 4), (4, 5)), ("i,i", (4,), (4,)), ("ii", (4, 4)), ("ii->i", (4, 4)),
          ("ij->ji", (3, 4)), ("ij->", (3, 4)), ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)), ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
          ("...ij,jk->...ik", (2, 3, 4), (4, 5)), ("i,j->ij", (3,), (4,)), ("ij,ij->ij", (3, 4), (3, 4)), ("ij,ij->", (3, 4), (3, 4)),
          ("ijk,il,jm->klm", (2, 3, 4), (2, 5), (3, 6)), ("bn,anm,bm->ba", (2, 3), (4, 3, 5), (2, 5)), ("iij,jk->ik", (3, 3, 4), (4, 2)),
          ("ij,j->i", (3, 4), (1,)), (" i j , j k -> i k ", (3, 4), (4, 5)), ("...,...", (3,), (3,)), ("ij,jk", (3, 4), (3, 5)),
          ("ij->ii", (3, 4)), ("ij,jk->iz", (3, 4), (4, 5)), ("ijk", (3, 4)), ("i1", (3, 4)), ("b...c->...", (2, 3, 4)),
          ("ijkl,ijlm->ijkm", (2, 0, 4, 5), (2, 0, 5, 3))]


@pytest.mark.parametrize("case", EINSUM, ids=lambda c: c[0])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64"])
def test_einsum(case, dtype):
    eq, *shapes = case
    xs = [In(values(i, s, dtype, -2, 2), dtype, grad=True) for i, s in enumerate(shapes)]
    check(lambda T, *t: T.einsum(eq, *t), *xs, rtol=1e-4, atol=1e-5, second=dtype == "float32")
    check(lambda T, *t: T.einsum(eq, list(t)), *xs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,kj->ki", "bij,bjk->bik", "ij,ij->j", "ij,jk->i", "i,j->ji", " ij , jk->ik", "ij,j->ij"])
@few
@given(st.data())
def test_repeated_einsum_of_one_equation(equation, data):
    """The plan cached for an equation is valid only for its sizes and layouts; broadcast, wrong,
    empty and differently typed operands follow in between."""
    terms = equation.replace(" ", "").split("->")[0].split(",")
    sizes = {k: data.draw(st.integers(0, 4)) for k in "ijkb"}
    shapes = [[1 if data.draw(st.integers(0, 5)) == 0 else sizes[k] for k in t] for t in terms]
    d = data.draw(st.sampled_from(["float32", "float64", "int64"]))
    xs = [In(values(i, tuple(s), d, -2, 2), d, data.draw(st.sampled_from(["plain", "transposed", "strided"])), grad=True)
          for i, s in enumerate(shapes)]
    check(lambda T, *t: T.einsum(equation, *t), *xs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk->ijk", "ij,j->ij", "ij,jk->i", "ij,ij->j", "ij,ji->", "i,j"])
@few
@given(st.data())
def test_einsum_of_two_dtypes(equation, data):
    """Two dtypes, including bool, work where nothing is summed over or there are no elements, and
    raise elsewhere.

    Gradients are compared only where nothing is summed over, because PyTorch's fail in the other
    case.
    """
    terms, out = equation.split("->") if "->" in equation else (equation, "ij")
    grad = not set("".join(terms.split(","))) - set(out)
    sizes = {k: data.draw(st.sampled_from([0, 2, 3])) for k in "ijk"}
    shapes = [tuple(sizes[k] for k in t) for t in terms.split(",")]
    xs = [In(values(i, s, d, -2, 2), d, grad=grad)
          for i, s in enumerate(shapes) for d in [data.draw(st.sampled_from(["float32", "float64", "int64", "bool", "complex64"]))]]
    check(lambda T, *t: T.einsum(equation, *t), *xs, rtol=1e-4, atol=1e-5)


def test_einsum_with_lists_of_labels():
    a, b = In(values(0, (3, 4), "float32"), grad=True), In(values(1, (4, 5), "float32"), grad=True)
    check(lambda T, x, y: T.einsum(x, [0, 1], y, [1, 2], [0, 2]), a, b, rtol=1e-4, atol=1e-5)
    check(lambda T, x, y: T.einsum(x, [..., 1], y, [1, 2]), a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("a, b, dims", [((3, 4), (4, 5), 1), ((3, 4), (3, 4), 2), ((3, 4, 5), (5, 4, 2), ([1, 2], [1, 0])),
                                        ((3, 4), (5, 6), 0), ((3, 4), (3, 5), 2), ((3, 4), (3, 5), ([0], [1]))])
def test_tensordot(a, b, dims):
    for d in ("float32", "complex64"):
        check(lambda T, x, y: T.tensordot(x, y, dims=dims), In(values(0, a, d), d, grad=True), In(values(1, b, d), d, grad=True),
              rtol=1e-4, atol=1e-5)


def test_chain_matmul():
    shapes = [(3, 40), (40, 5), (5, 20), (20, 6)]
    xs = [In(values(i, s, "float32"), grad=True) for i, s in enumerate(shapes)]
    check(lambda T, *t: T.chain_matmul(*t), *xs, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("a, b, dim", [((4, 3), (4, 3), 1), ((4, 3), (1, 3), -1), ((3, 4), (3, 4), None), ((2, 4), (2, 4), None),
                                       ((3,), (4,), None)])
def test_cross(a, b, dim):
    kw = {} if dim is None else {"dim": dim}
    for d in ("float32", "int64", "complex64"):
        check(lambda T, x, y: T.cross(x, y, **kw), In(values(0, a, d), d, grad=True), In(values(1, b, d), d, grad=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("a, b", [((4, 3), (5, 3)), ((2, 4, 3), (2, 5, 3)), ((30, 3), (5, 3)), ((1, 4, 3), (2, 5, 3)), ((0, 3), (5, 3)), ((4, 0), (5, 0))])
def test_distances(p, a, b):
    # (PyTorch's own gradient of empty distances crashes with a segmentation fault.)
    x, y = In(values(0, a, "float32"), grad=0 not in a), In(values(1, b, "float32"), grad=0 not in a)
    check(lambda T, s, t: T.cdist(s, t, p), x, y, rtol=1e-3, atol=1e-4, grad_rtol=2e-3)
    if len(a) == 2:
        check(lambda T, s: T.nn.functional.pdist(s, p), x, rtol=1e-3, atol=1e-4, grad_rtol=2e-3)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_distance_of_equal_rows_has_zero_gradient(p):
    v = values(0, (4, 3), "float32")
    v[1] = v[0]
    check(lambda T, s: T.cdist(s, s, p), In(v, grad=True), rtol=1e-3, atol=1e-3, grad_rtol=5e-3)
    check(lambda T, s: T.nn.functional.pdist(s, p), In(v, grad=True), rtol=1e-3, atol=1e-4)


def test_bilinear():
    shapes = [(3, 2), (3, 4), (5, 2, 4), (5,)]
    xs = [In(values(i, s, "float32"), grad=True) for i, s in enumerate(shapes)]
    check(lambda T, *t: T.nn.functional.bilinear(*t), *xs, rtol=1e-4, atol=1e-5, second=True)
    xs[2] = In(values(2, (5, 2, 3), "float32"))
    check(lambda T, *t: T.nn.functional.bilinear(*t), *xs)


@pytest.mark.parametrize("dtypes", [("float16", "float32", "float32"), ("float32", "float32", "float64"), ("float16", "float16", "float32", "float32"), ("float32", "float32", "float32", "float64")])
def test_bilinear_refuses_mixed_dtypes(dtypes):
    def run(T):
        return T.nn.functional.bilinear(*(T.ones(s, dtype=getattr(T, d)) for s, d in zip([(2, 3), (2, 3), (4, 3, 3), (7,)], dtypes)))
    _both_sides.refused(run)


@pytest.mark.parametrize("name, args", [("mm", ("float32", "float64")), ("matmul", ("float32", "float64")), ("dot", ("float32", "float64"))])
def test_mixed_dtypes_are_refused(name, args):
    shape = (3,) if name == "dot" else (3, 3)
    check(lambda T, x, y: getattr(T, name)(x, y), In(values(0, shape, args[0]), args[0]), In(values(1, shape, args[1]), args[1]))


def test_non_tensor_operand_raises_typeerror():
    for T in (real, mine):
        x = T.ones(2, 2)
        for f in (lambda: T.matmul(x, 3), lambda: x @ 3, lambda: T.nn.functional.linear([1.0], x)):
            with pytest.raises(TypeError):
                f()


def test_infinities_emit_no_warning():
    a = np.array([[np.inf, 1], [0, np.nan]], np.float32)
    check(lambda T, x: T.matmul(x, x), In(a))
    check(lambda T, x: T.nn.functional.linear(x, x, x[0]), In(a))


@pytest.mark.parametrize("a, b, offs", [((6, 8), (2, 8, 4), [2, 6]), ((2, 3, 8), (2, 8, 4), None), ((3, 8), (8, 4), [3, 8]), ((2, 3, 8), (8, 12), [4, 12]),
                                        ((6, 8), (3, 8, 4), [2, 2, 6]), ((3, 8), (8, 4), [4, 4, 8]), ((2, 3, 8), (8, 12), [0, 12])])
def test_grouped_products(a, b, offs):
    def run(T, x, y):
        return T.nn.functional.grouped_mm(x, y, offs=None if offs is None else T.tensor(offs, dtype=T.int32))
    check(run, In(values(0, a, "float32")), In(values(1, b, "float32")), rtol=1e-4, atol=1e-5)


def _ones(T, *shapes, dtype):
    return [T.ones(shape).to(getattr(T, dtype)) for shape in shapes]


EQUATIONS = ["ij,jk->ik", "i,j->ij", "i,i->", "ij->i", "ii->", "ij->ji", "ij,ij->ij", "ij,ij->i", "ij,ij", "ij,jk", "bi,ij,bj->b", "bij,bjk->bik", ",i->i",
             "ij,kl->ik", "ij,jk,kl->il", "...ij,...jk->...ik", "...i, ...i -> ...", "bi,i->bi"]


@pytest.mark.host_only("the region is one of the cpu's, whose operands alone it takes")
@pytest.mark.parametrize("region", ["bfloat16", "float16"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_under_autocast(equation, dtype, region):
    terms = equation.replace(" ", "").split("->")[0].split(",")

    def run(T):
        operands = _ones(T, *[(2,) * (len(t.replace("...", "")) + ("..." in t)) for t in terms], dtype=dtype)
        with T.autocast("cpu", dtype=getattr(T, region)):
            r = T.einsum(equation, *operands)
        return str(r.dtype), r.double().tolist()
    assert run(mine) == run(real)


@pytest.mark.host_only("the region is one of the cpu's, whose operands alone it takes")
def test_einsum_of_sublists_and_mixed_dtypes_under_autocast():
    def run(T):
        a, b = T.ones(2, 3), T.ones(3, 4)
        with T.autocast("cpu"):
            results = [T.einsum(a, [0, 1], b, [1, 2], [0, 2]), T.einsum(a, [0, 1], b, [1, 2]), T.einsum(a, [0, 1], a, [0, 1], [0, 1]),
                       T.einsum("ij,jk->ik", a, b.bfloat16()), T.einsum("ij,jk->ik", [a.half(), b])]
        return [str(r.dtype) for r in results]
    assert run(mine) == run(real)


CONTRACTIONS = [
    lambda T, m, v, s: T.inner(v, v), lambda T, m, v, s: T.inner(m, v), lambda T, m, v, s: T.inner(m, m), lambda T, m, v, s: T.inner(s, v),
    *[lambda T, m, v, s, n=n: T.tensordot(m, m, n) for n in (0, 1, 2, ([1], [0]), ([0, 1], [0, 1]))], lambda T, m, v, s: T.tensordot(v, v, 1),
    lambda T, m, v, s: T.tensordot(m, v, dims=1), *[lambda T, m, v, s, n=n: T.linalg.matrix_power(m, n) for n in (0, 1, 2, 5, -1, -2)],
    *[lambda T, m, v, s, n=n: T.matrix_power(m, n) for n in (0, 1, 3)], lambda T, m, v, s: T.inverse(m), lambda T, m, v, s: m.inverse(),
    lambda T, m, v, s: T.linalg.matrix_rank(m), lambda T, m, v, s: T.pinverse(m), lambda T, m, v, s: T.lu(m)[0],
]


@pytest.mark.host_only("the region is one of the cpu's, whose operands alone it takes")
@pytest.mark.parametrize("region", ["bfloat16", "float16"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("n", range(len(CONTRACTIONS)))
def test_products_under_autocast(n, dtype, region):
    def run(T):
        m, v, s = T.eye(3).to(getattr(T, dtype)), *_ones(T, (3,), (), dtype=dtype)
        with T.autocast("cpu", dtype=getattr(T, region)):
            return str(CONTRACTIONS[n](T, m, v, s).dtype)
    assert run(mine) == run(real)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "complex64"])
def test_large_outer_products(dtype):
    """Covers the C kernel, with nan and infinities, and strided vectors."""
    rs = np.random.RandomState(0)
    for n, m in ((300, 200), (1, 9000), (9000, 1), (0, 9000)):
        a, b = (rs.randn(n) * 5).astype(dtype), (rs.randn(m) * 5).astype(dtype)
        if n > 3 and dtype[0] == "f":
            a[:3] = np.nan, np.inf, -0.0
        for view in (lambda t: t, lambda t: t.flip(0), lambda t: t.repeat_interleave(2)[::2]):
            want, got = [T.outer(view(T.tensor(a)), view(T.tensor(b))) for T in (real, mine)]
            assert str(want.dtype) == str(got.dtype)
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6 if dtype == "complex64" else 0)
