"""Recurrent float32 layers in C (backend/c_kernels/rnn.py) against real PyTorch and against the
NumPy implementation."""
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import mindtorch.torch as mt
from mindtorch.backend.cpu import rnn as kernels
from mindtorch.backend.c_kernels import rnn

KINDS = {"lstm": "LSTM", "gru": "GRU", "tanh": "RNN", "relu": "RNN"}


def _layer(m, kind, width, hidden, **kw):
    if kind in ("tanh", "relu"):
        kw["nonlinearity"] = kind
    return getattr(m.nn, KINDS[kind])(width, hidden, **kw)


def _weights(net, rs):
    return [rs.uniform(-1, 1, tuple(p.shape)).astype(np.float32) * 2 / np.sqrt(max(1, p.shape[-1])) for p in net.parameters()]


def _results(m, kind, arrays, weights, lengths, options):
    """Returns outputs, final states and all gradients of a layer for a padded batch (t, b, width),
    or for packed sequences of the given lengths."""
    x, *states = [m.from_numpy(a.copy()).requires_grad_() for a in arrays]
    net = _layer(m, kind, x.shape[2], options["hidden"], **options["layer"])
    with m.no_grad():
        for p, w in zip(net.parameters(), weights):
            p.copy_(m.from_numpy(w))
    given = x if lengths is None else m.nn.utils.rnn.pack_padded_sequence(x, m.tensor(lengths))
    out, final = net(given, tuple(states) if kind == "lstm" else states[0])
    rows = out if lengths is None else out.data
    final = final if kind == "lstm" else (final,)
    loss = (rows * rows).sum() + sum((f * (k + 1)).sin().sum() for k, f in enumerate(final))
    loss.backward()
    with m.no_grad():  # without the workspace for gradients
        again = net(given, tuple(states) if kind == "lstm" else states[0])[0]
    again = again if lengths is None else again.data
    return [t.detach().numpy() for t in (rows, *final, again)] + [t.grad.numpy() for t in (x, *states, *net.parameters())]


def _case(kind, seed, t, b, width, hidden, lengths=None, **layer):
    rs = np.random.RandomState(seed)
    net = _layer(torch, kind, width, hidden, **layer)
    ways, p = net.num_layers * (2 if net.bidirectional else 1), net.proj_size or hidden
    arrays = [rs.randn(t, b, width), rs.randn(ways, b, p)] + ([rs.randn(ways, b, hidden)] if kind == "lstm" else [])
    return kind, [a.astype(np.float32) for a in arrays], _weights(net, rs), lengths, {"hidden": hidden, "layer": layer}


def _same(case):
    want, got = _results(torch, *case), _results(mt, *case)
    assert len(want) == len(got)
    for w, g in zip(want, got):
        assert w.shape == g.shape
        np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-5 * max(1, np.abs(w).max(initial=0)))
    return got


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_layers(data):
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    t, b = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 20))
    hidden = data.draw(st.integers(1, 70))
    layer = {"bidirectional": data.draw(st.booleans()), "bias": data.draw(st.booleans())}
    if kind == "lstm" and hidden > 1 and data.draw(st.booleans()):
        layer["proj_size"] = data.draw(st.integers(1, hidden - 1))
    lengths = data.draw(st.one_of(st.none(), st.lists(st.integers(1, t), min_size=b, max_size=b).map(lambda n: sorted(n, reverse=True))))
    _same(_case(kind, data.draw(st.integers(0, 99)), t, b, data.draw(st.integers(1, 40)), hidden, lengths, **layer))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_two_layers_of_many_units(kind):
    _same(_case(kind, 3, 4, 33, 20, 131, None, num_layers=2, bidirectional=True))


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_results_match_for_any_thread_count(kind, on_threads):
    """Checks that results do not depend on the number of threads: they split panels and rows of a
    step, never a sum."""
    case = _case(kind, 5, 5, 49, 16, 150, None, bidirectional=True)
    found = on_threads(lambda: _results(mt, *case))
    for other in found[1:]:
        # sums after a oneDNN product may use another order
        for a, b in zip(found[0][:3], other[:3]):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_saturated_and_non_finite_inputs(kind):
    """Checks saturated gates, infinities and nan."""
    out = []
    for m in (torch, mt):
        net = _layer(m, kind, 4, 18)
        with m.no_grad():
            for p in net.parameters():
                p.fill_(0.5)
            x = np.zeros((3, 7, 4), np.float32)
            for row, value in enumerate((1e4, -1e4, np.inf, -np.inf, np.nan, 1e-40)):
                x[1, row] = value
            out.append(net(m.from_numpy(x))[0].numpy())
    np.testing.assert_allclose(out[1], out[0], rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not rnn.takes((np.ones(1, np.float32),)), reason="needs a C compiler")
def test_gate_activations_are_accurate():
    """Checks tanh and the logistic function within three ulps, with cells whose weights pass the
    input through."""
    x = np.concatenate([np.linspace(-95, 95, 4001), np.linspace(-0.5, 0.5, 4001), np.logspace(-30, 0, 999)]).astype(np.float32)[:, None]
    one, none = np.ones((1, 1), np.float32), np.zeros((len(x), 1), np.float32)
    y = rnn.rnn(x, none, one, one, None, None, relu=False, sizes=(len(x),), reverse=False, keep=False)[0]
    want = np.tanh(x.astype(np.float64))
    assert np.abs((y - want) / np.where(want == 0, 1, want)).max() < 3 * 2.0 ** -23
    r = rnn.gru(x, none, np.array([[1], [0], [0]], np.float32), np.zeros((3, 1), np.float32), None, None, sizes=(len(x),), reverse=False, keep=True)[2][:, :1]
    want = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert np.abs((r - want) / want)[x > -87].max() < 4 * 2.0 ** -23 and np.abs(r - want).max() < 3 * 2.0 ** -24


@pytest.mark.skipif(not rnn.takes((np.ones(1, np.float32),)), reason="needs a C compiler")
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_numpy_fallback_matches_c(kind):
    """Compares the NumPy fallback with C up to rounding, for packed rows and both directions."""
    rs = np.random.RandomState(1)
    sizes, n, width = (9, 9, 7, 3, 1), 37, 11
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[kind]

    def draw(*shape):
        return rs.randn(*shape).astype(np.float32) * np.float32(0.3)
    states = [draw(9, n) for _ in range(2 if kind == "lstm" else 1)]
    weights = [draw(gates * n, width), draw(gates * n, n)]
    operands = [draw(sum(sizes), width), *states, *weights, draw(gates * n), draw(gates * n)]
    more = {"relu": False} if kind == "rnn" else {}
    if kind == "lstm":
        operands.append(None)
    for reverse in (False, True):
        kw = {"sizes": sizes, "reverse": reverse, **more}
        both = []
        for find in (lambda name: getattr(rnn, name), lambda name: getattr(kernels, name).__wrapped__ if name.endswith("grad") else
                     getattr(kernels, name).__wrapped__.__wrapped__):
            r = find(kind)(*operands, keep=True, **kw)
            results = 1 + len(states)
            back = [np.ones_like(a) for a in r[:results]]
            rest = [operands[0], *weights, *([None] if kind == "lstm" else []), *r[results:]]
            both.append([*r[:results], *[g for g in find(f"{kind}_grad")(*back, *rest, needs=(True,) * 8, **kw) if g is not None]])
        assert len(both[0]) == len(both[1])
        for a, b in zip(*both):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
