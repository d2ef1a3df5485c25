"""`__torch_dispatch__` of Tensor subclasses and TorchDispatchMode, compared with PyTorch."""
import numpy as np
import pytest
import torch as real
from hypothesis import given, strategies as st
from torch.utils import _python_dispatch as real_dispatch, _pytree as real_tree

import mindtorch.torch as mine
from mindtorch.torch.utils import _python_dispatch as mine_dispatch, _pytree as mine_tree
from tests._parity import few

SIDES = {"real": (real, real_dispatch, real_tree), "mine": (mine, mine_dispatch, mine_tree)}


def kinds(side):
    """Returns (torch, a mode that records the ops it sees, a wrapper subclass that records them) of
    a side."""
    T, dispatch, tree = SIDES[side]

    class Noting(dispatch.TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Wrapper(T.Tensor):
        seen = []
        __torch_function__ = T._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls, of, requires_grad=False):
            return T.Tensor._make_wrapper_subclass(cls, of.shape, strides=of.stride(), storage_offset=of.storage_offset(), dtype=of.dtype,
                                                   device=of.device, requires_grad=requires_grad)

        def __init__(self, of, requires_grad=False):
            self.of = of

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            assert not any(issubclass(t, cls) is False for t in types)
            cls.seen.append(str(func))
            args, kwargs = tree.tree_map(lambda x: x.of if isinstance(x, cls) else x, (args, kwargs or {}))
            out = func(*args, **kwargs)
            return tree.tree_map(lambda x: cls(x) if isinstance(x, T.Tensor) else x, out)
    return T, Noting, Wrapper


PROGRAMS = {
    "arithmetic": lambda T, x, w: ((x * 2.5 + w[0]).exp() / (x - 1.5) - x.abs()).sum(),
    "reductions": lambda T, x, w: x.mean(1).sum() + x.amax() + x.var(0).sum() + x.std() + x.logsumexp(-1).sum(),
    "products": lambda T, x, w: (T.nn.functional.linear(x, w, w[:, 0]) @ w).sum(),
    "batches": lambda T, x, w: (x.unsqueeze(1) @ w.t().unsqueeze(0)).squeeze(1).sum(),
    "views": lambda T, x, w: (x.t()[1:, 0] * w.reshape(-1)[:3] + x.transpose(0, 1).unsqueeze(0)[0, ..., 1, None].squeeze(-1)[:3]).sum(),
    "indices": lambda T, x, w: (x[[0, 2]] * w[:2]).sum() + x[x > 0].sum() + x.index_select(1, T.tensor([0, 2])).prod(),
    "joining": lambda T, x, w: T.cat([x, w], 0).cumsum(0).mean() + T.stack([x[0], w[0]]).sum() + sum([p.sum() for p in x.split(2)]),
    "layers": lambda T, x, w: T.nn.functional.layer_norm(T.relu(x) + T.tanh(x) + T.sigmoid(x), (4,), w[0], w[1]).pow(2).sum(),
    "losses": lambda T, x, w: T.nn.functional.cross_entropy(x, T.tensor([0, 3, 1])) + T.nn.functional.mse_loss(x, w[:3]) + T.log_softmax(x, 1)[0, 0],
    "choices": lambda T, x, w: (T.where(x > 0, x, w[:3]) + T.maximum(x, w[:3]) + x.clamp(-0.5, 0.5) + x.masked_fill(x < 0, 3.0)).sum(),
}


def inputs(T, seed=0):
    rs = np.random.RandomState(seed)
    return [T.tensor(rs.randn(*s).round(3)) for s in ((3, 4), (5, 4))]


def outcome(T, program, x, w, twice=False):
    """Returns the value and its gradients, and with `twice` also second derivatives."""
    r = program(T, x, w)
    gs = T.autograd.grad(r, [x, w], allow_unused=True, create_graph=twice)
    found = [r, *gs]
    if twice:
        square = sum([(g * g).sum() for g in gs if g is not None])
        found += T.autograd.grad(square, [x, w], allow_unused=True) if square.requires_grad else [None, None]
    return found


def arrays(found):
    return [None if t is None else np.array(getattr(t, "of", t).detach().tolist()) for t in found]


@pytest.mark.parametrize("name", PROGRAMS)
def test_wrappers_and_modes_have_values_and_gradients(name):
    want = arrays(outcome(real, PROGRAMS[name], *[t.requires_grad_() for t in inputs(real)], twice=True))
    T, Noting, Wrapper = kinds("mine")
    wrapped = outcome(T, PROGRAMS[name], *[Wrapper(t, True) for t in inputs(T)], twice=True)
    assert all(t is None or type(t) is Wrapper for t in wrapped)
    with Noting() as mode:
        plain = outcome(T, PROGRAMS[name], *[t.requires_grad_() for t in inputs(T)], twice=True)
    assert mode.seen and not mode.seen[-1].startswith("None")
    for found in (wrapped, plain):
        for a, b in zip(arrays(found), want, strict=True):
            # (An undefined gradient may be None or zeros.)
            if a is not None or b is not None:
                np.testing.assert_allclose(0 if a is None else a, 0 if b is None else b, rtol=1e-9, atol=1e-11)


#: The names of aten's operators in a forward, for programs whose ops have PyTorch's granularity.
NAMED = {
    "x + w[0]": lambda T, x, w: x + w[0],
    "numbers": lambda T, x, w: (x * 2) / 3 - 1.5,
    "unary": lambda T, x, w: x.exp().sin().sqrt().neg(),
    "compared": lambda T, x, w: ((x > 0.5) == (w[:3] <= x), x != 1),
    "matrix": lambda T, x, w: x @ w.t(),
    "linear": lambda T, x, w: T.nn.functional.linear(x, w, w[:, 0]),
    "linear of three dimensions": lambda T, x, w: T.nn.functional.linear(x.unsqueeze(0), w),
    "sums": lambda T, x, w: (x.sum(), x.sum(1), x.mean(0, keepdim=True), x.amax(1)),
    "pieces": lambda T, x, w: (x[1], x[:, 1:3], x[..., None], x[0, 1]),
    "softmax": lambda T, x, w: (T.softmax(x, 1), T.log_softmax(x, 0)),
    "joined": lambda T, x, w: (T.cat([x, w]), T.stack([x, x])),
    "clamped": lambda T, x, w: (x.clamp(0, 1), T.where(x > 0, x, x), T.maximum(x, w[:3])),
    "dtypes": lambda T, x, w: x.to(T.float32).double(),
    "layers": lambda T, x, w: T.nn.functional.layer_norm(T.nn.functional.gelu(T.tanh(x)), (4,), w[0], w[1]),
    "convolutions": lambda T, x, w: T.nn.functional.conv2d(x[None, None], w[None, None, :2, :2], padding=1),
    "losses": lambda T, x, w: (T.nn.functional.mse_loss(x, x), T.nn.functional.smooth_l1_loss(x, x, reduction="sum"), T.nn.functional.embedding(x.argmax(0), w)),
    "layouts": lambda T, x, w: (x.view(4, 3), x.permute(1, 0), x.transpose(0, 1), x.unsqueeze(0), x.expand(2, 3, 4)),
}


@pytest.mark.parametrize("name", NAMED)
def test_operators_have_torchs_names(name):
    seen = []
    for side in SIDES:
        T, Noting, Wrapper = kinds(side)
        x, w = inputs(T)
        with Noting() as mode:
            NAMED[name](T, x, w)
        NAMED[name](T, Wrapper(x), Wrapper(w))
        # (Wrappers see a layer norm's statistics twice here, because they are saved in another
        # shape.)
        seen.append((mode.seen, Wrapper.seen[:len(mode.seen)]))
    assert seen[0] == seen[1]


def test_dispatch_receives_the_aten_overload_and_arguments():
    T, Noting, _ = kinds("mine")
    found = []

    class Mode(mine_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found.append((func, types, args, kwargs, T.is_grad_enabled()))
            return func(*args, **(kwargs or {}))

    x = T.ones(2, requires_grad=True)
    with Mode():
        y = T.add(x, x, alpha=3)
    func, types, args, kwargs, recording = found[0]
    assert func is T.ops.aten.add.Tensor and func.overloadpacket is T.ops.aten.add and func.name() == "aten::add.Tensor"
    assert types == () and args[0] is x and kwargs == {"alpha": 3} and not recording
    assert y.grad_fn is not None and y.tolist() == [4, 4]


def test_modes_nest_and_leave():
    T, Noting, _ = kinds("mine")
    x = T.ones(2)
    with Noting() as outer:
        with Noting() as inner:
            assert mine_dispatch._get_current_dispatch_mode() is inner
            assert mine_dispatch._get_current_dispatch_mode_stack() == [outer, inner]
            x.exp()
            with mine_dispatch._disable_current_modes() as off:
                assert off == [outer, inner] and mine_dispatch._get_current_dispatch_mode() is None
                x.cos()
        x.sin()
    x.tan()
    assert inner.seen == ["aten.exp.default"] and outer.seen == ["aten.exp.default", "aten.sin.default"]
    assert mine_dispatch._get_current_dispatch_mode() is None


def test_dispatch_mode_can_replace_the_result():
    class Zeros(mine_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            r = func(*args, **(kwargs or {}))
            return mine.zeros_like(r) if func is mine.ops.aten.exp.default else r

    x = mine.ones(2, requires_grad=True)
    with Zeros():
        y = x.exp()
    assert y.tolist() == [0, 0]
    y.sum().backward()
    assert x.grad.tolist() == [0, 0]  # (exp's gradient uses the returned value)


def test_writes_reach_the_inner_tensor():
    for side in SIDES:
        T, _, Wrapper = kinds(side)
        t = T.zeros(3, 2)
        x = Wrapper(t)
        assert x.add_(1) is x and t.tolist() == [[1, 1]] * 3
        x[0].mul_(5)
        x[1:, 0] = 7
        x.t()[1].fill_(2)
        assert t.tolist() == [[5, 2], [7, 2], [7, 2]], side
        T.add(Wrapper(T.ones(3, 2)), 1, out=x)
        assert t.tolist() == [[2, 2]] * 3
        assert x.sum().item() == 12 and bool(x[0, 0] == 2) and float(x[1, 1]) == 2.0
        assert x._version > 0


def test_writes_have_gradients():
    results = []
    for side in SIDES:
        T, _, Wrapper = kinds(side)
        rs = inputs(T)
        a, b = Wrapper(rs[0], True), Wrapper(rs[1], True)
        x = a * 2
        x.mul_(b[:3]).add_(1)
        x.exp_()
        y = x.clone()
        y[0].mul_(3)
        y.sum().backward()
        results.append(arrays([x, y, a.grad, b.grad]))
    for u, v in zip(*results):
        np.testing.assert_allclose(v, u, rtol=1e-12)


def test_modified_saved_results_raise_in_backward():
    T, _, Wrapper = kinds("mine")
    x = Wrapper(T.ones(2), True)
    y = x.exp()
    z = y * 1
    with T.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_wrapper_without_memory_cannot_be_read():
    T, _, Wrapper = kinds("mine")
    x = Wrapper(T.ones(2))
    assert x.shape == (2,) and x.dtype is T.float32 and x.device.type == "cpu" and "Wrapper(" in repr(x)
    for ask in (lambda: x.tolist(), lambda: x.numpy(), lambda: np.asarray(x), lambda: x.data_ptr()):
        with pytest.raises((RuntimeError, TypeError)):
            ask()
    with pytest.raises(RuntimeError, match="__torch_dispatch__"):
        T.Tensor._make_wrapper_subclass(type("Plain", (T.Tensor,), {}), (2,))


def test_notimplemented_and_invalid_results_raise():
    class No(mine.Tensor):
        __torch_function__ = mine._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented if func is mine.ops.aten.exp.default else "text"

    x = mine.Tensor._make_wrapper_subclass(No, (2,))
    with pytest.raises(TypeError, match="returned NotImplemented"):
        x.exp()
    with pytest.raises(TypeError, match="str"):
        x.sin()


class Two(mine.Tensor):
    """A pair of tensors."""

    __torch_function__ = mine._C._disabled_torch_function_impl
    __slots__ = ["a", "b"]

    @staticmethod
    def __new__(cls, a, b, requires_grad=False):
        t = mine.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, device=a.device, requires_grad=requires_grad)
        t.a, t.b = a, b
        return t

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(of, context, size, stride):
        return Two(of["a"], of["b"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        halves = [func(*[getattr(x, n) if isinstance(x, cls) else x for x in args], **kwargs) for n in "ab"]
        out = cls(*halves) if isinstance(halves[0], mine.Tensor) else halves[0]
        return mine_dispatch.return_and_correct_aliasing(func, args, kwargs, out)


def test_pairs():
    x = Two(mine.ones(2, 3), mine.zeros(2, 3))
    assert mine_dispatch.is_traceable_wrapper_subclass(x) and not mine_dispatch.is_traceable_wrapper_subclass(x.a)
    assert x.add_(2) is x and x.a.tolist() == [[3] * 3] * 2 and x.b.tolist() == [[2] * 3] * 2
    v = x.view(3, 2)
    before = x._version
    v.add_(1)
    assert x._version == v._version > before and x.a.tolist() == [[4] * 3] * 2
    y = mine_dispatch.transform_subclass(x, lambda name, t: t + 1)
    assert type(y) is Two and y.a.tolist() == [[5] * 3] * 2
    p = Two(mine.ones(2), mine.zeros(2), requires_grad=True)
    (p.exp() * 2).sum().backward()
    np.testing.assert_allclose(p.grad.b.tolist(), [2, 2])
    np.testing.assert_allclose(p.grad.a.tolist(), [2 * np.e] * 2, rtol=1e-6)


def test_modules_of_pairs_train():
    T, _, Wrapper = kinds("mine")
    T.manual_seed(0)
    model = T.nn.Sequential(T.nn.Linear(4, 6), T.nn.ReLU(), T.nn.Linear(6, 1))
    x = T.randn(5, 4)
    want = T.autograd.grad(model(x).square().mean(), list(model.parameters()))
    leaves = [Wrapper(p.detach().clone(), True) for p in model.parameters()]
    out = T.nn.functional.linear(T.relu(T.nn.functional.linear(x, leaves[0], leaves[1])), leaves[2], leaves[3])
    out.square().mean().backward()
    for p, g in zip(leaves, want):
        np.testing.assert_allclose(p.grad.of.tolist(), g.tolist(), rtol=1e-6)


STEPS = [lambda T, x: x * 1.5, lambda T, x: x.sin(), lambda T, x: x + x.flip(0), lambda T, x: x[1:].cumsum(0), lambda T, x: x.pow(2).neg(),
         lambda T, x: T.cat([x, x.abs()]), lambda T, x: x.tanh() / 2, lambda T, x: x.sort().values, lambda T, x: x.reshape(1, -1).expand(2, -1).mean(0),
         lambda T, x: x.clone().mul_(x), lambda T, x: T.where(x > 0.2, x, x * 3), lambda T, x: T.softmax(x, 0), lambda T, x: x.roll(1) - x]


@few
@given(st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=6), st.integers(0, 99))
def test_any_chain_of_ops_matches_plain_tensors(steps, seed):
    def run(x):
        y = x
        for i in steps:
            if y.numel() > 1:
                y = STEPS[i](mine, y)
        y = y.sum()
        return y, *mine.autograd.grad(y, [x])

    a = np.random.RandomState(seed).randn(5)
    T, Noting, Wrapper = kinds("mine")
    want = arrays(run(T.tensor(a, requires_grad=True)))
    with Noting():
        seen = arrays(run(T.tensor(a, requires_grad=True)))
    for got in (seen, arrays(run(Wrapper(T.tensor(a), True)))):
        for u, v in zip(got, want, strict=True):
            np.testing.assert_allclose(u, v, rtol=1e-12)


def test_dispatch_is_inactive_without_wrappers_and_modes():
    from mindtorch.core.dispatch import dispatcher
    T, Noting, Wrapper = kinds("mine")
    with Noting():
        assert dispatcher.is_enabled("primitives", "dispatch")
    x = Wrapper(T.ones(2))
    assert dispatcher.is_enabled("ops", "dispatch") and (x + 1).of.tolist() == [2, 2]
    del x
    import gc
    gc.collect()
    a = T.ones(2)
    for _ in range(600):
        a = a + 0
    assert not dispatcher.is_enabled("primitives", "dispatch") and not dispatcher.dispatch_state.primitives


def test_self_referential_list_raises(process):
    """Runs in a separate process: classes with `__torch_dispatch__` stay registered until the
    process ends."""
    assert process.ok("""
        import mindtorch.torch as torch
        class Plain(torch.Tensor):
            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))
        torch.Tensor._make_subclass(Plain, torch.ones(2))
        own = [0]
        own.append(own)
        try:
            torch.tensor(own)
        except TypeError as e:
            print(e)
        """).strip() == "new(): self-referential lists are incompatible"


@pytest.mark.host_only("what the dispatcher looks at")
def test_dispatch_is_active_while_subclass_tensors_live():
    import gc

    from mindtorch.core.dispatch.dispatcher import is_enabled
    from mindtorch.torch import _dispatch_protocol

    def settle():
        gc.collect()
        x = mine.ones(2)
        for _ in range(700):
            x + x

    class Own(mine.Tensor):
        seen = []

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            cls.seen.append(str(func))
            return super().__torch_dispatch__(func, types, args, kwargs or {})
    settle()
    alive = len(_dispatch_protocol._Live.refs)  # (left by other tests)
    for make in (lambda: mine.Tensor._make_subclass(Own, mine.ones(2)), lambda: mine.ones(2).as_subclass(Own), lambda: Own([1., 2.])):
        t = make()
        settle()
        Own.seen.clear()
        t + 1
        assert is_enabled("primitives", "dispatch") and Own.seen == ["aten.add.Tensor"]
        plain = mine.zeros(2)
        mine.utils.swap_tensors(t, plain)
        del t
        settle()
        assert plain.exp() is not None and "aten.exp.default" in Own.seen
        del plain
        settle()
        assert len(_dispatch_protocol._Live.refs) <= alive and (alive or not is_enabled("primitives", "dispatch"))


def test_swap_tensors_of_wrapper_subclasses():
    """mindtorch's internal weak references to a tensor do not block a swap. Slots are swapped too,
    and must be the same in both."""
    import weakref

    def run(T):
        class Boxed(T.Tensor):
            @staticmethod
            def __new__(cls, inner):
                return T.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

            def __init__(self, inner):
                self.inner = inner

            @classmethod
            def __torch_dispatch__(cls, func, kinds, args=(), kwargs=None):
                return func(*[x.inner if isinstance(x, Boxed) else x for x in args], **(kwargs or {}))

        class Slotted(Boxed):
            __slots__ = ("inner", "more")
        swap, seen = T.utils.swap_tensors, []
        plain, boxed, other = T.ones(2), Boxed(T.full((3,), 2.)), Boxed(T.full((1,), 5.))
        swap(plain, boxed)
        seen += [type(plain).__name__, (plain * 2).tolist(), type(boxed).__name__, (boxed * 2).tolist()]
        swap(plain, other)
        seen += [(plain + 1).tolist(), (other + 1).tolist()]
        a, b = Slotted(T.full((1,), 3.)), Slotted(T.full((2,), 4.))
        a.more = "more"
        swap(a, b)
        seen += [(a + 1).tolist(), (b + 1).tolist(), hasattr(a, "more"), b.more]
        for x, y in ((a, plain), (boxed, a)):
            with pytest.raises(RuntimeError, match="different slots"):
                swap(x, y)
        held = weakref.ref(plain)
        with pytest.raises(RuntimeError, match="weakref"):
            swap(plain, other)
        return [*seen, held() is plain]
    assert run(mine) == run(real)


@pytest.mark.parametrize("key", [
    lambda T: T.tensor([True, False, True]), lambda T: (slice(None), T.tensor([False, True, True, False])), lambda T: (..., T.tensor([True, False, False, True])),
    lambda T: T.ones(3, 4).tril().bool(), lambda T: (None, T.tensor([True, False, True])), lambda T: (1, T.tensor([True, False, True, True])),
    lambda T: (T.tensor([0, 2]), T.tensor([True, False, True, False])), lambda T: (T.tensor([True, False, True]), T.tensor([False, True, False, True])),
    lambda T: (slice(1, 3), None, T.tensor([True, True, False, True])), lambda T: (T.tensor([False] * 3), 0), lambda T: T.tensor([2, 0]),
    lambda T: (T.ones(3, 4).tril().bool(), ...), lambda T: (T.tensor([True, False, True]), slice(1, None), None)])
def test_handlers_receive_masks_unchanged(key):
    """Compares the dtypes and shapes of the indices that index.Tensor receives, the result and the
    gradient."""
    def run(side):
        T, dispatch, tree = SIDES[side]
        seen = []

        class Indices(dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                if str(func) == "aten.index.Tensor":
                    seen.append([None if i is None else (str(i.dtype), tuple(i.shape)) for i in args[1]])
                return func(*args, **(kwargs or {}))
        x = (T.arange(12.).reshape(3, 4) + 1).requires_grad_()
        k = key(T)
        with Indices():
            y = x[k]
        (y * y).sum().backward()
        return seen, y.tolist(), y.requires_grad, type(y.grad_fn).__name__, x.grad.tolist()
    assert run("mine") == run("real")


@pytest.mark.parametrize("key", [(slice(None), [True, False]), ([True] * 3, [True] * 4, 0), (Ellipsis, Ellipsis, [True] * 4)])
def test_bad_masks_are_refused_under_a_mode(key):
    def run(side):
        T, dispatch, tree = SIDES[side]

        class Through(dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))
        with Through(), pytest.raises(IndexError):
            T.ones(3, 4)[tuple(T.tensor(k) if isinstance(k, list) else k for k in key)]
    run("real"), run("mine")
