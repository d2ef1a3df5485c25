"""torch.utils.checkpoint and other code that re-executes in backward: the second run sees the same
modes and settings as the first."""
import contextlib
import functools
import gc
import threading

import numpy as np
import pytest
import torch as real
import torch.utils.checkpoint  # noqa: F401

import mindtorch.torch as mine
import mindtorch.torch.utils.checkpoint  # noqa: F401

BOTH = pytest.mark.parametrize("reentrant", [True, False])


def leaf(T, seed, *shape, dtype=None):
    x = T.tensor(np.random.RandomState(seed).randn(*shape).astype(np.float32))
    return (x if dtype is None else x.to(getattr(T, dtype))).requires_grad_()


def same(program, tolerance=1e-5):
    """Checks that program(T) returns equal lists of tensors, scalars and strings on both sides."""
    want, got = program(real), program(mine)
    assert len(want) == len(got)
    for n, (a, b) in enumerate(zip(want, got)):
        if isinstance(a, real.Tensor):
            assert str(a.dtype) == str(b.dtype) and a.shape == b.shape, f"{n}: {b.dtype} instead of {a.dtype}"
            np.testing.assert_allclose(b.detach().float().numpy(), a.detach().float().numpy(), rtol=tolerance, atol=tolerance, err_msg=str(n))
        else:
            assert a == b, f"{n}: {b!r} instead of {a!r}"


def outcome(fn):
    """Returns the result, or the name of the error's class."""
    try:
        return fn()
    except Exception as e:
        return type(e).__name__


# ------------------------------------------------------------------ autocast
@BOTH
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("x_dtype", [None, "bfloat16"])
def test_backward_outside_of_autocast(reentrant, dtype, x_dtype):
    def f(T):
        x, w, v = leaf(T, 0, 4, 8, dtype=x_dtype), leaf(T, 1, 8, 8), leaf(T, 2, 8, 3)
        seen = []

        def body(x):
            h = T.relu(T.nn.functional.linear(x, w))
            seen.extend([str(h.dtype), T.is_autocast_enabled("cpu"), str(T.get_autocast_dtype("cpu")), T.is_autocast_cache_enabled()])
            return T.softmax(h @ v, -1)
        with T.autocast("cpu", getattr(T, dtype), cache_enabled=False):
            y = T.utils.checkpoint.checkpoint(body, x, use_reentrant=reentrant)
        y.float().pow(2).sum().backward()
        return [y, x.grad, w.grad, v.grad, len(seen), *seen, T.is_autocast_enabled("cpu"), str(T.get_autocast_dtype("cpu"))]
    same(f, 2e-2)


@BOTH
def test_backward_inside_another_autocast_region(reentrant):
    def f(T):
        x, w = leaf(T, 0, 4, 8), leaf(T, 1, 8, 8)
        seen = []

        def body(x):
            h = x @ w
            seen.append(str(h.dtype))
            return h
        y = T.utils.checkpoint.checkpoint(body, x, use_reentrant=reentrant)
        with T.autocast("cpu", T.bfloat16):
            with T.autocast("cpu", enabled=False):
                z = T.utils.checkpoint.checkpoint(body, x, use_reentrant=reentrant)
            (y + z).sum().backward()
        return [*seen]
    same(f)


def test_autocast_settings_in_nested_regions_and_threads():
    def f(T):
        out = []

        def tell():
            out.extend([T.is_autocast_enabled("cpu"), str(T.get_autocast_dtype("cpu")), T.is_autocast_cache_enabled()])
        with T.autocast("cpu", T.float16, cache_enabled=False):
            tell()
            with T.autocast("cpu", enabled=False):
                tell()
            thread = threading.Thread(target=tell)
            thread.start()
            thread.join()
            tell()
        tell()
        return out
    same(f)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_custom_functions_under_autocast(device):
    def f(T):
        seen = []

        class Square(T.autograd.Function):
            @staticmethod
            @T.amp.custom_fwd(device_type=device)
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x @ w

            @staticmethod
            @T.amp.custom_bwd(device_type=device)
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                seen.extend([str((x @ w).dtype), T.is_autocast_enabled("cpu")])
                return g.float() @ w.t().float(), x.t().float() @ g.float()
        x, w = leaf(T, 0, 3, 3), leaf(T, 1, 3, 3)
        with T.autocast("cpu", T.bfloat16):
            y = Square.apply(x, w)
        y.sum().backward()
        with T.autocast("cpu", T.bfloat16):
            Square.apply(x, w).sum().backward()
        z = Square.apply(x, w)
        with T.autocast("cpu", T.bfloat16):
            z.sum().backward()
        return seen
    same(f)


@BOTH
def test_checkpoint_sequential_under_autocast(reentrant):
    def f(T):
        T.manual_seed(0)
        net = T.nn.Sequential(*[m for k in range(5) for m in (T.nn.Linear(6, 6), T.nn.Tanh())])
        x = leaf(T, 3, 2, 6)
        with T.autocast("cpu", T.bfloat16):
            y = T.utils.checkpoint.checkpoint_sequential(net, 3, x, use_reentrant=reentrant)
        y.float().sum().backward()
        return [y, x.grad, *[p.grad for p in net.parameters()]]
    same(f, 2e-2)
    same(lambda T: [outcome(lambda: T.utils.checkpoint.checkpoint_sequential([T.sin], 1, leaf(T, 0, 2), use_reentrant=True, other=1))])


# ---------------------------------------------- other state that is restored, and state that is not
@BOTH
@pytest.mark.parametrize("preserve", [True, False])
def test_random_numbers(reentrant, preserve):
    def f(T):
        T.manual_seed(3)
        x = leaf(T, 0, 20)
        y = T.utils.checkpoint.checkpoint(lambda a: T.nn.functional.dropout(a, 0.5) * a, x, use_reentrant=reentrant, preserve_rng_state=preserve)
        T.rand(3)
        y.sum().backward()
        # Without the saved RNG state, the second run draws other random numbers; how many values of
        # the first run stay in use depends on the library.
        return [y, T.rand(2), *([x.grad] if preserve else [])]
    same(f)


@BOTH
def test_modes(reentrant):
    def f(T):
        seen = []

        def body(a):
            seen.extend([str(T.zeros(1).dtype), T.is_grad_enabled(), str(T.get_default_device()), T.are_deterministic_algorithms_enabled()])
            return a.sin()
        x = leaf(T, 0, 3)
        y = T.utils.checkpoint.checkpoint(body, x, use_reentrant=reentrant)
        T.set_default_dtype(T.float64)
        try:
            y.sum().backward()
        finally:
            T.set_default_dtype(T.float32)
        return seen
    same(f)


def test_early_stop():
    def f(T):
        out = []
        for stop, over in ((True, None), (False, None), (True, False), (False, True)):
            log = []

            def body(a):
                b = a.sin()
                log.append("middle")
                c = b + 1
                log.append("end")
                return c
            x = leaf(T, 0, 3)
            with contextlib.nullcontext() if over is None else T.utils.checkpoint.set_checkpoint_early_stop(over):
                y = T.utils.checkpoint.checkpoint(body, x, use_reentrant=False, early_stop=stop)
            y.sum().backward()
            out += [*log, x.grad]
        return out
    same(f)


def test_context_fn_runs_around_both_executions():
    def f(T):
        log = []

        @contextlib.contextmanager
        def note(what):
            log.append(what)
            yield
            log.append("after " + what)
        x = leaf(T, 0, 3)
        y = T.utils.checkpoint.checkpoint(lambda a, *, b: (a * b).sin(), x, b=T.ones(3) * 2, use_reentrant=False,
                                          context_fn=lambda: (note("forward"), note("again")))
        y.sum().backward()
        return [*log, x.grad]
    same(f)


def test_refusals():
    def f(T):
        c = T.utils.checkpoint.checkpoint
        x = leaf(T, 0, 3)
        n = [0]

        def fickle(a):
            n[0] += 1
            return a.sin() if n[0] % 2 else a.sin().exp()

        def shrinking(a):
            n[0] += 1
            return (a if n[0] % 2 else a[:2]).sin().sum()

        def noop():
            return contextlib.nullcontext(), contextlib.nullcontext()
        out = [outcome(lambda: c(T.sin, x, use_reentrant=False, determinism_check="all")),
               outcome(lambda: c(T.sin, x, use_reentrant=True, debug=True)),
               outcome(lambda: c(T.sin, x, use_reentrant=True, context_fn=noop)),
               outcome(lambda: c(T.sin, x, use_reentrant=True, other=1)),
               outcome(lambda: c(T.sin, x, use_reentrant=False, debug=True, context_fn=noop)),
               outcome(lambda: T.autograd.grad(c(T.sin, x, use_reentrant=True).sum(), x)),
               outcome(lambda: c(T.sin, x, use_reentrant=True).sum().backward(inputs=[x])),
               outcome(lambda: c(fickle, x, use_reentrant=False, early_stop=False).sum().backward()),
               outcome(lambda: c(shrinking, x, use_reentrant=False).backward()),
               outcome(lambda: c(shrinking, x, use_reentrant=False, debug=True).backward()),
               outcome(lambda: c(shrinking, x.detach(), use_reentrant=False).requires_grad)]
        z = x * 2
        y = c(lambda a: a.sin().cos(), z, use_reentrant=False)
        with T.no_grad():
            z.add_(1)
        out.append(outcome(lambda: y.sum().backward()))
        return out
    same(f)


@BOTH
def test_outputs_that_are_not_tensors(reentrant):
    def f(T):
        x = leaf(T, 0, 3)
        a, n, b = T.utils.checkpoint.checkpoint(lambda v: (v.sin(), 7, v * v), x, use_reentrant=reentrant)
        (a + b).sum().backward()
        return [a, n, b, x.grad]
    same(f)


def test_nested_checkpoints():
    def f(T):
        c = T.utils.checkpoint.checkpoint
        runs = []

        def inner(a):
            runs.append("inner")
            return a.sin() * a

        def outer(a):
            runs.append("outer")
            b = c(inner, a.exp(), use_reentrant=False)
            return c(inner, b, use_reentrant=False).cos()
        x = leaf(T, 0, 3)
        y = c(outer, x, use_reentrant=False)
        y.sum().backward()
        return [y, x.grad, len(runs), runs[:3]]
    same(f)


@pytest.mark.parametrize("body", [lambda T, a, w: (a * w).sin() * a, lambda T, a, w: T.nn.functional.silu(a @ w).exp(),
                                  lambda T, a, w: T.softmax(a * a, -1) @ w], ids=["sin", "silu", "softmax"])
def test_gradients_of_gradients(body):
    def f(T):
        out = []
        for wrap in (False, True):
            x, w = leaf(T, 0, 3, 3), leaf(T, 1, 3, 3)
            h = x * x
            y = T.utils.checkpoint.checkpoint(lambda a, b: body(T, a, b), h, w, use_reentrant=False) if wrap else body(T, h, w)
            g, = T.autograd.grad(y.pow(2).sum(), x, create_graph=True)
            out += [g, *T.autograd.grad(g.pow(2).sum(), [x, w])]
        return out
    same(f, 1e-4)


def test_gradients_of_gradients_through_saved_tensor_hooks():
    def f(T):
        class Cube(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = x * x
                ctx.save_for_backward(x, y)
                return y

            @staticmethod
            def backward(ctx, g):
                x, y = ctx.saved_tensors
                return g * 2 * x + 0 * y
        x = leaf(T, 0, 4)
        with T.autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy().copy(), lambda a: T.tensor(a)):
            y = ((x * 3).exp() * x).sum() + (Cube.apply(x * 2) * x).sum()
        g, = T.autograd.grad(y, x, create_graph=True)
        g.pow(2).sum().backward()
        return [y, g, x.grad]
    same(f, 1e-4)
    same(lambda T: [outcome(lambda: _bad_hook(T))])


def _bad_hook(T):
    x = leaf(T, 0, 2)
    with T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: "no tensor"):
        y = x * x
    y.sum().backward()


def test_several_backward_passes_of_one_checkpoint():
    def f(T):
        runs = []

        def body(a):
            runs.append(1)
            return a.sin(), a.exp() * a
        x = leaf(T, 0, 3)
        a, b = T.utils.checkpoint.checkpoint(body, x, use_reentrant=False)
        out = [*T.autograd.grad(a.sum(), x, retain_graph=True), *T.autograd.grad((a + b).sum(), x, retain_graph=True)]
        b.sum().backward()
        return [*out, x.grad, len(runs)]
    same(f)


def test_recomputed_tensors_are_freed():
    import weakref
    kept = []

    def body(a):
        b = a.sin()
        kept.append(weakref.ref(b))
        return b.exp().cos()
    x = leaf(mine, 0, 3)
    y = mine.utils.checkpoint.checkpoint(body, x, use_reentrant=False)
    gc.collect()
    assert [r() for r in kept] == [None], "the forward kept its intermediate tensors"
    y.sum().backward(retain_graph=True)
    gc.collect()
    assert [r() for r in kept] == [None, None]


# ------------------------------------------------------------------ selective checkpoints
def _selected(T, fn, policy, times=1, **options):
    """Returns (the gradient, the calls of the policy) of a checkpointed fn; policy(module, name)
    returns the decision for the op T.ops.aten.<name>."""
    C, seen = T.utils.checkpoint, []

    def ask(ctx, op, *args, **kwargs):
        seen.append((ctx.is_recompute, str(op)))
        return policy(C, str(op).split(".")[1])
    x = T.tensor([.3, .5, .9], requires_grad=True)
    out = C.checkpoint(fn, x, use_reentrant=False, context_fn=functools.partial(C.create_selective_checkpoint_contexts, ask, **options))
    for _ in range(times - 1):
        out.sum().backward(retain_graph=True)
    g, = T.autograd.grad(out.sum(), x)
    return [round(v, 4) for v in g.tolist()], seen


@pytest.mark.parametrize("kept", [[], ["sin"], ["exp", "cos"], ["sin", "exp", "cos", "sum", "mul"]])
@pytest.mark.parametrize("how", ["MUST_SAVE", "PREFER_SAVE", "MUST_CPU_OFFLOAD", True])
def test_policies_choose_the_recomputed_ops(kept, how):
    def fn(x):
        return x.sin().exp() * x.sin().sum().cos()

    def policy(C, name):
        if how is True:
            return name in kept
        return getattr(C.CheckpointPolicy, how) if name in kept else C.CheckpointPolicy.MUST_RECOMPUTE
    assert _selected(mine, fn, policy) == _selected(real, fn, policy)


def test_saved_results_are_not_recomputed():
    runs = []

    class Count(mine.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            runs.append(str(func))
            return func(*args, **(kwargs or {}))
    C = mine.utils.checkpoint
    x = mine.ones(3, requires_grad=True)
    with Count():
        out = C.checkpoint(lambda x: x.sin().exp().cos(), x, use_reentrant=False,
                           context_fn=functools.partial(C.create_selective_checkpoint_contexts, [mine.ops.aten.sin.default]))
        out.sum().backward()
    assert runs.count("aten.sin.default") == 2  # (one of them belongs to the gradient of cos)
    assert runs.count("aten.exp.default") == 2


def _raises(T, case):
    C = T.utils.checkpoint
    save = C.CheckpointPolicy.MUST_SAVE
    calls = []

    def other(x):
        calls.append(1)
        return x.sin().exp() if len(calls) == 1 else (x + 1).sin().exp()
    try:
        {"twice": lambda: _selected(T, lambda x: x.sin().exp(), lambda C, n: save, times=2),
         "written": lambda: _selected(T, lambda x: x.sin().mul_(2).cos(), lambda C, n: save if n == "sin" else False),
         "another": lambda: _selected(T, other, lambda C, n: save),
         "a number": lambda: C.create_selective_checkpoint_contexts([2]), "a packet": lambda: C.create_selective_checkpoint_contexts([T.ops.aten.sin]),
         "neither": lambda: C.create_selective_checkpoint_contexts(2)}[case]()
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("case", ["twice", "written", "another", "a number", "a packet", "neither"])
def test_selective_checkpoint_errors(case):
    assert _raises(mine, case) is _raises(real, case) is not None


def test_cached_results_may_be_mutated_if_allowed():
    def fn(x):
        return x.sin().mul_(2).cos().exp()

    def policy(C, name):
        return name == "sin"
    assert _selected(mine, fn, policy, allow_cache_entry_mutation=True)[0] == _selected(real, fn, policy, allow_cache_entry_mutation=True)[0]


# ------------------------------------------------------------------ gradients of gradients
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("shape", ["gc", "gcc", "ggc", "gcgc", "cggc", "gcgcc"])
def test_checkpoints_and_gradients_in_any_order(shape, early):
    """In `shape`, g is a gradient of the inner function and c is a checkpoint."""
    def run(T, shape):
        def fn(x):
            return x.sin().exp().sin().sum()
        for step in reversed(shape):
            if step == "c":
                fn = functools.partial(T.utils.checkpoint.checkpoint, fn, use_reentrant=False)
            else:
                fn = (lambda f: lambda x: T.autograd.grad(f(x), x, create_graph=True)[0].sum())(fn)
        with T.utils.checkpoint.set_checkpoint_early_stop(early):
            x = T.tensor([.3, .5], requires_grad=True)
            return [round(v, 3) for v in T.autograd.grad(fn(x), x)[0].tolist()]
    assert run(mine, shape) == run(real, shape) == run(real, shape.replace("c", ""))
