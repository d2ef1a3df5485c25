"""Random programs of views, writes, broadcasts, reductions and gradients on the CPU and on the npu
device: results and errors agree."""
import io
import random

import numpy as np
import pytest

import mindtorch.torch as mt
from mindtorch.tools import cast_to_adapter_tensor, cast_to_ms_tensor, debug_layer_info, watch_training

F = mt.nn.functional
UNARY = [mt.exp, mt.tanh, mt.sigmoid, mt.relu, mt.abs, mt.neg, mt.sin, F.gelu, F.silu, F.softplus, F.elu, F.leaky_relu, mt.square, mt.sign, mt.floor, mt.isnan]
BINARY = [mt.add, mt.sub, mt.mul, mt.div, mt.maximum, mt.minimum, mt.atan2, lambda a, b: a > b, lambda a, b: mt.where(a > b, a, b), mt.fmod]
VIEWS = [lambda t, r: t.t() if t.dim() == 2 else t, lambda t, r: t[..., ::2], lambda t, r: t.unsqueeze(r.randrange(t.dim() + 1)), lambda t, r: t.squeeze(),
         lambda t, r: t[r.randrange(t.shape[0])] if t.dim() and t.shape[0] else t, lambda t, r: t.flatten(), lambda t, r: t[..., 1:],
         lambda t, r: t.transpose(0, -1) if t.dim() else t, lambda t, r: t.expand(2, *t.shape), lambda t, r: t.reshape(-1, 1), lambda t, r: t.contiguous(),
         lambda t, r: t.view(-1), lambda t, r: t.detach()]
REDUCE = [lambda t, d: t.sum(d), lambda t, d: t.mean(d), lambda t, d: t.amax(d), lambda t, d: t.var(d), lambda t, d: t.softmax(d), lambda t, d: t.cumsum(d),
          lambda t, d: t.max(d)[0], lambda t, d: t.logsumexp(d), lambda t, d: t.argmax(d), lambda t, d: t.sort(d)[0], lambda t, d: t.norm(), lambda t, d: t.amin(d)]
WRITES = [lambda t, o: t.add_(o), lambda t, o: t.mul_(0.5), lambda t, o: t.copy_(o), lambda t, o: t.zero_(), lambda t, o: t.clamp_(-1, 1), lambda t, o: t.fill_(2),
          lambda t, o: t.__setitem__(0, 1.5) or t, lambda t, o: t.__setitem__(t > 0, -1) or t, lambda t, o: t.sub_(o, alpha=2), lambda t, o: t.masked_fill_(t < 0, 3)]
SHAPES = [(), (1,), (3,), (2, 3), (3, 1), (1, 4), (2, 3, 4), (0, 3), (4, 4), (2, 1, 3)]
DTYPES = [mt.float32] * 6 + [mt.float64, mt.int64, mt.int32, mt.bool, mt.float16, mt.bfloat16]


def array(r, shape):
    a = np.asarray(np.random.RandomState(r.randrange(1 << 30)).standard_normal(shape), "float32")
    if a.size and r.random() < 0.15:
        a.flat[r.randrange(a.size)] = r.choice([np.nan, np.inf, -np.inf, 0.0])
    return a


def run(seed, device):
    """Returns the result of each step of the program of this seed: tensors, or the class of an
    error."""
    r, out = random.Random(seed), []
    pool, leaves = [], []
    for _ in range(3):
        t, grad, dtype = mt.tensor(array(r, r.choice(SHAPES))), r.random() < 0.6, r.choice(DTYPES)
        t = t.to(dtype).to(device)
        if grad and dtype.is_floating_point:
            leaves.append(t.requires_grad_())
        pool.append(t)
    for _ in range(r.randrange(3, 9)):
        kind, x, y, i = r.choice("uubbvvvrrw"), r.choice(pool), r.choice(pool), r.randrange(1000)
        state = r.getstate()
        try:
            if kind == "u":
                new = UNARY[i % len(UNARY)](x)
            elif kind == "b":
                new = BINARY[i % len(BINARY)](x, y)
            elif kind == "v":
                new = VIEWS[i % len(VIEWS)](x, r)
            elif kind == "r":
                new = REDUCE[i % len(REDUCE)](x, i % max(x.dim(), 1))
            else:
                new = WRITES[i % len(WRITES)](x, y)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as e:
            out.append(type(e))
        else:
            out.append((kind, i, new.detach().clone(), new.requires_grad, new._version))
            pool.append(new)
        r.setstate(state)
        r.random()
    try:
        total = sum([t.float().nan_to_num(0, 1, -1).sum() for t in pool if t.requires_grad])
        if isinstance(total, mt.Tensor):
            total.backward()
    except RuntimeError as e:
        out.append(type(e))
    return out + [t.detach() for t in pool] + [None if t.grad is None else t.grad for t in leaves]


def same(a, b):
    if isinstance(a, mt.Tensor) and isinstance(b, mt.Tensor):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        half = a.dtype in (mt.float16, mt.bfloat16)
        x, y = a.cpu().double().numpy(), b.cpu().double().numpy()
        scale = np.abs(x[np.isfinite(x)]).max(initial=1)
        return np.allclose(x, y, rtol=2e-2 if half else 2e-5, atol=(2e-2 if half else 2e-6) * scale, equal_nan=True)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b if not isinstance(a, mt.Tensor) and not isinstance(b, mt.Tensor) else False


def compare(seeds, npu):
    bad = []
    for seed in seeds:
        with np.errstate(all="ignore"):
            a, b = run(seed, "cpu"), run(seed, npu)
        if len(a) != len(b) or not all(map(same, a, b)):
            bad.append((seed, [(x, y) for x, y in zip(a, b) if not same(x, y)][:1]))
    assert not bad, f"{len(bad)} of {len(seeds)} programs differ: {bad[:4]}"


def test_random_programs(npu):
    compare(range(80), npu)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_random_programs(npu):
    compare(range(1000, 1400), npu)


# --------------------------------------------------------------- tools on modules of the npu device
def net(device, act=mt.nn.ReLU):
    mt.manual_seed(3)
    return mt.nn.Sequential(mt.nn.Linear(4, 6), act(), mt.nn.BatchNorm1d(6), mt.nn.Linear(6, 2)).to(device)


def test_layer_info_matches_on_both_devices(npu):
    infos = []
    for device in ("cpu", npu):
        m, out = net(device), io.StringIO()
        with debug_layer_info(m, file=out) as info:
            m(mt.arange(12.0).reshape(3, 4).to(device)).square().sum().backward()
        assert "[backward] parameter 3.weight" in out.getvalue()
        infos.append(info)
    a, b = infos
    assert len(a.calls) == len(b.calls) == 5
    for x, y in zip(a.calls, b.calls):
        for field in ("inputs", "outputs", "grad_outputs"):
            for path in x[field]:
                assert y[field][path]["mean"] == pytest.approx(x[field][path]["mean"], abs=1e-4), (x["name"], field)
    assert set(a.gradients) == set(b.gradients)


def test_watch_reports_the_overflowing_module(npu):
    class Odd(mt.nn.Module):
        step = 0

        def forward(self, x):
            return mt.log(x * 0) + 1 if self.step >= 2 else x
    found = []
    for device in ("cpu", npu):
        m, x = net(device, Odd), mt.ones(3, 4, device=device) * mt.arange(3.0, device=device)[:, None]
        opt = mt.optim.SGD(m.parameters(), lr=0.01)

        def step(i, m=m, x=x, opt=opt):
            m[1].step = i
            opt.zero_grad()
            m(x).square().mean().backward()
            opt.step()
        found.append([(f["kind"], f["name"], f["step"]) for f in watch_training(m, opt, step, 4, on_finding=None)])
    assert found[0] == found[1] and ("overflow", "1", 2) in found[1]


def test_conversions_to_mindspore_share_the_devices_memory(npu):
    x = mt.arange(12.0).reshape(3, 4).to(npu)
    for y in (x, x[1:, ::2], x.half(), x[:0], x.sum()):
        h = cast_to_ms_tensor(y)
        np.testing.assert_array_equal(h.asnumpy(), y.cpu().numpy())
        back = cast_to_adapter_tensor(h)
        assert back.device == y.device and mt.equal(back, y)
    h = cast_to_ms_tensor({"a": [x]})["a"][0]
    x.add_(1)
    np.testing.assert_array_equal(h.asnumpy(), x.cpu().numpy())


def test_moved_lazy_modules_stay_lazy(npu):
    m = mt.nn.Sequential(mt.nn.LazyLinear(4), mt.nn.LazyBatchNorm1d()).to(npu)
    m(mt.ones(3, 5, device=npu) * mt.arange(3.0, device=npu)[:, None])
    assert all(t.device == npu for t in (*m.parameters(), *m.buffers())) and m[1].running_mean.shape == (4,)
