"""Strict rules of torch.autograd.functional and of custom Functions, and ops without a derivative:
which calls raise, and with which message, compared with PyTorch."""
import itertools

import numpy as np
import pytest
import torch as real
from hypothesis import given, strategies as st

import mindtorch.torch as mt
from tests._parity import few

SIDES = (real, mt)


def result(fn):
    """Returns the result of a call as lists, or (class, first line) of its error."""
    def plain(x):
        if isinstance(x, (tuple, list)):
            return [plain(i) for i in x]
        return x.detach().tolist() if hasattr(x, "detach") else x
    try:
        return "result", plain(fn())
    except Exception as err:
        return type(err).__name__, str(err).splitlines()[0]


def both(fn):
    """Returns the outcomes of a program (torch -> value) on both sides."""
    return [result(lambda T=T: fn(T)) for T in SIDES]


def same(fn):
    a, b = both(fn)
    assert a[0] == b[0], (a, b)
    if a[0] != "result":
        # PyTorch's messages lack a space in one case and append a hint in another.
        assert a[1].replace(" ", "").startswith(b[1].replace(" ", "")) and len(b[1]) > 20
        return
    flat = [np.array(x, float) for x in (_numbers(a[1]), _numbers(b[1]))]
    np.testing.assert_allclose(flat[1], flat[0], rtol=1e-9)


def _numbers(x):
    if isinstance(x, (list, tuple)):
        return [n for i in x for n in _numbers(i)]
    return [float(x)] if x is not None else []


# ------------------------------------------------------------------ torch.autograd.functional
FUNCTIONS = {
    "depends": lambda T, a, b: (a * b).sum(),
    "of one": lambda T, a, b: (a * a * a).sum(),
    "linear": lambda T, a, b: (2 * a).sum() + b.sum(),
    "constant": lambda T, a, b: T.ones((), dtype=T.float64),
    "detached": lambda T, a, b: (a.detach() * b).sum(),
    "vector": lambda T, a, b: a * b,
    "several": lambda T, a, b: (a * b, b.exp()),
    "number": lambda T, a, b: 3.0,
    "list": lambda T, a, b: [a * b],
}
VS = {"none": lambda T: None, "right": lambda T: (T.ones(2, dtype=T.float64), T.full((2,), 2.0, dtype=T.float64)), "one": lambda T: T.ones(2, dtype=T.float64),
      "scalar": lambda T: T.ones((), dtype=T.float64), "wrong size": lambda T: (T.ones(3, dtype=T.float64), T.ones(2, dtype=T.float64)),
      "too many": lambda T: tuple(T.ones(2, dtype=T.float64) for _ in range(3)), "no tensor": lambda T: (1, 2)}


@pytest.mark.parametrize("name", ["vjp", "jvp", "vhp", "hvp"])
@few
@given(st.sampled_from(sorted(FUNCTIONS)), st.sampled_from(sorted(VS)), st.booleans(), st.booleans())
def test_products(name, function, v, create_graph, strict):
    def run(T):
        a, b = T.tensor([1.0, -2.0], dtype=T.float64), T.tensor([0.5, 3.0], dtype=T.float64)
        f = getattr(T.autograd.functional, name)
        return f(lambda a, b: FUNCTIONS[function](T, a, b), (a, b), VS[v](T), create_graph=create_graph, strict=strict)
    same(run)


@pytest.mark.parametrize("name", ["jacobian", "hessian"])
@few
@given(st.sampled_from(sorted(FUNCTIONS)), st.booleans(), st.booleans(), st.booleans(), st.sampled_from(["reverse-mode", "forward-mode", "sideways"]))
def test_jacobians_and_hessians(name, function, create_graph, strict, vectorize, strategy):
    if vectorize and (strict or function in ("number", "list")):
        function = "depends"  # of two errors PyTorch raises a different one first

    def run(T):
        a, b = T.tensor([1.0, -2.0], dtype=T.float64), T.tensor([0.5, 3.0], dtype=T.float64)
        f = getattr(T.autograd.functional, name)
        how = {"strategy" if name == "jacobian" else "outer_jacobian_strategy": strategy}
        return f(lambda a, b: FUNCTIONS[function](T, a, b), (a, b), create_graph=create_graph, strict=strict, vectorize=vectorize, **how)
    same(run)


@pytest.mark.parametrize("given_", [1, (1, 2), "x", ()])
def test_inputs_must_be_tensors(given_):
    for name in ("vjp", "jvp", "vhp", "hvp", "jacobian", "hessian"):
        if given_ != ():
            same(lambda T, n=name: getattr(T.autograd.functional, n)(lambda *a: a[0], given_))


# ------------------------------------------------------------------ custom Functions
def functions(T):
    class Twice(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            return y, y

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + b * 3

    class Defaults(T.autograd.Function):
        @staticmethod
        def forward(x, factor=3.0, shift=1.0):
            return x * factor + shift

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.n, ctx.factor = len(inputs), inputs[1]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor * ctx.n, None, None

    class Legacy(T.autograd.Function):
        def forward(self, x):
            return x * 2

        def backward(self, g):
            return g
    return {"twice": Twice, "defaults": Defaults, "legacy": Legacy}


CALLS = {
    "both duplicates": ("twice", lambda F, x: sum(F.apply(x)).sum()),
    "the first": ("twice", lambda F, x: F.apply(x)[0].sum()),
    "the second": ("twice", lambda F, x: F.apply(x)[1].sum()),
    "all defaults": ("defaults", lambda F, x: F.apply(x).sum()),
    "some defaults": ("defaults", lambda F, x: F.apply(x, 5.0).sum()),
    "no defaults": ("defaults", lambda F, x: F.apply(x, 5.0, 2.0).sum()),
}


@pytest.mark.parametrize("name", CALLS)
def test_custom_functions(name):
    which, call = CALLS[name]

    def run(T):
        x = T.tensor([1.0, 2.0], dtype=T.float64, requires_grad=True)
        r = call(functions(T)[which], x)
        return r, *T.autograd.grad(r, [x])
    same(run)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_legacy_functions_raise():
    def called(T):
        return functions(T)["legacy"]()(T.ones(2))
    a, b = both(called)
    assert a[0] == b[0] == "RuntimeError" and b[1][:70] == a[1][:70]


# ------------------------------------------------------------------ no derivative
@pytest.mark.parametrize("name", ["unique", "unique of a dimension", "unique_consecutive"])
def test_unique_backward_raises_not_implemented(name):
    ops = {"unique": lambda T, x: T.unique(x), "unique of a dimension": lambda T, x: T.unique(x, dim=0), "unique_consecutive": lambda T, x: T.unique_consecutive(x)}
    for T in SIDES:
        x = T.tensor([2.0, 1.0, 1.0], requires_grad=True)
        out = ops[name](T, x)
        assert out.requires_grad and not ops[name](T, x.detach()).requires_grad
        with pytest.raises((NotImplementedError, RuntimeError), match="derivative for '.*unique.*' is not implemented"):
            out.sum().backward()
        assert x.grad is None


# ------------------------------------------------------------------ gradcheck
@pytest.mark.parametrize("kind", ["shape", "dtype"])
def test_gradcheck_requires_consistent_outputs(kind):
    for T in SIDES:
        calls = itertools.count()

        def fn(x, T=T, calls=calls):
            n = next(calls)
            if kind == "shape":
                return x.repeat(1 + n % 2)
            return x * 2 if n % 2 else (x * 2).to(T.float32)
        x = T.tensor([0.5, 2.0], dtype=T.float64, requires_grad=True)
        with pytest.raises(AssertionError, match=f"same {kind}"):
            T.autograd.gradcheck(fn, [x])


SPARSE = {
    "dense": lambda T, x, d: x.to_dense(),
    "a multiple": lambda T, x, d: (x * 3.0).to_dense(),
    "a product": lambda T, x, d: T.sparse.mm(x, d),
    "sum": lambda T, x, d: T.sparse.sum(x),
    "values": lambda T, x, d: x.coalesce().values() ** 2,
    "added": lambda T, x, d: T.sparse.addmm(d[:2], x, d),
    "wrong": lambda T, x, d: _wrong(T).apply(x.coalesce().values()),
}


def _wrong(T):
    class Wrong(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3
    return Wrong


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", SPARSE)
def test_gradcheck_of_sparse_inputs(name, fast):
    found = []
    for T, whole in itertools.product(SIDES, (False, True)):
        dense = T.tensor([[0.5, 1.5, -1.0], [2.0, 3.0, 4.0]] if whole else [[0.0, 1.5, 0.0], [2.0, 0.0, 0.0]], dtype=T.float64)
        x = dense.to_sparse().requires_grad_()
        d = T.arange(1.0, 7.0, dtype=T.float64).view(3, 2).requires_grad_()
        found.append(T.autograd.gradcheck(lambda x, d, T=T: SPARSE[name](T, x, d), [x, d], masked=True, fast_mode=fast, raise_exception=False))
        if T is mt and whole:
            assert found[-1] == T.autograd.gradcheck(lambda x, d, T=T: SPARSE[name](T, x, d), [x, d], fast_mode=fast, raise_exception=False)
    assert found[:2] == found[2:] == [name != "wrong"] * 2


def test_unsupported_sparse_gradcheck_raises():
    x = mt.tensor([[0.0, 1.5], [2.0, 0.0]], dtype=mt.float64).to_sparse().requires_grad_()
    with pytest.raises(NotImplementedError, match="masked=True"):
        mt.autograd.gradcheck(lambda x: x.to_dense(), [x])
    with pytest.raises(NotImplementedError, match="sparse inputs"):
        mt.autograd.gradgradcheck(lambda x: x.to_dense(), [x], masked=True)
    for T in SIDES:
        x = T.tensor([[0.0, 1.5], [2.0, 0.0]], dtype=T.float64).to_sparse().requires_grad_()
        with pytest.raises(ValueError, match="Sparse output is not supported"):
            T.autograd.gradcheck(lambda x: x * 2, [x], masked=True)
