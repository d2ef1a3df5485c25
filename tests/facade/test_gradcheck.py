"""gradcheck, gradgradcheck, batched gradients and torch.autograd.functional: each argument works as
in PyTorch, or raises an error."""
import itertools
import warnings

import numpy as np
import pytest
import torch as real
from hypothesis import given, strategies as st

import mindtorch.torch as mt


def functions(T):
    """Returns name -> (function, inputs), with right and wrong gradients."""
    class Base(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.set_materialize_grads(False)
            return x ** 2

    class Wrong(Base):
        @staticmethod
        def backward(ctx, g):
            return None if g is None else g * ctx.saved_tensors[0]

    class Right(Base):
        @staticmethod
        def backward(ctx, g):
            return None if g is None else g * ctx.saved_tensors[0] * 2

    class OnlyOnce(Base):
        @staticmethod
        def backward(ctx, g):
            return None if g is None else g * ctx.saved_tensors[0].detach() * 2

    class NotMultiplied(Base):
        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0] * 2

    class NeedsGradient(Base):
        @staticmethod
        def backward(ctx, g):
            if g is None:
                raise RuntimeError("no gradient")
            return g * ctx.saved_tensors[0] * 2

    class NeedsFirst(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x.clone(), x * 2

        @staticmethod
        def backward(ctx, a, b):
            if a is None:
                raise RuntimeError("no first gradient")
            return a if b is None else a + 2 * b

    class Changing(Base):
        calls = 0

        @staticmethod
        def backward(ctx, g):
            Changing.calls += 1
            return None if g is None else g * ctx.saved_tensors[0] * (2 + 1e-7 * (Changing.calls % 2))

    d = T.float64

    def x():
        return T.tensor([.5, 1.5, -2.], dtype=d, requires_grad=True)

    def m():
        return T.tensor([[.5, 1.5, -2.], [1., 2., .3]], dtype=d, requires_grad=True)

    def z():
        return T.tensor([.5 + 1j, 1.5 - .3j], dtype=T.complex128, requires_grad=True)

    one = T.ones(2, dtype=d, requires_grad=True)
    return {
        "Wrong": (Wrong.apply, x()), "Right": (Right.apply, x()), "OnlyOnce": (OnlyOnce.apply, x()), "NotMultiplied": (NotMultiplied.apply, x()),
        "NeedsGradient": (NeedsGradient.apply, x()), "NeedsFirst": (NeedsFirst.apply, x()), "Changing": (Changing.apply, x()),
        "sum": (lambda a: (a ** 3).sum(), (x(),)), "0-dim": (lambda a: a * a, (T.tensor(1.5, dtype=d, requires_grad=True),)),
        "two": (lambda a, b: (a * b, (a + b).sum()), (x(), x())), "matmul": (lambda a, b: a @ b, (m(), x())),
        "list": (lambda a: [a * 2, a * 3], (x(),)), "integer output": (lambda a: (a * 2, a.argmax()), (x(),)),
        "number": (lambda a, k: a * k, (x(), 3.)), "None": (lambda a, k: a * 2, (x(), None)), "same": (lambda a: a, (x(),)),
        "view": (lambda a: a.view(-1), (x(),)), "in place": (lambda a: a.clone().mul_(a), (x(),)), "empty": (lambda a: a * 2, (one[:0],)),
        "no input": (lambda a: a * 2, (T.ones(2, dtype=d),)), "float32": (lambda a: a * 2, (T.ones(2, requires_grad=True),)),
        "stride 0": (lambda a: a * 2, (T.ones(1, dtype=d, requires_grad=True).expand(3),)),
        "strided": (lambda a: a * 2 + a ** 2, (T.arange(6., dtype=d).view(2, 3).t().requires_grad_(),)),
        "complex": (lambda a: a * a, (z(),)), "complex abs": (lambda a: a.abs(), (z(),)), "complex parts": (lambda a: (a.real, a.conj() * 2), (z(),)),
        "to complex": (lambda a: T.complex(a, a * a), (x(),)), "relu at 0": (lambda a: a.relu(), (T.tensor([0., 1.], dtype=d, requires_grad=True),)),
        "linear": (T.nn.functional.linear, (m(), m(), one)), "layer_norm": (lambda a: T.nn.functional.layer_norm(a, (3,)), (m(),)),
        "cross_entropy": (lambda a: T.nn.functional.cross_entropy(a, T.tensor([0, 2])), (m(),)),
    }


CONSTANT = {"constant": lambda T: (lambda a: T.ones(3, dtype=T.float64)), "detached": lambda T: (lambda a: a.detach() * 2),
            "partly": lambda T: (lambda a: (a.detach() * 0, a * 3))}


def outcome(f):
    real.manual_seed(0)  # in 3 of 200 random directions even PyTorch finds no fault in `Changing`
    mt.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return f()
        except Exception as e:
            return type(e).__name__


CHECKS = [{}, {"fast_mode": True}, {"check_batched_grad": True}, {"check_undefined_grad": False}, {"check_grad_dtypes": True},
          {"raise_exception": False}, {"nondet_tol": 1e-5}, {"check_backward_ad": False}, {"check_batched_forward_grad": True}, {"masked": True},
          {"eps": 1e-3, "atol": 1e-2}, {"check_backward_ad": False, "check_batched_grad": True}]
DOUBLE = [{}, {"fast_mode": True}, {"check_batched_grad": True}, {"gen_non_contig_grad_outputs": True}, {"check_rev_over_rev": False},
          {"raise_exception": False}, {"check_grad_dtypes": True}, {"check_undefined_grad": False, "check_rev_over_rev": False}]


@pytest.mark.parametrize("name", sorted(functions(mt)))
def test_checks_match_torch(name):
    """Every argument, for right and wrong functions: True, False or the same error."""
    for check, options in [*(("gradcheck", o) for o in CHECKS), *(("gradgradcheck", o) for o in DOUBLE)]:
        want, got = [outcome(lambda T=T: getattr(T.autograd, check)(*functions(T)[name], **options)) for T in (real, mt)]
        assert want == got, (check, options)


@pytest.mark.parametrize("name", sorted(CONSTANT))
def test_checks_of_constant_outputs(name):
    x = [T.tensor([.5, -2.], dtype=T.float64, requires_grad=True) for T in (real, mt)]
    assert outcome(lambda: real.autograd.gradcheck(CONSTANT[name](real), x[0])) == outcome(
        lambda: mt.autograd.gradcheck(CONSTANT[name](mt), x[1]))
    # PyTorch fails in gradgradcheck for functions without any gradient, and in fast mode for
    # outputs before the one that has a gradient.
    assert mt.autograd.gradgradcheck(CONSTANT[name](mt), x[1])
    assert outcome(lambda: mt.autograd.gradcheck(CONSTANT[name](mt), x[1], fast_mode=True)) == ("GradcheckError" if name == "detached" else True)


@pytest.mark.parametrize("check, option", [("gradcheck", {"check_forward_ad": True}), ("gradgradcheck", {"check_fwd_over_rev": True}),
                                           ("gradcheck", {"check_forward_ad": True, "check_batched_forward_grad": True})])
def test_forward_mode_is_checked(check, option):
    def f(T, right):
        class Scaled(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * 2

            @staticmethod
            def jvp(ctx, t):
                return t * (2 if right else 3)
        return Scaled.apply if check == "gradcheck" else lambda x: x.sin() * x

    def outcome(T, right):
        x = T.ones(2, dtype=T.float64, requires_grad=True)
        return getattr(T.autograd, check)(f(T, right), (x,), raise_exception=False, **option)
    assert [outcome(mt, right) for right in (True, False)] == [True, check == "gradgradcheck"]
    # PyTorch uses vmap here, for which this Function has no rule
    if "check_batched_forward_grad" not in option:
        assert [outcome(real, right) for right in (True, False)] == [True, check == "gradgradcheck"]


def test_batched_check_detects_wrong_batched_gradients():
    class Alternating(mt.autograd.Function):
        """Right for the cotangents of the plain check, wrong for random ones."""

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            if ((g == 0) | (g == 1)).all():
                return g * 2
            Alternating.calls += 1
            return g * Alternating.calls

    x = mt.ones(2, dtype=mt.float64, requires_grad=True)
    Alternating.calls = 0
    assert mt.autograd.gradcheck(Alternating.apply, x)
    with pytest.raises(RuntimeError, match="batched"):
        mt.autograd.gradcheck(Alternating.apply, x, check_batched_grad=True)


def test_gradcheck_restores_inputs_and_rng_state():
    x = mt.tensor([.1, .7], dtype=mt.float64, requires_grad=True)
    before, state = x.tolist(), mt.get_rng_state().tolist()
    mt.autograd.gradcheck(lambda t: t.exp(), x)
    mt.autograd.gradgradcheck(lambda t: t.exp(), x, fast_mode=True, gen_non_contig_grad_outputs=True)
    assert x.tolist() == before and mt.get_rng_state().tolist() == state


# ------------------------------------------------------------------ is_grads_batched
@given(st.sampled_from(["x ** 3", "x.exp() * y", "(x * y).sum()", "x.cumsum(0)", "x[:1]"]), st.integers(1, 4), st.booleans(), st.booleans(),
       st.sampled_from(["", "allow_unused", "materialize_grads"]))
def test_batched_gradients(program, n, create, retain, unused):
    def run(T):
        rs = np.random.RandomState(n)
        x, y, z = (T.tensor(rs.randn(3), requires_grad=True) for _ in range(3))
        out = eval(program)
        v = T.tensor(rs.randn(n, *out.shape))
        gs = T.autograd.grad(out, [x, y, z] if unused else [x], v, retain_graph=retain, create_graph=create, is_grads_batched=True,
                             **({unused: True} if unused else {}))
        r = [None if g is None else (tuple(g.shape), g.detach().numpy().round(6).tolist()) for g in gs]
        if create and program == "x ** 3":
            r.append(T.autograd.grad(gs[0].sum(), x)[0].numpy().round(6).tolist())
        # whether the graph still exists
        r.append(outcome(lambda: T.autograd.grad(out.sum(), x)[0].numpy().round(6).tolist()))
        return r
    assert repr(run(real)) == repr(run(mt))


@pytest.mark.parametrize("grads", ["T.ones(3, 4)", "None", "T.ones(0, 2)", "T.tensor(1.)", "[T.ones(2, 2), T.ones(3, 2)]"])
def test_batched_gradients_of_wrong_shapes(grads):
    def run(T):
        x = T.ones(2, requires_grad=True)
        outs = [x * 2, x * 3] if "[" in grads else x * 2
        return outcome(lambda: T.autograd.grad(outs, x, eval(grads), is_grads_batched=True))
    want, got = run(real), run(mt)
    assert want == got and isinstance(got, str)


def test_grad_accepts_a_dict_of_inputs():
    for T in (real, mt):
        x, y = T.ones(2, requires_grad=True), T.ones(1, requires_grad=True)
        r = T.autograd.grad((x * x).sum(), {"x": x, "y": y}, materialize_grads=True, create_graph=True)
        assert {k: (g.tolist(), g.requires_grad) for k, g in r.items()} == {"x": ([2, 2], True), "y": ([0], True)}


# -------------------------------------------------------- gradients passed to a function's backward
@pytest.mark.parametrize("materialize", [True, False])
def test_function_backward_runs_without_incoming_gradients(materialize):
    def run(T):
        log = []

        class Nothing(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return None

        class Below(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(materialize)
                return x * 3, x * 4

            @staticmethod
            def backward(ctx, *gs):
                log.append([None if g is None else g.tolist() for g in gs])
                return gs[0]

        w, v = T.ones(2, requires_grad=True), T.ones(2, requires_grad=True)
        Nothing.apply(Below.apply(w * v)[0].exp()).sum().backward()
        a = Below.apply(w * v)[0]
        gs = T.autograd.grad(Nothing.apply(a.exp()).sum(), [a], allow_unused=True)
        return log, [None if t is None else t.tolist() for t in (w.grad, v.grad, *gs)]
    assert run(real) == run(mt)


def test_functions_may_define_vjp_instead_of_backward():
    def run(T, both):
        class F(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def vjp(ctx, g):
                return g * 2

        if both:
            F.backward = F.vjp
        x = T.ones(2, requires_grad=True)
        return outcome(lambda: T.autograd.grad(F.apply(x).sum(), x)[0].tolist())
    assert run(real, False) == run(mt, False) == [2, 2]
    assert run(real, True) == run(mt, True) == "RuntimeError"


# ------------------------------------------------------------------ functional, func
PROGRAMS = {
    "square": lambda T: (lambda x: (x ** 3).sum()), "vector": lambda T: (lambda x: x ** 3), "linear": lambda T: (lambda x: 2 * x),
    "constant": lambda T: (lambda x: T.ones(2, dtype=T.float64)), "product": lambda T: (lambda x, y: (x * y).sum()),
    "unused": lambda T: (lambda x, y: (x ** 3).sum()), "two outputs": lambda T: (lambda x, y: (x * y, x.exp().sum())),
    "matrix": lambda T: (lambda x: T.outer(x, x)), "list": lambda T: (lambda x: [x * 2]), "number": lambda T: (lambda x: 3.0),
    "tuple": lambda T: (lambda x: (x.sin(),)),
}


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "vhp", "hvp"])
@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_functional_flags(name, program):
    """Values, nesting, and the errors of strict mode. Vectorization and the strategies yield the
    same values."""
    def values(r):
        return tuple(values(x) for x in r) if isinstance(r, tuple) else r.detach().numpy().round(8).tolist()

    def run(T, v, **options):
        f = PROGRAMS[program](T)
        n = f.__code__.co_argcount
        xs = tuple(T.tensor([1. + i, 2.], dtype=T.float64) for i in range(n))
        args = [f, xs if n > 1 else xs[0]]
        if v != "none" and "v" in name:
            shape = {"inputs": 2, "scalar": (), "bad": 5}[v]
            vs = tuple(T.full((shape,) if shape else (), .5, dtype=T.float64) for _ in range(n))
            args.append(vs[0] if n == 1 or v == "scalar" else vs)
        return outcome(lambda: values(getattr(T.autograd.functional, name)(*args, **options)))

    for create, strict, v in itertools.product([False, True], [False, True], ["none", "inputs", "scalar", "bad"]):
        if create and strict and name in ("hessian", "vhp", "hvp") and program == "product":
            continue  # PyTorch recognizes a constant Hessian by its history
        options = {"create_graph": create, "strict": strict}
        assert run(real, v, **options) == run(mt, v, **options), (options, v)
    flags = {"jacobian": "strategy", "hessian": "outer_jacobian_strategy"}
    if name in flags:
        want = run(mt, "none")
        assert run(mt, "none", vectorize=True) == want
        assert run(mt, "none", **{flags[name]: "forward-mode"}, vectorize=True) == want
        assert run(mt, "none", **{flags[name]: "sideways"}) == "AssertionError"


@pytest.mark.parametrize("how", ["error", "same", "different"])
def test_jacfwd_randomness_modes(how):
    x = mt.ones(3)
    assert mt.func.jacfwd(lambda t: t * 2, randomness=how)(x).tolist() == (2 * np.eye(3)).tolist()

    def noisy(T):
        return outcome(lambda: T.func.jacfwd(lambda t: t * T.rand(3) * 0, randomness=how)(T.ones(3)).tolist())
    assert noisy(mt) == ("NotImplementedError" if how == "different" else noisy(real))
