"""torch.vmap, which computes all slices at once, compared with PyTorch: families of ops, writes,
transforms inside and outside, errors."""
import gc
import warnings

import numpy as np
import pytest
from _both_sides import agree, mine, outcome, real
from hypothesis import given, settings, strategies as st

from mindtorch.core.transforms import vmap
from mindtorch.core.dispatch.primitives import PRIMITIVES

TOL = {"rtol": 1e-4, "atol": 1e-5}

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    real.func.jvp(real.sin, (real.ones(1),), (real.ones(1),))


def same(fn, **tolerance):
    """Asserts the same value or error on both sides. (PyTorch warns where it has no rule.)"""
    (a, _), (b, _) = (outcome(fn, T) for T in (real, mine))
    if isinstance(a, tuple) and a[0] == "RuntimeError" and "vmap" in a[1]:
        assert b[0] == a[0], b
    else:
        agree(a, b, **tolerance)


def x(T, *s, seed=0):
    return T.tensor(np.random.RandomState(seed).randn(*s).astype("float32"))


def i(T, *v):
    return T.tensor(list(v))


def item(a, key, value):
    a = a.clone()
    a[key] = value
    return a


# ----------------------------------------- ops with one operand, mapped along any of its dimensions
UNARY = {
    "sin": lambda T, a: a.sin() * 2, "sum": lambda T, a: a.sum(), "sum -1": lambda T, a: a.sum(-1), "mean": lambda T, a: a.mean(0, keepdim=True), "std": lambda T, a: a.std(),
    "var": lambda T, a: a.var(1), "norm": lambda T, a: a.norm(), "norm dim": lambda T, a: a.norm(dim=-1), "prod": lambda T, a: a.prod(), "max": lambda T, a: a.max(),
    "max dim": lambda T, a: a.max(0), "argmax": lambda T, a: a.argmax(-1), "amin": lambda T, a: a.amin((0, 1)), "logsumexp": lambda T, a: a.logsumexp(1),
    "cumsum": lambda T, a: a.cumsum(0), "sort": lambda T, a: a.sort(-1), "topk": lambda T, a: a.topk(2, 0), "median": lambda T, a: a.median(),
    "softmax": lambda T, a: a.softmax(0), "transpose": lambda T, a: a.transpose(0, -1), "t": lambda T, a: a.t() @ a, "reshape": lambda T, a: a.reshape(-1)[1:],
    "view": lambda T, a: a.contiguous().view(-1), "permute": lambda T, a: a.permute(1, 0), "squeeze": lambda T, a: a[:1].squeeze().unsqueeze(-1),
    "expand": lambda T, a: a.expand(2, *a.shape), "flip": lambda T, a: a.flip(0), "roll": lambda T, a: a.roll(1, 0), "diagonal": lambda T, a: a.diagonal(),
    "diag_embed": lambda T, a: T.diag_embed(a), "unfold": lambda T, a: a.unfold(0, 2, 1), "split": lambda T, a: a.split(1, 0), "unbind": lambda T, a: a.unbind(1)[0],
    "tril": lambda T, a: a.tril(), "trace": lambda T, a: a.trace(), "repeat": lambda T, a: a.repeat(2, 1), "repeat_interleave": lambda T, a: a.repeat_interleave(2, 0),
    "slice": lambda T, a: a[:, 1:], "int": lambda T, a: a[0], "None": lambda T, a: a[None, ..., 0], "list": lambda T, a: a[[0, 1, 0]], "pair": lambda T, a: a[[0, 1], [1, 0]],
    "index_select": lambda T, a: a.index_select(1, i(T, 1, 0)), "gather": lambda T, a: a.gather(0, i(T, [1, 0], [0, 1])), "masked": lambda T, a: a.masked_fill(a > 0, 3.0),
    "where": lambda T, a: T.where(a > 0, a, -a), "clamp": lambda T, a: a.clamp(-0.5, 0.5), "double": lambda T, a: a.double() + 1, "int()": lambda T, a: (a * 3).long() % 2,
    "cat": lambda T, a: T.cat([a, T.ones_like(a), a[:1]]), "stack": lambda T, a: T.stack([a, T.ones(a.shape)], 1), "matmul": lambda T, a: a @ T.ones(a.shape[1], 3),
    "mv": lambda T, a: a @ a[0], "outer": lambda T, a: T.outer(a[0], a[:, 0]), "einsum": lambda T, a: T.einsum("ij,kj->ik", a, a), "linear": lambda T, a: T.nn.functional.linear(a, a, a[:, 0]),
    "layer_norm": lambda T, a: T.nn.functional.layer_norm(T.cat([a, a * 2 + 1], 1), (2 * a.shape[1],)), "gelu": lambda T, a: T.nn.functional.gelu(a), "pad": lambda T, a: T.nn.functional.pad(a, (1, 2)),
    "mse": lambda T, a: T.nn.functional.mse_loss(a, a.detach() * 2), "cross_entropy": lambda T, a: T.nn.functional.cross_entropy(a, i(T, *[0] * a.shape[0])),
    "inv": lambda T, a: T.linalg.inv(a @ a.T + 3 * T.eye(a.shape[0])), "det": lambda T, a: T.linalg.det(a @ a.T), "solve": lambda T, a: T.linalg.solve(a @ a.T + T.eye(a.shape[0]), a),
    "cholesky": lambda T, a: T.linalg.cholesky(a @ a.T + T.eye(a.shape[0])), "fft": lambda T, a: T.fft.fft(a).abs(), "cov": lambda T, a: T.cov(a), "as_strided": lambda T, a: a.as_strided((2,), (1,), 0) * 0,
    "new_zeros": lambda T, a: a.new_zeros(2, 2).add_(a), "in place": lambda T, a: a.clone().mul_(2).add_(a).sin_(), "in place view": lambda T, a: item(a, (slice(None), 0), a[:, 1] * 5),
    "setitem list": lambda T, a: item(a, [0], a[1]), "fill": lambda T, a: item(a, 0, 7.0), "index_put": lambda T, a: a.clone().index_put_((i(T, 0, 1),), a[:1], accumulate=True),
    "scatter": lambda T, a: a.scatter(0, i(T, [1, 0], [0, 1]), a * 2), "scatter_add": lambda T, a: a.scatter_add(1, i(T, [0, 0], [1, 0]), a), "index_add": lambda T, a: a.index_add(0, i(T, 1, 0), a),
    "0-dim": lambda T, a: a[0, 0] + a[0, 0].sum() + a[0, 1].sum(0), "linalg norm": lambda T, a: T.linalg.svdvals(a), "lerp": lambda T, a: T.lerp(a, a * 2, 0.3), "bitwise": lambda T, a: (a > 0) & (a < 1),
    "conv": lambda T, a: T.nn.functional.conv1d(a[None], T.ones(3, a.shape[0], 1)), "interpolate": lambda T, a: T.nn.functional.interpolate(a[None], scale_factor=2),
    "max_pool": lambda T, a: T.nn.functional.max_pool2d(a[None], 2),
}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(UNARY)), st.integers(-3, 2), st.integers(0, 1), st.sampled_from([1, 2, 3]))
def test_ops(name, in_dim, out_dim, size):
    shape = [2, 2]
    shape.insert(in_dim % 3, size)
    f = UNARY[name]
    same(lambda T: T.vmap(lambda a: f(T, a), in_dim, out_dim if name not in ("0-dim", "sum", "std", "norm", "prod", "max", "median", "trace", "mse", "cross_entropy", "det") else 0)(
        x(T, *shape)), **TOL)


@pytest.mark.parametrize("name", UNARY)
def test_every_op(name):
    f = UNARY[name]
    same(lambda T: T.vmap(lambda a: f(T, a), 1)(x(T, 2, 3, 2)), **TOL)


_INTEGERS = ("argmax", "int()", "bitwise", "sort", "topk", "max dim", "as_strided")


@pytest.mark.parametrize("name", [n for n in UNARY if n not in _INTEGERS])
def test_gradients_inside_and_outside_vmap(name):
    def total(T, a):
        r = UNARY[name](T, a)
        return sum([t.double().sin().sum() for t in (r if isinstance(r, tuple) else (r,))])
    f = {"within": lambda T: T.vmap(T.func.grad(lambda a: total(T, a)))(x(T, 3, 2, 2)),
         "around": lambda T: T.func.grad(lambda b: T.vmap(lambda a: total(T, a), 1)(b).sum())(x(T, 2, 3, 2))}
    for fn in f.values():
        same(fn, rtol=2e-3, atol=2e-3 if name == "layer_norm" else 2e-4)


BINARY = {
    "add": lambda T, a, b: a + b, "where": lambda T, a, b: T.where(a > b, a, b), "matmul": lambda T, a, b: a @ b, "linear": lambda T, a, b: T.nn.functional.linear(a, b, b[:, 0]),
    "bmm": lambda T, a, b: T.bmm(a[None], b[None]), "addmm": lambda T, a, b: T.addmm(a, a, b, beta=0.5, alpha=2), "einsum": lambda T, a, b: T.einsum("ij,jk->k", a, b),
    "cat": lambda T, a, b: T.cat([a, b], -1), "stack": lambda T, a, b: T.stack([a, b]), "index": lambda T, a, b: a[(b > 0).long()], "index 1": lambda T, a, b: a[:, (b[0] > 0).long()],
    "index 2": lambda T, a, b: a[(b[0] > 0).long(), (b[1] > 0).long()], "gather": lambda T, a, b: a.gather(1, (b > 0).long()), "mv": lambda T, a, b: a @ b[0], "dot": lambda T, a, b: a[0] @ b[1],
    "embedding": lambda T, a, b: T.nn.functional.embedding((b > 0).long(), a), "scatter": lambda T, a, b: a.scatter_add(0, (b > 0).long(), b), "masked_fill": lambda T, a, b: a.masked_fill(b > 0, 1.0),
    "conv": lambda T, a, b: T.nn.functional.conv1d(a[None], b[:, :, None]), "solve": lambda T, a, b: T.linalg.solve(a + 5 * T.eye(2), b), "cdist": lambda T, a, b: T.cdist(a, b),
    "outer": lambda T, a, b: T.outer(a[0], b[0]), "put": lambda T, a, b: (a + 0 * b).index_put((T.tensor([0, 1]), (b[0] > 0).long()), b[1]), "attention":
    lambda T, a, b: T.nn.functional.scaled_dot_product_attention(a, b, b), "cross": lambda T, a, b: T.nn.functional.cosine_similarity(a, b, 0), "kron": lambda T, a, b: T.kron(a, b),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 2), (1, 2)])
def test_two_operands(name, dims):
    shape = lambda d: (2, 2) if d is None else tuple([3 if k == d else 2 for k in range(3)])        # noqa: E731

    def run(T):
        a, b = x(T, *shape(dims[0])), x(T, *shape(dims[1]), seed=1)
        f = lambda a, b: BINARY[name](T, a, b)        # noqa: E731
        g = lambda a, b: f(a, b).sin().sum()        # noqa: E731
        return T.vmap(f, dims)(a, b), T.vmap(T.func.grad(g, (0, 1)), dims)(a, b), T.func.grad(lambda a, b: T.vmap(g, dims)(a, b).sum(), (0, 1))(a, b)
    same(run, rtol=1e-3, atol=1e-4)


# ------------------------------------------------------------------ transforms
TRANSFORMS = {
    "vmap vmap": lambda T, f, a: T.vmap(T.vmap(f), 1)(a), "vmap jvp": lambda T, f, a: T.vmap(lambda v: T.func.jvp(f, (v,), (v,)))(a[0]),
    "jvp vmap": lambda T, f, a: T.func.jvp(T.vmap(f), (a[0],), (a[0] * 2,)), "vmap jacrev": lambda T, f, a: T.vmap(T.func.jacrev(f))(a[0]),
    "vmap jacfwd": lambda T, f, a: T.vmap(T.func.jacfwd(f))(a[0]), "vmap hessian": lambda T, f, a: T.vmap(T.func.hessian(f))(a[0]),
    "jacrev vmap": lambda T, f, a: T.func.jacrev(T.vmap(f))(a[0]), "jacfwd vmap": lambda T, f, a: T.func.jacfwd(T.vmap(f))(a[0]),
    "hessian vmap": lambda T, f, a: T.func.hessian(lambda v: T.vmap(f)(v).sum())(a[0]), "vmap vjp": lambda T, f, a: T.vmap(lambda v: T.func.vjp(f, v)[1](v))(a[0]),
    "vmap grad grad": lambda T, f, a: T.vmap(T.func.grad(lambda v: T.func.grad(lambda w: f(w).sum())(v).sum()))(a[0]),
    "grad vmap grad": lambda T, f, a: T.func.grad(lambda b: T.vmap(T.func.grad(lambda v: (f(v) * b[0]).sum()))(b).sum())(a[0]),
    "jacrev vmap jacfwd": lambda T, f, a: T.func.jacrev(lambda b: T.vmap(T.func.jacfwd(f))(b))(a[0]),
    "backward": lambda T, f, a: (lambda b: T.autograd.grad(T.vmap(lambda v: T.func.grad(lambda w: (f(w) * b[0]).sum())(v))(b).sum(), b)[0])(a[0].clone().requires_grad_()),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    same(lambda T: TRANSFORMS[name](T, lambda v: v.sin() * v.prod() + v.flip(0), x(T, 2, 2, 3)), rtol=1e-3, atol=1e-4)


def test_linearize_inside_vmap():
    """PyTorch does not support this."""
    a = x(mine, 2, 3)
    y = mine.vmap(lambda v: mine.func.linearize(lambda u: u.sin() * u, v)[1](v))(a)
    np.testing.assert_allclose(y.numpy(), ((a.cos() * a + a.sin()) * a).numpy(), rtol=1e-5)


def test_chunked_vmap_and_jacobians():
    for size in (1, 2, 3, 7):
        same(lambda T: T.vmap(lambda a, b: (a * b, a.sum()), (1, None), (1, 0), chunk_size=size)(x(T, 3, 5), x(T, 3)), **TOL)
        same(lambda T: T.func.jacrev(lambda a: a.sin().outer(a), chunk_size=size)(x(T, 3)), **TOL)
    same(lambda T: (T.manual_seed(0), T.vmap(lambda a: a + T.rand(2), randomness="same", chunk_size=2)(x(T, 3, 2)))[1], **TOL)


def test_batched_gradients():
    def run(T):
        a = x(T, 4, 3).requires_grad_()
        y, z = a.sin() @ a.T, a.relu().cumsum(0)
        vs = T.stack([T.eye(4), T.ones(4, 4)]), x(T, 2, 4, 3)
        g, = T.autograd.grad((y, z), a, vs, is_grads_batched=True, create_graph=True)
        return g, T.autograd.grad(g.sin().sum(), a)
    same(run, **TOL)


def test_ensembles():
    def run(T):
        T.manual_seed(0)
        models = [T.nn.Sequential(T.nn.Linear(3, 4), T.nn.BatchNorm1d(4), T.nn.Tanh(), T.nn.Linear(4, 2)).eval() for _ in range(3)]
        params, buffers = T.func.stack_module_state(models)

        def call(p, b, v):
            return T.func.functional_call(models[0], (p, b), (v,))
        y = T.vmap(call, (0, 0, None))(params, buffers, x(T, 5, 3))
        return y, T.stack([m(x(T, 5, 3)) for m in models]), T.func.grad(lambda p: T.vmap(call, (0, 0, None))(p, buffers, x(T, 5, 3)).sum())(params)
    same(run, **TOL)


def test_per_sample_gradients_of_a_network():
    def run(T):
        T.manual_seed(0)
        net = T.nn.Sequential(T.nn.Conv2d(1, 3, 3), T.nn.GroupNorm(1, 3), T.nn.ReLU(), T.nn.MaxPool2d(2), T.nn.Flatten(), T.nn.Linear(27, 4))
        params = {k: v.detach() for k, v in net.named_parameters()}

        def loss(p, a, b):
            return T.nn.functional.cross_entropy(T.func.functional_call(net, p, (a[None],)), b[None])
        return T.vmap(T.func.grad_and_value(loss), (None, 0, 0))(params, x(T, 4, 1, 8, 8), i(T, 0, 3, 2, 1))
    same(run, rtol=1e-3, atol=1e-4)


# ------------------------------------------------------------------ random numbers, values, writes
RANDOM = {
    "rand": lambda T, a: a + T.rand(3), "randn_like": lambda T, a: T.randn_like(a), "normal_": lambda T, a: a.clone().normal_(), "dropout": lambda T, a: T.nn.functional.dropout(a),
    "bernoulli": lambda T, a: T.bernoulli(a.sigmoid()), "randint": lambda T, a: a + T.randint(0, 9, (3,)),
}


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("how", ["error", "same", "different"])
def test_randomness(name, how):
    if (name, how) == ("bernoulli", "same"):
        pytest.skip("real torch does not support it")
    def run(T):
        T.manual_seed(0)
        return T.vmap(lambda a: RANDOM[name](T, a), randomness=how)(x(T, 4, 3)), T.rand(1)
    same(run, **TOL)


REFUSED = {
    "item": lambda T, a, c: a * a.sum().item(), "bool": lambda T, a, c: a if a.sum() > 0 else -a, "nonzero": lambda T, a, c: a.nonzero(), "unique": lambda T, a, c: a.unique(),
    "captured": lambda T, a, c: c.add_(a), "captured copy": lambda T, a, c: c.copy_(a), "made inside": lambda T, a, c: T.zeros(3).add_(a), "captured item": lambda T, a, c: item(c, 0, a[0]),
    "masked_select": lambda T, a, c: a.masked_select(a > 0), "float": lambda T, a, c: float(a[0]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    c = [T.zeros(3) for T in (real, mine)]
    got = [outcome(lambda T: T.vmap(lambda a: REFUSED[name](T, a, k))(x(T, 2, 3)), side)[0] for side, k in zip((real, mine), c)]        # noqa: B023
    assert got[0][0] == "RuntimeError" == got[1][0], got
    assert "vmap" in got[1][1]
    assert c[1].tolist() == [0, 0, 0]


def test_inplace_writes_to_inputs():
    def run(T):
        a, c = x(T, 2, 3), T.zeros(3)
        r = T.vmap(lambda v: v.mul_(2).sum() + c.add_(1).sum())(a)
        return r, a, c
    same(run, **TOL)


# ------------------------------------------------------------------ implementation
def test_vmap_calls_the_function_once():
    calls = []
    mine.vmap(lambda a: calls.append(a.shape) or a @ a)(mine.ones(5, 2, 2))
    assert calls == [(2, 2)]


def test_batching_rules_match_slice_by_slice_execution(monkeypatch):
    """Without any batching rule, every primitive is computed slice by slice, with unchanged
    results."""
    names = [n for n in UNARY if n not in _INTEGERS]
    run = lambda n: mine.vmap(mine.func.grad(lambda a: (lambda r: sum([t.double().sin().sum() for t in (r if isinstance(r, tuple) else (r,))]))(UNARY[n](mine, a))))(      # noqa: E731
        x(mine, 3, 2, 2)).numpy()
    by_rule = {n: run(n) for n in names}
    for f in PRIMITIVES.values():
        if not f.prim.view:
            monkeypatch.setattr(f.prim, "batch", None)
    for n in names:
        np.testing.assert_allclose(run(n), by_rule[n], rtol=2e-3, atol=2e-3, err_msg=n)


def test_vmap_layer_is_inactive_outside_vmap():
    from mindtorch.core.dispatch.dispatcher import dispatch_state, is_enabled
    # Leftovers of other tests, such as a tensor with the conjugate bit or on another device, keep
    # their own layer active.
    gc.collect()
    before = dispatch_state.primitives
    with pytest.raises(ValueError):
        mine.vmap(lambda a: (_ for _ in ()).throw(ValueError()))(mine.ones(2))
    assert dispatch_state.primitives <= before and vmap.innermost() is None
    assert not is_enabled("primitives", "vmap") and not is_enabled("ops", "vmap")


# ------------- operands of which only some are batched: values, and gradients from outside the vmap
def _filled(T, a, b):
    r = a.clone()
    r.fill_(b)
    return r * a


def _put(T, a):
    r = a.clone()
    r[i(T, 0, 2)] = a[:2] * 2
    return r


PARTLY = {
    "linear": (lambda T, a, w, b: T.nn.functional.linear(a, w, b), [(3, 4), (5, 4), (5,)], [(None, None, 0), (0, None, 0), (None, 0, None), (0, None, None)]),
    "linear 1": (lambda T, a, w, b: T.nn.functional.linear(a, w, b), [(4,), (5, 4), (5,)], [(None, None, 0), (0, None, 0)]),
    "baddbmm": (lambda T, c, a, b: T.baddbmm(c, a, b, beta=0.5, alpha=2), [(2, 3, 5), (2, 3, 4), (2, 4, 5)], [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0)]),
    "addmm": (lambda T, c, a, b: T.addmm(c, a, b, beta=0), [(5,), (3, 4), (4, 5)], [(0, None, None), (None, 0, None), (0, None, 0)]),
    "masked_fill": (lambda T, a, b: a.masked_fill(a > 0, b), [(3, 4), ()], [(0, 0), (None, 0), (0, None)]),
    "fill": (_filled, [(3, 4), ()], [(0, 0), (0, None)]),
    "put": (_put, [(3, 4)], [(0,)]),
}


@pytest.mark.parametrize("name", list(PARTLY))
def test_partially_batched_operands(name):
    op, shapes, ways = PARTLY[name]
    for dims in ways:
        def run(T, dims=dims, twice=False):
            f, ts = lambda *a: op(T, *a), [x(T, *([2] if d == 0 else []), *s, seed=n).requires_grad_() for n, (s, d) in enumerate(zip(shapes, dims))]
            for _ in range(1 + twice):
                f = T.vmap(f, in_dims=dims)
            if twice:
                ts = [T.stack([t, t * 2]).detach().requires_grad_() if d == 0 else t for t, d in zip(ts, dims)]
            r = f(*ts)
            return [r, *T.autograd.grad((r * r).sum(), ts)]
        same(run, **TOL)
        same(lambda T, run=run: run(T, twice=True), **TOL)


def test_conjugates_of_complex_views():
    def f(T, a):
        return (T.view_as_complex(a).conj() * 1j).real * 2
    same(lambda T: T.vmap(T.func.grad(lambda a: (f(T, a) ** 2).sum()))(x(T, 3, 4, 2)), **TOL)
    same(lambda T: T.func.grad(lambda a: (T.vmap(lambda b: f(T, b))(a) ** 2).sum())(x(T, 3, 4, 2)), **TOL)
    same(lambda T: T.vmap(lambda c: T.ones(2) * c.conj().is_conj())(x(T, 3, 4) + 1j), **TOL)


@pytest.mark.parametrize("name", """gelu leaky_relu logsigmoid mish softplus elu selu celu silu hardswish hardsigmoid hardtanh relu relu6 softshrink hardshrink tanhshrink softsign
                                    sigmoid tanh""".split())
def test_batched_gradients_with_unbatched_operands(name):
    """Backward kernels reuse the memory of their operands: an operand without a batch dimension is
    too small."""
    def run(T):
        a = x(T, 3, 4).requires_grad_()
        y = getattr(T.nn.functional, name)(a)
        g, = T.autograd.grad(y, a, x(T, 2, 3, 4, seed=1), is_grads_batched=True)
        return g, T.func.vmap(lambda v, w: T.func.vjp(getattr(T.nn.functional, name), v)[1](w)[0], (0, None))(x(T, 2, 4), x(T, 4, seed=2))
    same(run, **TOL)
