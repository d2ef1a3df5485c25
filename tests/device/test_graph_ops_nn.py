"""Layers, reductions, functions, products and random numbers in compiled callables on the npu
device: results match the eager run, and every kernel is part of the graph."""
import numpy as np
import pytest

import mindtorch.torch as mt
import _graph_ops_nn as cases
from _graph_ops import run
from mindtorch.core.compile import replay

pytestmark = pytest.mark.slow

F = mt.nn.functional

CASES = {f"{group.lower()} {name}": c for group in ("NETS", "PRODUCTS", "REDUCTIONS", "FUNCTIONS", "REGIONS", "COMPLEX", "RANDOM")
         for name, c in getattr(cases, group).items()}


#: slowest variants of other cases
SLOW = {"nets lstm layers", "nets lstm both ways", "nets gru_cell", "nets interpolate bilinear", "nets interpolate bicubic", "nets interpolate corners",
        "nets attention flags", "reductions var_mean", "reductions min", "products cdist near", "products matmul broadcast",
        "functions arithmetic large", "functions arithmetic columns", "random large", "reductions mean double"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in CASES])
def test_ops(npu, name):
    """Results match the eager run, in one graph. Ops listed in `cases.BREAKS` do break the graph.
    """
    case, listed = CASES[name], cases.BREAKS.get(name)
    why = run(case, npu, case.grads)
    if listed is None:
        assert not why, why
    else:
        assert why, "no longer breaks the graph: remove it from BREAKS"
        assert any([listed in w for w in why]), why


# ----------------------------------------------------- Python scalars that change from call to call
NUMBERS = [0.5, 0.75, 0.625, 0.25, 0.125, 0.875, 0.3125, 0.4375]
VARYING = {
    "arithmetic": lambda x, k: (x + k, k - x, x * k, k / x.exp(), mt.add(x, x, alpha=k), x.addcmul(x, x, value=k)),
    "pow": lambda x, k: (x.abs() ** k, k ** x),
    "clamp": lambda x, k: (x.clamp(max=k), x.clamp(-k, k)),
    "lerp": lambda x, k: x.lerp(x + 1, k),
    "full": lambda x, k: (mt.full((4, 6), k, device=x.device) + x, x.clone().fill_(k)),
    "attention": lambda x, k: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=k, dropout_p=k / 2),
    "dropout": lambda x, k: F.dropout(x, k),
    "statistics": lambda x, k: F.batch_norm(x, mt.zeros(6, device=x.device), mt.ones(6, device=x.device), training=True, momentum=k),
    "temperature": lambda x, k: F.softmax(x / k, 1),
}


def _calls(f, device, numbers):
    out = []
    for i, k in enumerate(numbers):
        x = mt.from_numpy(np.random.RandomState(i).randn(4, 6).astype(np.float32)).to(device)
        r = f(x, k)
        out += [t.cpu().numpy() for t in (r if isinstance(r, tuple) else (r,))]
    return out


@pytest.mark.parametrize("name", VARYING)
def test_numbers(npu, name):
    """A scalar that changes becomes an argument: eager values with at most two graphs (a comparison
    with the scalar may add one)."""
    f = VARYING[name]
    mt.manual_seed(4)
    want = _calls(f, npu, NUMBERS)
    mt.manual_seed(4)
    before = replay.counters.copy()
    have = _calls(mt.compile(f, backend="mindspore"), npu, NUMBERS)
    for a, b in zip(want, have):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    new = replay.counters - before
    assert new["graphs"] <= 2 and new["graph_runs"] >= 4 and not new["breaks"], new


# ------------------------------------------------------------------ generators
def _seeded(x):
    a = F.dropout(x, 0.5)
    mt.manual_seed(9)
    return a + F.dropout(x, 0.5)


def _forked(x):
    a = F.dropout(x, 0.5)
    with mt.random.fork_rng(devices=[]):
        b = F.dropout(x, 0.5)
    return a + 2 * b + 4 * F.dropout(x, 0.5)


def _own(x):
    return mt.rand(4, 6, device=x.device, generator=mt.Generator(x.device).manual_seed(int(x.shape[0]))) + F.dropout(x, 0.5)


def _checkpointed(x):
    w = x.clone().requires_grad_()
    mt.utils.checkpoint.checkpoint(lambda t: F.dropout(t * w, 0.5), w, use_reentrant=False).sum().backward()
    return w.grad


def _asked(x):
    a = F.dropout(x, 0.5)
    _asked.states.append(mt.cuda.default_generators[0].get_offset() if hasattr(mt.cuda, "default_generators") else 0)
    return a


_asked.states = []


@pytest.mark.parametrize("f", [_seeded, _forked, _own, _checkpointed, _asked])
def test_generators(npu, f):
    """Random numbers match the eager run bitwise, and so does the generator state after and within
    each call. The graph does not break."""
    from mindtorch.core.device import rng
    outs, states, within = [], [], []
    for g in (f, mt.compile(f, backend="mindspore")):
        mt.manual_seed(4)
        _asked.states.clear()
        before = replay.breaks.copy()
        outs.append(_calls(lambda x, k, g=g: g(x), npu, NUMBERS[:5]))
        states.append(rng.device_states())
        within.append(list(_asked.states))
    assert not replay.breaks - before
    assert states[0] == states[1] and within[0] == within[1]
    for a, b in zip(*outs):
        assert np.array_equal(a, b)


def test_host_fallback_breaks_the_graph(npu):
    """A kernel that falls back to the host breaks the graph with a reason that names it. The code
    before and after it is one graph each."""
    def f(x):
        n = (x * 2 + 1).round().to(mt.int64)
        return (n ** n.abs().clamp(1, 2) + 1) * 2

    want = _calls(lambda x, k: f(x), npu, NUMBERS[:5])
    compiled = mt.compile(f, backend="mindspore")
    assert all([np.array_equal(a, b) for a, b in zip(want, _calls(lambda x, k: compiled(x), npu, NUMBERS[:5]))])
    before, why = replay.counters.copy(), replay.breaks.copy()
    _calls(lambda x, k: compiled(x), npu, NUMBERS[:2])
    assert (replay.counters - before)["graph_runs"] == 4 and list(replay.breaks - why) == ["pow: the device's kernel does not support these operands"]
