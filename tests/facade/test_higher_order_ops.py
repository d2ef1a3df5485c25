"""torch._higher_order_ops: loops and branches as functions, with gradients. They are compared with
PyTorch's own (uncompiled where possible) and with plain loops in PyTorch."""
import numpy as np
import pytest
import torch as real
from hypothesis import given, settings, strategies as st
from torch._higher_order_ops import associative_scan as real_associative
from torch._higher_order_ops.scan import scan as real_scan

import mindtorch.torch as mine
from mindtorch.torch import _higher_order_ops as ops

COMBINE = {
    "add": (1, lambda T: lambda a, b: a + b), "maximum": (1, lambda T: lambda a, b: T.maximum(a, b)), "product": (1, lambda T: lambda a, b: a * b),
    "recurrence": (2, lambda T: lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])), "matrices": (1, lambda T: lambda a, b: a @ b),
}


def inputs(T, n, shape, seed=0):
    rs = np.random.RandomState(seed)
    made = [T.tensor(rs.rand(*shape) + 0.5).requires_grad_() for _ in range(n)]
    return made, made[0] if n == 1 else tuple(made)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(sorted(COMBINE)), st.integers(1, 9), st.sampled_from([0, 1, -1]), st.booleans())
def test_associative_scans(name, length, dim, reverse):
    n, fn = COMBINE[name]
    shape = [2, 2, 2]
    if name == "matrices":
        dim = 0
    shape[dim] = length
    found = []
    for T, scan in ((real, real_associative), (mine, ops.associative_scan)):
        leaves, xs = inputs(T, n, shape)
        out = scan(fn(T), xs, dim, reverse=reverse, combine_mode="generic")
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        gs = T.autograd.grad(sum([(o * o.detach().cos()).sum() for o in outs]), leaves)
        found.append([t.detach().numpy() for t in (*outs, *gs)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-10)


def test_associative_scans_of_dicts_and_their_errors():
    x = mine.arange(6.).reshape(2, 3)
    r = ops.associative_scan(lambda a, b: {"s": a["s"] + b["s"], "m": mine.minimum(a["m"], b["m"])}, {"s": x, "m": -x}, 1)
    assert r["s"].tolist() == x.cumsum(1).tolist() and r["m"].tolist() == (-x).cummin(1)[0].tolist()
    for T, scan in ((real, real_associative), (mine, ops.associative_scan)):
        t = T.ones(2, 3)
        for args, error in (((1, t, 0), ValueError), ((lambda a, b: a, t, "0"), Exception), ((lambda a, b: a, t, 5), IndexError), ((lambda a, b: a, t[:0], 0), ValueError),
                            ((lambda a, b: a, t, 0, False, "other"), ValueError), ((lambda a, b: a, t, 0, 1, "generic"), RuntimeError)):
            with pytest.raises(error):
                scan(*args)


def test_scans():
    """PyTorch's scan compiles: it runs once, and the equivalent loop covers the other cases."""
    def step(T):
        return lambda c, x: (c * x[0] + x[1], (c.sin(), x[0] + 1))

    def run(T, scan, dim, reverse):
        leaves, xs = inputs(T, 2, (3, 4))
        start = T.tensor(np.linspace(0.1, 0.5, 4 if dim == 0 else 3)).requires_grad_()
        carry, out = scan(step(T), start, xs, dim=dim, reverse=reverse)
        total = carry.sum() + sum([(o * o).sum() for o in out])
        return [t.detach().numpy() for t in (carry, *out, *T.autograd.grad(total, [start, *leaves]))]

    def loop(fn, carry, xs, *, dim, reverse):
        order = range(xs[0].shape[dim])
        out = []
        for i in reversed(order) if reverse else order:
            carry, y = fn(carry, tuple(x.select(dim, i) for x in xs))
            out.append(y)
        return carry, tuple(real.stack(o, dim) for o in zip(*(out[::-1] if reverse else out)))
    for dim, reverse in ((0, False), (1, False), (1, True)):
        want = run(real, loop, dim, reverse)
        if not dim:
            for a, b in zip(run(real, real_scan, dim, reverse), want):
                np.testing.assert_allclose(a, b, rtol=1e-6)
        for a, b in zip(run(mine, ops.scan, dim, reverse), want, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-10)
    x = mine.ones(3)
    assert ops.scan(lambda c, x: (c, x), x, [])[1] == []
    for args in ((1, x, x), (lambda c, x: (c, x), 1, x), (lambda c, x: (c, x), [], x), (lambda c, x: (c[:1], x), x, x), (lambda c, x: c, x[:1], x[:0])):
        with pytest.raises(RuntimeError):
            ops.scan(*args)


def test_maps_while_loops_and_branches():
    xs, w = mine.arange(6.).reshape(3, 2).requires_grad_(), mine.tensor(2.0, requires_grad=True)
    out = ops.map(lambda x, w: (x["a"] * w, x["b"].sum()), {"a": xs, "b": xs + 1}, w)
    assert out[0].tolist() == (xs * 2).tolist() and out[1].tolist() == (xs + 1).sum(1).tolist()
    assert mine.autograd.grad(out[0].sum() + out[1].sum(), [xs, w])[1].item() == 15
    i, s = ops.while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s * w), (mine.tensor(0), mine.tensor(1.0)))
    assert i.item() == 4 and mine.autograd.grad(s, w)[0].item() == 32
    for yes in (True, False):
        r = ops.cond(mine.tensor(yes), lambda x: x.sin(), lambda x: x * w, (xs,))
        assert mine.equal(r, xs.sin() if yes else xs * 2)
        assert mine.equal(mine.ops.higher_order.cond(yes, lambda x: x.sin(), lambda x: x * w, (xs,)), r)
    for bad in (lambda: ops.map(lambda x: x, [1]), lambda: ops.map(lambda x: x, xs[:0]), lambda: ops.map(lambda x: x, [xs, w]), lambda: ops.cond(mine.ones(2), len, len),
                lambda: ops.while_loop(lambda i: i > 0, lambda i: (i, i), (w,))):
        with pytest.raises(RuntimeError):
            bad()


def test_wrappers_and_operators():
    x = mine.tensor([0.5, 1.0], requires_grad=True)
    assert not ops.wrap_with_set_grad_enabled(False, lambda t: t * 2, x).requires_grad
    assert mine.autograd.grad(ops.tag_activation_checkpoint(lambda t: t.sin(), x).sum(), x)[0].tolist() == x.cos().tolist()
    assert ops.wrap_with_autocast("cpu", mine.bfloat16, True, None, lambda t: t @ t, mine.ones(2, 2)).dtype is mine.bfloat16
    up = mine.ops.higher_order.scan(lambda c, x: (c + x, c * x), [mine.tensor(0.)], [mine.arange(4.)])
    assert [t.tolist() for t in up] == [6, [0, 0, 2, 9]]
    with pytest.raises(NotImplementedError, match="compiled graphs"):
        ops.invoke_subgraph()
    with pytest.raises(AttributeError):
        getattr(mine.ops.higher_order, "no_" + "such")


def test_branches_under_vmap():
    """If the conditions of the slices differ, both branches are computed, and each slice gets its
    own result and gradient."""
    def leaf(T, *shape):
        return T.linspace(-1, 1, int(np.prod(shape)), dtype=T.float64).reshape(shape).requires_grad_()

    def by_argument(T):
        a, w = leaf(T, 3, 2), leaf(T, 2)
        r = T.vmap(lambda p, a, w: T.cond(p, lambda a, w: a * w, lambda a, w: a.exp() + w, (a, w)), in_dims=(0, 0, None))(T.tensor([True, False, True]), a, w)
        return (r, *T.autograd.grad(r.sin().sum(), (a, w)))

    def of_values(T):
        a = leaf(T, 2, 2, 2)
        r = T.vmap(T.vmap(lambda a: T.cond(a.sum() > 0, lambda a: a + 1, lambda a: a * 10, (a,))))(a)
        return (r, *T.autograd.grad(r.sin().sum(), a))

    def same_for_all(T):
        return (T.vmap(lambda a: T.cond(T.tensor(True), lambda a: a + 1, lambda a: a * 10, (a,)))(leaf(T, 2, 2)),)
    for program in (by_argument, of_values, same_for_all):
        for a, b in zip(program(real), program(mine), strict=True):
            np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=1e-12)
    r = mine.vmap(lambda p, a: mine.cond(p, lambda a: {"x": (a, a.sum())}, lambda a: {"x": (-a, a.mean())}, (a,)))(mine.tensor([True, False]), mine.ones(2, 3))
    assert r["x"][0].tolist() == [[1.] * 3, [-1.] * 3] and r["x"][1].tolist() == [3., 1.]
    with pytest.raises(RuntimeError, match="same structure"):
        mine.vmap(lambda p, a: mine.cond(p, lambda a: a, lambda a: a.sum(), (a,)))(mine.tensor([True, False]), mine.ones(2, 3))


def test_while_loop_body_results():
    def run(T):
        i, a = T.tensor(0), T.ones(2)
        found = [T.while_loop(lambda i: i < 3, lambda i: i + 1, (i,)), T.while_loop(lambda i, a: i < 3, lambda i, a: [i + 1, a * 2], (i, a)),
                 T.while_loop(lambda d: d["i"] < 3, lambda d: ({"i": d["i"] + 1, "a": d["a"] * 2},), ({"i": i, "a": a},))]
        for body in (lambda i, a: (i + 1, T.cat([a, a])), lambda i, a: (i + 1, a.double())):
            with pytest.raises(RuntimeError):
                T.while_loop(lambda i, *a: i < 3, body, (i, a))
        return found
    want, got = run(real), run(mine)
    assert str(got) == str(want)
