"""In-place ops that write by index, against PyTorch: values, versions, aliases, errors, and that
the tensor is not copied."""
import pathlib
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mindtorch.torch as mt
from _parity import few

pytestmark = pytest.mark.host_only("whether its arrays are copied")
REDUCES = ["sum", "prod", "mean", "amax", "amin"]
OPS = {
    "index_copy_": lambda t, x, i, s: x.index_copy_(1, i, s),
    "index_add_": lambda t, x, i, s: x.index_add_(1, i, s, alpha=2),
    "index_fill_": lambda t, x, i, s: x.index_fill_(1, i, 3),
    "scatter_": lambda t, x, i, s: x.scatter_(1, i.reshape(1, -1, 1).expand(*s.shape), s),
    "scatter_ number": lambda t, x, i, s: x.scatter_(1, i.reshape(1, -1, 1).expand(*s.shape), 2),
    "scatter_ add": lambda t, x, i, s: x.scatter_(1, i.reshape(1, -1, 1).expand(*s.shape), s, reduce="add"),
    "scatter_add_": lambda t, x, i, s: x.scatter_add_(1, i.reshape(1, -1, 1).expand(*s.shape), s),
    "index_put_": lambda t, x, i, s: x.index_put_((i,), s[0, 0]),
    "index_put_ add": lambda t, x, i, s: x.index_put_((i,), s[0, 0], accumulate=True),
    "index_reduce_": lambda t, x, i, s: x.index_reduce_(1, i, s, "amax"),
    **{f"scatter_reduce_ {r}": lambda t, x, i, s, r=r: x.scatter_reduce_(1, i.reshape(1, -1, 1).expand(*s.shape), s, r) for r in REDUCES},
    **{f"scatter_reduce_ {r} alone": lambda t, x, i, s, r=r: x.scatter_reduce_(1, i.reshape(1, -1, 1).expand(*s.shape), s, r, include_self=False)
       for r in REDUCES},
}
#: Ops that allocate a temporary of the tensor's size.
COPYING = {"index_put_ add", "index_reduce_", *[n for n in OPS if "reduce_" in n]}


def arrays(dtype, places, seed=0):
    rs = np.random.RandomState(seed)
    return (rs.randint(-4, 5, (3, 6, 5))).astype(dtype), np.array(places), rs.randint(-4, 5, (3, len(places), 5)).astype(dtype)


def run(t, op, dtype, places, way, seed):
    a, i, s = (t.from_numpy(x.copy()) for x in arrays(dtype, places, seed))
    x, saved = a, None
    if way == "view":
        a = t.cat((a, a))
        x = a[3:]
    elif way == "strided":
        a = a.transpose(0, 2).contiguous()
        x = a.transpose(0, 2)
    elif way == "half":
        a, s = a.to(t.bfloat16), s.to(t.bfloat16)
        x = a
    elif way == "recorded":
        a, s = a.requires_grad_(), s.requires_grad_()
        x = a * 1
    elif way == "clone":
        saved = a.clone()
    elif way == "inference":
        with t.inference_mode():
            x = a = a.clone()
            op(t, x, i, s)
        return [x.clone().numpy()]
    try:
        r = op(t, x, i, s)
    except (RuntimeError, IndexError, NotImplementedError) as e:
        return type(e)
    assert r is x
    if way == "recorded":
        (x * x).sum().backward()
        return [x.detach().numpy(), x._version, a.grad.numpy(), *([] if s.grad is None else [s.grad.numpy()])]
    return [z if isinstance(z, int) else z.float().numpy() for z in (x, a, x._version, a._version, *([saved] if saved is not None else []))]


@pytest.mark.parametrize("way", ["plain", "view", "strided", "half", "clone", "recorded", "inference"])
@pytest.mark.parametrize("name", OPS)
@few
@given(st.data())
def test_writes(name, way, data):
    if (name, way) == ("scatter_ add", "recorded"):
        pytest.skip("torch has no derivative of it")
    top = 2 if name.startswith("index_put") else 5
    repeats = "add" in name or "reduce" in name
    places = data.draw(st.lists(st.integers(0, top), min_size=1, max_size=5 if repeats else top + 1, unique=not repeats))
    dtype = "float32" if way in ("half", "recorded") else data.draw(st.sampled_from(["float32", "float64", "int64"]))
    real, mine = (run(t, OPS[name], dtype, places, way, len(places)) for t in (torch, mt))
    if isinstance(real, type):
        assert mine is real
        return
    for x, y in zip(mine, real, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6 if way != "half" else 2e-2)


@pytest.mark.parametrize("name", OPS)
def test_places_outside(name):
    """(PyTorch may raise after part of the write; mindtorch writes nothing.)"""
    a, i, s = arrays("float32", [1, 99])
    x = mt.from_numpy(a.copy())
    with pytest.raises((RuntimeError, IndexError)):
        OPS[name](mt, x, mt.from_numpy(i), mt.from_numpy(s))
    np.testing.assert_array_equal(x.numpy(), a)
    OPS[name](mt, x, mt.from_numpy(i[:1]), mt.from_numpy(s[:, :1]))
    other = mt.from_numpy(a.copy())
    y = OPS[name](mt, other.clone(), mt.from_numpy(i[:1]), mt.from_numpy(s[:, :1]))
    np.testing.assert_array_equal(x.numpy(), y.numpy())
    np.testing.assert_array_equal(other.numpy(), a)


def peak(name, wrap):
    """Returns (peak bytes allocated by a call, bytes of the written tensor)."""
    x, i, s = mt.zeros(64, 128, 512), mt.tensor([5, 9]), mt.ones(64, 2, 512)

    def write(x, i, s):
        OPS[name](mt, x, i, s)
        return x[0, 0, 0] + 1
    f = wrap(write)
    with mt.no_grad():
        for _ in range(3):
            f(x, i, s)
        tracemalloc.start()
        try:
            f(x, i, s)
            return tracemalloc.get_traced_memory()[1], 4 * x.numel()
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("name", sorted(set(OPS) - COPYING))
def test_indexed_writes_do_not_copy_the_tensor(name):
    beside, own = peak(name, lambda f: f)
    assert beside < own / 4


def test_compiled_indexed_writes_do_not_copy_the_tensor():
    """Runs in a separate process: once a device has been used, compiled calls run op by op."""
    here = pathlib.Path(__file__).resolve()
    code = f"""if True:
        import sys
        sys.path[:0] = [{str(here.parent.parent)!r}, {str(here.parent)!r}, {str(pathlib.Path(mt.__file__).parents[2])!r}]
        import test_written_in_place as t
        for name in sorted(set(t.OPS) - t.COPYING):
            beside, own = t.peak(name, t.mt.compile)
            assert beside < own / 4, f"{{name}}: {{beside}} bytes beside {{own}}"
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_compiled_caches():
    """Keys and values written by index, as in a generating model, equal eager execution at every
    step."""
    def step(keys, values, at, k, v, q):
        keys.index_copy_(2, at, k)
        values.index_copy_(2, at, v)
        return mt.nn.functional.scaled_dot_product_attention(q, keys, values)
    f, rs = mt.compile(step), np.random.RandomState(0)
    mine, eager = ([mt.zeros(2, 3, 8, 4) for _ in range(2)] for _ in range(2))
    with mt.no_grad():
        for n in range(8):
            given = [mt.tensor([n]), *(mt.from_numpy(rs.randn(2, 3, 1, 4).astype(np.float32)) for _ in range(3))]
            np.testing.assert_allclose(f(*mine, *given).numpy(), step(*eager, *given).numpy(), rtol=1e-5, atol=1e-6)
            for a, b in zip(mine, eager):
                np.testing.assert_array_equal(a.numpy(), b.numpy())
                assert a._version == b._version


def test_source_overlapping_the_target():
    """A source that overlaps the written memory is rejected, or read before the write, as in
    PyTorch."""
    for t in (mt, torch):
        x = t.arange(12.0).reshape(3, 4)
        with pytest.raises(RuntimeError):
            x.index_copy_(0, t.tensor([0, 1]), x[1:])
        x.index_fill_(0, t.tensor([0]), x[2, 3])
        assert x[0].tolist() == [11.0] * 4


# ------------------------------------------------------------------ elementwise ops in chunks
PIECEWISE = {
    "add_": lambda t, x, y: x.add_(y), "sub_ scaled": lambda t, x, y: x.sub_(y, alpha=2), "mul_": lambda t, x, y: x.mul_(y), "mul_ of itself": lambda t, x, y: x.mul_(x),
    "mul_ of a row": lambda t, x, y: x.mul_(y[0]), "add_ of a number": lambda t, x, y: x.add_(3), "add_ of its row": lambda t, x, y: x.add_(x[0]),
    "remainder_": lambda t, x, y: x.remainder_(3), "floor_divide_": lambda t, x, y: x.floor_divide_(y), "pow_": lambda t, x, y: x.pow_(2), "clamp_": lambda t, x, y: x.clamp_(-1, 1),
    "masked_fill_": lambda t, x, y: x.masked_fill_(y > 1, 7), "addcmul_": lambda t, x, y: x.addcmul_(y, x, value=2), "div_": lambda t, x, y: x.div_(y), "exp_": lambda t, x, y: x.exp_(),
    "gt_": lambda t, x, y: x.gt_(y), "bitwise_and_": lambda t, x, y: x.bitwise_and_(y), "relu_": lambda t, x, y: x.relu_(), "shifted": lambda t, x, y: x[1:].add_(x[:-1]),
    "turned": lambda t, x, y: x.add_(y.flip(0)), "wrong size": lambda t, x, y: x.add_(y[:2]), "a column": lambda t, x, y: x[:, 1].mul_(2), "tensor for a number": lambda t, x, y: x.mul_(y[0, 0]),
}


@pytest.mark.parametrize("name", PIECEWISE)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
def test_elementwise_ops_in_chunks(name, dtype, monkeypatch):
    from mindtorch.core.dispatch import op_registry
    monkeypatch.setattr(op_registry, "_MANY", 8)
    monkeypatch.setattr(op_registry, "_PIECE", 7)
    rng = np.random.RandomState(0)
    a, b = rng.randint(-2, 3, (5, 6)), rng.randint(1, 4, (5, 6))

    def run(t):
        x, y = t.tensor(a).to(getattr(t, dtype)), t.tensor(b).to(getattr(t, dtype))
        view, before = x.view(-1), x.data_ptr()
        try:
            PIECEWISE[name](t, x, y)
        except (RuntimeError, NotImplementedError) as e:
            return type(e).__name__, x.tolist()
        return x.tolist(), view.tolist(), x.data_ptr() == before, x._version, str(x.dtype)
    got, want = run(mt), run(torch)
    if dtype in ("float32", "float16") and len(want) > 2:
        np.testing.assert_allclose(got[0], want[0], rtol=1e-6 if dtype == "float32" else 1e-3)
        got, want = got[2:], want[2:]
    assert got == want
