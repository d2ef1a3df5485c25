"""MindSpore's ops, Cells and writes in torch-style training, against real PyTorch."""
import io
import gc
import threading

import mindspore as ms
import mindspore.numpy as mnp
import numpy as np
import pytest
import torch as real
from hypothesis import given, settings, strategies as st
from mindspore import mint, nn, ops

import mindtorch.torch as mt


pytestmark = pytest.mark.usefixtures("eager_mode")


def draw(seed, *shape):
    return np.random.RandomState(seed).rand(*shape).astype(np.float32) + 0.2


def close(a, b, rtol=1e-4, atol=1e-5):
    a = a.asnumpy() if not isinstance(a, mt.Tensor) else a.detach().numpy()
    np.testing.assert_allclose(a, b.detach().numpy(), rtol=rtol, atol=atol)


def pair(seed=0, *shape):
    a = draw(seed, *(shape or (3,)))
    return mt.tensor(a, requires_grad=True), real.tensor(a, requires_grad=True)


# ------------------------------------------------------------------ gradients
def test_mindspore_op_is_part_of_the_graph():
    x = mt.ones(3, requires_grad=True)
    (ops.exp(x) * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full(3, 2 * np.e), rtol=1e-6)


# (with mindtorch and MindSpore, with real PyTorch); each maps two tensors of shape (3, 4) to one
STEPS = [
    (lambda x, y: ops.exp(x * 0.1), lambda x, y: (x * 0.1).exp()),
    (lambda x, y: mint.mul(x, y), lambda x, y: x * y),
    (lambda x, y: ops.cat([x, y])[1:4], lambda x, y: real.cat([x, y])[1:4]),
    (lambda x, y: ops.stack([x, y]).sum(0), lambda x, y: real.stack([x, y]).sum(0)),
    (lambda x, y: ops.addn([x, y, x]), lambda x, y: x + y + x),
    (lambda x, y: ops.reshape(ops.transpose(x, (1, 0)), (3, 4)) + y, lambda x, y: x.t().reshape(3, 4) + y),
    (lambda x, y: ops.MatMul(transpose_b=True)(x, y) @ y, lambda x, y: (x @ y.t()) @ y),
    (lambda x, y: mt.sin(x) + ops.sigmoid(y), lambda x, y: x.sin() + y.sigmoid()),
    (lambda x, y: mt.where(x > 0.6, x, y * 2), lambda x, y: real.where(x > 0.6, x, y * 2)),
    (lambda x, y: mnp.sqrt(mnp.square(x) + 1), lambda x, y: (x.square() + 1).sqrt()),
    (lambda x, y: mt.nn.functional.relu(x - y), lambda x, y: real.relu(x - y)),
    (lambda x, y: ops.split(x, 1)[1] * y, lambda x, y: x.split(1)[1] * y),
]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=6))
def test_random_mixes_of_mindspore_and_torch_ops(program):
    """Runs random programs of mindtorch and MindSpore steps on all values computed so far."""
    found = []
    for T, side in ((mt, 0), (real, 1)):
        values = [T.tensor(draw(1, 3, 4), requires_grad=True), T.tensor(draw(2, 3, 4), requires_grad=True), T.tensor(draw(3, 3, 4))]
        for k, i, j in program:
            r = STEPS[k][side](values[i % len(values)], values[j % len(values)])
            values.append(r * 0.5 if k in (4, 6) else r)
        total = T.sum(values[-1] * 1.5)
        for v in values[3:]:
            total = total + T.mean(v)
        if total.requires_grad:
            total.backward()
        found.append((total, *(v.grad for v in values[:2])))
    for a, b in zip(*found):
        assert (a is None) is (b is None)
        if a is not None:
            close(a, b, 2e-3, 2e-4)


def test_second_derivatives_raise():
    x = mt.ones(3, requires_grad=True)
    total = mt.sum(ops.exp(x) * x)
    with pytest.raises(NotImplementedError, match="create_graph=True through MindSpore operations"):
        mt.autograd.grad(total, x, create_graph=True)
    g, = mt.autograd.grad(total, x)
    np.testing.assert_allclose(g.numpy(), np.full(3, 2 * np.e), rtol=1e-6)


CELLS = {
    "dense": lambda: nn.Dense(4, 2), "sequence": lambda: nn.SequentialCell(nn.Dense(4, 3), nn.Tanh(), nn.Dense(3, 1)),
    "layer norm": lambda: nn.LayerNorm((4,)), "batch norm": lambda: nn.BatchNorm1d(4).set_train(), "prelu": lambda: nn.PReLU(),
    "mint linear": lambda: mint.nn.Linear(4, 2),
}


@pytest.mark.parametrize("name", CELLS)
def test_gradients_of_cells_and_their_parameters(name):
    """Compares the gradients of the inputs and of the Cell's Parameters, inside mindtorch code,
    with MindSpore's own value_and_grad."""
    cell, x0 = CELLS[name](), draw(3, 5, 4)
    w = ms.Tensor(draw(4, *cell(ms.Tensor(x0)).shape))
    params = list(cell.trainable_params())
    gx, gp = ms.grad(lambda x: (ops.sin(cell(x)) * w).sum(), 0, params)(ms.Tensor(x0))
    x = mt.tensor(x0, requires_grad=True)
    for _ in range(2):
        (mt.sin(cell(x * 1)) * w).sum().backward()
    for p, g in zip([x, *params], [gx, *gp]):
        np.testing.assert_allclose(p.grad.numpy(), 2 * g.asnumpy(), rtol=1e-3, atol=1e-4)
    x.grad = None
    got = mt.autograd.grad(mt.sum(mt.sin(cell(mt.tensor(x0))) * w), params)
    for a, b in zip(got, gp):
        np.testing.assert_allclose(a.numpy(), b.asnumpy(), rtol=1e-3, atol=1e-4)


def test_cell_with_bprop_raises():
    class Doubled(nn.Cell):
        def construct(self, x):
            return x * 1

        def bprop(self, x, out, g):
            return (g * 7,)

    x = mt.ones(3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="Doubled has a bprop of its own"):
        Doubled()(x * 2)
    with mt.no_grad():
        assert Doubled()(x * 2).tolist() == [2.0] * 3
    np.testing.assert_array_equal(ms.grad(Doubled())(mt.ones(3)).asnumpy(), np.full(3, 7))


def test_mindspore_tensors_have_backward():
    x, r = pair()
    y = ops.sin(ops.exp(x))
    assert type(y) is ms.Tensor
    mint.sum(y).backward()
    r.exp().sin().sum().backward()
    close(x.grad, r.grad)
    y = ops.exp(x)
    assert y.requires_grad and y.grad_fn.name() == "MindSporeBackward" and not y.is_leaf


def test_hooks_and_retain_grad_on_results():
    x, r = pair()
    seen = []
    y, z = ops.exp(x), r.exp()
    y.retain_grad(), z.retain_grad()
    y.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
    z.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
    # both libraries use y after mindtorch has wrapped it
    (mt.sum(ops.square(y)) + mt.sum(y * 3)).backward()
    (z.square().sum() + (z * 3).sum()).backward()
    assert len(seen) == 2
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-5)
    close(x.grad, r.grad), close(y.grad, z.grad)


def test_grad_with_respect_to_an_intermediate_result():
    x, r = pair()
    y, z = ops.reshape(ops.exp(x), (3, 1)), r.exp().reshape(3, 1)
    assert y.requires_grad
    a = mt.autograd.grad(mt.sum(ops.sin(y)) + mt.sum(y), [y, x])
    b = real.autograd.grad(z.sin().sum() + z.sum(), [z, r])
    for u, v in zip(a, b):
        close(u, v)


def test_repeated_backward_and_freed_graphs():
    x, r = pair()
    for T, v, total in ((mt, x, mt.sum(ops.exp(ops.sin(x)))), (real, r, r.sin().exp().sum())):
        total.backward(retain_graph=True)
        total.backward()
        with pytest.raises(RuntimeError, match="second time"):
            total.backward()
    close(x.grad, r.grad)


def test_mindspore_subgraph_shared_by_two_results():
    x, r = pair()
    h = ops.exp(x)
    a, b = ops.sin(h), ops.cos(h)
    (mt.sum(a) + mt.sum(b) * 2 + mt.sum(h)).backward()
    h = r.exp()
    (h.sin().sum() + h.cos().sum() * 2 + h.sum()).backward()
    close(x.grad, r.grad)


@pytest.mark.parametrize("off", [mt.no_grad, ms.common._no_grad, mt.inference_mode, lambda: mt.set_grad_enabled(False)])
def test_disabled_grad_modes_record_nothing(off):
    x, _ = pair()
    y = ops.exp(x)
    with off():
        a, b, c = ops.exp(x), ops.exp(y), x * 2
    assert not mt.add(a, 1).requires_grad and not mt.add(b, 1).requires_grad and not c.requires_grad
    assert mt.add(y, 1).requires_grad and (x * 2).requires_grad and mt.add(ops.exp(y), 1).requires_grad
    assert not mt.add(ops.exp(x.detach()), 1).requires_grad and not mt.add(ops.exp(mt.ones(2)), 1).requires_grad


def test_detached_and_modified_tensors_use_current_history():
    x, r = pair()
    found = []
    for T, v, exp in ((mt, x, ops.exp), (real, r, real.exp)):
        h = v * 2
        first = exp(h * 1)
        a = exp(h)
        h.mul_(3)
        b = exp(h)
        k = v * 2
        exp(k)
        k.detach_()
        c = exp(k)
        (T.sum(first) + T.sum(a) + T.sum(b) + T.sum(c)).backward()
        found.append(v.grad)
    close(*found)


def test_assigned_data_and_views():
    x, r = pair(1, 4, 3)
    found = []
    for T, v, exp in ((mt, x, ops.exp), (real, r, real.exp)):
        total = T.sum(exp(v.t()[1:])) + T.sum(exp(v[::2, 1]))
        v.data = T.ones(4, 3)
        total = total + T.sum(exp(v * 1)) + T.sum(exp(v))
        total.backward()
        found.append(v.grad)
    close(*found)


def test_setitem_on_a_mindspore_tensor_is_differentiable():
    x, r = pair()
    y = ops.zeros((2, 3))
    y[0] = x * 2
    mt.sum(mt.exp(y)).backward()
    z = real.zeros(2, 3)
    z[0] = r * 2
    z.exp().sum().backward()
    close(x.grad, r.grad)


def test_gradients_in_concurrent_threads():
    errors = []

    def work(seed):
        try:
            for i in range(5):
                x, r = pair(seed + i, 4)
                mt.sum(ops.exp(ops.sin(x)) * x).backward()
                (r.sin().exp() * r).sum().backward()
                close(x.grad, r.grad)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(10 * k,)) for k in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not errors


def test_value_and_grad_mixes_with_backward():
    w = mt.nn.Parameter(mt.tensor(draw(5, 3)))
    x0 = draw(6, 3)
    dense = nn.Dense(3, 3)
    rw = real.tensor(draw(5, 3), requires_grad=True)
    (real.tensor(x0).exp() * rw).sin().sum().backward()

    def fn(x):
        return mt.sum(mt.sin(ops.exp(x) * w))

    def by_backward():
        w.grad = None
        fn(mt.tensor(x0)).backward()
        return w.grad

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = w

        def construct(self, x):
            return ops.sin(ops.mul(ops.exp(x), self.w)).sum() + 0 * dense(x.reshape(1, 3)).sum()

    for _ in range(2):
        close(by_backward(), rw.grad)
        pending = fn(mt.tensor(x0))
        for f in (fn, Net()):
            value, g = ms.value_and_grad(f, None, [w])(ms.Tensor(x0))
            close(g[0] if isinstance(g, (tuple, list)) else g, rw.grad)
        assert w.grad is not None
        w.grad = None
        pending.backward()
        close(w.grad, rw.grad)
        with mt.no_grad():
            assert not (w * 1).requires_grad and not mt.add(ops.exp(w), 1).requires_grad


def test_backward_inside_value_and_grad_raises():
    x = mt.ones(3, requires_grad=True)

    def fn(a):
        mt.sum(mt.mul(ops.exp(x), x)).backward()
        return mt.sum(a)

    with pytest.raises(NotImplementedError, match="value_and_grad"):
        ms.value_and_grad(fn)(mt.ones(3))
    x.grad = None
    (ops.exp(x) * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full(3, 2 * np.e), rtol=1e-6)


def test_repeated_steps_leak_no_objects():
    x, d = mt.ones(50, 40, requires_grad=True), nn.Dense(40, 3)
    from mindtorch.core.mindspore import autograd as mindspore_autograd

    def step():
        h = x * 2
        mt.sum(mt.mul(ops.exp(d(h)), 1e-3)).backward()

    for _ in range(3):
        step()
    gc.collect()
    before = len(mindspore_autograd._edge_proxies), len(mindspore_autograd._versions), sum(type(o) is mindspore_autograd.MindSporeBackward for o in gc.get_objects())
    for _ in range(50):
        step()
    gc.collect()
    after = len(mindspore_autograd._edge_proxies), len(mindspore_autograd._versions), sum(type(o) is mindspore_autograd.MindSporeBackward for o in gc.get_objects())
    assert all(b <= a + 3 for a, b in zip(before, after)), (before, after)


# ------------------------------------------------------------------ writes
STALE = "modified by an inplace operation"


def test_writes_to_tensors_saved_by_mindspore():
    for op, stale in ((ops.square, True), (ops.exp, False), (lambda t: mint.add(t, t), False)):
        x, r = pair()
        h = x * 2
        total = mt.sum(op(h))
        h.mul_(3)
        if stale:
            with pytest.raises(RuntimeError, match=STALE):
                total.backward()
        else:
            total.backward()
    x = mt.ones(3, requires_grad=True)
    y = ops.exp(x)
    total = mt.sum(mt.mul(y, 1))
    y.mul_(2)
    with pytest.raises(RuntimeError, match=STALE):
        total.backward()
    data = mt.ones(2, 3)  # requires no grad; a view that is freed at once
    total = mt.sum(mint.mul(x, data[1]))
    data.zero_()
    with pytest.raises(RuntimeError, match=STALE):
        total.backward()


def _step(opt):
    return lambda p: opt([p])((ms.Tensor(np.ones(3, np.float32)),))


VALUE = np.full(3, 5, np.float32)
WRITERS = {
    "assign": lambda p: ops.assign(p, ms.Tensor(VALUE)), "assign_add": lambda p: ops.assign_add(p, ms.Tensor(VALUE)),
    "assign_sub": lambda p: ops.assign_sub(p, ms.Tensor(VALUE)), "P.Assign": lambda p: ops.Assign()(p, ms.Tensor(VALUE)),
    "set_data": lambda p: p.set_data(ms.Tensor(VALUE)), "assign_value": lambda p: p.assign_value(ms.Tensor(VALUE)),
    "scatter_update": lambda p: ops.ScatterUpdate()(p, ms.Tensor([0], ms.int32), ms.Tensor([5.0], ms.float32)),
    "load_param_into_net": lambda p: ms.load_param_into_net(_holder(p), {"p": ms.Parameter(ms.Tensor(VALUE), name="p")}),
    "SGD": _step(lambda ps: nn.SGD(ps)), "Momentum": _step(lambda ps: nn.Momentum(ps, 0.1, 0.9)), "Adam": _step(lambda ps: nn.Adam(ps)),
    "AdamWeightDecay": _step(lambda ps: nn.AdamWeightDecay(ps)), "RMSProp": _step(lambda ps: nn.RMSProp(ps)),
    "Adagrad": _step(lambda ps: nn.Adagrad(ps)), "AdaMax": _step(lambda ps: nn.AdaMax(ps)), "ASGD": _step(lambda ps: nn.ASGD(ps)),
    "Rprop": _step(lambda ps: nn.Rprop(ps)), "FTRL": _step(lambda ps: nn.FTRL(ps)), "Adadelta": _step(lambda ps: nn.Adadelta(ps)),
    "experimental SGD": _step(lambda ps: ms.experimental.optim.SGD(ps, lr=0.1)),
    "experimental Adam": _step(lambda ps: ms.experimental.optim.Adam(ps, lr=0.1)),
}


def _holder(p):
    cell = nn.Cell()
    cell.p = p
    p.name = "p"
    return cell


@pytest.mark.parametrize("how", WRITERS)
@pytest.mark.parametrize("reader", ["facade", "mindspore"])
@pytest.mark.parametrize("kind", ["facade", "native"])
def test_mindspore_writes_make_saved_values_stale(how, reader, kind):
    p = ms.Parameter(ms.Tensor(np.ones(3, np.float32)), name="p") if kind == "native" else mt.nn.Parameter(mt.ones(3))
    p.name = "p"
    x = mt.ones(3, requires_grad=True)
    square = (lambda t: mt.mul(t, t)) if reader == "facade" else ops.square
    total = mt.sum(square(p)) + mt.sum(x)
    before = p.asnumpy().copy()
    WRITERS[how](p)
    assert (p.asnumpy() != before).any()
    with pytest.raises(RuntimeError, match=STALE):
        total.backward()
    # afterwards everything works again, with the new value
    if isinstance(p, mt.Tensor):
        p.grad = None
    mt.sum(square(p)).backward()
    np.testing.assert_allclose(p.grad.numpy(), 2 * p.asnumpy(), rtol=1e-6)


def test_mindspore_optimizer_after_torch_style_backward():
    """Trains a Cell with backward() and MindSpore's own optimizer, compared with PyTorch at every
    step."""
    d, r = nn.Dense(3, 2), real.nn.Linear(3, 2)
    with real.no_grad():
        r.weight.copy_(real.tensor(d.weight.asnumpy())), r.bias.copy_(real.tensor(d.bias.asnumpy()))
    a, b = nn.Momentum(d.trainable_params(), 0.1, 0.9), real.optim.SGD(r.parameters(), 0.1, 0.9)
    for i in range(4):
        x = draw(i, 5, 3)
        for p in d.trainable_params():
            p.grad = None
        b.zero_grad()
        mt.mean(mt.square(d(mt.tensor(x)))).backward()
        r(real.tensor(x)).square().mean().backward()
        a(tuple(p.grad for p in d.trainable_params()))
        b.step()
        close(d.weight, r.weight), close(d.bias, r.bias)


# ------------------------------------------------------------------ ms.jit
JIT = """
import os, warnings
import mindspore as ms, numpy as np
import mindtorch.torch as mt
names = ("exp log sqrt rsqrt sin cos tanh sigmoid relu abs neg square floor ceil sign erf expm1 log1p softmax add sub mul div maximum minimum pow "
         "matmul sum mean prod amax amin var std cumsum sort flip clone reciprocal where cat stack logsumexp").split()
x = np.random.RandomState(0).rand(3, 3).astype(np.float32) + 0.5
two = set("add sub mul div maximum minimum pow matmul".split())
for name in names:
    fn = getattr(mt, name)
    if name == "where":
        def call(f, v): return f(v > 0.7, v, v * 2)
    elif name in ("cat", "stack"):
        def call(f, v): return f([v, v])
    elif name in ("softmax", "cumsum", "flip", "logsumexp"):
        def call(f, v, d=(0,) if name == "flip" else 0): return f(v, d)
    else:
        def call(f, v, n=2 if name in two else 1): return f(*[v] * n)
    space = {"fn": fn, "call": call}
    exec(compile("def wrapped(v):\\n    return call(fn, v)\\n", __file__, "exec"), space)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for jitted in (ms.jit(space["wrapped"]), ms.jit(fn)):
            got = jitted(ms.Tensor(x)) if jitted.__name__ == "wrapped" else call(jitted, ms.Tensor(x))
            want = call(fn, mt.tensor(x))
            for a, b in zip(got, want) if isinstance(want, tuple) else ((got, want),):
                assert np.array_equal(a.asnumpy(), b.numpy()), name
    assert 1 <= sum(w.category is RuntimeWarning and "runs eagerly" in str(w.message) for w in seen) <= 2, (name, [str(w.message) for w in seen])
w = mt.nn.Parameter(mt.ones(3, 3))
loss = ms.jit(lambda v: mt.sum(mt.exp(v) * w))(ms.Tensor(x))
loss.backward()
assert np.allclose(w.grad.numpy(), np.exp(x), rtol=1e-6)
assert os.listdir(".") == ["run.py"], os.listdir(".")
print("done", len(names))
"""


@pytest.mark.slow
def test_jit_of_facade_functions_is_quiet(tmp_path):
    """Checks that functions under ms.jit that reach mindtorch run eagerly: correct values, one
    warning, no output, no leftovers."""
    import os
    import pathlib
    import subprocess
    import sys
    (tmp_path / "run.py").write_text(JIT)
    root = str(pathlib.Path(__file__).resolve().parents[2])
    env = {**os.environ, "PYTHONPATH": root, "PYTHONDONTWRITEBYTECODE": "1"}
    r = subprocess.run([sys.executable, "-W", "ignore", "run.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r.stderr[-2000:]
    assert r.stdout.split() == ["done", "43"] and not r.stderr.strip(), (r.stdout, r.stderr)


def test_compiled_no_grad_works_after_a_mindspore_op():
    """Checks that torch.no_grad(), also in a compiled function, switches MindSpore's autograd once
    that is on."""
    x = mt.ones(3, requires_grad=True)
    mt.sum(ops.exp(x)).backward()

    def f(x):
        with mt.no_grad():
            y = x * 2
        return x + y

    compiled = mt.compile(f, fullgraph=True)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(mt.ones(2)).numpy(), 3)


def test_isinstance_does_not_convert_mindspore_tensors():
    """Checks that a MindSpore tensor counts as torch.Tensor, and is converted only when it is
    passed to a function."""
    t, p = ms.Tensor([1.0, 2.0]), ms.Parameter(ms.Tensor([1.0]))
    kind = type(p)
    assert isinstance(t, mt.Tensor) and not isinstance(t, mt.nn.Parameter) and isinstance(p, mt.nn.Parameter) and mt.is_tensor(t)
    assert isinstance(t, mt.FloatTensor) and not isinstance(t, mt.LongTensor)
    assert type(t) is ms.Tensor and type(p) is kind and t.dtype is ms.float32
    assert not hasattr(type(t), "_is_mindtorch_tensor")
    for taker in (lambda x: mt.add(x, 1), lambda x: mt.ones(2) * x, lambda x: mt.nn.functional.linear(mt.ones(1, 3), mt.ones(2, 3), bias=x),
                  lambda x: mt.stack([x, x]), lambda x: x.detach(), lambda x: mt.nn.Module().register_buffer("b", x), lambda x: mt.nn.Parameter(x),
                  lambda x: mt.utils.data.default_collate([x]), lambda x: mt.optim.SGD([x], lr=0.1), lambda x: mt.save([x], io.BytesIO()),
                  lambda x: mt.clamp(mt.ones(2), min=x), lambda x: mt.nn.Linear(2, 2)(x)):
        x = ms.Tensor(np.float32([1, 2]))
        taker(x)
        assert type(x) is mt.Tensor


def test_mindspore_optimizer_step_records_no_gradients():
    """Checks that gradients stay off in the step, also after an op with a Parameter, which checks
    torch's grad mode."""
    from mindspore.experimental.optim.optimizer import Optimizer
    from mindspore.graph.api import _pynative_executor
    seen = []

    class Step(Optimizer):
        def construct(self, grads):
            seen.append((_pynative_executor.enable_grad(), mt.is_grad_enabled()))
            ops.mul(self.parameters[0], 2)
            seen.append((_pynative_executor.enable_grad(), mt.is_grad_enabled()))

    step = Step([ms.Parameter(ms.Tensor(VALUE), name="w")], {"lr": 0.1})
    ops.mul(step.parameters[0], 2)
    step((ms.Tensor(VALUE),))
    assert seen == [(False, False)] * 2
    assert _pynative_executor.enable_grad() and mt.is_grad_enabled()


# ------------------------------------------------------------------ nested ms.grad
@pytest.mark.parametrize("f", [lambda T, u: (u ** 3).sum(), lambda T, u: T.tanh(u).sum(), lambda T, u: T.nn.functional.softmax(u, -1)[:, 0].pow(2).sum(),
                               lambda T, u: T.sigmoid(u).prod(1).sum(), lambda T, u: T.logsumexp(u, 1).sum(), lambda T, u: (u[1:] * u[:-1]).sum() ** 2])
def test_nested_ms_grad(f):
    """Checks that ms.grad of ms.grad over mindtorch code is the second derivative (it used to be
    0)."""
    x = np.random.RandomState(0).randn(3, 4).astype(np.float32)
    have = ms.grad(lambda v: ms.grad(lambda u: f(mt, u))(v).sum())(mt.tensor(x))
    t = real.tensor(x, requires_grad=True)
    g, = real.autograd.grad(f(real, t), t, create_graph=True)
    want, = real.autograd.grad(g.sum(), t)
    np.testing.assert_allclose(have.asnumpy(), want.numpy(), rtol=1e-5, atol=1e-5)


def test_gradient_penalty_by_ms_value_and_grad():
    x = np.random.RandomState(0).randn(3, 4).astype(np.float32)
    net, same = mt.nn.Linear(4, 1), real.nn.Linear(4, 1)
    same.load_state_dict({k: real.tensor(p.detach().numpy()) for k, p in net.state_dict().items()})

    def penalty(x):
        g = ms.grad(lambda v: mt.tanh(net(v)).sum())(x)
        return (g * g).sum()
    value, grads = ms.value_and_grad(penalty, None, list(net.parameters()))(mt.tensor(x))
    t = real.tensor(x, requires_grad=True)
    g, = real.autograd.grad(real.tanh(same(t)).sum(), t, create_graph=True)
    want = (g * g).sum()
    want.backward()
    assert float(value) == pytest.approx(want.item(), rel=1e-5)
    for a, p in zip(grads, same.parameters()):
        np.testing.assert_allclose(a.asnumpy(), p.grad.numpy(), rtol=1e-5, atol=1e-6)
