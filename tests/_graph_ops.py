"""Single ops compiled for the npu device: every call must match the eager results and gradients,
without graph breaks."""
import numpy as np

import mindtorch.torch as mt
from mindtorch.core.compile import replay

CALLS = 4


class Random(np.random.RandomState):
    """Random generator of one call's inputs; `number` is the index of the call."""

    number = 0


def real(*shape):
    """Distinct values of both signs."""
    return lambda r: r.randn(*shape).astype(np.float32)


def positive(*shape):
    return lambda r: (r.rand(*shape) + 0.1).astype(np.float32)


def whole(n, *shape, low=0):
    """Indices below n, with repeats."""
    return lambda r: r.randint(low, n, shape)


def once(n, *shape):
    """Distinct indices below n."""
    return lambda r: r.permutation(n)[:int(np.prod(shape))].reshape(shape)


def flags(*shape):
    return lambda r: r.rand(*shape) > 0.4


class Case:
    """A function `f` of tensors made by `inputs`.

    `grads`: differentiate it as well. `close`: rtol and atol of the results.
    """

    def __init__(self, f, *inputs, grads=True, close=1e-6):
        self.f, self.inputs, self.grads, self.close = f, inputs, grads, close


def _flat(r):
    return [t for t in r if t is not None] if isinstance(r, (tuple, list)) else [r]


def _step(case, grads):
    def step(*xs):
        outs = _flat(case.f(*xs))
        if not grads:
            return outs
        some = [o for o in outs if o.requires_grad]
        wanted = [x for x in xs if x.requires_grad]
        return [*outs, *_flat(mt.autograd.grad(some, wanted, [o.detach() * 0.5 + 1 for o in some], allow_unused=True))]
    return step


def _inputs(case, seed, device, grads):
    r = Random(seed)
    r.number = seed
    xs = [mt.from_numpy(np.asarray(make(r))).to(device) for make in case.inputs]
    return [x.requires_grad_() if grads and x.is_floating_point() else x for x in xs]


def run(case, device, grads):
    """Compares CALLS compiled calls with eager ones; returns the reasons for graph breaks, [] if
    there are none."""
    step = _step(case, grads)
    compiled = mt.compile(step, backend="mindspore")
    reasons = []
    for seed in range(CALLS):
        mt.manual_seed(seed)
        want = step(*_inputs(case, seed, device, grads))
        xs = _inputs(case, seed, device, grads)
        before, runs = replay.breaks.copy(), replay.counters["graph_runs"]
        mt.manual_seed(seed)
        got = compiled(*xs)
        reasons += (replay.breaks - before).keys()
        if seed > 1 and replay.counters["graph_runs"] == runs:
            reasons.append("no graph has run")
        assert len(want) == len(got)
        for a, b in zip(want, got):
            assert a.dtype == b.dtype and a.shape == b.shape and a.device == b.device
            a, b = a.detach().float().cpu().numpy(), b.detach().float().cpu().numpy()
            np.testing.assert_allclose(b, a, rtol=case.close, atol=case.close)
    trace = compiled._torchdynamo_compiled.lazily.trace
    reasons += [e.refused for e in trace.ends() if e.refused]
    if trace.branches:
        reasons.append(f"ran differently at {', '.join(trace.branches)}")
    return list(dict.fromkeys(reasons))
