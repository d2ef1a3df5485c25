"""Runs one program on real PyTorch and on mindtorch and compares the results: values, errors,
warnings."""
import warnings

import numpy as np
import torch as real

import mindtorch.torch as mine

SIDES = (real, mine)


def plain(x):
    """Converts tensors to arrays, also inside containers, so that results of both sides are
    comparable."""
    if isinstance(x, real.Tensor) or isinstance(x, mine.Tensor):
        t = x.detach()
        name = str(t.dtype).rpartition(".")[2]
        return name, np.array((t.float() if name == "bfloat16" else t).numpy())
    if isinstance(x, dict):
        return {(k if isinstance(k, (str, int)) else "tensor"): plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [type(x).__name__, *map(plain, x)]
    return x


def agree(a, b, rtol=0.0, atol=0.0, where="result"):
    if isinstance(a, tuple) and len(a) == 2 and isinstance(a[1], np.ndarray):
        assert a[0] == b[0], f"{where}: {b[0]} instead of {a[0]}"
        np.testing.assert_allclose(b[1], a[1], rtol=rtol, atol=atol, err_msg=where)
    elif isinstance(a, dict):
        assert list(a) == list(b), f"{where}: keys {list(b)} instead of {list(a)}"
        for k in a:
            agree(a[k], b[k], rtol, atol, f"{where}[{k!r}]")
    elif isinstance(a, list):
        assert isinstance(b, list) and len(a) == len(b), f"{where}: {b} instead of {a}"
        for i, (x, y) in enumerate(zip(a, b)):
            agree(x, y, rtol, atol, f"{where}[{i}]")
    elif isinstance(a, float):
        assert type(b) is float
        np.testing.assert_allclose(b, a, rtol=max(rtol, 1e-12), atol=atol, err_msg=where)
    else:
        assert type(a) is type(b) and a == b, f"{where}: {b!r} instead of {a!r}"


def outcome(fn, side):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = plain(fn(side))
        except Exception as e:
            result = type(e).__name__, str(e)
    return result, [(w.category.__name__, str(w.message)) for w in seen]


def same(fn, rtol=0.0, atol=0.0):
    """Checks that fn(torch) has the same value or error, and the same warnings, on both sides."""
    (a, warned_a), (b, warned_b) = (outcome(fn, side) for side in SIDES)
    agree(a, b, rtol, atol)
    assert warned_a == warned_b


def refused(fn):
    """Checks that both sides raise the same error."""
    (a, _), (b, _) = (outcome(fn, side) for side in SIDES)
    assert isinstance(a, tuple) and a[0].endswith("Error"), f"torch accepts this: {a}"
    assert a == b


def parameter(T, a, dtype="float32"):
    return T.nn.Parameter(T.tensor(np.array(a)).to(getattr(T, dtype)))


def data(seed, *shape, dtype="float32"):
    rng = np.random.RandomState(seed)
    a = rng.randn(*shape)
    return (a + 1j * rng.randn(*shape)).astype(dtype) if dtype.startswith("complex") else a.astype(dtype)
