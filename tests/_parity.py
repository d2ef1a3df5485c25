"""Runs one op on real PyTorch and on mindtorch and compares values, dtypes, shapes, gradients,
errors."""
import warnings

import numpy as np
import torch as real
from hypothesis import settings

import mindtorch.torch as mine

#: Settings for tests with many parameters: a quarter of the profile's examples each.
few = settings(max_examples=settings.default.max_examples // 4)
TOLERANCE = {"float16": (2e-3, 1e-3), "bfloat16": (1.6e-2, 1e-2), "float32": (2e-5, 2e-6), "complex64": (5e-5, 5e-6),
             "float64": (1e-9, 1e-10), "complex128": (1e-9, 1e-10)}
DIFFERENTIABLE = ("float", "bfloat", "complex")


class In:
    """An input tensor: values, dtype by torch's name, memory layout, and whether it requires grad.
    """

    def __init__(self, values, dtype=None, layout="plain", grad=False):
        self.values = np.asarray(values)
        self.dtype = dtype or str(self.values.dtype)
        self.layout, self.grad = layout, grad and self.dtype.startswith(DIFFERENTIABLE)

    def on(self, T):
        a = self.values
        if self.layout == "transposed" and a.ndim > 1:
            a = np.swapaxes(a, 0, -1)
        elif self.layout == "strided" and a.ndim:
            a = np.repeat(a, 2, axis=-1)
        t = T.tensor(np.ascontiguousarray(a) if a.ndim else a).to(getattr(T, self.dtype))
        if self.grad:
            t.requires_grad_(True)
        x = t
        if self.layout == "transposed" and a.ndim > 1:
            x = t.transpose(0, -1)
        elif self.layout == "strided" and a.ndim:
            x = t[..., ::2]
        return t, x

    def __repr__(self):
        return f"In({self.values.tolist()!r}, {self.dtype!r}, {self.layout!r}, {self.grad})"


def plain(t):
    """Returns (dtype name, array) of a tensor of either side."""
    t = t.detach()
    name = str(t.dtype).rpartition(".")[2]
    if name == "bfloat16":
        t = t.float()
    if isinstance(t, real.Tensor) and t._is_zerotensor():
        t = t.clone()
    return name, np.array(t.resolve_conj().numpy())


def leaves(x):
    """Returns the tensors (and plain values) of a result, in order."""
    if isinstance(x, (tuple, list)):
        return [y for z in x for y in leaves(z)]
    return [x]


def close(expected, got, where, rtol=None, atol=None, scale=1.0):
    (name, a), (name_got, b) = expected, got
    assert name_got == name, f"{where}: dtype {name_got} instead of {name}"
    assert b.shape == a.shape, f"{where}: shape {b.shape} instead of {a.shape}"
    if name not in TOLERANCE:
        np.testing.assert_array_equal(b, a, err_msg=where)
        return
    r, t = TOLERANCE[name]
    np.testing.assert_allclose(b, a, rtol=max(r, rtol or 0), atol=max(t, atol or 0) * scale, err_msg=where)


def _outcome(fn, T, inputs):
    leaf, x = zip(*[i.on(T) for i in inputs]) if inputs else ((), ())
    with warnings.catch_warnings():
        # PyTorch's own warnings (deprecations, complex half) are not compared; NumPy's in mindtorch
        # are errors.
        warnings.simplefilter("ignore" if T is real else "error")
        return leaf, fn(T, *x)


def _cotangent(t, n):
    name, a = plain(t)
    c = np.random.RandomState(n).randint(-4, 5, a.shape) / 4
    return c.astype(a.dtype) if not name.startswith("complex") else (c + 1j * c[..., ::-1] if a.ndim else c + 1j * c)


def _loss(T, outs):
    total = None
    for n, o in enumerate(outs):
        if hasattr(o, "requires_grad") and o.requires_grad:
            c = T.tensor(_cotangent(o, n)).to(o.dtype)
            s = (o * c).sum()
            s = s.real if s.is_complex() else s
            total = s if total is None else total + s
    return total


#: Counts the checks that compared values and those that compared only errors; conftest.py requires
#: some of the former from a test with many examples.
tally = {"values": 0, "errors": 0}


def check(fn, *inputs, rtol=None, atol=None, grad_rtol=None, second=False, no_gradient=False):
    """Checks that fn(T, *tensors) has the same values, dtypes, shapes and gradients on both sides,
    or the same kind of error.

    `second`: also compares second derivatives. `no_gradient`: PyTorch's backward may fail with any
    message; by default it must be about a derivative that is not implemented.
    """
    try:
        leaf, expected = _outcome(fn, real, inputs)
        tally["values"] += 1
    except Exception as e:
        tally["errors"] += 1
        try:
            _, got = _outcome(fn, mine, inputs)
        except Exception as f:
            assert isinstance(f, type(e)) or isinstance(e, type(f)), f"{type(f).__name__}: {f}\ninstead of {type(e).__name__}: {e}"
            return
        raise AssertionError(f"no error, but torch: {type(e).__name__}: {str(e).splitlines()[0]}") from None
    leaf_got, got = _outcome(fn, mine, inputs)
    a, b = leaves(expected), leaves(got)
    assert len(a) == len(b), f"{len(b)} results instead of {len(a)}"
    for n, (x, y) in enumerate(zip(a, b)):
        if isinstance(x, real.Tensor):
            assert isinstance(y, mine.Tensor), f"result {n}: {type(y).__name__} instead of a tensor"
            close(plain(x), plain(y), f"result {n}", rtol, atol)
        else:
            assert type(x) is type(y) and (x == y or (x != x and y != y)), f"result {n}: {y!r} instead of {x!r}"
    losses = _loss(real, a), _loss(mine, b)
    assert (losses[0] is None) == (losses[1] is None), "only one side has a gradient"
    if losses[0] is None:
        return
    grads = []
    for T, loss, ts in zip((real, mine), losses, (leaf, leaf_got)):
        wanted = [t for t in ts if t.requires_grad]
        try:
            grads.append((T, wanted, T.autograd.grad(loss, wanted, create_graph=second, allow_unused=True)))
        except (RuntimeError, NotImplementedError) as e:
            if T is mine:
                raise
            assert no_gradient or "derivative" in str(e), f"torch's own gradient fails, so that none is compared: {e}"
            return
    _same_gradients(grads, "gradient", grad_rtol or rtol)
    if second:
        again = []
        for T, wanted, gs in grads:
            loss = _loss(T, [g for g in gs if g is not None])
            again.append((T, wanted, None if loss is None else T.autograd.grad(loss, wanted, allow_unused=True)))
        if again[0][2] is not None and again[1][2] is not None:
            _same_gradients(again, "second gradient", grad_rtol or rtol)
        else:
            for _, wanted, gs in again:
                assert gs is None or all(g is None or not np.any(plain(g)[1]) for g in gs), "second gradient on one side only"


def _same_gradients(grads, what, rtol):
    (_, _, a), (_, _, b) = grads
    for n, (x, y) in enumerate(zip(a, b)):
        if x is None or y is None:
            # None and zeros are the same gradient.
            for g in (x, y):
                assert g is None or not np.any(plain(g)[1]), f"{what} {n} on one side only"
            continue
        p, q = plain(x), plain(y)
        finite = np.abs(p[1][np.isfinite(p[1])])
        close(p, q, f"{what} {n}", max(rtol or 0, 5 * TOLERANCE[p[0]][0]), 5 * TOLERANCE[p[0]][1],
              max(1.0, float(finite.max())) if finite.size else 1.0)


def values(seed, shape, dtype, low=-3.0, high=3.0):
    """Returns reproducible values of a dtype; integers lie in the same range."""
    rng = np.random.RandomState(seed)
    if dtype == "bool":
        return np.asarray(rng.rand(*shape) > 0.5)
    if dtype.startswith(("int", "uint")):
        return np.asarray(rng.randint(int(max(low, 0) if dtype[0] == "u" else low), int(high) + 1, shape))
    a = rng.uniform(low, high, shape)
    return np.asarray(a + 1j * rng.uniform(low, high, shape) if dtype.startswith("complex") else np.float32(a))
