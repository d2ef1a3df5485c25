"""Autograd against real PyTorch: graph semantics, hooks, Function, versions, double backward,
checkpoint."""
import contextlib
import gc
import warnings
import weakref

import numpy as np
import pytest
import torch

import mindtorch.torch as mt
from mindtorch.core.dispatch import dispatcher
from mindtorch.core.hooks import hooks

pytestmark = pytest.mark.smoke

BOTH = pytest.mark.parametrize("T", [torch, mt], ids=["torch", "mindtorch"])


def arr(seed, *shape):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def leaf(T, seed, *shape):
    return T.from_numpy(arr(seed, *shape)).requires_grad_()


def same(fn, tol=1e-5):
    """Checks that fn(T), a list of tensors, numbers or strings, is equal in both libraries."""
    a, b = fn(torch), fn(mt)
    assert len(a) == len(b)
    for i, (x, y) in enumerate(zip(a, b)):
        if hasattr(x, "detach"):
            assert str(x.dtype) == str(y.dtype), (i, x.dtype, y.dtype)
            np.testing.assert_allclose(y.detach().numpy(), x.detach().numpy(), rtol=tol, atol=tol, err_msg=f"value {i}")
        elif x is None:
            assert y is None, i
        else:
            assert x == y, (i, x, y)


def error(f):
    try:
        f()
    except Exception as e:
        return type(e).__name__
    return "no error"


def test_accumulation_and_second_backward():
    def f(T):
        x = leaf(T, 0, 3, 4)
        y = (x ** 2).sum()
        y.backward(retain_graph=True)
        first = x.grad.clone()
        y.backward()
        return [first, x.grad, error(y.backward), x.is_leaf, y.is_leaf, y.requires_grad]
    same(f)


def test_second_backward_error_names_retain_graph():
    x = leaf(mt, 0, 3)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def test_grad_keeps_its_identity_over_backwards():
    x = leaf(mt, 0, 3)
    (x * 2).sum().backward()
    g = x.grad
    (x * 2).sum().backward()
    assert x.grad is g and g.tolist() == [4.0, 4.0, 4.0]


def test_gradients_of_two_leaves_do_not_share_memory():
    def f(T):
        a, b = leaf(T, 0, 3), leaf(T, 1, 3)
        (a + b).backward(T.ones(3))
        a.grad.mul_(5)
        c = leaf(T, 2, 3)
        seed = T.ones(3)
        c.backward(seed)
        c.grad.add_(1)
        return [a.grad, b.grad, c.grad, seed]
    same(f)


def test_autograd_grad_forms():
    def f(T):
        x, w, u = leaf(T, 1, 3), leaf(T, 2, 3), leaf(T, 3, 3)
        y = (x * w).sum()
        a, b = T.autograd.grad(y, [x, w], retain_graph=True)
        c = T.autograd.grad(y, [x, u], allow_unused=True, retain_graph=True)
        d = T.autograd.grad(y, [x, u], materialize_grads=True, retain_graph=True)
        h = x * 2
        e = T.autograd.grad((h * h).sum(), h)[0]
        return [a, b, c[0], c[1], d[1], e, x.grad, error(lambda: T.autograd.grad(y, [u])),
                error(lambda: T.autograd.grad(y, [T.ones(2)])), error(lambda: T.autograd.grad(x * w, [x]))]
    same(f)


def test_backward_inputs():
    def f(T):
        x, w = leaf(T, 1, 3), leaf(T, 2, 3)
        h = x * w
        h.sum().backward(inputs=[w], retain_graph=True)
        return [x.grad, w.grad]
    same(f)


def test_double_and_triple_backward():
    def f(T):
        x = leaf(T, 3, 4)
        g, = T.autograd.grad((x ** 4).sum(), x, create_graph=True)
        h, = T.autograd.grad(g.sum(), x, create_graph=True)
        k, = T.autograd.grad(h.sum(), x)
        (g ** 2).sum().backward()
        return [g, h, k, x.grad]
    same(f, 1e-4)


def test_gradient_penalty():
    def f(T):
        w1, w2 = leaf(T, 4, 4, 5), leaf(T, 5, 5, 1)
        x = leaf(T, 6, 6, 4)
        g, = T.autograd.grad(T.tanh(x @ w1) .mm(w2).sum(), x, create_graph=True)
        ((g.norm(2, dim=1) - 1) ** 2).mean().backward()
        return [w1.grad, w2.grad]
    same(f, 1e-4)


def test_hooks():
    def f(T):
        seen = []
        x = leaf(T, 7, 3)
        h = x.register_hook(lambda g: g * 10)
        y = x * 2
        y.register_hook(lambda g: seen.append(g.clone()))
        y.register_hook(lambda g: g + 1)
        y.retain_grad()
        y.sum().backward()
        first = x.grad.clone()
        h.remove()
        x.grad = None
        (x * 2).sum().backward()
        post = []
        x.register_post_accumulate_grad_hook(lambda p: post.append(p.grad.clone()))
        (x * 3).sum().backward()
        z = (x * 2).sum()
        z.grad_fn.register_hook(lambda gi, go: (gi[0] * 7,))
        z.backward()
        return [first, y.grad, seen[0], x.grad, post[0], error(lambda: T.ones(2).register_hook(print))]
    same(f)


def test_detach_no_grad_and_leaf_rules():
    def f(T):
        x = leaf(T, 8, 3)
        d = x.detach()
        with T.no_grad():
            n = x * 2
            with T.enable_grad():
                m = x * 2

        @T.no_grad()
        def quiet(t):
            return t * 3
        with T.set_grad_enabled(False):
            s = x * 2
        y = x * 2
        return [d.requires_grad, n.requires_grad, m.requires_grad, quiet(x).requires_grad, s.requires_grad,
                error(lambda: x.add_(1)), error(lambda: T.ones(3, dtype=T.int64).requires_grad_()),
                error(lambda: y.requires_grad_(False)), error(lambda: x.cpu().numpy()), d.data_ptr() == x.data_ptr(),
                error(lambda: (x * 2).backward()), error(lambda: T.ones(2).sum().backward())]
    same(f)


def test_no_grad_generator():
    def f(T):
        x = leaf(T, 0, 2)

        @T.no_grad()
        def gen():
            yield (x * 2).requires_grad
            yield T.is_grad_enabled()
        out = []
        for v in gen():
            out += [v, T.is_grad_enabled()]
        return out
    same(f)


def test_inference_tensors():
    """Checks that tensors created in inference mode are marked and excluded from backward; views of
    normal tensors stay normal."""
    def run(T):
        out = []

        def attempt(f):
            try:
                out.append(f())
            except RuntimeError as e:
                out.append(type(e).__name__)
        with T.inference_mode():
            x, layer = T.ones(3), T.nn.Linear(3, 3)
        w, y = T.ones(3, requires_grad=True), T.ones(3)
        for f in (lambda: (x * w).sum().requires_grad, lambda: (x + w).sum().requires_grad, lambda: x.add_(1) is x,
                  lambda: x.clone().is_inference(), lambda: (x + 1).is_inference(), lambda: x.view(-1).is_inference(),
                  lambda: x.requires_grad_() is x, lambda: layer.weight.is_inference(), lambda: layer(T.ones(2, 3)).requires_grad,
                  lambda: (x.clone() * w).sum().requires_grad, lambda: x.detach().is_inference()):
            attempt(f)
        with T.inference_mode():
            z = y.add_(1)[:2]
            z.mul_(2)
            made = [T.empty(2), T.tensor([1.0]), T.randn(2), T.arange(3), T.from_numpy(np.ones(2)), x > 0, x.long(), x.sort()[0], x.topk(1)[1],
                    y.to(T.float32), y.contiguous(), *y.split(1), *x.unbind(), y.detach(), x.detach(), y.t(), T.cat([x, y]), T.relu(y),
                    T.nn.functional.softmax(y, 0), T.nn.functional.dropout(y, 0.5), y @ x, y.sum(), layer(T.ones(2, 3)),
                    T.nn.BatchNorm1d(3)(T.ones(2, 3)), z, y]
            out += [t.is_inference() for t in made] + [x.add_(1) is x]
        return out
    assert run(torch) == run(mt)


def test_inference_mode():
    def f(T):
        x = leaf(T, 0, 2)
        with T.inference_mode():
            y = x * 2
            inside = T.is_inference_mode_enabled()
        return [inside, y.requires_grad, T.is_inference_mode_enabled()]
    same(f)


class Cases:
    """Custom Functions written once for both libraries."""

    @staticmethod
    def clip(T):
        class Clip(T.autograd.Function):
            @staticmethod
            def forward(ctx, x, lo, hi):
                ctx.save_for_backward(x)
                ctx.lo, ctx.hi = lo, hi
                return x.clamp(lo, hi)

            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                return g * ((x > ctx.lo) & (x < ctx.hi)).to(g.dtype) * 3.0, None, None
        return Clip

    @staticmethod
    def two(T):
        class Two(T.autograd.Function):
            @staticmethod
            def forward(a, b):
                return a * b, a + b

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs)

            @staticmethod
            def backward(ctx, g1, g2):
                a, b = ctx.saved_tensors
                return g1 * b + g2, (g1 * a + g2) if ctx.needs_input_grad[1] else None
        return Two

    @staticmethod
    def inplace(T):
        class Double(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                x.mul_(2)
                ctx.mark_dirty(x)
                return x

            @staticmethod
            def backward(ctx, g):
                return g * 2
        return Double


def test_function_forms():
    def f(T):
        x = T.tensor([-2.0, -0.5, 0.5, 2.0], requires_grad=True)
        y = Cases.clip(T).apply(x, -1.0, 1.0)
        (y * T.arange(4.0)).sum().backward()
        a, b = leaf(T, 9, 3), T.from_numpy(arr(10, 3))
        p, q = Cases.two(T).apply(a, b)
        (p * 2 + q).sum().backward()
        c = leaf(T, 11, 3)
        h = c * 1
        r = Cases.inplace(T).apply(h)
        r.sum().backward()
        only = Cases.two(T).apply(a, b)[0]
        a.grad = None
        only.sum().backward()
        return [y, x.grad, p, q, b.grad, c.grad, r is h, h, a.grad, type(y.grad_fn).__name__,
                error(lambda: Cases.clip(T)())]
    same(f)


def test_function_double_backward():
    def f(T):
        class Cube(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x ** 3

            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                return g * 3 * x ** 2
        x = leaf(T, 12, 4)
        g, = T.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
        h, = T.autograd.grad(g.sum(), x)
        return [g, h]
    same(f, 1e-4)


def test_function_wrong_number_of_gradients():
    def f(T):
        class Bad(T.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                return x + y

            @staticmethod
            def backward(ctx, g):
                return g
        x = leaf(T, 0, 2)
        return [error(lambda: Bad.apply(x, x).sum().backward())]
    same(f)


def test_modified_saved_tensors_raise():
    def f(T):
        w = leaf(T, 13, 3)
        out = []
        v = w.exp()
        y = v * w
        v.mul_(2)
        out.append(error(lambda: y.sum().backward()))
        e = w.exp()
        u = e * 1
        e.add_(1)
        out.append(error(lambda: u.sum().backward()))
        s = w * 1
        t = s.sin()
        s.zero_()
        out.append(error(lambda: t.sum().backward()))
        a = w * 1
        b = a + 1          # add saves nothing
        a.zero_()
        out.append(error(lambda: b.sum().backward()))
        p = leaf(T, 14, 3)
        q = (p * p).sum()
        with T.no_grad():
            p.add_(1)
        out.append(error(lambda: q.backward()))
        p2 = leaf(T, 14, 3)
        q2 = (p2 * p2).sum()
        p2.data.add_(1)    # .data hides the write
        out.append(error(lambda: q2.backward()))
        return out + [v._version, w._version, p._version]
    same(f)


def test_inplace_chain_with_grad():
    def f(T):
        x = leaf(T, 17, 4)
        y = x * 2
        y[0] = 5.0
        y[1:3] *= 3
        y.add_(1)
        y.pow(2).sum().backward()
        z = leaf(T, 18, 2, 3)
        b = T.zeros(4, 3)
        b[1:3] = z * 2
        row = b[2]
        row.mul_(3)
        b.t()[0].add_(z[:, 0].sum())
        (b * T.arange(12.0).reshape(4, 3)).sum().backward()
        return [x.grad, z.grad, b, row]
    same(f)


def test_views_follow_writes_to_their_base():
    def f(T):
        x = leaf(T, 19, 2, 3)
        base = x * 1
        v = base[:, 1]
        w = base.view(-1)
        base.mul_(2)
        g1 = T.autograd.grad(v.sum(), x, retain_graph=True)[0]
        g2 = T.autograd.grad((w * T.arange(6.0)).sum(), x, retain_graph=True)[0]
        c = T.zeros(3)
        d = c[1:]
        c.copy_(x[0])
        return [g1, g2, d.requires_grad, T.autograd.grad(d.sum(), x)[0]]
    same(f)


def test_writes_to_leaf_and_multi_output_views_raise():
    def f(T):
        x = leaf(T, 20, 4)
        y = x * 1
        a, b = y.chunk(2)
        return [error(lambda: x[0].add_(1)), error(lambda: x.view(2, 2).zero_()), error(lambda: a.add_(1)),
                error(lambda: x.expand(2, 4).add_(1)), error(lambda: T.ones(3).expand(2, 3).add_(1))]
    same(f)


def test_checkpoint():
    def f(T):
        def body(a, b):
            return T.tanh(a * b).sin() * b
        out = []
        for reentrant in (True, False):
            x, w = leaf(T, 21, 5), leaf(T, 22, 5)
            y = T.utils.checkpoint.checkpoint(body, x, w, use_reentrant=reentrant)
            (y * 3).sum().backward()
            out += [y, x.grad, w.grad]
        return out
    same(f)


def test_checkpoint_keeps_dropout_masks():
    def f(T):
        out = []
        for reentrant in (True, False):
            T.manual_seed(5)
            x = leaf(T, 23, 50)
            y = T.utils.checkpoint.checkpoint(lambda a: T.nn.functional.dropout(a * 2, 0.5), x, use_reentrant=reentrant)
            y.sum().backward()
            out += [y, x.grad]
        return out
    same(f)


def test_saved_tensors_hooks():
    def f(T):
        log = []
        x = leaf(T, 24, 3)
        with T.autograd.graph.saved_tensors_hooks(lambda t: log.append("pack") or t.clone(), lambda t: log.append("unpack") or t):
            y = x * x
        y.sum().backward()
        return [x.grad, log]
    same(f)


def test_functional():
    def f(T):
        x = T.from_numpy(arr(25, 3))
        F = T.autograd.functional
        fn = lambda t: t ** 3 * t.sum()      # noqa: E731
        v = T.from_numpy(arr(26, 3))
        return [F.jacobian(fn, x), F.hessian(lambda t: fn(t).sum(), x), *F.vjp(fn, x, v), *F.jvp(fn, x, v),
                *F.hvp(lambda t: fn(t).sum(), x, v)]
    same(f, 1e-3)


def test_gradcheck_finds_wrong_gradients():
    class Wrong(mt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3
    x = mt.from_numpy(arr(27, 3).astype(np.float64)).requires_grad_()
    assert mt.autograd.gradcheck(lambda t: (t * t).sin(), (x,))
    assert mt.autograd.gradgradcheck(lambda t: (t * t).sin(), (x,))
    with pytest.raises(RuntimeError):
        mt.autograd.gradcheck(Wrong.apply, (x,))


def test_anomaly_mode_names_the_forward():
    x = mt.zeros(2, requires_grad=True)
    with pytest.warns(UserWarning), mt.autograd.detect_anomaly():
        y = (x / x).sum()
        with pytest.raises(RuntimeError, match="DivBackward0.*nan"):
            y.backward()


def _divided(T, x):
    return x / x


def _written(T, x):
    y = x * 1
    y[0].div_(x[0])
    return y


def _by_hand(T, x):
    class Bad(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * float("nan")
    return Bad.apply(x)


def _in_parts(T, x):
    return T.nn.functional.normalize(x, p=1.0, dim=0, eps=0.0)


@pytest.mark.parametrize("f", [_divided, _written, _by_hand, _in_parts], ids=lambda f: f.__name__)
def test_anomaly_mode_shows_the_forward_traceback(f):
    """Checks that the warning shows the user's line, and says what to do if the forward ran outside
    anomaly mode."""
    def said(T, inside):
        x = T.zeros(2, requires_grad=True)
        with warnings.catch_warnings(record=True) as w, T.autograd.detect_anomaly():
            warnings.simplefilter("always")
            with contextlib.nullcontext() if inside else T.autograd.set_detect_anomaly(False):
                y = f(T, x).sum()
            with pytest.raises(RuntimeError, match="nan values"):
                y.backward()
        return [str(m.message) for m in w if "Error detected" in str(m.message)][0]
    for T in (torch, mt):
        assert f"in {f.__name__}\n" in said(T, True), T
        text = said(T, False)
        assert "No forward pass information" in text and f"in {f.__name__}\n" not in text
    assert not dispatcher.is_enabled("ops", "anomaly") and hooks.stack_recorder is None


def test_graph_is_freed():
    x = leaf(mt, 0, 3)
    y = x.exp()
    ref = weakref.ref(y.grad_fn)
    z = y.sum()
    del y, z
    gc.disable()
    try:
        assert ref() is None, "the graph is kept alive by a reference cycle"
    finally:
        gc.enable()


def test_shared_subgraph_runs_each_node_once():
    def f(T):
        count = []

        class Count(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, g):
                count.append(1)
                return g
        x = leaf(T, 28, 3)
        y = Count.apply(x)
        z = y
        for _ in range(20):
            z = z * 0.5 + y * 0.5
        z.sum().backward()
        return [x.grad, len(count)]
    same(f)


def test_deep_graph_does_not_recurse():
    x = leaf(mt, 0, 1)
    y = x
    for _ in range(20000):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1.0
    del y


def test_complex_gradients():
    def f(T):
        a = T.from_numpy(arr(29, 4).astype(np.complex64) + 1j * arr(30, 4)).requires_grad_()
        r = leaf(T, 31, 4)
        y = (a * a.conj() * r + a).real.sum()
        y.backward()
        return [T.view_as_real(a.grad), r.grad]
    same(f, 1e-4)


@BOTH
def test_mindspore_value_and_grad_leaves_gradients_unchanged(T):
    """Checks that the flags mindspore.value_and_grad leaves behind do not affect mindtorch's
    gradients."""
    if T is mt:
        import mindspore as ms
        p = ms.Parameter(ms.Tensor(arr(1, 3)), name="p")
        ms.value_and_grad(lambda: (p * p).sum(), None, [p])()
    x = leaf(T, 1, 3)
    (x * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * arr(1, 3), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (), (1,), (0, 3), (1, 5)])
def test_gradients_of_sums(shape, dtype):
    """Checks that the gradient of a sum is the output gradient expanded to the leaf's shape, unless
    it is accumulated into .grad."""
    def f(T):
        kind = getattr(T, dtype)
        out = []

        def steps(r):  # strides of dimensions that address elements
            return tuple([s for n, s in zip(r.shape, r.stride()) if n > 1 and r.numel()])
        dims = [dict(dim=d, keepdim=k) for k in (False, True) for d in (0, -1, (0, -1))[:3 if len(shape) > 1 else 2]] if shape else []
        for kw in [{}, *dims]:
            x = T.ones(shape, dtype=kind, requires_grad=True)
            y = x.sum(**kw)
            g = T.full_like(y, 3.).requires_grad_()
            r, = T.autograd.grad(y, x, g.detach(), retain_graph=True)
            out += [r, steps(r), str(error(lambda: r.add_(1)))[:40] if 0 in steps(r) else ""]
            seen = []
            hook = x.register_hook(lambda h: seen.append(steps(h)) or h * 2)
            y.backward(g.detach(), retain_graph=True)
            hook.remove()
            first = x.grad
            out += [*seen, first.clone(), steps(first)]
            y.backward(g.detach(), retain_graph=True)  # accumulates into the first
            assert x.grad is first
            first.mul_(2)
            out += [first, g.detach()]
            r, = T.autograd.grad(y, x, g, create_graph=True)
            out += [steps(r), *T.autograd.grad((r * r.conj()).real.sum(), g)]
            # several gradients that meet at the leaf, and at a node
            z = (x.sum(**kw) + x.sum(**kw)) * 2 + (x * x).sum(**kw)
            r, = T.autograd.grad(z, x, g.detach())
            out += [r, steps(r)]
        return [t.detach().to(T.complex128 if kind.is_complex else T.float64) if hasattr(t, "detach") else t for t in out]
    same(f)
