"""torch.autograd.forward_ad, torch.func in forward mode, and custom Functions with a jvp, compared
with PyTorch."""
import numpy as np
import pytest
import torch as real
from hypothesis import given, strategies as st

import mindtorch.torch as mine

SIDES = (mine, real)


def both(f):
    """Runs `f(torch)` on both sides: arrays are close, everything else is equal."""
    got, want = f(mine), f(real)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        if hasattr(w, "detach"):
            assert tuple(g.shape) == tuple(w.shape) and str(g.dtype) == str(w.dtype)
            assert np.allclose(g.detach().numpy(), w.detach().numpy(), rtol=1e-9, atol=1e-12, equal_nan=True)
            assert g.requires_grad == w.requires_grad
        else:
            assert g == w


# Operations on a dual tensor d, a plain tensor z, and views of either.
STEPS = {
    "z.copy_(d)": lambda T, d, z: z.copy_(d), "z += d": lambda T, d, z: z.add_(d), "z[1] = d[0]": lambda T, d, z: z.__setitem__(1, d[0]),
    "z.t() *= d": lambda T, d, z: z.t().mul_(d.t()), "d[0] = 2": lambda T, d, z: d[0].fill_(2.0), "d *= 3": lambda T, d, z: d.mul_(3),
    "d[:, 1] exp": lambda T, d, z: d[:, 1].exp_(), "z.diagonal() = d[1]": lambda T, d, z: z.diagonal().copy_(d[1]),
    "z[mask]": lambda T, d, z: z.__setitem__(T.tensor([True, False, True]), d[:2]), "zero": lambda T, d, z: z.view(-1)[2:5].zero_(),
    "masked_fill": lambda T, d, z: d.masked_fill_(T.eye(3, dtype=T.bool), 1.5), "index": lambda T, d, z: z.index_add_(0, T.tensor([2, 0]), d[1:]),
    "addcmul": lambda T, d, z: z.addcmul_(d, d), "relu": lambda T, d, z: d.relu_(), "d <- z": lambda T, d, z: d[1].copy_(z[2]),
}


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5), st.booleans(), st.booleans())
def test_writes_and_views(steps, early, grad):
    def program(T):
        rs = np.random.RandomState(0)
        a, t, z = (T.tensor(rs.uniform(0.2, 1, (3, 3))) for _ in range(3))
        if grad:
            a.requires_grad_(), t.requires_grad_()
        F = T.autograd.forward_ad
        view = z[:, 1:] if early else None
        with F.dual_level():
            d = F.make_dual(a * 1, t * 1)
            below = d[1:]
            for s in steps:
                STEPS[s](T, d, z)
            view = z[:, 1:] if view is None else view
            found = []
            for x in (d, below, z, view, z.sum() * d.prod()):
                p, g = F.unpack_dual(x)
                found += [p.clone(), T.zeros_like(p) if g is None else g.clone()]
            total = sum(x.sum() for x in found)
            found += list(T.autograd.grad(total, [a, t], allow_unused=True, materialize_grads=True)) if grad else []
        return [x.detach() for x in found]
    try:
        program(real)
    except RuntimeError:
        return  # PyTorch overwrote what its backward needs; mindtorch may have kept it
    both(program)


@pytest.mark.parametrize("what", ["make_dual of another size", "of integers", "tangent of integers", "twice", "no level", "nested", "out", "resize", "leave"])
def test_errors(what):
    def error(T):
        F, x = T.autograd.forward_ad, T.ones(2)
        try:
            if what == "no level":
                F.make_dual(x, x)
            if what == "leave":
                F.exit_dual_level()
            with F.dual_level():
                if what == "make_dual of another size":
                    F.make_dual(x, T.ones(3))
                if what == "of integers":
                    F.make_dual(T.ones(2, dtype=T.int64), x)
                if what == "tangent of integers":
                    F.make_dual(x, T.ones(2, dtype=T.int64))
                if what == "nested":
                    F.enter_dual_level()
                d = F.make_dual(x, x.clone())
                if what == "twice":
                    F.make_dual(d, x)
                if what == "out":
                    T.add(d, x, out=T.ones(2))
                if what == "resize":
                    d.resize_(1)
        except (RuntimeError, ValueError, AssertionError) as e:
            return [type(e).__name__, str(e)[:40]]
        raise AssertionError("no error")
    both(error)


def test_which_results_carry_a_tangent():
    def kept(T):
        F = T.autograd.forward_ad
        with F.dual_level() as level:
            x = T.arange(3.0, dtype=T.float64)
            d = F.make_dual(x, x + 1)
            with T.no_grad():
                y = d * 2
            with F._set_fwd_grad_enabled(False):
                z = d * 2
            found = [F.unpack_dual(v).tangent for v in (d, y, z, d.detach(), d.clone(), d == d, T.tensor([1.0]))]
            shown = "tangent=" in str(d)
            named = type(F.unpack_dual(d)).__name__
        return [level, shown, named, *[v is None for v in found], F.unpack_dual(d).tangent is None]
    both(kept)


# ------------------------------------------------------------------ torch.func
def f(T, x):
    return (x.view(2, 3) @ x.view(3, 2)).tanh().sum(0) * x[:2].exp()


TRANSFORMED = {
    "jvp of jvp": lambda T, x, y: T.func.jvp(lambda x: T.func.jvp(lambda z: f(T, z * x), (y,), (x,))[1], (x,), (y,)),
    "jacfwd": lambda T, x, y: [T.func.jacfwd(lambda x: f(T, x))(x), T.func.jacfwd(lambda a, b: a.outer(b).sin().sum(0), argnums=(0, 1))(x, y)[1]],
    "hessian": lambda T, x, y: [T.func.hessian(lambda x: f(T, x).prod())(x), T.func.jacfwd(T.func.jacfwd(lambda x: f(T, x).prod()))(x)],
    "forward over backward": lambda T, x, y: T.func.jvp(T.func.grad(lambda x: T.nn.functional.gelu(T.nn.functional.layer_norm(x, (6,))).pow(3).sum()), (x,), (y,)),
    "backward over forward": lambda T, x, y: [T.func.grad(lambda x: T.func.jvp(lambda x: f(T, x), (x,), (y * x,))[1].sum())(x)],
    "of softmax": lambda T, x, y: [T.func.hessian(lambda x: T.nn.functional.cross_entropy(x.view(2, 3), T.tensor([0, 2])))(x)],
    "vmap": lambda T, x, y: [T.func.vmap(lambda t: T.func.jvp(lambda x: f(T, x), (x,), (t,))[1])(T.stack([x, y]))],
    "linearize": lambda T, x, y: [T.func.linearize(lambda x: f(T, x), x)[1](y)],
    "functional": lambda T, x, y: [T.autograd.functional.jacobian(lambda x: f(T, x), x, vectorize=True, strategy="forward-mode"),
                                   T.autograd.functional.hessian(lambda x: f(T, x).prod(), x, vectorize=True, outer_jacobian_strategy="forward-mode")],
    "no grad mode around": lambda T, x, y: T.no_grad()(lambda: T.func.jvp(lambda x: f(T, x), (x,), (y,)))(),
    "switched off around": lambda T, x, y: off(T, lambda: T.func.jvp(lambda z: z * T.func.jvp(lambda x: f(T, x), (x,), (y,))[1], (x[:2],), (y[:2],))),
}


def off(T, g):
    with T.autograd.forward_ad._set_fwd_grad_enabled(False):
        return g()


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("grad", [False, True])
def test_transforms(name, grad):
    def results(T):
        rs = np.random.RandomState(3)
        x, y = (T.tensor(rs.uniform(0.1, 1, 6), requires_grad=grad) for _ in range(2))
        out = list(TRANSFORMED[name](T, x, y))
        if name in ("linearize", "functional"):
            # whether these have a history is incidental in PyTorch
            return [o.detach() for o in out]
        if grad and any(o.requires_grad for o in out):
            out += T.autograd.grad(sum(o.sum() for o in out if o.requires_grad), [x, y], allow_unused=True, materialize_grads=True)
        return out
    both(results)


@pytest.mark.parametrize("training", [False, True])
def test_tangents_through_a_resnet(training):
    """The directional derivative of a small ResNet's logits with respect to its weights and its
    input."""
    def block(T, n, m, stride):
        nn = T.nn

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m), nn.ReLU(inplace=True),
                                          nn.Conv2d(m, m, 3, 1, 1, bias=False), nn.BatchNorm2d(m))
                self.short = nn.Sequential(nn.Conv2d(n, m, 1, stride, bias=False), nn.BatchNorm2d(m)) if stride > 1 else nn.Identity()

            def forward(self, x):
                return T.relu(self.body(x) + self.short(x))
        return Block()

    def derivative(T):
        T.manual_seed(0)
        nn, rs = T.nn, np.random.RandomState(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1), block(T, 4, 4, 1), block(T, 4, 8, 2),
                            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).double().train(training)
        params = {k: T.tensor(rs.randn(*p.shape) * 0.3) for k, p in net.named_parameters()}
        buffers = {k: T.tensor(rs.uniform(0.5, 1.5, tuple(b.shape))) if b.dtype.is_floating_point else b.clone() for k, b in net.named_buffers()}
        x, t = T.tensor(rs.randn(2, 3, 16, 16)), T.tensor(rs.randn(2, 3, 16, 16))
        along = {k: T.tensor(rs.randn(*p.shape) * 0.1) for k, p in params.items()}
        F = T.autograd.forward_ad
        with F.dual_level():
            p = {k: F.make_dual(v, along[k]) for k, v in params.items()}
            y, d = F.unpack_dual(T.func.functional_call(net, {**p, **{k: b.clone() for k, b in buffers.items()}}, (F.make_dual(x, t),)))
        return [y, d]
    both(derivative)


# ------------------------------------------------------------------ custom functions
def functions(T):
    class Product(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, k):
            ctx.save_for_forward(x, y)
            ctx.k = k
            return k * x * y

        @staticmethod
        def jvp(ctx, s, t, _):
            x, y = ctx.saved_tensors
            return ctx.k * (s * y + x * t)

    class Doubled(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx, t):
            return t.mul_(2)

    class Head(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[:2]

        @staticmethod
        def jvp(ctx, t):
            return t[:2]

    class NoView(Head):
        @staticmethod
        def jvp(ctx, t):
            return t[:2].clone()

    class Outside(Doubled):
        @staticmethod
        def jvp(ctx, t):
            return t * 2

    class Wrong(Product):
        @staticmethod
        def jvp(ctx, *ts):
            return ts[0], ts[0]

    class Nothing(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2
    return {"Product": lambda x, y: Product.apply(x, y, 3.0), "Doubled": lambda x, y: Doubled.apply(x.clone()), "Head": lambda x, y: Head.apply(x),
            "NoView": lambda x, y: NoView.apply(x), "Outside": lambda x, y: Outside.apply(x.clone()), "Wrong": lambda x, y: Wrong.apply(x, y, 2.0),
            "Nothing": lambda x, y: Nothing.apply(x)}


@pytest.mark.parametrize("name", functions(real))
def test_custom_functions(name):
    def result(T):
        F, g = T.autograd.forward_ad, functions(T)[name]
        x, y, s = (T.tensor(np.arange(3.0) + i) for i in range(3))
        with F.dual_level():
            d = F.make_dual(x, s)
            try:
                r = g(d, y)
                p, t = F.unpack_dual(r)
                r.mul_(3)  # writes to the base's tangent if `r` is a view
                return [p.clone(), t.clone(), F.unpack_dual(d).tangent.clone()]
            except (RuntimeError, NotImplementedError) as e:
                return [type(e).__name__, str(e)[:60]]
    both(result)


def test_gradcheck_finds_a_wrong_jvp():
    def verdicts(T):
        class Scaled(T.autograd.Function):
            @staticmethod
            def forward(ctx, x, k):
                ctx.k = k
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * 2, None

            @staticmethod
            def jvp(ctx, t, _):
                return t * ctx.k
        check, said = T.autograd.gradcheck, []
        for dtype in (T.float64, T.complex128):
            x = T.tensor(np.random.RandomState(0).randn(3)).to(dtype).requires_grad_()
            for fast in (False, True):
                said.append(check(Scaled.apply, (x, 2.0), check_forward_ad=True, fast_mode=fast))
                said.append(check(Scaled.apply, (x, 3.0), check_forward_ad=True, fast_mode=fast, raise_exception=False))
                said.append(check(Scaled.apply, (x, 3.0), fast_mode=fast))
        x = x.detach().real.clone().requires_grad_()
        said.append(T.autograd.gradgradcheck(lambda x: x.sin() * x, (x,), check_fwd_over_rev=True))
        return said
    both(verdicts)
